//! `recovery`: what idle time gives back (SNIA PTS, host idle recovery).
//!
//! The drive is filled and written at random until steady. Then it is written in bursts
//! with a pause after each, of five lengths; between the lengths it is written without
//! pause. A burst is as many requests as the steady drive does in 5 s, or in a period where
//! that is shorter; pauses are 1, 2, 3, 5 and 10 times as long (of 5 s: 5, 10, 15, 25 and
//! 50 s).

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
    takes: ("the steady state, then half an hour", "seconds"),
    needs_arrivals: false,
    depth: Some(32),
    period: Some(|session| session.period()),
    run,
};

/// Pauses, in lengths of a burst.
const WAITS: [u64; 5] = [1, 2, 3, 5, 10];
/// The longest burst, in ns.
const BURST: u64 = 5_000_000_000;

fn run(session: &mut Session) -> Result<Findings, Halt> {
    session.fill()?;
    let access = Access::random(BLOCK_BYTES, 0, session.depth);
    let steady = session.settle(&access)?;
    let baseline = iops(&session.alone(&access)?);
    let burst = session.period().min(BURST);
    let each = ((baseline * burst as f64 / 1e9) as u64).max(1);
    let repeats = session.options.pick(10, 3);
    let columns = ["first burst", "last burst", "slowest", "without pause after"];
    let mut table = Table::new("pause", Unit::Iops, columns.map(String::from).to_vec());
    let (mut curves, mut most) = (Vec::new(), (0, 0.0));
    for wait in WAITS {
        let ns = wait * burst;
        session.phase(&format!("bursts with pauses of {}", time_ns(ns as f64)));
        let mut load = session.load(&access)?;
        let plan = Plan { ramp: 0, until: Until::Ios(each * repeats), count: true };
        let pauses = Pauses { each, ns };
        let tally = session.measure_with(&mut load, plan, |runner| runner.pauses = Some(pauses))?;
        let bursts: Vec<f64> = tally.bursts.first.iter().map(rate).collect();
        let after = iops(&session.alone(&access)?);
        let last = bursts.last().copied().unwrap_or(0.0);
        let slowest = bursts.iter().copied().reduce(f64::min);
        let name = time_ns(ns as f64);
        table.push(&name, vec![bursts.first().copied(), Some(last), slowest, Some(after)]);
        if last > most.1 {
            most = (ns, last);
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

/// Requests a second of a burst.
fn rate(burst: &Burst) -> f64 {
    burst.requests as f64 * 1e9 / burst.end.since(burst.start).max(1) as f64
}
