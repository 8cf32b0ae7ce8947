//! The lab: what a study measures with.
//!
//! A study says what it wants as the command line of `ssdkit bench`, so that
//! a reader can run the same by hand; the lab runs it and writes it down.
//! Virtual time is run once, real time at least three times.
//!
//! Guarantees: a run in real time counts only when its threads had the
//! processor for nearly all of it; one that the machine disturbed is
//! repeated, a bounded number of times, and if too few are left the figure is
//! marked void. Fails when a command line cannot be, a request failed, or
//! somebody stopped it.

use std::time::Instant;

use clap::Parser;
use serde_json::Value;

use super::outcome::{Manifest, Outcome, Step};
use super::runs::Runs;
use super::{Findings, Options, Study};
use bench::BenchArgs;
use drive::error::Error;
use drive::spec::{DriveConfig, DriveSpec};
use load::driver::ClockKind;
use load::watch::Watch;
use standard::TestArgs;

/// Runs that a figure on the wall needs.
pub const RUNS: usize = 3;
/// Runs that are tried for it.
const TRIES: usize = 5;
/// The least share of a run that its threads must have had a processor.
pub const SHARE: f64 = 0.9;

/// Runs by turns that a figure needs.
pub const ROUNDS: usize = 5;

/// What is behind `ssdkit`.
#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: BenchArgs,
}

/// The same of a test.
#[derive(Parser)]
struct TestLine {
    #[command(flatten)]
    args: TestArgs,
}

/// Something to be measured by turns with others.
#[derive(Clone, Debug)]
pub struct Case {
    /// What it is, for the manifest.
    pub what: String,
    /// How to call it.
    pub command: String,
    /// Its effective configuration.
    pub configuration: Value,
}

/// What the runs of one case gave.
#[derive(Clone, Debug)]
pub struct Turns<T> {
    good: Vec<T>,
    disturbed: Vec<T>,
    void: Option<String>,
}

impl<T> Default for Turns<T> {
    fn default() -> Turns<T> {
        Turns { good: Vec::new(), disturbed: Vec::new(), void: None }
    }
}

impl<T> Turns<T> {
    /// Runs of which all count.
    #[cfg(test)]
    pub fn of(good: Vec<T>) -> Turns<T> {
        Turns { good, ..Turns::default() }
    }

    fn note(&mut self, (run, share): (T, Option<f64>)) {
        let good = share.is_none_or(|share| share >= SHARE);
        if good { &mut self.good } else { &mut self.disturbed }.push(run);
    }

    /// If too few runs counted, all are shown and none is judged.
    fn end(&mut self, wanted: usize) {
        let (good, tried) = (self.good.len(), self.good.len() + self.disturbed.len());
        if good < wanted {
            self.void = Some(busy(good, tried, "90 % of the cores' time to themselves"));
            self.good.append(&mut self.disturbed);
        }
    }

    /// One figure of each run.
    pub fn runs(&self, figure: impl Fn(&T) -> f64) -> Runs {
        self.figures(|run| vec![figure(run)])
    }

    /// A count of each run, also of those that were disturbed: it is the same however busy
    /// a machine is.
    pub fn counts(&self, count: impl Fn(&T) -> f64) -> Runs {
        Runs::new(self.good.iter().chain(&self.disturbed).map(count).collect())
    }

    /// Several figures of each run.
    pub fn figures(&self, figures: impl Fn(&T) -> Vec<f64>) -> Runs {
        let runs = Runs::new(self.good.iter().flat_map(figures).collect());
        match &self.void {
            Some(why) => runs.voided(why),
            None => runs,
        }
    }
}

/// The drive of this name, which is one of this process.
pub fn config(name: &str) -> Result<DriveConfig, Error> {
    match name.parse()? {
        DriveSpec::Memory(spec) => Ok(spec.resolve()?),
        _ => Err(Error::Usage(format!("{name} is not in this process"))),
    }
}

/// Why runs are void: too few had what they need to count.
fn busy(good: usize, tried: usize, needed: &str) -> String {
    format!("the machine was busy: only {good} of {tried} runs had {needed}")
}

/// One run in real time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// What it gave.
    pub value: f64,
    /// Processor time of its threads divided by what they could have had;
    /// `None` where they sleep, as they do on real storage.
    pub share: Option<f64>,
}

/// What a study measures with.
pub struct Lab<'a> {
    /// What was asked for.
    pub options: &'a Options,
    /// Who watches.
    pub watch: &'a mut Watch,
    steps: Vec<Step>,
    began: Instant,
}

impl<'a> Lab<'a> {
    /// A lab in which nothing was measured yet.
    pub fn new(options: &'a Options, watch: &'a mut Watch) -> Lab<'a> {
        Lab { options, watch, steps: Vec::new(), began: Instant::now() }
    }

    /// Runs `ssdkit bench ARGS`, with the study's seed. Gives the IOPS of one
    /// run in virtual time, of several in real time. `what` goes into the
    /// manifest.
    pub fn iops(&mut self, what: &str, args: &str) -> Result<Runs, Error> {
        let (command, args) = self.parsed(args)?;
        let mut configuration = Value::Null;
        let mut once = |watch: &mut Watch| {
            let outcome = finished(bench::measure(&args, watch)?)?;
            configuration = outcome.drive;
            let report = outcome.report;
            let cpu = report.cpu.user_seconds + report.cpu.system_seconds;
            Ok(Run { value: report.iops, share: Some(cpu / report.cpu.wall_seconds) })
        };
        let runs = match args.clock() {
            ClockKind::Virtual => Runs::one(once(self.watch)?.value),
            ClockKind::Real => repeat(|| once(self.watch))?,
        };
        self.note_step(what, command, configuration);
        Ok(runs)
    }

    /// Runs `ssdkit bench ARGS` once, in virtual time, with the study's seed, and
    /// gives all that it tells. `what` goes into the manifest.
    pub fn bench(&mut self, what: &str, args: &str) -> Result<bench::Outcome, Error> {
        let (command, args) = self.parsed(args)?;
        if args.clock() == ClockKind::Real {
            return Err(Error::Usage(format!("{command}: one run says nothing of real time")));
        }
        let outcome = finished(bench::measure(&args, self.watch)?)?;
        self.note_step(what, command, outcome.drive.clone());
        Ok(outcome)
    }

    /// Runs `ssdkit test ARGS`, with the study's seed; its notes go into the manifest, too.
    /// Fails where its result is void. One of a drive that was not steady is for
    /// [`not_steady`] to tell.
    pub fn test(&mut self, what: &str, args: &str) -> Result<standard::Outcome, Error> {
        let command = format!("ssdkit test {args} --seed {}", self.options.seed);
        let parsed = TestLine::try_parse_from(command.split_whitespace().skip(1));
        let TestLine { args } = parsed.map_err(|e| Error::Usage(e.to_string()))?;
        let (Some(name), Some(drive)) = (&args.name, &args.drive) else {
            return Err(Error::Usage(format!("{command}: which test, of which drive")));
        };
        let outcome = standard::Test::named(name)?.measure(drive, &args.options, self.watch)?;
        if let standard::Verdict::Void(why) = &outcome.verdict {
            return Err(Error::Failed(format!("{command}: {why}")));
        }
        let (configuration, notes) = (outcome.drive.0.clone(), outcome.notes.clone());
        self.steps.push(Step { what: what.into(), command, configuration, notes });
        Ok(outcome)
    }

    /// The command line of a bench, with the study's seed.
    fn parsed(&self, args: &str) -> Result<(String, BenchArgs), Error> {
        let command = format!("ssdkit bench {args} --seed {}", self.options.seed);
        let parsed = Line::try_parse_from(command.split_whitespace().skip(1));
        let Line { args } = parsed.map_err(|e| Error::Usage(e.to_string()))?;
        args.check()?;
        Ok((command, args))
    }

    /// Measures several times, by [`RUNS`] and what a run needs to count.
    /// `command` and `configuration` say how, for the manifest.
    pub fn repeat(
        &mut self,
        what: &str,
        command: String,
        configuration: Value,
        mut once: impl FnMut(&mut Watch) -> Result<Run, Error>,
    ) -> Result<Runs, Error> {
        let runs = repeat(|| once(self.watch))?;
        self.note_step(what, command, configuration);
        Ok(runs)
    }

    /// Measures `cases` by turns, so that what changes on the machine meanwhile
    /// meets all of them: [`ROUNDS`] times each, those runs not counted that
    /// were disturbed. `once` runs the case of a number and tells the share of
    /// its processors' time that was its own.
    pub fn by_turns<T>(
        &mut self,
        cases: &[Case],
        mut once: impl FnMut(usize) -> Result<(T, Option<f64>), Error>,
    ) -> Result<Vec<Turns<T>>, Error> {
        let wanted = self.options.pick(ROUNDS, RUNS);
        let mut all: Vec<Turns<T>> = cases.iter().map(|_| Turns::default()).collect();
        for round in 0..wanted + TRIES {
            for (i, (case, turns)) in cases.iter().zip(&mut all).enumerate() {
                self.watch.phase(&case.what);
                if !self.watch.look(round as f64 / wanted as f64) {
                    return Err(Error::Failed("stopped before its end".into()));
                }
                if turns.good.len() < wanted {
                    turns.note(once(i)?);
                }
            }
            if all.iter().all(|turns| turns.good.len() == wanted) {
                break;
            }
        }
        all.iter_mut().for_each(|turns| turns.end(wanted));
        for Case { what, command, configuration } in cases {
            self.note_step(what, command.clone(), configuration.clone());
        }
        Ok(all)
    }

    /// Writes down how something was measured.
    pub fn note_step(&mut self, what: &str, command: String, configuration: Value) {
        self.steps.push(Step { what: what.into(), command, configuration, notes: Vec::new() });
    }

    /// Ends the study.
    pub fn finish(self, study: &Study, findings: Findings) -> Outcome {
        let manifest = Manifest {
            version: env!("CARGO_PKG_VERSION"),
            seed: self.options.seed,
            quick: self.options.quick,
            processors: std::thread::available_parallelism().map_or(1, |n| n.get()),
            wall_seconds: self.began.elapsed().as_secs_f64(),
            steps: self.steps,
        };
        let Findings { rows, notes, pictures } = findings;
        Outcome { study: study.name, about: study.about, rows, notes, pictures, manifest }
    }
}

/// Why what a test gave of a drive is shown and not judged, where that was not steady.
pub fn not_steady(outcome: &standard::Outcome) -> Option<String> {
    match outcome.verdict {
        standard::Verdict::NotSteady(rounds) => {
            Some(format!("the drive was not steady after {rounds} rounds: figures may still move"))
        }
        _ => None,
    }
}

/// An outcome that may be used: all requests did what they were asked.
fn finished(outcome: bench::Outcome) -> Result<bench::Outcome, Error> {
    match (&outcome.problem, &outcome.report.void) {
        (Some(what), _) | (None, Some(what)) => Err(Error::Failed(what.clone())),
        (None, None) if outcome.interrupted => Err(Error::Failed("stopped before its end".into())),
        (None, None) => Ok(outcome),
    }
}

/// Runs until enough runs count, or as often as is tried.
fn repeat(mut once: impl FnMut() -> Result<Run, Error>) -> Result<Runs, Error> {
    let (mut good, mut all) = (Vec::new(), Vec::new());
    while good.len() < RUNS && all.len() < TRIES {
        let run = once()?;
        all.push(run.value);
        if run.share.is_none_or(|share| share >= SHARE) {
            good.push(run.value);
        }
    }
    if good.len() == RUNS {
        return Ok(Runs::new(good));
    }
    let why = busy(good.len(), all.len(), "a processor for 90 % of their time");
    Ok(Runs::new(all).voided(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(shares: &[Option<f64>]) -> Runs {
        let mut at = 0;
        repeat(|| {
            at += 1;
            Ok(Run { value: at as f64, share: shares[at - 1] })
        })
        .unwrap()
    }

    #[test]
    fn disturbed_runs_are_repeated() {
        let (full, cut) = (Some(0.99), Some(0.5));
        assert_eq!(runs(&[full, cut, full, cut, full]), Runs::new(vec![1.0, 3.0, 5.0]));
        assert_eq!(runs(&[None; 3]), Runs::new(vec![1.0, 2.0, 3.0]));
    }

    #[test]
    fn too_few_undisturbed_runs_are_void() {
        let (full, cut) = (Some(0.99), Some(0.5));
        let runs = runs(&[cut, full, cut, full, cut]);
        assert_eq!(runs.count(), 5);
        assert!(runs.void().unwrap().contains("2 of 5 runs had a processor for"), "{runs:?}");
    }

    #[test]
    fn cases_by_turns_are_repeated_apart() {
        let options = Options { quick: true, ..Options::default() };
        let mut watch = Watch::quiet();
        let mut lab = Lab::new(&options, &mut watch);
        let case = |what: &str| Case {
            what: what.into(),
            command: String::new(),
            configuration: Value::Null,
        };
        let mut order = Vec::new();
        let cases = [case("steady"), case("disturbed once"), case("disturbed")];
        let all = lab
            .by_turns(&cases, |i| {
                order.push(i);
                let share = if i == 2 || order.len() == 2 { 0.5 } else { 1.0 };
                Ok((order.len() as f64, Some(share)))
            })
            .unwrap();
        assert_eq!(order[..10], [0, 1, 2, 0, 1, 2, 0, 1, 2, 1]);
        assert_eq!(all[0].runs(|&x| x), Runs::new(vec![1.0, 4.0, 7.0]));
        assert_eq!(all[1].runs(|&x| x), Runs::new(vec![5.0, 8.0, 10.0]));
        let void = all[2].runs(|&x| x);
        assert_eq!(void.count(), RUNS + TRIES);
        assert!(
            void.void().unwrap().contains("only 0 of 8 runs had 90 % of the cores"),
            "{void:?}"
        );
        assert_eq!((all[2].counts(|&x| x).void(), all[1].counts(|&x| x).count()), (None, 4));
    }

    #[test]
    fn what_is_no_bench_is_refused() {
        let options = Options::default();
        let mut watch = Watch::quiet();
        let mut lab = Lab::new(&options, &mut watch);
        for args in ["mem:ref", "mem:ref --rw read --zipf 1", "mem:none --rw read"] {
            assert_eq!(lab.iops("w", args).unwrap_err().exit_code(), 2, "{args}");
        }
    }

    #[test]
    fn one_run_is_for_virtual_time() {
        let options = Options::default();
        let mut watch = Watch::quiet();
        let mut lab = Lab::new(&options, &mut watch);
        let args = "mem:ref,size=64M,store=none --rw randwrite --qd 4 --ios 2k";
        let outcome = lab.bench("w", args).unwrap();
        assert_eq!(lab.iops("w", args).unwrap(), Runs::one(outcome.report.iops));
        let real = lab.bench("w", &format!("{args} --clock real")).map(|_| ());
        assert_eq!(real.unwrap_err().exit_code(), 2);
        let [bench, iops] = &lab.steps[..] else { panic!("two steps") };
        assert_eq!((&bench.command, &bench.configuration), (&iops.command, &iops.configuration));
    }

    #[test]
    fn virtual_time_is_the_same_twice() {
        let options = Options { seed: 7, ..Options::default() };
        let mut watch = Watch::quiet();
        let mut lab = Lab::new(&options, &mut watch);
        let args = "mem:ref,size=64M,store=none --rw randwrite --qd 4 --ios 2k";
        let twice = [lab.iops("a", args).unwrap(), lab.iops("b", args).unwrap()];
        assert_eq!(twice[0], twice[1]);
        let outcome = lab.finish(&Study::ALL[0], Findings::default());
        assert!(outcome.manifest.steps[1].command.ends_with("--ios 2k --seed 7"));
        assert_eq!(outcome.manifest.steps[1].configuration["size_bytes"], 64 << 20);
    }
}
