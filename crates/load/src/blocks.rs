//! The block layer on the command line: its options, what it is built with,
//! and what its accounts say in a report.
//!
//! Nothing is opened here but the file of a trace. Fails when options
//! contradict each other, when a number is outside its range, and when a trace
//! cannot be written.

use std::fmt::{self, Write};
use std::path::PathBuf;
use std::str::FromStr;

use blkmq::scheduler::{DeadlineOptions, FairOptions, SchedulerKind};
use blkmq::{
    Config, Context, DispatchStats, HardwareQueue, Merge, Monitor, Plug, Spread, StagingStats,
    Topology,
};
use clap::{Args, ValueEnum};
use measure::units;
use port::Time;
use serde_json::{Value, json};
use trace::{About, TraceError, Tracer};
use waiting::Strategy;

use drive::error::Error;
use measure::options::duration;

/// Records of a trace that wait for its file, for each core.
const TRACE_RING: usize = 1 << 16;
/// Queues that the text report shows.
const SHOWN: usize = 8;

/// How staging queues are spread over cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Staging {
    /// One for all.
    One,
    /// One for each socket.
    Socket,
    /// One for each core.
    Core,
}

/// How staged requests are ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Scheduler {
    /// First come, first served.
    #[default]
    None,
    /// Sorted by address, none waiting past its deadline.
    Deadline,
    /// Shares between cores, by weight.
    Fair,
}

/// Which staged requests are merged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Merging {
    /// None.
    #[default]
    Off,
    /// With the one staged last.
    Simple,
    /// With any of the newest.
    Full,
}

/// How a submitter waits for completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Completion {
    /// Looks without end.
    Poll,
    /// Sleeps until it is woken.
    Interrupt,
    /// Sleeps for half of the mean time, then looks.
    Hybrid,
    /// Sleeps as long as it expects nothing.
    Adaptive,
}

impl Completion {
    /// The block layer's word for it.
    pub fn strategy(self) -> Strategy {
        match self {
            Completion::Poll => Strategy::Poll,
            Completion::Interrupt => Strategy::Interrupt,
            Completion::Hybrid => Strategy::Hybrid,
            Completion::Adaptive => Strategy::Adaptive,
        }
    }
}

/// Where a mem: drive runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dispatch {
    /// On the thread that polls it: one dispatch queue.
    #[default]
    Inline,
    /// On a thread of its own, with so many queue pairs.
    Hosted(usize),
}

impl fmt::Display for Dispatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dispatch::Inline => f.write_str("inline"),
            Dispatch::Hosted(queues) => write!(f, "hosted:{queues}"),
        }
    }
}

impl FromStr for Dispatch {
    type Err = String;

    /// `inline`, `hosted` or `hosted:QUEUES`.
    fn from_str(text: &str) -> Result<Dispatch, String> {
        match text.split_once(':') {
            None if text == "inline" => Ok(Dispatch::Inline),
            None if text == "hosted" => Ok(Dispatch::Hosted(1)),
            Some(("hosted", n)) => {
                let n = n.parse().ok().filter(|n| (1..=1024).contains(n));
                n.map(Dispatch::Hosted).ok_or_else(|| "hosted has 1 to 1024 queues".into())
            }
            _ => Err("write inline, hosted or hosted:QUEUES".into()),
        }
    }
}

/// Options of the block layer.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Block layer")]
pub struct BlockArgs {
    /// Submitting cores, each with a context and --threads submitters of its own [default: 1].
    #[arg(long, value_name = "N", value_parser = measure::options::whole::<u32>(1..=1024))]
    pub cores: Option<u32>,
    /// Sockets that the cores lie in [default: 1].
    #[arg(long, value_name = "N", value_parser = measure::options::whole::<u32>(1..=1024))]
    pub sockets: Option<u32>,
    /// Run each core's thread on a processor of its own, from the first.
    #[arg(long)]
    pub pin: bool,
    /// Staging queues [default: core; one with --scheduler fair].
    #[arg(long, value_enum)]
    pub staging: Option<Staging>,
    /// Where a mem: drive runs: inline, hosted or hosted:QUEUES [default: inline].
    #[arg(long, value_name = "WHERE")]
    pub dispatch: Option<Dispatch>,
    /// Requests inside each dispatch queue of a mem: drive [default: what the drive takes].
    #[arg(long, value_name = "N", value_parser = measure::options::whole::<u32>(1..=65535))]
    pub dispatch_depth: Option<u32>,
    /// How staged requests are ordered [default: none].
    #[arg(long, value_enum)]
    pub scheduler: Option<Scheduler>,
    /// Shares of the cores, from the first, with --scheduler fair.
    #[arg(long, value_name = "W,...", value_delimiter = ',',
          value_parser = measure::options::whole::<u32>(1..=1000))]
    pub weights: Vec<u32>,
    /// Which staged requests are merged with neighbours [default: off].
    #[arg(long, value_enum)]
    pub merge: Option<Merging>,
    /// Hold requests back until so many are staged, or for 100 us [default: 32].
    #[arg(long, value_name = "REQUESTS", num_args = 0..=1, require_equals = true,
          default_missing_value = "32", value_parser = measure::options::whole::<u32>(1..=65536))]
    pub plug: Option<u32>,
    /// How completions are waited for, on a hosted drive or a device or file
    /// [default: interrupt; poll where queues are shared or polled].
    #[arg(long, value_enum)]
    pub completion: Option<Completion>,
    /// Write the life of each request to a file, for `ssdkit trace`.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Report requests that take longer, and ask the drive for them [default: 30s].
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub timeout: Option<u64>,
    /// Make requests N at a time; at most --qd.
    #[arg(long, value_name = "N", value_parser = measure::options::whole::<u32>(1..=65536))]
    pub batch: Option<u32>,
}

impl BlockArgs {
    /// Whether any is given: a mem: drive then goes below a block layer.
    pub fn are_given(&self) -> bool {
        let BlockArgs {
            cores,
            sockets,
            pin,
            staging,
            dispatch,
            dispatch_depth,
            scheduler,
            weights,
            merge,
            plug,
            completion,
            trace,
            timeout,
            batch,
        } = self;
        let numbers = [cores, sockets, dispatch_depth, plug, batch];
        numbers.into_iter().any(Option::is_some)
            || (*pin || !weights.is_empty())
            || (staging.is_some() || dispatch.is_some() || scheduler.is_some() || merge.is_some())
            || (completion.is_some() || trace.is_some() || timeout.is_some())
    }

    /// How many cores submit.
    pub fn cores(&self) -> usize {
        self.cores.unwrap_or(1) as usize
    }

    /// How staging queues are spread. Cores have shares of a queue only if
    /// they share it.
    fn staging(&self) -> Staging {
        let fair = self.scheduler == Some(Scheduler::Fair);
        self.staging.unwrap_or(if fair { Staging::One } else { Staging::Core })
    }

    /// Whether the options agree with each other; `qd` is the depth of a
    /// closed loop.
    pub fn check(&self, qd: u32) -> Result<(), Error> {
        let refuse = |text: &str| Err(Error::Usage(text.into()));
        if !self.weights.is_empty() && self.scheduler != Some(Scheduler::Fair) {
            return refuse("--weights are for --scheduler fair only: add it, or leave them out");
        }
        if self.weights.len() > self.cores() {
            return refuse("--weights has more weights than there are cores: raise --cores");
        }
        if self.sockets.unwrap_or(1) as usize > self.cores() {
            return refuse("--sockets is more than --cores: each socket has a core at least");
        }
        if self.batch.is_some_and(|batch| batch > qd) {
            return refuse("--batch is more than --qd, so a batch would never be full: lower it");
        }
        self.config().map(drop)
    }

    /// Whether weights mean something over a drive with so many dispatch
    /// queues.
    pub fn check_weights(&self, queues: usize) -> Result<(), Error> {
        if self.weights.is_empty() || self.cores() == 1 || queues < self.cores() {
            return Ok(());
        }
        Err(Error::Usage(
            "--weights are shares of a dispatch queue, and here each core has one of its own: \
             take fewer queues, or leave them out"
                .into(),
        ))
    }

    /// The block layer's configuration.
    pub fn config(&self) -> Result<Config, Error> {
        let topology = Topology::new(self.cores(), self.sockets.unwrap_or(1) as usize)?;
        let mut config = Config::new(topology);
        config.staging = match self.staging() {
            Staging::One => Spread::One,
            Staging::Socket => Spread::PerSocket,
            Staging::Core => Spread::PerCore,
        };
        config.scheduler = match self.scheduler.unwrap_or_default() {
            Scheduler::None => SchedulerKind::None,
            Scheduler::Deadline => SchedulerKind::Deadline(DeadlineOptions::default()),
            Scheduler::Fair => SchedulerKind::Fair(FairOptions { weights: self.weights.clone() }),
        };
        config.merge = match self.merge.unwrap_or_default() {
            Merging::Off => Merge::Off,
            Merging::Simple => Merge::Simple,
            Merging::Full => Merge::Full,
        };
        // A plug is there to merge while the device could take more.
        config.merge_idle = self.plug.is_some() && config.merge != Merge::Off;
        config.plug = self.plug.map(|n| Plug { requests: n as usize, ..Plug::default() });
        config.timeout = self.timeout.unwrap_or(config.timeout);
        Ok(config)
    }

    /// The effective configuration, for reports.
    fn effective(&self) -> Value {
        let name = |value: Option<clap::builder::PossibleValue>| {
            value.map(|v| v.get_name().to_string()).unwrap_or_default()
        };
        let weights = (!self.weights.is_empty()).then_some(&self.weights);
        json!({
            "cores": self.cores(),
            "sockets": self.sockets.unwrap_or(1),
            "pinned": self.pin,
            "dispatch": self.dispatch.map(|at| at.to_string()),
            "dispatch_depth": self.dispatch_depth,
            "completion": self.completion.map(|way| name(way.to_possible_value())),
            "staging": name(self.staging().to_possible_value()),
            "scheduler": name(self.scheduler.unwrap_or_default().to_possible_value()),
            "weights": weights,
            "merge": name(self.merge.unwrap_or_default().to_possible_value()),
            "plug": self.plug,
            "timeout_ns": self.timeout.unwrap_or(blkmq::config::TIMEOUT),
            "batch": self.batch.unwrap_or(1),
        })
    }
}

/// A trace that is about to begin, or under way: where there is a ramp it
/// begins when counting does.
pub struct Tracing {
    path: PathBuf,
    tracer: Tracer,
    /// What it says of itself.
    config: String,
}

impl Tracing {
    /// The trace that was asked for, if one was, of all these contexts, from
    /// `now` on unless it is to `wait`; `drive` and `args` are what it says of
    /// itself.
    pub fn new<Q: HardwareQueue>(
        args: &BlockArgs,
        contexts: &mut [Context<Q>],
        drive: &str,
        (now, wait): (Time, bool),
    ) -> Result<Option<Tracing>, Error> {
        let Some(path) = args.trace.clone() else { return Ok(None) };
        let (tracer, taps) = Tracer::new(contexts.len(), TRACE_RING);
        contexts.iter_mut().zip(taps).for_each(|(context, tap)| context.set_watch(tap));
        let mut config = format!("drive = {drive}");
        if let Value::Object(map) = args.effective() {
            for (key, value) in map.iter().filter(|(_, value)| !value.is_null()) {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_string);
                let _ = write!(config, "\n{key} = {text}");
            }
        }
        let mut tracing = Tracing { path, tracer, config };
        if !wait {
            tracing.begin(now)?;
        }
        Ok(Some(tracing))
    }

    /// Begins it, unless it has.
    pub fn begin(&mut self, start: Time) -> Result<(), Error> {
        if self.tracer.is_running() {
            return Ok(());
        }
        let about = About { start, config: std::mem::take(&mut self.config) };
        let started = self.tracer.start_file(&self.path, &about);
        started.map_err(|e| {
            let text = format!("{}: {e}", self.path.display());
            match e {
                TraceError::Exists | TraceError::NotAFile => Error::Usage(text),
                _ => Error::Failed(text),
            }
        })
    }

    /// Ends it. Gives a warning when requests are missing in it.
    pub fn stop(mut self) -> Result<Option<String>, Error> {
        if !self.tracer.is_running() {
            return Ok(None);
        }
        let path = self.path.display();
        let totals = self.tracer.stop().map_err(|e| Error::Failed(format!("{path}: {e}")))?;
        let missing = || {
            format!("{path}: {} requests ended too fast to be traced: slow down", totals.dropped)
        };
        Ok((totals.dropped > 0).then(missing))
    }
}

/// What the block layer did, for a report.
#[derive(Clone, Debug)]
pub struct Accounts {
    config: Value,
    staging: Vec<StagingStats>,
    dispatch: Vec<DispatchStats>,
    /// Requests that each core's submitters got back.
    cores: Vec<u64>,
}

impl Accounts {
    /// Reads them. `completion` is how completions were waited for, and
    /// `cores` how many requests each core got back.
    pub fn read(
        args: &BlockArgs,
        monitor: &Monitor,
        completion: Option<Strategy>,
        cores: Vec<u64>,
    ) -> Accounts {
        let mut config = args.effective();
        config["completion"] = completion.map(Strategy::name).into();
        Accounts { config, staging: monitor.staging(), dispatch: monitor.dispatch(), cores }
    }

    /// As JSON.
    pub fn to_json(&self) -> Value {
        let staging = self.staging.iter().map(|s| {
            json!({
                "inserted": s.inserted,
                "dispatched": s.dispatched,
                "merged": s.merged,
                "queued": s.queued,
            })
        });
        let dispatch = self.dispatch.iter().map(|d| {
            json!({
                "dispatched": d.dispatched,
                "completed": d.completed,
                "errors": d.errors,
                "timed_out": d.timed_out,
                "strays": d.strays,
                "in_flight": d.in_flight,
                "latency_ns": d.latency.summary(),
            })
        });
        json!({
            "config": self.config,
            "staging": Value::from_iter(staging),
            "dispatch": Value::from_iter(dispatch),
            "cores": Value::from_iter(self.cores.iter().map(|ios| json!({ "ios": ios }))),
        })
    }

    /// Whether it may have given requests up, which the drive may still have:
    /// some took too long, and some failed.
    pub fn gave_up(&self) -> bool {
        self.dispatch.iter().any(|queue| queue.timed_out > 0 && queue.errors > 0)
    }

    /// As text of a few lines.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        let word = |key: &str| self.config[key].as_str().unwrap_or_default();
        let count = |n: u64| units::count(n as f64);
        let mut line = |label: &str, text: String| {
            let _ = writeln!(out, "{label:<12}{text}");
        };
        line(
            "block layer",
            format!(
                "staging {}, scheduler {}, merge {}; {}",
                word("staging"),
                word("scheduler"),
                word("merge"),
                plural(self.cores.len(), "core"),
            ),
        );
        for (i, s) in self.staging.iter().enumerate().take(SHOWN) {
            let (staged, merged) = (count(s.inserted), count(s.merged));
            line(&format!("staging {i}"), format!("{staged} staged, {merged} of them merged"));
        }
        for (i, d) in self.dispatch.iter().enumerate().take(SHOWN) {
            line(&format!("dispatch {i}"), dispatch_text(d));
        }
        let hidden = self.staging.len().max(self.dispatch.len()).saturating_sub(SHOWN);
        if hidden > 0 {
            line("", format!("and {hidden} more: --json shows all"));
        }
        if (2..=SHOWN).contains(&self.cores.len()) {
            let each: Vec<String> = self.cores.iter().map(|&n| count(n)).collect();
            line("I/Os a core", each.join(", "));
        }
        out
    }
}

/// A dispatch queue in a line.
fn dispatch_text(d: &DispatchStats) -> String {
    let count = |n: u64| units::count(n as f64);
    let mut text = format!("{} done", count(d.completed));
    for (n, what) in [(d.errors, "failed"), (d.timed_out, "timed out"), (d.strays, "strays")] {
        if n > 0 {
            let _ = write!(text, ", {} {what}", count(n));
        }
    }
    let latency = d.latency.summary();
    if let Some(mean) = latency.mean {
        let _ = write!(text, "; {} on average", units::time_ns(mean));
    }
    if let Some(p99) = latency.p99 {
        let _ = write!(text, ", p99 {}", units::time_ns(p99 as f64));
    }
    text
}

fn plural(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}
