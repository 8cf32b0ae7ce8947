//! Changes: put, delete and batch.
//!
//! A change first sees that all it needs is there: the pages on its way, free
//! frames for new pages, room for dirty ones, free pages. Only then it changes
//! anything, and from then on nothing can go wrong.
//!
//! A delete takes a page out that becomes empty, and merges one that is less
//! than a quarter full with a neighbour that is in memory.

use std::cmp::Ordering;

use super::worst::Worst;
use super::{Path, Stop, Tree, Way};
use crate::cache::State;
use crate::error::Error;
use crate::op::{Outcome, decode};
use crate::page::{
    HEADER, Kind, MAX_KEY, MAX_OVERFLOW, OVERFLOW_BYTES, ROOM, SLOT, Value, is_inline,
    overflow_pages, separator, split_inner, split_leaf,
};
use crate::redo::room::Need;
use crate::redo::{Change, record};
use crate::store::PageStore;

/// What it takes to put a record into its leaf.
struct Place {
    /// Only its leaf changes.
    is_simple: bool,
    need: Need,
}

impl<S: PageStore> Tree<S> {
    fn writable(&self) -> Result<(), Stop> {
        match self.failed {
            None => Ok(()),
            Some(error) => Err(Stop::Fail(Error::Store(error))),
        }
    }

    /// How many pages may change together. Fails where these are more, however much is
    /// free.
    fn at_once(&self, worst: Worst) -> Result<usize, Stop> {
        let most = self.store.max_batch().min(self.cache.len() / 4);
        match worst.changed {
            pages if pages > most => Err(Error::BatchTooLarge { pages, most }.into()),
            _ => Ok(most),
        }
    }

    /// Sees that a change of several pages finds room. What it makes give way
    /// may be on the change's own path: the caller looks again.
    fn reserve(&mut self, worst: Worst) -> Result<(), Stop> {
        let most = self.at_once(worst)?;
        self.ensure_pages(worst.pages)?;
        self.room_for_dirty(worst.changed)?;
        if self.cache.group.len + worst.changed > most && !self.write_group() {
            return Err(self.press());
        }
        if self.cache.make_free(worst.frames) {
            return Ok(());
        }
        // A read that ends gives room, too.
        self.press();
        Err(Stop::Stalled)
    }

    fn room_for_dirty(&mut self, count: usize) -> Result<(), Stop> {
        if self.cache.held + count <= self.hard { Ok(()) } else { Err(self.press()) }
    }

    pub(super) fn try_put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Stop> {
        self.writable()?;
        let (leaf, found) = self.find_leaf(key)?;
        let place = self.place(leaf, found, key, value);
        let change = Change { bytes: record::size_of_one(key, Some(value)), need: place.need };
        if place.is_simple {
            self.admit_record(change)?;
            self.put_simply(leaf, found, key, value)?;
        } else {
            let path = self.locate(key)?;
            let mut worst = self.worst(key.len(), Some(value.len()));
            // What finds no room waits for nothing.
            worst.pages = self.ensure_pages_beyond(&path, key, value)?;
            self.admit_record(change)?;
            self.reserve(worst)?;
            let path = self.locate(key)?;
            self.apply_put(&path, key, value);
        }
        self.log_one(key, Some(value));
        Ok(())
    }

    /// The leaf that has `key` or would have it, and where in that: where the last get ended,
    /// if that was for this key.
    #[inline]
    fn find_leaf(&mut self, key: &[u8]) -> Result<(u32, Result<usize, usize>), Stop> {
        if let Some(known) = self.known(key) {
            return Ok(known);
        }
        let leaf = self.descend(key, |_, _| {})?;
        Ok((leaf, self.cache.view(leaf).search(key)))
    }

    /// The same, without a way from the root. What the page itself says is believed alone: it
    /// has the key, or keys on both sides of it.
    #[inline]
    fn known(&mut self, key: &[u8]) -> Option<(u32, Result<usize, usize>)> {
        let Way { leaf, at, left } = self.way.take()?;
        if left != self.cache.left {
            return None;
        }
        let view = self.cache.view(leaf);
        if at >= view.count() {
            return None;
        }
        match view.key(at).cmp(key) {
            Ordering::Equal => Some((leaf, Ok(at))),
            Ordering::Greater if at > 0 && view.key(at - 1) < key => Some((leaf, Err(at))),
            _ => None,
        }
    }

    /// What it takes to put a record into its leaf, where its key was `found`.
    #[inline]
    fn place(&self, leaf: u32, found: Result<usize, usize>, key: &[u8], value: &[u8]) -> Place {
        let view = self.cache.view(leaf);
        let old = found.ok().map(|i| view.value(i));
        let need = Need::put(key.len(), value.len(), old);
        let room = match old {
            None => view.room(),
            Some(old @ Value::Inline(_)) => view.room() + old.cost(key.len()),
            Some(Value::Overflow(..)) => 0,
        };
        let fits = Value::Inline(value).cost(key.len()) <= room;
        Place { need, is_simple: fits && is_inline(key.len(), value.len()) }
    }

    /// Puts a record where only its leaf changes.
    #[inline]
    fn put_simply(
        &mut self,
        leaf: u32,
        found: Result<usize, usize>,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), Stop> {
        let new = Value::Inline(value);
        if !self.cache[leaf].dirty {
            self.room_for_dirty(1)?;
        }
        self.cache.mark(leaf, self.together);
        let mut edit = self.cache.edit(leaf);
        match found {
            Ok(i) if edit.overwrite(i, value) => {}
            Ok(i) => {
                edit.remove(i);
                edit.insert(i, key, new);
            }
            Err(i) => edit.insert(i, key, new),
        }
        Ok(())
    }

    /// Puts a record; all that is needed is there.
    fn apply_put(&mut self, path: &Path, key: &[u8], value: &[u8]) {
        let leaf = path.leaf();
        let found = self.cache.view(leaf).search(key);
        self.cache.mark(leaf, true);
        let at = match found {
            Ok(i) => {
                self.free_value(leaf, i);
                self.cache.edit(leaf).remove(i);
                i
            }
            Err(i) => i,
        };
        let mut list = [0; 8 * MAX_OVERFLOW];
        let new = self.store_value(key.len(), value, &mut list);
        if self.cache.view(leaf).room() >= new.cost(key.len()) {
            self.cache.edit(leaf).insert(at, key, new);
        } else {
            self.split(path, at, key, new);
        }
    }

    /// Sees that a put finds its pages, beyond those that it gives up first of the value
    /// that it takes the place of: so a full store takes a shorter value for a longer one.
    /// Gives how many these are.
    fn ensure_pages_beyond(
        &mut self,
        path: &Path,
        key: &[u8],
        value: &[u8],
    ) -> Result<usize, Stop> {
        let view = self.cache.view(path.leaf());
        let old = view.search(key).ok().map(|i| view.value(i));
        let (long, new) = match is_inline(key.len(), value.len()) {
            true => (0, Value::Inline(value).cost(key.len())),
            false => {
                let pages = overflow_pages(value.len());
                (pages, Value::long_cost(key.len(), pages))
            }
        };
        let mut pages = long;
        if view.room() + old.map_or(0, |old| old.cost(key.len())) < new {
            // The leaf is split, and what is above as far as a separator may find no room.
            let is_full =
                |&&(frame, _): &&(u32, usize)| self.cache.view(frame).room() < SLOT + 8 + MAX_KEY;
            let inner = &path.steps[..path.len - 1];
            let split = inner.iter().rev().take_while(is_full).count();
            // A root that is split gets another above it.
            pages += 1 + split + usize::from(split == inner.len());
        }
        let given_up = old.iter().flat_map(Value::pages);
        let (mut own, mut read) = (0, 0);
        for page in given_up {
            // The read of it may still be under way: it is not taken at once then.
            *if self.cache.is_read(page) { &mut read } else { &mut own } += 1;
        }
        // Where page 0 has no room for them, it lists enough others.
        let pages = if self.lists(own + read) { pages.saturating_sub(own) } else { pages };
        match self.ensure_pages(pages) {
            // There will be some when they were read.
            Err(Stop::Fail(Error::Full(_))) if read > 0 => Err(Stop::Stalled),
            found => found.map(|()| pages),
        }
    }

    /// Gives the overflow pages of a record up.
    fn free_value(&mut self, leaf: u32, i: usize) {
        let mut pages = [0; MAX_OVERFLOW];
        let mut count = 0;
        for page in self.cache.view(leaf).value(i).pages() {
            pages[count] = page;
            count += 1;
        }
        for &page in &pages[..count] {
            self.free(page);
        }
    }

    /// A value as the leaf is to keep it; a long one goes to pages.
    fn store_value<'a>(
        &mut self,
        key: usize,
        value: &'a [u8],
        list: &'a mut [u8; 8 * MAX_OVERFLOW],
    ) -> Value<'a> {
        if is_inline(key, value.len()) {
            return Value::Inline(value);
        }
        let count = overflow_pages(value.len());
        for (part, entry) in value.chunks(OVERFLOW_BYTES).zip(list.chunks_exact_mut(8)) {
            let (page, frame) = self.alloc(Kind::Overflow, 0);
            entry.copy_from_slice(&page.to_le_bytes());
            let bytes = &mut self.cache.edit(frame).0[HEADER..];
            bytes[..part.len()].copy_from_slice(part);
            bytes[part.len()..].fill(0);
        }
        Value::Overflow(value.len() as u32, &list[..8 * count])
    }

    /// Splits a leaf to put a record in, and what is above where needed.
    fn split(&mut self, path: &Path, at: usize, key: &[u8], value: Value<'_>) {
        let leaf = path.leaf();
        let last = at == self.cache.view(leaf).count();
        let ascending = last && at > 0 && self.is_last(path);
        let (mut page, right) = self.alloc(Kind::Leaf, 0);
        let (mut low, mut high) = self.cache.edit_two(leaf, right);
        split_leaf(&mut low, &mut high, at, key, value, ascending);
        let mut up = std::mem::take(&mut self.separator);
        up.clear();
        let low = low.view();
        up.extend_from_slice(separator(low.key(low.count() - 1), high.view().key(0)));
        self.counters.splits += 1;
        let mut step = path.len - 1;
        loop {
            if step == 0 {
                self.grow(&up, page);
                break;
            }
            step -= 1;
            let (parent, child) = path.steps[step];
            self.cache.mark(parent, true);
            if self.cache.view(parent).room() >= SLOT + 8 + up.len() {
                self.cache.edit(parent).insert_child(child, &up, page);
                break;
            }
            let level = self.cache.view(parent).level();
            let (upper, right) = self.alloc(Kind::Inner, level);
            let mut middle = std::mem::take(&mut self.upward);
            let (mut low, mut high) = self.cache.edit_two(parent, right);
            split_inner(&mut low, &mut high, child, &up, page, &mut middle);
            self.upward = std::mem::replace(&mut up, middle);
            page = upper;
            self.counters.splits += 1;
        }
        self.separator = up;
    }

    /// Whether the leaf is the last of the tree.
    fn is_last(&self, path: &Path) -> bool {
        let inner = &path.steps[..path.len - 1];
        inner.iter().all(|&(frame, child)| child == self.cache.view(frame).count())
    }

    /// Puts a root above the old one, which was split.
    fn grow(&mut self, key: &[u8], right: u64) {
        let (old, height) = (self.root(), self.height());
        let (root, frame) = self.alloc(Kind::Inner, height as u8);
        let mut edit = self.cache.edit(frame);
        edit.set_first(old);
        edit.insert_child(0, key, right);
        self.set_root(root, height + 1);
    }

    pub(super) fn try_delete(&mut self, key: &[u8]) -> Result<Outcome, Stop> {
        self.writable()?;
        let path = self.locate(key)?;
        if self.cache.view(path.leaf()).search(key).is_err() {
            return Ok(Outcome::Missing);
        }
        let bytes = record::size_of_one(key, None);
        self.admit_record(Change { bytes, need: Need::delete() })?;
        let view = self.cache.view(path.leaf());
        let Ok(i) = view.search(key) else { return Ok(Outcome::Missing) };
        let old = view.value(i);
        let left = view.used() - old.cost(key.len());
        let simple = matches!(old, Value::Inline(_)) && (left >= ROOM / 4 || self.height() == 1);
        if simple {
            let leaf = path.leaf();
            if !self.cache[leaf].dirty {
                self.room_for_dirty(1)?;
            }
            self.cache.mark(leaf, self.together);
            self.cache.edit(leaf).remove(i);
            self.log_one(key, None);
            return Ok(Outcome::Deleted);
        }
        let worst = self.worst(key.len(), None);
        self.reserve(worst)?;
        let path = self.locate(key)?;
        self.apply_delete(&path, key);
        self.log_one(key, None);
        Ok(Outcome::Deleted)
    }

    /// Deletes a key, if it is there; all that is needed is there.
    fn apply_delete(&mut self, path: &Path, key: &[u8]) {
        let leaf = path.leaf();
        let Ok(i) = self.cache.view(leaf).search(key) else { return };
        self.cache.mark(leaf, true);
        self.free_value(leaf, i);
        self.cache.edit(leaf).remove(i);
        let used = self.cache.view(leaf).used();
        if path.len == 1 || used >= ROOM / 4 {
            return;
        }
        match used {
            // Its keys' place would be another leaf, which may not be there
            // for the batch's next write: it waits for the batch's end.
            0 if self.together => {}
            0 => self.take_out(path),
            _ => self.merge(path),
        }
    }

    /// Takes the leaf of `key` out if a batch has left it empty. Where one was
    /// taken out before, the key may lead to a leaf that is not there.
    fn take_out_empty(&mut self, key: &[u8]) {
        if !self.is_there(key) {
            return;
        }
        let Ok(path) = self.locate(key) else { unreachable!("all of the path is there") };
        if path.len > 1 && self.cache.view(path.leaf()).used() == 0 {
            self.take_out(&path);
        }
    }

    /// Takes an empty leaf out of the tree, and what is left without children.
    fn take_out(&mut self, path: &Path) {
        let leaf = self.cache[path.leaf()].page;
        let inner = &path.steps[..path.len - 1];
        let parent = inner.iter().rposition(|&(frame, _)| self.cache.view(frame).count() > 0);
        self.counters.merges += 1;
        let Some(parent) = parent else {
            // The leaf was all that there is: it is the root now.
            for &(frame, _) in inner {
                self.free(self.cache[frame].page);
            }
            return self.set_root(leaf, 1);
        };
        for &(frame, _) in &path.steps[parent + 1..path.len] {
            self.free(self.cache[frame].page);
        }
        let (frame, child) = inner[parent];
        self.cache.mark(frame, true);
        self.cache.edit(frame).remove_child(child);
        self.lower();
    }

    /// Merges a leaf with a neighbour of the same parent that is in memory, if
    /// both fit with room to spare.
    fn merge(&mut self, path: &Path) {
        let leaf = path.leaf();
        let (parent, child) = path.steps[path.len - 2];
        let count = self.cache.view(parent).count();
        let beside = [(child < count).then_some(child + 1), child.checked_sub(1)];
        for other in beside.into_iter().flatten() {
            let page = self.cache.view(parent).child(other);
            let Some(frame) = self.cache.find(page) else { continue };
            if self.cache[frame].state != State::Ready || frame == leaf {
                continue;
            }
            if self.cache.view(frame).used() + self.cache.view(leaf).used() > ROOM * 3 / 4 {
                continue;
            }
            let (low, high) = if other > child { (leaf, frame) } else { (frame, leaf) };
            let (mut low_page, high_page) = self.cache.edit_two(low, high);
            low_page.append_all(high_page.view());
            self.cache.mark(low, true);
            self.free(self.cache[high].page);
            self.cache.mark(parent, true);
            self.cache.edit(parent).remove_child(child.max(other));
            self.counters.merges += 1;
            return self.lower();
        }
    }

    /// Takes roots away that have one child. A root is in memory here, unless
    /// nothing was taken from it.
    fn lower(&mut self) {
        while self.height() > 1 {
            let root = self.root();
            let Some(frame) = self.cache.find(root) else { return };
            if self.cache[frame].state != State::Ready || self.cache.view(frame).count() > 0 {
                return;
            }
            let child = self.cache.view(frame).first();
            let height = self.height();
            self.free(root);
            self.set_root(child, height - 1);
        }
    }

    /// Does all writes that `bytes` encodes ([`crate::op::encode`]).
    pub(super) fn try_batch(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        self.writable()?;
        self.see_all(bytes)?;
        let (worst, need) = self.worst_of(bytes)?;
        // Of what is too large anyway that is told, and not that there is no room.
        self.at_once(worst)?;
        self.ensure_pages(worst.pages)?;
        self.admit_record(Change { bytes: record::size_of(bytes), need })?;
        self.reserve(worst)?;
        // What had to give way for that is read again.
        self.see_all(bytes)?;
        let (pages, changed) = (self.pages_used(), self.cache.group.len);
        self.together = true;
        for write in decode(bytes) {
            self.apply_write(write.key, write.value);
        }
        for write in decode(bytes).filter(|write| write.value.is_none()) {
            self.take_out_empty(write.key);
        }
        self.together = false;
        assert!(self.pages_used() <= pages + worst.pages as u64, "no more pages than were seen to");
        assert!(self.cache.group.len <= changed + worst.changed, "all in one batch of the store");
        self.log_batch(bytes);
        Ok(())
    }

    /// Sees that the leaves of all writes are there: those that are not are
    /// read at the same time.
    fn see_all(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        let mut missing = None;
        for write in decode(bytes) {
            match self.descend(write.key, |_, _| {}) {
                Ok(_) => {}
                Err(Stop::Fail(error)) => return Err(error.into()),
                Err(stop) => missing = Some(stop),
            }
        }
        missing.map_or(Ok(()), Err)
    }

    fn apply_write(&mut self, key: &[u8], value: Option<&[u8]>) {
        let Ok(path) = self.locate(key) else { unreachable!("nothing gives way in between") };
        match value {
            Some(value) => {
                let found = self.cache.view(path.leaf()).search(key);
                let place = self.place(path.leaf(), found, key, value);
                let simply =
                    place.is_simple && self.put_simply(path.leaf(), found, key, value).is_ok();
                if !simply {
                    self.apply_put(&path, key, value);
                }
            }
            None => self.apply_delete(&path, key),
        }
    }
}
