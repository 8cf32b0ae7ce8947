//! What the block layer is compared with: the old one, and none.
//!
//! [`sq`] is the block layer that the thesis starts from (section 2): one
//! request queue with one lock for all cores. As there, "whenever a block IO
//! is inserted or removed from the request queue, this lock must be acquired",
//! so each request takes it three times: to enter the queue, to go from there
//! to the driver with a tag, to be completed, on whatever core. Nothing is
//! collected to take it less often, because the old layer's lock is what is to be
//! seen; and nobody takes it to find nothing to do, but who asks whether anything
//! completed. What another core completed comes back by a list of the request's
//! own core, as that core's interrupt brings it there. Its elevator and merging
//! are those of our own layer, and it counts latencies as that does.
//!
//! [`raw`] is no block layer: each core has a queue of the driver.
//!
//! Guarantees: every request that was taken completes once, if the driver
//! completes it once. There are no timeouts: what a driver loses is lost, and
//! what is with a device that goes away never completes. Fails where the driver
//! does not fit, or there is no memory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use blkmq::staging::{Outgoing, Parts, Staging, StagingOptions};
use blkmq::topology::MOST_CORES;
use blkmq::{ConfigError, Driver, HardwareQueue, Merge, SchedulerKind};
use measure::LiveHistogram;
use port::{BlockDone, BlockReq, Port, Ring, Slots, Time};

/// No block layer: the driver's queues as they are, one for each core. Fails
/// when it has another number of them.
pub fn raw<D: Driver>(driver: D, cores: usize) -> Result<Vec<D::Queue>, ConfigError> {
    let queues = driver.queues().iter().sum();
    if queues != cores {
        let what = "queues of the driver";
        return Err(ConfigError::Range { what, value: queues, least: cores, most: cores });
    }
    Ok(driver.open())
}

/// The old block layer over the driver's only queue, a context for each core:
/// with an elevator `scheduler`, and `merge` while the device is busy. Its queue
/// holds 128 requests as Linux's `nr_requests`, or 32 of each core, besides those
/// with a tag. Fails when the driver has more queues, or a number is out of range.
pub fn sq<D: Driver>(
    driver: D,
    cores: usize,
    scheduler: SchedulerKind,
    merge: Merge,
) -> Result<Vec<SqContext<D::Queue>>, ConfigError> {
    if !(1..=MOST_CORES).contains(&cores) {
        let (what, value) = ("cores", cores);
        return Err(ConfigError::Range { what, value, least: 1, most: MOST_CORES });
    }
    let options = StagingOptions {
        depth: (32 * cores).max(128),
        scheduler,
        merge,
        merge_idle: false,
        plug: None,
        cores,
        ways: Vec::new(),
        shared: false,
        shape: driver.shape(),
    };
    let queue = raw(driver, 1)?.remove(0);
    let tags = queue.depth();
    let limit = options.depth + tags;
    let shared = Arc::new(Shared {
        queue: Mutex::new(RequestQueue {
            staging: Staging::new(&options)?,
            queue,
            sent: Slots::new(tags),
            out: Ring::new(tags),
            one: Ring::new(1),
            latency: LiveHistogram::default(),
            #[cfg(test)]
            locked: 0,
        }),
        handed: (0..cores).map(|_| Handed::new(limit)).collect(),
    });
    let context =
        |core| SqContext { core, shared: shared.clone(), outside: 0, limit, last: Time::ZERO };
    Ok((0..cores as u32).map(context).collect())
}

/// What is known of a request that the driver has.
#[derive(Clone, Copy)]
struct Sent {
    id: u64,
    from: u32,
    submitted: Time,
    parts: Parts,
}

/// What the cores share.
struct Shared<Q> {
    queue: Mutex<RequestQueue<Q>>,
    /// By core.
    handed: Vec<Handed>,
}

/// Requests of a core that another one completed, and that are not yet taken.
#[repr(align(128))]
struct Handed {
    /// Whether there are some. It changes below the list's lock alone.
    some: AtomicBool,
    list: Mutex<Ring<BlockDone>>,
}

impl Handed {
    fn new(limit: usize) -> Handed {
        Handed { some: AtomicBool::new(false), list: Mutex::new(Ring::new(limit)) }
    }

    fn is_empty(&self) -> bool {
        !self.some.load(Ordering::Acquire)
    }

    fn put(&self, done: BlockDone) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.put(|| done);
        self.some.store(true, Ordering::Release);
    }

    fn take(&self) -> Option<BlockDone> {
        if self.is_empty() {
            return None;
        }
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        let done = list.pop();
        self.some.store(!list.is_empty(), Ordering::Release);
        done
    }
}

/// What the lock guards.
struct RequestQueue<Q> {
    staging: Staging,
    queue: Q,
    /// By tag.
    sent: Slots<Option<Sent>>,
    /// Has its tag, and the driver had no room for it yet.
    out: Ring<BlockReq>,
    one: Ring<BlockDone>,
    latency: LiveHistogram,
    /// How often the lock was taken.
    #[cfg(test)]
    locked: u64,
}

impl<Q: HardwareQueue> RequestQueue<Q> {
    /// Whether something waits, and may go to the driver.
    fn may_go_on(&self) -> bool {
        !self.staging.is_empty() && self.sent.room() > 0
    }

    /// Gives the driver the next request, if there is a tag for it. False when
    /// there was none, or nothing to give.
    fn dispatch(&mut self, now: Time) -> bool {
        if self.sent.room() == 0 {
            return false;
        }
        let Some(outgoing) = self.staging.next(now, 0) else { return false };
        let Outgoing { req, from, submitted, parts } = outgoing;
        let id = self.sent.take(Some(Sent { id: req.id, from, submitted, parts })).into();
        self.out.put(|| BlockReq { id, ..req });
        self.queue.submit(now, &mut self.out);
        true
    }

    /// Completes one request, whoever submitted it, and hands it over. What came
    /// first of `core` comes back. None when there was no request.
    fn complete(&mut self, now: Time, core: u32, handed: &[Handed]) -> Option<Option<BlockDone>> {
        let RequestQueue { staging, queue, sent, one, latency, .. } = self;
        queue.advance(now, one);
        let done = one.pop()?;
        let tag = done.id as u32;
        let Sent { id, from, submitted, parts } = sent[tag].take().expect("the driver has it");
        sent.give(tag);
        let mut mine = None;
        let mut give = |from: u32, submitted: Time, done: BlockDone| {
            latency.record(now.since(submitted));
            if from == core && mine.is_none() {
                mine = Some(done);
            } else {
                handed[from as usize].put(done);
            }
        };
        if parts.is_none() {
            give(from, submitted, BlockDone { id, ..done });
        } else {
            staging.split(parts, done.status, done.at, done.buffer, &mut give);
        }
        Some(mine)
    }
}

/// A core's way into the old block layer.
pub struct SqContext<Q> {
    core: u32,
    shared: Arc<Shared<Q>>,
    outside: usize,
    limit: usize,
    last: Time,
}

impl<Q> SqContext<Q> {
    /// The lock. What a panic left behind is checked by its own assertions.
    fn lock(&self) -> MutexGuard<'_, RequestQueue<Q>> {
        let queue = self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
        #[cfg(test)]
        let queue = {
            let mut queue = queue;
            queue.locked += 1;
            queue
        };
        queue
    }

    /// What another core completed of this one's.
    fn handed(&self) -> &Handed {
        &self.shared.handed[self.core as usize]
    }
}

impl<Q: HardwareQueue> SqContext<Q> {
    /// Puts the first of `reqs` into the request queue, and lets one go on. False
    /// when there is no room, or nothing to put.
    fn insert(&mut self, now: Time, reqs: &mut Ring<BlockReq>) -> bool {
        if self.outside == self.limit {
            return false;
        }
        let mut queue = self.lock();
        if queue.staging.room() == 0 {
            return false;
        }
        let Some(req) = reqs.pop() else { return false };
        let busy = queue.sent.room() == 0;
        queue.staging.insert(now, self.core, busy, req);
        let goes_on = queue.may_go_on();
        drop(queue);
        self.outside += 1;
        if goes_on {
            self.lock().dispatch(now);
        }
        true
    }

    /// A request of this core that completed; what others' requests it finds on
    /// the way, it completes for them.
    fn take(&mut self, now: Time) -> Option<BlockDone> {
        loop {
            if let Some(done) = self.handed().take() {
                return Some(done);
            }
            let mut queue = self.lock();
            let completed = queue.complete(now, self.core, &self.shared.handed);
            let goes_on = queue.may_go_on();
            drop(queue);
            // A tag is free, or an elevator held something back: the next request
            // goes to the driver.
            if goes_on {
                self.lock().dispatch(now);
            }
            match completed {
                None => return None,
                Some(None) => {}
                mine => return mine.flatten(),
            }
        }
    }
}

impl<Q: HardwareQueue> Port for SqContext<Q> {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, reqs: &mut Ring<BlockReq>) {
        self.last = now;
        while !reqs.is_empty() && self.insert(now, reqs) {}
    }

    fn next_event(&self) -> Option<Time> {
        if !self.handed().is_empty() {
            return Some(self.last);
        }
        let queue = self.lock();
        if queue.may_go_on() {
            return Some(self.last);
        }
        queue.queue.next_event().map(|at| at.max(self.last))
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        self.last = to;
        while self.outside > 0
            && done.room() > 0
            && let Some(one) = self.take(to)
        {
            self.outside -= 1;
            done.put(|| one);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blkmq::driver::null::{Null, NullOptions};
    use blkmq::driver::timed::{Timed, TimedOptions};
    use port::{BlockOp, Buffer};
    use workload::{Tight, TightOptions};

    use crate::layers::{SHAPE, Sectors};

    fn read(id: u64, block: u64) -> BlockReq {
        BlockReq::new(id, BlockOp::Read, block * 4096, 4096, Buffer::empty())
    }

    fn timed(depth: usize) -> Timed {
        Timed::new(TimedOptions { hw_queue_depth: depth, ..TimedOptions::default() }).unwrap()
    }

    fn first_come<D: Driver>(
        driver: D,
        cores: usize,
    ) -> Result<Vec<SqContext<D::Queue>>, ConfigError> {
        sq(driver, cores, SchedulerKind::None, Merge::Off)
    }

    #[test]
    fn every_request_comes_back_to_its_own_core_under_its_own_id() {
        let mut contexts = first_come(timed(2), 2).unwrap();
        let (mut reqs, mut done) = (Ring::new(8), Ring::new(8));
        for first in [0, 10, 2, 12] {
            (first..first + 2).for_each(|id| reqs.push(read(id, id)).unwrap());
            contexts[first as usize / 10].submit(Time::ZERO, &mut reqs);
            assert!(reqs.is_empty());
        }
        assert_eq!(contexts[1].next_event(), Some(Time(10_000)));
        // Two at a time; the first core completes the second's on the way.
        for turn in 1..=3 {
            contexts[0].advance(Time(turn * 10_000), &mut done);
        }
        assert_eq!(done.drain().map(|d| d.id).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(contexts[1].next_event(), Some(Time::ZERO), "two are there");
        contexts[1].advance(Time(40_000), &mut done);
        assert_eq!(done.drain().map(|d| d.id).collect::<Vec<_>>(), [10, 11, 12, 13]);
        assert_eq!(contexts[1].next_event(), None);
    }

    #[test]
    fn an_elevator_sorts_and_merges_while_the_device_is_busy() {
        let scheduler = SchedulerKind::Deadline(Default::default());
        let mut contexts = sq(timed(1), 1, scheduler, Merge::Full).unwrap();
        let (mut reqs, mut done) = (Ring::new(8), Ring::new(8));
        for (id, block) in [(0, 5), (1, 20), (2, 21), (3, 9)] {
            reqs.push(read(id, block)).unwrap();
        }
        contexts[0].submit(Time::ZERO, &mut reqs);
        for turn in 1..=3 {
            contexts[0].advance(Time(turn * 10_000), &mut done);
        }
        let mut order: Vec<u64> = done.drain().map(|d| d.id).collect();
        assert_eq!(order.len(), 4);
        order[2..].sort_unstable();
        assert_eq!(order, [0, 3, 1, 2]);
    }

    #[test]
    fn a_full_request_queue_refuses() {
        let mut contexts = first_come(timed(1), 1).unwrap();
        let mut reqs = Ring::new(256);
        (0..131).for_each(|i| reqs.push(read(i, i)).unwrap());
        contexts[0].submit(Time::ZERO, &mut reqs);
        assert_eq!(reqs.len(), 2, "one has the tag and 128 wait");
    }

    #[test]
    fn threads_get_their_own_back() {
        let null = Null::new(NullOptions::default()).unwrap();
        let shape = null.shape();
        let contexts = first_come(null, 3).unwrap();
        std::thread::scope(|scope| {
            for mut context in contexts {
                scope.spawn(move || {
                    let (op, len) = (BlockOp::Read, 4096);
                    let options = TightOptions { op, len, depth: 32, batch: 4, seed: 1 };
                    let mut tight = Tight::new(&shape, options).unwrap();
                    while tight.completed() < 5000 {
                        tight.turn(Time::ZERO, &mut context);
                    }
                    while tight.outside() > 0 {
                        tight.settle(Time::ZERO, &mut context);
                    }
                    assert_eq!((tight.errors(), context.outside), (0, 0));
                });
            }
        });
    }

    /// One by one and many at once, over a drive with tags for all and one that most
    /// wait for.
    #[test]
    fn each_request_takes_the_lock_three_times() {
        for (tags, batch, cores) in [(96, 1, 3), (96, 32, 3), (8, 32, 3), (1, 32, 1)] {
            let sectors = Sectors { queues: 1, depth: tags, shared_tags: false };
            let mut contexts = first_come(sectors, cores).unwrap();
            let options = TightOptions { op: BlockOp::Read, len: 512, depth: 32, batch, seed: 1 };
            let mut loads: Vec<Tight> =
                (0..cores).map(|_| Tight::new(&SHAPE, options).unwrap()).collect();
            for turn in 0..1000 {
                for (tight, context) in loads.iter_mut().zip(&mut contexts) {
                    tight.turn(Time(turn), context);
                }
            }
            for (tight, context) in loads.iter_mut().zip(&mut contexts) {
                while tight.outside() > 0 {
                    tight.settle(Time(1000), context);
                }
            }
            let requests: u64 = loads.iter().map(Tight::completed).sum();
            assert!(requests > 900 * cores as u64);
            // One more, to look.
            let locked = contexts[0].lock().locked - 1;
            assert_eq!(locked, 3 * requests, "{tags} tags, {batch} at once, {cores} cores");
        }
    }

    #[test]
    fn a_driver_that_does_not_fit_is_refused() {
        let null =
            |n| Null::new(NullOptions { submit_queues: n, ..NullOptions::default() }).unwrap();
        assert!(first_come(null(2), 2).is_err());
        assert!(first_come(null(1), 0).is_err());
        assert!(raw(null(2), 3).is_err());
        assert_eq!(raw(null(2), 2).unwrap().len(), 2);
    }
}
