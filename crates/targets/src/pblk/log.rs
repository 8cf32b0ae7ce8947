//! The log of what was given up: trims, and blocks that were lost.
//!
//! A trim leaves nothing in the data rows that would say that the older copies
//! no longer count. So each is recorded, and the records go to flash in pages
//! of the metadata stream: when a row of pages is full, when a flush asks for
//! it, or when a chunk whose blocks they gave up is to be erased.
//!
//! Guarantees: records become durable in the order of their numbers; memory is
//! bounded, so that a trim may have to wait.

use std::collections::VecDeque;

use device::OpenChannel;
use flash::Tag;

use super::Pblk;
use super::checkpoint::ROOT_ROWS;
use super::meta::Purpose;
use super::mutation::{Mutation, is};
use super::record::{Kind, PAGE_RECORDS, Record, own_id, store_page};

/// The log's part that is not durable yet.
#[derive(Debug)]
pub(super) struct Log {
    /// Records that have not been sent.
    pub pending: Vec<Record>,
    most: usize,
    /// Rows that may be written between two checkpoints.
    limit: u64,
    /// Pending records of before the last moment of [`Log::seal`]: they do not
    /// grow.
    sealed: usize,
    /// The number of the last record.
    pub last: u64,
    /// All records up to this number are durable.
    pub durable: u64,
    /// Rows on their way, oldest first: their last record's number, and
    /// whether it is programmed.
    sent: VecDeque<(u64, bool)>,
    /// The number of the next page.
    pub page: u64,
    /// Rows sent since the last checkpoint began.
    pub rows: u64,
    /// Rows before that which a start would read, until it ends.
    rows_before: u64,
    /// Somebody waits for what is pending.
    pub wanted: bool,
    /// Erases that wait for records: chunks.
    pub held: Vec<usize>,
}

impl Log {
    /// A log whose rows have `row` pages, `limit` of them between two checkpoints.
    pub fn new(row: u32, limit: u64) -> Log {
        let most = row as usize * PAGE_RECORDS;
        Log {
            pending: Vec::with_capacity(most),
            most,
            limit,
            sealed: 0,
            last: 0,
            durable: 0,
            sent: VecDeque::new(),
            page: 0,
            rows: 0,
            rows_before: 0,
            wanted: false,
            held: Vec::new(),
        }
    }

    /// Whether one more record can be taken now.
    #[inline]
    pub fn has_room(&self) -> bool {
        let is_long = self.rows >= self.limit || self.needed_rows() >= 2 * self.limit;
        self.pending.len() < self.most && !is_long
    }

    /// Whether it is so long that a checkpoint is to end it.
    #[inline]
    pub fn is_long(&self) -> bool {
        self.rows >= self.limit.div_ceil(2)
    }

    /// Records that copies of a block up to number `upto` no longer count.
    /// Gives the number of the record. Only with room.
    pub fn give_up(&mut self, lba: u64, upto: u64, lost: bool) -> u64 {
        self.last += 1;
        let number = self.last;
        let may_grow = self.pending.len() > self.sealed;
        match self.pending.last_mut() {
            Some(r)
                if may_grow
                    && r.lba + u64::from(r.count) == lba
                    && (r.upto, r.lost) == (upto, lost)
                    && r.count < u32::MAX =>
            {
                (r.count, r.number) = (r.count + 1, number);
            }
            _ => self.pending.push(Record { number, lba, count: 1, upto, lost }),
        }
        number
    }

    /// What goes into the next row. More may be pending, since a lost block is
    /// recorded whether there is room or not.
    pub fn first(&self) -> &[Record] {
        &self.pending[..self.pending.len().min(self.most)]
    }

    /// The first of what is pending is sent as one row. Gives its last number.
    pub fn send(&mut self) -> u64 {
        let count = self.first().len();
        let last = self.pending[count - 1].number;
        self.pending.drain(..count);
        self.sealed = self.sealed.saturating_sub(count);
        self.sent.push_back((last, false));
        self.rows += 1;
        self.wanted = !self.pending.is_empty();
        last
    }

    /// What was recorded so far is not for the same pages as what comes: no
    /// record grows across this moment.
    pub fn seal(&mut self) {
        self.sealed = self.pending.len();
    }

    /// A checkpoint begins: rows from here on count towards the next.
    pub fn begin_rows(&mut self) {
        self.rows_before += std::mem::take(&mut self.rows);
    }

    /// Rows that a start would read.
    pub fn needed_rows(&self) -> u64 {
        self.rows_before + self.rows
    }

    /// The row whose last record is number `last` is programmed.
    pub fn programmed(&mut self, last: u64) {
        let at = self.sent.iter().position(|row| row.0 == last).expect("it was sent");
        self.sent[at].1 = true;
        while let Some(&(number, true)) = self.sent.front() {
            self.sent.pop_front();
            self.durable = self.durable.max(number);
        }
    }

    /// A checkpoint ended that holds all that records up to `number` say.
    pub fn covered(&mut self, number: u64) {
        self.durable = self.durable.max(number);
        self.rows_before = 0;
    }

    /// Numbers go on after those found on the drive, in so many rows.
    pub fn continue_after(&mut self, number: u64, page: u64, rows: u64) {
        (self.last, self.durable, self.page) = (number, number, page);
        self.rows = rows;
    }
}

impl<D: OpenChannel> Pblk<D> {
    /// Records that the copies of a block that were made so far do not count.
    /// Gives the record's number.
    pub(super) fn give_up(&mut self, lba: u64, lost: bool) -> u64 {
        if is(Mutation::TrimInMemory) {
            return 0;
        }
        // Copies in a row being gathered, which has no number yet, are voided
        // instead.
        let upto = self.units.last_seq();
        self.saved.log.give_up(lba, upto, lost)
    }

    /// Somebody waits for the records that are pending.
    #[cold]
    pub(super) fn want_log(&mut self) {
        if !self.saved.log.wanted && !self.saved.log.pending.is_empty() {
            self.saved.log.wanted = true;
            self.facts.news = true;
        }
    }

    /// Sends the records that are wanted, as far as there are rows for them.
    #[cold]
    pub(super) fn send_log(&mut self) {
        while self.saved.log.wanted && self.send_log_row() {}
    }

    /// Sends a row of records. False where there is none to gather them in.
    fn send_log_row(&mut self) -> bool {
        let Some(row) = self.saved.meta.take_row(Purpose::Log(0), ROOT_ROWS) else { return false };
        let seq = self.saved.checkpoint.root.number + 1;
        let mut page = self.saved.log.page;
        for records in self.saved.log.first().chunks(PAGE_RECORDS) {
            let tag = Tag { id: own_id(Kind::Log, page), seq };
            page += 1;
            self.saved.meta.add(row, tag, |bytes| store_page(bytes, records));
        }
        self.saved.log.page = page;
        self.saved.meta.rows[row as usize].purpose = Purpose::Log(self.saved.log.send());
        self.send_own_row(row);
        true
    }

    /// Records up to this one are programmed.
    pub(super) fn log_programmed(&mut self, last: u64) {
        self.saved.log.programmed(last);
        self.release_erases();
    }

    /// Tries the erases again that waited for records.
    pub(super) fn release_erases(&mut self) {
        for chunk in std::mem::take(&mut self.saved.log.held) {
            self.try_erase(chunk);
        }
    }
}
