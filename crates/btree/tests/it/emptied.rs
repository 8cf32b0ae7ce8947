//! Stores that are full: what makes nothing larger is never refused, so they can be
//! emptied.

use btree::{Error, Outcome, PageStore, Tree, Write};

use crate::common::blocks::{Kind, create, outcome};
use crate::common::{BatchDrive, Changes, Heard, MemoryDrive, no_fuse};
use crate::redo::{Batches, InPlace, Log};

/// Members that are put or deleted together.
const TOGETHER: u64 = 4;

fn batch<S: PageStore>(tree: &mut Tree<S>, writes: &Changes) -> Result<Outcome, Error> {
    let writes: Vec<Write<'_>> =
        writes.iter().map(|(key, value)| Write { key, value: value.as_deref() }).collect();
    let mut heard = Heard::default();
    tree.batch(1, &writes, &mut heard).unwrap();
    outcome(tree, &mut heard)
}

/// Writes of the members from `first` on, and of what counts them, among other keys.
fn members(set: u64, first: u64, value: Option<&[u8]>, left: Option<u64>) -> Changes {
    let mut writes = Changes::new();
    for i in first..first + TOGETHER {
        let number = workload::rng::mix(set << 32 | i);
        writes.push((format!("m{set:04}{number:016x}").into(), value.map(<[u8]>::to_vec)));
        writes.push((format!("s{set:04}{i:08}").into(), value.map(<[u8]>::to_vec)));
    }
    let count = left.map(|left| left.to_be_bytes().to_vec());
    writes.push((format!("k{set:04}").into(), count));
    writes
}

/// Sets of members until no more is taken, and then all of them go, in batches that
/// count the rest anew.
fn a_full_store_is_emptied<S: PageStore>(tree: &mut Tree<S>, most: u64, value: &[u8]) {
    let mut sets: Vec<u64> = vec![];
    let mut is_full = false;
    for set in 0.. {
        sets.push(0);
        for count in (TOGETHER..=most).step_by(TOGETHER as usize) {
            match batch(tree, &members(set, count - TOGETHER, Some(value), Some(count))) {
                Ok(_) => sets[set as usize] = count,
                Err(Error::Full(_)) => is_full = true,
                Err(other) => panic!("{other}"),
            }
            if is_full {
                break;
            }
        }
        if is_full {
            break;
        }
    }
    for (set, count) in (0..).zip(sets) {
        for first in (0..count).step_by(TOGETHER as usize) {
            let left = count - first - TOGETHER;
            let writes = members(set, first, None, (left > 0).then_some(left));
            assert_eq!(batch(tree, &writes), Ok(Outcome::Stored), "{left} of {count} of {set}");
        }
    }
    assert_eq!(tree.verify().unwrap().records, 0);
}

const WAYS: [(u64, usize); 3] = [(100_000, 8), (200, 60), (24, 400)];

fn full_stores_are_emptied<K: Kind>(blocks: u64) {
    for (most, value) in WAYS {
        let mut tree = create::<K>(MemoryDrive::new(blocks, 3, no_fuse()));
        a_full_store_is_emptied(&mut tree, most, &vec![7; value]);
    }
}

#[test]
fn in_place_full_stores_are_emptied() {
    full_stores_are_emptied::<InPlace>(1400);
}

#[test]
fn in_a_log_full_stores_are_emptied() {
    full_stores_are_emptied::<Log>(1600);
}

#[test]
fn batched_full_stores_are_emptied() {
    for (most, value) in WAYS {
        let mut tree = Batches::on(BatchDrive::new(260, 3, no_fuse()));
        a_full_store_is_emptied(&mut tree, most, &vec![7; value]);
    }
}

fn put<S: PageStore>(tree: &mut Tree<S>, key: &[u8], value: &[u8]) -> Result<Outcome, Error> {
    let mut heard = Heard::default();
    tree.put(1, key, value, &mut heard).unwrap();
    outcome(tree, &mut heard)
}

/// Long values until no page is left; then each gets shorter, and short at last.
fn long_values_get_shorter<S: PageStore>(tree: &mut Tree<S>) {
    let mut keys = vec![];
    for len in [60_000, 9000, 3000] {
        loop {
            let key = (keys.len() as u64).to_be_bytes();
            match put(tree, &key, &vec![1; len]) {
                Ok(_) => keys.push((key, len)),
                Err(Error::Full(_)) => break,
                Err(other) => panic!("{other}"),
            }
        }
    }
    assert!(tree.pages() + 2 > tree.store().pages(), "{} pages", tree.pages());
    for cut in [1, 1000, usize::MAX] {
        for (key, len) in &mut keys {
            // No page for a leaf that is split: what has one of its own has it still.
            *len = len.saturating_sub(cut).max(if cut == 1000 { 2100 } else { 1 });
            assert_eq!(put(tree, key, &vec![2; *len]), Ok(Outcome::Stored), "{len} bytes");
        }
    }
    assert_eq!(tree.verify().unwrap().records, keys.len() as u64);
}

#[test]
fn in_place_long_values_get_shorter() {
    long_values_get_shorter(&mut create::<InPlace>(MemoryDrive::new(1400, 5, no_fuse())));
}

#[test]
fn in_a_log_long_values_get_shorter() {
    long_values_get_shorter(&mut create::<Log>(MemoryDrive::new(1600, 5, no_fuse())));
}

#[test]
fn batched_long_values_get_shorter() {
    long_values_get_shorter(&mut Batches::on(BatchDrive::new(260, 5, no_fuse())));
}
