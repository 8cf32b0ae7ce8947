//! Merging: contiguous requests that become one.
//!
//! What may be merged: two requests of one operation that lie side by side,
//! both with FUA or both without, together no longer than the device takes at
//! once. A flush has no address and is never merged; nor is a request that
//! the device would refuse, since its neighbours would be refused with it.
//!
//! The parts of a merged request keep their buffers until it is dispatched.
//! Where these lie side by side in memory too, or are empty, they are joined
//! and nothing is copied. Otherwise the request gets one of the bounce
//! buffers: writes are copied into it when it is dispatched, and reads out of
//! it when it completes.
//!
//! Guarantees: every part has a completion of its own, once, with its own id
//! and buffer. The parts share the status: where one block cannot be read, all
//! of them fail. All memory is taken at the start:
//! when parts or bounce buffers are used up, requests are not merged, and go
//! out one by one. A bounce buffer that the driver lost with a request that it
//! could not give up is lost; there is then one less. Nothing else fails but
//! getting the memory.

use std::mem;

use port::{BlockDone, BlockOp, BlockReq, Buffer, OutOfMemory, Shape, Slots, Status, Time};

use crate::error::ConfigError;
use crate::staging::Outgoing;

/// The requests of which a merged request consists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Parts(u32);

impl Parts {
    /// The request is not merged.
    pub const NONE: Parts = Parts(u32::MAX);

    /// Whether the request is not merged.
    #[inline]
    pub fn is_none(self) -> bool {
        self == Parts::NONE
    }
}

/// Bounce buffers of a staging queue.
const BOUNCES: usize = 16;
/// The longest request that goes through a bounce buffer, in bytes.
const MOST_BOUNCED: u64 = 1 << 20;
/// For so many requests in the staging queue and the device, there is room
/// for one merged one.
const PARTS_PER_REQUEST: usize = 4;
/// The most parts in all.
const MOST_PARTS: usize = 1 << 16;

/// The most requests that merged ones of a staging queue of `depth` requests
/// consist of at once; each has two at least.
pub(crate) fn most_parts(depth: usize, shape: &Shape) -> usize {
    depth.saturating_add(shape.depth).saturating_mul(PARTS_PER_REQUEST).min(MOST_PARTS)
}

/// No part.
const NIL: u32 = u32::MAX;

/// Where a request joins another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Front,
    Back,
}

/// The first byte after a request.
#[inline]
pub(crate) fn end(req: &BlockReq) -> u64 {
    req.offset.saturating_add(req.len)
}

/// Where `new` lies beside `old`, if they may be one request at all. That they
/// lie apart is the usual case, and asked first.
#[inline]
pub(crate) fn side(old: &BlockReq, new: &BlockReq) -> Option<Side> {
    let (behind, in_front) = (end(old) == new.offset, end(new) == old.offset);
    if !(behind | in_front) {
        return None;
    }
    let kind = |req: &BlockReq| (req.op, req.fua, req.placement, req.queue);
    let alike = kind(old) == kind(new);
    if !alike || new.op == BlockOp::Flush {
        return None;
    }
    Some(if behind { Side::Back } else { Side::Front })
}

/// Whether it matters which of two requests goes first: they overlap and do
/// not both read, or one is a flush. Without branches, since addresses cannot
/// be predicted.
#[inline]
pub(crate) fn conflicts(a: &BlockReq, b: &BlockReq) -> bool {
    let flush = (a.op == BlockOp::Flush) | (b.op == BlockOp::Flush);
    let reads = (a.op == BlockOp::Read) & (b.op == BlockOp::Read);
    let overlap = (a.offset < end(b)) & (b.offset < end(a));
    flush | (overlap & !reads)
}

/// An original request.
#[derive(Debug)]
struct Part {
    id: u64,
    submitted: Time,
    from: u32,
    /// The part behind this one.
    next: u32,
    /// Bytes in its buffer.
    stored: usize,
    /// Empty while it is part of a joined one.
    buffer: Buffer,
}

impl Part {
    fn new(from: u32, submitted: Time, id: u64, buffer: Buffer) -> Part {
        Part { id, submitted, from, next: NIL, stored: buffer.len(), buffer }
    }
}

impl Default for Part {
    fn default() -> Part {
        Part::new(0, Time::ZERO, 0, Buffer::empty())
    }
}

/// A merged request's parts, in the order of their addresses.
#[derive(Debug)]
struct Group {
    op: BlockOp,
    first: u32,
    last: u32,
    stored: usize,
    /// Its bounce buffer; once it is dispatched, what the request is too
    /// short to use.
    bounce: Option<Buffer>,
}

impl Default for Group {
    fn default() -> Group {
        Group { op: BlockOp::Flush, first: NIL, last: NIL, stored: 0, bounce: None }
    }
}

/// What a staging queue merges with.
#[derive(Debug)]
pub(crate) struct Merger {
    shape: Shape,
    groups: Slots<Group>,
    parts: Slots<Part>,
    bounces: Vec<Buffer>,
    /// Bytes of each bounce buffer.
    bounce: usize,
}

impl Merger {
    /// One that merges nothing and has no memory.
    pub fn off(shape: Shape) -> Merger {
        let (groups, parts) = (Slots::new(0), Slots::new(0));
        Merger { shape, groups, parts, bounces: Vec::new(), bounce: 0 }
    }

    /// Bytes of memory that one for a staging queue of `depth` requests takes.
    pub fn bytes(depth: usize, shape: &Shape) -> u64 {
        let parts = most_parts(depth, shape);
        let bounces = BOUNCES * shape.stored(shape.max_bytes.min(MOST_BOUNCED));
        Slots::<Part>::bytes(parts) + Slots::<Group>::bytes(parts / 2) + bounces as u64
    }

    /// For a staging queue of `depth` requests over a device of this shape.
    pub fn new(depth: usize, shape: Shape) -> Result<Merger, ConfigError> {
        let parts = most_parts(depth, &shape);
        let bounce = shape.stored(shape.max_bytes.min(MOST_BOUNCED));
        let named = |e| OutOfMemory { what: "bounce buffers", ..e };
        let bounces = Buffer::carve(BOUNCES, bounce).map_err(named)?;
        // A group has two parts at least.
        let groups = Slots::new(parts / 2);
        Ok(Merger { shape, groups, parts: Slots::new(parts), bounces, bounce })
    }

    /// Whether the device would take the request.
    pub fn accepts(&self, req: &BlockReq) -> bool {
        self.shape.check(req).is_ok()
    }

    /// Whether `new`, which lies beside `old`, may join it.
    pub fn allows(&self, old: &Outgoing, side: Side, new: &BlockReq) -> bool {
        let (single, group) = (old.parts.is_none(), &self.groups);
        if single && !self.accepts(&old.req) {
            return false;
        }
        let short = old.req.len.checked_add(new.len).is_some_and(|n| n <= self.shape.max_bytes);
        let wanted = if single { (1, 2) } else { (0, 1) };
        if !short || group.room() < wanted.0 || self.parts.room() < wanted.1 {
            return false;
        }
        let (stored, bounced) = match single {
            true => (old.req.buffer.len(), false),
            false => (group[old.parts.0].stored, group[old.parts.0].bounce.is_some()),
        };
        let adjoins = match side {
            Side::Back => self.neighbour(old, side).adjoins(&new.buffer),
            Side::Front => new.buffer.adjoins(self.neighbour(old, side)),
        };
        if adjoins && !bounced {
            return true;
        }
        stored + new.buffer.len() <= self.bounce && (bounced || !self.bounces.is_empty())
    }

    /// The buffer of `old` that one on this side lies beside.
    fn neighbour<'a>(&'a self, old: &'a Outgoing, side: Side) -> &'a Buffer {
        if old.parts.is_none() {
            return &old.req.buffer;
        }
        let group = &self.groups[old.parts.0];
        let part = if side == Side::Back { group.last } else { group.first };
        &self.parts[part].buffer
    }

    /// Lets `new` of core `from` join `old`, which [`Merger::allows`].
    pub fn join(&mut self, old: &mut Outgoing, side: Side, now: Time, from: u32, new: BlockReq) {
        let adjoins = match side {
            Side::Back => self.neighbour(old, side).adjoins(&new.buffer),
            Side::Front => new.buffer.adjoins(self.neighbour(old, side)),
        };
        if old.parts.is_none() {
            old.parts = self.group(old);
        }
        let group = &mut self.groups[old.parts.0];
        if !adjoins && group.bounce.is_none() {
            group.bounce = self.bounces.pop();
        }
        let mut part = Part::new(from, now, new.id, new.buffer);
        group.stored += part.stored;
        old.req.len += new.len;
        match side {
            Side::Back => {
                let id = self.parts.take(part);
                self.parts[mem::replace(&mut group.last, id)].next = id;
            }
            Side::Front => {
                part.next = group.first;
                group.first = self.parts.take(part);
                old.req.offset = new.offset;
            }
        }
    }

    /// Makes a group of a request that stands alone.
    fn group(&mut self, old: &mut Outgoing) -> Parts {
        let buffer = mem::take(&mut old.req.buffer);
        let part = Part::new(old.from, old.submitted, old.req.id, buffer);
        let stored = part.stored;
        let only = self.parts.take(part);
        let op = old.req.op;
        Parts(self.groups.take(Group { op, first: only, last: only, stored, bounce: None }))
    }

    /// Gives a merged request, which is about to be dispatched, its buffer.
    #[cold]
    pub fn gather(&mut self, out: &mut Outgoing) {
        let group = &mut self.groups[out.parts.0];
        let mut whole = Buffer::empty();
        if let Some(bounce) = &mut group.bounce {
            whole = bounce.split_to(group.stored);
        }
        let (mut at, mut filled) = (group.first, 0);
        while at != NIL {
            let part = &mut self.parts[at];
            if group.bounce.is_none() {
                whole.join(mem::take(&mut part.buffer)).expect("they adjoin, or one would bounce");
            } else if group.op == BlockOp::Write {
                whole.bytes_mut()[filled..filled + part.stored]
                    .copy_from_slice(part.buffer.bytes());
            }
            filled += part.stored;
            at = part.next;
        }
        out.req.buffer = whole;
    }

    /// Takes a merged request apart: `each` is given every part's core, time
    /// of submission and completion, in the order of their addresses.
    ///
    /// # Panics
    /// When `parts` is none, or was taken apart already.
    pub fn split(
        &mut self,
        parts: Parts,
        status: Status,
        at: Time,
        mut buffer: Buffer,
        each: &mut impl FnMut(u32, Time, BlockDone),
    ) {
        let group = mem::take(&mut self.groups[parts.0]);
        assert!(group.first != NIL, "a merged request is taken apart once");
        self.groups.give(parts.0);
        let Group { op, stored, bounce, .. } = group;
        let whole = buffer.len() == stored;
        // A read that gives nothing back did not read.
        let lost = op == BlockOp::Read && !whole && has_data(status);
        let status = if lost { Status::INTERNAL } else { status };
        let scatter = op == BlockOp::Read && has_data(status);
        let (mut next, mut done) = (group.first, 0);
        while next != NIL {
            let mut part = mem::take(&mut self.parts[next]);
            self.parts.give(mem::replace(&mut next, part.next));
            if bounce.is_none() && whole {
                part.buffer = cut(&mut buffer, part.stored);
            } else if scatter && bounce.is_some() {
                let bytes = &buffer.bytes()[done..done + part.stored];
                part.buffer.bytes_mut().copy_from_slice(bytes);
            }
            done += part.stored;
            let (id, buffer) = (part.id, part.buffer);
            each(part.from, part.submitted, BlockDone { id, op, status, at, buffer });
        }
        if let Some(rest) = bounce {
            self.take_back(buffer, rest);
        }
    }

    /// How many requests a merged one was made of.
    pub fn count(&self, parts: Parts) -> usize {
        let mut next = self.groups[parts.0].first;
        let mut count = 0;
        while next != NIL {
            next = self.parts[next].next;
            count += 1;
        }
        count
    }

    /// Puts a bounce buffer together and back, if it is the one.
    fn take_back(&mut self, mut buffer: Buffer, rest: Buffer) {
        if buffer.join(rest).is_ok() && buffer.len() == self.bounce {
            self.bounces.push(buffer);
        }
    }

    /// Bounce buffers that are free.
    #[cfg(test)]
    pub fn free_bounces(&self) -> usize {
        self.bounces.len()
    }

    /// Parts that are free.
    #[cfg(test)]
    pub fn free_parts(&self) -> usize {
        self.parts.room()
    }
}

/// Whether a read that ended so has its data.
fn has_data(status: Status) -> bool {
    status.is_ok() || status == Status::HIGH_ECC
}

/// The first `n` bytes of `buffer`; all of it without touching a counter.
fn cut(buffer: &mut Buffer, n: usize) -> Buffer {
    if n == buffer.len() { mem::take(buffer) } else { buffer.split_to(n) }
}
