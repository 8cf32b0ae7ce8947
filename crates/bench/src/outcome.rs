//! What a bench gave: as text, as JSON, and whether the command fails.
//!
//! Fails when the output cannot be written, and, after printing, when a request
//! failed or gave wrong data.

use std::io::Write;

use measure::dies::Busy;
use measure::{Direction, Report, units};
use parity::ParityCounters;
use serde_json::{Value, json};

use crate::args::{BenchArgs, Precondition};
use crate::bursts::BurstReport;
use crate::explain::why;
use crate::jobs::JobReport;
use crate::replay::ReplayReport;
use crate::slowest::SlowestReport;
use drive::array::ArrayReport;
use drive::caches::Caches;
use drive::chunk_map::ChunkMap;
use drive::energy::EnergyReport;
use drive::error::Error;
use drive::fault_rules::Injected;
use drive::flash_errors::FlashErrors;
use drive::power::PowerReport;
use drive::redundancy::Redundancy;
use drive::restore::Recovery;
use drive::say::say;
use drive::slc::SlcReport;
use drive::whole::READ_ONLY;
use load::blocks::Accounts;
use load::watch::columns;
use measure::causes::Causes;

/// The widest line of the slowest requests, in columns.
pub(crate) const TABLE: usize = 132;

/// Warnings that are printed.
const WARNINGS: usize = 8;

/// What a measurement gave, before it is printed.
#[derive(Clone)]
pub struct Outcome {
    /// The report. Its drive is in few words.
    pub report: Report,
    /// Latencies of all I/Os, reads, writes, trims and flushes: in ns, rising, and how often.
    pub cells: [Vec<(u64, u64)>; 5],
    /// The drive's effective configuration.
    pub drive: Value,
    /// Whether a new drive was written as it was.
    pub new_drive: bool,
    /// In an open loop: what was asked for, and reached; of several loads, the first's.
    pub open_loop: Option<OpenLoop>,
    /// Why the drive has more spare than its profile, if it has.
    pub raised_spare: Option<String>,
    /// Flushes, where there were any.
    pub flush: Option<Direction>,
    /// What its bursts took, where it has any.
    pub bursts: Option<BurstReport>,
    /// What became of a trace, where one was replayed.
    pub replay: Option<ReplayReport>,
    /// What each of several loads did by itself.
    pub jobs: Vec<JobReport>,
    /// Why the run fails, if it does: what went wrong.
    pub problem: Option<String>,
    /// Whether somebody stopped it.
    pub interrupted: bool,
    /// Requests that were still inside then, and were not waited for.
    pub left_inside: u64,
    /// A hash of the drive's final state, where JSON was asked for: the same
    /// run gives the same one, whatever the machine and the build.
    pub state_hash: Option<u64>,
    /// What the block layer did, where there was one.
    pub block_layer: Option<Accounts>,
    /// What went wrong without making the run fail.
    pub warnings: Vec<String>,
    /// How the drive was found again, where it was.
    pub recovery: Option<Recovery>,
    /// Fault rules, and how often each struck.
    pub injected: Vec<Injected>,
    /// What was done for the sake of parity, where there is any.
    pub parity: Option<Redundancy>,
    /// What the SLC cache did, where there is one.
    pub slc: Option<SlcReport>,
    /// What its flash got wrong, where anything did.
    pub flash_errors: Option<FlashErrors>,
    /// What its dies read once for several, or copied inside, where they did.
    pub array: Option<ArrayReport>,
    /// What the caches of its controller did.
    pub caches: Caches,
    /// How it slept and how warm it was, where it does or is.
    pub power: Option<PowerReport>,
    /// What was taken, where that is counted.
    pub energy: Option<EnergyReport>,
    /// How busy its dies were, by group and unit, of so many units in a group; where
    /// that was asked for and is told.
    pub dies: Option<(Busy, u32)>,
    /// All of its chunks at its end, as `dies`.
    pub chunks: Option<(ChunkMap, u32)>,
    /// Where the time of requests went, where that was asked for.
    pub causes: Option<Causes>,
    /// At its end the drive took no more writes.
    pub read_only: bool,
    /// The slowest requests, where they were asked for.
    pub slowest: Option<SlowestReport>,
    /// The first request that failed. With fault rules that is no error.
    pub first_failed: Option<String>,
}

/// Requests of an open loop that tell whether it reached half of its rate.
const FEW: u64 = 20;
/// Those that tell whether it reached all of it.
const MANY: u64 = 1000;

/// The rate of an open loop, in requests a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OpenLoop {
    /// What was asked for.
    pub asked: u64,
    /// What was reached, requests that failed included.
    pub reached: f64,
    /// Whether the drive did not keep up.
    pub behind: bool,
}

impl OpenLoop {
    /// Of so many requests in `seconds`. A few tell little: the last one's latency is much
    /// of the time that they took, so that they must have taken twice their time. Of fewer
    /// than a handful it may be most of it, and they tell nothing.
    pub fn new(asked: u64, requests: u64, seconds: f64) -> OpenLoop {
        let reached = if seconds > 0.0 { requests as f64 / seconds } else { 0.0 };
        let part = match requests {
            0..FEW => 0.0,
            FEW..MANY => 0.5,
            MANY.. => 0.95,
        };
        let behind = seconds > 0.0 && reached < part * asked as f64;
        OpenLoop { asked, reached, behind }
    }

    pub(crate) fn to_json(self) -> Value {
        json!({ "asked": self.asked, "reached": self.reached, "behind": self.behind })
    }

    /// What is to be known of one that is behind.
    fn note(self) -> Option<String> {
        let (asked, reached) = (units::count(self.asked as f64), units::count(self.reached));
        self.behind.then(|| {
            format!(
                "{asked} asked, {reached} reached: the drive is slower; latencies are those of a \
                 queue that grows"
            )
        })
    }
}

impl Outcome {
    /// What was done for the sake of parity since it was `before`.
    pub(crate) fn add_parity(
        &mut self,
        before: Option<ParityCounters>,
        after: Option<ParityCounters>,
    ) {
        let amplification = self.report.write_amplification.as_ref().map(|wa| wa.total);
        self.parity = before
            .zip(after)
            .map(|(before, after)| Redundancy::new(after.since(&before), amplification));
    }

    /// Notes that reads of a drive that was `new` were in vain, where nothing
    /// was done to it before: what was never written is read in no time.
    pub(crate) fn look_for_reads_of_nothing(&mut self, args: &BenchArgs, new: bool) {
        if new && args.is_any(|load| load.reads() > 0) && args.precondition() == Precondition::None
        {
            self.report.void.get_or_insert_with(|| {
                "the drive was new, and what was never written is read in no time; --precondition \
                 seq writes it first"
                    .into()
            });
        }
    }

    /// Notes why its figures mean nothing, if they do not.
    pub(crate) fn doubt(&mut self, why: Option<String>) {
        self.report.void = self.report.void.take().or(why);
    }

    /// Notes that a `new` drive was written as it was.
    pub(crate) fn look_for_a_new_drive(&mut self, args: &BenchArgs, new: bool) {
        let as_it_was = new && args.precondition() == Precondition::None;
        self.new_drive =
            as_it_was && args.is_any(|load| load.rw.writes()) && self.report.void.is_none();
    }

    /// Notes that of a new drive only a part was filled before, where it is written.
    pub(crate) fn look_for_an_empty_rest(&mut self, args: &BenchArgs) {
        if args.precondition() == Precondition::Seq && args.is_any(|load| load.rw.writes()) {
            let text = "outside --range the drive is empty, and has that much more spare: \
                        --precondition whole fills all of it";
            self.warnings.push(text.into());
        }
    }

    /// Notes that the page cache is between: what is measured may be memory.
    pub(crate) fn look_for_a_page_cache(&mut self, direct: bool) {
        if !direct {
            let text = "with direct=no requests go through the system's page cache, and figures \
                        are of memory as far as it serves them: direct=yes passes it";
            self.warnings.push(text.into());
        }
    }

    /// Notes that what parts of the drive did has the ramp in it, where any tells.
    pub(crate) fn look_for_a_ramp(&mut self, args: &BenchArgs) {
        let told = self.parity.is_some() || self.slc.is_some() || self.power.is_some();
        let told = told || self.flash_errors.is_some() || self.array.is_some();
        if args.ramp.is_some() && (told || self.caches != Caches::default()) {
            let text = "what parity, caches, power, dies and flash errors did has the ramp in it";
            self.warnings.push(text.into());
        }
    }

    /// The file that the drive is in failed: that is why requests did, and nothing of the
    /// flash gave way.
    pub(crate) fn blame_file(&mut self, why: &Error) {
        (self.read_only, self.flash_errors) = (false, None);
        let others = self.problem.take();
        self.problem = Some(others.map_or(why.to_string(), |others| format!("{why}; {others}")));
    }

    /// Whether a drive that was written may not have been steady, and nobody looked.
    fn may_still_fall(&self) -> bool {
        let Report { write_amplification, steady, void, .. } = &self.report;
        let is_written = write_amplification.is_some_and(|w| w.total > 0.0);
        is_written && steady.is_none() && void.is_none() && self.replay.is_none()
    }

    /// What is to be known of the figures, by line.
    pub(crate) fn notes(&self) -> Vec<(&'static str, String)> {
        let mut notes = Vec::new();
        if let Some(why) = &self.raised_spare {
            notes.push(("spare", why.clone()));
        }
        if self.read_only {
            notes.push(("read-only", READ_ONLY.into()));
        }
        if self.new_drive {
            let collected = self.report.gc.is_some_and(|gc| gc.collections > 0);
            let text = if collected {
                "not preconditioned: figures are of the new drive and of the one that was written \
                 over; --precondition steady"
            } else {
                "not preconditioned: rates fall once it was written over; --precondition steady"
            };
            notes.push(("new drive", text.into()));
        } else if self.may_still_fall() {
            let text = "no steady state was sought: rates may still fall; --precondition steady";
            notes.push(("steady", text.into()));
        }
        if self.jobs.is_empty()
            && let Some(text) = self.open_loop.and_then(OpenLoop::note)
        {
            notes.push(("rate", text));
        }
        for (n, job) in self.jobs.iter().enumerate() {
            if let Some(text) = job.open_loop.and_then(OpenLoop::note) {
                notes.push(("rate", format!("load {n}: {text}")));
            }
        }
        notes
    }

    /// As one JSON object.
    pub fn to_json(&self) -> Value {
        let mut json = self.report.to_json();
        json["drive"] = self.drive.clone();
        json["interrupted"] = self.interrupted.into();
        json["left_inside"] = self.left_inside.into();
        json["new_drive"] = self.new_drive.into();
        json["open_loop"] = self.open_loop.map_or(Value::Null, OpenLoop::to_json);
        if let Some(flush) = &self.flush {
            json["flush"] = json!(flush);
        }
        if let Some(bursts) = &self.bursts {
            json["bursts"] = bursts.to_json();
            json["bursts_total"] = bursts.count().into();
        }
        if let Some(replay) = &self.replay {
            json["replay"] = replay.to_json();
        }
        if !self.jobs.is_empty() {
            json["jobs"] = self.jobs.iter().map(JobReport::to_json).collect();
        }
        if let Some(hash) = self.state_hash {
            json["state_hash"] = format!("{hash:016x}").into();
        }
        if let Some(accounts) = &self.block_layer {
            json["block_layer"] = accounts.to_json();
        }
        if self.block_layer.is_some() || !self.warnings.is_empty() {
            json["warnings"] = json!(self.warnings);
        }
        if let Some(recovery) = &self.recovery {
            json["recovery"] = recovery.to_json();
        }
        if let Some(parity) = &self.parity {
            json["parity"] = parity.to_json();
        }
        if let Some(slc) = &self.slc {
            json["slc_cache"] = slc.to_json();
        }
        if let Some(errors) = &self.flash_errors {
            json["flash_errors"] = errors.to_json();
        }
        if let Some(array) = &self.array {
            json["array"] = array.to_json();
        }
        self.caches.add_to(&mut json);
        if let Some(power) = &self.power {
            json["power"] = power.to_json();
        }
        if let Some(energy) = &self.energy {
            json["energy"] = energy.to_json();
        }
        if let Some((busy, pus)) = &self.dies {
            json["dies"] = json!({ "pus": pus, "ends": busy.ends, "busy": busy.busy });
        }
        if let Some((chunks, pus)) = &self.chunks {
            json["chunks"] = chunks.to_json();
            json["chunks"]["pus"] = (*pus).into();
        }
        if self.read_only {
            json["read_only"] = true.into();
        }
        if let Some(slowest) = &self.slowest {
            json["slowest"] = slowest.to_json();
        }
        if !self.injected.is_empty() {
            json["injected"] = self.injected.iter().map(Injected::to_json).collect();
        }
        json
    }

    /// Tells on standard error what went wrong without making the run fail.
    pub(crate) fn warn(&self) {
        for text in self.warnings.iter().take(WARNINGS) {
            say(format!("warning: {text}"));
        }
        if let Some(more) = self.warnings.len().checked_sub(WARNINGS).filter(|&n| n > 0) {
            say(format!("warning: and {more} more like these: --json has all"));
        }
    }

    /// Prints it. Fails afterwards when requests failed.
    pub fn print(&self, json: bool, out: &mut dyn Write) -> Result<(), Error> {
        if json {
            writeln!(out, "{:#}", self.to_json())?;
        } else {
            self.write_text(columns(), out)?;
        }
        self.finish_print(json, out)
    }

    /// As the command prints it on a terminal of so many columns.
    pub fn to_text(&self, columns: usize) -> String {
        let mut text = Vec::new();
        self.write_text(columns, &mut text).expect("a vector takes all text");
        String::from_utf8_lossy(&text).into_owned()
    }

    fn write_text(&self, columns: usize, out: &mut dyn Write) -> Result<(), Error> {
        write!(out, "{}", self.report.to_text_in(columns))?;
        let is_void = self.report.void.is_some();
        for (n, job) in self.jobs.iter().enumerate() {
            writeln!(out, "{:<12}{}", format!("load {n}"), job.to_text(is_void))?;
        }
        for (i, text) in self.replay.iter().flat_map(ReplayReport::lines).enumerate() {
            let label = if i == 0 { "replay" } else { "" };
            writeln!(out, "{label:<12}{text}")?;
        }
        for (label, text) in self.notes() {
            writeln!(out, "{label:<12}{text}")?;
        }
        // Of a trace, beside reads and writes, which have columns.
        let trims: u64 = self.cells[3].iter().map(|cell| cell.1).sum();
        if self.replay.is_some() && trims > 0 {
            let all: f64 = self.cells[3].iter().map(|&(ns, n)| ns as f64 * n as f64).sum();
            let mean = units::time_ns((all / trims as f64).round());
            writeln!(out, "trims       {}, {mean} on average", units::count(trims as f64))?;
        }
        if let Some(flush) = &self.flush {
            let mean = units::time_ns(flush.latency_ns.mean.unwrap_or(0.0));
            writeln!(out, "flushes     {}, {mean} on average", units::count(flush.ios as f64))?;
        }
        if let Some(bursts) = &self.bursts {
            writeln!(out, "bursts      {bursts}")?;
        }
        if let Some(accounts) = &self.block_layer {
            write!(out, "{}", accounts.to_text())?;
        }
        if let Some(recovery) = self.recovery.filter(Recovery::took_long) {
            writeln!(out, "recovery    {recovery}")?;
        }
        if let Some(parity) = &self.parity {
            writeln!(out, "parity      {parity}")?;
        }
        if let Some(slc) = &self.slc {
            writeln!(out, "SLC cache   {slc}")?;
        }
        if let Some(errors) = &self.flash_errors {
            writeln!(out, "flash       {errors}")?;
        }
        if let Some(array) = &self.array {
            writeln!(out, "array       {array}")?;
        }
        for (label, text) in self.caches.lines() {
            writeln!(out, "{label:<12}{text}")?;
        }
        if let Some(power) = &self.power {
            writeln!(out, "power       {power}")?;
        }
        if let Some(energy) = &self.energy {
            writeln!(out, "energy      {energy}")?;
        }
        self.write_slowest(columns, out)?;
        for (i, one) in self.injected.iter().enumerate() {
            let label = if i == 0 { "faults" } else { "" };
            writeln!(out, "{label:<12}{} {}", units::exactly(one.times, "time"), one.rule)?;
        }
        if let Some(first) = &self.first_failed {
            let n = self.report.failed_requests;
            writeln!(out, "failed      {n} requests, in no figure above; first: {first}")?;
        }
        Ok(())
    }

    /// Prints the slowest requests, where there are any.
    pub(crate) fn print_slowest(&self, out: &mut dyn Write) -> Result<(), Error> {
        self.write_slowest(columns(), out)
    }

    fn write_slowest(&self, columns: usize, out: &mut dyn Write) -> Result<(), Error> {
        if let Some(slowest) = &self.slowest {
            write!(out, "{}", slowest.to_text(&why(self), columns.min(TABLE)))?;
        }
        Ok(())
    }

    /// Ends what is printed. Fails when requests failed.
    pub(crate) fn finish_print(&self, json: bool, out: &mut dyn Write) -> Result<(), Error> {
        if self.interrupted && !json {
            writeln!(out, "stopped     before its end: the figures are those so far")?;
        }
        out.flush()?;
        self.warn();
        self.problem.clone().map_or(Ok(()), |problem| Err(Error::Failed(problem)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_that_is_not_reached_is_behind() {
        assert!(!OpenLoop::new(1000, 10_000, 10.0).behind);
        assert!(!OpenLoop::new(1000, 9600, 10.0).behind);
        assert!(OpenLoop::new(1000, 9400, 10.0).behind);
        assert!(OpenLoop::new(100, 900, 90.0).behind, "a queue grew all the time");
        assert!(!OpenLoop::new(100, 900, 17.0).behind, "the last may have been slow");
        assert!(OpenLoop::new(1000, 20, 0.041).behind);
        assert!(!OpenLoop::new(1000, 19, 10.0).behind, "too few to tell");
        assert!(!OpenLoop::new(1000, 10_000, 0.0).behind, "its time stood still");
    }

    /// A drive that maps units of four blocks programs four for one.
    #[test]
    fn a_coarse_map_is_told_by_the_bytes_written() {
        use clap::Parser;

        use crate::args::Line;

        let line = "bench mem:tlc,size=64M,pages=12,store=none,map_unit=16k --rw randwrite \
                    --qd 16 --ios 20k --precondition seq";
        let args = Line::try_parse_from(line.split_whitespace()).unwrap().args;
        let json = crate::measure(&args, &mut load::watch::Watch::quiet()).unwrap().to_json();
        let all = &json["write_amplification"];
        let [total, of_bytes] = ["total", "of_bytes"].map(|key| all[key].as_f64().unwrap());
        assert!((3.9..4.1).contains(&(of_bytes / total)), "{total} {of_bytes}");
        // Of whole requests it is nothing, also where a ramp left some to be programmed.
        let line =
            "bench mem:tlc,size=1G,store=none --rw write --bs 1M --qd 64 --ramp 1s --ios 500";
        let args = Line::try_parse_from(line.split_whitespace()).unwrap().args;
        let json = crate::measure(&args, &mut load::watch::Watch::quiet()).unwrap().to_json();
        assert_eq!(json["write_amplification"].get("of_bytes"), None, "{json:#}");
    }

    /// With parity and an SLC cache there are three figures, each of what the one before has
    /// and more.
    #[test]
    fn folds_are_told_beside_parity() {
        use clap::Parser;

        use crate::args::Line;

        let drive = "mem:tlc,groups=1,pus=4,pages=24,size=64M,store=none,parity=4,slc_cache=10%";
        let line = format!("bench {drive} --rw randwrite --qd 4 --ios 5k --burst 500 --pause 1s");
        let args = Line::parse_from(line.split(' ')).args;
        let outcome = crate::measure(&args, &mut load::watch::Watch::quiet()).unwrap().to_json();
        let of = |at: &str| outcome.pointer(at).unwrap().as_f64().unwrap();
        let plain = of("/write_amplification/total");
        let parity = of("/parity/write_amplification");
        let folds = of("/slc_cache/write_amplification");
        assert!(parity > 1.3 * plain && folds > parity + 0.1, "{plain} {parity} {folds}");
    }

    /// A rate is of all that arrives, flushes among it.
    #[test]
    fn flushes_are_among_the_requests_of_a_rate() {
        use clap::Parser;

        use crate::args::Line;

        let line = "bench mem:null,size=16M --rw randwrite --flush-every 4 --rate 10k --time 1s";
        for (other, most) in [("", 8100.0), (" --job rw=randread,qd=1,rate=1k", 9200.0)] {
            let args = Line::parse_from(format!("{line}{other}").split(' ')).args;
            let outcome = crate::measure(&args, &mut load::watch::Watch::quiet()).unwrap();
            let open = outcome.open_loop.unwrap();
            assert!(!open.behind && open.reached > 9990.0, "{open:?}");
            assert!(outcome.report.iops < most, "{}", outcome.report.iops);
        }
    }
}
