//! A zone: a chunk, and what is under way in it.

use device::OpenChannel;

/// What is known of a zone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Zone {
    /// Its chunk, by `Geometry::chunk_index`.
    pub chunk: usize,
    /// Its write pointer: the next block that is taken.
    pub next: u32,
    /// Commands under way.
    pub busy: u32,
    /// It is being reset.
    pub resetting: bool,
    /// A program failed: nothing more is taken before it is reset.
    pub failed: bool,
}

impl Zone {
    /// As the drive has it.
    pub fn found<D: OpenChannel>(chunk: usize, device: &D) -> Zone {
        let of = device.chunk(chunk);
        let failed = of.is_spoilt(device.geometry().chunk_blocks());
        Zone { chunk, next: of.programmed, busy: 0, resetting: false, failed }
    }
}
