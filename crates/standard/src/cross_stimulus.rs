//! `cross-stimulus`: from large sequential writes to small random ones and back (SNIA
//! PTS, cross stimulus recovery).
//!
//! The drive is purged, then written in order with 1 MiB requests, at random with 8 KiB
//! ones, and in order again, each for so many drive fills, told in twenty points each.
//! It has recovered when the throughput of the last part is back at 90 % of the first's.

use load::runner::{Plan, Until};
use measure::units::size_binary;

use crate::Test;
use crate::curve::Curve;
use crate::outcome::Findings;
use crate::session::{Access, Halt, Session, throughput};
use crate::table::{Figure, Table, Unit};
use crate::write_saturation::POINTS;

/// The test.
pub const TEST: Test = Test {
    name: "cross-stimulus",
    about: "sequential writes, random ones, sequential again: how long the change is felt",
    takes: ("8 drive fills", "seconds"),
    needs_arrivals: false,
    depth: Some(32),
    is_by_fills: true,
    run,
};

/// What part of the throughput before is that of a drive that has recovered.
const BACK: f64 = 0.9;
/// Points of which levels are the mean.
const LEVEL: usize = 5;

fn run(session: &mut Session) -> Result<Findings, Halt> {
    session.purge()?;
    let depth = session.depth;
    let large = if session.takes(1 << 20) { 1 << 20 } else { 128 << 10 };
    let sequential = Access::sequential(large, 0, depth);
    let random = Access::random(8 << 10, 0, depth);
    let fills = session.options.pick([2, 3, 3], [1, 1, 2]);
    let mut parts = Vec::new();
    for (access, fills) in [sequential, random, sequential].iter().zip(fills) {
        session.phase(&access.text());
        parts.push(part(session, access, fills)?);
    }
    Ok(told(&parts, [large, 8 << 10, large]))
}

/// Throughput and 99th percentile of each point.
type Points = Vec<(f64, f64)>;

fn part(session: &mut Session, access: &Access, fills: u64) -> Result<Points, Halt> {
    let mut load = session.load(access)?;
    let requests = (session.bytes() / access.bs / POINTS).max(1);
    let plan = Plan { ramp: 0, until: Until::Ios(requests), count: true };
    let point = |_| {
        let tally = session.measure(&mut load, plan)?;
        let tail = tally.all().percentile(99.0).unwrap_or(0) as f64;
        Ok((throughput(&tally, access.bs), tail))
    };
    (0..fills * POINTS).map(point).collect()
}

fn mean(points: &[(f64, f64)]) -> f64 {
    points.iter().map(|point| point.0).sum::<f64>() / points.len().max(1) as f64
}

/// After how many drive fills of the last part all points are back, if they are.
fn recovered(level: f64, last: &[(f64, f64)]) -> Option<f64> {
    let behind = last.iter().rposition(|point| point.0 < BACK * level);
    let at = behind.map_or(0, |n| n + 1);
    (at < last.len()).then_some(at as f64 / POINTS as f64)
}

fn told(parts: &[Points], sizes: [u64; 3]) -> Findings {
    let columns = ["first point", "least", "last points"].map(String::from).to_vec();
    let mut table = Table::new("throughput", Unit::BytesPerSecond, columns);
    let mut level = Vec::new();
    for (n, (points, bs)) in parts.iter().zip(sizes).enumerate() {
        let end = mean(&points[points.len().saturating_sub(LEVEL)..]);
        let least = points.iter().map(|point| point.0).reduce(f64::min);
        let order = if n == 1 { "random" } else { "sequential" };
        let name = format!("{}. {} {order}", n + 1, size_binary(bs));
        table.push(&name, vec![points.first().map(|point| point.0), least, Some(end)]);
        level.push(end);
    }
    let last = &parts[2];
    let recovery = recovered(level[0], last);
    let figures = vec![
        Figure::new("recovered after", Unit::Fills, recovery),
        Figure::new("last beside first", Unit::Percent, 100.0 * level[2] / level[0]),
    ];
    let headline = match recovery {
        Some(fills) => format!(
            "back at {:.0} % of {} after {}",
            100.0 * BACK,
            Unit::BytesPerSecond.text(level[0]),
            Unit::Fills.whole_text(fills)
        ),
        None => format!(
            "not back at {:.0} % of {} within {} drive fills",
            100.0 * BACK,
            Unit::BytesPerSecond.text(level[0]),
            last.len() as u64 / POINTS
        ),
    };
    let all = parts.iter().flatten().enumerate();
    let (mut rates, mut tails) = (Vec::new(), Vec::new());
    for (n, &(rate, tail)) in all {
        let at = (n as f64 + 0.5) / POINTS as f64;
        rates.push((at, rate));
        tails.push((at, tail));
    }
    let along = ("written", Unit::Fills);
    let curves = vec![
        Curve::new("throughput", along, Unit::BytesPerSecond, rates),
        Curve::new("p99", along, Unit::Ns, tails),
    ];
    Findings { headline, figures, tables: vec![table], curves, ..Findings::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_recovered_when_no_point_is_behind_any_more() {
        let points = |rates: &[f64]| rates.iter().map(|&rate| (rate, 0.0)).collect::<Points>();
        assert_eq!(recovered(100.0, &points(&[50.0, 95.0, 80.0, 90.0, 99.0])), Some(0.15));
        assert_eq!(recovered(100.0, &points(&[90.0, 90.0])), Some(0.0));
        assert_eq!(recovered(100.0, &points(&[90.0, 89.0])), None);
    }
}
