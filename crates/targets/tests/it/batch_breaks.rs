//! Promises of a batched target that are broken on purpose: worlds of random work
//! and cuts find each.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::batch_world::{BLOCK, Run, Setup, World, cached, faulty, ram, unreadable};
use flash::{Medium, Moved, Ppa, Tag};
use targets::batch::mutation::{Mutation, set};

/// Seeds that are tried before a break counts as not found.
const SEEDS: u64 = 100;

const LONG: u64 = u64::MAX / 2;

/// Rounds of work, each ended by a cut; each start checks all.
fn rounds(mut world: World, start: fn(&mut World) -> Run, work: fn(&mut World, &mut Run)) {
    for _ in 0..6 {
        let mut run = start(&mut world);
        world.check(&mut run);
        work(&mut world, &mut run);
        world.power_off(run);
    }
    let mut run = start(&mut world);
    world.check(&mut run);
    world.power_off(run);
}

fn plain(world: &mut World) -> Run {
    world.power_on(LONG).unwrap()
}

/// Random work, until power goes at some event.
fn random(world: &mut World, run: &mut Run) {
    let events = 1 + world.random.below(3000);
    run.fuse.set(events);
    let batches = 1 + world.random.below(120);
    world.work(run, batches);
}

/// The same pages in all batches that are taken at once, and then nothing for a
/// while: whole chunks become garbage by batches of which the log does not say
/// that they are installed.
fn bursts(world: &mut World, run: &mut Run) {
    let (pages, most) = (world.setup.config.pages, u64::from(world.setup.config.max_pages));
    if world.model.taken == 0 {
        for first in (0..pages - most).step_by(most as usize) {
            run.write(world, &(first..first + most).collect::<Vec<_>>());
            run.drain(world);
        }
    }
    for _ in 0..1 + world.random.below(12) {
        let first = world.random.below(pages - most);
        let lpids: Vec<u64> = (first..first + most).collect();
        for _ in 0..world.setup.config.batches {
            run.write(world, &lpids);
        }
        for _ in 0..world.random.below(400) {
            run.step(world);
        }
    }
}

/// A start to which blocks cannot be read of which `is_bad` says so, given the TAG.
fn damaged(world: &mut World, is_bad: impl Fn(Tag) -> bool) -> Run {
    let (geometry, chunks, mut rules) = (world.geometry, world.chunks.clone(), Vec::new());
    for (index, chunk) in chunks.iter().enumerate() {
        let start = geometry.chunk_start(index);
        for at in (start.0..).take(chunk.programmed as usize).map(Ppa) {
            let mut tag = [0; 16];
            assert_eq!(world.medium().read(at, 1, &mut [], &mut tag), Moved::Done);
            if is_bad(Tag::load(&tag)) {
                rules.push(unreadable(at.0..at.0 + 1));
            }
        }
    }
    world.set_rules(&rules);
    let run = plain(world);
    run.heal();
    run
}

/// The log before what the newest checkpoint record needs cannot be read.
fn old_log(world: &mut World) -> Run {
    let first = first_row(world);
    damaged(world, |tag| tag.id >> 56 == 6 && tag.seq < first)
}

/// The row of the log where a start from the newest checkpoint record begins, as
/// docs/formats.md says; 0 where there is no record.
fn first_row(world: &mut World) -> u64 {
    let (geometry, chunks) = (world.geometry, world.chunks.clone());
    let units: Vec<usize> = geometry.pus_channels_first().collect();
    let mut newest = (0, 0);
    for unit in [units[0], units[units.len() - 1]] {
        for index in [0, 1].map(|number| geometry.chunk_of(unit, number)) {
            let start = geometry.chunk_start(index).0;
            for at in (start..).take(chunks[index].programmed as usize).map(Ppa) {
                let mut record = [0; BLOCK];
                assert_eq!(world.medium().read(at, 1, &mut record, &mut []), Moved::Done);
                let word = |i: usize| u64::from_le_bytes(record[i..i + 8].try_into().unwrap());
                if record[8..12] == *b"CKPT" {
                    newest = newest.max((word(24), word(72)));
                }
            }
        }
    }
    newest.1
}

/// No page of MAP can be read.
fn no_map(world: &mut World) -> Run {
    damaged(world, |tag| tag.id >> 56 == 1)
}

/// Whether a seed's world finds something wrong.
fn finds(seed: u64) -> bool {
    let mut setup = Setup::small(seed);
    // Short, so that checkpoints and collection are many.
    setup.config.log_rows = if seed % 5 == 2 { 40 } else { 6 };
    let setup = setup.filled(100);
    let found = catch_unwind(AssertUnwindSafe(|| match seed % 5 {
        0 => rounds(World::new(setup, cached), plain, random),
        1 => rounds(World::new(setup, ram), plain, random),
        2 => rounds(World::new(setup, ram), plain, bursts),
        3 => rounds(World::new(setup, faulty), old_log, random),
        _ => rounds(World::new(setup, faulty), no_map, random),
    }));
    found.is_err()
}

#[test]
fn each_break_is_found() {
    let found = |mutation: Option<Mutation>, seeds: u64| {
        set(mutation);
        (0..seeds).find(|&seed| finds(seed))
    };
    let missed: Vec<Mutation> = Mutation::ALL
        .into_iter()
        .filter(|&mutation| {
            let seed = found(Some(mutation), SEEDS);
            println!("{mutation:?}: {seed:?}");
            seed.is_none()
        })
        .collect();
    assert_eq!((missed, found(None, 20)), (Vec::new(), None));
}
