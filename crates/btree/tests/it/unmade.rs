//! Power goes while a store and its tree are made: opening says so, and nothing of damage.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use btree::{BatchStore, Error, PageStore, StoreError, Tree};
use port::Time;

use crate::common::blocks::{BLOCKS, Kind, SMALL, Shared, any};
use crate::common::{BatchDrive, Fuse, MemoryDrive, no_fuse};
use crate::redo::{InPlace, Log};

/// Cuts at each event while `make` makes a tree on a drive that `drive` gives, until it is
/// made whole.
fn cut_at_each_event<D>(
    drive: impl Fn(Fuse) -> D,
    make: impl Fn(Rc<RefCell<D>>) -> bool,
    open: impl Fn(D, u64) -> Result<(), Error>,
) {
    let mut told = 0;
    for events in 0.. {
        let fuse: Fuse = Rc::new(Cell::new(events));
        let shared = Rc::new(RefCell::new(drive(fuse.clone())));
        let is_made = make(shared.clone());
        fuse.set(u64::MAX);
        match open(shared.replace(drive(no_fuse())), events) {
            Ok(()) => {}
            Err(error) if is_made => panic!("{events} events: {error}"),
            Err(Error::NotATree(what)) if what.contains("nothing was ever stored") => told += 1,
            Err(Error::Store(StoreError::Unusable(_))) => {}
            Err(error) => panic!("{events} events: {error}"),
        }
        if is_made {
            break;
        }
    }
    assert!(told > 0);
}

fn tree<S: PageStore>(store: Result<S, StoreError>) -> Result<(), Error> {
    Tree::open(store?, SMALL, Time::ZERO).map(drop)
}

fn on_blocks<K: Kind>() {
    let shape = MemoryDrive::new(BLOCKS, 4, no_fuse()).shape;
    cut_at_each_event(
        |fuse| MemoryDrive::new(BLOCKS, 4, fuse),
        |drive| {
            let store = K::create(any(Shared(drive)), shape);
            store.is_ok_and(|store| Tree::create(store, SMALL, Time::ZERO).is_ok())
        },
        |drive, seed| tree(K::open(any(drive.crash(seed, no_fuse())), shape, Time::ZERO)),
    );
}

#[test]
fn a_making_in_place_that_was_cut_is_told() {
    on_blocks::<InPlace>();
}

#[test]
fn a_making_of_a_log_that_was_cut_is_told() {
    on_blocks::<Log>();
}

#[test]
fn a_making_over_batches_that_was_cut_is_told() {
    let shape = BatchDrive::new(400, 4, no_fuse()).shape;
    let store = |drive| BatchStore::new(drive, shape, 128, btree::store::no_clock);
    cut_at_each_event(
        |fuse| BatchDrive::new(400, 4, fuse),
        |drive| {
            let store = store(any(Shared(drive))).and_then(|store| store.with_redo(40));
            store.is_ok_and(|store| Tree::create(store, SMALL, Time::ZERO).is_ok())
        },
        |drive, seed| tree(store(any(drive.crash(seed, no_fuse())))),
    );
}
