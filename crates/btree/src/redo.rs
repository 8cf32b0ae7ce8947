//! The redo log: what changes a tree is written there first, and a flush of the
//! tree is one write of the log.
//!
//! A tree without one writes all pages that were changed when it is flushed: as
//! many as there were changes, where keys are random. With a log a change is
//! appended to it as a *record* ([`record`]), in memory; a flush writes the
//! records since the last one as whole blocks ([`block`]) and completes when
//! they are durable. While that write is under way the next records gather, and
//! the next write takes them all. Pages are written later, when the cache wants
//! room, or the log.
//!
//! The log is a ring of blocks beside the store's pages
//! ([`crate::store::PageStore::beside`]); block `n` is in place `n` modulo their
//! number. Numbers go up for ever. Guarantees, after a cut at any moment: the tree
//! is as all changes up to some record left it, each whole, and that record is the
//! last of a completed flush or a later one. Why they hold:
//! - **Written ahead.** No batch of pages begins while there are records that are
//!   not durable ([`Redo::is_durable`]); changes wait for that while a batch is
//!   wanted ([`crate::tree::Tree`] holds them). So pages have effects of
//!   durable records only. Otherwise opening would find pages that are newer than
//!   the log, and put back older values, or half of what a batch changed.
//! - **Replay.** Opening does the records from `from` on again, in order, up to the
//!   last one. What they change is then as the last of them left it, whether
//!   a page had an effect already or not; what none of them changes is in pages, as
//!   all records before `from` are. Replay is not logged; cut, it is begun again
//!   from the same block, as nothing of the log was written. When it is over, the
//!   pages are flushed, and a *mark* is written: two blocks without records, whose
//!   `from` is the first of them. Of a change of several keys replay may do one after
//!   the other, since it is done again if it is cut.
//! - **Space.** A block has the number of the first block that opening needs,
//!   `from`. That goes up when all pages are durable that the records before it
//!   changed: to the write `w` when all pages are durable that were dirty when its
//!   first record came ([`Mark::stamp`]). The place of a block is written again
//!   only when `from` is above it, by a block that says so. So what a block that is
//!   there needs is there, too.
//! - **The end.** Writes are one at a time, and a block says which ones are durable,
//!   `durable`: all that were written before its write. Opening takes the block with the
//!   highest number, and blocks from its `from` on. Up to its `durable` all must be
//!   whole: one that is not was damaged, and that is an error. Behind, the first that
//!   is not there ends the log: a cut left it as it was. One that is neither blank
//!   nor whole is an error here too, as a cut leaves no block so. What cannot be told
//!   is that a block of the last write was lost so that it reads as zeros, or as it was
//!   before: that is what a cut leaves of it, too. A mark has two blocks, so that
//!   one that is lost so hides nothing.
//! - A later write has higher numbers than all blocks that opening saw, so what a cut
//!   left behind a missing block is never taken for a later one's.
//!
//! A change whose record is longer than a write, or which could not be done again
//! for want of pages ([`room`]), is made *alone*: all pages are written, a mark says
//! that nothing is to be replayed, the change is made without a record, and its pages,
//! one batch of the store, are made durable before any other change.
//!
//! All memory is taken when the log is made.

pub(crate) mod block;
pub(crate) mod record;
pub(crate) mod room;

use std::collections::VecDeque;

use self::block::{Head, PAYLOAD};
use self::room::{Need, Room, Spell};
use crate::store::PageStore;

/// The number of the log's writes, above those of batches.
pub(crate) const WRITE: u32 = u32::MAX;

/// Blocks of a mark.
pub(crate) const MARK: u64 = 2;

/// A flush that waits for records to be durable.
pub(crate) struct Commit {
    pub(crate) tag: u64,
    /// How many records there were.
    pub(crate) records: u64,
}

/// A write of the log.
struct Mark {
    /// Its first block.
    block: u64,
    /// Pages dirty since then or before have no effect of its records or later
    /// ones, or became dirty before them.
    stamp: u64,
    spell: Spell,
}

/// A change that is to be logged.
#[derive(Clone, Copy)]
pub(crate) struct Change {
    /// Bytes of its record.
    pub(crate) bytes: usize,
    pub(crate) need: Need,
}

/// How far a change is that is made alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alone {
    /// There is none.
    No,
    /// One waits until all records are durable.
    Wanted,
    /// All pages are being written.
    Emptying,
    /// A mark is wanted, or under way.
    Marking,
    /// It may be made.
    Ready,
    /// It was made; its pages are to be written.
    Made,
    /// They are being written.
    Ending,
}

/// What a redo log has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RedoCounters {
    /// Records.
    pub records: u64,
    /// Bytes of records.
    pub bytes: u64,
    /// Writes of the log.
    pub writes: u64,
    /// Blocks that they wrote.
    pub blocks: u64,
    /// Changes that were made alone, without a record.
    pub alone: u64,
    /// Times that all pages were written and a mark, for a change that was to be made
    /// alone; it may have found room for its record then.
    pub emptied: u64,
    /// Records that opening did again.
    pub replayed: u64,
}

/// The log of a tree at work.
pub(crate) struct Redo {
    /// Blocks of the ring, and most bytes of records that are written at once.
    blocks: u64,
    most: usize,
    /// Records that are in no write yet, and the cache's stamp before them.
    pending: Vec<u8>,
    stamp: u64,
    /// Pages that its records need.
    room: Room,
    /// What the change needs that was admitted last.
    admitted: Need,
    /// Records so far; of them written or on their way; of them durable.
    records: u64,
    sealed: u64,
    durable: u64,
    /// The next block, and the first that opening needs.
    next: u64,
    from: u64,
    writing: bool,
    /// Writes from `from` on.
    marks: VecDeque<Mark>,
    /// A flush of the pages is under way, for what was dirty then.
    pub(crate) trimming: Option<u64>,
    /// A batch of pages waits for records.
    pub(crate) hold: bool,
    /// A change waits for room.
    full: bool,
    pub(crate) alone: Alone,
    pub(crate) commits: VecDeque<Commit>,
    pub(crate) counters: RedoCounters,
}

impl Redo {
    /// A log without records, whose next block is `next`: a ring of `blocks`, of
    /// which `most` are written at once, beside `pages` pages.
    pub(crate) fn new(blocks: u64, most: usize, next: u64, pages: u64) -> Redo {
        let most = most.min((blocks / 4) as usize) * PAYLOAD;
        Redo {
            blocks,
            most,
            pending: Vec::with_capacity(most),
            stamp: 0,
            room: Room::new(pages),
            admitted: Need::default(),
            records: 0,
            sealed: 0,
            durable: 0,
            next,
            from: next,
            writing: false,
            marks: VecDeque::with_capacity(blocks as usize),
            trimming: None,
            hold: false,
            full: false,
            alone: Alone::No,
            commits: VecDeque::new(),
            counters: RedoCounters::default(),
        }
    }

    /// How many records there are, and how many of them are durable.
    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    /// Whether a flush after so many records may be answered.
    pub(crate) fn has_flushed(&self, records: u64) -> bool {
        records <= self.durable && !matches!(self.alone, Alone::Made | Alone::Ending)
    }

    /// Whether all records are durable: a batch of pages may begin.
    pub(crate) fn is_durable(&self) -> bool {
        self.pending.is_empty() && !self.writing
    }

    /// Whether changes wait for the log to go on.
    pub(crate) fn holds_up(&self) -> bool {
        self.hold || self.full || !matches!(self.alone, Alone::No | Alone::Ready)
    }

    /// Whether a change may be made now. If so, and it is made, it is to be logged
    /// ([`Redo::log`]) before anything else; `stamp` is the last that the cache gave. The
    /// tree has `height` levels, and `free` free pages.
    pub(crate) fn admits(&mut self, change: Change, stamp: u64, height: usize, free: u64) -> bool {
        let Change { bytes, need } = change;
        self.admitted = need;
        if !self.room.admits(need, height, free) || bytes > self.most {
            let ready = self.alone == Alone::Ready && !self.hold;
            if self.alone == Alone::No {
                self.alone = Alone::Wanted;
            }
            return ready;
        }
        // Who found no room is first.
        if self.hold || self.full || self.alone != Alone::No {
            return false;
        }
        let all = self.pending.len() + bytes;
        let fits = all <= self.most && self.used() + block::count(all) + MARK <= self.blocks;
        self.full = !fits;
        if self.pending.is_empty() {
            self.stamp = stamp;
        }
        fits
    }

    /// Appends a record of so many bytes, as it was admitted, if it was not to be made
    /// alone.
    pub(crate) fn log(&mut self, bytes: usize, put: impl FnOnce(&mut Vec<u8>)) {
        if self.alone == Alone::Ready {
            self.alone = Alone::Made;
            self.counters.alone += 1;
            return;
        }
        let before = self.pending.len();
        put(&mut self.pending);
        assert_eq!(self.pending.len(), before + bytes, "as long as was said");
        self.room.log(self.admitted);
        self.records += 1;
        self.counters.records += 1;
        self.counters.bytes += bytes as u64;
    }

    /// The tree has failed: nothing waits for the log. Gives whether anything did.
    pub(crate) fn give_up(&mut self) -> bool {
        let held = self.holds_up();
        (self.hold, self.full, self.alone) = (false, false, Alone::No);
        held
    }

    /// Whether there is something to do for changes that are to come.
    #[inline]
    pub(crate) fn is_pressed(&self) -> bool {
        self.alone != Alone::No || self.room.is_short()
    }

    /// Whether a change waits for room.
    pub(crate) fn is_full(&self) -> bool {
        self.full
    }

    fn used(&self) -> u64 {
        self.next - self.from
    }

    /// Whether a write is wanted.
    pub(crate) fn wants_write(&self) -> bool {
        let asked = self.commits.back().is_some_and(|last| last.records > self.sealed);
        let held = self.hold || self.full || self.alone == Alone::Wanted;
        // What is in two writes can be trimmed.
        let short = self.marks.len() < 2 && self.room.is_short();
        let wanted = asked || ((held || short) && self.has_pending());
        !self.writing && (wanted || self.alone == Alone::Marking)
    }

    fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Writes what there is, or a mark.
    pub(crate) fn write<S: PageStore + ?Sized>(&mut self, store: &mut S) {
        let first = self.next;
        let count = match self.alone {
            Alone::Marking => {
                self.from = first;
                self.marks.clear();
                self.room.clear();
                self.counters.emptied += 1;
                MARK
            }
            _ => {
                let spell = self.room.seal();
                self.marks.push_back(Mark { block: first, stamp: self.stamp, spell });
                block::count(self.pending.len())
            }
        };
        let (pending, from) = (&self.pending, self.from);
        store.write_beside(WRITE, first % self.blocks, count as usize, &mut |i, to| {
            let start = (i * PAYLOAD).min(pending.len());
            let part = &pending[start..(start + PAYLOAD).min(pending.len())];
            let number = first + i as u64;
            Head { number, begins: i == 0, from, durable: first }.write(part, to);
        });
        self.pending.clear();
        (self.writing, self.full) = (true, false);
        (self.sealed, self.next) = (self.records, first + count);
        self.counters.writes += 1;
        self.counters.blocks += count;
    }

    /// Writes a mark. Nothing is under way.
    pub(crate) fn write_mark<S: PageStore + ?Sized>(&mut self, store: &mut S) {
        self.alone = Alone::Marking;
        self.write(store);
        self.alone = Alone::No;
    }

    /// The write is durable.
    pub(crate) fn end_write(&mut self) {
        (self.writing, self.durable) = (false, self.sealed);
        if self.alone == Alone::Marking {
            self.alone = Alone::Ready;
        }
    }

    /// Which pages are to be made durable so that there is room: those dirty since
    /// that stamp or before. `None` while there is enough.
    pub(crate) fn wants_room(&self) -> Option<u64> {
        let short = self.marks.len() > 1 && self.room.is_short();
        if 2 * self.used() < self.blocks && !short {
            return None;
        }
        // The older half of what is used.
        let half = self.from + self.used() / 2;
        let mark = self.marks.iter().find(|mark| mark.block >= half).or(self.marks.back())?;
        Some(mark.stamp)
    }

    /// All pages are durable that were dirty since `stamp` or before.
    pub(crate) fn pages_durable(&mut self, stamp: u64) {
        self.trimming = None;
        self.alone = match self.alone {
            Alone::Emptying => Alone::Marking,
            Alone::Ending => Alone::No,
            other => other,
        };
        while self.marks.get(1).is_some_and(|second| second.stamp <= stamp) {
            self.marks.pop_front();
        }
        if let Some(first) = self.marks.front()
            && first.stamp <= stamp
        {
            self.from = first.block;
        }
        self.room.keep(self.marks.iter().map(|mark| mark.spell));
        self.full = false;
    }
}
