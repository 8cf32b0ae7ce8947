//! A file, folder or link as memory has it.

use std::collections::BTreeMap;

use crate::bag::Bag;
use crate::disk::{DiskError, Page};
use crate::extents::Extents;
use crate::operation::Inode;

/// What a name in a folder leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) inode: Inode,
    /// In which sector of the bag it is written down.
    pub(crate) sector: u32,
}

/// What a node has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    File {
        extents: Extents,
        /// Pages that are not on the disk as they are here, by their numbers. Behind the end of
        /// the file they are zeros.
        dirty: BTreeMap<u32, Page>,
    },
    Folder(BTreeMap<Box<[u8]>, Entry>),
    Link(Vec<u8>),
}

/// A file, folder or link.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) content: Content,
    pub(crate) mode: u16,
    /// Bytes of the file.
    pub(crate) size: u64,
    /// What its inode says of that: less where the end has no block yet.
    pub(crate) disk_size: u64,
    pub(crate) bag: Bag,
    /// The folder of each name that leads to it.
    pub(crate) parents: Vec<Inode>,
    /// When it got its first dirty page by the count of all, if it has any.
    pub(crate) dirty_since: u64,
    /// The last transaction that has something of it, and that has what `fdatasync` needs.
    pub(crate) changed: u64,
    pub(crate) data_changed: u64,
    /// A write in the background failed, and nobody was told.
    pub(crate) failed: Option<DiskError>,
}

impl Node {
    /// How many names lead to it.
    pub(crate) fn links(&self) -> u32 {
        self.parents.len() as u32
    }

    /// A name in that folder leads to it no more.
    pub(crate) fn leave(&mut self, folder: Inode) {
        let at = self.parents.iter().rposition(|&parent| parent == folder);
        self.parents.swap_remove(at.expect("a name in it led here"));
    }

    pub(crate) fn is_folder(&self) -> bool {
        matches!(self.content, Content::Folder(_))
    }

    /// The names, of a folder.
    pub(crate) fn names(&self) -> Option<&BTreeMap<Box<[u8]>, Entry>> {
        match &self.content {
            Content::Folder(names) => Some(names),
            _ => None,
        }
    }
}
