//! Which runs are fitted, and which are kept back.
//!
//! Reads and writes of one run were measured together and stay together; so do runs
//! that only the name of their kind tells apart. What is kept back says nothing
//! where the fit had nothing like it: such a point is extrapolated.

use workload::rng::Rng;

use crate::args::{TwinArgs, Used};
use crate::error::TwinError;
use crate::points::{Point, Run, Rw};

/// Of many runs, so many are compared for each one that is drawn to be fitted.
const TRIED: usize = 64;

/// The runs of some points, each once, and which run each point is of.
pub struct Runs {
    /// The runs, as their points came.
    pub all: Vec<Run>,
    /// Of each point, its run.
    pub of: Vec<usize>,
}

impl Runs {
    /// Of these points.
    pub fn new(points: &[Point]) -> Runs {
        let mut runs = Runs { all: Vec::new(), of: Vec::new() };
        for point in points {
            let run = point.run.plain();
            let known = runs.all.iter().position(|one| *one == run);
            runs.of.push(known.unwrap_or_else(|| {
                runs.all.push(run);
                runs.all.len() - 1
            }));
        }
        runs
    }
}

/// Whether so many runs can be split so: something must be fitted, and something
/// kept back.
pub fn check(args: &TwinArgs, runs: usize) -> Result<(), TwinError> {
    let (least, what) = match (args.folds, args.holdout) {
        (Some(n), _) => (n as usize, format!("--folds {n}")),
        (None, Some(share)) => (2, format!("--holdout {share}")),
        (None, None) => return Ok(()),
    };
    if runs >= least {
        return Ok(());
    }
    let have = format!("the points to be fitted are of {runs}: give more, or leave it out");
    Err(TwinError::Usage(format!("{what} needs {least} runs at least, and {have}")))
}

/// Which runs are fitted. The first runs are those of `points`.
pub fn used(args: &TwinArgs, runs: &Runs, points: &[Point]) -> Vec<bool> {
    let all = runs.of[..points.len()].iter().max().map_or(0, |last| last + 1);
    match (args.used, args.holdout) {
        (_, Some(share)) => {
            let kept = ((all as f64 * share).round() as usize).clamp(1, (all - 1).max(1));
            spread(runs, points, all, all - kept, args.seed)
        }
        (Used::Every(n), None) => (0..all).map(|run| run.is_multiple_of(n)).collect(),
        (Used::All, None) => vec![true; all],
    }
}

/// Of `all` runs `fitted` that cover what was measured. They are drawn one by one: each
/// time the run with which the fewest other points are [beyond](Measured::beyond) those
/// that are fitted, and as long as there are such, of equals the one with most of depth
/// and size at an end; then the one whose kind, depth, size and path were taken least
/// often; of equals what the seed says. Results are not looked at.
fn spread(runs: &Runs, points: &[Point], all: usize, fitted: usize, seed: u64) -> Vec<bool> {
    let order = shuffled(all, seed);
    let mut used = vec![false; all];
    let mut is_covered = false;
    for _ in 0..fitted {
        let left = order.iter().copied().filter(|&run| !used[run]).take(TRIED);
        let score = |run: usize| {
            let taken = likeness(&runs.all, &used, run);
            match is_covered {
                true => (0, 0, taken, run),
                false => (beyond(runs, points, &used, run), inside(&runs.all, run), taken, run),
            }
        };
        // Of equals the first, as they were shuffled.
        let Some((beyond, .., run)) = left.map(score).min_by_key(|it| (it.0, it.1, it.2)) else {
            break;
        };
        is_covered |= beyond == 0;
        used[run] = true;
    }
    used
}

/// How many points are beyond those of the runs that are used, and of one more.
fn beyond(runs: &Runs, points: &[Point], used: &[bool], more: usize) -> usize {
    let is_used = |n: &usize| used[runs.of[*n]] || runs.of[*n] == more;
    let (of, others): (Vec<usize>, Vec<usize>) = (0..points.len()).partition(is_used);
    let measured = Measured::new(of.into_iter().map(|n| &points[n]));
    others.into_iter().filter(|&n| measured.beyond(&points[n]).is_some()).count()
}

/// Which of a run's depth and size are neither the least nor the greatest of its kind.
fn inside(all: &[Run], run: usize) -> usize {
    let mine = &all[run];
    let is_inside = |of: fn(&Run) -> u32| {
        let alike = all.iter().filter(|one| kind(one) == kind(mine)).map(of);
        let (low, high) = alike.fold((u32::MAX, 0), |(low, high), x| (low.min(x), high.max(x)));
        usize::from(low < of(mine) && of(mine) < high)
    };
    is_inside(|run| run.qd) + is_inside(|run| run.bs)
}

/// How often runs that are used have kind, depth, size or path of this one.
fn likeness(all: &[Run], used: &[bool], run: usize) -> usize {
    let mine = &all[run];
    let others = all.iter().zip(used).filter(|(_, used)| **used).map(|(one, _)| one);
    let alike = |one: &Run| {
        let same = [one.qd == mine.qd, one.bs == mine.bs, one.path == mine.path];
        usize::from(kind(one) == kind(mine)) + same.iter().filter(|&&is| is).count()
    };
    others.map(alike).sum()
}

/// What a run does, whatever its depth and size.
fn kind(run: &Run) -> (Rw, u8) {
    (run.rw, run.read_percent)
}

/// Of so many runs, in which of `folds` parts each is.
pub fn folds(runs: usize, folds: usize, seed: u64) -> Vec<usize> {
    let mut of = vec![0; runs];
    shuffled(runs, seed).into_iter().enumerate().for_each(|(n, run)| of[run] = n % folds);
    of
}

fn shuffled(n: usize, seed: u64) -> Vec<usize> {
    let mut rng = Rng::new(seed, 1);
    let mut all: Vec<usize> = (0..n).collect();
    for i in (1..n).rev() {
        all.swap(i, rng.below(i as u64 + 1) as usize);
    }
    all
}

/// What was measured and fitted: a prediction beyond it is a guess.
pub struct Measured<'a>(Vec<&'a Point>);

impl<'a> Measured<'a> {
    /// These points were.
    pub fn new(points: impl Iterator<Item = &'a Point>) -> Measured<'a> {
        Measured(points.collect())
    }

    /// Why a point is beyond what was measured, if it is.
    pub fn beyond(&self, point: &Point) -> Option<String> {
        if !self.0.iter().any(|one| one.run.path == point.run.path) {
            return Some(format!("no point of path {}", point.run.path));
        }
        let alike = |one: &&&Point| {
            let (a, b) = (&one.run, &point.run);
            let kind = |run: &Run| (run.is_random(), run.is_mixed());
            one.direction == point.direction && kind(a) == kind(b)
        };
        let like: Vec<&&Point> = self.0.iter().filter(alike).collect();
        let Some(first) = like.first() else {
            let kind = point.run.plain().rw.name();
            return Some(format!("no {}s of {kind}", point.direction.name()));
        };
        let outside = |name: &str, of: fn(&Run) -> u32| {
            let bounds = |(low, high): (u32, u32), one: &&&Point| {
                (low.min(of(&one.run)), high.max(of(&one.run)))
            };
            let start = (of(&first.run), of(&first.run));
            let (low, high) = like.iter().fold(start, bounds);
            let it = of(&point.run);
            (!(low..=high).contains(&it)).then(|| format!("{name} {it} is outside {low} to {high}"))
        };
        outside("bs", |run| run.bs)
            .or_else(|| outside("qd", |run| run.qd))
            .or_else(|| outside("read_percent", |run| run.read_percent.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::points::{Direction, Figures};

    fn point(rw: Rw, read_percent: u8, bs: u32, qd: u32, direction: Direction) -> Point {
        let run = Run { path: "kernel".into(), rw, read_percent, bs, qd };
        Point { drive: "d".into(), run, direction, measured: Figures::default(), at: "x".into() }
    }

    #[test]
    fn what_was_measured_together_stays_together() {
        let points = [
            point(Rw::Randrw, 75, 4096, 1, Direction::Read),
            point(Rw::Randrw, 75, 4096, 1, Direction::Write),
            point(Rw::Randrw, 100, 4096, 1, Direction::Read),
            point(Rw::Randread, 100, 4096, 1, Direction::Read),
        ];
        assert_eq!(Runs::new(&points).of, [0, 0, 1, 1]);
    }

    /// Reads of two sizes and mixes, at three depths each: of the runs that are fitted
    /// two tell of the ends of each kind, whatever the seed.
    #[test]
    fn what_is_fitted_covers_what_is_kept_back() {
        let mut points = Vec::new();
        for qd in [1, 16, 128] {
            points.push(point(Rw::Randread, 100, 4096, qd, Direction::Read));
            points.push(point(Rw::Randread, 100, 16384, qd, Direction::Read));
            points.push(point(Rw::Randrw, 75, 4096, qd, Direction::Read));
            points.push(point(Rw::Randrw, 75, 4096, qd, Direction::Write));
        }
        let runs = Runs::new(&points);
        let mut taken = std::collections::BTreeSet::new();
        for seed in 0..20 {
            let used = spread(&runs, &points, 9, 4, seed);
            assert_eq!(used.iter().filter(|&&used| used).count(), 4);
            assert_eq!(used, spread(&runs, &points, 9, 4, seed));
            let (of, others): (Vec<&Point>, Vec<&Point>) = points
                .iter()
                .partition(|p| used[runs.all.iter().position(|run| *run == p.run).unwrap()]);
            let measured = Measured::new(of.into_iter());
            let beyond: Vec<String> = others.iter().filter_map(|p| measured.beyond(p)).collect();
            assert!(beyond.is_empty(), "seed {seed}: {beyond:?}");
            taken.insert(used);
        }
        assert!(taken.len() > 1, "seeds differ");
    }

    #[test]
    fn folds_are_even_and_by_seed() {
        let of = folds(10, 3, 7);
        let mut sizes = [0; 3];
        of.iter().for_each(|&fold| sizes[fold] += 1);
        assert_eq!(sizes, [4, 3, 3]);
        assert_eq!(of, folds(10, 3, 7));
        assert_ne!(of, folds(10, 3, 8));
    }

    #[test]
    fn beyond_what_was_measured_is_named() {
        let fitted = [
            point(Rw::Randread, 100, 4096, 1, Direction::Read),
            point(Rw::Randread, 100, 16384, 64, Direction::Read),
            point(Rw::Randrw, 75, 4096, 1, Direction::Read),
        ];
        let measured = Measured::new(fitted.iter());
        let why = |p: Point| measured.beyond(&p).unwrap_or_default();
        assert_eq!(why(point(Rw::Randread, 100, 8192, 16, Direction::Read)), "");
        assert!(why(point(Rw::Randread, 100, 4096, 128, Direction::Read)).contains("qd 128"));
        assert!(why(point(Rw::Randread, 100, 65536, 4, Direction::Read)).contains("bs 65536"));
        assert!(why(point(Rw::Randwrite, 0, 4096, 1, Direction::Write)).contains("no writes"));
        assert!(why(point(Rw::Read, 100, 4096, 1, Direction::Read)).contains("no reads of read"));
        assert!(why(point(Rw::Randrw, 50, 4096, 1, Direction::Read)).contains("read_percent"));
        let mut other = point(Rw::Randread, 100, 4096, 1, Direction::Read);
        other.run.path = "bypass".into();
        assert!(why(other).contains("path bypass"));
    }
}
