//! The drive during start-up: commands that are waited for.

use device::{Content, OpenChannel, VectorCmd, VectorDone, VectorOp};
use flash::Ppa;
use port::{Buffer, Ring, Status, Time};

use super::config::BatchError;

/// Reads under way at once, at most.
const LANES: usize = 256;

/// Reads blocks and waits for them.
pub(super) struct Runner<'a, D> {
    pub device: &'a mut D,
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

impl<'a, D: OpenChannel> Runner<'a, D> {
    pub fn new(device: &'a mut D, now: Time) -> Runner<'a, D> {
        let units = device.geometry().total_pus() as usize;
        let lanes = (4 * units).min(LANES).min(device.depth()).max(1);
        Runner { device, out: Ring::new(lanes), done: Ring::new(lanes), now }
    }

    /// Reads all these blocks, and gives each with its number among them, in
    /// the order in which they come.
    pub fn read(
        &mut self,
        blocks: &[Ppa],
        content: Content,
        mut each: impl FnMut(usize, Block) -> Result<(), BatchError>,
    ) -> Result<(), BatchError> {
        let (data, tag) = content.each(self.device.kept());
        let lanes = self.out.capacity().min(blocks.len());
        let mut buffers = Buffer::carve(lanes, data + tag)?;
        let (mut next, mut left) = (0, blocks.len());
        while left > 0 {
            while let Some(&ppa) = blocks.get(next)
                && let Some(buffer) = buffers.pop()
            {
                let (cookie, op) = (next as u64, VectorOp::Read);
                self.out.put(|| VectorCmd {
                    cookie,
                    op,
                    content,
                    count: 1,
                    ppa,
                    list: None,
                    buffer,
                });
                next += 1;
            }
            self.device.submit(self.now, &mut self.out);
            let at = self.device.next_event().ok_or(BatchError::Stopped)?;
            self.now = self.now.max(at);
            self.device.advance(self.now, &mut self.done);
            while let Some(done) = self.done.pop() {
                let (data, tag) = done.buffer.bytes().split_at(data);
                each(done.cookie as usize, Block { status: done.status, data, tag })?;
                buffers.push(done.buffer);
                left -= 1;
            }
        }
        Ok(())
    }
}
