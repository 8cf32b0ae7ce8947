//! The objective: how far predictions are from what was measured.
//!
//! It is the weighted mean of |ln (predicted / measured)| over all figures of all
//! points: 0.1 is about 10 %. A mean of absolute values and not of squares, so that
//! points which no candidate can meet do not bend all others. A percentile that
//! is not there on one side does not count. Nothing here fails.

use crate::model::Prediction;
use crate::points::{Figures, Point};

/// Weights of the figures, in the order of [`Figures::NAMES`]. Percentiles count less:
/// two of them tell of one run, and the model's are of fewer requests. The median
/// least: what it says beyond the mean is the shape of a middle that a model with one
/// time for each kind of work has not. What was kept back is nearer so:
/// docs/results/twin.md.
pub const WEIGHTS: [f64; 4] = [1.0, 1.0, 0.25, 0.5];

/// ln (predicted / measured) of each figure that both have.
pub fn errors(measured: &Figures, predicted: &Figures) -> [Option<f64>; 4] {
    let (measured, predicted) = (measured.each(), predicted.each());
    std::array::from_fn(|i| Some((predicted[i]? / measured[i]?).ln()).filter(|e| e.is_finite()))
}

/// The objective of some points with their predictions; `None` where a drive takes no
/// time for one of them: it cannot be compared.
pub fn objective<'a>(points: impl IntoIterator<Item = (&'a Point, &'a Prediction)>) -> Option<f64> {
    let (mut sum, mut weights) = (0.0, 0.0);
    for (point, prediction) in points {
        let predicted = prediction.of(point.direction);
        predicted.mean_us?;
        let errors = errors(&point.measured, predicted);
        for (error, weight) in errors.into_iter().zip(WEIGHTS) {
            if let Some(error) = error {
                sum += weight * error.abs();
                weights += weight;
            }
        }
    }
    Some(if weights > 0.0 { sum / weights } else { 0.0 })
}
