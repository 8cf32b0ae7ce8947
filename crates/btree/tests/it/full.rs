//! Stores that are filled until they refuse, with a redo log: whatever the log has to do
//! again after a cut finds room, also when that is cut.

use std::cell::Cell;
use std::rc::Rc;

use btree::{Error, Outcome, PageStore, Tree, Write};
use workload::Rng;

use crate::common::blocks::{BLOCKS, Cut, Kind, create, outcome};
use crate::common::{
    Checked, Fuse, Heard, Map, MemoryDrive, Mix, Step, check_after_crash, contents, no_fuse,
    random_step,
};
use crate::redo::{Batches, InPlace, Log};

/// What a store is filled with: few large values, many small ones, both.
fn mix(rng: &mut Rng) -> Mix {
    let keys = [100, 400, 1500, 6000][rng.below(4) as usize];
    let longest = [250, 1500, 20_000, 60_000][rng.below(4) as usize];
    Mix { keys, longest, flush: 40, shrink: false }
}

/// Changes a tree until it has refused a few times. False when the drive is gone.
fn fill<S: PageStore>(checked: &mut Checked<S>, rng: &mut Rng) -> bool {
    let (mix, most) = (mix(rng), 1 + rng.below(40));
    checked.refused = Some(0);
    for _ in 0..8000 {
        if checked.refused >= Some(most) {
            break;
        }
        if !checked.step(random_step(rng, mix)) {
            return false;
        }
    }
    checked.finish() && checked.step(Step::Flush) && checked.finish()
}

/// Trees that are filled and cut a few times open again.
fn full_stores_open_again<C: Cut>(sizes: [u64; 4]) {
    let mut refused = 0;
    for seed in 0..10 {
        let (mut rng, fuse): (_, Fuse) = (Rng::new(seed, 8), Rc::new(Cell::new(u64::MAX)));
        let tree = C::new(sizes[rng.below(4) as usize], seed, &fuse);
        let mut checked = Checked::new(tree, Map::new());
        for _ in 0..4 {
            if rng.below(3) == 0 {
                fuse.set(10 + rng.below(3000));
            }
            fill(&mut checked, &mut rng);
            refused += checked.refused.unwrap_or(0);
            fuse.set(u64::MAX);
            let unheard = checked.unheard();
            let Checked { tree, base, changes, .. } = checked;
            let mut tree = C::cut(tree.into_store(), rng.bits(), &fuse, Some(&mut rng));
            tree.verify().unwrap();
            let found = contents(&mut tree);
            check_after_crash(&base, &changes, &unheard, &found);
            checked = Checked::new(tree, found);
        }
    }
    assert!(refused > 200, "{refused} refused");
}

#[test]
fn in_place_full_stores_open_again() {
    full_stores_open_again::<InPlace>([1230, 1300, 1450, 2000]);
}

#[test]
fn in_a_log_full_stores_open_again() {
    full_stores_open_again::<Log>([1500, 1700, 2000, 2600]);
}

#[test]
fn batched_full_stores_open_again() {
    full_stores_open_again::<Batches>([150, 220, 400, 1000]);
}

type InPlaceTree = Tree<<InPlace as Kind>::Store>;

/// Does one thing, and waits for it.
fn put(tree: &mut InPlaceTree, key: &[u8], value: &[u8]) -> Result<Outcome, Error> {
    let mut heard = Heard::default();
    tree.put(1, key, value, &mut heard).unwrap();
    outcome(tree, &mut heard)
}

fn flush(tree: &mut InPlaceTree) {
    tree.flush(2).unwrap();
    assert_eq!(outcome(tree, &mut Heard::default()), Ok(Outcome::Flushed));
}

/// Fills a store with values of so many bytes, but for so many pages. Gives how many keys
/// it has.
fn filled(bytes: usize, left: u64) -> (InPlaceTree, u64) {
    let mut tree = create::<InPlace>(MemoryDrive::new(2300, 1, no_fuse()));
    for i in 0u64.. {
        if tree.pages() + left > tree.store().pages()
            || put(&mut tree, &i.to_be_bytes(), &vec![1; bytes]).is_err()
        {
            flush(&mut tree);
            return (tree, i);
        }
    }
    unreachable!("it has an end")
}

/// What was full once is nothing later.
#[test]
fn a_store_that_was_full_logs_again() {
    let (mut tree, keys) = filled(60_000, 0);
    for i in 0..keys {
        assert_eq!(put(&mut tree, &i.to_be_bytes(), b"short"), Ok(Outcome::Stored));
    }
    let before = tree.redo().unwrap();
    for i in 0..1000u64 {
        put(&mut tree, &(i % keys).to_be_bytes(), b"other").unwrap();
    }
    let after = tree.redo().unwrap();
    assert!(after.records - before.records > 990, "{before:?} {after:?}");
    assert!(after.emptied - before.emptied < 3, "{before:?} {after:?}");
}

/// What is refused holds up nobody.
#[test]
fn who_is_refused_empties_no_log() {
    let (mut tree, _) = filled(3000, 0);
    let before = tree.redo().unwrap();
    let long = vec![2; 60_000];
    for i in 0..100u64 {
        let refused = put(&mut tree, &(1 << 40 | i).to_be_bytes(), &long);
        assert!(matches!(refused, Err(Error::Full(_))), "{refused:?}");
        let mut heard = Heard::default();
        let key = (1u64 << 41 | i).to_be_bytes();
        let write = [Write { key: &key, value: Some(&long) }];
        tree.batch(1, &write, &mut heard).unwrap();
        let refused = outcome(&mut tree, &mut heard);
        assert!(matches!(refused, Err(Error::Full(_))), "{refused:?}");
    }
    assert_eq!(tree.redo().unwrap().emptied, before.emptied);
}

/// Values in the place of others as long make no leaf larger: they cost no more where
/// little is left.
#[test]
fn overwriting_a_full_store_costs_what_it_costs_on_any() {
    let cost = |left| {
        let (mut tree, keys) = filled(200, left);
        let (pages, redo) = (tree.counters().pages_written, tree.redo().unwrap());
        for i in 0..4000u64 {
            put(&mut tree, &(i * 7919 % keys.min(500)).to_be_bytes(), &[i as u8; 200]).unwrap();
            if i % 16 == 0 {
                flush(&mut tree);
            }
        }
        assert_eq!(tree.redo().unwrap().emptied, redo.emptied, "{left} left");
        tree.counters().pages_written - pages
    };
    let (full, roomy) = (cost(12), cost(600));
    assert!(full < roomy * 3 / 2 + 100, "{full} pages instead of {roomy}");
}

/// New keys are logged as long as there is room, also where nobody flushes: the log is
/// written and trimmed before it is in the way.
#[test]
fn the_log_is_trimmed_before_it_is_in_the_way() {
    let (mut tree, keys) = filled(200, 400);
    let before = tree.redo().unwrap();
    for i in 0..600u64 {
        put(&mut tree, &((keys + i * 7919 % 600) as u32).to_be_bytes(), &[9; 40]).unwrap();
        // They come slower than the drive is.
        for _ in 0..20 {
            tree.wait(&mut Heard::default());
        }
    }
    let after = tree.redo().unwrap();
    assert!(after.emptied - before.emptied < 3, "{before:?} {after:?}");
}

/// A long record is not passed by short ones for ever.
#[test]
fn a_long_record_finds_room_beside_others() {
    let mut tree = create::<InPlace>(MemoryDrive::new(BLOCKS, 1, no_fuse()));
    let most = 15 * 4056;
    let (long, other) = (vec![1; most - 40], vec![2; most * 3 / 5]);
    let mut heard = Heard::default();
    tree.put(0, b"long", &long, &mut heard).unwrap();
    let (mut others, mut live, mut ended) = (0u64, 1, false);
    while !ended {
        while live < 9 {
            others += 1;
            tree.put(others, &(others % 20).to_be_bytes(), &other, &mut heard).unwrap();
            live += 1;
        }
        assert!(tree.wait(&mut heard));
        for (tag, result) in heard.done.drain(..) {
            result.unwrap();
            live -= 1;
            ended |= tag == 0;
        }
        assert!(others < 200, "it waits still");
    }
}
