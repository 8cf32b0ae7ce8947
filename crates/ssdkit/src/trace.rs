//! `ssdkit trace`: what a request trace says.
//!
//! Of our own it reads the whole file first; memory is in proportion to the part of it
//! that is looked at. Of others, and with `--summary`, it tells a [`summary`], in bounded
//! memory. A file that was cut or damaged is shown up to there, and then
//! the command fails and says what is wrong. Fails at once when the file
//! cannot be opened or is no trace.

use std::io::{Read, Write};
use std::path::PathBuf;

use clap::Args;
use measure::units;
use port::{BlockOp, Time};
use replay::{Input, ReadArgs};
use serde_json::{Value, json};
use trace::{
    About, Life, NO_TAG, QueueSummary, Reader, Stage, Totals, TraceError, Window, moment, slowest,
    summarize, timeline,
};

use drive::error::Error;
use load::watch::columns;

/// What `ssdkit trace --help` ends with.
pub const EXAMPLES: &str = "\
Examples:
  ssdkit trace run.trace
  ssdkit trace run.trace --slowest 20 --from 1ms --to 2ms
  ssdkit trace run.trace --json
  ssdkit trace hm_0.csv.gz
  zstdcat io.zst | ssdkit trace - --format alibaba --volume 419 --broken skip";

mod summary;

/// The slowest requests that are shown, where nothing else is said.
const SLOWEST: u32 = 10;
/// Columns of the timeline, where the terminal has as many.
const COLUMNS: usize = 80;
/// Columns beside it.
const MARGIN: usize = 10;

/// `ssdkit trace`.
#[derive(Args, Clone, Debug)]
pub struct TraceArgs {
    /// The trace, plain or compressed by gzip or zstd; - is standard input.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Of our own traces: how many of the slowest requests to show [default: 10].
    #[arg(long, value_name = "N",
          value_parser = measure::options::whole::<u32>(0..=100_000))]
    pub slowest: Option<u32>,
    /// Only requests that ended at this time or later, from the trace's start.
    #[arg(long, value_name = "TIME", value_parser = measure::options::time)]
    pub from: Option<u64>,
    /// Only requests submitted before this time.
    #[arg(long, value_name = "TIME", value_parser = measure::options::time)]
    pub to: Option<u64>,
    /// A summary of our own traces, too, as of others.
    #[arg(long, conflicts_with_all = ["slowest", "from", "to"])]
    pub summary: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// How it is read.
    #[command(flatten)]
    pub read: ReadArgs,
}

impl TraceArgs {
    /// How many of the slowest requests to show.
    fn slowest(&self) -> usize {
        self.slowest.unwrap_or(SLOWEST) as usize
    }
}

/// Prints what the trace says to `out`.
pub fn run(args: &TraceArgs, out: &mut dyn Write) -> Result<(), Error> {
    let (from, to) = (args.from.unwrap_or(0), args.to.unwrap_or(u64::MAX));
    if from >= to {
        return Err(Error::Usage("--from must be earlier than --to".into()));
    }
    let named = |e: &dyn std::fmt::Display| format!("{}: {e}", args.file.display());
    let mut input = Input::open(&args.file).map_err(|e| Error::Usage(named(&e)))?;
    let is_ours =
        args.read.format.is_none() && input.is_ours().map_err(|e| Error::Failed(named(&e)))?;
    if !is_ours || args.summary {
        if args.slowest.is_some() || args.from.is_some() || args.to.is_some() {
            let text = "--slowest, --from and --to are for traces of ssdkit bench: leave them out";
            return Err(Error::Usage(named(&text)));
        }
        return summary::run(args, input, out);
    }
    args.read.check(None).map_err(|e| Error::Usage(named(&e)))?;
    let reader = Reader::new(input.into_bytes()).map_err(|e| Error::Usage(named(&e)))?;
    let start = reader.about().start.0;
    let at = |ns: u64| Time(start.saturating_add(ns));
    let window = Window { from: at(from), to: at(to) };
    let trace = Trace::read(reader, window);
    if args.json {
        writeln!(out, "{:#}", trace.to_json(args))?;
    } else {
        trace.write_text(args, out)?;
    }
    out.flush()?;
    trace.problem.map_or(Ok(()), |e| Err(Error::Failed(named(&e))))
}

/// What was read.
struct Trace {
    about: About,
    /// Requests in the window.
    lives: Vec<Life>,
    /// Records that were read, in the window or not.
    records: u64,
    /// When the last of them ended.
    last: Time,
    /// What the end mark says, if it was reached.
    totals: Option<Totals>,
    /// What is wrong with the file.
    problem: Option<TraceError>,
}

impl Trace {
    fn read(mut reader: Reader<Box<dyn Read + Send>>, window: Window) -> Trace {
        let (mut lives, mut problem) = (Vec::new(), None);
        let start = reader.about().start;
        let mut last = start;
        for (number, life) in (&mut reader).enumerate() {
            last = last.max(life.as_ref().map_or(start, |life| life.seen));
            match life {
                // Whoever submits uses numbers again: those of the records tell
                // requests apart.
                Ok(life) if window.has(&life) && life.submitted >= start => {
                    lives.push(Life { id: number as u64, ..life });
                }
                Ok(_) => {}
                Err(e) => problem = Some(e),
            }
        }
        let (about, records) = (reader.about().clone(), reader.records());
        Trace { about, lives, records, last, totals: reader.totals(), problem }
    }

    /// Time since the trace's start, in ns.
    fn since(&self, at: Time) -> u64 {
        at.since(self.about.start)
    }

    /// What the timeline shows: what was asked for, else the slowest request.
    fn window(&self, args: &TraceArgs) -> Option<Window> {
        if args.from.is_none() && args.to.is_none() {
            return slowest(&self.lives, 1).first().map(Window::around);
        }
        let first = self.lives.iter().map(|life| life.submitted).min()?;
        let last = self.lives.iter().map(|life| life.seen).max()?;
        let at = |ns: u64| Time(self.about.start.0.saturating_add(ns));
        Some(Window {
            from: args.from.map_or(first, at),
            to: args.to.map_or(Time(last.0.saturating_add(1)), at),
        })
    }

    fn write_text(&self, args: &TraceArgs, out: &mut dyn Write) -> Result<(), Error> {
        let dropped = match self.totals {
            Some(totals) => format!("{} dropped", units::count(totals.dropped as f64)),
            None => "not whole".into(),
        };
        let count = |n: u64| units::count(n as f64);
        let shown = count(self.lives.len() as u64);
        writeln!(out, "{} requests, {dropped}; {shown} shown", count(self.records))?;
        if self.lives.is_empty() && self.records > 0 {
            let end = time(self.since(self.last));
            writeln!(out, "none was under way in that time; the last ended after {end}")?;
        }
        for line in self.about.config.lines() {
            // The text comes from a file: it shall not steer the terminal.
            writeln!(out, "  {}", line.replace(|c: char| c.is_control(), " ").trim_end())?;
        }
        write_queues(&summarize(&self.lives), out)?;
        self.write_slowest(args, out)?;
        if let Some(window) = self.window(args) {
            writeln!(out, "\ntimeline, a row a tag")?;
            let cells = COLUMNS.min(columns().saturating_sub(MARGIN)).max(MARGIN);
            write!(out, "{}", timeline(&self.lives, window, self.about.start, cells))?;
        }
        Ok(())
    }

    fn write_slowest(&self, args: &TraceArgs, out: &mut dyn Write) -> Result<(), Error> {
        let slowest = slowest(&self.lives, args.slowest());
        if slowest.is_empty() {
            return Ok(());
        }
        writeln!(
            out,
            "\nslowest requests\n{:>12} {:>8} {:>8} {:>8} {:>8}  {:<12} {:>8} {:>12} {:>5} {:>5} {:>5}",
            "at",
            "took",
            "staged",
            "device",
            "late",
            "operation",
            "length",
            "offset",
            "core",
            "queue",
            "tag",
        )?;
        for life in slowest {
            let tag = if life.tag == NO_TAG { "-".into() } else { life.tag.to_string() };
            let merged = if life.parts == 0 { "  merged" } else { "" };
            let failed =
                if life.status.is_ok() { String::new() } else { format!("  {}", life.status) };
            writeln!(
                out,
                "{:>12} {:>8} {:>8} {:>8} {:>8}  {:<12} {:>8} {:>12} {:>5} {:>5} {tag:>5}{merged}{failed}",
                moment(self.since(life.submitted)),
                time(life.total()),
                time(life.staged()),
                time(life.device()),
                time(life.late()),
                operation(&life),
                units::size_binary(life.len),
                units::size_binary(life.offset),
                life.core,
                life.queue,
            )?;
        }
        Ok(())
    }

    fn to_json(&self, args: &TraceArgs) -> Value {
        let slowest = slowest(&self.lives, args.slowest());
        let slowest = slowest.iter().map(|life| self.life_json(life));
        json!({
            "config": self.about.config,
            "start_ns": self.about.start.0,
            "records": self.records,
            "dropped": self.totals.map(|totals| totals.dropped),
            "problem": self.problem.as_ref().map(ToString::to_string),
            "shown": self.lives.len(),
            "queues": Value::from_iter(summarize(&self.lives).iter().map(queue_json)),
            "slowest": Value::from_iter(slowest),
        })
    }

    fn life_json(&self, life: &Life) -> Value {
        json!({
            "id": life.id,
            "at_ns": self.since(life.submitted),
            "total_ns": life.total(),
            "staged_ns": life.staged(),
            "device_ns": life.device(),
            "late_ns": life.late(),
            "operation": name(life.op),
            "fua": life.fua,
            "offset": life.offset,
            "length": life.len,
            "core": life.core,
            "staging_queue": life.staging,
            "queue": life.queue,
            "tag": (life.tag != NO_TAG).then_some(life.tag),
            "parts": life.parts,
            "status": life.status.0,
        })
    }
}

/// A table of the queues' summaries.
fn write_queues(queues: &[QueueSummary], out: &mut dyn Write) -> Result<(), Error> {
    if queues.is_empty() {
        return Ok(());
    }
    let heads = ["staged", "at the device", "seen late", "all"];
    let heads = heads.map(|head| format!("{head:>17}")).concat();
    writeln!(out, "\n{:>37}{heads}", "")?;
    let columns = "     mean     p99".repeat(4);
    writeln!(out, "queue requests merged failed deepest {columns}")?;
    for q in queues {
        let count = |n: u64| units::count(n as f64);
        let stage = |s: &Stage| format!("{:>8} {:>7}", units::time_ns(s.mean), time(s.p99));
        writeln!(
            out,
            "{:>5} {:>8} {:>6} {:>6} {:>7}  {} {} {} {}",
            q.queue,
            count(q.requests),
            count(q.merged),
            count(q.failed),
            q.deepest,
            stage(&q.staged),
            stage(&q.device),
            stage(&q.late),
            stage(&q.total),
        )?;
    }
    Ok(())
}

fn queue_json(q: &QueueSummary) -> Value {
    let stage = |s: &Stage| json!({ "mean_ns": s.mean, "p99_ns": s.p99, "max_ns": s.max });
    json!({
        "queue": q.queue,
        "requests": q.requests,
        "merged": q.merged,
        "failed": q.failed,
        "deepest": q.deepest,
        "staged": stage(&q.staged),
        "device": stage(&q.device),
        "late": stage(&q.late),
        "total": stage(&q.total),
    })
}

fn time(ns: u64) -> String {
    units::time_ns(ns as f64)
}

fn name(op: BlockOp) -> &'static str {
    match op {
        BlockOp::Read => "read",
        BlockOp::Write => "write",
        BlockOp::Flush => "flush",
        BlockOp::Trim => "trim",
        BlockOp::WriteZeroes => "write-zeroes",
    }
}

fn operation(life: &Life) -> String {
    format!("{}{}", name(life.op), if life.fua { " fua" } else { "" })
}

#[cfg(test)]
mod tests;
