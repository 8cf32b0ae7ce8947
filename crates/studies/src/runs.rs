//! Runs: one figure, measured several times.
//!
//! Guarantees: the middle run speaks for all, and the spread is kept beside
//! it. Runs that the machine disturbed are marked, and what is marked is shown
//! but never judged. Nothing here fails.

use serde_json::{Value, json};

/// What the runs of one figure gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Runs {
    values: Vec<f64>,
    void: Option<String>,
}

impl Runs {
    /// What several runs gave.
    pub fn new(values: Vec<f64>) -> Runs {
        Runs { values, void: None }
    }

    /// What one run gave: enough in virtual time, where all are the same.
    pub fn one(value: f64) -> Runs {
        Runs::new(vec![value])
    }

    /// The same runs, which say nothing, and why.
    #[must_use]
    pub fn voided(self, why: impl Into<String>) -> Runs {
        Runs { void: Some(why.into()), ..self }
    }

    /// Why they say nothing, if they do not.
    pub fn void(&self) -> Option<&str> {
        self.void.as_deref()
    }

    /// How many there were.
    pub fn count(&self) -> usize {
        self.values.len()
    }

    /// The middle one, or the mean of the middle two. Without runs it is no
    /// number, which passes no rule.
    pub fn median(&self) -> f64 {
        let mut sorted = self.values.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let n = sorted.len();
        match n {
            0 => f64::NAN,
            _ if n % 2 == 1 => sorted[n / 2],
            _ => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
        }
    }

    /// The least and the greatest.
    pub fn range(&self) -> (f64, f64) {
        let least = self.values.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = self.values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (least, greatest)
    }

    /// Where the middle of endless runs lies with 90 %, by the order of these; of fewer than five
    /// the least and the greatest, which is less sure. Without runs no numbers.
    pub fn interval(&self) -> (f64, f64) {
        let mut sorted = self.values.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let n = sorted.len();
        // The chance that so few of all lie on one side of the middle.
        let (mut left_out, mut below, mut more) = (0, 0.0, 0.5_f64.powi(n as i32));
        while n > 0 && 2.0 * (below + more) <= 0.1 {
            below += more;
            left_out += 1;
            more *= (n + 1 - left_out) as f64 / left_out as f64;
        }
        let first = left_out.max(1) - 1;
        let end = |at: Option<usize>| at.and_then(|at| sorted.get(at)).copied().unwrap_or(f64::NAN);
        (end(Some(first)), end(n.checked_sub(1 + first)))
    }

    /// Greatest less least, as a share of the median without its sign; `None` for a single
    /// run, or a median of zero.
    pub fn spread(&self) -> Option<f64> {
        let (least, greatest) = self.range();
        let shares = self.values.len() > 1 && self.median() != 0.0;
        shares.then(|| (greatest - least) / self.median().abs())
    }

    /// `f` of each run. Void when these are.
    #[must_use]
    pub fn map(&self, f: impl Fn(f64) -> f64) -> Runs {
        Runs { values: self.values.iter().map(|&x| f(x)).collect(), void: self.void.clone() }
    }

    /// `f` of each run and the other's run of the same number. Void when
    /// either is.
    #[must_use]
    pub fn with(&self, other: &Runs, f: impl Fn(f64, f64) -> f64) -> Runs {
        let values = self.values.iter().zip(&other.values).map(|(&a, &b)| f(a, b)).collect();
        Runs { values, void: self.void.clone().or_else(|| other.void.clone()) }
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        json!({
            "median": self.median(),
            "runs": self.values,
            "spread": self.spread(),
            "void": self.void,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_speaks() {
        let runs = Runs::new(vec![9.0, 1.0, 4.0]);
        assert_eq!((runs.median(), runs.range()), (4.0, (1.0, 9.0)));
        assert_eq!(runs.spread(), Some(2.0));
        assert_eq!(runs.map(|x| -x).spread(), Some(2.0));
        assert_eq!(Runs::new(vec![4.0, 1.0, 9.0, 2.0]).median(), 3.0);
    }

    #[test]
    fn one_run_has_no_spread() {
        assert_eq!((Runs::one(5.0).median(), Runs::one(5.0).spread()), (5.0, None));
        assert!(Runs::new(vec![]).median().is_nan());
        assert_eq!(Runs::new(vec![0.0, 0.0, 1.0]).spread(), None);
    }

    /// Binomial: of 5 runs all lie on one side of the middle once in 16, of 8 at most one does
    /// once in 14, of 81 at most 32 do once in 13.
    #[test]
    fn where_the_middle_lies() {
        let up_to = |n: u32| Runs::new((1..=n).rev().map(f64::from).collect()).interval();
        assert_eq!((up_to(1), up_to(2), up_to(4)), ((1.0, 1.0), (1.0, 2.0), (1.0, 4.0)));
        assert_eq!((up_to(5), up_to(8), up_to(81)), ((1.0, 5.0), (2.0, 7.0), (33.0, 49.0)));
        assert!(Runs::new(vec![]).interval().0.is_nan());
    }

    #[test]
    fn what_is_void_says_why() {
        let runs = Runs::one(5.0).voided("late");
        assert_eq!((runs.void(), runs.median()), (Some("late"), 5.0));
        assert_eq!(runs.to_json()["void"], "late");
        let both = Runs::new(vec![1.0, 2.0]).with(&runs, |a, b| b - a);
        assert_eq!((both.count(), both.median(), both.void()), (1, 4.0, Some("late")));
        assert_eq!(runs.map(|x| 2.0 * x), Runs::one(10.0).voided("late"));
    }
}
