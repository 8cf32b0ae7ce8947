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

/// Batches at most. Fewer, longer ones are less alike.
const BATCHES: usize = 20;
/// Rows without which nothing is said.
const LEAST: usize = 5;
/// Student's t of 95 %, two-sided, for 4 to 19 degrees of freedom.
const STUDENT: [f64; BATCHES - LEAST + 1] = [
    2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093,
];

/// By what part of it the mean of `rows` may be off, with 95 %. `None` with
/// too few rows, or of a mean that is zero.
pub fn waver(rows: &[f64]) -> Option<f64> {
    if rows.len() < LEAST {
        return None;
    }
    let each = rows.len().div_ceil(BATCHES);
    let means: Vec<f64> = rows.chunks_exact(each).map(mean).collect();
    let all = mean(&means);
    let squares: f64 = means.iter().map(|m| (m - all).powi(2)).sum();
    let n = means.len() as f64;
    let error = (squares / (n - 1.0) / n).sqrt();
    (all > 0.0).then_some(STUDENT[means.len() - LEAST] * error / all)
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
