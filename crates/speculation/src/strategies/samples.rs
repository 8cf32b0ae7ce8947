//! One figure, measured several times, by turns with others.
//!
//! Guarantees: a few runs that others on the machine disturbed move neither the median nor the
//! noise. Nothing fails: of none both are no number.

/// What was measured, least first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// Of these.
    pub fn new(values: impl IntoIterator<Item = f64>) -> Samples {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_unstable_by(f64::total_cmp);
        Samples(values)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// All of them, least first.
    pub fn values(&self) -> &[f64] {
        &self.0
    }

    /// The middle one, or the mean of the middle two.
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// Half of what lies between the first quarter and the last: as many lie nearer to the median
    /// as farther from it.
    pub fn noise(&self) -> f64 {
        (self.quantile(0.75) - self.quantile(0.25)) / 2.0
    }

    fn quantile(&self, share: f64) -> f64 {
        let Some(last) = self.0.len().checked_sub(1) else { return f64::NAN };
        let at = share * last as f64;
        let (low, high) = (self.0[at.floor() as usize], self.0[at.ceil() as usize]);
        low + (high - low) * at.fract()
    }
}

/// Where the line that most of these points lie on crosses zero, if it rises: the middle of all
/// slopes between two, and of what is left (Theil and Sen).
pub fn zero(points: &[(f64, f64)]) -> Option<f64> {
    let pairs = points.iter().enumerate().flat_map(|(n, a)| {
        let slope = move |b: &(f64, f64)| (b.1 - a.1) / (b.0 - a.0);
        points[n + 1..].iter().map(slope)
    });
    let slope = Samples::new(pairs).median();
    let left = Samples::new(points.iter().map(|(x, y)| y - slope * x)).median();
    Some(-left / slope).filter(|at| slope > 0.0 && at.is_finite() && *at > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_was_disturbed_moves_nothing() {
        let quiet = Samples::new([3.0, 1.0, 2.0, 4.0, 5.0]);
        assert_eq!((quiet.median(), quiet.noise()), (3.0, 1.0));
        let loud = Samples::new([3.0, 1.0, 2.0, 4.0, 500.0]);
        assert_eq!((loud.median(), loud.noise()), (3.0, 1.0));
        assert_eq!((Samples::new([7.0]).median(), Samples::new([7.0]).noise()), (7.0, 0.0));
        assert!(Samples::default().median().is_nan() && Samples::default().noise().is_nan());
    }

    #[test]
    fn a_line_is_found_through_a_point_that_is_wrong() {
        let mut points: Vec<(f64, f64)> =
            [1.0, 2.0, 4.0, 6.0, 9.0].map(|x| (x, 2.0 * x - 7.0)).to_vec();
        assert_eq!(zero(&points), Some(3.5));
        points[4].1 = -1000.0;
        let found = zero(&points).unwrap();
        assert!((3.0..4.5).contains(&found), "{found}");
        // Falls; never crosses; is none.
        assert_eq!(zero(&points.iter().map(|(x, y)| (*x, -y)).collect::<Vec<_>>()), None);
        assert_eq!(zero(&[(1.0, 5.0), (2.0, 6.0)]), None);
        assert_eq!(zero(&[(1.0, 5.0)]), None);
    }
}
