//! Runs side by side, the first of which the others are held against.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;

use measure::units::{bytes_decimal, count, time_ns};
use serde_json::{Value, json};

use crate::pairs::{of_rows, paired_by, share};
use crate::run::{Direction, Job, Latency, Run, Within};
use crate::waver::waver;

/// Columns of a name at most; what is longer loses its beginning.
const NAME: usize = 20;
/// Columns of a setting's name, of a run's figure, and of another run's with how it differs.
const SETTING: usize = 34;
const FIRST: usize = 14;
const OTHER: usize = FIRST + 21;
/// Settings that are listed.
pub(crate) const SETTINGS: usize = 40;

/// What a figure is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Rate,
    Bytes,
    Time,
    Ratio,
    /// Time of the processor.
    Processor,
}

impl Unit {
    fn text(self, value: f64) -> String {
        match self {
            Unit::Rate => count(value),
            Unit::Bytes => format!("{}/s", bytes_decimal(value)),
            Unit::Time | Unit::Processor => time_ns(value),
            Unit::Ratio => format!("{value:.3}"),
        }
    }
}

/// A figure of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cell {
    /// What it is; `None` where the run has none.
    pub value: Option<f64>,
    /// By what part of it another run of the same would be less, and more, with 95 %; `None`
    /// where that is not known.
    pub waver: Option<[f64; 2]>,
}

/// As much on both sides.
fn even(waver: Option<f64>) -> Option<[f64; 2]> {
    waver.map(|waver| [waver; 2])
}

/// How a figure differs from that of the first run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// As a part of the first run's.
    pub by: f64,
    /// By what part it would be off in other runs of the two, with 95 %.
    pub waver: Option<f64>,
}

impl Difference {
    /// Where rows of both say by what part their ratio wavers (`paired`), it does by that.
    fn of(first: Cell, other: Cell, paired: Option<f64>) -> Option<Difference> {
        let (base, value) = (first.value?, other.value?);
        let ratio = value / base;
        if !ratio.is_finite() || ratio > 1e12 {
            return None;
        }
        // What the lower one may be more by, and the higher one less: so it is the same
        // whichever comes first.
        let waver = first.waver.zip(other.waver).map(|([less, more], [other_less, other_more])| {
            if ratio < 1.0 {
                less.hypot(ratio * other_more)
            } else {
                more.hypot(ratio * other_less)
            }
        });
        let paired = paired.map(|part| part * ratio.max(1.0));
        Some(Difference { by: ratio - 1.0, waver: paired.or(waver) })
    }

    /// Whether it is more than it wavers by; `None` where that is not known.
    pub fn is_told_apart(&self) -> Option<bool> {
        self.waver.map(|waver| self.by.abs() > waver)
    }

    fn text(&self) -> String {
        let percent = 100.0 * self.by;
        match (self.waver, self.is_told_apart()) {
            (Some(waver), Some(false)) => format!("({percent:+.1} % ± {:.1})", 100.0 * waver),
            (Some(waver), _) => format!("{percent:+.1} % ± {:.1}", 100.0 * waver),
            (None, _) => format!("{percent:+.1} %"),
        }
    }
}

/// A figure of all runs.
#[derive(Clone, Debug)]
pub struct Figure {
    /// What it is called, in text and JSON.
    pub name: String,
    unit: Unit,
    /// Of each run.
    pub cells: Vec<Cell>,
    /// By what each one's ratio to the first's wavers, where rows of both tell.
    paired: Vec<Option<f64>>,
}

impl Figure {
    /// What the runs have, of those that have it.
    pub(crate) fn values(&self) -> impl Iterator<Item = f64> {
        self.cells.iter().filter_map(|cell| cell.value)
    }

    /// A value of this figure, as text.
    pub(crate) fn in_words(&self, value: f64) -> String {
        self.unit.text(value)
    }

    /// What it is counted in, in JSON.
    pub(crate) fn unit_name(&self) -> &'static str {
        match self.unit {
            Unit::Rate => "1/s",
            Unit::Bytes => "B/s",
            Unit::Time | Unit::Processor => "ns",
            Unit::Ratio => "1",
        }
    }

    /// The figure of a run, as text.
    pub fn text(&self, run: usize) -> String {
        self.cells[run].value.map_or_else(|| "-".into(), |value| self.unit.text(value))
    }

    /// How that of a run differs from the first one's.
    pub fn difference(&self, run: usize) -> Option<Difference> {
        let paired = self.paired.get(run).copied().flatten();
        if run == 0 { None } else { Difference::of(self.cells[0], self.cells[run], paired) }
    }

    /// That, as text.
    pub fn difference_text(&self, run: usize) -> String {
        self.difference(run).map_or_else(String::new, |difference| difference.text())
    }
}

/// A setting that is not the same in all runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Where it stands in the report, with points.
    pub name: String,
    /// What it is in each run; empty where it has none.
    pub values: Vec<String>,
}

/// Runs side by side.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// What each is called: so much of its name as tells it from the others.
    pub names: Vec<String>,
    /// Their figures.
    pub figures: Vec<Figure>,
    /// What is set differently.
    pub settings: Vec<Setting>,
    /// What is to be known of each before its figures are believed.
    pub doubts: Vec<Vec<String>>,
}

impl Comparison {
    /// Of these runs.
    ///
    /// # Panics
    /// Without a run.
    pub fn new(runs: &[Run]) -> Comparison {
        assert!(!runs.is_empty(), "there is something to compare");
        Comparison {
            names: runs.iter().map(|run| harmless(&run.name)).collect(),
            figures: figures(runs),
            settings: settings(runs),
            doubts: runs
                .iter()
                .map(|run| run.doubts().iter().map(|doubt| harmless(doubt)).collect())
                .collect(),
        }
    }

    /// For a terminal of any width.
    pub fn to_text(&self) -> String {
        self.to_text_in(usize::MAX)
    }

    /// For a terminal of so many columns: what has no place beside the first run is below, with
    /// the first run again.
    pub fn to_text_in(&self, columns: usize) -> String {
        let mut out = String::new();
        for (number, name) in self.names.iter().enumerate() {
            let _ = writeln!(out, "[{}] {name}", number + 1);
            for doubt in &self.doubts[number] {
                let _ = writeln!(out, "    - {doubt}");
            }
        }
        let longest = self.figures.iter().map(|figure| figure.name.chars().count()).max();
        let wide = longest.unwrap_or(0).max(21) + 1;
        for others in self.others_in(columns, wide + FIRST, OTHER) {
            self.figures_text(wide, others, &mut out);
        }
        if self.names.len() > 1 {
            out.push_str(
                "\n±: within what it would be in other runs of both, with 95 %, as their rows tell;\n\
                 in brackets: not told apart, as it is less than that; without ±: not known, as rows are \
                 too few or do not tell\n",
            );
            self.settings_text(columns, &mut out);
        }
        out
    }

    /// The runs that the first is held against, as many at once as fit beside `first` columns,
    /// each of which takes `other`.
    fn others_in(&self, columns: usize, first: usize, other: usize) -> Vec<Range<usize>> {
        let (runs, at_once) = (self.names.len(), (columns.saturating_sub(first) / other).max(1));
        let groups = (1..runs).step_by(at_once.min(runs));
        let mut groups: Vec<_> =
            groups.map(|from| from..from.saturating_add(at_once).min(runs)).collect();
        // Of one run there is a table, too.
        if groups.is_empty() {
            groups.push(1..1);
        }
        groups
    }

    fn figures_text(&self, wide: usize, others: Range<usize>, out: &mut String) {
        let _ = write!(out, "\n{:<wide$}{:>FIRST$}", "", "[1]");
        for run in others.clone() {
            let _ = write!(out, "{:>FIRST$}{:<21}", format!("[{}]", run + 1), "");
        }
        trim_line(out);
        for figure in &self.figures {
            let _ = write!(out, "{:<wide$}{:>FIRST$}", figure.name, figure.text(0));
            for run in others.clone() {
                let difference = figure.difference_text(run);
                let _ = write!(out, "{:>FIRST$}   {difference:<18}", figure.text(run));
            }
            trim_line(out);
        }
    }

    fn settings_text(&self, columns: usize, out: &mut String) {
        if self.settings.is_empty() {
            out.push_str("\nnothing is set differently\n");
            return;
        }
        for others in self.others_in(columns, SETTING + NAME + 1, NAME + 1) {
            out.push_str("\nset differently\n");
            for Setting { name, values } in self.settings.iter().take(SETTINGS) {
                let _ = write!(out, "{name:<SETTING$}");
                let values = apart(values);
                for value in values[..1].iter().chain(&values[others.clone()]) {
                    let _ = write!(out, " {value:<NAME$}");
                }
                trim_line(out);
            }
        }
        if let Some(more) = self.settings.len().checked_sub(SETTINGS).filter(|&n| n > 0) {
            let _ = writeln!(out, "and {more} more: --json has all");
        }
    }

    /// As one JSON object.
    pub fn to_json(&self) -> Value {
        let figure = |figure: &Figure| {
            let cell = |run: usize| {
                let cell = figure.cells[run];
                let difference = figure.difference(run);
                json!({
                    "value": cell.value,
                    "waver": cell.waver.map(|[less, more]| less.max(more)),
                    "difference": difference.map(|d| d.by),
                    "difference_waver": difference.and_then(|d| d.waver),
                    "told_apart": difference.and_then(|d| d.is_told_apart()),
                })
            };
            json!({
                "name": figure.name,
                "unit": figure.unit_name(),
                "runs": (0..figure.cells.len()).map(cell).collect::<Vec<_>>(),
            })
        };
        let setting = |s: &Setting| json!({ "name": s.name, "values": s.values });
        let run = |(name, doubts)| json!({ "name": name, "doubts": doubts });
        json!({
            "runs": self.names.iter().zip(&self.doubts).map(run).collect::<Vec<_>>(),
            "figures": self.figures.iter().map(figure).collect::<Vec<_>>(),
            "settings": self.settings.iter().map(setting).collect::<Vec<_>>(),
        })
    }
}

/// A text of a report without what would steer a terminal.
pub(crate) fn harmless(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Ends a line, without spaces at its end.
fn trim_line(out: &mut String) {
    out.truncate(out.trim_end_matches(' ').len());
    out.push('\n');
}

/// Texts as they fit columns: where one is too long without what all end with, and at last
/// without what all begin with.
fn apart(texts: &[String]) -> Vec<String> {
    let first: Vec<char> = texts.first().map_or(vec![], |text| text.chars().collect());
    let is_long = texts.iter().any(|text| text.chars().count() > NAME);
    let others = || texts.iter().skip(1);
    let agree =
        |all: &mut dyn Iterator<Item = (char, char)>| all.take_while(|(a, b)| a == b).count();
    let end = |text: &String| agree(&mut first.iter().rev().copied().zip(text.chars().rev()));
    let ends = others().map(end).min().unwrap_or(0);
    let shortest = texts.iter().map(|text| text.chars().count()).min().unwrap_or(0);
    let (mut from, mut cut) = (0, 0);
    if is_long && texts.len() > 1 {
        // A mark stands for it.
        cut = ends.min(shortest).saturating_sub(1);
        let begin = |text: &String| agree(&mut first.iter().copied().zip(text.chars()));
        let begins = others().map(begin).min().unwrap_or(0);
        let last = begins.min(shortest - cut).saturating_sub(1);
        // Words are whole, where there are some.
        from = first[..last].iter().rposition(|c| matches!(c, ',' | '/' | ' ')).unwrap_or(last);
        if matches!(first.get(last), Some(',' | '/' | ' ')) {
            from = last;
        }
    }
    let mark = |n: usize| if n > 0 { "…" } else { "" };
    let one = |text: &String| {
        let n = text.chars().count() - cut;
        let rest: String = text.chars().take(n).collect();
        match n + usize::from(cut > 0) > NAME {
            true => {
                let rest: String = rest.chars().skip(from).collect();
                short(&format!("{}{rest}{}", mark(from), mark(cut)))
            }
            false => format!("{rest}{}", mark(cut)),
        }
    };
    texts.iter().map(one).collect()
}

/// So much of the end of a text as fits a column.
fn short(text: &str) -> String {
    let n = text.chars().count();
    if n <= NAME {
        return text.to_owned();
    }
    std::iter::once('…').chain(text.chars().skip(n - NAME + 1)).collect()
}

/// A percentile, and within what it lies.
type Percentile = (&'static str, fn(Latency) -> Option<f64>, fn(Within) -> Option<[f64; 2]>);
const PERCENTILES: [Percentile; 5] = [
    ("p50", |latency| latency.p50, |within| within.p50),
    ("p90", |latency| latency.p90, |within| within.p90),
    ("p99", |latency| latency.p99, |within| within.p99),
    ("p99.9", |latency| latency.p999, |within| within.p999),
    ("p99.99", |latency| latency.p9999, |within| within.p9999),
];
/// Those that are told of reads and of writes alone.
const OF_PARTS: [&str; 3] = ["p50", "p99", "p99.9"];

/// A percentile of such latencies.
fn percentile((_, get, within): Percentile, latency: Latency, all_within: Option<Within>) -> Cell {
    let value = get(latency);
    let off = |(value, ends): (f64, [f64; 2])| ends.map(|end| (end - value).abs() / value.max(1.0));
    Cell { value, waver: value.zip(all_within.and_then(within)).map(off) }
}

fn figures(runs: &[Run]) -> Vec<Figure> {
    let mut all = Vec::new();
    let mut add = |name: &str, unit, cell: &dyn Fn(&Run) -> Cell| {
        // Rates and latencies of a run that is void mean nothing.
        let means_always = matches!(unit, Unit::Ratio | Unit::Processor);
        let means = |run: &&Run| means_always || run.void.is_none();
        let of = |run| Some(run).filter(means).map(cell).unwrap_or_default();
        let cells: Vec<Cell> = runs.iter().map(of).collect();
        if cells.iter().any(|cell| cell.value.is_some()) {
            let paired = paired_by(name, runs);
            all.push(Figure { name: name.to_owned(), unit, cells, paired });
        }
    };
    let rate = |run: &Run| even(waver(&of_rows(run, |row| Some(row.iops))));
    let known = |value| Cell { value, waver: None };
    add("IOPS", Unit::Rate, &|run| Cell { value: Some(run.iops), waver: rate(run) });
    add("throughput", Unit::Bytes, &|run| Cell {
        value: Some(run.bytes_per_second),
        waver: rate(run),
    });
    for (name, reads) in [("read IOPS", true), ("write IOPS", false)] {
        add(name, Unit::Rate, &|run| Cell {
            value: run.only(reads).map(|d| d.iops),
            waver: rate(run)
                .zip(share(run, reads))
                .map(|(rate, share)| rate.map(|r| r.hypot(share))),
        });
    }
    add("latency: mean", Unit::Time, &|run| {
        // In a closed loop it is the depth over the rate.
        let waver = run.depth().and_then(|_| rate(run));
        Cell { value: run.latency_ns.mean, waver }
    });
    for of in PERCENTILES {
        add(&format!("latency: {}", of.0), Unit::Time, &|run| {
            percentile(of, run.latency_ns, run.percentiles_within)
        });
    }
    add("latency: p99.999", Unit::Time, &|run| known(run.latency_ns.p99999));
    add("latency: longest", Unit::Time, &|run| known(run.latency_ns.max));
    for (part, reads) in [("reads", true), ("writes", false)] {
        for of in PERCENTILES.into_iter().filter(|of| OF_PARTS.contains(&of.0)) {
            add(&format!("{part}: {}", of.0), Unit::Time, &|run| {
                let cell =
                    |part: Direction| percentile(of, part.latency_ns, part.percentiles_within);
                run.only(reads).map(cell).unwrap_or_default()
            });
        }
    }
    for number in 0..runs.iter().map(|run| run.jobs.len()).max().unwrap_or(0) {
        let of = |get: fn(&Job) -> Option<f64>| {
            move |run: &Run| known(run.jobs.get(number).and_then(get))
        };
        add(&format!("load {number}: IOPS"), Unit::Rate, &of(|job| Some(job.iops)));
        add(&format!("load {number}: mean"), Unit::Time, &of(|job| job.latency_ns.mean));
        add(&format!("load {number}: p99"), Unit::Time, &of(|job| job.latency_ns.p99));
        add(&format!("load {number}: p99.9"), Unit::Time, &of(|job| job.latency_ns.p999));
    }
    add("write amplification", Unit::Ratio, &|run| Cell {
        value: run.write_amplification.map(|w| w.total),
        waver: even(waver(&of_rows(run, |row| row.write_amplification))),
    });
    add("write amplification by bytes", Unit::Ratio, &|run| {
        known(run.write_amplification.and_then(|w| w.of_bytes))
    });
    add("write amplification with parity", Unit::Ratio, &|run| {
        known(run.parity.and_then(|parity| parity.write_amplification))
    });
    add("write amplification with folds", Unit::Ratio, &|run| {
        known(run.slc_cache.and_then(|cache| cache.write_amplification))
    });
    add("processor, a request", Unit::Processor, &|run| known(Some(run.cpu.per_io_ns)));
    all
}

/// What is set differently, by name.
pub(crate) fn settings(runs: &[Run]) -> Vec<Setting> {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (number, run) in runs.iter().enumerate() {
        let mut put = |name: &str, value: String| {
            let values = all.entry(name.to_owned()).or_default();
            values.resize(runs.len(), String::new());
            values[number] = harmless(&value);
        };
        put("version", run.version.clone());
        put("seed", run.seed.to_string());
        flat("drive", &run.drive, &mut put);
        flat("workload", &run.workload, &mut put);
        for (load, job) in run.jobs.iter().enumerate() {
            put(&format!("load {load}.queue"), job.queue.to_string());
            // The first is that of the run.
            if load > 0 {
                flat(&format!("load {load}"), &job.workload, &mut put);
            }
        }
        if run.block_layer["config"].is_object() {
            flat("block_layer", &run.block_layer["config"], &mut put);
        }
    }
    let differs = |values: &[String]| values.iter().any(|value| *value != values[0]);
    all.retain(|_, values| differs(values));
    all.into_iter().map(|(name, values)| Setting { name, values }).collect()
}

/// What stands among the settings of a drive and came of its run.
const RESULTS: [&str; 2] = ["drive.spare_in_effect", "drive.write_amplification_formula"];

/// Gives each value in `value` to `put`, with where it stands.
fn flat(name: &str, value: &Value, put: &mut dyn FnMut(&str, String)) {
    match value {
        _ if RESULTS.contains(&name) => {}
        Value::Object(map) => {
            for (key, value) in map {
                flat(&harmless(&format!("{name}.{key}")), value, put);
            }
        }
        Value::String(text) => put(name, text.clone()),
        Value::Null => put(name, "none".into()),
        other => put(name, other.to_string()),
    }
}

#[cfg(test)]
mod tests;
