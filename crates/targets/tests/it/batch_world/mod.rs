//! A batched target, a model of it, and power that goes.
//!
//! Batches are acknowledged in the order in which they were taken, so what a
//! drive holds is always a state S(k): the first k batches, and nothing of the
//! others. A value that is read says which k it can be of; the rules of section
//! 3.1 of the paper say which k are allowed.

mod fuse;
mod model;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};
use std::rc::Rc;

use device::{Device, OpenChannel};
use faults::{
    Access, CachedMedium, CheckedMedium, FaultPort, FaultRule, FaultyMedium, Fuse, MediumFault,
    MediumRule, PowerCut, ScriptedMedium, Span, Trigger,
};
use flash::{Chunk, Dimensions, Geometry, RamMedium, Timing};
use port::{BatchDone, BatchOp, BatchReq, Buffer, Desc, Port, Ring, Status, Time};
use targets::batch::BatchError;
use targets::{Batch, BatchConfig};

use fuse::LogFuse;
pub use model::Model;

pub const BLOCK: usize = 4096;

/// Numbers from a seed.
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n.max(1)
    }
}

/// How a world is set up.
#[derive(Clone, Debug)]
pub struct Setup {
    pub dim: Dimensions,
    pub timing: Timing,
    pub config: BatchConfig,
    /// The logical pages, in percent of what there is room for.
    pub fill: u64,
    pub seed: u64,
    /// What fails from power on.
    pub rules: Vec<FaultRule>,
}

impl Setup {
    /// A small drive.
    pub fn small(seed: u64) -> Setup {
        let dim =
            Dimensions { groups: 2, pus: 2, chunks: 32, pages: 8, planes: 2, ..Dimensions::LEAST };
        Setup::of(dim, seed)
    }

    /// One with 200 pages of MAP.
    pub fn large() -> Setup {
        let page_bytes = 8192;
        let more = Dimensions { groups: 4, chunks: 64, pages: 64, page_bytes, ..Dimensions::LEAST };
        Setup::of(Dimensions { pus: 2, planes: 2, ..more }, 5)
    }

    pub fn of(dim: Dimensions, seed: u64) -> Setup {
        let geometry = Geometry::new(dim).unwrap();
        let config = BatchConfig {
            max_pages: 40,
            batches: 4,
            depth: 64,
            log_rows: 12,
            checkpoint_every: 0,
            ..BatchConfig::for_geometry(&geometry, 0.1)
        };
        let timing = Timing {
            read: vec![50_000],
            program: vec![600_000, 900_000],
            erase: 3_000_000,
            command: 100,
            channel_rate: 400_000_000,
            ..Timing::default()
        };
        let setup = Setup { dim, timing, config, fill: 100, seed, rules: Vec::new() };
        setup.filled(100)
    }

    /// The same with so many percent of the pages that there is room for.
    pub fn filled(mut self, fill: u64) -> Setup {
        let geometry = self.geometry();
        self.fill = fill;
        self.config.pages = (self.config.capacity(&geometry) * fill / 100).max(1);
        self
    }

    pub fn geometry(&self) -> Geometry {
        Geometry::new(self.dim).unwrap()
    }
}

/// What survives a cut, and what is known of it.
pub struct World {
    pub setup: Setup,
    pub geometry: Geometry,
    medium: Option<ScriptedMedium>,
    pub chunks: Vec<Chunk>,
    pub model: Model,
    pub random: Random,
    /// LSNs that recoveries have left out.
    pub void: Vec<RangeInclusive<u64>>,
    pub seen: BTreeMap<&'static str, u64>,
    /// Batches acknowledged.
    pub batches: u64,
    pub fail_log: Rc<Cell<u32>>,
}

type Shared = Rc<RefCell<Device<ScriptedMedium>>>;

/// A request inside.
#[derive(Clone)]
enum Open {
    Batch,
    Read { lpid: u64, floor: u64 },
    Flush { acked: u64 },
}

/// A target at work.
pub struct Run {
    pub target: Batch<Box<dyn OpenChannel>>,
    device: Shared,
    pub fuse: Rc<Cell<u64>>,
    pub now: Time,
    open: BTreeMap<u64, Open>,
    ids: u64,
    queue: Ring<BatchReq>,
    done: Ring<BatchDone>,
    /// Batches that were not acknowledged, with their status.
    pub failed: Vec<Status>,
    /// Events since something ended.
    idle: u32,
}

/// Events of which nothing comes, after which a target is said to hang.
const PATIENCE: u32 = 1_000_000;

/// A medium in memory of which blocks go bad.
pub type Faulty = FaultyMedium<ScriptedMedium>;

pub fn ram(geometry: &Geometry) -> RamMedium {
    RamMedium::new(geometry, 8).unwrap()
}

pub fn faulty(geometry: &Geometry) -> Faulty {
    FaultyMedium::new(geometry, ScriptedMedium::ram(geometry, 8, ()), &[], 1).unwrap()
}

/// A cache that loses and reorders, and a checksum of each block: a torn block is
/// an error.
pub fn cached(geometry: &Geometry) -> CheckedMedium<CachedMedium<RamMedium>> {
    CheckedMedium::new(geometry, CachedMedium::new(geometry, ram(geometry)).unwrap()).unwrap()
}

/// Blocks that cannot be read.
pub fn unreadable(blocks: Range<u64>) -> MediumRule {
    let trigger = Trigger { span: Some(Span::Ppa(blocks)), ..Trigger::default() };
    MediumRule { fault: MediumFault::Fail { on: Access::Read, permanent: false }, trigger }
}

impl World {
    /// A new drive.
    pub fn new<M: PowerCut>(setup: Setup, medium: impl Fn(&Geometry) -> M) -> World {
        let medium = ScriptedMedium::new(medium(&setup.geometry()), ());
        World::with(setup, medium)
    }

    fn with(setup: Setup, medium: ScriptedMedium) -> World {
        let geometry = setup.geometry();
        let device = Device::new(&geometry, &setup.timing, medium).unwrap();
        let chunks = device.chunks().to_vec();
        World {
            geometry,
            medium: Some(device.cut()),
            chunks,
            model: Model::new(setup.config.pages),
            random: Random(setup.seed),
            void: Vec::new(),
            seen: BTreeMap::new(),
            batches: 0,
            fail_log: Rc::default(),
            setup,
        }
    }

    pub fn note(&mut self, what: &'static str, count: u64) {
        *self.seen.entry(what).or_default() += count;
    }

    /// The medium, while power is off.
    pub fn medium(&mut self) -> &mut ScriptedMedium {
        self.medium.as_mut().expect("power is off")
    }

    /// What goes bad of it, if it is [`Faulty`], from now on.
    pub fn set_rules(&mut self, rules: &[MediumRule]) {
        self.medium().below_as::<Faulty>().set_rules(rules, 5).unwrap();
    }

    /// Power comes, and goes again in recovery after `events`: then `None`.
    pub fn try_power_on(&mut self, events: u64) -> Result<Option<Run>, BatchError> {
        let medium = self.medium.take().expect("power is off");
        let device =
            Device::restore(&self.geometry, &self.setup.timing, medium, &self.chunks).unwrap();
        let below = Fuse::new(device, events);
        let (device, fuse) = (below.drive.clone(), below.left.clone());
        let below = LogFuse { below, fail_log: self.fail_log.clone(), failing: Vec::new() };
        let seed = self.random.below(1 << 30);
        let below = FaultPort::new(below, &self.setup.rules, seed).unwrap();
        let below: Box<dyn OpenChannel> = Box::new(below);
        let opened = Batch::open(below, self.setup.config, Time::ZERO);
        let target = match opened {
            Ok(target) => target,
            Err(e) => {
                self.take_medium(device);
                return if fuse.get() == 0 { Ok(None) } else { Err(e) };
            }
        };
        if fuse.get() == 0 {
            drop(target);
            self.take_medium(device);
            return Ok(None);
        }
        let recovery = target.recovery().clone();
        self.note("recoveries", u64::from(!recovery.fresh));
        self.note("verified", recovery.verified);
        self.note("dropped", recovery.dropped);
        self.void.extend(recovery.unused);
        let depth = self.setup.config.depth;
        Ok(Some(Run {
            now: target.now(),
            target,
            device,
            fuse,
            open: BTreeMap::new(),
            ids: 0,
            queue: Ring::new(depth),
            done: Ring::new(depth),
            failed: Vec::new(),
            idle: 0,
        }))
    }

    pub fn power_on(&mut self, events: u64) -> Option<Run> {
        self.try_power_on(events).unwrap()
    }

    fn take_medium(&mut self, device: Shared) {
        let device = Rc::try_unwrap(device).ok().expect("the target is gone").into_inner();
        self.chunks = device.chunks().to_vec();
        let mut medium = device.cut();
        let seed = self.random.below(1 << 30);
        medium.power_cut(seed, &mut self.chunks);
        self.medium = Some(medium);
    }

    /// Power goes.
    pub fn power_off(&mut self, run: Run) {
        let Run { target, device, .. } = run;
        drop(target);
        self.take_medium(device);
    }

    /// After a cut: reads all, compares with the model and with the TAGs.
    pub fn check(&mut self, run: &mut Run) {
        if let Err(e) = run.target.verify(&self.void) {
            panic!("{e}; void {:?}, recovery {:?}", self.void, run.target.recovery());
        }
        run.now = run.target.now();
        let values: Vec<u64> =
            (0..self.setup.config.pages).map(|lpid| run.value(self, lpid)).collect();
        self.model.settle(&values);
    }

    /// A random batch, read or flush. Of the pages the first quarter are hot.
    pub fn submit_random(&mut self, run: &mut Run) {
        let pages = self.setup.config.pages;
        match self.random.below(100) {
            0..45 => {
                let most = u64::from(self.setup.config.max_pages);
                let most = if self.random.below(4) == 0 { most } else { most.min(8) };
                let count = 1 + self.random.below(most);
                let lpids: Vec<u64> = (0..count).map(|_| self.page(pages)).collect();
                let given_up = self.some_to_give_up(&lpids, most as usize);
                run.write_and_give_up(self, &lpids, &given_up);
            }
            45..95 => {
                let lpid = self.page(pages);
                run.read(self, lpid);
            }
            _ => run.flush(self),
        }
    }

    /// Pages that a batch which writes others may give up; of most batches none.
    fn some_to_give_up(&mut self, written: &[u64], most: usize) -> Vec<u64> {
        let (pages, mut given_up) = (self.setup.config.pages, Vec::new());
        if self.random.below(8) == 0 {
            let count = self.random.below(4).min((most - written.len()) as u64);
            given_up.extend((0..count).map(|_| self.page(pages)));
            given_up.sort_unstable();
            given_up.dedup();
            given_up.retain(|&lpid| !written.contains(&lpid) && self.model.may_give_up(lpid));
        }
        given_up
    }

    fn page(&mut self, pages: u64) -> u64 {
        if self.random.below(2) == 0 {
            self.random.below(pages.div_ceil(8))
        } else {
            self.random.below(pages)
        }
    }

    /// Random work until `batches` are taken or power goes.
    pub fn work(&mut self, run: &mut Run, batches: u64) {
        let end = self.model.taken + batches;
        while self.model.taken < end && run.is_on() {
            for _ in 0..self.random.below(6) {
                self.submit_random(run);
            }
            let steps = 1 + self.random.below(4);
            for _ in 0..steps {
                let goes_on = run.step(self) || run.open.is_empty() || !run.is_on();
                assert!(goes_on, "{} requests hang: {}", run.open.len(), run.state());
            }
        }
    }
}

/// The value of a page's bytes.
pub fn value_of(bytes: &[u8]) -> u64 {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let value = word(0);
    if bytes.len() > 8 {
        assert_eq!(word(bytes.len() - 8), value, "a page of two parts");
    }
    value
}

pub fn put_value(bytes: &mut [u8], value: u64) {
    let end = bytes.len() - 8;
    bytes[..8].copy_from_slice(&value.to_le_bytes());
    bytes[end..].copy_from_slice(&value.to_le_bytes());
}

/// The buffer of a batch.
pub fn batch_buffer(lpids: &[u64], values: &[u64], kept: usize) -> Buffer {
    giving_buffer(lpids, values, &[], kept)
}

/// The buffer of a batch that also gives pages up.
fn giving_buffer(lpids: &[u64], values: &[u64], given_up: &[u64], kept: usize) -> Buffer {
    let mut buffer = Buffer::zeroed(BLOCK + lpids.len() * kept).unwrap();
    Desc::write(lpids, given_up, buffer.bytes_mut());
    for (page, &value) in buffer.bytes_mut()[BLOCK..].chunks_exact_mut(kept).zip(values) {
        put_value(page, value);
    }
    buffer
}

impl Run {
    pub fn is_on(&self) -> bool {
        self.fuse.get() > 0
    }

    pub fn state(&self) -> String {
        let target = &self.target;
        let (counters, fault) = (target.counters(), target.fault());
        let (rows, checkpoints) = (target.log_rows(), target.is_checkpointing());
        format!("{counters:?}, fault {fault:?}, {rows} rows of log, checkpointing {checkpoints}")
    }

    /// Nothing of the medium, which is [`Faulty`], goes bad any more.
    pub fn heal(&self) {
        let mut device = self.device.borrow_mut();
        device.medium_mut().below_as::<Faulty>().set_rules(&[], 5).unwrap();
    }

    fn kept(&self) -> usize {
        self.target.shape().kept as usize
    }

    fn submit(&mut self, op: BatchOp, lpid: u64, buffer: Buffer) -> Option<u64> {
        self.ids += 1;
        let id = self.ids;
        self.queue.push(BatchReq { id, op, lpid, buffer }).unwrap();
        self.target.submit(self.now, &mut self.queue);
        // What was refused is not kept here.
        self.queue.pop().is_none().then_some(id)
    }

    /// Submits a batch, if there is room.
    pub fn write(&mut self, world: &mut World, lpids: &[u64]) -> bool {
        self.write_and_give_up(world, lpids, &[])
    }

    /// The same, of a batch that also gives up pages which it does not write.
    fn write_and_give_up(&mut self, world: &mut World, lpids: &[u64], given_up: &[u64]) -> bool {
        let values = world.model.take(lpids);
        world.model.give_up(given_up);
        let buffer = giving_buffer(lpids, &values, given_up, self.kept());
        match self.submit(BatchOp::WriteBatch, 0, buffer) {
            Some(id) => {
                self.open.insert(id, Open::Batch);
                true
            }
            None => {
                world.model.untake(lpids, given_up);
                false
            }
        }
    }

    pub fn read(&mut self, world: &mut World, lpid: u64) {
        let floor = world.model.floor();
        let buffer = Buffer::zeroed(self.kept()).unwrap();
        if let Some(id) = self.submit(BatchOp::Read, lpid, buffer) {
            self.open.insert(id, Open::Read { lpid, floor });
        }
    }

    pub fn flush(&mut self, world: &mut World) {
        let acked = world.model.taken;
        if let Some(id) = self.submit(BatchOp::Flush, 0, Buffer::empty()) {
            self.open.insert(id, Open::Flush { acked });
        }
    }

    /// The next event, and what ends in it. False where there is none.
    fn turn(&mut self) -> bool {
        let Some(at) = self.target.next_event() else { return false };
        self.now = self.now.max(at);
        self.target.advance(self.now, &mut self.done);
        self.idle = if self.done.is_empty() { self.idle + 1 } else { 0 };
        assert!(self.idle < PATIENCE, "events without end: {}", self.state());
        true
    }

    /// The next event. False where there is none.
    pub fn step(&mut self, world: &mut World) -> bool {
        if !self.turn() {
            return false;
        }
        while let Some(done) = self.done.pop() {
            self.complete(world, done);
        }
        true
    }

    fn complete(&mut self, world: &mut World, done: BatchDone) {
        assert_eq!(done.at, self.now, "at the event's own time");
        match self.open.remove(&done.id).expect("it was submitted") {
            Open::Batch if done.status.is_ok() => {
                world.model.acked += 1;
                world.batches += 1;
            }
            Open::Batch => self.failed.push(done.status),
            Open::Read { lpid, floor } => {
                let value = match done.status {
                    Status::UNWRITTEN => 0,
                    status if status.is_ok() => value_of(done.buffer.bytes()),
                    status => panic!("a read of {lpid}: {status}"),
                };
                world.model.read(lpid, value, floor);
                world.note("reads", 1);
            }
            Open::Flush { acked } => {
                let ended = world.model.acked + self.failed.len() as u64;
                assert!(ended >= acked, "a flush ended before the batches before it");
            }
        }
    }

    /// Until nothing is inside, or power goes.
    pub fn drain(&mut self, world: &mut World) {
        while !self.open.is_empty() && self.is_on() {
            let went_on = self.step(world);
            let hang = !went_on && self.is_on();
            assert!(!hang, "{} requests hang: {}", self.open.len(), self.state());
        }
        while self.is_on() && self.step(world) {}
    }

    /// A request, and what becomes of it.
    pub fn ask(&mut self, op: BatchOp, lpid: u64, buffer: Buffer) -> BatchDone {
        let id = self.submit(op, lpid, buffer).expect("nothing is inside");
        loop {
            if let Some(done) = self.done.pop() {
                assert_eq!(done.id, id, "nothing else is inside");
                return done;
            }
            assert!(self.turn(), "a request hangs: {}", self.state());
        }
    }

    /// What a page has.
    pub fn value(&mut self, world: &mut World, lpid: u64) -> u64 {
        let buffer = Buffer::zeroed(self.kept()).unwrap();
        let id = self.submit(BatchOp::Read, lpid, buffer).expect("nothing is inside");
        loop {
            assert!(self.turn(), "a read hangs: {}", self.state());
            while let Some(done) = self.done.pop() {
                if done.id != id {
                    self.complete(world, done);
                } else if done.status == Status::UNWRITTEN {
                    return 0;
                } else {
                    assert!(done.status.is_ok(), "page {lpid}: {}", done.status);
                    return value_of(done.buffer.bytes());
                }
            }
        }
    }
}
