//! `write-saturation`: random writes to a drive that was empty, until it is steady (SNIA
//! PTS, WSAT test).
//!
//! The drive is purged and written with random requests of 4 KiB. A round is as many as
//! fill it once, told in twenty points; rounds go on until their IOPS are steady and, of a
//! drive that tells, it collects. The cliff is the point at which IOPS, and the mean of five points,
//! first fall below the middle between those of the empty drive and the steady ones.

use load::runner::{Plan, Until};
use load::tally::Tally;
use port::BLOCK_BYTES;

use crate::Test;
use crate::curve::Curve;
use crate::outcome::Findings;
use crate::search::Search;
use crate::session::{Access, Halt, Session, iops, tail};
use crate::table::{Figure, Table, Unit};

/// The test.
pub const TEST: Test = Test {
    name: "write-saturation",
    about: "4 KiB random writes to an empty drive, until steady: the cliff",
    takes: ("5 to 25 drive fills", "seconds"),
    needs_arrivals: false,
    depth: Some(32),
    period: None,
    run,
};

/// Points of a fill.
pub const POINTS: u64 = 20;
/// Points of the beginning that stand for the empty drive, after the first: that is
/// partly its buffer's.
const FRESH: std::ops::Range<usize> = 1..5;
/// A drive whose steady IOPS are more than this part of those at the beginning has no cliff.
const FLAT: f64 = 0.8;
/// Points whose mean must be below the middle: one alone may be by chance.
const AGREE: usize = 5;

fn run(session: &mut Session) -> Result<Findings, Halt> {
    session.empty()?;
    let collections = session.stand.driver().counters().collections;
    let mut load = session.load(&Access::random(BLOCK_BYTES, 0, session.depth))?;
    let requests = (session.bytes() / BLOCK_BYTES / POINTS).max(1);
    let plan = Plan { ramp: 0, until: Until::Ios(requests), count: true };
    let each = "one drive fill".to_string();
    let mut search = Search::new(session.window(), each, &[("IOPS", Unit::Iops)]);
    let (mut points, mut tails, mut amplifications) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        session.phase(&format!("until steady, drive fill {}", search.rounds + 1));
        let before = session.wrote();
        let mut seconds = 0.0;
        for _ in 0..POINTS {
            let tally: Tally = session.measure(&mut load, plan)?;
            seconds += tally.seconds();
            points.push(iops(&tally));
            tails.push(tail(&tally.all()));
        }
        let (amplification, overwrites) = session.wrote().since(&before, session.bytes());
        amplifications.extend(amplification);
        let goes_on =
            search.push(&[(requests * POINTS) as f64 / seconds], amplification, overwrites);
        let collects = !session.stand.about.tells
            || session.stand.driver().counters().collections > collections;
        if !goes_on && (collects || !search.reached) {
            break;
        }
        if !collects && search.is_at_its_end() {
            search.reached = false;
            session.note(
                "the drive has not collected yet: take one with less spare (where it is small a \
                 larger one, or smaller chunks: pages=)",
            );
            break;
        }
    }
    Ok(told(search, &points, &tails, &amplifications))
}

/// Where the cliff is, in drive fills.
fn cliff(points: &[f64], fresh: f64, steady: f64) -> Option<f64> {
    if steady > FLAT * fresh {
        return None;
    }
    let middle = (fresh + steady) / 2.0;
    let is_below = |points: &[f64]| {
        points[0] < middle && points.iter().sum::<f64>() < middle * points.len() as f64
    };
    let at = points[FRESH.end..].windows(AGREE).position(is_below)?;
    Some((at + FRESH.end) as f64 / POINTS as f64)
}

fn told(search: Search, points: &[f64], tails: &[Option<f64>], amplifications: &[f64]) -> Findings {
    let fresh = &points[FRESH];
    let fresh = fresh.iter().sum::<f64>() / fresh.len() as f64;
    let steady = search.tracks[0].window().map_or(0.0, |window| window.mean);
    let cliff = cliff(points, fresh, steady);
    // Of the rounds that the IOPS are of.
    let window = &amplifications[amplifications.len().min(search.first())..];
    let amplification = window.iter().sum::<f64>() / window.len() as f64;
    let name = if search.reached { "steady" } else { "last rounds" };
    let figures = vec![
        Figure::new("empty drive, 5 to 25 % of the first fill", Unit::Iops, fresh),
        Figure::new(name, Unit::Iops, steady),
        Figure::new("cliff", Unit::Fills, cliff),
        Figure::new(&format!("{name} beside empty"), Unit::Percent, 100.0 * steady / fresh),
        Figure::new(
            &format!("write amplification, {name}"),
            Unit::Ratio,
            (!window.is_empty()).then_some(amplification),
        ),
    ];
    let along = |n: usize| (n as f64 + 0.5) / POINTS as f64;
    let curve = |name, unit, values: Vec<Option<f64>>| {
        let point = |(n, value): (usize, Option<f64>)| Some((along(n), value?));
        let points = values.into_iter().enumerate().filter_map(point).collect();
        Curve::new(name, ("written", Unit::Fills), unit, points)
    };
    let rates = points.iter().copied().map(Some).collect();
    let curves = vec![curve("IOPS", Unit::Iops, rates), curve("p99", Unit::Ns, tails.to_vec())];
    let mut table = Table::new("drive fill", Unit::Iops, vec!["IOPS".into()]);
    for (n, &value) in search.tracks[0].values.iter().enumerate() {
        table.push(&(n + 1).to_string(), vec![Some(value)]);
    }
    let headline = match cliff {
        Some(at) => format!(
            "{} after {} fresh, cliff at {}",
            Unit::Iops.whole_text(steady),
            Unit::Iops.text(fresh),
            Unit::Fills.whole_text(at)
        ),
        None => format!("{}, no cliff", Unit::Iops.whole_text(steady)),
    };
    let found = Findings::of(vec![search]);
    Findings { headline, figures, tables: vec![table], curves, ..found }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 until a fill and a quarter, then 20.
    #[test]
    fn the_cliff_is_where_the_rate_falls_below_the_middle() {
        let points: Vec<f64> = (0..100).map(|n| if n < 25 { 100.0 } else { 20.0 }).collect();
        assert_eq!(cliff(&points, 100.0, 20.0), Some(1.25));
        // One that sinks has it where it is at 60.
        let sinks: Vec<f64> = (0..100).map(|n| (100.0 - n as f64).max(20.0)).collect();
        assert_eq!(cliff(&sinks, 100.0, 20.0), Some(2.05));
        assert_eq!(cliff(&points, 100.0, 95.0), None, "flat");
        let mut once = points.clone();
        once[10] = 10.0;
        assert_eq!(cliff(&once, 100.0, 20.0), Some(1.25), "one point alone");
    }
}
