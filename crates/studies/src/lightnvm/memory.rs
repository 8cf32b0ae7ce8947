//! A block device that is a piece of memory: no translation, no flash, one copy. Its data lie
//! as those of a drive that was written in sequence: row by row over its parallel units. So
//! what is copied, and from where, is the same.
//!
//! Guarantees: a request is done when it comes. Fails where there is no memory for it.

use blkmq::{Abort, Driver, HardwareQueue};
use flash::Geometry;
use port::{
    BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Buffer, OutOfMemory, Port, Ring, Shape, Time,
};

/// The device, and its only queue.
pub struct InMemory {
    bytes: Buffer,
    /// Bytes of a row, and how many units there are.
    row: u64,
    units: u64,
    shape: Shape,
    ready: Ring<BlockDone>,
}

impl InMemory {
    /// One that looks like `shape`, which keeps all of a block and is less than 4 GiB, with
    /// the rows and units of `geometry`.
    pub fn new(shape: Shape, geometry: &Geometry) -> Result<InMemory, OutOfMemory> {
        let row = u64::from(geometry.row_blocks()) * BLOCK_BYTES;
        let units = u64::from(geometry.total_pus());
        let bytes = shape.bytes.next_multiple_of(row * units);
        let mut bytes = Buffer::zeroed(bytes as usize)?;
        // Its memory is taken now, and not while it is measured.
        bytes.bytes_mut().fill(1);
        Ok(InMemory { bytes, row, units, shape, ready: Ring::new(shape.depth) })
    }

    /// Where the bytes from an address on are, to the end of their row at most.
    fn place(&self, at: u64, most: usize) -> std::ops::Range<usize> {
        let (row, in_row) = (at / self.row, at % self.row);
        let of_unit = self.bytes.len() as u64 / self.units;
        let from = row % self.units * of_unit + row / self.units * self.row + in_row;
        let n = most.min((self.row - in_row) as usize);
        from as usize..from as usize + n
    }

    /// Does what a request asks for, row by row.
    fn act(&mut self, req: &mut BlockReq) {
        let mut done = 0;
        while done < req.len as usize {
            let range = self.place(req.offset + done as u64, req.len as usize - done);
            let n = range.len();
            let bytes = &mut self.bytes.bytes_mut()[range];
            match req.op {
                BlockOp::Read => req.buffer.bytes_mut()[done..done + n].copy_from_slice(bytes),
                BlockOp::Write => bytes.copy_from_slice(&req.buffer.bytes()[done..done + n]),
                BlockOp::Trim | BlockOp::WriteZeroes => bytes.fill(0),
                BlockOp::Flush => {}
            }
            done += n;
        }
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
                self.act(&mut req);
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

    /// Each block has its own place.
    #[test]
    fn what_was_written_is_read() {
        let (_, data) = super::super::through::data("ref", 1 << 20).unwrap();
        let geometry = super::super::through::geometry(data).unwrap();
        let shape = Shape { bytes: 5 << 20, kept: 4096, max_bytes: 1 << 20, depth: 4 };
        let mut memory = InMemory::new(shape, &geometry).unwrap();
        let (mut cmds, mut done) = (Ring::new(4), Ring::new(4));
        let len = 3 * 4096;
        for op in [BlockOp::Write, BlockOp::Read] {
            for id in 0..shape.bytes / len {
                let mut buffer = Buffer::zeroed(len as usize).unwrap();
                if op == BlockOp::Write {
                    buffer.bytes_mut().chunks_exact_mut(8).for_each(|to| {
                        to.copy_from_slice(&id.to_le_bytes());
                    });
                }
                cmds.put(|| BlockReq::new(id, op, id * len, len, buffer));
                memory.submit(Time(1), &mut cmds);
                memory.advance(Time(1), &mut done);
                let one = done.pop().unwrap();
                let is = |bytes: &[u8]| bytes == id.to_le_bytes();
                assert!(one.status.is_ok() && one.buffer.bytes().chunks_exact(8).all(is));
            }
        }
    }
}
