//! Which files are mapped, and their numbers: by what the kernel calls a file, device and inode.
//! Files without a name are kept open here until nobody else has them, so that the kernel gives
//! their numbers to no other file meanwhile.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use files::{Inode, Kind, Operation};
use rustix::fs::{FileType, SeekFrom, Stat, fstat, readlinkat, seek};
use rustix::io::Errno;

use crate::error::RunError;
use crate::walk::{Descent, Look, Met, Walk};

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
}

/// Bytes of a file that are told at once.
const PIECE: usize = 1 << 20;

/// As many files without a name are kept, and so many bytes of them, before it is looked whether
/// somebody has them open: that takes as long as the system has processes with open files.
const NAMELESS: usize = 256;
const NAMELESS_BYTES: u64 = 64 << 20;

/// Descriptors that it takes to look: of all processes, of one's files, of one more.
const RESERVED: usize = 4;

/// The mapped files.
#[derive(Debug, Default)]
pub struct Tree {
    numbers: HashMap<Key, Inode>,
    nameless: HashMap<Key, Nameless>,
    /// What they hold, together, as far as that was told.
    nameless_bytes: u64,
    next: u64,
    look_at: (usize, u64),
    reserved: Vec<OwnedFd>,
}

#[derive(Debug)]
struct Nameless {
    _file: OwnedFd,
    bytes: u64,
}

/// Names of files and folders that are there before the program starts.
type Numbering<'a> = &'a mut dyn FnMut(Inode, &[u8]) -> Option<Inode>;

impl Tree {
    fn none() -> Self {
        let look_at = (NAMELESS, NAMELESS_BYTES);
        Self { next: Inode::ROOT.0 + 1, look_at, ..Self::default() }
    }

    /// One folder, which is the root of all that is told. What is in it has the numbers that
    /// `number` gives for folder and name, or new ones.
    pub fn of(folder: &Path, number: Numbering) -> Result<Self, RunError> {
        let mut tree = Self::none();
        tree.enter(&full(folder)?, Inode::ROOT, number).map_err(|e| e.of_folder(folder))?;
        Ok(tree)
    }

    /// Several folders, which are in the root by their last names.
    pub fn of_many(folders: &[PathBuf], number: Numbering) -> Result<Self, RunError> {
        let mut tree = Self::none();
        let mut names = HashSet::new();
        for folder in folders {
            let path = full(folder)?;
            let name = path.file_name().unwrap_or_default().as_bytes().to_vec();
            let inode = tree.number(Inode::ROOT, &name, number);
            if tree.enter(&path, inode, number).map_err(|e| e.of_folder(folder))?
                || !names.insert(name)
            {
                return Err(RunError::Overlap(folder.clone()));
            }
        }
        Ok(tree)
    }

    /// Whether something of it was there.
    fn enter(&mut self, path: &Path, inode: Inode, number: Numbering) -> Result<bool, At> {
        let mut walk = walk(path)?;
        let top = Key::of(&fstat(walk.at.here()).map_err(At::top)?);
        let mut is_known = self.numbers.insert(top, inode).is_some();
        let mut parents = vec![inode];
        while let Some(met) = walk.meet().map_err(|e| At::of(&walk, b"", e))? {
            let Met::Name(name, stat) = met else {
                parents.pop();
                continue;
            };
            let key = Key::of(&stat);
            if key.device != top.device || !Met::is_kept(&stat) {
                continue;
            }
            let known = self.numbers.get(&key).copied();
            let parent = *parents.last().expect("it is in a folder");
            if !is_folder(&stat) {
                let inode = known.unwrap_or_else(|| self.number(parent, &name, number));
                self.numbers.insert(key, inode);
            } else if walk.enter(&name).map_err(|e| At::of(&walk, &name, e))? {
                is_known |= known.is_some();
                let inode = known.unwrap_or_else(|| self.number(parent, &name, number));
                self.numbers.insert(key, inode);
                parents.push(inode);
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
            let path = full(folder)?;
            self.tell_all(&path, &mut had, tell).map_err(|e| e.of_folder(folder))?;
        }
        Ok(())
    }

    fn tell_all(
        &self,
        path: &Path,
        had: &mut HashSet<Inode>,
        tell: &mut dyn FnMut(Operation),
    ) -> Result<(), At> {
        let mut walk = walk(path)?;
        let stat = fstat(walk.at.here()).map_err(At::top)?;
        let Some(inode) = self.get(Key::of(&stat)) else { return Ok(()) };
        if inode != Inode::ROOT {
            let name = path.file_name().unwrap_or_default().as_bytes().to_vec();
            let (parent, kind) = (Inode::ROOT, Kind::Folder);
            tell(Operation::Create { parent, name, inode, kind, mode: mode(&stat) });
        }
        let mut parents = vec![inode];
        while let Some(met) = walk.meet().map_err(|e| At::of(&walk, b"", e))? {
            let Met::Name(name, stat) = met else {
                parents.pop();
                continue;
            };
            let parent = *parents.last().expect("it is in a folder");
            let Some(inode) = self.get(Key::of(&stat)) else { continue };
            if !had.insert(inode) {
                tell(Operation::Link { parent, name, inode });
                continue;
            }
            let failed = |e: std::io::Error| At::of(&walk, &name, e);
            let kind = if is_folder(&stat) {
                Kind::Folder
            } else if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
                let to = readlinkat(walk.at.here(), &*name, Vec::new());
                Kind::Link(to.map_err(|e| failed(e.into()))?.into_bytes())
            } else {
                Kind::File
            };
            let is_file = kind == Kind::File;
            tell(Operation::Create { parent, name: name.clone(), inode, kind, mode: mode(&stat) });
            if is_file && stat.st_size > 0 {
                tell(Operation::Truncate { inode, size: stat.st_size as u64 });
                let file = walk.at.file(&name).map_err(failed)?;
                written(file, inode, tell).map_err(failed)?;
            } else if is_folder(&stat) && walk.enter(&name).map_err(|e| At::of(&walk, &name, e))? {
                parents.push(inode);
            }
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
        self.named(key);
        let bytes = fstat(&file).map_or(0, |it| it.st_blocks as u64 * 512);
        self.nameless_bytes += bytes;
        self.nameless.insert(key, Nameless { _file: file, bytes });
        self.reserve();
    }

    /// A file has so much by now: if it has no name, that counts.
    pub(crate) fn holds(&mut self, stat: &Stat) {
        if let Some(nameless) = self.nameless.get_mut(&Key::of(stat)) {
            let bytes = stat.st_blocks as u64 * 512;
            self.nameless_bytes = self.nameless_bytes - nameless.bytes + bytes;
            nameless.bytes = bytes;
        }
    }

    /// A file without a name got one.
    pub(crate) fn named(&mut self, key: Key) {
        if let Some(nameless) = self.nameless.remove(&key) {
            self.nameless_bytes -= nameless.bytes;
        }
    }

    /// It is no more; its number, once.
    pub(crate) fn forget(&mut self, key: Key) -> Option<Inode> {
        self.named(key);
        self.numbers.remove(&key)
    }

    /// How many files without a name are kept open.
    pub(crate) fn nameless(&self) -> usize {
        self.nameless.len()
    }

    /// Whether so many are kept that it should be looked who has them open.
    pub(crate) fn should_look(&self) -> bool {
        self.nameless.len() >= self.look_at.0 || self.nameless_bytes >= self.look_at.1
    }

    /// It was looked: not again before there are twice as many.
    fn has_looked(&mut self) {
        let most = (2 * self.nameless.len(), 2 * self.nameless_bytes);
        self.look_at = (NAMELESS.max(most.0), NAMELESS_BYTES.max(most.1));
    }

    /// Keeps descriptors back by which it can be looked who has what open.
    fn reserve(&mut self) {
        while self.reserved.len() < RESERVED {
            let Ok(file) = File::open("/dev/null") else { return };
            self.reserved.push(file.into());
        }
    }

    /// Files without a name that nobody has open go, nor `with_memory` mapped. `at_end` all do.
    pub(crate) fn sweep(&mut self, at_end: bool, with_memory: bool) -> Vec<Inode> {
        self.reserved.clear();
        let open = if at_end { Ok(HashSet::new()) } else { open_files(with_memory) };
        self.reserve();
        let Ok(open) = open else {
            // Who cannot be asked may have them.
            self.has_looked();
            return Vec::new();
        };
        let gone: Vec<Key> =
            self.nameless.keys().filter(|key| !open.contains(&key.inode)).copied().collect();
        let mut inodes: Vec<Inode> = gone.iter().filter_map(|&key| self.forget(key)).collect();
        inodes.sort_unstable();
        self.has_looked();
        self.reserve();
        inodes
    }
}

/// What went wrong, and where below a folder.
struct At(Option<PathBuf>, io::Error);

impl At {
    fn top(e: impl Into<io::Error>) -> Self {
        Self(None, e.into())
    }

    fn of(walk: &Walk, name: &[u8], e: io::Error) -> Self {
        Self(Some(walk.at.path(name)), e)
    }

    fn of_folder(self, folder: &Path) -> RunError {
        RunError::Folder { path: self.0.unwrap_or_else(|| folder.into()), source: self.1 }
    }
}

/// The folder by its full path.
fn full(folder: &Path) -> Result<PathBuf, RunError> {
    fs::canonicalize(folder).map_err(|e| At::top(e).of_folder(folder))
}

fn walk(path: &Path) -> Result<Walk, At> {
    let found = Descent::find(path).map_err(At::top)?;
    Descent::of(found, path, Look::Only).and_then(Walk::of).map_err(At::top)
}

fn is_folder(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

fn mode(stat: &Stat) -> u16 {
    (stat.st_mode & 0o7777) as u16
}

/// Writes that give a file of that size its bytes.
fn written(mut file: File, inode: Inode, tell: &mut dyn FnMut(Operation)) -> io::Result<()> {
    let (mut buffer, mut offset) = (vec![0; PIECE], 0);
    loop {
        // Holes may be larger than all that can be read.
        match seek(&file, SeekFrom::Data(offset)) {
            Err(Errno::NXIO) => return Ok(()),
            found => offset = found?,
        }
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
fn open_files(with_memory: bool) -> std::io::Result<HashSet<u64>> {
    let mut out = HashSet::new();
    let ours = std::process::id().to_string();
    for process in fs::read_dir("/proc")?.flatten() {
        let name = process.file_name();
        let is_process = name.as_bytes().iter().all(u8::is_ascii_digit);
        if !is_process || name.as_bytes() == ours.as_bytes() {
            continue;
        }
        for file in seen(fs::read_dir(process.path().join("fd")))?.into_iter().flatten().flatten() {
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
        let maps = seen(fs::read_to_string(process.path().join("maps")))?.unwrap_or_default();
        for line in maps.lines().filter(|line| line.ends_with(" (deleted)")) {
            out.extend(line.split_ascii_whitespace().nth(4).and_then(|it| it.parse::<u64>().ok()));
        }
    }
    Ok(out)
}

/// What could be seen; nothing of who has ended or is not ours. Without descriptors an error.
fn seen<T>(it: std::io::Result<T>) -> std::io::Result<Option<T>> {
    match it {
        Err(e) if matches!(Errno::from_io_error(&e), Some(Errno::MFILE | Errno::NFILE)) => Err(e),
        other => Ok(other.ok()),
    }
}
