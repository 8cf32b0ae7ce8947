//! Arithmetic that is the same on every machine.
//!
//! The standard library's powers and exponentials may differ in their last
//! bits from one platform to the next, and a drive's errors are drawn by
//! comparing with them. Here only +, -, * and / are used, whose results IEEE
//! 754 fixes. Relative errors stay below 1e-12. Nothing fails.

use std::f64::consts::{LN_2, SQRT_2};

use port::random;

/// e to the `x`. 0 where that is below the smallest normal number, infinity
/// above the largest.
pub fn exp(x: f64) -> f64 {
    if x < -708.0 {
        return 0.0;
    }
    if x > 709.0 {
        return f64::INFINITY;
    }
    let scale = (x / LN_2 + if x < 0.0 { -0.5 } else { 0.5 }) as i64;
    let rest = x - scale as f64 * LN_2;
    let series = (1..=16).rev().fold(1.0, |sum, n| 1.0 + sum * rest / f64::from(n));
    // Two factors, as one alone may leave the range.
    let power = |n: i64| f64::from_bits(((n + 1023) as u64) << 52);
    series * power(scale / 2) * power(scale - scale / 2)
}

/// The natural logarithm of a normal number above 0.
pub fn ln(x: f64) -> f64 {
    debug_assert!(x.is_normal() && x > 0.0);
    let mut scale = (x.to_bits() >> 52) as i64 - 1023;
    let mut part = f64::from_bits((x.to_bits() & ((1 << 52) - 1)) | (1023 << 52));
    if part > SQRT_2 {
        part /= 2.0;
        scale += 1;
    }
    let s = (part - 1.0) / (part + 1.0);
    let series = (0..12).rev().fold(0.0, |sum, n| sum * s * s + 1.0 / f64::from(2 * n + 1));
    2.0 * s * series + scale as f64 * LN_2
}

/// `x` to the `y`, for `x` of at least 0; 0 to any power is 0.
pub fn pow(x: f64, y: f64) -> f64 {
    if x < f64::MIN_POSITIVE { 0.0 } else { exp(y * ln(x)) }
}

/// A number that depends on all bits of `x`.
#[inline]
pub fn mix(x: u64) -> u64 {
    random::mix(x.wrapping_add(random::STEP))
}

/// A number from 0 to below 1, of 53 of the bits.
#[inline]
pub fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-12 * b.abs().max(1e-300)
    }

    proptest! {
        #[test]
        fn as_the_standard_library(x in -700.0f64..700.0, y in 1e-300f64..1e300, z in 0.0f64..3.0) {
            prop_assert!(near(exp(x), x.exp()), "exp {x}: {} {}", exp(x), x.exp());
            let (log, known) = (ln(y), y.ln());
            prop_assert!((log - known).abs() <= 1e-14 * known.abs().max(1.0), "ln {y}");
            prop_assert!(near(pow(y.min(1e90), z), y.min(1e90).powf(z)), "{y} ^ {z}");
        }

        #[test]
        fn a_unit_is_below_one(bits in any::<u64>()) {
            prop_assert!((0.0..1.0).contains(&unit(bits)));
        }
    }

    #[test]
    fn the_ends() {
        assert_eq!((exp(0.0), ln(1.0), pow(0.0, 2.0)), (1.0, 0.0, 0.0));
        assert_eq!((exp(-1e9), exp(1e9)), (0.0, f64::INFINITY));
        assert!(unit(u64::MAX) < 1.0);
        assert_ne!(mix(0), mix(1));
    }
}
