//! Numbers that look random: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
//!
//! It is written out here so that no update of a dependency can change what a
//! seed means. Not for secrets. Nothing fails.

/// The step of its counter.
pub const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Maps 64 bits to 64 others, one to one, so that close inputs give unrelated
/// outputs: what it makes of its counter.
#[inline]
pub fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A number from 0 to 1, 1 excluded, in steps of 2^-53: of 53 of the bits.
#[inline]
pub fn unit(bits: u64) -> f64 {
    // 53 bits are what the fraction of an f64 has.
    (bits >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// A source of random numbers. The same seed gives the same numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The source of number `stream` of a seed.
    pub fn new(seed: u64, stream: u64) -> Random {
        let mut random = Random(seed ^ stream.wrapping_mul(0x9e6c_63d0_876a_9a47));
        random.bits();
        random
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// A number from 0 to `n` - 1; zero when `n` is zero.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }

    /// A number from `least` to `most`, both included; `least` when `most` is
    /// not above it.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        match most.saturating_sub(least).checked_add(1) {
            Some(n) => least + self.below(n),
            None => self.bits(),
        }
    }

    /// True with probability `p`.
    pub fn chance(&mut self, p: f64) -> bool {
        unit(self.bits()) < p
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_in_range_and_even() {
        let mut r = Random::new(1, 2);
        let mut sum = 0;
        for _ in 0..10_000 {
            let x = r.between(10, 19);
            assert!((10..=19).contains(&x));
            sum += x;
        }
        assert!((140_000..150_000).contains(&sum), "{sum}");
        let hits = (0..10_000).filter(|_| r.chance(0.25)).count();
        assert!((2_300..2_700).contains(&hits), "{hits}");
        assert!(!r.chance(0.0) && r.chance(1.0));
        assert_eq!((r.below(0), r.between(7, 7), r.between(7, 3)), (0, 7, 7));
        r.between(0, u64::MAX);
        assert!(unit(u64::MAX) < 1.0);
    }
}
