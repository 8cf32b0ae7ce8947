//! Tests of preconditioning on a drive that breaks, and of what a run counts after a ramp.

use std::time::{Duration, Instant};

use port::{BlockDone, BlockOp, BlockReq, Ring, Status};
use targets::WriteCounters;

use super::*;
use crate::driver::Virtual;
use drive::spec::DriveSpec;
use drive::stack;
use drive::whole::Drive;

/// What a drive does from some moment on.
#[derive(Clone, Copy, PartialEq)]
enum Breaks {
    Never,
    /// Reads give a flipped bit.
    Lies,
    /// Writes fail.
    Fails,
}

/// A drive that breaks after so many bytes were written.
struct Breaking<D> {
    inner: D,
    after: u64,
    breaks: Breaks,
}

impl<D: Driver> Driver for Breaking<D> {
    fn now(&self) -> Time {
        self.inner.now()
    }

    fn turn(
        &mut self,
        arrival: Option<Time>,
        queue: &mut Ring<BlockReq>,
        done: &mut Ring<BlockDone>,
    ) -> Result<Time, Error> {
        let now = self.inner.turn(arrival, queue, done)?;
        let broken = self.inner.counters().user * BLOCK_BYTES > self.after;
        for one in (0..done.len()).filter(|_| broken).collect::<Vec<_>>() {
            let Some(one) = done.get_mut(one) else { continue };
            match (self.breaks, one.op) {
                (Breaks::Lies, BlockOp::Read) => one.buffer.bytes_mut()[100] ^= 4,
                (Breaks::Fails, BlockOp::Write) => one.status = Status::WRITE_FAULT,
                _ => {}
            }
        }
        Ok(now)
    }

    fn rest(&mut self) {
        self.inner.rest();
    }

    fn patience(&self) -> u32 {
        64
    }

    fn counters(&self) -> WriteCounters {
        self.inner.counters()
    }
}

const SIZE: u64 = 4 << 20;
const SHORT: Rounds = Rounds { window: 3, ns: 1 };

/// Preconditions and settles a small drive, verifying.
fn settle(breaks: Breaks, limit: Option<Duration>) -> Result<SteadyState, String> {
    let name = format!("mem:znand,size={SIZE},groups=1,pus=2,pages=16");
    let Ok(DriveSpec::Memory(spec)) = name.parse() else { panic!("{name}") };
    let drive = stack::build(&spec.resolve().unwrap(), 1).unwrap();
    let (shape, after) = (drive.shape(), 3 * SIZE);
    let mut driver = Breaking { inner: Virtual::new(drive), after, breaks };
    let mut watch = limit.map_or_else(Watch::quiet, Watch::until);
    let verifier = Some(Verifier::new(&shape, BLOCK_BYTES, 1).unwrap());
    let mut runner = Runner { verifier, ..Runner::new(&mut watch) };
    let pattern = Pattern::uniform(shape.bytes, 30);
    let mut load = Load::new(&shape, &pattern, Pace::Closed { depth: 8 }, 1, 1).unwrap();
    let settled = runner
        .precondition(&mut driver, &shape, 1)
        .and_then(|()| runner.settle(&mut driver, &shape, &mut load, SHORT));
    settled.map_err(|e| e.to_string())
}

#[test]
fn what_goes_wrong_until_it_is_steady_is_told() {
    let settled = settle(Breaks::Never, None).unwrap();
    assert!(settled.rounds >= 3 && settled.window == 3 && settled.weaker, "{settled:?}");
    let lies = settle(Breaks::Lies, None).unwrap_err();
    assert!(lies.starts_with("while preconditioning, "), "{lies}");
    assert!(lies.contains(" requests gave wrong data, first: "), "{lies}");
    // It ends with the first of them, though nothing more is written.
    let fails = settle(Breaks::Fails, None).unwrap_err();
    assert!(fails.contains("while preconditioning, ") && fails.contains("write fault"), "{fails}");
}

#[test]
fn who_stops_it_is_told_how_far_it_came() {
    let stopped = settle(Breaks::Never, Some(Duration::ZERO)).unwrap_err();
    assert!(stopped.contains("before anything was measured"), "{stopped}");
    assert!(stopped.contains("written over, which was "), "{stopped}");
    let mut steady = Steady::new(3);
    assert!(reached(&steady, SHORT, true).starts_with("in round 1 of its steady state; "));
    steady.push(Round { value: 5e6, write_amplification: Some(2.5), overwrites: 1.0 });
    let text = reached(&steady, Rounds::default(), true);
    let says = "in round 2 of its steady state, of which the one before wrote 5.00 MB/s with a \
                write amplification of 2.500; it takes 5 rounds at least, of 60.0 s";
    assert!(text.starts_with(says) && text.contains("raise --max-time, or lower"), "{text}");
    // Who pressed Ctrl-C had no limit.
    let text = reached(&steady, Rounds::default(), false);
    assert!(text.contains(": lower --steady-rounds") && !text.contains("--max-time"), "{text}");
}

/// A drive that notes when its last turn of a ramp was over on the wall.
struct Ramped<D> {
    inner: D,
    ramp: u64,
    last: Option<Instant>,
    turns: u64,
}

impl<D: Driver> Driver for Ramped<D> {
    fn now(&self) -> Time {
        self.inner.now()
    }

    fn turn(
        &mut self,
        arrival: Option<Time>,
        queue: &mut Ring<BlockReq>,
        done: &mut Ring<BlockDone>,
    ) -> Result<Time, Error> {
        let now = self.inner.turn(arrival, queue, done)?;
        if now.0 < self.ramp {
            (self.last, self.turns) = (Some(Instant::now()), self.turns + 1);
        }
        Ok(now)
    }

    fn patience(&self) -> u32 {
        64
    }

    fn counters(&self) -> WriteCounters {
        self.inner.counters()
    }
}

/// What a ramp took on the wall and of the processor, and turns in it, are in nothing that
/// is told of what counts; a run without one needs no moment of its own.
#[test]
fn what_is_timed_begins_with_what_counts() {
    let Ok(DriveSpec::Memory(spec)) = "mem:ref,size=16M,store=none".parse() else { panic!() };
    let run = |ramp: u64, loads: usize| {
        let drive = stack::build(&spec.resolve().unwrap(), 1).unwrap();
        let shape = drive.shape();
        let mut driver = Ramped { inner: Virtual::new(drive), ramp, last: None, turns: 0 };
        let load = |seed| {
            let pattern = Pattern::uniform(shape.bytes, 0);
            Load::new(&shape, &pattern, Pace::Closed { depth: 1 }, 1, seed).unwrap()
        };
        let mut watch = Watch::quiet();
        let mut runner = Runner::new(&mut watch);
        let plan = Plan { ramp, until: Until::Ios(100), count: true };
        let tally = match loads {
            1 => runner.run(&mut driver, &mut load(1), plan).unwrap(),
            _ => {
                let mut loads: Vec<Load> = (0..loads as u64).map(load).collect();
                Tally::merge(runner.run_together(&mut driver, &mut loads, plan).unwrap())
            }
        };
        assert_eq!(tally.all().count(), 100 * loads as u64);
        // So few turns are too few to tell: of the ramp there were enough.
        assert_eq!(tally.own.ns(), None, "{loads} loads after {ramp} ns");
        (tally.after_ramp.map(|mark| mark.wall), driver.last, driver.turns)
    };
    for loads in [1, 3] {
        let (counts, last, turns) = run(500_000_000, loads);
        assert!(turns > 10_000, "{turns} turns of the ramp");
        assert!(counts >= last && last.is_some(), "{loads} loads");
        assert!(run(0, loads).0.is_none());
    }
}

#[test]
fn who_waits_for_long_sleeps() {
    let ms = |n: u64| Some(Time(5 + n * 1_000_000));
    assert!(!nap(Time(5), None) && !nap(Time(5), ms(0)) && !nap(Time(5), ms(1)));
    assert!(!nap(Time(5), Some(Time(3))), "it is due");
    let began = Instant::now();
    assert!(nap(Time(5), ms(3)) && began.elapsed() >= Duration::from_millis(2));
    assert!(nap(Time(5), ms(3_600_000)), "and somebody looks whether to go on");
}
