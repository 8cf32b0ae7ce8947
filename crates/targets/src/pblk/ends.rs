//! The ends of open chunks at a start.
//!
//! What is programmed at the end of an open chunk, and durable, may not be read yet
//! ([`window`](super::window)), and no buffer has it any more. So each open chunk
//! is padded on before anything is looked for, until all that was there can be read;
//! those of the target's own blocks and of roots, too, and those of which a program
//! failed: that either goes well or closes them.
//!
//! The tags of such padding say where it ends. Where the last block that can be
//! read belongs to padding that ends at the chunk's end, nothing is behind it: such a
//! chunk is not padded again. So cuts that come again and again spend no more room.

use std::collections::BTreeMap;

use device::{Content, OpenChannel};
use flash::{ChunkState, Ppa, Tag};
use ftl::{Job, all_chunks, is_read, pieces};
use port::{Status, Time};

use super::mutation::{Mutation, is};
use super::recover::Runner;
use super::{Pblk, PblkError};

/// The logical block number of such padding. Its sequence number is the block of the
/// chunk at which it ends.
pub(super) const END: u64 = u64::MAX - 1;

/// Where padding ends that lets all be read of a chunk of `size` blocks that is written up
/// to `from`, and the first block of the padding.
pub(super) fn end_behind(from: u32, unreadable: u32, row: u32, size: u32) -> u32 {
    (from + unreadable + 1).next_multiple_of(row).min(size)
}

impl<D: OpenChannel> Pblk<D> {
    /// Pads open chunks on until all that they hold can be read. Gives how many
    /// blocks that took.
    pub(super) fn pad_ends(&mut self, now: Time) -> Result<(u64, Time), PblkError> {
        if !self.window.is_on() || is(Mutation::LeaveWindow) {
            return Ok((0, now));
        }
        let (geometry, window) = (self.geometry, self.window.unreadable);
        let mut ends: BTreeMap<usize, u32> = BTreeMap::new();
        for chunk in all_chunks(&geometry) {
            let of = self.device.chunk(chunk);
            if of.state == ChunkState::Open && of.programmed > 0 {
                ends.insert(chunk, of.programmed);
            }
        }
        let anchors: Vec<usize> =
            ends.keys().copied().filter(|&chunk| self.is_anchor(chunk)).collect();
        let mut runner = Runner::new(&mut self.device, now);
        let last = |(&chunk, &end): (&usize, &u32)| {
            let block = end.checked_sub(window + 1)?;
            Some((Ppa(geometry.chunk_start(chunk).0 + u64::from(block)), 1))
        };
        let lasts: Vec<(Ppa, u32)> = ends.iter().filter_map(last).collect();
        runner.run(lasts.into_iter().map(|at| Job::read(Content::Tags, at)), |job, ended| {
            let chunk = geometry.chunk_index(job.ppa);
            let tag = is_read(ended.status).then(|| Tag::load(ended.tags));
            let is_padded = |tag: Tag| tag.id == END && ends.get(&chunk) == Some(&(tag.seq as u32));
            if tag.is_some_and(is_padded) {
                ends.remove(&chunk);
            }
            Ok(())
        })?;
        let row = geometry.row_blocks();
        let pads = ends.iter().flat_map(|(&chunk, &from)| {
            let to = end_behind(from, window, row, geometry.chunk_blocks());
            let tag = Tag { id: END, seq: to.into() };
            // Roots are looked for block by block, each of them whole.
            let content = if anchors.contains(&chunk) { Content::Whole } else { Content::Tagged };
            pieces(&geometry, chunk, from..to).map(move |piece| Job::fill_as(content, tag, piece))
        });
        let (mut padded, mut status) = (0, Status::SUCCESS);
        runner.run(pads, |job, ended| {
            padded += u64::from(job.count);
            status = status.and(ended.status);
            Ok(())
        })?;
        // A program that failed moves the end, too, or closes the chunk.
        let now = runner.now;
        let is_read = |(&chunk, &end)| self.device.chunk(chunk).readable(window) >= end;
        if ends.iter().all(is_read) { Ok((padded, now)) } else { Err(PblkError::Recovery(status)) }
    }
}
