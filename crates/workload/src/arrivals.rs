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

/// The intended starts of a load, in nanoseconds since its start.
#[derive(Clone, Debug)]
pub struct Arrivals {
    load: Load,
    rng: Rng,
    /// How many starts were given before the next.
    given: u64,
    /// The next start, and the fraction of a nanosecond beyond it.
    next: u64,
    fraction: f64,
}

impl Arrivals {
    /// The starts of submitter `stream`; the seed decides exponential ones.
    pub fn new(load: Load, seed: u64, stream: u64) -> Result<Arrivals, LoadError> {
        match load {
            Load::Closed { depth: 0 } => return Err(LoadError::Depth),
            Load::Fixed { rate } | Load::Exponential { rate }
                if !(1..=MAX_RATE).contains(&rate) =>
            {
                return Err(LoadError::Rate { rate });
            }
            _ => {}
        }
        // Not the numbers that the addresses are drawn from.
        let rng = Rng::new(seed ^ 0x0061_7272_6976_616c, stream);
        let mut arrivals = Arrivals { load, rng, given: 0, next: 0, fraction: 0.0 };
        if matches!(load, Load::Exponential { .. }) {
            arrivals.step();
        }
        Ok(arrivals)
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

    /// Takes the start that [`Arrivals::peek`] shows.
    #[inline]
    pub fn take(&mut self) -> Option<u64> {
        let start = self.peek()?;
        self.step();
        Some(start)
    }

    fn step(&mut self) {
        self.given += 1;
        match self.load {
            Load::Closed { .. } => {}
            Load::Fixed { rate } => {
                let ns = u128::from(self.given) * 1_000_000_000 / u128::from(rate);
                self.next = u64::try_from(ns).unwrap_or(u64::MAX);
            }
            Load::Exponential { rate } => {
                // `unit` is never 1, so the logarithm is finite.
                let gap = -libm::log1p(-self.rng.unit()) * 1e9 / rate as f64;
                let ahead = self.fraction + gap;
                self.next = self.next.saturating_add(ahead as u64);
                self.fraction = ahead - libm::floor(ahead);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(load: Load, n: usize) -> Vec<u64> {
        let mut a = Arrivals::new(load, 5, 0).unwrap();
        (0..n).map(|_| a.take().unwrap()).collect()
    }

    #[test]
    fn impossible_loads_are_refused() {
        let refused = |load| Arrivals::new(load, 0, 0).unwrap_err();
        assert_eq!(refused(Load::Closed { depth: 0 }), LoadError::Depth);
        assert_eq!(refused(Load::Fixed { rate: 0 }), LoadError::Rate { rate: 0 });
        let rate = MAX_RATE + 1;
        assert_eq!(refused(Load::Exponential { rate }), LoadError::Rate { rate });
    }

    #[test]
    fn a_closed_loop_has_no_times() {
        let mut a = Arrivals::new(Load::Closed { depth: 32 }, 0, 0).unwrap();
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
        assert_eq!(Arrivals::new(Load::Fixed { rate: 3 }, 0, 0).unwrap().depth(), None);
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
    fn the_seed_and_the_stream_decide() {
        let load = Load::Exponential { rate: 1000 };
        let first = |seed, stream| Arrivals::new(load, seed, stream).unwrap().peek();
        assert_eq!(first(1, 0), first(1, 0));
        assert_ne!(first(1, 0), first(2, 0));
        assert_ne!(first(1, 0), first(1, 1));
    }
}
