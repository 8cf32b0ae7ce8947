//! `ssdkit replay`: a bench whose requests are those of a trace.
//!
//! The drive is opened, prepared and reported as for any bench; what is measured is the
//! trace. Fails as a bench does; when the trace cannot be told; and, after the report of
//! what was measured, when the trace could not be read to its end.

use std::fmt;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex};

use clap::{Args, Command, FromArgMatches, ValueEnum};
use drive::error::Error;
use drive::spec::DriveSpec;
use load::driver::ClockKind;
use load::load::{Load, Played};
use load::watch::is_to_stop;
use measure::options::{count, duration, whole};
use measure::units;
use port::{BLOCK_BYTES, SECTOR_BYTES, Shape};
use replay::{Beyond, Counts, Done, Fit, Fitted, Input, Lacks, ReadArgs, ReadError, Reader, Speed};
use serde_json::{Value, json};

use crate::explain::explain_bench;
use crate::outcome::OpenLoop;
use crate::{BenchArgs, Precondition};

/// The longest request to a drive that takes longer ones, in bytes.
const LONGEST: u64 = 1 << 20;
/// Requests out while a drive is brought to its steady state.
const STEADY_DEPTH: u32 = 32;

/// When requests of a trace start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// When they were recorded, or so much faster.
    Recorded(Speed),
    /// When another has ended.
    Closed,
}

impl FromStr for Pace {
    type Err = String;

    fn from_str(text: &str) -> Result<Pace, String> {
        match text {
            "recorded" => Ok(Pace::Recorded(Speed::RECORDED)),
            "closed" => Ok(Pace::Closed),
            text => text.parse().map(Pace::Recorded),
        }
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pace::Recorded(speed) => speed.fmt(f),
            Pace::Closed => f.write_str("closed"),
        }
    }
}

/// What is done to a drive before a trace is replayed on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Before {
    /// Nothing.
    None,
    /// Twice its capacity of 128 KiB sequential writes.
    Seq,
    /// That, then not the trace, but random requests of 4 KiB on the whole drive, half of
    /// them reads, 32 at once, until it is steady.
    Steady,
}

impl From<Before> for Precondition {
    fn from(before: Before) -> Precondition {
        match before {
            Before::None => Precondition::None,
            Before::Seq => Precondition::Seq,
            Before::Steady => Precondition::Steady,
        }
    }
}

/// `ssdkit replay`.
#[derive(Args, Clone, Debug)]
pub struct ReplayArgs {
    /// The trace, plain or compressed by gzip or zstd; - is standard input.
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    /// The drive, for example mem:tlc,size=8G.
    #[arg(value_name = "DRIVE")]
    pub drive: DriveSpec,
    /// When requests start: recorded, a factor as in 10x or 0.5x, or closed.
    #[arg(long, value_name = "PACE", default_value = "recorded")]
    pub pace: Pace,
    /// With --pace closed: requests outstanding [default: 1].
    #[arg(long, value_name = "DEPTH", value_parser = whole::<u32>(1..=65536))]
    pub qd: Option<u32>,
    /// What becomes of requests that end beyond the drive, or their volume.
    #[arg(long, value_enum, default_value_t)]
    pub beyond: Beyond,
    /// Lay volumes side by side, each of so many bytes, as they come.
    #[arg(long, value_name = "SIZE", value_parser = replay::volume_size)]
    pub volume_size: Option<u64>,
    /// End after so many requests of the trace.
    #[arg(long, value_name = "COUNT", value_parser = count)]
    pub requests: Option<u64>,
    /// Only what starts before this time; in a closed loop, end after it.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub time: Option<u64>,
    /// End after so much time on the wall; what is in the drive then has 0.3 s.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub max_time: Option<u64>,
    /// What to do to the drive before [default: seq for a new drive, else none].
    #[arg(long, value_enum)]
    pub precondition: Option<Before>,
    /// With --precondition steady: rounds that must agree, 3 to 100 [default: 5].
    #[arg(long, value_name = "N", value_parser = whole::<u32>(3..=100))]
    pub steady_rounds: Option<u32>,
    /// With --precondition steady: how long a round is, of drive time; where the drive is not
    /// written over once in it, until it is [default: 60s].
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub steady_round: Option<u64>,
    /// Whose time it is [default: virtual for mem: and drive files, else real].
    #[arg(long, value_enum)]
    pub clock: Option<ClockKind>,
    /// What all random numbers come from.
    #[arg(long, default_value_t = 1, value_parser = whole(0..=u64::MAX))]
    pub seed: u64,
    /// Write over what is on a block device or file, in a drive file, or behind a server.
    #[arg(long)]
    pub destroy: bool,
    /// Tell of the slowest requests where their time went: so many, 1 to 1000.
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1..=1000))]
    pub slowest: Option<u32>,
    /// Tell where the time of its requests went, as `ssdkit explain` does.
    #[arg(long)]
    pub explain: bool,
    /// With --explain: replay again with this key of the drive's name set; again for more.
    #[arg(long, value_name = "KEY=VALUE", requires = "explain")]
    pub what_if: Vec<String>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Write a page with pictures, too, for a browser.
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// How the trace is read.
    #[command(flatten)]
    pub read: ReadArgs,
}

/// What is replayed in a bench.
#[derive(Clone)]
pub struct Replay {
    /// As it was asked for.
    args: Arc<ReplayArgs>,
    /// The trace as it was opened at first, until it is measured: a later run opens it
    /// again, and a stream is read once.
    reader: Arc<Mutex<Option<Reader>>>,
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay").field("args", &self.args).finish_non_exhaustive()
    }
}

/// Replays, and prints the report to `out`.
pub fn run(args: &ReplayArgs, out: &mut dyn Write) -> Result<(), Error> {
    let bench = args.bench()?;
    match args.explain {
        true => explain_bench(&bench, &args.what_if, out),
        false => crate::run_one(&bench, out),
    }
}

impl ReplayArgs {
    /// The bench that replays the trace, which is opened. What a bench asks of itself is
    /// what brings the drive to its steady state: random 4 KiB, half of them reads.
    pub fn bench(&self) -> Result<BenchArgs, Error> {
        let is_closed = self.pace == Pace::Closed;
        if self.qd.is_some() && !is_closed {
            let text = "--qd is for --pace closed: add it, or leave --qd out";
            return Err(Error::Usage(text.into()));
        }
        if let Some(scheme) = self.drive.served_by().filter(|_| !is_closed) {
            return Err(Error::Usage(format!(
                "{scheme} drives are driven in a closed loop: take --pace closed"
            )));
        }
        let command = BenchArgs::augment_args(Command::new("replay"));
        let read = command.try_get_matches_from(["replay", "mem:null", "--rw=randrw"]);
        let plain = read.and_then(|matches| BenchArgs::from_arg_matches(&matches));
        let plain = plain.map_err(|e| Error::Failed(e.to_string()))?;
        let time = self.time.filter(|_| is_closed);
        let replay = Replay { args: Arc::new(self.clone()), reader: Arc::default() };
        let bench = BenchArgs {
            drive: self.drive.clone(),
            qd: STEADY_DEPTH,
            ios: if time.is_none() { Some(u64::MAX) } else { None },
            time,
            max_time: self.max_time,
            precondition: self.precondition.map(Precondition::from),
            steady_rounds: self.steady_rounds,
            steady_round: self.steady_round,
            clock: self.clock,
            seed: self.seed,
            destroy: self.destroy,
            slowest: self.slowest,
            explains: self.explain,
            json: self.json,
            report: self.report.clone(),
            replay: Some(replay.clone()),
            ..plain
        };
        if self.drive.is_file(&self.trace) {
            return Err(Error::Usage(format!(
                "{}: it is the trace and the drive: name another drive",
                self.trace.display()
            )));
        }
        bench.check()?;
        *replay.reader.lock().unwrap_or_else(|e| e.into_inner()) = Some(self.open()?);
        Ok(bench)
    }

    fn open(&self) -> Result<Reader, Error> {
        let named = |e: &dyn fmt::Display| format!("{}: {e}", self.trace.display());
        let input = match self.trace.as_os_str() == "-" {
            true => Input::new(Stoppable(io::stdin()), None),
            false => Input::open(&self.trace),
        };
        let input = input.map_err(|e| Error::Usage(named(&e)))?;
        Reader::new(input, &self.read).map_err(|e| match e {
            ReadError::Io(_) => Error::Failed(named(&e)),
            e => Error::Usage(named(&e)),
        })
    }
}

/// Standard input, which may say nothing for ever: a signal ends the wait where whoever
/// watches the run wants it to end.
struct Stoppable<R>(R);

impl<R: Read> Read for Stoppable<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read(into);
        match &read {
            Err(e) if e.kind() == io::ErrorKind::Interrupted && is_to_stop() => {
                Err(io::Error::other("it was stopped"))
            }
            _ => read,
        }
    }
}

impl Replay {
    /// Whether it comes from standard input.
    pub(crate) fn is_a_stream(&self) -> bool {
        self.args.trace.as_os_str() == "-"
    }

    /// The load of the trace on a drive of this shape.
    pub(crate) fn load(&self, shape: &Shape, takes: Takes) -> Result<Load, Error> {
        let (args, Takes { unit, most, most_trim, lacks }) = (&self.args, takes);
        let most = (most.min(LONGEST) / unit).max(1) * unit;
        let (speed, depth) = match args.pace {
            Pace::Recorded(speed) => (speed, None),
            Pace::Closed => (Speed::RECORDED, Some(args.qd.unwrap_or(1))),
        };
        let fit = Fit {
            bytes: shape.bytes,
            unit,
            most,
            most_trim: most_trim / unit * unit,
            lacks,
            speed,
            beyond: args.beyond,
            volume: args.volume_size,
            requests: args.requests.unwrap_or(u64::MAX),
            until: args.time.filter(|_| depth.is_none()).unwrap_or(u64::MAX),
        };
        let reader = self.reader.lock().unwrap_or_else(|e| e.into_inner()).take();
        let reader = reader.map_or_else(|| args.open(), Ok)?;
        Load::recorded(shape, Fitted::new(reader, fit), depth)
    }

    /// The workload's effective configuration.
    pub(crate) fn workload(&self, bench: &BenchArgs, is_real: bool) -> Value {
        let args = &self.args;
        json!({
            "trace": args.trace.display().to_string(),
            "volume": args.read.volume,
            "volume_size": args.volume_size,
            "pace": args.pace.to_string(),
            "qd": (args.pace == Pace::Closed).then(|| args.qd.unwrap_or(1)),
            "beyond": format!("{:?}", args.beyond).to_lowercase(),
            "requests": args.requests,
            "seconds": args.time.map(|ns| ns as f64 / 1e9),
            "clock": if is_real { "real" } else { "virtual" },
            "precondition": format!("{:?}", bench.precondition()).to_lowercase(),
        })
    }

    /// What became of the trace.
    pub(crate) fn report(&self, played: &Played) -> ReplayReport {
        let (trace, args) = (&played.trace, &self.args);
        let problem = trace.problem().map(|e| format!("{}: {e}", args.trace.display()));
        ReplayReport {
            format: trace.reader().format(),
            beyond: args.beyond,
            done: Done { taken: played.taken, ..trace.done() },
            counts: trace.reader().counts(),
            problem,
        }
    }

    /// What was asked of an open loop of which so many requests ended in `seconds`: all but
    /// the last of a trace have a time behind them until the next. Of one that was stopped
    /// the last has, too: until the next was due, or until then.
    pub(crate) fn open_loop(
        &self,
        played: &Played,
        requests: u64,
        seconds: f64,
    ) -> Option<OpenLoop> {
        let (issued, last) = played.issued;
        let (gaps, ns) = match played.next {
            None => (issued.saturating_sub(1), last),
            Some(next) => (issued, last.max(next.min((seconds * 1e9) as u64))),
        };
        let is_open = self.args.pace != Pace::Closed && ns > 0;
        let asked = u128::from(gaps) * 1_000_000_000 / u128::from(ns.max(1));
        let asked = u64::try_from(asked).unwrap_or(u64::MAX);
        is_open.then(|| OpenLoop::new(asked, requests, seconds))
    }

    /// What is to be known where all requests came at once.
    pub(crate) fn no_times(&self, played: &Played) -> Option<String> {
        let is_open = self.args.pace != Pace::Closed;
        (is_open && played.issued.0 > 1 && played.issued.1 == 0).then(|| {
            let why = match played.trace.reader().counts().backwards {
                0 => "all requests of the trace have one time".to_owned(),
                n => format!(
                    "no request of the trace is later than its first ({} earlier than the one \
                     before)",
                    units::exactly(n, "request")
                ),
            };
            format!(
                "{why}, so that they came at once, and latencies are of waiting for each other: \
                 take --pace closed"
            )
        })
    }
}

/// What a drive takes of a trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Takes {
    /// Whole units of so many bytes.
    pub unit: u64,
    /// Reads and writes of at most so many bytes.
    pub most: u64,
    /// Trims of at most so many.
    pub most_trim: u64,
    /// What it does not take.
    pub lacks: Lacks,
}

impl Takes {
    /// Of a drive of this shape.
    pub fn of(shape: &Shape) -> Takes {
        let keeps_bytes = u64::from(shape.kept) == BLOCK_BYTES;
        let unit = if keeps_bytes { SECTOR_BYTES } else { BLOCK_BYTES };
        Takes { unit, most: shape.max_bytes, most_trim: u64::MAX, lacks: Lacks::default() }
    }
}

/// What became of a trace, for reports.
#[derive(Clone, Debug)]
pub struct ReplayReport {
    format: &'static str,
    beyond: Beyond,
    /// What was done to fit it.
    pub done: Done,
    /// What was read.
    pub counts: Counts,
    /// Why it was not read to its end, if it was not.
    pub problem: Option<String>,
}

impl ReplayReport {
    /// As JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "format": self.format,
            "fitted": self.done.to_json(),
            "read": self.counts.to_json(),
            "problem": self.problem,
        })
    }

    /// In lines.
    pub fn lines(&self) -> Vec<String> {
        let taken = units::counted(self.done.taken, "request");
        let first = format!("{taken} of the trace, format {}", self.format);
        let fitted = self.done.notes(self.beyond);
        [first].into_iter().chain(fitted).chain(self.counts.notes()).collect()
    }
}

#[cfg(test)]
mod tests;
