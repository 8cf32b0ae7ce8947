//! The life of a drive in memory: bursts of a load, each after a rest, told of by window.
//!
//! In virtual time rest costs next to nothing, so that data age as long as they do in
//! years, and what the drive does by itself (patrol, refresh) is done when it is due.
//! Guarantees: the same life gives the same windows to the bit. A drive that takes no
//! more writes is asked no more: its windows end there. May fail: options that
//! contradict the drive, no memory, and somebody who stops it.

use device::{Health, Wear};
use drive::error::Error;
use drive::flash_errors::FlashErrors;
use drive::spec::DriveSpec;
use drive::whole::{Boxed, Drive, devices};
use load::driver::{Driver, Virtual};
use load::load::{Load, Pace};
use load::runner::{Plan, Runner, Until};
use load::tally::Tally;
use load::watch::Watch;
use measure::{Histogram, Programmed};
use port::{BLOCK_BYTES, BlockOp, Ring, Time};
use serde_json::{Value, json};
use targets::WriteCounters;
use workload::Pattern;

use crate::BenchArgs;

/// What a life is made of.
#[derive(Clone, Copy, Debug)]
pub struct Course {
    /// Windows, each told of by itself.
    pub windows: u32,
    /// Bursts of a window.
    pub bursts: u32,
    /// Requests of a burst.
    pub requests: u64,
    /// Drive time from the end of a burst to the next one's begin, in ns.
    pub rest: u64,
    /// The drive is looked after at least so often while it rests, in ns; not 0.
    pub tend: u64,
}

/// What a window came to, and how the drive was at its end.
pub struct Window {
    /// Drive time at its end, since the life began, in ns.
    pub end: u64,
    /// The same at the end of the first burst in or before which data could not be read,
    /// of the drive's whole life.
    pub lost_at: Option<u64>,
    reads: Histogram,
    writes: Histogram,
    failed: u64,
    written: WriteCounters,
    programmed: Programmed,
    errors: Option<FlashErrors>,
    health: Lasting,
    read_only: bool,
}

/// What lasts of a drive's health.
struct Lasting {
    chunks: u64,
    factory_bad: u64,
    grown_bad: u64,
    retired: u64,
    wear: Wear,
}

impl Lasting {
    /// Of a drive of one device; of several, the most worn, and all chunks.
    fn of(drive: &Boxed) -> Lasting {
        let all: Vec<Health> = devices(&**drive).map(|device| device.health()).collect();
        let sum = |of: fn(&Health) -> u64| all.iter().map(of).sum();
        let most = all.iter().map(|health| health.wear).max_by_key(|wear| wear.most);
        Lasting {
            chunks: sum(|h| h.chunks),
            factory_bad: sum(|h| h.factory_bad),
            grown_bad: sum(|h| h.grown_bad),
            retired: sum(|h| h.retired),
            wear: most.unwrap_or_else(|| Wear::of(&[])),
        }
    }
}

impl Window {
    /// As JSON: latencies in ns, wear in erases.
    pub fn to_json(&self) -> Value {
        let (w, h) = (&self.written, &self.health);
        let of = |all: &Histogram| {
            let told = all.distribution();
            json!({ "n": all.count(), "mean": all.mean(), "p50": all.percentile(50.0),
                "p99": all.percentile(99.0), "p999": all.percentile(99.9), "max": all.max(),
                "distribution": { "below_ns": told.below_ns, "n": told.n } })
        };
        json!({
            "seconds": self.end as f64 / 1e9,
            "lost_seconds": self.lost_at.map(|ns| ns as f64 / 1e9),
            "read": of(&self.reads),
            "write": of(&self.writes),
            "failed_requests": self.failed,
            "user_blocks": w.user,
            "lost_blocks": w.lost,
            "erases": w.erases,
            "refreshed_chunks": w.refreshed,
            "write_amplification": self.programmed.amplification(),
            "flash_errors": self.errors.map(|errors| errors.to_json()),
            "chunks": h.chunks,
            "factory_bad": h.factory_bad,
            "grown_bad": h.grown_bad,
            "retired": h.retired,
            "wear_mean": h.wear.mean,
            "wear_most": h.wear.most,
            "read_only": self.read_only,
        })
    }
}

/// Lives a life: the drive of `args` is written in order, then has the load of `args`
/// by `course`.
pub fn live(args: &BenchArgs, course: &Course, watch: &mut Watch) -> Result<Vec<Window>, Error> {
    let DriveSpec::Memory(spec) = &args.drive else {
        let text = format!("{}: a life is lived in memory: take a mem: drive", args.drive);
        return Err(Error::Usage(text));
    };
    let drive = drive::stack::build(&spec.resolve()?, args.seed)?;
    let shape = drive.shape();
    let pattern = crate::pattern(args, &shape)?;
    let mut load = crate::load(args, &shape, &pattern)?;
    let mut driver = Virtual::new(drive);
    let mut runner = Runner::new(watch);
    fill(&mut runner, &mut driver, args.seed)?;
    let start = driver.now();
    let mut life = Life { driver, start, course: *course, lost_at: None };
    let mut windows = Vec::new();
    for _ in 0..course.windows {
        let window = life.window(&mut runner, &mut load)?;
        let is_over = window.read_only;
        windows.push(window);
        if is_over {
            break;
        }
    }
    Ok(windows)
}

/// Writes a new drive once, in order: a life begins with data, and with no wear.
fn fill(runner: &mut Runner, driver: &mut Virtual<Boxed>, seed: u64) -> Result<(), Error> {
    let shape = driver.drive().shape();
    let whole = Pattern::precondition(shape.bytes);
    let rest = shape.bytes - whole.blocks() * whole.bs;
    let (offset, bs) = (shape.bytes - rest, BLOCK_BYTES);
    for pattern in [whole, Pattern { offset, length: rest, bs, ..whole }] {
        if pattern.blocks() == 0 {
            continue;
        }
        let mut load = Load::new(&shape, &pattern, Pace::Closed { depth: 1 }, 1, seed)?;
        let plan = Plan { ramp: 0, until: Until::Ios(pattern.blocks()), count: false };
        let tally = runner.run(driver, &mut load, plan)?;
        if let Some(what) = tally.problem() {
            return Err(Error::Failed(format!("while it was written, {what}")));
        }
    }
    driver.rest();
    Ok(())
}

/// A drive that lives.
struct Life {
    driver: Virtual<Boxed>,
    start: Time,
    course: Course,
    lost_at: Option<u64>,
}

impl Life {
    fn window(&mut self, runner: &mut Runner, load: &mut Load) -> Result<Window, Error> {
        let before = (self.driver.counters(), self.driver.gauges().programmed);
        let errors = FlashErrors::of(self.driver.drive());
        let (mut reads, mut writes, mut failed) = (Histogram::new(), Histogram::new(), 0);
        for _ in 0..self.course.bursts {
            self.rest()?;
            let tally = self.burst(runner, load)?;
            reads.merge(tally.latency(BlockOp::Read));
            writes.merge(tally.latency(BlockOp::Write));
            failed += tally.failed;
            self.look_for_loss();
            if self.driver.drive().is_read_only() {
                break;
            }
        }
        let (drive, now) = (self.driver.drive(), self.driver.now());
        Ok(Window {
            end: now.since(self.start),
            lost_at: self.lost_at,
            reads,
            writes,
            failed,
            written: self.driver.counters().since(&before.0),
            programmed: self.driver.gauges().programmed.since(&before.1),
            errors: FlashErrors::of(drive).since(&errors),
            health: Lasting::of(drive),
            read_only: drive.is_read_only(),
        })
    }

    /// Notes when data could not be read for the first time: with parity, not rebuilt either.
    fn look_for_loss(&mut self) {
        let drive = self.driver.drive();
        let failed = match drive.parity() {
            Some(parity) => parity.lost,
            None => FlashErrors::of(drive).failed_blocks(),
        };
        if self.lost_at.is_none() && failed + self.driver.counters().lost > 0 {
            self.lost_at = Some(self.driver.now().since(self.start));
        }
    }

    fn burst(&mut self, runner: &mut Runner, load: &mut Load) -> Result<Tally, Error> {
        let until = Until::Ios(self.course.requests);
        let tally = runner.run(&mut self.driver, load, Plan { ramp: 0, until, count: true })?;
        match tally.interrupted {
            true => Err(Error::Failed("stopped before the drive's life was over".into())),
            false => Ok(tally),
        }
    }

    /// Lets time pass without requests, and the drive do what is due meanwhile.
    fn rest(&mut self) -> Result<(), Error> {
        let end = Time(self.driver.now().0.saturating_add(self.course.rest));
        let (mut none, mut done) = (Ring::new(1), Ring::new(1));
        while self.driver.now() < end {
            let next = Time(self.driver.now().0.saturating_add(self.course.tend)).min(end);
            while self.driver.now() < next {
                self.driver.turn(Some(next), &mut none, &mut done)?;
            }
            let now = self.driver.now();
            self.driver.drive_mut().tend(now);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
