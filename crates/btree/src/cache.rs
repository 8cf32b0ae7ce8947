//! The page cache: a fixed number of frames.
//!
//! A frame is free, being read, or has a page. A page that is dirty, or on its
//! way to the store, stays; others give way by CLOCK: inner pages after three
//! rounds without use, others after one. Dirty pages are in one of two lists,
//! in the order in which they became dirty: those that are consistent by
//! themselves (*loose*), and those of the *group*, which are written together.
//!
//! All memory is taken when the cache is made.

use port::{Buffer, lazy};

use crate::page::{Bytes, Edit, PAGE_BYTES, View};

/// No frame.
pub(crate) const NONE: u32 = u32::MAX;

/// Least number of frames: the longest value can be put into a tree of ten
/// levels with what a quarter of them holds.
pub(crate) const LEAST_FRAMES: usize = 160;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Free,
    Reading,
    Ready,
}

/// A place for a page.
pub(crate) struct Frame {
    buffer: Buffer,
    pub(crate) page: u64,
    pub(crate) state: State,
    /// Rounds of the hand that it survives.
    clock: u8,
    /// Batches with it that are on their way.
    writing: u8,
    pub(crate) dirty: bool,
    pub(crate) grouped: bool,
    /// When it became dirty.
    pub(crate) stamp: u64,
    prev: u32,
    next: u32,
    /// Operations that wait for it, first and last.
    pub(crate) waiters: (u32, u32),
}

/// Frames in the order in which they became dirty.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    head: u32,
    tail: u32,
    pub(crate) len: usize,
}

impl List {
    const EMPTY: List = List { head: NONE, tail: NONE, len: 0 };
}

/// The cache.
pub(crate) struct Cache {
    frames: Vec<Frame>,
    table: Table,
    free: Vec<u32>,
    hand: usize,
    pub(crate) loose: List,
    pub(crate) group: List,
    /// The oldest stamp in the group.
    pub(crate) group_stamp: u64,
    stamp: u64,
    /// Frames that are dirty or on their way to the store.
    pub(crate) held: usize,
    /// How often a page left its frame or the tree. While that is the same, a frame that
    /// had a page of the tree has it.
    pub(crate) left: u64,
    pub(crate) counters: CacheCounters,
}

/// What a cache has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounters {
    /// Pages asked for by operations.
    pub lookups: u64,
    /// Of them not there, or not yet.
    pub misses: u64,
    /// Pages that gave way to others.
    pub evictions: u64,
}

/// Bytes of a tree's budget that a page in memory takes, all told.
pub const FRAME_BYTES: u64 =
    (PAGE_BYTES + size_of::<Frame>() + 2 * size_of::<Entry>() + size_of::<u32>()) as u64;

impl Cache {
    /// A cache of `count` frames; `None` without memory.
    pub(crate) fn new(count: usize) -> Option<Cache> {
        let frame = |buffer| Frame {
            buffer,
            page: 0,
            state: State::Free,
            clock: 0,
            writing: 0,
            dirty: false,
            grouped: false,
            stamp: 0,
            prev: NONE,
            next: NONE,
            waiters: (NONE, NONE),
        };
        let buffers = Buffer::carve(count, PAGE_BYTES).ok()?;
        let tables = count * size_of::<(Frame, u32)>() + Table::size(count) * size_of::<Entry>();
        lazy::ask_for(tables as u64, "the cache").ok()?;
        let frames = buffers.into_iter().map(frame).collect();
        Some(Cache {
            frames,
            table: Table::new(count),
            free: (0..count as u32).rev().collect(),
            hand: 0,
            loose: List::EMPTY,
            group: List::EMPTY,
            group_stamp: u64::MAX,
            stamp: 0,
            held: 0,
            left: 0,
            counters: CacheCounters::default(),
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.frames.len()
    }

    /// The last stamp that was given.
    pub(crate) fn stamp(&self) -> u64 {
        self.stamp
    }

    /// Dirty frames.
    pub(crate) fn dirty(&self) -> usize {
        self.loose.len + self.group.len
    }

    /// The stamp of the page that has been dirty longest.
    pub(crate) fn oldest(&self) -> u64 {
        let loose = if self.loose.len > 0 { self[self.loose.head].stamp } else { u64::MAX };
        loose.min(self.group_stamp)
    }

    #[inline]
    pub(crate) fn find(&self, page: u64) -> Option<u32> {
        self.table.find(page)
    }

    /// Whether a read of a page is under way.
    pub(crate) fn is_read(&self, page: u64) -> bool {
        self.find(page).is_some_and(|frame| self[frame].state == State::Reading)
    }

    #[inline]
    fn bytes(&self, frame: u32) -> &Bytes {
        self[frame].buffer.bytes().first_chunk().expect("a frame has a page's bytes")
    }

    #[inline]
    pub(crate) fn view(&self, frame: u32) -> View<'_> {
        View(self.bytes(frame))
    }

    #[inline]
    pub(crate) fn edit(&mut self, frame: u32) -> Edit<'_> {
        let bytes = self.frames[frame as usize].buffer.bytes_mut();
        Edit(bytes.first_chunk_mut().expect("a frame has a page's bytes"))
    }

    /// Two different pages to be changed.
    pub(crate) fn edit_two(&mut self, a: u32, b: u32) -> (Edit<'_>, Edit<'_>) {
        let [a, b] = self
            .frames
            .get_disjoint_mut([a as usize, b as usize])
            .expect("two frames of the cache");
        (
            Edit(a.buffer.bytes_mut().first_chunk_mut().expect("a frame has a page's bytes")),
            Edit(b.buffer.bytes_mut().first_chunk_mut().expect("a frame has a page's bytes")),
        )
    }

    /// Says that a page was used.
    #[inline]
    pub(crate) fn touch(&mut self, frame: u32, rounds: u8) {
        self.frames[frame as usize].clock = rounds;
    }

    /// A free frame, for which another page may give way. `None` when all
    /// pages must stay for now.
    pub(crate) fn take(&mut self) -> Option<u32> {
        self.free.pop().or_else(|| self.evict())
    }

    /// Makes `count` frames free. False when that cannot be now.
    pub(crate) fn make_free(&mut self, count: usize) -> bool {
        while self.free.len() < count {
            let Some(frame) = self.evict() else { return false };
            self.free.push(frame);
        }
        true
    }

    fn evict(&mut self) -> Option<u32> {
        // Frames survive three rounds at most.
        for _ in 0..4 * self.frames.len() {
            let at = self.hand;
            self.hand = if at + 1 == self.frames.len() { 0 } else { at + 1 };
            let frame = &mut self.frames[at];
            let stays = frame.state != State::Ready || frame.dirty || frame.writing > 0;
            // Page 0 is always there.
            if stays || frame.page == 0 {
                continue;
            }
            if frame.clock > 0 {
                frame.clock -= 1;
                continue;
            }
            frame.state = State::Free;
            let page = frame.page;
            self.table.remove(page);
            self.left += 1;
            self.counters.evictions += 1;
            return Some(at as u32);
        }
        None
    }

    /// Puts `page` into a frame that was taken, ready.
    pub(crate) fn put(&mut self, frame: u32, page: u64) {
        let entry = &mut self.frames[frame as usize];
        (entry.page, entry.state, entry.clock) = (page, State::Ready, 1);
        self.table.insert(page, frame);
    }

    /// Begins to read `page` into a frame that was taken: gives its buffer.
    pub(crate) fn begin_read(&mut self, frame: u32, page: u64) -> Buffer {
        self.put(frame, page);
        let entry = &mut self.frames[frame as usize];
        entry.state = State::Reading;
        std::mem::take(&mut entry.buffer)
    }

    /// The buffer of a read is back.
    pub(crate) fn end_read(&mut self, frame: u32, buffer: Buffer) {
        let entry = &mut self.frames[frame as usize];
        entry.buffer = buffer;
        entry.state = State::Ready;
    }

    /// Takes a page out that was read and is no good, or was not read.
    pub(crate) fn discard(&mut self, frame: u32) {
        let entry = &mut self.frames[frame as usize];
        entry.state = State::Free;
        let page = entry.page;
        self.table.remove(page);
        self.left += 1;
        self.free.push(frame);
    }

    fn list(&mut self, grouped: bool) -> &mut List {
        if grouped { &mut self.group } else { &mut self.loose }
    }

    fn link(&mut self, frame: u32, grouped: bool) {
        let tail = self.list(grouped).tail;
        let entry = &mut self.frames[frame as usize];
        (entry.prev, entry.next, entry.grouped) = (tail, NONE, grouped);
        if tail != NONE {
            self.frames[tail as usize].next = frame;
        }
        let list = self.list(grouped);
        if list.head == NONE {
            list.head = frame;
        }
        list.tail = frame;
        list.len += 1;
    }

    fn unlink(&mut self, frame: u32) {
        let (prev, next, grouped) = {
            let entry = &self[frame];
            (entry.prev, entry.next, entry.grouped)
        };
        if prev != NONE {
            self.frames[prev as usize].next = next;
        }
        if next != NONE {
            self.frames[next as usize].prev = prev;
        }
        let list = self.list(grouped);
        if list.head == frame {
            list.head = next;
        }
        if list.tail == frame {
            list.tail = prev;
        }
        list.len -= 1;
        self.frames[frame as usize].grouped = false;
        if self.group.len == 0 {
            self.group_stamp = u64::MAX;
        }
    }

    /// Says that a page was changed; `grouped`, together with others.
    pub(crate) fn mark(&mut self, frame: u32, grouped: bool) {
        let entry = &self[frame];
        if !entry.dirty {
            self.stamp += 1;
            let stamp = self.stamp;
            self.held += usize::from(self[frame].writing == 0);
            let entry = &mut self.frames[frame as usize];
            (entry.dirty, entry.stamp) = (true, stamp);
            self.link(frame, grouped);
        } else if grouped && !entry.grouped {
            self.unlink(frame);
            self.link(frame, true);
        }
        if grouped {
            self.group_stamp = self.group_stamp.min(self[frame].stamp);
        }
    }

    /// Says that a page need not be written, as nothing leads to it any more.
    pub(crate) fn forget(&mut self, frame: u32) {
        if self[frame].dirty {
            self.unlink(frame);
            self.frames[frame as usize].dirty = false;
            self.held -= usize::from(self[frame].writing == 0);
        }
        self.frames[frame as usize].clock = 0;
        self.left += 1;
    }

    /// Takes the first of a list to be written.
    pub(crate) fn begin_write(&mut self, grouped: bool) -> Option<u32> {
        let frame = self.list(grouped).head;
        if frame == NONE {
            return None;
        }
        self.unlink(frame);
        let entry = &mut self.frames[frame as usize];
        entry.dirty = false;
        entry.writing += 1;
        Some(frame)
    }

    /// A batch with it is done.
    pub(crate) fn end_write(&mut self, frame: u32) {
        let entry = &mut self.frames[frame as usize];
        entry.writing -= 1;
        self.held -= usize::from(entry.writing == 0 && !entry.dirty);
    }

    pub(crate) fn frame_mut(&mut self, frame: u32) -> &mut Frame {
        &mut self.frames[frame as usize]
    }
}

impl std::ops::Index<u32> for Cache {
    type Output = Frame;
    #[inline]
    fn index(&self, frame: u32) -> &Frame {
        &self.frames[frame as usize]
    }
}

/// An entry of the table.
#[derive(Clone, Copy)]
struct Entry {
    page: u64,
    frame: u32,
}

/// Which frame has a page: open addressing with linear probing, at most half
/// full.
struct Table {
    entries: Box<[Entry]>,
    shift: u32,
}

const VACANT: u64 = u64::MAX;

impl Table {
    /// Entries of one for so many pages.
    fn size(count: usize) -> usize {
        (2 * count).next_power_of_two()
    }

    fn new(count: usize) -> Table {
        let size = Table::size(count);
        let vacant = Entry { page: VACANT, frame: NONE };
        Table { entries: vec![vacant; size].into(), shift: 64 - size.trailing_zeros() }
    }

    /// Where a page would be: the golden ratio spreads numbers in a row.
    #[inline]
    fn home(&self, page: u64) -> usize {
        (page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.entries.len() - 1)
    }

    #[inline]
    fn find(&self, page: u64) -> Option<u32> {
        let mut at = self.home(page);
        loop {
            let entry = self.entries[at];
            if entry.page == page {
                return Some(entry.frame);
            }
            if entry.page == VACANT {
                return None;
            }
            at = self.after(at);
        }
    }

    fn insert(&mut self, page: u64, frame: u32) {
        let mut at = self.home(page);
        while self.entries[at].page != VACANT {
            at = self.after(at);
        }
        self.entries[at] = Entry { page, frame };
    }

    fn remove(&mut self, page: u64) {
        let mut hole = self.home(page);
        while self.entries[hole].page != page {
            assert!(self.entries[hole].page != VACANT, "a page of the table");
            hole = self.after(hole);
        }
        // Those behind move up, unless that takes them before their home.
        let mut at = self.after(hole);
        while self.entries[at].page != VACANT {
            let home = self.home(self.entries[at].page);
            let mask = self.entries.len() - 1;
            let from_home = at.wrapping_sub(home) & mask;
            if from_home >= (at.wrapping_sub(hole) & mask) {
                self.entries[hole] = self.entries[at];
                hole = at;
            }
            at = self.after(at);
        }
        self.entries[hole].page = VACANT;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn the_table_is_a_map(ops in prop::collection::vec((0u64..60, any::<bool>()), 1..300)) {
            let mut table = Table::new(32);
            let mut model: HashMap<u64, u32> = HashMap::new();
            for (i, (page, put)) in ops.into_iter().enumerate() {
                if model.remove(&page).is_some() {
                    table.remove(page);
                }
                if put && model.len() < 32 {
                    table.insert(page, i as u32);
                    model.insert(page, i as u32);
                }
                for page in 0..60 {
                    prop_assert_eq!(table.find(page), model.get(&page).copied());
                }
            }
        }
    }

    #[test]
    fn inner_pages_stay_longer_and_dirty_ones_always() {
        let mut cache = Cache::new(4).unwrap();
        for page in 1..5 {
            let frame = cache.take().unwrap();
            cache.put(frame, page);
        }
        cache.mark(cache.find(1).unwrap(), false);
        cache.touch(cache.find(2).unwrap(), 3);
        for (new, gone) in [(5, 3), (6, 4)] {
            let frame = cache.take().unwrap();
            cache.put(frame, new);
            assert_eq!(cache.find(gone), None);
        }
        assert!(cache.find(1).is_some() && cache.find(2).is_some());
        // A dirty page is held until the last batch with it is done.
        let frame = cache.begin_write(false).unwrap();
        assert_eq!((cache.held, cache.dirty()), (1, 0));
        cache.mark(frame, true);
        assert_eq!(cache.begin_write(true), Some(frame));
        cache.end_write(frame);
        assert_eq!(cache.held, 1);
        cache.end_write(frame);
        assert_eq!(cache.held, 0);
        assert!(cache.make_free(4) && cache.find(1).is_none());
    }

    #[test]
    fn the_oldest_dirty_page_is_known() {
        let mut cache = Cache::new(8).unwrap();
        let frames: Vec<u32> = (1..5)
            .map(|page| {
                let frame = cache.take().unwrap();
                cache.put(frame, page);
                frame
            })
            .collect();
        assert_eq!(cache.oldest(), u64::MAX);
        for &frame in &frames {
            cache.mark(frame, false);
        }
        assert_eq!(cache.oldest(), 1);
        cache.mark(frames[0], true);
        cache.mark(frames[2], true);
        assert_eq!((cache.loose.len, cache.group.len, cache.oldest()), (2, 2, 1));
        cache.forget(frames[0]);
        assert_eq!(cache.begin_write(true), Some(frames[2]));
        assert_eq!((cache.begin_write(true), cache.oldest()), (None, 2));
    }
}
