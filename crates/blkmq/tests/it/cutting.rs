//! Requests that are longer than the device takes at once.

use std::time::Duration;

use crate::common::{BLOCK, Chaos, ChaosQueue, Faults, fill, kept, topology};
use crate::layer::{config, device};
use blkmq::driver::null::{Null, NullOptions};
use blkmq::{Abort, Config, Context, Driver, HardwareQueue, build};
use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Shape, Status, Time};
use proptest::prelude::*;
use workload::Rng;

/// The longest request that the device takes, in blocks.
const LONGEST: u64 = 3;
/// The longest that is asked for.
const ASKED: u64 = 40;

/// The device, which takes no long requests.
struct Short(Chaos);

/// Its queue, which fails the test when it is given one.
struct ShortQueue(ChaosQueue);

impl Driver for Short {
    type Queue = ShortQueue;

    fn shape(&self) -> Shape {
        Shape { max_bytes: LONGEST * BLOCK + 512, ..self.0.shape() }
    }

    fn queues(&self) -> [usize; 3] {
        self.0.queues()
    }

    fn shares_tags(&self) -> bool {
        self.0.shares_tags()
    }

    fn open(self) -> Vec<ShortQueue> {
        self.0.open().into_iter().map(ShortQueue).collect()
    }
}

impl Port for ShortQueue {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        for req in (0..cmds.len()).filter_map(|i| cmds.get(i)) {
            assert!(req.len <= LONGEST * BLOCK, "{} bytes", req.len);
            assert_eq!(req.buffer.len() as u64, req.len);
        }
        self.0.submit(now, cmds);
    }

    fn next_event(&self) -> Option<Time> {
        self.0.next_event()
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        self.0.advance(to, done);
    }
}

impl HardwareQueue for ShortQueue {
    fn depth(&self) -> usize {
        self.0.depth()
    }

    fn is_gone(&self) -> bool {
        self.0.is_gone()
    }

    fn abort(&mut self, id: u64) -> Abort {
        self.0.abort(id)
    }

    fn reset(&mut self) -> bool {
        self.0.reset()
    }

    fn wait(&mut self, timeout: Option<Duration>) -> bool {
        self.0.wait(timeout)
    }
}

/// What a block has that request `id` wrote at block `at`.
fn pattern(id: u64, at: u64) -> [u64; 4] {
    [id, at, id ^ at, at + 1]
}

/// Somebody who writes a range of a place of its own, reads it again, and does
/// that over and over.
struct Place {
    core: usize,
    first: u64,
    offset: u64,
    blocks: u64,
    written: Option<u64>,
    rounds: u64,
    is_out: bool,
}

impl Place {
    /// The next request, if none is out.
    fn next(&mut self, id: u64, rng: &mut Rng) -> Option<BlockReq> {
        if self.is_out || self.rounds == 0 {
            return None;
        }
        self.is_out = true;
        if self.written.is_none() {
            self.blocks = 1 + rng.below(ASKED);
            self.offset = self.first + rng.below(ASKED + 1 - self.blocks);
        }
        let len = self.blocks * BLOCK;
        let mut buffer = Buffer::zeroed(len as usize).unwrap();
        let op = if self.written.is_some() { BlockOp::Read } else { BlockOp::Write };
        if op == BlockOp::Write {
            for (i, block) in buffer.bytes_mut().chunks_mut(BLOCK as usize).enumerate() {
                fill(block, pattern(id, self.offset + i as u64));
            }
        }
        Some(BlockReq::new(id, op, self.offset * BLOCK, len, buffer))
    }

    /// What came back. `faulty`: it may have failed.
    fn take(&mut self, done: BlockDone, faulty: bool) {
        assert!(std::mem::take(&mut self.is_out), "once");
        if !done.status.is_ok() {
            assert!(faulty, "{:?}", done.status);
            (self.written, self.rounds) = (None, self.rounds - 1);
            return;
        }
        assert_eq!(done.buffer.len() as u64, self.blocks * BLOCK, "its whole buffer");
        let wrote = self.written.unwrap_or(done.id);
        for (i, block) in done.buffer.bytes().chunks(BLOCK as usize).enumerate() {
            assert_eq!(kept(block), pattern(wrote, self.offset + i as u64));
        }
        self.written = if self.written.is_some() { None } else { Some(done.id) };
        self.rounds -= u64::from(self.written.is_none());
    }
}

/// All places of all cores until their ends.
fn run<Q: HardwareQueue>(mut contexts: Vec<Context<Q>>, seed: u64, faulty: bool) {
    let (cores, mut rng, mut now) = (contexts.len(), Rng::new(seed, 5), Time::ZERO);
    let place = |n: u64| Place {
        core: n as usize % cores,
        first: n * ASKED,
        offset: 0,
        blocks: 0,
        written: None,
        rounds: 4,
        is_out: false,
    };
    let mut places: Vec<Place> = (0..20).map(place).collect();
    let (mut reqs, mut done, mut steps) = (Ring::new(1), Ring::new(3), 0);
    // The ids of different cores are alike: what is a core's is not another's.
    while places.iter().any(|place| place.rounds > 0) {
        for (number, place) in places.iter_mut().enumerate() {
            let context = &mut contexts[place.core];
            if rng.below(2) == 0
                && let Some(req) = place.next(number as u64 / cores as u64, &mut rng)
            {
                reqs.put(|| req);
                context.submit(now, &mut reqs);
                if let Some(req) = reqs.pop() {
                    assert_eq!(req.len, place.blocks * BLOCK, "what was refused is as it was");
                    place.is_out = false;
                }
            }
        }
        let next = contexts.iter().filter_map(Port::next_event).min();
        now = next.map_or(now, |at| at.max(now));
        for (core, context) in contexts.iter_mut().enumerate() {
            context.advance(now, &mut done);
            for one in done.drain() {
                places[one.id as usize * cores + core].take(one, faulty);
            }
        }
        steps += 1;
        assert!(steps < 1_000_000, "it is stuck");
    }
    assert!(contexts.iter().all(|context| context.outside() == 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn each_completes_once_with_all_of_its_data(
        config in config(), device in device(Faults::default()),
    ) {
        let seed = device.seed;
        let (contexts, monitor) = build(&config, Short(device)).unwrap();
        run(contexts, seed, false);
        let done = monitor.dispatch();
        prop_assert!(done.iter().all(|q| q.in_flight == 0 && q.errors == 0 && q.strays == 0));
    }

    #[test]
    fn each_completes_once_over_a_bad_device(
        config in config(),
        device in device(Faults { lose: 20, double: 20, late: 2, ..Faults::default() }),
    ) {
        let seed = device.seed;
        run(build(&config, Short(device)).unwrap().0, seed, true);
    }
}

fn read(id: u64, offset: u64, len: u64) -> BlockReq {
    BlockReq::new(id, BlockOp::Read, offset, len, Buffer::empty())
}

#[test]
fn what_the_device_would_refuse_for_something_else_is_not_cut() {
    let null = Null::new(NullOptions::default()).unwrap();
    let shape = null.shape();
    let (mut contexts, monitor) = build(&Config::new(topology(1, 1)), null).unwrap();
    let (mut reqs, mut done) = (Ring::new(8), Ring::new(8));
    let long = 4 * shape.max_bytes;
    // Past the end, not whole blocks, a trim, and one that is to be cut.
    reqs.put(|| read(1, shape.bytes - BLOCK, long));
    reqs.put(|| read(2, 0, long + 1));
    reqs.put(|| BlockReq { op: BlockOp::Trim, ..read(3, 0, long) });
    reqs.put(|| read(4, 0, long + BLOCK));
    contexts[0].submit(Time(1), &mut reqs);
    contexts[0].advance(Time(2), &mut done);
    let mut seen: Vec<_> = done.drain().map(|one| (one.id, one.status)).collect();
    seen.sort_unstable_by_key(|one| one.0);
    let (bad, good) = (Status::INVALID_FIELD, Status::SUCCESS);
    assert_eq!(seen, [(1, Status::LBA_OUT_OF_RANGE), (2, bad), (3, good), (4, good)]);
    let dispatch = &monitor.dispatch()[0];
    assert_eq!((dispatch.completed, dispatch.latency.count()), (3 + 5, 4));
}

#[test]
fn one_as_long_as_the_device_goes_through_a_queue_of_one() {
    let options = NullOptions { hw_queue_depth: 1, gb: 2, ..NullOptions::default() };
    let null = Null::new(options).unwrap();
    let shape = null.shape();
    let config = Config { staging_depth: 1, ..Config::new(topology(1, 1)) };
    let (mut contexts, monitor) = build(&config, null).unwrap();
    let (mut reqs, mut done) = (Ring::new(1), Ring::new(1));
    reqs.put(|| read(7, 0, shape.bytes));
    contexts[0].submit(Time(1), &mut reqs);
    while let Some(at) = contexts[0].next_event() {
        contexts[0].advance(at, &mut done);
    }
    assert_eq!(done.pop().map(|one| (one.id, one.status)), Some((7, Status::SUCCESS)));
    assert_eq!(monitor.dispatch()[0].completed, 2 << 10);
}
