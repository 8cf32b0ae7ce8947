//! Threads that submit, wait, time out and leave at random, over devices that
//! keep what is written and, some of them, do everything wrong: no request is
//! lost, doubled, mixed up or stuck, and what a read gives is what was written
//! last.
//!
//! Every combination of driver, staging, merging, scheduler and way of waiting
//! comes once in so many seeds; the rest of a configuration is drawn. Each core
//! has every so many-th block for itself, so neighbours are other cores' and
//! merged requests are of several. A block's bytes name its request.
//!
//! `STRESS_REQUESTS` says how many requests in all, `STRESS_SEED` where to
//! begin. A seed decides the configurations and what each thread does, not how
//! the threads interleave.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::common::{BLOCK, Chaos, Faults, Kept, fill, kept, topology};
use blkmq::scheduler::{DeadlineOptions, FairOptions};
use blkmq::{
    Config, Context, Driver, HardwareQueue, Layer, Merge, Plug, SchedulerKind, Spread, build,
};
use device::hosted::HostedOptions;
use device::realtime::{Clock, thread_cpu};
use hosting::hosted::HostedDriver;
use hosting::inline::Inline;
use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Status, Time};
use waiting::{Source, Strategy, Waiter};
use workload::Rng;

/// Requests of one thread in one round.
const SHARE: u64 = 60;
/// Blocks of each core, and requests that it has out at most.
const BLOCKS: u64 = 24;
/// A thread that gets nothing done while the watchdog looks so often is stuck:
/// two minutes in which the watchdog itself runs.
const LOOKS: u32 = 2400;
/// Between two of its looks.
const LOOK: Duration = Duration::from_millis(50);

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

/// How a thread waits: `None` for [`Context::wait`] without end.
type Waits = Option<Strategy>;

#[derive(Clone, Copy, Debug)]
enum Below {
    Chaos,
    Inline,
    Hosted,
}

/// What a seed stands for.
#[derive(Clone, Debug)]
struct Case {
    below: Below,
    waits: Waits,
    config: Config,
    device: Chaos,
    leaves: bool,
}

/// All combinations come in so many seeds.
const CASES: u64 = 3 * 3 * 3 * 3 * 5;

impl Case {
    fn new(seed: u64) -> Case {
        let mut rng = Rng::new(seed, 7);
        let mut number = seed % CASES;
        let mut one_of = |n: u64| {
            let digit = number % n;
            number /= n;
            digit as usize
        };
        let waits = [None, Some(0), Some(1), Some(2), Some(3)][one_of(5)].map(|i| Strategy::ALL[i]);
        let below = [Below::Chaos, Below::Inline, Below::Hosted][one_of(3)];
        let staging = [Spread::One, Spread::PerSocket, Spread::PerCore][one_of(3)];
        let merge = [Merge::Off, Merge::Simple, Merge::Full][one_of(3)];
        let expire = DeadlineOptions { read_expire: 20_000, ..DeadlineOptions::default() };
        let scheduler = [
            SchedulerKind::None,
            SchedulerKind::Deadline(expire),
            SchedulerKind::Fair(FairOptions { weights: Vec::new() }),
        ][one_of(3)]
        .clone();
        let faulty = matches!(below, Below::Chaos) && rng.below(2) == 0;
        let config = config(&mut rng, faulty);
        let config = Config { staging, merge, scheduler, ..config };
        Case { below, waits, config, device: device(&mut rng, faulty), leaves: rng.below(2) == 0 }
    }
}

fn config(rng: &mut Rng, faulty: bool) -> Config {
    let cores = 1 + rng.below(8) as usize;
    Config {
        staging_depth: 1 + rng.below(24) as usize,
        merge_idle: rng.below(2) == 0,
        plug: (rng.below(4) == 0).then(|| Plug { requests: 4, ns: 50_000, ..Plug::default() }),
        // Where nothing is lost, nothing is given up however slow the machine.
        timeout: if faulty { 2_000_000 } else { 600_000_000_000 },
        ..Config::new(topology(cores, 1 + rng.below(cores as u64) as usize))
    }
}

fn device(rng: &mut Rng, faulty: bool) -> Chaos {
    let bad = |rng: &mut Rng, every| if faulty && rng.below(4) != 0 { every } else { 0 };
    let faults = Faults {
        lose: bad(rng, 30),
        double: bad(rng, 20),
        invent: bad(rng, 20),
        late: 2,
        gone_after: if faulty && rng.below(8) == 0 { SHARE } else { 0 },
        no_reset: faulty && rng.below(4) == 0,
    };
    Chaos {
        queues: [1 + rng.below(8) as usize, rng.below(2) as usize, 0],
        depth: 1 + rng.below(16) as usize,
        shares_tags: rng.below(2) == 0,
        faults,
        longest: rng.below(3000),
        seed: rng.bits(),
    }
}

/// A request that is out.
struct Asked {
    id: u64,
    op: BlockOp,
    /// What a write leaves in its block.
    stamp: u64,
}

/// One of a core's blocks.
struct Block {
    number: u64,
    out: Option<Asked>,
    /// What may be in it: of a write that was given up, none can tell whether
    /// it was carried out; but it is not carried out later.
    stamps: Vec<u64>,
    buffer: Option<Buffer>,
}

impl Block {
    /// The bytes that a stamp leaves here; none at all for 0.
    fn words(&self, stamp: u64) -> Kept {
        if stamp == 0 { [0; 4] } else { [stamp, !stamp, self.number, stamp ^ self.number] }
    }

    fn ask(&mut self, id: u64, rng: &mut Rng, stamp: u64) -> BlockReq {
        let op = match rng.below(8) {
            0..4 => BlockOp::Write,
            4..7 => BlockOp::Read,
            _ => BlockOp::Trim,
        };
        let mut buffer = Buffer::empty();
        let mut left = 0;
        if op != BlockOp::Trim {
            buffer = self.buffer.take().expect("it is not out");
            let write = op == BlockOp::Write;
            left = if write { stamp } else { 0 };
            let words = if write { self.words(stamp) } else { [u64::MAX; 4] };
            fill(buffer.bytes_mut(), words);
        }
        self.out = Some(Asked { id, op, stamp: left });
        BlockReq::new(id, op, self.number * BLOCK, BLOCK, buffer)
    }

    /// Its request came back.
    fn answer(&mut self, done: BlockDone) {
        let asked = self.out.take().unwrap_or_else(|| panic!("{} came twice", done.id));
        assert_eq!((done.id, done.op), (asked.id, asked.op), "another request came back");
        let good = done.status.is_ok();
        let fine = good || [Status::ABORTED, Status::ABORTED_BY_HOST].contains(&done.status);
        assert!(fine, "{}", done.status);
        let bytes = done.buffer.bytes();
        match asked.op {
            BlockOp::Read if good => {
                let read = kept(bytes);
                let may_be = |&&stamp: &&u64| self.words(stamp) == read;
                let stamp = self.stamps.iter().find(may_be).copied();
                let stamp = stamp.unwrap_or_else(|| {
                    panic!("block {}: {read:x?}, not one of {:x?}", self.number, self.stamps)
                });
                self.stamps = vec![stamp];
            }
            BlockOp::Read => {}
            _ if good => self.stamps = vec![asked.stamp],
            _ => self.stamps.push(asked.stamp),
        }
        if asked.op == BlockOp::Write && good {
            assert_eq!(kept(bytes), self.words(asked.stamp), "its own buffer comes back");
        }
        if asked.op != BlockOp::Trim {
            // One that was lost comes back without.
            let lost = done.buffer.is_empty() && !good;
            let fresh = || Buffer::zeroed(BLOCK as usize).unwrap();
            self.buffer = Some(if lost { fresh() } else { done.buffer });
        }
    }
}

/// What a waiter looks at.
struct Looking<'a, Q: HardwareQueue> {
    context: &'a mut Context<Q>,
    clock: Clock,
    done: &'a mut Ring<BlockDone>,
}

impl<Q: HardwareQueue> Source for Looking<'_, Q> {
    fn now(&mut self) -> Time {
        self.clock.now()
    }

    fn look(&mut self) -> bool {
        self.context.advance(self.clock.now(), self.done);
        if self.done.is_empty() {
            // There are more threads than processors.
            std::thread::yield_now();
        }
        !self.done.is_empty()
    }

    fn sleep(&mut self, until: Option<Time>) {
        let left = until.map(|at| Duration::from_nanos(at.since(self.clock.now())));
        self.context.wait(left);
    }

    fn nap(&mut self, until: Time) {
        std::thread::sleep(Duration::from_nanos(until.since(self.clock.now())));
    }

    fn cpu(&mut self) -> u64 {
        thread_cpu()
    }
}

/// One thread's work.
struct Worker<Q: HardwareQueue> {
    context: Context<Q>,
    rng: Rng,
    clock: Clock,
    waiter: Option<Waiter>,
    blocks: Vec<Block>,
    out: usize,
    made: u64,
    done: Ring<BlockDone>,
    progress: Arc<AtomicU64>,
    leaves: bool,
}

impl<Q: HardwareQueue> Worker<Q> {
    fn new(context: Context<Q>, seed: u64, case: &Case, clock: Clock) -> Worker<Q> {
        let (core, cores) = (context.core() as u64, case.config.topology.cores() as u64);
        let mut rng = Rng::new(seed, 100 + core);
        let buffers = Buffer::carve(BLOCKS as usize, BLOCK as usize).expect("memory");
        let block = |(i, buffer): (usize, Buffer)| Block {
            number: core + cores * i as u64,
            out: None,
            stamps: vec![0],
            buffer: Some(buffer),
        };
        let room = 1 + rng.below(8) as usize;
        let leaves = case.leaves && rng.below(3) == 0;
        Worker {
            context,
            rng,
            clock,
            waiter: case.waits.map(|strategy| Waiter::new(strategy, BLOCKS as usize)),
            blocks: buffers.into_iter().enumerate().map(block).collect(),
            out: 0,
            made: 0,
            done: Ring::new(room),
            progress: Arc::default(),
            leaves,
        }
    }

    /// Offers a few requests for blocks that are not out, neighbours often.
    fn submit(&mut self) {
        let (first, wanted) = (self.rng.below(BLOCKS), 1 + self.rng.below(8));
        let mut reqs = Ring::new(wanted as usize);
        let now = self.clock.now();
        for place in (first..first + wanted).map(|i| i % BLOCKS) {
            let block = &mut self.blocks[place as usize];
            if block.out.is_some() {
                continue;
            }
            self.made += 1;
            let (id, stamp) = (self.made << 8 | place, (block.number + 1) << 40 | self.made);
            reqs.put(|| block.ask(id, &mut self.rng, stamp));
        }
        let ids: Vec<(u64, BlockOp)> =
            (0..reqs.len()).filter_map(|i| reqs.get(i)).map(|r| (r.id, r.op)).collect();
        self.context.submit(now, &mut reqs);
        let taken = ids.len() - reqs.len();
        for &(id, op) in &ids[..taken] {
            if let Some(waiter) = &mut self.waiter {
                waiter.submitted(id & 0xff, op, BLOCK, now);
            }
        }
        for (req, &(id, _)) in reqs.drain().zip(&ids[taken..]) {
            assert_eq!(req.id, id, "what was refused is as it was");
            let block = &mut self.blocks[(id & 0xff) as usize];
            block.out = None;
            if req.op != BlockOp::Trim {
                block.buffer = Some(req.buffer);
            }
            self.made -= 1;
        }
        self.out += taken;
    }

    /// Waits if something is out, and takes what is there.
    fn take(&mut self) {
        // Somebody who plans ahead asks; the answer is a hint only.
        let _ = self.context.next_event();
        if self.out == 0 {
            self.context.advance(self.clock.now(), &mut self.done);
        } else if let Some(waiter) = &mut self.waiter {
            let (context, clock, done) = (&mut self.context, self.clock, &mut self.done);
            waiter.wait(&mut Looking { context, clock, done }, None);
        } else {
            self.context.wait(None);
            self.context.advance(self.clock.now(), &mut self.done);
            if self.done.is_empty() {
                std::thread::yield_now();
            }
        }
        let now = self.clock.now();
        while let Some(one) = self.done.pop() {
            if let Some(waiter) = &mut self.waiter {
                waiter.completed(one.id & 0xff, one.at, now);
            }
            self.blocks[(one.id & 0xff) as usize].answer(one);
            self.out -= 1;
            self.progress.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Gives how many requests it made, and its context unless it leaves.
    fn run(mut self) -> (u64, Option<Context<Q>>) {
        let end = if self.leaves { self.rng.below(SHARE) } else { SHARE };
        while self.made < end {
            self.submit();
            if self.rng.below(4) != 0 || self.out == BLOCKS as usize {
                self.take();
            }
        }
        if self.leaves {
            return (self.made, None);
        }
        self.context.unplug();
        while self.out > 0 {
            self.take();
        }
        assert_eq!(self.context.outside(), 0);
        (self.made, Some(self.context))
    }
}

/// A thread that is watched.
struct Watched<Q: HardwareQueue> {
    thread: JoinHandle<(u64, Option<Context<Q>>)>,
    progress: Arc<AtomicU64>,
    /// What was done when it was looked at last, and how often that was it.
    seen: u64,
    looks: u32,
}

impl<Q: HardwareQueue + Send + 'static> Watched<Q> {
    fn start(worker: Worker<Q>) -> Watched<Q> {
        let progress = worker.progress.clone();
        let thread = std::thread::spawn(move || worker.run());
        Watched { thread, progress, seen: 0, looks: 0 }
    }

    /// Looks at it; gives whether it is still at work.
    fn look(&mut self) -> bool {
        let now = self.progress.load(Ordering::Relaxed);
        let idle = now == std::mem::replace(&mut self.seen, now);
        self.looks = if idle { self.looks + 1 } else { 0 };
        !self.thread.is_finished()
    }
}

/// Runs a thread for each context, and watches them. Gives how many requests
/// were made. Contexts of those that are done stay until all are, and nobody
/// looks at them.
fn run<Q>(seed: u64, case: &Case, (contexts, monitor): Layer<Q>, clock: Clock) -> u64
where
    Q: HardwareQueue + Send + 'static,
{
    let workers = contexts.into_iter().map(|context| Worker::new(context, seed, case, clock));
    let mut threads: Vec<Watched<Q>> = workers.map(Watched::start).collect();
    let what = || format!("STRESS_SEED={seed}: {case:?}");
    loop {
        let at_work = threads.iter_mut().map(Watched::look).filter(|&busy| busy).count();
        if at_work == 0 {
            break;
        }
        let busy = threads.iter().filter(|one| !one.thread.is_finished());
        let looks = busy.map(|one| one.looks).max().unwrap_or(0);
        assert!(looks < LOOKS, "a core is stuck: {}", what());
        std::thread::sleep(if looks > 50 { LOOK } else { Duration::from_micros(200) });
    }
    let joined: Vec<_> = threads
        .into_iter()
        .map(|one| one.thread.join().unwrap_or_else(|_| panic!("{}", what())))
        .collect();
    let made = joined.iter().map(|(made, _)| made).sum();
    let dispatch = monitor.dispatch();
    let done: u64 = dispatch.iter().map(|q| q.completed).sum();
    assert!(done <= made, "{}: more completions than requests", what());
    if !case.leaves {
        assert!(dispatch.iter().all(|q| q.in_flight == 0), "{}", what());
        assert!(monitor.staging().iter().all(|q| q.queued == 0), "{}", what());
    }
    made
}

fn round(seed: u64) -> u64 {
    let case = Case::new(seed);
    let (device, depth) = (case.device.clone(), case.device.depth);
    let shape = device.shape();
    match case.below {
        Below::Chaos => run(seed, &case, build(&case.config, device).unwrap(), Clock::start()),
        Below::Inline => {
            let driver = Inline::new(device.open().remove(0), shape, depth);
            run(seed, &case, build(&case.config, driver).unwrap(), Clock::start())
        }
        Below::Hosted => {
            let queues = device.queues[0];
            let options = HostedOptions { queues, depth, linger: 5_000, ..Default::default() };
            let port = device.open().remove(0);
            let (driver, hosted) = HostedDriver::start(port, shape, options).unwrap();
            let layer = build(&case.config, driver).unwrap();
            let made = run(seed, &case, layer, hosted.clock());
            drop(hosted.stop());
            made
        }
    }
}

#[test]
fn nothing_is_lost_doubled_mixed_up_or_stuck() {
    let wanted = number("STRESS_REQUESTS", 0);
    let first = number("STRESS_SEED", 1);
    let (mut made, mut seed) = (0, first);
    while made < wanted || seed < first + CASES {
        made += round(seed);
        seed += 1;
    }
    println!("{made} requests, seeds {first} to {}", seed - 1);
}
