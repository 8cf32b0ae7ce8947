//! pblk over parity: it knows nothing of it.
//!
//! A lost chunk and a lost unit cost no block, and the drive goes on; and what
//! was flushed survives any cut.

use crate::common;
use std::rc::Rc;

use crate::common::{Broken, Fused, Random, cached, durable, power_cut, timing};
use device::{Device, OpenChannel};
use faults::ScriptedMedium;
use flash::{Dimensions, Geometry};
use parity::Parity;
use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Status, Time};
use proptest::prelude::*;
use targets::pblk::PblkError;
use targets::{Pblk, PblkConfig, with_reserve};

const BLOCK: u64 = 4096;
const DATA_CHUNKS: u32 = 6;

type Drive = Pblk<Parity<Fused>>;

/// The write of a block: its value, when it began and ended, and whether it is
/// durable.
#[derive(Clone, Copy, Debug)]
struct Write {
    value: u64,
    begin: u64,
    end: u64,
    durable: bool,
}

const SETTLED: Write = Write { value: 0, begin: 0, end: 0, durable: true };

#[derive(Clone, Copy, Debug)]
struct Setup {
    dim: Dimensions,
    width: u32,
    /// Of all blocks that hold data, in percent.
    fill: u64,
    /// The medium has a cache.
    cached: bool,
    seed: u64,
}

struct Bench {
    setup: Setup,
    geometry: Geometry,
    broken: Broken,
    off: Option<ScriptedMedium>,
    random: Random,
    clock: u64,
    blocks: Vec<Vec<Write>>,
    collections: u64,
    /// Reads may fail, and how many did.
    may_fail: bool,
    errors: u64,
}

struct Run {
    drive: Drive,
    device: common::Shared,
    fuse: Rc<std::cell::Cell<u64>>,
    now: Time,
    queue: Ring<BlockReq>,
    done: Ring<BlockDone>,
    open: Vec<Option<(BlockOp, usize, u64)>>,
}

impl Bench {
    fn new(setup: Setup) -> Bench {
        let geometry = Geometry::new(setup.dim).unwrap();
        let broken = Broken::default();
        let new = if setup.cached { cached } else { durable };
        let (off, random) = (Some(new(&geometry, 8, &broken)), Random(setup.seed));
        let (clock, collections) = (1, 0);
        let (blocks, may_fail, errors) = (Vec::new(), false, 0);
        let mut bench = Bench {
            setup,
            geometry,
            broken,
            off,
            random,
            clock,
            blocks,
            collections,
            may_fail,
            errors,
        };
        bench.blocks = vec![vec![SETTLED]; (bench.config().bytes / BLOCK) as usize];
        bench
    }

    fn config(&self) -> PblkConfig {
        let units = u64::from(self.geometry.total_pus() / self.setup.width);
        let chunk = u64::from(self.geometry.chunk_blocks() * (self.setup.width - 1));
        let blocks = u64::from(DATA_CHUNKS) * units * chunk;
        let bytes = blocks * self.setup.fill / 100 * BLOCK;
        PblkConfig::new(bytes, DATA_CHUNKS, 7)
    }

    fn recover(&mut self, events: u64) -> Option<Run> {
        let mut medium = self.off.take().expect("power is off");
        let chunks = power_cut(&mut medium, self.random.below(u64::MAX));
        let device = Device::restore(&self.geometry, &timing(), medium, &chunks).unwrap();
        let fuse = Fused::new(device, events);
        let (device, left) = (fuse.drive.clone(), fuse.left.clone());
        let below = Parity::new(fuse, self.setup.width).unwrap();
        match Pblk::recover(below, self.config(), Time::ZERO) {
            Ok((drive, now)) => {
                let (queue, done) = (Ring::new(64), Ring::new(64));
                Some(Run { drive, device, fuse: left, now, queue, done, open: vec![None; 24] })
            }
            Err(PblkError::Recovery(Status::ABORTED)) if left.get() == 0 => {
                self.take(device);
                None
            }
            Err(e) => panic!("{e}"),
        }
    }

    fn take(&mut self, device: common::Shared) {
        let device = Rc::into_inner(device).expect("the drive is gone").into_inner();
        self.off = Some(device.cut());
    }

    fn cut(&mut self, run: Run) {
        self.collections += run.drive.counters().collections;
        drop(run.drive);
        self.take(run.device);
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Lets the next thing happen. False when the power is gone.
    fn step(&mut self, run: &mut Run) -> bool {
        let Some(at) = run.drive.next_event() else {
            assert_eq!(run.fuse.get(), 0, "the drive hangs: {:?}", run.drive.counters());
            return false;
        };
        run.now = run.now.max(at);
        run.drive.advance(run.now, &mut run.done);
        if run.fuse.get() == 0 {
            return false;
        }
        while let Some(done) = run.done.pop() {
            let (op, block, begin) = run.open[done.id as usize].take().expect("completes once");
            let end = self.tick();
            if self.has_failed(&done) {
                continue;
            }
            match op {
                BlockOp::Flush => {
                    let ended = self.blocks.iter_mut().flatten().filter(|w| w.end < begin);
                    ended.for_each(|w| w.durable = true);
                }
                BlockOp::Read => self.check(block, done.buffer.bytes(), begin),
                _ => {
                    let writes = &mut self.blocks[block];
                    writes.iter_mut().find(|w| w.begin == begin).expect("it began").end = end;
                }
            }
        }
        run.drive.submit(run.now, &mut run.queue);
        true
    }

    /// Whether a read failed that may; others do not.
    fn has_failed(&mut self, done: &BlockDone) -> bool {
        let has_failed = self.may_fail && done.status == Status::UNRECOVERED_READ;
        assert!(has_failed || done.status.is_ok(), "{done:?}");
        self.errors += u64::from(has_failed);
        has_failed
    }

    /// What a read gave while others may be under way.
    fn check(&self, block: usize, bytes: &[u8], begin: u64) {
        let value = u64::from_le_bytes(bytes.try_into().unwrap());
        let writes = &self.blocks[block];
        let old = |w: &Write| writes.iter().any(|d| d.begin > w.end && d.end < begin);
        let allowed = writes.iter().any(|w| w.value == value && !old(w));
        assert!(allowed, "block {block}: {value}, {writes:?}");
    }

    fn work(&mut self, run: &mut Run) -> bool {
        let Some(slot) = run.open.iter().position(Option::is_none) else { return self.step(run) };
        let op = match self.random.below(100) {
            0..70 => BlockOp::Write,
            70..76 => BlockOp::Trim,
            76..80 => BlockOp::Flush,
            _ => BlockOp::Read,
        };
        let block = self.random.below(self.blocks.len() as u64) as usize;
        self.begin(run, slot, op, block);
        (0..self.random.below(6)).all(|_| run.drive.next_event().is_none() || self.step(run))
    }

    fn begin(&mut self, run: &mut Run, slot: usize, op: BlockOp, block: usize) {
        let begin = self.tick();
        let data = matches!(op, BlockOp::Read | BlockOp::Write);
        let mut buffer = Buffer::zeroed(if data { 8 } else { 0 }).unwrap();
        let value = if op == BlockOp::Write { begin } else { 0 };
        buffer.bytes_mut().copy_from_slice(&value.to_le_bytes()[..if data { 8 } else { 0 }]);
        if matches!(op, BlockOp::Write | BlockOp::Trim) {
            let write = Write { value, begin, end: u64::MAX, durable: false };
            self.blocks[block].push(write);
        }
        run.open[slot] = Some((op, block, begin));
        let (offset, len) =
            if op == BlockOp::Flush { (0, 0) } else { (block as u64 * BLOCK, BLOCK) };
        run.queue.push(BlockReq::new(slot as u64, op, offset, len, buffer)).unwrap();
        run.drive.submit(run.now, &mut run.queue);
    }

    fn quiet(&mut self, run: &mut Run) {
        while run.open.iter().any(Option::is_some) {
            assert!(self.step(run));
        }
    }

    /// Reads all; after a cut the values found are the only ones.
    fn read_all(&mut self, run: &mut Run, after_cut: bool) {
        self.quiet(run);
        for block in 0..self.blocks.len() {
            let buffer = Buffer::zeroed(8).unwrap();
            let req = BlockReq::new(0, BlockOp::Read, block as u64 * BLOCK, BLOCK, buffer);
            run.queue.push(req).unwrap();
            run.drive.submit(run.now, &mut run.queue);
            let done = loop {
                if let Some(done) = run.done.pop() {
                    break done;
                }
                run.now = run.now.max(run.drive.next_event().expect("a read ends"));
                run.drive.advance(run.now, &mut run.done);
            };
            if self.has_failed(&done) {
                continue;
            }
            let value = u64::from_le_bytes(done.buffer.bytes().try_into().unwrap());
            let writes = &self.blocks[block];
            let stands =
                |w: &Write| !writes.iter().any(|d| (d.durable || !after_cut) && d.begin > w.end);
            let allowed = writes.iter().any(|w| w.value == value && stands(w));
            assert!(allowed, "block {block}: {value}, {writes:?}");
            self.blocks[block] = vec![Write { value, ..SETTLED }];
        }
    }

    fn write_all(&mut self, run: &mut Run) {
        for block in 0..self.blocks.len() {
            self.quiet(run);
            self.begin(run, 0, BlockOp::Write, block);
        }
        self.begin(run, 1, BlockOp::Flush, 0);
        self.quiet(run);
    }
}

fn dim(groups: u32, pus: u32, pages: u32, width: u32) -> Dimensions {
    let (chunks, planes, page_bytes) = (DATA_CHUNKS, 2, 8192);
    let data = Dimensions { groups, pus, chunks, pages, planes, page_bytes, pages_at_once: 1 };
    // What is reserved depends on what pblk sees.
    let seen = Dimensions {
        groups: (groups * pus / width).max(1),
        pus: 1,
        pages: pages * (width - 1),
        ..data
    };
    Dimensions { chunks: with_reserve(seen).chunks, ..data }
}

proptest! {
    #[test]
    fn what_was_flushed_survives_any_cut(
        shape in prop_oneof![Just((3, 1, 3)), Just((4, 1, 4)), Just((4, 2, 4)), Just((2, 3, 3)), Just((5, 1, 5))],
        pages in 2u32..5,
        fill in 60u64..85,
        cached: bool,
        seed: u64,
        cuts in 1u64..5,
    ) {
        let (groups, pus, width) = shape;
        let mut bench = Bench::new(Setup { dim: dim(groups, pus, pages, width), width, fill, cached, seed });
        for _ in 0..=cuts {
            while bench.random.below(3) == 0 {
                let events = bench.random.below(60);
                if let Some(run) = bench.recover(events) {
                    run.fuse.set(0);
                    bench.cut(run);
                }
            }
            let mut run = bench.recover(u64::MAX).expect("no cut");
            bench.read_all(&mut run, true);
            run.fuse.set(1 + bench.random.below(2000));
            while bench.work(&mut run) {}
            bench.cut(run);
        }
        let mut run = bench.recover(u64::MAX).expect("no cut");
        bench.read_all(&mut run, true);
        for _ in 0..100 {
            assert!(bench.work(&mut run));
        }
        bench.read_all(&mut run, false);
    }
}

/// One chunk can no longer be read: nothing is lost, the superblock is
/// collected, and the drive goes on.
#[test]
fn a_lost_chunk_costs_nothing() {
    let setup = Setup { dim: dim(4, 1, 6, 4), width: 4, fill: 70, cached: false, seed: 3 };
    let mut bench = Bench::new(setup);
    let mut run = bench.recover(u64::MAX).unwrap();
    bench.write_all(&mut run);
    let full: Vec<usize> = {
        let device = run.device.borrow();
        let chunks = device.chunks().iter().enumerate();
        let full = chunks.filter(|(_, c)| c.programmed == bench.geometry.chunk_blocks());
        full.map(|(index, _)| index).collect()
    };
    // One that has data that count, and not parity.
    for chunk in full {
        *bench.broken.chunks.borrow_mut() = [chunk].into();
        bench.read_all(&mut run, false);
        if run.drive.device().counters().rebuilt > 0 {
            break;
        }
    }
    assert!(run.drive.device().counters().rebuilt > 0);
    for _ in 0..4000 {
        assert!(bench.work(&mut run));
    }
    bench.read_all(&mut run, false);
    let counters = run.drive.counters();
    assert!(bench.broken.chunks.borrow().is_empty(), "it was collected and erased");
    assert_eq!(counters.lost, 0);
    assert!(counters.refreshed > 0, "{counters:?}");
}

/// A whole unit is lost: only blocks of stripes without parity may be, and the
/// drive goes on with the other units.
#[test]
fn a_lost_unit_costs_little() {
    let setup = Setup { dim: dim(4, 4, 6, 4), width: 4, fill: 35, cached: false, seed: 3 };
    let mut bench = Bench::new(setup);
    let mut run = bench.recover(u64::MAX).unwrap();
    bench.write_all(&mut run);
    for _ in 0..2000 {
        assert!(bench.work(&mut run));
    }
    bench.quiet(&mut run);
    // Not one of those with roots.
    let unit = bench.geometry.pus_channels_first().nth(9).unwrap();
    bench.broken.units.borrow_mut().insert(unit);
    bench.may_fail = true;
    bench.read_all(&mut run, false);
    let lost = bench.errors;
    // User's, collection's and own, of one row each.
    assert!(lost <= 3 * u64::from(bench.geometry.row_blocks()), "{lost}");
    let user = run.drive.counters().user;
    for _ in 0..6000 {
        assert!(bench.work(&mut run));
    }
    bench.errors = 0;
    bench.read_all(&mut run, false);
    let counters = run.drive.counters();
    assert!(bench.errors <= lost && counters.user > user + 2000, "{counters:?}");
    assert!(run.drive.device().counters().rebuilt > 0 && counters.retired > 0);
    println!("{lost} blocks of {} lost, then {:?}", bench.blocks.len(), counters);
}

/// What parity costs: capacity and writes.
#[test]
fn it_costs_one_in_width() {
    for width in [4u32, 8] {
        let setup = Setup { dim: dim(4, 2, 8, width), width, fill: 80, cached: false, seed: 3 };
        let mut bench = Bench::new(setup);
        let mut run = bench.recover(u64::MAX).unwrap();
        bench.write_all(&mut run);
        for _ in 0..20_000 {
            assert!(bench.work(&mut run));
        }
        bench.quiet(&mut run);
        let above = run.drive.counters();
        let below = run.device.borrow().counters();
        let capacity =
            run.drive.device().geometry().blocks() as f64 / bench.geometry.blocks() as f64;
        let written = above.user + above.gc + above.padding + above.metadata;
        let factor = below.blocks_programmed as f64 / written as f64;
        let expected = f64::from(width) / f64::from(width - 1);
        let user = above.user as f64;
        println!(
            "width {width}: capacity {capacity:.3}; programmed below {factor:.3} times what pblk \
             writes ({expected:.3}); write amplification of pblk {:.2}, in all {:.2}",
            written as f64 / user,
            below.blocks_programmed as f64 / user,
        );
        assert!((capacity - 1.0 / expected).abs() < 1e-9);
        // The last stripes have no parity yet.
        assert!(factor <= expected && factor > expected * 0.97, "{factor} of {expected}");
    }
}
