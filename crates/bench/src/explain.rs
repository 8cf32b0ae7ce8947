//! `ssdkit explain`: why requests took what they took, and what would change it.
//!
//! Runs a bench of which each request tells its story. The time of all requests, and
//! of the slowest shares of them, is split by cause; the parts sum to it exactly.
//! With `--what-if` the same run is made again on a drive that differs in one key.
//! Of several loads each is told of by itself; `ssdkit replay --explain` is this of a trace.
//! What a served drive does is told of by [`served`].
//! Fails where a bench does, where nobody can tell where time went, and where a
//! drive with that key cannot be.

use std::fmt::Write as _;
use std::io::Write;
use std::time::Duration;

use clap::Args;
use drive::error::Error;
use drive::spec::{DriveConfig, DriveSpec, MemorySpec};
use load::watch::Watch;
use measure::units;
use measure::why::{WIDE, Why, causes_json, tail};
use serde_json::{Value, json};

use crate::replay::Replay;
use crate::{BenchArgs, Outcome, measure};
use advice::to_try;
use compared::{compared, cut_short, time};

mod advice;
mod compared;
mod served;

pub use served::{ExplainCommand, ServedArgs};

/// Slowest requests that are told of where nobody says how many.
const SLOWEST: u32 = 3;
/// Runs again, at most.
const MOST_IFS: usize = 16;

/// `ssdkit explain`.
#[derive(Args, Clone, Debug)]
pub struct ExplainArgs {
    /// What is run.
    #[command(flatten)]
    pub bench: BenchArgs,
    /// Run again with this key of the drive's name set, and compare; again for more.
    #[arg(long, value_name = "KEY=VALUE", help_heading = None)]
    pub what_if: Vec<String>,
}

/// Runs, and prints why.
pub fn explain(args: &ExplainArgs, out: &mut dyn Write) -> Result<(), Error> {
    explain_bench(&args.bench, &args.what_if, out)
}

/// The same of any bench, also of one that replays a trace, and those that differ from it.
pub(crate) fn explain_bench(
    bench: &BenchArgs,
    asked: &[String],
    out: &mut dyn Write,
) -> Result<(), Error> {
    let explained = Explained::of(bench, asked)?;
    explained.print(out)?;
    explained.failed.map_or(Ok(()), Err)
}

/// A run that tells why, and those that differ from it in one key.
pub struct Explained {
    bench: BenchArgs,
    asked: Vec<String>,
    /// The run.
    pub outcome: Outcome,
    /// Those that differ, in the order asked for; the last may be missing.
    pub others: Vec<Outcome>,
    /// The run as it is with another seed, beside those: what is no key's doing.
    pub again: Option<Outcome>,
    /// Why they are missing, where that is an error.
    pub failed: Option<Error>,
}

impl Explained {
    /// Runs a bench, and again with each key set that is asked for.
    pub fn of(bench: &BenchArgs, asked: &[String]) -> Result<Explained, Error> {
        let slowest = Some(bench.slowest.unwrap_or(SLOWEST));
        let drive = bench.drive.found()?;
        let bench = BenchArgs { drive, slowest, explains: true, ..bench.clone() };
        bench.check()?;
        if asked.len() > MOST_IFS {
            return Err(Error::Usage(format!("--what-if may be given {MOST_IFS} times")));
        }
        let ifs: Vec<_> = asked.iter().map(|set| what_if(&bench, set)).collect();
        let ifs = ifs.into_iter().collect::<Result<Vec<_>, _>>()?;
        let mut watch = Watch::terminal(bench.max_time.map(Duration::from_nanos))?;
        let runs = all(&bench, &ifs, &mut watch);
        watch.end();
        let (outcome, others, again, error) = runs?;
        let failed = error.map(|e| of_what_if(&asked[others.len()], e));
        Ok(Explained { bench, asked: asked.to_vec(), outcome, others, again, failed })
    }

    /// Why, for a terminal; of a run that is void only that.
    pub fn to_text(&self) -> String {
        let mut text = head(&self.outcome);
        if self.outcome.report.void.is_none() {
            text += &why(&self.outcome).tables(WIDE);
            text.push('\n');
        }
        text
    }

    /// What the runs that differ show, or what to try where there are none.
    pub fn compared(&self) -> String {
        let others: Vec<_> = self.asked.iter().map(String::as_str).zip(&self.others).collect();
        match self.asked[..] {
            [] => advice(&self.bench, &self.outcome),
            _ => {
                let again = self.again.as_ref().map(|again| (other_seed(&self.bench), again));
                compared(&self.outcome, again, &others) + &cut_short(&self.asked, &others)
            }
        }
    }

    /// As one JSON object.
    pub fn to_json(&self) -> Value {
        let mut json = self.outcome.to_json();
        json["explained"] = self.outcome.causes.as_ref().map_or(Value::Null, causes_json);
        let other =
            |(set, other): (&String, &Outcome)| json!({ "set": set, "run": other.to_json() });
        json["another_seed"] = self.again.as_ref().map_or(Value::Null, Outcome::to_json);
        json["what_if"] = self.asked.iter().zip(&self.others).map(other).collect();
        let is_cut = self.others.len() < self.asked.len();
        json["interrupted"] = (self.outcome.interrupted || is_cut).into();
        json
    }

    /// Prints it. Fails afterwards when requests failed.
    fn print(&self, out: &mut dyn Write) -> Result<(), Error> {
        let is_json = self.bench.json;
        if is_json {
            writeln!(out, "{:#}", self.to_json())?;
        } else {
            out.write_all(self.to_text().as_bytes())?;
            if self.outcome.report.void.is_some() {
                return self.outcome.finish_print(false, out);
            }
            self.outcome.print_slowest(out)?;
            out.write_all(self.compared().as_bytes())?;
        }
        self.outcome.finish_print(is_json, out)?;
        self.problem().map_or(Ok(()), Err)
    }

    /// Why the command fails of runs that differ, if it does.
    pub fn problem(&self) -> Option<Error> {
        self.asked.iter().zip(&self.others).find_map(|(set, other)| {
            let problem = other.problem.as_ref()?;
            Some(Error::Failed(format!("--what-if {set}: {problem}")))
        })
    }
}

/// An error of a run that differs says of which.
fn of_what_if(set: &str, e: Error) -> Error {
    let text = format!("--what-if {set}: {e}");
    if e.exit_code() == 2 { Error::Usage(text) } else { Error::Failed(text) }
}

/// A run, those that differ, the run with another seed, and why there are no more of them.
type Runs = (Outcome, Vec<Outcome>, Option<Outcome>, Option<Error>);

/// The run itself, and those that differ, as far as nobody stops them.
fn all(bench: &BenchArgs, ifs: &[BenchArgs], watch: &mut Watch) -> Result<Runs, Error> {
    let outcome = measure(bench, watch)?;
    let (others, error) = others_than(&outcome, ifs, watch);
    let is_whole = !ifs.is_empty() && others.len() == ifs.len();
    // A trace asks for the same whatever the seed.
    let wants = is_whole && bench.replay.is_none() && outcome.problem.is_none();
    let again = match wants && watch.look(0.0) {
        true => {
            let seed = other_seed(bench);
            let again = BenchArgs { seed, slowest: None, explains: false, ..bench.clone() };
            // One that was stopped says nothing.
            measure(&again, watch).ok().filter(|again| !again.interrupted)
        }
        false => None,
    };
    Ok((outcome, others, again, error))
}

/// The seed of the run that shows what is no key's doing.
fn other_seed(bench: &BenchArgs) -> u64 {
    bench.seed.wrapping_add(1)
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
    if bench.replay.as_ref().is_some_and(Replay::is_a_stream) {
        return usage(format!("--what-if {set}: standard input is read once; take a file"));
    }
    let (was, mut spec): (_, MemorySpec) = (spec.resolve(), spec.clone());
    let is_set = spec.set(key.trim(), value.trim()).and_then(|()| spec.resolve());
    let is = is_set.map_err(|e| of_what_if(set, e.into()))?;
    let of = |config: &DriveConfig| {
        let mut all = config.effective();
        all["name"] = Value::Null;
        all
    };
    if was.is_ok_and(|was| of(&was) == of(&is)) {
        return usage(format!("--what-if {set}: so it is already"));
    }
    let other = BenchArgs {
        drive: DriveSpec::Memory(spec),
        slowest: None,
        explains: false,
        ..bench.clone()
    };
    other.check().map_err(|e| of_what_if(set, e))?;
    Ok(other)
}

/// What there is to tell: of several loads each by itself.
pub(crate) fn why(outcome: &Outcome) -> Why<'_> {
    if outcome.jobs.is_empty() {
        return outcome.causes.as_ref().map(Why::of_one).unwrap_or_default();
    }
    let loads = outcome.jobs.iter().enumerate();
    Why::of_loads(loads.map(|(n, job)| (format!("load {n}"), job.asks(), job.causes.as_ref())))
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
    for (n, job) in outcome.jobs.iter().enumerate() {
        let _ = writeln!(text, "load {n}: {}", job.to_text(false));
    }
    for (label, note) in outcome.notes() {
        let _ = writeln!(text, "{label}: {note}");
    }
    text
}

/// What to try, after what the slowest reads and writes waited for, of what can be.
fn advice(bench: &BenchArgs, outcome: &Outcome) -> String {
    let mut tries: Vec<String> = Vec::new();
    for kind in why(outcome).kinds() {
        let Some((_, group)) = tail(kind) else { continue };
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
        assert!(why(&outcome).tables(WIDE).contains("% die, behind"));
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
        let told = |others: &[Outcome]| {
            let (bench, outcome) = (bench.clone(), outcome.clone());
            let (asked, others) = (asked.to_vec(), others.to_vec());
            let mut out = Vec::new();
            let explained = Explained { bench, asked, outcome, others, again: None, failed: None };
            explained.print(&mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let text = told(&[]);
        assert!(text.contains("\nnot run: suspend=true, pus=8\n"), "{text}");
        assert!(!text.contains("--what-if") && !text.contains("what if"), "{text}");
        let text = told(&[Outcome { interrupted: true, ..run(&ifs[0]) }]);
        assert!(
            text.contains("\nstopped before its end: suspend=true\n\nnot run: pus=8\n"),
            "{text}"
        );
    }

    /// A load of which little is asked goes by a short loop, and one whose writes flushes may
    /// come between by another: both tell the same of the same requests.
    #[test]
    fn both_loops_tell_the_same() {
        for line in [
            "mem:tlc,size=64M,store=none --rw randrw --qd 16 --precondition seq --ios 8k",
            "mem:ref,size=64M,store=none --rw randread --qd 4 --precondition seq --ios 2k --ramp 2ms",
            "mem:ref,size=64M,store=none --rw randwrite --qd 1500 --ios 9k",
        ] {
            let told = |line: &str| {
                let bench = BenchArgs { slowest: Some(20), ..bench(line) };
                let outcome = run(&bench);
                assert!(outcome.report.latency_ns.n >= 2000);
                let causes = outcome.causes.as_ref().map(causes_json);
                let rows = format!("{:?}", outcome.report.series);
                (causes, format!("{:?}", outcome.slowest), rows)
            };
            let (short, other) = (told(line), told(&format!("{line} --flush-every 100000")));
            assert_eq!(short, other, "{line}");
        }
    }

    /// Of several loads each has its tables; who alone writes is named.
    #[test]
    fn several_loads_are_told_of_each_by_itself() {
        let line = "mem:tlc,size=64M,store=none --rw randread --qd 4 --precondition seq --job \
                    rw=randwrite,qd=8 --time 20ms";
        let bench = bench(line);
        bench.check().unwrap();
        let outcome = run(&bench);
        let mut out = Vec::new();
        let others = vec![run(&what_if(&bench, "suspend=true").unwrap())];
        let (bench, outcome) = (bench.clone(), outcome.clone());
        let asked = vec!["suspend=true".into()];
        let explained = Explained { bench, asked, outcome, others, again: None, failed: None };
        explained.print(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        for part in [
            "\nload 0: randread 4 KiB, depth 4, queue 0: ",
            " of reads of load 0, ",
            "% die, behind program of load 1",
            "\nreads of load 0  ",
            "\nwrites of load 1  ",
            "read 0  ",
            "load 0's p99",
            "load 1's mean",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("of user"), "{text}");
    }

    /// A key that changes the spare as well says what it was and is.
    #[test]
    fn a_drive_with_another_spare_is_told_with_both() {
        let line = "mem:tlc,size=256M,store=none --rw randwrite --ios 1k";
        let explained = Explained::of(&bench(line), &["pus=8".into(), "suspend=true".into()]);
        let explained = explained.unwrap();
        let spare = |of: &Outcome| of.report.drive["spare"].as_f64().unwrap();
        let (was, is) = (spare(&explained.outcome), spare(&explained.others[0]));
        // What another seed does stands beside what a key does, and both write.
        assert!(explained.again.is_some(), "nothing stopped it");
        assert!(explained.compared().contains("\nas it is, seed 2 "));
        assert!(explained.compared().contains("write amp."));
        let text = explained.compared();
        let told = format!("  with a spare of {is}, not {was}\n");
        assert!(was != is && text.contains(&told), "{text}");
        assert_eq!(text.matches("spare").count(), 1, "{text}");
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
