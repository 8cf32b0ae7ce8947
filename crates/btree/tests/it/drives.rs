//! Each store on a whole drive: pblk, or the target with batched writes, on an
//! open-channel device with the times of flash, in virtual time, cut at random
//! events.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::blocks::{SMALL, any, was};
use crate::common::drives::{Flash, Fused, batch_config, cut, fresh, pblk_config};
use crate::common::{
    Checked, Fuse, Heard, Map, Mix, check_after_crash, contents, no_fuse, random_step,
};
use btree::{
    BatchStore, InPlaceConfig, InPlaceStore, LogConfig, LogStore, PageStore, Tree, TreeConfig,
};
use port::{Shape, Time};
use targets::{Batch, Pblk};
use workload::Rng;

type BlockDrive = Fused<Pblk<Flash>>;

fn pblk(fuse: &Fuse) -> (BlockDrive, Shape) {
    let drive = Pblk::new(fresh(), pblk_config()).unwrap();
    let shape = drive.shape();
    (Fused::new(drive, fuse), shape)
}

fn cut_pblk(drive: BlockDrive) -> (BlockDrive, Shape, Time) {
    let device = cut(drive.drive.into_device());
    let (target, now) = Pblk::recover(device, pblk_config(), Time::ZERO).unwrap();
    let shape = target.shape();
    (Fused::new(target, &drive.fuse), shape, now)
}

type BatchDrive = Fused<Batch<Flash>>;

/// The target with batched writes, as it starts on a device.
fn batch(device: Flash, fuse: Fuse) -> (BatchDrive, Time) {
    let drive = Batch::open(device, batch_config(), Time::ZERO).unwrap();
    let now = drive.now();
    (Fused::new(drive, &fuse), now)
}

const LOG: LogConfig = LogConfig {
    segment_blocks: 64,
    overhead: 100,
    durable: true,
    checkpoint_every: 200_000_000,
    batches: 4,
    collectors: 2,
    redo: 0,
    clock: btree::store::no_clock,
};

const IN_PLACE: InPlaceConfig =
    InPlaceConfig { max_batch: 64, redo: 0, clock: btree::store::no_clock };

/// Lives of a tree: work, a cut at a random event, a look at what is left.
/// `create` makes a store; `again` cuts its drive and opens it again.
fn lives<S: PageStore>(
    seeds: std::ops::Range<u64>,
    create: impl Fn(&Fuse) -> (S, Time),
    again: impl Fn(S, &Fuse) -> (S, Time),
) {
    for seed in seeds {
        let fuse: Fuse = Rc::new(Cell::new(u64::MAX));
        let (store, now) = create(&fuse);
        let mut checked = Checked::new(Tree::create(store, SMALL, now).unwrap(), Map::new());
        let mut rng = Rng::new(seed, 3);
        let mix = Mix { keys: 2500, longest: 9000, flush: 100, shrink: false };
        for round in 0..3 {
            fuse.set(200 + rng.below(4000));
            while checked.step(random_step(&mut rng, mix)) {}
            let unheard = checked.unheard();
            let (base, changes) = (checked.base, checked.changes);
            fuse.set(u64::MAX);
            let (store, now) = again(checked.tree.into_store(), &fuse);
            let mut tree = Tree::open(store, SMALL, now).unwrap();
            tree.verify().unwrap_or_else(|e| panic!("seed {seed}, round {round}: {e}"));
            let found = contents(&mut tree);
            check_after_crash(&base, &changes, &unheard, &found);
            checked = Checked::new(tree, found);
        }
    }
}

#[test]
fn a_log_outlives_power_cuts() {
    lives(
        0..4,
        |fuse| {
            let (drive, shape) = pblk(fuse);
            (LogStore::create(any(drive), shape, LOG, Time::ZERO).unwrap(), Time::ZERO)
        },
        |store, _| {
            let (drive, shape, now) = cut_pblk(was(store.into_drive()));
            (LogStore::open(any(drive), shape, LOG, now).unwrap(), now)
        },
    );
}

#[test]
fn pages_in_place_outlive_power_cuts() {
    lives(
        0..4,
        |fuse| {
            let (drive, shape) = pblk(fuse);
            (InPlaceStore::create(any(drive), shape, IN_PLACE, Time::ZERO).unwrap(), Time::ZERO)
        },
        |store, _| {
            let (drive, shape, now) = cut_pblk(was(store.into_drive()));
            (InPlaceStore::open(any(drive), shape, IN_PLACE, now).unwrap(), now)
        },
    );
}

#[test]
fn batches_of_the_drive_outlive_power_cuts() {
    let store = |drive: BatchDrive| {
        let shape = *drive.drive.shape();
        BatchStore::new(any(drive), shape, 256, btree::store::no_clock).unwrap()
    };
    lives(
        0..6,
        |fuse| {
            let (drive, now) = batch(fresh(), fuse.clone());
            (store(drive), now)
        },
        |old, fuse| {
            let device = cut(was::<BatchDrive>(old.into_drive()).drive.into_below());
            let (drive, now) = batch(device, fuse.clone());
            (store(drive), now)
        },
    );
}

/// Operations in a closed loop of so many, on a tree whose cache has room for a
/// quarter of its pages, on flash that is slow to write. Gives the drive's time
/// for them, in ns, and the look-ups of pages.
fn closed_loop<S: PageStore>((store, start): (S, Time), width: usize) -> (u64, u64) {
    const RECORDS: u64 = 4000;
    let config = TreeConfig { memory: 2 << 20, operations: 128, dirty: 33, redo: true };
    let mut tree = Tree::create(store, config, start).unwrap();
    let (mut heard, mut now, mut live) = (Heard::default(), start, 0);
    let mut rng = Rng::new(3, 5);
    let (mut from, mut lookups) = (now, 0);
    for i in 0..2 * RECORDS {
        let fills = i < RECORDS;
        loop {
            for (_, outcome) in heard.done.drain(..) {
                outcome.unwrap();
                live -= 1;
            }
            heard.records.clear();
            if live < width && (i != RECORDS || live == 0) {
                break;
            }
            now = now.max(tree.next_event().unwrap());
            assert!(tree.wait(&mut heard));
        }
        if i == RECORDS {
            (from, lookups) = (now, tree.cache_counters().lookups);
        }
        let key = if fills { i } else { rng.below(RECORDS) }.to_be_bytes();
        if fills || rng.below(4) == 0 {
            tree.put(i, &key, &[i as u8; 1000], &mut heard).unwrap();
        } else {
            tree.get(i, &key, &mut heard).unwrap();
        }
        live += 1;
    }
    (now - from, tree.cache_counters().lookups - lookups)
}

/// Operations that wait for room keep nobody from reading, and do not look
/// again and again.
#[test]
fn more_operations_at_once_are_not_slower() {
    let batched = |width| {
        let (drive, now) = batch(fresh(), no_fuse());
        let shape = *drive.drive.shape();
        let store = BatchStore::new(any(drive), shape, 256, btree::store::no_clock);
        closed_loop((store.unwrap(), now), width)
    };
    let logged = |width| {
        let (drive, shape) = pblk(&no_fuse());
        let store = LogStore::create(any(drive), shape, LOG, Time::ZERO).unwrap();
        closed_loop((store, Time::ZERO), width)
    };
    for (few, many) in [(batched(8), batched(100)), (logged(8), logged(100))] {
        assert!(many.0 < few.0 * 11 / 10, "{few:?} {many:?}");
        assert!(many.1 < few.1 * 3 / 2, "{few:?} {many:?}");
    }
}
