//! The tree over the store that updates pages in place.

use crate::common::blocks::{self, BLOCKS, IN_PLACE, InPlace};
use crate::common::{MemoryDrive, no_fuse};
use btree::{InPlaceConfig, InPlaceStore, Inline, StoreError};
use port::Time;

#[test]
fn it_is_a_map() {
    blocks::it_is_a_map::<InPlace>();
}

#[test]
fn crashes_lose_nothing_that_was_flushed() {
    blocks::crashes_lose_nothing_that_was_flushed::<InPlace>(0..10);
}

#[test]
fn a_cut_at_each_event() {
    blocks::a_cut_at_each_event::<InPlace>();
}

#[test]
fn damage_is_an_error() {
    blocks::damage_is_an_error::<InPlace>();
}

#[test]
fn limits_are_errors() {
    blocks::limits_are_errors::<InPlace>();
}

#[test]
fn a_lost_page_is_an_error() {
    blocks::a_lost_page_is_an_error::<InPlace>();
}

#[test]
fn wrong_drives_are_refused() {
    let create = |blocks, max_batch| {
        let drive = MemoryDrive::new(blocks, 1, no_fuse());
        let shape = drive.shape;
        let config = InPlaceConfig { max_batch, ..IN_PLACE };
        InPlaceStore::create(Inline(drive), shape, config, Time::ZERO).map(|_| ())
    };
    assert!(matches!(create(BLOCKS, 31), Err(StoreError::Shape { .. })));
    assert!(matches!(create(BLOCKS, 257), Err(StoreError::Shape { .. })));
    assert!(matches!(create(1000, 64), Err(StoreError::Shape { .. })));
    let drive = MemoryDrive::new(BLOCKS, 1, no_fuse());
    let shape = drive.shape;
    let opened = InPlaceStore::open(Inline(drive), shape, IN_PLACE, Time::ZERO);
    assert!(matches!(opened.err(), Some(StoreError::Unusable(_))));
}
