//! Write amplification by formula: what every correct drive must come to
//! under uniform random overwrites of its whole logical space, without trim.
//!
//! `spare` is `(T - U) / T` with T physical and U logical pages. Count in T
//! only the blocks that hold data, not the free reserve and not metadata.
//! All functions answer `None` when `spare` is not between 0 and 1, both
//! excluded.

use std::f64::consts::E;

/// Victims picked at random: `1 / spare`.
pub fn random(spare: f64) -> Option<f64> {
    ratio(spare).map(|_| 1.0 / spare)
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
