//! How the tree goes on with time: what its store completed is taken, and who
//! waited for it tries again.
//!
//! Guarantees: an operation that waits for a page is tried when the page came,
//! one that waits for room when there may be some; of the latter the oldest
//! first. Nothing here fails: what an operation came to goes to its sink.

use port::Time;

use super::{NEVER_WRITTEN, Tree};
use crate::cache::NONE;
use crate::error::Error;
use crate::op::Sink;
use crate::page::View;
use crate::redo::{self, Redo};
use crate::store::{PageStore, StoreDone, StoreError};

impl<S: PageStore> Tree<S> {
    /// Lets happen what is due at `now`: pages arrive, operations go on,
    /// changed pages are written. Time never goes back.
    pub fn poll(&mut self, now: Time, sink: &mut impl Sink) {
        self.now = self.now.max(now);
        self.asked = false;
        loop {
            // This also gives the drive what was asked of it just now.
            self.store.poll(self.now, &mut self.done);
            let retry = std::mem::take(&mut self.retry);
            // With no page dirty or on its way there is nothing to wait for.
            let log = self.redo.as_ref().is_some_and(Redo::holds_up);
            let again = retry || (self.cache.held == 0 && !log && !self.held_up.is_empty());
            self.written |= again;
            // What took the room of a read may be something of the store's own, of
            // which nothing is told.
            let room = self.full && !self.stalled.is_empty() && self.store.can_read();
            let mut moved = again || room || !self.done.is_empty();
            while let Some(done) = self.done.pop() {
                self.take_done(done, sink);
            }
            if moved {
                self.run_stalled(sink);
            }
            moved |= self.write_back();
            moved |= self.push_flushes(sink);
            moved |= self.go_on_with_log(sink);
            if !moved {
                return;
            }
        }
    }

    /// When to poll next; `None` when there is no reason to, or when a drive
    /// on another thread has the next word.
    pub fn next_event(&self) -> Option<Time> {
        if self.asked || self.retry { Some(self.now) } else { self.store.next_event() }
    }

    /// Waits, if there is anything to wait for, and polls. False when nothing
    /// will ever happen.
    pub fn wait(&mut self, sink: &mut impl Sink) -> bool {
        let next = if self.asked || self.retry { Some(self.now) } else { self.store.wait() };
        match next {
            Some(at) => self.poll(at, sink),
            None => return false,
        }
        true
    }

    fn take_done(&mut self, done: StoreDone, sink: &mut impl Sink) {
        match done {
            StoreDone::Read { page, buffer, result } if page >= self.store.pages() => {
                self.looked_up = Some((buffer, result));
            }
            StoreDone::Read { page, buffer, result } => self.end_read(page, buffer, result, sink),
            StoreDone::Write { id: redo::WRITE, result } => self.end_log_write(result),
            StoreDone::Write { id, result } => self.end_write(id, result),
            StoreDone::Flush { result, .. } => self.end_flush(result, sink),
        }
    }

    fn end_read(
        &mut self,
        page: u64,
        buffer: port::Buffer,
        result: Result<(), StoreError>,
        sink: &mut impl Sink,
    ) {
        let frame = self.cache.find(page).expect("a page that is read has a frame");
        self.cache.end_read(frame, buffer);
        let checked = match result {
            Ok(()) => {
                let view: View<'_> = self.cache.view(frame);
                view.check(page).map_err(|what| Error::Damaged { page, what })
            }
            Err(StoreError::Damaged { page }) => {
                Err(Error::Damaged { page, what: "its checksum is wrong" })
            }
            Err(StoreError::Unwritten { page }) => {
                Err(Error::Damaged { page, what: NEVER_WRITTEN })
            }
            Err(error) => Err(Error::Store(error)),
        };
        let (mut id, _) = self.cache[frame].waiters;
        self.cache.frame_mut(frame).waiters = (NONE, NONE);
        if let Err(error) = checked {
            self.broken = Some(error);
            self.cache.discard(frame);
        }
        while id != NONE {
            let next = self.ops.next(id);
            match checked {
                Ok(()) => self.run_counted(id, sink),
                Err(error) => {
                    let body = self.ops.body(id);
                    let tag = body.tag;
                    self.ops.restore(id, body);
                    self.release(id);
                    sink.done(tag, Err(error));
                }
            }
            id = next;
        }
    }

    /// Tries the operations that waited for room, each once at most: those that
    /// wait for a batch when one has ended, others until the store refuses a
    /// read.
    fn run_stalled(&mut self, sink: &mut impl Sink) {
        if std::mem::take(&mut self.written) {
            for _ in 0..self.held_up.len() {
                let Some(id) = self.held_up.pop_front() else { break };
                self.run_counted(id, sink);
            }
        }
        for i in 0..self.stalled.len() {
            let Some(id) = self.stalled.pop_front() else { return };
            self.full = false;
            if i == 0 {
                self.run_counted(id, sink)
            } else {
                self.run(id, sink)
            }
            if self.full {
                // It stays in front of those that were not tried.
                if self.stalled.back() == Some(&id) {
                    self.stalled.pop_back();
                    self.stalled.push_front(id);
                }
                return;
            }
        }
    }

    /// Waits until all that was asked for is done. For opening and tests.
    pub(super) fn settle(&mut self) -> Result<(), Error> {
        self.flush(0)?;
        while !self.flushes.is_empty() {
            if !self.wait(&mut ()) {
                return Err(Error::Store(StoreError::Gone));
            }
        }
        self.failed.map_or(Ok(()), |error| Err(Error::Store(error)))
    }
}
