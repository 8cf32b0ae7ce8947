//! When changes become durable: what is written back and flushed, in which order. What a commit
//! is, is in `commit`.

use std::sync::Arc;

use crate::bag::{Bag, Store};
use crate::disk::{BLOCK, Disk, Page};
use crate::error::FilesError;
use crate::extents::{Extents, Part};
use crate::files::Files;
use crate::journal::write_in_place;
use crate::mutation::{self, Mutation};
use crate::node::{Content, Node};
use crate::operation::Inode;
use crate::options::Names;

/// Pages that are written at once.
const AT_ONCE: usize = 64;
/// Extents that one go of that may add: what a transaction has room for.
const EXTENTS_AT_ONCE: usize = 12;
/// Changed blocks of metadata at which they are written, where there is no journal.
const MOST_CHANGES: usize = 4096;

/// What a kernel does by itself, at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteBack {
    /// Dirty pages of a file are written, and get blocks if they have none. Where data go through
    /// the journal nothing is written alone: it is a commit.
    Pages {
        /// Which file.
        inode: Inode,
        /// The first page, of 4 KiB.
        first: u32,
        /// How many; those of them that are dirty.
        count: u32,
    },
    /// Dirty pages of a file get blocks, and are not written yet.
    Allocate {
        /// Which file.
        inode: Inode,
        /// The first page, of 4 KiB.
        first: u32,
        /// How many; those of them that are dirty.
        count: u32,
    },
    /// Changes of metadata are committed; without a journal written in place, in no order.
    Commit,
    /// What the journal has is written in place.
    Checkpoint,
}

impl<D: Disk> Files<D> {
    /// The running transaction has something of a file; `data`: that `fdatasync` needs.
    pub(crate) fn touch(&mut self, inode: Inode, data: bool) {
        let number = self.running.number;
        let node = self.node_mut(inode);
        node.changed = number;
        if data {
            node.data_changed = number;
        }
    }

    /// Sees that the running transaction has room for so many blocks more.
    pub(crate) fn make_room_to_change(&mut self, blocks: usize) -> Result<(), FilesError> {
        let data = if self.journals_data() { self.dirty } else { 0 };
        let changes = self.store.meta.changes() + data;
        if changes + blocks <= self.most_changes() {
            return Ok(());
        }
        // What data in the journal have is in the transaction that begins: there is room then.
        match self.journals_data() {
            true => self.begin_commit(),
            false => self.commit(true),
        }
    }

    /// The most blocks that the running transaction may have.
    pub(crate) fn most_changes(&self) -> usize {
        let most = self.journal.as_ref().map_or(MOST_CHANGES, |journal| journal.most());
        match self.journals_data() {
            true => most.min(self.layout.options.dirty_pages as usize),
            false => most,
        }
    }

    /// Sees that so many blocks are free, for data or for metadata.
    pub(crate) fn make_room(&mut self, blocks: u64, data: bool) -> Result<(), FilesError> {
        // What is not promised first brings its extents along.
        let extents = if data && self.journals_data() { blocks / 100 } else { 0 };
        let blocks = blocks + extents;
        for last in [false, true] {
            let space = &self.store.space;
            let free = if data { space.for_data() } else { space.for_metadata() };
            if blocks <= free {
                return Ok(());
            }
            if last || !space.is_pending() {
                return Err(FilesError::NoRoom { needed: blocks, free });
            }
            self.settle()?;
        }
        Ok(())
    }

    /// Whether data may still take so many blocks of 4 KiB, beside those that are promised to
    /// dirty pages. What was given up is made free for that, with a commit, if need be.
    pub fn has_room(&mut self, blocks: u64) -> Result<bool, FilesError> {
        match self.make_room(blocks, true) {
            Ok(()) => Ok(true),
            Err(FilesError::NoRoom { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes all metadata durable and in place, so that what was given up is free.
    fn settle(&mut self) -> Result<(), FilesError> {
        self.commit(true)?;
        self.checkpoint()?;
        self.flush()?;
        if self.journal.is_none() {
            self.released()?;
            let free = self.store.space.checkpointed();
            self.discard(&free)?;
        }
        Ok(())
    }

    /// Waits for the commit that is under way, and makes durable what was written beside.
    pub(crate) fn flush(&mut self) -> Result<(), FilesError> {
        if !mutation::is(Mutation::SyncBesideCommit) {
            self.go_on(true)?;
        }
        if self.unflushed {
            self.disk.flush()?;
            self.unflushed = false;
        }
        Ok(())
    }

    /// Writes pages that must be there before the commit.
    pub(crate) fn write_ordered(&mut self) {
        for (inode, number) in std::mem::take(&mut self.running.ordered) {
            let Ok((_, dirty)) = self.file(inode) else { continue };
            if let Some(page) = dirty.get(&number) {
                let pages = [(number, page.clone())];
                self.write_mapped(inode, &pages);
            }
        }
    }

    /// Writes back the files that replaced others and have something to write.
    pub(crate) fn write_eager(&mut self) -> Result<(), FilesError> {
        for inode in std::mem::take(&mut self.running.eager) {
            match self.file(inode) {
                Ok((_, dirty)) if dirty.is_empty() => {
                    self.running.eager.insert(inode);
                }
                Ok(_) => self.write_pages(inode, 0, u32::MAX)?,
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Writes pages that have blocks, and takes them for clean. If the disk fails they are
    /// lost, as with Linux, and the next sync of the file tells.
    fn write_mapped(&mut self, inode: Inode, pages: &[(u32, Page)]) {
        let node = Arc::make_mut(self.nodes.get_mut(&inode).expect("it is there"));
        let Content::File { extents, dirty } = &mut node.content else {
            unreachable!("it is a file")
        };
        let blocks =
            pages.iter().filter_map(|(number, page)| Some((extents.block(*number)?, page)));
        let written = write_in_place(&mut self.disk, blocks);
        if let Err(error) = &written {
            node.failed = Some(*error);
            self.failed.insert(inode);
        }
        self.unflushed = true;
        for (number, page) in pages {
            match &written {
                Ok(()) => self.kept.put(inode, *number, page),
                Err(_) => self.kept.drop(inode, *number, *number + 1),
            }
            self.dirty -= usize::from(dirty.remove(number).is_some());
            self.running.ordered.remove(&(inode, *number));
        }
        if dirty.is_empty() {
            self.dirty_files.remove(&(node.dirty_since, inode));
        }
    }

    /// Writes back the dirty ones of these pages.
    pub(crate) fn write_pages(
        &mut self,
        inode: Inode,
        first: u32,
        count: u32,
    ) -> Result<(), FilesError> {
        let (mut at, end) = (first, first.saturating_add(count));
        while at < end {
            let pages = self.map_pages(inode, at, end, true)?;
            let Some(&(last, _)) = pages.last() else { break };
            self.write_mapped(inode, &pages);
            at = last + 1;
        }
        Ok(())
    }

    /// Gives blocks to the first dirty ones of these pages, and gives those pages. `write`: they
    /// will be written at once.
    fn map_pages(
        &mut self,
        inode: Inode,
        first: u32,
        end: u32,
        write: bool,
    ) -> Result<Vec<(u32, Page)>, FilesError> {
        self.make_room_to_change(3 * EXTENTS_AT_ONCE)?;
        let (_, dirty) = self.file(inode)?;
        let dirty = dirty.range(first..end).take(AT_ONCE);
        let mut pages: Vec<_> = dirty.map(|(&number, page)| (number, page.clone())).collect();
        let node = Arc::make_mut(self.nodes.get_mut(&inode).expect("it is there"));
        let Node { content, bag, .. } = node;
        let Content::File { extents, .. } = content else { unreachable!("it is a file") };
        let (mut n, mut added) = (0, 0);
        while n < pages.len() && added < EXTENTS_AT_ONCE {
            let at = pages[n].0;
            let run = pages[n..].iter().zip(at..).take_while(|(page, at)| page.0 == *at).count();
            let part = extents.part(at, run as u32);
            let (done, more) = map(extents, (&mut *bag, &mut self.store), part, write)?;
            if part.start.is_none() {
                self.store.space.unreserve(u64::from(done));
                if !write {
                    let new = (at..at + done).map(|page| (inode, page));
                    self.running.ordered.extend(new);
                }
            }
            (n, added) = (n + done as usize, added + more);
        }
        pages.truncate(n);
        let changed = if added > 0 { self.running.number } else { 0 };
        if let Some(&(last, _)) = pages.last() {
            node.changed = node.changed.max(changed);
            node.data_changed = node.data_changed.max(changed);
            let end = node.size.min((u64::from(last) + 1) * BLOCK as u64);
            if end > node.disk_size {
                self.set_disk_size(inode, end);
            }
        }
        Ok(pages)
    }

    /// Writes back files, the oldest first, while there are too many dirty pages.
    pub(crate) fn limit_dirty(&mut self) -> Result<(), FilesError> {
        let is_limited = !self.journals_data();
        while is_limited && self.dirty > self.layout.options.dirty_pages as usize {
            let Some(&(_, inode)) = self.dirty_files.first() else { break };
            self.write_pages(inode, 0, u32::MAX)?;
        }
        Ok(())
    }

    pub(crate) fn sync(&mut self, inode: Inode, data: bool) -> Result<(), FilesError> {
        let is_folder = self.node(inode)?.is_folder();
        if self.file(inode).is_ok() && !self.journals_data() {
            self.write_pages(inode, 0, u32::MAX)?;
        }
        let names = is_folder || self.layout.options.names == Names::WithFile;
        if self.journal.is_none() {
            self.write_inode(inode, names)?;
        } else {
            let node = self.node(inode)?;
            let changed = if data { node.data_changed } else { node.changed };
            if changed == self.running.number {
                self.commit(names)?;
            }
        }
        self.flush()?;
        self.tell_failure(inode)
    }

    /// The error of a write in the background that nobody was told.
    fn tell_failure(&mut self, inode: Inode) -> Result<(), FilesError> {
        self.node(inode)?;
        if !self.failed.remove(&inode) {
            return Ok(());
        }
        match self.node_mut(inode).failed.take() {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }

    /// Without a journal: writes what leads to a file, and with `names` to its name.
    fn write_inode(&mut self, inode: Inode, names: bool) -> Result<(), FilesError> {
        let meta = &self.store.meta;
        let mut blocks: Vec<u32> = Vec::new();
        for &(start, len) in self.table.groups.iter().filter(|group| meta.has_changed(group.0)) {
            blocks.extend(start..start + len);
        }
        let mut at = vec![inode];
        while let Some(inode) = at.pop() {
            let node = self.node(inode)?;
            blocks.push(node.bag.place().block);
            blocks.extend(node.bag.blocks());
            if names {
                at.extend(&node.parents);
            }
        }
        blocks.sort_unstable();
        blocks.dedup();
        let image = |block| Some((block, meta.image(block, names)?));
        let images: Vec<(u32, Page)> = blocks.into_iter().filter_map(image).collect();
        self.unflushed |= !images.is_empty();
        write_in_place(&mut self.disk, images.iter().map(|(at, page)| (*at, page)))?;
        for (block, image) in images {
            self.store.meta.written(block, image, names);
        }
        Ok(())
    }

    pub(crate) fn sync_all(&mut self) -> Result<(), FilesError> {
        let is_apart = !self.journals_data();
        while let Some(&(_, inode)) = self.dirty_files.first().filter(|_| is_apart) {
            self.write_pages(inode, 0, u32::MAX)?;
        }
        self.commit(true)?;
        self.flush()?;
        if self.journal.is_none() {
            self.released()?;
            let free = self.store.space.checkpointed();
            self.discard(&free)?;
        }
        // `sync` has nobody to tell: the error stays for the next sync of the file.
        let failed = self.failed.first().and_then(|&inode| self.node(inode).ok()?.failed);
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Does what a kernel may do by itself. What is not dirty or not there is left alone.
    pub fn write_back(&mut self, what: WriteBack) -> Result<(), FilesError> {
        if self.aborted.is_some() {
            return Err(FilesError::Aborted);
        }
        match what {
            WriteBack::Commit => self.commit(true),
            WriteBack::Checkpoint => self.checkpoint(),
            WriteBack::Pages { inode, .. } | WriteBack::Allocate { inode, .. }
                if self.file(inode).is_err() =>
            {
                Ok(())
            }
            WriteBack::Pages { inode, first, count } if self.journals_data() => {
                let (_, dirty) = self.file(inode)?;
                let is_dirty = dirty.range(first..first.saturating_add(count)).next().is_some();
                if is_dirty { self.commit(true) } else { self.go_on(true).map(drop) }
            }
            // They have blocks.
            WriteBack::Allocate { .. } if self.journals_data() => Ok(()),
            WriteBack::Pages { inode, first, count } => self.write_pages(inode, first, count),
            WriteBack::Allocate { inode, first, count } => {
                let (mut at, end) = (first, first.saturating_add(count));
                while at < end {
                    let pages = self.map_pages(inode, at, end, false)?;
                    let Some(&(last, _)) = pages.last() else { break };
                    at = last + 1;
                }
                Ok(())
            }
        }
    }

    /// Dirty pages: of which file, and which of its pages. The file that has had some for the
    /// longest time comes first.
    pub fn dirty(&self) -> impl Iterator<Item = (Inode, u32)> + '_ {
        let pages = self.dirty_files.iter().filter_map(|&(_, inode)| {
            let (_, dirty) = self.file(inode).ok()?;
            Some(dirty.keys().map(move |&page| (inode, page)))
        });
        pages.flatten()
    }
}

/// Gives blocks to the first pages of a part that has none; takes unwritten ones for written, to
/// `write` them. Of how many pages that is done, and how many extents it may have added.
pub(crate) fn map(
    extents: &mut Extents,
    (bag, store): (&mut Bag, &mut Store),
    part: Part,
    write: bool,
) -> Result<(u32, usize), FilesError> {
    let Part { page, len, .. } = part;
    if part.start.is_none() {
        let given = store.space.take(extents.goal(page), len)?;
        extents.put((bag, store), page, given, false)?;
        return Ok((given.len, 1));
    }
    if !part.unwritten || !write {
        return Ok((len, 0));
    }
    let (given, _) = extents.cut((&mut *bag, &mut *store), (page, page + len), usize::MAX)?;
    for run in given {
        extents.put((&mut *bag, &mut *store), page, run, false)?;
    }
    Ok((len, 2))
}
