//! Whole drives in virtual time: an open-channel device with the times of flash,
//! for pblk or the target with batched writes above it.

use std::cell::Cell;
use std::rc::Rc;

use device::Device;
use flash::{Dimensions, Geometry, RamMedium, Timing};
use port::{BLOCK_BYTES, Port, Ring, Time};
use targets::{BatchConfig, PblkConfig, with_reserve};

use super::Fuse;

pub type Flash = Device<RamMedium>;

/// A drive that stops for ever after a number of events.
pub struct Fused<P> {
    pub drive: P,
    pub fuse: Fuse,
    /// The drive's time.
    pub clock: Rc<Cell<Time>>,
}

impl<P> Fused<P> {
    pub fn new(drive: P, fuse: &Fuse) -> Fused<P> {
        Fused { drive, fuse: fuse.clone(), clock: Rc::new(Cell::new(Time::ZERO)) }
    }
}

impl<P: Port> Port for Fused<P> {
    type Cmd = P::Cmd;
    type Done = P::Done;

    fn submit(&mut self, now: Time, cmds: &mut Ring<P::Cmd>) {
        if self.fuse.get() > 0 {
            self.clock.set(self.clock.get().max(now));
            self.drive.submit(now, cmds);
        }
    }

    fn next_event(&self) -> Option<Time> {
        if self.fuse.get() > 0 { self.drive.next_event() } else { None }
    }

    fn advance(&mut self, to: Time, done: &mut Ring<P::Done>) {
        if self.fuse.get() > 0 {
            self.fuse.set(self.fuse.get() - 1);
            self.clock.set(self.clock.get().max(to));
            self.drive.advance(to, done);
        }
    }
}

const DATA_CHUNKS: u32 = 12;

fn geometry() -> Geometry {
    let dim = Dimensions {
        groups: 2,
        pus: 2,
        chunks: DATA_CHUNKS,
        pages: 32,
        planes: 2,
        page_bytes: 16384,
        pages_at_once: 1,
    };
    Geometry::new(with_reserve(dim)).unwrap()
}

fn timing() -> Timing {
    Timing {
        read: vec![50_000],
        program: vec![600_000, 900_000],
        erase: 3_000_000,
        command: 100,
        channel_rate: 400_000_000,
        ..Timing::default()
    }
}

/// pblk with a quarter to spare.
pub fn pblk_config() -> PblkConfig {
    let geometry = geometry();
    let blocks = u64::from(DATA_CHUNKS * geometry.chunk_blocks() * geometry.total_pus());
    let bytes = blocks * 75 / 100 * BLOCK_BYTES;
    PblkConfig::new(bytes, DATA_CHUNKS, 7)
}

/// Batched writes with 30 % to spare.
pub fn batch_config() -> BatchConfig {
    let config = BatchConfig::for_geometry(&geometry(), 0.3);
    BatchConfig { cache_bytes: 4 << 20, ..config }
}

/// A new device.
pub fn fresh() -> Flash {
    let geometry = geometry();
    let medium = RamMedium::new(&geometry, BLOCK_BYTES as u32).unwrap();
    Device::new(&geometry, &timing(), medium).unwrap()
}

/// A device after a power cut.
pub fn cut(device: Flash) -> Flash {
    let chunks = device.chunks().to_vec();
    Device::restore(&geometry(), &timing(), device.cut(), &chunks).unwrap()
}
