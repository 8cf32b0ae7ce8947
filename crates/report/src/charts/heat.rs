//! Pictures of many cells in lines: dies over time, chunks of dies.
//!
//! A picture has at most [`CELLS`] cells, whatever it is of: neighbours are joined where
//! they are too many, into their mean.

use std::fmt::Write;

use super::axes::{end, short_count, short_time};
use super::{FONT, SIZE};
use crate::maps::{Chunks, Dies, State};
use crate::page::text;
use crate::run::Run;

/// Cells of a picture at most, and lines of one run.
pub const CELLS: usize = 16_384;
const LINES: usize = 128;
/// Shades from least to most.
const SHADES: usize = 10;
/// Colours of chunks that have no shade.
const FREE: &str = "#ffffff";
const OPEN: &str = "#ff7f0e";
const OFFLINE: &str = "#d62a28";
/// Of which nobody says how much is valid.
pub const CLOSED: &str = "#8c8c8c";
/// Left of the cells are names of lines, and right of them nothing.
const LEFT: u32 = 82;
const RIGHT: u32 = 12;
const GREY: &str = "#999999";

/// The colour of a shade; the lightest is no white, which is for what is free.
pub fn shade(of: usize) -> String {
    let (light, dark) = ([0xc6, 0xdb, 0xef], [0x08, 0x30, 0x6b]);
    let at = |i: usize| light[i] + (dark[i] - light[i]) * of as i32 / (SHADES as i32 - 1);
    format!("#{:02x}{:02x}{:02x}", at(0), at(1), at(2))
}

/// A figure from `least` to `most` as a shade.
fn shade_of(x: f64, (least, most): (f64, f64)) -> String {
    let part = if most > least { (x - least) / (most - least) } else { 0.0 };
    shade(((part * SHADES as f64) as usize).min(SHADES - 1))
}

/// Cells of one run.
struct Map {
    /// Their colours, line by line.
    lines: Vec<Vec<String>>,
    /// What lines are called.
    names: Vec<String>,
    /// What is at the left and the right end.
    ends: [String; 2],
    /// What part of the width it has.
    part: f64,
}

/// A colour, and what it means.
type Key = (String, String);

/// How busy dies were.
pub fn dies(runs: &[Run]) -> Option<String> {
    let told: Vec<Option<Busy>> = runs.iter().map(|run| busy(run.dies.as_ref()?, runs)).collect();
    let cells = || told.iter().flatten().flat_map(|busy| busy.lines.iter().flatten().copied());
    // Where planes count each there may be more than all of the time.
    let most = cells().fold(100.0, f64::max);
    let map = |Busy { lines, names, end: at }: Busy| {
        let shades = |line: &Vec<f64>| line.iter().map(|&of| shade_of(of, (0.0, most))).collect();
        let lines = lines.iter().map(shades).collect();
        let ends = ["0 s".into(), short_time(at * 1e9)];
        Map { lines, names, ends, part: (at / end(runs)).clamp(0.02, 1.0) }
    };
    let maps: Vec<Option<Map>> = told.into_iter().map(|busy| busy.map(map)).collect();
    draw(&maps, &shades("of the time: 0 %", &format!("{most:.0} %")))
}

/// How busy the dies of a run were, in as many lines and cells as are drawn.
struct Busy {
    lines: Vec<Vec<f64>>,
    names: Vec<String>,
    /// In seconds.
    end: f64,
}

fn busy(dies: &Dies, runs: &[Run]) -> Option<Busy> {
    let (lines, firsts) = joined(&evened(dies), room(runs), mean);
    Some(Busy { lines, names: names(&firsts, dies.pus), end: *dies.ends.last()? })
}

/// How busy dies were in as many spans as there are, all as long: those that were looked at
/// ended when requests did.
fn evened(dies: &Dies) -> Vec<Vec<f64>> {
    let (count, end) = (dies.ends.len(), dies.ends.last().copied().unwrap_or_default());
    let spans = || std::iter::once(0.0).chain(dies.ends.iter().copied()).zip(&dies.ends);
    let even = |line: &Vec<f64>, at: usize| {
        let of = |part: usize| end * part as f64 / count as f64;
        let (from, to) = (of(at), of(at + 1));
        let inside = |((begin, &end), &busy)| (f64::min(end, to) - f64::max(begin, from), busy);
        let parts = spans().zip(line).map(inside).filter(|part| part.0 > 0.0);
        let (time, busy) = parts.fold((0.0, 0.0), |sum, (t, busy)| (sum.0 + t, sum.1 + t * busy));
        if time > 0.0 { busy / time } else { line[at] }
    };
    dies.busy.iter().map(|line| (0..count).map(|at| even(line, at)).collect()).collect()
}

/// How worn chunks are.
pub fn wear(runs: &[Run]) -> Option<String> {
    let all = || runs.iter().filter_map(|run| run.chunks.as_ref());
    let cells = || all().flat_map(|chunks| chunks.erases.iter().flatten().copied());
    let ends = (cells().reduce(f64::min)?, cells().reduce(f64::max)?);
    let map = |chunks: &Chunks| {
        let cells = |die: usize, at: usize| {
            let is_offline = chunks.states[die][at] == State::Offline;
            (chunks.erases[die][at], is_offline)
        };
        let colour = |of: &[(f64, bool)]| {
            let worn: Vec<f64> = of.iter().filter(|cell| !cell.1).map(|cell| cell.0).collect();
            if 2 * worn.len() < of.len() { OFFLINE.into() } else { shade_of(mean(&worn), ends) }
        };
        of_chunks(chunks, cells, colour, room(runs))
    };
    let maps: Vec<Option<Map>> = runs.iter().map(|run| run.chunks.as_ref().map(map)).collect();
    let least = format!("erases: {}", short_count(ends.0));
    let mut keys = match ends.0 < ends.1 {
        true => shades(&least, &short_count(ends.1)),
        false => vec![(shade(0), least)],
    };
    let offline = |chunks: &Chunks| chunks.states.iter().flatten().any(|&s| s == State::Offline);
    if all().any(offline) {
        keys.push((OFFLINE.into(), "offline".into()));
    }
    draw(&maps, &keys)
}

/// What is valid in chunks; where that is not told, their states alone.
pub fn valid(runs: &[Run]) -> Option<String> {
    let map = |chunks: &Chunks| {
        let valid = chunks.valid.as_ref();
        let cells =
            |die: usize, at: usize| (valid.map(|valid| valid[die][at]), chunks.states[die][at]);
        of_chunks(chunks, cells, of_state, room(runs))
    };
    let maps: Vec<Option<Map>> = runs.iter().map(|run| run.chunks.as_ref().map(map)).collect();
    let all = || runs.iter().filter_map(|run| run.chunks.as_ref());
    let is_told = all().any(|chunks| chunks.valid.is_some());
    let mut keys = if is_told { shades("valid: 0 %", "100 %") } else { vec![] };
    let named = [(FREE, "free"), (OPEN, "open"), (OFFLINE, "offline"), (CLOSED, "closed")];
    let is_there = |colour: &str| {
        maps.iter().flatten().flat_map(|map| map.lines.iter().flatten()).any(|cell| cell == colour)
    };
    let named = named.into_iter().filter(|(colour, _)| is_there(colour));
    keys.extend(named.map(|(colour, name)| (colour.into(), name.into())));
    draw(&maps, &keys)
}

/// The colour of chunks: of the state that most have, and of closed ones how much is valid.
fn of_state(of: &[(Option<f64>, State)]) -> String {
    let most = |state: State| 2 * of.iter().filter(|cell| cell.1 == state).count() > of.len();
    let valid: Vec<f64> = of.iter().filter_map(|cell| cell.0).collect();
    match () {
        () if most(State::Free) => FREE.into(),
        () if most(State::Open) => OPEN.into(),
        () if most(State::Offline) => OFFLINE.into(),
        () if valid.is_empty() => CLOSED.into(),
        () => shade_of(mean(&valid), (0.0, 100.0)),
    }
}

/// A map of chunks, of which `cell` gives what each is and `colour` that of some.
fn of_chunks<C: Copy>(
    chunks: &Chunks,
    cell: impl Fn(usize, usize) -> C,
    colour: impl Fn(&[C]) -> String,
    room: usize,
) -> Map {
    let (dies, each) = (chunks.states.len(), chunks.states.first().map_or(0, Vec::len));
    let lines: Vec<Vec<C>> =
        (0..dies).map(|die| (0..each).map(|at| cell(die, at)).collect()).collect();
    let (lines, firsts) = joined(&lines, room, colour);
    let last = (each as u64).saturating_mul(chunks.each).saturating_sub(1);
    let ends = ["chunk 0".into(), format!("chunk {last}")];
    Map { lines, names: names(&firsts, chunks.pus), ends, part: 1.0 }
}

/// Cells of each run at most.
fn room(runs: &[Run]) -> usize {
    CELLS / runs.len().max(1)
}

fn mean(of: &[f64]) -> f64 {
    of.iter().sum::<f64>() / of.len().max(1) as f64
}

/// Neighbours as one where there are more lines than [`LINES`], or more cells than there
/// is room for. Gives the number of the first of each line, too.
fn joined<C: Copy, J>(
    lines: &[Vec<C>],
    room: usize,
    join: impl Fn(&[C]) -> J,
) -> (Vec<Vec<J>>, Vec<usize>) {
    let high = lines.len().div_ceil(LINES).max(1);
    let rows = lines.len().div_ceil(high).max(1);
    let columns = (room / rows).max(1);
    let all = lines.first().map_or(0, Vec::len);
    let wide = all.div_ceil(columns).max(1);
    let line = |lines: &[Vec<C>]| {
        let cell = |begin: usize| {
            let of = lines.iter().flat_map(|line| line.iter().skip(begin).take(wide));
            join(&of.copied().collect::<Vec<C>>())
        };
        (0..all).step_by(wide).map(cell).collect()
    };
    (lines.chunks(high).map(line).collect(), (0..lines.len()).step_by(high).collect())
}

/// What dies are called: group and unit.
fn names(dies: &[usize], pus: u64) -> Vec<String> {
    let pus = pus.max(1);
    dies.iter().map(|&die| format!("{}/{}", die as u64 / pus, die as u64 % pus)).collect()
}

/// A key of all shades.
fn shades(least: &str, most: &str) -> Vec<Key> {
    let name = |of: usize| match of {
        0 => least.to_owned(),
        of if of == SHADES - 1 => most.to_owned(),
        _ => String::new(),
    };
    (0..SHADES).map(|of| (shade(of), name(of))).collect()
}

/// Draws the maps of runs, one below the other; none where no run has one.
fn draw(maps: &[Option<Map>], keys: &[Key]) -> Option<String> {
    let is_any = |map: &Map| map.lines.first().is_some_and(|line| !line.is_empty());
    let some: Vec<(usize, &Map)> = (1..)
        .zip(maps)
        .filter_map(|(run, map)| Some((run, map.as_ref().filter(|map| is_any(map))?)))
        .collect();
    if some.is_empty() {
        return None;
    }
    let mut body = String::new();
    let mut top = 12;
    for (run, map) in some {
        if maps.len() > 1 {
            label(&mut body, (LEFT, top + 12), "start", &format!("[{run}]"));
            top += 18;
        }
        top = add(&mut body, map, top);
    }
    add_keys(&mut body, keys, top + 8);
    let (wide, high) = (SIZE.0, top + 8 + 30);
    Some(format!(
        "<svg width=\"{wide}\" height=\"{high}\" viewBox=\"0 0 {wide} {high}\" \
         xmlns=\"http://www.w3.org/2000/svg\" font-family=\"{FONT}\" font-size=\"13\">\n\
         <rect x=\"0\" y=\"0\" width=\"{wide}\" height=\"{high}\" fill=\"#ffffff\"/>\n{body}</svg>\n"
    ))
}

/// Draws one map from `top` on. Gives where it ends.
fn add(out: &mut String, map: &Map, top: u32) -> u32 {
    let (lines, columns) = (map.lines.len() as u32, map.lines[0].len());
    let each = (240 / lines).clamp(3, 24);
    let wide = (f64::from(SIZE.0 - LEFT - RIGHT) * map.part).round() as u32;
    let high = lines * each;
    let across = f64::from(wide) / columns as f64;
    let _ = writeln!(
        out,
        "<g transform=\"translate({LEFT} {top}) scale({across:.4} {each})\" \
         shape-rendering=\"crispEdges\">"
    );
    for (colour, path) in paths(&map.lines) {
        let _ = writeln!(out, "<path fill=\"{colour}\" d=\"{path}\"/>");
    }
    let _ = writeln!(
        out,
        "</g><rect x=\"{LEFT}\" y=\"{top}\" width=\"{wide}\" height=\"{high}\" fill=\"none\" \
         stroke=\"{GREY}\"/>"
    );
    // Names no closer than they are high.
    let every = (16_u32.div_ceil(each) as usize).max(map.names.len().div_ceil(16));
    for (n, name) in map.names.iter().enumerate().step_by(every) {
        let middle = top + n as u32 * each + each / 2 + 4;
        label(out, (LEFT - 6, middle), "end", name);
    }
    let below = top + high + 15;
    label(out, (LEFT, below), "start", &map.ends[0]);
    // Not over the one on the left.
    label(out, (LEFT + wide.max(100), below), "end", &map.ends[1]);
    below + 9
}

/// Of each colour its cells, neighbours in a line as one.
fn paths(lines: &[Vec<String>]) -> std::collections::BTreeMap<&str, String> {
    let mut all = std::collections::BTreeMap::new();
    for (y, line) in lines.iter().enumerate() {
        let mut x = 0;
        for same in line.chunk_by(|a, b| a == b) {
            let path: &mut String = all.entry(same[0].as_str()).or_default();
            let _ = write!(path, "M{x} {y}h{n}v1h-{n}z", n = same.len());
            x += same.len();
        }
    }
    all
}

fn label(out: &mut String, (x, y): (u32, u32), anchor: &str, of: &str) {
    let of = text(of);
    let _ = writeln!(out, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{of}</text>");
}

/// Draws what colours mean: boxes side by side, those with a name of their own apart.
fn add_keys(out: &mut String, keys: &[Key], top: u32) {
    let mut x = LEFT;
    for (n, (colour, name)) in keys.iter().enumerate() {
        // Of shades the next has no name; that of the least stands before it.
        let is_least = n == 0 && keys.get(1).is_some_and(|next| next.1.is_empty());
        if is_least {
            label(out, (x, top + 12), "start", name);
            x += wide_of(name);
        }
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"{top}\" width=\"16\" height=\"15\" fill=\"{colour}\" \
             stroke=\"{GREY}\"/>"
        );
        x += 16;
        if !is_least && !name.is_empty() {
            label(out, (x + 5, top + 12), "start", name);
            x += wide_of(name) + 14;
        }
    }
}

fn wide_of(name: &str) -> u32 {
    7 * name.chars().count() as u32 + 8
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of spans of 1, 7 and 2 s.
    #[test]
    fn spans_of_any_length_are_drawn_as_long_as_they_were() {
        let busy = vec![vec![100.0, 0.0, 50.0], vec![10.0, 10.0, 10.0]];
        let even = evened(&Dies { pus: 2, ends: vec![1.0, 8.0, 10.0], busy });
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(even[0][0], 30.0) && near(even[0][1], 0.0) && near(even[0][2], 30.0));
        assert!(even[1].iter().all(|&busy| near(busy, 10.0)), "{even:?}");
        let same = Dies { pus: 1, ends: vec![2.0, 4.0], busy: vec![vec![3.0, 99.0]] };
        assert_eq!(evened(&same), same.busy);
    }
}
