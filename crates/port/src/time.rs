//! Drive time: nanoseconds since the drive was switched on.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// A moment in drive time, in nanoseconds. Wraps after 584 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// The moment the drive was switched on.
    pub const ZERO: Time = Time(0);

    /// Nanoseconds since `earlier`; zero when `earlier` is later.
    #[inline]
    pub fn since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<u64> for Time {
    type Output = Time;
    #[inline]
    fn add(self, ns: u64) -> Time {
        Time(self.0 + ns)
    }
}

impl AddAssign<u64> for Time {
    #[inline]
    fn add_assign(&mut self, ns: u64) {
        self.0 += ns;
    }
}

impl Sub for Time {
    type Output = u64;
    #[inline]
    fn sub(self, earlier: Time) -> u64 {
        self.0 - earlier.0
    }
}

impl fmt::Display for Time {
    /// Prints with the largest unit that keeps the number at least one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0 as f64;
        match self.0 {
            0..1_000 => write!(f, "{} ns", self.0),
            1_000..1_000_000 => write!(f, "{:.2} us", ns / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{:.2} ms", ns / 1e6),
            _ => write!(f, "{:.2} s", ns / 1e9),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_with_units() {
        assert_eq!(Time(999).to_string(), "999 ns");
        assert_eq!(Time(12_300).to_string(), "12.30 us");
        assert_eq!(Time(3_800_000).to_string(), "3.80 ms");
        assert_eq!(Time(2_500_000_000).to_string(), "2.50 s");
    }

    #[test]
    fn since_never_goes_below_zero() {
        assert_eq!(Time(5).since(Time(9)), 0);
        assert_eq!(Time(9).since(Time(5)), 4);
    }
}
