//! Blocks below a batched target that cannot be read any more: of the host, of
//! the tables, of the log. What is lost is said, nothing else is lost, and a
//! start that fails changes nothing.

mod batch_world;

use std::collections::BTreeSet;

use batch_world::{Random, Run, Setup, World, batch_buffer, value_of};
use device::OpenChannel;
use faults::{Access, FaultyMedium, MediumFault, MediumRule, Span, Trigger};
use flash::{Dimensions, Geometry, Medium, Moved, Ppa, RamMedium, Tag};
use port::{BatchOp, Buffer, Status};
use targets::batch::BatchError;

const LONG: u64 = u64::MAX / 2;

/// The TAG kind of rows of the log.
const LOG: u64 = 6;

type Damaged = World<FaultyMedium<RamMedium>>;
type Running = Run<FaultyMedium<RamMedium>>;

fn world(setup: Setup) -> Damaged {
    World::new(setup, |geometry: &Geometry| {
        let ram = RamMedium::new(geometry, 8).unwrap();
        FaultyMedium::new(geometry, ram, &[], 1).unwrap()
    })
}

/// Makes blocks unreadable; none, where there are none.
fn damage(world: &mut Damaged, blocks: impl IntoIterator<Item = Ppa>) {
    let bad = |at: Ppa| {
        let trigger = Trigger { span: Some(Span::Ppa(at.0..at.0 + 1)), ..Trigger::default() };
        MediumRule { fault: MediumFault::Fail { on: Access::Read, permanent: false }, trigger }
    };
    let rules: Vec<MediumRule> = blocks.into_iter().map(bad).collect();
    world.medium().set_rules(&rules, 5).unwrap();
}

/// All programmed blocks and their TAGs. Power is off, nothing is damaged.
fn blocks(world: &mut Damaged) -> Vec<(Ppa, Tag)> {
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
fn of_table(world: &mut Damaged, kind: u64) -> Vec<(u64, Ppa)> {
    let all = blocks(world).into_iter().filter(|(_, tag)| tag.id >> 56 == kind);
    all.map(|(at, tag)| (tag.id & ((1 << 36) - 1), at)).collect()
}

/// Writes pages of the host, and takes note of their values where that went
/// well.
fn write(run: &mut Running, values: &mut [u64], lpids: &[u64]) -> Status {
    let next = values.iter().max().unwrap() + 1;
    let new: Vec<u64> = (next..next + lpids.len() as u64).collect();
    let status = run.ask(BatchOp::WriteBatch, 0, batch_buffer(lpids, &new, 8)).status;
    if status.is_ok() {
        lpids.iter().zip(new).for_each(|(&lpid, value)| values[lpid as usize] = value);
    }
    status
}

/// Writes random pages of those that `may` allows, so many batches.
fn churn(run: &mut Running, values: &mut [u64], batches: u64, may: impl Fn(u64) -> bool) {
    let most = run.target.shape().max_pages.min(8);
    let mut random = Random(values.iter().sum());
    for _ in 0..batches {
        let lpids = (0..most).map(|_| random.below(values.len() as u64));
        let lpids: BTreeSet<u64> = lpids.filter(|&lpid| may(lpid)).collect();
        let lpids: Vec<u64> = lpids.into_iter().collect();
        if !lpids.is_empty() {
            assert_eq!(write(run, values, &lpids), Status::SUCCESS, "{lpids:?}");
        }
    }
}

/// Reads a page: its value, or why not.
fn read(run: &mut Running, lpid: u64) -> Result<u64, Status> {
    let done = run.ask(BatchOp::Read, lpid, Buffer::zeroed(8).unwrap());
    match done.status {
        Status::UNWRITTEN => Ok(0),
        status if status.is_ok() => Ok(value_of(done.buffer.bytes())),
        status => Err(status),
    }
}

/// All pages are as they were written, but for those that cannot be read. Gives
/// these.
fn unreadable(run: &mut Running, values: &[u64]) -> Vec<u64> {
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
fn written(setup: Setup, batches: u64) -> (Damaged, Vec<u64>) {
    let mut world = world(setup);
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
fn is_whole(world: &mut Damaged, values: &[u64]) {
    damage(world, []);
    let mut run = world.power_on(LONG).unwrap();
    assert_eq!(unreadable(&mut run, values), Vec::<u64>::new());
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
    assert_eq!(unreadable(&mut run, &values), [bad], "and no other");
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

#[test]
fn a_page_of_the_map_that_cannot_be_read_takes_only_its_pages_along() {
    let dim = Dimensions { groups: 4, pus: 2, chunks: 64, pages: 64, planes: 2, page_bytes: 8192 };
    let mut setup = Setup::of(dim, 5).filled(100);
    setup.config.max_pages = 4;
    // 199 pages of MAP; the least cache that is taken holds 148.
    setup.config.cache_bytes = 150 * 4096;
    let mut world = world(setup);
    let mut values = vec![0; world.setup.config.pages as usize];
    let mut run = world.power_on(LONG).unwrap();
    // Some of each page of MAP.
    for first in (0..values.len() as u64).step_by(512) {
        assert_eq!(write(&mut run, &mut values, &[first]), Status::SUCCESS);
    }
    churn(&mut run, &mut values, 200, |_| true);
    run.target.request_checkpoint();
    while run.target.is_checkpointing() {
        assert_eq!(write(&mut run, &mut values, &[0]), Status::SUCCESS);
    }
    churn(&mut run, &mut values, 3, |_| true);
    world.power_off(run);
    let (mut refused, mut served) = (0, 0);
    for number in (0..values.len() as u64 / 512).step_by(9).chain([0]) {
        let table = of_table(&mut world, 1);
        let at = |&(page, at): &(u64, Ppa)| (page == number).then_some(at);
        let bad: Vec<Ppa> = table.iter().filter_map(at).collect();
        damage(&mut world, bad.iter().copied());
        match world.try_power_on(LONG) {
            // The log names it.
            Err(BatchError::Table { at, .. }) if bad.contains(&at) => refused += 1,
            Err(e) => panic!("{e}"),
            Ok(run) => {
                let mut run = run.unwrap();
                let of_page = |lpid: u64| lpid / 512 == number;
                let (first, other) = (number * 512, (number + 1) % 2 * 512);
                assert_eq!(read(&mut run, first), Err(Status::UNRECOVERED_READ));
                let both = [other, first];
                assert_eq!(write(&mut run, &mut values, &both), Status::UNRECOVERED_READ);
                assert_eq!(write(&mut run, &mut values, &[other]), Status::SUCCESS);
                churn(&mut run, &mut values, 30, |lpid| !of_page(lpid));
                for lpid in (0..values.len() as u64).step_by(101) {
                    let found = read(&mut run, lpid);
                    let lost = Err(Status::UNRECOVERED_READ);
                    assert_eq!(found, if of_page(lpid) { lost } else { Ok(values[lpid as usize]) });
                }
                assert!(run.target.counters().lost > 0);
                world.power_off(run);
                served += 1;
            }
        }
        damage(&mut world, []);
    }
    assert!(refused > 0 && served > 3, "{refused} refused, {served} served");
    is_whole(&mut world, &values);
}

#[test]
fn a_page_of_another_table_that_cannot_be_read_is_an_error_at_the_start() {
    let (mut world, values) = written(Setup::small(8).filled(60), 200);
    for (kind, table) in [(2, "MAP_S"), (3, "GBITV"), (4, "GBITV_S"), (5, "WEAR")] {
        let bad: Vec<Ppa> = of_table(&mut world, kind).into_iter().map(|(_, at)| at).collect();
        assert!(!bad.is_empty(), "{table} was written");
        damage(&mut world, bad.iter().copied());
        match world.try_power_on(LONG).err() {
            Some(BatchError::Table { at, status }) => {
                assert!(bad.contains(&at), "{table}");
                assert_eq!(status, Status::UNRECOVERED_READ);
            }
            other => panic!("{table}: {other:?}"),
        }
        is_whole(&mut world, &values);
    }
}

/// Rows of the log, from the newest back: what is behind the last checkpoint must
/// be there, and what is before it is not missed.
#[test]
fn a_row_of_the_log_that_cannot_be_read_is_an_error_at_the_start_or_not_needed() {
    let (mut world, values) = written(Setup::small(10).filled(60), 200);
    let row = world.geometry.row_blocks();
    let mut rows = of_table(&mut world, LOG);
    rows.retain(|&(_, at)| world.geometry.block(at).is_multiple_of(row));
    rows.sort_unstable();
    let (mut errors, mut old) = (0, 0);
    for &(_, bad) in rows.iter().rev() {
        damage(&mut world, [bad]);
        match world.try_power_on(LONG) {
            Err(BatchError::Log { at, status }) => {
                assert_eq!((at, status), (bad, Status::UNRECOVERED_READ));
                errors += 1;
            }
            Err(e) => panic!("{bad:?}: {e}"),
            Ok(run) => {
                let mut run = run.unwrap();
                assert_eq!(unreadable(&mut run, &values), Vec::<u64>::new());
                world.power_off(run);
                old += 1;
            }
        }
        if old > 3 {
            break;
        }
    }
    assert!(errors > 3, "{errors} rows");
    is_whole(&mut world, &values);
}

/// One after the other, each chunk that was written cannot be read.
#[test]
fn no_chunk_that_cannot_be_read_takes_more_along_than_itself() {
    let (mut world, mut values) = written(Setup::small(12).filled(60), 100);
    let (geometry, chunks) = (world.geometry, world.chunks.clone());
    let mut lost = 0;
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
                let gone = unreadable(&mut run, &values);
                churn(&mut run, &mut values, 10, |lpid| !gone.contains(&lpid));
                assert_eq!(unreadable(&mut run, &values), gone);
                lost += gone.len();
                world.power_off(run);
            }
        }
        is_whole(&mut world, &values);
    }
    assert!(lost > 100, "{lost} pages");
}
