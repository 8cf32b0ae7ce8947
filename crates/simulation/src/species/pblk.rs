//! Why pblk may fail: the model says so, by what faults struck and what the
//! flash has lost. The target itself is not asked: it stands accused.

use std::ops::Range;

use port::{BLOCK_BYTES, Status};
use targets::pblk::PblkError;
use targets::{Pblk, PblkConfig};

use super::{Lower, Refusal, Subject};
use crate::power::Flash;
use crate::setup::{MAP_PAGE, Setup};

/// Chunks for roots at the beginning of each unit, of which two are needed.
const ANCHORS: u32 = 3;

/// Set in the ids of the target's own blocks; of a page of the map the rest is its number.
const OWN: u64 = 1 << 62;

/// Units that have roots there.
const MIRRORS: usize = 2;

impl Subject for Pblk<Lower> {
    fn config(setup: &Setup) -> PblkConfig {
        let Setup { bytes, data_chunks, streams, map_pages, .. } = *setup;
        let Setup { idle_collection, victim, seed, .. } = *setup;
        let row = u64::from(setup.geometry.row_blocks()) * BLOCK_BYTES;
        PblkConfig {
            bytes,
            data_chunks,
            idle: 0,
            streams,
            map_pages,
            write_buffer: setup.buffer_rows * row,
            idle_collection,
            victim,
            seed,
        }
    }

    fn may_refuse(error: &PblkError, refusal: &Refusal) -> bool {
        Part::whole(refusal.setup).may_refuse(error, refusal)
    }

    fn may_end(setup: &Setup, flash: &Flash, _: &Range<u64>) -> bool {
        Part::whole(setup).may_end(flash)
    }

    fn lost_with(setup: &Setup, _: u64, id: u64) -> Range<u64> {
        Part::whole(setup).lost_with(id)
    }
}

/// A target's part of the flash.
pub(crate) struct Part {
    /// Its units, in the order in which it has them.
    pub pus: Vec<usize>,
    /// Its chunks of each.
    pub chunks: Range<u32>,
    /// Those of them that hold data, and blocks of a chunk.
    pub data_chunks: u32,
    pub chunk_blocks: u32,
    /// Its logical blocks.
    pub blocks: u64,
}

impl Part {
    fn whole(setup: &Setup) -> Part {
        let geometry = &setup.seen();
        Part {
            pus: geometry.pus_channels_first().collect(),
            chunks: 0..geometry.chunks(),
            data_chunks: setup.data_chunks,
            chunk_blocks: geometry.chunk_blocks(),
            blocks: setup.blocks(),
        }
    }

    /// Something could not be read that is needed, or a row not padded.
    pub fn may_refuse(&self, error: &PblkError, refusal: &Refusal) -> bool {
        match error {
            PblkError::Unread { status: Status::UNRECOVERED_READ, .. } | PblkError::Root => {
                refusal.unread
            }
            PblkError::Recovery(
                Status::WRITE_FAILED_WRITE_NEXT_UNIT | Status::CHUNK_EARLY_CLOSE,
            ) => refusal.unwritten,
            PblkError::Anchors => self.has_no_roots(refusal.flash),
            _ => false,
        }
    }

    /// Which of its blocks may be lost with one of its own, by the id of that one's tag: with a
    /// page of the map the page's. With a root, a directory, a page of the log or of the table
    /// none is: there is another, or a start is refused.
    pub fn lost_with(&self, id: u64) -> Range<u64> {
        let page = (id & !OWN).checked_mul(MAP_PAGE);
        let first = page.filter(|&first| first < self.blocks);
        first.map_or(0..0, |first| first..(first + MAP_PAGE).min(self.blocks))
    }

    /// What is left of its chunks has room for the data and a chunk a unit for what
    /// is in the buffer, or half of the spare where that is less, and no more; or
    /// there is nowhere to write a root.
    pub fn may_end(&self, flash: &Flash) -> bool {
        let (size, data) = (self.chunk_blocks, self.data_chunks);
        let (mut left, mut all, mut units) = (0, 0, 0);
        for hurt in self.hurt(flash, ANCHORS..self.chunks.len() as u32) {
            left += u64::from(data.saturating_sub(hurt) * size);
            all += u64::from(data * size);
            units += u64::from(size);
        }
        let spare = all.saturating_sub(self.blocks);
        left <= self.blocks + units.min(spare / 2) || self.has_no_roots(flash)
    }

    /// Whether there is nowhere to write a root.
    fn has_no_roots(&self, flash: &Flash) -> bool {
        self.hurt(flash, 0..ANCHORS).take(MIRRORS).all(|hurt| hurt + 2 > ANCHORS)
    }

    /// How many of these of its chunks are of no use, by unit.
    fn hurt(&self, flash: &Flash, numbers: Range<u32>) -> impl Iterator<Item = u32> {
        let first = self.chunks.start;
        let numbers = first + numbers.start..first + numbers.end;
        self.pus.iter().map(move |&pu| flash.hurt(pu, numbers.clone()))
    }
}
