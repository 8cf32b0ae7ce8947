//! What the log says, told as it is read.
//!
//! A batch is told when it is known what became of it: when a done note covers
//! it, or at the end of the log. So of all batches memory holds only the RDESCs
//! without a done note, however long the log is. Batches are told in the order
//! of their LSNs, which is that of the log.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::location::Location;
use super::page::Page;
use super::record::{Entry, What};
use super::walk::Record;

/// A batch as the log has it.
#[derive(Default)]
pub(super) struct Logged {
    pub what: What,
    pub parts: u16,
    pub seen: u16,
    /// The done note of its record: what was installed when it began.
    pub done: u64,
    pub entries: Vec<Entry>,
}

/// Something that the log says.
pub(super) enum Told<'a> {
    /// A batch and its LSN. Its pages are where they went in the end.
    Batch(u64, &'a Logged),
    /// A location that was to hold a page and failed.
    Failed(Location),
    /// A page that went elsewhere, of a batch that began before the log that is
    /// read, and is installed.
    Moved(&'a Entry),
}

/// The log, up to the record that was taken in last.
#[derive(Default)]
pub(super) struct Story {
    /// Batches that no done note covers.
    pub open: BTreeMap<u64, Logged>,
    /// LSNs of batches that never were.
    pub void: Vec<RangeInclusive<u64>>,
    /// All batches up to this are installed.
    pub done: u64,
    /// The highest LSN.
    pub top: u64,
}

impl Story {
    /// Takes in the next record of the log.
    pub fn take(&mut self, (header, entries): Record, each: &mut impl FnMut(Told)) {
        self.top = self.top.max(header.lsn);
        match header.what {
            What::Done => {}
            What::Void => {
                let first = entries.first().map_or(u64::MAX, |entry| entry.id);
                let mut from = self.open.split_off(&first);
                self.open.extend(from.split_off(&(header.lsn + 1)));
                self.void.push(first..=header.lsn);
            }
            What::Amend => self.amend(header.lsn, &entries, each),
            What::User | What::Collect | What::Meta => {
                let batch = self.open.entry(header.lsn).or_default();
                (batch.what, batch.parts, batch.done) = (header.what, header.parts, header.done);
                batch.seen += 1;
                batch.entries.extend(entries);
            }
        }
        self.is_done(header.done, each);
    }

    /// All batches up to `lsn` are installed: tells them.
    pub fn is_done(&mut self, lsn: u64, each: &mut impl FnMut(Told)) {
        if lsn > self.done {
            self.done = lsn;
        }
        while let Some(batch) = self.open.first_entry().filter(|batch| *batch.key() <= self.done) {
            let (lsn, batch) = batch.remove_entry();
            each(Told::Batch(lsn, &batch));
        }
    }

    /// The log is over: tells the batches that no done note covers, but for
    /// those from the LSN `end` on. Gives how many these are.
    pub fn end(&mut self, end: Option<u64>, each: &mut impl FnMut(Told)) -> usize {
        let dropped = end.map_or(0, |from| self.open.split_off(&from).len());
        for (lsn, batch) in std::mem::take(&mut self.open) {
            each(Told::Batch(lsn, &batch));
        }
        dropped
    }

    /// Pages of a batch failed and go elsewhere.
    fn amend(&mut self, lsn: u64, entries: &[Entry], each: &mut impl FnMut(Told)) {
        entries.iter().for_each(|entry| each(Told::Failed(entry.prior)));
        let Some(batch) = self.open.get_mut(&lsn) else {
            entries.iter().for_each(|entry| each(Told::Moved(entry)));
            return;
        };
        for Entry { id, new, .. } in entries {
            if let Some(held) = batch.entries.iter_mut().find(|held| held.id == *id) {
                held.new = *new;
            }
        }
    }
}

/// What the first reading of the log finds: as much as the tables have pages.
#[derive(Default)]
pub(super) struct Findings {
    /// The pages of tables that the log names: the LSN of the last batch that
    /// wrote each, and where to. LSN 0 where that was before the log.
    pub pages: BTreeMap<Page, (u64, Location)>,
    /// Entries of all batches.
    pub entries: u64,
}

impl Findings {
    pub fn note(&mut self, told: Told) {
        match told {
            Told::Failed(_) => {}
            Told::Moved(entry) => {
                if let Some(page) = Page::from_name(entry.id) {
                    self.pages.entry(page).or_default();
                }
            }
            Told::Batch(lsn, batch) => {
                self.entries += batch.entries.len() as u64;
                if batch.what != What::Meta {
                    return;
                }
                for entry in &batch.entries {
                    if let Some(page) = Page::from_name(entry.id) {
                        self.pages.insert(page, (lsn, entry.new));
                    }
                }
            }
        }
    }
}
