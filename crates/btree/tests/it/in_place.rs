//! The tree over the store that updates pages in place.

use crate::common::blocks::{self, BLOCKS, IN_PLACE, InPlace, Shared, any, is, tests_of, was};
use crate::common::{MemoryDrive, damage, no_fuse};
use btree::{InPlaceConfig, InPlaceStore, PageStore, StoreDone, StoreError};
use port::{BlockDone, BlockOp, BlockReq, Port, Ring, Shape, Status, Time};
use std::cell::RefCell;
use std::rc::Rc;

tests_of! { InPlace:
    it_is_a_map = blocks::it_is_a_map();
    crashes_lose_nothing_that_was_flushed = blocks::crashes_lose_nothing_that_was_flushed(0..10);
    a_cut_at_each_event = blocks::a_cut_at_each_event();
    damage_is_an_error = damage::some_blocks();
    one_damaged_block_is_an_error = damage::each_block();
    one_damaged_head_after_a_crash_is_an_error = damage::each_head_after_a_crash(150);
    limits_are_errors = blocks::limits_are_errors();
    a_lost_page_is_an_error = blocks::a_lost_page_is_an_error();
}

/// The journal's newest records are durable; one of them is damaged.
#[test]
fn a_damaged_journal_changes_nothing() {
    let drive = MemoryDrive::new(BLOCKS, 1, no_fuse());
    let shape = drive.shape;
    let mut store = InPlaceStore::create(any(drive), shape, IN_PLACE, Time::ZERO).unwrap();
    let mut done = Ring::new(8);
    for id in 0..3 {
        store.write(id, &[5, 6], &mut |_, to| to.fill(id as u8));
    }
    while done.len() < 3 {
        let at = store.next_event().unwrap();
        store.poll(at, &mut done);
    }
    let drive = was::<MemoryDrive>(store.into_drive()).crash(0, no_fuse());
    // Record 2 is in the third slot of 65 blocks: a page of it.
    let block = 2 + 2 * 65 + 2;
    let mut damaged = drive.copy();
    damaged.flip(block, 7);
    let before = damaged.copy();
    let shared = Rc::new(RefCell::new(damaged));
    let opened = InPlaceStore::open(any(Shared(shared.clone())), shape, IN_PLACE, Time::ZERO);
    let what = "a batch that was durable, in the journal of the store";
    assert_eq!(opened.err(), Some(StoreError::DamagedBlock { block, what }));
    for block in 0..BLOCKS {
        assert_eq!(shared.borrow().peek(block), before.peek(block), "block {block} was written");
    }
}

#[test]
fn wrong_drives_are_refused() {
    let create = |blocks, max_batch| {
        let drive = MemoryDrive::new(blocks, 1, no_fuse());
        let shape = drive.shape;
        let config = InPlaceConfig { max_batch, ..IN_PLACE };
        InPlaceStore::create(any(drive), shape, config, Time::ZERO).map(|_| ())
    };
    assert!(matches!(create(BLOCKS, 31), Err(StoreError::Shape { .. })));
    assert!(matches!(create(BLOCKS, 257), Err(StoreError::Shape { .. })));
    assert!(matches!(create(1000, 64), Err(StoreError::Shape { .. })));
    let drive = MemoryDrive::new(BLOCKS, 1, no_fuse());
    let shape = drive.shape;
    let opened = InPlaceStore::open(any(drive), shape, IN_PLACE, Time::ZERO);
    assert!(matches!(opened.err(), Some(StoreError::Unusable(_))));
}

/// A drive that does all at once but the first write of blocks when it is told
/// to hold one: that takes long.
struct Holds {
    holds: bool,
    held: Option<BlockReq>,
    done: Vec<BlockDone>,
    flushes: u64,
}

/// When the write that was held is done.
const LATE: Time = Time(1_000_000);

impl Holds {
    fn done(&mut self, at: Time, req: BlockReq) {
        let BlockReq { id, op, buffer, .. } = req;
        self.done.push(BlockDone { id, op, status: Status::SUCCESS, at, buffer });
    }
}

impl Port for Holds {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        while let Some(req) = cmds.pop() {
            self.flushes += u64::from(req.op == BlockOp::Flush);
            if req.op == BlockOp::Write && std::mem::take(&mut self.holds) {
                self.held = Some(req);
            } else {
                self.done(now, req);
            }
        }
    }

    fn next_event(&self) -> Option<Time> {
        self.done.first().map(|done| done.at).or(self.held.as_ref().map(|_| LATE))
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        if to >= LATE
            && let Some(req) = self.held.take()
        {
            self.done(LATE, req);
        }
        for one in self.done.drain(..) {
            done.put(|| one);
        }
    }
}

#[test]
fn a_record_behind_one_that_takes_long_is_not_flushed_again_and_again() {
    let shape = Shape { bytes: BLOCKS * 4096, kept: 4096, max_bytes: 1 << 20, depth: 64 };
    let drive = Holds { holds: false, held: None, done: Vec::new(), flushes: 0 };
    let mut store = InPlaceStore::create(any(drive), shape, IN_PLACE, Time::ZERO).unwrap();
    let before = is::<Holds>(store.drive_mut()).flushes;
    is::<Holds>(store.drive_mut()).holds = true;
    store.write(1, &[5], &mut |_, to| to.fill(1));
    store.write(2, &[6], &mut |_, to| to.fill(2));
    let (mut done, mut written) = (Ring::new(8), Vec::new());
    for _ in 0..1000 {
        let Some(at) = store.next_event() else { break };
        store.poll(at, &mut done);
        while let Some(one) = done.pop() {
            let StoreDone::Write { id, result } = one else { panic!("{one:?}") };
            assert_eq!(result, Ok(()));
            written.push(id);
        }
    }
    assert_eq!(written, [1, 2], "both are written");
    assert!(
        is::<Holds>(store.drive_mut()).flushes - before < 8,
        "{}",
        is::<Holds>(store.drive_mut()).flushes
    );
}

/// A making that was cut between its two roots left a store, which holds nothing;
/// later a root that is not there was damaged.
#[test]
fn a_making_that_was_cut_is_no_damage() {
    let drive = MemoryDrive::new(BLOCKS, 1, no_fuse());
    let shape = drive.shape;
    let store = InPlaceStore::create(any(drive), shape, IN_PLACE, Time::ZERO).unwrap();
    let mut drive = store.into_drive();
    is::<MemoryDrive>(&mut drive).blank(0);
    for _ in 0..2 {
        drive = InPlaceStore::open(drive, shape, IN_PLACE, Time::ZERO).unwrap().into_drive();
    }
    is::<MemoryDrive>(&mut drive).blank(0);
    let opened = InPlaceStore::open(drive, shape, IN_PLACE, Time::ZERO).err();
    let what = "a root of the store";
    assert_eq!(opened, Some(StoreError::DamagedBlock { block: 0, what }));
}
