//! A staging queue: where requests wait until the device has room, are put in
//! order and merged.
//!
//! Between a core's context and a dispatch queue (thesis, section 3.2). Its
//! scheduler orders what is staged; a plug holds all of it back for a moment,
//! so that there is something to order and merge.
//!
//! A staging queue may feed several dispatch queues. Each request goes to that
//! of its own core and to no other, so that who waits for it can look for it;
//! the requests of each are ordered and merged apart, in one table.
//!
//! Guarantees: what goes in comes out exactly once, alone or as a part of a
//! merged request; at most `depth` requests are inside (merged ones count as
//! one); the same calls give the same answers. No allocation after it is
//! made.
//!
//! Order. As in every block layer, two requests that are inside at once have
//! no order, also where they overlap; who needs one waits for the first to
//! complete. What holds all the same: without a scheduler, requests go out in
//! the order in which they came, and a core's own do with `fair`. Merging
//! changes that order only between requests that do not overlap, or that both
//! read: a request never joins one that was staged before another which it
//! overlaps, nor one before a flush. For what `deadline` keeps, see there;
//! there a request may also join one found by its address, if none that is
//! sorted with it starts inside its range.
//!
//! Nothing fails but options outside their range, and memory for bounce
//! buffers.

use std::{iter, mem};

use port::lazy::room_for;
use port::{BlockDone, BlockOp, BlockReq, Buffer, Shape, Slots, Status, Time};

use crate::config::{Merge, Plug};
use crate::context::core_of;
use crate::error::ConfigError;
use crate::merge::{self, Merger, Side};
use crate::scheduler::{Order, SchedulerKind};

pub use crate::merge::Parts;
use shares::Shares;

/// The most requests in a staging queue.
pub const MOST_STAGED: usize = 65_535;
/// With so many of the newest requests a new one is merged, if
/// [`Merge::Full`].
pub const NEWEST: usize = 8;

/// How a staging queue is set up.
#[derive(Clone, Debug, PartialEq)]
pub struct StagingOptions {
    /// Requests that it holds at most, 1 to [`MOST_STAGED`].
    pub depth: usize,
    /// How they are ordered.
    pub scheduler: SchedulerKind,
    /// Which are merged.
    pub merge: Merge,
    /// Whether they are merged while the device has room, too.
    pub merge_idle: bool,
    /// Whether it is plugged.
    pub plug: Option<Plug>,
    /// All cores of the layer: the number of a submitter is below it.
    pub cores: usize,
    /// By core: its way out, numbered from 0, one for each dispatch queue that
    /// is fed. Cores beyond it have the first.
    pub ways: Vec<u32>,
    /// Whether several cores use it.
    pub shared: bool,
    /// The outside of the device.
    pub shape: Shape,
}

/// A request on its way to a dispatch queue.
#[derive(Debug)]
pub struct Outgoing {
    /// The request. Of a merged one, the id is that of one of its parts.
    pub req: BlockReq,
    /// The core that submitted it, or the first of its parts; with a mark where
    /// it is a piece of a longer one.
    pub from: u32,
    /// When.
    pub submitted: Time,
    /// Its parts, if it is merged: give them to [`Staging::split`] when it
    /// has completed.
    pub parts: Parts,
}

/// What a staging queue did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StagingCounters {
    /// Requests that came.
    pub inserted: u64,
    /// Requests that went out, a merged one as one.
    pub dispatched: u64,
    /// Requests that joined another.
    pub merged: u64,
}

/// An entry of the table.
#[derive(Debug)]
pub(crate) struct Staged {
    pub out: Outgoing,
    /// How many were staged before it; [`GONE`] when it is free.
    stamp: u64,
}

/// The stamp of a free entry.
const GONE: u64 = u64::MAX;

impl Default for Staged {
    fn default() -> Staged {
        let req = BlockReq::new(0, BlockOp::Flush, 0, 0, Buffer::empty());
        let out = Outgoing { req, from: 0, submitted: Time::ZERO, parts: Parts::NONE };
        Staged { out, stamp: GONE }
    }
}

/// Requests move field by field: a copy of a whole one goes through the stack,
/// and waiting for that costs more than all else here.
impl Staged {
    /// Takes a request into a free entry.
    #[inline(always)]
    fn enter(&mut self, stamp: u64, now: Time, from: u32, req: BlockReq) {
        self.stamp = stamp;
        let BlockReq { id, op, fua, placement, queue, offset, len, buffer } = req;
        let out = &mut self.out;
        (out.req.id, out.req.op, out.req.fua, out.req.placement) = (id, op, fua, placement);
        out.req.queue = queue;
        (out.req.offset, out.req.len, out.req.buffer) = (offset, len, buffer);
        (out.from, out.submitted, out.parts) = (from, now, Parts::NONE);
    }

    /// Takes the request out.
    #[inline(always)]
    fn leave(&mut self) -> Outgoing {
        self.stamp = GONE;
        let Outgoing { req, from, submitted, parts } = &mut self.out;
        let buffer = mem::take(&mut req.buffer);
        let BlockReq { id, op, fua, placement, queue, offset, len, .. } = *req;
        let req = BlockReq { id, op, fua, placement, queue, offset, len, buffer };
        Outgoing { req, from: *from, submitted: *submitted, parts: *parts }
    }
}

/// What is staged. A free entry's buffer is empty.
pub(crate) type Table = Slots<Staged>;

/// The requests for one dispatch queue.
#[derive(Debug)]
struct Way {
    order: Order,
    staged: usize,
    /// Cores that use it and are still there.
    users: usize,
}

/// A staging queue.
#[derive(Debug)]
pub struct Staging {
    table: Table,
    ways: Box<[Way]>,
    /// By core.
    way_of: Box<[u32]>,
    cores: usize,
    shares: Shares,
    /// Holds everything back.
    plugged: bool,
    plug: Option<Plug>,
    /// When the first came since it was empty; kept only where it is plugged.
    first: Time,
    merge: Merge,
    merge_idle: bool,
    merger: Merger,
    /// How many were staged, merged ones not counted.
    staged: u64,
    /// The entries that were staged last, each at its stamp's place.
    newest: [u32; NEWEST],
    counters: StagingCounters,
}

impl Staging {
    /// An empty staging queue.
    pub fn new(options: &StagingOptions) -> Result<Staging, ConfigError> {
        let StagingOptions { depth, merge, merge_idle, plug, cores, shape, .. } = *options;
        let ways = options.ways.iter().max().map_or(1, |&last| last as usize + 1);
        ConfigError::range("staging_depth", depth, 1, MOST_STAGED)?;
        if let Some(plug) = plug {
            ConfigError::range("plug.requests", plug.requests, 1, usize::MAX)?;
            let bytes = usize::try_from(plug.bytes).unwrap_or(usize::MAX);
            ConfigError::range("plug.bytes", bytes, 1, usize::MAX)?;
        }
        let merger = match merge {
            Merge::Off => Merger::off(shape),
            Merge::Simple | Merge::Full => Merger::new(depth, shape)?,
        };
        let order = || Order::new(&options.scheduler, depth, cores);
        let way = |_| Ok(Way { order: order()?, staged: 0, users: 0 });
        Ok(Staging {
            table: Slots::new(depth),
            ways: (0..ways).map(way).collect::<Result<_, ConfigError>>()?,
            way_of: options.ways.clone().into_boxed_slice(),
            cores,
            shares: Shares::new(if options.shared { cores } else { 0 }),
            plugged: plug.is_some(),
            plug,
            first: Time::ZERO,
            merge,
            merge_idle,
            merger,
            staged: 0,
            newest: [0; NEWEST],
            counters: StagingCounters::default(),
        })
    }

    /// Orders by another scheduler from now on, also what is staged: as if all of
    /// it came now, in the order in which it did.
    ///
    /// # Errors
    /// Options outside their range, and where memory ends; then nothing changed.
    pub fn set_scheduler(&mut self, kind: &SchedulerKind) -> Result<(), ConfigError> {
        let depth = self.table.room() + self.table.live();
        let order = || Order::new(kind, depth, self.cores);
        // Either all are there or nothing changes.
        let mut orders = room_for(self.ways.len(), "schedulers")?;
        for _ in &self.ways {
            orders.push(order()?);
        }
        let mut slots: Vec<u32> = room_for(self.table.live(), "what is staged")?;
        for (way, order) in self.ways.iter_mut().zip(orders) {
            let mut before = mem::replace(&mut way.order, order);
            slots.clear();
            slots.extend(iter::from_fn(|| before.pop(Time::ZERO, &self.table)));
            slots.sort_unstable_by_key(|&slot| self.table[slot].stamp);
            slots.iter().for_each(|&slot| way.order.push(slot, &self.table[slot].out));
        }
        Ok(())
    }

    /// How many more requests fit.
    #[inline]
    pub fn room(&self) -> usize {
        self.table.room()
    }

    /// How many more requests of a core fit: as many as there is room for,
    /// unless others found no room; then no more than its part of all.
    #[inline]
    pub fn room_for(&self, core: u32) -> usize {
        if self.shares.short == 0 { self.room() } else { self.shares.room_for(core, &self.table) }
    }

    /// Says whether requests of a core found no room. As long as some did not,
    /// the other cores stage no more than their parts.
    pub fn say_refused(&mut self, core: u32, refused: bool) {
        self.shares.say_refused(core, refused);
    }

    /// How many requests are inside, a merged one as one.
    #[inline]
    pub fn len(&self) -> usize {
        self.table.live()
    }

    /// True when none is inside.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.table.live() == 0
    }

    /// How many requests wait for the dispatch queue of way `way`.
    #[inline]
    pub fn waiting(&self, way: usize) -> usize {
        self.ways[way].staged
    }

    /// The way of a core's requests.
    #[inline]
    fn way_of(&self, core: u32) -> usize {
        self.way_of.get(core_of(core) as usize).map_or(0, |&way| way as usize)
    }

    /// What it did so far.
    pub fn counters(&self) -> StagingCounters {
        self.counters
    }

    /// Bytes of memory that one with these options takes.
    pub fn bytes(options: &StagingOptions) -> u64 {
        let StagingOptions { depth, merge, cores, shared, .. } = *options;
        let ways = options.ways.iter().max().map_or(1, |&last| u64::from(last) + 1);
        let order = Order::bytes(&options.scheduler, depth, cores) + size_of::<Way>() as u64;
        let merger = match merge {
            Merge::Off => 0,
            Merge::Simple | Merge::Full => Merger::bytes(depth, &options.shape),
        };
        let shares = if shared { Shares::bytes(cores) } else { 0 };
        let by_core = size_of_val(&options.ways[..]) as u64 + shares;
        let own = Table::bytes(depth) + size_of::<Staging>() as u64;
        [own, ways.saturating_mul(order), merger, by_core].into_iter().fold(0, u64::saturating_add)
    }

    /// Takes a request of core `from`, submitted at `now`. `busy`: there is no
    /// tag for it; only then it is merged, unless `merge_idle`.
    ///
    /// # Panics
    /// Without room; the caller looks at [`Staging::room`]. With `fair`, when
    /// `from` is not below `cores`.
    #[inline(always)]
    pub fn insert(&mut self, now: Time, from: u32, busy: bool, req: BlockReq) {
        self.counters.inserted += 1;
        if self.plug.is_some() && self.is_empty() {
            self.first = now;
        }
        if self.merge != Merge::Off && (busy || self.merge_idle) && !self.is_empty() {
            return self.merge_or_stage(now, from, req);
        }
        let slot = self.stage(now, from, req);
        if self.plugged {
            self.look_at_plug(slot);
        }
    }

    /// Puts a request into the table.
    #[inline(always)]
    fn stage(&mut self, now: Time, from: u32, req: BlockReq) -> u32 {
        let stamp = self.staged;
        self.staged += 1;
        let slot = self.table.take_as_is();
        let way = self.way_of(from);
        let entry = &mut self.table[slot];
        entry.enter(stamp, now, from, req);
        let way = &mut self.ways[way];
        way.order.push(slot, &entry.out);
        way.staged += 1;
        self.shares.count(from, 1);
        self.newest[stamp as usize % NEWEST] = slot;
        slot
    }

    /// Lets a request join one that is staged, or puts it into the table.
    #[inline(never)]
    fn merge_or_stage(&mut self, now: Time, from: u32, req: BlockReq) {
        let slot = match self.place(from, &req) {
            Some((slot, side)) => self.join(slot, side, now, from, req),
            None => self.stage(now, from, req),
        };
        if self.plugged {
            self.look_at_plug(slot);
        }
    }

    /// The entry that a request joins, and on which side.
    fn place(&self, from: u32, req: &BlockReq) -> Option<(u32, Side)> {
        if !self.merger.accepts(req) {
            return None;
        }
        let reach = if self.merge == Merge::Full { NEWEST as u64 } else { 1 };
        for stamp in (self.staged.saturating_sub(reach)..self.staged).rev() {
            let slot = self.newest[stamp as usize % NEWEST];
            // It may have gone out, and another have its place.
            let old = &self.table[slot];
            if old.stamp != stamp {
                continue;
            }
            if let Some(side) = self.joins(&old.out, from, req) {
                return Some((slot, side));
            }
            if merge::conflicts(&old.out.req, req) {
                return None;
            }
        }
        if self.merge != Merge::Full {
            return None;
        }
        self.ways[self.way_of(from)]
            .order
            .beside(req)
            .into_iter()
            .flatten()
            .find_map(|slot| Some((slot, self.joins(&self.table[slot].out, from, req)?)))
    }

    /// Where a request joins one that is staged, if it may.
    #[inline]
    fn joins(&self, old: &Outgoing, from: u32, req: &BlockReq) -> Option<Side> {
        let side = merge::side(&old.req, req)?;
        let way = self.way_of(from);
        let mixes = self.way_of(old.from) == way && self.ways[way].order.mixes(old.from, from);
        (mixes && self.merger.allows(old, side, req)).then_some(side)
    }

    /// Lets a request join an entry.
    fn join(&mut self, slot: u32, side: Side, now: Time, from: u32, req: BlockReq) -> u32 {
        let way = self.way_of(from);
        let out = &mut self.table[slot].out;
        self.merger.join(out, side, now, from, req);
        self.counters.merged += 1;
        if side == Side::Front {
            self.ways[way].order.readdress(slot, &out.req);
        }
        slot
    }

    /// The next request for the dispatch queue of way `way`; `None` when there
    /// is none, or it is plugged.
    #[inline(always)]
    pub fn next(&mut self, now: Time, way: usize) -> Option<Outgoing> {
        if self.plugged && !self.opens(now) {
            return None;
        }
        let mut outgoing = self.pop(now, way)?;
        self.counters.dispatched += 1;
        if !outgoing.parts.is_none() {
            self.merger.gather(&mut outgoing);
        }
        Some(outgoing)
    }

    /// A core uses way `way` from now on.
    pub fn add_user(&mut self, way: usize) {
        self.ways[way].users += 1;
    }

    /// A core that used way `way` leaves. When it was the last, what waits
    /// there is dropped: it was of those that left. Gives whether it was.
    pub fn drop_user(&mut self, core: u32, way: usize) -> bool {
        self.say_refused(core, false);
        self.ways[way].users -= 1;
        let last = self.ways[way].users == 0;
        if last {
            self.clear(way);
        }
        last
    }

    fn clear(&mut self, way: usize) {
        while let Some(outgoing) = self.pop(Time::ZERO, way) {
            if !outgoing.parts.is_none() {
                let (status, none) = (Status::ABORTED, Buffer::empty());
                self.split(outgoing.parts, status, Time::ZERO, none, &mut |_, _, _| ());
            }
        }
    }

    /// Takes the next entry of a way out of the table.
    #[inline(always)]
    fn pop(&mut self, now: Time, number: usize) -> Option<Outgoing> {
        let way = &mut self.ways[number];
        let slot = way.order.pop(now, &self.table)?;
        way.staged -= 1;
        self.table.give(slot);
        if self.is_empty() {
            self.plugged = self.plug.is_some();
        }
        let outgoing = self.table[slot].leave();
        self.shares.count(outgoing.from, -1);
        Some(outgoing)
    }

    /// Takes a merged request apart that completed with `status` at `at` and
    /// gave `buffer` back. `each` is given the core, the time of submission
    /// and the completion of every request that it was made of, with its own
    /// id and buffer, in the order of their addresses. A buffer other than the
    /// one that went out (a request that its driver lost has an empty one) is
    /// dropped, and a read cannot have succeeded with it: its status is then
    /// [`Status::INTERNAL`].
    ///
    /// # Panics
    /// When `parts` is none, or was taken apart already.
    pub fn split(
        &mut self,
        parts: Parts,
        status: Status,
        at: Time,
        buffer: Buffer,
        each: &mut impl FnMut(u32, Time, BlockDone),
    ) {
        self.merger.split(parts, status, at, buffer, each);
    }

    /// How many requests a merged one was made of. `parts` is not none, and was
    /// not taken apart.
    pub fn count(&self, parts: Parts) -> usize {
        self.merger.count(parts)
    }

    /// When the plug opens by itself; `None` while it holds nothing back.
    #[inline]
    pub fn next_event(&self) -> Option<Time> {
        (self.plugged && !self.is_empty()).then(|| self.opening())
    }

    /// Opens the plug, until the queue is empty. Nothing, if it is.
    pub fn unplug(&mut self) {
        self.plugged &= self.is_empty();
    }

    /// When the plug has held back for long enough.
    fn opening(&self) -> Time {
        let ns = self.plug.map_or(0, |plug| plug.ns);
        Time(self.first.0.saturating_add(ns))
    }

    /// Whether the plug opens now.
    #[cold]
    fn opens(&mut self, now: Time) -> bool {
        if self.is_empty() || now < self.opening() {
            return false;
        }
        self.plugged = false;
        true
    }

    /// Opens the plug if what came to entry `slot` is the last that it holds
    /// back.
    fn look_at_plug(&mut self, slot: u32) {
        self.plugged = !self.plug.is_none_or(|plug| {
            self.len() >= plug.requests
                || self.room() == 0
                || self.table[slot].out.req.len >= plug.bytes
        });
    }
}

mod shares;
#[cfg(test)]
mod tests;
