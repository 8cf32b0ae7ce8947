//! Write amplification by formula: what every correct drive must come to
//! under uniform random overwrites of its whole logical space, without trim.
//!
//! `spare` is `(T - U) / T` with T physical and U logical pages. Count in T
//! only the blocks that hold data, not the free reserve and not metadata.
//! All functions answer `None` when `spare` is not between 0 and 1, both
//! excluded.

use std::f64::consts::E;

/// Victims picked at random, of any number of blocks: `1 / spare`.
pub fn random(spare: f64) -> Option<f64> {
    ratio(spare).map(|_| 1.0 / spare)
}

/// Victims picked at random where T is only so many `blocks` of each part that
/// collects for itself, of which two are open: the user's and collection's. `None`
/// also where fewer than two blocks are logical.
///
/// All in blocks, time as the user's writes. The two open ones are half full in
/// the mean, so that victims are drawn from T - 1 closed ones. What is in the open
/// ones is newer than the rest: of half a block `1 / 6U` is stale in the user's,
/// which takes a time of 1 to fill, and `(1 - v) / 6Uv` in collection's. So a
/// victim's mean share of valid pages is `(U - 1 + 1 / 6Uv) / (T - 1)` when it is
/// drawn. Parts work side by side, each as much as any other, so that a victim
/// takes the time in which a block is programmed, of which `1 - v` is the user's,
/// and its pages are moved half of that later in the mean: `v(1 - v) / 2U` of them
/// became stale. Less that it is v, and the write amplification is `1 / (1 - v)`.
///
/// A single part makes the user wait for a full victim; what it holds is younger
/// then, and it comes to as much as 1.5 % more.
pub fn random_few(spare: f64, blocks: f64) -> Option<f64> {
    ratio(spare)?;
    let logical = blocks * (1.0 - spare);
    if !(blocks.is_finite() && logical >= 2.0) {
        return None;
    }
    let mut v = 1.0 - spare;
    for _ in 0..100 {
        let drawn = (logical - 1.0 + 1.0 / (6.0 * logical * v)) / (blocks - 1.0);
        v = drawn - v * (1.0 - v) / (2.0 * logical);
    }
    (v > 0.0 && v < 1.0).then(|| 1.0 / (1.0 - v))
}

/// Victims picked in the order in which they were written.
pub fn fifo(spare: f64) -> Option<f64> {
    let alpha = ratio(spare)?;
    let w = lambert_w0(-alpha * (-alpha).exp())?;
    Some(alpha / (alpha + w))
}

/// The victim with the fewest valid pages, blocks of `pages_per_block` pages
/// (Desnoyers 2012, "Analytic Modeling of SSD Write Performance"). `None` also
/// when `pages_per_block` is zero.
pub fn greedy(spare: f64, pages_per_block: u32) -> Option<f64> {
    let alpha = ratio(spare)?;
    let b = f64::from(pages_per_block);
    if pages_per_block == 0 {
        return None;
    }
    let c = alpha * (1.0 + 1.0 / (2.0 * b));
    let victim = 0.5 - b / alpha * lambert_w0(-c * (-c).exp())?;
    // With much spare the formula's victim is emptier than empty.
    Some((b / (b - (victim - 1.0))).max(1.0))
}

/// Physical pages for each logical page.
fn ratio(spare: f64) -> Option<f64> {
    (spare > 0.0 && spare < 1.0).then(|| 1.0 / (1.0 - spare))
}

/// The `w` of at least -1 with `w * e^w = x`, for `x` from -1/e to 0 (0
/// excluded); `None` outside.
pub fn lambert_w0(x: f64) -> Option<f64> {
    if !(-1.0 / E..0.0).contains(&x) {
        return None;
    }
    // The series at the branch point -1/e (Corless et al. 1996, equation
    // 4.22) is a good start over the whole range.
    let p = (2.0 * (E * x + 1.0).max(0.0)).sqrt();
    let mut w = -1.0 + p - p * p / 3.0 + 11.0 / 72.0 * p * p * p;
    for _ in 0..20 {
        if w + 1.0 < 1e-8 {
            break; // at the branch point, where the derivative is zero
        }
        let e = w.exp();
        let f = w * e - x;
        let step = f / (e * (w + 1.0) - (w + 2.0) * f / (2.0 * w + 2.0));
        w -= step;
        if step.abs() <= 1e-15 * w.abs() {
            break;
        }
    }
    Some(w)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn greedy_gives_the_published_values() {
        for (spare, expected) in
            [(0.07, 7.12), (0.12, 4.28), (0.20, 2.67), (0.28, 1.98), (0.50, 1.25)]
        {
            let wa = greedy(spare, 256).unwrap();
            assert!((wa - expected).abs() <= 0.005, "{wa} for {expected} at {spare}");
        }
    }

    #[test]
    fn random_and_fifo_at_one_fifth() {
        assert!((random(0.2).unwrap() - 5.0).abs() < 1e-12);
        // alpha = 1.25: W0(-1.25 e^-1.25) = -0.785787, by Newton's iteration.
        assert!((fifo(0.2).unwrap() - 1.25 / (1.25 - 0.785787)).abs() < 1e-5);
    }

    /// Against a simulation of a single part, 400 overwrites of 1024 pages a block.
    #[test]
    fn random_of_few_blocks_is_as_simulated() {
        for (blocks, spare, simulated) in [
            (6.06, 0.12, 6.822),
            (6.667, 0.2, 4.121),
            (9.09, 0.12, 7.195),
            (10.0, 0.2, 4.379),
            (11.1, 0.28, 3.188),
            (26.667, 0.2, 4.754),
            (30.48, 0.3, 3.202),
        ] {
            let wa = random_few(spare, blocks).unwrap();
            let off = wa / simulated - 1.0;
            assert!((-0.017..0.003).contains(&off), "{blocks} {spare}: {wa} for {simulated}");
        }
        let many = random_few(0.2, 1e6).unwrap();
        assert!((many / 5.0 - 1.0).abs() < 1e-4);
        assert_eq!((random_few(0.2, 2.4), random_few(0.2, f64::NAN)), (None, None));
        assert_eq!(random_few(0.0, 10.0), None);
    }

    #[test]
    fn outside_of_the_range_is_none() {
        for spare in [0.0, 1.0, -0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert_eq!((random(spare), fifo(spare), greedy(spare, 256)), (None, None, None));
        }
        assert_eq!(greedy(0.1, 0), None);
        for x in [0.0, 0.1, -0.4, f64::NAN] {
            assert_eq!(lambert_w0(x), None);
        }
    }

    proptest! {
        #[test]
        fn w_undoes_w_times_e_to_the_w(w in -0.9999f64..-1e-12) {
            let x = w * w.exp();
            let found = lambert_w0(x).unwrap();
            prop_assert!((found * found.exp() - x).abs() <= 1e-15);
            // Close to the branch point rounding of `x` moves `w` more.
            prop_assert!((found - w).abs() <= 1e-14 / (w + 1.0));
        }

        #[test]
        fn better_victims_cost_less(spare in 0.01f64..0.95, b in 8u32..4096) {
            let (r, f, g) = (random(spare).unwrap(), fifo(spare).unwrap(), greedy(spare, b).unwrap());
            prop_assert!(g >= 1.0 && g < f * 1.000001 && f < r, "{g} {f} {r}");
        }
    }
}
