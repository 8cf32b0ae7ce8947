//! Whether a store has room for doing the log's records again.
//!
//! Opening does records again on pages that may be as any batch left them since the
//! first record came: newer than a record, or older. So pages may be taken that the
//! records did not take when they were made: a long value that was overwritten
//! since is there again beside what took its pages, and a leaf is split that was
//! never so full. A change is logged only where that finds room; where it does not,
//! it is made *alone* ([`crate::redo`]).
//!
//! Guarantee: doing the records again, as often as it is cut and begun again, needs
//! no more than [`Need::pages`], and whatever it may begin with has as many free. Why,
//! for what was there when the first record came, and what records make larger:
//! - At each moment a key has the value that it had, or that of a record. So it is
//!   never larger than it was, and what its records made it larger by, all together.
//! - Long values take no more pages than that; and one more is put before what it takes
//!   the place of goes.
//! - What was a leaf never has more bytes than a page and what records made its keys
//!   larger by. Both halves of a split have a quarter of a page at least, as no record
//!   has more than half; so it is at most four leaves, and four more for each page of
//!   such bytes. Where records only take the place of others that are as large, no leaf
//!   is split. Where leaves were merged, they may be again what they were.
//! - Pages above: the same, with a separator for each part of those below.

use std::ops::{Add, AddAssign};

use crate::page::{MAX_OVERFLOW, ROOM, SLOT, Value, is_inline, overflow_pages};

/// What records do to a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Need {
    /// Pages that long values take more than what they take the place of; how many there
    /// are.
    pages: u64,
    long: u64,
    /// Puts, those of them that make a leaf larger, and by how many bytes.
    puts: u64,
    larger: u64,
    bytes: u64,
    deletes: u64,
}

impl Need {
    /// Of a put to a key of so many bytes, in the place of an old value.
    #[inline]
    pub(crate) fn put(key: usize, value: usize, old: Option<Value<'_>>) -> Need {
        let (before, pages) = match old {
            None => (0, 0),
            Some(old @ Value::Inline(_)) => (old.cost(key), 0),
            Some(old @ Value::Overflow(_, list)) => (old.cost(key), list.len() / 8),
        };
        let is_long = !is_inline(key, value);
        let new = if is_long { overflow_pages(value) } else { 0 };
        let after = if is_long { Value::long_cost(key, new) } else { SLOT + 4 + key + value };
        let bytes = after.saturating_sub(before) as u64;
        Need {
            pages: new.saturating_sub(pages) as u64,
            long: u64::from(is_long),
            puts: 1,
            larger: u64::from(bytes > 0),
            bytes,
            deletes: 0,
        }
    }

    /// Of a delete.
    #[inline]
    pub(crate) fn delete() -> Need {
        Need { deletes: 1, ..Need::default() }
    }

    /// Most pages that it takes to do them again, in a tree of `used` pages and at most
    /// `tall` levels.
    #[inline]
    fn pages(&self, used: u64, tall: u64) -> u64 {
        if self.puts == 0 {
            return 0;
        }
        // Pages that may be split. Each may become four, and for three separators more of
        // the greatest length a page above takes half a page more.
        let split = used.min((self.larger + self.deletes) * tall);
        let parts = 5 * split + 8 * self.bytes / ROOM as u64;
        let one_more = if self.long > 0 { MAX_OVERFLOW as u64 } else { 0 };
        self.pages + parts + one_more + tall + 2
    }

    /// Most pages that it takes to make them, in a tree of at most `tall` levels.
    #[inline]
    fn takes(&self, tall: u64) -> u64 {
        self.pages + self.puts * (tall + 2)
    }
}

impl Add for Need {
    type Output = Need;

    #[inline]
    fn add(self, other: Need) -> Need {
        Need {
            pages: self.pages + other.pages,
            long: self.long + other.long,
            puts: self.puts + other.puts,
            larger: self.larger + other.larger,
            bytes: self.bytes + other.bytes,
            deletes: self.deletes + other.deletes,
        }
    }
}

impl AddAssign for Need {
    #[inline]
    fn add_assign(&mut self, other: Need) {
        *self = *self + other;
    }
}

/// The records of one write of the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spell {
    need: Need,
    /// Fewest pages that were free from its first record on, up to the next one's.
    low: u64,
}

impl Spell {
    fn none() -> Spell {
        Spell { need: Need::default(), low: u64::MAX }
    }

    fn with(self, other: Spell) -> Spell {
        Spell { need: self.need + other.need, low: self.low.min(other.low) }
    }
}

/// What a store has, and what the log's records need.
#[derive(Debug)]
pub(crate) struct Room {
    /// Pages of the store.
    pages: u64,
    /// Most levels that the tree had.
    tall: u64,
    /// Records from the first that opening needs; of them those in no write yet.
    all: Spell,
    pending: Spell,
}

impl Room {
    /// Of a store of so many pages; no records.
    pub(crate) fn new(pages: u64) -> Room {
        Room { pages, tall: 1, all: Spell::none(), pending: Spell::none() }
    }

    /// Whether a change may be logged, when the tree has `height` levels and `free` of
    /// its pages are free. To be asked of each, in order.
    #[inline]
    pub(crate) fn admits(&mut self, need: Need, height: usize, free: u64) -> bool {
        self.tall = self.tall.max(height as u64);
        self.all.low = self.all.low.min(free);
        self.pending.low = self.pending.low.min(free);
        let left = self.all.low.min(free.saturating_sub(need.takes(self.tall)));
        self.pages(self.all.need + need) <= left
    }

    fn pages(&self, need: Need) -> u64 {
        need.pages(self.pages.saturating_sub(self.all.low), self.tall)
    }

    /// A change was logged.
    #[inline]
    pub(crate) fn log(&mut self, need: Need) {
        self.all.need += need;
        self.pending.need += need;
    }

    /// The records so far are in a write.
    pub(crate) fn seal(&mut self) -> Spell {
        std::mem::replace(&mut self.pending, Spell::none())
    }

    /// Opening needs none of the records so far.
    pub(crate) fn clear(&mut self) {
        (self.all, self.pending) = (Spell::none(), Spell::none());
    }

    /// Opening needs those of these writes, and what is in none yet.
    pub(crate) fn keep(&mut self, writes: impl Iterator<Item = Spell>) {
        self.all = writes.fold(self.pending, Spell::with);
    }

    /// Whether more than half of what is free is needed.
    pub(crate) fn is_short(&self) -> bool {
        2 * self.pages(self.all.need) > self.all.low
    }
}
