//! A block device that is a piece of memory: no translation, no flash, one copy.
//!
//! Guarantees: a request is done when it comes. Fails where there is no memory for it.

use blkmq::{Abort, Driver, HardwareQueue};
use port::{BlockDone, BlockOp, BlockReq, Buffer, OutOfMemory, Port, Ring, Shape, Time};

/// The device, and its only queue.
pub struct InMemory {
    bytes: Buffer,
    shape: Shape,
    ready: Ring<BlockDone>,
}

impl InMemory {
    /// One that looks like `shape`, which keeps all of a block and is less than 4 GiB.
    pub fn new(shape: Shape) -> Result<InMemory, OutOfMemory> {
        let mut bytes = Buffer::zeroed(shape.bytes as usize)?;
        // Its memory is taken now, and not while it is measured.
        bytes.bytes_mut().fill(1);
        Ok(InMemory { bytes, shape, ready: Ring::new(shape.depth) })
    }
}

impl Driver for InMemory {
    type Queue = InMemory;

    fn shape(&self) -> Shape {
        self.shape
    }

    fn queues(&self) -> [usize; 3] {
        [1, 0, 0]
    }

    fn open(self) -> Vec<InMemory> {
        vec![self]
    }
}

impl Port for InMemory {
    type Cmd = BlockReq;
    type Done = BlockDone;

    #[inline]
    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        while self.ready.room() > 0
            && let Some(mut req) = cmds.pop()
        {
            let status = self.shape.check(&req);
            if status.is_ok() {
                let range = req.offset as usize..(req.offset + req.len) as usize;
                match req.op {
                    BlockOp::Read => {
                        req.buffer.bytes_mut().copy_from_slice(&self.bytes.bytes()[range]);
                    }
                    BlockOp::Write => {
                        self.bytes.bytes_mut()[range].copy_from_slice(req.buffer.bytes());
                    }
                    BlockOp::Trim | BlockOp::WriteZeroes => self.bytes.bytes_mut()[range].fill(0),
                    BlockOp::Flush => {}
                }
            }
            let BlockReq { id, op, buffer, .. } = req;
            self.ready.put(|| BlockDone { id, op, status, at: now, buffer });
        }
    }

    #[inline]
    fn next_event(&self) -> Option<Time> {
        self.ready.front().map(|done| done.at)
    }

    #[inline]
    fn advance(&mut self, _to: Time, done: &mut Ring<BlockDone>) {
        while done.room() > 0
            && let Some(one) = self.ready.pop()
        {
            done.put(|| one);
        }
    }

    fn takes_hints(&self) -> bool {
        false
    }
}

impl HardwareQueue for InMemory {
    fn depth(&self) -> usize {
        self.shape.depth
    }

    /// All that is inside has completed.
    fn abort(&mut self, _id: u64) -> Abort {
        Abort::Working
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let shape = Shape { bytes: 1 << 20, kept: 4096, max_bytes: 1 << 16, depth: 4 };
        let mut memory = InMemory::new(shape).unwrap();
        let (mut cmds, mut done) = (Ring::new(4), Ring::new(4));
        for (id, op, byte) in [(0, BlockOp::Write, 7), (1, BlockOp::Read, 0), (2, BlockOp::Trim, 0)]
        {
            let mut buffer = Buffer::zeroed(if op == BlockOp::Trim { 0 } else { 4096 }).unwrap();
            buffer.bytes_mut().fill(byte);
            let (fua, offset, len) = (false, 8192, 4096);
            cmds.put(|| BlockReq { id, op, fua, placement: 0, queue: 0, offset, len, buffer });
        }
        memory.submit(Time(1), &mut cmds);
        memory.advance(Time(1), &mut done);
        let read = done.get(1).unwrap();
        assert!(read.status.is_ok() && read.buffer.bytes() == [7; 4096]);
        assert_eq!(memory.bytes.bytes()[8191..8193], [1, 0]);
    }
}
