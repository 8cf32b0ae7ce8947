//! Division by a number that is set once: rows need not be a power of two of
//! blocks, and the data path asks of each address where it is in its row.
//!
//! A division takes the processor many times as long as the product and shift
//! that stand for it here. Exact for all numbers below [`Divisor::END`].
//! Nothing here fails.

/// What is divided by, and its reciprocal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Divisor {
    by: u32,
    /// 2^[`SHIFT`] / `by`, rounded up.
    reciprocal: u64,
}

/// Rounding up makes the reciprocal too large by less than one, so the product
/// by less than `Divisor::END`, 2^26: that is less than 2^SHIFT / `Divisor::MOST`,
/// and a quotient's fraction leaves at least that to the next number.
const SHIFT: u32 = 36;

impl Divisor {
    /// The greatest divisor.
    pub const MOST: u32 = 1 << 10;
    /// What is divided is below this.
    pub const END: u32 = 1 << 26;

    /// Division by `by`, from 1 to [`Divisor::MOST`].
    pub fn new(by: u32) -> Divisor {
        assert!((1..=Divisor::MOST).contains(&by), "what is divided by is in the range");
        Divisor { by, reciprocal: (1u64 << SHIFT).div_ceil(by.into()) }
    }

    /// What is divided by.
    #[inline]
    pub fn by(self) -> u32 {
        self.by
    }

    /// `n` / `by`.
    #[inline]
    pub fn quotient(self, n: u32) -> u32 {
        debug_assert!(n < Divisor::END);
        ((u64::from(n) * self.reciprocal) >> SHIFT) as u32
    }

    /// `n` % `by`.
    #[inline]
    pub fn remainder(self, n: u32) -> u32 {
        n - self.quotient(n) * self.by
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn all_divisors_are_exact_at_the_ends_of_their_rows() {
        for by in 1..=Divisor::MOST {
            let divisor = Divisor::new(by);
            let last = (Divisor::END - 1) / by * by;
            for n in [0, 1, by - 1, by, by + 1, last - 1, last, Divisor::END - 1] {
                assert_eq!(
                    (divisor.quotient(n), divisor.remainder(n)),
                    (n / by, n % by),
                    "{n} {by}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn is_what_the_processor_divides(by in 1..=Divisor::MOST, n in 0..Divisor::END) {
            let divisor = Divisor::new(by);
            prop_assert_eq!(divisor.by(), by);
            prop_assert_eq!((divisor.quotient(n), divisor.remainder(n)), (n / by, n % by));
        }
    }
}
