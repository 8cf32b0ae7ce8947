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
use port::{BlockDone, BlockOp, BlockReq, OutOfMemory, Port, Ring, Time};

use crate::context::core_of;
use crate::driver::{HardwareQueue, tag_of};
use crate::entrance::Below;
use crate::error::Fault;
use crate::queue_tags::Tags;
use crate::staging::{Outgoing, Parts};

/// Faults that are kept until somebody reads them.
pub const MOST_FAULTS: usize = 64;

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
    lost: 0,
    asked: 0,
    until: Time::ZERO,
    works: false,
    unsent: false,
    op: BlockOp::Flush,
    fua: false,
};

impl Slot {
    /// Takes a request in that is dispatched now.
    #[inline(always)]
    fn begin(&mut self, req: &BlockReq, from: u32, submitted: Time, now: Time, parts: Parts) {
        self.dispatched = now;
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

    /// The id that the driver is given for it in place `place`: an entrance and
    /// a tag.
    #[inline]
    fn name(&self, place: u32) -> u64 {
        u64::from(self.generation) << 32 | u64::from(place)
    }
}

/// What is known of a request that left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Past {
    pub tag: u32,
    pub from: u32,
    pub parts: Parts,
    pub submitted: Time,
    pub dispatched: Time,
    pub offset: u64,
    pub len: u64,
    pub fua: bool,
}

/// A dispatch queue: all that the cores of one staging queue have in one of the
/// driver's. It begins a line: what one core writes here is beside nothing of
/// another.
#[repr(align(64))]
pub(crate) struct Dispatch<Q> {
    number: u32,
    /// The number of its entrance, above the bits of a tag: part of all its ids,
    /// so that what others have in the driver's queue is told from its own.
    entrance: u32,
    queue: Below<Q>,
    tags: Tags,
    slots: Box<[Slot]>,
    /// Has its tag, and the driver had no room for it yet.
    out: Ring<BlockReq>,
    /// The longest request that the driver takes, in bytes.
    longest: u64,
    timeout: u64,
    /// When the requests in flight are looked at for one that takes too long.
    next_scan: Time,
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
    /// A core leaves. Whether it was the last.
    pub fn leave(&mut self) -> bool {
        self.users -= 1;
        self.users == 0
    }

    /// Whether a request in flight is of such a core.
    pub fn has_some_of(&self, is_one: impl Fn(u32) -> bool) -> bool {
        self.slots.iter().any(|slot| slot.is_live() && is_one(core_of(slot.from)))
    }

    /// Nothing is staged that a tag is needed for: the queue leaves the line.
    #[inline]
    pub fn want_none(&mut self) {
        if self.tags.is_waiting() {
            self.tags.step_out();
        }
    }
}

impl<Q: HardwareQueue> Dispatch<Q> {
    /// A dispatch queue of `users` cores, by entrance `entrance` of the driver's
    /// queue `number`. `over` is shared by all of a device.
    pub fn new(
        (number, entrance): (u32, u16),
        queue: Below<Q>,
        tags: Tags,
        users: usize,
        (longest, timeout): (u64, u64),
        over: Arc<AtomicBool>,
    ) -> Result<Dispatch<Q>, OutOfMemory> {
        let slots = tags.depth();
        Ok(Dispatch {
            number,
            entrance: u32::from(entrance) << 16,
            tags,
            slots: table(FREE, slots, "the tags of a dispatch queue")?,
            out: Ring::try_new(slots, "the requests of a dispatch queue")?,
            longest,
            timeout,
            next_scan: NEVER,
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

    /// What is below.
    pub fn queue(&self) -> &Below<Q> {
        &self.queue
    }

    /// The driver's queue, to wait on it.
    pub fn queue_mut(&mut self) -> &mut Below<Q> {
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
    /// to the driver. What stays found no tag; all stay where one is too long.
    /// Gives how many entered.
    #[inline(always)]
    pub fn submit_in_place(&mut self, now: Time, core: u32, reqs: &mut Ring<BlockReq>) -> usize {
        let wanted = reqs.len();
        let (slots, entrance, mut at, mut longest) = (&mut self.slots, self.entrance, 0, 0);
        let taken = self.tags.take_batch(wanted, |tag| {
            let req = reqs.get_mut(at).expect("no more tags than requests");
            let slot = &mut slots[tag as usize];
            slot.begin(req, core, now, now, Parts::NONE);
            req.id = slot.name(entrance | tag);
            longest = longest.max(req.len);
            at += 1;
        });
        if taken == 0 || longest > self.longest {
            self.take_back(taken, reqs);
            return 0;
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

    /// Takes their tags from the first `taken` of `reqs` again.
    #[cold]
    fn take_back(&mut self, taken: usize, reqs: &mut Ring<BlockReq>) {
        for at in 0..taken {
            let req = reqs.get_mut(at).expect("it is where it was");
            let tag = tag_of(req.id) as u32;
            let slot = &mut self.slots[tag as usize];
            slot.generation = slot.generation.wrapping_sub(1);
            req.id = slot.id;
            self.tags.give_later(tag);
        }
        self.tags.flush();
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
    pub fn enter(&mut self, now: Time, tag: u32, outgoing: Outgoing) {
        let Outgoing { mut req, from, submitted, parts } = outgoing;
        let slot = &mut self.slots[tag as usize];
        slot.begin(&req, from, submitted, now, parts);
        assert!(slot.is_live(), "a tag is given to one request");
        req.id = slot.name(self.entrance | tag);
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

    /// Whether no request is in it.
    pub fn is_empty(&self) -> bool {
        self.tags.live() == 0
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
            let tag = tag_of(one.id) as u32;
            match self.slots.get_mut(tag as usize) {
                Some(slot) if slot.name(self.entrance | tag) == one.id && slot.is_live() => {
                    slot.generation = slot.generation.wrapping_add(1);
                    one.id = slot.id;
                    self.tags.give_later(tag);
                    seen(tag, slot, one);
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
        let (queue, tag, generation) = (self.number, tag_of(id) as u32, (id >> 32) as u32);
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
