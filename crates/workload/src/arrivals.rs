//! When requests start.
//!
//! In an open loop requests start at times that the drive does not influence;
//! latency counts from the intended start, however late the request got in. (In a
//! closed loop, which needs nothing of this, one starts when another has
//! completed, so that a slow drive is asked less.)
//!
//! Guarantees: intended starts never go back and have no drift: the n-th of a
//! fixed rate is at n / rate, rounded down to a nanosecond. A rate that
//! cannot be is refused with a [`RateError`]; after that nothing fails.

use thiserror::Error;

use crate::rng::Rng;

/// The highest rate, in requests per second.
pub const MAX_RATE: u64 = 1_000_000_000;

/// How often requests start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// At even distances: so many a second, 1 to [`MAX_RATE`].
    Fixed(u64),
    /// Distances are exponentially distributed, a Poisson process: so many a
    /// second on average, 1 to [`MAX_RATE`].
    Exponential(u64),
}

/// Too slow or too fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a rate of {0} requests per second is not from 1 to 1000000000; use for example 100k")]
pub struct RateError(
    /// The rate, per second.
    pub u64,
);

/// The intended starts of a load, in nanoseconds since its start, or every so
/// many-th of them.
#[derive(Clone, Debug)]
pub struct Arrivals {
    rate: Rate,
    seed: u64,
    /// How often it was begun.
    round: u64,
    rng: Rng,
    /// Which of the starts are taken: the first, and of how many each.
    first: u64,
    of: u64,
    /// The number of the next start of all, and when it is, with the fraction of a
    /// nanosecond beyond it.
    number: u64,
    next: u64,
    fraction: f64,
    /// When the one was to come that followed the last that was taken.
    following: u64,
}

impl Arrivals {
    /// Of the starts of a load each `of`-th from `first` on, counted from 0: so
    /// several cores take the starts of one load in turn. The seed decides
    /// exponential ones.
    pub fn new(rate: Rate, seed: u64, (first, of): (u64, u64)) -> Result<Arrivals, RateError> {
        let (Rate::Fixed(each) | Rate::Exponential(each)) = rate;
        if !(1..=MAX_RATE).contains(&each) {
            return Err(RateError(each));
        }
        let (rng, of) = (Rng::new(seed, 0), of.max(1));
        let (round, number, next, fraction, following) = (0, 0, 0, 0.0, 0);
        let mut arrivals =
            Arrivals { rate, seed, round, rng, first, of, number, next, fraction, following };
        arrivals.begin();
        Ok(arrivals)
    }

    /// Begins again, exponential starts with others than before.
    pub fn begin(&mut self) {
        // Not the numbers that the addresses are drawn from.
        self.rng = Rng::new(self.seed ^ 0x0061_7272_6976_616c, self.round);
        self.round += 1;
        (self.number, self.next, self.fraction, self.following) = (0, 0, 0.0, 0);
        if matches!(self.rate, Rate::Exponential(_)) {
            self.step(1);
        }
        self.step(self.first);
    }

    /// Starts that somebody else knows: each is the one that was told last
    /// ([`Arrivals::tell`]), at first 0.
    pub fn told() -> Arrivals {
        let (rng, rate) = (Rng::new(0, 0), Rate::Fixed(1));
        let (seed, round, first, of) = (0, 0, 0, 1);
        let (number, next, fraction, following) = (0, 0, 0.0, 0);
        Arrivals { rate, seed, round, rng, first, of, number, next, fraction, following }
    }

    /// The next start, in nanoseconds since the load's, which follows the one before it.
    #[inline]
    pub fn tell(&mut self, start: u64) {
        (self.next, self.following) = (start, start);
    }

    /// When the next request is to start, in nanoseconds since the load's start.
    #[inline]
    pub fn peek(&self) -> u64 {
        self.next
    }

    /// When the start of the load was to be that follows the last one taken, of
    /// whichever core: so many starts take as many distances.
    pub fn following(&self) -> u64 {
        self.following
    }

    /// Takes the start that [`Arrivals::peek`] shows.
    #[inline]
    pub fn take(&mut self) -> u64 {
        let start = self.next;
        self.step(1);
        self.following = self.next;
        self.step(self.of - 1);
        start
    }

    /// Goes on by so many starts.
    fn step(&mut self, starts: u64) {
        match self.rate {
            Rate::Fixed(rate) => {
                self.number += starts;
                let ns = u128::from(self.number) * 1_000_000_000 / u128::from(rate);
                self.next = u64::try_from(ns).unwrap_or(u64::MAX);
            }
            Rate::Exponential(rate) => {
                for _ in 0..starts {
                    // `unit` is never 1, so the logarithm is finite.
                    let gap = -libm::log1p(-self.rng.unit()) * 1e9 / rate as f64;
                    let ahead = self.fraction + gap;
                    self.next = self.next.saturating_add(ahead as u64);
                    self.fraction = ahead - libm::floor(ahead);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(rate: Rate, n: usize) -> Vec<u64> {
        let mut a = Arrivals::new(rate, 5, (0, 1)).unwrap();
        (0..n).map(|_| a.take()).collect()
    }

    #[test]
    fn impossible_rates_are_refused() {
        let refused = |rate| Arrivals::new(rate, 0, (0, 1)).unwrap_err();
        assert_eq!(refused(Rate::Fixed(0)), RateError(0));
        let rate = MAX_RATE + 1;
        assert_eq!(refused(Rate::Exponential(rate)), RateError(rate));
    }

    #[test]
    fn a_fixed_rate_does_not_drift() {
        assert_eq!(
            starts(Rate::Fixed(3), 5),
            [0, 333_333_333, 666_666_666, 1_000_000_000, 1_333_333_333]
        );
        let all = starts(Rate::Fixed(7_000_001), 7_000_002);
        assert_eq!(all.last(), Some(&1_000_000_000));
    }

    #[test]
    fn exponential_gaps_have_the_right_mean_and_spread() {
        const N: usize = 200_000;
        let all = starts(Rate::Exponential(1_000_000), N);
        let gaps: Vec<f64> = all.windows(2).map(|w| (w[1] - w[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        // Mean and standard deviation are both 1000 ns; five deviations of
        // their estimates are 1.1 % and 1.6 %.
        assert!((mean / 1000.0 - 1.0).abs() < 0.011, "mean {mean}");
        assert!((variance.sqrt() / 1000.0 - 1.0).abs() < 0.016, "deviation {}", variance.sqrt());
        let long = gaps.iter().filter(|&&g| g > 3000.0).count() as f64 / gaps.len() as f64;
        assert!((long - (-3.0f64).exp()).abs() < 0.003, "{long} above three means");
    }

    #[test]
    fn the_seed_decides() {
        let rate = Rate::Exponential(1000);
        let first = |seed| Arrivals::new(rate, seed, (0, 1)).unwrap().peek();
        assert_eq!(first(1), first(1));
        assert_ne!(first(1), first(2));
        let mut again = Arrivals::new(rate, 1, (0, 1)).unwrap();
        again.begin();
        assert_ne!(again.peek(), first(1));
    }

    #[test]
    fn cores_take_the_starts_of_one_load_in_turn() {
        for rate in [Rate::Fixed(7), Rate::Exponential(7)] {
            let all = starts(rate, 31);
            for first in 0..3u64 {
                let mut own = Arrivals::new(rate, 5, (first, 3)).unwrap();
                for i in (first as usize..30).step_by(3) {
                    assert_eq!(own.take(), all[i]);
                    assert_eq!(own.following(), all[i + 1]);
                }
            }
        }
    }

    #[test]
    fn told_starts_are_those_that_were_told() {
        let mut told = Arrivals::told();
        assert_eq!(told.peek(), 0);
        told.tell(7);
        assert_eq!((told.peek(), told.following()), (7, 7));
        told.begin();
        assert_eq!(told.peek(), 0);
    }
}
