//! Where the pages of a file are on the disk.

use std::collections::BTreeMap;

use crate::bag::{Bag, Store};
use crate::error::FilesError;
use crate::layout::{half, put};
use crate::space::Given;

/// Pages in a row that lie in blocks in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) len: u32,
    pub(crate) start: u32,
    /// The blocks are the file's, and read as zeros until they are written.
    pub(crate) unwritten: bool,
    /// In which sector of the bag it is written down.
    pub(crate) sector: u32,
}

/// Bytes of an extent in a sector.
const BYTES: usize = 16;

/// The extents of a file, by their first pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extents(BTreeMap<u32, Extent>);

/// A part of a file that is alike: its first page and how many, and where it is, if anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) page: u32,
    pub(crate) len: u32,
    pub(crate) start: Option<u32>,
    pub(crate) unwritten: bool,
}

fn encode(page: u32, extent: &Extent) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    put(&mut bytes, 0, page.to_le_bytes());
    put(&mut bytes, 4, extent.len.to_le_bytes());
    put(&mut bytes, 8, extent.start.to_le_bytes());
    put(&mut bytes, 12, u32::from(extent.unwritten).to_le_bytes());
    bytes
}

fn is_of(page: u32) -> impl Fn(&[u8]) -> bool {
    move |record| half(record, 0) == page
}

impl Extents {
    /// Takes what a record says. `false`: it is no extent, or lies over another.
    pub(crate) fn load(&mut self, record: &[u8], sector: u32) -> Option<Given> {
        if record.len() != BYTES || half(record, 12) > 1 {
            return None;
        }
        let (page, len, start) = (half(record, 0), half(record, 4), half(record, 8));
        let end = page.checked_add(len)?;
        let before = self.0.range(..end).next_back();
        if len == 0 || before.is_some_and(|(at, extent)| at + extent.len > page) {
            return None;
        }
        let unwritten = half(record, 12) == 1;
        self.0.insert(page, Extent { len, start, unwritten, sector });
        Some(Given { start, len })
    }

    /// Takes back what was loaded.
    pub(crate) fn unload(&mut self, record: &[u8]) {
        self.0.remove(&half(record, 0));
    }

    /// The part that begins with that page, with at most so many.
    pub(crate) fn part(&self, page: u32, most: u32) -> Part {
        let end = page.saturating_add(most);
        match self.0.range(..=page).next_back() {
            Some((at, extent)) if at + extent.len > page => {
                let len = (at + extent.len).min(end) - page;
                let start = Some(extent.start + (page - at));
                Part { page, len, start, unwritten: extent.unwritten }
            }
            _ => {
                let next = self.0.range(page..end).next().map_or(end, |(at, _)| *at);
                Part { page, len: next - page, start: None, unwritten: false }
            }
        }
    }

    /// The block of a page that has been written.
    pub(crate) fn block(&self, page: u32) -> Option<u32> {
        let part = self.part(page, 1);
        part.start.filter(|_| !part.unwritten)
    }

    /// The first page from that one on that has been written.
    pub(crate) fn next_written(&self, page: u32) -> Option<u32> {
        if self.block(page).is_some() {
            return Some(page);
        }
        self.0.range(page..).find(|(_, extent)| !extent.unwritten).map(|(at, _)| *at)
    }

    /// Where the next page would best be.
    pub(crate) fn goal(&self, page: u32) -> Option<u32> {
        let (at, extent) = self.0.range(..page).next_back()?;
        extent.start.checked_add(page - at)
    }

    /// Pages that have no block there are in that block from now on. Takes a block of metadata
    /// at most.
    pub(crate) fn put(
        &mut self,
        (bag, store): (&mut Bag, &mut Store),
        page: u32,
        run: Given,
        unwritten: bool,
    ) -> Result<(), FilesError> {
        if let Some((&at, before)) = self.0.range_mut(..page).next_back()
            && before.unwritten == unwritten
            && at + before.len == page
            && before.start + before.len == run.start
        {
            before.len += run.len;
            let record = encode(at, before);
            bag.update(store, before.sector, is_of(at), |bytes| bytes.copy_from_slice(&record));
            return Ok(());
        }
        let mut extent = Extent { len: run.len, start: run.start, unwritten, sector: 0 };
        extent.sector = bag.insert(store, &encode(page, &extent))?;
        self.0.insert(page, extent);
        Ok(())
    }

    /// Puts all in again, in a bag that was emptied.
    pub(crate) fn put_all(&mut self, bag: &mut Bag, store: &mut Store) -> Result<(), FilesError> {
        for (&page, extent) in &mut self.0 {
            extent.sector = bag.insert(store, &encode(page, extent))?;
        }
        Ok(())
    }

    /// Takes pages out, from the last on and of at most so many extents. Gives the blocks that
    /// they had, and the first page up to which nothing is left to do. Takes a block of metadata
    /// at most.
    pub(crate) fn cut(
        &mut self,
        (bag, store): (&mut Bag, &mut Store),
        (from, to): (u32, u32),
        most: usize,
    ) -> Result<(Vec<Given>, u32), FilesError> {
        let (mut given, mut done) = (Vec::new(), to);
        while given.len() < most && done > from {
            let Some((&at, &extent)) = self.0.range(..done).next_back() else { break };
            let end = at + extent.len;
            if end <= from {
                break;
            }
            let (first, last) = (at.max(from), end.min(done));
            given.push(Given { start: extent.start + (first - at), len: last - first });
            if end > last {
                let rest = Given { start: extent.start + (last - at), len: end - last };
                self.insert_rest(bag, store, last, rest, extent.unwritten)?;
            }
            self.keep(bag, store, at, first - at);
            done = first;
        }
        let is_whole = given.len() < most;
        Ok((given, if is_whole { from } else { done }))
    }

    fn insert_rest(
        &mut self,
        bag: &mut Bag,
        store: &mut Store,
        page: u32,
        rest: Given,
        unwritten: bool,
    ) -> Result<(), FilesError> {
        let mut extent = Extent { len: rest.len, start: rest.start, unwritten, sector: 0 };
        extent.sector = bag.insert(store, &encode(page, &extent))?;
        self.0.insert(page, extent);
        Ok(())
    }

    /// Keeps so many pages of the extent at `at`.
    fn keep(&mut self, bag: &mut Bag, store: &mut Store, at: u32, len: u32) {
        if len == 0 {
            let extent = self.0.remove(&at).expect("it is there");
            bag.remove(store, extent.sector, is_of(at));
            return;
        }
        let extent = self.0.get_mut(&at).expect("it is there");
        extent.len = len;
        let record = encode(at, extent);
        bag.update(store, extent.sector, is_of(at), |bytes| bytes.copy_from_slice(&record));
    }

    /// How many extents have some of these pages.
    pub(crate) fn count(&self, from: u32, to: u32) -> usize {
        let first = self.0.range(..from).next_back();
        let reaches = first.is_some_and(|(at, extent)| at + extent.len > from && to > from);
        usize::from(reaches) + self.0.range(from..to.max(from)).count()
    }

    /// Takes all out at once.
    pub(crate) fn clear(&mut self, bag: &mut Bag, store: &mut Store) {
        for extent in std::mem::take(&mut self.0).values() {
            store.space.give(extent.start, extent.len);
        }
        bag.clear(store);
    }

    /// Gives up all blocks; what says so goes another way.
    pub(crate) fn give(&self, store: &mut Store) {
        for extent in self.0.values() {
            store.space.give(extent.start, extent.len);
        }
    }
}
