//! The runner: preconditions a drive, brings it to its steady state, runs a
//! load, and checks what was written.
//!
//! A run ends by itself, or when somebody stops it. Requests that a run began all end in it, so its seconds reach to the
//! last completion; only of one that was stopped, on a clock that is not ours,
//! are those left inside that take longer than a moment.
//!
//! Time that does not pass: a drive without time (profile `null`, or reads of
//! blocks never written) would never reach an end in drive time. So where
//! requests of [`STILL_BYTES`] end one after the other and drive time stands
//! still, what was to last so long (a ramp, a run) is over. The clock on the wall
//! decides nothing but when to look whether somebody stops it.

use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use measure::{Dies, Round, Steady, SteadyState, Verdict};
use port::{BLOCK_BYTES, SECTOR_BYTES, Shape, Time};
use workload::{Order, Pattern};

use crate::blocks::Tracing;
use crate::bursts::{Bursts, Pauses};
use crate::driver::Driver;
use crate::load::{Load, Pace};
use crate::own::Timer;
use crate::tails::Tails;
use crate::tally::Tally;
use crate::verify::Verifier;
use crate::watch::Watch;
use drive::error::Error;
use measure::causes::Causes;
use measure::slowest::Slowest;

/// How long a run goes on without a look at the wall, about.
const LOOK_EVERY: Duration = Duration::from_millis(8);
/// How long requests that are out are waited for when a run was stopped.
const GRACE: Duration = Duration::from_millis(300);
/// So long before something is due nobody sleeps: who sleeps may wake late.
const EARLY: Duration = Duration::from_millis(1);
/// Requests of so many bytes that end at the same drive time end what was to last
/// for a time: more than the write buffer of any drive takes at once.
pub const STILL_BYTES: u64 = 1 << 30;
/// Requests out while preconditioning.
pub const DEPTH: u32 = 32;

/// A drive under a load, with all that lasts over several runs.
pub struct Runner<'a> {
    /// Who watches.
    pub watch: &'a mut Watch,
    /// Who verifies.
    pub verifier: Option<Verifier>,
    /// A trace that begins when counting does.
    pub tracing: Option<Tracing>,
    /// How many of the slowest requests to keep of a run that counts, with where
    /// their time went.
    pub slowest: usize,
    /// Whether to keep where the time of all of them went, too.
    pub explains: bool,
    /// Whether to keep of a run that counts what changes over it: where the slowest are
    /// kept, where the time of the slowest of each row went; where dies tell, how busy
    /// they are.
    pub charts: bool,
    /// Whether dies tell also where no request does.
    pub die_clocks: bool,
    /// How a run that counts pauses, in a closed loop.
    pub pauses: Option<Pauses>,
}

impl<'a> Runner<'a> {
    /// One that does not verify, traces nothing, and keeps no request.
    pub fn new(watch: &'a mut Watch) -> Runner<'a> {
        let (verifier, tracing, pauses) = (None, None, None);
        let (explains, charts, die_clocks) = (false, false, false);
        Runner { watch, verifier, tracing, slowest: 0, explains, charts, die_clocks, pauses }
    }
}

/// What a run is at.
struct Course {
    plan: Plan,
    start: Time,
    /// When counting began, or the run.
    counting: bool,
    /// Requests that may still be issued.
    left: u64,
    /// Bytes of requests that have ended since drive time moved.
    still: u64,
    /// Whether it ended since drive time stands still.
    stood: bool,
}

impl Course {
    /// Of a run that begins now.
    fn new(plan: Plan, now: Time) -> Course {
        let (counting, left, still, stood) = (false, u64::MAX, 0, false);
        let mut course = Course { plan, start: now, counting, left, still, stood };
        if plan.ramp == 0 {
            course.count(now);
        }
        course
    }

    /// The ramp is over.
    fn count(&mut self, now: Time) {
        self.counting = true;
        (self.start, self.still) = (now, 0);
        if let Until::Ios(ios) | Until::Either(ios, _) = self.plan.until {
            self.left = ios;
        }
    }

    /// Requests of so many bytes ended in a turn from `before` until `now`.
    #[inline]
    fn ended(&mut self, before: Time, now: Time, bytes: impl FnOnce() -> u64) {
        self.still = if now == before { self.still + bytes() } else { 0 };
    }

    /// Looks at the time, and at what was written. In an open loop `now` is
    /// the next arrival: all that were to come before the end do come.
    #[inline]
    fn look(&mut self, now: Time, written: u64) {
        let passed = now.since(self.start);
        let stands = self.still >= STILL_BYTES;
        if !self.counting {
            if passed >= self.plan.ramp || stands {
                self.count(now);
            }
            return;
        }
        match self.plan.until {
            Until::Ios(_) => {}
            Until::Time(ns) | Until::Either(_, ns) if passed < ns && !stands => {}
            Until::Time(ns) | Until::Either(_, ns) => {
                self.stood |= passed < ns && self.left > 0;
                self.left = 0;
            }
            Until::Both(ns, bytes) if (passed < ns && !stands) || written < bytes => {}
            _ => self.left = 0,
        }
    }

    /// When an open loop that counts ends, at the earliest; `None` while it goes
    /// on, and of another: its time is what it was given, and so many arrivals
    /// take as many distances between them. Where drive time stands still it waits for
    /// none.
    fn close(&self, load: &Load) -> Option<Time> {
        let following = load.following()?;
        if !self.plan.count || self.left > 0 || self.stood {
            return None;
        }
        Some(match self.plan.until {
            Until::Time(ns) => after(self.start, ns),
            Until::Either(_, ns) => following.min(after(self.start, ns)),
            _ => following,
        })
    }

    /// When its time is over, of a run that counts and has one.
    fn over(&self) -> Option<Time> {
        match self.plan.until {
            Until::Time(ns) | Until::Either(_, ns) if self.counting && self.plan.count => {
                Some(after(self.start, ns))
            }
            _ => None,
        }
    }

    /// When a run that pauses goes on: after its pause, or where its time is over in it.
    fn wakes(&self, bursts: &Bursts) -> Option<Time> {
        let next = bursts.next()?;
        Some(self.over().filter(|_| self.left > 0).map_or(next, |over| over.min(next)))
    }

    /// When a run ended that is over `now`: one that pauses had all of its time, of which
    /// the last pause is a part.
    fn end(&self, end: Time, now: Time, pauses: bool) -> Time {
        end.max(self.over().filter(|&over| pauses && over <= now).unwrap_or(end))
    }

    /// How much of the run is done, 0 to 1.
    fn part(&self, now: Time, written: u64) -> f64 {
        let passed = now.since(self.start);
        let of = |done: u64, all: u64| done as f64 / all.max(1) as f64;
        match self.plan.until {
            _ if !self.counting => 0.0,
            Until::Ios(ios) => of(ios - self.left.min(ios), ios),
            Until::Time(ns) => of(passed, ns),
            Until::Either(ios, ns) => of(ios - self.left.min(ios), ios).max(of(passed, ns)),
            Until::Both(ns, bytes) => of(passed, ns).min(of(written, bytes)),
        }
    }
}

/// So many ns later, or the end of all time.
fn after(start: Time, ns: u64) -> Time {
    Time(start.0.saturating_add(ns))
}

/// Turns between two looks at the wall: so many that looking costs nothing, and
/// so few that a run ends when it is to, however long its turns take.
struct Stride {
    turns: u32,
    most: u32,
    looked: Instant,
}

impl Stride {
    /// Between looks are `most` turns at most. The first is after one, which may
    /// have slept.
    fn new(most: u32) -> Stride {
        Stride { turns: 1, most, looked: Instant::now() }
    }

    fn look(&mut self) {
        let took = std::mem::replace(&mut self.looked, Instant::now()).elapsed();
        if took > LOOK_EVERY {
            self.turns = (self.turns / 4).max(1);
        } else if took < LOOK_EVERY / 4 {
            self.turns = (self.turns * 2).min(self.most);
        }
    }
}

/// On the clock and with nothing out, sleeps until shortly before `until`: who looks at the
/// clock all the time has a core for it. Not for longer than until somebody looks whether to
/// go on. Whether it slept.
fn nap(now: Time, until: Option<Time>) -> bool {
    let left = until.map_or(0, |at| at.0.saturating_sub(now.0));
    let nap = Duration::from_nanos(left).saturating_sub(EARLY).min(LOOK_EVERY);
    (!nap.is_zero()).then(|| thread::sleep(nap)).is_some()
}

/// Looks how long dies worked, where that is told and due.
#[inline]
fn look_at_dies(tally: &mut Tally, now: Time, driver: &dyn Driver) {
    if let Some(dies) = tally.dies.as_mut().filter(|dies| dies.is_due(now.0)) {
        dies.look(now.0, driver.dies_worked(now));
    }
}

impl Runner<'_> {
    /// Issues what the burst still has, at most `left`. Gives how many.
    #[inline(never)]
    fn issue_of(
        &mut self,
        bursts: &mut Bursts,
        now: Time,
        (left, counted): (u64, bool),
        driver: &dyn Driver,
        load: &mut Load,
    ) -> Result<u64, Error> {
        let allowed = bursts.allow(now, load.is_idle(), left);
        let mut left = allowed;
        load.issue(now, &mut left, counted, driver, &mut self.verifier)?;
        bursts.issued(allowed - left);
        Ok(allowed - left)
    }

    /// A tally is to keep the slowest requests, and where the time of all went.
    fn keep(&self, tally: &mut Tally) {
        tally.slowest = Some(Slowest::new(self.slowest));
        tally.causes = self.explains.then(Causes::new);
    }

    /// Whether dies are to tell how long they work.
    fn asks_dies(&self) -> bool {
        self.die_clocks || (self.charts && self.slowest > 0)
    }

    /// Begins to keep what changes over a run that begins to count.
    fn begin_charts(&self, tally: &mut Tally, now: Time, driver: &dyn Driver) {
        if !self.charts {
            return;
        }
        tally.tails = tally.slowest.is_some().then(|| Tails::new(tally.start));
        let worked = driver.dies_worked(now);
        tally.dies = (!worked.is_empty()).then(|| Dies::new(now.0, worked));
    }

    /// A timer of what is not the drive's, of loads of so many requests of at most `bs`
    /// bytes, of which it looks at each where it verifies.
    fn timer(&self, slots: usize, bs: u64) -> Timer {
        Timer::new(slots, if self.verifier.is_some() { bs } else { 0 })
    }

    /// Looks at dies for the last time.
    fn end_dies(&self, tally: &mut Tally, driver: &mut dyn Driver) {
        if let Some(dies) = &mut tally.dies {
            dies.finish(driver.now().0, driver.dies_worked(driver.now()));
        }
        if self.asks_dies() {
            driver.set_die_clocks(false);
        }
    }

    /// Runs `load` by `plan`.
    pub fn run(
        &mut self,
        driver: &mut dyn Driver,
        load: &mut Load,
        plan: Plan,
    ) -> Result<Tally, Error> {
        let mut tally = Tally::new();
        if plan.count && self.slowest > 0 {
            self.keep(&mut tally);
            driver.set_stories(true);
        }
        if plan.count && self.asks_dies() {
            driver.set_die_clocks(true);
        }
        let began = driver.now();
        let (mut now, mut course) = (began, Course::new(plan, began));
        let (mut turns, mut stride) = (0u32, Stride::new(driver.patience()));
        let (is_late, mut stopped) = (driver.is_real(), None);
        let mut bursts = self.pauses.filter(|_| plan.count).map(|of| Bursts::new(of, began));
        load.begin(began);
        if driver.takes_hints() {
            load.look_ahead();
        }
        let is_plain = load.is_plain() && self.verifier.is_none() && bursts.is_none();
        let is_plain = is_plain && !is_late;
        let mut timer = self.timer(load.slots(), load.bs());
        if let Some(verifier) = &mut self.verifier {
            verifier.begin(load.slots(), load.bs());
        }
        loop {
            let was_counting = course.counting;
            course.look(load.next_start(now), tally.written);
            if course.counting && !was_counting && load.is_open() {
                // Behind its arrivals an overloaded drive is still at those of the ramp.
                course.start = now.max(after(began, plan.ramp));
                load.begin(course.start);
            }
            if course.counting && plan.count && !tally.counts() && now >= course.start {
                tally.after_ramp = plan.after_ramp();
                timer.restart();
                tally.begin(course.start, driver.counters(), driver.gauges());
                tally.energy.0 = driver.energy(course.start);
                self.begin_charts(&mut tally, now, driver);
                bursts.as_mut().into_iter().for_each(|bursts| bursts.count(now));
                if let Some(tracing) = &mut self.tracing {
                    tracing.begin(now)?;
                }
            }
            let counted = tally.counts();
            match &mut bursts {
                None => load.issue(now, &mut course.left, counted, driver, &mut self.verifier)?,
                Some(bursts) => {
                    let left = course.left;
                    course.left -= self.issue_of(bursts, now, (left, counted), driver, load)?;
                }
            }
            let close = course.close(load).filter(|_| !tally.interrupted);
            if load.is_idle() && course.left == 0 && close.is_none_or(|at| now >= at) {
                // One that was stopped had all of the time until then.
                let cut = (tally.interrupted && load.is_open()).then_some(now);
                tally.end = tally.end.max(close.or(cut).unwrap_or(tally.end));
                tally.end = course.end(tally.end, now, bursts.is_some());
                break;
            }
            let arrival = if course.left > 0 { load.next_arrival() } else { close };
            let arrival = arrival.or_else(|| bursts.as_ref().and_then(|of| course.wakes(of)));
            let begin = (!tally.counts() && course.counting).then_some(course.start);
            // One that is due and could not be made waits for a completion.
            let later = |at: Option<Time>| at.filter(|&at| at > now);
            let arrival = match (later(arrival), later(begin)) {
                (Some(arrival), Some(begin)) => Some(arrival.min(begin)),
                (arrival, begin) => arrival.or(begin),
            };
            let mut before = now;
            // What comes next of a trace may be due before anything else.
            let is_reading = course.left > 0 && load.is_reading();
            timer.turns();
            let napped = is_late && !is_reading && load.is_idle() && nap(now, arrival);
            let turned = match is_reading {
                true => Ok(now),
                false if is_plain && counted && course.left > 0 => {
                    let most = stride.turns - turns;
                    let counts = (&mut tally, &mut timer);
                    plain_turns(driver, load, &mut course, counts, (&mut before, most)).map(
                        |(now, passed)| {
                            turns += passed;
                            now
                        },
                    )
                }
                false => driver.turn(arrival, &mut load.queue, &mut load.done),
            };
            now = match turned {
                Ok(now) => now,
                Err(e) if driver.is_lost() && tally.has_some() => {
                    (tally.lost, tally.left) = (Some(e.to_string()), load.out() as u64);
                    break;
                }
                Err(e) => return Err(e),
            };
            timer.turned(1);
            course.ended(before, now, || load.ended());
            load.complete(now, is_late, &mut tally, driver, &mut self.verifier)?;
            look_at_dies(&mut tally, now, driver);
            if !plan.count && tally.errors() > 0 {
                // A drive that cannot be prepared is not asked again: one that
                // writes no more would never reach its end.
                course.left = 0;
            }
            turns += 1;
            let is_time = napped || turns >= stride.turns;
            if is_time {
                turns = 0;
                stride.look();
            }
            if is_time || is_reading {
                let part = load.progress().unwrap_or_else(|| course.part(now, tally.written));
                if !self.watch.look(part) {
                    (tally.interrupted, course.left) = (true, 0);
                    let since = stopped.get_or_insert_with(Instant::now).elapsed();
                    if driver.may_leave() && since > GRACE {
                        // They took all of the time that they had.
                        (tally.left, tally.end) = (load.out() as u64, now);
                        break;
                    }
                }
            }
        }
        if !plan.count {
            tally.end = now;
        }
        (tally.stood, tally.own) = (course.stood, timer.own());
        if let Some(mut bursts) = bursts {
            bursts.finish(now);
            tally.bursts = bursts.ended;
        }
        if tally.counts() {
            tally.energy.1 = driver.energy(tally.end);
        }
        self.end_dies(&mut tally, driver);
        if tally.slowest.is_some() {
            driver.set_stories(false);
        }
        tally.finish(driver.counters(), driver.gauges());
        Ok(tally)
    }

    /// Runs `pattern` once over its range, in order.
    fn pass(
        &mut self,
        driver: &mut dyn Driver,
        shape: &Shape,
        pattern: &Pattern,
        times: u64,
        seed: u64,
    ) -> Result<Tally, Error> {
        let depth = DEPTH.min(pattern.blocks().min(u64::from(u32::MAX)) as u32).max(1);
        let mut load = Load::new(shape, pattern, Pace::Closed { depth }, 1, seed)?;
        let plan = Plan { ramp: 0, until: Until::Ios(times * pattern.blocks()), count: false };
        let tally = self.run(driver, &mut load, plan)?;
        unharmed(tally, |tally| {
            let part = tally.written as f64 / (pattern.length * times) as f64;
            format!("while it was written over, which was {:.0} % done", 100.0 * part)
        })
    }

    /// Writes the drive twice over, as [`Runner::write_over`] does.
    pub fn precondition(
        &mut self,
        driver: &mut dyn Driver,
        shape: &Shape,
        seed: u64,
    ) -> Result<(), Error> {
        self.write_over(driver, shape, 0..shape.bytes, seed)
    }

    /// Writes these addresses twice over with 128 KiB sequential writes; what is
    /// left at their end with smaller ones, and nothing beyond it. Then waits until the
    /// drive rests.
    pub fn write_over(
        &mut self,
        driver: &mut dyn Driver,
        shape: &Shape,
        range: Range<u64>,
        seed: u64,
    ) -> Result<(), Error> {
        self.watch.phase("writing twice over");
        let mut offset = range.start;
        for bs in [Pattern::precondition(0).bs, BLOCK_BYTES, SECTOR_BYTES] {
            let length = (range.end - offset) / bs * bs;
            if length > 0 {
                let part = Pattern { offset, bs, ..Pattern::precondition(length) };
                self.pass(driver, shape, &part, 2, seed)?;
                offset += length;
            }
        }
        driver.rest();
        Ok(())
    }

    /// Runs `load` in rounds until it is steady. A round is the longer of its
    /// drive time and one overwrite of the drive. Fails when a request does.
    pub fn settle(
        &mut self,
        driver: &mut dyn Driver,
        shape: &Shape,
        load: &mut Load,
        rounds: Rounds,
    ) -> Result<SteadyState, Error> {
        let mut steady = Steady::new(rounds.window);
        loop {
            let (n, least) = (steady.rounds() + 1, rounds.window);
            self.watch.phase(&format!("until steady, round {n} of at least {least}"));
            let (start, before) = (driver.now(), driver.counters());
            let plan = Plan { ramp: 0, until: Until::Both(rounds.ns, shape.bytes), count: false };
            let tally = self.run(driver, load, plan)?;
            let is_over = self.watch.is_over();
            let tally = unharmed(tally, |_| reached(&steady, rounds, is_over))?;
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
                let reached = verdict == Verdict::Reached;
                let Rounds { window, ns } = rounds;
                return Ok(SteadyState::new(reached, steady.rounds(), window, ns));
            }
        }
    }

    /// Reads all of `pattern`'s range back and checks it.
    pub fn read_back(
        &mut self,
        driver: &mut dyn Driver,
        shape: &Shape,
        pattern: &Pattern,
        seed: u64,
    ) -> Result<Tally, Error> {
        self.watch.phase("reading back");
        let order = Order::Sequential;
        let (read_percent, trim_percent, fua_every, flush_every) = (100, 0, 0, 0);
        let reads =
            Pattern { order, read_percent, trim_percent, fua_every, flush_every, ..*pattern };
        let reads = Pattern { varied: None, ..reads };
        let depth = DEPTH;
        let mut load = Load::new(shape, &reads, Pace::Closed { depth }, 1, seed)?;
        let plan = Plan { ramp: 0, until: Until::Ios(reads.blocks()), count: false };
        self.run(driver, &mut load, plan)
    }
}

/// A tally of preconditioning. Fails when a request failed or gave wrong data,
/// and when somebody stopped it: `at` says where that was.
fn unharmed(tally: Tally, at: impl FnOnce(&Tally) -> String) -> Result<Tally, Error> {
    let problem = tally.problem().map(|what| format!("while preconditioning, {what}"));
    let stopped = || {
        let at = at(&tally);
        format!("stopped before anything was measured: the drive was being preconditioned, {at}")
    };
    match problem.or_else(|| tally.interrupted.then(stopped)) {
        Some(what) => Err(Error::Failed(what)),
        None => Ok(tally),
    }
}

mod plain;
mod plan;
mod together;

use plain::plain_turns;
use plan::reached;
pub use plan::{Plan, Rounds, Until, joined, used_of};
pub use together::Part;

#[cfg(test)]
mod tests;
