//! From the root to a leaf.

use super::{MAX_LEVELS, Path, Stop, Tree};
use crate::cache::{NONE, State};
use crate::error::Error;
use crate::store::{PageStore, StoreError};

/// Rounds of the cache's hand that a page survives without use.
const LEAF_ROUNDS: u8 = 1;
const INNER_ROUNDS: u8 = 3;

impl<S: PageStore> Tree<S> {
    /// The frame of a page that is there; where it is not, begins to read it.
    #[inline]
    pub(super) fn need(&mut self, page: u64) -> Result<u32, Stop> {
        self.cache.counters.lookups += 1;
        match self.cache.find(page) {
            Some(frame) if self.cache[frame].state == State::Ready => Ok(frame),
            Some(frame) => {
                self.cache.counters.misses += 1;
                Err(Stop::Page(frame))
            }
            None => {
                self.cache.counters.misses += 1;
                Err(self.fetch(page))
            }
        }
    }

    /// Begins to read a page that is not there.
    #[cold]
    pub(super) fn fetch(&mut self, page: u64) -> Stop {
        if page >= self.store.pages() {
            return Stop::Fail(Error::Damaged { page, what: "there is no such page" });
        }
        if self.starving != NONE && self.starving != self.current {
            return Stop::Stalled;
        }
        let Some(frame) = self.cache.take() else { return Stop::Stalled };
        let buffer = self.cache.begin_read(frame, page);
        match self.store.read(page, buffer) {
            Ok(()) => {
                self.asked = true;
                Stop::Page(frame)
            }
            Err(buffer) => {
                self.cache.end_read(frame, buffer);
                self.cache.discard(frame);
                self.full = true;
                Stop::Stalled
            }
        }
    }

    /// The pages from the root to the leaf that has `key`, or would have it.
    pub(super) fn locate(&mut self, key: &[u8]) -> Result<Path, Stop> {
        let mut path = Path { steps: [(NONE, 0); MAX_LEVELS], len: 0 };
        let leaf = self.descend(key, |frame, child| {
            path.steps[path.len] = (frame, child);
            path.len += 1;
        })?;
        path.steps[path.len] = (leaf, 0);
        path.len += 1;
        Ok(path)
    }

    /// Goes to the leaf that has `key`, or would have it. `step` hears of each
    /// page above, and of the child that leads on.
    #[inline]
    pub(super) fn descend(
        &mut self,
        key: &[u8],
        mut step: impl FnMut(u32, usize),
    ) -> Result<u32, Stop> {
        let mut page = self.root();
        for level in (0..self.height()).rev() {
            let frame = self.need(page)?;
            let view = self.cache.view(frame);
            if !view.is_at(level) {
                return Err(Stop::Fail(Error::Damaged { page, what: "it is of another level" }));
            }
            if level == 0 {
                self.cache.touch(frame, LEAF_ROUNDS);
                return Ok(frame);
            }
            let child = view.branch(key);
            page = view.child(child);
            self.cache.touch(frame, INNER_ROUNDS);
            step(frame, child);
        }
        unreachable!("a tree has at least one level")
    }

    /// Whether all pages from the root to the leaf of `key` are in memory.
    /// Begins no read.
    pub(super) fn is_there(&self, key: &[u8]) -> bool {
        let mut page = self.root();
        for level in (0..self.height()).rev() {
            let Some(frame) = self.cache.find(page) else { return false };
            if self.cache[frame].state != State::Ready {
                return false;
            }
            if level > 0 {
                let view = self.cache.view(frame);
                page = view.child(view.branch(key));
            }
        }
        true
    }

    /// A page at once, with no operation under way. For opening and checking.
    pub(super) fn page_now(&mut self, page: u64) -> Result<u32, Error> {
        loop {
            match self.need(page) {
                Ok(frame) => return Ok(frame),
                Err(Stop::Fail(error)) => return Err(error),
                Err(Stop::Page(_) | Stop::Stalled | Stop::Pressed) => {}
            }
            self.broken = None;
            if !self.wait(&mut ()) {
                return Err(Error::Store(StoreError::Gone));
            }
            if let Some(error) = self.broken {
                return Err(error);
            }
        }
    }
}
