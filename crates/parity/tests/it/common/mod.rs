//! A drive whose units can be killed and whose power can be cut.
#![allow(dead_code)]

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use device::{Device, OpenChannel, VectorCmd, VectorDone};
use faults::{CachedMedium, CheckedMedium, PowerCut};
use flash::{Chunk, Geometry, Medium, Moved, Ppa, RamMedium, Timing};
use port::{Port, Ring, Time};

/// What is broken. Shared by the medium and the test.
#[derive(Clone, Default)]
pub struct Broken {
    /// Units of which nothing works any more.
    pub units: Rc<RefCell<BTreeSet<usize>>>,
    /// Chunks that cannot be read.
    pub chunks: Rc<RefCell<BTreeSet<usize>>>,
    /// Of a million programs, how many fail.
    pub programs: Rc<Cell<u64>>,
    /// So many reads fail from now on, and then no more.
    pub reads: Rc<Cell<u64>>,
}

/// What holds the bytes.
enum Store {
    /// Durable at once.
    Ram(Box<RamMedium>),
    /// Durable when it was flushed, as a drive file: a cut keeps any part of
    /// the rest.
    Cached(Box<CheckedMedium<CachedMedium<RamMedium>>>),
}

impl Store {
    fn medium(&mut self) -> &mut dyn Medium {
        match self {
            Store::Ram(medium) => medium.as_mut(),
            Store::Cached(medium) => medium.as_mut(),
        }
    }
}

/// A medium that is broken in parts.
pub struct Fragile {
    inner: Store,
    /// What it was told of the chunks.
    chunks: Vec<Chunk>,
    geometry: Geometry,
    broken: Broken,
    random: u64,
}

impl Fragile {
    pub fn new(geometry: &Geometry, kept: u32, broken: &Broken) -> Fragile {
        let inner = Store::Ram(Box::new(RamMedium::new(geometry, kept).unwrap()));
        let chunks = vec![Chunk::default(); geometry.chunk_slots()];
        Fragile { inner, chunks, geometry: *geometry, broken: broken.clone(), random: 1 }
    }

    /// The same, with a cache.
    pub fn cached(geometry: &Geometry, kept: u32, broken: &Broken) -> Fragile {
        let cache = CachedMedium::new(geometry, RamMedium::new(geometry, kept).unwrap()).unwrap();
        let checked = CheckedMedium::new(geometry, cache).unwrap();
        let inner = Store::Cached(Box::new(checked));
        Fragile { inner, ..Fragile::new(geometry, kept, broken) }
    }

    /// Power goes and comes back; `seed` decides what is left of what was not
    /// flushed. Gives the chunks as they are found.
    pub fn power_cut(&mut self, seed: u64) -> Vec<Chunk> {
        match &mut self.inner {
            Store::Ram(medium) => medium.power_cut(seed, &mut self.chunks),
            Store::Cached(medium) => medium.power_cut(seed, &mut self.chunks),
        }
        self.chunks.clone()
    }

    fn is_dead(&self, at: Ppa) -> bool {
        self.broken.units.borrow().contains(&self.geometry.pu_index(at))
    }
}

impl Medium for Fragile {
    fn kept(&self) -> u32 {
        match &self.inner {
            Store::Ram(medium) => medium.kept(),
            Store::Cached(medium) => medium.kept(),
        }
    }
    fn program(&mut self, at: Ppa, count: u32, data: &[u8], tags: &[u8]) -> Moved {
        self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(99);
        let fails = (self.random >> 33) % 1_000_000 < self.broken.programs.get();
        if fails || self.is_dead(at) {
            return Moved::Failed;
        }
        self.inner.medium().program(at, count, data, tags)
    }
    fn read(&mut self, at: Ppa, count: u32, data: &mut [u8], tags: &mut [u8]) -> Moved {
        let is_bad = self.broken.chunks.borrow().contains(&self.geometry.chunk_index(at));
        let reads = &self.broken.reads;
        let passes = reads.replace(reads.get().saturating_sub(1)) > 0;
        if is_bad || passes || self.is_dead(at) {
            data.fill(0xee);
            tags.fill(0xee);
            return Moved::Failed;
        }
        self.inner.medium().read(at, count, data, tags)
    }
    fn reset(&mut self, chunk: Ppa) -> Moved {
        if self.is_dead(chunk) {
            return Moved::Failed;
        }
        self.broken.chunks.borrow_mut().remove(&self.geometry.chunk_index(chunk));
        self.inner.medium().reset(chunk)
    }
    fn barrier(&mut self) -> Moved {
        self.inner.medium().barrier()
    }
    fn is_cached(&self) -> bool {
        matches!(self.inner, Store::Cached(_))
    }
    fn describe(&mut self, chunk_index: usize, chunk: &Chunk) {
        self.chunks[chunk_index] = *chunk;
        self.inner.medium().describe(chunk_index, chunk);
    }
}

pub type Shared = Rc<RefCell<Device<Fragile>>>;

/// A drive that stops for ever after a number of events.
pub struct Fuse {
    pub device: Shared,
    geometry: Geometry,
    timing: Timing,
    pub left: Rc<Cell<u64>>,
}

impl Fuse {
    pub fn new(device: Device<Fragile>, events: u64) -> Fuse {
        let (geometry, timing) = (*device.geometry(), device.timing().clone());
        let (device, left) = (Rc::new(RefCell::new(device)), Rc::new(Cell::new(events)));
        Fuse { device, geometry, timing, left }
    }
}

impl Port for Fuse {
    type Cmd = VectorCmd;
    type Done = VectorDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<VectorCmd>) {
        if self.left.get() > 0 {
            self.device.borrow_mut().submit(now, cmds);
        }
    }

    fn next_event(&self) -> Option<Time> {
        if self.left.get() > 0 { self.device.borrow().next_event() } else { None }
    }

    fn advance(&mut self, to: Time, done: &mut Ring<VectorDone>) {
        if self.left.get() > 0 {
            if self.device.borrow().next_event().is_some_and(|at| at <= to) {
                self.left.set(self.left.get() - 1);
            }
            self.device.borrow_mut().advance(to, done);
        }
    }
}

impl OpenChannel for Fuse {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }
    fn timing(&self) -> &Timing {
        &self.timing
    }
    fn kept(&self) -> u32 {
        self.device.borrow().kept()
    }
    fn chunk(&self, chunk_index: usize) -> Chunk {
        self.device.borrow().chunk(chunk_index)
    }
    fn depth(&self) -> usize {
        self.device.borrow().depth()
    }
    fn is_cached(&self) -> bool {
        self.device.borrow().is_cached()
    }
}

/// Times that differ, so that rows end out of order.
pub fn timing() -> Timing {
    Timing {
        read: vec![50_000, 70_000],
        program: vec![600_000, 900_000],
        erase: 3_000_000,
        command: 100,
        channel_rate: 400_000_000,
        ..Timing::default()
    }
}

/// A random sequence.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}
