//! A fit: the candidate of a family that comes nearest to some points, what it gives
//! of all of them, and what the points say of each parameter.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use drive::Error;
use load::watch::Watch;
use measure::units;
use serde::Serialize;

use crate::dropped::Dropped;
use crate::error::TwinError;
use crate::model::{Candidate, Model, Prediction};
use crate::objective::objective;
use crate::parameter::Parameter;
use crate::points::{Point, Run};
use crate::search::{Found, NO_DRIVE, search};
use crate::split::Runs;

/// How far a parameter is moved to see what the points say of it, of its range.
const MOVED: f64 = 0.1;
/// A parameter that moves the objective by less than this part of it, either way, is
/// not determined.
const FLAT: f64 = 0.02;
/// As near to an end of its range as this, a parameter is at it.
const END: f64 = 0.01;

/// What is fitted to what.
pub struct Fit<'a> {
    /// The family.
    pub model: &'a Model,
    /// What is searched.
    pub parameters: &'a [Parameter],
    /// The points, fitted or not.
    pub points: &'a [Point],
    /// How many of them, from the first, may be fitted: others are only compared.
    pub fitted: usize,
    /// Their runs.
    pub runs: &'a Runs,
    /// Candidates at most.
    pub evaluations: u64,
    /// Of the search.
    pub seed: u64,
    /// What of all that was tried is no drive.
    pub dropped: RefCell<Dropped>,
}

/// What the points say of a parameter.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sensitivity {
    /// The objective with the parameter a tenth of its range lower, the others at
    /// the best; none where it is no drive or the range ends.
    pub lower: Option<f64>,
    /// The same, higher.
    pub higher: Option<f64>,
    /// Whether the points determine it.
    pub determined: bool,
    /// Whether the best is at an end of the range.
    pub at_end: bool,
}

/// What the rest of `all` candidates takes, as long each as the `done` first.
fn time_left(passed: Duration, done: u64, all: u64) -> String {
    let each = passed.as_nanos() as f64 / done.max(1) as f64;
    units::time_ns(each * all.saturating_sub(done) as f64)
}

impl Fit<'_> {
    /// Searches for the best of the runs that are `used`. `what` is being fitted.
    pub fn search(&self, used: &[bool], what: &str, watch: &mut Watch) -> Result<Found, Error> {
        let start: Vec<f64> = self.parameters.iter().map(Parameter::start).collect();
        // The family itself must be a drive: what is wrong with it is told.
        self.model.candidate(self.parameters, &start)?;
        watch.phase(what);
        let began = Instant::now();
        let found = search(&start, self.evaluations, self.seed, |at, n, best| {
            if best.is_finite() {
                let off = units::count(best.exp_m1() * 100.0);
                let left = time_left(began.elapsed(), n - 1, self.evaluations);
                watch.phase(&format!("{what}, {off} % off, {left} left at most"));
            }
            watch.look(n as f64 / self.evaluations as f64);
            self.cost(at, used, watch)
        })?;
        if self.dropped.borrow().is_all() {
            let why = self.dropped.borrow().lines().join("; ");
            return Err(TwinError::Usage(format!(
                "{why}: give other ranges with --fit, or set with --set what they need"
            ))
            .into());
        }
        if found.objective >= NO_DRIVE {
            return Err(TwinError::Usage(format!(
                "no candidate takes time for all that was measured: give --family {} times, or \
                 take another one",
                self.model.family
            ))
            .into());
        }
        Ok(found)
    }

    /// The objective of a place, over the runs that are `used`.
    fn cost(&self, at: &[f64], used: &[bool], watch: &Watch) -> Result<f64, Error> {
        let note = |why| self.dropped.borrow_mut().note(self.parameters, at, why);
        let predictions = match self.predict(at, Some(used), watch) {
            Ok((_, predictions)) => predictions,
            Err(e @ (Error::Usage(_) | Error::Drive(_) | Error::Target(_))) => {
                note(Some(e.to_string()));
                return Ok(NO_DRIVE);
            }
            Err(e) => return Err(e),
        };
        note(None);
        let of = self.points[..self.fitted].iter().zip(&self.runs.of);
        let of = of.filter_map(|(point, &run)| Some((point, predictions[run].as_ref()?)));
        Ok(objective(of).unwrap_or(NO_DRIVE))
    }

    /// What the candidate at a place gives of the runs that are `used`, or of all.
    pub fn predict(
        &self,
        at: &[f64],
        used: Option<&[bool]>,
        watch: &Watch,
    ) -> Result<(Candidate, Vec<Option<Prediction>>), Error> {
        let candidate = self.model.candidate(self.parameters, at)?;
        let is_used = |run: usize| used.is_none_or(|used| used[run]);
        let which: Vec<usize> = (0..self.runs.all.len()).filter(|&run| is_used(run)).collect();
        let runs: Vec<Run> = which.iter().map(|&run| self.runs.all[run].clone()).collect();
        let given = self.model.predict(&candidate, &runs, watch)?;
        let mut all = vec![None; self.runs.all.len()];
        which.into_iter().zip(given).for_each(|(run, prediction)| all[run] = Some(prediction));
        Ok((candidate, all))
    }

    /// What the runs that are `used` say of each parameter at the best.
    pub fn sensitivities(
        &self,
        found: &Found,
        used: &[bool],
        watch: &mut Watch,
    ) -> Result<Vec<Sensitivity>, Error> {
        watch.phase("what the points determine");
        let all = self.parameters.len();
        (0..all)
            .map(|i| {
                watch.look(i as f64 / all as f64);
                let (parameter, x) = (&self.parameters[i], found.at[i]);
                let step = parameter.choices().map_or(MOVED, |n| 1.0 / n as f64);
                let moved = |to: f64| -> Result<Option<f64>, Error> {
                    let mut at = found.at.clone();
                    at[i] = to;
                    let is_other = parameter.value(to) != parameter.value(x);
                    if !(0.0..=1.0).contains(&to) || !is_other {
                        return Ok(None);
                    }
                    Ok(Some(self.cost(&at, used, watch)?).filter(|&cost| cost < NO_DRIVE))
                };
                let (lower, higher) = (moved(x - step)?, moved(x + step)?);
                let limit = found.objective * (1.0 + FLAT);
                let moves = [lower, higher].into_iter().flatten().any(|cost| cost > limit);
                let at_end = parameter.choices().is_none() && !(END..=1.0 - END).contains(&x);
                Ok(Sensitivity { lower, higher, determined: moves, at_end })
            })
            .collect()
    }
}
