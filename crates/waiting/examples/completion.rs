//! How submitters wait, measured: poll, interrupt, hybrid, adaptive, each over
//! a device of a fixed time on a thread of its own.
//!
//! `completion [KEY=VALUE ...]`; the keys:
//! - `rounds` of `ms` each for every strategy, interleaved; medians are
//!   printed. IOPS are beside those of polling in the same round. A round in
//!   which something else had the cores is not counted: the device thread and
//!   the submitter that polls then have less than 97 % of theirs.
//! - `submitter` and `device`: the cores of the two threads.
//! - `takes=N`: only the cases of a device of N us.
//!
//! The columns: I/O operations a second, and beside polling; latencies as the
//! submitter sees them; processor time of the submitter (user and system) and
//! of the device thread, as shares of the time.

use std::process::exit;
use std::time::{Duration, Instant};

use blkmq::driver::timed::{Timed, TimedOptions};
use blkmq::{Driver, HardwareQueue};
use device::hosted::HostedOptions;
use device::realtime::{fine_timers, pin, process_cpu, thread_cpu};
use hosting::hosted::{HostedDriver, HostedQueue};
use measure::Histogram;
use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Time};
use waiting::{Source, Strategy, Waiter};

/// The command line.
struct Args {
    rounds: usize,
    ms: u64,
    submitter: usize,
    device: usize,
    takes: Option<u64>,
}

impl Args {
    fn parse() -> Option<Args> {
        let mut args = Args { rounds: 5, ms: 500, submitter: 0, device: 1, takes: None };
        for word in std::env::args().skip(1) {
            let (key, value) = word.split_once('=')?;
            match key {
                "rounds" => args.rounds = value.parse().ok().filter(|&n| n > 0)?,
                "ms" => args.ms = value.parse().ok()?,
                "submitter" => args.submitter = value.parse().ok()?,
                "device" => args.device = value.parse().ok()?,
                "takes" => args.takes = Some(value.parse().ok()?),
                _ => return None,
            }
        }
        Some(args)
    }
}

/// A load: bursts of requests to a device that takes so long for each.
#[derive(Clone, Copy)]
struct Load {
    takes: u64,
    burst: usize,
    /// From the last completion of a burst to the next burst, in ns.
    pause: u64,
}

/// What one run came to. Shares are of the wall clock's time.
#[derive(Clone, Copy, Default)]
struct Outcome {
    iops: f64,
    p50: u64,
    p999: u64,
    user: f64,
    system: f64,
    device: f64,
    sleeps: f64,
    wake_error: u64,
    sleep_cost: u64,
}

/// Ticks of user and system time of this thread: only their ratio is used.
fn ticks() -> (f64, f64) {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap_or_default();
    let behind = stat.rsplit(')').next().unwrap_or_default();
    let mut fields = behind.split_whitespace().skip(11).map(|f| f.parse().unwrap_or(0.0));
    (fields.next().unwrap_or(0.0), fields.next().unwrap_or(0.0))
}

/// What is waited on.
struct Looking<'a> {
    queue: &'a mut HostedQueue,
    done: &'a mut Ring<BlockDone>,
}

impl Source for Looking<'_> {
    fn now(&mut self) -> Time {
        self.queue.now()
    }

    fn look(&mut self) -> bool {
        self.queue.advance(Time::ZERO, self.done);
        !self.done.is_empty()
    }

    fn sleep(&mut self, until: Option<Time>) {
        fine_timers();
        let left = until.map(|at| Duration::from_nanos(at.since(self.queue.now())));
        self.queue.wait(left);
    }

    fn nap(&mut self, until: Time) {
        fine_timers();
        std::thread::sleep(Duration::from_nanos(until.since(self.queue.now())));
    }

    fn cpu(&mut self) -> u64 {
        thread_cpu()
    }
}

/// The submitter's side of a run.
struct Submitter {
    queue: HostedQueue,
    waiter: Waiter,
    cmds: Ring<BlockReq>,
    done: Ring<BlockDone>,
    sent: Vec<Time>,
    latency: Histogram,
}

impl Submitter {
    fn new(queue: HostedQueue, strategy: Strategy) -> Submitter {
        let depth = queue.depth();
        Submitter {
            waiter: Waiter::new(strategy, depth),
            queue,
            cmds: Ring::new(depth),
            done: Ring::new(depth),
            sent: vec![Time::ZERO; depth],
            latency: Histogram::new(),
        }
    }

    fn wait(&mut self, until: Option<Time>) {
        let Submitter { queue, waiter, done, .. } = self;
        waiter.wait(&mut Looking { queue, done }, until);
    }

    /// One burst, and the pause after it.
    fn burst(&mut self, load: Load) {
        let now = self.queue.now();
        for tag in 0..load.burst as u64 {
            let buffer = Buffer::empty();
            let op = BlockOp::Read;
            let read = BlockReq::new(tag, op, 0, 4096, buffer);
            self.cmds.push(read).expect("a burst is at most the depth");
            self.waiter.submitted(tag, op, 4096, now);
            self.sent[tag as usize] = now;
        }
        self.queue.submit(now, &mut self.cmds);
        let mut left = load.burst;
        let mut now = now;
        while left > 0 {
            self.wait(None);
            now = self.queue.now();
            for done in self.done.drain() {
                self.waiter.completed(done.id, done.at, now);
                self.latency.record(now.since(self.sent[done.id as usize]));
                left -= 1;
            }
        }
        if load.pause > 0 {
            let until = now + load.pause;
            while self.queue.now() < until {
                self.wait(Some(until));
            }
        }
    }
}

/// Runs `load` for `ms`, after a tenth of that which is not counted.
fn run(load: Load, strategy: Strategy, args: &Args) -> Outcome {
    let options = TimedOptions { completion_nsec: load.takes, ..TimedOptions::default() };
    let timed = Timed::new(options).expect("the options are in their ranges");
    let shape = timed.shape();
    let port = timed.open().remove(0);
    // The thread never sleeps: its own lateness is nobody's here.
    let options = HostedOptions {
        depth: load.burst.max(2),
        linger: 1_000_000_000,
        core: Some(args.device),
        ..HostedOptions::default()
    };
    let started = HostedDriver::start(port, shape, options);
    let (driver, hosted) = started.unwrap_or_else(|e| {
        eprintln!("completion: {e}");
        exit(1)
    });
    let queue = driver.open().remove(0);
    let mut submitter = Submitter::new(queue, strategy);
    let warm = Instant::now() + Duration::from_millis(args.ms / 10);
    while Instant::now() < warm {
        submitter.burst(load);
    }
    submitter.latency.clear();
    let sleeps = submitter.waiter.sleeps();
    let (cpu, all, (user, system), start) = (thread_cpu(), process_cpu(), ticks(), Instant::now());
    let until = start + Duration::from_millis(args.ms);
    while Instant::now() < until {
        submitter.burst(load);
    }
    let wall = start.elapsed().as_nanos() as f64;
    let (cpu, all) = ((thread_cpu() - cpu) as f64, (process_cpu() - all) as f64);
    let (user, system) = (ticks().0 - user, ticks().1 - system);
    drop(hosted);
    let ios = submitter.latency.count() as f64;
    let percentile = |p| submitter.latency.percentile(p).unwrap_or(0);
    let part = |ticks: f64| ticks / (user + system).max(1.0) * cpu / wall;
    Outcome {
        iops: ios * 1e9 / wall,
        p50: percentile(50.0),
        p999: percentile(99.9),
        user: part(user),
        system: part(system),
        device: (all - cpu) / wall,
        sleeps: (submitter.waiter.sleeps() - sleeps) as f64 / ios,
        wake_error: submitter.waiter.wake_error(),
        sleep_cost: submitter.waiter.sleep_cost(),
    }
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_unstable_by(f64::total_cmp);
    of[of.len() / 2]
}

/// All ways to wait, interleaved; the outcomes of each, of the rounds in which
/// nothing else ran. Of all rounds if there is none such, with a warning.
fn table(load: Load, args: &Args) -> Vec<Vec<Outcome>> {
    let round = |_| Strategy::ALL.iter().map(|&how| run(load, how, args)).collect();
    let rounds: Vec<Vec<Outcome>> = (0..args.rounds).map(round).collect();
    let alone = |round: &&Vec<Outcome>| {
        round.iter().all(|o| o.device > 0.97) && round[0].user + round[0].system > 0.97
    };
    let mut counted: Vec<_> = rounds.iter().filter(alone).collect();
    if counted.is_empty() {
        println!("\nThe machine was busy in every round: the figures mean little.");
        counted = rounds.iter().collect();
    } else if counted.len() < rounds.len() {
        println!(
            "\nThe machine was busy in {} rounds of {}.",
            rounds.len() - counted.len(),
            rounds.len()
        );
    }
    (0..Strategy::ALL.len()).map(|i| counted.iter().map(|round| round[i]).collect()).collect()
}

fn print(load: Load, all: &[Vec<Outcome>]) {
    println!(
        "\n{} us, bursts of {}, pauses of {} us",
        load.takes / 1000,
        load.burst,
        load.pause / 1000
    );
    println!(
        "{:10} {:>9} {:>7} {:>7} {:>8} {:>6} {:>6} {:>6} {:>6} {:>7} {:>6} {:>6}",
        "",
        "IOPS",
        "/poll",
        "p50 us",
        "p99.9 us",
        "user%",
        "sys%",
        "cpu%",
        "dev%",
        "sleeps",
        "late",
        "cost"
    );
    for (strategy, outcomes) in Strategy::ALL.iter().zip(all) {
        let of = |f: fn(&Outcome) -> f64| median(outcomes.iter().map(f).collect());
        let beside = outcomes.iter().zip(&all[0]).map(|(a, poll)| a.iops / poll.iops).collect();
        println!(
            "{:10} {:9.0} {:6.1}% {:7.2} {:8.1} {:6.1} {:6.1} {:6.1} {:6.1} {:7.2} {:6.1} {:6.1}",
            strategy.name(),
            of(|o| o.iops),
            100.0 * median(beside),
            of(|o| o.p50 as f64) / 1e3,
            of(|o| o.p999 as f64) / 1e3,
            100.0 * of(|o| o.user),
            100.0 * of(|o| o.system),
            100.0 * of(|o| o.user + o.system),
            100.0 * of(|o| o.device),
            of(|o| o.sleeps),
            of(|o| o.wake_error as f64) / 1e3,
            of(|o| o.sleep_cost as f64) / 1e3,
        );
    }
}

fn main() {
    let Some(args) = Args::parse() else {
        eprintln!("usage: completion [rounds=5] [ms=500] [submitter=0] [device=1] [takes=US]");
        exit(2);
    };
    if let Err(e) = pin(args.submitter) {
        eprintln!("completion: core {}: {e}", args.submitter);
        exit(1);
    }
    let lone = |us: u64| Load { takes: us * 1000, burst: 1, pause: 0 };
    let burst = Load { takes: 80_000, burst: 16, pause: 200_000 };
    let loads = [lone(5), lone(10), lone(20), lone(80), burst];
    for load in loads {
        if args.takes.is_none_or(|us| us * 1000 == load.takes) {
            print(load, &table(load, &args));
        }
    }
}
