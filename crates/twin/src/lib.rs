//! `ssdkit twin`: a profile from measurements.
//!
//! Measured points ([`points`]) are compared with what a [`model`] gives of the same
//! runs; a [`search`] looks for the parameters ([`parameter`]) with the least
//! [`objective`]; a [`report`] says how far each point is off, and the fitted
//! profile is a file like any other ([`toml`]). Or a drive is measured first
//! ([`protocol`]).
//!
//! Fails when measurements or options cannot be, when a family is no drive, and
//! when the output cannot be written.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use drive::Error;
use load::watch::Watch;

use crate::dropped::Dropped;
use crate::error::TwinError;
use crate::fit::Fit;
use crate::model::{Model, Prediction};
use crate::parameter::Parameter;
use crate::points::{Direction, Point, Points};
use crate::report::{Compared, Fitted, Part, Report};
use crate::split::{Measured, Runs};

mod args;
mod dropped;
mod error;
mod fit;
mod model;
mod objective;
mod parameter;
mod points;
mod protocol;
mod report;
mod search;
mod split;
mod toml;

pub use args::{TwinArgs, Used};

/// Fits, and prints the report to `out`.
pub fn run(args: &TwinArgs, out: &mut dyn Write) -> Result<(), Error> {
    if let Some(target) = &args.measure {
        return protocol::run(args, target, out);
    }
    // Before hours of work are lost.
    if let Some(path) = args.out.as_ref().filter(|path| !args.force && Path::new(path).exists()) {
        return Err(Error::Usage(format!("--out {path} is there: --force replaces it")));
    }
    is_no_input(args)?;
    let mut watch = Watch::terminal(None)?;
    let fitted = fit(args, &mut watch);
    watch.end();
    let (report, profile) = fitted?;
    let profile = toml::profile_text(&profile, &report);
    if let Some(path) = &args.out {
        fs::write(path, &profile).map_err(|e| Error::system(&format!("write {path}"), &e))?;
    }
    if args.json {
        writeln!(out, "{:#}", report.to_json(&profile))?;
    } else {
        write!(out, "{}", report.to_text())?;
    }
    Ok(())
}

/// Refuses to write over what is read, whatever may be replaced.
fn is_no_input(args: &TwinArgs) -> Result<(), Error> {
    let Some(out) = &args.out else { return Ok(()) };
    // One that is not there yet is none that is read.
    let Ok(whole) = fs::canonicalize(out) else { return Ok(()) };
    let read = args.files.iter().chain(&args.against).chain(&args.family);
    let is_same = |path: &&String| fs::canonicalize(path).is_ok_and(|path| path == whole);
    match read.into_iter().find(is_same) {
        Some(path) => Err(Error::Usage(format!(
            "--out {out} is {path}, which is read, and would be lost: take another name"
        ))),
        None => Ok(()),
    }
}

/// Fits. Gives the report and the fitted profile.
fn fit(args: &TwinArgs, watch: &mut Watch) -> Result<(Report, flash::Profile), Error> {
    let began = Instant::now();
    let Points { all, mut ignored } = points::read(&args.files)?;
    let mut points = select(all, &args.only)?;
    let drive = the_drive(&points)?;
    let fitted = points.len();
    let against = points::read(&args.against)?;
    ignored.extend(against.ignored);
    let (known, others): (Vec<Point>, Vec<Point>) =
        against.all.into_iter().partition(|point| points.iter().any(|one| point.is_same_as(one)));
    ignored.extend(known.iter().map(|point| {
        format!(
            "{}: {}, {}s, is among the points of the fit",
            point.at,
            point.run,
            point.direction.name()
        )
    }));
    points.extend(others);
    // The command line has one, unless a drive is measured.
    let family = args.family.as_deref().unwrap_or_default();
    let model = Model::new(family, &args.set, args.seed)?;
    let parameters = parameters(args, &model, &points[..fitted])?;
    let runs = Runs::new(&points);
    let of_fit = Runs::new(&points[..fitted]).all.len();
    split::check(args, of_fit)?;
    let split = split::used(args, &runs, &points[..fitted]);
    // What is only compared is of no run that is fitted.
    let used: Vec<bool> = (0..runs.all.len()).map(|run| split.get(run) == Some(&true)).collect();
    let evaluations = if parameters.is_empty() { 1 } else { args.evaluations };
    let fit = Fit {
        model: &model,
        parameters: &parameters,
        points: &points,
        fitted,
        runs: &runs,
        evaluations,
        seed: args.seed,
        dropped: RefCell::new(Dropped::default()),
    };
    let folds = match args.folds {
        Some(n) => Some((n, cross_validate(&fit, n, of_fit, watch)?)),
        None => None,
    };
    let found = fit.search(&used, "fitting", watch)?;
    let (candidate, predictions) = fit.predict(&found.at, None, watch)?;
    let sensitivities = fit.sensitivities(&found, &used, watch)?;
    let each = parameters.iter().zip(sensitivities).map(|(parameter, sensitivity)| Fitted {
        name: parameter.name.clone(),
        path: parameter.path().map(str::to_string),
        asked: parameter.asked.clone(),
        family: model.base().get(&parameter.name),
        value: candidate.value(&parameter.name),
        sensitivity,
    });
    let report = Report {
        drive,
        family: model.family.clone(),
        set: args.set.clone(),
        files: args.files.iter().chain(&args.against).cloned().collect(),
        ignored,
        parameters: each.collect(),
        points: compare(&fit, &used, &predictions, 0..points.len()),
        objective: found.objective,
        evaluations: found.evaluations,
        converged: found.converged,
        dropped: fit.dropped.take(),
        folds,
        seed: args.seed,
        wall_seconds: began.elapsed().as_secs_f64(),
    };
    Ok((report, candidate.profile))
}

/// Fits without each part in turn. Gives all points as the fit without them has them.
fn cross_validate(
    fit: &Fit,
    parts: u32,
    runs: usize,
    watch: &mut Watch,
) -> Result<Vec<Compared>, Error> {
    let parts = parts as usize;
    let of = split::folds(runs, parts, fit.seed);
    let mut all = Vec::new();
    for part in 0..parts {
        let is_used = |run: usize| of.get(run).is_some_and(|&fold| fold != part);
        let used: Vec<bool> = (0..fit.runs.all.len()).map(is_used).collect();
        let found = fit.search(&used, &format!("part {} of {parts}", part + 1), watch)?;
        let (_, predictions) = fit.predict(&found.at, None, watch)?;
        let kept = (0..fit.fitted).filter(|&point| of[fit.runs.of[point]] == part);
        all.extend(compare(fit, &used, &predictions, kept));
    }
    Ok(all)
}

/// Points beside their predictions.
fn compare(
    fit: &Fit,
    used: &[bool],
    predictions: &[Option<Prediction>],
    which: impl Iterator<Item = usize>,
) -> Vec<Compared> {
    let is_used = |n: usize| n < fit.fitted && used[fit.runs.of[n]];
    let fitted = (0..fit.fitted).filter(|&n| is_used(n));
    let measured = Measured::new(fitted.map(|n| &fit.points[n]));
    which
        .filter_map(|n| {
            let point = &fit.points[n];
            let predicted = *predictions[fit.runs.of[n]].as_ref()?.of(point.direction);
            let beyond = if is_used(n) { None } else { measured.beyond(point) };
            let part = match (is_used(n), &beyond) {
                (true, _) => Part::Used,
                (false, None) => Part::KeptBack,
                (false, Some(_)) => Part::Extrapolated,
            };
            Some(Compared { point: point.clone(), predicted, part, beyond })
        })
        .collect()
}

/// The points of which all is so.
fn select(points: Vec<Point>, only: &[(String, String)]) -> Result<Vec<Point>, TwinError> {
    let Some(some) = points.first() else { return Err(TwinError::Nothing) };
    if let Some((key, _)) = only.iter().find(|(key, _)| some.value(key).is_none()) {
        return Err(TwinError::Usage(format!(
            "--where {key}=: there are drive, path, rw, read_percent, direction, bs and qd"
        )));
    }
    let is = |point: &Point, (key, values): &(String, String)| {
        values.split(',').any(|one| point.is(key, one))
    };
    let (left, others): (Vec<Point>, Vec<Point>) =
        points.into_iter().partition(|point| only.iter().all(|one| is(point, one)));
    if !left.is_empty() {
        return Ok(left);
    }
    // Those that nothing is like by themselves, or all where only together.
    let none = |one: &&(String, String)| !others.iter().any(|point| is(point, one));
    let wrong: Vec<&(String, String)> = match only.iter().any(|one| none(&one)) {
        true => only.iter().filter(none).collect(),
        false => only.iter().collect(),
    };
    let there = wrong.into_iter().map(|(key, values)| {
        let all: BTreeSet<String> = others.iter().filter_map(|point| point.value(key)).collect();
        let mut all: Vec<String> = all.into_iter().collect();
        all.sort_by_key(|value| value.parse::<u64>().unwrap_or(0));
        format!("of {key}={values} there are {}", all.join(", "))
    });
    Err(TwinError::Where(there.collect::<Vec<_>>().join("; ")))
}

/// The drive that all points are of.
fn the_drive(points: &[Point]) -> Result<String, TwinError> {
    let mut names: Vec<&str> = points.iter().map(|point| point.drive.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    match names[..] {
        [one] => Ok(one.into()),
        _ => Err(TwinError::Drives(names.join(", "))),
    }
}

/// What is searched: what was asked for, or what the points may tell.
fn parameters(
    args: &TwinArgs,
    model: &Model,
    points: &[Point],
) -> Result<Vec<Parameter>, TwinError> {
    let mut texts = args.fit.clone();
    if texts.is_empty() {
        let writes = points.iter().any(|point| point.direction == Direction::Write);
        let usual = USUAL.iter().filter(|(_, of_writes)| writes || !of_writes);
        texts.extend(usual.map(|(text, _)| text.to_string()));
        texts.retain(|text| args.set.iter().all(|(key, _)| !text.starts_with(&format!("{key}="))));
        let mut paths: Vec<&str> = points.iter().map(|point| point.run.path.as_str()).collect();
        paths.sort_unstable();
        paths.dedup();
        // What all paths add is the drive's as well.
        texts.extend(paths.iter().skip(1).map(|path| format!("host_{path}=0us..20us")));
    }
    let all: Result<Vec<Parameter>, TwinError> =
        texts.iter().map(|text| Parameter::parse(text, model.base())).collect();
    let all = all?;
    for (n, one) in all.iter().enumerate() {
        if all[..n].iter().any(|other| other.name == one.name) {
            let text = format!("--fit {} is there twice: leave one out", one.name);
            return Err(TwinError::Usage(text));
        }
    }
    Ok(all)
}

/// What is searched unless somebody says otherwise, and whether only writes tell of
/// it.
const USUAL: [(&str, bool); 11] = [
    ("read=x0.2..x5", false),
    ("groups=4|8|16|32", false),
    ("pus=1|2|4|8|16", false),
    ("channel_rate=200MB/s..3GB/s", false),
    ("controller=500ns..20us", false),
    ("link_rate=1GB/s..8GB/s", false),
    ("core_block=0ns..3us", false),
    ("core_write=0ns..20us", true),
    ("program=x0.05..x5", true),
    ("opening=0ns..5ms", true),
    ("suspend=false|true", true),
];

#[cfg(test)]
mod tests;
