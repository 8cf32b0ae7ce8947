//! A file that is being made: killed at any moment there is nothing of its name,
//! and nothing beside it that opens, but all of it.

use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};

use flash::{Chunk, Medium, Moved, Ppa, RamMedium};

use super::folder::Folder;
use super::{Block, Rng, chunk, header, program, reads_as};
use crate::copy::{save_in, share};
use crate::disk::Disk;
use crate::header::NAMELESS;
use crate::{DriveFile, FileError, Unfinished, clone, save};

/// A drive in memory: one chunk is full, one in part.
fn drive() -> (RamMedium, Vec<Chunk>, Vec<(Ppa, Block)>) {
    let header = header(8);
    let g = header.geometry;
    let mut ram = RamMedium::new(&g, 8).unwrap();
    let mut chunks = vec![Chunk::default(); g.chunk_slots()];
    let mut blocks = Vec::new();
    for (index, count) in [(0, 8), (5, 4)] {
        chunks[index] = chunk(3, count, 8);
        for i in (0..u64::from(count)).step_by(2) {
            let at = Ppa(g.chunk_start(index).0 + i);
            let pair = [2 * i + 1, 2 * i + 2].map(|number| Block { number, whole: false });
            assert_eq!(program(&mut ram, at, &pair), Moved::Done);
            blocks.extend([(at, pair[0]), (Ppa(at.0 + 1), pair[1])]);
        }
    }
    (ram, chunks, blocks)
}

/// Whether a file opens; then all is there.
fn opens(image: Vec<u8>, chunks: &[Chunk], blocks: &[(Ppa, Block)]) -> bool {
    let Ok(mut opened) = DriveFile::open_on(Disk::with(image).storage(), true, false) else {
        return false;
    };
    assert!(opened.clean && opened.chunks == chunks, "it opens and is not whole");
    for &(at, block) in blocks {
        assert_eq!(reads_as(&mut opened.medium, at, block), Some(true));
    }
    true
}

/// Saves, killed after so many writes and so many changes of names. True when it
/// was not killed.
fn killed_after(writes: u64, changes: u64) -> bool {
    let (mut ram, chunks, blocks) = drive();
    let folder = Folder::new(Some(changes));
    let disk = folder.disk();
    disk.set_fuse(Some(writes));
    let unfinished = Unfinished::of(folder.clone(), disk.storage());
    let saved = save_in(&unfinished, &header(8), &chunks, &mut ram, false);
    let saved = saved.and_then(|()| unfinished.finish());
    for seed in 0..6 {
        for (as_now, image) in [
            (true, disk.killed()),
            (true, disk.crashed(&mut Rng(seed))),
            (false, disk.crashed(&mut Rng(seed))),
        ] {
            let [_, named] = folder.names(as_now);
            let opens = opens(image, &chunks, &blocks);
            assert!(opens || !named, "{writes} writes, {changes} changes: not whole, and named");
            assert!(named || saved.is_err(), "{writes} writes, {changes} changes: not durable");
        }
    }
    saved.is_ok()
}

#[test]
fn a_save_that_is_killed_leaves_nothing_that_opens() {
    let mut killed = 0;
    while !killed_after(killed, 9) {
        killed += 1;
    }
    assert!(killed > 20, "{killed}");
    assert!(!killed_after(999, 0) && !killed_after(999, 1) && killed_after(999, 2));
}

/// A medium that looks at the folder whenever it is read.
struct Watching<'a> {
    ram: &'a mut RamMedium,
    folder: &'a std::path::Path,
    looked: &'a AtomicUsize,
}

impl Medium for Watching<'_> {
    fn kept(&self) -> u32 {
        self.ram.kept()
    }

    fn program(&mut self, at: Ppa, count: u32, data: &[u8], tags: &[u8]) -> Moved {
        self.ram.program(at, count, data, tags)
    }

    fn read(&mut self, at: Ppa, count: u32, data: &mut [u8], tags: &mut [u8]) -> Moved {
        for entry in fs::read_dir(self.folder).unwrap() {
            let path = entry.unwrap().path();
            assert_eq!(path.extension().unwrap(), "unfinished");
            // As a copy of what a kill would leave.
            let left = self.folder.parent().unwrap().join("left");
            fs::copy(&path, &left).unwrap();
            let opened = DriveFile::open(&left, true).map(|_| ()).unwrap_err();
            assert!(matches!(opened, FileError::Unfinished), "{opened}");
            self.looked.fetch_add(1, Ordering::Relaxed);
        }
        self.ram.read(at, count, data, tags)
    }

    fn reset(&mut self, chunk: Ppa) -> Moved {
        self.ram.reset(chunk)
    }

    fn barrier(&mut self) -> Moved {
        self.ram.barrier()
    }
}

#[test]
fn a_file_has_its_name_when_it_is_whole() {
    let outer = tempfile::tempdir().unwrap();
    let folder = outer.path().join("folder");
    fs::create_dir(&folder).unwrap();
    let path = folder.join("drive.ssd");
    let (mut ram, chunks, _) = drive();
    let looked = AtomicUsize::new(0);
    let mut watching = Watching { ram: &mut ram, folder: &folder, looked: &looked };
    save(&path, &header(8), &chunks, &mut watching, |_| Ok(())).unwrap();
    assert!(looked.load(Ordering::Relaxed) > 4);
    assert_eq!(DriveFile::open(&path, true).unwrap().chunks, chunks);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
}

#[test]
fn what_a_killed_one_left_is_taken_over_and_what_is_anothers_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let (path, beside) = (folder.path().join("a.ssd"), folder.path().join("a.ssd.unfinished"));
    let left = Unfinished::begin(&path, false).unwrap();
    left.create(&header(8)).unwrap().close().unwrap();
    let image = fs::read(&beside).unwrap();
    let busy = Unfinished::begin(&path, false).map(|_| ()).unwrap_err();
    assert!(matches!(busy, FileError::InUse { .. }), "{busy}");
    drop(left);
    assert!(!beside.exists() && !path.exists(), "it was given up, not killed");
    // Killed before it got its name, too.
    let nameless = [&NAMELESS[..], &image[8..]].concat();
    for left in [&image[..], &nameless, &[][..]] {
        fs::write(&beside, left).unwrap();
        if left.is_empty() {
            // As one that has its length, and nothing yet.
            fs::File::options().write(true).open(&beside).unwrap().set_len(1 << 20).unwrap();
        }
        DriveFile::create(&path, &header(8)).unwrap().close().unwrap();
        assert!(!beside.exists() && path.exists());
        fs::remove_file(&path).unwrap();
    }
    // One whose space was taken, and nothing else.
    let left = Unfinished::begin(&path, false).unwrap();
    assert!(!left.preallocate(&header(8), &mut |_| false).unwrap());
    let image = fs::read(&beside).unwrap();
    drop(left);
    fs::write(&beside, image).unwrap();
    DriveFile::create(&path, &header(8)).unwrap().close().unwrap();
    fs::remove_file(&path).unwrap();
    // A whole drive file may be meant to be called so.
    let whole = folder.path().join("whole");
    DriveFile::create(&whole, &header(8)).unwrap().close().unwrap();
    let whole = fs::read(&whole).unwrap();
    for own in [b"my own notes", &b"\0\0\0\0\0\0\0\0 and notes"[..], &[0; 4096], &whole] {
        fs::write(&beside, own).unwrap();
        let error = DriveFile::create(&path, &header(8)).map(|_| ()).unwrap_err();
        assert!(matches!(error, FileError::Exists { .. }), "{error}");
        assert!(fs::read(&beside).unwrap() == own);
    }
}

/// What others put in the way is left alone, and said.
#[test]
fn what_is_in_the_way_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (path, beside) = (folder.path().join("a.ssd"), folder.path().join("a.ssd.unfinished"));
    for target in [folder.path().join("notes"), folder.path().join("nothing")] {
        fs::write(folder.path().join("notes"), b"").unwrap();
        std::os::unix::fs::symlink(&target, &beside).unwrap();
        let error = DriveFile::create(&path, &header(8)).map(|_| ()).unwrap_err();
        assert!(matches!(error, FileError::NotAFile { kind: "a symbolic link", .. }), "{error}");
        fs::remove_file(&beside).unwrap();
    }
    let unfinished = Unfinished::begin(&path, false).unwrap();
    unfinished.create(&header(8)).unwrap().close().unwrap();
    fs::write(&path, b"notes").unwrap();
    let error = unfinished.finish().unwrap_err().to_string();
    assert!(error.contains("another process made one of this name meanwhile"), "{error}");
    assert!(fs::read(&path).unwrap() == b"notes" && !beside.exists());
}

/// A reflink brings the beginning of the source along.
#[test]
fn a_copy_that_shares_its_data_is_never_taken_for_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("a.ssd"), folder.path().join("b.ssd"));
    let beside = folder.path().join("b.ssd.unfinished");
    let drive = DriveFile::create(&path, &header(8)).unwrap();
    drive.close().unwrap();
    let source = fs::read(&path).unwrap();
    let open = |path| fs::File::options().read(true).write(true).open(path).unwrap();
    fs::write(&beside, b"").unwrap();
    let left = folder.path().join("left");
    share(&open(&path), &open(&beside), |_, to| {
        to.write_all_at(&source, 0)?;
        // What a kill leaves now.
        fs::copy(&beside, &left).map(|_| ())
    })
    .unwrap();
    let error = DriveFile::open(&left, true).map(|_| ()).unwrap_err();
    assert!(matches!(error, FileError::Length { .. }), "{error}");
    let error = DriveFile::open(&beside, true).map(|_| ()).unwrap_err();
    assert!(matches!(error, FileError::Unfinished), "{error}");
    let shared = fs::read(&beside).unwrap();
    assert!(shared[8..] == source[8..] && shared.len() == source.len());
    // Each of them gives way to the next that makes the copy.
    for left in [fs::read(&left).unwrap(), shared] {
        fs::write(&beside, left).unwrap();
        clone(&path, &copy).unwrap();
        assert!(fs::read(&copy).unwrap() == source && !beside.exists());
        fs::remove_file(&copy).unwrap();
    }
}

#[test]
fn one_that_replaces_another_leaves_it_until_then() {
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("a.ssd"), folder.path().join("b.ssd"));
    DriveFile::create(&path, &header(8)).unwrap().close().unwrap();
    clone(&path, &copy).unwrap();
    let before = fs::read(&path).unwrap();
    assert!(before == fs::read(&copy).unwrap());
    let unfinished = Unfinished::begin(&path, true).unwrap();
    unfinished.create(&header(4096)).unwrap().close().unwrap();
    assert!(fs::read(&path).unwrap() == before);
    unfinished.finish().unwrap();
    assert_eq!(DriveFile::open(&path, true).unwrap().medium.header(), &header(4096));
    // One that nobody has to replace is no less.
    fs::remove_file(&path).unwrap();
    let unfinished = Unfinished::begin(&path, true).unwrap();
    unfinished.create(&header(8)).unwrap().close().unwrap();
    unfinished.finish().unwrap();
    assert!(DriveFile::open(&path, true).unwrap().clean);
}
