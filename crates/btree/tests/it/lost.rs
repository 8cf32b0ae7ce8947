//! The log on a drive of which more and more cannot be read: every operation
//! ends, what can be read is read, and what finds no room says why.

use std::cell::RefCell;
use std::rc::Rc;

use btree::{Error, LogConfig, LogStore, Outcome, PageStore, StoreError, Tree};
use port::{Port, Ring, Status, Time};
use workload::Rng;

use crate::common::blocks::{OnBlocks, SMALL, Shared, any};
use crate::common::{Heard, Map, MemoryDrive, no_fuse, rest};

const CONFIG: LogConfig = LogConfig {
    segment_blocks: 64,
    overhead: 20,
    durable: true,
    checkpoint_every: 3_000_000,
    batches: 4,
    collectors: 2,
    redo: 0,
    clock: btree::store::no_clock,
};

/// 24 segments, and the headers and the map before them.
const SEGMENTS: u64 = 24;
const FIRST: u64 = 64;

/// Keys, two a page: most of the pages that there are.
const KEYS: u64 = 1000;

/// Turns in which an operation must have ended.
const TURNS: u32 = 20_000;

type Drive = Rc<RefCell<MemoryDrive>>;
type Log = LogStore<OnBlocks>;

fn drive() -> Drive {
    Rc::new(RefCell::new(MemoryDrive::new(FIRST + SEGMENTS * 64, 1, no_fuse())))
}

fn create(drive: &Drive) -> Tree<Log> {
    let shape = drive.borrow().shape;
    let store = LogStore::create(any(Shared(drive.clone())), shape, CONFIG, Time::ZERO);
    Tree::create(store.unwrap(), SMALL, Time::ZERO).unwrap()
}

/// Does one thing and waits for it, so many turns at most.
fn outcome<S: PageStore>(
    tree: &mut Tree<S>,
    heard: &mut Heard,
    what: impl FnOnce(&mut Tree<S>, &mut Heard),
) -> Result<Outcome, Error> {
    what(tree, heard);
    for _ in 0..TURNS {
        if let Some((_, outcome)) = heard.done.pop_front() {
            return outcome;
        }
        assert!(tree.wait(heard), "nothing goes on, and an operation has not ended");
    }
    panic!("an operation has not ended after {TURNS} turns");
}

fn put<S: PageStore>(tree: &mut Tree<S>, map: &mut Map, key: u64, byte: u8) -> Result<(), Error> {
    let (key, value) = (key.to_be_bytes(), vec![byte; 1900]);
    let put = |tree: &mut Tree<S>, heard: &mut Heard| tree.put(1, &key, &value, heard).unwrap();
    outcome(tree, &mut Heard::default(), put)?;
    map.insert(key.to_vec(), value);
    Ok(())
}

fn flush<S: PageStore>(tree: &mut Tree<S>) -> Result<(), Error> {
    outcome(tree, &mut Heard::default(), |tree, _| tree.flush(1).unwrap()).map(|_| ())
}

/// Gets all keys. Gives how many cannot be read.
fn gets<S: PageStore>(tree: &mut Tree<S>, map: &Map) -> usize {
    let mut unread = 0;
    for (key, value) in map {
        let mut heard = Heard::default();
        match outcome(tree, &mut heard, |tree, heard| tree.get(1, key, heard).unwrap()) {
            Ok(outcome) => {
                assert_eq!(outcome, Outcome::Found, "key {key:?}");
                assert_eq!(&heard.records[&1][0].1, value, "key {key:?}");
            }
            Err(error) => {
                let status = Status::UNRECOVERED_READ;
                assert_eq!(error, Error::Store(StoreError::Drive { what: "read a page", status }));
                unread += 1;
            }
        }
    }
    unread
}

/// A tree of so many keys, flushed.
fn filled(drive: &Drive, keys: u64) -> (Tree<Log>, Map) {
    let (mut tree, mut map) = (create(drive), Map::new());
    for key in 0..keys {
        put(&mut tree, &mut map, key, 1).unwrap();
    }
    flush(&mut tree).unwrap();
    (tree, map)
}

/// Loses a written block of each of these segments, but none of page 0: without
/// that there is no tree.
fn lose_one_of(drive: &Drive, segments: impl Fn(u64) -> bool) {
    let mut drive = drive.borrow_mut();
    let segment = |block: &u64| (block - FIRST) / 64;
    let mut written = drive.written();
    let is_first = |block: &u64| drive.peek(*block).is_some_and(|bytes| bytes[8..16] == [0; 8]);
    written.retain(|block| *block >= FIRST && segments(segment(block)) && !is_first(block));
    for blocks in written.chunk_by(|a, b| segment(a) == segment(b)) {
        drive.lost.push(blocks[blocks.len() / 2]);
    }
}

/// Puts random keys until the log takes no more, and loses blocks meanwhile.
/// Gives the error, and what is there by the last flush.
fn put_until_full(drive: &Drive, tree: &mut Tree<Log>, map: &mut Map) -> (Error, Map) {
    let (keys, mut rng, mut base) = (map.len() as u64, Rng::new(2, 2), map.clone());
    for n in 0..20_000 {
        if n % 300 == 0 {
            lose_one_of(drive, |_| true);
        }
        if n % 50 == 0 {
            match flush(tree) {
                Ok(()) => base = map.clone(),
                Err(error) => return (error, base),
            }
        }
        match put(tree, map, rng.below(keys), n as u8) {
            // What is in a page that cannot be read cannot be changed.
            Ok(()) | Err(Error::Store(StoreError::Drive { .. })) => {}
            Err(error) => return (error, base),
        }
    }
    panic!("the log is not full");
}

fn has_no_space(error: Error) -> bool {
    matches!(error, Error::Store(StoreError::NoSpace { segments, of: SEGMENTS, block })
        if segments > 2 && block >= FIRST)
}

#[test]
fn a_log_that_cannot_be_read_says_that_it_is_full() {
    let drive = drive();
    let (mut tree, mut map) = filled(&drive, KEYS);
    let (error, base) = put_until_full(&drive, &mut tree, &mut map);
    assert!(has_no_space(error), "{error}");
    // All that follows says so, too, but for what is read.
    for key in 0..20 {
        let error = put(&mut tree, &mut map, key, 9).unwrap_err();
        assert!(has_no_space(error), "{error}");
    }
    assert!(has_no_space(flush(&mut tree).unwrap_err()));
    let unread = gets(&mut tree, &map);
    assert!((1..KEYS as usize / 2).contains(&unread), "{unread}");
    rest(&mut tree);
    drop(tree);

    // It is opened as often as anybody likes, and is full again.
    let shape = drive.borrow().shape;
    let open = || {
        // What an earlier one had asked for ends.
        loop {
            let Some(at) = drive.borrow().next_event() else { break };
            drive.borrow_mut().advance(at, &mut Ring::new(64));
        }
        let store = LogStore::open(any(Shared(drive.clone())), shape, CONFIG, Time::ZERO);
        Tree::open(store.map_err(Error::Store)?, SMALL, Time::ZERO)
    };
    let (mut opened, mut changed) = (0, base.clone());
    for n in 0..20 {
        let mut tree = match open() {
            Ok(tree) => tree,
            Err(Error::Store(StoreError::Drive { .. })) => continue,
            Err(error) => panic!("{error}"),
        };
        opened += 1;
        for key in 0..100 {
            let _ = put(&mut tree, &mut changed, key, n);
        }
        let _ = flush(&mut tree);
        rest(&mut tree);
    }
    assert!(opened > 10, "{opened}");

    // When the blocks can be read after all, nothing is lost, and all goes on.
    drive.borrow_mut().lost.clear();
    let mut tree = open().unwrap();
    tree.verify().unwrap();
    for (key, value) in &base {
        let mut heard = Heard::default();
        let found = outcome(&mut tree, &mut heard, |tree, heard| tree.get(1, key, heard).unwrap());
        assert_eq!(found, Ok(Outcome::Found));
        // Or what was put since.
        let same = &heard.records[&1][0].1 == value;
        assert!(same || map[key] != *value || changed[key] != *value, "key {key:?}");
    }
    for n in 0..3000 {
        put(&mut tree, &mut map, n % KEYS, 7).unwrap();
    }
    flush(&mut tree).unwrap();
    assert_eq!(tree.store().unreadable(), 0);
}

/// With few pages, and most segments kept by one lost page each, what lives in the
/// others is not moved to and fro for ever.
#[test]
fn a_log_of_few_pages_says_that_it_is_full() {
    for keys in [375, 400, 425] {
        let drive = drive();
        let (mut tree, mut map) = filled(&drive, keys);
        let (error, _) = put_until_full(&drive, &mut tree, &mut map);
        assert!(has_no_space(error), "{error} with {keys} keys");
        let unread = gets(&mut tree, &map);
        assert!((1..keys as usize / 2).contains(&unread), "{unread} with {keys} keys");
    }
}

/// When all that is lost was tried in vain while nothing was written, and then can be
/// read, there is room.
#[test]
fn what_comes_back_while_nothing_is_written_gives_room() {
    let drive = drive();
    let (mut tree, mut map) = filled(&drive, 600);
    let mut rng = Rng::new(2, 2);
    for n in 0..1400 {
        if n % 300 == 0 {
            lose_one_of(&drive, |_| true);
        }
        match put(&mut tree, &mut map, rng.below(600), n as u8) {
            Ok(()) | Err(Error::Store(StoreError::Drive { .. })) => {}
            Err(error) => panic!("{error} after {n}"),
        }
    }
    rest(&mut tree);
    assert!(tree.store().unreadable() > 8, "{} are lost", tree.store().unreadable());
    drive.borrow_mut().lost.clear();
    for n in 0..600 {
        put(&mut tree, &mut map, rng.below(600), n as u8).unwrap();
    }
    flush(&mut tree).unwrap();
    assert_eq!(gets(&mut tree, &map), 0);
}

/// What could not be read for some time, and then can be, is collected then: no
/// more and more segments are lost to it.
#[test]
fn what_can_be_read_again_is_collected() {
    let drive = drive();
    let (mut tree, mut map) = filled(&drive, KEYS);
    let (mut rng, mut most) = (Rng::new(3, 3), 0);
    for round in 0..60 {
        lose_one_of(&drive, |segment| segment % 8 == round % 8);
        for n in 0..400 {
            if n == 300 {
                drive.borrow_mut().lost.clear();
            }
            // Every fourth page stays as it is.
            let key = rng.below(KEYS / 8) * 8 + 2 + rng.below(6);
            match put(&mut tree, &mut map, key, n as u8) {
                Ok(()) | Err(Error::Store(StoreError::Drive { .. })) => {}
                Err(error) => panic!("{error} in round {round}"),
            }
            most = most.max(tree.store().unreadable());
        }
    }
    flush(&mut tree).unwrap();
    assert!(most > 0, "nothing was lost when it was collected");
    assert_eq!(gets(&mut tree, &map), 0);
    tree.verify().unwrap();
}
