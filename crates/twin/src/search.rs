//! The search: places of the parameters with the least objective.
//!
//! First places drawn at random, then Nelder and Mead's simplex from each of the
//! best few of them, then from the best of all, again and again with a new simplex,
//! until a round brings nothing or all evaluations are used. Outside of 0 to 1 a
//! place is the one reflected at the border, so that a simplex never leaves the
//! bounds.
//!
//! Guarantees: at most so many evaluations; the same seed gives the same search;
//! the best place of all that were tried is given, converged or not. Fails when the
//! objective does, which ends it at once.

use std::cell::RefCell;

use argmin::core::{CostFunction, Executor};
use argmin::solver::neldermead::NelderMead;
use workload::rng::Rng;

use drive::Error;

/// Of all evaluations, one in so many is drawn at random.
const DRAWN: u64 = 4;
/// From how many of the places drawn a simplex begins, and of all evaluations the part
/// that each of these has.
const STARTS: usize = 3;
const EACH: u64 = 6;
/// A round that lowers the objective by less than this part of it brings nothing.
const NOTHING: f64 = 0.01;
/// A simplex is at its end when its objectives differ by less.
const SMALL: f64 = 2e-4;
/// The edge of a simplex about a place that was drawn, and about the best.
const EDGES: [f64; 2] = [0.2, 0.12];
/// What a place costs that is no drive, or was not tried any more.
pub const NO_DRIVE: f64 = 1e3;

/// Where a search ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The best place, 0 to 1 in each parameter.
    pub at: Vec<f64>,
    /// Its objective.
    pub objective: f64,
    /// How many places were tried.
    pub evaluations: u64,
    /// Whether the last round brought nothing.
    pub converged: bool,
}

/// What is tried, and what came of it.
struct Course<F> {
    try_it: F,
    left: u64,
    /// So many of these are for later rounds.
    kept: u64,
    found: Found,
    failed: Option<Error>,
}

impl<F> Course<F> {
    /// The best place, its objective, and how many may still be tried.
    fn standing(&self) -> (Vec<f64>, f64, u64) {
        let left = if self.failed.is_some() { 0 } else { self.left };
        (self.found.at.clone(), self.found.objective, left)
    }
}

impl<F: FnMut(&[f64], u64, f64) -> Result<f64, Error>> Course<F> {
    /// Tries a place, if one may still be tried.
    fn cost(&mut self, place: &[f64]) -> f64 {
        if self.left <= self.kept || self.failed.is_some() {
            return NO_DRIVE;
        }
        let at: Vec<f64> = place.iter().map(|&x| reflected(x)).collect();
        self.left -= 1;
        self.found.evaluations += 1;
        match (self.try_it)(&at, self.found.evaluations, self.found.objective) {
            Ok(cost) => {
                if cost < self.found.objective {
                    (self.found.at, self.found.objective) = (at, cost);
                }
                cost
            }
            Err(e) => {
                self.failed = Some(e);
                NO_DRIVE
            }
        }
    }
}

/// The problem as the solver sees it.
struct Problem<'a, F>(&'a RefCell<Course<F>>);

impl<F: FnMut(&[f64], u64, f64) -> Result<f64, Error>> CostFunction for Problem<'_, F> {
    type Param = Vec<f64>;
    type Output = f64;

    fn cost(&self, place: &Vec<f64>) -> Result<f64, argmin::core::Error> {
        Ok(self.0.borrow_mut().cost(place))
    }
}

/// Searches from `start`. `try_it` gives the objective of a place, and is told how
/// many were tried and the least so far.
pub fn search<F: FnMut(&[f64], u64, f64) -> Result<f64, Error>>(
    start: &[f64],
    evaluations: u64,
    seed: u64,
    try_it: F,
) -> Result<Found, Error> {
    let found =
        Found { at: start.to_vec(), objective: f64::INFINITY, evaluations: 0, converged: false };
    let course = Course { try_it, left: evaluations, kept: 0, found, failed: None };
    let course = RefCell::new(course);
    let mut rng = Rng::new(seed, 0);
    let mut tried = vec![(course.borrow_mut().cost(start), start.to_vec())];
    for _ in 0..evaluations / DRAWN {
        let place: Vec<f64> = start.iter().map(|_| rng.unit()).collect();
        tried.push((course.borrow_mut().cost(&place), place));
    }
    tried.sort_by(|a, b| a.0.total_cmp(&b.0));
    tried.truncate(STARTS);
    for round in 0.. {
        let (best, before, left) = course.borrow().standing();
        if left == 0 || best.is_empty() {
            break;
        }
        let (from, edge, kept) = match tried.get(round) {
            Some((_, drawn)) => (drawn, EDGES[0], left.saturating_sub(evaluations / EACH)),
            None => (&best, EDGES[1], 0),
        };
        course.borrow_mut().kept = kept;
        let solver = NelderMead::new(simplex(from, edge, &mut rng)).with_sd_tolerance(SMALL);
        let executor = solver.map(|solver| Executor::new(Problem(&course), solver));
        let end = executor.and_then(|it| it.configure(|state| state.max_iters(left)).run());
        end.map_err(|e| Error::Failed(format!("the search: {e}")))?;
        let (_, now, left) = course.borrow().standing();
        if left > 0 && round >= tried.len() && now >= before * (1.0 - NOTHING) {
            course.borrow_mut().found.converged = true;
            break;
        }
    }
    let course = course.into_inner();
    match course.failed {
        Some(e) => Err(e),
        None => Ok(course.found),
    }
}

/// A place, and one beside it for each parameter, on either side.
fn simplex(from: &[f64], edge: f64, rng: &mut Rng) -> Vec<Vec<f64>> {
    let mut all = vec![from.to_vec()];
    for i in 0..from.len() {
        let mut place = from.to_vec();
        place[i] += if rng.one_in(2) { edge } else { -edge } * (0.5 + rng.unit());
        all.push(place);
    }
    all
}

/// The place between 0 and 1 that a place beyond is reflected to.
fn reflected(x: f64) -> f64 {
    let x = x.rem_euclid(2.0);
    if x > 1.0 { 2.0 - x } else { x }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bowl with its least value at the given place, in a frame of other scales.
    fn bowl(at: &[f64], to: &[f64]) -> f64 {
        at.iter().zip(to).enumerate().map(|(i, (x, t))| (i + 1) as f64 * (x - t).abs()).sum()
    }

    #[test]
    fn the_least_is_found_and_twice_the_same() {
        let to = [0.2, 0.9, 0.5, 0.0];
        let go = |seed| search(&[0.5; 4], 600, seed, |at, _, _| Ok(bowl(at, &to))).unwrap();
        let found = go(1);
        assert!(found.objective < 0.1, "{found:?}");
        assert!(found.at.iter().all(|x| (0.0..=1.0).contains(x)));
        assert!(found.evaluations <= 600);
        assert_eq!(found, go(1));
    }

    #[test]
    fn too_few_evaluations_are_told() {
        let to = [0.2, 0.9, 0.4];
        let found = search(&[0.5; 3], 9, 1, |at, _, _| Ok(bowl(at, &to))).unwrap();
        assert!(!found.converged);
        assert_eq!(found.evaluations, 9);
    }

    #[test]
    fn what_goes_wrong_ends_it() {
        let mut n = 0;
        let end = search(&[0.5], 100, 1, |_, _, _| {
            n += 1;
            if n == 3 { Err(Error::Failed("no".into())) } else { Ok(1.0) }
        });
        assert!(end.unwrap_err().to_string().contains("no"));
        assert_eq!(n, 3);
    }

    #[test]
    fn nothing_to_search_is_the_start() {
        let found = search(&[], 10, 1, |_, _, _| Ok(0.5)).unwrap();
        assert_eq!((found.objective, found.at.len()), (0.5, 0));
    }

    #[test]
    fn places_are_reflected_at_the_border() {
        for (x, to) in [(0.3, 0.3), (-0.2, 0.2), (1.25, 0.75), (2.5, 0.5)] {
            assert!((reflected(x) - to).abs() < 1e-12, "{x}");
        }
    }
}
