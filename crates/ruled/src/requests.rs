//! Requests: how they are taken, and how they end.

use std::ops::Range;

use device::{Content, OpenChannel, VectorOp};
use flash::Ppa;
use port::{BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Buffer, Pieces, Status, Time};
use rules::{Entry, Request as Asked};

use crate::work::Work;
use crate::{Cookie, DEPTH, Ruled};

/// A request under way.
#[derive(Debug)]
pub(crate) struct Request {
    pub id: u64,
    pub op: BlockOp,
    pub status: Status,
    /// Its blocks.
    pub blocks: Range<u64>,
    pub buffer: Pieces,
    /// Commands under way for it, and one while its blocks are decided.
    pub parts: u32,
    /// It ends only when all is durable that was done before: so many entries were given up,
    /// and when that is written down, it came up to this row.
    pub given_up: u64,
    until: Option<u64>,
    /// It is among those of this limit of the set.
    pub limit: Option<u16>,
}

impl Default for Request {
    fn default() -> Request {
        Request {
            id: 0,
            op: BlockOp::Flush,
            status: Status::SUCCESS,
            blocks: 0..0,
            buffer: Pieces::default(),
            parts: 0,
            given_up: 0,
            until: None,
            limit: None,
        }
    }
}

impl Request {
    /// Bytes of its buffer that were taken from the front.
    pub fn taken(&self, kept: usize) -> usize {
        let blocks = (self.blocks.end - self.blocks.start) as usize;
        blocks * kept - self.buffer.rest().len()
    }

    /// Whether it changes a block.
    pub fn changes(&self, lba: u64) -> bool {
        !matches!(self.op, BlockOp::Read | BlockOp::Flush) && self.blocks.contains(&lba)
    }
}

impl<D: OpenChannel> Ruled<D> {
    /// Whether a request can be taken.
    pub(crate) fn can_take(&self) -> bool {
        self.requests.live() + self.ready.len() < DEPTH
    }

    /// Takes a request.
    pub(crate) fn take(&mut self, now: Time, req: BlockReq) {
        let mut status = self.shape.check(&req);
        if status.is_ok() && !(req.offset | req.len).is_multiple_of(BLOCK_BYTES) {
            status = Status::INVALID_FIELD;
        }
        let changes = !matches!(req.op, BlockOp::Read | BlockOp::Flush);
        if status.is_ok() && changes && self.broken {
            status = Status::READ_ONLY;
        }
        let BlockReq { id, op, fua, offset, len, placement, queue, buffer, .. } = req;
        if !status.is_ok() {
            return self.ready.put(|| BlockDone { id, op, status, at: now, buffer });
        }
        let (first, count) = (offset / BLOCK_BYTES, len / BLOCK_BYTES);
        // A flush is decided once.
        let end = first + if op == BlockOp::Flush { 1 } else { count };
        let served = if op == BlockOp::Read { self.serves(first..end) } else { None };
        if let Some(map) = served.filter(|_| count == 1) {
            return self.read_one(now, id, Entry { map, key: first }, buffer);
        }
        let blocks = first..first + count;
        if changes {
            self.remotes.keep_no_more(|fill| blocks.contains(&fill.lba));
        }
        let buffer = Pieces::new(buffer);
        let request = Request { id, op, status, blocks, buffer, parts: 1, ..Request::default() };
        let slot = self.requests.take(request);
        if let Some(map) = served {
            return self.read_all(now, slot, map, first..end);
        }
        let asked = Asked {
            op: op.into(),
            application: 0,
            channel: queue.into(),
            lba: first,
            size: if op == BlockOp::Flush { 0 } else { BLOCK_BYTES },
            placement,
        };
        let is_durable = op == BlockOp::Flush || (fua && changes);
        let work = Work {
            slot,
            asked,
            is_durable,
            first,
            end,
            block: None,
            waiting: None,
            answered: None,
            run: None,
            far: None,
            is_here: false,
        };
        self.carry_out(now, work);
    }

    /// Requests whose rows are programmed ask the drive to make that durable, and end.
    pub(crate) fn sync(&mut self, now: Time) {
        for n in (0..self.syncing.len()).rev() {
            let slot = self.syncing[n];
            let Request { given_up, until, .. } = self.requests[slot];
            if self.forgotten.iter().any(|other| other.number <= given_up) {
                continue;
            }
            let until = until.unwrap_or(self.space.row);
            self.requests[slot].until = Some(until);
            if !self.broken && !self.settle(until, None) {
                continue;
            }
            self.syncing.remove(n);
            if self.broken {
                self.part_done(now, slot, Status::WRITE_FAULT);
            } else if self.device.is_cached() {
                self.flush_device(Cookie::Flush(slot));
            } else {
                self.part_done(now, slot, Status::SUCCESS);
            }
        }
    }

    /// Asks the drive to make durable what was done.
    pub(crate) fn flush_device(&mut self, cookie: Cookie) {
        self.command(cookie, VectorOp::Flush, Content::Data, (Ppa(0), 0), Buffer::empty());
    }

    /// A part of a request is over; with the last it ends.
    pub(crate) fn part_done(&mut self, now: Time, slot: u32, status: Status) {
        let request = &mut self.requests[slot];
        request.status = request.status.and(status);
        request.parts -= 1;
        if request.parts == 0 {
            let Request { id, op, status, buffer, limit, .. } = std::mem::take(request);
            self.requests.give(slot);
            if let Some(limit) = limit {
                self.waits.leave(limit);
            }
            self.ready.put(|| BlockDone { id, op, status, at: now, buffer: buffer.whole() });
        }
    }
}
