//! Files as a plain tree, with all that a cut may leave of each.

use std::collections::{BTreeMap, BTreeSet};

use files::{Disk, Files, Inode, Journal, Kind, Names, Operation, Type};

const PAGE: usize = 4096;

/// What a name leads to, by its whole path.
pub type Tree = BTreeMap<Vec<u8>, u64>;

#[derive(Clone, Debug)]
pub enum What {
    File(Vec<u8>),
    Folder(BTreeMap<Vec<u8>, u64>),
    Link(Vec<u8>),
}

/// A file, and what it may be after a cut.
#[derive(Clone, Debug)]
pub struct Node {
    pub what: What,
    pub mode: u16,
    pub links: u32,
    /// What the last sync made durable of the bytes.
    base: Vec<u8>,
    /// Sizes and pages that there were since, and modes since the last `fsync`.
    sizes: BTreeSet<usize>,
    pages: BTreeMap<usize, Vec<Vec<u8>>>,
    modes: BTreeSet<u16>,
    /// The last operation that changed what leads to it, and the one that made it.
    pub named: usize,
    pub made: usize,
}

#[derive(Clone)]
pub struct Model {
    pub nodes: BTreeMap<u64, Node>,
    /// The names after each operation.
    pub trees: Vec<Tree>,
    /// Names are at least as new as after that operation.
    pub durable: usize,
    /// Files that were synced when no name changed since, without a journal.
    synced: BTreeSet<u64>,
    names: Names,
    journal: Journal,
}

fn page_at(bytes: &[u8], page: usize) -> Vec<u8> {
    let from = (page * PAGE).min(bytes.len());
    let mut whole = bytes[from..(from + PAGE).min(bytes.len())].to_vec();
    whole.resize(PAGE, 0);
    whole
}

impl Node {
    fn new(what: What, mode: u16, made: usize) -> Node {
        let (sizes, modes) = (BTreeSet::from([0]), BTreeSet::from([mode]));
        let (base, pages) = (Vec::new(), BTreeMap::new());
        Node { what, mode, links: 0, base, sizes, pages, modes, named: made, made }
    }

    /// The bytes change, and both what was and what is may be found.
    fn change(&mut self, change: impl FnOnce(&mut Vec<u8>)) {
        let What::File(bytes) = &mut self.what else { panic!("it is a file") };
        let old = bytes.clone();
        change(bytes);
        self.sizes.insert(bytes.len());
        for page in 0..old.len().max(bytes.len()).div_ceil(PAGE) {
            let new = page_at(bytes, page);
            if new != page_at(&old, page) {
                self.pages.entry(page).or_default().push(new);
            }
        }
    }

    fn synced(&mut self) {
        if let What::File(bytes) = &self.what {
            self.base = bytes.clone();
            self.sizes = BTreeSet::from([bytes.len()]);
            self.pages.clear();
        }
    }

    /// What is wrong with these bytes after a cut, if anything. `torn`: writes may be so.
    fn check(&self, found: &[u8], journal: Journal, torn: bool) -> Result<(), String> {
        // Of a file that grew a part of the pages may have been written back.
        let (least, most) = (self.sizes.first(), self.sizes.last());
        let between =
            found.len().is_multiple_of(PAGE) && (least..most).contains(&Some(&found.len()));
        if !self.sizes.contains(&found.len()) && !between {
            return Err(format!("size {} is none of {:?}", found.len(), self.sizes));
        }
        for page in 0..found.len().div_ceil(PAGE) {
            let changed = self.pages.get(&page);
            if changed.is_some() && journal != Journal::Ordered {
                continue;
            }
            let base = page_at(&self.base, page);
            let versions: Vec<&Vec<u8>> =
                std::iter::once(&base).chain(changed.into_iter().flatten()).collect();
            let end = found.len().min((page + 1) * PAGE);
            for from in (page * PAGE..end).step_by(if torn { 512 } else { PAGE }) {
                let to = end.min(from + if torn { 512 } else { PAGE });
                let (at, len) = (from - page * PAGE, to - from);
                if !versions.iter().any(|version| version[at..at + len] == found[from..to]) {
                    let sample = &found[from..to.min(from + 8)];
                    return Err(format!("page {page} was never so: {sample:?}"));
                }
            }
        }
        Ok(())
    }
}

impl Model {
    pub fn new(journal: Journal, names: Names) -> Model {
        let mut root = Node::new(What::Folder(BTreeMap::new()), 0o755, 0);
        root.links = 1;
        let nodes = BTreeMap::from([(1, root)]);
        let trees = vec![Tree::new()];
        Model { nodes, trees, durable: 0, synced: BTreeSet::new(), names, journal }
    }

    /// The model of what files there are now: all of it is durable.
    pub fn of<D: Disk>(files: &mut Files<D>) -> Model {
        let options = files.options().clone();
        let mut model = Model::new(options.journal, options.names);
        for &inode in tree_of(files).values() {
            let stat = files.stat(Inode(inode)).unwrap();
            let what = match stat.kind {
                Type::File => What::File(read(files, Inode(inode))),
                Type::Folder => What::Folder(BTreeMap::new()),
                Type::Link => What::Link(files.target(Inode(inode)).unwrap().to_vec()),
            };
            let node = Node { links: stat.links, ..Node::new(what, stat.mode, 0) };
            model.nodes.insert(inode, node);
        }
        for (path, inode) in tree_of(files) {
            let at = path.iter().rposition(|&byte| byte == b'/').unwrap();
            let parent = if at == 0 { 1 } else { tree_of(files)[&path[..at]] };
            model.folder(Inode(parent)).insert(path[at + 1..].to_vec(), inode);
        }
        model.nodes.get_mut(&1).unwrap().mode = files.stat(Inode(1)).unwrap().mode;
        model.trees = vec![model.tree()];
        model
    }

    pub fn folder(&mut self, inode: Inode) -> &mut BTreeMap<Vec<u8>, u64> {
        match &mut self.nodes.get_mut(&inode.0).unwrap().what {
            What::Folder(names) => names,
            _ => panic!("it is a folder"),
        }
    }

    pub fn node(&mut self, inode: Inode) -> &mut Node {
        self.nodes.get_mut(&inode.0).unwrap()
    }

    fn name(&mut self, parent: Inode, name: &[u8], inode: u64) {
        let now = self.trees.len();
        let old = self.folder(parent).insert(name.to_vec(), inode);
        self.nodes.get_mut(&parent.0).unwrap().named = now;
        for (inode, links) in [(Some(inode), 1), (old, -1)] {
            if let Some(node) = inode.and_then(|inode| self.nodes.get_mut(&inode)) {
                node.links = node.links.checked_add_signed(links).unwrap();
                node.named = now;
            }
        }
    }

    fn unname(&mut self, parent: Inode, name: &[u8]) -> u64 {
        let now = self.trees.len();
        let inode = self.folder(parent).remove(name).unwrap();
        self.nodes.get_mut(&parent.0).unwrap().named = now;
        let node = self.nodes.get_mut(&inode).unwrap();
        (node.links, node.named) = (node.links - 1, now);
        inode
    }

    /// An operation that succeeds happens. What a sync promises is another matter.
    pub fn apply(&mut self, operation: &Operation) {
        match operation {
            Operation::Create { parent, name, inode, kind, mode } => {
                let what = match kind {
                    Kind::File => What::File(Vec::new()),
                    Kind::Folder => What::Folder(BTreeMap::new()),
                    Kind::Link(path) => What::Link(path.clone()),
                };
                self.nodes.insert(inode.0, Node::new(what, *mode, self.trees.len()));
                self.name(*parent, name, inode.0);
            }
            Operation::Link { parent, name, inode } => self.name(*parent, name, inode.0),
            Operation::Remove { parent, name } => {
                self.unname(*parent, name);
            }
            Operation::Forget { inode } => {
                self.nodes.remove(&inode.0);
            }
            Operation::Rename { from, to, exchange } => self.rename(from, to, *exchange),
            Operation::Write { inode, offset, data } => self.node(*inode).change(|bytes| {
                let end = *offset as usize + data.len();
                if !data.is_empty() {
                    bytes.resize(bytes.len().max(end), 0);
                    bytes[*offset as usize..end].copy_from_slice(data);
                }
            }),
            Operation::Truncate { inode, size } => {
                self.node(*inode).change(|bytes| bytes.resize(*size as usize, 0));
            }
            Operation::Allocate { inode, offset, len, keep_size } => {
                let end = if *keep_size || *len == 0 { 0 } else { (offset + len) as usize };
                self.node(*inode).change(|bytes| bytes.resize(bytes.len().max(end), 0));
            }
            Operation::Punch { inode, offset, len } => self.node(*inode).change(|bytes| {
                let size = bytes.len();
                let end = ((offset + len) as usize).min(size);
                bytes[(*offset as usize).min(end)..end].fill(0);
            }),
            Operation::Mode { inode, mode } => {
                let node = self.node(*inode);
                node.mode = *mode;
                node.modes.insert(*mode);
            }
            Operation::Sync { .. } | Operation::SyncAll => {}
        }
        let tree = self.tree();
        if self.trees.last() != Some(&tree) {
            self.synced.clear();
        }
        self.trees.push(tree);
    }

    fn rename(&mut self, from: &(Inode, Vec<u8>), to: &(Inode, Vec<u8>), exchange: bool) {
        let (moved, target) = (self.folder(from.0)[&from.1], self.folder(to.0).get(&to.1).copied());
        if exchange {
            self.name(from.0, &from.1, target.unwrap());
            self.name(to.0, &to.1, moved);
        } else if target != Some(moved) {
            self.unname(from.0, &from.1);
            self.name(to.0, &to.1, moved);
        }
    }

    /// What a sync that has returned promises.
    pub fn promise(&mut self, operation: &Operation) {
        match operation {
            Operation::SyncAll => {
                self.durable = self.trees.len() - 1;
                for (&inode, node) in &mut self.nodes {
                    node.synced();
                    node.modes = BTreeSet::from([node.mode]);
                    self.synced.insert(inode);
                }
            }
            Operation::Sync { inode, data } => {
                let node = self.nodes.get_mut(&inode.0).unwrap();
                node.synced();
                if !data {
                    node.modes = BTreeSet::from([node.mode]);
                }
                let is_folder = matches!(node.what, What::Folder(_));
                if is_folder || self.names == Names::WithFile {
                    let named = if *data { node.made } else { node.named };
                    self.durable = self.durable.max(named);
                    self.synced.insert(inode.0);
                }
            }
            _ => {}
        }
    }

    pub fn tree(&self) -> Tree {
        let (mut tree, mut folders) = (Tree::new(), vec![(Vec::new(), 1)]);
        while let Some((path, folder)) = folders.pop() {
            let What::Folder(names) = &self.nodes[&folder].what else { continue };
            for (name, &inode) in names {
                let path = [&path[..], b"/", name].concat();
                tree.insert(path.clone(), inode);
                folders.push((path, inode));
            }
        }
        tree
    }

    /// Files that are not cut are as the model has them.
    pub fn check_now<D: Disk>(&self, files: &mut Files<D>) -> Result<(), String> {
        let told = files.check();
        if !told.is_empty() {
            return Err(format!("{told:?}"));
        }
        if tree_of(files) != self.tree() {
            return Err(format!("names {:?}, not {:?}", tree_of(files), self.tree()));
        }
        for (&inode, node) in &self.nodes {
            let stat = files.stat(Inode(inode)).map_err(|error| error.to_string())?;
            let size = match &node.what {
                What::File(bytes) => {
                    if *bytes != read(files, Inode(inode)) {
                        return Err(format!("the bytes of {inode} differ"));
                    }
                    bytes.len()
                }
                What::Folder(names) => names.len(),
                What::Link(path) => {
                    assert_eq!(files.target(Inode(inode)).unwrap(), path);
                    path.len()
                }
            };
            let links = if inode == 1 { 0 } else { node.links };
            let expected = (node.mode, links, size as u64);
            if (stat.mode, stat.links, stat.size) != expected {
                return Err(format!("{inode} is {stat:?}, not {expected:?}"));
            }
        }
        Ok(())
    }

    /// What is wrong with what a cut left, if anything.
    pub fn check_cut<D: Disk>(&self, files: &mut Files<D>, torn: bool) -> Result<(), String> {
        let told = files.check();
        if !told.is_empty() {
            return Err(format!("{told:?}"));
        }
        let tree = tree_of(files);
        let known = self.trees[self.durable..].contains(&tree);
        if !known && self.journal != Journal::None {
            return Err(format!("names are {tree:?}"));
        }
        if self.journal == Journal::None {
            for (path, inode) in self.tree().iter().filter(|name| self.synced.contains(name.1)) {
                if tree.get(path) != Some(inode) {
                    return Err(format!("{inode} was synced and is not there"));
                }
            }
        }
        for &inode in tree.values() {
            let Some(node) = self.nodes.get(&inode) else { continue };
            let stat = files.stat(Inode(inode)).unwrap();
            if !node.modes.contains(&stat.mode) {
                return Err(format!("mode {} of {inode} is none of {:?}", stat.mode, node.modes));
            }
            if stat.kind == Type::File {
                node.check(&read(files, Inode(inode)), self.journal, torn)
                    .map_err(|what| format!("file {inode}: {what}"))?;
            }
        }
        Ok(())
    }
}

pub fn tree_of<D>(files: &Files<D>) -> Tree
where
    D: Disk,
{
    let (mut tree, mut folders) = (Tree::new(), vec![(Vec::new(), Inode::ROOT)]);
    while let Some((path, folder)) = folders.pop() {
        for (name, inode) in files.list(folder).unwrap() {
            let path = [&path[..], b"/", name].concat();
            tree.insert(path.clone(), inode.0);
            if files.stat(inode).unwrap().kind == Type::Folder {
                folders.push((path, inode));
            }
        }
    }
    tree
}

pub fn read<D: Disk>(files: &mut Files<D>, inode: Inode) -> Vec<u8> {
    let mut bytes = vec![0xee; files.stat(inode).unwrap().size as usize + 10];
    let len = files.read(inode, 0, &mut bytes).unwrap();
    bytes.truncate(len);
    // All that is no zero is found, and nothing far from it.
    let mut at = 0;
    while let Some(next) = files.next_written(inode, at).unwrap() {
        assert!(at <= next && next < len as u64);
        assert!(bytes[at as usize..next as usize].iter().all(|&byte| byte == 0));
        at = (next / PAGE as u64 + 1) * PAGE as u64;
    }
    assert!(bytes[len.min(at as usize)..].iter().all(|&byte| byte == 0));
    bytes
}
