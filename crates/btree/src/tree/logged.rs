//! How a tree goes through its redo log ([`crate::redo`]): changes are admitted and
//! logged, flushes are answered, pages wait for records, and room in the log is made.

use super::{Flush, Stop, Tree};
use crate::error::Error;
use crate::op::{Outcome, Sink};
use crate::redo::{Alone, Change, Commit, Redo, RedoCounters, record};
use crate::store::{PageStore, StoreError};

impl<S: PageStore> Tree<S> {
    /// What the redo log has done, if there is one.
    pub fn redo(&self) -> Option<RedoCounters> {
        self.redo.as_ref().map(|redo| redo.counters)
    }

    /// Sees that a change can be logged. To be asked before it changes anything.
    #[inline]
    pub(super) fn admit_record(&mut self, change: Change) -> Result<(), Stop> {
        let stamp = self.cache.stamp();
        let Some(redo) = &mut self.redo else { return Ok(()) };
        if redo.admits(change, stamp, self.levels, self.free_pages) {
            return Ok(());
        }
        self.asked = true;
        Err(Stop::Pressed)
    }

    /// Logs a put or a delete that was made.
    #[inline]
    pub(super) fn log_one(&mut self, key: &[u8], value: Option<&[u8]>) {
        if let Some(redo) = &mut self.redo {
            let bytes = record::size_of_one(key, value);
            redo.log(bytes, |to| record::put_one(key, value, to));
            self.asked |= redo.is_pressed();
        }
    }

    /// Logs a batch that was made.
    pub(super) fn log_batch(&mut self, writes: &[u8]) {
        if let Some(redo) = &mut self.redo {
            redo.log(record::size_of(writes), |to| record::put(writes, to));
            self.asked |= redo.is_pressed();
        }
    }

    /// Takes a flush of the tree, if there is a log.
    pub(super) fn commit(&mut self, tag: u64) -> Option<Result<(), Error>> {
        let most = self.ops.len();
        let redo = self.redo.as_mut()?;
        if redo.commits.len() >= most {
            return Some(Err(Error::Busy(most)));
        }
        redo.commits.push_back(Commit { tag, records: redo.records() });
        self.asked = true;
        Some(Ok(()))
    }

    /// Whether a batch of pages has to wait for records to be durable. If so, changes
    /// wait for it from now on.
    pub(super) fn waits_for_records(&mut self) -> bool {
        let Some(redo) = &mut self.redo else { return false };
        let waits = !redo.is_durable();
        redo.hold |= waits;
        waits
    }

    /// No batch of pages waits: changes go on.
    pub(super) fn let_go(&mut self) {
        if let Some(redo) = &mut self.redo
            && std::mem::take(&mut redo.hold)
        {
            self.retry = true;
        }
    }

    /// A write of the log has ended.
    pub(super) fn end_log_write(&mut self, result: Result<(), StoreError>) {
        self.written = true;
        match (result, &mut self.redo) {
            (Ok(()), Some(redo)) => redo.end_write(),
            (Ok(()), None) => {}
            (Err(error), _) => {
                self.failed.get_or_insert(error);
            }
        }
    }

    /// The pages that were dirty at a stamp are durable.
    pub(super) fn end_page_flush(&mut self, stamp: u64) {
        self.written = true;
        self.retry = true;
        if let Some(redo) = &mut self.redo {
            redo.pages_durable(stamp);
        }
    }

    /// Answers flushes, makes room in the log, and writes what is to be written. False
    /// when nothing moved.
    pub(super) fn go_on_with_log(&mut self, sink: &mut impl Sink) -> bool {
        let Some(redo) = &mut self.redo else { return false };
        if let Some(error) = self.failed {
            let moved = redo.holds_up() || !redo.commits.is_empty();
            self.retry |= redo.give_up();
            for commit in redo.commits.drain(..) {
                sink.done(commit.tag, Err(Error::Store(error)));
            }
            return moved;
        }
        let mut moved = false;
        while let Some(first) = redo.commits.front()
            && redo.has_flushed(first.records)
        {
            sink.done(first.tag, Ok(Outcome::Flushed));
            redo.commits.pop_front();
            moved = true;
        }
        if redo.alone == Alone::Ready {
            // Who wanted to be alone could have been, just now.
            redo.alone = Alone::No;
            self.retry = true;
            moved = true;
        }
        if redo.trimming.is_none()
            && let Some(stamp) = wanted_pages(redo, self.cache.stamp())
        {
            redo.trimming = Some(stamp);
            self.flushes.push_back(Flush { tag: 0, stamp, after: None });
            moved = true;
        }
        if redo.wants_write() && self.store.can_write_beside() {
            // Who found no room has the first of what there is now.
            self.retry |= redo.is_full();
            redo.write(&mut self.store);
            moved = true;
        }
        moved
    }
}

/// Up to which stamp pages are to be made durable for the log, if they are; `newest` is
/// that of the newest.
fn wanted_pages(redo: &mut Redo, newest: u64) -> Option<u64> {
    match redo.alone {
        Alone::Wanted if redo.is_durable() => redo.alone = Alone::Emptying,
        Alone::Made => redo.alone = Alone::Ending,
        Alone::Wanted | Alone::Emptying | Alone::Marking | Alone::Ready | Alone::Ending => {
            return None;
        }
        Alone::No => return redo.wants_room(),
    }
    Some(newest)
}
