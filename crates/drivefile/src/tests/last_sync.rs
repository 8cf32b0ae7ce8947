//! What came with the last sync is damaged, or cannot be read, after the host crashed
//! before the state behind it was written back.
//!
//! A changed byte makes it a sync that never ended: the file is as it was at the one
//! before, and of that nothing is gone. What cannot be read does not: it is an error of
//! the blocks that lie there.

use std::ops::Range;

use flash::{Medium, Moved, Ppa};

use super::crash::{Point, Run};
use super::pages::{Seen, lies_in, look};
use super::{Block, chunk, header, program, reads_as};
use crate::DriveFile;
use crate::disk::{Disk, Rng};
use crate::layout::{Layout, TABLE_OFFSET};
use crate::mutation::{self, Mutation};

/// What a disk writes as a whole.
const SECTOR: usize = 512;

/// What the system reads as a whole.
const PAGE: usize = 4096;

/// A drive file after a crash of its host, or a kill of its process.
struct Cut {
    run: Run,
    /// What the disk has, and what of that came with the last syncs, by sector.
    image: Vec<u8>,
    last: Vec<usize>,
    /// How far chunks were by the sync before these.
    before: Vec<Point>,
}

/// Some work with syncs, a little more, and a cut: a crash leaves what was synced, and of
/// what came after nothing, or anything.
fn cut(seed: u64) -> Cut {
    let mut run = Run::new(seed);
    let mut disk = Disk::default();
    drop(DriveFile::create_on(disk.storage(), &run.header, false).unwrap());
    let mut drive = run.reopen(&mut disk, false);
    for _ in 0..2 {
        for _ in 0..run.rng.below(24) {
            assert!(run.step(&mut drive));
        }
        assert!(run.barrier(&mut drive));
    }
    let (before, older) = (run.model.durable.clone(), disk.certain());
    for _ in 0..run.rng.below(8) {
        assert!(run.step(&mut drive));
    }
    run.sync_something(&mut drive);
    let synced = disk.certain();
    for _ in 0..run.rng.below(6) {
        assert!(run.step(&mut drive));
    }
    let image = match run.rng.below(4) {
        0 => disk.killed(),
        1 => disk.certain(),
        _ => disk.crashed(&mut run.rng),
    };
    let differs = |&at: &usize| synced[at..at + SECTOR] != older[at..at + SECTOR];
    let last = (0..image.len()).step_by(SECTOR).filter(differs).collect();
    Cut { run, image, last, before }
}

/// A byte is changed in each sector that came with the last syncs.
fn damage_each(seed: u64, seen: &mut Seen) {
    let Cut { mut run, image, last, before } = cut(seed);
    for start in last {
        let mut image = image.clone();
        let at = start + run.rng.below(SECTOR as u64) as usize;
        image[at] ^= 1 << run.rng.below(8);
        let (disk, damaged) = (Disk::with(image), at..at + 1);
        look(&run, &before, &disk, &damaged, seen, &format!("seed {seed}, byte {at}"));
    }
}

#[test]
fn a_changed_byte_takes_nothing_older_along() {
    let mut seen = Seen::default();
    (0..400).for_each(|seed| damage_each(seed, &mut seen));
    assert!(seen.whole > 1000 && seen.errors > 100, "{seen:?}");
}

/// The order of writing, broken on purpose, is found.
#[test]
fn what_is_given_up_too_early_is_found() {
    for broken in Mutation::DAMAGED {
        mutation::set(Some(broken));
        let finds = |seed| damage_each(seed, &mut Seen::default());
        let found = (0..400).any(|seed| std::panic::catch_unwind(|| finds(seed)).is_err());
        mutation::set(None);
        assert!(found, "{broken:?}");
    }
}

/// A page that came with the last syncs cannot be read: nothing of what was flushed is
/// lost but what lies there, and the drive is used on.
#[test]
fn what_cannot_be_read_takes_nothing_else_along() {
    let mut seen = Seen::default();
    for seed in 0..200 {
        let Cut { run, image, mut last, .. } = cut(seed);
        last.iter_mut().for_each(|at| *at = *at / PAGE * PAGE);
        last.dedup();
        for page in last {
            let (disk, at) = (Disk::with(image.clone()), format!("seed {seed}, page at {page}"));
            disk.spoil(page);
            let (damaged, refused) = (page..page + PAGE, seen.refused);
            look(&run, &run.model.durable, &disk, &damaged, &mut seen, &at);
            if seen.refused == refused {
                use_on(&run, &disk, &damaged, &at);
            }
        }
    }
    assert!(seen.whole > 100 && seen.errors > 100 && seen.refused > 100, "{seen:?}");
}

/// All chunks are erased and written, and what was is found again. Where the system would
/// have to read the page for that, blocks fail, and nothing else does.
fn use_on(run: &Run, disk: &Disk, damaged: &Range<usize>, at: &str) {
    let (header, mut written) = (&run.header, Vec::new());
    let layout = Layout::new(&header.geometry, header.kept);
    let mut opened = DriveFile::open_on(disk.storage(), false, false).expect(at);
    for &index in &run.indices {
        let (start, life) = (header.geometry.chunk_start(index), opened.chunks[index].wear + 1);
        assert_eq!(until_done(|| opened.medium.reset(start)), Moved::Done, "{at}");
        opened.medium.describe(index, &chunk(life, 0, 8));
        let block = Block { number: index as u64, whole: header.kept == 4096 };
        match until_done(|| program(&mut opened.medium, start, &[block; 2])) {
            Moved::Done => {
                opened.medium.describe(index, &chunk(life, 2, 8));
                written.push((start, block));
            }
            _ => {
                let second = Ppa(start.0 + 1);
                let is_here = |ppa| lies_in(damaged, &layout, header.kept, ppa, block);
                assert!(is_here(start) || is_here(second), "{at}: {:?}", opened.medium.error());
            }
        }
    }
    assert_eq!(until_done(|| opened.medium.barrier()), Moved::Done, "{at}");
    opened.medium.close().expect(at);
    let mut again = DriveFile::open_on(disk.storage(), false, false).expect(at);
    assert!(again.clean, "{at}");
    for (start, block) in written {
        assert_eq!(reads_as(&mut again.medium, start, block), Some(true), "{at}");
    }
}

fn until_done(mut ask: impl FnMut() -> Moved) -> Moved {
    loop {
        match ask() {
            Moved::Pending => {}
            moved => return moved,
        }
    }
}

#[test]
fn a_descriptor_that_cannot_be_read_is_named() {
    let disk = Disk::with(full());
    disk.spoil(TABLE_OFFSET as usize);
    let error = DriveFile::open_on(disk.storage(), true, false).map(|_| ()).unwrap_err();
    let said = error.to_string();
    assert!(said.contains("chunk 0 ") && said.contains("the disk cannot read it"), "{said}");
}

/// A full chunk is erased, with more written behind each sync.
/// Gives up where everything fails.
fn erase_one(disk: &Disk, ends: bool) {
    let (header, block) = (header(8), Block { number: 7, whole: true });
    let Ok(opened) = DriveFile::open_on(disk.storage(), false, false) else { return };
    let mut drive = opened.medium;
    let at = |index: usize| header.geometry.chunk_start(index);
    if drive.reset(at(0)) != Moved::Done {
        return;
    }
    drive.describe(0, &chunk(1, 0, 8));
    for index in [1, 4] {
        drive.barrier();
        program(&mut drive, at(index), &[block; 2]);
        drive.describe(index, &chunk(0, 2, 8));
    }
    if ends {
        // What could not be written is seen when it is opened again.
        let _ = drive.close();
    }
}

/// Whether a chunk takes no space.
fn is_empty(image: &[u8], number: usize) -> bool {
    let ranges = Layout::new(&header(8).geometry, 8).ranges(number);
    let bytes = ranges.map(|(start, len)| &image[start as usize..(start + len) as usize]);
    bytes.into_iter().flatten().all(|&byte| byte == 0)
}

/// A file in which one chunk is full.
fn full() -> Vec<u8> {
    let (header, disk) = (header(8), Disk::default());
    let mut drive = DriveFile::create_on(disk.storage(), &header, false).unwrap();
    let blocks = [Block { number: 5, whole: true }; 8];
    assert_eq!(program(&mut drive, header.geometry.chunk_start(0), &blocks), Moved::Done);
    drive.describe(0, &chunk(0, 8, 8));
    drive.close().unwrap();
    disk.killed()
}

#[test]
fn space_of_what_was_erased_comes_back_whenever_it_is_cut() {
    let (image, mut given_back) = (full(), 0);
    assert!(!is_empty(&image, 0));
    for seed in 0..4000 {
        let (mut rng, mut disk) = (Rng(seed), Disk::with(image.clone()));
        let (ends, fuse) = (rng.one_in(2), rng.below(60));
        disk.set_fuse(Some(fuse));
        erase_one(&disk, ends);
        let opened = loop {
            if rng.one_in(3) {
                disk.kill();
            } else {
                disk = Disk::with(disk.crashed(&mut rng));
            }
            disk.set_fuse(rng.one_in(2).then(|| rng.below(12)));
            if let Ok(opened) = DriveFile::open_on(disk.storage(), false, false) {
                break opened;
            }
        };
        if opened.chunks[0] == chunk(1, 0, 8) {
            given_back += 1;
            let crashed = disk.crashed(&mut rng);
            for image in [disk.killed(), crashed] {
                assert!(is_empty(&image, 0), "seed {seed}, {ends}, {fuse}");
            }
        }
    }
    assert!((1000..4000).contains(&given_back), "{given_back}");
}

#[test]
fn space_comes_back_one_sync_later_or_when_it_is_closed() {
    let (header, block) = (header(8), Block { number: 7, whole: true });
    for syncs in 0..3 {
        let disk = Disk::with(full());
        let mut drive = DriveFile::open_on(disk.storage(), false, false).unwrap().medium;
        assert_eq!(drive.reset(header.geometry.chunk_start(0)), Moved::Done);
        drive.describe(0, &chunk(1, 0, 8));
        for sync in 1..=syncs {
            assert_eq!(drive.barrier(), Moved::Done);
            assert_eq!(is_empty(&disk.killed(), 0), sync == 2);
            let at = header.geometry.chunk_start(sync);
            assert_eq!(program(&mut drive, at, &[block; 2]), Moved::Done);
            drive.describe(sync, &chunk(0, 2, 8));
        }
        drive.close().unwrap();
        assert!(is_empty(&disk.killed(), 0));
    }
}
