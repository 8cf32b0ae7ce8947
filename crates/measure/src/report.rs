//! The report of a run: as JSON for programs, as text for a terminal.
//!
//! Guarantees: both come from the same numbers; a percentile with too few
//! I/Os behind it is `null` in JSON and a dash with its reason in the text;
//! the text has at most [`MAX_LINES`] lines and every number its unit.
//! Nothing here fails: a rate over no time is zero.

use std::fmt::Write;

use serde::Serialize;
use serde_json::Value;

use crate::histogram::{Histogram, Summary};
use crate::series::Row;
use crate::units::{bytes_decimal, count, time_ns};

/// The longest text report.
pub const MAX_LINES: usize = 40;
/// The widest line of it, in columns.
const WIDTH: usize = 90;
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
    /// I/Os completed.
    pub ios: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// How long the run took on the drive's clock.
    pub seconds: f64,
    /// How long it took on the wall.
    pub wall_seconds: f64,
    /// I/Os per second of drive time.
    pub iops: f64,
    /// Bytes per second of drive time.
    pub bytes_per_second: f64,
    /// Latency of all I/Os, in nanoseconds.
    pub latency_ns: Summary,
    /// Reads alone, where there are writes as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<Direction>,
    /// Writes alone, where there are reads as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write: Option<Direction>,
    /// Write amplification; `None` when nothing was written.
    pub write_amplification: Option<WriteAmplification>,
    /// Whether the steady state was reached; `None` when it was not sought.
    pub steady: Option<SteadyState>,
    /// What garbage collection did.
    pub gc: Gc,
    /// Chunks erased.
    pub erases: u64,
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
}

impl Direction {
    /// The I/Os that `latency` counted, which moved `bytes` in `seconds`.
    pub fn new(latency: &Histogram, bytes: u64, seconds: f64) -> Direction {
        let ios = latency.count();
        Direction { ios, bytes, iops: per(ios as f64, seconds), latency_ns: latency.summary() }
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
    /// What the host wrote: always 1.
    pub user: f64,
}

impl WriteAmplification {
    /// From numbers of blocks; `None` when the host wrote nothing.
    pub fn from_blocks(user: u64, gc: u64, padding: u64, metadata: u64) -> Option<Self> {
        if user == 0 {
            return None;
        }
        let of = |blocks: u64| blocks as f64 / user as f64;
        let total = of(user + gc + padding + metadata);
        Some(Self { total, gc: of(gc), padding: of(padding), metadata: of(metadata), user: 1.0 })
    }
}

/// How the search for the steady state ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SteadyState {
    /// Whether the drive settled.
    pub reached: bool,
    /// Rounds it took.
    pub rounds: usize,
}

/// What garbage collection did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Gc {
    /// Chunks or superblocks collected.
    pub collections: u64,
    /// Logical blocks moved.
    pub moved: u64,
}

/// Processor time of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cpu {
    /// In user mode.
    pub user_seconds: f64,
    /// In the kernel.
    pub system_seconds: f64,
    /// Both, for each I/O, in nanoseconds.
    pub per_io_ns: f64,
}

impl Cpu {
    /// From the two times and the number of I/Os.
    pub fn new(user_seconds: f64, system_seconds: f64, ios: u64) -> Cpu {
        let per_io_ns = per((user_seconds + system_seconds) * 1e9, ios as f64);
        Cpu { user_seconds, system_seconds, per_io_ns }
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

    /// The report for a terminal.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        self.write_text(&mut out).expect("a string takes all text");
        out
    }

    fn write_text(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "ssdkit {}, seed {}", self.version, self.seed)?;
        writeln!(out)?;
        configuration(out, "drive", &self.drive)?;
        configuration(out, "workload", &self.workload)?;
        self.totals(out)?;
        writeln!(out)?;
        self.directions(out)?;
        self.percentiles(out)?;
        writeln!(out)?;
        self.writes(out)?;
        self.over_time(out)?;
        self.ending(out)
    }

    fn totals(&self, out: &mut String) -> std::fmt::Result {
        let (drive, wall) = (time_ns(self.seconds * 1e9), time_ns(self.wall_seconds * 1e9));
        let (ios, bytes) = (count(self.ios as f64), bytes_decimal(self.bytes as f64));
        line(
            out,
            "run",
            &format!("{ios} I/Os, {bytes} in {drive} of drive time ({wall} on the wall)"),
        )
    }

    /// Columns of the tables: everything, then reads and writes if both occur.
    fn columns(&self) -> Vec<(&'static str, Direction)> {
        let all = Direction {
            ios: self.ios,
            bytes: self.bytes,
            iops: self.iops,
            latency_ns: self.latency_ns,
        };
        let parts = [("reads", self.read), ("writes", self.write)];
        let parts = parts.into_iter().filter_map(|(name, d)| Some((name, d?)));
        [("all", all)].into_iter().chain(parts).collect()
    }

    fn directions(&self, out: &mut String) -> std::fmt::Result {
        let columns = self.columns();
        let row = |out: &mut String, label: &str, cell: &dyn Fn(&Direction) -> String| {
            let cells: String = columns.iter().map(|(_, d)| format!("{:>12}", cell(d))).collect();
            writeln!(out, "{label:<10}{cells}")
        };
        let heads: String = columns.iter().map(|(name, _)| format!("{name:>12}")).collect();
        writeln!(out, "{:<10}{heads}", "")?;
        row(out, "I/Os", &|d| count(d.ios as f64))?;
        row(out, "IOPS", &|d| count(d.iops.round()))?;
        row(out, "throughput", &|d| {
            format!("{}/s", bytes_decimal(per(d.bytes as f64, self.seconds).round()))
        })?;
        Ok(())
    }

    fn percentiles(&self, out: &mut String) -> std::fmt::Result {
        let columns = self.columns();
        let longest = self.latency_ns.max.unwrap_or(0);
        let shortest = self.latency_ns.min.unwrap_or(0);
        let mut missing = false;
        let under = columns.len() * 12;
        writeln!(out, "{:<10}{:under$}   log scale", "latency", "")?;
        for (label, get) in LATENCY_ROWS {
            let cells: String = columns.iter().map(|(_, d)| cell(get(&d.latency_ns))).collect();
            missing |= columns.iter().any(|(_, d)| get(&d.latency_ns).is_none());
            let bar = get(&self.latency_ns).map(|ns| log_bar(ns, shortest as f64, longest as f64));
            let bar = bar.unwrap_or_default();
            writeln!(out, "{}", format!("{label:<10}{cells}   {bar}").trim_end())?;
        }
        if missing {
            let need = |n: u64| count(n as f64);
            writeln!(
                out,
                "{:<10}- insufficient samples: p99.9 needs {}, p99.99 {}, p99.999 {} I/Os",
                "",
                need(Summary::P999_SAMPLES),
                need(Summary::P9999_SAMPLES),
                need(Summary::P99999_SAMPLES)
            )?;
        }
        Ok(())
    }

    fn writes(&self, out: &mut String) -> std::fmt::Result {
        let amplification = match &self.write_amplification {
            None => "none: nothing was written".to_owned(),
            Some(w) => format!(
                "{:.3} = {} user + {:.3} collection + {:.3} padding + {:.3} metadata",
                w.total, w.user, w.gc, w.padding, w.metadata
            ),
        };
        line(out, "write amp.", &amplification)?;
        let (collections, moved) = (count(self.gc.collections as f64), count(self.gc.moved as f64));
        let erases = count(self.erases as f64);
        line(
            out,
            "collection",
            &format!("{collections} runs, {moved} blocks moved; {erases} erases"),
        )?;
        match self.steady {
            None => Ok(()),
            Some(SteadyState { reached: true, rounds }) => {
                line(out, "steady", &format!("steady state reached after {rounds} rounds"))
            }
            Some(SteadyState { reached: false, rounds }) => line(
                out,
                "steady",
                &format!("steady state not reached after {rounds} rounds: figures may still move"),
            ),
        }
    }

    /// IOPS over time as a picture, from zero at the bottom.
    fn over_time(&self, out: &mut String) -> std::fmt::Result {
        if self.series.is_empty() {
            return Ok(());
        }
        let group = self.series.len().div_ceil(SPARKS);
        let columns: Vec<(f64, f64)> = self.series.chunks(group).map(group_rate).collect();
        let rates = || columns.iter().map(|c| c.0);
        let high = rates().fold(0.0, f64::max);
        let low = rates().fold(f64::INFINITY, f64::min);
        let picture: String = rates().map(|r| spark(r, high)).collect();
        line(out, "IOPS", &picture)?;
        let (low, high) = (count(low.round()), count(high.round()));
        let width = time_ns((columns[0].1 * 1e9).round());
        line(out, "over time", &format!("{low} to {high}, a column is {width}"))
    }

    fn ending(&self, out: &mut String) -> std::fmt::Result {
        let (user, system) =
            (time_ns(self.cpu.user_seconds * 1e9), time_ns(self.cpu.system_seconds * 1e9));
        let each = time_ns(self.cpu.per_io_ns);
        line(out, "processor", &format!("{each} an I/O ({user} user, {system} system)"))?;
        if let Some(ns) = self.self_check_ns {
            let late = time_ns(ns as f64);
            line(out, "self-check", &format!("99.9 % of completions within {late} of the model"))?;
        }
        match self.errors {
            0 => line(out, "errors", "none"),
            n => line(out, "errors", &format!("{n} I/OS FAILED: this run proves nothing")),
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

/// A labelled line, cut to the width.
fn line(out: &mut String, label: &str, text: &str) -> std::fmt::Result {
    writeln!(out, "{label:<10}  {}", cut(text, WIDTH - 12))
}

/// At most `columns` characters of `text`, control characters left out.
fn cut(text: &str, columns: usize) -> String {
    let clean = || text.chars().filter(|c| !c.is_control());
    if clean().count() <= columns {
        return clean().collect();
    }
    clean().take(columns - 1).chain(['…']).collect()
}

/// Prints a configuration as `key=value` pairs on at most three lines.
fn configuration(out: &mut String, label: &str, value: &Value) -> std::fmt::Result {
    const LINES: usize = 3;
    let mut pairs = Vec::new();
    flatten("", value, &mut pairs);
    let mut lines = vec![String::new()];
    for pair in pairs.iter().map(|p| cut(p, WIDTH - 12)) {
        let last = lines.last_mut().expect("there is always one line");
        if last.is_empty() {
            *last = pair;
        } else if last.chars().count() + 1 + pair.chars().count() <= WIDTH - 12 {
            *last = format!("{last} {pair}");
        } else {
            lines.push(pair);
        }
    }
    if lines.len() > LINES {
        lines.truncate(LINES);
        let last = &mut lines[LINES - 1];
        *last = cut(&format!("{} …", cut(last, WIDTH - 14)), WIDTH - 12);
    }
    for (i, text) in lines.iter().enumerate() {
        line(out, if i == 0 { label } else { "" }, text)?;
    }
    Ok(())
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
/// column) and the longest latency.
fn log_bar(ns: f64, shortest: f64, longest: f64) -> String {
    let span = (longest.max(1.0) / shortest.max(1.0)).ln();
    let part = if span > 0.0 { (ns.max(1.0) / shortest.max(1.0)).ln() / span } else { 0.0 };
    let eighths = 8 + (part.clamp(0.0, 1.0) * (BAR - 1) as f64 * 8.0).round() as usize;
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
mod tests {
    use super::*;
    use serde_json::json;

    fn row(second: u64, ios: u64) -> Row {
        Row {
            second: second as f64,
            seconds: 1.0,
            ios,
            iops: ios as f64,
            p50: Some(80_000),
            p999: Some(900_000),
            write_amplification: Some(2.5),
            free_chunks: 12,
            collections: 3,
            erases: 9,
        }
    }

    fn summary(n: u64) -> Summary {
        Summary {
            mean: Some(104_600.0),
            min: Some(9_100),
            max: Some(5_200_000),
            n,
            p50: Some(85_000),
            p90: Some(190_000),
            p99: Some(720_000),
            p999: Some(2_100_000),
            p9999: (n >= 100_000).then_some(3_900_000),
            p99999: None,
        }
    }

    fn sample() -> Report {
        let direction = |ios: u64| Direction {
            ios,
            bytes: ios * 4096,
            iops: ios as f64 / 4.0,
            latency_ns: summary(ios),
        };
        Report {
            drive: json!({"profile": "tlc", "size": 8589934592u64, "gc": {"policy": "greedy", "seen": null}}),
            workload: json!({"bs": 4096, "depth": 32, "order": "uniform"}),
            ios: 1_000_000,
            bytes: 4_096_000_000,
            seconds: 4.0,
            wall_seconds: 0.62,
            iops: 250_000.0,
            bytes_per_second: 1.024e9,
            latency_ns: summary(1_000_000),
            read: Some(direction(950_000)),
            write: Some(direction(50_000)),
            write_amplification: WriteAmplification::from_blocks(50_000, 75_000, 2_500, 500),
            steady: Some(SteadyState { reached: false, rounds: 25 }),
            gc: Gc { collections: 12, moved: 75_000 },
            erases: 36,
            self_check_ns: Some(3_200),
            cpu: Cpu::new(0.6, 0.02, 1_000_000),
            series: vec![row(0, 300_000), row(1, 280_000), row(2, 400_000), row(3, 20_000)],
            errors: 0,
            seed: 42,
            version: "0.1.0".to_owned(),
        }
    }

    const GOLDEN: &str = "\
ssdkit 0.1.0, seed 42

drive       gc.policy=greedy profile=tlc size=8589934592
workload    bs=4096 depth=32 order=uniform
run         1.00 M I/Os, 4.10 GB in 4.00 s of drive time (620 ms on the wall)

                   all       reads      writes
I/Os            1.00 M       950 k      50.0 k
IOPS             250 k       238 k      12.5 k
throughput   1.02 GB/s    973 MB/s   51.2 MB/s
latency                                          log scale
min            9.10 us     9.10 us     9.10 us   █
mean            105 us      105 us      105 us   █████████▉
p50            85.0 us     85.0 us     85.0 us   █████████▏
p90             190 us      190 us      190 us   ████████████
p99             720 us      720 us      720 us   ████████████████▉
p99.9          2.10 ms     2.10 ms     2.10 ms   ████████████████████▊
p99.99         3.90 ms     3.90 ms           -   ███████████████████████
p99.999              -           -           -
max            5.20 ms     5.20 ms     5.20 ms   ████████████████████████
          - insufficient samples: p99.9 needs 10.0 k, p99.99 100 k, p99.999 10.0 M I/Os

write amp.  2.560 = 1 user + 1.500 collection + 0.050 padding + 0.010 metadata
collection  12 runs, 75.0 k blocks moved; 36 erases
steady      steady state not reached after 25 rounds: figures may still move
IOPS        ▆▆█▁
over time   20.0 k to 400 k, a column is 1.00 s
processor   620 ns an I/O (600 ms user, 20.0 ms system)
self-check  99.9 % of completions within 3.20 us of the model
errors      none
";

    #[test]
    fn the_text_is_as_designed() {
        let text = sample().to_text();
        assert_eq!(text, GOLDEN, "\n{text}");
    }

    #[test]
    fn json_has_the_agreed_keys() {
        let json = sample().to_json();
        let keys = [
            "drive",
            "workload",
            "ios",
            "bytes",
            "seconds",
            "wall_seconds",
            "iops",
            "bytes_per_second",
            "latency_ns",
            "read",
            "write",
            "write_amplification",
            "steady",
            "gc",
            "erases",
            "self_check_ns",
            "cpu",
            "series",
            "errors",
            "seed",
            "version",
        ];
        for key in keys {
            assert!(json.get(key).is_some(), "{key} is missing");
        }
        for key in ["mean", "min", "max", "n", "p50", "p90", "p99", "p999", "p9999", "p99999"] {
            assert!(json["latency_ns"].get(key).is_some(), "latency_ns.{key} is missing");
        }
        assert_eq!(json["latency_ns"]["p9999"], 3_900_000);
        assert_eq!(json["latency_ns"]["p99999"], Value::Null);
        assert_eq!(json["write"]["latency_ns"]["p9999"], Value::Null);
        assert_eq!(json["write_amplification"]["total"], 2.56);
        assert_eq!(json["steady"], json!({"reached": false, "rounds": 25}));
        assert_eq!(json["series"][3]["iops"], 20_000.0);
        assert_eq!(json["series"][0]["second"], 0.0);
    }

    #[test]
    fn what_did_not_happen_is_left_out() {
        let mut r = sample();
        (r.read, r.write, r.self_check_ns, r.write_amplification) = (None, None, None, None);
        let json = r.to_json();
        assert!(json.get("read").is_none() && json.get("self_check_ns").is_none());
        assert_eq!(json["write_amplification"], Value::Null);
        let text = r.to_text();
        assert!(text.contains("nothing was written"));
        assert!(!text.contains("self-check") && !text.contains("reads"));
    }

    #[test]
    fn an_empty_run_prints() {
        let mut r = sample();
        (r.ios, r.bytes, r.seconds, r.iops) = (0, 0, 0.0, 0.0);
        (r.latency_ns, r.read, r.write) = (Summary::default(), None, None);
        r.series.clear();
        r.cpu = Cpu::new(0.1, 0.1, 0);
        r.steady = Some(SteadyState { reached: true, rounds: 7 });
        let text = r.to_text();
        assert!(text.contains("insufficient samples"));
        assert!(text.contains("reached after 7 rounds"));
        assert!(!text.contains("NaN") && !text.contains("inf"));
    }

    #[test]
    fn failures_are_loud() {
        let r = Report { errors: 3, ..sample() };
        assert!(r.to_text().contains("3 I/OS FAILED"));
    }

    #[test]
    fn the_text_stays_small() {
        let mut r = sample();
        let long: serde_json::Map<String, Value> =
            (0..100).map(|i| (format!("key{i}"), json!("wört\n".repeat(i)))).collect();
        (r.drive, r.workload) = (Value::Object(long.clone()), Value::Object(long));
        r.series = (0..2048).map(|i| row(i, i)).collect();
        let text = r.to_text();
        assert!(text.lines().count() <= MAX_LINES, "{} lines", text.lines().count());
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH, "too wide: {line}");
        }
    }

    #[test]
    fn bars_and_sparks_cover_their_range() {
        assert_eq!(log_bar(100.0, 100.0, 10_000.0), "█");
        assert_eq!(log_bar(10_000.0, 100.0, 10_000.0), "█".repeat(BAR));
        assert_eq!(log_bar(1_000.0, 100.0, 10_000.0), "█".repeat(12) + "▌");
        assert_eq!(log_bar(5.0, 5.0, 5.0), "█");
        assert_eq!((spark(0.0, 9.0), spark(9.0, 9.0), spark(4.5, 9.0)), ('▁', '█', '▄'));
        assert_eq!(spark(0.0, 0.0), '▁');
    }
}
