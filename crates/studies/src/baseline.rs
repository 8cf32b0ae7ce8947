//! What the block layer is compared with: the old one, and none. For studies
//! and benchmarks only.
//!
//! [`sq`] is the block layer that the thesis starts from (section 2): one
//! request queue with one lock for all cores. As there, "whenever a block IO
//! is inserted or removed from the request queue, this lock must be acquired",
//! so each request takes it three times: to enter the queue, to go from there
//! to the driver with a tag, to be completed. Nothing is collected to take it
//! less often, because the old layer's lock is what is to be seen. Its lock,
//! queues, tags and accounts are those of our own layer, so that the two
//! differ in nothing else.
//!
//! [`raw`] is no block layer: each core has a queue of the driver.
//!
//! Guarantees: every request that was taken completes once, if the driver
//! completes it. There are no timeouts: what a driver loses is lost, and what
//! is with a device that goes away never completes. Fails where the driver
//! does not fit, or there is no memory.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use port::{BlockDone, BlockReq, Port, Ring, Time};

use crate::account::{LaneAccount, Monitor, StagingAccount};
use crate::config::Merge;
use crate::dispatch::Dispatch;
use crate::driver::{Driver, HardwareQueue};
use crate::entrance::Below;
use crate::error::ConfigError;
use crate::queue_tags::Tags;
use crate::scheduler::SchedulerKind;
use crate::staging::{Staging, StagingOptions};
use crate::topology::MOST_CORES;

/// No request is given up.
const NO_TIMEOUT: u64 = 1 << 62;

/// How the old block layer is set up.
#[derive(Clone, Debug, PartialEq)]
pub struct SqOptions {
    /// Cores that submit.
    pub cores: usize,
    /// Requests that the request queue holds at most, besides those with a
    /// tag.
    pub depth: usize,
    /// Its elevator; none is first come, first served.
    pub scheduler: SchedulerKind,
    /// Which requests are merged, while the device is busy.
    pub merge: Merge,
}

impl SqOptions {
    /// First come, first served, no merging, room for 128 requests as Linux's
    /// `nr_requests`, or for 32 of each core.
    pub fn new(cores: usize) -> SqOptions {
        let (scheduler, merge) = (SchedulerKind::None, Merge::Off);
        SqOptions { cores, depth: (32 * cores).max(128), scheduler, merge }
    }
}

/// No block layer: the driver's queues as they are, one for each core. Fails
/// when it has another number of them.
pub fn raw<D: Driver>(driver: D, cores: usize) -> Result<Vec<D::Queue>, ConfigError> {
    let queues = driver.queues().iter().sum();
    ConfigError::range("queues of the driver", queues, cores, cores)?;
    Ok(driver.open())
}

/// An [`SqContext`] for each core, and what reads their accounts.
pub type SqLayer<Q> = (Vec<SqContext<Q>>, Monitor);

/// The old block layer over the driver's only queue: a context for each core,
/// and what reads their accounts. Fails when the driver has more queues, or a
/// number is out of range.
pub fn sq<D: Driver>(options: &SqOptions, driver: D) -> Result<SqLayer<D::Queue>, ConfigError> {
    let SqOptions { cores, depth, ref scheduler, merge } = *options;
    ConfigError::range("cores", cores, 1, MOST_CORES)?;
    let shape = driver.shape();
    let queue = raw(driver, 1)?.remove(0);
    let (scheduler, tags) = (scheduler.clone(), queue.depth());
    ConfigError::range("depth of the driver's queue", tags, 1, 65_535)?;
    let staging = StagingOptions {
        depth,
        scheduler,
        merge,
        merge_idle: false,
        plug: None,
        cores,
        ways: Vec::new(),
        shared: false,
        shape,
    };
    let limit = depth + tags;
    let (account, staged) = (Arc::new(LaneAccount::default()), Arc::new(StagingAccount::default()));
    let monitor = Monitor { staging: vec![staged.clone()], dispatch: vec![vec![account.clone()]] };
    let shared = Arc::new(Mutex::new(RequestQueue {
        staging: Staging::new(&staging)?,
        dispatch: Dispatch::new(
            (0, 0),
            Below::Own(queue),
            Tags::own(tags as u32)?,
            cores,
            (u64::MAX, NO_TIMEOUT),
            Arc::default(),
        )?,
        completed: (0..cores).map(|_| Ring::new(limit)).collect(),
        one: Ring::new(1),
        account,
        staged,
    }));
    let context =
        |core| SqContext { core, shared: shared.clone(), outside: 0, limit, last: Time::ZERO };
    Ok(((0..cores as u32).map(context).collect(), monitor))
}

/// What the lock guards.
struct RequestQueue<Q> {
    staging: Staging,
    dispatch: Dispatch<Q>,
    /// By core: completed, and not yet taken.
    completed: Vec<Ring<BlockDone>>,
    one: Ring<BlockDone>,
    account: Arc<LaneAccount>,
    staged: Arc<StagingAccount>,
}

impl<Q: HardwareQueue> RequestQueue<Q> {
    /// Gives the driver the next request, if there is a tag for it. False when
    /// there was none, or nothing to give.
    fn dispatch(&mut self, now: Time) -> bool {
        if self.staging.is_empty() || !self.dispatch.has_room() {
            return false;
        }
        let Some(tag) = self.dispatch.take_tag() else { return false };
        let Some(outgoing) = self.staging.next(now, 0) else {
            self.dispatch.return_tag(tag);
            return false;
        };
        self.dispatch.enter(now, tag, outgoing);
        self.dispatch.send(now);
        self.account.dispatched.add(1);
        self.staged.publish(&self.staging.counters(), self.staging.len());
        true
    }

    /// Completes one request, whoever submitted it. False when there was none.
    fn complete(&mut self, now: Time) -> bool {
        let RequestQueue { staging, dispatch, completed, one, account, .. } = self;
        let mut past = None;
        dispatch.advance_in_place(now, one, |tag, slot, _| past = Some(slot.past(tag)));
        account.strays.add(dispatch.take_strays());
        let (Some(past), Some(done)) = (past, one.pop()) else { return false };
        account.completed.add(1);
        account.errors.add(u64::from(!done.status.is_ok()));
        let mut give = |from: u32, submitted: Time, done: BlockDone| {
            account.latency.record(now.since(submitted));
            completed[from as usize].put(|| done);
        };
        if past.parts.is_none() {
            give(past.from, past.submitted, done);
        } else {
            staging.split(past.parts, done.status, done.at, done.buffer, &mut give);
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
        let busy = !queue.dispatch.has_room();
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
        let stuck = queue.staging.is_empty() || !queue.dispatch.has_room();
        if !queue.completed[self.core as usize].is_empty() || !stuck {
            return Some(self.last);
        }
        let event = queue.dispatch.next_event().filter(|at| at.0 < NO_TIMEOUT);
        event.map(|at| at.max(self.last))
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
    use crate::driver::null::{Null, NullOptions};
    use crate::driver::timed::{Timed, TimedOptions};
    use port::{BlockOp, Buffer};
    use workload::{Tight, TightOptions};

    fn read(id: u64, block: u64) -> BlockReq {
        let (op, buffer) = (BlockOp::Read, Buffer::empty());
        BlockReq { id, op, fua: false, placement: 0, offset: block * 4096, len: 4096, buffer }
    }

    fn timed(depth: usize) -> Timed {
        Timed::new(TimedOptions { hw_queue_depth: depth, ..TimedOptions::default() }).unwrap()
    }

    #[test]
    fn every_request_comes_back_to_its_own_core_under_its_own_id() {
        let (mut contexts, monitor) = sq(&SqOptions::new(2), timed(2)).unwrap();
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
        let options = SqOptions { scheduler, merge: Merge::Full, ..SqOptions::new(1) };
        let (mut contexts, monitor) = sq(&options, timed(1)).unwrap();
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
        let options = SqOptions { depth: 2, ..SqOptions::new(1) };
        let (mut contexts, _) = sq(&options, timed(1)).unwrap();
        let mut reqs = Ring::new(8);
        (0..5).for_each(|i| reqs.push(read(i, i)).unwrap());
        contexts[0].submit(Time::ZERO, &mut reqs);
        assert_eq!(reqs.len(), 2, "one has the tag and two wait");
    }

    #[test]
    fn threads_get_their_own_back() {
        let null = Null::new(NullOptions::default()).unwrap();
        let shape = null.shape();
        let (contexts, monitor) = sq(&SqOptions::new(3), null).unwrap();
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
        assert!(sq(&SqOptions::new(2), null(2)).is_err());
        assert!(sq(&SqOptions::new(0), null(1)).is_err());
        assert!(raw(null(2), 3).is_err());
        assert_eq!(raw(null(2), 2).unwrap().len(), 2);
    }
}
