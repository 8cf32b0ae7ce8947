//! Stores that are filled until they refuse, with a redo log: whatever the log has to do
//! again after a cut finds room, also when that is cut.

use std::cell::Cell;
use std::rc::Rc;

use btree::{PageStore, Tree};
use workload::Rng;

use crate::common::blocks::{Kind, crash_while_opening, create, open, was};
use crate::common::{
    BatchDrive, Checked, Fuse, Map, MemoryDrive, Mix, Step, check_after_crash, contents,
    random_step,
};
use crate::redo::{InPlace, Log, create_batched, open_batched};

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

/// A tree that is filled and cut a few times. `reopen` takes its drive through the cut,
/// and opens it.
fn fill_and_cut<S: PageStore>(
    tree: Tree<S>,
    (rng, fuse): (&mut Rng, &Fuse),
    mut reopen: impl FnMut(S, &mut Rng) -> Tree<S>,
) -> u64 {
    let (mut checked, mut refused) = (Checked::new(tree, Map::new()), 0);
    for _ in 0..4 {
        if rng.below(3) == 0 {
            fuse.set(10 + rng.below(3000));
        }
        fill(&mut checked, rng);
        refused += checked.refused.unwrap_or(0);
        fuse.set(u64::MAX);
        let unheard = checked.unheard();
        let Checked { tree, base, changes, .. } = checked;
        let mut tree = reopen(tree.into_store(), rng);
        tree.verify().unwrap();
        let found = contents(&mut tree);
        check_after_crash(&base, &changes, &unheard, &found);
        checked = Checked::new(tree, found);
    }
    refused
}

fn full_stores_open_again<K: Kind>(sizes: [u64; 4]) {
    let mut refused = 0;
    for seed in 0..10 {
        let (mut rng, fuse): (_, Fuse) = (Rng::new(seed, 8), Rc::new(Cell::new(u64::MAX)));
        let blocks = sizes[rng.below(4) as usize];
        let tree = create::<K>(MemoryDrive::new(blocks, seed, fuse.clone()));
        refused += fill_and_cut(tree, (&mut rng, &fuse), |store, rng| {
            let drive = was::<MemoryDrive>(K::into_drive(store)).crash(rng.bits(), fuse.clone());
            open::<K>(crash_while_opening::<K>(drive, rng, &fuse))
        });
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
    let mut refused = 0;
    for seed in 0..10 {
        let (mut rng, fuse): (_, Fuse) = (Rng::new(seed, 8), Rc::new(Cell::new(u64::MAX)));
        let pages = [150, 220, 400, 1000][rng.below(4) as usize];
        let tree = create_batched(BatchDrive::new(pages, seed, fuse.clone()));
        refused += fill_and_cut(tree, (&mut rng, &fuse), |store, rng| {
            let drive = was::<BatchDrive>(store.into_drive());
            open_batched(drive.crash(rng.bits(), fuse.clone()))
        });
    }
    assert!(refused > 200, "{refused} refused");
}
