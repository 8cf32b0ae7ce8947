//! What changes names: of files, folders and links.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::disk::Disk;
use crate::error::FilesError;
use crate::extents::Extents;
use crate::files::{Files, MOST_PATH, is_name, name_record};
use crate::layout::{put, word};
use crate::node::{Content, Entry, Node};
use crate::operation::{Inode, Kind};
use crate::sector::{Header, Use};

/// A folder, and a name in it.
type Name<'a> = (Inode, &'a [u8]);

/// Blocks that one change of names may change or take.
const MOST_BLOCKS: usize = 28;

impl<D: Disk> Files<D> {
    /// What has the name, if anything. The folder has a name itself, and the name can be one.
    fn find(&self, (folder, name): Name) -> Result<Option<Entry>, FilesError> {
        let node = self.node(folder)?;
        let names = node.names().ok_or(FilesError::NotFolder(folder))?;
        if !is_name(name) {
            return Err(FilesError::BadName(name.len()));
        }
        if node.links() == 0 && folder != Inode::ROOT {
            return Err(FilesError::NoInode(folder));
        }
        Ok(names.get(name).copied())
    }

    fn must_find(&self, name: Name) -> Result<Entry, FilesError> {
        self.find(name)?.ok_or_else(|| FilesError::NoName(name.1.to_vec()))
    }

    fn must_not_find(&self, name: Name) -> Result<(), FilesError> {
        match self.find(name)? {
            None => Ok(()),
            Some(_) => Err(FilesError::Exists(name.1.to_vec())),
        }
    }

    /// Sees that there is room for a change of names.
    fn make_room_for_names(&mut self) -> Result<(), FilesError> {
        self.make_room_to_change(MOST_BLOCKS)?;
        self.make_room(MOST_BLOCKS as u64, false)
    }

    /// Gives something a name, which nothing has. There is room.
    fn add_name(&mut self, (folder, name): Name, inode: Inode) -> Result<(), FilesError> {
        let record = name_record(inode, name);
        let node = Arc::make_mut(self.nodes.get_mut(&folder).expect("it is there"));
        let sector = node.bag.insert(&mut self.store, &record)?;
        if let Content::Folder(names) = &mut node.content {
            names.insert(name.into(), Entry { inode, sector });
        }
        self.touch(folder, true);
        self.node_mut(inode).parents.push(folder);
        self.touch(inode, false);
        Ok(())
    }

    /// Takes a name away that is there.
    fn take_name(&mut self, (folder, name): Name) {
        let node = Arc::make_mut(self.nodes.get_mut(&folder).expect("it is there"));
        let Content::Folder(names) = &mut node.content else { unreachable!("it is a folder") };
        let entry = names.remove(name).expect("it is there");
        node.bag.remove(&mut self.store, entry.sector, is_named(name));
        self.touch(folder, true);
        self.node_mut(entry.inode).leave(folder);
        self.touch(entry.inode, false);
    }

    /// Has a name that is there lead to something else.
    fn turn_name(&mut self, (folder, name): Name, inode: Inode) {
        let node = Arc::make_mut(self.nodes.get_mut(&folder).expect("it is there"));
        let Content::Folder(names) = &mut node.content else { unreachable!("it is a folder") };
        let entry = names.get_mut(name).expect("it is there");
        let old = std::mem::replace(&mut entry.inode, inode);
        let new = inode.0.to_le_bytes();
        node.bag.update(&mut self.store, entry.sector, is_named(name), |record| {
            put(record, 0, new);
        });
        self.touch(folder, true);
        self.node_mut(old).leave(folder);
        self.touch(old, false);
        self.node_mut(inode).parents.push(folder);
        self.touch(inode, false);
    }

    pub(crate) fn create(
        &mut self,
        name: Name,
        inode: Inode,
        kind: &Kind,
        mode: u16,
    ) -> Result<(), FilesError> {
        self.must_not_find(name)?;
        if inode.0 == 0 || self.nodes.contains_key(&inode) {
            return Err(FilesError::Taken(inode));
        }
        let (number, content) = match kind {
            Kind::File => {
                (1, Content::File { extents: Extents::default(), dirty: BTreeMap::new() })
            }
            Kind::Folder => (2, Content::Folder(BTreeMap::new())),
            Kind::Link(path) if (1..=MOST_PATH).contains(&path.len()) => {
                (3, Content::Link(path.clone()))
            }
            Kind::Link(path) => return Err(FilesError::BadPath(path.len())),
        };
        self.make_room_for_names()?;
        let header = Header { mode, kind: number, ..Header::new(Use::Inode, inode.0) };
        self.insert_node(inode, header, content)?;
        self.add_name(name, inode)
    }

    pub(crate) fn link(&mut self, name: Name, inode: Inode) -> Result<(), FilesError> {
        self.must_not_find(name)?;
        if self.node(inode)?.is_folder() {
            return Err(FilesError::IsFolder(inode));
        }
        self.make_room_for_names()?;
        self.add_name(name, inode)
    }

    pub(crate) fn remove(&mut self, name: Name) -> Result<(), FilesError> {
        let entry = self.must_find(name)?;
        self.may_go(entry.inode)?;
        self.make_room_to_change(MOST_BLOCKS)?;
        self.take_name(name);
        Ok(())
    }

    /// An error if it is a folder with names in it.
    fn may_go(&self, inode: Inode) -> Result<(), FilesError> {
        match self.node(inode)?.names() {
            Some(names) if !names.is_empty() => Err(FilesError::NotEmpty(inode)),
            _ => Ok(()),
        }
    }

    pub(crate) fn forget(&mut self, inode: Inode) -> Result<(), FilesError> {
        if self.node(inode)?.links() > 0 || inode == Inode::ROOT {
            return Err(FilesError::Named(inode));
        }
        self.make_room_to_change(MOST_BLOCKS)?;
        self.free_inode(inode);
        Ok(())
    }

    pub(crate) fn rename(
        &mut self,
        from: Name,
        to: Name,
        exchange: bool,
    ) -> Result<(), FilesError> {
        let moved = self.must_find(from)?.inode;
        let target = match exchange {
            true => Some(self.must_find(to)?.inode),
            false => self.find(to)?.map(|entry| entry.inode),
        };
        self.may_move(moved, to.0)?;
        if exchange {
            let target = target.expect("it was found");
            self.may_move(target, from.0)?;
            self.make_room_for_names()?;
            self.turn_name(to, moved);
            self.turn_name(from, target);
            return Ok(());
        }
        if target == Some(moved) {
            return Ok(());
        }
        if let Some(target) = target {
            let (new, old) = (self.node(moved)?, self.node(target)?);
            match (new.is_folder(), old.is_folder()) {
                (true, false) => return Err(FilesError::NotFolder(target)),
                (false, true) => return Err(FilesError::IsFolder(target)),
                _ => self.may_go(target)?,
            }
        }
        self.make_room_for_names()?;
        if target.is_some() {
            self.turn_name(to, moved);
            let is_file = matches!(self.node(moved)?.content, Content::File { .. });
            if is_file && self.layout.options.replace_writes {
                self.running.eager.insert(moved);
            }
        } else {
            self.add_name(to, moved)?;
        }
        self.take_name(from);
        Ok(())
    }

    /// An error if a folder would come to be in itself.
    fn may_move(&self, moved: Inode, folder: Inode) -> Result<(), FilesError> {
        if !self.node(moved)?.is_folder() {
            return Ok(());
        }
        let mut at = folder;
        loop {
            if at == moved {
                return Err(FilesError::Loop(moved));
            }
            if at == Inode::ROOT {
                return Ok(());
            }
            at = self.node(at)?.parents[0];
        }
    }

    pub(crate) fn set_mode(&mut self, inode: Inode, mode: u16) -> Result<(), FilesError> {
        self.node(inode)?;
        self.make_room_to_change(1)?;
        let node = Arc::make_mut(self.nodes.get_mut(&inode).expect("it is there"));
        let Node { bag, mode: old, .. } = node;
        *old = mode;
        bag.header(&mut self.store.meta, |header| header.mode = mode);
        self.touch(inode, false);
        Ok(())
    }
}

/// Whether a record has that name.
fn is_named(name: &[u8]) -> impl Fn(&[u8]) -> bool + '_ {
    move |record| record.len() == 8 + name.len() && &record[8..] == name && word(record, 0) != 0
}
