//! A coarse map: a drive whose translation layer maps units of several blocks, as the
//! firmware of a small controller does.
//!
//! A write that does not cover its units whole goes down as its head, its whole units
//! together, and its tail. A unit of which it covers a part is read first, and changed
//! (Bjørling's thesis, chapter 6, section 6.1.3: "read-modify-write for writes less than
//! 16KB"). All else goes down as it is: writes of whole units, reads, and trims, also of parts.
//!
//! Where a unit cannot be read, a write of a part of it ends with
//! [`Status::UNRECOVERED_READ`], as one of a part of a block does, and what lies in the unit stays: a write of the whole unit, or a trim of what cannot be
//! read, heals it. Parts before that one are written.
//!
//! Guarantees: no write that has ended is lost to one of another part of its unit. Of
//! requests that change something, one that overlaps with a write in parts waits for it,
//! and those behind it wait with it; reads pass. Nothing is allocated after
//! [`Coarse::new`], which fails where there is no memory for it.

use port::{
    BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Buffer, OutOfMemory, Port, Ring, Shape, Slots,
    Status, Time,
};

/// Writes in parts that are under way at once.
const PLACES: usize = 64;

/// What a request waits for below.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Step {
    /// Itself, as it came.
    #[default]
    Passed,
    /// The unit that it changes is read.
    Reads,
    /// The unit is written.
    Writes,
    /// Whole units are written, from its own buffer.
    Whole,
}

/// A request that is inside.
#[derive(Default)]
struct Inside {
    /// Of one that was passed on, without its buffer.
    req: Option<BlockReq>,
    step: Step,
    /// How many bytes of a write in parts are written.
    done: u64,
    /// What its unit is too short for, of the buffer of one; of a write of whole units what
    /// is behind them in its own buffer.
    rest: Buffer,
}

/// The units that a request changes: their first byte, and that behind the last.
#[derive(Clone, Copy, Debug)]
struct Changes {
    slot: u32,
    from: u64,
    end: u64,
    in_parts: bool,
}

/// A block port that maps units of several blocks.
pub struct Coarse<P> {
    below: P,
    shape: Shape,
    /// Bytes of a unit.
    unit: u64,
    inside: Slots<Inside>,
    /// Of what is inside.
    changes: Vec<Changes>,
    /// Came, and waits for one that changes the same.
    waiting: Ring<BlockReq>,
    /// Buffers of a unit each.
    units: Vec<Buffer>,
    out: Ring<BlockReq>,
    ready: Ring<BlockDone>,
    below_done: Ring<BlockDone>,
}

impl<P: Port<Cmd = BlockReq, Done = BlockDone>> Coarse<P> {
    /// Maps units of `unit` bytes, a multiple of 4 KiB, on `below`, which looks like `shape`.
    pub fn new(unit: u64, below: P, shape: Shape) -> Result<Coarse<P>, OutOfMemory> {
        assert!(unit > 0 && unit.is_multiple_of(BLOCK_BYTES), "a unit is blocks");
        Ok(Coarse {
            below,
            shape,
            unit,
            inside: Slots::new(shape.depth),
            changes: Vec::with_capacity(shape.depth),
            waiting: Ring::new(shape.depth),
            units: Buffer::carve(PLACES, shape.stored(unit))?,
            out: Ring::new(shape.depth),
            ready: Ring::new(shape.depth),
            below_done: Ring::new(shape.depth),
        })
    }

    crate::below::shows_below!(P);

    /// The unit of this byte: where it begins and ends. A drive's last may be shorter.
    fn unit_of(&self, offset: u64) -> (u64, u64) {
        let from = offset - offset % self.unit;
        (from, (from + self.unit).min(self.shape.bytes))
    }

    /// What a request changes; nothing of one that changes nothing, or cannot be.
    fn changes(&self, req: &BlockReq) -> Option<Changes> {
        let reads = matches!(req.op, BlockOp::Read | BlockOp::Flush);
        if reads || !self.shape.check(req).is_ok() {
            return None;
        }
        let behind = req.offset + req.len;
        let (from, end) = (self.unit_of(req.offset).0, self.unit_of(behind - 1).1);
        let in_parts = req.op == BlockOp::Write && (from, end) != (req.offset, behind);
        Some(Changes { slot: 0, from, end, in_parts })
    }

    /// Whether one that changes this may go on beside those inside.
    fn may_begin(&self, new: &Changes) -> bool {
        let meets = |old: &Changes| {
            (old.in_parts || new.in_parts) && old.from < new.end && new.from < old.end
        };
        let is_one = |old: &&Changes| old.in_parts;
        let has_place = !new.in_parts || self.changes.iter().filter(is_one).count() < PLACES;
        has_place && !self.changes.iter().any(meets)
    }

    /// Begins what has come and changes something, in its order, as far as it may.
    fn begin_waiting(&mut self) {
        while let Some(req) = self.waiting.front() {
            let new = self.changes(req).expect("others do not wait");
            if !self.may_begin(&new) {
                return;
            }
            let req = self.waiting.pop().expect("it is the front");
            self.begin(req, Some(new));
        }
    }

    fn begin(&mut self, req: BlockReq, new: Option<Changes>) {
        let slot = self.inside.take_as_is();
        self.changes.extend(new.map(|new| Changes { slot, ..new }));
        let one = &mut self.inside[slot];
        (one.step, one.done) = (Step::Passed, 0);
        let BlockReq { id, op, fua, placement, queue, offset, len, buffer } = req;
        let keep = |buffer| BlockReq { id, op, fua, placement, queue, offset, len, buffer };
        if new.is_some_and(|new| new.in_parts) {
            one.req = Some(keep(buffer));
            return self.next_unit(slot);
        }
        one.req = Some(keep(Buffer::empty()));
        self.out.put(|| BlockReq { id: slot.into(), ..keep(buffer) });
    }

    /// The unit that a write in parts is at, and what of it is the write's; all of its whole
    /// units count as one.
    fn at(&self, slot: u32) -> ((u64, u64), (u64, u64)) {
        let one = &self.inside[slot];
        let req = one.req.as_ref().expect("it is inside");
        let (at, behind) = (req.offset + one.done, req.offset + req.len);
        let (from, end) = self.unit_of(at);
        let is_last = behind == self.shape.bytes;
        let whole = if is_last { behind } else { behind - behind % self.unit };
        match at == from && whole > at {
            true => ((at, whole), (at, whole)),
            false => ((from, end), (at, end.min(behind))),
        }
    }

    /// A write in parts goes on with its next unit, which is read, or its whole ones.
    fn next_unit(&mut self, slot: u32) {
        let (unit, part) = self.at(slot);
        if unit == part {
            return self.write_whole(slot, unit.1 - unit.0);
        }
        let mut buffer = self.units.pop().expect("there are as many as writes in parts");
        let data = buffer.split_to(self.shape.stored(unit.1 - unit.0));
        let one = &mut self.inside[slot];
        (one.rest, one.step) = (buffer, Step::Reads);
        self.send(slot, BlockOp::Read, data);
    }

    /// Writes whole units of `len` bytes from the write's own buffer.
    fn write_whole(&mut self, slot: u32, len: u64) {
        let one = &mut self.inside[slot];
        let req = one.req.as_mut().expect("it is inside");
        let mut data = std::mem::take(&mut req.buffer);
        req.buffer = data.split_to(self.shape.stored(one.done));
        let whole = data.split_to(self.shape.stored(len));
        (one.rest, one.step) = (data, Step::Whole);
        self.send(slot, BlockOp::Write, whole);
    }

    /// Puts the write's bytes into the unit, and writes it.
    fn write_unit(&mut self, slot: u32, mut data: Buffer) {
        let (unit, part) = self.at(slot);
        let one = &mut self.inside[slot];
        one.step = Step::Writes;
        let (to, from) = (self.shape.stored(part.0 - unit.0), self.shape.stored(one.done));
        let n = self.shape.stored(part.1 - part.0);
        let req = one.req.as_ref().expect("it is inside");
        data.bytes_mut()[to..to + n].copy_from_slice(&req.buffer.bytes()[from..from + n]);
        self.send(slot, BlockOp::Write, data);
    }

    fn send(&mut self, slot: u32, op: BlockOp, buffer: Buffer) {
        let (from, end) = self.at(slot).0;
        let req = self.inside[slot].req.as_ref().expect("it is inside");
        let BlockReq { fua, placement, queue, .. } = *req;
        let (fua, id) = (fua && op == BlockOp::Write, slot.into());
        let (offset, len) = (from, end - from);
        self.out.put(|| BlockReq { id, op, fua, placement, queue, offset, len, buffer });
    }

    /// What came back from below.
    fn complete(&mut self, done: BlockDone) {
        let slot = done.id as u32;
        let status = match self.inside[slot].step {
            Step::Passed => return self.end(slot, done),
            // Read, if only just.
            Step::Reads if done.status.is_ok() || done.status == Status::HIGH_ECC => {
                return self.write_unit(slot, done.buffer);
            }
            // Whatever ails the medium, that is what it comes to.
            Step::Reads if done.status.is_of_media() => Status::UNRECOVERED_READ,
            Step::Reads | Step::Writes | Step::Whole => done.status,
        };
        let part = self.at(slot).1;
        let one = &mut self.inside[slot];
        one.done += part.1 - part.0;
        let req = one.req.as_mut().expect("it is inside");
        let (mut back, rest) = (done.buffer, std::mem::take(&mut one.rest));
        back.join(rest).expect("it is the end of the same buffer");
        match one.step {
            Step::Whole => req.buffer.join(back).expect("it was cut from its end"),
            _ => self.units.push(back),
        }
        if status.is_ok() && one.done < req.len {
            return self.next_unit(slot);
        }
        let buffer = std::mem::take(&mut req.buffer);
        self.end(slot, BlockDone { buffer, status, at: done.at, id: done.id, op: done.op });
    }

    fn end(&mut self, slot: u32, done: BlockDone) {
        let BlockReq { id, op, .. } = self.inside[slot].req.take().expect("it is inside");
        self.inside.give(slot);
        if let Some(at) = self.changes.iter().position(|one| one.slot == slot) {
            self.changes.swap_remove(at);
        }
        self.ready.put(|| BlockDone { id, op, ..done });
    }

    /// Lets the port below do all that it can at `to`.
    fn work(&mut self, to: Time) {
        loop {
            if self.below.next_event().is_some_and(|at| at <= to) {
                self.below.advance(to, &mut self.below_done);
            }
            let (out, done) = (self.out.len(), self.below_done.len());
            while let Some(done) = self.below_done.pop() {
                self.complete(done);
            }
            if done > 0 {
                self.begin_waiting();
            }
            if !self.out.is_empty() {
                self.below.submit(to, &mut self.out);
            }
            let is_due = self.below.next_event().is_some_and(|at| at <= to);
            if !is_due || (done == 0 && self.out.len() == out) {
                return;
            }
        }
    }
}

impl<P: Port<Cmd = BlockReq, Done = BlockDone>> Port for Coarse<P> {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        // What is ready still has its place.
        while self.inside.room() > self.waiting.len() + self.ready.len() {
            let Some(req) = cmds.pop() else { break };
            match self.changes(&req) {
                None => self.begin(req, None),
                Some(_) => {
                    self.waiting.put(|| req);
                    self.begin_waiting();
                }
            }
        }
        if !self.out.is_empty() {
            self.below.submit(now, &mut self.out);
        }
    }

    fn next_event(&self) -> Option<Time> {
        let ready = self.ready.front().map(|done| done.at);
        [ready, self.below.next_event()].into_iter().flatten().min()
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        self.work(to);
        self.ready.pour_due(to, done);
    }

    fn hint(&self, cmd: &BlockReq) {
        self.below.hint(cmd);
    }
}
