//! A drive whose units can be killed and whose power can be cut.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use device::Device;
use faults::{Below, CachedMedium, CheckedMedium, Fuse, PowerCut, Script, ScriptedMedium};
use flash::{Chunk, Geometry, Moved, Ppa, RamMedium, Timing};

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

/// A medium is broken in parts.
struct Fragile {
    /// What it was told of the chunks.
    chunks: Vec<Chunk>,
    geometry: Geometry,
    broken: Broken,
    random: u64,
}

fn fragile(geometry: &Geometry, below: impl PowerCut, broken: &Broken) -> ScriptedMedium {
    let chunks = vec![Chunk::default(); geometry.chunk_slots()];
    let script = Fragile { chunks, geometry: *geometry, broken: broken.clone(), random: 1 };
    ScriptedMedium::new(below, script)
}

/// A medium in memory that is broken in parts, and durable at once.
pub fn durable(geometry: &Geometry, kept: u32, broken: &Broken) -> ScriptedMedium {
    fragile(geometry, RamMedium::new(geometry, kept).unwrap(), broken)
}

/// The same with a cache, as a drive file: a cut keeps any part of what was not
/// flushed.
pub fn cached(geometry: &Geometry, kept: u32, broken: &Broken) -> ScriptedMedium {
    let cache = CachedMedium::new(geometry, RamMedium::new(geometry, kept).unwrap()).unwrap();
    fragile(geometry, CheckedMedium::new(geometry, cache).unwrap(), broken)
}

/// Power goes and comes back; `seed` decides what is left of what was not
/// flushed. Gives the chunks as they are found.
pub fn power_cut(medium: &mut ScriptedMedium, seed: u64) -> Vec<Chunk> {
    let mut chunks = medium.script::<Fragile>().chunks.clone();
    medium.power_cut(seed, &mut chunks);
    medium.script::<Fragile>().chunks.clone_from(&chunks);
    chunks
}

impl Fragile {
    fn is_dead(&self, at: Ppa) -> bool {
        self.broken.units.borrow().contains(&self.geometry.pu_index(at))
    }
}

impl Script for Fragile {
    fn program(&mut self, below: Below, at: Ppa, count: u32, data: &[u8], tags: &[u8]) -> Moved {
        self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(99);
        let fails = (self.random >> 33) % 1_000_000 < self.broken.programs.get();
        if fails || self.is_dead(at) {
            return Moved::Failed;
        }
        below.program(at, count, data, tags)
    }

    fn read(
        &mut self,
        below: Below,
        at: Ppa,
        count: u32,
        data: &mut [u8],
        tags: &mut [u8],
    ) -> Moved {
        let is_bad = self.broken.chunks.borrow().contains(&self.geometry.chunk_index(at));
        let reads = &self.broken.reads;
        let passes = reads.replace(reads.get().saturating_sub(1)) > 0;
        if is_bad || passes || self.is_dead(at) {
            data.fill(0xee);
            tags.fill(0xee);
            return Moved::Failed;
        }
        below.read(at, count, data, tags)
    }

    fn reset(&mut self, below: Below, chunk: Ppa) -> Moved {
        if self.is_dead(chunk) {
            return Moved::Failed;
        }
        self.broken.chunks.borrow_mut().remove(&self.geometry.chunk_index(chunk));
        below.reset(chunk)
    }

    fn describe(&mut self, below: Below, chunk_index: usize, chunk: &Chunk) {
        self.chunks[chunk_index] = *chunk;
        below.describe(chunk_index, chunk);
    }
}

/// The drive, which stops for ever after a number of events.
pub type Fused = Fuse<Device<ScriptedMedium>>;
pub type Shared = Rc<RefCell<Device<ScriptedMedium>>>;

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
