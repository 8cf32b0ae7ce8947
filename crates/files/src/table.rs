//! The table of inodes: groups of blocks, chained, in which each sector is an inode or free.

use std::collections::BTreeSet;

use crate::bag::Store;
use crate::error::FilesError;
use crate::sector::{Header, Place, Use};

/// Blocks of a group, unless there is room for fewer.
pub(crate) const GROUP: u32 = 16;

/// Where inodes are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    /// First block and blocks of each group.
    pub(crate) groups: Vec<(u32, u32)>,
    pub(crate) free: BTreeSet<Place>,
    /// Free when the next commit of all is durable.
    pub(crate) pending: Vec<Place>,
    /// Free when the one that is under way is.
    in_commit: Vec<Place>,
}

/// All places for inodes in a group.
pub(crate) fn places(start: u32, blocks: u32) -> impl Iterator<Item = Place> {
    let all =
        (start..start + blocks).flat_map(|block| (0..8).map(move |sector| Place { block, sector }));
    all.skip(1)
}

impl Table {
    /// A place for an inode. It may take a group of blocks.
    pub(crate) fn take(&mut self, store: &mut Store) -> Result<Place, FilesError> {
        if self.free.is_empty() {
            let run = store.space.take(None, GROUP)?;
            self.add(store, run.start, run.len);
        }
        Ok(self.free.pop_first().expect("a group has places"))
    }

    /// One group more, whose blocks are taken.
    pub(crate) fn add(&mut self, store: &mut Store, start: u32, blocks: u32) {
        (start..start + blocks).for_each(|block| store.meta.add(block));
        let header = Header::new(Use::Group, u64::from(blocks));
        store.meta.edit(Place { block: start, sector: 0 }, false, |bytes| header.write(bytes));
        if let Some(&(last, _)) = self.groups.last() {
            store.meta.edit(Place { block: last, sector: 0 }, false, |bytes| {
                let header = Header::peek(bytes).expect("the head of a group");
                Header { next: start, ..header }.write(bytes);
            });
        }
        self.groups.push((start, blocks));
        self.free.extend(places(start, blocks));
    }

    /// A commit of all begins: what is given up from now on is not in it.
    pub(crate) fn commits(&mut self) {
        self.in_commit.append(&mut self.pending);
    }

    /// The commit of all that began is durable.
    pub(crate) fn committed(&mut self) {
        self.free.extend(self.in_commit.drain(..));
    }
}
