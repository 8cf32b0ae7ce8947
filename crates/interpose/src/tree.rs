//! Which files are mapped, and their numbers: by what the kernel calls a file, device and inode.
//! Files without a name are kept open here until nobody else has them, so that the kernel gives
//! their numbers to no other file meanwhile.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use files::{Inode, Kind, Operation};
use rustix::fs::{Stat, fstat};
use rustix::io::Errno;

use crate::error::RunError;

/// What the kernel calls a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    device: u64,
    inode: u64,
}

impl Key {
    pub fn of(stat: &Stat) -> Self {
        Self { device: stat.st_dev, inode: stat.st_ino }
    }

    fn of_path(path: &Path) -> std::io::Result<Self> {
        let stat = path.symlink_metadata()?;
        Ok(Self { device: stat.dev(), inode: stat.ino() })
    }
}

/// Bytes of a file that are told at once.
const PIECE: usize = 1 << 20;

/// As many files without a name are kept before it is looked whether somebody has them open.
const NAMELESS: usize = 64;

/// The mapped files.
#[derive(Debug, Default)]
pub struct Tree {
    numbers: HashMap<Key, Inode>,
    nameless: HashMap<Key, OwnedFd>,
    next: u64,
    look_at: usize,
}

/// Names of files and folders that are there before the program starts.
type Numbering<'a> = &'a mut dyn FnMut(Inode, &[u8]) -> Option<Inode>;

impl Tree {
    /// One folder, which is the root of all that is told. What is in it has the numbers that
    /// `number` gives for folder and name, or new ones.
    pub fn of(folder: &Path, number: Numbering) -> Result<Self, RunError> {
        let mut tree = Self { next: Inode::ROOT.0 + 1, look_at: NAMELESS, ..Self::default() };
        tree.enter(folder, Inode::ROOT, number)?;
        Ok(tree)
    }

    /// Several folders, which are in the root by their last names.
    pub fn of_many(folders: &[PathBuf], number: Numbering) -> Result<Self, RunError> {
        let mut tree = Self { next: Inode::ROOT.0 + 1, look_at: NAMELESS, ..Self::default() };
        let mut names = HashSet::new();
        for folder in folders {
            let path = fs::canonicalize(folder)
                .map_err(|source| RunError::Folder { path: folder.clone(), source })?;
            let name = path.file_name().unwrap_or_default().as_bytes().to_vec();
            let inode = tree.number(Inode::ROOT, &name, number);
            if tree.enter(&path, inode, number)? || !names.insert(name) {
                return Err(RunError::Overlap(folder.clone()));
            }
        }
        Ok(tree)
    }

    /// Whether something of it was there.
    fn enter(&mut self, path: &Path, inode: Inode, number: Numbering) -> Result<bool, RunError> {
        let failed = |source| RunError::Folder { path: path.to_path_buf(), source };
        let key = Key::of_path(path).map_err(failed)?;
        let mut is_known = self.numbers.insert(key, inode).is_some();
        for entry in fs::read_dir(path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let kind = entry.file_type().map_err(failed)?;
            let child = entry.path();
            let its = Key::of_path(&child).map_err(failed)?;
            // Devices, pipes and sockets are the kernel's alone, and so is what is mounted.
            if its.device != key.device || !(kind.is_dir() || kind.is_file() || kind.is_symlink()) {
                continue;
            }
            let known = self.numbers.get(&its).copied();
            let inode =
                known.unwrap_or_else(|| self.number(inode, entry.file_name().as_bytes(), number));
            if kind.is_dir() {
                is_known |= self.enter(&child, inode, number)?;
            } else {
                self.numbers.insert(its, inode);
            }
        }
        Ok(is_known)
    }

    fn number(&mut self, parent: Inode, name: &[u8], number: Numbering) -> Inode {
        let inode = number(parent, name).unwrap_or(Inode(self.next));
        self.next = self.next.max(inode.0 + 1);
        inode
    }

    /// New files get numbers from that one on: those below may be of files elsewhere.
    pub fn keep_below(&mut self, first: Inode) {
        self.next = self.next.max(first.0);
    }

    /// What makes the tree that is there, for a watcher that begins with nothing; the folders are
    /// those that it was made of. What is zeros is not written.
    pub fn contents(
        &self,
        folders: &[PathBuf],
        tell: &mut dyn FnMut(Operation),
    ) -> Result<(), RunError> {
        let mut had = HashSet::new();
        for folder in folders {
            let path = fs::canonicalize(folder)
                .map_err(|source| RunError::Folder { path: folder.clone(), source })?;
            match Key::of_path(&path).ok().and_then(|key| self.get(key)) {
                Some(Inode::ROOT) => self.list(&path, Inode::ROOT, &mut had, tell)?,
                _ => self.list_one(&path, Inode::ROOT, &mut had, tell)?,
            }
        }
        Ok(())
    }

    fn list(
        &self,
        path: &Path,
        inode: Inode,
        had: &mut HashSet<Inode>,
        tell: &mut dyn FnMut(Operation),
    ) -> Result<(), RunError> {
        let failed = |source| RunError::Folder { path: path.to_path_buf(), source };
        for entry in fs::read_dir(path).map_err(failed)? {
            self.list_one(&entry.map_err(failed)?.path(), inode, had, tell)?;
        }
        Ok(())
    }

    /// A name in the folder `parent`, and what is below it.
    fn list_one(
        &self,
        path: &Path,
        parent: Inode,
        had: &mut HashSet<Inode>,
        tell: &mut dyn FnMut(Operation),
    ) -> Result<(), RunError> {
        let failed = |source| RunError::Folder { path: path.to_path_buf(), source };
        let name = path.file_name().unwrap_or_default().as_bytes().to_vec();
        let Some(inode) = self.get(Key::of_path(path).map_err(failed)?) else { return Ok(()) };
        if !had.insert(inode) {
            tell(Operation::Link { parent, name, inode });
            return Ok(());
        }
        let stat = path.symlink_metadata().map_err(failed)?;
        let kind = if stat.is_dir() {
            Kind::Folder
        } else if stat.is_symlink() {
            Kind::Link(fs::read_link(path).map_err(failed)?.as_os_str().as_bytes().to_vec())
        } else {
            Kind::File
        };
        let mode = (stat.mode() & 0o7777) as u16;
        tell(Operation::Create { parent, name, inode, kind, mode });
        if stat.is_dir() {
            self.list(path, inode, had, tell)?;
        } else if stat.is_file() && stat.len() > 0 {
            tell(Operation::Truncate { inode, size: stat.len() });
            written(path, inode, tell).map_err(failed)?;
        }
        Ok(())
    }

    /// The number of a mapped file.
    pub(crate) fn get(&self, key: Key) -> Option<Inode> {
        self.numbers.get(&key).copied()
    }

    pub(crate) fn find(&self, file: impl AsFd) -> Result<Option<Inode>, Errno> {
        Ok(self.get(Key::of(&fstat(file)?)))
    }

    /// The number that the next new file gets.
    pub(crate) fn next(&self) -> Inode {
        Inode(self.next)
    }

    /// A new file has the number of [`Self::next`].
    pub(crate) fn insert(&mut self, key: Key) {
        let old = self.numbers.insert(key, Inode(self.next));
        debug_assert!(old.is_none(), "the kernel has given a number that is in use");
        self.next += 1;
    }

    /// The last name has gone. `file` keeps the kernel from giving its number away.
    pub(crate) fn unnamed(&mut self, key: Key, file: OwnedFd) {
        self.nameless.insert(key, file);
    }

    /// A file without a name got one.
    pub(crate) fn named(&mut self, key: Key) {
        self.nameless.remove(&key);
    }

    /// It is no more; its number, once.
    pub(crate) fn forget(&mut self, key: Key) -> Option<Inode> {
        self.nameless.remove(&key);
        self.numbers.remove(&key)
    }

    pub(crate) fn has_nameless(&self) -> bool {
        !self.nameless.is_empty()
    }

    /// Whether so many are kept that it should be looked who has them open.
    pub(crate) fn should_look(&self) -> bool {
        self.nameless.len() >= self.look_at
    }

    /// Files without a name that nobody has open go, nor `with_memory` mapped. `at_end` all do.
    pub(crate) fn sweep(&mut self, at_end: bool, with_memory: bool) -> Vec<Inode> {
        let open = if at_end { HashSet::new() } else { open_files(with_memory) };
        let gone: Vec<Key> =
            self.nameless.keys().filter(|key| !open.contains(&key.inode)).copied().collect();
        let mut inodes: Vec<Inode> = gone.iter().filter_map(|&key| self.forget(key)).collect();
        inodes.sort_unstable();
        self.look_at = NAMELESS.max(2 * self.nameless.len());
        inodes
    }
}

/// Writes that give a file of that size its bytes.
fn written(path: &Path, inode: Inode, tell: &mut dyn FnMut(Operation)) -> std::io::Result<()> {
    let (mut file, mut buffer, mut offset) = (File::open(path)?, vec![0; PIECE], 0);
    loop {
        let len = file.read(&mut buffer)?;
        if len == 0 {
            return Ok(());
        }
        if buffer[..len].iter().any(|&byte| byte != 0) {
            tell(Operation::Write { inode, offset, data: buffer[..len].to_vec() });
        }
        offset += len as u64;
    }
}

/// Inodes that a process other than this has open, and `with_memory` mapped, of those that we may
/// look into.
/// A device is left out: what it is called differs from place to place, and to hold a file too
/// long does no harm.
fn open_files(with_memory: bool) -> HashSet<u64> {
    let mut out = HashSet::new();
    let ours = std::process::id().to_string();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = process.file_name();
        let is_process = name.as_bytes().iter().all(u8::is_ascii_digit);
        if !is_process || name.as_bytes() == ours.as_bytes() {
            continue;
        }
        for file in fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten() {
            // A name that went says so; only then is the file asked.
            let is_gone = fs::read_link(file.path())
                .is_ok_and(|path| path.as_os_str().as_bytes().ends_with(b" (deleted)"));
            if is_gone && let Ok(stat) = fs::metadata(file.path()) {
                out.insert(stat.ino());
            }
        }
        if !with_memory {
            continue;
        }
        let maps = fs::read_to_string(process.path().join("maps")).unwrap_or_default();
        for line in maps.lines().filter(|line| line.ends_with(" (deleted)")) {
            out.extend(line.split_ascii_whitespace().nth(4).and_then(|it| it.parse::<u64>().ok()));
        }
    }
    out
}
