//! Blocks below a batched target that cannot be read any more: of the host, of
//! the tables, of the log. What is lost is said, nothing else is lost, and a
//! start that fails changes nothing.

mod log;

use std::collections::BTreeSet;

use crate::batch_world::{Random, Run, Setup, World, batch_buffer, unreadable, value_of};
use device::OpenChannel;
use faults::{FaultyMedium, PowerCut, Script, ScriptedMedium};
use flash::{ChunkState, Dimensions, Geometry, Medium, Moved, Ppa, Tag};
use port::{BatchOp, Buffer, Status};
use targets::batch::BatchError;

const LONG: u64 = u64::MAX / 2;

/// The TAG kind of rows of the log.
const LOG: u64 = 6;

/// Memory may say that it has a cache. It loses nothing.
struct Cached;

impl Script for Cached {
    fn is_cached(&self, _below: &dyn PowerCut) -> bool {
        true
    }
}

fn world(setup: Setup, cached: bool) -> World {
    World::new(setup, |geometry: &Geometry| {
        let ram = if cached {
            ScriptedMedium::ram(geometry, 8, Cached)
        } else {
            ScriptedMedium::ram(geometry, 8, ())
        };
        FaultyMedium::new(geometry, ram, &[], 1).unwrap()
    })
}

/// Makes blocks unreadable; none, where there are none.
fn damage(world: &mut World, blocks: impl IntoIterator<Item = Ppa>) {
    let rules: Vec<_> = blocks.into_iter().map(|at| unreadable(at.0..at.0 + 1)).collect();
    world.set_rules(&rules);
}

/// Blocks that cannot be read until their chunk is erased, each with the chunk's
/// erases.
struct Bad(Vec<(Ppa, u32)>);

impl Bad {
    fn new(world: &mut World, blocks: impl IntoIterator<Item = Ppa>) -> Bad {
        let wear = |at: Ppa| world.chunks[world.geometry.chunk_index(at)].wear;
        let bad = Bad(blocks.into_iter().map(|at| (at, wear(at))).collect());
        bad.hold(world);
        bad
    }

    /// To be called while power is off.
    fn hold(&self, world: &mut World) {
        let is_same =
            |&&(at, wear): &&(Ppa, u32)| world.chunks[world.geometry.chunk_index(at)].wear == wear;
        let blocks: Vec<Ppa> = self.0.iter().filter(is_same).map(|&(at, _)| at).collect();
        damage(world, blocks);
    }

    /// Whether a block was erased since, and so may hold something else.
    fn is_reused(&self, world: &World, block: Ppa) -> bool {
        let wear = world.chunks[world.geometry.chunk_index(block)].wear;
        self.0.iter().any(|&(at, was)| at == block && was != wear)
    }
}

/// All programmed blocks and their TAGs. Power is off, nothing is damaged.
fn blocks(world: &mut World) -> Vec<(Ppa, Tag)> {
    let (geometry, chunks) = (world.geometry, world.chunks.clone());
    let mut found = Vec::new();
    for (index, chunk) in chunks.iter().enumerate().filter(|(_, chunk)| chunk.programmed > 0) {
        for block in 0..u64::from(chunk.programmed) {
            let (at, mut tag) = (Ppa(geometry.chunk_start(index).0 + block), [0; 16]);
            assert_eq!(world.medium().read(at, 1, &mut [], &mut tag), Moved::Done);
            found.push((at, Tag::load(&tag)));
        }
    }
    found
}

/// The blocks that hold or held pages of a kind of table, by number; see
/// docs/formats.md.
fn of_table(world: &mut World, kind: u64) -> Vec<(u64, Ppa)> {
    let all = blocks(world).into_iter().filter(|(_, tag)| tag.id >> 56 == kind);
    all.map(|(at, tag)| (tag.id & ((1 << 36) - 1), at)).collect()
}

/// Writes pages of the host, and takes note of their values where that went
/// well.
fn write(run: &mut Run, values: &mut [u64], lpids: &[u64]) -> Status {
    let next = values.iter().max().unwrap() + 1;
    let new: Vec<u64> = (next..next + lpids.len() as u64).collect();
    let status = run.ask(BatchOp::WriteBatch, 0, batch_buffer(lpids, &new, 8)).status;
    if status.is_ok() {
        lpids.iter().zip(new).for_each(|(&lpid, value)| values[lpid as usize] = value);
    }
    status
}

/// Writes random pages of those that `may` allows, so many batches.
fn churn(run: &mut Run, values: &mut [u64], batches: u64, may: impl Fn(u64) -> bool) {
    let most = run.target.shape().max_pages.min(8);
    let mut random = Random(values.iter().sum());
    for _ in 0..batches {
        let lpids = (0..most).map(|_| random.below(values.len() as u64));
        let lpids: BTreeSet<u64> = lpids.filter(|&lpid| may(lpid)).collect();
        let lpids: Vec<u64> = lpids.into_iter().collect();
        if !lpids.is_empty() {
            let status = write(run, values, &lpids);
            assert_eq!(status, Status::SUCCESS, "{lpids:?}: {}", run.state());
        }
    }
}

/// Reads a page: its value, or why not.
fn read(run: &mut Run, lpid: u64) -> Result<u64, Status> {
    let done = run.ask(BatchOp::Read, lpid, Buffer::zeroed(8).unwrap());
    match done.status {
        Status::UNWRITTEN => Ok(0),
        status if status.is_ok() => Ok(value_of(done.buffer.bytes())),
        status => Err(status),
    }
}

/// All pages are as they were written, but for those that cannot be read. Gives
/// these.
fn unreadable_pages(run: &mut Run, values: &[u64]) -> Vec<u64> {
    let mut lost = Vec::new();
    for (lpid, &value) in values.iter().enumerate() {
        match read(run, lpid as u64) {
            Ok(found) => assert_eq!(found, value, "page {lpid}"),
            Err(status) => {
                assert_eq!(status, Status::UNRECOVERED_READ);
                lost.push(lpid as u64);
            }
        }
    }
    lost
}

/// A drive that was written all over, power off, and what its pages have.
fn written(setup: Setup, batches: u64) -> (World, Vec<u64>) {
    written_over(false, setup, batches)
}

/// The same, also over a cache.
fn written_over(cached: bool, setup: Setup, batches: u64) -> (World, Vec<u64>) {
    let mut world = world(setup, cached);
    let mut values = vec![0; world.setup.config.pages as usize];
    let mut run = world.power_on(LONG).unwrap();
    let all: Vec<u64> = (0..values.len() as u64).collect();
    for lpids in all.chunks(world.setup.config.max_pages as usize) {
        assert_eq!(write(&mut run, &mut values, lpids), Status::SUCCESS);
    }
    churn(&mut run, &mut values, batches, |_| true);
    world.power_off(run);
    (world, values)
}

/// What was damaged can be read again: nothing was lost.
fn is_whole(world: &mut World, values: &[u64]) {
    damage(world, []);
    let mut run = world.power_on(LONG).unwrap();
    assert_eq!(unreadable_pages(&mut run, values), Vec::<u64>::new());
    run.target.verify(&world.void).unwrap();
    world.power_off(run);
}

#[test]
fn a_survivor_that_cannot_be_read_holds_its_chunk_until_it_is_written_anew() {
    let (mut world, mut values) = written(Setup::small(3).filled(60), 50);
    let bad = 17;
    let of_page = blocks(&mut world).into_iter().filter(|(_, tag)| tag.id == bad);
    let (at, _) = of_page.max_by_key(|(_, tag)| tag.seq).unwrap();
    damage(&mut world, [at]);
    let mut run = world.power_on(LONG).unwrap();
    while run.target.counters().stuck == 0 {
        churn(&mut run, &mut values, 10, |lpid| lpid != bad);
        assert!(run.target.counters().batches < 10_000, "{}", run.state());
    }
    churn(&mut run, &mut values, 300, |lpid| lpid != bad);
    assert_eq!(unreadable_pages(&mut run, &values), [bad], "and no other");
    let chunk = world.geometry.chunk_index(at);
    let erases = run.target.below().chunk(chunk).wear;
    assert_eq!(write(&mut run, &mut values, &[bad]), Status::SUCCESS);
    while run.target.below().chunk(chunk).wear == erases {
        churn(&mut run, &mut values, 1, |_| true);
        assert!(run.target.counters().batches < 20_000, "{}", run.state());
    }
    world.power_off(run);
    is_whole(&mut world, &values);
}

/// A drive with more pages of MAP than memory holds, some of each written, and
/// the log of that gone; power off.
fn with_many_map_pages() -> (World, Vec<u64>) {
    let mut setup = Setup::large().filled(100);
    setup.config.max_pages = 4;
    // 199 pages of MAP; the least cache that is taken holds 148.
    setup.config.cache_bytes = 150 * 4096;
    let mut world = world(setup, false);
    let mut values = vec![0; world.setup.config.pages as usize];
    let mut run = world.power_on(LONG).unwrap();
    for first in (0..values.len() as u64).step_by(512) {
        assert_eq!(write(&mut run, &mut values, &[first]), Status::SUCCESS);
    }
    churn(&mut run, &mut values, 200, |_| true);
    checkpoint(&mut run, &mut values);
    churn(&mut run, &mut values, 3, |_| true);
    world.power_off(run);
    (world, values)
}

/// Makes a checkpoint. Page 0 is written meanwhile.
fn checkpoint(run: &mut Run, values: &mut [u64]) {
    run.target.request_checkpoint();
    let before = run.target.counters().batches;
    while run.target.is_checkpointing() {
        assert_eq!(write(run, values, &[0]), Status::SUCCESS);
        assert!(run.target.counters().batches < before + 5000, "{}", run.state());
    }
}

/// Waits for what the target does by itself.
fn settle(run: &mut Run, world: &mut World) {
    while run.is_on() && run.step(world) {}
}

/// Damages all copies of a page of MAP.
fn damage_map_page(world: &mut World, number: u64) {
    let table = of_table(world, 1);
    let bad = table.into_iter().filter_map(|(page, at)| (page == number).then_some(at));
    damage(world, bad);
}

#[test]
fn a_page_of_the_map_that_cannot_be_read_takes_only_its_pages_along() {
    let (mut world, mut values) = with_many_map_pages();
    let (mut rebuilt, mut served) = (0, 0);
    for number in (0..values.len() as u64 / 512).step_by(9).chain([0]) {
        damage_map_page(&mut world, number);
        let mut run = world.power_on(LONG).unwrap();
        // The log names it.
        if run.target.recovery().rebuilt > 0 {
            rebuilt += 1;
        } else {
            let (first, other) = (number * 512, (number + 1) % 2 * 512);
            assert_eq!(read(&mut run, first), Err(Status::UNRECOVERED_READ));
            let both = [other, first];
            assert_eq!(write(&mut run, &mut values, &both), Status::UNRECOVERED_READ);
            assert_eq!(write(&mut run, &mut values, &[other]), Status::SUCCESS);
            // Then it is made anew.
            settle(&mut run, &mut world);
            assert_eq!((run.target.counters().lost, run.target.counters().repaired), (1, 1));
            assert_eq!(write(&mut run, &mut values, &both), Status::SUCCESS);
            served += 1;
        }
        assert_eq!(unreadable_pages(&mut run, &values), Vec::<u64>::new());
        run.target.verify(&world.void).unwrap();
        world.power_off(run);
        damage(&mut world, []);
    }
    assert!(rebuilt > 0 && served > 3, "{rebuilt} made anew, {served} served");
    is_whole(&mut world, &values);
}

/// Its pages lie in most chunks: these are collected all the same.
#[test]
fn a_page_of_the_map_that_cannot_be_read_takes_no_chunk_out_of_use() {
    let mut setups = (30..72).map(|seed| (seed, 34 + seed as u32 % 7 * 6, 40 + seed % 6 * 10));
    assert!(setups.any(collects_around_a_page_of_the_map), "the log names them all");
}

/// False where the log names the page, so that the start makes it anew.
fn collects_around_a_page_of_the_map((seed, chunks, fill): (u64, u32, u64)) -> bool {
    let dim = Dimensions { chunks, ..Setup::small(seed).dim };
    let setup = Setup::of(dim, seed).filled(fill);
    let last = (setup.config.pages - 1) / 512;
    let (mut world, mut values) = written(setup, 300);
    let mut run = world.power_on(LONG).unwrap();
    checkpoint(&mut run, &mut values);
    checkpoint(&mut run, &mut values);
    world.power_off(run);
    let mut table = blocks(&mut world);
    table.retain(|(_, tag)| tag.id >> 56 == 1 && tag.id & 0xffff == last);
    let newest = table.into_iter().max_by_key(|(_, tag)| tag.seq).unwrap();
    damage(&mut world, [newest.0]);
    let mut run = world.power_on(LONG).unwrap();
    if run.target.recovery().rebuilt > 0 {
        world.power_off(run);
        return false;
    }
    while run.target.counters().repaired == 0 {
        churn(&mut run, &mut values, 10, |lpid| lpid / 512 != last);
        assert!(run.target.counters().batches < 5000, "{}", run.state());
    }
    run.heal();
    churn(&mut run, &mut values, 300, |_| true);
    assert_eq!((run.target.fault(), run.target.counters().lost), (None, 1));
    assert_eq!(unreadable_pages(&mut run, &values), Vec::<u64>::new());
    run.target.verify(&world.void).unwrap();
    world.power_off(run);
    is_whole(&mut world, &values);
    true
}

/// A page of MAP that the log does not name, so that no start looks at it.
fn unnamed_map_page(world: &mut World) -> u64 {
    for number in 10.. {
        damage_map_page(world, number);
        let run = world.power_on(LONG).unwrap();
        let is_named = run.target.recovery().rebuilt > 0;
        world.power_off(run);
        damage(world, []);
        if !is_named {
            return number;
        }
    }
    unreachable!("the log names few")
}

/// Power goes while a page of MAP is made anew, or before it is written.
#[test]
fn a_page_of_the_map_is_made_anew_again_after_a_cut() {
    let (mut world, mut values) = with_many_map_pages();
    let number = unnamed_map_page(&mut world);
    damage_map_page(&mut world, number);
    for events in [1, 3, 30, 300, LONG] {
        let mut run = world.power_on(LONG).unwrap();
        let first = read(&mut run, number * 512);
        assert!(events > 1 || first == Err(Status::UNRECOVERED_READ), "{first:?}");
        run.fuse.set(events);
        settle(&mut run, &mut world);
        if events == LONG {
            assert_eq!(write(&mut run, &mut values, &[number * 512 + 1]), Status::SUCCESS);
            assert_eq!(unreadable_pages(&mut run, &values), Vec::<u64>::new());
        }
        world.power_off(run);
    }
    is_whole(&mut world, &values);
}

/// A page of MAP and a page of the host that it leads to: that one is lost, and
/// no other that was written.
#[test]
fn what_no_tag_says_is_lost_when_a_page_of_the_map_is_made_anew() {
    let (mut world, mut values) = with_many_map_pages();
    let number = unnamed_map_page(&mut world);
    let lost = number * 512;
    let mut bad = blocks(&mut world);
    bad.retain(|(_, tag)| tag.id == lost || tag.id >> 56 == 1 && tag.id & 0xffff == number);
    damage(&mut world, bad.into_iter().map(|(at, _)| at));
    let mut run = world.power_on(LONG).unwrap();
    assert_eq!(read(&mut run, lost), Err(Status::UNRECOVERED_READ));
    settle(&mut run, &mut world);
    assert_eq!(run.target.counters().repaired, 1);
    let gone = unreadable_pages(&mut run, &values);
    let was_written = |&&lpid: &&u64| values[lpid as usize] > 0;
    assert_eq!(gone.iter().filter(was_written).collect::<Vec<_>>(), [&lost]);
    assert!(gone.iter().all(|lpid| lpid / 512 == number));
    for lpids in gone.chunks(4) {
        assert_eq!(write(&mut run, &mut values, lpids), Status::SUCCESS);
    }
    assert_eq!(unreadable_pages(&mut run, &values), Vec::<u64>::new());
    world.power_off(run);
}

/// More pages of MAP are to be made anew than memory holds: the error says how
/// much would do.
#[test]
fn a_cache_that_is_too_small_for_a_start_is_told_what_would_do() {
    let (mut world, values) = with_many_map_pages();
    let mut bad = of_table(&mut world, 1);
    bad.extend(of_table(&mut world, 2));
    damage(&mut world, bad.into_iter().map(|(_, at)| at));
    let Err(BatchError::Cache { least, .. }) = world.try_power_on(LONG) else {
        panic!("memory holds all")
    };
    assert!(least <= 199 * 4096, "{least}");
    world.setup.config.cache_bytes = least;
    let mut run = world.power_on(LONG).unwrap();
    assert!(run.target.recovery().rebuilt > 150);
    run.heal();
    let mut gone = unreadable_pages(&mut run, &values);
    gone.retain(|&lpid| values[lpid as usize] > 0);
    assert_eq!(gone, Vec::<u64>::new());
    world.power_off(run);
}

/// Where pages of MAP are lost and GBITV is damaged, nothing says which blocks
/// count.
#[test]
fn lost_pages_of_the_map_and_damaged_garbage_are_an_error() {
    let (mut world, _) = with_many_map_pages();
    let mut table = blocks(&mut world);
    table.retain(|(_, tag)| tag.id >> 56 == 2);
    let (at, tag) = table.into_iter().max_by_key(|(_, tag)| tag.seq).unwrap();
    let lost = 1u64 << 63;
    rewrite(&mut world, at, |page, id| {
        (0..199).for_each(|n| page[8 * n..8 * n + 8].copy_from_slice(&lost.to_le_bytes()));
        let sum = xxhash_rust::xxh3::xxh3_64(page) >> 44;
        *id = tag.id & !(((1 << 20) - 1) << 36) | sum << 36;
    });
    let bad = of_table(&mut world, 4);
    damage(&mut world, bad.into_iter().map(|(_, at)| at));
    assert!(matches!(world.try_power_on(LONG), Err(BatchError::Table { .. })));
}

/// Changes a block on the medium, and the id of its TAG.
fn rewrite(world: &mut World, at: Ppa, change: impl Fn(&mut [u8], &mut u64)) {
    let index = world.geometry.chunk_index(at);
    let (start, count) = (world.geometry.chunk_start(index), world.chunks[index].programmed);
    let (mut data, mut tags) = (vec![0; count as usize * 4096], vec![0; count as usize * 16]);
    assert_eq!(world.medium().read(start, count, &mut data, &mut tags), Moved::Done);
    let n = (at.0 - start.0) as usize;
    let mut id = Tag::load(&tags[16 * n..16 * n + 16]).id;
    change(&mut data[4096 * n..][..4096], &mut id);
    tags[16 * n..16 * n + 8].copy_from_slice(&id.to_le_bytes());
    assert_eq!(world.medium().reset(start), Moved::Done);
    assert_eq!(world.medium().program(start, count, &data, &tags), Moved::Done);
}

/// A table that cannot be read is made anew by the others: all of it, of one kind
/// at a time, also where power goes again and again before it is written.
#[test]
fn a_table_that_cannot_be_read_is_made_anew() {
    for (kind, table) in [(1, "MAP"), (2, "MAP_S"), (3, "GBITV"), (4, "GBITV_S"), (5, "WEAR")] {
        for seed in 0..6 {
            let (mut world, mut values) = written(Setup::small(20 + seed).filled(60), 200 + seed);
            let bad: Vec<Ppa> = of_table(&mut world, kind).into_iter().map(|(_, at)| at).collect();
            assert!(!bad.is_empty(), "{table} was written");
            let bad = Bad::new(&mut world, bad);
            for events in [0, 3, 30, 200, LONG] {
                let mut run = world.power_on(LONG).unwrap();
                let rebuilt = run.target.recovery().rebuilt;
                assert!(events > 0 || rebuilt > 0 || kind == 1, "{table} was needed");
                // With a request it begins to write what it made anew.
                run.fuse.set(events.max(1));
                run.flush(&mut world);
                while run.is_on() && run.step(&mut world) {}
                world.power_off(run);
                bad.hold(&mut world);
            }
            let mut run = world.power_on(LONG).unwrap();
            run.target.verify(&world.void).unwrap();
            assert_eq!(unreadable_pages(&mut run, &values), Vec::<u64>::new(), "{table} {seed}");
            world.power_off(run);
            is_whole(&mut world, &values);
            // The bad blocks may be written again.
            let mut run = world.power_on(LONG).unwrap();
            churn(&mut run, &mut values, 40, |_| true);
            assert_eq!(unreadable_pages(&mut run, &values), Vec::<u64>::new(), "{table} {seed}");
            run.target.verify(&world.void).unwrap();
            world.power_off(run);
        }
    }
}

/// A page of MAP and a page that it led to: the page is lost, and no other.
#[test]
fn what_no_table_and_no_tag_says_is_lost_alone() {
    let mut lost = 0;
    for seed in 0..8 {
        let (mut world, mut values) = written(Setup::small(40 + seed).filled(60), 100);
        let page = Random(seed).below(values.len() as u64);
        let mut of_page = blocks(&mut world);
        of_page.retain(|(_, tag)| tag.id == page);
        // What collection moved has the LSN of the copy that it left.
        let newest = of_page.iter().map(|(_, tag)| tag.seq).max().unwrap();
        of_page.retain(|(_, tag)| tag.seq == newest);
        let tables = of_table(&mut world, 1).into_iter().map(|(_, at)| at);
        let bad: Vec<Ppa> = tables.chain(of_page.into_iter().map(|(at, _)| at)).collect();
        let bad = Bad::new(&mut world, bad);
        for start in 0..2 {
            let mut run = world.power_on(LONG).unwrap();
            lost += run.target.recovery().rebuilt;
            let mut gone = unreadable_pages(&mut run, &values);
            world.power_off(run);
            // What was moved meanwhile to a bad block that was erased is there.
            damage(&mut world, []);
            let all = blocks(&mut world);
            gone.retain(|&lpid| {
                let is_moved =
                    |(at, tag): &(Ppa, Tag)| tag.id == lpid && bad.is_reused(&world, *at);
                !all.iter().any(is_moved)
            });
            assert_eq!(gone, [page], "seed {seed}, start {start}");
            bad.hold(&mut world);
        }
        damage(&mut world, []);
        let mut run = world.power_on(LONG).unwrap();
        churn(&mut run, &mut values, 3, |lpid| lpid != page);
        assert_eq!(write(&mut run, &mut values, &[page]), Status::SUCCESS);
        assert_eq!(unreadable_pages(&mut run, &values), Vec::<u64>::new());
        world.power_off(run);
    }
    assert!(lost > 4, "{lost} made anew");
}

/// One after the other, each chunk that was written cannot be read.
#[test]
fn no_chunk_that_cannot_be_read_takes_more_along_than_itself() {
    let (mut world, mut values) = written(Setup::small(12).filled(76), 100);
    let (geometry, chunks) = (world.geometry, world.chunks.clone());
    let (mut lost, mut stayed) = (0, 0);
    for index in (0..chunks.len()).filter(|&index| chunks[index].programmed > 0) {
        let all = blocks(&mut world).into_iter().map(|(at, _)| at);
        let bad: Vec<Ppa> = all.filter(|&at| geometry.chunk_index(at) == index).collect();
        damage(&mut world, bad.iter().copied());
        match world.try_power_on(LONG) {
            // What the tests above do by themselves.
            Err(BatchError::Log { .. } | BatchError::Table { .. }) => {}
            Err(e) => panic!("chunk {index}: {e}"),
            Ok(run) => {
                let mut run = run.unwrap();
                let gone = unreadable_pages(&mut run, &values);
                let erases = run.target.below().chunk(index).wear;
                churn(&mut run, &mut values, 10, |lpid| !gone.contains(&lpid));
                // A chunk that holds nothing any more may be erased and written
                // again: then what is new there cannot be read.
                if run.target.below().chunk(index).wear == erases {
                    assert_eq!(unreadable_pages(&mut run, &values), gone, "chunk {index}");
                    stayed += 1;
                } else {
                    assert!(gone.is_empty(), "chunk {index} held {gone:?}");
                }
                lost += gone.len();
                world.power_off(run);
            }
        }
        is_whole(&mut world, &values);
    }
    assert!(lost > 100 && stayed > 30, "{lost} pages, {stayed} chunks");
}
