//! `recovery`: what idle time gives back (SNIA PTS, host idle recovery).
//!
//! The drive is filled and written at random until steady. Then it is written in bursts
//! with a pause after each, of five lengths; between the lengths it is written without
//! pause. A burst is as many requests as the steady drive does in 5 s, or in a period where
//! that is shorter; pauses are 1, 2, 3, 5 and 10 times as long (of 5 s: 5, 10, 15, 25 and
//! 50 s).
//!
//! Two things a pause gives back on any drive, and they are not what is asked for. It empties
//! the write buffer, so that a burst ends when as much as that has not reached the flash:
//! this is left out of the burst's rate, and a burst is twenty of them at least, by which one
//! that never fills it is told too slow. And collection that was under way ends, of a chunk
//! in each unit at most: a burst is three of these at least. Where nobody tells how large
//! these are, both are in the rates, and a note says so.

use std::iter::repeat;

use load::bursts::{Burst, Pauses};
use load::runner::{Plan, Until};
use measure::units::time_ns;
use port::BLOCK_BYTES;

use crate::Test;
use crate::curve::Curve;
use crate::outcome::Findings;
use crate::session::{Access, Halt, Session, iops};
use crate::table::{Figure, Table, Unit};

/// The test.
pub const TEST: Test = Test {
    name: "recovery",
    about: "bursts of 4 KiB random writes with pauses: what idle time gives back",
    takes: ("the steady state, then half an hour", "a minute"),
    needs_arrivals: false,
    depth: Some(32),
    period: Some(|session| session.period()),
    run,
};

/// Pauses, in lengths of a burst.
const WAITS: [u64; 5] = [1, 2, 3, 5, 10];
/// The longest burst, in ns, but for what it has at least.
const BURST: u64 = 5_000_000_000;
/// What a burst has at least, in write buffers, and in chunks of all units.
const LEAST: (u64, u64) = (20, 3);

fn run(session: &mut Session) -> Result<Findings, Halt> {
    session.fill()?;
    let access = Access::random(BLOCK_BYTES, 0, session.depth);
    let steady = session.settle(&access)?;
    let (buffer, chunks) = inside(session);
    let burst = session.period().min(BURST);
    let each = (iops(&session.alone(&access)?) * burst as f64 / 1e9) as u64;
    let each = each.max(LEAST.0 * buffer).max(LEAST.1 * chunks).max(1);
    let baseline = without_pause(session, &access, each)?;
    let burst = (each as f64 * 1e9 / baseline) as u64;
    let repeats = session.options.pick(10, 3);
    let columns = ["first burst", "after a pause", "slowest", "without pause after"];
    let mut table = Table::new("pause", Unit::Iops, columns.map(String::from).to_vec());
    let (mut curves, mut most) = (Vec::new(), (0, 0.0));
    for wait in WAITS {
        let ns = wait * burst;
        session.phase(&format!("bursts with pauses of {}", time_ns(ns as f64)));
        let mut load = session.load(&access)?;
        let plan = Plan { ramp: 0, until: Until::Ios(each * repeats), count: true };
        let pauses = Pauses { each, ns };
        let tally = session.measure_with(&mut load, plan, |runner| runner.pauses = Some(pauses))?;
        // The buffer is as full when the first of them begins as when it ends.
        let all = tally.bursts.first.iter().zip(std::iter::once(0).chain(repeat(buffer)));
        let bursts: Vec<f64> = all.map(|(burst, buffer)| rate(&[*burst], buffer)).collect();
        let after = without_pause(session, &access, each)?;
        let mean = rate(tally.bursts.first.get(1..).unwrap_or_default(), buffer);
        let slowest = bursts.iter().copied().reduce(f64::min);
        let name = time_ns(ns as f64);
        table.push(&name, vec![bursts.first().copied(), Some(mean), slowest, Some(after)]);
        if mean > most.1 {
            most = (ns, mean);
        }
        let points = bursts.iter().enumerate().map(|(n, &rate)| ((n + 1) as f64, rate));
        let name = format!("pauses of {name}");
        curves.push(Curve::new(&name, ("burst", Unit::Count), Unit::Iops, points.collect()));
    }
    let gain = most.1 / baseline;
    let figures = vec![
        Figure::new("without pause", Unit::Iops, baseline),
        Figure::new("requests of a burst", Unit::Count, each as f64),
        Figure::new("most after a pause, beside that without", Unit::Ratio, gain),
    ];
    let headline = format!(
        "{} without pause, x {gain:.2} at best, after pauses of {}",
        Unit::Iops.whole_text(baseline),
        time_ns(most.0 as f64)
    );
    let found = Findings::after(&steady);
    Ok(Findings { headline, figures, tables: vec![table], curves, ..found })
}

/// Requests that the drive's write buffer takes, and a chunk of each unit; 0 where nobody
/// tells, which is noted.
fn inside(session: &mut Session) -> (u64, u64) {
    let Some((buffer, chunks)) = session.stand.about.inside else {
        session.note(
            "nobody tells how large the drive's write buffer and its blocks are: a pause empties \
             the one and ends the collection of others, and that is in the rates of bursts",
        );
        return (0, 0);
    };
    (buffer / BLOCK_BYTES, chunks / BLOCK_BYTES)
}

/// Requests a second of so many without a pause.
fn without_pause(session: &mut Session, access: &Access, requests: u64) -> Result<f64, Halt> {
    let plan = Plan { ramp: 0, until: Until::Ios(requests), count: true };
    let mut load = session.load(access)?;
    Ok(iops(&session.measure(&mut load, plan)?))
}

/// Requests a second of bursts, `buffer` of each left out.
fn rate(bursts: &[Burst], buffer: u64) -> f64 {
    let requests: u64 = bursts.iter().map(|burst| burst.requests.saturating_sub(buffer)).sum();
    let ns: u64 = bursts.iter().map(|burst| burst.end.since(burst.start)).sum();
    requests as f64 * 1e9 / ns.max(1) as f64
}
