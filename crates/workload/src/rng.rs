//! Random numbers: xoshiro256++ of Blackman and Vigna (2019), seeded by
//! SplitMix64 as they advise (<https://prng.di.unimi.it>).
//!
//! It is written out here so that no update of a dependency can change what a
//! seed means. Not for secrets. Nothing here fails.

pub use port::random::mix;
use port::random::{STEP, unit};

/// A source of random numbers.
#[derive(Clone, Debug)]
pub struct Rng {
    s: [u64; 4],
}

impl Rng {
    /// The source of number `stream` of a seed. Streams are independent.
    pub fn new(seed: u64, stream: u64) -> Rng {
        // Stream 0 is the plain generator of the seed.
        let mut state = seed ^ mix(stream.wrapping_mul(STEP));
        let s = std::array::from_fn(|_| {
            state = state.wrapping_add(STEP);
            mix(state)
        });
        Rng { s }
    }

    /// 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        let s = &mut self.s;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number from 0 to `n` - 1; zero when `n` is zero. Numbers differ in
    /// probability by less than `n` in 2^64.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }

    /// True once in `n` times.
    #[inline]
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of a few, with equal chances.
    pub fn one_of<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize].clone()
    }

    /// A number from 0 to 1, 1 excluded, in steps of 2^-53.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        unit(self.bits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_the_reference_numbers() {
        // The authors' C code with the state 1, 2, 3, 4.
        let mut rng = Rng { s: [1, 2, 3, 4] };
        for expected in [
            41943041,
            58720359,
            3588806011781223,
            3591011842654386,
            9228616714210784205,
            9973669472204895162,
            14011001112246962877,
            12406186145184390807,
            15849039046786891736,
            10450023813501588000,
        ] {
            assert_eq!(rng.bits(), expected);
        }
        // SplitMix64 with the seed 1234567.
        let state = Rng::new(1234567, 0).s;
        assert_eq!(state[..2], [6457827717110365317, 3203168211198807973]);
        assert_eq!(state[2..], [9817491932198370423, 4593380528125082431]);
    }

    #[test]
    fn streams_differ() {
        let first = |stream| Rng::new(7, stream).bits();
        let mut all: Vec<u64> = (0..1000).map(first).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 1000);
    }

    #[test]
    fn numbers_are_even_and_in_range() {
        let mut rng = Rng::new(1, 0);
        let mut seen = [0u32; 7];
        for _ in 0..70_000 {
            seen[rng.below(7) as usize] += 1;
            assert!((0.0..1.0).contains(&rng.unit()));
        }
        // Six degrees of freedom: 22.5 is passed once in a thousand seeds.
        let chi: f64 = seen.iter().map(|&n| (f64::from(n) - 10_000.0).powi(2) / 10_000.0).sum();
        assert!(chi < 22.5, "chi-square {chi}");
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.below(1), 0);
    }
}
