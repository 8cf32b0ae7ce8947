//! Why a drive may fail: the model says so, by what faults struck and what the
//! flash has lost. The drive itself is not asked: it stands accused.

use std::ops::Range;

use port::{BLOCK_BYTES, BlockOp, Status};

use super::{Machine, Request, Violation, wrong};
use crate::species::Refusal;
use crate::stack::StartError;
use crate::trouble::Struck;

impl Machine {
    /// A request failed: it may where a fault was injected that concerns it.
    /// What it was to write is then written or not.
    pub(super) fn failed(&mut self, request: &Request, status: Status) -> Result<(), Violation> {
        let Request { op, block, blocks, .. } = *request;
        if self.setup.troubles.is_none() || !self.may_fail(request, status) {
            let words = format!("{request:?} failed: {status}; {}", self.flash_in_words());
            return Err(wrong(Some(block), words));
        }
        self.rig.told_of_end |= matches!(status, Status::READ_ONLY | Status::WRITE_FAULT);
        self.rig.counts.errors += 1;
        let about = (op != BlockOp::Flush).then_some((block, blocks));
        self.note(about, || format!("{op:?} at {} failed: {status}", request.at));
        Ok(())
    }

    fn may_fail(&self, request: &Request, status: Status) -> bool {
        let Request { op, block, blocks, .. } = *request;
        let writes = op != BlockOp::Read;
        let own = block..block + blocks;
        // A part of a block needs the rest of it.
        let needed = match op {
            BlockOp::Read | BlockOp::Write | BlockOp::WriteZeroes => self.failed_with(op, &own),
            BlockOp::Flush | BlockOp::Trim => 0..0,
        };
        match status {
            Status::UNRECOVERED_READ => {
                // A part of a block that cannot be read was in the cache: the
                // drive takes nothing until it can.
                let frozen = writes && self.is_frozen && self.may_lack_a_part();
                let mut needed = needed;
                let lacks = |block| {
                    self.contract.may_fail(block, request.settled(block)) || self.withholds(block)
                };
                frozen || (!writes || self.setup.parts) && needed.any(lacks)
            }
            Status::READ_ONLY | Status::WRITE_FAULT if op == BlockOp::Flush => self.may_end(),
            Status::READ_ONLY | Status::WRITE_FAULT => {
                let blocks = self.failed_with(op, &own);
                writes && self.setup.species.may_end(&self.setup, &self.rig.flash, &blocks)
            }
            _ => false,
        }
    }

    /// The blocks of a failed request, and those of others that the block layer
    /// made one with it: they fail together.
    fn failed_with(&self, op: BlockOp, own: &Range<u64>) -> Range<u64> {
        let Some(drive) = self.drive.as_ref().filter(|_| self.setup.merges()) else {
            return own.clone();
        };
        let bytes = (own.start * BLOCK_BYTES, own.end * BLOCK_BYTES);
        let (start, end) = drive.failed_with(op, bytes);
        start / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES).min(self.setup.blocks())
    }

    /// Whether faults since `before` explain that recovery failed.
    pub(super) fn may_refuse(&self, error: &StartError, before: Struck) -> bool {
        let StartError::Target(error) = error else { return false };
        let (setup, flash, now) = (&self.setup, &self.rig.flash, self.rig.flash.struck());
        let keys_unread = now.keys > before.keys;
        let unread = now.reads - now.keys > before.reads - before.keys;
        let unwritten = now.programs > before.programs || now.closed > before.closed;
        setup
            .species
            .may_refuse(&**error, &Refusal { setup, flash, unread, keys_unread, unwritten })
    }

    /// Whether the drive has reason to take no more writes.
    pub fn may_end(&self) -> bool {
        let all = 0..self.setup.blocks();
        self.setup.species.may_end(&self.setup, &self.rig.flash, &all)
    }

    fn flash_in_words(&self) -> String {
        let geometry = &self.setup.seen();
        let hurt = |pu| self.rig.flash.hurt(pu, 0..geometry.chunks());
        let all: Vec<u32> = geometry.pus_channels_first().map(hurt).collect();
        format!("the units, of {} data chunks each, lost {all:?}", self.setup.data_chunks)
    }

    /// Whether the drive has reason not to take what its protected cache has:
    /// it is at its end, or a block could not be read, now or when it was moved,
    /// of which that has a part.
    pub(super) fn may_be_frozen(&self) -> bool {
        self.setup.protected && (self.may_end() || self.may_lack_a_part())
    }

    /// Whether a block may be unreadable of which the cache has a part.
    fn may_lack_a_part(&self) -> bool {
        let struck = || (0..self.setup.blocks()).any(|block| self.contract.may_be_lost(block));
        self.setup.parts && (self.start_struck || self.lacks_a_part || struck())
    }

    /// Whether the drive had reason not to take something that its protected
    /// cache was given since it started.
    pub(super) fn may_withhold(&self) -> bool {
        self.setup.protected && (self.may_end() || (self.setup.parts && self.lacks_a_part))
    }

    /// Whether what a block has may be only in the cache, of a drive that is
    /// frozen or did not take it.
    pub(super) fn withholds(&self, block: u64) -> bool {
        self.in_cache.may_have(block) && (self.is_frozen || self.may_withhold())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::Contract;

    /// A copy that was struck and then replaced is no excuse for a request that
    /// came later, also where its block is only a neighbour's.
    #[test]
    fn the_excuse_of_a_neighbour_ages() {
        let mut contract = Contract::new(2, 1);
        let write = contract.begin(1, 1, false, false);
        contract.end(write);
        let value = contract.value(write, 1);
        contract.strike(1, vec![value]);
        let may_fail = |contract: &mut Contract, since: u32| {
            let sent = contract.sent();
            let (op, since) = (BlockOp::Read, since.min(sent));
            let read =
                Request { op, block: 0, blocks: 1, cell: 0, cells: 1, at: sent, sent, since };
            contract.may_fail(1, read.settled(1))
        };
        assert!(may_fail(&mut contract, u32::MAX));
        let before = contract.now();
        let write = contract.begin(1, 1, false, true);
        contract.end(write);
        assert!(may_fail(&mut contract, before), "its neighbour was sent before");
        assert!(!may_fail(&mut contract, u32::MAX), "all that was under way was sent later");
    }
}
