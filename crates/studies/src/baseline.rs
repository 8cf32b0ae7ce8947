//! What the block layer is compared with: the old one, and none.
//!
//! [`sq`] is the block layer that the thesis starts from (section 2): one
//! request queue with one lock for all cores. As there, "whenever a block IO
//! is inserted or removed from the request queue, this lock must be acquired",
//! so each request takes it three times: to enter the queue, to go from there
//! to the driver with a tag, to be completed. Nothing is collected to take it
//! less often, because the old layer's lock is what is to be seen. Below the
//! lock is our own layer as one core has it, so that the two differ in nothing
//! else; its plug holds a request in the queue until the lock is taken again.
//!
//! [`raw`] is no block layer: each core has a queue of the driver.
//!
//! Guarantees: every request that was taken completes once, if the driver
//! completes it. There are no timeouts: what a driver loses is lost. Fails
//! where the driver does not fit, or there is no memory.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use blkmq::config::MOST_TIMEOUT;
use blkmq::topology::MOST_CORES;
use blkmq::{Config, ConfigError, Context, Driver, HardwareQueue, Merge, Monitor, Plug};
use blkmq::{SchedulerKind, Topology, build};
use port::{BlockDone, BlockReq, Port, Ring, Slots, Time};

/// Nothing happens so late but what is held until the lock is taken, or given up.
const LATE: u64 = MOST_TIMEOUT / 2;

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

/// An [`SqContext`] for each core, and what reads their accounts.
pub type SqLayer<Q> = (Vec<SqContext<Q>>, Monitor);

/// The old block layer over the driver's only queue: with an elevator
/// `scheduler`, and `merge` while the device is busy. Its queue holds 128
/// requests as Linux's `nr_requests`, or 32 of each core, besides those with a
/// tag. Fails when the driver has more queues, or too many cores.
pub fn sq<D: Driver>(
    driver: D,
    cores: usize,
    scheduler: SchedulerKind,
    merge: Merge,
) -> Result<SqLayer<D::Queue>, ConfigError> {
    let range = |what, value, most| match value {
        1.. if value <= most => Ok(()),
        _ => Err(ConfigError::Range { what, value, least: 1, most }),
    };
    range("cores", cores, MOST_CORES)?;
    range("queues of the driver", driver.queues().iter().sum(), 1)?;
    let config = Config {
        staging_depth: (32 * cores).max(128),
        scheduler,
        merge,
        plug: Some(Plug { requests: usize::MAX, bytes: u64::MAX, ns: LATE }),
        timeout: MOST_TIMEOUT,
        ..Config::new(Topology::new(1, 1)?)
    };
    let (mut contexts, monitor) = build(&config, driver)?;
    let layer = contexts.remove(0);
    let limit = layer.limit();
    let shared = Arc::new(Mutex::new(RequestQueue {
        layer,
        inside: Slots::new(limit),
        completed: (0..cores).map(|_| Ring::new(limit)).collect(),
        entering: Ring::new(1),
        leaving: Ring::new(1),
    }));
    let context = |core| SqContext { core, shared: shared.clone(), outside: 0, last: Time::ZERO };
    Ok(((0..cores).map(context).collect(), monitor))
}

/// What the lock guards.
struct RequestQueue<Q: HardwareQueue> {
    layer: Context<Q>,
    /// Each request's core, and its id there.
    inside: Slots<(usize, u64)>,
    /// By core: completed, and not yet taken.
    completed: Vec<Ring<BlockDone>>,
    entering: Ring<BlockReq>,
    leaving: Ring<BlockDone>,
}

impl<Q: HardwareQueue> RequestQueue<Q> {
    /// Puts the first of `reqs` into the queue. False when there is no room, or
    /// nothing to put.
    fn insert(&mut self, now: Time, core: usize, reqs: &mut Ring<BlockReq>) -> bool {
        if self.inside.room() == 0 {
            return false;
        }
        let Some(req) = reqs.pop() else { return false };
        let id = self.inside.take((core, req.id)).into();
        self.entering.put(|| BlockReq { id, ..req });
        self.layer.submit(now, &mut self.entering);
        assert!(self.entering.is_empty(), "there is room for all that may be inside");
        true
    }

    /// Gives the driver what is in the queue, as far as there are tags.
    fn dispatch(&mut self, now: Time) {
        self.layer.unplug();
        self.layer.submit(now, &mut self.entering);
    }

    /// Completes one request, whoever submitted it. False when there was none.
    fn complete(&mut self, now: Time) -> bool {
        self.layer.advance(now, &mut self.leaving);
        let Some(done) = self.leaving.pop() else { return false };
        let slot = done.id as u32;
        let (core, id) = self.inside[slot];
        self.inside.give(slot);
        self.completed[core].put(|| BlockDone { id, ..done });
        true
    }
}

/// A core's way into the old block layer.
pub struct SqContext<Q: HardwareQueue> {
    core: usize,
    shared: Arc<Mutex<RequestQueue<Q>>>,
    outside: usize,
    last: Time,
}

impl<Q: HardwareQueue> SqContext<Q> {
    /// The lock. What a panic left behind is checked by its own assertions.
    fn lock(&self) -> MutexGuard<'_, RequestQueue<Q>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request of this core that completed; what others' requests it finds on
    /// the way, it completes for them.
    fn take(&mut self, now: Time) -> Option<BlockDone> {
        loop {
            let mut queue = self.lock();
            if let Some(done) = queue.completed[self.core].pop() {
                return Some(done);
            }
            if !queue.complete(now) {
                return None;
            }
            let mine = queue.completed[self.core].pop();
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
        while self.lock().insert(now, self.core, reqs) {
            self.outside += 1;
            self.lock().dispatch(now);
        }
    }

    fn next_event(&self) -> Option<Time> {
        let queue = self.lock();
        if !queue.completed[self.core].is_empty() {
            return Some(self.last);
        }
        queue.layer.next_event().filter(|at| at.0 < LATE).map(|at| at.max(self.last))
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
            self.lock().dispatch(to);
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
        let (op, buffer) = (BlockOp::Read, Buffer::empty());
        BlockReq { id, op, fua: false, placement: 0, offset: block * 4096, len: 4096, buffer }
    }

    fn timed(depth: usize) -> Timed {
        Timed::new(TimedOptions { hw_queue_depth: depth, ..TimedOptions::default() }).unwrap()
    }

    fn first_come<D: Driver>(driver: D, cores: usize) -> Result<SqLayer<D::Queue>, ConfigError> {
        sq(driver, cores, SchedulerKind::None, Merge::Off)
    }

    #[test]
    fn every_request_comes_back_to_its_own_core_under_its_own_id() {
        let (mut contexts, monitor) = first_come(timed(2), 2).unwrap();
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
        let stats = &monitor.dispatch()[0];
        assert_eq!((stats.dispatched, stats.completed, stats.in_flight), (8, 8, 0));
        assert_eq!(stats.latency.summary().max, Some(40_000));
    }

    #[test]
    fn an_elevator_sorts_and_merges_while_the_device_is_busy() {
        let scheduler = SchedulerKind::Deadline(Default::default());
        let (mut contexts, monitor) = sq(timed(1), 1, scheduler, Merge::Full).unwrap();
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
        assert_eq!(monitor.staging()[0].merged, 1);
    }

    #[test]
    fn a_full_request_queue_refuses() {
        let (mut contexts, _) = first_come(timed(1), 1).unwrap();
        let mut reqs = Ring::new(256);
        (0..131).for_each(|i| reqs.push(read(i, i)).unwrap());
        contexts[0].submit(Time::ZERO, &mut reqs);
        assert_eq!(reqs.len(), 2, "one has the tag and 128 wait");
    }

    #[test]
    fn threads_get_their_own_back() {
        let null = Null::new(NullOptions::default()).unwrap();
        let shape = null.shape();
        let (contexts, monitor) = first_come(null, 3).unwrap();
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
        let stats = &monitor.dispatch()[0];
        assert_eq!((stats.in_flight, stats.errors), (0, 0));
        assert!(stats.completed >= 15_000);
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
