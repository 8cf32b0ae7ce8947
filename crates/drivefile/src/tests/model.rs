//! The drive file against the medium in memory: the same operations, the same
//! answers, also after it was closed or dropped and opened again.

use flash::{Chunk, ChunkState, Medium, Moved, Ppa, RamMedium};
use proptest::prelude::*;

use super::{Block, Rng, header, program, read_often, reads_as};
use crate::{DriveFile, load, save};

/// Asks until the answer is there.
fn answered(mut ask: impl FnMut() -> Moved) -> Moved {
    loop {
        match ask() {
            Moved::Pending => std::thread::yield_now(),
            moved => return moved,
        }
    }
}

fn same_blocks(
    file: &mut DriveFile,
    ram: &mut RamMedium,
    chunks: &[Chunk],
    numbers: &[Vec<Option<Block>>],
) {
    let g = file.header().geometry;
    for (index, known) in chunks.iter().enumerate() {
        for block in 0..known.programmed {
            let at = Ppa(g.chunk_start(index).0 + u64::from(block));
            let Some(expected) = numbers[index][block as usize] else { continue };
            assert_eq!(reads_as(file, at, expected), Some(true));
            assert_eq!(reads_as(ram, at, expected), Some(true));
            // In the other length, and the tag alone.
            if file.kept() != 4096 {
                let whole = Block { whole: true, ..expected };
                assert_eq!(reads_as(file, at, whole).is_some(), expected.whole);
            }
            let (mut a, mut b) = ([0; 16], [0; 16]);
            assert_eq!(file.read(at, 1, &mut [], &mut a), Moved::Done);
            assert_eq!(ram.read(at, 1, &mut [], &mut b), Moved::Done);
            assert_eq!(a, b);
        }
    }
}

fn run(seed: u64) {
    let mut rng = Rng(seed);
    let kept = [4096, 8, 0][rng.below(3) as usize];
    let (header, folder) = (header(kept), tempfile::tempdir().unwrap());
    let (g, path) = (header.geometry, folder.path().join("drive"));
    let mut ram = RamMedium::new(&g, kept).unwrap();
    let mut file = DriveFile::create(&path, &header).unwrap();
    let mut chunks = vec![Chunk::default(); g.chunk_slots()];
    let mut before = chunks.clone();
    let mut numbers: Vec<Vec<Option<Block>>> = vec![Vec::new(); chunks.len()];
    let indices: Vec<usize> = (0..chunks.len()).filter(|&i| g.contains(g.chunk_start(i))).collect();
    for step in 0..160 {
        let index = indices[rng.below(indices.len() as u64) as usize];
        let (start, known) = (g.chunk_start(index), chunks[index]);
        match rng.below(40) {
            0 => {
                let clean = rng.one_in(2);
                if clean {
                    file.close().unwrap()
                } else {
                    drop(file)
                }
                let mut opened = DriveFile::open(&path, false).unwrap();
                assert_eq!((opened.clean, opened.cut_chunks), (clean, 0));
                for (i, told) in opened.chunks.iter().enumerate() {
                    let is_empty = numbers[i].iter().all(Option::is_none);
                    if *told != chunks[i] && !clean && is_empty {
                        // A reset that was not synced: all is as it was.
                        assert_eq!(*told, before[i]);
                        assert_eq!(opened.medium.reset(g.chunk_start(i)), Moved::Done);
                        opened.medium.describe(i, &chunks[i]);
                    } else {
                        assert_eq!(*told, chunks[i]);
                    }
                }
                file = opened.medium;
            }
            1 => assert_eq!(answered(|| file.barrier()), Moved::Done),
            2..6 if known.programmed > 0 => {
                assert_eq!(answered(|| file.reset(start)), Moved::Done);
                assert_eq!(ram.reset(start), Moved::Done);
                before[index] = known;
                chunks[index].reset(u32::MAX).unwrap();
                chunks[index].erased();
                chunks[index].worn |= rng.one_in(5);
                numbers[index].clear();
                file.describe(index, &chunks[index]);
            }
            6 => same_blocks(&mut file, &mut ram, &chunks, &numbers),
            7..11 if numbers[index].iter().any(Option::is_some) => {
                read_often(&mut chunks[index], &mut rng);
                file.describe(index, &chunks[index]);
            }
            11..16 if known.state != ChunkState::Closed => {
                chunks[index].write(known.wp, 2, 2, 8).unwrap();
                if chunks[index].fail(known.wp, 2) {
                    numbers[index].extend([None; 2]);
                }
                file.describe(index, &chunks[index]);
            }
            _ if known.state != ChunkState::Closed => {
                let whole = kept == 4096 || rng.one_in(4);
                let pair = [2 * step, 2 * step + 1].map(|number| Block { number, whole });
                let at = Ppa(start.0 + u64::from(known.programmed));
                assert_eq!(answered(|| program(&mut file, at, &pair)), Moved::Done);
                assert_eq!(program(&mut ram, at, &pair), Moved::Done);
                numbers[index].extend(pair.map(Some));
                chunks[index].write(known.wp, 2, 2, 8).unwrap();
                chunks[index].program(2);
                chunks[index].since = step as u32 + 1;
                file.describe(index, &chunks[index]);
            }
            _ => {}
        }
    }
    same_blocks(&mut file, &mut ram, &chunks, &numbers);
    // Saved from memory and loaded into it, all is there, too.
    let copy = folder.path().join("copy");
    save(&copy, &header, &chunks, &mut ram, |_| Ok(())).unwrap();
    let mut opened = DriveFile::open(&copy, true).unwrap();
    assert_eq!((opened.clean, &opened.chunks), (true, &chunks));
    let mut loaded = RamMedium::new(&g, kept).unwrap();
    load(&mut opened, &mut loaded).unwrap();
    same_blocks(&mut opened.medium, &mut loaded, &chunks, &numbers);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn it_is_as_memory_is(seed: u64) {
        run(seed);
    }
}
