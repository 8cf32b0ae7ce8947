//! Errors of syncs: told once by the system, and forgotten by nobody here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;

use flash::{Medium, Moved, Ppa};
use nvram::{NonVolatile, Protected};
use port::{BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Shape, Status, Time};

use super::{Block, Rng, chunk, header, program, reads_as};
use crate::disk::Disk;
use crate::{Area, CacheMode, DriveFile, Header};

/// A drive with a journal, and something written that is not synced.
fn written(disk: &Disk) -> (DriveFile, Area) {
    let header = Header { cache: CacheMode::Protected { journal: 8192 }, ..header(8) };
    let mut drive = DriveFile::create_on(disk.storage(), &header, false).unwrap();
    let block = Block { number: 7, whole: false };
    assert_eq!(program(&mut drive, header.geometry.chunk_start(1), &[block; 2]), Moved::Done);
    drive.describe(1, &chunk(0, 2, 8));
    let area = drive.area().unwrap();
    (drive, area)
}

/// Who has nothing else to do makes a sync itself, and is woken by nobody; else it is made on
/// its thread, which wakes.
#[test]
fn a_sync_is_made_by_who_has_nothing_else_to_do() {
    let disk = Disk::default();
    let header = header(8);
    let mut drive = DriveFile::create_on(disk.storage(), &header, true).unwrap();
    let (idle, rung) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let (asked, rings) = (idle.clone(), rung.clone());
    let wake = move || {
        rings.fetch_add(1, Ordering::SeqCst);
    };
    drive.wakes().unwrap().set(wake, move || asked.load(Ordering::SeqCst));
    let start = header.geometry.chunk_start(1);
    let block = Block { number: 7, whole: false };
    let write = |drive: &mut DriveFile, at| {
        assert_eq!(program(drive, Ppa(start.0 + at), &[block]), Moved::Done);
    };
    write(&mut drive, 0);
    assert_eq!((drive.barrier(), rung.load(Ordering::SeqCst)), (Moved::Done, 0));
    idle.store(false, Ordering::SeqCst);
    write(&mut drive, 1);
    assert_eq!(drive.barrier(), Moved::Pending);
    while drive.has_news() != Some(true) {
        std::thread::yield_now();
    }
    assert_eq!(drive.barrier(), Moved::Done);
    // It is told first, and rung for then.
    while rung.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    disk.fail_sync(Some(0));
    idle.store(true, Ordering::SeqCst);
    write(&mut drive, 2);
    assert_eq!((drive.barrier(), rung.load(Ordering::SeqCst)), (Moved::Failed, 1));
}

/// Whether a journal's sync succeeds.
fn syncs(area: &mut Area) -> bool {
    loop {
        match area.sync() {
            Poll::Ready(result) => return result.is_ok(),
            Poll::Pending => std::thread::yield_now(),
        }
    }
}

#[test]
fn an_error_that_one_is_told_is_all_ones() {
    for journal_first in [true, false] {
        let disk = Disk::default();
        let (mut drive, mut area) = written(&disk);
        area.write(4096, b"entry").unwrap();
        disk.fail_sync(Some(0));
        if journal_first {
            assert!(!syncs(&mut area));
            assert_eq!(drive.barrier(), Moved::Failed, "what it wrote is lost");
        } else {
            assert_eq!(drive.barrier(), Moved::Failed);
            assert!(!syncs(&mut area), "what it wrote is lost");
        }
        // It stays, though a sync would succeed now.
        assert!(!syncs(&mut area));
        assert_eq!(drive.barrier(), Moved::Failed);
        assert!(drive.close().is_err());
    }
}

#[test]
fn what_the_system_only_remembers_is_not_taken_for_durable() {
    let mut lost = 0;
    for seed in 0..40 {
        let disk = Disk::default();
        let (mut drive, area) = written(&disk);
        disk.fail_sync(Some(0));
        assert_eq!(drive.barrier(), Moved::Failed);
        drop((drive, area));
        disk.kill();
        let opened = DriveFile::open_on(disk.storage(), false, false).unwrap();
        let told = opened.chunks[1];
        lost += usize::from(told.programmed == 0);
        // All that was told is durable.
        let crashed = Disk::with(disk.crashed(&mut Rng(seed)));
        let mut again = DriveFile::open_on(crashed.storage(), false, false).unwrap();
        assert_eq!(again.chunks[1], told);
        let at = again.medium.header().geometry.chunk_start(1);
        for block in 0..u64::from(told.programmed) {
            let is =
                reads_as(&mut again.medium, Ppa(at.0 + block), Block { number: 7, whole: false });
            assert_eq!(is, Some(true));
        }
    }
    assert!(lost > 0, "otherwise it would show nothing");
}

#[test]
fn an_error_that_nobody_was_told_of_is_told_at_the_next_opening() {
    let disk = Disk::default();
    drop(written(&disk));
    disk.lose();
    disk.kill();
    let error = DriveFile::open_on(disk.storage(), true, false).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("writing back what was left"), "{error}");
    drop(DriveFile::open_on(disk.storage(), true, false).unwrap());
}

/// The opening that is told leaves word of it to the journal, for the next one.
#[test]
fn an_error_that_an_opening_is_told_is_known_to_the_journal() {
    for read_only in [true, false] {
        let disk = Disk::default();
        let (drive, mut area) = written(&disk);
        nvram::format(&mut area).unwrap();
        assert!(syncs(&mut area));
        let life = |area: &mut Area| {
            let mut bytes = [0; 16];
            area.read(56, &mut bytes).unwrap();
            bytes
        };
        let before = life(&mut area);
        area.write(4096, b"entry").unwrap();
        drop((drive, area));
        disk.lose();
        disk.kill();
        assert!(DriveFile::open_on(disk.storage(), read_only, false).is_err());
        let opened = DriveFile::open_on(disk.storage(), false, false).unwrap();
        let after = life(&mut opened.medium.area().unwrap());
        assert_eq!(after, if read_only { before } else { [0; 16] });
    }
}

/// A drive that keeps nothing of what it is sent, and whose flushes sync its file.
struct Below {
    drive: DriveFile,
    inside: Vec<BlockReq>,
}

impl Below {
    const SHAPE: Shape =
        Shape { bytes: 16 * BLOCK_BYTES, kept: 8, max_bytes: BLOCK_BYTES, depth: 1 };

    /// With a protected cache, whose journal is in the file.
    fn start(drive: DriveFile) -> (Protected<Below, Area>, nvram::Started) {
        let area = drive.area().unwrap();
        let below = Below { drive, inside: Vec::new() };
        Protected::start(below, Below::SHAPE, area, Time::ZERO).unwrap_or_else(|e| panic!("{e}"))
    }
}

impl Port for Below {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, _: Time, cmds: &mut Ring<BlockReq>) {
        self.inside.extend(cmds.drain());
    }

    fn next_event(&self) -> Option<Time> {
        self.inside.first().map(|_| Time::ZERO)
    }

    fn advance(&mut self, at: Time, done: &mut Ring<BlockDone>) {
        for BlockReq { id, op, buffer, .. } in self.inside.drain(..) {
            let is_good = op != BlockOp::Flush || self.drive.barrier() == Moved::Done;
            let status = if is_good { Status::SUCCESS } else { Status::WRITE_FAULT };
            done.put(|| BlockDone { id, op, status, at, buffer });
        }
    }
}

/// The drive is told of the error, as it is flushed to give the journal space. What the journal
/// has not synced may be gone, and the next start knows it.
#[test]
fn an_error_that_the_drive_is_told_is_known_to_the_journal() {
    let disk = Disk::default();
    let (mut port, _) = Below::start(written(&disk).0);
    disk.fail_sync(Some(0));
    let (mut cmds, mut done) = (Ring::new(1), Ring::new(1));
    for block in (0..16).cycle() {
        let buffer = Buffer::zeroed(8).unwrap();
        let offset = block * BLOCK_BYTES;
        cmds.put(|| BlockReq::new(block, BlockOp::Write, offset, BLOCK_BYTES, buffer));
        port.submit(Time::ZERO, &mut cmds);
        while let Some(at) = port.next_event() {
            port.advance(at, &mut done);
            done.drain().for_each(|one| assert!(one.status.is_ok()));
            std::thread::yield_now();
        }
        if port.counters().flushes > 0 {
            break;
        }
    }
    drop(port);
    disk.kill();
    let drive = DriveFile::open_on(disk.storage(), false, false).unwrap().medium;
    let mut area = drive.area().unwrap();
    let mut state = [0; 128];
    area.read(0, &mut state).unwrap();
    let number = |at: usize| u64::from_le_bytes(state[at..at + 8].try_into().unwrap());
    let (bytes, tail) = (number(24), number(40));
    area.write(4096 + (tail - 128) % bytes, b"what the disk refused").unwrap();
    drop(area);
    let (_, started) = Below::start(drive);
    assert!(started.gone >= 128, "{started:?}");
}

#[test]
fn an_erase_that_cannot_be_written_has_not_happened() {
    for defer in [0, 3] {
        let disk = Disk::default();
        let (mut drive, area) = written(&disk);
        drive.defer_syncs(defer);
        while drive.barrier() == Moved::Pending {}
        let at = drive.header().geometry.chunk_start(1);
        disk.fail_write(Some(0));
        assert_eq!(drive.reset(at), Moved::Failed);
        // Whatever is asked of it now, and though all that follows succeeds.
        drive.describe(1, &chunk(1, 0, 8));
        for _ in 0..8 {
            assert_eq!(drive.barrier(), Moved::Failed);
        }
        assert!(drive.close().is_err());
        drop(area);
        disk.kill();
        for image in [disk.killed(), disk.crashed(&mut Rng(1))] {
            let disk = Disk::with(image);
            let mut opened = DriveFile::open_on(disk.storage(), false, false).unwrap();
            assert_eq!(opened.chunks[1], chunk(0, 2, 8));
            for block in 0..2 {
                let at = Ppa(at.0 + block);
                let is = reads_as(&mut opened.medium, at, Block { number: 7, whole: false });
                assert_eq!(is, Some(true), "its space was not given back");
            }
        }
    }
}

/// It would be refused when it is opened again: nothing more is promised.
#[test]
fn a_file_that_somebody_cuts_or_extends_is_not_durable() {
    for grows in [false, true] {
        let disk = Disk::default();
        let (mut drive, _area) = written(&disk);
        assert_eq!(drive.barrier(), Moved::Done);
        let bytes = disk.storage().bytes().unwrap();
        disk.storage().set_bytes(if grows { bytes + 4096 } else { bytes - 4096 }).unwrap();
        let block = Block { number: 9, whole: false };
        let at = header(8).geometry.chunk_start(2);
        assert_eq!(program(&mut drive, at, &[block; 2]), Moved::Done);
        assert_eq!(drive.barrier(), Moved::Failed);
        assert!(drive.error().unwrap().to_string().contains("bytes long"), "{:?}", drive.error());
        assert!(drive.close().is_err());
    }
}

/// As long as it was, and yet another: what is copied into it, or nothing. However many syncs
/// were before, and though one is under way, the next one that begins tells.
#[test]
fn a_file_that_somebody_writes_over_is_not_durable() {
    for case in 0..16 {
        let [empties, has_more, is_under_way, of_journal] = [1, 2, 4, 8].map(|bit| case & bit > 0);
        let disk = Disk::default();
        let (mut drive, mut area) = written(&disk);
        let mut at = drive.header().geometry.chunk_start(2).0..;
        let mut write = |drive: &mut DriveFile| {
            let block = Block { number: 9, whole: false };
            assert_eq!(program(drive, Ppa(at.next().unwrap()), &[block]), Moved::Done);
        };
        assert_eq!(drive.barrier(), Moved::Done);
        let copy = disk.killed();
        for _ in 0..1 + u32::from(has_more) {
            write(&mut drive);
            assert_eq!(drive.barrier(), Moved::Done);
            assert!(syncs(&mut area));
        }
        if is_under_way {
            drive.defer_syncs(3);
            write(&mut drive);
            assert_eq!(drive.barrier(), Moved::Pending);
        }
        disk.storage().write(0, &if empties { vec![0; copy.len()] } else { copy }).unwrap();
        if of_journal {
            assert!(!syncs(&mut area), "{case}");
        }
        let mut barrier = |drive: &mut DriveFile| {
            write(drive);
            loop {
                match drive.barrier() {
                    Moved::Pending => {}
                    ended => return ended,
                }
            }
        };
        // One that was under way began before.
        let ended = barrier(&mut drive);
        assert!(ended == Moved::Failed || is_under_way && barrier(&mut drive) == Moved::Failed);
        let error = drive.error().unwrap().to_string();
        assert!(error.contains("somebody wrote over the file"), "{case}: {error}");
        assert!(drive.close().is_err());
    }
}
