//! Lives of the key-value tree, over each of its stores: puts, deletes, batches,
//! gets, scans and flushes on a small drive, cut at any event and opened again.

use btree::store::no_clock;
use btree::{InPlaceConfig, LogConfig, TreeConfig};
use faults::{FaultRule, Operation, Trigger};
use flash::{Dimensions, Geometry};
use port::{BLOCK_BYTES, Status};
use targets::{BatchConfig, reserve_chunks};
use workload::Rng;

use crate::batched::with_room;
use crate::breaks::Break;
use crate::life::{Living, Outcome, live_with};
use crate::plan::Plan;
use crate::setup::Setup;
use world::World;

mod living;
mod model;
pub(crate) mod pages;
pub(crate) mod site;
mod world;

/// Stream of the random numbers of these drives.
const STREAM: u64 = 30;

/// One life in so many is of the tree.
pub const ONE_IN: u64 = 8;

/// Operations of a cycle in which a log is to lose many of its segments.
const LONG_CYCLE: u64 = 2000;

/// A break of the contract by the tree or its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeBreak {
    /// Flushes are answered before the store is durable.
    FlushEarly,
    /// One batch of pages in 16 is written without its last page.
    DropPage,
    /// One batch of pages in 16 is answered and not written.
    DropBatch,
    /// One write of the redo log in 16 is answered and not written.
    DropLog,
}

impl TreeBreak {
    /// All of them.
    pub const ALL: [TreeBreak; 4] =
        [TreeBreak::FlushEarly, TreeBreak::DropPage, TreeBreak::DropBatch, TreeBreak::DropLog];
}

/// The store of a life.
#[derive(Clone, Copy, Debug)]
pub enum StoreKind {
    /// Over the batched target.
    Batch(BatchConfig),
    /// A log over blocks.
    Log(LogConfig),
    /// In place over blocks.
    InPlace(InPlaceConfig),
}

/// A drive, a store and a tree.
pub struct Host {
    /// The drive and its faults.
    pub setup: Setup,
    /// The store.
    pub store: StoreKind,
    /// Blocks or pages of a redo log.
    pub redo: u64,
    /// The tree.
    pub tree: TreeConfig,
    /// Keys that are used.
    pub keys: u64,
    /// Operations at once.
    pub depth: usize,
    /// Of the operations, so many in 1000 are flushes.
    pub flushes: u64,
    /// Most ns between two operations.
    pub pause: u64,
    /// Operations of a cycle before power may go.
    pub cycle: u64,
}

impl Host {
    /// That of a plan.
    pub fn of(plan: &Plan) -> Host {
        let mut setup = plan.setup();
        let mut rng = Rng::new(plan.seed, STREAM + 1);
        let rng = &mut rng;
        setup.kept = BLOCK_BYTES as u32;
        (setup.parts, setup.parity) = (false, 0);
        setup.leave_out_harm();
        let redo = Rng::new(plan.seed, STREAM + 3).one_of(&[0, 16, 32, 64, 100]);
        let (store, pages) = match rng.below(3) {
            0 => batched(rng, &mut setup, redo),
            1 => log(rng, &mut setup, redo),
            _ => in_place(rng, &mut setup, redo),
        };
        let is_log = matches!(store, StoreKind::Log(_));
        let cycle =
            if is_log && lose_segments(rng, &mut setup) { LONG_CYCLE } else { World::CYCLE };
        // A frozen cache is the other lives' matter.
        setup.protected &= !may_fail(&setup);
        let tree = TreeConfig {
            memory: rng.one_of(&[720 << 10, 720 << 10, 2 << 20]),
            operations: 16,
            dirty: 1 + rng.below(60) as u8,
            redo: true,
        };
        let keys = pages * (1 + rng.below(3));
        let flushes = rng.one_of(&[5, 20, 100]);
        let depth = rng.one_of(&[1, 4, 15]);
        let pause = rng.one_of(&[0, 100_000, 5_000_000]);
        Host { setup, store, redo, tree, keys, depth, flushes, pause, cycle }
    }

    /// Leaves out operations of the flash that fail.
    pub(crate) fn without_failures(&mut self) {
        without_failures(&mut self.setup);
    }

    /// In a line, for a report.
    pub fn in_words(&self) -> String {
        let (store, tree, drive) = (&self.store, &self.tree, self.setup.in_words());
        let redo = self.redo;
        format!(
            "{store:?}, redo log of {redo}, {tree:?}, {} keys, {} at once; {drive}",
            self.keys, self.depth
        )
    }
}

/// Whether operations of the drive may fail.
fn may_fail(setup: &Setup) -> bool {
    setup.troubles.operations.iter().any(|rule| rule.status != Some(Status::HIGH_ECC))
}

/// Leaves out operations that fail.
fn without_failures(setup: &mut Setup) {
    setup.troubles.operations.retain(|rule| rule.status == Some(Status::HIGH_ECC));
}

fn dimensions(rng: &mut Rng) -> Dimensions {
    Dimensions {
        groups: 1 + rng.below(2) as u32,
        pus: 1 + rng.below(2) as u32,
        chunks: 24,
        pages: 4 + rng.below(9) as u32,
        planes: rng.one_of(&[1, 2, 2, 3]),
        page_bytes: rng.one_of(&[8192, 16384]),
        pages_at_once: 1,
    }
}

/// A drive of so many blocks below pblk, half full or more.
fn blocks(rng: &mut Rng, setup: &mut Setup, blocks: u64) {
    let dim = dimensions(rng);
    let geometry = Geometry::new(dim).expect("the ranges are those of a geometry");
    let row = u64::from(geometry.chunk_blocks() * geometry.total_pus());
    let wanted = blocks * 100 / (55 + rng.below(25));
    let chunks = wanted.div_ceil(row).max(3) as u32;
    let reserve = reserve_chunks(&Dimensions { chunks, ..dim }, setup.streams);
    let geometry = Geometry::new(Dimensions { chunks: chunks + reserve, ..dim });
    setup.geometry = geometry.expect("the ranges are those of a geometry");
    setup.data_chunks = chunks;
    setup.bytes = blocks * BLOCK_BYTES;
}

/// A log with few segments, and how many pages it has.
fn log(rng: &mut Rng, setup: &mut Setup, redo: u64) -> (StoreKind, u64) {
    let segments = 20 + rng.below(8);
    let config = LogConfig {
        segment_blocks: 64,
        overhead: rng.one_of(&[20, 50, 100]),
        durable: true,
        checkpoint_every: rng.one_of(&[1_000_000, 50_000_000, 10_000_000_000]),
        batches: 1 + rng.below(6) as usize,
        collectors: 1 + rng.below(3) as usize,
        redo,
        clock: no_clock,
    };
    // The heads and the map come first.
    blocks(rng, setup, (segments + 1) * 64 + redo);
    let pages = (segments - 12) * 63 * 100 / u64::from(100 + config.overhead);
    (StoreKind::Log(config), pages)
}

/// Where reads fail, often makes so many fail that segments of a log are lost to
/// them. Says whether it did.
fn lose_segments(rng: &mut Rng, setup: &mut Setup) -> bool {
    let fails = |rule: &&mut FaultRule| {
        rule.operation == Operation::Read && rule.status != Some(Status::HIGH_ECC)
    };
    let Some(rule) = setup.troubles.operations.iter_mut().find(fails) else { return false };
    if rng.below(2) == 0 {
        return false;
    }
    let probability = rng.one_of(&[3e-3, 1e-2, 3e-2]);
    rule.trigger = Trigger { probability, ..Trigger::default() };
    rule.permanent = true;
    true
}

/// A store in place with a journal of small batches, and how many pages it has.
fn in_place(rng: &mut Rng, setup: &mut Setup, redo: u64) -> (StoreKind, u64) {
    let config = InPlaceConfig { max_batch: 32 + rng.below(48) as u32, redo, clock: no_clock };
    let pages = 200 + rng.below(400);
    let journal = (2 + 16 * (u64::from(config.max_batch) + 1)).next_multiple_of(64);
    blocks(rng, setup, journal + pages + redo);
    (StoreKind::InPlace(config), pages)
}

/// The batched target, and how many pages it has.
fn batched(rng: &mut Rng, setup: &mut Setup, redo: u64) -> (StoreKind, u64) {
    let dim = dimensions(rng);
    let (log_rows, links) = (4 + rng.below(28), 1 + rng.below(3) as u32);
    let config = |geometry: &Geometry| BatchConfig {
        max_pages: 64,
        batches: 8,
        depth: 64,
        log_rows,
        forward_links: links,
        checkpoint_every: 0,
        ..BatchConfig::for_geometry(geometry, 0.1)
    };
    let (geometry, mut config) = with_room(dim, config, 400);
    setup.geometry = geometry;
    config.pages = config.capacity(&setup.geometry) * (50 + rng.below(41)) / 100;
    // What a failed program leaves of such a drive is its own lives' matter.
    without_failures(setup);
    (setup.protected, setup.layers) = (false, None);
    (StoreKind::Batch(config), config.pages - redo)
}

/// Lives the life of a plan.
pub fn live(plan: &Plan) -> Outcome {
    let broken = match plan.broken {
        Some(Break::Tree(broken)) => Some(broken),
        _ => None,
    };
    live_with(plan, World::new(Host::of(plan), broken, plan.traced))
}
