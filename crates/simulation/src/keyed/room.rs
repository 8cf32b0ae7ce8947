//! How much room a target of keys has, as its host knows it: a put that is refused for want of
//! room needs a reason.
//!
//! All of it is a bound. What values take is counted as more than it is, and they may have
//! half of the room at any time.

use flash::Geometry;
use port::BLOCK_BYTES;
use targets::kv::{KvConfig, reserve_chunks};

/// Bytes of a record beside its value, at most.
const RECORD: u64 = 512;

/// See the head of this file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Bytes of a row.
    row: u64,
    /// Bytes that there are for values.
    bytes: u64,
}

impl Room {
    /// That of a target on a drive of this geometry.
    pub fn of(geometry: &Geometry, config: &KvConfig) -> Room {
        let chunks = geometry.chunks() - reserve_chunks(geometry, config.keys);
        let blocks = u64::from(chunks * geometry.chunk_blocks() * geometry.total_pus());
        let bytes = (blocks * BLOCK_BYTES) as f64 * (1.0 - config.spare);
        Room { row: u64::from(geometry.row_blocks()) * BLOCK_BYTES, bytes: bytes as u64 }
    }

    /// What a value of this length takes.
    pub fn taken(&self, len: u64) -> u64 {
        let small = len + RECORD;
        if small < self.row { small } else { (len.div_ceil(self.row) + 1) * self.row }
    }

    /// Whether so many bytes may be too many.
    pub fn may_lack(&self, taken: u64) -> bool {
        taken > self.bytes / 2
    }
}
