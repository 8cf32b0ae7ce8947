//! What may be read: the durability contract as a model.
//!
//! After a cut each write that completed before a successful flush was sent,
//! each FUA write, and each trim so completed, reads back unless it was
//! overwritten later; over a protected cache all that completed does. Any other *cell* has a value that one of its writes gave
//! it, none older than the last durable one. After a clean end all that completed
//! is durable. While there is power a read gives
//! the newest value, or that of a write under way beside it. What was read
//! after a cut is then the only value, until it is written again.
//!
//! A cell is a sector where parts of blocks are written, else a block. Each
//! write has a number, and a cell's value says both, so that a value is nobody
//! else's. Time is a count of what was sent and what completed.
//!
//! Where faults are injected, some reads may fail: those of a block of which a
//! copy was struck that could be read now, and no others. A read that fails is
//! as one that saw that copy. A write that fails may have been done or not, and
//! so it is as one that never completes.
//!
//! Work is divided in *spans* that end with a check of all cells, so memory is
//! bounded by what was written between two checks.

use std::collections::HashMap;
use std::ops::Range;

mod order;
mod torn;

/// Bits of a value that are the cell's number.
const CELL_BITS: u32 = 24;

/// The end of what has not ended.
const OPEN: u32 = u32::MAX;

/// No entry.
const NONE: u32 = u32::MAX;

/// The value of a cell of which no more is known than what it may be: it could
/// not be read when all was checked.
const UNSURE: u64 = u64::MAX;

/// A write, trim or write zeroes.
#[derive(Clone, Copy, Debug)]
struct Op {
    begin: u32,
    end: u32,
    first: u32,
    count: u32,
    fua: bool,
    zero: bool,
}

impl Op {
    fn covers(&self, cell: u64) -> bool {
        (u64::from(self.first)..u64::from(self.first + self.count)).contains(&cell)
    }
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    /// What it had when the span began.
    base: u64,
    /// The newest entry of the span.
    head: u32,
    /// When a read had seen something newer than the base.
    base_dead: u32,
}

impl Cell {
    /// One that nothing was written to in this span.
    fn of(base: u64) -> Cell {
        Cell { base, head: NONE, base_dead: OPEN }
    }
}

/// An operation of a cell, and the one before it.
#[derive(Clone, Copy, Debug)]
struct Entry {
    op: u32,
    before: u32,
    /// When a read had seen, after this had ended, another that so came later: it is not
    /// read any more.
    dead: u32,
    /// That other operation: when it is durable, this does not survive a cut.
    by: u32,
}

/// Why a value is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The cell.
    pub cell: u64,
    /// The value that was seen.
    pub seen: u64,
    /// What would have been right, and what was seen, in words.
    pub words: String,
}

/// The model.
pub struct Contract {
    /// Cells of a block: 8 or 1.
    pub cells_per_block: u64,
    clock: u32,
    /// What ended before this is durable.
    flushed: u32,
    /// The number of the span's first operation.
    first_number: u64,
    ops: Vec<Op>,
    entries: Vec<Entry>,
    cells: Vec<Cell>,
    /// What unsure cells may be.
    unsure: HashMap<u64, Vec<u64>>,
    /// By block, copies that could not be read: what they say, cell by cell.
    struck: HashMap<u64, Vec<Vec<u64>>>,
    /// Those of the span before: the target may have given a block up after it
    /// was checked.
    struck_before: HashMap<u64, Vec<Vec<u64>>>,
    /// What completed is durable at once.
    pub protected: bool,
    /// When parts of the map could not be read, and which blocks these have: what was
    /// not written since may be lost.
    map_struck: Vec<(u32, Range<u64>)>,
}

impl Contract {
    /// A drive of zeros.
    ///
    /// # Panics
    /// With 2^24 cells or more.
    pub fn new(blocks: u64, cells_per_block: u64) -> Contract {
        let cells = blocks * cells_per_block;
        assert!(cells < 1 << CELL_BITS, "a simulated drive is small");
        Contract {
            cells_per_block,
            clock: 0,
            flushed: 0,
            first_number: 1,
            ops: Vec::new(),
            entries: Vec::new(),
            cells: vec![Cell::of(0); cells as usize],
            unsure: HashMap::new(),
            struck: HashMap::new(),
            struck_before: HashMap::new(),
            protected: false,
            map_struck: Vec::new(),
        }
    }

    fn tick(&mut self) -> u32 {
        self.clock += 1;
        self.clock
    }

    /// The time of what happened last.
    pub fn now(&self) -> u32 {
        self.clock
    }

    /// A read or flush is sent. Gives the time of that.
    pub fn sent(&mut self) -> u32 {
        self.tick()
    }

    /// A write is sent to `count` cells; `zero` for a trim or write zeroes.
    /// Gives its place.
    pub fn begin(&mut self, first: u64, count: u64, zero: bool, fua: bool) -> u32 {
        let begin = self.tick();
        let op = self.ops.len() as u32;
        let (first, count) = (first as u32, count as u32);
        self.ops.push(Op { begin, end: OPEN, first, count, fua, zero });
        for cell in &mut self.cells[first as usize..(first + count) as usize] {
            self.entries.push(Entry { op, before: cell.head, dead: OPEN, by: NONE });
            cell.head = self.entries.len() as u32 - 1;
        }
        op
    }

    /// The value that operation `op` gives a cell.
    #[inline]
    pub fn value(&self, op: u32, cell: u64) -> u64 {
        if self.ops[op as usize].zero {
            return 0;
        }
        ((self.first_number + u64::from(op)) << CELL_BITS) | cell
    }

    /// A write completed.
    pub fn end(&mut self, op: u32) {
        self.ops[op as usize].end = self.tick();
    }

    /// A flush completed that was sent at `sent`.
    pub fn flushed(&mut self, sent: u32) {
        self.flushed = self.flushed.max(sent);
    }

    /// The drive was shut down in good order: what completed is durable, flushed
    /// or not.
    pub fn closed(&mut self) {
        self.flushed = self.tick();
    }

    /// Whether an operation survives a cut, when no later one replaces it.
    #[inline]
    fn is_durable(&self, op: &Op) -> bool {
        op.end != OPEN && (self.protected || op.fua || op.end < self.flushed)
    }

    /// When the newest of a cell's operations began that `settles` holds for:
    /// what ended before is gone.
    #[inline]
    fn horizon(&self, cell: u64, settles: impl Fn(&Op) -> bool) -> u32 {
        let (mut at, mut horizon) = (self.cells[cell as usize].head, 0);
        while at != NONE {
            let entry = self.entries[at as usize];
            let op = &self.ops[entry.op as usize];
            if op.begin > horizon && settles(op) {
                horizon = op.begin;
            }
            at = entry.before;
        }
        horizon
    }

    /// Whether a cell may have a value, when what ended before `horizon` is
    /// gone.
    fn is_left(&self, cell: u64, value: u64, horizon: u32) -> bool {
        let is_base = horizon == 0 && self.is_base(cell, value);
        is_base || self.any_left(cell, horizon, value, |_| true)
    }

    /// Whether a cell may have had a value when the span began.
    #[inline]
    fn is_base(&self, cell: u64, value: u64) -> bool {
        let base = self.cells[cell as usize].base;
        value == base || (base == UNSURE && self.unsure[&cell].contains(&value))
    }

    /// Whether one of a cell's operations that gives it this value, has not ended before
    /// `horizon` and `lives` is left.
    #[inline]
    fn any_left(
        &self,
        cell: u64,
        horizon: u32,
        value: u64,
        lives: impl Fn(&Entry) -> bool,
    ) -> bool {
        let mut at = self.cells[cell as usize].head;
        while at != NONE {
            let entry = &self.entries[at as usize];
            if self.value(entry.op, cell) == value
                && self.ops[entry.op as usize].end > horizon
                && lives(entry)
            {
                return true;
            }
            at = entry.before;
        }
        false
    }

    /// The span's operation that gave a cell this value.
    #[inline]
    fn op_of(&self, cell: u64, value: u64) -> Option<&Op> {
        Some(&self.ops[self.number_of(cell, value)? as usize])
    }

    /// Which operation of the span that is.
    fn number_of(&self, cell: u64, value: u64) -> Option<u32> {
        let number = (value >> CELL_BITS).checked_sub(self.first_number)?;
        let op = self.ops.get(number as usize)?;
        let own = value & ((1 << CELL_BITS) - 1) == cell;
        if own && op.covers(cell) && !op.zero { Some(number as u32) } else { None }
    }

    /// Whether `value` may be read from a cell by a read sent at `sent`.
    #[inline]
    pub fn may_read(&self, cell: u64, value: u64, sent: u32) -> bool {
        let held = &self.cells[cell as usize];
        if held.head == NONE {
            return self.is_base(cell, value);
        }
        let horizon = self.horizon(cell, |op| op.end < sent);
        if horizon == 0 && held.base_dead >= sent && self.is_base(cell, value) {
            return true;
        }
        self.any_left(cell, horizon, value, |entry| entry.dead >= sent)
    }

    /// Whether a cell may have `value` after a cut.
    #[inline]
    pub fn may_remain(&self, cell: u64, value: u64) -> bool {
        let held = &self.cells[cell as usize];
        if held.head == NONE {
            return self.is_base(cell, value);
        }
        let horizon = self.horizon(cell, |op| self.is_durable(op));
        if horizon == 0 && self.is_base(cell, value) {
            return true;
        }
        let lives =
            |entry: &Entry| entry.by == NONE || !self.is_durable(&self.ops[entry.by as usize]);
        self.any_left(cell, horizon, value, lives)
    }

    /// A cell was read after a cut: it has this value and no other.
    #[inline]
    pub fn settle(&mut self, cell: u64, value: u64) {
        self.cells[cell as usize] = Cell::of(value);
    }

    /// A copy of a block could not be read, of which the cells have `values`.
    pub fn strike(&mut self, block: u64, values: Vec<u64>) {
        self.struck.entry(block).or_default().push(values);
    }

    /// A block of the target's own could not be read, with which these may be lost.
    pub fn strike_map(&mut self, blocks: Range<u64>) {
        let now = self.tick();
        self.map_struck.retain(|(_, others)| *others != blocks);
        self.map_struck.push((now, blocks));
    }

    /// Whether a read of a block, sent at `sent`, may fail.
    pub fn may_fail(&self, block: u64, sent: u32) -> bool {
        self.is_struck(block, &|op: &Op| op.end < sent)
    }

    /// Whether a block may be lost after a cut.
    pub fn may_be_lost(&self, block: u64) -> bool {
        self.is_struck(block, &|op: &Op| self.is_durable(op))
    }

    fn is_struck(&self, block: u64, settles: &impl Fn(&Op) -> bool) -> bool {
        let first = block * self.cells_per_block;
        let cells = first..first + self.cells_per_block;
        let horizon = |cell: u64| self.horizon(cell, settles);
        let unsure = |cell: u64| self.cells[cell as usize].base == UNSURE && horizon(cell) == 0;
        if cells.clone().any(unsure) {
            return true;
        }
        let mut pages = self.map_struck.iter().filter(|(_, blocks)| blocks.contains(&block));
        if pages.any(|&(at, _)| cells.clone().any(|cell| horizon(cell) <= at)) {
            return true;
        }
        let all_left = |values: &Vec<u64>| {
            let mut each = cells.clone().zip(values);
            each.all(|(cell, &value)| self.is_left(cell, value, horizon(cell)))
        };
        let mut spans = [&self.struck, &self.struck_before].into_iter();
        spans.any(|copies| copies.get(&block).is_some_and(|copies| copies.iter().any(all_left)))
    }

    /// A block could not be read after a cut, though it was tried again: it may
    /// still be what it may be now.
    pub fn lose(&mut self, block: u64) {
        let first = block * self.cells_per_block;
        for cell in first..first + self.cells_per_block {
            let values = self.all_left(cell);
            self.unsure.insert(cell, values);
            self.cells[cell as usize] = Cell::of(UNSURE);
        }
    }

    /// All values that a cell may have after a cut.
    fn all_left(&self, cell: u64) -> Vec<u64> {
        let held = &self.cells[cell as usize];
        let mut values = match held.base {
            UNSURE => self.unsure[&cell].clone(),
            base => vec![base],
        };
        let mut at = held.head;
        while at != NONE {
            let entry = self.entries[at as usize];
            values.push(self.value(entry.op, cell));
            at = entry.before;
        }
        values.retain(|&value| self.may_remain(cell, value));
        values
    }

    /// A new drive takes this one's place: all is zeros.
    pub fn replace(&mut self) {
        self.cells.fill(Cell::of(0));
        self.next_span();
    }

    /// All cells were settled or lost: a new span begins.
    pub fn next_span(&mut self) {
        self.struck_before = std::mem::take(&mut self.struck);
        self.map_struck.clear();
        self.first_number += self.ops.len() as u64;
        self.ops.clear();
        self.entries.clear();
        (self.clock, self.flushed) = (0, 0);
    }

    /// What is wrong with a value, in words.
    pub fn explain(&self, cell: u64, seen: u64) -> Wrong {
        let held = &self.cells[cell as usize];
        let name = |value: u64| match value {
            0 => "zeros".to_string(),
            _ => {
                let (number, of) = (value >> CELL_BITS, value & ((1 << CELL_BITS) - 1));
                if of == cell {
                    format!("write {number}")
                } else {
                    format!("write {number} of cell {of}")
                }
            }
        };
        let before = match held.base {
            UNSURE => self.unsure[&cell].iter().map(|&v| name(v)).collect::<Vec<_>>().join(" or "),
            base => name(base),
        };
        let mut words = format!("saw {}; it had {before} before", name(seen));
        let (mut list, mut at) = (Vec::new(), held.head);
        while at != NONE {
            let entry = self.entries[at as usize];
            let op = &self.ops[entry.op as usize];
            let number = self.first_number + u64::from(entry.op);
            let what = if op.zero { "zeroed by" } else { "written by" };
            let end = if op.end == OPEN { "open".into() } else { format!("{}", op.end) };
            let durable = if self.is_durable(op) { ", durable" } else { "" };
            let dead = match entry.by {
                NONE => String::new(),
                by => {
                    let by = self.first_number + u64::from(by);
                    format!(", before {by} as was seen at {}", entry.dead)
                }
            };
            list.push(format!("{what} {number} from {} to {end}{durable}{dead}", op.begin));
            at = entry.before;
        }
        list.iter().rev().for_each(|line| words += &format!("; {line}"));
        Wrong { cell, seen, words }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_was_flushed_remains() {
        let mut c = Contract::new(4, 1);
        let a = c.begin(2, 1, false, false);
        c.end(a);
        assert!(c.may_remain(2, 0) && c.may_remain(2, c.value(a, 2)));
        let flush = c.sent();
        let b = c.begin(2, 1, false, false);
        c.flushed(flush);
        assert!(!c.may_remain(2, 0), "a was flushed");
        assert!(c.may_remain(2, c.value(a, 2)) && c.may_remain(2, c.value(b, 2)));
        assert!(!c.may_remain(2, c.value(a, 1)) && !c.may_remain(1, c.value(a, 1)));
        let read = c.sent();
        assert!(c.may_read(2, c.value(b, 2), read) && c.may_read(2, c.value(a, 2), read));
        c.end(b);
        let read = c.sent();
        assert!(!c.may_read(2, c.value(a, 2), read));
        assert!(c.may_remain(2, c.value(a, 2)), "b was not flushed");
    }

    #[test]
    fn a_flush_covers_what_completed_before_it_was_sent() {
        let mut c = Contract::new(1, 1);
        let a = c.begin(0, 1, false, false);
        let flush = c.sent();
        c.end(a);
        c.flushed(flush);
        assert!(c.may_remain(0, 0));
    }

    #[test]
    fn a_clean_end_leaves_nothing_behind() {
        let mut c = Contract::new(2, 1);
        let a = c.begin(0, 1, false, false);
        c.end(a);
        let b = c.begin(1, 1, false, false);
        c.closed();
        assert!(!c.may_remain(0, 0) && c.may_remain(0, c.value(a, 0)));
        assert!(c.may_remain(1, 0) && c.may_remain(1, c.value(b, 1)), "b is not done");
    }

    #[test]
    fn with_a_protected_cache_all_that_completed_remains() {
        let mut c = Contract { protected: true, ..Contract::new(1, 1) };
        let a = c.begin(0, 1, false, false);
        assert!(c.may_remain(0, 0) && c.may_remain(0, c.value(a, 0)));
        c.end(a);
        assert!(!c.may_remain(0, 0) && c.may_remain(0, c.value(a, 0)));
    }

    #[test]
    fn trims_are_as_durable_as_writes() {
        let mut c = Contract::new(1, 1);
        c.settle(0, 5 << CELL_BITS);
        c.first_number = 6;
        let trim = c.begin(0, 1, true, true);
        c.end(trim);
        assert!(c.may_remain(0, 0));
        assert!([3, 5, 7].iter().all(|write| !c.may_remain(0, write << CELL_BITS)));
    }

    #[test]
    fn a_read_may_fail_where_its_copy_was_struck() {
        let mut c = Contract::new(2, 1);
        let a = c.begin(0, 1, false, false);
        c.end(a);
        assert!(!c.may_fail(0, u32::MAX) && !c.may_be_lost(0));
        c.strike(0, vec![c.value(a, 0)]);
        assert!(c.may_fail(0, c.clock + 1) && c.may_be_lost(0) && !c.may_fail(1, u32::MAX));
        let b = c.begin(0, 1, false, true);
        assert!(c.may_fail(0, c.clock + 1), "b is not done");
        c.end(b);
        let read = c.sent();
        assert!(!c.may_fail(0, read) && !c.may_be_lost(0), "b took its place, and is durable");
    }

    #[test]
    fn with_a_page_of_the_map_its_own_blocks_may_be_lost() {
        let mut c = Contract::new(4, 1);
        c.strike_map(0..2);
        assert_eq!([0, 1, 2, 3].map(|block| c.may_be_lost(block)), [true, true, false, false]);
        let a = c.begin(1, 1, false, true);
        c.end(a);
        c.strike_map(2..4);
        assert_eq!([0, 1, 2, 3].map(|block| c.may_be_lost(block)), [true, false, true, true]);
    }

    #[test]
    fn a_lost_block_may_be_what_it_was_until_it_is_written() {
        let mut c = Contract::new(1, 1);
        let a = c.begin(0, 1, false, false);
        c.end(a);
        let value = c.value(a, 0);
        c.lose(0);
        c.next_span();
        assert!(c.may_fail(0, u32::MAX) && c.may_be_lost(0));
        assert!([0, value].iter().all(|&v| c.may_remain(0, v) && c.may_read(0, v, u32::MAX)));
        assert!(!c.may_remain(0, value + 1));
        let b = c.begin(0, 1, false, true);
        c.end(b);
        let read = c.sent();
        assert!(!c.may_fail(0, read) && !c.may_be_lost(0) && !c.may_remain(0, value));
    }

    /// What happens to one cell: 0 write, 1 zero, 2 FUA write, 3 flush, 4 and
    /// more: the operation of that place among those under way ends.
    fn steps() -> impl Strategy<Value = Vec<usize>> {
        prop::collection::vec(0usize..8, 0..24)
    }

    proptest! {
        /// The definition, word by word, against the quick form.
        #[test]
        fn it_is_the_definition(steps in steps()) {
            let mut c = Contract::new(1, 1);
            // Begin, end, durable, value.
            let mut all: Vec<(u32, u32, bool, u64)> = vec![(0, 0, true, 0)];
            let mut open: Vec<(usize, u32)> = Vec::new();
            for step in steps {
                match step {
                    0..3 => {
                        let op = c.begin(0, 1, step == 1, step == 2);
                        open.push((all.len(), op));
                        all.push((c.clock, OPEN, false, c.value(op, 0)));
                    }
                    3 => {
                        let sent = c.sent();
                        all.iter_mut().for_each(|w| w.2 |= w.1 < sent);
                        c.flushed(sent);
                    }
                    _ if open.is_empty() => {}
                    _ => {
                        let (at, op) = open.remove((step - 4) % open.len());
                        c.end(op);
                        all[at].1 = c.clock;
                        all[at].2 = c.ops[op as usize].fua;
                    }
                }
            }
            let stands = |w: &(u32, u32, bool, u64)| !all.iter().any(|d| d.2 && d.0 > w.1);
            let reads = |w: &(u32, u32, bool, u64)| !all.iter().any(|d| d.1 != OPEN && d.0 > w.1);
            let sent = c.sent();
            for value in all.iter().map(|w| w.3) {
                let remain = all.iter().any(|w| w.3 == value && stands(w));
                prop_assert_eq!(c.may_remain(0, value), remain);
                let read = all.iter().any(|w| w.3 == value && reads(w));
                prop_assert_eq!(c.may_read(0, value, sent), read);
            }
        }
    }
}
