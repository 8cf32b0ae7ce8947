//! What changes and reads the bytes of files.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::disk::{BLOCK, Disk, Page};
use crate::error::FilesError;
use crate::extents::Extents;
use crate::files::{Files, MOST_BYTES};
use crate::journaled::read_committed;
use crate::mutation::{self, Mutation};
use crate::node::{Content, Node};
use crate::operation::Inode;

/// Bytes that are written at once.
const AT_ONCE: usize = 64 * BLOCK;
/// Extents that are taken out in one go: what a transaction has room for.
const CUT_AT_ONCE: usize = 20;

fn page_of(offset: u64) -> u32 {
    (offset / BLOCK as u64) as u32
}

fn in_page(offset: u64) -> usize {
    (offset % BLOCK as u64) as usize
}

impl Node {
    /// What a file has.
    pub(crate) fn file(
        &self,
        inode: Inode,
    ) -> Result<(&Extents, &BTreeMap<u32, Page>), FilesError> {
        match &self.content {
            Content::File { extents, dirty } => Ok((extents, dirty)),
            Content::Folder(_) => Err(FilesError::IsFolder(inode)),
            Content::Link(_) => Err(FilesError::NotFile(inode)),
        }
    }
}

impl<D: Disk> Files<D> {
    pub(crate) fn file(
        &self,
        inode: Inode,
    ) -> Result<(&Extents, &BTreeMap<u32, Page>), FilesError> {
        self.node(inode)?.file(inode)
    }

    /// A page as it is now. `None`: it is zeros, and has no block, or none that was written.
    fn page_now(&mut self, inode: Inode, page: u32) -> Result<Option<Page>, FilesError> {
        let (extents, dirty) = self.file(inode)?;
        if let Some(page) = dirty.get(&page) {
            return Ok(Some(page.clone()));
        }
        let Some(block) = extents.block(page) else { return Ok(None) };
        if let Some(page) = self.kept.get(inode, page) {
            return Ok(Some(page.clone()));
        }
        let mut page = Arc::new([0; BLOCK]);
        let bytes = &mut Arc::make_mut(&mut page)[..];
        read_committed(&self.journal, &mut self.disk, block, bytes)?;
        Ok(Some(page))
    }

    /// A page of a file that is dirty, to be changed where it is.
    fn dirty_page(&mut self, inode: Inode, number: u32) -> Option<&mut Page> {
        let node = Arc::make_mut(self.nodes.get_mut(&inode)?);
        match &mut node.content {
            Content::File { dirty, .. } => dirty.get_mut(&number),
            _ => None,
        }
    }

    /// What a page has of which a part stays, if it is not dirty.
    fn page_to_change(&mut self, inode: Inode, number: u32) -> Result<Option<Page>, FilesError> {
        let is_dirty = self.file(inode)?.1.contains_key(&number);
        if is_dirty { Ok(None) } else { self.page_now(inode, number) }
    }

    /// A page of a file is dirty from now on. There is room for it.
    fn set_dirty(&mut self, inode: Inode, number: u32, page: Page) {
        let node = Arc::make_mut(self.nodes.get_mut(&inode).expect("it is there"));
        let Content::File { extents, dirty } = &mut node.content else {
            unreachable!("it is a file")
        };
        if dirty.is_empty() {
            self.dirtied += 1;
            node.dirty_since = self.dirtied;
            self.dirty_files.insert((self.dirtied, inode));
        }
        if dirty.insert(number, page).is_none() {
            self.dirty += 1;
            if extents.part(number, 1).start.is_none() {
                self.store.space.reserve(1);
            }
        }
        if self.journals_data() {
            self.touch(inode, true);
        }
    }

    /// Reads bytes from `offset` on, and says how many there were. Bytes that were never written
    /// are zeros.
    pub fn read(
        &mut self,
        inode: Inode,
        offset: u64,
        bytes: &mut [u8],
    ) -> Result<usize, FilesError> {
        let node = self.nodes.get(&inode).ok_or(FilesError::NoInode(inode))?;
        let (extents, dirty) = node.file(inode)?;
        let len = node.size.saturating_sub(offset).min(bytes.len() as u64) as usize;
        let mut at = 0;
        while at < len {
            let (page, from) = (page_of(offset + at as u64), in_page(offset + at as u64));
            let piece = (BLOCK - from).min(len - at);
            let to = &mut bytes[at..at + piece];
            at += piece;
            if let Some(page) = dirty.get(&page) {
                to.copy_from_slice(&page[from..from + piece]);
                continue;
            }
            let Some(block) = extents.block(page) else {
                to.fill(0);
                continue;
            };
            if piece < BLOCK {
                let mut whole = [0; BLOCK];
                read_committed(&self.journal, &mut self.disk, block, &mut whole)?;
                to.copy_from_slice(&whole[from..from + piece]);
                continue;
            }
            // Whole pages that lie in a row are one read.
            at -= piece;
            let most = ((len - at) / BLOCK).min(AT_ONCE / BLOCK) as u32;
            let next = dirty.range(page..).next().map_or(u32::MAX, |(&next, _)| next);
            let run = extents.part(page, most).len.min(next - page) as usize * BLOCK;
            let bytes = &mut bytes[at..at + run];
            read_committed(&self.journal, &mut self.disk, block, bytes)?;
            at += run;
        }
        Ok(len)
    }

    /// Where the next byte is, from `offset` on, that may be no zero. All between is zeros, and so
    /// is all up to the end where there is none.
    pub fn next_written(&self, inode: Inode, offset: u64) -> Result<Option<u64>, FilesError> {
        let node = self.node(inode)?;
        let (extents, dirty) = node.file(inode)?;
        if offset >= node.size {
            return Ok(None);
        }
        let dirty = dirty.range(page_of(offset)..).next().map(|it| *it.0);
        let page = extents.next_written(page_of(offset)).into_iter().chain(dirty).min();
        let at = page.map(|page| (u64::from(page) * BLOCK as u64).max(offset));
        Ok(at.filter(|&at| at < node.size))
    }

    /// The runs of blocks that a read of so many bytes from `offset` on would read from the disk:
    /// not those of pages that are dirty, or were never written.
    pub fn runs(&self, inode: Inode, offset: u64, len: u64) -> Result<Vec<Range<u64>>, FilesError> {
        let node = self.node(inode)?;
        let (extents, dirty) = node.file(inode)?;
        let end = offset.saturating_add(len).min(node.size);
        let mut out: Vec<Range<u64>> = Vec::new();
        for page in page_of(offset)..page_of(end.max(offset) + BLOCK as u64 - 1) {
            let block = extents.block(page).filter(|_| !dirty.contains_key(&page)).map(u64::from);
            match (block, out.last_mut()) {
                (Some(block), Some(run)) if run.end == block => run.end += 1,
                (Some(block), _) => out.push(block..block + 1),
                (None, _) => {}
            }
        }
        Ok(out)
    }

    pub(crate) fn write(
        &mut self,
        inode: Inode,
        offset: u64,
        data: &[u8],
    ) -> Result<(), FilesError> {
        self.file(inode)?;
        let end = offset.saturating_add(data.len() as u64);
        if end > MOST_BYTES {
            return Err(FilesError::TooLarge(end));
        }
        if !data.is_empty() {
            let new = self.new_pages(inode, page_of(offset), page_of(end - 1))?;
            self.make_room(new, true)?;
        }
        let mut at = 0;
        while at < data.len() {
            let from = offset + at as u64;
            let piece = self.piece(inode, from, data.len() - at)?;
            self.write_piece(inode, from, &data[at..at + piece])?;
            self.limit_dirty()?;
            at += piece;
        }
        Ok(())
    }

    /// How many of so many bytes are written at once.
    fn piece(&self, inode: Inode, offset: u64, left: usize) -> Result<usize, FilesError> {
        if !self.journals_data() {
            return Ok((AT_ONCE - in_page(offset)).min(left));
        }
        let (first, last) = (page_of(offset), page_of(offset + left as u64 - 1));
        let pages = self.whole_pages(inode, first, last)? as usize;
        Ok((pages * BLOCK - in_page(offset)).min(left))
    }

    /// How many blocks of 4 KiB a write of so many bytes there would take: of its pages those
    /// that have no block, and none promised.
    pub fn new_blocks(&self, inode: Inode, offset: u64, len: u64) -> Result<u64, FilesError> {
        let end = offset.saturating_add(len);
        if end > MOST_BYTES {
            return Err(FilesError::TooLarge(end));
        }
        if len == 0 { Ok(0) } else { self.new_pages(inode, page_of(offset), page_of(end - 1)) }
    }

    /// How many of these pages have no block, and none promised.
    fn new_pages(&self, inode: Inode, first: u32, last: u32) -> Result<u64, FilesError> {
        let (extents, dirty) = self.file(inode)?;
        let (mut at, mut new) = (first, 0);
        while at <= last {
            let part = extents.part(at, last - at + 1);
            at += part.len;
            if part.start.is_none() {
                new += u64::from(part.len) - dirty.range(part.page..at).count() as u64;
            }
        }
        Ok(new)
    }

    fn write_piece(&mut self, inode: Inode, offset: u64, data: &[u8]) -> Result<(), FilesError> {
        let end = offset + data.len() as u64;
        let (first, last) = (page_of(offset), page_of(end - 1));
        self.make_room_to_change(self.cost_of_write(inode, first, last)?)?;
        // Of the first and the last page a part stays.
        let is_part = in_page(offset) > 0 || (first == last && in_page(end) > 0);
        let mut head = if is_part { self.page_to_change(inode, first)? } else { None };
        let is_part = last > first && in_page(end) > 0;
        let mut tail = if is_part { self.page_to_change(inode, last)? } else { None };
        if self.journals_data() {
            self.take_written(inode, first, last)?;
        }
        let mut at = 0;
        for page in first..=last {
            let from = in_page(offset + at as u64);
            let piece = (BLOCK - from).min(data.len() - at);
            let data = &data[at..at + piece];
            at += piece;
            if let Some(there) = self.dirty_page(inode, page) {
                Arc::make_mut(there)[from..from + piece].copy_from_slice(data);
                if self.journals_data() {
                    self.touch(inode, true);
                }
                continue;
            }
            let old = if page == first { head.take() } else { None };
            let old = if page == last && last > first { tail.take() } else { old };
            let mut new = old.unwrap_or_else(|| Arc::new([0; BLOCK]));
            Arc::make_mut(&mut new)[from..from + piece].copy_from_slice(data);
            self.set_dirty(inode, page, new);
        }
        let node = self.node_mut(inode);
        let grows = end > node.size;
        node.size = node.size.max(end);
        // As with ext4 the size goes ahead of the data where the block is there already.
        if grows && self.file(inode)?.0.block(last).is_some() {
            self.set_disk_size(inode, end);
        }
        Ok(())
    }

    /// What the inode says of the size.
    pub(crate) fn set_disk_size(&mut self, inode: Inode, size: u64) {
        let node = Arc::make_mut(self.nodes.get_mut(&inode).expect("it is there"));
        let Node { bag, disk_size, .. } = node;
        if *disk_size != size {
            *disk_size = size;
            bag.header(&mut self.store.meta, |header| header.size = size);
        }
        self.touch(inode, !mutation::is(Mutation::SizeMayWait));
    }

    pub(crate) fn truncate(&mut self, inode: Inode, size: u64) -> Result<(), FilesError> {
        let (old, _) = (self.node(inode)?.size, self.file(inode)?);
        if size > MOST_BYTES {
            return Err(FilesError::TooLarge(size));
        }
        self.make_room_to_change(4)?;
        if size < old {
            let from = page_of(size.next_multiple_of(BLOCK as u64));
            let at_once = if size > 0 { self.make_room_to_cut(inode, from, u32::MAX)? } else { 0 };
            if in_page(size) > 0 {
                self.zero(inode, page_of(size), in_page(size)..BLOCK)?;
            }
            self.drop_dirty(inode, from, u32::MAX);
            if size == 0 {
                self.clear(inode);
            } else {
                self.cut(inode, (from, u32::MAX), Some(size), at_once)?;
            }
        }
        self.node_mut(inode).size = size;
        self.set_disk_size(inode, size);
        Ok(())
    }

    /// All extents go.
    fn clear(&mut self, inode: Inode) {
        let node = Arc::make_mut(self.nodes.get_mut(&inode).expect("it is there"));
        let Node { content, bag, .. } = node;
        if let Content::File { extents, .. } = content {
            extents.clear(bag, &mut self.store);
        }
        if self.layout.options.replace_writes {
            self.running.eager.insert(inode);
        }
    }

    /// Sees that there is room to take pages out, and says how many extents may go at once: all,
    /// or as many as there is room for each time. With data in the journal it is all, if a
    /// transaction holds that: nothing is committed in the middle then.
    fn make_room_to_cut(&mut self, inode: Inode, from: u32, to: u32) -> Result<usize, FilesError> {
        if !self.journals_data() {
            return Ok(CUT_AT_ONCE);
        }
        self.make_room(2, false)?;
        let (cost, most) = (self.cost_of_cut(inode, from, to)?, self.most_changes());
        self.make_room_to_change(cost.min(most))?;
        Ok(if cost <= most { usize::MAX } else { CUT_AT_ONCE })
    }

    /// Pages lose their blocks. If a transaction does not hold all of it the file is, after
    /// each but the last, cut down to where that came, but not below `size`.
    fn cut(
        &mut self,
        inode: Inode,
        (from, to): (u32, u32),
        size: Option<u64>,
        at_once: usize,
    ) -> Result<(), FilesError> {
        let mut to = to;
        while to > from {
            if at_once == CUT_AT_ONCE {
                self.make_room(2, false)?;
                self.make_room_to_change(CUT_AT_ONCE + 4)?;
            }
            let node = Arc::make_mut(self.nodes.get_mut(&inode).expect("it is there"));
            let Node { content, bag, disk_size, .. } = node;
            let Content::File { extents, .. } = content else { unreachable!("it is a file") };
            let place = (bag, &mut self.store);
            let (given, done) = extents.cut(place, (from, to), at_once)?;
            let left = size.map(|size| size.max(u64::from(done) * BLOCK as u64).min(*disk_size));
            given.iter().for_each(|run| self.store.space.give(run.start, run.len));
            if let Some(left) = left {
                self.set_disk_size(inode, left);
            }
            self.touch(inode, true);
            to = done;
        }
        Ok(())
    }

    /// Dirty pages that need not be written any more.
    fn drop_dirty(&mut self, inode: Inode, from: u32, to: u32) {
        self.kept.drop(inode, from, to);
        let node = Arc::make_mut(self.nodes.get_mut(&inode).expect("it is there"));
        let Content::File { extents, dirty } = &mut node.content else {
            unreachable!("it is a file")
        };
        let pages: Vec<u32> = dirty.range(from..to).map(|(&page, _)| page).collect();
        for page in pages {
            dirty.remove(&page);
            self.running.ordered.remove(&(inode, page));
            self.dirty -= 1;
            if extents.part(page, 1).start.is_none() {
                self.store.space.unreserve(1);
            }
        }
        if dirty.is_empty() {
            self.dirty_files.remove(&(node.dirty_since, inode));
        }
    }

    /// Bytes of a page become zeros.
    fn zero(&mut self, inode: Inode, number: u32, bytes: Range<usize>) -> Result<(), FilesError> {
        let Some(mut page) = self.page_now(inode, number)? else { return Ok(()) };
        if mutation::is(Mutation::KeepTail) {
            return Ok(());
        }
        Arc::make_mut(&mut page)[bytes].fill(0);
        self.set_dirty(inode, number, page);
        if !self.journals_data() && self.file(inode)?.0.block(number).is_some() {
            self.running.ordered.insert((inode, number));
        }
        Ok(())
    }

    pub(crate) fn allocate(
        &mut self,
        inode: Inode,
        offset: u64,
        len: u64,
        keep_size: bool,
    ) -> Result<(), FilesError> {
        let end = offset.saturating_add(len);
        if end > MOST_BYTES {
            return Err(FilesError::TooLarge(end));
        }
        self.file(inode)?;
        if len == 0 {
            return Ok(());
        }
        let (mut at, last) = (page_of(offset), page_of(end.next_multiple_of(BLOCK as u64)));
        let new = self.new_pages(inode, at, last - 1)?;
        self.make_room(new, true)?;
        self.make_room_to_change(4)?;
        while at < last {
            at += self.allocate_part(inode, at, last - at)?;
        }
        let size = self.node(inode)?.size;
        if !keep_size && end > size {
            self.node_mut(inode).size = end;
            self.set_disk_size(inode, end);
        }
        Ok(())
    }

    /// Gives blocks to the first pages of these, if they have none. How many are done.
    fn allocate_part(&mut self, inode: Inode, at: u32, most: u32) -> Result<u32, FilesError> {
        self.make_room_to_change(4)?;
        let node = Arc::make_mut(self.nodes.get_mut(&inode).expect("it is there"));
        let Node { content, bag, .. } = node;
        let Content::File { extents, dirty } = content else { unreachable!("it is a file") };
        let part = extents.part(at, most);
        if part.start.is_some() {
            return Ok(part.len);
        }
        let run = self.store.space.take(extents.goal(at), part.len)?;
        extents.put((bag, &mut self.store), at, run, true)?;
        let reserved = dirty.range(at..at + run.len).count() as u64;
        self.store.space.unreserve(reserved);
        self.touch(inode, true);
        Ok(run.len)
    }

    pub(crate) fn punch(&mut self, inode: Inode, offset: u64, len: u64) -> Result<(), FilesError> {
        self.file(inode)?;
        let end = offset.saturating_add(len).min(MOST_BYTES);
        if offset >= end {
            return Ok(());
        }
        self.make_room(2, false)?;
        self.make_room_to_change(4)?;
        let (first, last) = (page_of(offset.next_multiple_of(BLOCK as u64)), page_of(end));
        let at_once = self.make_room_to_cut(inode, first, last)?;
        if first > last {
            return self.zero(inode, last, in_page(offset)..in_page(end));
        }
        if in_page(offset) > 0 {
            self.zero(inode, first - 1, in_page(offset)..BLOCK)?;
        }
        if in_page(end) > 0 {
            self.zero(inode, last, 0..in_page(end))?;
        }
        // The pages that would have told the disk of the size may go.
        let size = self.node(inode)?.size;
        if end >= size {
            self.set_disk_size(inode, size);
        }
        self.drop_dirty(inode, first, last);
        self.cut(inode, (first, last), None, at_once)
    }
}
