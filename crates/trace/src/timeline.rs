//! A picture of a trace: for each dispatch queue a row a tag, time from left
//! to right. Nothing here fails.
//!
//! A cell shows the most telling thing that happened in its time: `#` a
//! request with this tag was at the device; else `-` it had completed and its
//! submitter was not told yet; else `.` it was staged, not having the tag yet.

use std::collections::BTreeMap;
use std::fmt::Write;

use blkmq::{Life, NO_TAG};
use measure::units::time_ns;
use port::Time;

/// Most queues that are drawn.
const MOST_QUEUES: usize = 16;
/// Most tags of a queue that are drawn.
const MOST_TAGS: usize = 32;

/// Some time, from `from` on and before `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first moment of it.
    pub from: Time,
    /// The first moment after it.
    pub to: Time,
}

impl Window {
    /// Whether some of the request's life is in it.
    pub fn has(&self, life: &Life) -> bool {
        life.submitted < self.to && life.seen >= self.from
    }

    /// The request's life, and a quarter of it before and after.
    pub fn around(life: &Life) -> Window {
        let margin = (life.total() / 4).max(1);
        let from = Time(life.submitted.0.saturating_sub(margin));
        Window { from, to: Time(life.seen.0.saturating_add(margin)) }
    }

    /// How many ns it has.
    fn ns(&self) -> u64 {
        self.to.since(self.from)
    }
}

/// The cells of one row.
struct Row {
    cells: Vec<u8>,
}

/// How much a cell's sign says.
fn weight(sign: u8) -> u8 {
    match sign {
        b'#' => 3,
        b'-' => 2,
        b'.' => 1,
        _ => 0,
    }
}

impl Row {
    /// Draws `sign` from `from` to `to`, at least one cell, where they are in
    /// the window.
    fn draw(&mut self, window: &Window, from: Time, to: Time, sign: u8) {
        let (columns, ns) = (self.cells.len() as u128, u128::from(window.ns()));
        if from > to || from >= window.to || to < window.from || ns == 0 {
            return;
        }
        let column = |at: Time| u128::from(at.since(window.from)) * columns / ns;
        let first = column(from) as usize;
        let last = (u128::from(to.since(window.from)) * columns).div_ceil(ns);
        let last = (last.min(columns) as usize).max(first + 1);
        for cell in &mut self.cells[first..last] {
            if weight(sign) > weight(*cell) {
                *cell = sign;
            }
        }
    }

    /// Draws a request's life.
    fn live(&mut self, window: &Window, life: &Life) {
        if life.staged() > 0 {
            self.draw(window, life.submitted, life.dispatched, b'.');
        }
        if life.late() > 0 {
            self.draw(window, life.completed, life.seen, b'-');
        }
        self.draw(window, life.dispatched, life.completed, b'#');
    }
}

/// Draws the window, with `columns` cells a row (at least 1). Times are
/// printed as time since `start`. Requests that never had a tag are not drawn.
/// At most 16 queues and 32 tags of each are; what is left out is said.
pub fn timeline(lives: &[Life], window: Window, start: Time, columns: usize) -> String {
    let columns = columns.max(1);
    let mut queues: BTreeMap<u16, BTreeMap<u32, Row>> = BTreeMap::new();
    for life in lives.iter().filter(|life| life.tag != NO_TAG && window.has(life)) {
        let tags = queues.entry(life.queue).or_default();
        let row = tags.entry(life.tag).or_insert_with(|| Row { cells: vec![b' '; columns] });
        row.live(&window, life);
    }
    let mut text = String::new();
    let since = |at: Time| moment(at.since(start));
    let cell = time_ns(window.ns() as f64 / columns as f64);
    let _ = writeln!(
        text,
        "from {} to {}, {cell} a column:  # at the device  - not seen yet  . staged",
        since(window.from),
        since(window.to),
    );
    for (queue, tags) in queues.iter().take(MOST_QUEUES) {
        let _ = writeln!(text, "queue {queue}");
        for (tag, row) in tags.iter().take(MOST_TAGS) {
            let _ = writeln!(text, "{tag:>7} |{}|", String::from_utf8_lossy(&row.cells));
        }
        left_out(&mut text, tags.len(), MOST_TAGS, "tags of this queue");
    }
    left_out(&mut text, queues.len(), MOST_QUEUES, "queues");
    text
}

/// A moment with three digits after the millisecond, however late: two that are
/// microseconds apart can be told.
pub fn moment(ns: u64) -> String {
    format!("{:.3} ms", ns as f64 / 1e6)
}

fn left_out(text: &mut String, there: usize, most: usize, what: &str) {
    if there > most {
        let _ = writeln!(text, "        and {} more {what}", there - most);
    }
}
