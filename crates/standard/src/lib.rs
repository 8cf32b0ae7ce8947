//! `ssdkit test`: standard tests of a drive, by name.
//!
//! A test is one file. It measures in a [`Session`], which holds the drive over all of
//! its runs, and gives [`Findings`]; what is printed is an [`Outcome`], which begins with
//! a verdict. Runs are those of `ssdkit bench`: its loads, its runner, its drives.
//!
//! Files: [`session`] what a test measures with, [`search`] rounds until the drive is
//! steady, [`table`] and [`curve`] what is told, [`outcome`] all of it as text and JSON,
//! `page` as a page; then a file for each test.
//!
//! Fails when there is no such test, when options or drive cannot be, and, after
//! printing, when the drive was not steady or the result is void.

use std::io::Write;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use measure::options::{duration, whole};
use report::OutFile;
use serde_json::{Value, json};

use bench::stand::{StandArgs, on_a_stand};
use drive::error::Error;
use drive::spec::DriveSpec;
use load::driver::ClockKind;
use load::watch::Watch;

pub mod cross_stimulus;
pub mod curve;
pub mod interference;
pub mod iops;
pub mod latency;
pub mod open_loop;
pub mod outcome;
mod page;
pub mod pessimistic;
pub mod recovery;
pub mod search;
pub mod session;
pub mod table;
pub mod throughput;
pub mod uflip;
pub mod write_saturation;

pub use curve::Curve;
pub use outcome::{Findings, Outcome, Verdict};
pub use session::{Halt, Session};
pub use table::{Figure, Table, Unit};

/// `ssdkit test`.
#[derive(Args, Clone, Debug)]
pub struct TestArgs {
    /// Which test; with nothing, the list.
    #[arg(value_name = "NAME", requires = "drive")]
    pub name: Option<String>,
    /// The drive, for example mem:ref,size=1G.
    #[arg(value_name = "DRIVE")]
    pub drive: Option<DriveSpec>,
    /// List the tests and how long each takes.
    #[arg(long, conflicts_with = "name")]
    pub list: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Write a page with tables and curves, too, for a browser.
    #[arg(long, value_name = "FILE.html", requires = "name")]
    pub report: Option<PathBuf>,
    /// How it is run.
    #[command(flatten)]
    pub options: Options,
}

/// How a test is run.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Short rounds, and few: to see that it works. The result is not comparable.
    #[arg(long, requires = "name")]
    pub quick: bool,
    /// Requests outstanding, where the test leaves that open [default: 32; pessimistic 128,
    /// open-loop 256].
    #[arg(long, value_name = "DEPTH", value_parser = whole::<u32>(1..=1024), requires = "name")]
    pub qd: Option<u32>,
    /// Drive time of each run [default: 60s, in virtual time 200ms], where the test leaves
    /// that open.
    #[arg(long, value_name = "TIME", value_parser = period, requires = "name")]
    pub period: Option<u64>,
    /// open-loop: reads among the requests, in percent [default: 65].
    #[arg(long, value_name = "PERCENT", value_parser = whole::<u8>(0..=100), requires = "name")]
    pub read_percent: Option<u8>,
    /// Take the drive as it is: it is neither trimmed nor filled before.
    #[arg(long, requires = "name")]
    pub as_is: bool,
    /// Whose time it is [default: virtual for mem: and drive files, else real].
    #[arg(long, value_enum, requires = "name")]
    pub clock: Option<ClockKind>,
    /// Write over what is on a block device or file, in a drive file, or behind a server.
    #[arg(long, requires = "name")]
    pub destroy: bool,
    /// Give up after so much time on the wall.
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "name")]
    pub max_time: Option<u64>,
    /// What all random numbers come from.
    #[arg(long, default_value_t = 1, value_parser = whole(0..=u64::MAX), requires = "name")]
    pub seed: u64,
}

/// How long a period may be, in ns: in less than 0.1 ms hardly a request ends,
/// and its figure is that of the buffer; a day at most.
const PERIODS: RangeInclusive<u64> = 100_000..=86_400_000_000_000;

/// A period.
fn period(text: &str) -> Result<u64, String> {
    let ns = duration(text)?;
    if PERIODS.contains(&ns) {
        Ok(ns)
    } else {
        Err("it is 100us at least, and a day at most".into())
    }
}

impl Options {
    /// `full`, or `quick` if that was asked for.
    pub fn pick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// Whether they leave to a test what is its own.
    fn check(&self, test: &Test) -> Result<(), Error> {
        let refuse = |what: &str, why: &str| {
            Err(Error::Usage(format!("{what}: the test {} {why}: leave it out", test.name)))
        };
        if self.read_percent.is_some() && test.name != open_loop::TEST.name {
            return refuse("--read-percent", "has its own mixes");
        }
        if self.qd.is_some() && test.depth.is_none() {
            return refuse("--qd", "has one request at a time");
        }
        if self.period.is_some() && test.period.is_none() {
            return refuse("--period", "measures by drive fills, or by requests");
        }
        Ok(())
    }
}

/// A test.
#[derive(Clone, Copy, Debug)]
pub struct Test {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// How long it takes, in words: on a clock, and in virtual time.
    pub takes: (&'static str, &'static str),
    /// Whether it needs a drive that takes requests when they are due, or of several
    /// loads at once.
    pub needs_arrivals: bool,
    /// Requests outstanding, unless others are asked for; none where it has its own.
    pub depth: Option<u32>,
    /// Drive time of its runs, in ns; none where they are parts of a drive fill, or of so
    /// many requests.
    pub period: Option<fn(&Session) -> u64>,
    /// Measures.
    pub run: fn(&mut Session) -> Result<Findings, Halt>,
}

impl Test {
    /// All tests.
    pub const ALL: [Test; 10] = [
        iops::TEST,
        throughput::TEST,
        latency::TEST,
        write_saturation::TEST,
        recovery::TEST,
        cross_stimulus::TEST,
        pessimistic::TEST,
        interference::TEST,
        open_loop::TEST,
        uflip::TEST,
    ];

    /// The test of this name.
    pub fn named(name: &str) -> Result<Test, Error> {
        let found = Test::ALL.into_iter().find(|test| test.name == name);
        found.ok_or_else(|| {
            let known: Vec<&str> = Test::ALL.iter().map(|test| test.name).collect();
            Error::Usage(format!("there is no test `{name}`; there are: {}", known.join(", ")))
        })
    }

    /// Requests that may be out at once. A server takes memory for each of them; in a closed
    /// loop no test has more than two loads of its depth.
    fn most_out(&self, drive: &DriveSpec, options: &Options) -> usize {
        match drive.served_by() {
            Some(_) => 2 * options.qd.or(self.depth).unwrap_or(session::DEPTH) as usize,
            None => 1024,
        }
    }

    /// Runs it on a drive.
    pub fn measure(
        &self,
        drive: &DriveSpec,
        options: &Options,
        watch: &mut Watch,
    ) -> Result<Outcome, Error> {
        options.check(self)?;
        if let DriveSpec::Memory(spec) = drive
            && options.as_is
        {
            let text = format!("--as-is: mem:{} is new, and nothing is on it", spec.profile);
            return Err(Error::Usage(text));
        }
        let args = StandArgs {
            drive: drive.clone(),
            seed: options.seed,
            writes: true,
            destroy: options.destroy,
            clock: options.clock,
            depth: self.most_out(drive, options),
            most: 0,
        };
        let began = Instant::now();
        let (outcome, file) = on_a_stand(&args, watch, |stand, watch| {
            if self.needs_arrivals && !stand.about.takes_arrivals {
                let text = format!("served drives are driven in a closed loop: no {}", self.name);
                return Err(Error::Usage(text));
            }
            let mut session = Session::new(stand, (self, options), watch);
            let found = session.may_measure().and_then(|()| (self.run)(&mut session));
            let outcome = session.finish(self, found)?;
            Ok(Outcome { wall_seconds: began.elapsed().as_secs_f64(), ..outcome })
        })?;
        Ok(match file {
            Ok(()) => outcome,
            Err(e) => outcome.voided(e.to_string()),
        })
    }
}

/// Runs the test that was named, or lists them all, to `out`.
pub fn run(args: &TestArgs, out: &mut dyn Write) -> Result<(), Error> {
    let (Some(name), Some(drive)) = (&args.name, &args.drive) else {
        return list(args.json, out);
    };
    let (test, drive) = (Test::named(name)?, drive.found()?);
    let file = args.report.as_ref().map(|path| OutFile::page(path)).transpose();
    let file = file.map_err(|e| Error::Usage(format!("--report: {e}")))?;
    let mut watch = Watch::terminal(args.options.max_time.map(Duration::from_nanos))?;
    let outcome = test.measure(&drive, &args.options, &mut watch);
    watch.end();
    let outcome = outcome?;
    // What was measured is told, whatever becomes of its page.
    let written = file.map_or(Ok(()), |file| {
        let name = file.path().display().to_string();
        file.write(&outcome.to_page()).map_err(|e| Error::system(&format!("write {name}"), &e))
    });
    // Nor does the verdict hide that there is none.
    let printed = outcome.print(args.json, out);
    written.and(printed)
}

fn list(json: bool, out: &mut dyn Write) -> Result<(), Error> {
    if json {
        let all = Test::ALL.map(|test| {
            let (real, emulated) = test.takes;
            json!({ "name": test.name, "about": test.about, "takes": real, "takes_virtual": emulated })
        });
        writeln!(out, "{:#}", Value::from_iter(all))?;
        return Ok(());
    }
    for Test { name, about, takes: (real, emulated), .. } in Test::ALL {
        writeln!(out, "{name:<17} {about}; {real}; on the wall, of an emulated drive: {emulated}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
