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

    #[test]
    fn too_little_says_nothing() {
        assert_eq!(waver(&[1.0; 4]), None);
        assert_eq!(waver(&[0.0; 9]), None);
        assert_eq!(waver(&[3.0; 9]), Some(0.0));
    }
}
