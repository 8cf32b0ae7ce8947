//! Writing back: changed pages go to the store in large batches.
//!
//! Pages that were changed together (a split: both halves, what is above, page
//! 0; a batch of writes) form the *group*, of which there is one: any two such
//! changes would have page 0 in common. The group is written whole, in one
//! batch of the store, before it can become larger than that. Other dirty
//! pages are consistent with what the group changes, and with nothing older: a
//! leaf may have got the range of one that was taken out. So the group is in the
//! next batch, whatever that is for; others are written oldest first. A page is
//! copied when its batch begins, and may be changed again meanwhile: as the
//! store keeps the order of batches, the later one stands on the earlier.

use super::{Flush, Stop, Tree};
use crate::error::Error;
use crate::op::{Outcome, Sink};
use crate::store::{PageStore, StoreError};

impl<S: PageStore> Tree<S> {
    /// Begins as many batches as are wanted and possible. False when none was.
    pub(super) fn write_back(&mut self) -> bool {
        let mut moved = false;
        while self.wants_write() && self.can_write() {
            if self.waits_for_records() {
                return moved;
            }
            self.start_batch();
            moved = true;
        }
        self.let_go();
        moved
    }

    fn wants_write(&mut self) -> bool {
        let dirty = self.cache.dirty();
        self.pressed &= dirty > 0;
        let flushed = self.flushes.back().is_some_and(|last| self.cache.oldest() <= last.stamp);
        self.pressed || dirty > self.soft || flushed
    }

    fn can_write(&self) -> bool {
        self.failed.is_none()
            && self.flights.iter().any(|flight| flight.seq == 0)
            && self.store.can_write()
    }

    /// Writes the group, if that is possible now.
    pub(super) fn write_group(&mut self) -> bool {
        if !self.can_write() || self.waits_for_records() {
            return false;
        }
        self.pressed = true;
        self.start_batch();
        self.asked = true;
        true
    }

    /// Begins a batch: the group, if there is one, and the oldest of the other
    /// dirty pages.
    fn start_batch(&mut self) {
        let Tree { cache, store, flights, lpids, given_up, .. } = self;
        let id = flights.iter().position(|flight| flight.seq == 0).expect("the caller saw one");
        let flight = &mut flights[id];
        let grouped = cache.group.len > 0;
        let mut most = store.best_batch();
        if grouped && cache.group.len > most {
            most = store.max_batch();
        }
        self.pressed = false;
        lpids.clear();
        while grouped && let Some(frame) = cache.begin_write(true) {
            flight.frames.push(frame);
        }
        while flight.frames.len() < most
            && let Some(frame) = cache.begin_write(false)
        {
            flight.frames.push(frame);
        }
        lpids.extend(flight.frames.iter().map(|&frame| cache[frame].page));
        if grouped {
            // Page 0, which says that they are free, is in the group.
            let room = store.max_batch() - lpids.len();
            let is_read = |page| cache.is_read(page);
            given_up.sort_unstable_by_key(|&page| is_read(page));
            let idle = given_up.iter().take(room).take_while(|&&page| !is_read(page)).count();
            store.give_up(&given_up[..idle]);
            given_up.drain(..idle);
        }
        self.batch_seq += 1;
        flight.seq = self.batch_seq;
        self.counters.batches += 1;
        self.counters.pages_written += lpids.len() as u64;
        let frames = &flight.frames;
        store.write(id as u32, lpids, &mut |i, to| to.copy_from_slice(cache.view(frames[i]).0));
    }

    pub(super) fn end_write(&mut self, id: u32, result: Result<(), StoreError>) {
        let flight = &mut self.flights[id as usize];
        flight.seq = 0;
        self.written = true;
        if let Err(error) = result {
            // The pages stay: the store has older ones.
            self.failed.get_or_insert(error);
            flight.frames.clear();
            return;
        }
        for frame in flight.frames.drain(..) {
            self.cache.end_write(frame);
        }
    }

    /// Goes on with flushes: those whose pages are all written go to the
    /// store. False when nothing moved.
    pub(super) fn push_flushes(&mut self, sink: &mut impl Sink) -> bool {
        if self.flushes.is_empty() {
            return false;
        }
        if self.failed.is_some() && self.redo.is_some() {
            self.flushes.truncate(self.flushing);
            return false;
        }
        if let Some(error) = self.failed {
            let waiting = self.flushes.len() - self.flushing;
            for _ in 0..waiting {
                let flush = self.flushes.pop_back().expect("it was counted");
                sink.done(flush.tag, Err(Error::Store(error)));
            }
            return waiting > 0;
        }
        let oldest = self.cache.oldest();
        let last = self.batch_seq;
        for flush in self.flushes.iter_mut().filter(|flush| flush.after.is_none()) {
            if oldest > flush.stamp {
                flush.after = Some(last);
            }
        }
        if self.flushing > 0 {
            return false;
        }
        let under_way = self.flights.iter().map(|flight| flight.seq).filter(|&seq| seq > 0).min();
        let ready = |flush: &&Flush| {
            flush.after.is_some_and(|after| under_way.is_none_or(|seq| seq > after))
        };
        let count = self.flushes.iter().take_while(ready).count();
        if count == 0 || !self.store.flush(0) {
            return false;
        }
        self.flushing = count;
        true
    }

    pub(super) fn end_flush(&mut self, result: Result<(), StoreError>, sink: &mut impl Sink) {
        self.written = true;
        if let Err(error) = result {
            self.failed.get_or_insert(error);
        }
        for _ in 0..std::mem::take(&mut self.flushing) {
            let flush = self.flushes.pop_front().expect("it was counted");
            if self.redo.is_some() {
                if result.is_ok() {
                    self.end_page_flush(flush.stamp);
                }
                continue;
            }
            sink.done(flush.tag, result.map(|()| Outcome::Flushed).map_err(Error::Store));
        }
    }

    /// Stops an operation until a batch has been written; says that one is
    /// wanted.
    pub(super) fn press(&mut self) -> Stop {
        self.pressed = true;
        self.asked = true;
        Stop::Pressed
    }
}
