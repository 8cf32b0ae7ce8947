//! Pictures of parts over drive time, each on top of those before.
//!
//! A picture has at most [`COLUMNS`] columns for each run: rows that are too many are
//! joined, and what is in them summed.

use std::collections::BTreeMap;

use plotters::prelude::*;

use super::axes::{Axis, seconds, short_count};
use super::bars::REASONS;
use super::keys::{self, Key};
use super::{Area, COLOURS, Drawn, FONT, SIZE};
use crate::comparison::harmless;
use crate::page::bounded;
use crate::run::{Programmed, Row, Run, Tail, TailPart};

/// Columns of a run at most.
const COLUMNS: usize = 200;
/// How high a picture of several runs is for each.
const EACH: u32 = 220;
/// Characters of a cause.
const LONGEST: usize = 40;
/// Causes that are told apart; the last colour is that of all others.
const CAUSES: usize = COLOURS.len() - 1;

/// What is between two times: the parts, from below.
struct Column {
    ends: (f64, f64),
    parts: Vec<f64>,
}

/// Blocks by reason for each of the host's.
pub fn programmed(runs: &[Run]) -> Option<String> {
    let column = |rows: &[Row]| {
        let mut parts = [0.0; REASONS.len()];
        for of in rows.iter().filter_map(|row| row.programmed.as_ref()) {
            parts.iter_mut().zip(Programmed::parts(of)).for_each(|(sum, blocks)| *sum += blocks);
        }
        let user = parts[0];
        let of = |blocks: f64| if user > 0.0 { blocks / user } else { 0.0 };
        parts.map(of).to_vec()
    };
    let told = |run: &Run| run.series.iter().filter(|row| row.programmed.is_some()).count() > 1;
    let stacks = runs.iter().map(|run| if told(run) { joined(run, &column) } else { vec![] });
    let names = REASONS.map(|(reason, _)| reason.to_owned());
    let height = Axis { of: "blocks", text: short_count, labels: 6, ends: None };
    draw(&stacks.collect::<Vec<_>>(), &names, &seconds(runs), &height)
}

/// Where the time of the slowest of each row went.
pub fn tail(runs: &[Run]) -> Option<String> {
    let rows = || runs.iter().flat_map(|run| &run.series);
    let mut all: BTreeMap<String, f64> = BTreeMap::new();
    for part in rows().flat_map(parts_of) {
        *all.entry(name_of(part)).or_default() += part.ns;
    }
    let mut all: Vec<(String, f64)> = all.into_iter().collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut names: Vec<String> = all.into_iter().take(CAUSES).map(|(name, _)| name).collect();
    names.push("all others".into());
    let column = |rows: &[Row]| {
        let mut parts = vec![0.0; names.len()];
        for part in rows.iter().flat_map(parts_of) {
            let name = name_of(part);
            let place = names.iter().position(|one| *one == name).unwrap_or(names.len() - 1);
            parts[place] += part.ns;
        }
        let sum: f64 = parts.iter().sum();
        parts.iter().map(|ns| if sum > 0.0 { 100.0 * ns / sum } else { 0.0 }).collect()
    };
    let told = |run: &Run| run.series.iter().any(|row| row.tail.is_some());
    let stacks = runs.iter().map(|run| if told(run) { joined(run, &column) } else { vec![] });
    let text = |part| format!("{part} %");
    let height = Axis { of: "of their time", text, labels: 6, ends: None };
    draw(&stacks.collect::<Vec<_>>(), &names, &seconds(runs), &height)
}

fn parts_of(row: &Row) -> impl Iterator<Item = &TailPart> {
    row.tail.iter().flat_map(|Tail { parts }| parts)
}

fn name_of(part: &TailPart) -> String {
    let name = match &part.behind {
        Some(behind) => format!("{}, behind {behind}", part.part),
        None => part.part.clone(),
    };
    harmless(&bounded(&name, LONGEST))
}

/// The rows of a run as columns.
fn joined(run: &Run, parts: &dyn Fn(&[Row]) -> Vec<f64>) -> Vec<Column> {
    let each = run.series.len().div_ceil(COLUMNS).max(1);
    let column = |rows: &[Row]| {
        let (first, last) = (&rows[0], &rows[rows.len() - 1]);
        Column { ends: (first.second, last.second + last.seconds), parts: parts(rows) }
    };
    run.series.chunks(each).map(column).collect()
}

/// Draws the stacks of runs, one below the other; none where there is nothing in them.
fn draw(stacks: &[Vec<Column>], names: &[String], time: &Axis, height: &Axis) -> Option<String> {
    let some: Vec<(usize, &Vec<Column>)> =
        (1..).zip(stacks).filter(|(_, stack)| !stack.is_empty()).collect();
    let all = || some.iter().flat_map(|(_, stack)| stack.iter());
    let most = all().map(|column| column.parts.iter().sum::<f64>()).reduce(f64::max)?;
    if most <= 0.0 {
        return None;
    }
    let used = |&part: &usize| all().any(|column| column.parts[part] > 0.0);
    let used: Vec<usize> = (0..names.len()).filter(used).collect();
    let each = if some.len() > 1 { EACH } else { SIZE.1 };
    let pictures = each * some.len() as u32;
    let keys: Vec<Key> = used.iter().map(|&part| (names[part].clone(), COLOURS[part])).collect();
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (SIZE.0, pictures + keys::height(&keys)));
        let (above, below) = area.into_drawing_area().split_vertically(pictures);
        for ((run, stack), area) in some.iter().zip(above.split_evenly((some.len(), 1))) {
            let title = if stacks.len() > 1 { format!("[{run}]") } else { String::new() };
            add(&area, stack, &used, (&title, most), (time, height)).ok()?;
        }
        keys::add(&below, &keys).ok()?;
        above.present().ok()?;
    }
    Some(svg)
}

/// Draws one stack.
fn add(
    area: &Area<'_>,
    stack: &[Column],
    used: &[usize],
    (title, most): (&str, f64),
    (time, height): (&Axis, &Axis),
) -> Drawn {
    let (begin, end) = time.ends.unwrap_or((0.0, 1.0));
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .caption(title, (FONT, 13))
        .x_label_area_size(46)
        .y_label_area_size(82)
        .build_cartesian_2d(begin..end, 0.0..most)?;
    chart
        .configure_mesh()
        .x_desc(time.of)
        .y_desc(height.of)
        .x_labels(time.labels)
        .y_labels(height.labels)
        .x_label_formatter(&|v| (time.text)(*v))
        .y_label_formatter(&|v| (height.text)(*v))
        .disable_mesh()
        .label_style((FONT, 13))
        .axis_desc_style((FONT, 13))
        .draw()?;
    for &part in used {
        let edge = |parts: usize| {
            stack.iter().flat_map(move |column| {
                let at = column.parts[..parts].iter().sum::<f64>();
                [(column.ends.0, at), (column.ends.1, at)]
            })
        };
        let (above, mut below) = (edge(part + 1), edge(part).collect::<Vec<_>>());
        below.reverse();
        let outline: Vec<(f64, f64)> = above.chain(below).collect();
        chart.draw_series([Polygon::new(outline, COLOURS[part].filled())])?;
    }
    Ok(())
}
