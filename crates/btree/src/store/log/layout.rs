//! How a log is kept, and what is where on its drive.

use port::{BLOCK_BYTES, Shape};

use super::format::Place;
use crate::page::PAGE_BYTES;
use crate::store::{Beside, StoreError, no_clock};

/// Segments beyond the overhead: heads, reserve, and those that wait for a
/// checkpoint.
pub(super) const SLACK: u64 = 12;
/// The least segments of a store.
const LEAST_SEGMENTS: u64 = SLACK + 8;

/// How a log is kept.
#[derive(Clone, Copy, Debug)]
pub struct LogConfig {
    /// Blocks of a segment, 64 to 256.
    pub segment_blocks: u32,
    /// Space beyond what lives, in percent of that; at least 20. Collection
    /// keeps the log within it.
    pub overhead: u32,
    /// With collection and checkpoints.
    pub durable: bool,
    /// Time between checkpoints, in ns.
    pub checkpoint_every: u64,
    /// Batches on their way at once, 1 to 16.
    pub batches: usize,
    /// Segments that are collected at once, 1 to 8.
    pub collectors: usize,
    /// Blocks of the drive's end that a new log leaves to a redo log, 16 to half of
    /// them; 0 for none. Opening goes by what the store has.
    pub redo: u64,
    /// Measures where time goes.
    pub clock: fn() -> u64,
}

impl Default for LogConfig {
    /// Segments of 1 MiB, 100 % overhead, durable, a checkpoint every 10 s, 4
    /// batches, 2 collectors, no redo log, nothing measured.
    fn default() -> LogConfig {
        LogConfig {
            segment_blocks: 256,
            overhead: 100,
            durable: true,
            checkpoint_every: 10_000_000_000,
            batches: 4,
            collectors: 2,
            redo: 0,
            clock: no_clock,
        }
    }
}

/// What is where on the drive, in blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) area_blocks: u64,
    pub(super) first: u64,
    pub(super) segment_blocks: u32,
    pub(super) segments: u32,
    pub(super) pages: u64,
    pub(super) blocks: u64,
    pub(super) beside: Beside,
}

impl LogConfig {
    /// The smallest drive that such a store fits, in bytes.
    pub fn least_bytes(&self) -> u64 {
        let segment = u64::from(self.segment_blocks);
        let is_enough = |blocks: u64| {
            let first = Layout::first(blocks, segment).1;
            blocks >= first + LEAST_SEGMENTS * segment
        };
        let least = (LEAST_SEGMENTS..).map(|segments| segments * segment).find(|&b| is_enough(b));
        least.map_or(u64::MAX, |blocks| (blocks + self.redo) * BLOCK_BYTES)
    }
}

impl Layout {
    /// Blocks of a checkpoint's area, and the first block of segments.
    fn first(blocks: u64, segment: u64) -> (u64, u64) {
        let area_blocks = blocks.div_ceil(PAGE_BYTES as u64 / 4);
        (area_blocks, (2 + 2 * area_blocks).next_multiple_of(segment))
    }

    /// With `redo` blocks of the drive's end beside it.
    pub(super) fn of(shape: &Shape, config: &LogConfig, redo: u64) -> Result<Layout, StoreError> {
        let refuse = |what, value, range| Err(StoreError::Shape { what, value, range });
        let within = |value: u64, low, high| (low..=high).contains(&value);
        let segment = u64::from(config.segment_blocks);
        if !within(segment, 64, 256) {
            return refuse("blocks of a segment", segment, "64 to 256");
        }
        if !within(config.overhead.into(), 20, 10_000) {
            return refuse("space overhead in percent", config.overhead.into(), "20 to 10000");
        }
        if !within(config.batches as u64, 1, 16) {
            return refuse("batches", config.batches as u64, "1 to 16");
        }
        if !within(config.collectors as u64, 1, 8) {
            return refuse("collectors", config.collectors as u64, "1 to 8");
        }
        let beside = Beside::of(shape.bytes / BLOCK_BYTES, redo)?;
        let blocks = beside.first;
        if blocks > u64::from(u32::MAX) {
            return refuse("blocks of the drive", blocks, "less than 2^32");
        }
        let (area_blocks, first) = Layout::first(blocks, segment);
        let segments = blocks.saturating_sub(first) / segment;
        if segments < LEAST_SEGMENTS {
            return refuse("segments", segments, "at least 20");
        }
        let data = (segments - SLACK) * (segment - 1);
        let pages = data * 100 / (100 + u64::from(config.overhead));
        Ok(Layout {
            area_blocks,
            first,
            segment_blocks: config.segment_blocks,
            segments: segments as u32,
            pages,
            blocks,
            beside,
        })
    }

    pub(super) fn block(&self, place: Place) -> u64 {
        self.first
            + u64::from(place.segment) * u64::from(self.segment_blocks)
            + u64::from(place.offset)
    }

    /// Whether a block is in a segment.
    pub(super) fn has(&self, block: u32) -> bool {
        let blocks = u64::from(self.segments) * u64::from(self.segment_blocks);
        (self.first..self.first + blocks).contains(&u64::from(block))
    }

    pub(super) fn segment_of(&self, block: u32) -> u32 {
        ((u64::from(block) - self.first) / u64::from(self.segment_blocks)) as u32
    }

    /// Where a block is in its segment, in bytes.
    pub(super) fn offset(&self, block: u32) -> usize {
        let offset = (u64::from(block) - self.first) % u64::from(self.segment_blocks);
        offset as usize * PAGE_BYTES
    }

    pub(super) fn area(&self, number: u64) -> u64 {
        2 + (number & 1) * self.area_blocks
    }
}
