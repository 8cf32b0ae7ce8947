//! `open-loop`: latency under load.
//!
//! The drive is filled and run with the mix until steady. The most that it does is what
//! it does with 256 requests outstanding, or `--qd`. Then requests arrive by themselves, at
//! exponentially distributed distances, at shares of that; latency counts from the
//! intended start. The knee is the highest share before the 99th percentile, or the mean, is
//! more than twice that of the least share: of a mix p99 is that of its writes from the start,
//! and the mean rises first. Where even the next share after the least is beyond, none was found.

use load::load::Pace;
use port::BLOCK_BYTES;
use port::random::STEP;
use workload::{Arrivals, Rate};

use crate::Test;
use crate::curve::Curve;
use crate::outcome::Findings;
use crate::session::{Access, Halt, P99, Session, enough, iops, mix};
use crate::table::{Figure, Table, Unit};
use drive::error::Error;

/// The test.
pub const TEST: Test = Test {
    name: "open-loop",
    about: "latency while 4 KiB requests arrive at shares of the most it does: the knee",
    takes: ("the steady state and 14 min", "seconds"),
    needs_arrivals: true,
    depth: Some(256),
    period: Some(|session| session.period_for_a_tail()),
    run,
};

/// Of the most, in percent.
const SHARES: [u64; 12] = [10, 20, 30, 40, 50, 60, 70, 80, 85, 90, 95, 100];
/// How much longer tail and mean may be before the knee.
const KNEE: f64 = 2.0;
/// What part of its arrivals a drive does that keeps up.
const KEPT: f64 = 0.95;

fn run(session: &mut Session) -> Result<Findings, Halt> {
    session.fill()?;
    let reads = session.options.read_percent.unwrap_or(65);
    let access = Access::random(BLOCK_BYTES, reads, session.depth);
    let steady = if reads < 100 { Some(session.settle(&access)?) } else { None };
    session.phase("the most that it does");
    let most = iops(&session.alone(&access)?);
    let mut rates = Table::new("of the most", Unit::Iops, vec!["asked".into(), "reached".into()]);
    let columns = ["mean", "p50", "p99", "p99.9", "max"].map(String::from).to_vec();
    let mut times = Table::new("latency", Unit::Ns, columns);
    let mut samples = Table::new("requests", Unit::Count, vec!["N".into()]);
    let (mut tails, mut means) = (Vec::new(), Vec::new());
    let mut behind = None;
    for share in SHARES {
        session.phase(&format!("arrivals at {share} % of the most"));
        let rate = (most * share as f64 / 100.0).max(1.0) as u64;
        let seed = session.options.seed.wrapping_add(STEP.wrapping_mul(share));
        let arrivals = Arrivals::new(Rate::Exponential(rate), seed, (0, 1));
        let arrivals = arrivals.map_err(|e| Error::Usage(e.to_string()))?;
        let mut load = session.load_at(&access, Pace::Open(arrivals))?;
        let plan = session.for_time(session.period_for_a_tail());
        let tally = session.measure(&mut load, plan)?;
        let name = format!("{share} %");
        let latency = enough(&tally.all(), P99, &format!("requests at {name}"))?;
        let of = |ns: Option<u64>| ns.map(|ns| ns as f64);
        let reached = iops(&tally);
        if reached < KEPT * rate as f64 {
            behind = behind.or(Some(share as f64));
        }
        rates.push(&name, vec![Some(rate as f64), Some(reached)]);
        samples.push(&name, vec![Some(latency.n as f64)]);
        let tail = of(latency.p99);
        times.push(
            &name,
            vec![latency.mean, of(latency.p50), tail, of(latency.p999), of(latency.max)],
        );
        tails.push(tail.unwrap_or(0.0));
        means.push(latency.mean.unwrap_or(0.0));
    }
    let knees = [("p99", knee(&tails)), ("the mean", knee(&means))];
    let first = knees.iter().filter_map(|&(of, at)| Some((of, at?)));
    let first = first.min_by(|a, b| a.1.total_cmp(&b.1));
    let is_below = first.is_some_and(|(_, at)| at == SHARES[0] as f64);
    let knee = first.map(|(_, at)| at).filter(|_| !is_below);
    let rate = knee.map(|share| most * share / 100.0);
    let figures = vec![
        Figure::new("the most, closed loop", Unit::Iops, most),
        Figure::new("knee, of the most", Unit::Percent, knee),
        Figure::new("knee", Unit::Iops, rate),
        Figure::new("knee by p99 alone", Unit::Percent, knees[0].1),
        Figure::new("no longer keeps up from", Unit::Percent, behind),
    ];
    let points = |column: usize| {
        let point =
            |(row, share): (&(String, Vec<Option<f64>>), u64)| Some((share as f64, row.1[column]?));
        times.rows.iter().zip(SHARES).filter_map(point).collect()
    };
    let along = ("of the most", Unit::Percent);
    let curve = |name, column| Curve::new(name, along, Unit::Ns, points(column));
    let curves = vec![curve("p50", 1), curve("p99", 2), curve("p99.9", 3)];
    let headline = match first.zip(rate) {
        None if is_below => format!(
            "no knee: {} is more than twice as long at {} % of {} as at {} %, {}",
            first.map_or("", |(of, _)| of),
            SHARES[1],
            Unit::Iops.whole_text(most),
            SHARES[0],
            mix(reads)
        ),
        Some(((of, share), rate)) => format!(
            "knee of {of} at {share:.0} % of {}, {} of {}",
            Unit::Iops.whole_text(most),
            Unit::Iops.text(rate),
            mix(reads)
        ),
        None => format!("no knee below {}", Unit::Iops.whole_text(most)),
    };
    let tables = vec![rates, times, samples];
    let found = steady.as_ref().map_or_else(Findings::default, Findings::after);
    Ok(Findings { headline, figures, tables, curves, ..found })
}

/// The share of the knee, in percent: the one before the first whose time is more than
/// [`KNEE`] times that of the least. None where it never is.
fn knee(times: &[f64]) -> Option<f64> {
    let beyond = times.iter().position(|&time| time > KNEE * times[0])?;
    Some(SHARES[beyond.saturating_sub(1)] as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_knee_is_the_last_share_before_the_tail_is_twice_as_long() {
        let tails = [10.0, 10.0, 11.0, 12.0, 13.0, 15.0, 20.0, 21.0, 19.0, 40.0, 80.0, 900.0];
        assert_eq!(knee(&tails), Some(70.0));
        assert_eq!(knee(&[10.0; 12]), None);
        let at_once = [10.0, 30.0];
        assert_eq!(knee(&at_once), Some(10.0));
    }
}
