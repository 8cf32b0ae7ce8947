//! A block layer on the processor's clock: a thread for each core.
//!
//! The first core is the calling thread. All begin at once and end on their
//! own; each has its own load and tally, and the tallies are merged. Fails
//! when a core cannot be pinned or a thread not started; when one core fails
//! the others still end their part.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::thread;

use blkmq::{Context, HardwareQueue};
use device::realtime::{Clock, pin};
use port::{Port, Ring};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::clocked::{Clocked, Ways};
use crate::load::Load;
use crate::runner::{Plan, Runner, Until};
use crate::tally::Tally;
use drive::error::Error;

/// What all cores do.
pub struct Course {
    /// The clock of the requests' times.
    pub clock: Clock,
    /// How they wait.
    pub ways: Ways,
    /// Ends of all together.
    pub plan: Plan,
    /// Whether each has a processor of its own.
    pub pin: bool,
    /// Where each polls what the others need.
    pub company: Option<Company>,
}

/// Cores that need each other: who has ended goes on looking until all have.
#[derive(Debug)]
pub struct Company {
    running: AtomicUsize,
    /// One of them went away.
    broken: Arc<AtomicBool>,
}

impl Company {
    /// So many cores. `broken` is set when one goes away.
    pub fn new(cores: usize, broken: Arc<AtomicBool>) -> Company {
        Company { running: AtomicUsize::new(cores), broken }
    }
}

/// A core's part in a company. One that does not [`Member::stay`] is missed.
struct Member<'a>(Option<&'a Company>);

impl Member<'_> {
    /// Goes on with `look` until all have ended, or one went away.
    fn stay(mut self, mut look: impl FnMut()) {
        let Some(Company { running, broken }) = self.0.take() else { return };
        running.fetch_sub(1, Ordering::AcqRel);
        while running.load(Ordering::Acquire) > 0 && !broken.load(Ordering::Relaxed) {
            look();
        }
    }
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        if let Some(company) = self.0 {
            company.broken.store(true, Ordering::Relaxed);
        }
    }
}

/// Cores that were started wait here.
const WAIT: u8 = 0;
const GO: u8 = 1;
const STOP: u8 = 2;

/// Runs a load on each context, `runner` that of the first. Gives all
/// tallies, in the order of the cores.
pub fn run<Q>(
    contexts: &mut [Context<Q>],
    loads: &mut [Load],
    runner: &mut Runner,
    course: &Course,
) -> Result<Vec<Tally>, Error>
where
    Q: HardwareQueue + Send,
{
    let cores = contexts.len();
    let _back = Affinity::keep();
    let gate = AtomicU8::new(WAIT);
    let helpers: Vec<_> = (1..cores).map(|_| runner.watch.helper()).collect();
    let mut pairs = contexts.iter_mut().zip(loads.iter_mut()).enumerate();
    let Some((_, (first, first_load))) = pairs.next() else { return Ok(Vec::new()) };
    thread::scope(|scope| {
        let mut threads = Vec::new();
        let mut refused = None;
        for ((core, (context, load)), mut watch) in pairs.zip(helpers) {
            let (gate, member) = (&gate, Member(course.company.as_ref()));
            let work = move || {
                let pinned = pinned(core, course.pin);
                while gate.load(Ordering::Acquire) == WAIT {
                    thread::yield_now();
                }
                pinned?;
                if gate.load(Ordering::Acquire) == STOP {
                    return Ok(Tally::new());
                }
                let mut runner = Runner::new(&mut watch);
                one(context, load, &mut runner, course, (core, cores), member)
            };
            let name = format!("core {core}");
            match thread::Builder::new().name(name).spawn_scoped(scope, work) {
                Ok(thread) => threads.push(thread),
                Err(e) => refused = Some(Error::Failed(format!("no thread for core {core}: {e}"))),
            }
        }
        let ready = pinned(0, course.pin).and(refused.map_or(Ok(()), Err));
        gate.store(if ready.is_ok() { GO } else { STOP }, Ordering::Release);
        let member = Member(course.company.as_ref());
        let run = |()| one(first, first_load, runner, course, (0, cores), member);
        let mut all = vec![ready.and_then(run)];
        for thread in threads {
            let panicked = |_| Err(Error::Failed("a core's thread died: report it".into()));
            all.push(thread.join().unwrap_or_else(panicked));
        }
        all.into_iter().collect()
    })
}

/// One core's part.
fn one<Q: HardwareQueue>(
    context: &mut Context<Q>,
    load: &mut Load,
    runner: &mut Runner,
    course: &Course,
    (core, cores): (usize, usize),
    member: Member<'_>,
) -> Result<Tally, Error> {
    let Course { clock, ways, .. } = course;
    let mut plan = course.plan;
    if let Until::Ios(ios) = &mut plan.until {
        *ios = part(*ios, core, cores);
    }
    let mut driver = Clocked::new(context, *clock, load.slots(), ways.clone());
    let tally = runner.run(&mut driver, load, plan);
    let mut late = Ring::new(load.slots());
    member.stay(|| {
        context.advance(clock.now(), &mut late);
        late.drain().for_each(drop);
    });
    tally
}

/// What core `core` of `cores` has of so many requests, which they take in turn.
fn part(whole: u64, core: usize, cores: usize) -> u64 {
    whole.saturating_sub(core as u64).div_ceil(cores as u64)
}

/// Pins this thread where that was asked for.
fn pinned(core: usize, pinned: bool) -> Result<(), Error> {
    if !pinned {
        return Ok(());
    }
    pin(core).map_err(|e| {
        Error::Usage(format!(
            "core {core} cannot be pinned to processor {core}: {e}; lower --cores, or leave --pin out"
        ))
    })
}

/// Gives the thread its processors back when it is dropped.
struct Affinity(Option<CpuSet>);

impl Affinity {
    fn keep() -> Affinity {
        Affinity(sched_getaffinity(None).ok())
    }
}

impl Drop for Affinity {
    fn drop(&mut self) {
        if let Some(set) = &self.0 {
            // Where it cannot be, the thread stays where it is.
            let _ = sched_setaffinity(None, set);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_ended_stays_until_all_have_or_one_went_away() {
        for ends_well in [true, false] {
            let company = Company::new(2, Arc::default());
            let looks = &AtomicUsize::new(0);
            thread::scope(|scope| {
                let (first, other) = (Member(Some(&company)), Member(Some(&company)));
                let look = || {
                    looks.fetch_add(1, Ordering::Relaxed);
                };
                scope.spawn(move || first.stay(look));
                while looks.load(Ordering::Relaxed) < 10 {
                    thread::yield_now();
                }
                if ends_well { other.stay(|| {}) } else { drop(other) }
            });
            assert_eq!(company.broken.load(Ordering::Relaxed), !ends_well);
        }
        Member(None).stay(|| panic!("it is alone"));
    }

    #[test]
    fn parts_make_the_whole() {
        for (whole, cores) in [(10, 3), (2, 3), (u64::MAX, 7), (0, 1)] {
            let all: Vec<u64> = (0..cores).map(|core| part(whole, core, cores)).collect();
            assert_eq!(all.iter().sum::<u64>(), whole);
            assert!(all.iter().max().unwrap() - all.iter().min().unwrap() <= 1);
        }
    }
}
