//! How fast pblk and the drive below it are on this machine: the loops behind
//! the figures, without a front, a workload's description or a report.
//!
//! `pblk_speed CASE [KEY=VALUE ...]`; the cases:
//! - `reads`: a drive of profile `null` (it takes no time) that is written in
//!   full, then random reads of 4 KiB: in batches of 32 and 128, one by one
//!   with 32 in flight, and one at a time;
//! - `fresh`: random writes of 4 KiB in batches to a drive never written;
//! - `steady`: random overwrites in batches, `warm` times the drive first, so
//!   that collection is in its steady state;
//! - `both`: `reads`, then `steady`, on one drive;
//! - `virtual`: profile `ref`, or that of `profile=NAME`, event by event, in drive
//!   time.
//!
//! One by one, the clock is read at each request, which makes the processor
//! wait for all before it, and then once in 32 requests; and then also with
//! each request hinted eight before it is submitted, as a front does that knows
//! what comes.
//!
//! Rates are of processor time, as the kernel counts it for the thread, and in
//! brackets of the clock's: on a busy machine they differ.
//!
//! Keys: `size` logical GiB, `spare`, `rounds` of `ios` requests, of which the
//! median is printed in millions a second, `warm`, `batch` and `depth` (0 for
//! all), `fixed=N`: N requests and no clock, for counting instructions.
//!
//! `memory=taken` takes all memory before anything is measured, so that no
//! request waits for the system to find some.
//!
//! `stories=told` has the drive tell, of each request in drive time, where its time
//! went.
//!
//! `via=blkmq` puts the block layer above the drive: one core, one dispatch
//! queue, no scheduler. Latencies are then counted by the layer.
//!
//! Each turn of a batched loop reads the clock once; each request has its address from
//! a generator, is counted, and its latency goes into a histogram.

use std::process::exit;
use std::time::Instant;

use blkmq::{Config, Context, Monitor, Topology, build};
use device::Device;
use device::realtime::Clock;
use flash::{Dimensions, Geometry, Profile, RamMedium};
use hosting::inline::{Inline, InlineQueue};
use measure::Histogram;
use port::story::Wanted;
use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Story, Time};
use rustix::time::{ClockId, clock_gettime};
use targets::{Pblk, PblkConfig, own_blocks, with_reserve};

type Drive = Pblk<Device<RamMedium>>;

/// What the loops drive.
enum Top {
    Drive(Box<Drive>),
    Layer(Box<Context<InlineQueue<Drive>>>, Monitor),
}

impl Top {
    fn new(drive: Drive, layer: bool) -> Top {
        if !layer {
            return Top::Drive(Box::new(drive));
        }
        let shape = drive.shape();
        let config = Config::new(Topology::new(1, 1).expect("one core"));
        let driver = Inline::new(drive, shape, MOST);
        let (mut contexts, monitor) = build(&config, driver).expect("a good layer");
        Top::Layer(Box::new(contexts.remove(0)), monitor)
    }

    fn drive(&self) -> &Drive {
        match self {
            Top::Drive(drive) => drive,
            Top::Layer(context, _) => context.queue().expect("it is one core's").drive(),
        }
    }
}

impl Port for Top {
    type Cmd = BlockReq;
    type Done = BlockDone;

    #[inline(always)]
    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        match self {
            Top::Drive(drive) => drive.submit(now, cmds),
            Top::Layer(context, _) => context.submit(now, cmds),
        }
    }

    #[inline(always)]
    fn next_event(&self) -> Option<Time> {
        match self {
            Top::Drive(drive) => drive.next_event(),
            Top::Layer(context, _) => context.next_event(),
        }
    }

    #[inline(always)]
    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        match self {
            Top::Drive(drive) => drive.advance(to, done),
            Top::Layer(context, _) => context.advance(to, done),
        }
    }

    #[inline(always)]
    fn hint(&self, req: &BlockReq) {
        match self {
            Top::Drive(drive) => drive.hint(req),
            Top::Layer(context, _) => context.hint(req),
        }
    }

    fn set_stories(&mut self, on: bool) {
        match self {
            Top::Drive(drive) => drive.set_stories(on),
            Top::Layer(context, _) => context.set_stories(on),
        }
    }

    fn tell_only(&mut self, wanted: Wanted) {
        match self {
            Top::Drive(drive) => drive.tell_only(wanted),
            Top::Layer(context, _) => context.tell_only(wanted),
        }
    }

    fn tell_story(&self, number: u64, story: &mut Story) -> bool {
        match self {
            Top::Drive(drive) => drive.tell_story(number, story),
            Top::Layer(context, _) => context.tell_story(number, story),
        }
    }
}

/// The command line.
struct Args {
    case: String,
    size: u64,
    spare: f64,
    rounds: usize,
    ios: u64,
    warm: Option<f64>,
    batch: usize,
    depth: usize,
    fixed: Option<u64>,
    layer: bool,
    profile: String,
    taken: bool,
    told: bool,
}

impl Args {
    fn parse() -> Option<Args> {
        let mut words = std::env::args().skip(1);
        let mut args = Args {
            case: words.next()?,
            size: 256,
            spare: 0.2,
            rounds: 5,
            ios: 20_000_000,
            warm: None,
            batch: 0,
            depth: 0,
            fixed: None,
            layer: false,
            profile: "ref".to_owned(),
            taken: false,
            told: false,
        };
        for word in words {
            let (key, value) = word.split_once('=')?;
            match key {
                "size" => args.size = value.parse().ok()?,
                "spare" => args.spare = value.parse().ok()?,
                "rounds" => args.rounds = value.parse().ok().filter(|&n| n > 0)?,
                "ios" => args.ios = value.parse().ok()?,
                "warm" => args.warm = Some(value.parse().ok()?),
                "batch" => args.batch = value.parse().ok()?,
                "depth" => args.depth = value.parse().ok()?,
                "fixed" => args.fixed = Some(value.parse().ok()?),
                "via" if value == "blkmq" => args.layer = true,
                "profile" if Profile::builtin(value).is_some() => args.profile = value.to_owned(),
                "memory" if value == "taken" => args.taken = true,
                "stories" if value == "told" => args.told = true,
                _ => return None,
            }
        }
        Some(args)
    }
}

/// A drive that keeps nothing, of `size` logical GiB.
fn drive(profile: &str, args: &Args) -> Drive {
    let Args { size, spare, taken, .. } = *args;
    let profile = Profile::builtin(profile).expect("it is built in");
    let one = Geometry::new(Dimensions { chunks: 1, ..profile.dimensions }).expect("it is checked");
    let bytes = size << 30;
    let data = (bytes / 4096) as f64 / (1.0 - spare);
    let data_chunks = (data / one.blocks() as f64).ceil() as u32;
    let data = Dimensions { chunks: data_chunks, ..profile.dimensions };
    let geometry = Geometry::new(with_reserve(data)).expect("it fits");
    let mut medium = RamMedium::new(&geometry, 0).expect("there is memory");
    if taken {
        medium.populate(0, own_blocks(&data), || true);
    }
    let device = Device::new(&geometry, &profile.timing, medium).expect("there is memory");
    let config = PblkConfig::new(bytes, data_chunks, 1);
    let drive = Pblk::new(device, config).expect("it is set up well");
    if taken {
        drive.populate();
    }
    drive
}

struct Rng(u64);

impl Rng {
    #[inline]
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * u128::from(n)) >> 64) as u64
    }
}

/// How many requests before its turn one is hinted.
const HINTED: usize = 8;

/// How requests go one by one.
#[derive(Clone, Copy)]
struct Single {
    /// In flight.
    depth: usize,
    /// Requests for each look at the clock.
    clock: usize,
    hinted: bool,
}

/// Requests that may be in flight.
const MOST: usize = 256;

struct Loop {
    port: Top,
    blocks: u64,
    rng: Rng,
    /// Started when it is read first: that measures it against the system's,
    /// which takes no fixed number of instructions.
    clock: Option<Clock>,
    last: Time,
    queue: Ring<BlockReq>,
    done: Ring<BlockDone>,
    /// Completions of one, where requests go one by one.
    single: Ring<BlockDone>,
    /// When each was submitted, by number.
    stamps: Box<[Time; MOST]>,
    latency: Histogram,
    finished: u64,
    /// The addresses hinted last.
    ahead: [u64; HINTED],
    told: bool,
    /// Requests that had finished before, and what is slower than all since.
    began: u64,
    from: u64,
}

impl Loop {
    fn new(drive: Drive, layer: bool) -> Loop {
        Loop {
            blocks: drive.shape().bytes / 4096,
            port: Top::new(drive, layer),
            rng: Rng(88172645463325252),
            clock: None,
            last: Time::ZERO,
            queue: Ring::new(MOST),
            done: Ring::new(1024),
            single: Ring::new(1),
            stamps: Box::new([Time::ZERO; MOST]),
            latency: Histogram::new(),
            finished: 0,
            ahead: [0; HINTED],
            told: false,
            began: 0,
            from: 0,
        }
    }

    #[inline(always)]
    fn push(&mut self, now: Time, id: usize, op: BlockOp) {
        let offset = self.rng.below(self.blocks) * 4096;
        self.stamps[id] = now;
        let id = id as u64;
        self.queue.put(|| BlockReq::new(id, op, offset, 4096, Buffer::empty()));
    }

    #[inline(always)]
    fn count(&mut self, now: Time, done: &BlockDone) {
        assert!(done.status.is_ok());
        if let Top::Drive(_) = self.port {
            self.latency.record(now.since(self.stamps[done.id as usize & (MOST - 1)]));
        }
        self.finished += 1;
    }

    /// The request in drive time that finished last is the slowest so far.
    #[cold]
    fn keep_slowest(&mut self, ns: u64) {
        let story = self.port.story(self.finished - 1 - self.began);
        assert_eq!(story.map(|story| story.ns()), Some(ns));
        self.from = ns + 1;
        self.port.tell_only(Wanted { from: self.from, since: Time(u64::MAX) });
    }

    /// The clock; where it is not to be read, the time it had last.
    #[inline(always)]
    fn now(&mut self, timed: bool) -> Time {
        if timed {
            self.last = self.clock.get_or_insert_with(Clock::start).now();
        }
        self.last
    }

    /// When completions are taken: at the drive's event, or, above the block
    /// layer, as its host sees them.
    #[inline(always)]
    fn taken(&mut self, at: Time, timed: bool) -> Time {
        if let Top::Layer(..) = self.port { self.now(timed) } else { at }
    }

    /// `ios` requests in batches.
    fn batches(&mut self, op: BlockOp, batch: usize, ios: u64, timed: bool) {
        let until = self.finished + ios;
        let mut now = self.now(timed);
        while self.finished < until {
            for id in 0..batch {
                self.push(now, id, op);
            }
            while !self.queue.is_empty() || self.port.next_event().is_some() {
                self.port.submit(now, &mut self.queue);
                while let Some(at) = self.port.next_event() {
                    now = self.taken(at, timed);
                    self.port.advance(now, &mut self.done);
                }
            }
            if let Top::Drive(_) = self.port {
                now = self.now(timed);
            }
            while let Some(done) = self.done.pop() {
                self.count(now, &done);
            }
        }
    }

    /// `ios` requests: one is submitted when one has completed, as `way` says.
    fn one_by_one(&mut self, op: BlockOp, way: Single, ios: u64, timed: bool) {
        let until = self.finished + ios;
        let mut now = self.now(timed);
        for id in 0..way.depth - 1 {
            self.push(now, id, op);
        }
        self.port.submit(now, &mut self.queue);
        let mut id = way.depth - 1;
        let mut turn = 0;
        while self.finished < until {
            self.push(now, id, op);
            if way.hinted {
                self.swap_ahead(turn);
            }
            self.port.submit(now, &mut self.queue);
            let at = self.port.next_event().expect("some are in flight");
            turn += 1;
            let look = turn % way.clock == 0;
            let to = self.taken(at, timed && look);
            self.port.advance(to, &mut self.single);
            now = match self.port {
                Top::Layer(..) => to,
                Top::Drive(_) => self.now(timed && look),
            };
            let done = self.single.pop().expect("reads take no time");
            self.count(now, &done);
            id = done.id as usize;
        }
        while self.port.next_event().is_some() {
            self.port.advance(now, &mut self.done);
            self.done.drain().for_each(drop);
        }
    }

    /// Hints the request that was made last and puts the one in its place that
    /// was hinted before.
    #[inline(always)]
    fn swap_ahead(&mut self, turn: usize) {
        let mut req = self.queue.pop().expect("it was put there");
        self.port.hint(&req);
        let ahead = &mut self.ahead[turn % HINTED];
        req.offset = std::mem::replace(ahead, req.offset);
        self.queue.put(|| req);
    }

    /// Writes the whole drive in order.
    fn fill(&mut self) {
        let len = 1 << 20;
        let mut offset = 0;
        while offset < self.blocks * 4096 {
            let op = BlockOp::Write;
            let buffer = Buffer::empty();
            self.queue.put(|| BlockReq::new(0, op, offset, len, buffer));
            offset += len;
            while !self.queue.is_empty() || self.port.next_event().is_some() {
                self.port.submit(Time::ZERO, &mut self.queue);
                while let Some(at) = self.port.next_event() {
                    self.port.advance(at, &mut self.done);
                }
                self.done.drain().for_each(drop);
            }
        }
    }
}

/// Processor time of this thread in seconds. What the system says in
/// `/proc` has steps of 4 ms, a tenth of what is measured here.
fn processor() -> f64 {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

/// The middle, least and most of some rates.
fn middle(rates: impl Iterator<Item = f64>) -> (f64, f64, f64) {
    let mut rates: Vec<f64> = rates.collect();
    rates.sort_by(f64::total_cmp);
    (rates[rates.len() / 2], rates[0], rates[rates.len() - 1])
}

/// Runs the rounds of one figure and prints the median.
fn figure(l: &mut Loop, args: &Args, name: &str, mut run: impl FnMut(&mut Loop, u64, bool)) {
    let before = l.port.drive().counters();
    if let Some(ios) = args.fixed {
        run(l, ios, false);
        let (after, state) = (l.port.drive().counters(), l.port.drive().device().state_hash());
        let moved = after.moved - before.moved;
        println!("{name}: {ios} requests, {moved} blocks moved, state {state:016x}");
        return;
    }
    l.latency.clear();
    // The clock is started before anything is measured: that takes long.
    l.now(true);
    let rates: Vec<(f64, f64)> = (0..args.rounds)
        .map(|_| {
            let (start, used, from) = (Instant::now(), processor(), l.finished);
            run(l, args.ios, true);
            let wall = start.elapsed().as_secs_f64();
            let busy = processor() - used;
            let millions = (l.finished - from) as f64 / 1e6;
            (millions / busy, millions / wall)
        })
        .collect();
    let (rate, least, most) = middle(rates.iter().map(|rate| rate.0));
    let wall = middle(rates.iter().map(|rate| rate.1)).0;
    let after = l.port.drive().counters();
    let (user, gc) = (after.user - before.user, after.gc - before.gc);
    let amplification = if user == 0 { 0.0 } else { 1.0 + gc as f64 / user as f64 };
    if let Top::Layer(_, monitor) = &l.port {
        l.latency = monitor.dispatch().remove(0).latency;
    }
    println!(
        "{name}: {rate:.2} M/s, {least:.2} to {most:.2} ({wall:.2}), p50 {} ns, p99 {} ns, \
         write amplification {:.3}",
        l.latency.percentile(50.0).unwrap_or(0),
        l.latency.percentile(99.0).unwrap_or(0),
        amplification,
    );
}

fn batches_of(args: &Args) -> Vec<usize> {
    if args.batch > 0 { vec![args.batch.min(MOST)] } else { vec![32, 128] }
}

fn reads(l: &mut Loop, args: &Args) {
    if args.depth == 0 {
        for batch in batches_of(args) {
            let name = format!("reads in batches of {batch}");
            figure(l, args, &name, |l, n, timed| l.batches(BlockOp::Read, batch, n, timed));
        }
    }
    if args.batch == 0 {
        let depths = if args.depth > 0 { vec![args.depth.min(MOST)] } else { vec![32, 1] };
        let ways = |depth| [(1, false), (1, true), (32, false), (32, true)].map(|w| (depth, w));
        for (depth, (clock, hinted)) in depths.into_iter().flat_map(ways) {
            if depth == 1 && clock > 1 {
                continue;
            }
            let also = if hinted { ", hinted" } else { "" };
            let name = format!("reads one by one, depth {depth}, clock read in {clock}{also}");
            let way = Single { depth, clock, hinted };
            figure(l, args, &name, |l, n, timed| l.one_by_one(BlockOp::Read, way, n, timed));
        }
    }
}

fn writes(l: &mut Loop, args: &Args, kind: &str) {
    for batch in batches_of(args) {
        let name = format!("{kind} writes in batches of {batch}");
        figure(l, args, &name, |l, n, timed| l.batches(BlockOp::Write, batch, n, timed));
    }
}

fn steady(l: &mut Loop, args: &Args) {
    let warm = (args.warm.unwrap_or(2.0) * l.blocks as f64) as u64;
    l.batches(BlockOp::Write, 32, warm, false);
    writes(l, args, "steady");
}

/// A timed drive in drive time, with `depth` requests in flight.
fn in_drive_time(l: &mut Loop, op: BlockOp, depth: usize, ios: u64) {
    let until = l.finished + ios;
    let mut now = l.last;
    (l.began, l.from) = (l.finished, 0);
    l.port.set_stories(l.told);
    for id in 0..depth {
        l.push(now, id, op);
    }
    l.port.submit(now, &mut l.queue);
    let mut left = ios.saturating_sub(depth as u64);
    while l.finished < until {
        let at = l.port.next_event().expect("busy");
        now = now.max(at);
        l.port.advance(at, &mut l.done);
        while let Some(done) = l.done.pop() {
            l.count(now, &done);
            if l.told {
                let ns = now.since(l.stamps[done.id as usize & (MOST - 1)]);
                if ns >= l.from {
                    l.keep_slowest(ns);
                }
            }
            if left > 0 {
                left -= 1;
                l.push(now, done.id as usize, op);
            }
        }
        l.port.submit(now, &mut l.queue);
    }
    l.last = now;
}

fn drive_time(args: &Args) {
    let mut l = Loop::new(drive(&args.profile, args), args.layer);
    let blocks = l.blocks;
    let warm = (args.warm.unwrap_or(0.0) * blocks as f64) as u64;
    in_drive_time(&mut l, BlockOp::Write, 64, blocks + warm);
    l.told = args.told;
    for (name, op) in [("reads", BlockOp::Read), ("writes", BlockOp::Write)] {
        figure(&mut l, args, &format!("{name} in drive time, depth 64"), |l, n, _| {
            in_drive_time(l, op, 64, n);
        });
    }
}

fn main() {
    let Some(args) = Args::parse() else {
        eprintln!("usage: pblk_speed reads|fresh|steady|both|virtual [KEY=VALUE ...]");
        exit(2);
    };
    if args.case == "virtual" {
        return drive_time(&args);
    }
    let mut l = Loop::new(drive("null", &args), args.layer);
    if args.case != "fresh" {
        let start = Instant::now();
        l.fill();
        println!("filled in {:.1} s", start.elapsed().as_secs_f64());
    }
    match args.case.as_str() {
        "reads" => reads(&mut l, &args),
        "fresh" => writes(&mut l, &args, "fresh"),
        "steady" => steady(&mut l, &args),
        "both" => {
            reads(&mut l, &args);
            steady(&mut l, &args);
        }
        other => eprintln!("no case {other}"),
    }
}
