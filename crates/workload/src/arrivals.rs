//! When requests start.
//!
//! In a closed loop a request starts when another has completed, so that a
//! slow drive is asked less. In an open loop requests start at times that the
//! drive does not influence; latency counts from the intended start, however
//! late the request got in.
//!
//! Guarantees: intended starts never go back and have no drift: the n-th of a
//! fixed rate is at n / rate, rounded down to a nanosecond. A rate or depth
//! that cannot be is refused with a [`LoadError`]; after that nothing fails.

use serde::Serialize;
use thiserror::Error;

use crate::rng::Rng;

/// The highest rate, in requests per second.
pub const MAX_RATE: u64 = 1_000_000_000;

/// How a drive is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// So many requests are in flight at all times.
    Closed {
        /// How many, at least one.
        depth: u32,
    },
    /// Requests start at even distances.
    Fixed {
        /// Requests per second, 1 to [`MAX_RATE`].
        rate: u64,
    },
    /// Distances are exponentially distributed: a Poisson process.
    Exponential {
        /// Requests per second on average, 1 to [`MAX_RATE`].
        rate: u64,
    },
}

/// Why a load is impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LoadError {
    /// Nothing in flight, ever.
    #[error("a depth of 0 asks for nothing; use at least 1")]
    Depth,
    /// Too slow or too fast.
    #[error(
        "a rate of {rate} requests per second is not from 1 to 1000000000; use for example 100k"
    )]
    Rate {
        /// The rate, per second.
        rate: u64,
    },
}

/// The intended starts of a load, in nanoseconds since its start, or every so
/// many-th of them.
#[derive(Clone, Debug)]
pub struct Arrivals {
    load: Load,
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
    pub fn new(load: Load, seed: u64, (first, of): (u64, u64)) -> Result<Arrivals, LoadError> {
        match load {
            Load::Closed { depth: 0 } => return Err(LoadError::Depth),
            Load::Fixed { rate } | Load::Exponential { rate }
                if !(1..=MAX_RATE).contains(&rate) =>
            {
                return Err(LoadError::Rate { rate });
            }
            _ => {}
        }
        let (rng, of) = (Rng::new(seed, 0), of.max(1));
        let (round, number, next, fraction, following) = (0, 0, 0, 0.0, 0);
        let mut arrivals =
            Arrivals { load, seed, round, rng, first, of, number, next, fraction, following };
        arrivals.begin();
        Ok(arrivals)
    }

    /// Begins again, exponential starts with others than before.
    pub fn begin(&mut self) {
        // Not the numbers that the addresses are drawn from.
        self.rng = Rng::new(self.seed ^ 0x0061_7272_6976_616c, self.round);
        self.round += 1;
        (self.number, self.next, self.fraction, self.following) = (0, 0, 0.0, 0);
        if matches!(self.load, Load::Exponential { .. }) {
            self.step(1);
        }
        self.step(self.first);
    }

    /// How many requests are in flight in a closed loop; `None` in an open
    /// one.
    pub fn depth(&self) -> Option<u32> {
        match self.load {
            Load::Closed { depth } => Some(depth),
            _ => None,
        }
    }

    /// When the next request is to start, in nanoseconds since the load's
    /// start; `None` in a closed loop, where it starts as soon as there is
    /// room.
    #[inline]
    pub fn peek(&self) -> Option<u64> {
        match self.load {
            Load::Closed { .. } => None,
            _ => Some(self.next),
        }
    }

    /// When the start of the load was to be that follows the last one taken, of
    /// whichever core: so many starts take as many distances.
    pub fn following(&self) -> u64 {
        self.following
    }

    /// Takes the start that [`Arrivals::peek`] shows.
    #[inline]
    pub fn take(&mut self) -> Option<u64> {
        let start = self.peek()?;
        self.step(1);
        self.following = self.next;
        self.step(self.of - 1);
        Some(start)
    }

    /// Goes on by so many starts.
    fn step(&mut self, starts: u64) {
        match self.load {
            Load::Closed { .. } => {}
            Load::Fixed { rate } => {
                self.number += starts;
                let ns = u128::from(self.number) * 1_000_000_000 / u128::from(rate);
                self.next = u64::try_from(ns).unwrap_or(u64::MAX);
            }
            Load::Exponential { rate } => {
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

    fn starts(load: Load, n: usize) -> Vec<u64> {
        let mut a = Arrivals::new(load, 5, (0, 1)).unwrap();
        (0..n).map(|_| a.take().unwrap()).collect()
    }

    #[test]
    fn impossible_loads_are_refused() {
        let refused = |load| Arrivals::new(load, 0, (0, 1)).unwrap_err();
        assert_eq!(refused(Load::Closed { depth: 0 }), LoadError::Depth);
        assert_eq!(refused(Load::Fixed { rate: 0 }), LoadError::Rate { rate: 0 });
        let rate = MAX_RATE + 1;
        assert_eq!(refused(Load::Exponential { rate }), LoadError::Rate { rate });
    }

    #[test]
    fn a_closed_loop_has_no_times() {
        let mut a = Arrivals::new(Load::Closed { depth: 32 }, 0, (0, 1)).unwrap();
        assert_eq!((a.depth(), a.peek(), a.take()), (Some(32), None, None));
    }

    #[test]
    fn a_fixed_rate_does_not_drift() {
        assert_eq!(
            starts(Load::Fixed { rate: 3 }, 5),
            [0, 333_333_333, 666_666_666, 1_000_000_000, 1_333_333_333]
        );
        let all = starts(Load::Fixed { rate: 7_000_001 }, 7_000_002);
        assert_eq!(all.last(), Some(&1_000_000_000));
        assert_eq!(Arrivals::new(Load::Fixed { rate: 3 }, 0, (0, 1)).unwrap().depth(), None);
    }

    #[test]
    fn exponential_gaps_have_the_right_mean_and_spread() {
        const N: usize = 200_000;
        let all = starts(Load::Exponential { rate: 1_000_000 }, N);
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
        let load = Load::Exponential { rate: 1000 };
        let first = |seed| Arrivals::new(load, seed, (0, 1)).unwrap().peek();
        assert_eq!(first(1), first(1));
        assert_ne!(first(1), first(2));
        let mut again = Arrivals::new(load, 1, (0, 1)).unwrap();
        again.begin();
        assert_ne!(again.peek(), first(1));
    }

    #[test]
    fn cores_take_the_starts_of_one_load_in_turn() {
        for load in [Load::Fixed { rate: 7 }, Load::Exponential { rate: 7 }] {
            let all = starts(load, 31);
            for first in 0..3u64 {
                let mut own = Arrivals::new(load, 5, (first, 3)).unwrap();
                for i in (first as usize..30).step_by(3) {
                    assert_eq!(own.take(), Some(all[i]));
                    assert_eq!(own.following(), all[i + 1]);
                }
            }
        }
    }
}
