//! The whole layer in virtual time, in every configuration, over a device that
//! does everything: each request completes once, at its own core, under its
//! own number, with its own buffer.

use std::collections::HashMap;

use crate::common::{Chaos, Faults, topology};
use blkmq::scheduler::{DeadlineOptions, FairOptions};
use blkmq::{Config, Context, Fault, HardwareQueue, Merge, Plug, SchedulerKind, Spread, build};
use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Status, Time};
use proptest::prelude::*;
use workload::Rng;

/// Cores that ask, take back and check, driven by one clock.
struct World<Q: HardwareQueue> {
    contexts: Vec<Context<Q>>,
    now: Time,
    rng: Rng,
    /// By core: what is out, with the address it asked for.
    out: Vec<HashMap<u64, u64>>,
    next_id: u64,
    completed: u64,
    aborted: u64,
}

impl<Q: HardwareQueue> World<Q> {
    fn new(contexts: Vec<Context<Q>>, seed: u64) -> World<Q> {
        let out = contexts.iter().map(|_| HashMap::new()).collect();
        let rng = Rng::new(seed, 99);
        World { contexts, now: Time::ZERO, rng, out, next_id: 0, completed: 0, aborted: 0 }
    }

    /// Submits a few requests at a core; gives how many were taken.
    fn submit(&mut self, core: usize, most: u64) -> usize {
        let n = 1 + self.rng.below(most) as usize;
        let mut reqs = Ring::new(n);
        for _ in 0..n {
            let op = match self.rng.below(10) {
                0..5 => BlockOp::Read,
                5..9 => BlockOp::Write,
                _ => BlockOp::Trim,
            };
            // Neighbours are frequent, so that there is something to merge.
            let block = self.rng.below(64);
            let data = matches!(op, BlockOp::Read | BlockOp::Write);
            let mut buffer = Buffer::zeroed(if data { 4096 } else { 0 }).unwrap();
            if op == BlockOp::Write {
                buffer.bytes_mut()[..8].copy_from_slice(&self.next_id.to_le_bytes());
            }
            reqs.push(BlockReq::new(self.next_id, op, block * 4096, 4096, buffer)).unwrap();
            self.next_id += 1;
        }
        let asked: Vec<(u64, u64)> =
            (0..n).filter_map(|i| reqs.get(i)).map(|r| (r.id, r.offset)).collect();
        self.contexts[core].submit(self.now, &mut reqs);
        let taken = n - reqs.len();
        self.out[core].extend(asked[..taken].iter().copied());
        for (req, &(id, _)) in reqs.drain().zip(&asked[taken..]) {
            assert_eq!(req.id, id, "what was refused is as it was");
        }
        taken
    }

    fn take(&mut self, core: usize) {
        let mut done = Ring::new(1 + self.rng.below(8) as usize);
        self.contexts[core].advance(self.now, &mut done);
        for BlockDone { id, op, status, buffer, .. } in done.drain() {
            assert!(self.out[core].remove(&id).is_some(), "{id} was not out at core {core}");
            self.completed += 1;
            if status == Status::ABORTED_BY_HOST || status == Status::ABORTED {
                self.aborted += 1;
                continue;
            }
            assert_eq!(status, Status::SUCCESS);
            let data = matches!(op, BlockOp::Read | BlockOp::Write);
            assert_eq!(buffer.len(), if data { 4096 } else { 0 }, "a buffer comes back");
            if op == BlockOp::Write {
                assert_eq!(buffer.bytes()[..8], id.to_le_bytes(), "its own buffer");
            }
        }
    }

    /// Goes on to the next event and lets every core look. False when nothing
    /// will happen.
    fn step(&mut self) -> bool {
        let next = self.contexts.iter().filter_map(Port::next_event).min();
        let Some(at) = next else { return false };
        self.now = self.now.max(at);
        (0..self.contexts.len()).for_each(|core| self.take(core));
        true
    }

    /// Lets everything that is out come back.
    fn settle(&mut self) {
        for context in &mut self.contexts {
            context.unplug();
        }
        let mut steps = 0;
        while self.out.iter().any(|out| !out.is_empty()) {
            assert!(self.step(), "{:?} are stuck", self.out);
            steps += 1;
            assert!(steps < 1_000_000, "{:?} are stuck at {}", self.out, self.now);
        }
        assert!(self.contexts.iter().all(|context| context.outside() == 0));
    }

    fn run(&mut self, requests: u64) {
        while self.next_id < requests {
            let core = self.rng.below(self.contexts.len() as u64) as usize;
            if self.submit(core, 6) == 0 || self.rng.below(3) == 0 {
                self.step();
            }
        }
        self.settle();
    }
}

fn spread() -> impl Strategy<Value = Spread> {
    prop_oneof![Just(Spread::One), Just(Spread::PerSocket), Just(Spread::PerCore)]
}

fn scheduler() -> impl Strategy<Value = SchedulerKind> {
    let deadline = DeadlineOptions { read_expire: 2000, write_expire: 9000, ..Default::default() };
    prop_oneof![
        2 => Just(SchedulerKind::None),
        1 => Just(SchedulerKind::Deadline(deadline)),
        1 => Just(SchedulerKind::Fair(FairOptions { weights: vec![4] })),
    ]
}

fn merge() -> impl Strategy<Value = Merge> {
    prop_oneof![Just(Merge::Off), Just(Merge::Simple), Just(Merge::Full)]
}

prop_compose! {
    pub fn config()(cores in 1usize..5)(
        cores in Just(cores),
        sockets in 1..=cores,
        staging in spread(),
        staging_depth in 1usize..20,
        merge in merge(),
        merge_idle in any::<bool>(),
        scheduler in scheduler(),
        plug in prop::option::of((1usize..5, 0u64..2000)),
    ) -> Config {
        let plug = plug.map(|(requests, ns)| Plug { requests, ns, ..Plug::default() });
        Config {
            staging, staging_depth, scheduler, merge, merge_idle, plug,
            timeout: 1_000_000,
            ..Config::new(topology(cores, sockets))
        }
    }
}

prop_compose! {
    pub fn device(faults: Faults)(
        default in 1usize..4, read in 0usize..3, depth in 1usize..9,
        shares_tags in any::<bool>(), longest in 0u64..3000, seed in any::<u64>(),
    ) -> Chaos {
        Chaos { queues: [default, read, 0], depth, shares_tags, faults, longest, seed }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_request_comes_back_once(config in config(), device in device(Faults::default())) {
        let seed = device.seed;
        let (contexts, monitor) = build(&config, device).unwrap();
        let mut world = World::new(contexts, seed);
        world.run(400);
        let done = monitor.dispatch();
        let dispatched: u64 = done.iter().map(|q| q.dispatched).sum();
        let merged: u64 = monitor.staging().iter().map(|q| q.merged).sum();
        prop_assert_eq!(dispatched + merged, world.completed);
        prop_assert!(done.iter().all(|q| q.in_flight == 0 && q.errors == 0 && q.strays == 0));
        prop_assert!(monitor.staging().iter().all(|q| q.queued == 0));
        let latencies: u64 = done.iter().map(|q| q.latency.count()).sum();
        prop_assert_eq!(latencies, world.completed);
        prop_assert!(world.contexts.iter_mut().all(|c| c.faults().is_empty()));
        prop_assert_eq!(world.aborted, 0);
    }

    #[test]
    fn a_bad_driver_loses_nothing_of_ours(
        config in config(),
        device in device(Faults { lose: 20, double: 20, invent: 20, late: 2, ..Faults::default() }),
    ) {
        let seed = device.seed;
        let (contexts, monitor) = build(&config, device).unwrap();
        let mut world = World::new(contexts, seed);
        world.run(400);
        let done = monitor.dispatch();
        prop_assert!(done.iter().all(|q| q.in_flight == 0));
        let timed_out: u64 = done.iter().map(|q| q.timed_out).sum();
        // Some complete late after all; a reset takes others along.
        prop_assert!(timed_out > 0 || world.aborted == 0);
    }

    #[test]
    fn a_device_that_goes_gives_all_back(
        config in config(),
        device in device(Faults { gone_after: 100, ..Faults::default() }),
    ) {
        let seed = device.seed;
        let (contexts, monitor) = build(&config, device).unwrap();
        let mut world = World::new(contexts, seed);
        world.run(600);
        prop_assert!(monitor.dispatch().iter().all(|q| q.in_flight == 0));
        if world.aborted > 0 {
            let faults: Vec<Fault> = world.contexts.iter_mut().flat_map(|c| c.faults()).collect();
            let gone = faults.iter().any(|f| matches!(f, Fault::Gone { .. }));
            prop_assert!(gone, "{:?}", faults);
        }
    }
}
