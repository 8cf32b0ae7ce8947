//! Why pblk may fail: the model says so, by what faults struck and what the
//! flash has lost. The target itself is not asked: it stands accused.

use std::ops::Range;

use port::{BLOCK_BYTES, Status};
use targets::pblk::PblkError;
use targets::{Pblk, PblkConfig};

use super::{Lower, Refusal, Subject};
use crate::power::Flash;
use crate::setup::Setup;

/// Chunks for roots at the beginning of each unit, of which two are needed.
const ANCHORS: u32 = 3;

/// Units that have roots there.
const MIRRORS: usize = 2;

impl Subject for Pblk<Lower> {
    fn config(setup: &Setup) -> PblkConfig {
        let Setup { bytes, data_chunks, streams, idle_collection, victim, seed, .. } = *setup;
        let row = u64::from(setup.geometry.row_blocks()) * BLOCK_BYTES;
        PblkConfig {
            bytes,
            data_chunks,
            idle: 0,
            streams,
            map_pages: 0,
            write_buffer: setup.buffer_rows * row,
            idle_collection,
            victim,
            seed,
        }
    }

    /// Something could not be read that is needed, or a row not padded.
    fn may_refuse(error: &PblkError, refusal: &Refusal) -> bool {
        match error {
            PblkError::Unread { status: Status::UNRECOVERED_READ, .. } | PblkError::Root => {
                refusal.unread
            }
            PblkError::Recovery(Status::WRITE_FAILED_WRITE_NEXT_UNIT) => refusal.unwritten,
            PblkError::Anchors => has_no_roots(refusal.setup, refusal.flash),
            _ => false,
        }
    }

    /// What is left of its chunks has room for the data and a chunk a unit for what
    /// is in the buffer, or half of the spare where that is less, and no more; or
    /// there is nowhere to write a root.
    fn may_end(setup: &Setup, flash: &Flash) -> bool {
        let (size, data) = (setup.geometry.chunk_blocks(), setup.data_chunks);
        let (mut left, mut all, mut units) = (0, 0, 0);
        for hurt in hurt(setup, flash, ANCHORS..setup.geometry.chunks()) {
            left += u64::from(data.saturating_sub(hurt) * size);
            all += u64::from(data * size);
            units += u64::from(size);
        }
        let spare = all.saturating_sub(setup.blocks());
        left <= setup.blocks() + units.min(spare / 2) || has_no_roots(setup, flash)
    }
}

/// Whether there is nowhere to write a root.
fn has_no_roots(setup: &Setup, flash: &Flash) -> bool {
    hurt(setup, flash, 0..ANCHORS).take(MIRRORS).all(|hurt| hurt + 2 > ANCHORS)
}

/// How many of these chunks are of no use, by unit.
fn hurt(setup: &Setup, flash: &Flash, numbers: Range<u32>) -> impl Iterator<Item = u32> {
    setup.geometry.pus_channels_first().map(move |pu| flash.hurt(pu, numbers.clone()))
}
