//! The timed null driver: a device that takes its time and keeps nothing.
//!
//! A device of servers. A request that was taken waits for a free server,
//! first come, first served, keeps it for its time, and completes. What the
//! device does is fixed when it takes the request: the same requests at the
//! same times give the same completions, to the bit.
//!
//! Parameters have the names of Linux's null_blk where they mean the same.
//! There is no `irqmode`: this is a port, and whoever drives it decides how
//! completions are found. Requests are checked as a device would check them;
//! one that cannot be served is answered at once. Reads leave their buffers as
//! they are.
//!
//! Two options make a device that is faulty in an honest way, to test what is
//! above it: `lost_every` and `gone_after`. The rule of ports that every
//! command completes is broken with these, and only with these.
//!
//! Nothing here fails but a parameter outside its range.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Shape, Slots, Status, Time};

use super::null::{MOST_DEPTH, MOST_GB};
use super::{Abort, Driver, HardwareQueue, tag_of};
use crate::config::MOST_QUEUES;
use crate::error::ConfigError;

/// The longest time of a request in ns: about 73 minutes.
pub const MOST_NSEC: u64 = 1 << 42;
/// The highest limit of the rate, in MiB/s.
pub const MOST_MBPS: u64 = u32::MAX as u64;
/// All requests, as a share of 65536.
pub const ALL: u32 = 1 << 16;

/// Some requests take another time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slow {
    /// The time they take, in ns; at most [`MOST_NSEC`].
    pub completion_nsec: u64,
    /// How many of 65536 requests they are, on average; at most [`ALL`].
    pub in_65536: u32,
}

/// Parameters of the timed null driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedOptions {
    /// Dispatch queues for everything.
    pub submit_queues: usize,
    /// Dispatch queues for requests whose submitter polls.
    pub poll_queues: usize,
    /// Requests inside each queue at once.
    pub hw_queue_depth: usize,
    /// Capacity in GiB (2^30 bytes).
    pub gb: u64,
    /// Whether all queues share one set of tags.
    pub shared_tags: bool,
    /// How long a server takes for a request, in ns; at most [`MOST_NSEC`].
    pub completion_nsec: u64,
    /// What all queues together may read and write, in MiB/s; 0 is no limit.
    /// The bytes of requests pass one after the other. A request completes
    /// when its server's time is over and its bytes have passed, which takes
    /// whole nanoseconds, rounded up.
    pub mbps: u64,
    /// Servers of each queue; `None` is as many as its depth, so that no
    /// request waits for one.
    pub servers: Option<usize>,
    /// Whether `servers` are the whole device's, and all queues share them.
    pub shared_servers: bool,
    /// Whether some requests take another time.
    pub slow: Option<Slow>,
    /// What the choice of these requests comes from.
    pub seed: u64,
    /// A faulty device: of each queue's requests, each n-th never completes.
    /// It takes no server, and room in its queue until it is given up.
    pub lost_every: Option<u64>,
    /// A faulty device: when it has taken so many requests, it is gone. What
    /// is inside then never completes.
    pub gone_after: Option<u64>,
}

impl Default for TimedOptions {
    /// As null_blk with a timer: 10 us a request, 64 at once.
    fn default() -> TimedOptions {
        TimedOptions {
            submit_queues: 1,
            poll_queues: 0,
            hw_queue_depth: 64,
            gb: 250,
            shared_tags: false,
            completion_nsec: 10_000,
            mbps: 0,
            servers: None,
            shared_servers: false,
            slow: None,
            seed: 1,
            lost_every: None,
            gone_after: None,
        }
    }
}

impl TimedOptions {
    /// Whether all parameters are in their ranges.
    fn check(&self) -> Result<(), ConfigError> {
        let range = |what, value: u64, least: usize, most: u64| {
            let value = usize::try_from(value).unwrap_or(usize::MAX);
            ConfigError::range(what, value, least, usize::try_from(most).unwrap_or(usize::MAX))
        };
        range("submit_queues", self.submit_queues as u64, 1, MOST_QUEUES as u64)?;
        range("poll_queues", self.poll_queues as u64, 0, MOST_QUEUES as u64)?;
        range("hw_queue_depth", self.hw_queue_depth as u64, 1, MOST_DEPTH as u64)?;
        range("gb", self.gb, 1, MOST_GB)?;
        range("completion_nsec", self.completion_nsec, 0, MOST_NSEC)?;
        range("mbps", self.mbps, 0, MOST_MBPS)?;
        range("servers", self.servers.map_or(1, |n| n as u64), 1, MOST_DEPTH as u64)?;
        let slow = self.slow.unwrap_or(Slow { completion_nsec: 0, in_65536: 0 });
        range("slow.completion_nsec", slow.completion_nsec, 0, MOST_NSEC)?;
        range("slow.in_65536", u64::from(slow.in_65536), 0, u64::from(ALL))?;
        range("lost_every", self.lost_every.unwrap_or(1), 1, u64::MAX)?;
        range("gone_after", self.gone_after.unwrap_or(1), 1, u64::MAX)
    }
}

/// The timed null driver.
#[derive(Clone, Copy, Debug)]
pub struct Timed {
    options: TimedOptions,
}

impl Timed {
    /// The driver with these parameters.
    pub fn new(options: TimedOptions) -> Result<Timed, ConfigError> {
        options.check()?;
        Ok(Timed { options })
    }
}

impl Driver for Timed {
    type Queue = TimedQueue;

    fn shape(&self) -> Shape {
        let TimedOptions { hw_queue_depth, gb, .. } = self.options;
        Shape { bytes: gb << 30, kept: 0, max_bytes: 1 << 20, depth: hw_queue_depth }
    }

    fn queues(&self) -> [usize; 3] {
        [self.options.submit_queues, 0, self.options.poll_queues]
    }

    fn shares_tags(&self) -> bool {
        self.options.shared_tags
    }

    fn tables(&self) -> u64 {
        let TimedOptions { submit_queues, poll_queues, hw_queue_depth, servers, .. } = self.options;
        let count = (submit_queues + poll_queues) as u64;
        let each = 2 * size_of::<Due>() + size_of::<u32>();
        let inside = Slots::<Option<Inside>>::bytes(hw_queue_depth);
        let servers = servers.unwrap_or(0) as u64 * size_of::<Time>() as u64;
        count * (inside + hw_queue_depth as u64 * each as u64 + servers)
    }

    fn open(self) -> Vec<TimedQueue> {
        let device = Arc::new(Device::new(&self.options));
        let count = self.options.submit_queues + self.options.poll_queues;
        (0..count as u64).map(|i| TimedQueue::new(self, device.clone(), i)).collect()
    }
}

/// What all queues share.
#[derive(Debug)]
struct Device {
    /// Requests taken; counted with `gone_after` only.
    taken: AtomicU64,
    gone_after: Option<u64>,
    /// `None` where the queues have nothing to share, and so no lock.
    line: Option<Mutex<Line>>,
}

/// What the requests of several queues wait for, one after the other.
#[derive(Debug)]
struct Line {
    servers: Servers,
    /// When all bytes so far have passed.
    passed: Time,
}

impl Device {
    fn new(options: &TimedOptions) -> Device {
        let servers = options.servers.filter(|_| options.shared_servers);
        let shares = servers.is_some() || options.mbps > 0;
        let line = || Mutex::new(Line { servers: Servers::new(servers), passed: Time::ZERO });
        Device { taken: AtomicU64::new(0), gone_after: options.gone_after, line: shares.then(line) }
    }

    #[inline]
    fn is_gone(&self) -> bool {
        self.gone_after.is_some_and(|n| self.taken.load(Ordering::Relaxed) >= n)
    }

    /// How many of `n` requests the device takes before it is gone.
    #[inline]
    fn admit(&self, n: usize) -> usize {
        let Some(most) = self.gone_after else { return n };
        let before = self.taken.fetch_add(n as u64, Ordering::Relaxed);
        most.saturating_sub(before).min(n as u64) as usize
    }

    /// The line, for a batch. What a panic left there are plain times.
    #[inline]
    fn line(&self) -> Option<MutexGuard<'_, Line>> {
        Some(self.line.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// When each server is free again. None at all stands for as many as are
/// asked for.
#[derive(Debug)]
struct Servers(BinaryHeap<Reverse<Time>>);

impl Servers {
    fn new(count: Option<usize>) -> Servers {
        Servers((0..count.unwrap_or(0)).map(|_| Reverse(Time::ZERO)).collect())
    }

    /// When a request that is there at `now` gets a server.
    #[inline]
    fn free(&self, now: Time) -> Time {
        self.0.peek().map_or(now, |Reverse(free)| now.max(*free))
    }

    /// The server that is free first is busy until `end`.
    #[inline]
    fn busy(&mut self, end: Time) {
        if let Some(mut first) = self.0.peek_mut() {
            *first = Reverse(end);
        }
    }
}

/// How long requests take.
#[derive(Debug)]
struct Pace {
    completion_nsec: u64,
    slow: Option<Slow>,
    /// The state of SplitMix64.
    state: u64,
    /// Bytes a second; 0 is no limit.
    rate: u64,
}

impl Pace {
    fn new(options: &TimedOptions, queue: u64) -> Pace {
        let TimedOptions { completion_nsec, slow, seed, mbps, .. } = *options;
        // Each queue has numbers of its own, whatever the others do.
        let state = seed ^ (queue + 1).wrapping_mul(0xA24B_AED4_963E_E407);
        Pace { completion_nsec, slow, state, rate: mbps << 20 }
    }

    /// A server's time for the next request, in ns.
    #[inline]
    fn service(&mut self) -> u64 {
        let Some(slow) = self.slow else { return self.completion_nsec };
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let drawn = ((z ^ (z >> 31)) >> 48) as u32;
        if drawn < slow.in_65536 { slow.completion_nsec } else { self.completion_nsec }
    }

    /// How long the bytes of a request take to pass, in ns.
    #[inline]
    fn passing(&self, req: &BlockReq) -> u64 {
        if self.rate == 0 || !matches!(req.op, BlockOp::Read | BlockOp::Write) {
            return 0;
        }
        // At most 2^20 bytes: the shape was checked.
        (req.len * 1_000_000_000).div_ceil(self.rate)
    }
}

/// A request inside.
#[derive(Debug)]
struct Inside {
    id: u64,
    /// How many were taken before it.
    number: u64,
    op: BlockOp,
    status: Status,
    buffer: Buffer,
}

/// When a request ends, how many were taken before it, and where it is.
type Due = Reverse<(Time, u64, u32)>;

/// A dispatch queue of the timed null driver.
#[derive(Debug)]
pub struct TimedQueue {
    shape: Shape,
    device: Arc<Device>,
    pace: Pace,
    /// The queue's own; not looked at where all queues share them.
    servers: Servers,
    shared_servers: bool,
    lost_every: Option<u64>,
    /// Requests taken so far.
    taken: u64,
    inside: Slots<Option<Inside>>,
    /// By tag: where its request was put last.
    places: Box<[u32]>,
    /// When each ends that is not lost, which was taken first, and where it is
    /// in `inside`; with some that were given up, but none of those in front.
    due: BinaryHeap<Due>,
    /// Those in `due` that were given up.
    given_up: usize,
}

impl TimedQueue {
    fn new(driver: Timed, device: Arc<Device>, queue: u64) -> TimedQueue {
        let (options, shape) = (&driver.options, driver.shape());
        TimedQueue {
            shape,
            device,
            pace: Pace::new(options, queue),
            servers: Servers::new(options.servers.filter(|_| !options.shared_servers)),
            shared_servers: options.shared_servers,
            lost_every: options.lost_every,
            taken: 0,
            inside: Slots::new(shape.depth),
            places: vec![0; shape.depth].into_boxed_slice(),
            due: BinaryHeap::with_capacity(2 * shape.depth),
            given_up: 0,
        }
    }

    /// Where a request is.
    fn find(&self, id: u64) -> Option<u32> {
        let is = |slot: u32| self.inside[slot].as_ref().is_some_and(|held| held.id == id);
        // Who gives other ids than tags has it looked for.
        let known = self.places.get(tag_of(id)).copied().filter(|&slot| is(slot));
        known.or_else(|| (0..self.shape.depth as u32).find(|&slot| is(slot)))
    }

    /// Forgets those in front that were given up, and all of them when they are
    /// more than the others.
    fn tidy(&mut self) {
        let TimedQueue { inside, due, given_up, .. } = self;
        let is_there = |Reverse((_, number, slot)): &Due| {
            inside[*slot].as_ref().is_some_and(|held| held.number == *number)
        };
        if *given_up * 2 > due.len() {
            due.retain(is_there);
            *given_up = 0;
        }
        while *given_up > 0 && due.peek().is_some_and(|first| !is_there(first)) {
            due.pop();
            *given_up -= 1;
        }
    }
}

/// When a good request that is taken at `now` completes.
#[inline]
fn end(
    pace: &mut Pace,
    own: &mut Servers,
    shared_servers: bool,
    line: Option<&mut Line>,
    now: Time,
    req: &BlockReq,
) -> Time {
    let service = pace.service();
    let Some(line) = line else {
        let end = own.free(now) + service;
        own.busy(end);
        return end;
    };
    let servers = if shared_servers { &mut line.servers } else { own };
    let start = servers.free(now);
    let passing = pace.passing(req);
    let mut end = start + service;
    if passing > 0 {
        line.passed = line.passed.max(start) + passing;
        end = end.max(line.passed);
    }
    servers.busy(end);
    end
}

impl Port for TimedQueue {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        let TimedQueue { shape, device, pace, servers, shared_servers, .. } = self;
        let n = cmds.len().min(self.inside.room());
        if n == 0 || device.is_gone() {
            return;
        }
        let n = device.admit(n);
        let mut line = device.line();
        for _ in 0..n {
            let Some(req) = cmds.pop() else { return };
            self.taken += 1;
            let status = shape.check(&req);
            let number = self.taken;
            let at = if self.lost_every.is_some_and(|n| number.is_multiple_of(n)) {
                None
            } else if !status.is_ok() {
                Some(now)
            } else {
                Some(end(pace, servers, *shared_servers, line.as_deref_mut(), now, &req))
            };
            let BlockReq { id, op, buffer, .. } = req;
            let slot = self.inside.take(Some(Inside { id, number, op, status, buffer }));
            if let Some(place) = self.places.get_mut(tag_of(id)) {
                *place = slot;
            }
            if let Some(at) = at {
                self.due.push(Reverse((at, number, slot)));
            }
        }
    }

    #[inline]
    fn next_event(&self) -> Option<Time> {
        let Reverse((at, ..)) = self.due.peek()?;
        (!self.device.is_gone()).then_some(*at)
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        while done.room() > 0 && self.next_event().is_some_and(|at| at <= to) {
            let Some(Reverse((at, _, slot))) = self.due.pop() else { return };
            let held = self.inside[slot].take().expect("what is due is inside");
            self.inside.give(slot);
            let Inside { id, op, status, buffer, .. } = held;
            done.put(|| BlockDone { id, op, status, at, buffer });
            if self.given_up > 0 {
                self.tidy();
            }
        }
    }
}

impl HardwareQueue for TimedQueue {
    fn depth(&self) -> usize {
        self.shape.depth
    }

    fn is_gone(&self) -> bool {
        self.device.is_gone()
    }

    /// Gives up any request that is inside. The time of its server is spent.
    fn abort(&mut self, id: u64) -> Abort {
        let Some(slot) = self.find(id) else { return Abort::Lost };
        let held = self.inside[slot].take().expect("it was found inside");
        self.inside.give(slot);
        let is_lost = self.lost_every.is_some_and(|n| held.number.is_multiple_of(n));
        self.given_up += usize::from(!is_lost);
        self.tidy();
        Abort::Given(held.buffer)
    }
}

#[cfg(test)]
mod tests;
