//! Tests of preconditioning on a drive that breaks.

use std::time::Duration;

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
    fn is_real(&self) -> bool {
        false
    }

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
    assert!(reached(&steady, SHORT).starts_with("in round 1 of its steady state; "));
    steady.push(Round { value: 5e6, write_amplification: Some(2.5), overwrites: 1.0 });
    let text = reached(&steady, Rounds::default());
    let says = "in round 2 of its steady state, of which the one before wrote 5.00 MB/s with a \
                write amplification of 2.500; it takes 5 rounds at least, of 60.0 s";
    assert!(text.starts_with(says) && text.contains("--steady-rounds"), "{text}");
}
