//! Get and scan.

use super::{Path, Stop, Tree, Way};
use crate::error::Error;
use crate::op::{Body, Kind, Outcome, Sink};
use crate::page::{self, HEADER, MAX_OVERFLOW, OVERFLOW_BYTES, Value};
use crate::store::PageStore;

/// Leaves that a scan reads ahead at most.
const AHEAD: u64 = 8;

impl<S: PageStore> Tree<S> {
    #[inline]
    pub(super) fn try_get(
        &mut self,
        tag: u64,
        key: &[u8],
        sink: &mut impl Sink,
    ) -> Result<Outcome, Stop> {
        let leaf = self.descend(key, |_, _| {})?;
        let view = self.cache.view(leaf);
        let found = view.search(key);
        let (Ok(at) | Err(at)) = found;
        self.way = Some(Way { leaf, at, left: self.cache.left });
        let Ok(i) = found else { return Ok(Outcome::Missing) };
        match view.value(i) {
            Value::Inline(value) => sink.record(tag, key, value),
            Value::Overflow(..) => {
                self.gather(leaf, i)?;
                sink.record(tag, key, &self.long);
            }
        }
        Ok(Outcome::Found)
    }

    /// Puts a long value together.
    fn gather(&mut self, leaf: u32, i: usize) -> Result<(), Stop> {
        let mut pages = [0; MAX_OVERFLOW];
        let value = self.cache.view(leaf).value(i);
        let count = value.pages().len();
        let Value::Overflow(len, _) = value else { unreachable!("only long values are gathered") };
        pages.iter_mut().zip(value.pages()).for_each(|(to, page)| *to = page);
        let mut frames = [0; MAX_OVERFLOW];
        let mut missing = None;
        for (frame, &page) in frames.iter_mut().zip(&pages[..count]) {
            match self.need(page) {
                Ok(at) => *frame = at,
                Err(Stop::Fail(error)) => return Err(error.into()),
                Err(stop) => missing = Some(stop),
            }
        }
        if let Some(stop) = missing {
            return Err(stop);
        }
        self.long.clear();
        for (i, &frame) in frames[..count].iter().enumerate() {
            let view = self.cache.view(frame);
            if view.kind() != Some(page::Kind::Overflow) {
                let what = "it is no part of a long value";
                return Err(Error::Damaged { page: pages[i], what }.into());
            }
            let part = (len as usize - i * OVERFLOW_BYTES).min(OVERFLOW_BYTES);
            self.long.extend_from_slice(&view.0[HEADER..HEADER + part]);
            self.cache.touch(frame, 1);
        }
        Ok(())
    }

    /// Goes on with a scan from the body's key.
    pub(super) fn try_scan(
        &mut self,
        body: &mut Body,
        sink: &mut impl Sink,
    ) -> Result<Outcome, Stop> {
        let Kind::Scan { mut left, mut given } = body.kind else {
            unreachable!("the body of a scan")
        };
        while left > 0 {
            let path = self.locate(&body.key)?;
            let leaf = path.leaf();
            let count = self.cache.view(leaf).count();
            let from = self.cache.view(leaf).search(&body.key).unwrap_or_else(|i| i);
            for i in from..count {
                if left == 0 {
                    break;
                }
                if matches!(self.cache.view(leaf).value(i), Value::Overflow(..)) {
                    // While it is put together the leaf may give way.
                    body.key.clear();
                    body.key.extend_from_slice(self.cache.view(leaf).key(i));
                    self.gather(leaf, i)?;
                }
                let view = self.cache.view(leaf);
                match view.value(i) {
                    Value::Inline(value) => sink.record(body.tag, view.key(i), value),
                    Value::Overflow(..) => sink.record(body.tag, view.key(i), &self.long),
                }
                (left, given) = (left - 1, given + 1);
                body.kind = Kind::Scan { left, given };
            }
            if left == 0 || !self.next_leaf(&path, &mut body.key) {
                break;
            }
            self.read_ahead(&path, left.div_ceil(count.max(1) as u64).min(AHEAD));
        }
        Ok(Outcome::Scanned(given))
    }

    /// Puts the first key that the next leaf may have into `key`. False when
    /// there is no next leaf.
    fn next_leaf(&self, path: &Path, key: &mut Vec<u8>) -> bool {
        for &(frame, child) in path.steps[..path.len - 1].iter().rev() {
            let view = self.cache.view(frame);
            if child < view.count() {
                key.clear();
                key.extend_from_slice(view.key(child));
                return true;
            }
        }
        false
    }

    /// Begins to read the next leaves of the same parent. Pages of the path
    /// may give way to them.
    fn read_ahead(&mut self, path: &Path, leaves: u64) {
        if path.len < 2 {
            return;
        }
        let (parent, child) = path.steps[path.len - 2];
        let view = self.cache.view(parent);
        let mut pages = [0; AHEAD as usize];
        let count = (leaves as usize).min(view.count() - child);
        for (i, page) in pages[..count].iter_mut().enumerate() {
            *page = view.child(child + 1 + i);
        }
        for &page in &pages[..count] {
            if self.cache.find(page).is_some() {
                continue;
            }
            match self.fetch(page) {
                Stop::Page(_) => self.counters.read_ahead += 1,
                Stop::Stalled | Stop::Pressed | Stop::Fail(_) => return,
            }
        }
    }
}
