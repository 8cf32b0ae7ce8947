//! Ranges of whole numbers, with both ends in them: what a value may be.

use std::fmt;

/// The least and the most that a value may be. `lo <= hi`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The least.
    pub lo: u64,
    /// The most.
    pub hi: u64,
}

impl Bounds {
    /// All that the language's numbers can be: up to 2^63 - 1.
    pub const ALL: Bounds = Bounds { lo: 0, hi: i64::MAX as u64 };

    /// Those of the half-open range `start..end` of a text; `None` where it is empty.
    pub fn of(start: u64, end: u64) -> Option<Bounds> {
        (start < end).then(|| Bounds { lo: start, hi: end - 1 })
    }

    /// One value.
    pub fn one(value: u64) -> Bounds {
        Bounds { lo: value, hi: value }
    }

    /// Whether a value is in them.
    #[inline]
    pub fn has(self, value: u64) -> bool {
        // One comparison: below `lo` it wraps past all others.
        value.wrapping_sub(self.lo) <= self.hi - self.lo
    }

    /// Whether all of `other` is in them.
    pub fn hold(self, other: Bounds) -> bool {
        self.lo <= other.lo && other.hi <= self.hi
    }

    /// What is in both.
    pub fn both(self, other: Bounds) -> Option<Bounds> {
        let (lo, hi) = (self.lo.max(other.lo), self.hi.min(other.hi));
        (lo <= hi).then_some(Bounds { lo, hi })
    }

    /// The least that hold both.
    pub fn hull(self, other: Bounds) -> Bounds {
        Bounds { lo: self.lo.min(other.lo), hi: self.hi.max(other.hi) }
    }

    /// How many values there are.
    pub fn count(self) -> u64 {
        (self.hi - self.lo).saturating_add(1)
    }
}

/// As texts have it, half-open.
impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.lo, u128::from(self.hi) + 1)
    }
}
