//! By how much a figure wavers, from the rows of its run.
//!
//! A figure of a run is a mean over its rows; what rows differ by tells how far
//! another run of the same would be. This is the method of batch means (Law,
//! *Simulation Modeling and Analysis*, 9.5.3): rows are joined to at most
//! [`BATCHES`] batches of equal length, so that neighbours which rise and
//! fall together do not pass for independent ones, and what Student's distribution makes of
//! the standard error of the mean of these is what the figure wavers by, with 95 %. It
//! is too much where rows rise and fall in turn, and too little where they do not over
//! the whole run.
//!
//! Of two runs whose rows are of the same times, what both do alike as they go on, as the
//! first seconds before a drive collects, tells nothing of how they differ: there the ratio of
//! their rows says it ([`paired`]), as a ratio estimator does (Cochran, *Sampling Techniques*,
//! 6.4).

use measure::within::{BATCHES, student};

/// By what part of it the mean of `rows` may be off, with 95 %. `None` with
/// too few rows, or of a mean that is zero.
pub fn waver(rows: &[f64]) -> Option<f64> {
    let each = rows.len().div_ceil(BATCHES).max(1);
    let means: Vec<f64> = rows.chunks_exact(each).map(mean).collect();
    let t = student(means.len())?;
    let all = mean(&means);
    let squares: f64 = means.iter().map(|m| (m - all).powi(2)).sum();
    let n = means.len() as f64;
    let error = (squares / (n - 1.0) / n).sqrt();
    (all > 0.0).then_some(t * error / all)
}

/// By what part of it the ratio of the sum of `other` to that of `first` may be off, with
/// 95 %, of rows at the same times: whichever is the first. `None` with too few rows, or of a
/// sum that is zero.
pub fn paired(first: &[f64], other: &[f64]) -> Option<f64> {
    if first.len() != other.len() {
        return None;
    }
    let each = first.len().div_ceil(BATCHES).max(1);
    let sums = |rows: &[f64]| -> Vec<f64> {
        rows.chunks_exact(each).map(|batch| batch.iter().sum()).collect()
    };
    let (first, other) = (sums(first), sums(other));
    let t = student(first.len())?;
    let (all, n) = (first.iter().sum::<f64>(), first.len() as f64);
    let ratio = other.iter().sum::<f64>() / all;
    let squares: f64 = first.iter().zip(&other).map(|(a, b)| (b - ratio * a).powi(2)).sum();
    let waver = t * (squares * n / (n - 1.0)).sqrt() / (ratio * all);
    waver.is_finite().then_some(waver)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worked_example() {
        // Mean 10, deviation 2.5 of squares: s = 1.5811, of 5 rows 0.7071, times 2.776.
        let waver = waver(&[8.0, 9.0, 10.0, 11.0, 12.0]).unwrap();
        assert!((waver - 0.196_29).abs() < 1e-4, "{waver}");
    }

    #[test]
    fn rows_that_move_together_waver_more() {
        let alone: Vec<f64> = (0..400).map(|i| 100.0 + f64::from(i % 2)).collect();
        let slow: Vec<f64> = (0..400).map(|i| 100.0 + f64::from(i / 50 % 2)).collect();
        assert!(waver(&slow).unwrap() > 10.0 * waver(&alone).unwrap());
    }

    /// What both do as they go on is none of what they differ by.
    #[test]
    fn what_both_do_alike_is_not_between_them() {
        let fall = |by: f64| -> Vec<f64> {
            (0..8).map(|i| by * (100.0 - f64::from(i)) + f64::from(i % 2)).collect()
        };
        let (a, b) = (fall(1.0), fall(1.02));
        assert!(waver(&a).unwrap() > 0.02, "alone it falls");
        assert!(paired(&a, &b).unwrap() < 0.001);
        // Whichever comes first: told apart in both ways or in none.
        let c = [100.0, 120.0, 95.0, 130.0, 90.0, 101.0, 99.0, 140.0];
        for (a, b) in [(&a[..], &c[..]), (&a, &b), (&b, &c)] {
            let sums = b.iter().sum::<f64>() / a.iter().sum::<f64>();
            let is_apart = |ratio: f64, waver: f64| (ratio - 1.0).abs() > waver * ratio.max(1.0);
            let ways = [(sums, paired(a, b)), (1.0 / sums, paired(b, a))];
            let [there, back] = ways.map(|(ratio, waver)| is_apart(ratio, waver.unwrap()));
            assert_eq!(there, back);
        }
        assert_eq!(paired(&a, &b[1..]), None);
        assert_eq!(paired(&[0.0; 8], &[0.0; 8]), None);
        assert_eq!(paired(&[1.0; 4], &[1.0; 4]), None);
    }

    /// Of runs that fall alike and differ by chance alone about one pair in twenty is told
    /// apart, and a difference four times what it wavers by always is.
    #[test]
    fn equal_runs_are_told_apart_as_seldom_as_is_said() {
        // Twelve numbers of a linear generator (Knuth's) are as good as normally distributed.
        let mut state = 1u64;
        let mut even = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        let mut one = |of: f64| -> Vec<f64> {
            let mut chance = || (0..12).map(|_| even()).sum::<f64>() - 6.0;
            (0..8).map(|i| of * (1000.0 - 10.0 * f64::from(i) + chance())).collect()
        };
        let (mut wrong, mut seen) = (0, 0);
        for _ in 0..400 {
            let apart = |a: &[f64], b: &[f64]| {
                let ratio = b.iter().sum::<f64>() / a.iter().sum::<f64>();
                (ratio - 1.0).abs() > paired(a, b).unwrap()
            };
            wrong += u32::from(apart(&one(1.0), &one(1.0)));
            seen += u32::from(apart(&one(1.0), &one(1.005)));
        }
        assert!((5..40).contains(&wrong) && seen > 390, "{wrong} and {seen} of 400");
    }

    #[test]
    fn too_little_says_nothing() {
        assert_eq!(waver(&[1.0; 4]), None);
        assert_eq!(waver(&[0.0; 9]), None);
        assert_eq!(waver(&[3.0; 9]), Some(0.0));
    }
}
