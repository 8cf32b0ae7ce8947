//! A tree of maps to which operations are applied, and the same of a folder. An operation that
//! does not fit is a failure of the test.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use files::{Inode, Kind, Operation};
use interpose::{Event, Recorder};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    File(Vec<u8>),
    Folder(BTreeMap<Vec<u8>, Inode>),
    Link(Vec<u8>),
}

#[derive(Clone, Debug)]
struct Entry {
    node: Node,
    mode: u16,
    names: usize,
}

pub struct Model {
    entries: HashMap<Inode, Entry>,
}

impl Model {
    pub fn new() -> Self {
        let root = Entry { node: Node::Folder(BTreeMap::new()), mode: 0, names: 1 };
        Self { entries: HashMap::from([(Inode::ROOT, root)]) }
    }

    /// All of it applied.
    pub fn of(recorder: &Recorder) -> Self {
        let mut model = Self::new();
        for event in &recorder.events {
            if let Event::Operation(operation) = event {
                model.apply(operation);
            }
        }
        model
    }

    fn names(&mut self, folder: Inode) -> &mut BTreeMap<Vec<u8>, Inode> {
        match &mut self.entries.get_mut(&folder).expect("the folder is there").node {
            Node::Folder(names) => names,
            other => panic!("{folder:?} is no folder but {other:?}"),
        }
    }

    fn data(&mut self, file: Inode) -> &mut Vec<u8> {
        match &mut self.entries.get_mut(&file).expect("the file is there").node {
            Node::File(data) => data,
            other => panic!("{file:?} is no file but {other:?}"),
        }
    }

    fn entry(&mut self, inode: Inode) -> &mut Entry {
        self.entries.get_mut(&inode).unwrap_or_else(|| panic!("{inode:?} is there"))
    }

    fn unname(&mut self, inode: Inode) {
        self.entry(inode).names -= 1;
        if let Node::Folder(names) = &self.entry(inode).node {
            assert!(names.is_empty(), "a folder that goes is empty");
        }
    }

    pub fn apply(&mut self, operation: &Operation) {
        match operation.clone() {
            Operation::Create { parent, name, inode, kind, mode } => {
                let node = match kind {
                    Kind::File => Node::File(Vec::new()),
                    Kind::Folder => Node::Folder(BTreeMap::new()),
                    Kind::Link(to) => Node::Link(to),
                };
                let old = self.entries.insert(inode, Entry { node, mode, names: 1 });
                assert!(old.is_none(), "{inode:?} is new");
                assert_eq!(self.names(parent).insert(name, inode), None, "{operation:?}");
            }
            Operation::Link { parent, name, inode } => {
                self.entry(inode).names += 1;
                assert_eq!(self.names(parent).insert(name, inode), None, "{operation:?}");
            }
            Operation::Remove { parent, name } => {
                let inode = self.names(parent).remove(&name).expect("the name is there");
                self.unname(inode);
            }
            Operation::Forget { inode } => {
                let entry = self.entries.remove(&inode).expect("it is there until then");
                assert_eq!(entry.names, 0, "it has no name");
            }
            Operation::Rename { from, to, exchange } => self.rename(from, to, exchange),
            Operation::Write { inode, offset, data } => {
                assert!(!data.is_empty());
                let (at, file) = (offset as usize, self.data(inode));
                file.resize(file.len().max(at + data.len()), 0);
                file[at..at + data.len()].copy_from_slice(&data);
            }
            Operation::Truncate { inode, size } => self.data(inode).resize(size as usize, 0),
            Operation::Allocate { inode, offset, len, keep_size } => {
                let file = self.data(inode);
                if !keep_size {
                    file.resize(file.len().max((offset + len) as usize), 0);
                }
            }
            Operation::Punch { inode, offset, len } => {
                let file = self.data(inode);
                let end = file.len().min((offset + len) as usize);
                let begin = end.min(offset as usize);
                file[begin..end].fill(0);
            }
            Operation::Mode { inode, mode } => self.entry(inode).mode = mode,
            Operation::Sync { inode, .. } => {
                self.entry(inode);
            }
            Operation::SyncAll => {}
        }
    }

    fn rename(&mut self, from: (Inode, Vec<u8>), to: (Inode, Vec<u8>), exchange: bool) {
        let inode = self.names(from.0).remove(&from.1).expect("the old name is there");
        match self.names(to.0).insert(to.1, inode) {
            Some(other) if exchange => {
                self.names(from.0).insert(from.1, other);
            }
            Some(other) => self.unname(other),
            None => assert!(!exchange),
        }
    }

    /// Paths with what is there; the second is the permission bits, the third how many names.
    pub fn listing(&self) -> Listing {
        let mut out = BTreeMap::new();
        self.list(Inode::ROOT, Vec::new(), &mut out);
        out
    }

    fn list(&self, folder: Inode, path: Vec<u8>, out: &mut Listing) {
        let Node::Folder(names) = &self.entries[&folder].node else { panic!() };
        for (name, inode) in names {
            let entry = &self.entries[inode];
            let path = [path.as_slice(), b"/", name].concat();
            match &entry.node {
                Node::Folder(_) => {
                    out.insert(path.clone(), (Node::Folder(BTreeMap::new()), entry.mode, 1));
                    self.list(*inode, path, out);
                }
                node => {
                    out.insert(path, (node.clone(), entry.mode, entry.names));
                }
            }
        }
    }

    /// Files that have no name.
    pub fn nameless(&self) -> usize {
        self.entries.values().filter(|entry| entry.names == 0).count()
    }
}

pub type Listing = BTreeMap<Vec<u8>, (Node, u16, usize)>;

/// The same of a folder.
pub fn listing_of(folder: &Path) -> Listing {
    let mut out = BTreeMap::new();
    list(folder, Vec::new(), &mut out);
    out
}

fn list(folder: &Path, path: Vec<u8>, out: &mut Listing) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let path = [path.as_slice(), b"/", entry.file_name().as_bytes()].concat();
        let (child, stat) = (entry.path(), entry.metadata().unwrap());
        let mode = (stat.permissions().mode() & 0o7777) as u16;
        if stat.is_dir() {
            out.insert(path.clone(), (Node::Folder(BTreeMap::new()), mode, 1));
            list(&child, path, out);
        } else if stat.is_symlink() {
            let to = fs::read_link(&child).unwrap().as_os_str().as_bytes().to_vec();
            out.insert(path, (Node::Link(to), mode, stat.nlink() as usize));
        } else if stat.is_file() {
            out.insert(path, (Node::File(fs::read(&child).unwrap()), mode, stat.nlink() as usize));
        }
    }
}

/// Both are the same; what is not is said without all bytes.
pub fn assert_same(told: &Listing, there: &Listing) {
    for (path, node) in there {
        let name = String::from_utf8_lossy(path);
        match told.get(path) {
            None => panic!("{name} is there and was not told"),
            Some(other) if other != node => panic!("{name}: {}", difference(other, node)),
            Some(_) => {}
        }
    }
    for path in told.keys() {
        let name = String::from_utf8_lossy(path);
        assert!(there.contains_key(path), "{name} was told and is not there");
    }
}

fn difference(told: &(Node, u16, usize), there: &(Node, u16, usize)) -> String {
    if let (Node::File(a), Node::File(b)) = (&told.0, &there.0) {
        let at = a.iter().zip(b).position(|(x, y)| x != y);
        return format!(
            "told {} bytes, mode {:o}, {} names; there {} bytes, mode {:o}, {} names; first other byte {at:?}",
            a.len(),
            told.1,
            told.2,
            b.len(),
            there.1,
            there.2
        );
    }
    format!("told {told:?}, there {there:?}")
}
