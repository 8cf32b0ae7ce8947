//! The report of a run: as JSON for programs, as text for a terminal.
//!
//! Guarantees: both come from the same numbers; a percentile with too few
//! I/Os behind it is `null` in JSON and a dash with its reason in the text;
//! where no figure means anything both say so and why, and the text shows none;
//! what a drive does not tell is unknown, not zero; the text has at most
//! [`MAX_LINES`] lines at its full width, no line wider than asked for, and
//! every number its unit. Nothing here fails: a rate over no time is zero.

use std::fmt::Write;

use port::BLOCK_BYTES;
use serde::Serialize;
use serde_json::Value;

use crate::histogram::{Distribution, Histogram, Summary};
use crate::row::Row;
use crate::steady::{ROUND_NS, WINDOW as WINDOW_FULL};
use crate::units::{bytes_decimal, count, counted, time_ns};
use crate::within::Within;

/// The longest text report.
pub const MAX_LINES: usize = 40;
/// The widest line of it, in columns.
pub const WIDTH: usize = 90;
/// The narrowest line that it can be told in.
const NARROW: usize = 60;
/// Columns of the picture of the series.
const SPARKS: usize = 60;
/// Columns of a latency bar.
const BAR: usize = 24;

/// All that is told about a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The drive's effective configuration.
    pub drive: Value,
    /// The workload's effective configuration.
    pub workload: Value,
    /// I/Os that did what they were asked; flushes apart.
    pub ios: u64,
    /// Requests that failed: they are in no other figure.
    pub failed_requests: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// How long the run took on the drive's clock.
    pub seconds: f64,
    /// How long all of it took on the wall, from making or opening the drive
    /// to the report.
    pub wall_seconds: f64,
    /// Why rates and latencies mean nothing; `None` where they do.
    pub void: Option<String>,
    /// I/Os per second of drive time.
    pub iops: f64,
    /// Bytes per second of drive time.
    pub bytes_per_second: f64,
    /// Latency of all I/Os, in nanoseconds.
    pub latency_ns: Summary,
    /// How the latencies of all I/Os lie.
    pub distribution: Distribution,
    /// Within what the percentiles of all I/Os lie; `None` with too few rows.
    pub percentiles_within: Option<Within>,
    /// Reads alone, where there are writes as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<Direction>,
    /// Writes alone, where there are reads as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write: Option<Direction>,
    /// Write amplification; `None` when nothing was written, and of a drive
    /// that does not tell.
    pub write_amplification: Option<WriteAmplification>,
    /// Whether the steady state was reached; `None` when it was not sought.
    pub steady: Option<SteadyState>,
    /// What garbage collection did; `None` of a drive that does not tell.
    pub gc: Option<Gc>,
    /// Chunks erased; `None` of a drive that does not tell.
    pub erases: Option<u64>,
    /// 99.9th percentile of actual less modelled completion time, in
    /// nanoseconds; only with the real clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub self_check_ns: Option<u64>,
    /// Processor time.
    pub cpu: Cpu,
    /// What happened when.
    pub series: Vec<Row>,
    /// I/Os that failed, or came back with wrong data.
    pub errors: u64,
    /// The seed: the same seed, configuration and version give the same run.
    pub seed: u64,
    /// The version of the program.
    pub version: String,
}

/// The I/Os of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Direction {
    /// I/Os completed.
    pub ios: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// I/Os per second of drive time.
    pub iops: f64,
    /// Latency in nanoseconds.
    pub latency_ns: Summary,
    /// Within what its percentiles lie, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percentiles_within: Option<Within>,
}

impl Direction {
    /// The I/Os that `latency` counted, which moved `bytes` in `seconds`.
    pub fn new(
        latency: &Histogram,
        bytes: u64,
        seconds: f64,
        percentiles_within: Option<Within>,
    ) -> Direction {
        let ios = latency.count();
        let iops = per(ios as f64, seconds);
        Direction { ios, bytes, iops, latency_ns: latency.summary(), percentiles_within }
    }
}

/// Blocks programmed for each block that the host wrote, split by reason.
/// `total` is the sum of the others.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WriteAmplification {
    /// All reasons together.
    pub total: f64,
    /// Moved by garbage collection.
    pub gc: f64,
    /// Filling up of write units.
    pub padding: f64,
    /// The target's own maps, logs and checkpoints.
    pub metadata: f64,
    /// What the host wrote: always 1. A block that was programmed because a part of it was
    /// written, or of the unit that it is mapped with, is the host's as a whole.
    pub user: f64,
    /// All of it for each block that the host's bytes would fill, where that is more
    /// because parts were written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of_bytes: Option<f64>,
}

/// By how much more is programmed for the host than it wrote, before that is told: what is
/// on its way at the beginning and the end of a run is less.
const MORE: f64 = 1.05;

impl WriteAmplification {
    /// From numbers of blocks; `None` when the host wrote nothing.
    pub fn from_blocks(user: u64, gc: u64, padding: u64, metadata: u64) -> Option<Self> {
        if user == 0 {
            return None;
        }
        let of = |blocks: u64| blocks as f64 / user as f64;
        let total = of(user + gc + padding + metadata);
        let (gc, padding, metadata) = (of(gc), of(padding), of(metadata));
        Some(Self { total, gc, padding, metadata, user: 1.0, of_bytes: None })
    }

    /// The same, of which the host wrote `bytes`, and `user` blocks were programmed for them.
    #[must_use]
    pub fn with_bytes(self, user: u64, bytes: u64) -> Self {
        let more = (user * BLOCK_BYTES) as f64 / bytes as f64;
        let is_told = bytes > 0 && more > MORE;
        Self { of_bytes: is_told.then_some(self.total * more), ..self }
    }
}

/// How the search for the steady state ended.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SteadyState {
    /// Whether the drive settled.
    pub reached: bool,
    /// Rounds it took.
    pub rounds: usize,
    /// How many rounds had to agree.
    pub window: usize,
    /// The least drive time of a round, in seconds.
    pub round_seconds: f64,
    /// Whether fewer or shorter rounds were asked for than the full rule has.
    pub weaker: bool,
}

impl SteadyState {
    /// A search that looked at `window` rounds of `round_ns`.
    pub fn new(reached: bool, rounds: usize, window: usize, round_ns: u64) -> SteadyState {
        let weaker = window < WINDOW_FULL || round_ns < ROUND_NS;
        SteadyState { reached, rounds, window, round_seconds: round_ns as f64 / 1e9, weaker }
    }

    fn to_text(self) -> String {
        let after = |n: usize| if n == 1 { "1 round".into() } else { format!("{n} rounds") };
        let mut text = match self.reached {
            true => format!("steady state reached after {}", after(self.rounds)),
            false => format!(
                "steady state not reached after {}: figures may still move",
                after(self.rounds)
            ),
        };
        if self.weaker {
            let time = |seconds: f64| time_ns(seconds * 1e9);
            let _ = write!(
                text,
                ", by a weaker rule: {} rounds of {} or more instead of {WINDOW_FULL} of {}",
                self.window,
                time(self.round_seconds),
                time(ROUND_NS as f64 / 1e9)
            );
        }
        text
    }
}

/// What garbage collection did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Gc {
    /// Chunks or superblocks collected.
    pub collections: u64,
    /// Logical blocks moved.
    pub moved: u64,
    /// Of these, copied inside their dies, in whole rows.
    pub copied: u64,
}

/// Processor time of what was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cpu {
    /// In user mode.
    pub user_seconds: f64,
    /// In the kernel.
    pub system_seconds: f64,
    /// How long that took on the wall.
    pub wall_seconds: f64,
    /// Both, for each I/O, in nanoseconds.
    pub per_io_ns: f64,
    /// Of that the tool's own, in which no drive had its turn; `None` where it is not
    /// known.
    pub own_per_io_ns: Option<f64>,
}

impl Cpu {
    /// From the two times, that on the wall, and the number of I/Os.
    pub fn new(user_seconds: f64, system_seconds: f64, wall_seconds: f64, ios: u64) -> Cpu {
        let per_io_ns = per((user_seconds + system_seconds) * 1e9, ios as f64);
        Cpu { user_seconds, system_seconds, wall_seconds, per_io_ns, own_per_io_ns: None }
    }

    /// With the tool's own part of it, in nanoseconds of all I/Os together. One that is
    /// more than the whole was told by turns that stand for none of the others: it is not
    /// known then.
    pub fn with_own(mut self, own_ns: Option<f64>, ios: u64) -> Cpu {
        let most = self.per_io_ns;
        let own = own_ns.filter(|_| ios > 0).map(|ns| ns / ios as f64);
        self.own_per_io_ns = own.filter(|&own| own <= most);
        self
    }
}

/// `amount` for each of `parts`; zero when there are none.
fn per(amount: f64, parts: f64) -> f64 {
    if parts > 0.0 { amount / parts } else { 0.0 }
}

impl Report {
    /// The report as one JSON object.
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self).expect("a report has only text for keys")
    }

    /// The report for a terminal, in its full width.
    pub fn to_text(&self) -> String {
        self.to_text_in(WIDTH)
    }

    /// The report for a terminal of so many columns, of which it uses at most
    /// [`WIDTH`].
    pub fn to_text_in(&self, columns: usize) -> String {
        let mut out = Page { text: String::new(), width: columns.clamp(NARROW, WIDTH) };
        self.write_text(&mut out).expect("a string takes all text");
        out.text
    }

    fn write_text(&self, out: &mut Page) -> std::fmt::Result {
        writeln!(out.text, "ssdkit {}, seed {}\n", self.version, self.seed)?;
        out.configuration("drive", &self.drive)?;
        out.configuration("workload", &self.workload)?;
        self.totals(out)?;
        writeln!(out.text)?;
        if let Some(why) = &self.void {
            out.line("VOID", &format!("rates and latencies mean nothing: {why}"))?;
            writeln!(out.text)?;
        } else {
            self.directions(out)?;
            self.percentiles(out)?;
            writeln!(out.text)?;
        }
        self.writes(out)?;
        if self.void.is_none() {
            self.over_time(out)?;
        }
        self.ending(out)
    }

    fn totals(&self, out: &mut Page) -> std::fmt::Result {
        let drive = time_ns(self.seconds * 1e9);
        let (ios, bytes) = (count(self.ios as f64), bytes_decimal(self.bytes as f64));
        out.line("run", &format!("{ios} I/Os, {bytes} in {drive} of drive time"))?;
        let (all, measured) =
            (time_ns(self.wall_seconds * 1e9), time_ns(self.cpu.wall_seconds * 1e9));
        out.line("on the wall", &format!("{all} in all, of which {measured} measuring"))
    }

    /// Columns of the tables: everything, then reads and writes if both occur.
    fn columns(&self) -> Vec<(&'static str, Direction)> {
        let all = Direction {
            ios: self.ios,
            bytes: self.bytes,
            iops: self.iops,
            latency_ns: self.latency_ns,
            percentiles_within: self.percentiles_within,
        };
        let parts = [("reads", self.read), ("writes", self.write)];
        let parts = parts.into_iter().filter_map(|(name, d)| Some((name, d?)));
        [("all", all)].into_iter().chain(parts).collect()
    }

    fn directions(&self, out: &mut Page) -> std::fmt::Result {
        let columns = self.columns();
        let row = |out: &mut Page, label: &str, cell: &dyn Fn(&Direction) -> String| {
            let cells: String = columns.iter().map(|(_, d)| format!("{:>12}", cell(d))).collect();
            writeln!(out.text, "{label:<10}{cells}")
        };
        let heads: String = columns.iter().map(|(name, _)| format!("{name:>12}")).collect();
        writeln!(out.text, "{:<10}{heads}", "")?;
        row(out, "I/Os", &|d| count(d.ios as f64))?;
        // Of few a second the fraction counts.
        row(out, "IOPS", &|d| count(if d.iops < 10.0 { d.iops } else { d.iops.round() }))?;
        row(out, "throughput", &|d| {
            format!("{}/s", bytes_decimal(per(d.bytes as f64, self.seconds).round()))
        })?;
        Ok(())
    }

    fn percentiles(&self, out: &mut Page) -> std::fmt::Result {
        let columns = self.columns();
        let longest = self.latency_ns.max.unwrap_or(0) as f64;
        let shortest = self.latency_ns.min.unwrap_or(0) as f64;
        let under = columns.len() * 12;
        let room = BAR.min(out.width - (13 + under));
        writeln!(out.text, "{:<10}{:under$}   log scale", "latency", "")?;
        let mut missing = Vec::new();
        for (label, get) in LATENCY_ROWS {
            let cells: String = columns.iter().map(|(_, d)| cell(get(&d.latency_ns))).collect();
            let bar = get(&self.latency_ns).map(|ns| log_bar(ns, shortest, longest, room));
            let bar = bar.unwrap_or_default();
            writeln!(out.text, "{}", format!("{label:<10}{cells}   {bar}").trim_end())?;
            let percentile = label.strip_prefix('p').and_then(|p| p.parse().ok());
            if let Some(p) = percentile
                && columns.iter().any(|(_, d)| get(&d.latency_ns).is_none())
            {
                let n = Summary::samples(p) as f64;
                missing.push(format!("{label} needs {} I/Os", count(n)));
            }
        }
        if !missing.is_empty() {
            out.line("", &format!("- insufficient samples: {}", missing.join(", ")))?;
        }
        Ok(())
    }

    fn writes(&self, out: &mut Page) -> std::fmt::Result {
        let amplification = match (&self.write_amplification, self.gc) {
            (None, None) => {
                "unknown: this drive does not tell what it writes, or not what this load wrote"
                    .to_owned()
            }
            (None, Some(_)) => "none: nothing was written".to_owned(),
            (Some(w), _) => format!(
                "{:.3} = {} user + {:.3} collection + {:.3} padding + {:.3} metadata",
                w.total, w.user, w.gc, w.padding, w.metadata
            ),
        };
        out.line("write amp.", &amplification)?;
        if let Some(of_bytes) = self.write_amplification.and_then(|w| w.of_bytes) {
            let text = "of the bytes written, as a write of a part programs all of its unit";
            out.line("", &format!("{of_bytes:.3} {text}"))?;
        }
        if let Some(gc) = self.gc {
            let (runs, moved) = (counted(gc.collections, "run"), counted(gc.moved, "block"));
            let erases = counted(self.erases.unwrap_or(0), "erase");
            let copied = match gc.copied {
                0 => String::new(),
                copied => format!(", {} inside", counted(copied, "block")),
            };
            let text = format!("{runs}, {moved} moved{copied}; {erases}");
            out.line("collection", &text)?;
        }
        match self.steady {
            None => Ok(()),
            Some(steady) => out.line("steady", &steady.to_text()),
        }
    }

    /// IOPS over time as a picture, from zero at the bottom.
    fn over_time(&self, out: &mut Page) -> std::fmt::Result {
        if self.series.is_empty() {
            return Ok(());
        }
        let group = self.series.len().div_ceil(SPARKS.min(out.width - INDENT));
        let columns: Vec<(f64, f64)> = self.series.chunks(group).map(group_rate).collect();
        let rates = || columns.iter().map(|c| c.0);
        let high = rates().fold(0.0, f64::max);
        let low = rates().fold(f64::INFINITY, f64::min);
        let picture: String = rates().map(|r| spark(r, high)).collect();
        out.line("IOPS", &picture)?;
        let (low, high) = (count(low.round()), count(high.round()));
        let width = time_ns((columns[0].1 * 1e9).round());
        out.line("over time", &format!("{low} to {high}, a column is {width}"))
    }

    fn ending(&self, out: &mut Page) -> std::fmt::Result {
        let (user, system) =
            (time_ns(self.cpu.user_seconds * 1e9), time_ns(self.cpu.system_seconds * 1e9));
        let each = time_ns(self.cpu.per_io_ns);
        let own = self.cpu.own_per_io_ns.map(|ns| format!(", {} of it bench's", time_ns(ns)));
        let own = own.unwrap_or_default();
        out.line("processor", &format!("{each} an I/O{own} ({user} user, {system} system)"))?;
        if let Some(ns) = self.self_check_ns {
            let late = time_ns(ns as f64);
            let text = format!("99.9 % of completions within {late} of the model");
            out.line("self-check", &text)?;
        }
        match self.errors {
            0 => out.line("errors", "none"),
            n => out.line("errors", &format!("{n} I/OS FAILED: this run proves nothing")),
        }
    }
}

/// Gives one figure of a summary, in nanoseconds.
type Get = fn(&Summary) -> Option<f64>;

/// The rows of the latency table.
const LATENCY_ROWS: [(&str, Get); 9] = [
    ("min", |s| s.min.map(|x| x as f64)),
    ("mean", |s| s.mean),
    ("p50", |s| s.p50.map(|x| x as f64)),
    ("p90", |s| s.p90.map(|x| x as f64)),
    ("p99", |s| s.p99.map(|x| x as f64)),
    ("p99.9", |s| s.p999.map(|x| x as f64)),
    ("p99.99", |s| s.p9999.map(|x| x as f64)),
    ("p99.999", |s| s.p99999.map(|x| x as f64)),
    ("max", |s| s.max.map(|x| x as f64)),
];

fn cell(ns: Option<f64>) -> String {
    format!("{:>12}", ns.map_or("-".to_owned(), time_ns))
}

/// Columns before the text of a labelled line.
const INDENT: usize = 12;

/// The text in the making, and how wide it may be.
struct Page {
    text: String,
    width: usize,
}

impl Page {
    /// A labelled line, as several where it is too wide.
    fn line(&mut self, label: &str, text: &str) -> std::fmt::Result {
        let words = text.split(' ').map(str::to_owned).collect();
        self.wrapped(label, words, usize::MAX)
    }

    /// Words on at most `most` lines; what has no room is left out, and said
    /// so.
    fn wrapped(&mut self, label: &str, words: Vec<String>, most: usize) -> std::fmt::Result {
        let room = self.width - INDENT;
        let mut lines = vec![String::new()];
        for word in words.iter().flat_map(|word| pieces(word, room)) {
            let last = lines.last_mut().expect("there is always one line");
            if last.is_empty() {
                *last = word;
            } else if last.chars().count() + 1 + word.chars().count() <= room {
                *last = format!("{last} {word}");
            } else {
                lines.push(word);
            }
        }
        if lines.len() > most {
            lines.truncate(most);
            let last = &mut lines[most - 1];
            *last = cut(&format!("{} …", cut(last, room - 2)), room);
        }
        for (i, text) in lines.iter().enumerate() {
            let label = if i == 0 { label } else { "" };
            writeln!(self.text, "{}", format!("{label:<INDENT$}{text}").trim_end())?;
        }
        Ok(())
    }

    /// A configuration as `key=value` pairs on a few lines.
    fn configuration(&mut self, label: &str, value: &Value) -> std::fmt::Result {
        /// Lines at the full width.
        const LINES: usize = 3;
        let mut pairs = Vec::new();
        flatten("", value, &mut pairs);
        self.wrapped(label, pairs, (LINES * WIDTH).div_ceil(self.width))
    }
}

/// A word, broken behind commas where it is too wide: a drive's name may be.
fn pieces(word: &str, columns: usize) -> Vec<String> {
    let mut pieces = vec![String::new()];
    for part in word.split_inclusive(',').map(|part| cut(part, columns)) {
        let last = pieces.last_mut().expect("there is always one piece");
        if last.chars().count() + part.chars().count() <= columns {
            last.push_str(&part);
        } else {
            pieces.push(part);
        }
    }
    pieces
}

/// At most `columns` characters of `text`, control characters left out.
fn cut(text: &str, columns: usize) -> String {
    let clean = || text.chars().filter(|c| !c.is_control());
    if clean().count() <= columns {
        return clean().collect();
    }
    clean().take(columns - 1).chain(['…']).collect()
}

/// The leaves of `value` as `path=value`, those that are null left out.
fn flatten(path: &str, value: &Value, pairs: &mut Vec<String>) {
    match value {
        Value::Null => {}
        Value::Object(map) => {
            for (key, value) in map {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                flatten(&path, value, pairs);
            }
        }
        Value::String(text) if path.is_empty() => pairs.push(text.clone()),
        Value::String(text) => pairs.push(format!("{path}={text}")),
        other if path.is_empty() => pairs.push(other.to_string()),
        other => pairs.push(format!("{path}={other}")),
    }
}

/// A bar whose length is the logarithm of `ns` between the shortest (one
/// column) and the longest latency (all `columns`).
fn log_bar(ns: f64, shortest: f64, longest: f64, columns: usize) -> String {
    let span = (longest.max(1.0) / shortest.max(1.0)).ln();
    let part = if span > 0.0 { (ns.max(1.0) / shortest.max(1.0)).ln() / span } else { 0.0 };
    let eighths = 8 + (part.clamp(0.0, 1.0) * (columns - 1) as f64 * 8.0).round() as usize;
    let rest = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8];
    "█".repeat(eighths / 8) + rest
}

/// I/Os per second over neighbouring rows, and how many seconds they are.
fn group_rate(rows: &[Row]) -> (f64, f64) {
    let ios: u64 = rows.iter().map(|r| r.ios).sum();
    let seconds: f64 = rows.iter().map(|r| r.seconds).sum();
    (per(ios as f64, seconds), seconds)
}

/// The block whose height is `rate` of `high`.
fn spark(rate: f64, high: f64) -> char {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    BLOCKS[((per(rate, high) * 8.0).ceil() as usize).clamp(1, 8) - 1]
}

#[cfg(test)]
mod tests;
