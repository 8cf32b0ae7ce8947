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

/// By what part of it the ratio of each run's figure of this name to the first one's wavers,
/// as rows at the same times tell; no run's where that is not known.
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
            // In a closed loop it is the depth over the rate.
            "latency: mean" => first.depth().and(run.depth()).and_then(|_| paired(&a, &b)),
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
    use crate::comparison::Comparison;
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

    /// Eight times as deep, the mean latency is eight times as long, and wavers by so much
    /// more of the first one's; by as large a part of its own.
    #[test]
    fn a_latency_that_is_a_multiple_wavers_by_as_much() {
        let of = |depth: u64| {
            let rates: Vec<f64> = (0..8).map(|i| 1e5 + 1e3 * (depth * i % 3) as f64).collect();
            let mut json = report(&rates);
            json["workload"]["qd"] = depth.into();
            json["latency_ns"]["mean"] = (depth as f64 * 1e4).into();
            Run::from_json("a", json).unwrap()
        };
        let waver = |a, b, name: &str| {
            let all = Comparison::new(&[of(a), of(b)]).figures;
            all.iter().find(|f| f.name == name).unwrap().difference(1).unwrap().waver.unwrap()
        };
        let rate = waver(4, 32, "IOPS");
        assert!(rate > 0.0);
        for (a, b, by) in [(4, 32, 8.0), (32, 4, 1.0)] {
            let off = waver(a, b, "latency: mean") / rate / by;
            assert!((off - 1.0).abs() < 0.02, "{a} to {b}: {off}");
        }
    }
}
