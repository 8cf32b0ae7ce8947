//! A run beside those that differ in one key of their drive.
//!
//! Guarantees: where a run has no figures, or was not run, it is said. Nothing here fails.

use std::fmt::Write as _;

use measure::{Direction, Summary, units};

use crate::Outcome;

/// Blocks programmed for each that the user wrote.
const AMPLIFICATION: &str = "write amp.";

/// The run beside those that differ in one key, and beside itself with another seed; nothing where
/// there are none.
pub(super) fn compared(
    outcome: &Outcome,
    again: Option<(u64, &Outcome)>,
    others: &[(&str, &Outcome)],
) -> String {
    let mut text = String::new();
    if others.is_empty() {
        return text;
    }
    let base = figures(outcome);
    let _ = write!(text, "\n{:<28}", "what if");
    base.iter().for_each(|(name, _)| _ = write!(text, "{name:>19}"));
    let _ = write!(text, "\n{:<28}", "as it is");
    base.iter().for_each(|(name, value)| _ = write!(text, "{:>11}{:8}", figure(name, *value), ""));
    text.truncate(text.trim_end().len());
    text.push('\n');
    if let Some((seed, again)) = again {
        let _ = write!(text, "{:<28}", format!("as it is, seed {seed}"));
        text += &changes(&base, again);
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    for (set, other) in others {
        let _ = write!(text, "{set:<27} ");
        if other.interrupted || other.report.void.is_some() {
            let why = other.report.void.as_deref().unwrap_or("stopped before its end");
            let _ = writeln!(text, "no figures: {why}");
            continue;
        }
        text += &changes(&base, other);
        let of_loads = other.jobs.iter().map(|job| job.open_loop);
        if of_loads.chain([other.open_loop]).flatten().any(|open| open.behind) {
            text += "  slower than its rate: a queue that grows";
        }
        let spare = |of: &Outcome| of.report.drive["spare"].as_f64();
        if let (Some(is), Some(was)) = (spare(other), spare(outcome))
            && other.raised_spare != outcome.raised_spare
            && is != was
        {
            let _ = write!(text, "  with a spare of {is}, not {was}");
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

/// Figures of a run, and by how much each is another than `base` has.
fn changes(base: &[(String, Option<f64>)], other: &Outcome) -> String {
    let (mut text, there) = (String::new(), figures(other));
    for (name, before) in base {
        let now = there.iter().find(|(other, _)| other == name).and_then(|(_, now)| *now);
        let change = before
            .zip(now)
            .filter(|(before, _)| *before > 0.0)
            .map(|(before, now)| format!("{:+.0} %", 100.0 * (now / before - 1.0)));
        let _ = write!(text, "{:>11}{:>8}", figure(name, now), change.unwrap_or_default());
    }
    text
}

/// Which of those that were asked for were not run, or not to their end.
pub(super) fn cut_short(asked: &[String], others: &[(&str, &Outcome)]) -> String {
    let stopped = others.iter().filter(|(_, other)| other.interrupted).map(|(set, _)| *set);
    let not_run = asked.iter().skip(others.len()).map(String::as_str);
    let mut text = String::new();
    let mut tell = |what: &str, sets: Vec<&str>| {
        if !sets.is_empty() {
            let _ = write!(text, "\n{what}: {}\n", sets.join(", "));
        }
    };
    tell("stopped before its end", stopped.collect());
    tell("not run", not_run.collect());
    text
}

/// What runs are compared by: of several loads each has its own.
fn figures(outcome: &Outcome) -> Vec<(String, Option<f64>)> {
    let report = &outcome.report;
    let mut all = vec![("I/Os a second".to_string(), Some(report.iops))];
    let mut add = |of: &str, latency: &Summary| {
        let p99 = latency.p99.map(|ns| ns as f64);
        all.push((format!("{of}mean"), latency.mean));
        all.push((format!("{of}p99"), p99));
    };
    let direction = |of: &Option<Direction>| of.map(|of| of.latency_ns);
    match (direction(&report.read), direction(&report.write)) {
        _ if !outcome.jobs.is_empty() => {
            let loads = outcome.jobs.iter().enumerate();
            loads.for_each(|(n, job)| add(&format!("load {n}'s "), job.latency()));
        }
        (Some(read), Some(write)) => {
            add("reads' ", &read);
            add("writes' ", &write);
        }
        _ => add("", &report.latency_ns),
    }
    let written = report.write_amplification.as_ref().map(|all| all.total);
    all.extend(written.map(|total| (AMPLIFICATION.to_string(), Some(total))));
    all
}

fn figure(name: &str, value: Option<f64>) -> String {
    match value {
        Some(value) if name == "I/Os a second" => units::count(value),
        Some(value) if name == AMPLIFICATION => format!("{value:.3}"),
        value => time(value),
    }
}

pub(super) fn time(ns: Option<f64>) -> String {
    ns.map_or("-".into(), units::time_ns)
}
