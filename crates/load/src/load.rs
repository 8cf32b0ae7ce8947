//! A load: a pattern's requests on their way to a drive and back.
//!
//! Guarantees: at most as many requests are out as there are slots; each
//! request starts at its time (when another of its submitter ended, or when
//! its arrival is due) and latency counts from there, however long the drive
//! refused it; a request that failed is in no latency; nothing is allocated once
//! it is made, but a buffer in place of one that did not come back. What is asked
//! depends on pattern, seed and the drive's completions alone. May fail: no
//! memory for buffers, or a pattern that cannot be.

use port::story::Wanted;
use port::units::size_binary;
use port::{
    BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Buffer, OutOfMemory, Ring, Shape, Status, Story,
    Time,
};
use workload::{Access, Arrivals, Generator, Pattern};

use crate::driver::Driver;
use crate::tally::Tally;
use crate::verify::{Ready, Verifier};
use asked::Asked;
use drive::error::Error;
pub use recorded::Played;
use recorded::Recorded;
use submitter::{AHEAD, Ahead, Submitter};

mod asked;
mod lone;
mod plain;
mod recorded;
mod submitter;

/// Accesses that are tried when too many writes of a block overlap.
const TRIES: usize = 16;
/// The most memory that buffers may take, in bytes.
pub const MOST_BUFFERS: u64 = 4 << 30;
/// Up to as many requests that a drive holds, the ring of completions is as large
/// as the drive's own, so that the two can change places.
const MOST_SWAPPED: usize = 1024;
/// The most requests that may be out.
pub const MOST_SLOTS: u64 = 1 << SLOT_BITS;
/// Bits of a request's number that are its slot.
pub(crate) const SLOT_BITS: u32 = 16;
/// Those bits. Above them a completion of one of several loads has how many of the others
/// came since the last of its own.
const SLOTS: u64 = (1 << SLOT_BITS) - 1;

#[inline]
fn request(slot: u32, access: &Access, (placement, queue): (u8, u8), buffer: Buffer) -> BlockReq {
    let Access { op, offset, len, fua } = *access;
    BlockReq { id: slot.into(), op, fua, placement, queue, offset, len, buffer }
}

/// A place for one request.
struct Slot {
    /// In a closed loop, whose it is.
    submitter: u32,
    start: Time,
    access: Access,
    counted: bool,
    buffer: Buffer,
}

impl Slot {
    /// What is told of a request that failed.
    fn failed(&self, op: BlockOp, status: Status) -> String {
        let Access { offset, len, .. } = self.access;
        format!("{op:?} of {len} bytes at {offset}: {status}")
    }
}

/// How many requests are asked for, and when.
#[derive(Clone, Debug)]
pub enum Pace {
    /// So many submitters keep so many requests out each.
    Closed {
        /// Requests out, of each submitter.
        depth: u32,
    },
    /// They arrive when they are due.
    Open(Arrivals),
}

/// Which submitters a load has, of all that follow one pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The number of the first.
    pub first: u32,
    /// How many there are in this load.
    pub count: u32,
    /// How many there are in all loads.
    pub all: u32,
}

impl Share {
    /// All of them.
    pub fn whole(submitters: u32) -> Share {
        Share { first: 0, count: submitters, all: submitters }
    }
}

/// A load and what it needs. It has lines of its own: others of other threads lie
/// beside it.
#[repr(align(128))]
pub struct Load {
    submitters: Vec<Submitter>,
    slots: Vec<Slot>,
    /// Slots without a request. In a closed loop a slot is its submitter's.
    idle: Vec<u32>,
    arrivals: Option<Arrivals>,
    /// What arrivals count from.
    origin: Time,
    /// Arrivals so far: submitters take turns.
    turn: usize,
    /// Bytes of the largest request.
    bs: u64,
    /// How the bytes of a request are found, where not all are of one size.
    varied: Option<Shape>,
    /// Whether there are flushes between them.
    flushes: bool,
    /// Whether what is left of a run is counted in bytes, not in requests.
    in_bytes: bool,
    /// Whether arrivals that could not be made until the end of a run are not made.
    in_time: bool,
    /// Requests below this address say that they are hot.
    hot_end: u64,
    /// The submission queue that they go by.
    queue_number: u8,
    /// Bytes that the drive keeps of a request; 0 where it keeps none.
    kept: usize,
    /// In a closed loop, the next requests wait until so many can go at once.
    batch: usize,
    /// Whether all that a request takes it takes in the drive: none has waited before
    /// it, so that what the drive took says which are the slowest.
    is_all_inside: bool,
    /// Which stories the drive was asked for.
    wanted: Wanted,
    /// That of the request that is recorded, where somebody asks.
    story: Box<Story>,
    /// The trace that it follows, in place of a pattern.
    recorded: Option<Box<Recorded>>,
    pub(crate) queue: Ring<BlockReq>,
    pub(crate) done: Ring<BlockDone>,
}

impl Load {
    /// The load of `submitters` that follow `pattern` on a drive of this
    /// shape.
    pub fn new(
        shape: &Shape,
        pattern: &Pattern,
        pace: Pace,
        submitters: u32,
        seed: u64,
    ) -> Result<Load, Error> {
        Load::part(shape, pattern, pace, Share::whole(submitters), seed)
    }

    /// A part of such a load. The bounds are those of all parts together.
    pub fn part(
        shape: &Shape,
        pattern: &Pattern,
        pace: Pace,
        share: Share,
        seed: u64,
    ) -> Result<Load, Error> {
        let Share { first, count, all } = share;
        let (slots, depth, arrivals) = match pace {
            Pace::Closed { depth } => (u64::from(depth) * u64::from(count), depth, None),
            Pace::Open(arrivals) => (shape.depth as u64, 1, Some(arrivals)),
        };
        let each = shape.stored(pattern.most());
        let most = slots * u64::from(all.div_ceil(count.max(1)));
        if most > MOST_SLOTS || most * each as u64 > MOST_BUFFERS {
            return Err(Error::Usage(format!(
                "{most} requests of {} are too many at once: at most {MOST_SLOTS}, with 4 GiB of \
                 buffers; lower --qd, --threads, --cores or --bs",
                size_binary(pattern.most())
            )));
        }
        let generator = |i| Ok(Submitter::new(Generator::new(pattern, seed, i, all)?));
        let submitters: Result<_, workload::PatternError> =
            (first..first + count).map(generator).collect();
        let none = Access { op: BlockOp::Flush, offset: 0, len: 0, fua: false };
        let slot = |(i, buffer)| {
            let submitter = i as u32 / depth;
            Slot { submitter, start: Time::ZERO, access: none, counted: false, buffer }
        };
        let slots = slots as usize;
        let is_all_inside = arrivals.is_none();
        Ok(Load {
            submitters: submitters.map_err(|e| Error::Usage(e.to_string()))?,
            slots: Buffer::carve(slots, each)?.into_iter().enumerate().map(slot).collect(),
            idle: (0..slots as u32).rev().collect(),
            arrivals,
            origin: Time::ZERO,
            turn: 0,
            bs: pattern.most(),
            varied: pattern.varied.map(|_| *shape),
            flushes: pattern.flush_every > 0,
            in_bytes: false,
            in_time: false,
            hot_end: pattern.hot_end(),
            queue_number: 0,
            kept: each,
            batch: 1,
            is_all_inside,
            wanted: Wanted::ALL,
            story: Box::default(),
            recorded: None,
            queue: Ring::new(slots),
            done: Ring::new(shape.depth.min(MOST_SWAPPED).max(slots)),
        })
    }

    /// The same load, which in a closed loop makes requests `batch` at a time:
    /// at least 1, and at most as many as it has slots.
    pub fn in_batches(mut self, batch: usize) -> Load {
        self.batch = batch.clamp(1, self.slots.len());
        self
    }

    /// The same load, of whose run what is left is counted in bytes: a request that
    /// begins is its last one when it reaches them.
    pub fn in_bytes(mut self) -> Load {
        self.in_bytes = true;
        self
    }

    /// The same load, which makes nothing when the time of a run is over: not what was to
    /// arrive until then and is late, either.
    pub fn in_time(mut self) -> Load {
        self.in_time = true;
        self
    }

    /// The same load by a submission queue of a drive that has several.
    pub fn in_queue(mut self, queue: u8) -> Load {
        self.queue_number = queue;
        self
    }

    /// It has the drive not for itself: which requests are the slowest is no longer told
    /// by what the drive took.
    pub(crate) fn beside_others(&mut self) {
        self.is_all_inside = false;
    }

    /// Room for requests.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Bytes a request; where they vary, of the largest.
    pub fn bs(&self) -> u64 {
        self.bs
    }

    /// Bytes of the requests that have ended and are not yet taken. Where they vary, one that
    /// moves none counts as a block, and a trim as the largest.
    #[inline]
    pub(crate) fn ended(&self) -> u64 {
        if self.varied.is_none() {
            return self.done.len() as u64 * self.bs;
        }
        let ended = (0..self.done.len()).filter_map(|i| self.done.get(i));
        let len = |done: &BlockDone| self.slots[(done.id & SLOTS) as usize].access.len;
        ended.map(|done| len(done).max(BLOCK_BYTES).min(self.bs)).sum()
    }

    /// Whether nothing is out.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.out() == 0
    }

    /// How many requests are out.
    #[inline]
    pub fn out(&self) -> usize {
        self.slots.len() - self.idle.len()
    }

    /// When the next request is meant to start, if there is room: `now` in a
    /// closed loop; in an open one its arrival, however late it is, but for one that makes
    /// nothing [late](Load::in_time).
    #[inline]
    pub fn next_start(&self, now: Time) -> Time {
        let Some(arrivals) = &self.arrivals else { return now };
        let due = self.origin + arrivals.peek();
        if self.in_time { due.max(now) } else { due }
    }

    /// When the next request of an open loop arrives; `None` in a closed one,
    /// and while all slots are out.
    #[inline]
    pub fn next_arrival(&self) -> Option<Time> {
        let arrivals = self.arrivals.as_ref()?;
        if self.idle.is_empty() {
            return None;
        }
        Some(self.origin + arrivals.peek())
    }

    /// The arrivals of an open loop begin at `now`: none is late because of what
    /// went before.
    pub fn begin(&mut self, now: Time) {
        if let Some(arrivals) = &mut self.arrivals {
            arrivals.begin();
        }
        self.begin_recorded();
        self.origin = now;
        // A drive that begins to tell tells all.
        self.wanted = Wanted::ALL;
    }

    /// The drive is to be told of accesses before they come.
    pub fn look_ahead(&mut self) {
        for Submitter { generator, ahead } in &mut self.submitters {
            ahead.get_or_insert_with(|| Ahead::new(generator));
        }
    }

    /// Whether requests come at times of their own.
    pub fn is_open(&self) -> bool {
        self.arrivals.is_some()
    }

    /// When the arrival was to come that followed the last one, here or in another
    /// part of the load; `None` in a closed loop.
    pub fn following(&self) -> Option<Time> {
        self.arrivals.as_ref().map(|arrivals| self.origin + arrivals.following())
    }

    /// Puts requests in the queue that are due at `now`, at most `left`, which
    /// goes down by each that is not a flush, or by its bytes ([`Load::in_bytes`]). Part of the loop that calls it: a call
    /// costs a tenth of it.
    #[inline(always)]
    pub fn issue(
        &mut self,
        now: Time,
        left: &mut u64,
        counted: bool,
        driver: &dyn Driver,
        verifier: &mut Option<Verifier>,
    ) -> Result<(), Error> {
        if self.idle.len() < self.batch {
            if self.recorded.is_some() {
                self.issue_recorded(now, left, counted, driver);
                return Ok(());
            }
            if self.arrivals.is_none() {
                return Ok(());
            }
        }
        while *left > 0
            && let Some(&slot) = self.idle.last()
        {
            let (start, submitter) = match &self.arrivals {
                None => (now, self.slots[slot as usize].submitter as usize),
                Some(arrivals) => {
                    let at = self.origin + arrivals.peek();
                    if at > now {
                        break;
                    }
                    (at, self.turn % self.submitters.len())
                }
            };
            let access = match verifier {
                None => self.submitters[submitter].draw(driver),
                Some(verifier) => match self.draw_verified(slot, submitter, driver, verifier)? {
                    Some(access) => access,
                    None => break,
                },
            };
            if let Some(arrivals) = &mut self.arrivals {
                arrivals.take();
                self.turn += 1;
            }
            self.idle.pop();
            *left -= match self.in_bytes {
                false => u64::from(access.op != BlockOp::Flush),
                true => access.len.min(*left),
            };
            let moves = self.kept > 0 && matches!(access.op, BlockOp::Read | BlockOp::Write);
            let entry = &mut self.slots[slot as usize];
            (entry.start, entry.access, entry.counted) = (start, access, counted);
            let entry = &mut entry.buffer;
            let way = (u8::from(access.offset < self.hot_end), self.queue_number);
            // The queue has room for all slots.
            let varied = &self.varied;
            self.queue.put(|| {
                let buffer = match varied {
                    _ if !moves => Buffer::empty(),
                    None => std::mem::take(entry),
                    Some(shape) => entry.split_to(shape.stored(access.len)),
                };
                request(slot, &access, way, buffer)
            });
        }
        Ok(())
    }

    /// An access that may be made now.
    #[inline(never)]
    fn draw_verified(
        &mut self,
        slot: u32,
        submitter: usize,
        driver: &dyn Driver,
        verifier: &mut Verifier,
    ) -> Result<Option<Access>, Error> {
        let submitter = &mut self.submitters[submitter];
        let buffer = &mut self.slots[slot as usize].buffer;
        for _ in 0..TRIES {
            let access = submitter.draw(driver);
            let ready = verifier.before(slot, &access, buffer);
            if ready.map_err(|e| Error::Failed(e.to_string()))? == Ready::Yes {
                return Ok(Some(access));
            }
        }
        Ok(None)
    }

    /// Takes all requests that were seen to be done at `now`. Fails when there
    /// is no memory for a buffer in place of one that did not come back. `is_late`
    /// where they are seen later than they end. Part of its loop, as above.
    #[inline(always)]
    pub fn complete(
        &mut self,
        now: Time,
        is_late: bool,
        tally: &mut Tally,
        driver: &mut dyn Driver,
        verifier: &mut Option<Verifier>,
    ) -> Result<(), OutOfMemory> {
        if self.is_all_inside && !self.queue.is_empty() {
            self.is_all_inside = false;
            self.tell_only(Wanted::ALL, driver);
        }
        while let Some(done) = self.done.get_mut(0) {
            // Field by field, as above; the buffer only where it has bytes.
            let (id, op, status, at) = (done.id, done.op, done.status, done.at);
            let (id, others) = (id & SLOTS, id >> SLOT_BITS);
            let slot = &mut self.slots[id as usize];
            if self.kept > 0 && matches!(op, BlockOp::Read | BlockOp::Write) {
                let rest = std::mem::replace(&mut slot.buffer, std::mem::take(&mut done.buffer));
                if self.varied.is_some() {
                    // One that did not come back is told below, by what is missing.
                    let _ = slot.buffer.join(rest);
                }
            }
            self.done.pop();
            let number = tally.slowest.as_mut().map_or(0, |all| all.completed_after(others));
            if !status.is_ok() {
                tally.failed(now, slot.counted, || slot.failed(op, status));
                if slot.buffer.len() < self.kept {
                    // It was given up, and whoever has it keeps its buffer.
                    slot.buffer = Buffer::zeroed(self.kept)?;
                }
            }
            if let Some(verifier) = verifier {
                let judged = verifier.after(id as u32, &slot.access, status.is_ok(), &slot.buffer);
                if let Err(mismatch) = judged {
                    tally.gave_wrong(|| mismatch.to_string());
                }
            }
            if op == BlockOp::Write && status.is_ok() {
                tally.written += slot.access.len;
            }
            if slot.counted && status.is_ok() {
                tally.go_on(now, || driver.gauges());
                tally.record(op, slot.access.len, now, now.since(slot.start));
                if tally.slowest.is_some() {
                    let (driver, start) = (&*driver, slot.start);
                    let (story, is_made) = (&mut *self.story, false);
                    let asked = Asked { driver, number, start, now, story, is_made };
                    asked.note(tally, op, &slot.access);
                }
                if is_late {
                    tally.late.record(now.since(at));
                }
            }
            self.idle.push(id as u32);
        }
        if let Some(wanted) = tally.wanted().filter(|_| self.is_all_inside) {
            self.tell_only(wanted, driver);
        }
        Ok(())
    }

    /// The drive may leave out all other stories.
    fn tell_only(&mut self, wanted: Wanted, driver: &mut dyn Driver) {
        if self.wanted != wanted {
            self.wanted = wanted;
            driver.tell_only(wanted);
        }
    }
}
