//! Requests: which are taken, which wait, and how they end.

use device::{Content, OpenChannel, VectorCmd, VectorDone, VectorOp};
use flash::Ppa;
use ftl::pieces;
use port::{BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Buffer, Pieces, Status, Time};

use crate::{Cookie, DEPTH, Zones};

/// A request under way.
#[derive(Debug)]
pub(crate) struct Request {
    id: u64,
    op: BlockOp,
    status: Status,
    buffer: Pieces,
    /// Commands under way for it.
    parts: u32,
    /// The drive's flush is still to come.
    syncs: bool,
}

impl Default for Request {
    fn default() -> Request {
        let (id, op, status) = (0, BlockOp::Flush, Status::SUCCESS);
        Request { id, op, status, buffer: Pieces::default(), parts: 0, syncs: false }
    }
}

/// The zones that a request concerns, each with its blocks there, from and to.
fn zones(req: &BlockReq, size: u32) -> impl Iterator<Item = (usize, u32, u32)> + use<> {
    let size = u64::from(size);
    let (mut at, end) = (req.offset / BLOCK_BYTES, (req.offset + req.len) / BLOCK_BYTES);
    std::iter::from_fn(move || {
        let (zone, from) = (at / size, at % size);
        let to = size.min(from + end - at);
        at += to - from;
        (from < to).then_some((zone as usize, from as u32, to as u32))
    })
}

impl<D: OpenChannel> Zones<D> {
    /// Whether one more request may be inside.
    pub(crate) fn has_room(&self) -> bool {
        self.requests.live() + self.waiting.len() + self.ready.len() < DEPTH
    }

    /// Takes a request, or lets it wait.
    pub(crate) fn take(&mut self, now: Time, req: BlockReq) {
        let status = self.check(&req);
        if !status.is_ok() {
            let BlockReq { id, op, buffer, .. } = req;
            return self.ready.put(|| BlockDone { id, op, status, at: now, buffer });
        }
        if self.waiting.is_empty() && self.can_start(&req) {
            self.start(now, req);
        } else {
            self.waiting.push_back(req);
        }
    }

    /// Begins what no longer has to wait.
    pub(crate) fn start_waiting(&mut self, now: Time) {
        while self.waiting.front().is_some_and(|req| self.can_start(req)) {
            let req = self.waiting.pop_front().expect("it was looked at");
            self.start(now, req);
        }
    }

    /// Whether a request can be served at all, wherever its zone is written.
    fn check(&self, req: &BlockReq) -> Status {
        let status = self.shape.check(req);
        if !status.is_ok() || req.op == BlockOp::Flush {
            return status;
        }
        let size = self.geometry.chunk_blocks();
        let unit = match req.op {
            BlockOp::Write => self.geometry.write_blocks(),
            BlockOp::Trim | BlockOp::WriteZeroes => size,
            BlockOp::Read | BlockOp::Flush => 1,
        };
        let is_whole = (req.offset | req.len).is_multiple_of(BLOCK_BYTES)
            && zones(req, size).all(|(_, from, to)| from % unit == 0 && to % unit == 0);
        let is_split = req.op == BlockOp::Write && zones(req, size).count() > 1;
        if is_whole && !is_split { Status::SUCCESS } else { Status::INVALID_FIELD }
    }

    /// Whether it need not wait. A reset waits for all that is under way, all wait
    /// for a reset.
    fn can_start(&self, req: &BlockReq) -> bool {
        let mut concerned = zones(req, self.geometry.chunk_blocks());
        match req.op {
            BlockOp::Flush => true,
            BlockOp::Read | BlockOp::Write => concerned.all(|at| !self.zones[at.0].resetting),
            BlockOp::Trim | BlockOp::WriteZeroes => concerned.all(|at| self.zones[at.0].busy == 0),
        }
    }

    fn start(&mut self, now: Time, mut req: BlockReq) {
        let is_durable = req.op == BlockOp::Flush || (req.fua && req.op != BlockOp::Read);
        let slot = self.requests.take(Request {
            id: req.id,
            op: req.op,
            status: Status::SUCCESS,
            buffer: Pieces::new(std::mem::take(&mut req.buffer)),
            parts: 0,
            syncs: is_durable && self.device.is_cached(),
        });
        for (zone, from, to) in zones(&req, self.geometry.chunk_blocks()) {
            match req.op {
                BlockOp::Read => self.read(slot, zone, from, to),
                BlockOp::Write => self.write(slot, zone, from, to),
                BlockOp::Trim | BlockOp::WriteZeroes => self.reset(slot, zone),
                BlockOp::Flush => {}
            }
        }
        self.go_on(now, slot);
    }

    /// What is not programmed yet reads as zeros.
    fn read(&mut self, slot: u32, zone: usize, from: u32, to: u32) {
        let chunk = self.zones[zone].chunk;
        let written = self.device.chunk(chunk).programmed.clamp(from, to);
        for piece in pieces(&self.geometry, chunk, from..written) {
            self.send(slot, zone, VectorOp::Read, piece);
        }
        let rest = (to - written) as usize * self.shape.kept as usize;
        let mut zeros = self.requests[slot].buffer.take(rest);
        zeros.bytes_mut().fill(0);
        self.requests[slot].buffer.give(zeros);
    }

    fn write(&mut self, slot: u32, zone: usize, from: u32, to: u32) {
        let held = &mut self.zones[zone];
        let status = match held.failed {
            true => Status::WRITE_FAULT,
            false if from != held.next => Status::OUT_OF_ORDER_WRITE,
            false => Status::SUCCESS,
        };
        if !status.is_ok() {
            return self.requests[slot].status = status;
        }
        held.next = to;
        self.counters.user += u64::from(to - from);
        for piece in pieces(&self.geometry, self.zones[zone].chunk, from..to) {
            self.send(slot, zone, VectorOp::Write, piece);
        }
    }

    fn reset(&mut self, slot: u32, zone: usize) {
        let held = &mut self.zones[zone];
        if held.next == 0 && !held.failed {
            return;
        }
        held.resetting = true;
        let ppa = self.geometry.chunk_start(held.chunk);
        self.send(slot, zone, VectorOp::Reset, (ppa, 1));
    }

    fn send(&mut self, slot: u32, zone: usize, op: VectorOp, (ppa, count): (Ppa, u32)) {
        let request = &mut self.requests[slot];
        request.parts += 1;
        self.zones[zone].busy += 1;
        let (cookie, buffer) = match op {
            VectorOp::Reset => (Cookie::Reset(slot, zone), Buffer::empty()),
            _ => {
                let bytes = count as usize * self.shape.kept as usize;
                (Cookie::Part(slot, zone), request.buffer.take(bytes))
            }
        };
        let (cookie, content, count) = (cookie.pack(), Content::Data, count as u8);
        self.out.put(|| VectorCmd::new(cookie, op, content, (ppa, count), buffer));
    }

    /// Asks the drive to make durable what was done.
    pub(crate) fn send_flush(&mut self, cookie: Cookie) {
        let (cookie, op, content) = (cookie.pack(), VectorOp::Flush, Content::Data);
        let buffer = Buffer::empty();
        self.out.put(|| VectorCmd::new(cookie, op, content, (Ppa(0), 0), buffer));
    }

    /// Ends a request of which nothing is under way, unless it is still to be made
    /// durable.
    fn go_on(&mut self, now: Time, slot: u32) {
        let held = &mut self.requests[slot];
        if held.parts > 0 {
            return;
        }
        if std::mem::take(&mut held.syncs) && held.status.is_ok() {
            held.parts = 1;
            return self.send_flush(Cookie::Flush(slot));
        }
        let Request { id, op, status, buffer, .. } = std::mem::take(held);
        self.requests.give(slot);
        self.ready.put(|| BlockDone { id, op, status, at: now, buffer: buffer.whole() });
    }

    /// A command of the drive is over.
    pub(crate) fn complete(&mut self, now: Time, done: VectorDone) {
        let slot = match Cookie::unpack(done.cookie) {
            Cookie::Part(slot, zone) => {
                self.zones[zone].busy -= 1;
                let is_write = self.requests[slot].op == BlockOp::Write;
                self.zones[zone].failed |= is_write && !done.status.is_ok();
                self.requests[slot].buffer.give(done.buffer);
                slot
            }
            Cookie::Reset(slot, zone) => {
                self.counters.erases += u64::from(done.status.is_ok());
                self.zones[zone] = crate::Zone::found(self.zones[zone].chunk, &self.device);
                slot
            }
            Cookie::Flush(slot) => slot,
            Cookie::Close => return self.closed = done.status.is_ok(),
        };
        let held = &mut self.requests[slot];
        held.parts -= 1;
        held.status = held.status.and(done.status);
        self.go_on(now, slot);
    }
}
