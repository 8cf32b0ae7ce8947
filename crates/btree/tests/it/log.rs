//! The tree over the log-structured store on the host.

use crate::common;
use crate::common::blocks::{self, BLOCKS, Kind, OnBlocks, SMALL, Shared, any, is, tests_of, was};
use crate::common::{
    Checked, Heard, Map, MemoryDrive, Mix, contents, damage, no_fuse, random_step,
};
use btree::{Error, LogConfig, LogStore, PageStore, StoreDone, StoreError, Tree};
use port::{Buffer, Ring, Shape, Status, Time};
use std::cell::RefCell;
use std::rc::Rc;
use workload::Rng;

pub const CONFIG: LogConfig = LogConfig {
    segment_blocks: 64,
    overhead: 100,
    durable: true,
    // Short, so that crashes fall into checkpoints.
    checkpoint_every: 3_000_000,
    batches: 4,
    collectors: 2,
    redo: 0,
    clock: btree::store::no_clock,
};

struct Log;

impl Kind for Log {
    type Store = LogStore<OnBlocks>;

    fn create(drive: OnBlocks, shape: Shape) -> Result<Self::Store, StoreError> {
        LogStore::create(drive, shape, CONFIG, Time::ZERO)
    }

    fn open(drive: OnBlocks, shape: Shape, now: Time) -> Result<Self::Store, StoreError> {
        LogStore::open(drive, shape, CONFIG, now)
    }

    fn into_drive(store: Self::Store) -> OnBlocks {
        store.into_drive()
    }
}

tests_of! { Log:
    it_is_a_map = blocks::it_is_a_map();
    crashes_lose_nothing_that_was_flushed = blocks::crashes_lose_nothing_that_was_flushed(0..10);
    a_cut_at_each_event = blocks::a_cut_at_each_event();
    damage_is_an_error = damage::some_blocks();
    one_damaged_block_is_an_error = damage::each_block();
    a_damaged_head_after_a_crash_is_an_error = damage::each_head_after_a_crash(4);
    limits_are_errors = blocks::limits_are_errors();
    a_lost_page_is_an_error = blocks::a_lost_page_is_an_error();
}

fn store(config: LogConfig, seed: u64) -> LogStore<OnBlocks> {
    let drive = MemoryDrive::new(BLOCKS, seed, no_fuse());
    let shape = drive.shape;
    LogStore::create(any(drive), shape, config, Time::ZERO).unwrap()
}

#[test]
fn a_full_store_is_collected_for_ever() {
    // All pages that there are, written anew many times over.
    let mut tree = Tree::create(store(CONFIG, 1), SMALL, Time::ZERO).unwrap();
    let mut heard = Heard::default();
    let mut rng = Rng::new(1, 1);
    let mut map = Map::new();
    let mut full = false;
    for i in 0..12_000u64 {
        let key = if full { rng.below(i.min(3000)) } else { i }.to_be_bytes();
        let value = vec![i as u8; 1900];
        tree.put(i, &key, &value, &mut heard).unwrap();
        while heard.done.is_empty() {
            assert!(tree.wait(&mut heard), "nothing goes on after {i}");
        }
        match heard.done.pop_front().unwrap().1 {
            Ok(_) => {
                map.insert(key.to_vec(), value);
            }
            Err(error) => {
                assert!(matches!(error, Error::Full(_)));
                full = true;
            }
        }
    }
    let counters = tree.store().counters();
    assert!(full && counters.collected > 50 && counters.moved > 500, "{counters:?}");
    assert!(counters.checkpoints > 5, "{counters:?}");
    assert_eq!(contents(&mut tree), map);
    tree.verify().unwrap();
}

#[test]
fn a_log_that_is_not_collected_ends() {
    let config = LogConfig { durable: false, ..CONFIG };
    let mut checked =
        Checked::new(Tree::create(store(config, 1), SMALL, Time::ZERO).unwrap(), Map::new());
    let mix = Mix { keys: 500, longest: 2000, flush: 400, shrink: false };
    let mut rng = Rng::new(2, 2);
    for _ in 0..1500 {
        assert!(checked.step(random_step(&mut rng, mix)));
    }
    assert!(checked.finish());
    let counters = checked.tree.store().counters();
    assert_eq!((counters.collected, counters.checkpoints), (0, 1));
    // Go on until it is full.
    let mut tree = checked.tree;
    let mut heard = Heard::default();
    let mut last = Ok(btree::Outcome::Stored);
    for i in 0..60_000u64 {
        if last.is_err() {
            break;
        }
        let key = (i % 1000).to_be_bytes();
        tree.put(i, &key, &[i as u8; 1500], &mut heard).unwrap();
        while heard.done.is_empty() {
            assert!(tree.wait(&mut heard));
        }
        last = heard.done.pop_front().unwrap().1;
    }
    assert_eq!(last, Err(Error::Store(StoreError::LogFull)));
    tree.flush(1).unwrap();
    while heard.done.is_empty() {
        assert!(tree.wait(&mut heard));
    }
    assert_eq!(heard.done[0].1, Err(Error::Store(StoreError::LogFull)));
}

#[test]
fn wrong_drives_are_refused() {
    let create = |blocks, config| {
        let drive = MemoryDrive::new(blocks, 1, no_fuse());
        let shape = drive.shape;
        LogStore::create(any(drive), shape, config, Time::ZERO).map(|_| ())
    };
    let shape = |result| matches!(result, Err(StoreError::Shape { .. }));
    assert!(shape(create(100, CONFIG)));
    for config in [
        LogConfig { segment_blocks: 63, ..CONFIG },
        LogConfig { segment_blocks: 257, ..CONFIG },
        LogConfig { overhead: 19, ..CONFIG },
        LogConfig { batches: 0, ..CONFIG },
        LogConfig { collectors: 9, ..CONFIG },
    ] {
        assert!(shape(create(BLOCKS, config)), "{config:?}");
    }
    let drive = MemoryDrive::new(BLOCKS, 1, no_fuse());
    let empty = LogStore::open(
        any(drive),
        MemoryDrive::new(BLOCKS, 1, no_fuse()).shape,
        CONFIG,
        Time::ZERO,
    );
    assert!(matches!(empty.err(), Some(StoreError::Unusable(_))));
    let mut drive = store(CONFIG, 1).into_drive();
    let other = LogConfig { segment_blocks: 128, ..CONFIG };
    let shape = is::<MemoryDrive>(&mut drive).shape;
    let opened = LogStore::open(drive, shape, other, Time::ZERO);
    assert!(matches!(opened.err(), Some(StoreError::Unusable(_))));
}

#[test]
fn memory_is_for_the_map() {
    let store = store(CONFIG, 1);
    let map = store.pages() * 4;
    assert!((map..map + (3 << 20)).contains(&store.memory()));
}

/// An hour of mixed load in simulated time, with a cut every few minutes.
#[test]
#[ignore = "an hour of simulated load"]
fn an_hour_of_mixed_load() {
    const HOUR: u64 = 3_600_000_000_000;
    // As many steps as a drive of 0.1 ms a command does in that time, one at a
    // time, would take days here: each life is of some thousand steps, and the
    // time between its steps makes up the rest.
    let mut rng = Rng::new(1, 1);
    let fuse: common::Fuse = std::rc::Rc::new(std::cell::Cell::new(u64::MAX));
    let tree = blocks::create::<Log>(MemoryDrive::new(BLOCKS, 1, fuse.clone()));
    let mut checked = Checked::new(tree, Map::new());
    let (mut now, mut life, mut steps) = (0, 0, 0);
    while now < HOUR {
        let mix = Mix { keys: 400 + life % 800, longest: 9000, flush: 50, shrink: life % 3 == 0 };
        let end = now + 60_000_000_000 + rng.below(240_000_000_000);
        let mut at = 0;
        while now + at < end && checked.step(random_step(&mut rng, mix)) {
            at += 20_000_000;
            steps += 1;
            checked.idle_until(Time(at));
        }
        fuse.set(rng.below(400));
        while checked.step(random_step(&mut rng, mix)) {}
        let unheard = checked.unheard();
        let (base, changes) = (checked.base, checked.changes);
        let drive: MemoryDrive = was(checked.tree.into_store().into_drive());
        fuse.set(u64::MAX);
        let mut tree = blocks::open::<Log>(drive.crash(life, fuse.clone()));
        tree.verify().unwrap_or_else(|e| panic!("life {life}: {e}"));
        let found = contents(&mut tree);
        common::check_after_crash(&base, &changes, &unheard, &found);
        checked = Checked::new(tree, found);
        (now, life) = (end, life + 1);
    }
    assert!(life > 10 && steps > 100_000, "{steps} steps in {life} lives");
}

/// Waits for the next thing that the store has done.
fn next<S: PageStore>(store: &mut S, done: &mut Ring<StoreDone>) -> StoreDone {
    loop {
        if let Some(done) = done.pop() {
            return done;
        }
        let at = store.wait().expect("something is under way");
        store.poll(at, done);
    }
}

fn write_pages<S: PageStore>(store: &mut S, pages: &[u64], round: u8) {
    let mut done = Ring::new(8);
    while !store.can_write() {
        let at = store.wait().expect("room comes");
        store.poll(at, &mut done);
    }
    store.write(7, pages, &mut |i, to| {
        to.fill(round);
        to[8..16].copy_from_slice(&pages[i].to_le_bytes());
    });
    let StoreDone::Write { result, .. } = next(store, &mut done) else { panic!("a write") };
    assert_eq!(result, Ok(()));
}

fn read_page<S: PageStore>(store: &mut S, page: u64) -> Result<(), StoreError> {
    let mut done = Ring::new(8);
    store.read(page, Buffer::zeroed(4096).unwrap()).unwrap();
    let StoreDone::Read { page: read, buffer, result } = next(store, &mut done) else {
        panic!("a read")
    };
    assert_eq!(read, page);
    if result.is_ok() {
        assert_eq!(buffer.bytes()[8..16], page.to_le_bytes());
    }
    result
}

/// A segment that cannot be read at once is read page by page: what can be read
/// of it leaves it.
#[test]
fn a_lost_page_keeps_no_other_in_its_segment() {
    let drive = MemoryDrive::new(BLOCKS, 3, no_fuse());
    let shape = drive.shape;
    let shared = Rc::new(RefCell::new(drive));
    let mut store =
        LogStore::create(any(Shared(shared.clone())), shape, CONFIG, Time::ZERO).unwrap();
    // What stays, between what is written again and again.
    let stays: Vec<u64> = (0..400).collect();
    for (n, pages) in stays.chunks(4).enumerate() {
        let churned: Vec<u64> = (0..28).map(|i| 1000 + (n as u64 * 28 + i) % 300).collect();
        write_pages(&mut store, &[pages, &churned].concat(), 1);
    }
    let bad = 203;
    let is_bad = |block: &u64| {
        let drive = shared.borrow();
        drive.peek(*block).is_some_and(|bytes| bytes[8..16] == u64::to_le_bytes(bad))
    };
    let mut copies: Vec<u64> = shared.borrow().written();
    copies.retain(is_bad);
    // It may have been moved already: the copy that counts is the one without
    // which it cannot be read.
    let counts = |&block: &u64| {
        shared.borrow_mut().lost = vec![block];
        read_page(&mut store, bad).is_err()
    };
    let lost = copies.into_iter().find(counts).expect("one of them counts");
    let mut round = 0;
    while store.counters().collected < 100 {
        round += 1;
        let churned: Vec<u64> = (0..28).map(|i| 1000 + (round * 28 + i) % 300).collect();
        write_pages(&mut store, &churned, 2);
        assert!(round < 5000, "{:?}", store.counters());
    }
    // Nothing but that page lives in its segment any more.
    let first = lost / 64 * 64;
    shared.borrow_mut().lost.extend(first..first + 64);
    for &page in &stays {
        let read = read_page(&mut store, page);
        let status = Status::UNRECOVERED_READ;
        let gone = Err(StoreError::Drive { what: "read a page", status });
        assert_eq!(read, if page == bad { gone } else { Ok(()) }, "page {page}");
    }
    // Written anew it is needed there no more, and the segment is free.
    assert_eq!(store.unreadable(), 1);
    write_pages(&mut store, &[bad], 3);
    assert_eq!(store.unreadable(), 0);
    assert_eq!(read_page(&mut store, bad), Ok(()));
}

/// Pages behind the header of a record that nobody can read are found through the
/// map: they keep no segment.
#[test]
fn pages_without_a_header_are_moved() {
    let drive = MemoryDrive::new(BLOCKS, 3, no_fuse());
    let shape = drive.shape;
    let shared = Rc::new(RefCell::new(drive));
    let mut store =
        LogStore::create(any(Shared(shared.clone())), shape, CONFIG, Time::ZERO).unwrap();
    let churned = |n: u64| (0..4).map(move |i| 1000 + (n * 4 + i) % 300);
    let stays: Vec<u64> = (0..400).collect();
    for (n, pages) in stays.chunks(3).enumerate() {
        write_pages(&mut store, &[pages, &churned(n as u64).collect::<Vec<_>>()].concat(), 1);
    }
    // The last header of each segment: where a page has its number there is
    // none so small.
    let is_header = |block: &u64| {
        let drive = shared.borrow();
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes[8..16].try_into().unwrap());
        drive.peek(*block).is_some_and(|bytes| word(bytes) > 1 << 20)
    };
    let headers: Vec<u64> = shared.borrow().written().into_iter().filter(is_header).collect();
    let last = headers.chunk_by(|a, b| a / 64 == b / 64).filter_map(|one| one.last());
    let damaged = last.map(|&block| shared.borrow_mut().flip(block, 100)).count();
    for round in 0..3000 {
        write_pages(&mut store, &churned(round).collect::<Vec<_>>(), 2);
        assert_eq!(store.unreadable(), 0, "{:?}", store.counters());
    }
    assert!(store.counters().collected > 10, "{:?}", store.counters());
    assert!(damaged > 10, "{damaged}");
    for &page in &stays {
        assert_eq!(read_page(&mut store, page), Ok(()), "page {page}");
    }
}

/// A full log, so that segments are written soon after they were trimmed, on a
/// drive whose flushes are slow and that loses what was not flushed, trims among
/// it: what a cut leaves is no damage.
#[test]
fn trims_that_a_cut_undoes_are_no_damage() {
    let mut store = store(CONFIG, 6);
    let mut rng = Rng::new(6, 6);
    let pages = store.pages();
    for first in (0..pages).step_by(40) {
        write_pages(&mut store, &(first..pages.min(first + 40)).collect::<Vec<_>>(), 1);
    }
    for round in 0..60 {
        is::<MemoryDrive>(store.drive_mut()).slow_flush = 5_000_000;
        for _ in 0..100 + rng.below(100) {
            let first = rng.below(pages - 40);
            write_pages(&mut store, &(first..first + 1 + rng.below(40)).collect::<Vec<_>>(), 2);
        }
        let drive = was::<MemoryDrive>(store.into_drive()).crash(round, no_fuse());
        let shape = drive.shape;
        let opened = LogStore::open(any(drive), shape, CONFIG, Time::ZERO);
        store = opened.unwrap_or_else(|e| panic!("round {round}: {e}"));
    }
    assert!(store.counters().recovered > 0);
}

/// A flush is one command. So is that of the trims of a checkpoint, which keeps
/// two itself.
#[test]
fn flushes_are_few() {
    let mut store = store(CONFIG, 5);
    let before = is::<MemoryDrive>(store.drive_mut()).flushes;
    let rounds = 3000;
    for round in 0..rounds {
        write_pages(&mut store, &[0, 1, 2, 3, 4, 5, 6, 7 + round % 500], 1);
        assert!(store.flush(1));
        let done = next(&mut store, &mut Ring::new(8));
        assert!(matches!(done, StoreDone::Flush { result: Ok(()), .. }));
    }
    let checkpoints = store.counters().checkpoints;
    let flushes = is::<MemoryDrive>(store.drive_mut()).flushes - before;
    let own = flushes - rounds;
    assert!(checkpoints > 10, "{checkpoints}");
    assert!(own > 2 * checkpoints - 4 && own <= 3 * checkpoints, "{own}, {checkpoints}");
}

/// Records that fill segments, and one behind them: only that one says that
/// they were durable.
#[test]
fn damage_segments_before_the_end_is_told() {
    let drive = MemoryDrive::new(BLOCKS, 3, no_fuse());
    let shape = drive.shape;
    let config = LogConfig { checkpoint_every: u64::MAX, ..CONFIG };
    let mut store = LogStore::create(any(drive), shape, config, Time::ZERO).unwrap();
    for first in 0..6 {
        write_pages(&mut store, &(first * 63..(first + 1) * 63).collect::<Vec<_>>(), 1);
    }
    for id in 0..2 {
        assert!(store.flush(id));
        let done = next(&mut store, &mut Ring::new(8));
        assert!(matches!(done, StoreDone::Flush { result: Ok(()), .. }));
        write_pages(&mut store, &[0], 2);
    }
    let drive = was::<MemoryDrive>(store.into_drive()).crash(2, no_fuse());
    let opened = |damaged: u64| {
        let mut drive = drive.copy();
        drive.flip(damaged, 100);
        LogStore::open(any(drive), shape, config, Time::ZERO).err()
    };
    let mut segments = drive.written();
    segments.retain(|&block| block >= 64);
    assert_eq!(segments.len(), 6 * 64 + 2, "the last record was not flushed");
    for block in segments.iter().copied().take(6 * 64) {
        let what = "a record of the log";
        assert_eq!(opened(block), Some(StoreError::DamagedBlock { block, what }), "{block}");
    }
}

/// A log to which nothing was written since it was opened opens without a look at
/// all of the drive.
#[test]
fn opening_again_reads_as_much_of_any_drive() {
    let reads = [4000, 40_000].map(|blocks| {
        let drive = MemoryDrive::new(blocks, 1, no_fuse());
        let shape = drive.shape;
        let log = LogStore::create(any(drive), shape, CONFIG, Time::ZERO).unwrap();
        let log = LogStore::open(log.into_drive(), shape, CONFIG, Time::ZERO).unwrap();
        let mut drive = log.into_drive();
        is::<MemoryDrive>(&mut drive).reads = 0;
        let log = LogStore::open(drive, shape, CONFIG, Time::ZERO).unwrap();
        was::<MemoryDrive>(log.into_drive()).reads
    });
    assert!(reads[1] < reads[0] + 100 && reads[0] < 400, "{reads:?}");
}
