//! A page or a sector of a file is lost, or is an older one: what is read is
//! right, or there is an error, and none but of blocks that lie there. Tried with
//! each that a file has, after kills and crashes.
//!
//! An older one is of the time before the last sync: what the disk said it
//! wrote, and did not.

use std::ops::Range;

use flash::{Chunk, Ppa};
use proptest::prelude::*;

use super::crash::{History, Point, Run};
use super::{Block, reads_as};
use crate::disk::Disk;
use crate::entry::ENTRY_BYTES;
use crate::layout::{Layout, STATE_PAGES, TABLE_OFFSET};
use crate::{DriveFile, FileError};

/// What became of the damaged files.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Opened, and nothing was missed.
    pub whole: usize,
    /// Opened, with errors of blocks.
    pub errors: usize,
    /// Refused.
    pub refused: usize,
    /// Refused as a descriptor was missed.
    table: usize,
}

impl Seen {
    fn add(&mut self, other: Seen) {
        self.whole += other.whole;
        self.errors += other.errors;
        self.refused += other.refused;
        self.table += other.table;
    }
}

/// Whether a chunk's durable blocks are all told of.
fn is_told(told: &Chunk, history: &History, durable: Point) -> bool {
    // Of one that had none the life may be forgotten.
    !history.stores(durable) || (told.wear, told.programmed) >= durable
}

/// Whether any of a block lies in a part of the file.
pub fn lies_in(damaged: &Range<usize>, layout: &Layout, kept: u32, at: Ppa, block: Block) -> bool {
    let data = if block.whole { layout.whole(at) } else { layout.data(at) };
    [(data, block.bytes(kept)), (layout.entry(at), ENTRY_BYTES)]
        .iter()
        .any(|&(start, len)| (start as usize) < damaged.end && damaged.start < start as usize + len)
}

/// Whether a part of the file has what none can be opened without: one of the states'
/// pages may be lost.
fn is_vital(damaged: &Range<usize>, layout: &Layout) -> bool {
    let start = damaged.start as u64;
    start < STATE_PAGES[0] || (TABLE_OFFSET..layout.table_end()).contains(&start)
}

/// Looks at a file of which a part is damaged; it is to tell of all that was durable by
/// then.
pub fn look(
    run: &Run,
    durable: &[Point],
    disk: &Disk,
    damaged: &Range<usize>,
    seen: &mut Seen,
    at: &str,
) {
    let layout = Layout::new(&run.header.geometry, run.header.kept);
    let mut opened = match DriveFile::open_on(disk.storage(), true, false) {
        Ok(opened) => opened,
        Err(error) => {
            assert!(is_vital(damaged, &layout), "{at}: {error}");
            seen.refused += 1;
            seen.table += usize::from(matches!(error, FileError::Table));
            return;
        }
    };
    let mut lost = 0;
    for (which, &index) in run.indices.iter().enumerate() {
        let (told, history) = (opened.chunks[index], &run.model.chunks[which]);
        let durable = durable[which];
        assert!(is_told(&told, history, durable), "{at}: chunk {which}: {told:?}, {durable:?}");
        for block in 0..told.programmed {
            let expected = history.lives[&told.wear][block as usize];
            assert_eq!(told.failed_of(block, 1) == 0, expected.is_some(), "{at}: {told:?}");
            let Some(expected) = expected else { continue };
            let ppa = Ppa(run.header.geometry.chunk_start(index).0 + u64::from(block));
            match reads_as(&mut opened.medium, ppa, expected) {
                Some(right) => assert!(right, "{at}: wrong data in chunk {which}, block {block}"),
                None => {
                    let here = lies_in(damaged, &layout, run.header.kept, ppa, expected);
                    assert!(here, "{at}: chunk {which}, block {block} is lost with it");
                    lost += 1;
                }
            }
        }
    }
    if lost == 0 {
        seen.whole += 1;
    } else {
        seen.errors += 1;
    }
}

/// Tries every page and every sector of `image` that differs from that of
/// `older`, or of zeros.
fn try_all(run: &Run, durable: &[Point], image: &[u8], older: &[Vec<u8>]) -> Seen {
    let mut seen = Seen::default();
    let zeros = vec![0; image.len()];
    for (which, other) in older.iter().chain([&zeros]).enumerate() {
        for size in [512, 4096] {
            for start in (0..image.len()).step_by(size) {
                let range = start..image.len().min(start + size);
                if image[range.clone()] == other[range.clone()] {
                    continue;
                }
                let mut damaged = image.to_vec();
                damaged[range.clone()].copy_from_slice(&other[range.clone()]);
                let zeroed = if which == older.len() { "zeroed" } else { "older" };
                let at = format!("{size} bytes at {start} {zeroed}");
                look(run, durable, &Disk::with(damaged), &range, &mut seen, &at);
            }
        }
    }
    seen
}

/// Some work, with images of the time before a sync, that sync, more work, and
/// a cut. Before a crash there is one more sync: what came with the last one may be
/// taken for what never was synced.
fn run(seed: u64) -> Seen {
    let mut run = Run::new(seed);
    let mut disk = Disk::default();
    let mut seen = Seen::default();
    drop(DriveFile::create_on(disk.storage(), &run.header, false).unwrap());
    let mut older = Vec::new();
    let mut crashed = false;
    for _ in 0..3 {
        let mut drive = run.reopen(&mut disk, crashed);
        for _ in 0..2 {
            for _ in 0..run.rng.below(24) {
                assert!(run.step(&mut drive));
            }
            older.push(disk.killed());
            older = older.split_off(older.len().saturating_sub(3));
        }
        assert!(run.barrier(&mut drive));
        for _ in 0..run.rng.below(12) {
            assert!(run.step(&mut drive));
        }
        let mut durable = run.model.durable.clone();
        crashed = run.rng.one_in(2);
        if run.rng.one_in(3) {
            drive.close().unwrap();
            run.model.durable = run.model.points();
            durable = run.model.points();
        } else if crashed {
            run.sync_something(&mut drive);
        }
        let image = if crashed { disk.crashed(&mut run.rng) } else { disk.killed() };
        disk = Disk::with(image.clone());
        seen.add(try_all(&run, &durable, &image, &older));
    }
    seen
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3))]
    #[test]
    fn a_lost_or_older_page_gives_no_wrong_data(seed: u64) {
        run(seed);
    }
}

#[test]
fn all_kinds_of_damage_are_met() {
    // Otherwise the test above would show nothing.
    let mut seen = Seen::default();
    (0..2).for_each(|seed| seen.add(run(seed)));
    assert!(seen.table > 20 && seen.errors > 100 && seen.whole > 100, "{seen:?}");
}

#[test]
fn descriptors_that_read_as_zeros_are_missed() {
    for seed in 0..20 {
        let mut run = Run::new(seed);
        let mut disk = Disk::default();
        drop(DriveFile::create_on(disk.storage(), &run.header, false).unwrap());
        let mut drive = run.reopen(&mut disk, false);
        while !run.model.chunks.iter().any(|history| !history.has_no_blocks()) {
            assert!(run.step(&mut drive));
        }
        if run.rng.one_in(2) {
            drive.close().unwrap();
        } else {
            assert!(run.barrier(&mut drive));
        }
        let mut image = disk.killed();
        image[TABLE_OFFSET as usize..][..4096].fill(0);
        for read_only in [true, false] {
            let disk = Disk::with(image.clone());
            let opened = DriveFile::open_on(disk.storage(), read_only, false).map(|_| ());
            let error = opened.unwrap_err();
            assert!(matches!(error, FileError::Table), "{error}");
            assert_eq!(disk.killed(), image, "it was not touched");
        }
    }
}
