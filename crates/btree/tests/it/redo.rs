//! Trees with a redo log, over each of the stores.

use std::cell::Cell;
use std::rc::Rc;

use btree::{
    Error, InPlaceConfig, InPlaceStore, LogConfig, LogStore, PageStore, StoreError, Tree,
    TreeConfig,
};
use port::{Shape, Time};
use workload::Rng;

use crate::batched::{self, Batched};
use crate::common::blocks::{
    self, BLOCKS, IN_PLACE, Kind, OnBlocks, SMALL, any, create, open, tests_of, was,
};
use crate::common::{
    BatchDrive, Checked, Fuse, Heard, Map, MemoryDrive, Mix, Step, contents, damage, no_fuse,
    random_step, rest,
};
use crate::log;

/// Few, so that the ring goes round often.
pub const RING: u64 = 64;

/// In place, with a log.
pub struct InPlace;

const LOGGED_IN_PLACE: InPlaceConfig = InPlaceConfig { redo: RING, ..IN_PLACE };

impl Kind for InPlace {
    type Store = InPlaceStore<OnBlocks>;

    fn create(drive: OnBlocks, shape: Shape) -> Result<Self::Store, StoreError> {
        InPlaceStore::create(drive, shape, LOGGED_IN_PLACE, Time::ZERO)
    }

    /// The store says itself that it has a log.
    fn open(drive: OnBlocks, shape: Shape, now: Time) -> Result<Self::Store, StoreError> {
        InPlaceStore::open(drive, shape, IN_PLACE, now)
    }

    fn into_drive(store: Self::Store) -> OnBlocks {
        store.into_drive()
    }
}

/// In a log, with another one.
pub struct Log;

const LOG: LogConfig = LogConfig { redo: RING, ..log::CONFIG };

impl Kind for Log {
    type Store = LogStore<OnBlocks>;

    fn create(drive: OnBlocks, shape: Shape) -> Result<Self::Store, StoreError> {
        LogStore::create(drive, shape, LOG, Time::ZERO)
    }

    fn open(drive: OnBlocks, shape: Shape, now: Time) -> Result<Self::Store, StoreError> {
        LogStore::open(drive, shape, log::CONFIG, now)
    }

    fn into_drive(store: Self::Store) -> OnBlocks {
        store.into_drive()
    }
}

/// Over a drive with batched writes.
pub type Batches = Batched<RING>;

/// Waits until all that was asked for is done.
fn wait_for_all<S: PageStore>(tree: &mut Tree<S>, heard: &mut Heard) {
    while tree.waiting() > 0 {
        assert!(tree.wait(heard), "the drive is there");
    }
}

fn it_is_a_map<K: Kind>() {
    for (seed, longest) in [(1, 300), (2, 20_000)] {
        let mut rng = Rng::new(seed, 7);
        let mix = Mix { keys: 1500, longest, flush: 30, shrink: false };
        let tree = create::<K>(MemoryDrive::new(BLOCKS, seed, no_fuse()));
        let mut checked = Checked::new(tree, Map::new());
        for _ in 0..5000 {
            assert!(checked.step(random_step(&mut rng, mix)));
        }
        assert!(checked.finish() && checked.step(Step::Flush) && checked.finish());
        let redo = checked.tree.redo().unwrap();
        assert!(redo.blocks > 2 * RING && redo.records > 1000, "{redo:?}");
        checked.tree.verify().unwrap();
        assert_eq!(contents(&mut checked.tree), checked.map);
        // Nobody waits for the pages: what they lack is in the log.
        let drive: MemoryDrive = was(K::into_drive(checked.tree.into_store()));
        let mut tree = open::<K>(drive.crash(seed, no_fuse()));
        assert!(tree.redo().unwrap().replayed > 0);
        tree.verify().unwrap();
        assert_eq!(contents(&mut tree), checked.map);
    }
}

mod in_place {
    use super::*;

    tests_of! { InPlace:
        it_is_a_map = super::it_is_a_map();
        crashes_lose_nothing = blocks::crashes_lose_nothing_that_was_flushed(0..12);
        a_cut_at_each_event = blocks::a_cut_at_each_event();
        damage_is_an_error = damage::some_blocks();
        one_damaged_head_after_a_crash_is_an_error = damage::each_head_after_a_crash(5);
        limits_are_errors = blocks::limits_are_errors();
    }
}

mod in_a_log {
    use super::*;

    tests_of! { Log:
        it_is_a_map = super::it_is_a_map();
        crashes_lose_nothing = blocks::crashes_lose_nothing_that_was_flushed(0..12);
        a_cut_at_each_event = blocks::a_cut_at_each_event();
        damage_is_an_error = damage::some_blocks();
        one_damaged_head_after_a_crash_is_an_error = damage::each_head_after_a_crash(5);
        limits_are_errors = blocks::limits_are_errors();
    }
}

#[test]
fn batched_crashes_lose_nothing() {
    blocks::crashes_lose_nothing_that_was_flushed::<Batches>(0..12);
}

/// What another tree's log has left on a drive is nobody's.
#[test]
fn a_new_tree_on_a_used_drive_is_empty() {
    let mut tree = Batches::on(BatchDrive::new(2000, 1, no_fuse()));
    let mut heard = Heard::default();
    for i in 0..500u32 {
        tree.put(1, &i.to_be_bytes(), &[1; 100], &mut heard).unwrap();
        tree.flush(2).unwrap();
        wait_for_all(&mut tree, &mut heard);
    }
    rest(&mut tree);
    let drive = was::<BatchDrive>(tree.into_store().into_drive());
    let drive = was::<BatchDrive>(Batches::on(drive).into_store().into_drive());
    assert_eq!(
        contents(&mut Tree::open(batched::store(drive), SMALL, Time::ZERO).unwrap()),
        Map::new()
    );
}

/// Many flushes at once are one write of the log, and few changes are one block.
#[test]
fn one_write_serves_many_flushes() {
    let mut tree = create::<InPlace>(MemoryDrive::new(BLOCKS, 1, no_fuse()));
    let mut heard = Heard::default();
    let before = tree.redo().unwrap();
    for round in 0..20u64 {
        for i in 0..10u64 {
            let key = (round * 31 + i * 7).to_be_bytes();
            tree.put(i, &key, &[7; 100], &mut heard).unwrap();
            tree.flush(100 + i).unwrap();
        }
        wait_for_all(&mut tree, &mut heard);
    }
    let after = tree.redo().unwrap();
    let (writes, blocks) = (after.writes - before.writes, after.blocks - before.blocks);
    assert!(writes <= 40 && blocks <= 40, "{writes} writes of {blocks} blocks for 200 flushes");
    let pages = tree.counters().pages_written;
    assert!(pages < 40, "{pages} pages were written");
}

/// A record that is longer than the log takes is made without it.
#[test]
fn what_is_too_long_for_the_log_is_made_alone() {
    let fuse: Fuse = Rc::new(Cell::new(u64::MAX));
    let mut tree = create::<Log>(MemoryDrive::new(BLOCKS, 1, fuse.clone()));
    let mut heard = Heard::default();
    let long = vec![9; 65_000];
    let mut map = Map::new();
    for i in 0..30u8 {
        let value = if i % 3 == 0 { &long[..] } else { &long[..100] };
        while tree.put(1, &[i], value, &mut heard).is_err() {
            assert!(tree.wait(&mut heard));
        }
        map.insert(vec![i], value.to_vec());
    }
    wait_for_all(&mut tree, &mut heard);
    tree.flush(2).unwrap();
    wait_for_all(&mut tree, &mut heard);
    let redo = tree.redo().unwrap();
    assert_eq!((redo.alone, redo.records), (10, 20));
    let drive: MemoryDrive = was(Log::into_drive(tree.into_store()));
    assert!(contents(&mut open::<Log>(drive.crash(3, no_fuse()))) == map);
}

/// Without logging, what an earlier use logged is there, and what comes after it,
/// too.
#[test]
fn a_log_that_is_not_used_is_empty() {
    let mut tree = create::<Log>(MemoryDrive::new(BLOCKS, 1, no_fuse()));
    let mut heard = Heard::default();
    let config = TreeConfig { redo: false, ..SMALL };
    let mut put = |tree: &mut Tree<LogStore<OnBlocks>>, value: u8| {
        tree.put(1, b"a", &[value], &mut heard).unwrap();
        tree.put(1, &[value], b"b", &mut heard).unwrap();
        wait_for_all(tree, &mut heard);
        tree.flush(2).unwrap();
        wait_for_all(tree, &mut heard);
    };
    put(&mut tree, 1);
    for value in [2, 3] {
        let drive: MemoryDrive = was(Log::into_drive(tree.into_store()));
        let drive = drive.crash(value.into(), no_fuse());
        let shape = drive.shape;
        let store = Log::open(any(drive), shape, Time::ZERO).unwrap();
        tree = Tree::open(store, config, Time::ZERO).unwrap();
        assert!(tree.redo().is_none());
        put(&mut tree, value);
    }
    let drive: MemoryDrive = was(Log::into_drive(tree.into_store()));
    let found = contents(&mut open::<Log>(drive.crash(0, no_fuse())));
    assert_eq!(found[&b"a"[..]], [3]);
    assert_eq!(found.len(), 4);
}

/// The number of a block of the log, if it is one.
fn number(drive: &MemoryDrive, block: u64) -> Option<u64> {
    let bytes = drive.peek(block).filter(|bytes| bytes[8..12] == *b"SRDO")?;
    Some(u64::from_le_bytes(bytes[16..24].try_into().unwrap()))
}

#[test]
fn damage_of_the_log_is_told_with_its_block() {
    let mut tree = create::<InPlace>(MemoryDrive::new(BLOCKS, 1, no_fuse()));
    let mut heard = Heard::default();
    let mut map = Map::new();
    for i in 0..20u8 {
        tree.put(1, &[i], &[i; 50], &mut heard).unwrap();
        tree.flush(2).unwrap();
        wait_for_all(&mut tree, &mut heard);
        map.insert(vec![i], vec![i; 50]);
    }
    let drive = was::<MemoryDrive>(InPlace::into_drive(tree.into_store())).crash(0, no_fuse());
    let mut log: Vec<(u64, u64)> =
        drive.written().into_iter().filter_map(|b| Some((number(&drive, b)?, b))).collect();
    log.sort_unstable();
    let opened = |drive: MemoryDrive| {
        let shape = drive.shape;
        let store = InPlace::open(any(drive), shape, Time::ZERO).unwrap();
        Tree::open(store, SMALL, Time::ZERO)
    };
    for &(_, block) in &log[log.len() - 5..] {
        let mut damaged = drive.copy();
        damaged.flip(block, 300);
        let told = opened(damaged).map(drop);
        let Err(Error::Store(StoreError::DamagedBlock { block: told, .. })) = told else {
            panic!("{told:?}")
        };
        assert_eq!(told, block);
    }
    // In the middle also one that is gone; at the end that is what a cut leaves.
    let mut damaged = drive.copy();
    damaged.blank(log[log.len() - 3].1);
    let told = opened(damaged).map(drop);
    assert!(matches!(told, Err(Error::Store(StoreError::DamagedBlock { .. }))), "{told:?}");
    let mut cut = drive.copy();
    cut.blank(log[log.len() - 1].1);
    map.remove(&vec![19]);
    assert!(contents(&mut opened(cut).unwrap()) == map);
}
