//! How a key-value target is set up, and why it cannot be.

use flash::{Geometry, Ppa};
use ftl::Halt;
use port::{BLOCK_BYTES, KvShape, MAX_VALUE_BYTES, OutOfMemory};
use thiserror::Error;

use super::checkpoint::checkpoint_rows;
use super::place::PPA_BITS;
use super::record::{most_runs, most_small};

/// How a key-value target is set up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KvConfig {
    /// Keys that there is to be room for. Memory for them is taken at the start, about
    /// 20 bytes a key.
    pub keys: u64,
    /// The part of the drive that is not to be used for values, 0 to 0.9, beside what
    /// the target needs.
    pub spare: f64,
    /// Requests that may be inside at once, 1 to 256.
    pub depth: usize,
    /// Rows of records after which a checkpoint begins, at least 4. A start reads
    /// about so many.
    pub checkpoint_rows: u64,
    /// What keys are hashed with. To be kept: a drive is found again with the same.
    pub seed: u64,
}

impl KvConfig {
    /// A set-up for a geometry: keys for values of 16 KiB, a fifth of the drive spare.
    pub fn for_geometry(geometry: &Geometry) -> KvConfig {
        let keys = (geometry.blocks() / 4).max(64);
        let rows = checkpoint_rows(keys, geometry.row_blocks());
        KvConfig { keys, spare: 0.2, depth: 64, checkpoint_rows: (8 * rows).max(64), seed: 0 }
    }

    /// A set-up for so many keys, and for as many bytes of records as a drive of this
    /// geometry has room for, up to `bytes`. What is beside these is spare.
    pub fn for_size(geometry: &Geometry, keys: u64, bytes: u64) -> KvConfig {
        let of = KvConfig::for_geometry(geometry);
        let units = u64::from(geometry.total_pus());
        let chunks = u64::from(geometry.chunks()) * units;
        let chunks = chunks.saturating_sub(overhead(geometry, keys) as u64);
        let room = chunks * u64::from(geometry.chunk_blocks()) * BLOCK_BYTES;
        let spare = (1.0 - bytes as f64 / room.max(1) as f64).clamp(0.0, 0.9);
        let rows = checkpoint_rows(keys, geometry.row_blocks());
        let depth = (2 * units).clamp(64, 256) as usize;
        KvConfig { keys, spare, depth, checkpoint_rows: (8 * rows).max(64), ..of }
    }

    /// Checks all numbers.
    pub(super) fn check(&self, geometry: &Geometry, kept: u32) -> Result<Layout, KvError> {
        let range = |what, value: u64, ok: bool, range| {
            if ok { Ok(()) } else { Err(KvError::Range { what, value, range }) }
        };
        range("keys", self.keys, (1..=1 << 32).contains(&self.keys), "1 to 4294967296")?;
        let depth = self.depth as u64;
        range("depth", depth, (1..=256).contains(&depth), "1 to 256")?;
        let rows = self.checkpoint_rows;
        range("checkpoint_rows", rows, (4..=1 << 32).contains(&rows), "4 to 4294967296")?;
        let percent = (self.spare * 100.0) as u64;
        range("spare in percent", percent, (0.0..=0.9).contains(&self.spare), "0 to 90")?;
        let bits = geometry.address_bits();
        range("bits of an address", bits.into(), bits <= PPA_BITS, "at most 39")?;
        Layout::of(geometry, self, kept)
    }
}

/// What follows from the set-up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Chunks of a checkpoint.
    pub checkpoint: usize,
    /// Chunks that the target needs beside those of values.
    pub overhead: usize,
    /// Its outside.
    pub shape: KvShape,
}

impl Layout {
    fn of(geometry: &Geometry, config: &KvConfig, kept: u32) -> Result<Layout, KvError> {
        let row = geometry.row_blocks();
        let rows = u64::from(geometry.chunk_blocks() / row);
        let checkpoint = checkpoint_chunks(geometry, config.keys);
        let units = geometry.total_pus() as usize;
        let chunks = units * geometry.chunks() as usize;
        let overhead = overhead(geometry, config.keys);
        if chunks < overhead + 4 {
            return Err(KvError::TooSmall { chunks, least: overhead + 4 });
        }
        let row_bytes = (u64::from(row) * BLOCK_BYTES) as usize;
        let most_runs = most_runs(row_bytes);
        let lanes = units.min(most_runs / 4).max(1) as u64;
        // Each lane goes over a chunk's end so often; as many runs again are for those
        // that collection cuts.
        let chunks_a_lane = (most_runs as u64 / lanes / 2).saturating_sub(2).max(1);
        let most_rows = match units > most_runs / 2 {
            // Each row may be a run of its own.
            true => most_runs as u64 / 2,
            false => lanes * chunks_a_lane * rows,
        };
        let most = most_rows * row_bytes as u64;
        let small = most_small(row_bytes) as u64;
        let shape =
            KvShape { max_value: most.min(MAX_VALUE_BYTES), small, kept, depth: config.depth };
        Ok(Layout { checkpoint, overhead, shape })
    }
}

fn checkpoint_chunks(geometry: &Geometry, keys: u64) -> usize {
    let row = geometry.row_blocks();
    checkpoint_rows(keys, row).div_ceil(u64::from(geometry.chunk_blocks() / row)) as usize
}

/// Chunks beside those of values: two checkpoints, the open chunks, and what collection
/// needs.
fn overhead(geometry: &Geometry, keys: u64) -> usize {
    2 * checkpoint_chunks(geometry, keys) + 2 * geometry.total_pus() as usize + 4
}

/// Chunks of each parallel unit that a target for so many keys needs beside those of
/// values. How many the geometry has says nothing.
pub fn reserve_chunks(geometry: &Geometry, keys: u64) -> u32 {
    let units = geometry.total_pus() as usize;
    overhead(geometry, keys).div_ceil(units).try_into().unwrap_or(u32::MAX)
}

/// A target that cannot be set up, or found again.
#[derive(Debug, Error)]
pub enum KvError {
    /// A number is out of its range.
    #[error("{what} is {value}: it must be {range}")]
    Range {
        /// Which.
        what: &'static str,
        /// The number.
        value: u64,
        /// What it may be.
        range: &'static str,
    },
    /// There are too few chunks.
    #[error(
        "the drive has {chunks} chunks, but {least} are needed: take fewer keys, or more chunks"
    )]
    TooSmall {
        /// How many there are.
        chunks: usize,
        /// How many are needed.
        least: usize,
    },
    /// The drive makes recent writes wait before they can be read.
    #[error("the last {0} blocks of an open chunk are unreadable on this drive; they must be 0")]
    Unreadable(u32),
    /// The drive limits how many chunks are open.
    #[error("this drive limits its open chunks: open_chunks and open_chunks_pu must be none")]
    OpenChunks,
    /// The drive has something on it: it is to be recovered.
    #[error("the drive is not empty: find what it has, or erase it")]
    NotEmpty,
    /// What was written cannot be read.
    #[error("{what} in block {ppa:?} is damaged; the drive is left as it is")]
    Damaged {
        /// What it is.
        what: &'static str,
        /// Where.
        ppa: Ppa,
    },
    /// Of the checkpoints none is whole.
    #[error("no checkpoint is whole, though there was one; the drive is left as it is")]
    Checkpoint,
    /// It was made with another set-up.
    #[error("the drive was written with another seed, {found}: give it in place of {given}")]
    Seed {
        /// That it has.
        found: u64,
        /// That was given.
        given: u64,
    },
    /// There are more keys on it than there is room for.
    #[error("the drive has more keys than {0}: give it as many as it was made with")]
    Keys(u64),
    /// The drive stopped, or there is no memory.
    #[error(transparent)]
    Halt(#[from] Halt),
    /// No memory.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
}
