//! `cross-stimulus`: from large sequential writes to small random ones and back (SNIA
//! PTS, cross stimulus recovery).
//!
//! The drive is purged, then written in order with 1 MiB requests, at random with 8 KiB
//! ones, and in order again, each for so many drive fills, told in twenty points each, or
//! fewer, so that a point has four requests for each that is outstanding.
//! It has recovered when the throughput of the last part is back at 90 % of the first's.

use load::runner::{Plan, Until};
use measure::units::size_binary;

use crate::Test;
use crate::curve::Curve;
use crate::outcome::Findings;
use crate::session::{Access, Halt, Session, tail, throughput};
use crate::table::{Figure, Table, Unit};
use crate::write_saturation::POINTS;

/// The test.
pub const TEST: Test = Test {
    name: "cross-stimulus",
    about: "sequential writes, random ones, sequential again: how long the change is felt",
    takes: ("8 drive fills", "seconds"),
    needs_arrivals: false,
    depth: Some(32),
    period: None,
    run,
};

/// What part of the throughput before is that of a drive that has recovered.
const BACK: f64 = 0.9;
/// Points of a fill of which levels are the mean: one in so many.
const LEVEL: usize = 4;
/// Requests of a point, for each that is outstanding, at least: the rate of fewer is that of
/// their beginning and end.
const ENOUGH: u64 = 4;

fn run(session: &mut Session) -> Result<Findings, Halt> {
    session.empty()?;
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
    Ok(told(&parts, [large, 8 << 10, large], fills))
}

/// A point of a part.
#[derive(Clone, Copy, Debug)]
struct Point {
    /// How often the drive was written from the beginning of the part to the point's end.
    end: f64,
    /// Bytes a second.
    rate: f64,
    /// The 99th percentile of latency, in ns, where it has enough requests for one.
    tail: Option<f64>,
}

/// A part: its points, and how many of them are a drive fill.
struct Part {
    points: Vec<Point>,
    each: u64,
}

/// How many points a drive fill of so many requests has at this depth; none where there is
/// not one.
fn points(requests: u64, depth: u32) -> Option<u64> {
    let points = (requests / (ENOUGH * u64::from(depth))).min(POINTS);
    (points > 0).then_some(points)
}

fn part(session: &mut Session, access: &Access, fills: u64) -> Result<Part, Halt> {
    let mut load = session.load(access)?;
    let (fill, bytes) = (session.bytes() / access.bs, session.bytes() as f64);
    let Some(each) = points(fill, access.depth) else {
        return Err(Halt::Void(format!(
            "too few requests: a drive fill is {fill} of {}, and a point needs {}: take a larger \
             drive or a lower --qd",
            size_binary(access.bs),
            ENOUGH * u64::from(access.depth)
        )));
    };
    let mut written = 0;
    let mut point = |n: u64| {
        // What does not divide is shared out.
        let requests = (n + 1) * fill / each - n * fill / each;
        let plan = Plan { ramp: 0, until: Until::Ios(requests), count: true };
        let tally = session.measure(&mut load, plan)?;
        written += tally.written;
        let tail = tail(&tally.all());
        Ok(Point { end: written as f64 / bytes, rate: throughput(&tally, access.bs), tail })
    };
    let points = (0..fills * each).map(&mut point).collect::<Result<Vec<Point>, Halt>>()?;
    Ok(Part { points, each })
}

/// The throughput of the last quarter of a fill.
fn level(part: &Part) -> f64 {
    let last = (part.each as usize / LEVEL).max(1);
    let last = &part.points[part.points.len().saturating_sub(last)..];
    last.iter().map(|point| point.rate).sum::<f64>() / last.len().max(1) as f64
}

/// After how many drive fills of the last part all points are back, if they are.
fn recovered(level: f64, last: &[Point]) -> Option<f64> {
    let behind = last.iter().rposition(|point| point.rate < BACK * level);
    match behind {
        Some(n) if n + 1 == last.len() => None,
        Some(n) => Some(last[n].end),
        None => Some(0.0),
    }
}

fn told(parts: &[Part], sizes: [u64; 3], fills: [u64; 3]) -> Findings {
    let columns = ["first point", "least", "last points"].map(String::from).to_vec();
    let mut table = Table::new("throughput", Unit::BytesPerSecond, columns);
    let levels: Vec<f64> = parts.iter().map(level).collect();
    for (n, (part, bs)) in parts.iter().zip(sizes).enumerate() {
        let least = part.points.iter().map(|point| point.rate).reduce(f64::min);
        let first = part.points.first().map(|point| point.rate);
        let order = if n == 1 { "random" } else { "sequential" };
        let name = format!("{}. {} {order}", n + 1, size_binary(bs));
        table.push(&name, vec![first, least, Some(levels[n])]);
    }
    let recovery = recovered(levels[0], &parts[2].points);
    let figures = vec![
        Figure::new("recovered after", Unit::Fills, recovery),
        Figure::new("last beside first", Unit::Percent, 100.0 * levels[2] / levels[0]),
    ];
    let headline = match recovery {
        Some(fills) => format!(
            "back at {:.0} % of {} after {}",
            100.0 * BACK,
            Unit::BytesPerSecond.text(levels[0]),
            Unit::Fills.whole_text(fills)
        ),
        None => format!(
            "not back at {:.0} % of {} within {} drive fills",
            100.0 * BACK,
            Unit::BytesPerSecond.text(levels[0]),
            fills[2]
        ),
    };
    let (mut rates, mut tails) = (Vec::new(), Vec::new());
    let mut before = 0.0;
    for part in parts {
        let mut begin = before;
        for &Point { end, rate, tail } in &part.points {
            let middle = (begin + before + end) / 2.0;
            rates.push((middle, rate));
            tails.extend(tail.map(|tail| (middle, tail)));
            begin = before + end;
        }
        before = begin;
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
        let point =
            |(n, &rate): (usize, &f64)| Point { end: (n + 1) as f64 / 20.0, rate, tail: None };
        let points = |rates: &[f64]| rates.iter().enumerate().map(point).collect::<Vec<Point>>();
        assert_eq!(recovered(100.0, &points(&[50.0, 95.0, 80.0, 90.0, 99.0])), Some(0.15));
        assert_eq!(recovered(100.0, &points(&[90.0, 90.0])), Some(0.0));
        assert_eq!(recovered(100.0, &points(&[90.0, 89.0])), None);
    }

    #[test]
    fn a_point_has_four_requests_for_each_that_is_outstanding() {
        assert_eq!(points(2559, 32), Some(19));
        assert_eq!([points(2560, 32), points(1 << 30, 32)], [Some(20); 2]);
        assert_eq!([points(128, 32), points(127, 32)], [Some(1), None]);
    }
}
