//! Within what a percentile of a run lies, as its rows tell.
//!
//! A percentile is where the share of values that are no larger reaches it. Rows say how
//! far that share wavers from one part of the run to the next (batch means of a ratio; Law,
//! *Simulation Modeling and Analysis*, 9.5.3), and so which latencies may be it. Where few
//! values lie about a percentile, as that of a mix of fast and slow requests may have it,
//! these are far apart.
//!
//! Guarantees: a share is taken to waver by no less than that of independent values does
//! (the order statistics of a percentile); both ends are a bucket beyond what was found, so
//! that two of the same run's kind are not apart for where a bucket ends. Nothing here fails.

use serde::Serialize;

use crate::histogram::{Packed, around};

/// Batches at most. Fewer, longer ones are less alike.
pub const BATCHES: usize = 20;
/// Batches without which nothing is said.
const LEAST: usize = 5;
/// Student's t of 95 %, two-sided, for 4 to 19 degrees of freedom.
const STUDENT: [f64; BATCHES - LEAST + 1] = [
    2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093,
];
/// Student's t for so many batches, of 95 %; `None` of too few.
pub fn student(batches: usize) -> Option<f64> {
    STUDENT.get(batches.checked_sub(LEAST)?).copied()
}

/// The same of a normal distribution.
const NORMAL: f64 = 1.960;
/// The percentiles, as parts.
const PERCENTILES: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 0.9999];

/// The lowest and highest latency, in ns, that each percentile may be with 95 %; `None`
/// where that is not known, as the run has no such latency or too few rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Within {
    /// Of the median.
    pub p50: Option<[u64; 2]>,
    /// Of the 90th percentile.
    pub p90: Option<[u64; 2]>,
    /// Of the 99th percentile.
    pub p99: Option<[u64; 2]>,
    /// Of the 99.9th percentile.
    pub p999: Option<[u64; 2]>,
    /// Of the 99.99th percentile.
    pub p9999: Option<[u64; 2]>,
}

impl Within {
    /// Of the latencies of a run's rows, each in so many parts.
    pub(crate) fn of(rows: &[&[Packed]]) -> Option<Within> {
        let each = rows.len().div_ceil(BATCHES).max(1);
        let batches = rows.chunks(each);
        let mut cells = Vec::new();
        let mut counts = Vec::new();
        for (batch, rows) in batches.enumerate() {
            let before = cells.len();
            let of = rows.iter().copied().flatten().flat_map(Packed::cells);
            cells.extend(of.map(|(bucket, n)| (bucket, batch, n as f64)));
            counts.push(cells[before..].iter().map(|cell| cell.2).sum::<f64>());
        }
        let t = student(counts.len())?;
        cells.sort_unstable_by_key(|cell| cell.0);
        let ends = ends(&cells, &counts, t);
        let [p50, p90, p99, p999, p9999] = ends.map(|[low, high]| Some([low?, high?]));
        Some(Within { p50, p90, p99, p999, p9999 })
    }
}

/// The lowest and highest that each percentile may be, of (bucket, batch, values), rising,
/// and how many values each batch has.
fn ends(
    cells: &[(usize, usize, f64)],
    counts: &[f64],
    t: f64,
) -> [[Option<u64>; 2]; PERCENTILES.len()] {
    let all: f64 = counts.iter().sum();
    let mut below = vec![0.0; counts.len()];
    let mut ends = [[None; 2]; PERCENTILES.len()];
    for same in cells.chunk_by(|a, b| a.0 == b.0) {
        same.iter().for_each(|&(_, batch, n)| below[batch] += n);
        let share = below.iter().sum::<f64>() / all;
        let off = |(below, count): (&f64, &f64)| (below - share * count).powi(2);
        let squares: f64 = below.iter().zip(counts).map(off).sum();
        let batches = counts.len() as f64;
        let rows = t * (squares * batches / (batches - 1.0)).sqrt() / all;
        let [low, high] = around(same[0].0);
        for (&p, [lowest, highest]) in PERCENTILES.iter().zip(&mut ends) {
            let error = rows.max(NORMAL * (p * (1.0 - p) / all).sqrt());
            if lowest.is_none() && share + error >= p {
                *lowest = Some(low);
            }
            // The longest says nothing of what may be beyond it, unless many took as long.
            let is_told = share < 1.0 || *lowest == Some(low);
            if highest.is_none() && share - error >= p && is_told {
                *highest = Some(high);
            }
        }
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Histogram;
    use port::random::Random;

    fn within(rows: &[Vec<u64>]) -> Option<Within> {
        let row = |values: &Vec<u64>| {
            let mut histogram = Histogram::new();
            values.iter().for_each(|&ns| histogram.record(ns));
            histogram.pack()
        };
        let rows: Vec<[Packed; 1]> = rows.iter().map(|row_of| [row(row_of)]).collect();
        Within::of(&rows.iter().map(|row| &row[..]).collect::<Vec<_>>())
    }

    /// Rows of a mix: half of it takes 10 us and half 100 us to 200 us.
    fn mix(random: &mut Random) -> Vec<Vec<u64>> {
        let mut one = || match random.bits() % 2 {
            0 => 10_000,
            _ => 100_000 + random.bits() % 100_000,
        };
        (0..8).map(|_| (0..2000).map(|_| one()).collect()).collect()
    }

    /// The median of such a mix is on this side of the gap or on that; what is told of it has
    /// both. Of the 90th percentile it is narrow. Both are right as often as they say.
    #[test]
    fn a_percentile_in_a_gap_is_not_told_more_exactly_than_it_is() {
        let mut random = Random::new(7, 1);
        let mut right = [0; 2];
        for _ in 0..200 {
            let told = within(&mix(&mut random)).unwrap();
            let [low, high] = told.p50.unwrap();
            right[0] += u32::from(low < 11_000 && high > 99_000);
            let [low, high] = told.p90.unwrap();
            assert!(high - low < 10_000, "{low} to {high}");
            right[1] += u32::from(low <= 180_000 && 180_000 <= high);
        }
        assert!(right.iter().all(|&right| right >= 186), "{right:?} of 200");
    }

    /// Rows that differ among themselves say more than how many values there are.
    #[test]
    fn rows_that_differ_widen_it() {
        let alike = vec![(0..1000).map(|i| 10_000 + 10 * i).collect(); 10];
        let shifted = |row: u64| (0..1000).map(|i| 10_000 + 10 * i + 500 * row).collect();
        let moving: Vec<Vec<u64>> = (0..10).map(shifted).collect();
        let width = |rows: &[Vec<u64>]| {
            let [low, high] = within(rows).unwrap().p50.unwrap();
            high - low
        };
        assert!(width(&moving) > 4 * width(&alike), "{} {}", width(&moving), width(&alike));
    }

    #[test]
    fn too_little_says_nothing() {
        assert_eq!(within(&vec![vec![1; 100]; 4]), None);
        assert_eq!(within(&[]), None);
        let none = within(&vec![vec![]; 6]).unwrap();
        assert_eq!(none, Within::default());
        // All took the same: it is that, to a bucket.
        let same = within(&vec![vec![5000; 100]; 6]).unwrap();
        assert_eq!(same.p50, Some([4976, 5040]));
        // Of few values the longest is no end.
        let few =
            within(&(0..6).map(|row| vec![5000, 6000 + 1000 * row]).collect::<Vec<_>>()).unwrap();
        assert_eq!((few.p50.is_some(), few.p90), (true, None));
    }
}
