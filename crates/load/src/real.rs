//! A block layer on the processor's clock: a thread for each core.
//!
//! The first core is the calling thread. All begin at once and end on their
//! own; each has its own load and tally, and the tallies are merged. Fails
//! when a core cannot be pinned or a thread not started; when one core fails
//! the others still end their part.

use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;

use blkmq::{Context, HardwareQueue};
use device::realtime::{Clock, pin};
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
            let gate = &gate;
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
                one(context, load, &mut runner, course, (core, cores))
            };
            let name = format!("core {core}");
            match thread::Builder::new().name(name).spawn_scoped(scope, work) {
                Ok(thread) => threads.push(thread),
                Err(e) => refused = Some(Error::Failed(format!("no thread for core {core}: {e}"))),
            }
        }
        let ready = pinned(0, course.pin).and(refused.map_or(Ok(()), Err));
        gate.store(if ready.is_ok() { GO } else { STOP }, Ordering::Release);
        let mut all = vec![ready.and_then(|()| one(first, first_load, runner, course, (0, cores)))];
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
) -> Result<Tally, Error> {
    let Course { clock, ways, .. } = course;
    let mut plan = course.plan;
    if let Until::Ios(ios) = &mut plan.until {
        *ios = part(*ios, core, cores);
    }
    let mut driver = Clocked::new(context, *clock, load.slots(), ways.clone());
    runner.run(&mut driver, load, plan)
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
    fn parts_make_the_whole() {
        for (whole, cores) in [(10, 3), (2, 3), (u64::MAX, 7), (0, 1)] {
            let all: Vec<u64> = (0..cores).map(|core| part(whole, core, cores)).collect();
            assert_eq!(all.iter().sum::<u64>(), whole);
            assert!(all.iter().max().unwrap() - all.iter().min().unwrap() <= 1);
        }
    }
}
