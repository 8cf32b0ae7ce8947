//! Several loads on one drive at the same time.
//!
//! Each is as it would be alone: a closed or an open loop with a tally of its own. At
//! the same moment the first of them asks first. What the drive refuses of one waits
//! in front of it with all that comes after, as there is one line to a drive; a load
//! that has a submission queue with room for all its requests is never refused. Where
//! drive time stands still all come to their end, as none could go on.

use port::{BlockDone, BlockReq, Ring, Time};

use super::{Course, Plan, Runner, Stride, after, look_at_dies};
use crate::bursts::{Bursts, Pauses};
use crate::driver::Driver;
use crate::load::{Load, SLOT_BITS};
use crate::tally::Tally;
use drive::error::Error;

/// One of several loads, and how it runs.
pub struct Part {
    /// The load.
    pub load: Load,
    /// When it counts and ends.
    pub plan: Plan,
    /// How it pauses, in a closed loop.
    pub pauses: Option<Pauses>,
}

/// A load under way.
struct Lane<'a> {
    load: &'a mut Load,
    course: Course,
    bursts: Option<Bursts>,
    tally: Tally,
    is_over: bool,
    /// Completions of all loads until the last of its own.
    seen: u64,
}

impl<'a> Lane<'a> {
    fn new(load: &'a mut Load, plan: Plan, pauses: Option<Pauses>, now: Time) -> Lane<'a> {
        load.begin(now);
        load.beside_others();
        let (course, bursts) = (Course::new(plan, now), pauses.map(|of| Bursts::new(of, now)));
        Lane { load, course, bursts, tally: Tally::new(), is_over: false, seen: 0 }
    }

    /// Begins to count, and asks for what is due.
    fn issue(&mut self, began: Time, now: Time, driver: &dyn Driver) -> Result<(), Error> {
        let Lane { load, course, bursts, tally, .. } = self;
        let was_counting = course.counting;
        course.look(load.next_start(now), tally.written);
        if course.counting && !was_counting && load.is_open() {
            course.start = now.max(after(began, course.plan.ramp));
            load.begin(course.start);
        }
        if course.counting && !tally.counts() && now >= course.start {
            tally.after_ramp = course.plan.after_ramp();
            tally.begin(course.start, driver.counters(), driver.gauges());
            tally.energy.0 = driver.energy(course.start);
        }
        let counted = tally.counts();
        let Some(bursts) = bursts else {
            return load.issue(now, &mut course.left, counted, driver, &mut None);
        };
        let allowed = bursts.allow(now, load.is_idle(), course.left);
        let mut left = allowed;
        load.issue(now, &mut left, counted, driver, &mut None)?;
        bursts.issued(allowed - left);
        course.left -= allowed - left;
        Ok(())
    }

    /// When it goes on without a completion; and whether it has come to its end.
    fn look(&mut self, now: Time) -> Option<Time> {
        let Lane { load, course, bursts, tally, .. } = self;
        let close = course.close(load).filter(|_| !tally.interrupted);
        if load.is_idle() && course.left == 0 && close.is_none_or(|at| now >= at) {
            let cut = (tally.interrupted && load.is_open()).then_some(now);
            tally.end = tally.end.max(close.or(cut).unwrap_or(tally.end));
            tally.end = course.end(tally.end, now, bursts.is_some());
            self.is_over = true;
            return None;
        }
        let arrival = if course.left > 0 { load.next_arrival() } else { close };
        let begin = (!tally.counts() && course.counting).then_some(course.start);
        let pause = bursts.as_ref().and_then(|of| course.wakes(of));
        [arrival, begin, pause].into_iter().flatten().filter(|&at| at > now).min()
    }
}

/// What goes between all lanes and the drive.
struct Line {
    queue: Ring<BlockReq>,
    done: Ring<BlockDone>,
    /// Completions so far.
    completed: u64,
}

impl Line {
    fn new(lanes: &[Lane]) -> Line {
        let slots = lanes.iter().map(|lane| lane.load.slots()).sum();
        Line { queue: Ring::new(slots), done: Ring::new(slots), completed: 0 }
    }

    fn send(&mut self, lane: usize, queue: &mut Ring<BlockReq>) {
        while !queue.is_empty() {
            queue.pop_to(&mut self.queue).id |= (lane as u64) << SLOT_BITS;
        }
    }

    /// Each lane gets its own, with how many of others were before it.
    fn give(&mut self, lanes: &mut [Lane]) {
        for mut done in self.done.drain() {
            let lane = &mut lanes[(done.id >> SLOT_BITS) as usize];
            let others = self.completed - lane.seen;
            self.completed += 1;
            lane.seen = self.completed;
            done.id = done.id & ((1 << SLOT_BITS) - 1) | others << SLOT_BITS;
            lane.load.done.put(|| done);
        }
    }
}

impl Runner<'_> {
    /// Runs `loads` at the same time, each by `plan`. Gives the tally of each. Nobody
    /// verifies or traces.
    pub fn run_together(
        &mut self,
        driver: &mut dyn Driver,
        loads: &mut [Load],
        plan: Plan,
    ) -> Result<Vec<Tally>, Error> {
        let now = driver.now();
        let lanes = loads.iter_mut().map(|load| Lane::new(load, plan, None, now)).collect();
        self.run_lanes(driver, lanes)
    }

    /// The same, each by a plan of its own.
    pub fn run_parts(
        &mut self,
        driver: &mut dyn Driver,
        parts: &mut [Part],
    ) -> Result<Vec<Tally>, Error> {
        let now = driver.now();
        let lanes = parts.iter_mut();
        let lanes =
            lanes.map(|Part { load, plan, pauses }| Lane::new(load, *plan, *pauses, now)).collect();
        self.run_lanes(driver, lanes)
    }

    fn run_lanes(
        &mut self,
        driver: &mut dyn Driver,
        mut lanes: Vec<Lane>,
    ) -> Result<Vec<Tally>, Error> {
        let (began, mut now, is_late) = (driver.now(), driver.now(), driver.is_real());
        if self.slowest > 0 {
            lanes.iter_mut().for_each(|lane| self.keep(&mut lane.tally));
            driver.set_stories(true);
        }
        if self.asks_dies() {
            driver.set_die_clocks(true);
        }
        let mut line = Line::new(&lanes);
        if driver.takes_hints() {
            lanes.iter_mut().for_each(|lane| lane.load.look_ahead());
        }
        let (mut turns, mut stride) = (0u32, Stride::new(driver.patience()));
        let most = lanes.iter().map(|lane| lane.load.bs()).max().unwrap_or(0);
        let (mut timer, mut is_counting) = (self.timer(line.queue.capacity(), most), false);
        loop {
            for (n, lane) in lanes.iter_mut().enumerate() {
                let counted = lane.tally.counts();
                lane.issue(began, now, driver)?;
                let begins = lane.tally.counts() && !counted;
                if begins && !is_counting {
                    timer.restart();
                    is_counting = true;
                }
                // The first load has the dies of all.
                if begins && n == 0 {
                    self.begin_charts(&mut lane.tally, now, driver);
                    // A row has requests of all of them.
                    lane.tally.tails = None;
                }
                line.send(n, &mut lane.load.queue);
            }
            let next = lanes.iter_mut().filter_map(|lane| lane.look(now)).min();
            if lanes.iter().all(|lane| lane.is_over) {
                break;
            }
            let before = now;
            timer.turns();
            now = driver.turn(next, &mut line.queue, &mut line.done)?;
            timer.turned(1);
            line.give(&mut lanes);
            // Where one's requests take no time that of none goes on.
            let of = |lanes: &[Lane]| lanes.iter().map(|lane| lane.load.ended()).sum::<u64>();
            let ended = if now == before { of(&lanes) } else { 0 };
            for lane in &mut lanes {
                lane.course.ended(before, now, || ended);
                lane.load.complete(now, is_late, &mut lane.tally, driver, &mut None)?;
            }
            look_at_dies(&mut lanes[0].tally, now, driver);
            turns += 1;
            if turns >= stride.turns {
                turns = 0;
                stride.look();
                self.look_at_all(&mut lanes, now);
            }
        }
        // The first load has that, too.
        lanes[0].tally.own = timer.own();
        self.end_dies(&mut lanes[0].tally, driver);
        if self.slowest > 0 {
            driver.set_stories(false);
        }
        let end = |lane: Lane| {
            let mut tally = lane.tally;
            tally.stood = lane.course.stood;
            tally.energy.1 = driver.energy(tally.end);
            tally.finish(driver.counters(), driver.gauges());
            tally
        };
        Ok(lanes.into_iter().map(end).collect())
    }

    /// Looks whether somebody stops the run.
    fn look_at_all(&mut self, lanes: &mut [Lane], now: Time) {
        let part = lanes[0].course.part(now, lanes[0].tally.written);
        if !self.watch.look(part) {
            for lane in lanes {
                (lane.tally.interrupted, lane.course.left) = (true, 0);
            }
        }
    }
}
