//! The drive during start-up: reads that are waited for.

use std::collections::VecDeque;

use device::{Content, MAX_ADDRESSES, OpenChannel, VectorCmd, VectorDone, VectorOp};
use flash::{Geometry, Ppa};
use port::{Buffer, Ring, Status, Time};

use super::config::BatchError;
use super::is_read;

/// Reads under way at once, at most.
const LANES: usize = 256;

/// Reads blocks and waits for them.
pub(super) struct Runner<'a, D> {
    pub device: &'a mut D,
    geometry: Geometry,
    out: Ring<VectorCmd>,
    done: Ring<VectorDone>,
    pub now: Time,
}

/// A block as it was read.
pub(super) struct Block<'a> {
    pub status: Status,
    pub data: &'a [u8],
    pub tag: &'a [u8],
}

/// Neighbours in one row: the number of the first, and how many.
type Run = (usize, usize);

impl<'a, D: OpenChannel> Runner<'a, D> {
    pub fn new(device: &'a mut D, now: Time) -> Runner<'a, D> {
        let geometry = *device.geometry();
        let units = geometry.total_pus() as usize;
        let lanes = (4 * units).min(LANES).min(device.depth()).max(1);
        Runner { device, geometry, out: Ring::new(lanes), done: Ring::new(lanes), now }
    }

    /// Reads all these blocks, and gives each with its number among them, in
    /// the order in which they come. Neighbours in a row are read at once.
    pub fn read(
        &mut self,
        blocks: &[Ppa],
        content: Content,
        mut each: impl FnMut(usize, Block) -> Result<(), BatchError>,
    ) -> Result<(), BatchError> {
        let (data, tag) = content.each(self.device.kept());
        let mut runs: VecDeque<Run> = VecDeque::new();
        for (i, &block) in blocks.iter().enumerate() {
            match runs.back_mut() {
                Some((first, count)) if self.goes_on(blocks[*first], *count, block) => *count += 1,
                _ => runs.push_back((i, 1)),
            }
        }
        let mut counts: Vec<usize> = vec![0; blocks.len()];
        let mut inside = 0;
        while inside > 0 || !runs.is_empty() {
            while self.out.room() > 0 && inside < self.out.capacity() {
                let Some((first, count)) = runs.pop_front() else { break };
                let buffer = Buffer::zeroed(count * (data + tag))?;
                counts[first] = count;
                let (cookie, op, ppa) = (first as u64, VectorOp::Read, blocks[first]);
                let count = count as u8;
                self.out.put(|| VectorCmd { cookie, op, content, count, ppa, list: None, buffer });
                inside += 1;
            }
            self.device.submit(self.now, &mut self.out);
            let at = self.device.next_event().ok_or(BatchError::Stopped)?;
            self.now = self.now.max(at);
            self.device.advance(self.now, &mut self.done);
            while let Some(done) = self.done.pop() {
                inside -= 1;
                let (first, status) = (done.cookie as usize, done.status);
                let count = counts[first];
                if !is_read(status) && count > 1 {
                    // Which of them was it?
                    runs.extend((first..first + count).map(|i| (i, 1)));
                    continue;
                }
                let (bytes, tags) = done.buffer.bytes().split_at(count * data);
                for i in 0..count {
                    let (data, tag) = (&bytes[i * data..][..data], &tags[i * tag..]);
                    each(first + i, Block { status, data, tag })?;
                }
            }
        }
        Ok(())
    }

    /// Whether a block is read together with the `count` that begin at `first`.
    fn goes_on(&self, first: Ppa, count: usize, block: Ppa) -> bool {
        let row = self.geometry.row_blocks();
        let same_row = self.geometry.block(first) / row == self.geometry.block(block) / row;
        let same_chunk = self.geometry.chunk_index(first) == self.geometry.chunk_index(block);
        block.0 == first.0 + count as u64 && same_row && same_chunk && count < MAX_ADDRESSES
    }
}
