//! Lives of the key-value tree, over each of its stores: puts, deletes, batches,
//! gets, scans and flushes on a small drive, cut at any event and opened again.

use btree::store::no_clock;
use btree::{InPlaceConfig, LogConfig, TreeConfig};
use faults::{FaultRule, Operation, Trigger};
use flash::{Dimensions, Geometry};
use port::{BLOCK_BYTES, Status};
use targets::{BatchConfig, with_reserve};
use workload::Rng;

use crate::breaks::Break;
use crate::life::{Counts, Outcome, Plan};
use crate::machine::Violation;
use crate::nature::Kind;
use crate::setup::Setup;
use world::World;

mod model;
mod pages;
mod world;

/// Stream of the random numbers of these drives.
const STREAM: u64 = 30;

/// One life in so many is of the tree.
pub const ONE_IN: u64 = 8;

/// Operations of a cycle before power may go; of one in which a log is to lose
/// many of its segments.
const CYCLE: u64 = 120;
const LONG_CYCLE: u64 = 2000;

/// How often a drive is started that refuses to: then it never will.
const STARTS: u32 = 16;

/// Cycles that a drive lives on that takes no writes.
const READ_ONLY_CYCLES: u32 = 2;

/// Operations after which power goes though the drive did nothing for them.
const QUIET_OPERATIONS: u32 = 400;

/// A break of the contract by the tree or its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeBreak {
    /// Flushes are answered before the store is durable.
    FlushEarly,
    /// One batch of pages in 16 is written without its last page.
    DropPage,
    /// One batch of pages in 16 is answered and not written.
    DropBatch,
}

impl TreeBreak {
    /// All of them.
    pub const ALL: [TreeBreak; 3] =
        [TreeBreak::FlushEarly, TreeBreak::DropPage, TreeBreak::DropBatch];
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
    /// The tree.
    pub tree: TreeConfig,
    /// Keys that are used.
    pub keys: u64,
    /// Operations at once.
    pub depth: u64,
    /// Of the operations, so many in 1000 are flushes.
    pub flushes: u64,
    /// Most ns between two operations.
    pub pause: u64,
    /// Operations of a cycle before power may go.
    pub cycle: u64,
}

fn one_of<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.below(of.len() as u64) as usize]
}

impl Host {
    /// That of a plan.
    pub fn of(plan: &Plan) -> Host {
        let mut setup = plan.setup();
        let mut rng = Rng::new(plan.seed, STREAM + 1);
        let rng = &mut rng;
        setup.kept = BLOCK_BYTES as u32;
        (setup.parts, setup.parity) = (false, 0);
        // What wears out or damages, and what can never be read, is not here.
        (setup.troubles.wear, setup.timing.endurance) = (None, u32::MAX);
        setup.troubles.damage.clear();
        setup.troubles.operations.retain(|rule| rule.trigger.span.is_none());
        setup.troubles.fatal = false;
        let (store, pages) = match rng.below(3) {
            0 => batched(rng, &mut setup),
            1 => log(rng, &mut setup),
            _ => in_place(rng, &mut setup),
        };
        let is_log = matches!(store, StoreKind::Log(_));
        let cycle = if is_log && lose_segments(rng, &mut setup) { LONG_CYCLE } else { CYCLE };
        // A frozen cache is the other lives' matter.
        setup.protected &= !may_fail(&setup);
        let tree = TreeConfig {
            memory: one_of(rng, &[720 << 10, 720 << 10, 2 << 20]),
            operations: 16,
            dirty: 1 + rng.below(60) as u8,
        };
        let keys = pages * (1 + rng.below(3));
        let flushes = one_of(rng, &[5, 20, 100]);
        let depth = one_of(rng, &[1, 4, 15]);
        let pause = one_of(rng, &[0, 100_000, 5_000_000]);
        Host { setup, store, tree, keys, depth, flushes, pause, cycle }
    }

    /// In a line, for a report.
    pub fn in_words(&self) -> String {
        let (store, tree, drive) = (&self.store, &self.tree, self.setup.in_words());
        format!("{store:?}, {tree:?}, {} keys, {} at once; {drive}", self.keys, self.depth)
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
        planes: 1 + rng.below(2) as u32,
        page_bytes: one_of(rng, &[8192, 16384]),
    }
}

/// A drive of so many blocks below pblk, half full or more.
fn blocks(rng: &mut Rng, setup: &mut Setup, blocks: u64) {
    let dim = dimensions(rng);
    let geometry = Geometry::new(dim).expect("the ranges are those of a geometry");
    let row = u64::from(geometry.chunk_blocks() * geometry.total_pus());
    let wanted = blocks * 100 / (55 + rng.below(25));
    let chunks = wanted.div_ceil(row).max(3) as u32;
    let geometry = Geometry::new(with_reserve(Dimensions { chunks, ..dim }));
    setup.geometry = geometry.expect("the ranges are those of a geometry");
    setup.data_chunks = chunks;
    setup.bytes = blocks * BLOCK_BYTES;
}

/// A log with few segments, and how many pages it has.
fn log(rng: &mut Rng, setup: &mut Setup) -> (StoreKind, u64) {
    let segments = 20 + rng.below(8);
    let config = LogConfig {
        segment_blocks: 64,
        overhead: one_of(rng, &[20, 50, 100]),
        durable: true,
        checkpoint_every: one_of(rng, &[1_000_000, 50_000_000, 10_000_000_000]),
        batches: 1 + rng.below(6) as usize,
        collectors: 1 + rng.below(3) as usize,
        clock: no_clock,
    };
    // The heads and the map come first.
    blocks(rng, setup, (segments + 1) * 64);
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
    let probability = one_of(rng, &[3e-3, 1e-2, 3e-2]);
    rule.trigger = Trigger { probability, ..Trigger::default() };
    rule.permanent = true;
    true
}

/// A store in place with a journal of small batches, and how many pages it has.
fn in_place(rng: &mut Rng, setup: &mut Setup) -> (StoreKind, u64) {
    let config = InPlaceConfig { max_batch: 32 + rng.below(48) as u32, clock: no_clock };
    let pages = 200 + rng.below(400);
    let journal = (2 + 16 * (u64::from(config.max_batch) + 1)).next_multiple_of(64);
    blocks(rng, setup, journal + pages);
    (StoreKind::InPlace(config), pages)
}

/// The batched target, and how many pages it has.
fn batched(rng: &mut Rng, setup: &mut Setup) -> (StoreKind, u64) {
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
    // So many more chunks and rows, so that there is room.
    let of = |more: u32| {
        let (chunks, pages) = (dim.chunks + 4 * more, dim.pages + more / 4);
        let larger = Geometry::new(Dimensions { chunks, pages, ..dim });
        larger.expect("the ranges are those of a geometry")
    };
    let mut more = 0;
    while config(&of(more)).capacity(&of(more)) < 400 {
        more += 1;
    }
    setup.geometry = of(more);
    let mut config = config(&setup.geometry);
    config.pages = config.capacity(&setup.geometry) * (50 + rng.below(41)) / 100;
    // What a failed program leaves of such a drive is its own lives' matter.
    without_failures(setup);
    (setup.protected, setup.layers) = (false, None);
    (StoreKind::Batch(config), config.pages)
}

/// Lives the life of a plan.
pub fn live(plan: &Plan) -> Outcome {
    let broken = match plan.broken {
        Some(Break::Tree(broken)) => Some(broken),
        _ => None,
    };
    let world = World::new(Host::of(plan), broken, plan.traced);
    let mut life = Life { world, rng: Rng::new(plan.seed, 2), read_only: 0 };
    let violation = life.all(plan.cycles).err();
    let setup = life.world.host.setup.clone();
    let (hash, mut counts, trace) = life.world.end();
    counts.add_kinds(&setup);
    counts.lives = 1;
    counts.trees = Kind::of(true, counts.cycles);
    Outcome { counts, hash, violation, trace }
}

struct Life {
    world: World,
    rng: Rng,
    /// Cycles at whose end the drive took no writes, one after the other.
    read_only: u32,
}

impl Life {
    fn chance(&mut self, one_in: u64) -> bool {
        self.rng.below(one_in) == 0
    }

    fn counts(&mut self) -> &mut Counts {
        &mut self.world.counts
    }

    fn events(&mut self) -> u64 {
        let most = [4, 24, 120, 600][self.rng.below(4) as usize];
        self.rng.below(most)
    }

    fn all(&mut self, cycles: u64) -> Result<(), Violation> {
        self.start()?;
        for _ in 0..cycles {
            let before = self.world.collections();
            self.work(self.world.host.cycle)?;
            let collected = self.world.collections() > before;
            self.read_only = if self.world.is_told_of_end() { self.read_only + 1 } else { 0 };
            self.world.power_down();
            self.counts().cycles_collecting += u64::from(collected);
            self.recover()?;
            self.counts().cycles += 1;
            while self.chance(12) {
                let operations = self.rng.below(24);
                self.work(operations)?;
                self.world.power_down();
                self.recover()?;
            }
        }
        // The quiet end.
        self.world.flash.fail_sync(None);
        for _ in 0..CYCLE / 2 {
            self.one_more()?;
        }
        self.world.drain()?;
        self.world.check(true)
    }

    /// Power comes, perhaps goes in recovery, and all is checked.
    fn recover(&mut self) -> Result<(), Violation> {
        while self.chance(3) {
            let events = self.events();
            if self.world.power_up(events)? {
                self.world.power_down();
            }
        }
        self.start()?;
        self.world.check(false)?;
        if self.read_only > READ_ONLY_CYCLES {
            self.read_only = 0;
            self.world.replace();
            self.counts().replaced += 1;
            self.start()?;
        }
        Ok(())
    }

    fn start(&mut self) -> Result<(), Violation> {
        self.world.flash.fail_sync(None);
        for _ in 0..STARTS {
            if self.world.power_up(u64::MAX)? {
                return Ok(());
            }
            if self.world.is_hopeless() {
                self.world.replace();
                self.counts().replaced += 1;
            }
        }
        Err(Violation { block: None, words: format!("{STARTS} starts were refused") })
    }

    /// Work until power goes: at some event after `operations`.
    fn work(&mut self, operations: u64) -> Result<(), Violation> {
        if self.world.host.setup.troubles.on_disk && self.chance(12) {
            let syncs = self.rng.below(60);
            self.world.flash.fail_sync(Some(syncs));
        }
        for _ in 0..operations {
            if self.world.is_off() {
                return Ok(());
            }
            self.one_more()?;
        }
        if self.chance(8) && !self.world.drain()? {
            return Ok(());
        }
        let events = self.events();
        self.world.flash.power().lasts(events);
        for _ in 0..QUIET_OPERATIONS {
            if self.world.is_off() {
                break;
            }
            self.one_more()?;
        }
        Ok(())
    }

    /// One more operation, and perhaps some events or time.
    fn one_more(&mut self) -> Result<(), Violation> {
        while self.world.under_way() >= self.world.host.depth {
            if !self.world.step()? {
                return Ok(());
            }
        }
        if self.rng.below(1000) < self.world.host.flushes {
            self.world.flush()?;
        } else {
            match self.rng.below(20) {
                0..8 => self.write(1, 4)?,
                8..11 => self.write(1, 1)?,
                11..14 => {
                    let most = 2 + self.rng.below(5);
                    self.write(most, 3)?;
                }
                14..18 => {
                    let key = self.key();
                    self.world.get(key)?;
                }
                _ => {
                    let (key, count) = (self.key(), self.rng.below(60));
                    self.world.scan(key, count)?;
                }
            }
        }
        for _ in 0..self.rng.below(4) {
            if self.world.is_off() || self.world.under_way() == 0 {
                break;
            }
            self.world.step()?;
        }
        let pause = self.world.host.pause;
        if pause > 0 && self.chance(16) {
            let ns = self.rng.below(pause);
            self.world.pass(ns)?;
        }
        Ok(())
    }

    /// A put or delete of one key, or a batch of some: one in `deletes` deletes.
    fn write(&mut self, keys: u64, deletes: u64) -> Result<(), Violation> {
        let count = 1 + self.rng.below(keys);
        let writes = (0..count).map(|_| (self.key(), deletes > 1 && !self.chance(deletes)));
        let writes: Vec<(u64, bool)> = writes.collect();
        self.world.write(&writes)
    }

    fn key(&mut self) -> u64 {
        let keys = self.world.host.keys;
        let of = if self.chance(2) { keys.div_ceil(8) } else { keys };
        self.rng.below(of)
    }
}
