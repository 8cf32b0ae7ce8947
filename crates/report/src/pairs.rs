//! What rows of two runs say of how these differ, figure by figure.
//!
//! Nothing here fails.

use crate::run::{Row, Run};
use crate::waver::paired;

/// What rows say whose length is about that of the others.
pub(crate) fn of_rows(run: &Run, get: impl Fn(&Row) -> Option<f64>) -> Vec<f64> {
    let longest = run.series.iter().map(|row| row.seconds).fold(0.0, f64::max);
    let whole = run.series.iter().filter(|row| row.seconds > 0.9 * longest);
    whole.filter_map(get).collect()
}

/// By what the ratio of each run's figure of this name to the first one's wavers, as rows at
/// the same times tell; no run's where that is not known.
pub(crate) fn paired_by(name: &str, runs: &[Run]) -> Vec<Option<f64>> {
    let of = |run: &Run| {
        let first = &runs[0];
        // The last row of a run may be a little longer.
        let times = |run: &Run| of_rows(run, |row| Some(row.second));
        if times(first) != times(run) {
            return None;
        }
        let [a, b] = [first, run].map(|run| of_rows(run, |row| Some(row.iops)));
        let shares = |reads| Some(share(first, reads)?.hypot(share(run, reads)?));
        match name {
            "IOPS" | "throughput" => paired(&a, &b),
            "read IOPS" => Some(paired(&a, &b)?.hypot(shares(true)?)),
            "write IOPS" => Some(paired(&a, &b)?.hypot(shares(false)?)),
            "latency: mean" => first.depth().and(run.depth()).and_then(|_| paired(&b, &a)),
            "write amplification" => {
                let [a, b] = [first, run].map(|run| of_rows(run, |row| row.write_amplification));
                paired(&a, &b)
            }
            _ => None,
        }
    };
    runs.iter().map(of).collect()
}

/// By what part the share of reads, or writes, of one load may be off, with 95 %: each request
/// is drawn for itself.
pub(crate) fn share(run: &Run, reads: bool) -> Option<f64> {
    let part = run.only(reads)?.iops / run.iops;
    let of_one = run.jobs.is_empty() && part > 0.0;
    of_one.then(|| 1.96 * ((1.0 - part).max(0.0) / part / run.ios as f64).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tests::report;

    /// Two runs that fall alike, of which the last requests end at another time.
    #[test]
    fn rows_are_of_the_same_times_when_they_begin_together() {
        let of = |by: f64, rows: usize, last: f64| {
            let fall = |i| by * (1e5 - 1e3 * i as f64) + (i % 2) as f64;
            let mut json = report(&(0..rows).map(fall).collect::<Vec<_>>());
            json["series"][rows - 1]["seconds"] = last.into();
            Run::from_json("a", json).unwrap()
        };
        let by = |name, other| paired_by(name, &[of(1.0, 8, 1.001), other])[1];
        assert!(by("IOPS", of(1.01, 8, 1.002)).unwrap() < 1e-4);
        assert_eq!(by("IOPS", of(1.01, 9, 1.001)), None);
        assert_eq!(by("latency: p99", of(1.01, 8, 1.001)), None);
    }
}
