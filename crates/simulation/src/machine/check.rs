//! What was read is compared with the contract: in a request, and block by
//! block in a check of the whole drive.

use port::{BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Buffer, Port, Status};

use super::{CHECK_BLOCKS, Machine, Violation, is_done, wrong};
use crate::contract::Contract;
use crate::words;

/// How often a check reads a block that it does not get.
const TRIES: u32 = 4;

impl Machine {
    /// Checks what was read of so many cells from `first` on.
    pub(super) fn compare(
        &self,
        (first, cells): (u64, u64),
        bytes: &[u8],
        what: &str,
        allows: impl Fn(&Contract, u64, u64) -> bool,
    ) -> Result<(), Violation> {
        let per_block = self.contract.cells_per_block;
        let each = self.setup.kept as usize / per_block as usize;
        let wrong = |cell: u64, words: String| {
            let sector = cell * self.cell_sectors;
            let block = cell / per_block;
            let words = format!("{what} of block {block} (sector {sector}): {words}");
            wrong(Some(block), words)
        };
        if bytes.len() as u64 != cells * each as u64 {
            return Err(wrong(first, format!("{cells} cells in {} bytes", bytes.len())));
        }
        let mut values = [0u64; 8];
        for (i, bytes) in bytes.chunks_exact(each).enumerate() {
            let cell = first + i as u64;
            let Some(value) = words::value(bytes) else {
                return Err(wrong(cell, "its words are not those of a value".into()));
            };
            if !allows(&self.contract, cell, value) {
                return Err(wrong(cell, self.contract.explain(cell, value).words));
            }
            // A block that was seen as a whole is looked at as a whole.
            let at = cell % per_block;
            values[at as usize] = value;
            if per_block > 1 && at == per_block - 1 && i as u64 >= at {
                let torn = self.contract.torn(cell - at, &values[..per_block as usize]);
                if let Some(torn) = torn {
                    return Err(wrong(torn, format!("the block is torn: {values:x?}")));
                }
            }
        }
        Ok(())
    }

    /// Tells the contract what a read saw of so many cells from `first` on.
    pub(super) fn saw(&mut self, (first, cells): (u64, u64), bytes: &[u8], sent: u32) {
        let each = bytes.len() / cells as usize;
        for (cell, bytes) in (first..).zip(bytes.chunks_exact(each)) {
            let value = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
            self.contract.saw(cell, value, sent);
        }
    }

    /// After a cut: reads everything and checks it. What was read is then the
    /// only value that each cell may have.
    pub fn check_all(&mut self) -> Result<(), Violation> {
        let seen = |contract: &Contract, cell, value| contract.may_remain(cell, value);
        self.read_all("after a cut", seen, |contract, block| contract.may_be_lost(block))?;
        self.has_map = true;
        Ok(())
    }

    /// With nothing under way: reads everything, which must be as it was
    /// written last.
    pub fn check_now(&mut self) -> Result<(), Violation> {
        let sent = self.contract.sent();
        let seen = move |contract: &Contract, cell, value| contract.may_read(cell, value, sent);
        self.read_all("at rest", seen, |contract, block| contract.may_fail(block, u32::MAX))
    }

    fn read_all(
        &mut self,
        when: &str,
        allows: impl Fn(&Contract, u64, u64) -> bool + Copy,
        may_fail: impl Fn(&Contract, u64) -> bool,
    ) -> Result<(), Violation> {
        let (blocks, kept) = (self.setup.blocks(), u64::from(self.setup.kept));
        let (mut next, mut left, mut missed) = (0, blocks, Vec::new());
        while left > 0 {
            while next < blocks && self.queue.room() > 0 {
                let count = CHECK_BLOCKS.min(blocks - next);
                let buffer = self.buffers.check(next / CHECK_BLOCKS, (count * kept) as usize);
                self.ask_check(next, count, buffer);
                next += count;
            }
            self.wait_for_check()?;
            while let Some(done) = self.done.pop() {
                let count = CHECK_BLOCKS.min(blocks - done.id);
                left -= count;
                if is_done(done.status) {
                    self.seen(when, &done, count, allows)?;
                } else {
                    missed.extend((done.id..done.id + count).map(|block| (block, done.status)));
                }
                self.buffers.check_done(done.id / CHECK_BLOCKS, done.buffer);
            }
        }
        for (block, status) in missed {
            self.read_again(when, block, status, allows, &may_fail)?;
        }
        self.contract.next_span();
        Ok(())
    }

    /// Reads a block by itself that was not read with others, or not at once.
    fn read_again(
        &mut self,
        when: &str,
        block: u64,
        first: Status,
        allows: impl Fn(&Contract, u64, u64) -> bool + Copy,
        may_fail: impl Fn(&Contract, u64) -> bool,
    ) -> Result<(), Violation> {
        let mut status = first;
        if self.setup.troubles.is_none() {
            let words = format!("block {block}, {when}: {status}");
            return Err(wrong(Some(block), words));
        }
        for _ in 0..TRIES {
            let buffer = Buffer::zeroed(self.setup.kept as usize).expect("memory for a block");
            self.ask_check(block, 1, buffer);
            while self.done.is_empty() {
                self.wait_for_check()?;
            }
            let done = self.done.pop().expect("it was looked at");
            if is_done(done.status) {
                return self.seen(when, &done, 1, allows);
            }
            status = done.status;
        }
        let explained = may_fail(&self.contract, block) || self.withholds(block);
        if status != Status::UNRECOVERED_READ || !explained {
            let words = format!("block {block}, {when}: {status}");
            return Err(wrong(Some(block), words));
        }
        self.note(Some((block, 1)), || format!("{when} block {block} is lost"));
        self.contract.lose(block);
        let withheld = u64::from(self.withholds(block));
        (self.rig.counts.withheld, self.rig.counts.lost) =
            (self.rig.counts.withheld + withheld, self.rig.counts.lost + 1 - withheld);
        Ok(())
    }

    fn ask_check(&mut self, block: u64, count: u64, buffer: Buffer) {
        let (offset, len) = (block * BLOCK_BYTES, count * BLOCK_BYTES);
        let req = BlockReq::new(block, BlockOp::Read, offset, len, buffer);
        self.queue.push(req).expect("there is room");
    }

    /// Lets the next thing happen in a check.
    fn wait_for_check(&mut self) -> Result<(), Violation> {
        self.submit();
        let drive = self.drive.as_mut().expect("there is power");
        let at = drive.next_event().ok_or_else(|| wrong(None, "a check's read hangs"))?;
        self.now = self.now.max(at);
        drive.advance(self.now, &mut self.done);
        self.take_strikes();
        if self.rig.is_off() {
            return Err(self.hangs());
        }
        if !self.done.is_empty() {
            self.rig.flash.power().progress();
        }
        Ok(())
    }

    /// So many blocks of a check.
    fn seen(
        &mut self,
        when: &str,
        done: &BlockDone,
        count: u64,
        allows: impl Fn(&Contract, u64, u64) -> bool,
    ) -> Result<(), Violation> {
        let per_block = self.contract.cells_per_block;
        let first = done.id * per_block;
        let bytes = done.buffer.bytes();
        self.compare((first, count * per_block), bytes, when, allows)?;
        let each = self.setup.kept as usize / per_block as usize;
        for (i, bytes) in bytes.chunks_exact(each).enumerate() {
            let value = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
            let cell = first + i as u64;
            self.contract.settle(cell, value);
            self.rig.see(value);
            if self.rig.traces(cell / per_block) {
                self.note(None, || format!("{when} cell {cell} has value {value:#x}"));
            }
        }
        self.rig.hash = self.rig.hash.wrapping_add(self.now.0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use port::Time;

    use super::*;
    use crate::machine::Request;
    use crate::setup::Setup;

    /// What a read did not bring is not taken for what was there.
    #[test]
    fn a_read_that_comes_back_short_is_wrong() {
        let ends_well = |blocks: usize| {
            let mut machine = Machine::new(Setup::sound(0), None, None);
            let (op, cells) = (BlockOp::Read, 2 * machine.contract.cells_per_block);
            let at = machine.contract.sent();
            let (sent, since) = (at, at);
            let read = Request { op, block: 0, blocks: 2, cell: 0, cells, at, sent, since };
            machine.open[0] = Some(read);
            let buffer = Buffer::zeroed(blocks * machine.setup.kept as usize).unwrap();
            let (status, at) = (Status::SUCCESS, Time::ZERO);
            machine.completed(BlockDone { id: 0, op, status, at, buffer }).is_ok()
        };
        assert!(ends_well(2) && !ends_well(1) && !ends_well(0));
    }
}
