//! A dispatch queue: requests that have a tag and are the driver's.
//!
//! A request enters with the next free tag and keeps its place in the table
//! of tags until it completes; the driver is given the tag as the request's
//! id, so a completion finds its request without a search (thesis, section
//! 3.2.3). The id carries the place's generation too: a tag completed twice,
//! late, or made up is told from a live one by one comparison.
//!
//! A request that takes too long is asked for. Its tag stays with it until the
//! driver gives it up or completes it; when it does neither within another
//! timeout, the queue is reset. Where that cannot be, none of the device's
//! queues is given anything more. So what was given up never lands on what
//! was written after its submitter was told.
//!
//! Guarantees: every request that entered leaves exactly once, by its
//! completion, because its driver gave it up, or because the device went; at
//! most `depth` are inside. No allocation after it is made. Faults of the driver are kept,
//! the first [`MOST_FAULTS`] of them, and counted all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use port::lazy::table;
use port::{BlockDone, BlockOp, BlockReq, OutOfMemory, Ring, Time};

use crate::driver::HardwareQueue;
use crate::error::Fault;
use crate::queue_tags::Tags;
use crate::staging::{Outgoing, Parts};

/// Faults that are kept until somebody reads them.
pub const MOST_FAULTS: usize = 64;

/// Tags that a staging queue may have however many others wait for some, if
/// there are so many: as in Linux's shared tag sets.
const LEAST_SHARE: usize = 4;

const NEVER: Time = Time(u64::MAX);

/// A tag's request. While its generation is odd it is in flight.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Slot {
    id: u64,
    pub submitted: Time,
    dispatched: Time,
    offset: u64,
    len: u64,
    generation: u32,
    /// The core that submitted it.
    from: u32,
    parts: Parts,
    /// The staging queue that has its parts.
    staging: u32,
    /// The generation that was given up last.
    lost: u32,
    /// The generation that was asked for last because it took too long; while
    /// it is the present one, when it is looked at again, and whether the
    /// driver said that it works on it.
    asked: u32,
    until: Time,
    works: bool,
    /// It did not reach the driver; only while the queue is reset.
    unsent: bool,
    op: BlockOp,
    fua: bool,
}

const FREE: Slot = Slot {
    id: 0,
    submitted: Time::ZERO,
    dispatched: Time::ZERO,
    offset: 0,
    len: 0,
    generation: 0,
    from: 0,
    parts: Parts::NONE,
    staging: 0,
    lost: 0,
    asked: 0,
    until: Time::ZERO,
    works: false,
    unsent: false,
    op: BlockOp::Flush,
    fua: false,
};

impl Slot {
    /// Takes a request in.
    #[inline(always)]
    fn begin(&mut self, req: &BlockReq, from: u32, submitted: Time, parts: Parts) {
        self.generation = self.generation.wrapping_add(1);
        (self.id, self.op, self.fua) = (req.id, req.op, req.fua);
        (self.offset, self.len) = (req.offset, req.len);
        (self.from, self.submitted, self.parts) = (from, submitted, parts);
    }

    #[inline]
    fn is_live(&self) -> bool {
        self.generation % 2 == 1
    }

    /// What is known of it.
    #[inline]
    pub fn past(&self, tag: u32) -> Past {
        Past {
            tag,
            from: self.from,
            parts: self.parts,
            staging: self.staging,
            submitted: self.submitted,
            dispatched: self.dispatched,
            offset: self.offset,
            len: self.len,
            fua: self.fua,
        }
    }

    /// When it takes too long.
    fn due(&self, timeout: u64) -> Time {
        if self.asked == self.generation { self.until } else { self.dispatched + timeout }
    }

    /// The id that the driver is given.
    #[inline]
    fn name(&self, tag: u32) -> u64 {
        u64::from(self.generation) << 32 | u64::from(tag)
    }
}

/// What is known of a request that left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Past {
    pub tag: u32,
    pub from: u32,
    pub parts: Parts,
    pub staging: u32,
    pub submitted: Time,
    pub dispatched: Time,
    pub offset: u64,
    pub len: u64,
    pub fua: bool,
}

/// A dispatch queue over the driver's queue. It begins a line: what one core
/// writes here is beside nothing of another.
#[repr(align(64))]
pub(crate) struct Dispatch<Q> {
    number: u32,
    queue: Q,
    tags: Tags,
    slots: Box<[Slot]>,
    /// Has its tag, and the driver had no room for it yet.
    out: Ring<BlockReq>,
    timeout: u64,
    /// When the requests in flight are looked at for one that takes too long.
    next_scan: Time,
    /// Staging queues with requests that need a tag, at most one for each core
    /// that uses this queue.
    wanting: Vec<u32>,
    /// Requests in flight of each staging queue, where several feed this one.
    held: Vec<(u32, u32)>,
    /// Cores that use this queue and are still there.
    users: usize,
    faults: Ring<Fault>,
    strays: u64,
    /// Requests that took too long, since this was last asked.
    timed_out: u64,
    gone: bool,
    /// Of all queues of the device: it is given nothing more.
    over: Arc<AtomicBool>,
}

impl<Q> Dispatch<Q> {
    /// Says which staging queues feed this one. Where they are several, each
    /// has its share of the tags while others want some.
    pub fn fed_by(&mut self, staging: impl Iterator<Item = u32>) {
        for number in staging {
            if !self.held.iter().any(|&(known, _)| known == number) {
                self.held.push((number, 0));
            }
        }
        if self.held.len() == 1 {
            self.held.clear();
        }
    }

    /// Counts requests of a staging queue, where several feed this one.
    #[inline]
    fn hold(&mut self, number: u32, more: i32) {
        if let Some((_, n)) = self.held.iter_mut().find(|(known, _)| *known == number) {
            *n = n.wrapping_add_signed(more);
        }
    }

    /// How many requests more a staging queue may have in flight: all, unless
    /// others wait; then it has at least [`LEAST_SHARE`], and an even share of
    /// the tags among those that have or want some.
    #[inline]
    pub fn share_left(&self, number: u32) -> usize {
        if self.held.is_empty() || self.wanting.iter().all(|&other| other == number) {
            return usize::MAX;
        }
        let active = |(known, n): &&(u32, u32)| *n > 0 || self.wanting.contains(known);
        let users = self.held.iter().filter(active).count().max(1);
        let share = self.slots.len().div_ceil(users).max(LEAST_SHARE);
        let mine = self.held.iter().find(|(known, _)| *known == number).map_or(0, |&(_, n)| n);
        share.saturating_sub(mine as usize)
    }

    /// A core leaves. Whether it was the last.
    pub fn leave(&mut self) -> bool {
        self.users -= 1;
        self.users == 0
    }

    /// Says whether something is in staging queue `number` that a tag is needed
    /// for. When nothing is in any, the queue leaves the line for tags.
    #[inline]
    pub fn want(&mut self, number: u32, wants: bool) {
        if !wants && self.wanting.is_empty() {
            return;
        }
        self.want_late(number, wants);
    }

    #[cold]
    fn want_late(&mut self, number: u32, wants: bool) {
        let known = self.wanting.iter().position(|&n| n == number);
        match known {
            Some(at) if !wants => drop(self.wanting.swap_remove(at)),
            None if wants => self.wanting.push(number),
            _ => {}
        }
        if self.wanting.is_empty() && self.tags.is_waiting() {
            self.tags.step_out();
        }
    }
}

impl<Q: HardwareQueue> Dispatch<Q> {
    /// A dispatch queue of `users` cores. `over` is shared by all of a device.
    pub fn new(
        number: u32,
        queue: Q,
        tags: Tags,
        users: usize,
        timeout: u64,
        over: Arc<AtomicBool>,
    ) -> Result<Dispatch<Q>, OutOfMemory> {
        let slots = tags.depth();
        Ok(Dispatch {
            number,
            tags,
            slots: table(FREE, slots, "the tags of a dispatch queue")?,
            out: Ring::try_new(slots, "the requests of a dispatch queue")?,
            timeout,
            next_scan: NEVER,
            wanting: Vec::with_capacity(users),
            held: Vec::new(),
            users,
            faults: Ring::new(MOST_FAULTS),
            strays: 0,
            timed_out: 0,
            gone: false,
            over,
            queue,
        })
    }

    /// Bytes of memory that one of `depth` requests takes besides its driver's.
    pub fn bytes(depth: usize) -> u64 {
        let each = (size_of::<Slot>() + size_of::<u16>()) as u64;
        let rings = Ring::<BlockReq>::bytes(depth) + Ring::<Fault>::bytes(MOST_FAULTS);
        size_of::<Self>() as u64 + (depth as u64).saturating_mul(each).saturating_add(rings)
    }

    /// The driver's queue.
    pub fn queue(&self) -> &Q {
        &self.queue
    }

    /// The driver's queue, to wait on it.
    pub fn queue_mut(&mut self) -> &mut Q {
        &mut self.queue
    }

    /// Whether another request can enter, as far as can be told without
    /// taking a tag.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.tags.may_take()
    }

    /// Faults since they were last asked for.
    pub fn faults(&mut self) -> Vec<Fault> {
        self.faults.drain().collect()
    }

    #[cold]
    fn fault(&mut self, fault: Fault) {
        // When nobody reads them, the first say most.
        let _ = self.faults.push(fault);
    }

    /// When something happens next: in the driver, or a timeout.
    #[inline]
    pub fn next_event(&self) -> Option<Time> {
        let event = self.queue.next_event();
        if self.tags.live() == 0 {
            return event;
        }
        if self.queue.is_gone() {
            return Some(Time::ZERO);
        }
        Some(event.map_or(self.next_scan, |at| at.min(self.next_scan)))
    }

    /// Gives tags to the requests of `reqs` where they are, and the requests
    /// to the driver. What stays found no tag. Gives how many entered.
    #[inline(always)]
    pub fn submit_in_place(
        &mut self,
        now: Time,
        core: u32,
        staging: u32,
        reqs: &mut Ring<BlockReq>,
    ) -> usize {
        let wanted = reqs.len();
        let (slots, mut at) = (&mut self.slots, 0);
        let taken = self.tags.take_batch(wanted, |tag| {
            let req = reqs.get_mut(at).expect("no more tags than requests");
            let slot = &mut slots[tag as usize];
            slot.begin(req, core, now, Parts::NONE);
            (slot.staging, slot.dispatched) = (staging, now);
            req.id = slot.name(tag);
            at += 1;
        });
        if taken == 0 {
            return 0;
        }
        if !self.held.is_empty() {
            self.hold(staging, taken as i32);
        }
        if self.next_scan == NEVER {
            self.next_scan = now + self.timeout;
        }
        if taken == wanted && self.out.is_empty() && !self.is_over() {
            self.queue.submit(now, reqs);
            if !reqs.is_empty() {
                reqs.pour(&mut self.out);
            }
        } else {
            self.send_first(now, taken, reqs);
        }
        taken
    }

    /// Gives the driver the first `taken` of `reqs`, which have their tags.
    #[cold]
    fn send_first(&mut self, now: Time, taken: usize, reqs: &mut Ring<BlockReq>) {
        for req in reqs.drain().take(taken) {
            self.out.put(|| req);
        }
        self.send(now);
    }

    /// Gives a staged request a tag. The caller holds the tag already.
    pub fn enter(&mut self, now: Time, staging: u32, tag: u32, outgoing: Outgoing) {
        let Outgoing { mut req, from, submitted, parts } = outgoing;
        let slot = &mut self.slots[tag as usize];
        slot.begin(&req, from, submitted, parts);
        (slot.staging, slot.dispatched) = (staging, now);
        assert!(slot.is_live(), "a tag is given to one request");
        req.id = slot.name(tag);
        self.hold(staging, 1);
        if self.next_scan == NEVER {
            self.next_scan = now + self.timeout;
        }
        self.out.put(|| req);
    }

    /// A tag for [`Dispatch::enter`].
    pub fn take_tag(&mut self) -> Option<u32> {
        self.tags.take()
    }

    /// Gives a tag back that was not used.
    pub fn return_tag(&mut self, tag: u32) {
        self.tags.give(tag);
    }

    /// Gives the driver what entered.
    #[inline]
    pub fn send(&mut self, now: Time) {
        if self.out.is_empty() {
            return;
        }
        if self.is_over() {
            // They are given up at the next look.
            self.next_scan = now;
        } else {
            self.queue.submit(now, &mut self.out);
        }
    }

    /// Whether the device is given nothing more.
    #[inline]
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// When the requests in flight are looked at for one that takes too long.
    #[inline]
    pub fn next_scan(&self) -> Time {
        self.next_scan
    }

    /// Whether it stands in line for a tag.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        self.tags.is_waiting()
    }

    /// Whether a tag is free that it does not get yet, because it is the turn
    /// of another queue.
    pub fn is_passed(&self) -> bool {
        self.tags.is_passed()
    }

    /// For a queue that stands in line, at each look: a turn of one that does
    /// not look goes on to the next.
    pub fn stand_in_line(&mut self) {
        if self.tags.is_waiting() {
            self.tags.poll();
        }
    }

    /// Whether requests with a tag wait for the driver.
    pub fn is_sending(&self) -> bool {
        !self.out.is_empty()
    }

    /// Lets the driver put completions into `done`, and names them as their
    /// submitter did, where they are. `seen` is given each that left.
    #[inline(always)]
    pub fn advance_in_place(
        &mut self,
        to: Time,
        done: &mut Ring<BlockDone>,
        mut seen: impl FnMut(u32, &Slot, &BlockDone),
    ) {
        let mut at = done.len();
        self.queue.advance(to, done);
        while let Some(one) = done.get_mut(at) {
            let (tag, generation) = (one.id as u32, (one.id >> 32) as u32);
            match self.slots.get_mut(tag as usize) {
                Some(slot) if slot.generation == generation && slot.is_live() => {
                    slot.generation = slot.generation.wrapping_add(1);
                    one.id = slot.id;
                    self.tags.give_later(tag);
                    seen(tag, slot, one);
                    if !self.held.is_empty() {
                        let staging = slot.staging;
                        self.hold(staging, -1);
                    }
                    at += 1;
                }
                _ => {
                    let id = one.id;
                    drop(done.remove(at));
                    self.stray(id);
                }
            }
        }
        self.tags.flush();
    }

    /// Notes a completion that answers nothing.
    #[cold]
    fn stray(&mut self, id: u64) {
        let (queue, tag, generation) = (self.number, id as u32, (id >> 32) as u32);
        let late = self.slots.get(tag as usize).is_some_and(|slot| slot.lost == generation);
        self.strays += 1;
        self.fault(if late && generation != 0 {
            Fault::Late { queue, tag: tag.into() }
        } else {
            Fault::NotInFlight { queue, tag: tag.into() }
        });
    }

    /// Whether some completions answered nothing.
    #[inline]
    pub fn has_strays(&self) -> bool {
        self.strays > 0
    }

    /// Completions that answered nothing, since this was last asked.
    #[inline]
    pub fn take_strays(&mut self) -> u64 {
        std::mem::take(&mut self.strays)
    }

    /// Requests that took too long, since this was last asked.
    pub fn take_timed_out(&mut self) -> u64 {
        std::mem::take(&mut self.timed_out)
    }

    /// Whether something must be given up: the device is gone, or it is time
    /// to look for a request that takes too long.
    #[inline]
    pub fn must_give_up(&self, now: Time) -> bool {
        now >= self.next_scan || (self.queue.is_gone() && !(self.gone && self.tags.live() == 0))
    }
}

impl<Q> Drop for Dispatch<Q> {
    /// What is in flight goes with the driver's queue; other queues may share
    /// its tags.
    fn drop(&mut self) {
        for (tag, slot) in self.slots.iter().enumerate() {
            if slot.is_live() {
                self.tags.give_later(tag as u32);
            }
        }
        self.tags.flush();
    }
}

mod late;
