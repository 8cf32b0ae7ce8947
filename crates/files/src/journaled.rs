//! Data that go through the journal, as with ext4's `data=journal` ([`Journal::Data`]).
//!
//! Guarantees: a cut leaves names, modes, sizes and bytes as all of them were after some
//! operation, no older than what the last commit that returned had. That holds because
//!
//! - *nothing of the running transaction is on the disk.* A page that is written gets its block
//!   at once, but that is only said in memory, and its bytes stay there. What is written in place
//!   at all is written by a checkpoint or a replay, and is of transactions that are durable.
//! - *a commit has everything, and comes between operations.* It takes all dirty pages of all
//!   files with all changes of metadata. An operation says before it changes anything what it
//!   may change at most ([`Files::cost_of_write`], [`Files::cost_of_cut`]); if the running
//!   transaction has no room for that, it is committed then, and nothing is in the middle.
//!   `Allocate` may be committed in its middle: nobody can tell.
//! - *a transaction is whole or not there*, and they are replayed in their order (`journal`).
//! - *of each block the newest image comes to be in place.* Whatever becomes of a block, in place
//!   in its file, in another file or as metadata, becomes of it by an image of a later
//!   transaction: no older one ends over that. One that was taken and never written (`Allocate`)
//!   is not read, so that what a replay leaves there is not seen. Blocks that were given up
//!   durably need no image in place, and lose it ([`Journal::forget`]); a replay may write it
//!   all the same, before those of the transactions that used the block again.
//! - *who reads takes what the ring has* and the disk does not have in place yet.
//!
//! What is larger than a transaction goes in several: a write, of which then the first pages are
//! there; a truncate or punch of extents in more blocks of records than that. A write of the
//! journal, or in place, that fails ends all changes: what was committed is in the ring, and the
//! next mount has it. Memory is bounded: dirty pages by what a transaction holds, images that
//! are not in place by the ring.
//!
//! [`Journal::Data`]: crate::Journal::Data

use std::sync::Arc;

use crate::disk::{BLOCK, Disk, DiskError, Page};
use crate::error::FilesError;
use crate::files::Files;
use crate::journal::{Journal, write_in_place};
use crate::mutation::{self, Mutation};
use crate::node::{Content, Node};
use crate::operation::Inode;
use crate::options;
use crate::space::Given;
use crate::sync::map;

/// Extents that a block of records has at least when the next one is taken.
const PER_BLOCK: usize = 200;

/// Reads blocks as the transactions that are durable have them, in place or not.
pub(crate) fn read_committed<D: Disk>(
    journal: &Option<Journal>,
    disk: &mut D,
    at: u32,
    bytes: &mut [u8],
) -> Result<(), DiskError> {
    let blocks = at..at + (bytes.len() / BLOCK) as u32;
    let images = || journal.iter().flat_map(|journal| journal.images(blocks.clone()));
    if images().count() < blocks.len() {
        disk.read(u64::from(at), bytes)?;
    }
    for (block, page) in images() {
        bytes[(block - at) as usize * BLOCK..][..BLOCK].copy_from_slice(&page[..]);
    }
    Ok(())
}

impl<D: Disk> Files<D> {
    pub(crate) fn journals_data(&self) -> bool {
        self.layout.options.journal == options::Journal::Data
    }

    /// How many blocks a write to these pages may add to the running transaction.
    pub(crate) fn cost_of_write(
        &self,
        inode: Inode,
        first: u32,
        last: u32,
    ) -> Result<usize, FilesError> {
        if !self.journals_data() {
            return Ok(1);
        }
        let (extents, _) = self.file(inode)?;
        let (mut at, mut records) = (first, 0);
        while at <= last {
            let part = extents.part(at, last - at + 1);
            at += part.len;
            records += match part.start {
                None => part.len as usize,
                Some(_) => 3 * usize::from(part.unwritten),
            };
        }
        // Each record is in a block that is there, as the one that it follows; or in a new one.
        // Beside that the inode, the first new block and the one before it.
        let old = self.node(inode)?.bag.blocks().len().min(2 * records);
        Ok((last - first + 1) as usize + old + records / PER_BLOCK + 3)
    }

    /// How many of these pages, the first ones, a write may change in one transaction.
    pub(crate) fn whole_pages(
        &self,
        inode: Inode,
        first: u32,
        last: u32,
    ) -> Result<u32, FilesError> {
        let (mut pages, most) = (last - first + 1, self.most_changes());
        while pages > 1 && self.cost_of_write(inode, first, first + pages - 1)? > most {
            pages = pages.div_ceil(2);
        }
        Ok(pages)
    }

    /// How many blocks it may add to the running transaction to take these pages out.
    pub(crate) fn cost_of_cut(
        &self,
        inode: Inode,
        from: u32,
        to: u32,
    ) -> Result<usize, FilesError> {
        let (extents, _) = self.file(inode)?;
        let old = self.node(inode)?.bag.blocks().len();
        // Beside records the inode, a new block and the one before it, and two pages of which
        // a part becomes zeros.
        Ok(old.min(2 * extents.count(from, to)) + 5)
    }

    /// Pages that will be dirty have blocks from now on. There is room.
    pub(crate) fn take_written(
        &mut self,
        inode: Inode,
        first: u32,
        last: u32,
    ) -> Result<(), FilesError> {
        let node = Arc::make_mut(self.nodes.get_mut(&inode).expect("it is there"));
        let Node { content, bag, .. } = node;
        let Content::File { extents, .. } = content else { unreachable!("it is a file") };
        let mut at = first;
        while at <= last {
            let part = extents.part(at, last - at + 1);
            at += map(extents, (&mut *bag, &mut self.store), part, true)?.0;
        }
        Ok(())
    }

    /// Adds all dirty pages to the images of a transaction.
    pub(crate) fn add_data(&mut self, images: &mut Vec<(u32, Page)>) -> Result<(), FilesError> {
        if mutation::is(Mutation::CommitWithoutData) {
            return Ok(());
        }
        let metadata = images.len();
        for &(_, inode) in &self.dirty_files {
            let (extents, dirty) = self.file(inode)?;
            images.extend(dirty.iter().map(|(&number, page)| {
                let block = extents.block(number).expect("a dirty page has a block");
                (block, page.clone())
            }));
        }
        debug_assert!(images.len() <= self.most_changes(), "what operations cost is not more");
        if mutation::is(Mutation::DataBeforeCommit) {
            let data = images.drain(metadata..).collect::<Vec<_>>();
            write_in_place(&mut self.disk, data.iter().map(|(at, page)| (*at, page)))?;
        }
        Ok(())
    }

    /// Blocks of data that are durably given up need not be written in place any more.
    pub(crate) fn forget_images(&mut self, free: &[Given]) {
        let is_data = self.journals_data();
        if let Some(journal) = self.journal.as_mut().filter(|_| is_data) {
            free.iter().for_each(|run| journal.forget(run.start..run.start + run.len));
        }
    }

    /// All dirty pages are in the transaction that begins.
    pub(crate) fn clean(&mut self) -> Result<(), FilesError> {
        for (_, inode) in std::mem::take(&mut self.dirty_files) {
            let node = Arc::make_mut(self.nodes.get_mut(&inode).expect("it is there"));
            let Content::File { extents, dirty } = &mut node.content else { continue };
            if mutation::is(Mutation::CommitWithoutData) {
                let blocks = dirty.iter().map(|(&page, bytes)| (extents.block(page), bytes));
                let blocks = blocks.filter_map(|(at, bytes)| Some((at?, bytes)));
                write_in_place(&mut self.disk, blocks)?;
            }
            dirty.iter().for_each(|(&page, bytes)| self.kept.put(inode, page, bytes));
            dirty.clear();
        }
        self.dirty = 0;
        Ok(())
    }
}
