//! A drive that counts the blocks that it is given to write.
//!
//! Counted is what was taken, at once and on the host's side: what the drive
//! has in its buffer and not on its flash counts. Nothing fails.

use std::cell::Cell;
use std::rc::Rc;

use btree::Awaited;
use port::{BLOCK_BYTES, BatchOp, BatchReq, BlockOp, BlockReq, Port, Ring, Time};

/// A command that may write blocks.
pub trait Writes {
    /// How many.
    fn blocks(&self) -> u64;
}

impl Writes for BlockReq {
    #[inline]
    fn blocks(&self) -> u64 {
        if self.op == BlockOp::Write { self.len / BLOCK_BYTES } else { 0 }
    }
}

impl Writes for BatchReq {
    /// The pages of a batch; its DESC is no block of the drive.
    #[inline]
    fn blocks(&self) -> u64 {
        let blocks = self.buffer.len() as u64 / BLOCK_BYTES;
        if self.op == BatchOp::WriteBatch { blocks.saturating_sub(1) } else { 0 }
    }
}

/// The drive `D`, counted.
pub struct Counted<D> {
    drive: D,
    blocks: Rc<Cell<u64>>,
}

impl<D> Counted<D> {
    /// Counts in `blocks` what `drive` is given to write.
    pub fn new(drive: D, blocks: Rc<Cell<u64>>) -> Counted<D> {
        Counted { drive, blocks }
    }
}

impl<D: Port<Cmd: Writes>> Port for Counted<D> {
    type Cmd = D::Cmd;
    type Done = D::Done;

    #[inline]
    fn submit(&mut self, now: Time, cmds: &mut Ring<D::Cmd>) {
        let sum = |cmds: &Ring<D::Cmd>| -> u64 {
            (0..cmds.len()).filter_map(|i| cmds.get(i)).map(Writes::blocks).sum()
        };
        let before = sum(cmds);
        self.drive.submit(now, cmds);
        let left = if cmds.is_empty() { 0 } else { sum(cmds) };
        self.blocks.set(self.blocks.get() + before - left);
    }

    #[inline]
    fn next_event(&self) -> Option<Time> {
        self.drive.next_event()
    }

    #[inline]
    fn advance(&mut self, to: Time, done: &mut Ring<D::Done>) {
        self.drive.advance(to, done);
    }
}

impl<D: Awaited<Cmd: Writes>> Awaited for Counted<D> {
    fn wait(&mut self) -> Option<Time> {
        self.drive.wait()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use port::Buffer;

    /// Takes two commands at a time.
    struct Two;

    impl Port for Two {
        type Cmd = BlockReq;
        type Done = ();

        fn submit(&mut self, _now: Time, cmds: &mut Ring<BlockReq>) {
            cmds.pop();
            cmds.pop();
        }

        fn next_event(&self) -> Option<Time> {
            None
        }

        fn advance(&mut self, _to: Time, _done: &mut Ring<()>) {}
    }

    #[test]
    fn what_was_taken_counts_once() {
        let blocks = Rc::new(Cell::new(0));
        let mut drive = Counted::new(Two, blocks.clone());
        let mut cmds = Ring::new(4);
        for (op, len) in [(BlockOp::Write, 2), (BlockOp::Read, 64), (BlockOp::Write, 5)] {
            let (len, buffer) = (len * BLOCK_BYTES, Buffer::empty());
            cmds.push(BlockReq::new(0, op, 0, len, buffer)).unwrap();
        }
        drive.submit(Time::ZERO, &mut cmds);
        assert_eq!(blocks.get(), 2);
        drive.submit(Time::ZERO, &mut cmds);
        assert_eq!(blocks.get(), 7);
    }
}
