//! A block drive, addressed in blocks of 4096 bytes.
//!
//! A transfer may be longer than the drive takes at once: it is cut and
//! completes as one. Commands wait here while the drive refuses them.

use port::{BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Buffer, Pieces, Ring, Shape, Status, Time};

use super::StoreError;
use super::awaited::Awaited;

/// Transfers that may be under way at once, page reads aside.
const OTHERS: usize = 64;

/// A completed transfer.
pub(super) struct Finished<T> {
    pub(super) tag: T,
    pub(super) status: Status,
    pub(super) buffer: Buffer,
}

struct Slot<T> {
    tag: T,
    pieces: Pieces,
    left: u32,
    status: Status,
}

/// The drive.
pub(super) struct Blocks<D, T> {
    drive: D,
    shape: Shape,
    now: Time,
    cmds: Ring<BlockReq>,
    done: Ring<BlockDone>,
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    /// There are commands that the drive has not seen.
    fresh: bool,
}

impl<T: Copy + Default, D: Awaited<Cmd = BlockReq, Done = BlockDone>> Blocks<D, T> {
    /// The drive, whose outside is `shape`. `longest` is the longest transfer,
    /// in blocks.
    pub(super) fn new(drive: D, shape: Shape, longest: u64) -> Result<Blocks<D, T>, StoreError> {
        let refuse = |what, value, range| Err(StoreError::Shape { what, value, range });
        if u64::from(shape.kept) != BLOCK_BYTES {
            return refuse("bytes kept of a block", shape.kept.into(), "4096");
        }
        if shape.depth < 4 {
            return refuse("depth", shape.depth as u64, "at least 4");
        }
        if shape.max_bytes < BLOCK_BYTES {
            return refuse("longest command", shape.max_bytes, "at least 4096");
        }
        let parts = (longest * BLOCK_BYTES).div_ceil(shape.max_bytes / BLOCK_BYTES * BLOCK_BYTES);
        let count = shape.depth + OTHERS;
        let slot = |_| Slot {
            tag: T::default(),
            pieces: Pieces::default(),
            left: 0,
            status: Status::SUCCESS,
        };
        Ok(Blocks {
            drive,
            shape,
            now: Time::ZERO,
            cmds: Ring::new(shape.depth + OTHERS * parts as usize),
            done: Ring::new(shape.depth),
            slots: (0..count).map(slot).collect(),
            free: (0..count as u32).rev().collect(),
            fresh: false,
        })
    }

    pub(super) fn now(&self) -> Time {
        self.now
    }

    pub(super) fn drive_mut(&mut self) -> &mut D {
        &mut self.drive
    }

    pub(super) fn into_drive(self) -> D {
        self.drive
    }

    /// Whether another page read may begin: the rest is for other transfers.
    pub(super) fn has_read_room(&self) -> bool {
        self.free.len() > OTHERS
    }

    /// How many other transfers may begin.
    pub(super) fn room(&self) -> usize {
        self.free.len()
    }

    /// Begins to read or write the blocks from `block` on.
    pub(super) fn transfer(&mut self, op: BlockOp, block: u64, buffer: Buffer, tag: T) {
        self.pass(op, false, block, buffer, tag);
    }

    /// Begins to write the blocks from `block` on; they are durable when that
    /// completes.
    pub(super) fn write_durably(&mut self, block: u64, buffer: Buffer, tag: T) {
        self.pass(BlockOp::Write, true, block, buffer, tag);
    }

    fn pass(&mut self, op: BlockOp, fua: bool, block: u64, buffer: Buffer, tag: T) {
        let most = (self.shape.max_bytes / BLOCK_BYTES * BLOCK_BYTES) as usize;
        let len = buffer.len();
        let slot = self.begin(tag, Pieces::new(buffer), len.div_ceil(most) as u32);
        for at in (0..len).step_by(most) {
            let part = most.min(len - at);
            let buffer = self.slots[slot as usize].pieces.take(part);
            let at = block * BLOCK_BYTES + at as u64;
            self.push(BlockReq { fua, ..BlockReq::new(slot.into(), op, at, part as u64, buffer) });
        }
    }

    /// Begins a flush, or a trim of `count` blocks.
    pub(super) fn command(&mut self, op: BlockOp, block: u64, count: u64, tag: T) {
        let slot = self.begin(tag, Pieces::default(), 1);
        let (at, len) = (block * BLOCK_BYTES, count * BLOCK_BYTES);
        self.push(BlockReq::new(slot.into(), op, at, len, Buffer::empty()));
    }

    fn begin(&mut self, tag: T, pieces: Pieces, left: u32) -> u32 {
        let slot = self.free.pop().expect("the caller saw room");
        self.slots[slot as usize] = Slot { tag, pieces, left, status: Status::SUCCESS };
        slot
    }

    fn push(&mut self, req: BlockReq) {
        let pushed = self.cmds.push(req);
        assert!(pushed.is_ok(), "the ring holds all parts");
        self.fresh = true;
    }

    /// Lets happen what is due at `now`. False when nothing has completed.
    pub(super) fn advance(&mut self, now: Time) -> bool {
        self.now = self.now.max(now);
        self.drive.advance_due(now, &mut self.done)
    }

    /// The next transfer that has completed.
    pub(super) fn pop(&mut self) -> Option<Finished<T>> {
        while let Some(done) = self.done.pop() {
            let slot = &mut self.slots[done.id as usize];
            slot.status = slot.status.and(done.status);
            slot.left -= 1;
            slot.pieces.give(done.buffer);
            if slot.left == 0 {
                let buffer = std::mem::take(&mut slot.pieces).whole();
                self.free.push(done.id as u32);
                return Some(Finished { tag: slot.tag, status: slot.status, buffer });
            }
        }
        None
    }

    /// Gives the drive what waits. False when it takes nothing.
    pub(super) fn submit(&mut self) -> bool {
        self.fresh = false;
        let before = self.cmds.len();
        if before > 0 {
            self.drive.submit(self.now, &mut self.cmds);
        }
        self.cmds.len() < before
    }

    pub(super) fn next_event(&self) -> Option<Time> {
        if self.fresh || !self.done.is_empty() {
            return Some(self.now);
        }
        self.drive.next_event()
    }

    pub(super) fn wait(&mut self) -> Option<Time> {
        if !self.done.is_empty() {
            return Some(self.now);
        }
        self.submit();
        self.drive.wait()
    }

    /// Does one thing and waits for it, with nothing else under way.
    fn settle(&mut self, what: &'static str) -> Result<Buffer, StoreError> {
        loop {
            self.submit();
            if let Some(finished) = self.pop() {
                StoreError::drive(what, finished.status)?;
                return Ok(finished.buffer);
            }
            let now = self.drive.wait().ok_or(StoreError::Gone)?;
            self.advance(now);
        }
    }

    /// Reads into `buffer` at once. For opening.
    pub(super) fn read_now(&mut self, block: u64, buffer: Buffer) -> Result<Buffer, StoreError> {
        self.transfer(BlockOp::Read, block, buffer, T::default());
        self.settle("read")
    }

    /// What `head` says of the first two blocks that have one: how many blocks are
    /// beside a store; 0 where neither has. For opening.
    pub(super) fn beside(
        &mut self,
        head: impl Fn(&[u8]) -> Option<u64>,
    ) -> Result<u64, StoreError> {
        let mut block = buffer(BLOCK_BYTES as usize)?;
        for at in 0..2 {
            block = self.read_now(at, block)?;
            if let Some(beside) = head(block.bytes()) {
                return Ok(beside);
            }
        }
        Ok(0)
    }

    /// Writes `buffer` at once. For opening.
    pub(super) fn write_now(&mut self, block: u64, buffer: Buffer) -> Result<Buffer, StoreError> {
        self.transfer(BlockOp::Write, block, buffer, T::default());
        self.settle("write")
    }

    /// Trims `count` blocks from `block` on at once. For opening.
    pub(super) fn trim_now(&mut self, block: u64, count: u64) -> Result<(), StoreError> {
        self.command(BlockOp::Trim, block, count, T::default());
        self.settle("trim").map(drop)
    }

    /// Flushes at once. For opening.
    pub(super) fn flush_now(&mut self) -> Result<(), StoreError> {
        self.command(BlockOp::Flush, 0, 0, T::default());
        self.settle("flush").map(drop)
    }
}

/// Whether nothing was ever written to a block, or it was trimmed since.
pub(super) fn is_blank(block: &[u8]) -> bool {
    block.iter().all(|&byte| byte == 0)
}

/// Memory for `bytes`.
pub(super) fn buffer(bytes: usize) -> Result<Buffer, StoreError> {
    Buffer::zeroed(bytes).map_err(|_| StoreError::Shape {
        what: "bytes of a buffer",
        value: bytes as u64,
        range: "what memory is left",
    })
}
