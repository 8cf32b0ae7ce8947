//! Files on a disk: how they are made, mounted and looked at. What changes them is in `names`
//! and `data`; when it becomes durable, in `sync`.
//!
//! Guarantees: with a journal a cut leaves each operation whole or not there, as far as metadata
//! go, and all that a sync covered. Nothing depends on anything but the disk and what is asked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::bag::{Bag, Store};
use crate::disk::{BLOCK, Disk, DiskError};
use crate::error::FilesError;
use crate::journal::Journal;
use crate::kept::Kept;
use crate::layout::Layout;
use crate::load::load;
use crate::metadata::Metadata;
use crate::node::{Content, Node};
use crate::operation::{Inode, Operation};
use crate::options::{self, Options};
use crate::sector::{Header, Use};
use crate::space::Space;
use crate::table::{GROUP, Table};

/// The most bytes of a file.
pub const MOST_BYTES: u64 = (1 << 44) - BLOCK as u64;
/// The most bytes of a link's path.
pub(crate) const MOST_PATH: usize = 4095;

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// Bytes.
    File,
    /// Names of others.
    Folder,
    /// A path.
    Link,
}

/// What is known of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stat {
    /// What it is.
    pub kind: Type,
    /// Permission bits.
    pub mode: u16,
    /// How many names lead to it; of a folder 1, of the root 0.
    pub links: u32,
    /// Bytes of a file, or of the path of a link; of a folder how many names it has.
    pub size: u64,
}

/// The transaction that gathers what changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Running {
    pub(crate) number: u64,
    /// Pages that must be on the disk before the commit.
    pub(crate) ordered: BTreeSet<(Inode, u32)>,
    /// Files that are written back with the commit ([`Options::replace_writes`]).
    pub(crate) eager: BTreeSet<Inode>,
}

/// Files on a disk.
#[derive(Clone, Debug)]
pub struct Files<D> {
    pub(crate) disk: D,
    pub(crate) layout: Layout,
    pub(crate) store: Store,
    pub(crate) nodes: BTreeMap<Inode, Arc<Node>>,
    pub(crate) table: Table,
    pub(crate) journal: Option<Journal>,
    pub(crate) running: Running,
    /// Dirty pages of all files, and the files that have some, the first to get one first.
    pub(crate) dirty: usize,
    pub(crate) dirty_files: BTreeSet<(u64, Inode)>,
    /// How often a file got its first dirty page.
    pub(crate) dirtied: u64,
    /// Something was written that was not flushed.
    pub(crate) unflushed: bool,
    /// Files of which a write in the background failed, and nobody was told.
    pub(crate) failed: BTreeSet<Inode>,
    pub(crate) kept: Kept,
    /// Nothing changes any more, since this went wrong.
    pub(crate) aborted: Option<DiskError>,
}

/// Whether something can be called so.
pub(crate) fn is_name(name: &[u8]) -> bool {
    (1..=255).contains(&name.len())
        && name != b"."
        && name != b".."
        && !name.iter().any(|&byte| byte == b'/' || byte == 0)
}

impl<D: Disk> Files<D> {
    /// Makes a disk one with no files, and mounts it. All that it had is gone.
    pub fn format(mut disk: D, options: Options) -> Result<Files<D>, FilesError> {
        let layout = Layout::new(disk.blocks(), options)?;
        // A cut in here leaves no superblock.
        disk.write(0, &[0; BLOCK])?;
        disk.flush()?;
        let journal = match layout.options.journal {
            options::Journal::None => None,
            _ => Some(Journal::format(&layout, &mut disk)?),
        };
        let mut store = Store {
            meta: Metadata::new(layout.options.id),
            space: Space::new(layout.blocks, layout.table()),
        };
        let mut table = Table::default();
        store.space.claim(layout.table(), GROUP);
        table.add(&mut store, layout.table(), GROUP);
        let mut files = Files::new(disk, layout, store, BTreeMap::new(), table, journal);
        let root = Header { mode: 0o755, kind: 2, ..Header::new(Use::Inode, Inode::ROOT.0) };
        files.insert_node(Inode::ROOT, root, Content::Folder(BTreeMap::new()))?;
        files.commit(true)?;
        files.checkpoint()?;
        files.flush()?;
        files.disk.write(0, &files.layout.encode())?;
        files.disk.flush()?;
        files.unflushed = false;
        Ok(files)
    }

    /// Mounts what is on a disk: does again what the journal has. Without a journal what does not
    /// fit together is dropped; with one it is an error. Files without a name go.
    pub fn mount(mut disk: D) -> Result<Files<D>, FilesError> {
        let layout = Layout::read(&mut disk)?;
        let journal = match layout.options.journal {
            options::Journal::None => None,
            _ => Some(Journal::replay(&layout, &mut disk)?),
        };
        let mut loaded = load(&layout, &mut |block| {
            let mut page = Arc::new([0; BLOCK]);
            disk.read(u64::from(block), &mut Arc::make_mut(&mut page)[..])?;
            Ok(page)
        })?;
        if let Some(finding) = loaded.findings.first().filter(|_| journal.is_some()) {
            return Err(FilesError::Damaged { block: finding.block.into(), what: finding.what });
        }
        let nodes = std::mem::take(&mut loaded.nodes);
        let nodes = nodes.into_iter().map(|(inode, node)| (inode, Arc::new(node))).collect();
        let store = Store { meta: loaded.meta, space: loaded.space };
        let mut files = Files::new(disk, layout, store, nodes, loaded.table, journal);
        let (bad, chain) = (loaded.bad, loaded.bad_chain);
        files.repair(&bad, chain, &loaded.broken)?;
        for inode in loaded.orphans {
            files.make_room_to_change(4)?;
            files.free_inode(inode);
        }
        Ok(files)
    }

    fn new(
        disk: D,
        layout: Layout,
        store: Store,
        nodes: BTreeMap<Inode, Arc<Node>>,
        table: Table,
        journal: Option<Journal>,
    ) -> Files<D> {
        Files {
            disk,
            layout,
            store,
            nodes,
            table,
            journal,
            running: Running { number: 1, ..Running::default() },
            dirty: 0,
            dirty_files: BTreeSet::new(),
            dirtied: 0,
            unflushed: false,
            failed: BTreeSet::new(),
            kept: Kept::default(),
            aborted: None,
        }
    }

    /// Writes down again what was damaged.
    fn repair(
        &mut self,
        bad: &[crate::sector::Place],
        bad_chain: bool,
        broken: &BTreeSet<Inode>,
    ) -> Result<(), FilesError> {
        let store = &mut self.store;
        for &place in bad {
            store.meta.edit(place, false, |bytes| bytes.fill(0));
            self.table.free.insert(place);
        }
        if let Some(&(block, _)) = self.table.groups.last().filter(|_| bad_chain) {
            let place = crate::sector::Place { block, sector: 0 };
            store.meta.edit(place, false, |bytes| {
                let header = Header::peek(bytes).expect("the head of a group");
                Header { next: 0, ..header }.write(bytes);
            });
        }
        for inode in broken {
            let node = Arc::make_mut(self.nodes.get_mut(inode).expect("it was loaded"));
            let Node { content, bag, disk_size, .. } = node;
            bag.empty(store);
            bag.header(&mut store.meta, |header| header.size = *disk_size);
            match content {
                Content::File { extents, .. } => extents.put_all(bag, store)?,
                Content::Folder(names) => {
                    for (name, entry) in names {
                        entry.sector = bag.insert(store, &name_record(entry.inode, name))?;
                    }
                }
                Content::Link(path) => put_path(bag, store, path)?,
            }
        }
        Ok(())
    }

    /// A new inode with that header, which leads to nothing yet and has no name.
    pub(crate) fn insert_node(
        &mut self,
        inode: Inode,
        header: Header,
        content: Content,
    ) -> Result<(), FilesError> {
        let place = self.table.take(&mut self.store)?;
        let is_folder = matches!(content, Content::Folder(_));
        let mut bag = Bag::new(&mut self.store, place, header, is_folder);
        if let Content::Link(path) = &content {
            put_path(&mut bag, &mut self.store, path)?;
        }
        let node = Node {
            content,
            mode: header.mode,
            size: 0,
            disk_size: 0,
            bag,
            parents: Vec::new(),
            dirty_since: 0,
            changed: self.running.number,
            data_changed: self.running.number,
            failed: None,
        };
        self.nodes.insert(inode, Arc::new(node));
        Ok(())
    }

    /// The inode is no more, and what it had becomes free.
    pub(crate) fn free_inode(&mut self, inode: Inode) {
        let node = self.nodes.remove(&inode).expect("it is there");
        let node = Arc::unwrap_or_clone(node);
        if let Content::File { extents, dirty } = &node.content {
            let unmapped = dirty.keys().filter(|&&page| extents.part(page, 1).start.is_none());
            self.store.space.unreserve(unmapped.count() as u64);
            self.dirty -= dirty.len();
            self.dirty_files.remove(&(node.dirty_since, inode));
            dirty.keys().for_each(|&page| {
                self.running.ordered.remove(&(inode, page));
            });
            extents.give(&mut self.store);
        }
        self.running.eager.remove(&inode);
        self.failed.remove(&inode);
        self.kept.drop(inode, 0, u32::MAX);
        self.table.pending.push(node.bag.place());
        node.bag.free(&mut self.store);
    }

    /// Carries out what a program did. It is whole, or an error and nothing happened; where the
    /// disk failed in the middle of something long, a part of that may have happened.
    pub fn apply(&mut self, operation: &Operation) -> Result<(), FilesError> {
        if self.aborted.is_some() {
            return Err(FilesError::Aborted);
        }
        match operation {
            Operation::Create { parent, name, inode, kind, mode } => {
                self.create((*parent, name), *inode, kind, *mode)
            }
            Operation::Link { parent, name, inode } => self.link((*parent, name), *inode),
            Operation::Remove { parent, name } => self.remove((*parent, name)),
            Operation::Forget { inode } => self.forget(*inode),
            Operation::Rename { from, to, exchange } => {
                self.rename((from.0, &from.1), (to.0, &to.1), *exchange)
            }
            Operation::Write { inode, offset, data } => self.write(*inode, *offset, data),
            Operation::Truncate { inode, size } => self.truncate(*inode, *size),
            Operation::Allocate { inode, offset, len, keep_size } => {
                self.allocate(*inode, *offset, *len, *keep_size)
            }
            Operation::Punch { inode, offset, len } => self.punch(*inode, *offset, *len),
            Operation::Mode { inode, mode } => self.set_mode(*inode, *mode),
            Operation::Sync { inode, data } => self.sync(*inode, *data),
            Operation::SyncAll => self.sync_all(),
        }
    }

    pub(crate) fn node(&self, inode: Inode) -> Result<&Node, FilesError> {
        self.nodes.get(&inode).map(|node| &**node).ok_or(FilesError::NoInode(inode))
    }

    /// A node that is known to be there, to change it.
    pub(crate) fn node_mut(&mut self, inode: Inode) -> &mut Node {
        Arc::make_mut(self.nodes.get_mut(&inode).expect("it is there"))
    }

    /// What is known of a file.
    pub fn stat(&self, inode: Inode) -> Result<Stat, FilesError> {
        let node = self.node(inode)?;
        let (kind, size) = match &node.content {
            Content::File { .. } => (Type::File, node.size),
            Content::Folder(names) => (Type::Folder, names.len() as u64),
            Content::Link(path) => (Type::Link, path.len() as u64),
        };
        Ok(Stat { kind, mode: node.mode, links: node.links(), size })
    }

    /// The names in a folder and where they lead, in order of their bytes.
    pub fn list(&self, folder: Inode) -> Result<impl Iterator<Item = (&[u8], Inode)>, FilesError> {
        let names = self.node(folder)?.names().ok_or(FilesError::NotFolder(folder))?;
        Ok(names.iter().map(|(name, entry)| (&**name, entry.inode)))
    }

    /// What a name in a folder leads to.
    pub fn lookup(&self, folder: Inode, name: &[u8]) -> Result<Option<Inode>, FilesError> {
        let names = self.node(folder)?.names().ok_or(FilesError::NotFolder(folder))?;
        Ok(names.get(name).map(|entry| entry.inode))
    }

    /// The path of a link.
    pub fn target(&self, inode: Inode) -> Result<&[u8], FilesError> {
        match &self.node(inode)?.content {
            Content::Link(path) => Ok(path),
            _ => Err(FilesError::NotFile(inode)),
        }
    }

    /// Keeps as many pages of 4 KiB that were written, as a page cache does, so that a write to a
    /// part of one does not read it.
    pub fn keep_pages(&mut self, most: usize) {
        self.kept = Kept::with(most);
    }

    /// How it was made.
    pub fn options(&self) -> &Options {
        &self.layout.options
    }

    /// Blocks of 4 KiB that are free.
    pub fn free_blocks(&self) -> u64 {
        self.store.space.free()
    }

    /// Blocks of 4 KiB that files can have in all, and how many of them data may still take: as
    /// [`Files::has_room`], with what was given up.
    pub fn room(&self) -> (u64, u64) {
        let given: u64 = self.store.space.pending().map(|it| u64::from(it.len)).sum();
        let all = u64::from(self.layout.blocks - self.layout.table());
        (all, self.store.space.for_data() + given)
    }

    /// A number that no file has.
    pub fn new_inode(&self) -> Inode {
        let last = self.nodes.keys().next_back().map_or(0, |inode| inode.0);
        match last.checked_add(1) {
            Some(next) => Inode(next),
            None => {
                let free = (2..).find(|&n| !self.nodes.contains_key(&Inode(n)));
                Inode(free.expect("not all numbers are taken"))
            }
        }
    }

    /// The disk below, to tell it what is not about blocks.
    pub fn disk_mut(&mut self) -> &mut D {
        &mut self.disk
    }

    /// The disk below.
    pub fn disk(&self) -> &D {
        &self.disk
    }

    /// The disk below, as what was written left it; what was not written back is lost.
    pub fn into_disk(self) -> D {
        self.disk
    }
}

/// A name as it stands in a folder's sector.
pub(crate) fn name_record(inode: Inode, name: &[u8]) -> Vec<u8> {
    let mut record = inode.0.to_le_bytes().to_vec();
    record.extend_from_slice(name);
    record
}

/// Writes down the path of a link, piece by piece.
fn put_path(bag: &mut Bag, store: &mut Store, path: &[u8]) -> Result<(), FilesError> {
    // Pieces that fill a sector, so that they come back in their order.
    path.chunks(crate::sector::BODY - 2).try_for_each(|piece| bag.insert(store, piece).map(drop))
}
