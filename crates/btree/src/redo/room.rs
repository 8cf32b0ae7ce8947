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
//! no more than [`Need::pages`], and all states that it may begin with have as many
//! free. Why:
//! - Long values: at each moment a key has the value that was there, or that of a
//!   record; one more is put before what it takes the place of goes.
//! - Leaves: a key's record in a leaf is the one that was there, or one of the log. So
//!   a leaf and what comes to it never are more bytes than the leaf and those of the
//!   log's records, however often they are done. Both halves of a split have a quarter
//!   of a page at least, as no record has more than half; what was a leaf is at most
//!   four such parts, and four more for each page of records.
//! - Pages above: the same, with a separator for each part of those below.

use std::ops::{Add, AddAssign};

use crate::page::{MAX_OVERFLOW, ROOM, is_inline, overflow_pages};

/// What records do to a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Need {
    /// Pages of long values.
    long: u64,
    puts: u64,
    deletes: u64,
    /// Bytes of keys, and of values that leaves have.
    bytes: u64,
}

/// Bytes of a leaf for a record beside its key and its value, at most; and for a long
/// value.
const SLOTS: u64 = 16;
const LIST: u64 = 8 * MAX_OVERFLOW as u64;

impl Need {
    /// Of a write of a key of so many bytes; a value of `None` takes it out.
    #[inline]
    pub(crate) fn one(key: usize, value: Option<usize>) -> Need {
        let key_bytes = key as u64 + SLOTS;
        match value {
            None => Need { deletes: 1, ..Need::default() },
            Some(value) if is_inline(key, value) => {
                Need { puts: 1, bytes: key_bytes + value as u64, ..Need::default() }
            }
            Some(value) => Need {
                long: overflow_pages(value) as u64,
                puts: 1,
                deletes: 0,
                bytes: key_bytes + LIST,
            },
        }
    }

    /// Most pages that it takes to do them again, in a tree of `used` pages and at most
    /// `tall` levels.
    #[inline]
    fn pages(&self, used: u64, tall: u64) -> u64 {
        if self.puts == 0 {
            return 0;
        }
        // Pages that are changed. Each may become four, and for three separators more of
        // the greatest length a page above takes half a page more.
        let changed = used.min((self.puts + self.deletes) * tall);
        let parts = 5 * changed + 8 * self.bytes / ROOM as u64;
        let one_more = if self.long > 0 { MAX_OVERFLOW as u64 } else { 0 };
        self.long + parts + one_more + tall + 2
    }

    /// Most pages that it takes to make them, in a tree of at most `tall` levels.
    #[inline]
    fn takes(&self, tall: u64) -> u64 {
        self.long + self.puts * (tall + 2)
    }
}

impl Add for Need {
    type Output = Need;

    #[inline]
    fn add(self, other: Need) -> Need {
        Need {
            long: self.long + other.long,
            puts: self.puts + other.puts,
            deletes: self.deletes + other.deletes,
            bytes: self.bytes + other.bytes,
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
    const NONE: Spell =
        Spell { need: Need { long: 0, puts: 0, deletes: 0, bytes: 0 }, low: u64::MAX };

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
        Room { pages, tall: 1, all: Spell::NONE, pending: Spell::NONE }
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
        std::mem::replace(&mut self.pending, Spell::NONE)
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
