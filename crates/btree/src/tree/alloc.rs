//! Page 0: where the root is, and which pages are free.
//!
//! ```text
//!  byte  32      40        44       48       56      64     72       80 … 96
//!        │ magic │ version │ listed │ unused │ trunk │ free │ beside │ 0    │ free pages … │
//! ```
//!
//! behind a page's header, whose `level` is the tree's height and whose
//! `first` is the root. `unused` (u64) is the first page that was never used;
//! `listed` (u32) counts the numbers (u64) from byte 96 on, `free` (u64) all
//! free pages; `beside` (u64) blocks are a redo log's, 0 where there is none. When those listed are too many, half of them go to a page that is free itself, a *trunk*; `trunk` is
//! the first of these, 0 for none, and `first` of each is the next. Every
//! change that takes or gives up a page changes page 0, so all such changes
//! since the last write belong to one group.

use super::{Stop, Tree};
use crate::cache::State;
use crate::error::Error;
use crate::page::{HEADER, Kind, PAGE_BYTES, View};
use crate::store::PageStore;

const MAGIC_AT: usize = 32;
const VERSION_AT: usize = 40;
const LISTED_AT: usize = 44;
const UNUSED_AT: usize = 48;
const TRUNK_AT: usize = 56;
const FREE_AT: usize = 64;
const BESIDE_AT: usize = 72;
const LIST_AT: usize = 96;

const MAGIC: u64 = u64::from_le_bytes(*b"ssdktree");
const VERSION: u32 = 2;
/// The version in which heads began with their keys.
const WHOLE_HEADS: u32 = 1;

/// Free pages that page 0 lists itself.
const LISTED: usize = (PAGE_BYTES - LIST_AT) / 8;

/// Free pages that a trunk lists.
pub(super) const TRUNK_LISTED: usize = LISTED / 2;

impl<S: PageStore> Tree<S> {
    fn meta(&self) -> u32 {
        self.cache.find(0).expect("page 0 is always there")
    }

    fn meta_view(&self) -> View<'_> {
        self.cache.view(self.meta())
    }

    fn meta_u32(&self, at: usize) -> u32 {
        let bytes = &self.meta_view().0[at..at + 4];
        u32::from_le_bytes(bytes.try_into().expect("4 bytes"))
    }

    pub(super) fn root(&self) -> u64 {
        self.root_page
    }

    pub(super) fn height(&self) -> usize {
        self.levels
    }

    fn unused(&self) -> u64 {
        self.meta_view().u64(UNUSED_AT)
    }

    fn trunk(&self) -> u64 {
        self.meta_view().u64(TRUNK_AT)
    }

    fn listed(&self) -> usize {
        self.meta_u32(LISTED_AT) as usize
    }

    fn listed_page(&self, i: usize) -> u64 {
        self.meta_view().u64(LIST_AT + 8 * i)
    }

    fn put_meta(&mut self, at: usize, value: u64) {
        let meta = self.meta();
        self.cache.mark(meta, true);
        self.cache.edit(meta).put_u64(at, value);
    }

    fn set_listed(&mut self, count: usize) {
        let meta = self.meta();
        self.cache.mark(meta, true);
        let bytes = self.cache.edit(meta);
        bytes.0[LISTED_AT..LISTED_AT + 4].copy_from_slice(&(count as u32).to_le_bytes());
    }

    /// Puts the root and the height into page 0.
    pub(super) fn set_root(&mut self, root: u64, height: usize) {
        (self.root_page, self.levels) = (root, height);
        let meta = self.meta();
        self.cache.mark(meta, true);
        let mut page = self.cache.edit(meta);
        page.set_first(root);
        page.0[17] = height as u8;
    }

    /// Pages that are not free.
    pub(super) fn pages_used(&self) -> u64 {
        self.unused() - self.free_count()
    }

    /// Pages that are free, of those that were ever used.
    pub(super) fn free_count(&self) -> u64 {
        self.meta_view().u64(FREE_AT)
    }

    /// Counts the pages that are free or were never used.
    fn count_free(&mut self) {
        self.free_pages = self.store.pages() - self.pages_used();
    }

    /// Makes page 0 and an empty root.
    pub(super) fn format(&mut self) -> Result<(), Error> {
        let (full, beside) = (Error::Full(self.store.pages()), self.store.beside().blocks);
        if self.store.pages() < 4 {
            return Err(full);
        }
        let meta = self.cache.take().ok_or(full)?;
        self.cache.put(meta, 0);
        let mut page = self.cache.edit(meta);
        page.init(0, Kind::Meta, 1);
        page.0[HEADER..].fill(0);
        page.put_u64(MAGIC_AT, MAGIC);
        page.0[VERSION_AT..VERSION_AT + 4].copy_from_slice(&VERSION.to_le_bytes());
        page.put_u64(UNUSED_AT, 1);
        page.put_u64(BESIDE_AT, beside);
        self.cache.mark(meta, true);
        self.count_free();
        let (root, _) = self.alloc(Kind::Leaf, 0);
        self.set_root(root, 1);
        Ok(())
    }

    /// Looks page 0 over after it was read.
    pub(super) fn check_meta(&mut self, meta: u32) -> Result<(), Error> {
        let view = self.cache.view(meta);
        if view.kind() != Some(Kind::Meta) || view.u64(MAGIC_AT) != MAGIC {
            return Err(Error::NotATree("page 0 is another kind of page"));
        }
        let version = self.meta_u32(VERSION_AT);
        if ![VERSION, WHOLE_HEADS].contains(&version) {
            return Err(Error::NotATree("it was written by another version"));
        }
        let (root, height) = (view.first(), usize::from(view.level()));
        if !self.store.expect_beside(view.u64(BESIDE_AT)) {
            return Err(Error::NotATree("its redo log is not where page 0 says"));
        }
        let good = (1..=super::MAX_LEVELS).contains(&height)
            && self.listed() <= LISTED
            && self.unused() <= self.store.pages()
            && self.free_count() < self.unused()
            && (1..self.unused()).contains(&root);
        if !good {
            return Err(Error::NotATree("page 0 does not add up"));
        }
        (self.root_page, self.levels) = (root, height);
        self.count_free();
        if version != VERSION {
            // It is in the first batch: with what older programs would not read, or
            // before it.
            self.cache.mark(meta, true);
            let page = self.cache.edit(meta);
            page.0[VERSION_AT..VERSION_AT + 4].copy_from_slice(&VERSION.to_le_bytes());
        }
        Ok(())
    }

    /// Sees that `count` pages can be taken: reads a trunk where that is
    /// needed.
    pub(super) fn ensure_pages(&mut self, count: usize) -> Result<(), Stop> {
        loop {
            let never_used = self.store.pages() - self.unused();
            if never_used >= count as u64 {
                return Ok(());
            }
            let missing = count - never_used as usize;
            let listed = self.listed();
            let idle = (0..listed).filter(|&i| !self.cache.is_read(self.listed_page(i))).count();
            if idle >= missing {
                return Ok(());
            }
            let trunk = self.trunk();
            if listed >= missing {
                return Err(Stop::Stalled);
            }
            if trunk == 0 || listed + TRUNK_LISTED + 1 > LISTED {
                return Err(Error::Full(self.store.pages()).into());
            }
            let frame = self.need(trunk)?;
            self.take_trunk(trunk, frame)?;
        }
    }

    /// Lists in page 0 what a trunk lists, and the trunk itself.
    fn take_trunk(&mut self, trunk: u64, frame: u32) -> Result<(), Stop> {
        let view = self.cache.view(frame);
        let (count, next) = (view.count(), view.first());
        if view.kind() != Some(Kind::Trunk) || count > TRUNK_LISTED {
            let what = "it is no list of free pages";
            return Err(Error::Damaged { page: trunk, what }.into());
        }
        self.put_meta(TRUNK_AT, next);
        for i in 0..count {
            let page = self.cache.view(frame).u64(HEADER + 8 * i);
            self.list(page);
        }
        self.cache.forget(frame);
        self.list(trunk);
        Ok(())
    }

    /// Whether page 0 has room to list so many more pages.
    pub(super) fn lists(&self, count: usize) -> bool {
        self.listed() + count <= LISTED
    }

    fn list(&mut self, page: u64) {
        let count = self.listed();
        self.put_meta(LIST_AT + 8 * count, page);
        self.set_listed(count + 1);
    }

    /// Takes a page. The caller saw to it that there is one
    /// ([`Tree::ensure_pages`]) and a free frame.
    pub(super) fn alloc(&mut self, kind: Kind, level: u8) -> (u64, u32) {
        let page = self.pick();
        self.keep(page);
        let frame = match self.cache.find(page) {
            Some(frame) => frame,
            None => {
                let frame = self.cache.take().expect("a frame was made free");
                self.cache.put(frame, page);
                frame
            }
        };
        self.cache.edit(frame).init(page, kind, level);
        self.cache.mark(frame, true);
        (page, frame)
    }

    /// A free page, one that is not just being read: the read of a page that
    /// was given up since may still be under way.
    fn pick(&mut self) -> u64 {
        self.free_pages -= 1;
        let count = self.listed();
        if let Some(i) = (0..count).rev().find(|&i| !self.cache.is_read(self.listed_page(i))) {
            let page = self.listed_page(i);
            let last = self.listed_page(count - 1);
            self.put_meta(LIST_AT + 8 * i, last);
            self.set_listed(count - 1);
            let free = self.free_count();
            self.put_meta(FREE_AT, free - 1);
            return page;
        }
        let page = self.unused();
        assert!(page < self.store.pages(), "the caller saw a free page");
        self.put_meta(UNUSED_AT, page + 1);
        page
    }

    /// A page that is free is to be written: the store is not told to give it up.
    fn keep(&mut self, page: u64) {
        self.given_up.retain(|&free| free != page);
    }

    /// Gives a page up: nothing leads to it any more. May take a free frame.
    pub(super) fn free(&mut self, page: u64) {
        if self.given_up.len() < self.given_up.capacity() {
            self.given_up.push(page);
        }
        let free = self.free_count();
        self.put_meta(FREE_AT, free + 1);
        self.free_pages += 1;
        if let Some(frame) = self.cache.find(page)
            && self.cache[frame].state == State::Ready
        {
            if self.cache[frame].dirty {
                // A flush that waits for it waits for what takes its place: that
                // is in the group, which is now as old.
                self.cache.mark(frame, true);
            }
            self.cache.forget(frame);
        }
        if self.listed() < LISTED {
            return self.list(page);
        }
        self.spill(page);
    }

    /// Makes `page`, which is free, a trunk that lists half of what page 0
    /// does.
    fn spill(&mut self, page: u64) {
        // The trunk must be a page that no read is under way of: one of the
        // listed may change places with it.
        let mut trunk = page;
        if self.cache.is_read(page) {
            let i = (0..LISTED).find(|&i| !self.cache.is_read(self.listed_page(i)));
            let i = i.expect("fewer reads are under way than pages listed");
            trunk = self.listed_page(i);
            self.put_meta(LIST_AT + 8 * i, page);
        }
        let frame = match self.cache.find(trunk) {
            Some(frame) => frame,
            None => {
                let frame = self.cache.take().expect("a frame was made free");
                self.cache.put(frame, trunk);
                frame
            }
        };
        self.keep(trunk);
        let next = self.trunk();
        let mut edit = self.cache.edit(frame);
        edit.init(trunk, Kind::Trunk, 0);
        edit.set_first(next);
        edit.set_count(TRUNK_LISTED);
        for i in 0..TRUNK_LISTED {
            let page = self.listed_page(LISTED - TRUNK_LISTED + i);
            self.cache.edit(frame).put_u64(HEADER + 8 * i, page);
        }
        self.cache.mark(frame, true);
        self.set_listed(LISTED - TRUNK_LISTED);
        self.put_meta(TRUNK_AT, trunk);
    }

    /// All free pages that page 0 and the trunks list, and the trunks. For
    /// checking.
    pub(super) fn free_pages(&mut self) -> Result<Vec<u64>, Error> {
        let mut all: Vec<u64> = (0..self.listed()).map(|i| self.listed_page(i)).collect();
        let mut trunk = self.trunk();
        while trunk != 0 && all.len() as u64 <= self.unused() {
            let frame = self.page_now(trunk)?;
            let view = self.cache.view(frame);
            if view.kind() != Some(Kind::Trunk) || view.count() > TRUNK_LISTED {
                let what = "it is no list of free pages";
                return Err(Error::Damaged { page: trunk, what });
            }
            all.push(trunk);
            all.extend((0..view.count()).map(|i| view.u64(HEADER + 8 * i)));
            trunk = view.first();
        }
        Ok(all)
    }

    /// The first page that was never used. For checking.
    pub(super) fn never_used(&self) -> u64 {
        self.unused()
    }
}
