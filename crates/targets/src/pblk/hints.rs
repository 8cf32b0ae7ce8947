//! What is fetched into the caches before it is looked at.

use std::cell::Cell;

use device::OpenChannel;
use port::{BLOCK_BYTES, BlockOp, BlockReq, Ring};

use super::Pblk;

/// Hints between that of a request's map entry and that of its block.
const HINT_LAG: usize = 4;

/// How many requests of a batch ahead map entries are fetched.
const FETCH_ENTRIES: usize = 32;

/// How many requests of a batch ahead their blocks are, whose map entries have
/// arrived by then.
const FETCH_BLOCKS: usize = 12;

/// Logical blocks from which on a drive's tables exceed the processor's caches.
const HINTED_BLOCKS: u64 = 1 << 24;

/// The hints so far.
pub(super) struct Hints {
    /// The blocks hinted last, oldest first.
    blocks: [Cell<u64>; HINT_LAG],
    /// How many there were.
    count: Cell<usize>,
}

impl Default for Hints {
    fn default() -> Hints {
        Hints { blocks: [const { Cell::new(u64::MAX) }; HINT_LAG], count: Cell::new(0) }
    }
}

impl<D: OpenChannel> Pblk<D> {
    /// Fetches the map entry; on a drive whose tables exceed the processor's
    /// caches, also what is known of the block of the request hinted a few
    /// before, whose entry has arrived by now.
    #[inline]
    pub(super) fn hint_request(&self, req: &BlockReq) {
        let lba = req.offset / BLOCK_BYTES;
        self.map.prefetch(lba);
        if self.map.blocks() >= HINTED_BLOCKS && (req.op != BlockOp::Read || self.kept > 0) {
            self.hint_block(req.op, lba);
        }
    }

    fn hint_block(&self, op: BlockOp, lba: u64) {
        let turn = self.hints.count.get();
        self.hints.count.set(turn.wrapping_add(1));
        let before = self.hints.blocks[turn % HINT_LAG].replace(lba);
        self.fetch_known(op, before);
    }

    /// Fetches what the first of a batch of requests will look at.
    #[inline]
    pub(super) fn fetch_first(&self, cmds: &Ring<BlockReq>) {
        if cmds.len() < 2 {
            return;
        }
        (0..cmds.len().min(FETCH_ENTRIES)).for_each(|i| self.fetch_entry(cmds, i));
        if self.map.blocks() >= HINTED_BLOCKS {
            (0..cmds.len().min(FETCH_BLOCKS)).for_each(|i| self.fetch_block(cmds, i));
        }
    }

    /// Fetches what requests further behind will look at.
    #[inline]
    pub(super) fn fetch_next(&self, cmds: &Ring<BlockReq>) {
        self.fetch_entry(cmds, FETCH_ENTRIES);
        if self.map.blocks() >= HINTED_BLOCKS {
            self.fetch_block(cmds, FETCH_BLOCKS);
        }
    }

    /// Fetches the map entry of request `i`.
    #[inline]
    fn fetch_entry(&self, cmds: &Ring<BlockReq>, i: usize) {
        if let Some(req) = cmds.get(i) {
            self.map.prefetch(req.offset / BLOCK_BYTES);
        }
    }

    /// Fetches what is known of the block that request `i` writes over.
    #[inline]
    fn fetch_block(&self, cmds: &Ring<BlockReq>, i: usize) {
        if let Some(req) = cmds.get(i)
            && (req.op != BlockOp::Read || self.kept > 0)
        {
            self.fetch_known(req.op, req.offset / BLOCK_BYTES);
        }
    }

    /// Fetches what is known of where a logical block is.
    #[inline]
    fn fetch_known(&self, op: BlockOp, lba: u64) {
        if lba < self.map.blocks()
            && let Some(ppa) = self.map.get(lba).ppa()
        {
            if op == BlockOp::Read {
                self.device.hint_block(ppa);
            } else {
                self.space.prefetch(ppa);
            }
        }
    }
}
