//! Threads that submit, complete, time out and tear their queues down at
//! random, over devices that do everything wrong: no request is lost, doubled
//! or stuck.
//!
//! `STRESS_REQUESTS` says how many requests in all, `STRESS_SEED` where to
//! begin. A seed decides the configurations and what each thread does, not how
//! the threads interleave.

mod common;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use blkmq::{Config, Context, Merge, Plug, Spread, Steering, build};
use common::{Chaos, ChaosQueue, Faults, topology};
use port::{BlockOp, BlockReq, Buffer, Port, Ring, Status, Time};
use workload::Rng;

/// Requests of one thread in one round.
const SHARE: u64 = 20_000;
/// A request that takes longer is stuck.
const STUCK: Duration = Duration::from_secs(30);

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

fn config(rng: &mut Rng) -> Config {
    let cores = 1 + rng.below(4) as usize;
    let spread = |n| [Spread::One, Spread::PerSocket, Spread::PerCore, Spread::PerCore][n as usize];
    let one = rng.below(cores as u64) as usize;
    Config {
        staging: spread(rng.below(4)),
        staging_depth: 1 + rng.below(40) as usize,
        merge: [Merge::Off, Merge::Off, Merge::Simple, Merge::Full][rng.below(4) as usize],
        plug: (rng.below(4) == 0).then(|| Plug { requests: 4, ns: 5000, ..Plug::default() }),
        steering: [
            Steering::Submitter,
            Steering::Finder,
            Steering::One(one),
            Steering::Split(0, one),
        ][rng.below(4) as usize],
        timeout: 2_000_000,
        ..Config::new(topology(cores, 1 + rng.below(cores as u64) as usize))
    }
}

fn device(rng: &mut Rng) -> Chaos {
    let bad = |rng: &mut Rng, every| if rng.below(4) == 0 { every } else { 0 };
    let faults = Faults {
        lose: bad(rng, 3000),
        double: bad(rng, 500),
        invent: bad(rng, 500),
        late: 2,
        gone_after: bad(rng, SHARE),
    };
    Chaos {
        queues: [1 + rng.below(3) as usize, rng.below(2) as usize, 0],
        depth: 1 + rng.below(24) as usize,
        shares_tags: rng.below(2) == 0,
        faults,
        longest: rng.below(3000),
        seed: rng.bits(),
    }
}

/// One thread's work.
struct Worker {
    context: Context<ChaosQueue>,
    rng: Rng,
    start: Instant,
    out: HashSet<u64>,
    next: u64,
    seen: Instant,
}

impl Worker {
    fn now(&self) -> Time {
        Time(self.start.elapsed().as_nanos() as u64)
    }

    fn submit(&mut self) {
        let n = 1 + self.rng.below(8) as usize;
        let mut reqs = Ring::new(n);
        for id in self.next..self.next + n as u64 {
            let op = if self.rng.below(2) == 0 { BlockOp::Read } else { BlockOp::Write };
            let (offset, len, buffer) = (self.rng.below(256) * 4096, 4096, Buffer::empty());
            reqs.push(BlockReq { id, op, fua: false, offset, len, buffer }).expect("room");
        }
        self.context.submit(self.now(), &mut reqs);
        let taken = n - reqs.len();
        self.out.extend(self.next..self.next + taken as u64);
        self.next += taken as u64;
    }

    fn take(&mut self) {
        let mut done = Ring::new(1 + self.rng.below(16) as usize);
        self.context.advance(self.now(), &mut done);
        for one in done.drain() {
            assert!(self.out.remove(&one.id), "request {} came twice or from nowhere", one.id);
            let fine = [Status::SUCCESS, Status::ABORTED, Status::ABORTED_BY_HOST];
            assert!(fine.contains(&one.status), "{}", one.status);
            self.seen = Instant::now();
        }
        if self.out.is_empty() {
            self.seen = Instant::now();
        } else if self.seen.elapsed() > STUCK {
            panic!("core {}: {:?} are stuck", self.context.core(), self.out);
        } else if self.rng.below(64) == 0 {
            std::thread::yield_now();
        }
    }

    /// Gives how many requests it made. Now and then it leaves in the middle.
    fn run(mut self) -> u64 {
        let leaves = self.rng.below(4) == 0;
        while self.next < SHARE {
            self.submit();
            self.take();
            if leaves && self.rng.below(SHARE / 2) == 0 {
                return self.next;
            }
        }
        self.context.unplug();
        while !self.out.is_empty() {
            self.take();
        }
        assert_eq!(self.context.outside(), 0);
        self.next
    }
}

fn round(seed: u64) -> u64 {
    let mut rng = Rng::new(seed, 7);
    let (config, device) = (config(&mut rng), device(&mut rng));
    let what = format!("STRESS_SEED={seed}: {config:?}, {device:?}");
    let (contexts, monitor) = build(&Config { ..config }, device).expect("a good layer");
    let start = Instant::now();
    let threads: Vec<_> = contexts
        .into_iter()
        .map(|context| {
            let rng = Rng::new(seed, 100 + context.core() as u64);
            let (out, next, seen) = (HashSet::new(), 0, start);
            let worker = Worker { context, rng, start, out, next, seen };
            std::thread::spawn(move || worker.run())
        })
        .collect();
    let made = threads.into_iter().map(|t| t.join().unwrap_or_else(|_| panic!("{what}"))).sum();
    let done: u64 = monitor.dispatch().iter().map(|q| q.completed).sum();
    assert!(done <= made, "{what}: more completions than requests");
    made
}

#[test]
fn nothing_is_lost_doubled_or_stuck() {
    let wanted = number("STRESS_REQUESTS", 1_000_000);
    let mut seed = number("STRESS_SEED", 1);
    let mut made = 0;
    while made < wanted {
        made += round(seed);
        seed += 1;
    }
    println!("{made} requests, seeds up to {}", seed - 1);
}
