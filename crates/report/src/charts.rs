//! Pictures of runs, as SVG.
//!
//! A picture has at most [`POINTS`] points a line, however long the run: rows that
//! are too many are joined, their rates averaged, of percentiles the worst kept.
//! Nothing here fails: what a run has not is left out, and a picture of which
//! nothing is left is not made.

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use plotters::style::RelativeSize;

use crate::comparison::settings;
use crate::run::{Amplification, Row, Run};

/// Points of a line at most.
pub const POINTS: usize = 600;
/// Width and height, in pixels.
const SIZE: (u32, u32) = (860, 380);
/// Of the runs, in turn.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0x1f, 0x77, 0xb4),
    RGBColor(0xd6, 0x2a, 0x28),
    RGBColor(0x2c, 0xa0, 0x2c),
    RGBColor(0xff, 0x7f, 0x0e),
    RGBColor(0x94, 0x67, 0xbd),
    RGBColor(0x8c, 0x56, 0x4b),
    RGBColor(0xe3, 0x77, 0xc2),
    RGBColor(0x17, 0xbe, 0xcf),
];
const FONT: &str = "sans-serif";

/// The colour of a run's number.
fn colour(run: usize) -> RGBColor {
    COLOURS[run % COLOURS.len()]
}

/// A picture.
#[derive(Clone, Debug)]
pub struct Chart {
    /// A word for it, which may name a file.
    pub name: &'static str,
    /// What it shows and how to read it, in a sentence.
    pub caption: &'static str,
    /// The picture.
    pub svg: String,
}

/// All pictures that these runs have something for.
pub fn all(runs: &[Run]) -> Vec<Chart> {
    let charts = [
        ("latency", LATENCY, latency(runs)),
        ("distribution", DISTRIBUTION, distribution(runs)),
        ("rate", RATE, over_time(runs, "requests a second", &[|row| Some(row.iops)], false)),
        ("bands", BANDS, over_time(runs, "latency", &[|row| row.p50, |row| row.p999], true)),
        ("amplification", AMPLIFICATION, amplification(runs)),
        ("over-time", WROTE, over_time(runs, "blocks", &[|row| row.write_amplification], false)),
        ("programmed", PROGRAMMED, stacked::programmed(runs)),
        ("tail", TAIL, stacked::tail(runs)),
        ("dies", DIES, heat::dies(runs)),
        ("wear", WEAR, heat::wear(runs)),
        ("valid", VALID, heat::valid(runs)),
        ("depth", DEPTH, depth(runs)),
    ];
    let made =
        |(name, caption, svg): (_, _, Option<String>)| Some(Chart { name, caption, svg: svg? });
    charts.into_iter().filter_map(made).collect()
}

const LATENCY: &str = "Latency that so many of all requests stay below. Both scales are \
    logarithmic: each step to the right leaves a tenth of the requests.";
const DISTRIBUTION: &str =
    "How latencies lie: the share of requests in each eighth of a power of two.";
const RATE: &str = "Requests a second over drive time.";
const BANDS: &str = "Latency over drive time: the median, and dashed the 99.9th percentile.";
const AMPLIFICATION: &str = "Blocks programmed for each that the host wrote, by reason.";
const WROTE: &str = "Blocks programmed for each that the host wrote, over drive time.";
const PROGRAMMED: &str = "The same by reason. Parity and folds of an SLC cache are on top of \
    it: they are not in the figures of write amplification.";
const TAIL: &str = "What the slowest requests of each row waited for, sixteen a row: the \
    shares of their time.";
const DIES: &str = "How busy dies were, by group and unit over drive time: the part of the \
    time in which the array of each worked.";
const WEAR: &str = "Erases of each chunk at the end: of each die, by group and unit, a line.";
const VALID: &str = "What is valid in each chunk at the end: of each die a line, as above.";
const DEPTH: &str = "Requests a second by how many are outstanding, all else being the same.";

/// A line, and whose it is.
struct Line {
    run: usize,
    is_dashed: bool,
    points: Vec<(f64, f64)>,
}

/// An axis: what it is of and how its numbers are written.
struct Axis {
    of: &'static str,
    text: fn(f64) -> String,
    /// Numbers at most.
    labels: usize,
}

const TIME: Axis = Axis { of: "latency", text: short_time, labels: 7 };
const SECONDS: Axis = Axis { of: "drive time", text: |s| short_time(s * 1e9), labels: 10 };

/// Without more digits than an axis needs.
fn short_time(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns >= 1e9 => (ns / 1e9, "s"),
        ns if ns >= 1e6 => (ns / 1e6, "ms"),
        ns if ns >= 1e3 => (ns / 1e3, "us"),
        ns => (ns, "ns"),
    };
    format!("{} {unit}", (value * 100.0).round() / 100.0)
}

fn short_count(n: f64) -> String {
    let (value, unit) = match n {
        n if n >= 1e6 => (n / 1e6, " M"),
        n if n >= 1e3 => (n / 1e3, " k"),
        n => (n, ""),
    };
    format!("{}{unit}", (value * 100.0).round() / 100.0)
}

/// What part of all is beyond, as a number of tenths: 2 is 99 %.
fn nines(beyond: f64) -> f64 {
    -beyond.log10()
}

fn percent_of(nines: f64) -> String {
    let percent = 100.0 * (1.0 - 10f64.powf(-nines));
    let digits = (nines - 2.0).round().max(0.0) as usize;
    format!("{percent:.digits$} %")
}

fn latency(runs: &[Run]) -> Option<String> {
    let line = |(run, of): (usize, &Run)| {
        let all = of.latency_ns.n as f64;
        let longest = of.latency_ns.max.unwrap_or(f64::MAX);
        let mut left = of.latency_ns.n;
        let mut points = Vec::new();
        for (&below, &n) in of.distribution.below_ns.iter().zip(&of.distribution.n) {
            let at = (below as f64).min(longest);
            points.push((nines(left as f64 / all), at));
            left -= n;
            // The longest of n is at one in n.
            points.push((nines(left.max(1) as f64 / all), at));
        }
        Line { run, is_dashed: false, points }
    };
    let lines = runs.iter().enumerate().map(line).collect();
    // A mark for each nine.
    let most = runs.iter().map(|run| run.latency_ns.n).max()?.max(1);
    let labels = most.ilog10() as usize + 2;
    let share = Axis { of: "of all requests", text: percent_of, labels };
    draw(&keys(runs), lines, share, TIME, Scale::LogY)
}

fn distribution(runs: &[Run]) -> Option<String> {
    let line = |(run, of): (usize, &Run)| {
        let all = of.latency_ns.n as f64;
        let share = |(&below, &n): (&u64, &u64)| (below as f64, 100.0 * n as f64 / all);
        let mut points = Vec::new();
        let mut before = 0.0;
        for (below, share) in of.distribution.below_ns.iter().zip(&of.distribution.n).map(share) {
            // An eighth of its power of two, or 1 ns.
            let width = 2f64.powf(below.log2().ceil() - 4.0).max(1.0);
            let begin = (below - width).max(before).max(1.0);
            if begin > before && before > 0.0 {
                points.extend([(before, 0.0), (begin, 0.0)]);
            }
            points.extend([(begin, share), (below, share)]);
            before = below;
        }
        points.extend(points.last().map(|&(x, _)| (x, 0.0)));
        Line { run, is_dashed: false, points }
    };
    let lines = runs.iter().enumerate().map(line).collect();
    let share = Axis { of: "of all requests", text: |p| format!("{p} %"), labels: 7 };
    draw(&keys(runs), lines, TIME, share, Scale::LogX)
}

/// What of a row is drawn.
type Get = fn(&Row) -> Option<f64>;

fn over_time(runs: &[Run], of: &'static str, gets: &[Get], is_latency: bool) -> Option<String> {
    let lines = |(run, one): (usize, &Run)| {
        let line = move |(i, get): (usize, &Get)| {
            let points = joined(&one.series, *get, is_latency);
            Line { run, is_dashed: i > 0, points }
        };
        gets.iter().enumerate().map(line).collect::<Vec<_>>()
    };
    let lines: Vec<Line> = runs.iter().enumerate().flat_map(lines).collect();
    // A row alone says no more than the table.
    if lines.iter().all(|line| line.points.len() < 2) {
        return None;
    }
    let (text, scale): (fn(f64) -> String, _) =
        if is_latency { (short_time, Scale::LogY) } else { (short_count, Scale::FromZero) };
    draw(&keys(runs), lines, SECONDS, Axis { of, text, labels: 7 }, scale)
}

/// Rows as points in their middles, neighbours joined where they are too many: into
/// their mean, or the `worst` of them.
fn joined(rows: &[Row], get: Get, worst: bool) -> Vec<(f64, f64)> {
    let each = rows.len().div_ceil(POINTS).max(1);
    let point = |rows: &[Row]| {
        let values: Vec<f64> = rows.iter().filter_map(get).collect();
        let (first, last) = (rows.first()?, rows.last()?);
        let at = (first.second + last.second + last.seconds) / 2.0;
        let value = match worst {
            true => values.iter().copied().reduce(f64::max)?,
            false if values.is_empty() => return None,
            false => values.iter().sum::<f64>() / values.len() as f64,
        };
        Some((at, value))
    };
    rows.chunks(each).filter_map(point).collect()
}

/// Settings that runs of one line may differ in.
const OF_A_LINE: [&str; 4] = ["workload.qd", "workload.threads", "seed", "version"];

/// Requests a second by depth, where runs differ in nothing else and are at three depths
/// or more.
fn depth(runs: &[Run]) -> Option<String> {
    if settings(runs).iter().any(|setting| !OF_A_LINE.contains(&setting.name.as_str())) {
        return None;
    }
    let mut points: Vec<(f64, f64)> =
        runs.iter().filter_map(|run| Some((run.depth()?, run.iops))).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut depths: Vec<f64> = points.iter().map(|point| point.0).collect();
    depths.dedup();
    if depths.len() < 3 {
        return None;
    }
    let outstanding = Axis { of: "outstanding", text: |n| format!("{n}"), labels: 7 };
    let rate = Axis { of: "requests a second", text: short_count, labels: 7 };
    let line = Line { run: 0, is_dashed: false, points };
    draw(&[], vec![line], outstanding, rate, Scale::LogX)
}

/// How runs are named in a picture: by their numbers, and one alone by none.
fn keys(runs: &[Run]) -> Vec<String> {
    let all = 1..=runs.len();
    all.map(|run| format!("[{run}]")).filter(|_| runs.len() > 1).collect()
}

/// Lines of anything, to be drawn.
#[derive(Clone, Debug)]
pub struct Plot {
    /// What it shows.
    pub caption: String,
    /// What lies along it, and how its numbers are written.
    pub along: (&'static str, fn(f64) -> String),
    /// What its height is, and how its numbers are written.
    pub height: (&'static str, fn(f64) -> String),
    /// Whether its height is logarithmic.
    pub is_log: bool,
    /// Its lines, with their names.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
}

impl Plot {
    /// Its picture; none where it has no line of two points.
    pub fn svg(&self) -> Option<String> {
        plot(self)
    }
}

/// The picture of a plot; none where it has no line of two points.
pub(crate) fn plot(plot: &Plot) -> Option<String> {
    let mut lines = Vec::new();
    for (run, (_, points)) in plot.lines.iter().enumerate() {
        // Of too many points some are left out.
        let each = points.len().div_ceil(POINTS).max(1);
        let points = points.iter().copied().step_by(each).collect();
        lines.push(Line { run, is_dashed: false, points });
    }
    if lines.iter().all(|line| line.points.len() < 2) {
        return None;
    }
    let names: Vec<String> = plot.lines.iter().map(|(name, _)| name.clone()).collect();
    let axis = |(of, text)| Axis { of, text, labels: 8 };
    let scale = if plot.is_log { Scale::LogY } else { Scale::FromZero };
    draw(&names, lines, axis(plot.along), axis(plot.height), scale)
}

/// Which axes are logarithmic, and whether the other begins at zero.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scale {
    LogY,
    LogX,
    FromZero,
}

/// The ends of an axis; `None` where there is nothing. Logarithmic ones begin at 1,
/// and none is so short beside its numbers that its marks would be the same.
fn span(values: impl Iterator<Item = f64>, log: bool) -> Option<(f64, f64)> {
    let ends = |ends: Option<(f64, f64)>, x: f64| {
        let (least, most) = ends.unwrap_or((x, x));
        Some((least.min(x), most.max(x)))
    };
    let (least, most) = values.fold(None, ends)?;
    if log {
        let least = least.max(1.0);
        return Some((least / 1.25, most.max(least) * 1.25));
    }
    let shortest = (most / 1e3).max(1e-9);
    Some((least, if most - least < shortest { least + shortest } else { most }))
}

fn draw(names: &[String], mut lines: Vec<Line>, x: Axis, y: Axis, scale: Scale) -> Option<String> {
    let (log_x, log_y) = (scale == Scale::LogX, scale == Scale::LogY);
    let all = || lines.iter().flat_map(|line| line.points.iter().copied());
    let (left, right) = span(all().map(|p| p.0), log_x)?;
    let (mut low, mut high) = span(all().map(|p| p.1), log_y)?;
    if !log_y {
        (low, high) = (0.0, high.max(1e-6) * 1.06);
    }
    for line in &mut lines {
        line.points.retain(|&(x, y)| x >= left && y >= low);
    }
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        match scale {
            Scale::LogX => {
                let ends = ((left..right).log_scale(), low..high);
                fill(&area, ends, names, &lines, (&x, &y))
            }
            Scale::LogY => {
                let ends = (left..right, (low..high).log_scale());
                fill(&area, ends, names, &lines, (&x, &y))
            }
            Scale::FromZero => fill(&area, (left..right, low..high), names, &lines, (&x, &y)),
        }
        .ok()?;
        area.present().ok()?;
    }
    Some(svg)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Draws axes and lines.
fn fill<X, Y>(
    area: &Area<'_>,
    (x_ends, y_ends): (X, Y),
    names: &[String],
    lines: &[Line],
    (x, y): (&Axis, &Axis),
) -> Drawn
where
    X: AsRangedCoord<Value = f64>,
    Y: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(46)
        .y_label_area_size(82)
        .build_cartesian_2d(x_ends, y_ends)?;
    chart
        .configure_mesh()
        .x_desc(x.of)
        .y_desc(y.of)
        .x_labels(x.labels)
        .y_labels(8)
        .x_label_formatter(&|v| (x.text)(*v))
        .y_label_formatter(&|v| (y.text)(*v))
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(0xdd, 0xdd, 0xdd))
        .label_style((FONT, 13))
        .axis_desc_style((FONT, 13))
        .draw()?;
    for line in lines {
        let style = colour(line.run).stroke_width(2);
        let points = line.points.iter().copied();
        let drawn = match line.is_dashed {
            true => chart.draw_series(DashedLineSeries::new(points, 5, 4, style))?,
            false => chart.draw_series(LineSeries::new(points, style))?,
        };
        if let Some(name) = names.get(line.run).filter(|_| !line.is_dashed) {
            let key = move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style);
            drawn.label(name).legend(key);
        }
    }
    if !names.is_empty() {
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .background_style(WHITE.mix(0.8))
            .border_style(RGBColor(0xdd, 0xdd, 0xdd))
            .label_font((FONT, 13))
            .draw()?;
    }
    Ok(())
}

/// Why blocks are programmed, and the colour of each.
const REASONS: [(&str, RGBColor); 6] = [
    ("the host's", COLOURS[0]),
    ("collection", COLOURS[1]),
    ("padding", COLOURS[2]),
    ("metadata", COLOURS[3]),
    ("parity", COLOURS[4]),
    ("folds", COLOURS[5]),
];

/// Bars of the reasons, one for each run.
fn amplification(runs: &[Run]) -> Option<String> {
    let of = |(run, one): (usize, &Run)| Some((run, one.write_amplification?));
    let bars: Vec<_> = runs.iter().enumerate().filter_map(of).collect();
    if bars.is_empty() {
        return None;
    }
    let sum = |w: &Amplification| w.user + w.gc + w.padding + w.metadata;
    let most = bars.iter().map(|(_, w)| sum(w)).fold(0.0, f64::max);
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        bar_chart(&area, runs.len(), &bars, most).ok()?;
        area.present().ok()?;
    }
    Some(svg)
}

fn bar_chart(area: &Area<'_>, runs: usize, bars: &[(usize, Amplification)], most: f64) -> Drawn {
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(46)
        .y_label_area_size(RelativeSize::Width(0.1))
        .build_cartesian_2d(0.0..most.max(1.0) * 1.3, 0.0..runs as f64)?;
    let name = |y: &f64| {
        let run = runs as f64 - y;
        if (run - run.round()).abs() > 0.4 {
            format!("[{}]", run.floor() as u64 + 1)
        } else {
            "".into()
        }
    };
    chart
        .configure_mesh()
        .x_desc("blocks for each of the host's")
        .x_label_formatter(&|v| short_count(*v))
        .y_label_formatter(&name)
        .y_labels(2 * runs + 1)
        .disable_y_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(0xdd, 0xdd, 0xdd))
        .label_style((FONT, 13))
        .axis_desc_style((FONT, 13))
        .draw()?;
    for (number, (reason, colour)) in REASONS.into_iter().take(4).enumerate() {
        let bar = |(run, w): &(usize, Amplification)| {
            let parts = [w.user, w.gc, w.padding, w.metadata];
            let begin: f64 = parts[..number].iter().sum();
            let top = (runs - run) as f64;
            Rectangle::new(
                [(begin, top - 0.8), (begin + parts[number], top - 0.2)],
                colour.filled(),
            )
        };
        chart
            .draw_series(bars.iter().map(bar))?
            .label(reason)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(RGBColor(0xdd, 0xdd, 0xdd))
        .label_font((FONT, 13))
        .draw()?;
    Ok(())
}

mod heat;
mod stacked;
#[cfg(test)]
mod tests;
