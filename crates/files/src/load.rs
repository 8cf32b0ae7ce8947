//! Reads all metadata: what files there are, and what of the disk they take.
//!
//! Guarantees: whatever bytes are there, it ends, in time that goes with the disk's size, and
//! what it gives fits together: no block belongs to two, each name leads to a file, folders are
//! a tree. What it left out for that it tells.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::bag::Bag;
use crate::disk::Page;
use crate::error::FilesError;
use crate::extents::Extents;
use crate::files::{MOST_BYTES, MOST_PATH, is_name};
use crate::layout::{Layout, word};
use crate::metadata::Metadata;
use crate::node::{Content, Entry, Node};
use crate::operation::Inode;
use crate::sector::{self, Header, Place, Use};
use crate::space::Space;
use crate::table::{GROUP, Table, places};

/// Something that does not fit together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) block: u32,
    pub(crate) what: &'static str,
}

/// What there is on a disk.
pub(crate) struct Loaded {
    pub(crate) nodes: BTreeMap<Inode, Node>,
    pub(crate) meta: Metadata,
    pub(crate) space: Space,
    pub(crate) table: Table,
    pub(crate) findings: Vec<Finding>,
    /// Sectors that are to be zeros, and inodes whose records are to be written again.
    pub(crate) bad: Vec<Place>,
    pub(crate) broken: BTreeSet<Inode>,
    /// The last group names another that is none.
    pub(crate) bad_chain: bool,
    /// What no name leads to.
    pub(crate) orphans: Vec<Inode>,
}

/// Gives a block of the disk.
pub(crate) type Reader<'a> = dyn FnMut(u32) -> Result<Page, FilesError> + 'a;

/// Reads all metadata.
pub(crate) fn load(layout: &Layout, read: &mut Reader) -> Result<Loaded, FilesError> {
    let id = layout.options.id;
    let mut loaded = Loaded {
        nodes: BTreeMap::new(),
        meta: Metadata::new(id),
        space: Space::new(layout.blocks, layout.table()),
        table: Table::default(),
        findings: Vec::new(),
        bad: Vec::new(),
        broken: BTreeSet::new(),
        bad_chain: false,
        orphans: Vec::new(),
    };
    let inodes = loaded.read_table(layout, read)?;
    for (place, header) in inodes {
        loaded.read_inode(id, place, header, read)?;
    }
    loaded.follow_names(layout)?;
    Ok(loaded)
}

impl Loaded {
    fn find(&mut self, block: u32, what: &'static str) {
        self.findings.push(Finding { block, what });
    }

    fn read_table(
        &mut self,
        layout: &Layout,
        read: &mut Reader,
    ) -> Result<Vec<(Place, Header)>, FilesError> {
        let id = layout.options.id;
        let (mut at, mut inodes) = (layout.table(), Vec::new());
        loop {
            let head = Place { block: at, sector: 0 };
            let page = read(at)?;
            let header = Header::read(&page[head.bytes()], id, head);
            let blocks = header.filter(|header| header.used_as == Use::Group);
            let blocks = blocks.map_or(0, |header| header.owner.min(u64::from(GROUP) + 1)) as u32;
            if !(1..=GROUP).contains(&blocks) || !self.space.claim(at, blocks) {
                let what = "the head of a group of inodes is damaged";
                if self.table.groups.is_empty() {
                    return Err(FilesError::Damaged { block: u64::from(at), what });
                }
                self.bad_chain = true;
                self.find(at, what);
                break;
            }
            self.meta.insert(at, page);
            for block in at + 1..at + blocks {
                self.meta.insert(block, read(block)?);
            }
            self.table.groups.push((at, blocks));
            places(at, blocks).for_each(|place| inodes.extend(self.inode_at(id, place)));
            match header.map_or(0, |header| header.next) {
                0 => break,
                next if next >= layout.blocks => {
                    self.bad_chain = true;
                    self.find(at, "the next group of inodes would be behind the end");
                    break;
                }
                next => at = next,
            }
        }
        Ok(inodes)
    }

    /// The inode that is there, if any.
    fn inode_at(&mut self, id: u64, place: Place) -> Option<(Place, Header)> {
        let bytes = self.meta.sector(place);
        if bytes.iter().all(|&byte| byte == 0) {
            self.table.free.insert(place);
            return None;
        }
        let header = Header::read(bytes, id, place).filter(|header| {
            header.used_as == Use::Inode
                && header.owner != 0
                && (1..=3).contains(&header.kind)
                && header.number == 0
        });
        if header.is_none() {
            self.bad.push(place);
            self.find(place.block, "an inode is damaged");
        }
        Some((place, header?))
    }

    fn read_inode(
        &mut self,
        id: u64,
        place: Place,
        header: Header,
        read: &mut Reader,
    ) -> Result<(), FilesError> {
        let inode = Inode(header.owner);
        if self.nodes.contains_key(&inode) {
            self.bad.push(place);
            self.find(place.block, "two inodes have the same number");
            return Ok(());
        }
        let is_folder = header.kind == 2;
        let bag = self.read_chain(id, place, &header, read)?;
        let mut bag = Bag::found(header.owner, is_folder, place, bag);
        let mut content = match header.kind {
            1 => Content::File { extents: Extents::default(), dirty: BTreeMap::new() },
            2 => Content::Folder(BTreeMap::new()),
            _ => Content::Link(Vec::new()),
        };
        for n in 0..bag.sectors() {
            self.read_sector(id, (inode, &header), (n, bag.place_of(n)), &mut content);
        }
        if !self.broken.contains(&inode) {
            bag.look(&self.meta);
        }
        if let Content::Link(path) = &mut content
            && !(1..=MOST_PATH).contains(&path.len())
        {
            *path = b"damaged".to_vec();
            self.find(place.block, "the path of a link is damaged");
            self.broken.insert(inode);
        }
        let mut size = header.size;
        if size > MOST_BYTES {
            self.find(place.block, "the size of a file is too large");
            self.broken.insert(inode);
            size = 0;
        }
        let node = Node {
            content,
            mode: header.mode,
            size,
            disk_size: size,
            bag,
            parents: Vec::new(),
            dirty_since: 0,
            changed: 0,
            data_changed: 0,
            failed: None,
        };
        self.nodes.insert(inode, node);
        Ok(())
    }

    /// The blocks that are chained to an inode.
    fn read_chain(
        &mut self,
        id: u64,
        place: Place,
        header: &Header,
        read: &mut Reader,
    ) -> Result<Vec<u32>, FilesError> {
        let (mut blocks, mut next) = (Vec::new(), header.next);
        while next != 0 {
            let head = Place { block: next, sector: 0 };
            let number = 1 + 8 * blocks.len() as u32;
            let page = if self.space.is_free(next) { Some(read(next)?) } else { None };
            let found = page.and_then(|page| {
                let found = Header::read(&page[head.bytes()], id, head)?;
                is_more(&found, header.owner, number).then_some((page, found))
            });
            let Some((page, found)) = found else {
                self.find(place.block, "a chain of an inode is damaged");
                self.broken.insert(Inode(header.owner));
                break;
            };
            self.space.claim(next, 1);
            self.meta.insert(next, page);
            blocks.push(next);
            next = found.next;
        }
        Ok(blocks)
    }

    fn read_sector(
        &mut self,
        id: u64,
        (inode, header): (Inode, &Header),
        (n, place): (u32, Place),
        content: &mut Content,
    ) {
        let meta = std::mem::take(&mut self.meta);
        let bytes = meta.sector(place);
        let is_sound = n == 0
            || Header::read(bytes, id, place).is_some_and(|more| is_more(&more, header.owner, n));
        let mut is_whole = is_sound && sector::is_whole(bytes);
        for (_, record) in sector::records(bytes).take_while(|_| is_sound) {
            is_whole &= match content {
                Content::File { extents, .. } => match extents.load(record, n) {
                    Some(run) if self.space.claim(run.start, run.len) => true,
                    Some(_) => {
                        extents.unload(record);
                        false
                    }
                    None => false,
                },
                Content::Folder(names) => take_name(names, record, n),
                Content::Link(path) => {
                    path.extend_from_slice(record);
                    true
                }
            };
        }
        self.meta = meta;
        if !is_whole {
            self.find(place.block, "what an inode has is damaged");
            self.broken.insert(inode);
        }
    }

    /// Sees that names lead to what there is and folders are a tree.
    fn follow_names(&mut self, layout: &Layout) -> Result<(), FilesError> {
        if !self.nodes.get(&Inode::ROOT).is_some_and(Node::is_folder) {
            let block = u64::from(layout.table());
            return Err(FilesError::Damaged { block, what: "there is no folder for all" });
        }
        let (mut folders, mut reached) = (VecDeque::from([Inode::ROOT]), BTreeSet::new());
        reached.insert(Inode::ROOT);
        while let Some(folder) = folders.pop_front() {
            let block = self.nodes[&folder].bag.place().block;
            let names = match &mut self.nodes.get_mut(&folder).expect("it is there").content {
                Content::Folder(names) => std::mem::take(names),
                _ => continue,
            };
            let (before, mut kept) = (names.len(), BTreeMap::new());
            for (name, entry) in names {
                let Some(node) = self.nodes.get_mut(&entry.inode) else { continue };
                let is_new = reached.insert(entry.inode);
                if node.is_folder() && !is_new {
                    continue;
                }
                if node.is_folder() {
                    folders.push_back(entry.inode);
                }
                node.parents.push(folder);
                kept.insert(name, entry);
            }
            if kept.len() < before {
                self.find(block, "a name leads to nothing, or to a folder that has one");
                self.broken.insert(folder);
            }
            self.nodes.get_mut(&folder).expect("it is there").content = Content::Folder(kept);
        }
        self.orphans.extend(self.nodes.keys().filter(|inode| !reached.contains(inode)));
        Ok(())
    }
}

fn is_more(header: &Header, owner: u64, number: u32) -> bool {
    header.used_as == Use::More && header.owner == owner && header.number == number
}

fn take_name(names: &mut BTreeMap<Box<[u8]>, Entry>, record: &[u8], sector: u32) -> bool {
    let Some((inode, name)) = record.split_at_checked(8) else { return false };
    let entry = Entry { inode: Inode(word(inode, 0)), sector };
    if !is_name(name) || names.contains_key(name) {
        return false;
    }
    names.insert(name.into(), entry);
    true
}
