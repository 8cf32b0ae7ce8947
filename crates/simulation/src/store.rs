//! The media that hold a life's bytes.

use faults::{CachedMedium, CheckedMedium, FaultyMedium, PowerCut};
use flash::{Chunk, Medium, Moved, Ppa, RamMedium};
use port::OutOfMemory;

use crate::damaged::Damaged;
use crate::ondisk::OnDisk;
use crate::setup::Setup;

/// What holds the bytes.
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
pub(crate) enum Store {
    /// Durable at once.
    Ram(RamMedium),
    /// Durable when it was flushed: a cut keeps any part of the rest. What is given to it may
    /// be refused.
    Cached(Box<FaultyMedium<CheckedMedium<CachedMedium<RamMedium>>>>),
    /// Durable at once, and damaged now and then.
    Damaged(Box<Damaged>),
    /// In a drive file, durable when it was flushed.
    OnDisk(Box<OnDisk>),
}

/// Calls the same of whichever medium it is.
macro_rules! store {
    ($store:expr, $medium:ident => $call:expr) => {
        match $store {
            Store::Ram($medium) => $call,
            Store::Cached($medium) => $call,
            Store::Damaged($medium) => $call,
            Store::OnDisk($medium) => $call,
        }
    };
}

impl Store {
    pub fn new(setup: &Setup, seed: u64) -> Result<Store, OutOfMemory> {
        if setup.troubles.on_disk {
            return Ok(Store::OnDisk(Box::new(OnDisk::new(setup))));
        }
        let geometry = &setup.geometry;
        let ram = RamMedium::new(geometry, setup.kept)?;
        let damage = &setup.troubles.damage;
        if setup.troubles.cached {
            let cache = CheckedMedium::new(geometry, CachedMedium::new(geometry, ram)?)?;
            let faulty = FaultyMedium::new(geometry, cache, damage, seed);
            return Ok(Store::Cached(Box::new(faulty.expect("the rules are for media"))));
        }
        if !damage.is_empty() {
            return Ok(Store::Damaged(Box::new(Damaged::new(setup, ram, damage, seed)?)));
        }
        Ok(Store::Ram(ram))
    }

    /// Whether it takes nothing more, so that the host stops.
    #[inline]
    pub fn has_stopped(&self) -> bool {
        matches!(self, Store::OnDisk(medium) if medium.has_stopped())
    }

    /// Power went: what was not flushed is there or not, as `seed` says.
    pub fn cut(&mut self, seed: u64, chunks: &mut [Chunk]) {
        store!(self, medium => medium.power_cut(seed, chunks));
    }
}

impl Medium for Store {
    #[inline]
    fn kept(&self) -> u32 {
        store!(self, medium => medium.kept())
    }

    #[inline]
    fn program(&mut self, at: Ppa, count: u32, data: &[u8], tags: &[u8]) -> Moved {
        store!(self, medium => medium.program(at, count, data, tags))
    }

    #[inline]
    fn read(&mut self, at: Ppa, count: u32, data: &mut [u8], tags: &mut [u8]) -> Moved {
        store!(self, medium => medium.read(at, count, data, tags))
    }

    #[inline]
    fn reset(&mut self, chunk: Ppa) -> Moved {
        store!(self, medium => medium.reset(chunk))
    }

    fn barrier(&mut self) -> Moved {
        store!(self, medium => medium.barrier())
    }

    fn is_cached(&self) -> bool {
        store!(self, medium => medium.is_cached())
    }

    #[inline]
    fn describe(&mut self, chunk_index: usize, chunk: &Chunk) {
        store!(self, medium => medium.describe(chunk_index, chunk));
    }
}
