//! The runner: preconditions a drive, brings it to its steady state, runs a
//! load, and checks what was written.
//!
//! A run ends by itself, when somebody stops it, or when its time on the wall
//! is over; it always waits for what is out. Requests that a run began all
//! end in it, so its seconds reach to the last completion.
//!
//! Time that does not pass: a drive without time (profile `null`, or reads of
//! blocks never written) would never reach an end in drive time. As long as
//! drive time stands still, time on the wall counts in its place.

use std::time::Instant;

use measure::{Round, Steady, SteadyState, Verdict};
use port::{BLOCK_BYTES, Shape, Time};
use workload::{Order, Pattern};

use crate::driver::Driver;
use crate::error::Error;
use crate::load::{Load, Pace};
use crate::tally::Tally;
use crate::verify::Verifier;
use crate::watch::Watch;

/// The least drive time of a round.
const ROUND_NS: u64 = 60_000_000_000;
/// Requests out while preconditioning.
pub const DEPTH: u32 = 32;

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After so many requests.
    Ios(u64),
    /// After so much drive time, in ns.
    Time(u64),
    /// After so much drive time, in ns, and so many bytes written.
    Both(u64, u64),
}

/// What a run does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Drive time before counting begins, in ns.
    pub ramp: u64,
    /// When it ends, from the beginning of counting.
    pub until: Until,
    /// Whether latencies are counted.
    pub count: bool,
}

/// A drive under a load, with all that lasts over several runs.
pub struct Runner<'a> {
    /// Who watches.
    pub watch: &'a mut Watch,
    /// Who verifies.
    pub verifier: Option<Verifier>,
}

/// What a run is at.
struct Course {
    plan: Plan,
    began: Instant,
    start: Time,
    /// When counting began, or the run.
    counting: bool,
    /// Requests that may still be issued.
    left: u64,
}

impl Course {
    fn new(plan: Plan, now: Time) -> Course {
        let mut course =
            Course { plan, began: Instant::now(), start: now, counting: false, left: u64::MAX };
        if plan.ramp == 0 {
            course.count(now);
        }
        course
    }

    /// The ramp is over.
    fn count(&mut self, now: Time) {
        self.counting = true;
        self.start = now;
        self.began = Instant::now();
        if let Until::Ios(ios) = self.plan.until {
            self.left = ios;
        }
    }

    /// Looks at the time, and at what was written. In an open loop `now` is
    /// the next arrival: all that were to come before the end do come.
    #[inline]
    fn look(&mut self, now: Time, written: u64) {
        let passed = now.since(self.start);
        if !self.counting {
            if passed >= self.plan.ramp {
                self.count(now);
            }
            return;
        }
        match self.plan.until {
            Until::Ios(_) => {}
            Until::Time(ns) if passed < ns => {}
            Until::Both(ns, bytes) if passed < ns || written < bytes => {}
            _ => self.left = 0,
        }
    }

    /// While drive time stands still, time on the wall counts.
    fn look_at_wall(&mut self, now: Time, written: u64) {
        let wall = self.began.elapsed().as_nanos() as u64;
        if now != self.start {
            return;
        }
        match self.plan.until {
            _ if !self.counting && wall >= self.plan.ramp => self.count(now),
            _ if !self.counting => {}
            Until::Time(ns) if wall >= ns => self.left = 0,
            Until::Both(_, bytes) if written >= bytes => self.left = 0,
            _ => {}
        }
    }

    /// How much of the run is done, 0 to 1.
    fn part(&self, now: Time, written: u64) -> f64 {
        let passed = now.since(self.start).max(if now == self.start {
            self.began.elapsed().as_nanos() as u64
        } else {
            0
        });
        let of = |done: u64, all: u64| done as f64 / all.max(1) as f64;
        match self.plan.until {
            _ if !self.counting => 0.0,
            Until::Ios(ios) => of(ios - self.left.min(ios), ios),
            Until::Time(ns) => of(passed, ns),
            Until::Both(ns, bytes) => of(passed, ns).min(of(written, bytes)),
        }
    }
}

impl Runner<'_> {
    /// Runs `load` by `plan`.
    pub fn run<D: Driver>(
        &mut self,
        driver: &mut D,
        load: &mut Load,
        plan: Plan,
    ) -> Result<Tally, Error> {
        let mut tally = Tally::new();
        let mut now = driver.now();
        let mut course = Course::new(plan, now);
        let mut turns = 0u32;
        load.begin(now);
        if let Some(verifier) = &mut self.verifier {
            verifier.begin(load.slots(), load.bs());
        }
        loop {
            course.look(load.next_start(now), tally.written);
            if course.counting && plan.count && !tally.counts() {
                tally.begin(now, driver.counters(), driver.gauges());
            }
            let counted = tally.counts();
            load.issue(now, &mut course.left, counted, driver, &mut self.verifier)?;
            if load.is_idle() && course.left == 0 {
                break;
            }
            let arrival = if course.left > 0 { load.next_arrival() } else { None };
            // One that is due and could not be made waits for a completion.
            let arrival = arrival.filter(|&at| at > now);
            now = driver.turn(arrival, &mut load.queue, &mut load.done)?;
            load.complete(now, &mut tally, driver, &mut self.verifier);
            turns += 1;
            if turns >= driver.patience() {
                turns = 0;
                course.look_at_wall(now, tally.written);
                if !self.watch.look(course.part(now, tally.written)) {
                    (tally.interrupted, course.left) = (true, 0);
                }
            }
        }
        if !plan.count {
            tally.end = now;
        }
        tally.finish(driver.counters(), driver.gauges());
        Ok(tally)
    }

    /// Runs `pattern` once over its range, in order.
    fn pass<D: Driver>(
        &mut self,
        driver: &mut D,
        shape: &Shape,
        pattern: &Pattern,
        times: u64,
        seed: u64,
    ) -> Result<Tally, Error> {
        let depth = DEPTH.min(pattern.blocks().min(u64::from(u32::MAX)) as u32).max(1);
        let mut load = Load::new(shape, pattern, Pace::Closed { depth }, 1, seed)?;
        let plan = Plan { ramp: 0, until: Until::Ios(times * pattern.blocks()), count: false };
        let tally = self.run(driver, &mut load, plan)?;
        match (&tally.first_error, tally.interrupted) {
            (_, true) => Err(Error::Failed("stopped before anything was measured".into())),
            (Some(first), _) => {
                Err(Error::Failed(format!("{} requests failed, first: {first}", tally.errors)))
            }
            _ => Ok(tally),
        }
    }

    /// Writes the drive twice over with 128 KiB sequential writes; what is
    /// left at its end with smaller ones. Then waits until the drive rests.
    pub fn precondition<D: Driver>(
        &mut self,
        driver: &mut D,
        shape: &Shape,
        seed: u64,
    ) -> Result<(), Error> {
        self.watch.phase("writing the drive twice over");
        let pattern = Pattern::precondition(shape.bytes);
        if pattern.blocks() > 0 {
            self.pass(driver, shape, &pattern, 2, seed)?;
        }
        let offset = pattern.blocks() * pattern.bs;
        if offset < shape.bytes {
            let (length, bs) = (shape.bytes - offset, BLOCK_BYTES);
            let rest = Pattern { offset, length, bs, order: Order::Sequential, ..pattern };
            self.pass(driver, shape, &rest, 2, seed)?;
        }
        driver.rest();
        Ok(())
    }

    /// Runs `load` in rounds until it is steady. A round is the longer of
    /// 60 s of drive time and one overwrite of the drive.
    pub fn settle<D: Driver>(
        &mut self,
        driver: &mut D,
        shape: &Shape,
        load: &mut Load,
    ) -> Result<SteadyState, Error> {
        let mut steady = Steady::new();
        loop {
            self.watch.phase(&format!("until steady, round {}", steady.rounds() + 1));
            let (start, before) = (driver.now(), driver.counters());
            let plan = Plan { ramp: 0, until: Until::Both(ROUND_NS, shape.bytes), count: false };
            let tally = self.run(driver, load, plan)?;
            if tally.interrupted {
                return Err(Error::Failed("stopped before anything was measured".into()));
            }
            let ns = driver.now().since(start);
            // Bytes written are a fixed share of all requests. Without time
            // there is no rate, and only write amplification can settle.
            let value = if ns == 0 { 1.0 } else { tally.written as f64 * 1e9 / ns as f64 };
            let after = driver.counters();
            let user = after.user - before.user;
            let extra = |c: &targets::WriteCounters| c.gc + c.padding + c.metadata;
            let wasted = extra(&after) - extra(&before);
            let round = Round {
                value,
                write_amplification: (user > 0).then(|| 1.0 + wasted as f64 / user as f64),
                overwrites: tally.written as f64 / shape.bytes as f64,
            };
            let verdict = steady.push(round);
            if verdict != Verdict::Continue {
                let (reached, rounds) = (verdict == Verdict::Reached, steady.rounds());
                return Ok(SteadyState { reached, rounds });
            }
        }
    }

    /// Reads all of `pattern`'s range back and checks it.
    pub fn read_back<D: Driver>(
        &mut self,
        driver: &mut D,
        shape: &Shape,
        pattern: &Pattern,
        seed: u64,
    ) -> Result<Tally, Error> {
        self.watch.phase("reading back");
        let order = Order::Sequential;
        let (read_percent, trim_percent, fua_every, flush_every) = (100, 0, 0, 0);
        let reads =
            Pattern { order, read_percent, trim_percent, fua_every, flush_every, ..*pattern };
        let depth = DEPTH;
        let mut load = Load::new(shape, &reads, Pace::Closed { depth }, 1, seed)?;
        let plan = Plan { ramp: 0, until: Until::Ios(reads.blocks()), count: false };
        self.run(driver, &mut load, plan)
    }
}
