//! Pictures of runs, as SVG.
//!
//! A picture has at most [`POINTS`] points a line, however long the run: rows that
//! are too many are joined, their rates averaged, of percentiles the worst kept.
//! Nothing here fails: what a run has not is left out, and a picture of which
//! nothing is left is not made.

use plotters::coord::Shift;
use plotters::coord::combinators::BindKeyPoints;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

use self::axes::{Axis, TIME, nines, percent_of, seconds, short_count, short_time, span, ticks};
use self::keys::Key;
use crate::comparison::settings;
use crate::page::{LONGEST, bounded, text};
use crate::run::{Row, Run};

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
/// Runs that a picture tells apart.
pub const RUNS: usize = COLOURS.len();
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
    /// What it shows and how to read it, in whole sentences.
    pub caption: String,
    /// The picture.
    pub svg: String,
}

/// All pictures that these runs have something for.
pub fn all(runs: &[Run]) -> Vec<Chart> {
    let rate: Get = |row| Some(row.iops);
    let charts = [
        ("latency", latency(runs)),
        ("distribution", distribution(runs)),
        ("rate", over_time(runs, "requests a second", &[rate], false)),
        ("bands", over_time(runs, "latency", &[|row| row.p50, |row| row.p999], true)),
        ("amplification", bars::amplification(runs)),
        ("over-time", over_time(runs, "blocks", &[|row| row.write_amplification], false)),
        ("programmed", stacked::programmed(runs)),
        ("tail", stacked::tail(runs)),
        ("dies", heat::dies(runs)),
        ("wear", heat::wear(runs)),
        ("valid", heat::valid(runs)),
        ("depth", depth(runs)),
    ];
    let made = |(name, svg): (&'static str, Option<String>)| {
        let caption = captions::of(name, runs);
        Some(Chart { name, svg: titled(&svg?, &caption), caption })
    };
    charts.into_iter().filter_map(made).collect()
}

/// A picture that says what it is to those who do not see it, and to those who point at it.
fn titled(svg: &str, caption: &str) -> String {
    let title = text(&bounded(caption, LONGEST));
    svg.replacen('>', &format!("><title>{title}</title>"), 1)
}

/// A line, and whose it is. It is broken between its pieces.
struct Line {
    run: usize,
    is_dashed: bool,
    pieces: Vec<Vec<(f64, f64)>>,
}

impl Line {
    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.pieces.iter().flatten().copied()
    }
}

/// Requests that must be beyond a point of the latencies: of fewer a percentile is not told.
const BEYOND: u64 = 10;

fn latency(runs: &[Run]) -> Option<String> {
    let two = |(run, of): (usize, &Run)| {
        let all = of.latency_ns.n as f64;
        let longest = of.latency_ns.max.unwrap_or(f64::MAX);
        let mut left = of.latency_ns.n;
        let (mut sure, mut few) = (Vec::new(), Vec::new());
        for (&below, &n) in of.distribution.below_ns.iter().zip(&of.distribution.n) {
            let at = (below as f64).min(longest);
            let point = |left: u64| (nines(left as f64 / all), at);
            if few.is_empty() {
                sure.push(point(left));
            }
            // It goes on from where so many are left, which may be amid these.
            let first = few.is_empty().then(|| point(left.min(BEYOND)));
            left -= n;
            if left >= BEYOND {
                sure.push(point(left));
                continue;
            }
            if let Some(first) = first {
                sure.push(first);
                few.push(first);
            } else {
                few.push(point(left + n));
            }
            // The longest of n is at one in n.
            few.push(point(left.max(1)));
        }
        let line = |is_dashed, points| Line { run, is_dashed, pieces: vec![points] };
        [line(false, sure), line(true, few)]
    };
    let lines = runs.iter().enumerate().flat_map(two).collect();
    // A mark for each nine.
    let most = runs.iter().map(|run| run.latency_ns.n).max()?.max(1);
    let labels = most.ilog10() as usize + 2;
    let share = Axis { of: "of all requests", text: percent_of, labels, ends: None };
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
        Line { run, is_dashed: false, pieces: vec![points] }
    };
    let lines = runs.iter().enumerate().map(line).collect();
    let share = Axis { of: "of all requests", text: |p| format!("{p} %"), labels: 7, ends: None };
    draw(&keys(runs), lines, TIME, share, Scale::LogX)
}

/// What of a row is drawn.
type Get = fn(&Row) -> Option<f64>;

fn over_time(runs: &[Run], of: &'static str, gets: &[Get], is_latency: bool) -> Option<String> {
    let lines = |(run, one): (usize, &Run)| {
        let line = move |(i, get): (usize, &Get)| {
            let pieces = joined(&one.series, *get, is_latency);
            Line { run, is_dashed: i > 0, pieces }
        };
        gets.iter().enumerate().map(line).collect::<Vec<_>>()
    };
    let lines: Vec<Line> = runs.iter().enumerate().flat_map(lines).collect();
    // A row alone says no more than the table.
    if lines.iter().all(|line| line.points().count() < 2) {
        return None;
    }
    let (text, scale): (fn(f64) -> String, _) =
        if is_latency { (short_time, Scale::LogY) } else { (short_count, Scale::FromZero) };
    draw(&keys(runs), lines, seconds(runs), Axis { of, text, labels: 7, ends: None }, scale)
}

/// Rows as points in their middles, neighbours joined where they are too many: into
/// their mean, or the `worst` of them. A piece ends where no request did, and where there
/// is no figure.
fn joined(rows: &[Row], get: Get, worst: bool) -> Vec<Vec<(f64, f64)>> {
    let each = rows.len().div_ceil(POINTS).max(1);
    let point = |rows: &[Row]| {
        if rows.iter().all(|row| row.iops <= 0.0) {
            return None;
        }
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
    let points: Vec<Option<(f64, f64)>> = rows.chunks(each).map(point).collect();
    let pieces = points.split(Option::is_none).filter(|piece| !piece.is_empty());
    pieces.map(|piece| piece.iter().flatten().copied().collect()).collect()
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
    let outstanding = Axis { of: "outstanding", text: |n| format!("{n}"), labels: 7, ends: None };
    let rate = Axis { of: "requests a second", text: short_count, labels: 7, ends: None };
    let line = Line { run: 0, is_dashed: false, pieces: vec![points] };
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
        lines.push(Line { run, is_dashed: false, pieces: vec![points] });
    }
    if lines.iter().all(|line| line.points().count() < 2) {
        return None;
    }
    let names: Vec<String> = plot.lines.iter().map(|(name, _)| name.clone()).collect();
    let axis = |(of, text)| Axis { of, text, labels: 8, ends: None };
    let scale = if plot.is_log { Scale::LogY } else { Scale::FromZero };
    let svg = draw(&names, lines, axis(plot.along), axis(plot.height), scale)?;
    Some(titled(&svg, &plot.caption))
}

/// Which axes are logarithmic, and whether the other begins at zero.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scale {
    LogY,
    LogX,
    FromZero,
}

fn draw(names: &[String], mut lines: Vec<Line>, x: Axis, y: Axis, scale: Scale) -> Option<String> {
    let (log_x, log_y) = (scale == Scale::LogX, scale == Scale::LogY);
    let all = || lines.iter().flat_map(Line::points);
    let (left, right) = x.ends.or(span(all().map(|p| p.0), log_x)).filter(|_| all().count() > 0)?;
    let (mut low, mut high) = span(all().map(|p| p.1), log_y)?;
    if !log_y {
        (low, high) = (0.0, high.max(1e-6) * 1.06);
    }
    for piece in lines.iter_mut().flat_map(|line| &mut line.pieces) {
        piece.retain(|&(x, y)| x >= left && y >= low);
    }
    let keys: Vec<Key> = names.iter().cloned().zip((0..).map(colour)).collect();
    let mut svg = String::new();
    {
        let size = (SIZE.0, SIZE.1 + keys::height(&keys));
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        let (above, below) = area.split_vertically(SIZE.1);
        let log = |low: f64, high: f64| (low..high).log_scale().with_key_points(ticks(low, high));
        match scale {
            Scale::LogX => fill(&above, (log(left, right), low..high), &lines, (&x, &y)),
            Scale::LogY => fill(&above, (left..right, log(low, high)), &lines, (&x, &y)),
            Scale::FromZero => fill(&above, (left..right, low..high), &lines, (&x, &y)),
        }
        .ok()?;
        keys::add(&below, &keys).ok()?;
        above.present().ok()?;
    }
    Some(svg)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Draws axes and lines.
fn fill<X, Y>(
    area: &Area<'_>,
    (x_ends, y_ends): (X, Y),
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
        for piece in &line.pieces {
            let points = piece.iter().copied();
            match line.is_dashed {
                // Of one point there is no line.
                _ if piece.len() == 1 => {
                    chart.draw_series(points.map(|point| Circle::new(point, 3, style.filled())))?
                }
                true => chart.draw_series(DashedLineSeries::new(points, 5, 4, style))?,
                false => chart.draw_series(LineSeries::new(points, style))?,
            };
        }
    }
    Ok(())
}

mod axes;
mod bars;
mod captions;
mod heat;
mod keys;
mod stacked;
#[cfg(test)]
mod tests;
