//! Real files: locks, kinds, sparseness, copies.

use std::fs;
use std::os::unix::fs::MetadataExt;

use flash::{Dimensions, Geometry, Medium, Moved, Ppa, RamMedium};

use super::{Block, chunk, header, program, reads_as};
use crate::file_io::lock;
use crate::layout::state_offsets;
use crate::{DriveFile, FileError, FileIo, Header, SystemFile, Unfinished, clone, load, save};

/// Why it does not open.
fn refusal(path: &std::path::Path, read_only: bool) -> FileError {
    DriveFile::open(path, read_only).map(|_| ()).unwrap_err()
}

/// A drive may be hosted by another thread than the one that opened it.
const _: fn() = || {
    fn goes_to_another_thread<T: Send>() {}
    goes_to_another_thread::<DriveFile>();
};

#[test]
fn a_second_opener_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive");
    let drive = DriveFile::create(&path, &header(8)).unwrap();
    for read_only in [false, true] {
        let said = refusal(&path, read_only).to_string();
        assert!(said.contains(&format!("process {}", std::process::id())), "{said}");
        assert!(said.contains("close it there"), "{said}");
    }
    drive.close().unwrap();
    let readers = [(); 2].map(|()| DriveFile::open(&path, true).unwrap());
    assert!(matches!(refusal(&path, false), FileError::InUse { .. }));
    drop(readers);
    drop(DriveFile::open(&path, false).unwrap());
    assert!(!DriveFile::open(&path, true).unwrap().clean, "it was not closed");
    assert!(matches!(DriveFile::create(&path, &header(8)), Err(FileError::Exists { .. })));
}

/// A process that was forked has such a copy of what was open.
#[test]
fn a_copy_of_its_descriptor_keeps_no_file_locked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive");
    DriveFile::create(&path, &header(8)).unwrap().close().unwrap();
    let storage = SystemFile::open(&path, false).unwrap();
    let copy = storage.file().try_clone().unwrap();
    drop(storage);
    DriveFile::open(&path, false).unwrap();
    drop(copy);
}

#[test]
fn what_is_locked_is_what_has_the_name() {
    let folder = tempfile::tempdir().unwrap();
    let (path, other) = (folder.path().join("drive"), folder.path().join("other"));
    DriveFile::create(&path, &header(8)).unwrap().close().unwrap();
    for replaced in [1, 3] {
        let mut left = replaced;
        let opened = SystemFile::open_locking(&path, false, |file, at, how| {
            if left > 0 {
                left -= 1;
                DriveFile::create(&other, &header(8)).unwrap().close().unwrap();
                fs::rename(&other, &path).unwrap();
            }
            lock(file, at, how)
        });
        assert!(opened.unwrap().is_at(&path), "replaced {replaced} times");
    }
    let gone = SystemFile::open_locking(&path, false, |file, at, how| {
        fs::remove_file(&path).unwrap();
        lock(file, at, how)
    });
    assert!(matches!(gone, Err(FileError::Missing { .. })));
}

#[test]
fn a_file_system_that_cannot_sync_is_good_enough_for_reading() {
    // It knows no syncs, as those do not that can only be read.
    let path = std::path::Path::new("/proc/version");
    let refused = fs::File::open(path).unwrap().sync_data().map_err(|e| e.kind());
    assert_eq!(refused, Err(std::io::ErrorKind::InvalidInput));
    SystemFile::open(path, true).unwrap().sync().unwrap();
    assert!(matches!(refusal(path, true), FileError::Empty));
}

#[test]
fn what_is_no_drive_file_is_told() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(refusal(folder.path(), false), FileError::NotAFile { .. }));
    assert!(matches!(refusal("/dev/null".as_ref(), false), FileError::NotAFile { .. }));
    let path = folder.path().join("other");
    assert!(matches!(refusal(&path, false), FileError::Missing { .. }));
    fs::write(&path, [b'x'; 5000]).unwrap();
    assert!(matches!(refusal(&path, true), FileError::Foreign));
    let wrong = Header { kept: 512, ..header(8) };
    let path = folder.path().join("never");
    assert!(matches!(DriveFile::create(&path, &wrong), Err(FileError::Range { .. })));
    assert!(!path.exists());
}

#[test]
fn read_only_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive");
    let mut drive = DriveFile::create(&path, &header(0)).unwrap();
    let block = Block { number: 7, whole: false };
    let at = drive.header().geometry.chunk_start(1);
    assert_eq!(program(&mut drive, at, &[block; 2]), Moved::Done);
    drive.describe(1, &chunk(0, 2, 8));
    // Not closed: what is looked at again is not written either.
    drop(drive);
    let before = fs::read(&path).unwrap();
    let mut opened = DriveFile::open(&path, true).unwrap();
    assert_eq!(opened.chunks[1], chunk(0, 2, 8));
    assert_eq!(reads_as(&mut opened.medium, at, block), Some(true));
    assert_eq!(opened.medium.barrier(), Moved::Done);
    assert_eq!(program(&mut opened.medium, Ppa(at.0 + 2), &[block; 2]), Moved::Failed);
    assert_eq!(opened.medium.reset(at), Moved::Failed);
    assert!(matches!(opened.medium.error(), Some(FileError::ReadOnly)));
    assert!(matches!(opened.medium.close(), Err(FileError::ReadOnly)));
    assert_eq!(fs::read(&path).unwrap(), before);
}

/// A terabyte and more, of which some numbers are no powers of two.
fn large(kept: u32) -> Header {
    let dim = Dimensions {
        groups: 12,
        pus: 3,
        chunks: 3736,
        pages: 1024,
        planes: 2,
        ..Dimensions::LEAST
    };
    let geometry = Geometry::new(dim).unwrap();
    assert!(geometry.blocks() * 4096 > 1 << 40);
    Header { geometry, ..header(kept) }
}

#[test]
fn an_empty_terabyte_costs_little() {
    let folder = tempfile::tempdir().unwrap();
    for kept in [4096, 8] {
        let path = folder.path().join(format!("drive{kept}"));
        let drive = DriveFile::create(&path, &large(kept)).unwrap();
        let used = drive.used_bytes().unwrap();
        assert!(used <= 64 << 10, "{used} bytes");
        drive.close().unwrap();
        let opened = DriveFile::open(&path, false).unwrap();
        assert!(opened.clean && opened.chunks.iter().all(|c| *c == chunk(0, 0, 9)));
        assert!(opened.medium.used_bytes().unwrap() <= 64 << 10);
    }
}

#[test]
fn a_reset_gives_its_space_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive");
    let mut drive = DriveFile::create(&path, &large(4096)).unwrap();
    let at = drive.header().geometry.chunk_start(77);
    let row = [Block { number: 7, whole: true }; 128];
    for first in (0..2048).step_by(128) {
        assert_eq!(program(&mut drive, Ppa(at.0 + first), &row), Moved::Done);
    }
    drive.describe(77, &chunk(0, 2048, 2048));
    while drive.barrier() == Moved::Pending {}
    let full = drive.used_bytes().unwrap();
    assert!(full > 8 << 20, "{full}");
    assert_eq!(drive.reset(at), Moved::Done);
    drive.describe(77, &chunk(1, 0, 2048));
    while program(&mut drive, at, &row[..2]) == Moved::Pending {}
    assert!(drive.error().is_none());
    let left = drive.used_bytes().unwrap();
    // A file system without holes keeps it.
    assert!(left < 1 << 20 || left >= full, "{left}");
}

/// What has all of its space when it is opened never gives any back; what was only made
/// as long does.
#[test]
fn a_preallocated_file_keeps_its_space() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive");
    // Who asks to end while the last is made durable has no file.
    let unfinished = Unfinished::begin(&path, false).unwrap();
    assert!(!unfinished.preallocate(&header(4096), &mut |part| part < 1.0).unwrap());
    drop(unfinished);
    for preallocates in [true, false] {
        let unfinished = Unfinished::begin(&path, !preallocates).unwrap();
        if preallocates {
            assert!(unfinished.preallocate(&header(4096), &mut |_| true).unwrap());
        }
        unfinished.create(&header(4096)).unwrap().close().unwrap();
        unfinished.finish().unwrap();
        let mut drive = DriveFile::open(&path, false).unwrap().medium;
        let (at, bytes) =
            (header(4096).geometry.chunk_start(0), fs::metadata(&path).unwrap().len());
        assert_eq!(drive.is_preallocated(), preallocates);
        assert_eq!(drive.used_bytes().unwrap() >= bytes, preallocates);
        let row = [Block { number: 7, whole: true }; 8];
        assert_eq!(program(&mut drive, at, &row), Moved::Done);
        drive.describe(0, &chunk(0, 8, 8));
        assert_eq!(drive.reset(at), Moved::Done);
        drive.describe(0, &chunk(1, 0, 8));
        while program(&mut drive, at, &row[..2]) == Moved::Pending {}
        assert_eq!(reads_as(&mut drive, at, row[0]), Some(true));
        assert_eq!(reads_as(&mut drive, Ppa(at.0 + 2), row[2]), None, "a life before");
        drive.close().unwrap();
        let hole = DriveFile::open(&path, true).unwrap().medium;
        assert_eq!(hole.is_preallocated(), preallocates);
    }
}

/// What was deleted, or replaced at its path, does not take flushes any more and does
/// not end well.
#[test]
fn a_file_that_was_deleted_is_not_durable() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive");
    for deletes in [true, false] {
        let mut drive = DriveFile::create(&path, &header(8)).unwrap();
        let (at, block) = (header(8).geometry.chunk_start(0), Block { number: 9, whole: false });
        assert_eq!(program(&mut drive, at, &[block; 4]), Moved::Done);
        if deletes {
            fs::remove_file(&path).unwrap();
        } else {
            fs::write(folder.path().join("other"), "").unwrap();
            fs::rename(folder.path().join("other"), &path).unwrap();
        }
        while drive.barrier() == Moved::Pending {}
        assert_eq!(drive.barrier(), Moved::Failed);
        assert_eq!(reads_as(&mut drive, at, block), Some(true), "it is still read");
        let error = drive.close().unwrap_err().to_string();
        assert!(error.contains("somebody deleted the file"), "{error}");
    }
}

#[test]
fn its_tables_are_known_before_they_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive");
    let drive = DriveFile::create(&path, &large(8)).unwrap();
    assert!(matches!(DriveFile::header_of(&path), Err(FileError::InUse { .. })));
    let descriptors = size_of_val(&drive.chunks[..]);
    drive.close().unwrap();
    let header = DriveFile::header_of(&path).unwrap();
    assert_eq!(header, large(8));
    let opened = DriveFile::open(&path, true).unwrap();
    let taken = descriptors + size_of_val(&opened.chunks[..]);
    assert_eq!(DriveFile::tables(&header.geometry), taken as u64);
}

#[test]
fn a_clone_is_the_same_and_sparse() {
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("drive"), folder.path().join("copy"));
    let mut drive = DriveFile::create(&path, &large(4096)).unwrap();
    let (at, block) = (drive.header().geometry.chunk_start(4099), Block { number: 9, whole: true });
    assert_eq!(program(&mut drive, at, &[block; 4]), Moved::Done);
    drive.describe(4099, &chunk(0, 4, 2048));
    assert!(matches!(clone(&path, &copy), Err(FileError::InUse { .. })));
    drive.close().unwrap();
    clone(&path, &copy).unwrap();
    assert!(matches!(clone(&path, &copy), Err(FileError::Exists { .. })));
    assert!(fs::metadata(&copy).unwrap().blocks() * 512 < 1 << 20);
    let mut opened = DriveFile::open(&copy, false).unwrap();
    assert!(opened.clean);
    assert_eq!(opened.medium.header(), &large(4096));
    assert_eq!(opened.chunks[4099], chunk(0, 4, 2048));
    assert_eq!(reads_as(&mut opened.medium, Ppa(at.0 + 3), block), Some(true));
}

#[test]
fn a_block_that_cannot_be_read_stays_so_in_a_copy() {
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("drive"), folder.path().join("copy"));
    let (header, block) = (header(8), Block { number: 9, whole: false });
    let mut drive = DriveFile::create(&path, &header).unwrap();
    let at = header.geometry.chunk_start(0);
    // The first two were never written.
    assert_eq!(program(&mut drive, Ppa(at.0 + 2), &[block; 2]), Moved::Done);
    let mut chunks = vec![chunk(0, 0, 8); header.geometry.chunk_slots()];
    (chunks[0], chunks[1]) = (chunk(0, 4, 8), chunk(3, 0, 8));
    chunks[2].state = flash::ChunkState::Offline;
    save(&copy, &header, &chunks, &mut drive, |_| Ok(())).unwrap();
    let mut opened = DriveFile::open(&copy, true).unwrap();
    assert_eq!(opened.chunks, chunks);
    assert_eq!(reads_as(&mut opened.medium, at, block), None);
    assert_eq!(reads_as(&mut opened.medium, Ppa(at.0 + 2), block), Some(true));
    let mut ram = RamMedium::new(&header.geometry, 8).unwrap();
    assert!(matches!(load(&mut opened, &mut ram), Err(FileError::Unreadable { ppa: 0 })));
    let mut ram = RamMedium::new(&header.geometry, 4096).unwrap();
    assert!(matches!(load(&mut opened, &mut ram), Err(FileError::Range { .. })));
}

/// Makes a closed file one of an older version: its header, and the states, of which
/// there were two.
fn make_older(path: &std::path::Path, header: &Header, version: u32) {
    let mut bytes = fs::read(path).unwrap();
    let len = header.encode().len();
    let named = crate::header::named(&bytes[..len], version);
    bytes[8..16].copy_from_slice(&named);
    for second in state_offsets(1) {
        bytes[second as usize..][..2048].fill(0);
    }
    fs::write(path, bytes).unwrap();
}

#[test]
fn older_versions_are_read_and_become_this_one_when_written() {
    (1..4).for_each(is_read_and_becomes_this_one);
}

fn is_read_and_becomes_this_one(older: u32) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive");
    let (header, block) = (header(8), Block { number: 9, whole: false });
    let mut drive = DriveFile::create(&path, &header).unwrap();
    let at = header.geometry.chunk_start(0);
    assert_eq!(program(&mut drive, at, &[block; 4]), Moved::Done);
    drive.describe(0, &chunk(0, 4, 8));
    // Offline, and nothing more is told of it.
    drive.describe(1, &flash::Chunk { state: flash::ChunkState::Offline, ..chunk(0, 0, 8) });
    drive.close().unwrap();
    make_older(&path, &header, older);
    let version = || u32::from_le_bytes(fs::read(&path).unwrap()[8..12].try_into().unwrap());
    for read_only in [true, false] {
        let mut opened = DriveFile::open(&path, read_only).unwrap();
        assert_eq!(opened.medium.header(), &header);
        assert_eq!(reads_as(&mut opened.medium, at, block), Some(true));
        assert_eq!(opened.chunks[1].why_offline(), Some(flash::Cause::Factory));
        assert_eq!(version(), if read_only { older } else { 5 });
        opened.medium.close().unwrap();
    }
    let retired = flash::Chunk {
        state: flash::ChunkState::Offline,
        cause: flash::Cause::Retired,
        ..chunk(1, 0, 8)
    };
    let mut drive = DriveFile::open(&path, false).unwrap().medium;
    drive.describe(2, &retired);
    drive.close().unwrap();
    assert_eq!(DriveFile::open(&path, true).unwrap().chunks[2], retired);
}

#[test]
fn it_is_known_when_a_drive_was_last_used() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive");
    let mut drive = DriveFile::create(&path, &header(8)).unwrap();
    let now = || std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let before = now();
    drive.close().unwrap();
    // Nobody told it the drive's time.
    let opened = DriveFile::open(&path, false).unwrap();
    assert_eq!(opened.last_used, None);
    drive = opened.medium;
    drive.note_time(5);
    drive.close().unwrap();
    let opened = DriveFile::open(&path, true).unwrap();
    assert_eq!(opened.medium.time(), 5);
    assert!((before..=now()).contains(&opened.last_used.unwrap()));
}
