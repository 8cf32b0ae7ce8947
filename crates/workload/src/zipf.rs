//! Zipf's distribution: rank k comes with a probability in proportion to
//! k^-theta; and Pareto's, as fio has it.
//!
//! Drawn by rejection-inversion (Hörmann and Derflinger 1996, "Rejection-
//! inversion to generate variates from monotone discrete distributions"): no
//! table, any theta above zero, any number of ranks. Ranks are then spread
//! over the addresses one to one, so that hot blocks are not neighbours.

use crate::rng::{Rng, mix};

/// A distribution over the ranks 1 to `n`.
#[derive(Clone, Debug)]
pub(crate) struct Zipf {
    n: f64,
    last: u64,
    theta: f64,
    low: f64,
    high: f64,
    shortcut: f64,
}

impl Zipf {
    /// `n` is at least 1, `theta` above zero.
    pub(crate) fn new(n: u64, theta: f64) -> Zipf {
        let last = n - 1;
        let n = n as f64;
        let mut zipf = Zipf { n, last, theta, low: 0.0, high: 0.0, shortcut: 0.0 };
        zipf.low = zipf.area(1.5) - 1.0;
        zipf.high = zipf.area(n + 0.5);
        zipf.shortcut = 2.0 - zipf.area_inverse(zipf.area(2.5) - zipf.height(2.0));
        zipf
    }

    /// Draws a rank, from 0 (the hottest) to n - 1.
    #[inline]
    pub(crate) fn draw(&self, rng: &mut Rng) -> u64 {
        loop {
            let u = self.high + rng.unit() * (self.low - self.high);
            let x = self.area_inverse(u);
            let k = (x + 0.5).floor().clamp(1.0, self.n);
            if k - x <= self.shortcut || u >= self.area(k + 0.5) - self.height(k) {
                // Above 2^53 `n` may have been rounded up.
                return (k as u64 - 1).min(self.last);
            }
        }
    }

    /// x^-theta.
    fn height(&self, x: f64) -> f64 {
        libm::exp(-self.theta * libm::log(x))
    }

    /// The integral of `height` from 1 to `x`.
    fn area(&self, x: f64) -> f64 {
        let log = libm::log(x);
        exp_m1_over((1.0 - self.theta) * log) * log
    }

    fn area_inverse(&self, x: f64) -> f64 {
        // Rounding may go past the end of the domain.
        let t = (x * (1.0 - self.theta)).max(-1.0);
        libm::exp(log_1p_over(t) * x)
    }
}

/// Pareto's distribution over the ranks 0 to `n - 1`, by the formula of fio's `lib/zipf.c`:
/// rank n u^p for an even u, with the p by which 1 - h of them are below h n.
#[derive(Clone, Debug)]
pub(crate) struct Pareto {
    last: u64,
    power: f64,
}

impl Pareto {
    /// `n` is at least 1, `h` above 0 and below 1.
    pub(crate) fn new(n: u64, h: f64) -> Pareto {
        Pareto { last: n - 1, power: libm::log(h) / libm::log1p(-h) }
    }

    /// Draws a rank, from 0 (the hottest) to n - 1.
    #[inline]
    pub(crate) fn draw(&self, rng: &mut Rng) -> u64 {
        let part = libm::exp(self.power * libm::log(rng.unit()));
        ((self.last as f64 * part) as u64).min(self.last)
    }
}

/// (e^x - 1) / x, also close to zero.
fn exp_m1_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { libm::expm1(x) / x } else { 1.0 + x / 2.0 * (1.0 + x / 3.0) }
}

/// log(1 + x) / x, also close to zero.
fn log_1p_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { libm::log1p(x) / x } else { 1.0 - x * (0.5 - x / 3.0) }
}

/// A one-to-one map of 0 .. n to itself that looks random.
#[derive(Clone, Debug)]
pub(crate) struct Spread {
    n: u64,
    mask: u64,
    shift: u32,
    keys: [u64; 3],
}

impl Spread {
    /// `n` is at least 1.
    pub(crate) fn new(n: u64, seed: u64) -> Spread {
        let bits = (64 - (n - 1).leading_zeros()).max(1);
        let keys = std::array::from_fn(|i| mix(seed.wrapping_add(i as u64 + 1)));
        Spread { n, mask: u64::MAX >> (64 - bits), shift: bits.div_ceil(2), keys }
    }

    /// Where `x`, below `n`, goes.
    #[inline]
    pub(crate) fn of(&self, mut x: u64) -> u64 {
        // Each step can be undone within the mask, so it maps the next power
        // of two to itself. Following it from below `n` until it is below `n`
        // again maps 0 .. n to itself, in less than two rounds on average.
        loop {
            for key in self.keys {
                x = (x.wrapping_add(key) & self.mask).wrapping_mul(key | 1) & self.mask;
                x ^= x >> self.shift;
            }
            if x < self.n {
                return x;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use proptest::prelude::*;

    /// How often each rank comes, against theory.
    fn compare(n: u64, theta: f64) {
        const DRAWS: usize = 200_000;
        let zipf = Zipf::new(n, theta);
        let mut rng = Rng::new(11, 0);
        let mut seen = vec![0u32; n as usize];
        for _ in 0..DRAWS {
            seen[zipf.draw(&mut rng) as usize] += 1;
        }
        let total: f64 = (1..=n).map(|k| (k as f64).powf(-theta)).sum();
        for k in [1, 2, 3, 10, 100].into_iter().filter(|&k| k <= n) {
            let p = (k as f64).powf(-theta) / total;
            let expected = p * DRAWS as f64;
            // Five standard deviations.
            let tolerance = 5.0 * (expected * (1.0 - p)).sqrt() + 1e-9;
            let got = f64::from(seen[k as usize - 1]);
            assert!(
                (got - expected).abs() <= tolerance,
                "rank {k} of {n}, {theta}: {got}, not {expected}"
            );
        }
    }

    #[test]
    fn ranks_come_as_often_as_theory_says() {
        for theta in [0.1, 0.5, 0.99, 1.0, 1.2, 3.0] {
            compare(1, theta);
            compare(2, theta);
            compare(1000, theta);
        }
    }

    /// 1 - h of the draws are below h n, and (1 - h)^2 below h^2 n; by fio's formula, draw
    /// for draw.
    #[test]
    fn ranks_come_as_often_as_pareto_says() {
        const DRAWS: usize = 200_000;
        for h in [0.05, 0.2, 0.5, 0.9] {
            let n = 1_000_000;
            let pareto = Pareto::new(n, h);
            let (mut rng, mut same) = (Rng::new(11, 0), Rng::new(11, 0));
            let ranks: Vec<u64> = (0..DRAWS).map(|_| pareto.draw(&mut rng)).collect();
            for power in [1, 2] {
                let (below, wanted) = (h.powi(power) * n as f64, (1.0 - h).powi(power));
                let got = ranks.iter().filter(|&&rank| (rank as f64) < below).count();
                let got = got as f64 / DRAWS as f64;
                assert!((got - wanted).abs() < 0.005, "{h}^{power}: {got}, not {wanted}");
            }
            for &rank in &ranks[..1000] {
                let fio = (n - 1) as f64 * same.unit().powf(h.ln() / (1.0 - h).ln());
                assert!((rank as f64 - fio).abs() <= 1.0, "{rank}, not {fio}");
            }
        }
        let mut rng = Rng::new(3, 0);
        for (n, h) in [(1, 0.2), (2, 1e-9), (1 << 55, 0.999_999), (1 << 55, 1e-300)] {
            assert!((0..1000).all(|_| Pareto::new(n, h).draw(&mut rng) < n));
        }
    }

    #[test]
    fn works_for_the_largest_range() {
        let zipf = Zipf::new(1 << 55, 0.9);
        let mut rng = Rng::new(3, 0);
        assert!((0..10_000).all(|_| zipf.draw(&mut rng) < 1 << 55));
    }

    proptest! {
        #[test]
        fn spreading_is_one_to_one(n in 1u64..3000, seed in any::<u64>()) {
            let spread = Spread::new(n, seed);
            let mut hit = vec![false; n as usize];
            for x in 0..n {
                let y = spread.of(x) as usize;
                prop_assert!(!hit[y], "{y} twice");
                hit[y] = true;
            }
        }
    }

    #[test]
    fn hot_ranks_are_not_neighbours() {
        let n = 1_000_000;
        let spread = Spread::new(n, 5);
        let mut places: Vec<u64> = (0..100).map(|x| spread.of(x)).collect();
        places.sort_unstable();
        let close = places.windows(2).filter(|w| w[1] - w[0] < n / 10_000).count();
        // A hundred random places have one such pair on average.
        assert!(close <= 6, "{close} pairs");
    }
}
