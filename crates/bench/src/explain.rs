//! `ssdkit explain`: why requests took what they took, and what would change it.
//!
//! Runs a bench of which each request tells its story. The time of all requests, and
//! of the slowest shares of them, is split by cause; the parts sum to it exactly.
//! With `--what-if` the same run is made again on a drive that differs in one key.
//! What a served drive does is told of by [`served`].
//! Fails where a bench does, where nobody can tell where time went, and where a
//! drive with that key cannot be.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;
use std::time::Duration;

use clap::Args;
use drive::error::Error;
use drive::spec::{DriveSpec, MemorySpec};
use load::watch::Watch;
use measure::causes::{Causes, Group, Kind};
use measure::{Direction, Report, Summary, units};
use serde_json::{Value, json};

use crate::{BenchArgs, Outcome, measure};
use advice::to_try;

mod advice;
mod served;

pub use served::{ExplainCommand, ServedArgs};

/// Slowest requests that are told of where nobody says how many.
const SLOWEST: u32 = 3;
/// The shares of requests that are told of: what they are called, and how large.
const SHARES: [(&str, f64); 5] =
    [("all", 1.0), ("slowest half", 0.5), ("10 %", 0.1), ("1 %", 0.01), ("0.1 %", 0.001)];
/// Fewer requests are no share to tell of.
const LEAST: f64 = 10.0;
/// Causes below this part of every share are told of together.
const SMALL: f64 = 0.01;
/// Runs again, at most.
const MOST_IFS: usize = 16;

/// `ssdkit explain`.
#[derive(Args, Clone, Debug)]
pub struct ExplainArgs {
    /// What is run.
    #[command(flatten)]
    pub bench: BenchArgs,
    /// Run again with this key of the drive's name set, and compare; again for more.
    #[arg(long, value_name = "KEY=VALUE")]
    pub what_if: Vec<String>,
}

/// Runs, and prints why.
pub fn explain(args: &ExplainArgs, out: &mut dyn Write) -> Result<(), Error> {
    let slowest = Some(args.bench.slowest.unwrap_or(SLOWEST));
    let drive = args.bench.drive.found()?;
    let bench = BenchArgs { drive, slowest, explains: true, ..args.bench.clone() };
    bench.check()?;
    if args.what_if.len() > MOST_IFS {
        return Err(Error::Usage(format!("--what-if may be given {MOST_IFS} times")));
    }
    let ifs: Vec<_> = args.what_if.iter().map(|set| what_if(&bench, set)).collect();
    let ifs = ifs.into_iter().collect::<Result<Vec<_>, _>>()?;
    let mut watch = Watch::terminal(bench.max_time.map(Duration::from_nanos))?;
    let runs = all(&bench, &ifs, &mut watch);
    watch.end();
    let (outcome, others, error) = runs?;
    let failed = error.map(|e| of_what_if(&args.what_if[others.len()], e));
    let others: Vec<_> = args.what_if.iter().map(String::as_str).zip(others).collect();
    print(&bench, &outcome, (&args.what_if, &others), out)?;
    failed.map_or(Ok(()), Err)
}

/// An error of a run that differs says of which.
fn of_what_if(set: &str, e: Error) -> Error {
    let text = format!("--what-if {set}: {e}");
    if e.exit_code() == 2 { Error::Usage(text) } else { Error::Failed(text) }
}

/// A run, those that differ, and why there are no more of them.
type Runs = (Outcome, Vec<Outcome>, Option<Error>);

/// The run itself, and those that differ, as far as nobody stops them.
fn all(bench: &BenchArgs, ifs: &[BenchArgs], watch: &mut Watch) -> Result<Runs, Error> {
    let outcome = measure(bench, watch)?;
    let (others, error) = others_than(&outcome, ifs, watch);
    Ok((outcome, others, error))
}

/// Those that differ from a run: none after one that went wrong.
fn others_than(
    outcome: &Outcome,
    ifs: &[BenchArgs],
    watch: &mut Watch,
) -> (Vec<Outcome>, Option<Error>) {
    let mut others = Vec::new();
    for one in ifs {
        if outcome.problem.is_some() || !watch.look(0.0) {
            break;
        }
        match measure(one, watch) {
            Ok(other) => others.push(other),
            // Stopped before there was anything to tell of it.
            Err(_) if !watch.look(0.0) => break,
            Err(e) => return (others, Some(e)),
        }
    }
    (others, None)
}

/// The same bench on a drive with one key set.
fn what_if(bench: &BenchArgs, set: &str) -> Result<BenchArgs, Error> {
    let usage = |text: String| Err(Error::Usage(text));
    let DriveSpec::Memory(spec) = &bench.drive else {
        return usage(format!(
            "--what-if {set}: what drive a file is stands in it; take mem: and its profile"
        ));
    };
    let Some((key, value)) = set.split_once('=') else {
        return usage(format!("--what-if {set}: write KEY=VALUE, a key of the drive's name"));
    };
    if bench.snapshot.is_some() {
        return usage("--what-if makes other drives: leave out --snapshot".into());
    }
    let mut spec: MemorySpec = spec.clone();
    let is_set = spec.set(key.trim(), value.trim()).and_then(|()| spec.resolve());
    is_set.map_err(|e| of_what_if(set, e.into()))?;
    let other = BenchArgs {
        drive: DriveSpec::Memory(spec),
        slowest: None,
        explains: false,
        ..bench.clone()
    };
    other.check().map_err(|e| of_what_if(set, e))?;
    Ok(other)
}

/// Prints a run, and of those that were asked for beside it the ones that were run.
fn print(
    bench: &BenchArgs,
    outcome: &Outcome,
    (asked, others): (&[String], &[(&str, Outcome)]),
    out: &mut dyn Write,
) -> Result<(), Error> {
    if bench.json {
        let mut json = outcome.to_json();
        json["explained"] = outcome.causes.as_ref().map_or(Value::Null, causes_json);
        let other = |(set, other): &(&str, Outcome)| json!({ "set": set, "run": other.to_json() });
        json["what_if"] = others.iter().map(other).collect();
        json["interrupted"] = (outcome.interrupted || others.len() < asked.len()).into();
        writeln!(out, "{json:#}")?;
    } else {
        let mut text = head(outcome);
        if outcome.report.void.is_some() {
            out.write_all(text.as_bytes())?;
            return outcome.finish_print(false, out);
        }
        text += &tables(outcome.causes.as_ref());
        writeln!(out, "{text}")?;
        outcome.print_slowest(out)?;
        let last = match asked {
            [] => advice(bench, outcome),
            _ => compared(outcome, others) + &cut_short(asked, others),
        };
        out.write_all(last.as_bytes())?;
    }
    outcome.finish_print(bench.json, out)?;
    others.iter().try_for_each(|(set, other)| match &other.problem {
        Some(problem) => Err(Error::Failed(format!("--what-if {set}: {problem}"))),
        None => Ok(()),
    })
}

/// What was run, and what is to be known of its figures; of one that is void only why.
fn head(outcome: &Outcome) -> String {
    let report = &outcome.report;
    let name = report.drive["name"].as_str().unwrap_or("the drive");
    if let Some(why) = &report.void {
        return format!("{name}: void: {why}\n");
    }
    let total = &report.latency_ns;
    let mut text = format!(
        "{name}: {} I/Os a second, {} in the mean, p99 {}\n",
        units::count(report.iops),
        time(total.mean),
        time(total.p99.map(|ns| ns as f64)),
    );
    for (label, note) in outcome.notes() {
        let _ = writeln!(text, "{label}: {note}");
    }
    text
}

/// What the tails are made of, and where the time of each kind went.
fn tables(causes: Option<&Causes>) -> String {
    let verdicts = kinds(causes).into_iter().map(|(name, kind)| verdict(name, kind));
    verdicts.chain(kinds(causes).into_iter().map(|(name, kind)| table(name, kind))).collect()
}

fn kinds(causes: Option<&Causes>) -> Vec<(&'static str, &Kind)> {
    let all = causes.into_iter().flat_map(Causes::kinds);
    all.filter(|(_, kind)| kind.requests() > 0).collect()
}

/// A cause, as it is told.
fn name_of(part: &str, behind: Option<&str>) -> String {
    match behind {
        Some(behind) => format!("{part}, behind {behind}"),
        None => part.into(),
    }
}

/// The shares of a kind that have enough requests: the whole always.
fn shares(kind: &Kind) -> Vec<(&'static str, Group)> {
    let all = kind.requests() as f64;
    let enough = SHARES.iter().filter(|&&(_, share)| share == 1.0 || all * share >= LEAST);
    enough.filter_map(|&(name, share)| Some((name, kind.slowest(share)?))).collect()
}

/// What the tail is made of, in a sentence.
fn verdict(name: &str, kind: &Kind) -> String {
    let Some((share, group)) = shares(kind).into_iter().rev().find(|(name, _)| *name != "0.1 %")
    else {
        return String::new();
    };
    let total = group.sum.ns().max(1) as f64;
    let mut parts: Vec<_> = group.sum.parts().collect();
    parts.sort_by_key(|part| std::cmp::Reverse(part.2));
    let told = parts.iter().take(3).filter(|part| part.2 as f64 / total >= 0.05);
    let told: Vec<_> = told
        .map(|&(part, behind, ns)| {
            format!("{:.0} % {}", 100.0 * ns as f64 / total, name_of(part, behind))
        })
        .collect();
    if told.is_empty() {
        return String::new();
    }
    let which = match share {
        "all" => format!("all {name}"),
        "slowest half" => format!("the slowest half of {name}"),
        share => format!("the slowest {share} of {name}"),
    };
    let from = units::time_ns(group.from as f64);
    format!("{which}, {from} and more: {}\n", told.join("; "))
}

/// Where the time of a kind's requests went, by share.
fn table(name: &str, kind: &Kind) -> String {
    let shares = shares(kind);
    let mut rows: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (at, (_, group)) in shares.iter().enumerate() {
        for (part, behind, ns) in group.sum.parts() {
            let row = rows.entry(name_of(part, behind)).or_insert_with(|| vec![0.0; shares.len()]);
            row[at] = ns as f64 / group.sum.ns().max(1) as f64;
        }
    }
    let (mut large, small): (Vec<_>, Vec<_>) =
        rows.into_iter().partition(|(_, row)| row.iter().any(|&part| part >= SMALL));
    large.sort_by(|a, b| b.1[shares.len() - 1].total_cmp(&a.1[shares.len() - 1]));
    if !small.is_empty() {
        let sum = |at: usize| small.iter().map(|(_, row)| row[at]).sum();
        large.push(("all others".into(), (0..shares.len()).map(sum).collect()));
    }
    let mut text = String::from("\n");
    let mut line = |label: &str, cells: Vec<String>| {
        let _ = write!(text, "{label:<40}");
        cells.iter().for_each(|cell| _ = write!(text, "{cell:>14}"));
        text.push('\n');
    };
    let of = |f: &dyn Fn(&Group) -> String| shares.iter().map(|(_, group)| f(group)).collect();
    line(name, shares.iter().map(|(share, _)| (*share).into()).collect());
    line("requests", of(&|group| units::count(group.requests as f64)));
    line("latency from", of(&|group| units::time_ns(group.from as f64)));
    line("mean", of(&|group| units::time_ns(group.sum.ns() as f64 / group.requests as f64)));
    for (cause, row) in &large {
        line(cause, row.iter().map(|part| format!("{:.1} %", 100.0 * part)).collect());
    }
    text
}

fn causes_json(causes: &Causes) -> Value {
    // What is above 2^64 - 1 is the nearest double.
    let number = |ns: u128| u64::try_from(ns).map_or_else(|_| json!(ns as f64), Value::from);
    let part = |(part, behind, ns): (&str, Option<&str>, u128)| match behind {
        Some(behind) => json!({ "part": part, "behind": behind, "ns": number(ns) }),
        None => json!({ "part": part, "ns": number(ns) }),
    };
    let group = |share: f64, group: Group| {
        json!({
            "share": share,
            "requests": group.requests,
            "from_ns": group.from,
            "ns": number(group.sum.ns()),
            "parts": group.sum.parts().map(part).collect::<Value>(),
        })
    };
    let kind = |kind: &Kind| -> Value {
        let of = SHARES.iter().filter_map(|&(_, share)| Some(group(share, kind.slowest(share)?)));
        of.collect()
    };
    causes.kinds().into_iter().map(|(name, all)| (name.to_string(), kind(all))).collect()
}

/// What to try, after what the slowest reads and writes waited for, of what can be.
fn advice(bench: &BenchArgs, outcome: &Outcome) -> String {
    let mut tries: Vec<String> = Vec::new();
    for (_, kind) in kinds(outcome.causes.as_ref()) {
        let Some((_, group)) = shares(kind).into_iter().rev().find(|(name, _)| *name != "0.1 %")
        else {
            continue;
        };
        let first = group.sum.parts().max_by_key(|part| part.2);
        let Some(set) = first.and_then(|(part, behind, _)| to_try(outcome, part, behind)) else {
            continue;
        };
        if !tries.contains(&set) && what_if(bench, &set).is_ok() {
            tries.push(set);
        }
    }
    let tries: Vec<_> = tries.iter().map(|set| format!("--what-if {set}")).collect();
    match tries[..] {
        [] => String::new(),
        _ => format!("\nto see what would change it: {}\n", tries.join(" ")),
    }
}

/// The run beside those that differ in one key; nothing where there are none.
fn compared(outcome: &Outcome, others: &[(&str, Outcome)]) -> String {
    let mut text = String::new();
    if others.is_empty() {
        return text;
    }
    let base = figures(&outcome.report);
    let _ = write!(text, "\n{:<28}", "what if");
    base.iter().for_each(|(name, _)| _ = write!(text, "{name:>19}"));
    let _ = write!(text, "\n{:<28}", "as it is");
    base.iter().for_each(|(name, value)| _ = write!(text, "{:>11}{:8}", figure(name, *value), ""));
    text.truncate(text.trim_end().len());
    text.push('\n');
    for (set, other) in others {
        let _ = write!(text, "{set:<27} ");
        if other.interrupted || other.report.void.is_some() {
            let why = other.report.void.as_deref().unwrap_or("stopped before its end");
            let _ = writeln!(text, "no figures: {why}");
            continue;
        }
        let there = figures(&other.report);
        for (name, before) in &base {
            let now = there.iter().find(|(other, _)| other == name).and_then(|(_, now)| *now);
            let change = before
                .zip(now)
                .filter(|(before, _)| *before > 0.0)
                .map(|(before, now)| format!("{:+.0} %", 100.0 * (now / before - 1.0)));
            let _ = write!(text, "{:>11}{:>8}", figure(name, now), change.unwrap_or_default());
        }
        if other.open_loop.is_some_and(|open| open.behind) {
            text += "  slower than its rate: a queue that grows";
        }
        if other.raised_spare != outcome.raised_spare {
            text += "  with another spare";
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

/// Which of those that were asked for were not run, or not to their end.
fn cut_short(asked: &[String], others: &[(&str, Outcome)]) -> String {
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

/// What runs are compared by.
fn figures(report: &Report) -> Vec<(String, Option<f64>)> {
    let mut all = vec![("I/Os a second".to_string(), Some(report.iops))];
    let mut add = |of: &str, latency: &Summary| {
        let p99 = latency.p99.map(|ns| ns as f64);
        all.push((format!("{of}mean"), latency.mean));
        all.push((format!("{of}p99"), p99));
    };
    let direction = |of: &Option<Direction>| of.map(|of| of.latency_ns);
    match (direction(&report.read), direction(&report.write)) {
        (Some(read), Some(write)) => {
            add("reads' ", &read);
            add("writes' ", &write);
        }
        _ => add("", &report.latency_ns),
    }
    all
}

fn figure(name: &str, value: Option<f64>) -> String {
    match value {
        Some(value) if name == "I/Os a second" => units::count(value),
        value => time(value),
    }
}

fn time(ns: Option<f64>) -> String {
    ns.map_or("-".into(), units::time_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ExplainArgs,
    }

    pub(super) fn bench(line: &str) -> BenchArgs {
        let args = Line::parse_from(["explain"].into_iter().chain(line.split(' '))).args;
        BenchArgs { slowest: Some(1), explains: true, ..args.bench }
    }

    pub(super) fn run(bench: &BenchArgs) -> Outcome {
        measure(bench, &mut Watch::quiet()).unwrap()
    }

    /// Reads that wait for programs, on drives that suspend them.
    const MIXED: &str = "--rw randrw --qd 16 --precondition seq --ios 4k";

    #[test]
    fn what_cannot_be_or_cannot_help_is_not_advised() {
        let advised = |line: &str| {
            let bench = bench(line);
            advice(&bench, &run(&bench))
        };
        let drive = "mem:tlc,size=1G,store=none,suspend=true";
        let text = advised(&format!("{drive} {MIXED}"));
        assert!(text.contains("--what-if pus=8"), "{text}");
        // No flash has so many.
        let most = "mem:tlc,store=none,suspend=true,groups=1,pus=256,chunks=20,pages=12";
        let most = bench(&format!("{most} {}", MIXED.replace("16", "512")));
        let outcome = run(&most);
        let reads = kinds(outcome.causes.as_ref())[0];
        assert!(verdict(reads.0, reads.1).contains("% die, behind"));
        assert_eq!(to_try(&outcome, "die", None).unwrap(), "pus=512");
        assert!(!advice(&most, &outcome).contains("pus="));
        // More dies read no sooner.
        let text = advised(
            "mem:znand,size=64M,store=none --rw randread --qd 1 --precondition seq --ios 1k",
        );
        assert_eq!(text, "");
        // What a file is stands in it.
        let file = bench(&format!("ssd:a {MIXED}"));
        assert_eq!(advice(&file, &run(&bench(&format!("{drive} {MIXED}")))), "");
    }

    #[test]
    fn what_was_not_run_is_told_and_nothing_advised() {
        let bench = bench(&format!("mem:tlc,size=64M,store=none {MIXED}"));
        let (outcome, asked) = (run(&bench), ["suspend=true".to_string(), "pus=8".into()]);
        let ifs = asked.each_ref().map(|set| what_if(&bench, set).unwrap());
        let none = others_than(&outcome, &ifs, &mut Watch::until(Duration::ZERO)).0;
        assert!(none.is_empty());
        let told = |others: &[(&str, Outcome)]| {
            let mut out = Vec::new();
            print(&bench, &outcome, (&asked, others), &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let text = told(&[]);
        assert!(text.contains("\nnot run: suspend=true, pus=8\n"), "{text}");
        assert!(!text.contains("--what-if") && !text.contains("what if"), "{text}");
        let text = told(&[("suspend=true", Outcome { interrupted: true, ..run(&ifs[0]) })]);
        assert!(
            text.contains("\nstopped before its end: suspend=true\n\nnot run: pus=8\n"),
            "{text}"
        );
    }

    /// Of 300,000 requests of 150,000 s each the sum is above 2^64 ns.
    #[test]
    fn the_mean_of_a_long_queue_is_that_of_the_report() {
        let line = "mem:ref,size=64M,groups=1,pus=1,store=none,read=1s --rw randread --rate 1M \
                    --ios 300k --precondition seq";
        let outcome = run(&bench(line));
        let causes = outcome.causes.as_ref().unwrap();
        let all = causes.kinds()[0].1.slowest(1.0).unwrap();
        assert!(all.sum.ns() > u64::MAX.into());
        let (mean, told) = (all.sum.ns() as f64 / 3e5, outcome.report.latency_ns.mean.unwrap());
        assert!((mean / told - 1.0).abs() < 1e-9, "{mean} {told}");
        // Longer than a percentile tells.
        let warned =
            |outcome: &Outcome| outcome.warnings.iter().any(|it| it.contains("4398 s or more"));
        assert!(warned(&outcome), "{:?}", outcome.warnings);
        assert!(!warned(&run(&bench(&line.replace("300k", "4k")))));
        let json = causes_json(causes);
        let ns = json["reads"][0]["ns"].as_f64().unwrap();
        assert_eq!(ns, all.sum.ns() as f64);
    }
}
