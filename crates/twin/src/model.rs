//! The model: what a candidate's drive gives of a run.
//!
//! A run is a closed loop in virtual time on a drive in memory that keeps no data,
//! as long as its figures need and no longer. The drive is made for it: a range is
//! written once over in order, flushed, and left to rest; a run that writes fills
//! the write buffer before anything is counted; nothing is ever collected, for the
//! flash is larger than all that is written. What the host's path takes is added to
//! each request before the drive has it.
//!
//! Guarantees: the same candidate, run and seed give the same figures, on however
//! many threads. Fails where a candidate is no drive, and when somebody stops it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use device::Link;
use drive::Error;
use drive::spec::{MemorySpec, Store};
use drive::stack;
use drive::whole::{Boxed, Drive};
use flash::LinkTiming;
use flash::Profile;
use load::driver::{Driver, Virtual};
use load::load::{Load, Pace};
use load::runner::{DEPTH, Plan, Runner, Until};
use load::tally::Tally;
use load::watch::Watch;
use port::{BLOCK_BYTES, BlockOp, Shape};
use workload::{Order, Pattern};

use crate::parameter::{Parameter, nanoseconds, path_of};
use crate::points::{Direction, Figures, Run};

/// Bytes that are used, from the drive's beginning: of a run that only reads, and of one
/// that writes, so that what is read is seldom in the write buffer.
const RANGES: [u64; 2] = [64 << 20, 128 << 20];
/// Bytes of writes before any are counted: more than a write buffer holds.
const WARM_BYTES: u64 = 128 << 20;
/// Requests of a mixed run before any are counted, at most.
const WARM_REQUESTS: u64 = 16_384;
/// Requests of a run that only reads before any are counted, for each that is out: so
/// long the queues of the dies take to be as they stay.
const WARM_TURNS: u64 = 16;
/// Bytes of requests that are counted, about, and twice that where all are reads.
const COUNTED_BYTES: u64 = 192 << 20;
/// Requests that are counted: at least, at most, and of reads at depth 1. Writes alone have
/// no such limit: what seldom keeps them waiting must come several times.
const COUNTED: (u64, u64) = (1000, 20_000);
const COUNTED_ALONE: u64 = 4000;
/// The limit is so many for each that is out where that is more: how reads are spread
/// over the dies changes slowly where many wait.
const COUNTED_TURNS: u64 = 400;
/// Bytes that a drive holds, at least, so that nothing is collected.
const HOLDS: u64 = 1 << 30;
/// Chunks a unit, at least: some are open.
const LEAST_CHUNKS: u64 = 8;

/// What runs gave, reads and writes apart.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prediction {
    read: Figures,
    write: Figures,
}

impl Prediction {
    /// Of these requests.
    pub fn of(&self, direction: Direction) -> &Figures {
        match direction {
            Direction::Read => &self.read,
            Direction::Write => &self.write,
        }
    }
}

/// A drive and its host, with all parameters set.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The family's profile, with the keys that were set.
    pub profile: Profile,
    /// These keys, as a drive's name has them.
    keys: Vec<(String, String)>,
    /// What each path adds to a request, in ns.
    pub host: BTreeMap<String, u64>,
}

impl Candidate {
    /// What a parameter is set to, as the profile writes it.
    pub fn value(&self, name: &str) -> String {
        let host = || path_of(name).and_then(|path| self.host.get(path)).copied().unwrap_or(0);
        self.profile.get(name).unwrap_or_else(|| format!("{}us", host() as f64 / 1e3))
    }
}

/// A family of drives: a profile, and some of its keys set.
#[derive(Clone, Debug)]
pub struct Model {
    /// The name of the profile, or the path of its file.
    pub family: String,
    base: Profile,
    set: Vec<(String, String)>,
    seed: u64,
}

impl Model {
    /// The family of `name`, with some keys `set` for all its drives.
    pub fn new(name: &str, set: &[(String, String)], seed: u64) -> Result<Model, Error> {
        let mut base = drive::spec::load(name)?;
        for (key, value) in set {
            base.set(key, value).map_err(crate::error::TwinError::from)?;
        }
        base.check().map_err(drive::spec::DriveError::from)?;
        Ok(Model { family: name.into(), base, set: set.to_vec(), seed })
    }

    /// Its profile.
    pub fn base(&self) -> &Profile {
        &self.base
    }

    /// The drive with `parameters` at places from 0 to 1.
    pub fn candidate(&self, parameters: &[Parameter], at: &[f64]) -> Result<Candidate, Error> {
        let mut profile = self.base.clone();
        let (mut keys, mut host) = (self.set.clone(), BTreeMap::new());
        for (parameter, &at) in parameters.iter().zip(at) {
            let value = parameter.value(at);
            match parameter.path() {
                Some(path) => {
                    host.insert(path.to_string(), nanoseconds(&value).expect("it was tried"));
                }
                None => {
                    profile.set(&parameter.name, &value).map_err(crate::error::TwinError::from)?;
                    keys.push((parameter.name.clone(), value));
                }
            }
        }
        profile.check().map_err(drive::spec::DriveError::from)?;
        Ok(Candidate { profile, keys, host })
    }

    /// What the candidate gives of each run, on all processors. Fails with
    /// the first run that does.
    pub fn predict(
        &self,
        candidate: &Candidate,
        runs: &[Run],
        watch: &Watch,
    ) -> Result<Vec<Prediction>, Error> {
        let threads = thread::available_parallelism().map_or(1, usize::from).min(runs.len());
        let next = AtomicUsize::new(0);
        let work = |mut watch: Watch| {
            let mut done = Vec::new();
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                let Some(run) = runs.get(n) else { return done };
                if !watch.look(0.0) {
                    done.push((n, Err(Error::Failed(format!("{run}: it was stopped")))));
                    return done;
                }
                done.push((n, self.one(candidate, run, &mut watch)));
            }
        };
        let mut all: Vec<(usize, Result<Prediction, Error>)> = thread::scope(|scope| {
            // As many as there can be; this one works, too, so that one is enough.
            let begin = |watch| thread::Builder::new().spawn_scoped(scope, || work(watch));
            let workers: Vec<_> = (1..threads).map_while(|_| begin(watch.helper()).ok()).collect();
            let mut all = work(watch.helper());
            let results = workers.into_iter().map(|worker| worker.join());
            all.extend(results.flat_map(|done| done.expect("a run does not panic")));
            all
        });
        all.sort_by_key(|(n, _)| *n);
        all.into_iter().map(|(_, result)| result).collect()
    }

    /// One run, on a drive of its own.
    fn one(
        &self,
        candidate: &Candidate,
        run: &Run,
        watch: &mut Watch,
    ) -> Result<Prediction, Error> {
        let drive = self.drive(candidate)?;
        let controller = candidate.host.get(&run.path).copied().unwrap_or(0);
        let host = LinkTiming { controller, ..LinkTiming::default() };
        let mut driver = Virtual::new(Link::new(host, drive));
        let shape = driver.drive().shape();
        let mut runner = Runner::new(watch);
        let range = RANGES[usize::from(run.read_percent < 100)];
        self.write_range(range, &mut driver, &shape, &mut runner)?;
        let bs = u64::from(run.bs);
        let order = if run.is_random() { Order::Uniform } else { Order::Sequential };
        let pattern = Pattern { bs, order, ..Pattern::uniform(range, run.read_percent) };
        let mut load = Load::new(&shape, &pattern, Pace::Closed { depth: run.qd }, 1, self.seed)?;
        let requests = Requests::of(run);
        let mut go = |ios, count| {
            let plan = Plan { ramp: 0, until: Until::Ios(ios), count };
            let tally = runner.run(&mut driver, &mut load, plan)?;
            match tally.problem().or_else(|| tally.interrupted.then(|| "it was stopped".into())) {
                Some(what) => Err(Error::Failed(format!("{run}: {what}"))),
                None => Ok(tally),
            }
        };
        go(requests.warm, false)?;
        let tally = go(requests.counted, true)?;
        let [read, write] = [BlockOp::Read, BlockOp::Write].map(|op| figures(&tally, op, run.qd));
        Ok(Prediction { read, write })
    }

    /// A new drive with flash for all that a run writes.
    fn drive(&self, candidate: &Candidate) -> Result<Boxed, Error> {
        let dimensions = &candidate.profile.dimensions;
        let unit = u64::from(dimensions.pages) * u64::from(dimensions.planes);
        let chunk = unit * u64::from(dimensions.page_bytes);
        let units = u64::from(dimensions.groups) * u64::from(dimensions.pus);
        let chunks = HOLDS.div_ceil(chunk * units).max(LEAST_CHUNKS);
        let mut spec = MemorySpec::new(&self.family);
        spec.store = Store::None;
        spec.overrides.clone_from(&candidate.keys);
        spec.set("chunks", &chunks.to_string())?;
        stack::build(&spec.resolve()?, self.seed)
    }

    /// Writes the range once, and lets the drive rest.
    fn write_range(
        &self,
        range: u64,
        driver: &mut dyn Driver,
        shape: &Shape,
        runner: &mut Runner,
    ) -> Result<(), Error> {
        let all = Pattern::precondition(range);
        // Two blocks behind it, with a flush between them.
        let (length, bs, flush_every) = (2 * BLOCK_BYTES, BLOCK_BYTES, 1);
        let last = Pattern { offset: range, length, bs, flush_every, ..all };
        for pattern in [all, last] {
            let depth = DEPTH.min(pattern.blocks() as u32);
            let mut load = Load::new(shape, &pattern, Pace::Closed { depth }, 1, self.seed)?;
            let plan = Plan { ramp: 0, until: Until::Ios(pattern.blocks()), count: false };
            let tally = runner.run(driver, &mut load, plan)?;
            if let Some(what) = tally.problem() {
                return Err(Error::Failed(format!("while the drive was written, {what}")));
            }
        }
        driver.rest();
        Ok(())
    }
}

/// How long a run is.
struct Requests {
    warm: u64,
    counted: u64,
}

impl Requests {
    fn of(run: &Run) -> Requests {
        let (bs, qd) = (u64::from(run.bs), u64::from(run.qd));
        let by_bytes = (COUNTED_BYTES / bs).max(COUNTED.0);
        let most = COUNTED.1.max(COUNTED_TURNS * qd);
        let counted = match run.read_percent {
            100 if qd == 1 => by_bytes.min(COUNTED_ALONE),
            100 => (2 * by_bytes).min(most),
            0 => by_bytes,
            _ => by_bytes.min(most),
        };
        let warm = match run.read_percent {
            100 => WARM_TURNS * qd,
            0 => WARM_BYTES / bs,
            _ => (WARM_BYTES / bs).min(WARM_REQUESTS),
        };
        Requests { warm, counted }
    }
}

/// What a tally tells of one kind of requests. As many are out at any time, so that
/// Little's law gives the rate; by the time until the last of them ended it would be too
/// low, for then fewer and fewer are out.
fn figures(tally: &Tally, op: BlockOp, depth: u32) -> Figures {
    let (latency, all) = (tally.latency(op), tally.all());
    let Some(mean) = all.mean().filter(|mean| latency.count() > 0 && *mean > 0.0) else {
        return Figures::default();
    };
    let share = latency.count() as f64 / all.count() as f64;
    let us = |ns: u64| ns as f64 / 1e3;
    Figures {
        iops: Some(f64::from(depth) * 1e9 / mean * share),
        mean_us: latency.mean().map(|ns| ns / 1e3),
        p50_us: latency.percentile(50.0).map(us),
        p99_us: latency.percentile(99.0).map(us),
    }
}

#[cfg(test)]
mod tests;
