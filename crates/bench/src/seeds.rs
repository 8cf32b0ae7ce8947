//! A bench of several seeds, one after the other.
//!
//! Each seed is a run of its own on a drive of its own. Fails as one run does; what was run to
//! its end before somebody stopped it is told.

use std::io::Write;
use std::time::Duration;

use load::watch::Watch;
use report::{Replicates, Run};
use serde_json::Value;

use crate::{BenchArgs, as_run, measure, page_file, write_pages};
use drive::error::Error;
use drive::spec::DriveSpec;

/// Runs so many, and prints what they have in common.
pub fn run(args: &BenchArgs, seeds: u32, out: &mut dyn Write) -> Result<(), Error> {
    let args = &BenchArgs { drive: args.drive.found()?, ..args.clone() };
    args.check()?;
    check(args, seeds)?;
    let page = args.report.as_ref().map(|path| page_file(path)).transpose()?;
    let mut told = Told::default();
    let mut watch = Watch::terminal(args.max_time.map(Duration::from_nanos))?;
    told.asked = seeds;
    let ended = (0..u64::from(seeds)).try_for_each(|n| told.one(args, args.seed + n, &mut watch));
    watch.end();
    ended.or_else(|e| if told.seeds.is_empty() { Err(e) } else { told.stop(e) })?;
    told.print(args.json, out)?;
    page.map_or(Ok(()), |file| write_pages(file, &told.runs))?;
    if told.problems.is_empty() { Ok(()) } else { Err(Error::Failed(told.problems.join("; "))) }
}

/// Whether each run can have a drive of its own.
fn check(args: &BenchArgs, seeds: u32) -> Result<(), Error> {
    let refuse = |text: &str| Err(Error::Usage(text.into()));
    let is_new = match &args.drive {
        DriveSpec::Memory(_) => true,
        DriveSpec::File(spec) => spec.copy,
        _ => false,
    };
    if !is_new {
        return refuse(
            "--seeds takes a new drive for each run: name one in memory, or a copy of a file, \
             ssd:FILE,copy=yes",
        );
    }
    if args.snapshot.is_some() || args.blocks.trace.is_some() || args.slowest.is_some() {
        return refuse("--snapshot, --trace and --slowest are of one run: leave --seeds out");
    }
    if args.report.is_some() && seeds as usize > report::charts::RUNS {
        return refuse(
            "--report has pictures of up to 8 runs: take fewer --seeds, or leave it out",
        );
    }
    if args.seed.checked_add(seeds.into()).is_none() {
        return refuse("--seeds counts from --seed on, and there are no seeds behind 2^64 - 1");
    }
    Ok(())
}

/// What was run.
#[derive(Default)]
struct Told {
    /// So many were to be run.
    asked: u32,
    seeds: Vec<u64>,
    runs: Vec<Run>,
    reports: Vec<Value>,
    /// What went wrong, and why the rest was not run.
    problems: Vec<String>,
}

impl Told {
    /// Runs one. Fails where that cannot be, or somebody stops it.
    fn one(&mut self, args: &BenchArgs, seed: u64, watch: &mut Watch) -> Result<(), Error> {
        let outcome = measure(&BenchArgs { seed, ..args.clone() }, watch)?;
        if outcome.interrupted {
            return Err(Error::Failed(format!("stopped in the run of seed {seed}")));
        }
        outcome.warn();
        if let Some(problem) = &outcome.problem {
            self.problems.push(format!("seed {seed}: {problem}"));
        }
        let report = outcome.to_json();
        self.runs.push(as_run(&format!("seed {seed}"), report.clone())?);
        self.reports.push(report);
        self.seeds.push(seed);
        Ok(())
    }

    /// The rest was not run.
    fn stop(&mut self, why: Error) -> Result<(), Error> {
        self.problems.push(why.to_string());
        Ok(())
    }

    fn print(&self, json: bool, out: &mut dyn Write) -> Result<(), Error> {
        let replicates = Replicates::new(self.seeds.clone(), &self.runs);
        if json {
            let mut all = replicates.to_json();
            all["asked"] = self.asked.into();
            all["runs"] = self.reports.clone().into();
            writeln!(out, "{all:#}")?;
        } else {
            write!(out, "{}", replicates.to_text(self.asked as usize))?;
        }
        Ok(out.flush()?)
    }
}
