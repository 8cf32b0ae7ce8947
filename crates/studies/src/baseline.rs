//! What the block layer is compared with: the old one, and none.
//!
//! [`sq`] is the block layer that the thesis starts from (section 2): one
//! request queue with one lock for all cores. As there, "whenever a block IO
//! is inserted or removed from the request queue, this lock must be acquired",
//! so each request takes it three times: to enter the queue, to go from there
//! to the driver with a tag, to be completed. Nothing is collected to take it
//! less often, because the old layer's lock is what is to be seen. Its elevator
//! and merging are those of our own layer, and it counts latencies as that does.
//!
//! [`raw`] is no block layer: each core has a queue of the driver.
//!
//! Guarantees: every request that was taken completes once, if the driver
//! completes it once. There are no timeouts: what a driver loses is lost, and
//! what is with a device that goes away never completes. Fails where the driver
//! does not fit, or there is no memory.

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
    let shared = Arc::new(Mutex::new(RequestQueue {
        staging: Staging::new(&options)?,
        queue,
        sent: Slots::new(tags),
        out: Ring::new(tags),
        completed: (0..cores).map(|_| Ring::new(limit)).collect(),
        one: Ring::new(1),
        latency: LiveHistogram::default(),
    }));
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

/// What the lock guards.
struct RequestQueue<Q> {
    staging: Staging,
    queue: Q,
    /// By tag.
    sent: Slots<Option<Sent>>,
    /// Has its tag, and the driver had no room for it yet.
    out: Ring<BlockReq>,
    /// By core: completed, and not yet taken.
    completed: Vec<Ring<BlockDone>>,
    one: Ring<BlockDone>,
    latency: LiveHistogram,
}

impl<Q: HardwareQueue> RequestQueue<Q> {
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

    /// Completes one request, whoever submitted it. False when there was none.
    fn complete(&mut self, now: Time) -> bool {
        let RequestQueue { staging, queue, sent, completed, one, latency, .. } = self;
        queue.advance(now, one);
        let Some(done) = one.pop() else { return false };
        let tag = done.id as u32;
        let Sent { id, from, submitted, parts } = sent[tag].take().expect("the driver has it");
        sent.give(tag);
        let mut give = |from: u32, submitted: Time, done: BlockDone| {
            latency.record(now.since(submitted));
            completed[from as usize].put(|| done);
        };
        if parts.is_none() {
            give(from, submitted, BlockDone { id, ..done });
        } else {
            staging.split(parts, done.status, done.at, done.buffer, &mut give);
        }
        true
    }
}

/// A core's way into the old block layer.
pub struct SqContext<Q> {
    core: u32,
    shared: Arc<Mutex<RequestQueue<Q>>>,
    outside: usize,
    limit: usize,
    last: Time,
}

impl<Q> SqContext<Q> {
    /// The lock. What a panic left behind is checked by its own assertions.
    fn lock(&self) -> MutexGuard<'_, RequestQueue<Q>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<Q: HardwareQueue> SqContext<Q> {
    /// Puts the first of `reqs` into the request queue. False when there is no
    /// room, or nothing to put.
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
        drop(queue);
        self.outside += 1;
        true
    }

    /// A request of this core that completed; what others' requests it finds on
    /// the way, it completes for them.
    fn take(&mut self, now: Time) -> Option<BlockDone> {
        loop {
            let mut queue = self.lock();
            if let Some(done) = queue.completed[self.core as usize].pop() {
                return Some(done);
            }
            if !queue.complete(now) {
                return None;
            }
            let mine = queue.completed[self.core as usize].pop();
            drop(queue);
            // A tag is free: the next request goes to the driver.
            self.lock().dispatch(now);
            if mine.is_some() {
                return mine;
            }
        }
    }
}

impl<Q: HardwareQueue> Port for SqContext<Q> {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, reqs: &mut Ring<BlockReq>) {
        self.last = now;
        while !reqs.is_empty() && self.insert(now, reqs) {
            self.lock().dispatch(now);
        }
    }

    fn next_event(&self) -> Option<Time> {
        let queue = self.lock();
        let stuck = queue.staging.is_empty() || queue.sent.room() == 0;
        if !queue.completed[self.core as usize].is_empty() || !stuck {
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
        if self.outside > 0 {
            while self.lock().dispatch(to) {}
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
