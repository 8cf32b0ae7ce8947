//! A host that asks a drive in virtual time what somebody else decides: requests in, any
//! number at once, completions out, as columns.
//!
//! Guarantees: requests start in the order of their times, and those of one time in the order
//! in which they were given; one without a time starts as soon as fewer than `depth` are
//! inside, and its latency counts from then. What the drive refuses waits, and counts on. The
//! same calls give the same completions, to the bit, and they are the drive's own. At most
//! [`MOST_WAITING`] wait. Nothing is allocated for a request but its places in the columns,
//! and buffers that grow with the longest. May fail: no memory for buffers, or a drive that
//! stops with requests inside, which is a fault of its own.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use port::{BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Buffer, OutOfMemory, Ring, Shape, Time};

use drive::error::Error;
use drive::whole::{Boxed, Drive};

use crate::driver::{Driver, Virtual};
use crate::load::MOST_SLOTS;

mod completions;

pub use completions::Completions;

/// Requests that may wait to be started.
pub const MOST_WAITING: usize = 1 << 22;
/// Of how many requests ahead the drive is told.
const AHEAD: usize = 8;
/// Turns after which somebody is asked whether to go on.
const TURNS: u32 = 1024;
/// Up to as many requests that a drive holds, the ring of completions is as large.
const MOST_SWAPPED: usize = 1024;

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// What to do.
    pub op: BlockOp,
    /// Complete it only when it is durable.
    pub fua: bool,
    /// With which others its blocks should lie.
    pub placement: u8,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// When it starts, in drive time; `None` as soon as there is room.
    pub at: Option<Time>,
}

/// The bytes of writes, one after the other.
pub type Data = Arc<[u8]>;

/// One that waits.
struct Waiting {
    request: Request,
    id: u64,
    /// Its time in the order of all.
    order: Time,
    /// What it writes, and from where on.
    data: Option<(Data, usize)>,
    /// Whether what it reads is given with its completion.
    keeps: bool,
}

/// A place for a request that is inside.
#[derive(Default)]
struct Slot {
    id: u64,
    start: Time,
    keeps: bool,
    buffer: Buffer,
    /// The buffer holds other bytes than zeros.
    is_used: bool,
}

/// How far to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Until nothing is asked any more.
    Idle,
    /// Until then; what is inside stays.
    Time(Time),
    /// Until so many have completed, or nothing is asked; all that complete at the
    /// same time are given.
    Completions(usize),
}

/// A host and its drive.
pub struct Host {
    drive: Virtual<Boxed>,
    shape: Shape,
    depth: usize,
    waiting: VecDeque<Waiting>,
    slots: Vec<Slot>,
    idle: Vec<u32>,
    queue: Ring<BlockReq>,
    done: Ring<BlockDone>,
    /// The number of the next request.
    next: u64,
    /// How many completions were told stories of; `None` where nobody asks.
    told: Option<u64>,
    takes_hints: bool,
    /// Somebody whom the drive asks has failed: nothing goes on.
    stop: Arc<AtomicBool>,
}

impl Host {
    /// A host that has at most `depth` requests in a drive whose time is `now`; with
    /// `stories` the drive tells where their time went.
    pub fn new(drive: Boxed, now: Time, depth: usize, stories: bool) -> Result<Host, Error> {
        let shape = drive.shape();
        if depth == 0 || depth as u64 > MOST_SLOTS {
            return Err(Error::Usage(format!(
                "{depth} requests at once cannot be: at least 1, at most {MOST_SLOTS}; change qd"
            )));
        }
        let takes_hints = port::Port::takes_hints(&drive);
        let mut drive = Virtual::at(drive, now);
        drive.set_stories(stories);
        Ok(Host {
            drive,
            shape,
            depth,
            waiting: VecDeque::new(),
            slots: Vec::new(),
            idle: Vec::new(),
            queue: Ring::try_new(depth, "requests")?,
            done: Ring::try_new(shape.depth.min(MOST_SWAPPED).max(depth), "completions")?,
            next: 0,
            told: stories.then_some(0),
            takes_hints,
            stop: Arc::default(),
        })
    }

    /// The drive's outside.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The drive.
    pub fn drive(&self) -> &Boxed {
        self.drive.drive()
    }

    /// Drive time.
    pub fn now(&self) -> Time {
        self.drive.now()
    }

    /// Requests that were given and have not completed.
    pub fn out(&self) -> usize {
        self.waiting.len() + self.inside()
    }

    /// Requests that have started and not completed.
    pub fn inside(&self) -> usize {
        self.slots.len() - self.idle.len()
    }

    /// How many may be inside at once.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// While this is set, nothing goes on.
    pub fn set_stop(&mut self, stop: Arc<AtomicBool>) {
        self.stop = stop;
    }

    /// From now on so many may be inside. Those that are stay.
    pub fn set_depth(&mut self, depth: usize) -> Result<(), Error> {
        if depth == 0 || depth as u64 > MOST_SLOTS {
            return Err(Error::Usage(format!(
                "{depth} requests at once cannot be: at least 1, at most {MOST_SLOTS}; change qd"
            )));
        }
        if depth > self.queue.capacity() {
            let mut queue = Ring::try_new(depth, "requests")?;
            self.queue.pour(&mut queue);
            self.queue = queue;
            self.done = Ring::try_new(self.done.capacity().max(depth), "completions")?;
        }
        self.depth = depth;
        Ok(())
    }

    /// Takes requests, of which the first has the number that it gives, the next one more.
    /// With `data`, writes take their bytes from there, one after the other; else they
    /// write zeros. With `keeps`, what is read is given with the completions. All are taken
    /// or none.
    pub fn submit(
        &mut self,
        requests: impl ExactSizeIterator<Item = Request> + Clone,
        data: Option<Data>,
        keeps: bool,
    ) -> Result<u64, Error> {
        let (count, room) = (requests.len(), MOST_WAITING - self.waiting.len());
        if count > room {
            return Err(Error::Usage(format!(
                "{count} requests are too many at once: {room} more can wait, of \
                 {MOST_WAITING}; none was taken: advance first, or give fewer"
            )));
        }
        let (first, now, mut from) = (self.next, self.now(), 0);
        self.check_data(data.as_ref(), requests.clone())?;
        self.next += count as u64;
        self.waiting.reserve(count);
        let mut last = self.waiting.back().map_or(Time::ZERO, |waiting| waiting.order);
        let mut is_ordered = true;
        for (id, request) in (first..).zip(requests) {
            let order = request.at.unwrap_or(now);
            is_ordered &= order >= last;
            last = order;
            let mut own = None;
            if let Some(data) = data.as_ref().filter(|_| request.op == BlockOp::Write) {
                own = Some((data.clone(), from));
                from += request.len as usize;
            }
            self.waiting.push_back(Waiting { request, id, order, data: own, keeps });
        }
        if !is_ordered {
            self.waiting.make_contiguous().sort_by_key(|waiting| waiting.order);
        }
        Ok(first)
    }

    /// Sees that there are as many bytes as are written, and that the drive keeps them.
    fn check_data(
        &self,
        data: Option<&Data>,
        requests: impl Iterator<Item = Request>,
    ) -> Result<(), Error> {
        let Some(data) = data else { return Ok(()) };
        if u64::from(self.shape.kept) != BLOCK_BYTES {
            return Err(Error::Usage(
                "the drive keeps no data: take one with store=memory, or leave the data out".into(),
            ));
        }
        let writes = requests.filter(|request| request.op == BlockOp::Write);
        let bytes = writes.fold(0, |all: u64, write| all.saturating_add(write.len));
        if bytes != data.len() as u64 {
            return Err(Error::Usage(format!(
                "the writes are of {bytes} bytes, and the data has {}: give those of all writes, \
                 one after the other",
                data.len()
            )));
        }
        Ok(())
    }

    /// Goes on in drive time. `go_on` is asked now and then, and ends it where it says no,
    /// as does what [`Host::set_stop`] was given: what has completed until then is given, all else stays.
    pub fn advance(
        &mut self,
        until: Until,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Completions, Error> {
        let mut completions = Completions::new(self.told.is_some());
        let (limit, wanted) = match until {
            Until::Idle => (None, usize::MAX),
            Until::Time(at) if at < self.now() => return Ok(completions),
            Until::Time(at) => (Some(at), usize::MAX),
            Until::Completions(count) => (None, count),
        };
        completions.reserve(self.out().min(wanted));
        let mut turns = 0;
        loop {
            let started = self.start()?;
            let is_over = limit.is_none() && self.out() == 0;
            if is_over || completions.len() >= wanted || self.stop.load(Ordering::Relaxed) {
                break;
            }
            let arrival = self.arrival();
            let until = match (arrival, limit) {
                (Some(arrival), Some(limit)) => Some(arrival.min(limit)),
                (arrival, limit) => arrival.or(limit),
            };
            let now = self.drive.turn(until, &mut self.queue, &mut self.done)?;
            let is_quiet = self.done.is_empty();
            self.take(now, &mut completions)?;
            if is_quiet && started == 0 && limit.is_some_and(|limit| now >= limit) {
                break;
            }
            turns += 1;
            if turns == TURNS {
                turns = 0;
                if !go_on() {
                    break;
                }
            }
        }
        Ok(completions)
    }

    /// Gives all up that was asked: the drive, its time, and what became of the requests,
    /// which were lost.
    pub fn give_up(mut self) -> (Boxed, Time, Completions) {
        let mut lost = Completions::new(self.told.is_some());
        let now = self.now();
        let mut idle = vec![false; self.slots.len()];
        self.idle.iter().for_each(|&slot| idle[slot as usize] = true);
        let mut inside: Vec<_> = (self.slots.iter().zip(idle))
            .filter(|(_, idle)| !idle)
            .map(|(slot, _)| (slot.id, slot.start))
            .chain(self.waiting.drain(..).map(|w| (w.id, w.request.at.unwrap_or(now))))
            .collect();
        inside.sort_unstable();
        inside.into_iter().for_each(|(id, start)| lost.lost(id, start, now));
        let (drive, now) = self.drive.into_drive();
        (drive, now, lost)
    }

    /// When the next request starts that has a time, if there is room for it.
    #[inline]
    fn arrival(&self) -> Option<Time> {
        let waiting = self.waiting.front().filter(|_| self.inside() < self.depth)?;
        Some(waiting.order)
    }

    /// Starts what is due and has room. Gives how many.
    #[inline]
    fn start(&mut self) -> Result<usize, OutOfMemory> {
        let now = self.drive.now();
        let mut started = 0;
        while let Some(waiting) = self.waiting.front()
            && waiting.order <= now
            && self.inside() < self.depth
        {
            let Some(waiting) = self.waiting.pop_front() else { break };
            if self.takes_hints
                && let Some(Waiting { request, .. }) = self.waiting.get(AHEAD)
            {
                self.drive.hint(&block_request(0, request, Buffer::empty()));
            }
            let slot = self.idle.pop().unwrap_or_else(|| {
                self.slots.push(Slot::default());
                self.slots.len() as u32 - 1
            });
            let place = &mut self.slots[slot as usize];
            (place.id, place.keeps) = (waiting.id, waiting.keeps);
            place.start = waiting.request.at.unwrap_or(now);
            let buffer = match buffer_of(&self.shape, place, &waiting) {
                Ok(buffer) => buffer,
                Err(e) => {
                    self.idle.push(slot);
                    self.waiting.push_front(waiting);
                    return Err(e);
                }
            };
            self.queue.put(|| block_request(slot, &waiting.request, buffer));
            started += 1;
        }
        Ok(started)
    }

    /// Takes what has completed.
    #[inline]
    fn take(&mut self, now: Time, completions: &mut Completions) -> Result<(), OutOfMemory> {
        let Host { done, slots, idle, told, drive, .. } = self;
        while let Some(BlockDone { id, op, status, buffer, .. }) = done.pop() {
            let place = &mut slots[id as usize];
            let is_read = op == BlockOp::Read;
            // In the buffer of one that failed is what another request left there.
            let keeps = is_read && place.keeps && status.is_ok();
            let bytes = if keeps { buffer.bytes() } else { &[] };
            let kept = completions.push(place.id, status, (place.start, now), bytes);
            if let Some(told) = told {
                completions.tell(|story| drive.tell_story(*told, story), place.start, now);
                *told += 1;
            }
            if !buffer.is_empty() {
                place.is_used |= is_read;
                let rest = std::mem::replace(&mut place.buffer, buffer);
                // One of another memory is let go.
                let _ = place.buffer.join(rest);
            }
            idle.push(id as u32);
            kept?;
        }
        Ok(())
    }
}

#[inline]
fn block_request(slot: u32, request: &Request, buffer: Buffer) -> BlockReq {
    let Request { op, fua, placement, offset, len, .. } = *request;
    BlockReq { id: slot.into(), op, fua, placement, queue: 0, offset, len, buffer }
}

/// The buffer of a request, filled where it writes. What cannot be served has none: it is
/// refused by the drive.
#[inline]
fn buffer_of(shape: &Shape, place: &mut Slot, waiting: &Waiting) -> Result<Buffer, OutOfMemory> {
    let Request { op, len, .. } = waiting.request;
    if shape.kept == 0 || !matches!(op, BlockOp::Read | BlockOp::Write) || len > shape.max_bytes {
        return Ok(Buffer::empty());
    }
    let need = shape.stored(len);
    if place.buffer.len() < need {
        let room = need.next_power_of_two().max(BLOCK_BYTES as usize);
        (place.buffer, place.is_used) = (Buffer::zeroed(room)?, false);
    }
    let mut buffer = match need == place.buffer.len() {
        true => std::mem::take(&mut place.buffer),
        false => place.buffer.split_to(need),
    };
    if op == BlockOp::Write {
        match &waiting.data {
            Some((data, from)) => {
                buffer.bytes_mut().copy_from_slice(&data[*from..*from + need]);
                place.is_used = true;
            }
            None if place.is_used => buffer.bytes_mut().fill(0),
            None => {}
        }
    }
    Ok(buffer)
}

#[cfg(test)]
mod tests;
