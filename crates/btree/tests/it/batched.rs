//! The tree over a model of the batched interface.

use crate::common::blocks::{self, Cut, OnBatches, SMALL, any, is, tests_of, was};
use crate::common::{
    BatchDrive, Checked, Fuse, Heard, Map, Mix, Step, contents, no_fuse, random_step, rest,
};
use btree::{
    BatchStore, Broken, Error, MAX_KEY, MAX_VALUE, Outcome, StoreError, Tree, TreeConfig, Write,
    store::no_clock,
};
use port::Time;
use std::cell::Cell;
use std::rc::Rc;
use workload::Rng;

type Store = BatchStore<OnBatches>;

pub fn store(drive: BatchDrive) -> Store {
    let shape = drive.shape;
    BatchStore::new(any(drive), shape, 128, no_clock).unwrap()
}

/// Over a drive with batched writes, with a redo log of so many pages.
pub struct Batched<const REDO: u64>;

impl<const REDO: u64> Batched<REDO> {
    pub fn on(drive: BatchDrive) -> Tree<Store> {
        let store = store(drive);
        let store = if REDO > 0 { store.with_redo(REDO).unwrap() } else { store };
        Tree::create(store, SMALL, Time::ZERO).unwrap()
    }
}

impl<const REDO: u64> Cut for Batched<REDO> {
    type Store = Store;
    const ROOM: u64 = 20_000;
    const EVENTS: u64 = if REDO > 0 { 600 } else { 300 };
    const FLUSH: u64 = if REDO > 0 { 20 } else { 60 };
    const SCRIPT: (Mix, u64) = (Mix { keys: 40, longest: 9000, flush: 3, shrink: false }, 300);

    fn new(room: u64, seed: u64, fuse: &Fuse) -> Tree<Store> {
        Self::on(BatchDrive::new(room, seed, fuse.clone()))
    }

    /// To open it takes no more than reads.
    fn cut(old: Store, seed: u64, fuse: &Fuse, _: Option<&mut Rng>) -> Tree<Store> {
        let drive = was::<BatchDrive>(old.into_drive()).crash(seed, fuse.clone());
        Tree::open(store(drive), SMALL, Time::ZERO).unwrap()
    }
}

fn create(drive: BatchDrive, config: TreeConfig) -> Tree<Store> {
    Tree::create(store(drive), config, Time::ZERO).unwrap()
}

fn run(seed: u64, steps: usize, mix: Mix) -> Checked<Store> {
    let mut rng = Rng::new(seed, 7);
    let tree = create(BatchDrive::new(20_000, seed, no_fuse()), SMALL);
    let mut checked = Checked::new(tree, Map::new());
    for _ in 0..steps {
        assert!(checked.step(random_step(&mut rng, mix)));
    }
    assert!(checked.finish());
    checked
}

#[test]
fn it_is_a_map() {
    for (seed, longest) in [(1, 300), (2, 20_000), (3, 65_000)] {
        let mix = Mix { keys: 2000, longest, flush: 500, shrink: false };
        let mut checked = run(seed, 4000, mix);
        let census = checked.tree.verify().unwrap();
        assert_eq!(census.records, checked.map.len() as u64);
        assert_eq!(contents(&mut checked.tree), checked.map);
        assert!(checked.tree.counters().splits > 10, "{:?}", checked.tree.counters());
        assert!(longest < 1000 || checked.tree.cache_counters().evictions > 100);
        assert!(checked.tree.memory() <= SMALL.memory);
    }
}

/// A drive on which no tree was finished is no damaged one.
#[test]
fn a_tree_whose_making_was_cut_short_is_none() {
    let store = store(BatchDrive::new(20_000, 1, no_fuse()));
    let opened = Tree::open(store, SMALL, Time::ZERO).map(drop);
    let Err(error @ Error::NotATree(_)) = opened else { panic!("{opened:?}") };
    assert!(error.to_string().contains("cut short"), "{error}");
}

/// A tree whose pages have heads that begin with their keys is read, and becomes one of
/// now when it is written.
#[test]
fn the_version_before_is_read_and_becomes_this_one() {
    let key = |n: u64| format!("key:{n:012}").into_bytes();
    let mut checked =
        Checked::new(create(BatchDrive::new(20_000, 1, no_fuse()), SMALL), Map::new());
    (0..3000).for_each(|n| assert!(checked.step(Step::Put(key(n * 7), vec![n as u8; 90]))));
    assert!(checked.step(Step::Flush) && checked.finish());
    let mut drive: BatchDrive = was(checked.tree.into_store().into_drive());
    assert!(drive.make_older() > 50 && drive.version() == 1);
    let tree = Tree::open(store(drive), SMALL, Time::ZERO).unwrap();
    let mut checked = Checked::new(tree, checked.map);
    (0..9000).for_each(|n| assert!(checked.step(Step::Get(key(n)))));
    (0..3000).for_each(|n| assert!(checked.step(Step::Put(key(n * 5), vec![1; 90]))));
    assert!(checked.step(Step::Flush) && checked.finish());
    checked.tree.verify().unwrap();
    assert_eq!(contents(&mut checked.tree), checked.map);
    let drive: BatchDrive = was(checked.tree.into_store().into_drive());
    assert_eq!(drive.version(), 2);
}

#[test]
fn it_shrinks_again() {
    let mix = Mix { keys: 600, longest: 30_000, flush: 300, shrink: false };
    let mut checked = run(5, 3000, mix);
    let mut rng = Rng::new(6, 0);
    for _ in 0..3000 {
        assert!(checked.step(random_step(&mut rng, Mix { shrink: true, ..mix })));
    }
    assert!(checked.finish());
    for key in checked.map.keys().cloned().collect::<Vec<_>>() {
        assert!(checked.step(Step::Delete(key)));
    }
    assert!(checked.finish());
    let census = checked.tree.verify().unwrap();
    assert_eq!((census.records, census.levels, census.overflow), (0, 1, 0));
    // Page 0 and the root.
    assert_eq!(checked.tree.pages(), 2);
    assert!(census.free > 100);
    // The drive has let the others go, but for the lists of them.
    assert!(checked.step(Step::Flush) && checked.finish());
    rest(&mut checked.tree);
    let kept = was::<BatchDrive>(checked.tree.into_store().into_drive()).written().len() as u64;
    assert!(kept * 4 < census.free, "{kept} pages are kept of {}", census.free);
}

tests_of! { Batched<0>:
    crashes_lose_nothing_that_was_flushed = blocks::crashes_lose_nothing_that_was_flushed(0..12);
    a_cut_at_each_event = blocks::a_cut_at_each_event();
}

/// An empty leaf is taken out, and what was its range goes to a neighbour that
/// was dirty before: this must not be on the drive without the page above.
#[test]
fn the_range_of_a_leaf_that_was_taken_out_is_not_there_before_it() {
    let key = |n: u32| format!("k{n:04}").into_bytes();
    let put = |n: u32| Step::Put(key(n), vec![n as u8; 300]);
    for first in 12..30 {
        let mut steps: Vec<Step> = (0..60).map(put).collect();
        steps.push(Step::Flush);
        steps.extend((0..12).map(put));
        // All of a leaf, and a little of the one before it.
        steps.extend((first..first + 14).map(|n| Step::Delete(key(n))));
        steps.extend([put(first + 5), Step::Flush]);
        let cut = |events: u64, seed: u64| {
            let fuse: Fuse = Rc::new(Cell::new(u64::MAX));
            let tree = create(BatchDrive::new(2000, 4, fuse.clone()), SMALL);
            let mut checked = Checked::new(tree, Map::new());
            fuse.set(events);
            let alive = checked.script(&steps);
            let drive =
                was::<BatchDrive>(checked.tree.into_store().into_drive()).crash(seed, no_fuse());
            let mut tree = Tree::open(store(drive), SMALL, Time::ZERO).unwrap();
            tree.verify().unwrap_or_else(|e| panic!("from {first}, after {events} events: {e}"));
            alive
        };
        let all = (1..).find(|&events| (0..4).all(|seed| cut(events, seed)));
        assert!(all.is_some_and(|events| events >= 4), "{all:?}");
    }
}

/// Does one thing and waits for it.
fn now(tree: &mut Tree<Store>, f: impl FnOnce(&mut Tree<Store>, &mut Heard)) -> Heard {
    let mut heard = Heard::default();
    f(tree, &mut heard);
    while heard.done.is_empty() {
        assert!(tree.wait(&mut heard));
    }
    heard
}

fn put(tree: &mut Tree<Store>, key: &[u8], value: &[u8]) -> Result<Outcome, Error> {
    now(tree, |tree, heard| tree.put(1, key, value, heard).unwrap()).done[0].1
}

#[test]
fn limits_are_errors() {
    let mut tree = create(BatchDrive::new(2000, 1, no_fuse()), SMALL);
    let heard = &mut Heard::default();
    let long = vec![1; MAX_VALUE + 1];
    assert_eq!(
        tree.put(1, &long[..MAX_KEY + 1], b"", heard),
        Err(Error::KeyTooLong(MAX_KEY + 1, MAX_KEY))
    );
    assert_eq!(tree.put(1, b"k", &long, heard), Err(Error::ValueTooLong(MAX_VALUE + 1, MAX_VALUE)));
    let write = Write { key: b"k", value: Some(&long) };
    assert_eq!(tree.batch(1, &[write], heard), Err(Error::ValueTooLong(MAX_VALUE + 1, MAX_VALUE)));
    assert!(heard.done.is_empty());
    assert_eq!(put(&mut tree, &long[..MAX_KEY], &long[..MAX_VALUE]), Ok(Outcome::Stored));
    let heard = now(&mut tree, |tree, heard| tree.get(1, &long[..MAX_KEY], heard).unwrap());
    assert_eq!(heard.records[&1][0].1, &long[..MAX_VALUE]);
    // More pages than are written at once.
    let write = Write { key: b"k", value: Some(&long[..MAX_VALUE]) };
    let heard = now(&mut tree, |tree, heard| tree.batch(1, &[write; 20], heard).unwrap());
    assert!(matches!(heard.done[0].1, Err(Error::BatchTooLarge { .. })), "{:?}", heard.done);
    assert_eq!(tree.verify().unwrap().records, 1);
    // Many small ones.
    let keys: Vec<[u8; 4]> = (0..500u32).map(u32::to_be_bytes).collect();
    for key in &keys {
        put(&mut tree, key, &[1; 100]).unwrap();
    }
    let writes: Vec<Write<'_>> =
        keys.iter().map(|key| Write { key, value: Some(&[2; 100]) }).collect();
    let heard = now(&mut tree, |tree, heard| tree.batch(1, &writes, heard).unwrap());
    assert_eq!(heard.done[0].1, Ok(Outcome::Stored));
    assert!(contents(&mut tree).values().filter(|value| value[..] == [2; 100]).count() == 500);
    let small = TreeConfig { memory: 4096, ..SMALL };
    let refused = Tree::create(store(BatchDrive::new(100, 1, no_fuse())), small, Time::ZERO);
    assert!(matches!(refused.err(), Some(Error::Memory(4096, _))));
}

/// A batch empties a leaf and then writes where the leaf was: what is beside
/// it is not in memory.
#[test]
fn a_batch_may_empty_a_leaf_and_fill_it_again() {
    let mut tree = create(BatchDrive::new(4000, 1, no_fuse()), SMALL);
    let key = |i: u32| (10 * i).to_be_bytes();
    // Two records a leaf, of which one goes.
    let mut map = Map::new();
    for i in 0..2000 {
        put(&mut tree, &key(i), &[1; 1900]).unwrap();
    }
    for i in 0..2000 {
        if i % 2 == 0 {
            map.insert(key(i).to_vec(), vec![1; 1900]);
        } else {
            now(&mut tree, |tree, heard| tree.delete(1, &key(i), heard).unwrap());
        }
    }
    let pages = tree.pages();
    for i in (500..1500).step_by(20) {
        // Others' leaves take the place of those beside it.
        for other in (0..400).step_by(2) {
            now(&mut tree, |tree, heard| tree.get(1, &key(other), heard).unwrap());
        }
        let (gone, after) = (key(i), (10 * i + 1).to_be_bytes());
        let fills = i % 40 == 0;
        let writes = [
            Write { key: &gone, value: None },
            Write { key: &after, value: fills.then_some(&[2; 1900]) },
        ];
        let heard = now(&mut tree, |tree, heard| tree.batch(1, &writes, heard).unwrap());
        assert_eq!(heard.done[0].1, Ok(Outcome::Stored));
        map.remove(&gone[..]);
        if fills {
            map.insert(after.to_vec(), vec![2; 1900]);
        }
    }
    tree.verify().unwrap();
    assert_eq!(contents(&mut tree), map);
    // Leaves that stayed empty are gone.
    assert_eq!(tree.pages(), pages - 25);
}

#[test]
fn too_many_operations_are_refused() {
    let config = TreeConfig { operations: 3, ..SMALL };
    let mut tree = create(BatchDrive::new(4000, 1, no_fuse()), config);
    for i in 0..2000u32 {
        put(&mut tree, &i.to_be_bytes(), &[7; 1500]).unwrap();
    }
    let heard = &mut Heard::default();
    let mut refused = 0;
    for i in 0..100u32 {
        match tree.get(u64::from(i), &(i * 20).to_be_bytes(), heard) {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error, Error::Busy(3));
                refused += 1;
            }
        }
    }
    assert!(refused > 50);
    assert_eq!(tree.verify(), Err(Broken::Busy));
    while tree.waiting() > 0 {
        assert!(tree.wait(heard));
    }
    assert_eq!(heard.done.len(), 100 - refused);
    assert!(heard.done.iter().all(|one| one.1 == Ok(Outcome::Found)));
}

#[test]
fn a_full_store_is_an_error_and_loses_nothing() {
    let mut tree = create(BatchDrive::new(200, 1, no_fuse()), SMALL);
    let mut map = Map::new();
    let mut refused = 0;
    for i in 0..400u32 {
        let (key, value) = (i.to_be_bytes(), vec![i as u8; 1000 + (i as usize % 3) * 3000]);
        match put(&mut tree, &key, &value) {
            Ok(_) => {
                map.insert(key.to_vec(), value);
            }
            Err(error) => {
                assert_eq!(error, Error::Full(200));
                refused += 1;
            }
        }
    }
    assert!(refused > 100 && map.len() > 50, "{refused} refused, {} there", map.len());
    assert!(tree.verify().is_ok());
    assert_eq!(contents(&mut tree), map);
    // There is room again when something goes.
    for key in map.keys().take(40) {
        now(&mut tree, |tree, heard| tree.delete(1, key, heard).unwrap());
    }
    assert_eq!(put(&mut tree, b"new", &[1; 5000]), Ok(Outcome::Stored));
    assert!(tree.verify().is_ok());
}

#[test]
fn a_damaged_page_is_an_error() {
    let mix = Mix { keys: 300, longest: 9000, flush: 100, shrink: false };
    let mut damaged = 0;
    for byte in [0, 9, 16, 100, 4095] {
        let mut checked = run(11, 800, mix);
        assert!(checked.finish() && checked.step(Step::Flush) && checked.finish());
        rest(&mut checked.tree);
        let mut drive = was::<BatchDrive>(checked.tree.into_store().into_drive());
        let pages = drive.written();
        drive.flip(pages[1 + byte % (pages.len() - 1)], byte);
        let mut tree = Tree::open(store(drive), SMALL, Time::ZERO).unwrap();
        match tree.verify() {
            // The page may be free.
            Ok(_) => {}
            Err(Broken::Error(Error::Damaged { .. })) => damaged += 1,
            Err(other) => panic!("{other}"),
        }
        for key in checked.map.keys() {
            let heard = now(&mut tree, |tree, heard| tree.get(1, key, heard).unwrap());
            match heard.done[0].1 {
                Ok(outcome) => {
                    assert_eq!(outcome, Outcome::Found);
                    assert_eq!(heard.records[&1][0].1, checked.map[key]);
                }
                Err(Error::Damaged { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
    }
    assert!(damaged > 2);
    let mut drive = was::<BatchDrive>(
        create(BatchDrive::new(100, 1, no_fuse()), SMALL).into_store().into_drive(),
    );
    drive.flip(0, 50);
    let opened = Tree::open(store(drive), SMALL, Time::ZERO);
    assert!(matches!(opened.err(), Some(Error::Damaged { page: 0, .. })));
}

#[test]
fn a_failed_write_stops_changes_and_not_reads() {
    let mut tree = create(BatchDrive::new(4000, 1, no_fuse()), SMALL);
    for i in 0..500u32 {
        put(&mut tree, &i.to_be_bytes(), &[7; 1000]).unwrap();
    }
    now(&mut tree, |tree, _| tree.flush(1).unwrap());
    is::<BatchDrive>(tree.store_mut().drive_mut()).fails = true;
    let value = vec![8; 1000];
    assert_eq!(put(&mut tree, &3u32.to_be_bytes(), &value), Ok(Outcome::Stored));
    let heard = now(&mut tree, |tree, _| tree.flush(1).unwrap());
    let stopped = heard.done[0].1;
    assert!(matches!(stopped, Err(Error::Store(StoreError::Drive { .. }))));
    assert_eq!(put(&mut tree, &4u32.to_be_bytes(), &value), stopped);
    for i in 0..500u32 {
        let heard = now(&mut tree, |tree, heard| tree.get(1, &i.to_be_bytes(), heard).unwrap());
        let expected = if i == 3 { 8 } else { 7 };
        assert_eq!(heard.records[&1][0].1, vec![expected; 1000], "key {i}");
    }
    let heard = now(&mut tree, |tree, _| tree.flush(1).unwrap());
    assert!(heard.done[0].1.is_err());
}

/// A key is changed and a flush asked for; then its leaf is merged into a
/// neighbour. The flush waits for that one.
#[test]
fn a_flush_waits_for_what_was_merged_meanwhile() {
    let mut merged = 0;
    for case in 0..24u64 {
        let mut tree = create(BatchDrive::new(2000, case, no_fuse()), SMALL);
        let key = |i: u64| i.to_be_bytes();
        for i in 0..200 {
            put(&mut tree, &key(i), &[1; 200]).unwrap();
        }
        // A third stays: each leaf is little more than a quarter full.
        for i in (0..200).filter(|i| i % 3 > 0) {
            now(&mut tree, |tree, heard| tree.delete(1, &key(i), heard).unwrap());
        }
        now(&mut tree, |tree, _| tree.flush(1).unwrap());
        let (changed, before) = (60 + 3 * case, tree.counters().merges);
        let heard = &mut Heard::default();
        tree.put(1, &key(changed), &[2; 200], heard).unwrap();
        tree.flush(2).unwrap();
        for i in [changed - 6, changed - 3, changed + 3, changed + 6] {
            tree.delete(3, &key(i), heard).unwrap();
        }
        merged += tree.counters().merges - before;
        while !heard.done.iter().any(|done| done.0 == 2) {
            assert!(tree.wait(heard));
        }
        let drive = was::<BatchDrive>(tree.into_store().into_drive()).crash(case, no_fuse());
        let mut tree = Tree::open(store(drive), SMALL, Time::ZERO).unwrap();
        let heard = now(&mut tree, |tree, heard| tree.get(1, &key(changed), heard).unwrap());
        assert_eq!(heard.records[&1][0].1, vec![2; 200], "case {case}");
    }
    assert!(merged > 10, "{merged}");
}

/// Full leaves, each of which a batch's writes split: pages that several of
/// them change count once.
#[test]
fn a_batch_splits_many_leaves() {
    let config = TreeConfig { memory: 4 << 20, ..SMALL };
    let mut tree = create(BatchDrive::new(4000, 1, no_fuse()), config);
    for i in 0..800u32 {
        put(&mut tree, &(2 * i).to_be_bytes(), &[1; 100]).unwrap();
    }
    let splits = tree.counters().splits;
    let keys: Vec<[u8; 4]> = (0..40u32).map(|i| (40 * i + 1).to_be_bytes()).collect();
    let writes: Vec<Write<'_>> =
        keys.iter().map(|key| Write { key, value: Some(&[2; 1000]) }).collect();
    let heard = now(&mut tree, |tree, heard| tree.batch(1, &writes, heard).unwrap());
    assert_eq!(heard.done[0].1, Ok(Outcome::Stored));
    assert!(tree.counters().splits > splits + 20);
    assert_eq!(tree.verify().unwrap().records, 840);
}

/// What a batch has put itself it may take out again, which merges a leaf.
#[test]
fn a_batch_takes_out_what_it_put() {
    for kept in 2..30u32 {
        let mut tree = create(BatchDrive::new(4000, 1, no_fuse()), SMALL);
        for i in 0..200u32 {
            put(&mut tree, &(2 * i).to_be_bytes(), &[1; 100]).unwrap();
        }
        for i in kept..60u32 {
            now(&mut tree, |tree, heard| tree.delete(1, &(2 * i).to_be_bytes(), heard).unwrap());
        }
        let key = 1u32.to_be_bytes();
        let writes = [Write { key: &key, value: Some(&[2]) }, Write { key: &key, value: None }];
        let heard = now(&mut tree, |tree, heard| tree.batch(1, &writes, heard).unwrap());
        assert_eq!(heard.done[0].1, Ok(Outcome::Stored));
        assert_eq!(tree.verify().unwrap().records, u64::from(140 + kept));
    }
}

#[test]
fn flushes_that_wait_are_bounded() {
    let mut tree = create(BatchDrive::new(100, 1, no_fuse()), SMALL);
    put(&mut tree, b"k", b"v").unwrap();
    let taken = (0..SMALL.operations as u64 + 1).map_while(|tag| tree.flush(tag).ok()).count();
    assert_eq!(taken, SMALL.operations);
    assert_eq!(tree.flush(1), Err(Error::Busy(taken)));
    let heard = now(&mut tree, |_, _| {});
    assert_eq!(heard.done.len(), taken);
    assert!(tree.flush(1).is_ok());
}
