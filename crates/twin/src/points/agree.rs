//! What measurements must be to be believed: figures that can be, and no two that
//! contradict each other.
//!
//! What is measured twice is one point, of the mean of both. Fails as [`TwinError`]
//! says, naming where the figures stand.

use std::collections::BTreeMap;

use super::{Direction, Figures, Point, Run};
use crate::error::TwinError;

/// How far two measurements of one thing may be apart.
const APART: f64 = 1.1;
/// How far figures of one run may be from what follows from each other: percentiles
/// are of bins, and of completion latency where means are of total latency.
const ROUNDED: f64 = 1.05;
/// What rate times mean latency may be of the depth: no more than all, and not much
/// less, for else the job did not keep so many out.
const OUT: (f64, f64) = (0.5, 1.1);
/// How far the share of reads of a mix may be from what the run asked for, in
/// percentage points: a short run draws a few more of either.
const SHARE_OFF: f64 = 3.0;
/// Latencies that there are, in us, and rates: a figure beyond is in another unit.
const LATENCIES: (f64, f64) = (0.1, 1e8);
const RATES: (f64, f64) = (0.01, 1e8);

/// Whether the figures of one point can be.
pub fn possible(at: &str, measured: &Figures) -> Result<(), TwinError> {
    for (name, value) in Figures::NAMES.into_iter().zip(measured.each()) {
        let Some(value) = value else { continue };
        if !(value.is_finite() && value > 0.0) {
            let what = format!("{name} is no number above zero");
            return Err(TwinError::point(at, what, "leave the point out"));
        }
        let (low, high) = if name == "iops" { RATES } else { LATENCIES };
        if !(low..=high).contains(&value) {
            let what = format!("{name} is {value}, and {low} to {high} can be");
            return Err(TwinError::point(at, what, "correct the unit, or leave the point out"));
        }
    }
    let Figures { iops, mean_us, p50_us, p99_us } = *measured;
    if iops.is_none() && mean_us.is_none() {
        return Err(TwinError::point(at, "nothing was measured", "leave the point out"));
    }
    let cannot = |what: String| {
        Err(TwinError::point(at, what, "that cannot be: correct it, or leave the point out"))
    };
    if let (Some(p50), Some(p99)) = (p50_us, p99_us)
        && p99 < p50
    {
        return cannot(format!("p99_us is {p99}, below p50_us, {p50}"));
    }
    // Half of the requests take the median at least, one in a hundred the other.
    for (name, value, share) in [("p50_us", p50_us, 2.0), ("p99_us", p99_us, 100.0)] {
        if let (Some(mean), Some(value)) = (mean_us, value)
            && value > mean * share * ROUNDED
        {
            return cannot(format!("{name} is {value}, over {share} times mean_us, {mean}"));
        }
    }
    Ok(())
}

/// Makes one of points that were measured twice. Fails where they, or the rate and
/// the latency of one run, do not agree.
pub fn agree(points: Vec<Point>) -> Result<Vec<Point>, TwinError> {
    let mut places: BTreeMap<(String, Run, Direction), usize> = BTreeMap::new();
    let mut alike: Vec<Vec<Point>> = Vec::new();
    for point in points {
        let key = (point.drive.clone(), point.run.clone(), point.direction);
        let place = *places.entry(key).or_insert(alike.len());
        alike.resize_with(alike.len().max(place + 1), Vec::new);
        if let Some(first) = alike[place].first() {
            compare(first, &point)?;
        }
        alike[place].push(point);
    }
    let all: Vec<Point> = alike.into_iter().map(mean).collect();
    keep_their_depth(&all)?;
    keep_their_share(&all)?;
    Ok(all)
}

/// Whether two measurements of one thing agree.
fn compare(first: &Point, other: &Point) -> Result<(), TwinError> {
    let both = first.measured.each().into_iter().zip(other.measured.each());
    for ((a, b), figure) in both.zip(Figures::NAMES) {
        let (Some(a), Some(b)) = (a, b) else { continue };
        if a / b > APART || b / a > APART {
            return Err(TwinError::Contradiction {
                first: first.at.clone(),
                second: other.at.clone(),
                point: format!("{} {}, {}s", first.drive, first.run, first.direction.name()),
                figure,
                a,
                b,
            });
        }
    }
    Ok(())
}

/// The point of measurements of one thing: each figure is the mean of those that have
/// it.
fn mean(alike: Vec<Point>) -> Point {
    let of = |figure: fn(&Figures) -> Option<f64>| {
        let known: Vec<f64> = alike.iter().filter_map(|point| figure(&point.measured)).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    };
    let measured = Figures {
        iops: of(|f| f.iops),
        mean_us: of(|f| f.mean_us),
        p50_us: of(|f| f.p50_us),
        p99_us: of(|f| f.p99_us),
    };
    let at: Vec<&str> = alike.iter().map(|point| point.at.as_str()).collect();
    Point { at: at.join(", "), measured, ..alike[0].clone() }
}

/// Of a mix, reads among all requests are as many as the run says. Where only one
/// direction is there, nobody knows.
fn keep_their_share(points: &[Point]) -> Result<(), TwinError> {
    let mut runs: BTreeMap<(&str, &Run), [Option<&Point>; 2]> = BTreeMap::new();
    for point in points.iter().filter(|point| point.run.is_mixed()) {
        let both = runs.entry((point.drive.as_str(), &point.run)).or_default();
        both[point.direction as usize] = Some(point);
    }
    for ((drive, run), both) in runs {
        let [Some(read), Some(write)] = both else { continue };
        let (Some(reads), Some(writes)) = (read.measured.iops, write.measured.iops) else {
            continue;
        };
        let share = 100.0 * reads / (reads + writes);
        if (share - f64::from(run.read_percent)).abs() > SHARE_OFF {
            let what = format!("{drive} {run}: of the I/Os a second {share:.0} % are reads");
            let remedy = "correct read_percent or iops, or leave it out";
            return Err(TwinError::point(&format!("{} and {}", read.at, write.at), what, remedy));
        }
    }
    Ok(())
}

/// Little's law: in a closed loop rate times mean latency is the depth. What a host
/// does between two requests makes it less, and nothing makes it more.
fn keep_their_depth(points: &[Point]) -> Result<(), TwinError> {
    let mut runs: BTreeMap<(&str, &Run), Vec<&Point>> = BTreeMap::new();
    points.iter().for_each(|p| runs.entry((p.drive.as_str(), &p.run)).or_default().push(p));
    for ((drive, run), of) in runs {
        let each = of.iter().map(|p| Some(p.measured.iops? * p.measured.mean_us? / 1e6));
        let known: Vec<f64> = each.flatten().collect();
        let (out, depth) = (known.iter().sum::<f64>(), f64::from(run.qd));
        let is_whole = known.len() == if run.is_mixed() { 2 } else { 1 };
        if out <= depth * OUT.1 && (!is_whole || out >= depth * OUT.0) {
            continue;
        }
        let at: Vec<&str> = of.iter().map(|p| p.at.as_str()).collect();
        let what = format!(
            "{drive} {run}: iops times mean_us keeps {out:.2} requests out and not {}",
            run.qd
        );
        let remedy = "correct iops, mean_us or qd, or leave it out: a closed loop keeps its depth";
        return Err(TwinError::point(&at.join(" and "), what, remedy));
    }
    Ok(())
}
