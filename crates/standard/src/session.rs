//! A session: what a test measures with.
//!
//! It holds the drive over all runs of a test. Guarantees: a run that means nothing, as
//! bench has it, that was seen too late, or in which a request failed, ends the test as
//! void; random runs of one session follow numbers of their own each. Fails as the drive
//! and the runner do, and when somebody stops it.

use bench::stand::Stand;
use bench::{IN_MEMORY, why_void};
use load::driver::ClockKind;
use load::load::{Load, Pace};
use load::runner::{Plan, Runner, Until};
use load::tally::Tally;
use load::watch::Watch;
use measure::steady::{LEAST_WINDOW, WINDOW};
use measure::units::{size_binary, time_ns};
use measure::{Histogram, Programmed, Summary};
use port::BlockOp;
use port::random::STEP;
use workload::{Order, Pattern};

use crate::{Options, Test};
use drive::error::Error;

mod preparation;

pub use preparation::NOT_COLLECTED;

/// How late, in parts of the mean latency, 99.9 % of completions may be seen on the clock.
const LATE: f64 = 0.1;
/// Requests outstanding where neither test nor options say.
pub const DEPTH: u32 = 32;
/// Drive time of a run on the clock, as the specification has it, and in virtual time.
const PERIOD: (u64, u64) = (60_000_000_000, 200_000_000);
/// What part of it a quick run is.
const QUICK: u64 = 10;
/// The least drive time of a run of which a tail is told.
const FOR_A_TAIL: u64 = 1_000_000_000;

/// Why a test ends before its end.
#[derive(Debug)]
pub enum Halt {
    /// Its result means nothing, for this reason.
    Void(String),
    /// It failed.
    Failed(Error),
}

impl From<Error> for Halt {
    fn from(e: Error) -> Halt {
        Halt::Failed(e)
    }
}

fn void<T>(why: impl Into<String>) -> Result<T, Halt> {
    Err(Halt::Void(why.into()))
}

/// Requests of a kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Access {
    /// Bytes of each.
    pub bs: u64,
    /// Reads among them, in percent; the rest are writes.
    pub reads: u8,
    /// Whether addresses are random, or one after the other.
    pub is_random: bool,
    /// Requests outstanding.
    pub depth: u32,
}

impl Access {
    /// Random requests.
    pub fn random(bs: u64, reads: u8, depth: u32) -> Access {
        Access { bs, reads, is_random: true, depth }
    }

    /// Sequential ones.
    pub fn sequential(bs: u64, reads: u8, depth: u32) -> Access {
        Access { bs, reads, is_random: false, depth }
    }

    /// In a few words.
    pub fn text(&self) -> String {
        let order = if self.is_random { "random" } else { "sequential" };
        let what = match self.reads {
            0 => "writes".into(),
            100 => "reads".into(),
            reads => format!("requests, {}", mix(reads)),
        };
        format!("{} {order} {what}", size_binary(self.bs))
    }
}

/// Reads and writes, as the specification has them.
pub fn mix(reads: u8) -> String {
    format!("{reads}/{}", 100 - reads)
}

/// Bytes of the random writes whose figures are tracked from round to round.
pub const TRACKED: u64 = 4 << 10;

/// Each mix with each size, and which of them is tracked.
pub fn cells(mixes: &[u8], sizes: &[u64]) -> Result<(Vec<(u8, u64)>, usize), Halt> {
    let of_mix = |&reads: &u8| sizes.iter().map(move |&bs| (reads, bs));
    let cells: Vec<_> = mixes.iter().flat_map(of_mix).collect();
    match cells.iter().position(|&cell| cell == (0, TRACKED)) {
        Some(tracked) => Ok((cells, tracked)),
        None => void("the drive takes no requests of 4 KiB, whose writes are tracked"),
    }
}

/// What was written so far.
#[derive(Clone, Copy)]
pub struct Wrote {
    bytes: u64,
    programmed: Option<Programmed>,
}

impl Wrote {
    /// Write amplification since it was `before`, parity and folds of an SLC cache
    /// included, where the drive tells, and how often as much as a drive of `size` bytes
    /// was written.
    pub fn since(&self, before: &Wrote, size: u64) -> (Option<f64>, f64) {
        let both = self.programmed.zip(before.programmed);
        let amplification = both.and_then(|(after, before)| after.since(&before).amplification());
        (amplification, (self.bytes - before.bytes) as f64 / size as f64)
    }
}

/// A session.
pub struct Session<'s, 'a> {
    /// The drive.
    pub stand: &'s mut Stand<'a>,
    /// How the test is run.
    pub options: &'s Options,
    /// Requests outstanding, where the test does not say.
    pub depth: u32,
    watch: &'s mut Watch,
    /// What a reader must know.
    pub notes: Vec<String>,
    runs: u64,
    written: u64,
    /// Whether something was written to the drive, as far as that is known.
    is_used: bool,
    /// Blocks that collection had moved when the drive was full, where it tells.
    moved: u64,
}

impl<'s, 'a> Session<'s, 'a> {
    /// One in which nothing was measured.
    pub fn new(
        stand: &'s mut Stand<'a>,
        (test, options): (&Test, &'s Options),
        watch: &'s mut Watch,
    ) -> Session<'s, 'a> {
        let is_used = !stand.about.is_new;
        let depth = options.qd.or(test.depth).unwrap_or(DEPTH);
        let notes = stand.about.notes.clone();
        Session { stand, options, depth, watch, notes, runs: 0, written: 0, is_used, moved: 0 }
    }

    /// Whether a test of this drive can mean anything.
    pub fn may_measure(&self) -> Result<(), Halt> {
        if self.stand.about.is_in_memory {
            return void(IN_MEMORY);
        }
        if self.stand.about.is_cached {
            return void(
                "requests go through the system's page cache, so it is the cache that is \
                 measured: take direct=yes",
            );
        }
        Ok(())
    }

    /// Something else begins.
    pub fn phase(&mut self, name: &str) {
        self.watch.phase(name);
    }

    /// Tells a reader this, once.
    pub fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    /// Bytes of the drive.
    pub fn bytes(&self) -> u64 {
        self.stand.shape.bytes
    }

    /// Drive time of a run, in ns.
    pub fn period(&self) -> u64 {
        let full = match self.stand.about.clock {
            ClockKind::Real => PERIOD.0,
            ClockKind::Virtual => PERIOD.1,
        };
        self.options.period.unwrap_or(self.options.pick(full, full / QUICK))
    }

    /// The same of a run that has few requests, of which a tail is told.
    pub fn period_for_a_tail(&self) -> u64 {
        self.options.period.unwrap_or(self.period().max(FOR_A_TAIL))
    }

    /// Rounds that must agree.
    pub fn window(&self) -> usize {
        self.options.pick(WINDOW, LEAST_WINDOW)
    }

    /// Whether it takes requests of this size.
    pub fn takes(&self, bs: u64) -> bool {
        let (least, most) = self.stand.about.sizes;
        bs.is_multiple_of(least) && bs <= most && bs <= self.bytes()
    }

    /// Those of these sizes that the drive takes, at least one; of the others a note is made.
    pub fn sizes(&mut self, all: &[u64]) -> Result<Vec<u64>, Halt> {
        let (taken, others): (Vec<u64>, Vec<u64>) = all.iter().partition(|&&bs| self.takes(bs));
        if !others.is_empty() {
            let others: Vec<String> = others.into_iter().map(size_binary).collect();
            self.note(format!("without {}: the drive does not take it", others.join(", ")));
        }
        if taken.is_empty() {
            void("the drive takes requests of none of the sizes")
        } else {
            Ok(taken)
        }
    }

    /// What was written so far.
    pub fn wrote(&mut self) -> Wrote {
        let tells = self.stand.about.tells;
        let programmed = tells.then(|| self.stand.driver().gauges().programmed);
        Wrote { bytes: self.written, programmed }
    }

    /// The load of an access over all of the drive.
    pub fn load(&mut self, access: &Access) -> Result<Load, Error> {
        self.load_at(access, Pace::Closed { depth: access.depth })
    }

    /// The same at another pace.
    pub fn load_at(&mut self, access: &Access, pace: Pace) -> Result<Load, Error> {
        let order = if access.is_random { Order::Uniform } else { Order::Sequential };
        let uniform = Pattern::uniform(self.bytes(), access.reads);
        self.load_of(&Pattern { bs: access.bs, order, ..uniform }, pace, 1)
    }

    /// The load of so many submitters that follow a pattern.
    pub fn load_of(
        &mut self,
        pattern: &Pattern,
        pace: Pace,
        submitters: u32,
    ) -> Result<Load, Error> {
        self.runs += 1;
        let seed = self.options.seed.wrapping_add(STEP.wrapping_mul(self.runs));
        Load::new(&self.stand.shape, pattern, pace, submitters, seed)
    }

    /// Runs a load by itself, counts it, and looks whether that means anything.
    pub fn measure(&mut self, load: &mut Load, plan: Plan) -> Result<Tally, Halt> {
        self.measure_with(load, plan, |_| ())
    }

    /// The same with a runner that was told something before.
    pub fn measure_with(
        &mut self,
        load: &mut Load,
        plan: Plan,
        tell: impl FnOnce(&mut Runner),
    ) -> Result<Tally, Halt> {
        let watch = &mut *self.watch;
        let tally = self.stand.measured(|driver| {
            let mut runner = Runner::new(watch);
            tell(&mut runner);
            runner.run(driver, load, plan).map_err(Halt::from).and_then(whole)
        })?;
        self.count(&tally);
        means_something(&tally, load.bs())?;
        Ok(tally)
    }

    /// Runs several loads at once, and looks whether that means anything.
    pub fn measure_together(&mut self, loads: &mut [Load], plan: Plan) -> Result<Vec<Tally>, Halt> {
        let watch = &mut *self.watch;
        let tallies = self.stand.measured(|driver| {
            let tallies = Runner::new(watch).run_together(driver, loads, plan)?;
            tallies.into_iter().map(whole).collect::<Result<Vec<_>, Halt>>()
        })?;
        for (tally, load) in tallies.iter().zip(&*loads) {
            self.count(tally);
            means_something(tally, load.bs())?;
        }
        Ok(tallies)
    }

    /// Runs two loads in turns, as one who asks would: some requests of the first, one of
    /// the second, and so on, and looks whether all after the first `skip` turns mean anything.
    /// Gives the mean latency of these, in ns.
    pub fn measure_in_turns(
        &mut self,
        loads: [(&mut Load, u64); 2],
        (skip, turns): (u64, u64),
    ) -> Result<f64, Halt> {
        let watch = &mut *self.watch;
        let [first, second] = loads;
        let (mut written, mut counted) = (0, Tally::new());
        self.stand.measured(|driver| {
            for turn in 0..skip + turns {
                for (load, requests) in [(&mut *first.0, first.1), (&mut *second.0, second.1)] {
                    let plan = Plan { ramp: 0, until: Until::Ios(requests), count: true };
                    let tally = whole(Runner::new(watch).run(driver, load, plan)?)?;
                    if let Some(what) = tally.problem() {
                        return void(what);
                    }
                    written += tally.written;
                    if turn >= skip {
                        counted = Tally::merge(vec![std::mem::take(&mut counted), tally]);
                    }
                }
            }
            Ok(())
        })?;
        self.written += written;
        self.is_used |= written > 0;
        means_something(&counted, first.0.bs().max(second.0.bs()))?;
        Ok(counted.all().mean().unwrap_or(0.0))
    }

    /// Runs so many requests of a load that are not counted.
    pub fn warm_up(&mut self, load: &mut Load, requests: u64) -> Result<(), Halt> {
        match self.prepare(load, Until::Ios(requests))?.problem() {
            Some(what) => void(what),
            None => Ok(()),
        }
    }

    /// A run that counts, for so much drive time. In virtual time, where runs are short, as
    /// long of it before that does not count: the drive still does then what the run before
    /// left to it. For latencies: of a rate what is under way when it begins to count is
    /// missed, see [`Session::measure_warm`].
    pub fn for_time(&self, ns: u64) -> Plan {
        let ramp = match self.stand.about.clock {
            ClockKind::Real => 0,
            ClockKind::Virtual => ns,
        };
        Plan { ramp, until: Until::Time(ns), count: true }
    }

    /// Runs a load for so much drive time, in virtual time after a run of as long that does
    /// not count: all requests of one that does begin and end in it.
    pub fn measure_warm(&mut self, load: &mut Load, ns: u64) -> Result<Tally, Halt> {
        let until = Until::Time(ns);
        if self.stand.about.clock == ClockKind::Virtual
            && let Some(what) = self.prepare(load, until)?.problem()
        {
            return void(what);
        }
        self.measure(load, Plan { ramp: 0, until, count: true })
    }

    /// Runs an access for a period.
    pub fn alone(&mut self, access: &Access) -> Result<Tally, Halt> {
        let mut load = self.load(access)?;
        self.measure_warm(&mut load, self.period())
    }

    fn count(&mut self, tally: &Tally) {
        self.written += tally.written;
        self.is_used |= tally.written > 0;
    }

    /// Runs a load that only prepares the drive. What failed is the caller's to judge.
    fn prepare(&mut self, load: &mut Load, until: Until) -> Result<Tally, Halt> {
        let plan = Plan { ramp: 0, until, count: false };
        let tally = Runner::new(self.watch).run(self.stand.driver(), load, plan)?;
        let tally = whole(tally)?;
        self.count(&tally);
        Ok(tally)
    }
}

/// The summary of some latencies, of which there must be enough for a percentile.
pub fn enough(latency: &Histogram, percentile: (&str, f64), of: &str) -> Result<Summary, Halt> {
    let (summary, (name, samples)) =
        (latency.summary(), (percentile.0, Summary::samples(percentile.1)));
    if summary.n < samples {
        let n = summary.n;
        return void(format!(
            "too few samples for {name} of {of}: {n} of {samples}; raise --period"
        ));
    }
    Ok(summary)
}

/// The 99th percentile, in ns; none where there are too few samples for it.
pub fn tail(latency: &Histogram) -> Option<f64> {
    latency.summary().p99.map(|ns| ns as f64)
}

/// The 99th percentile as [`enough`] has it.
pub const P99: (&str, f64) = ("p99", 99.0);
/// The 99.9th.
pub const P999: (&str, f64) = ("p99.9", 99.9);

fn stopped() -> Error {
    Error::Failed("stopped before its end: there is no result".into())
}

/// Bytes a second of a tally with requests of `bs` bytes.
pub fn throughput(tally: &Tally, bs: u64) -> f64 {
    iops(tally) * bs as f64
}

/// Requests a second of a tally.
pub fn iops(tally: &Tally) -> f64 {
    let seconds = tally.seconds();
    if seconds > 0.0 { tally.all().count() as f64 / seconds } else { 0.0 }
}

/// The same, where nobody stopped it and the drive was not lost.
fn whole(tally: Tally) -> Result<Tally, Halt> {
    match &tally.lost {
        _ if tally.interrupted => Err(stopped().into()),
        Some(why) => Err(Error::Failed(why.clone()).into()),
        None => Ok(tally),
    }
}

/// Whether a run of requests of `bs` bytes means anything.
pub(crate) fn means_something(tally: &Tally, bs: u64) -> Result<(), Halt> {
    if let Some(what) = tally.problem() {
        return void(what);
    }
    let all = tally.all();
    let read = tally.latency(BlockOp::Read).count() * bs;
    if let Some(why) = why_void(tally, all.count(), read) {
        return void(why);
    }
    let late = tally.late.percentile(99.9).unwrap_or(0) as f64;
    let mean = all.mean().unwrap_or(0.0);
    if late > LATE * mean {
        return void(format!(
            "clock check failed: 0.1 % of completions were seen {} late or more, of a mean latency \
             of {}: this machine was busy",
            time_ns(late),
            time_ns(mean)
        ));
    }
    Ok(())
}
