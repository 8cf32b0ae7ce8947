//! The program's view of its files: an ordinary folder, which begins as what the drive has.
//!
//! It is held open from the start, and all that is done in it goes by descriptors: what the
//! program puts at its path meanwhile, or what is mounted in it, is not touched. What was in a
//! folder before stays, but for [`Folder::empty`].

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};
use std::vec::IntoIter;

use files::{BLOCK, Disk, Files, FilesError, Inode, Type};
use interpose::{Descent, Look, Met, Walk};
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, SeekFrom, Stat, fchmod, fstat, linkat, mkdirat, openat,
    readlinkat, seek, stat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use crate::unreadable::Unreadable;

/// Bytes that are read at once.
const PIECE: usize = 1 << 20;

/// What went wrong with a path, in words.
pub fn at(path: &Path) -> impl Fn(&dyn std::fmt::Display) -> String + '_ {
    move |e| format!("{}: {e}", path.display())
}

/// The full path that a folder has or would have, were it made.
pub fn full(map: &Path) -> io::Result<PathBuf> {
    let is_missing = |e: &io::Error| e.kind() == io::ErrorKind::NotFound;
    for there in map.ancestors() {
        let at = if there.as_os_str().is_empty() { Path::new(".") } else { there };
        let mut path = match fs::canonicalize(at) {
            // What a link leads to is not made.
            Err(e) if is_missing(&e) && !at.is_symlink() => continue,
            path => path?,
        };
        for part in map.strip_prefix(there).expect("it is above").components() {
            match part {
                Component::ParentDir => drop(path.pop()),
                part => path.push(part),
            }
        }
        return Ok(path);
    }
    // Neither the root nor the folder that this process is in.
    Err(io::ErrorKind::NotFound.into())
}

/// A mapped folder.
pub struct Folder {
    path: PathBuf,
    file: OwnedFd,
}

impl Folder {
    /// The folder at a path, which is made where it is not there.
    pub fn open(map: &Path) -> io::Result<Self> {
        let path = full(map)?;
        fs::create_dir_all(&path)?;
        let file = Descent::find(&path)?;
        Ok(Self { path, file })
    }

    /// Its full path when it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its last name, under which the drive has it.
    pub fn name(&self) -> &[u8] {
        self.path.file_name().unwrap_or_default().as_bytes()
    }

    /// Its permission bits.
    pub fn mode(&self) -> io::Result<u16> {
        Ok((fstat(&self.file)?.st_mode & 0o7777) as u16)
    }

    /// Whether its path still leads to it.
    pub fn is_there(&self) -> bool {
        let key = |stat: Stat| (stat.st_dev, stat.st_ino);
        match (stat(&self.path), fstat(&self.file)) {
            (Ok(there), Ok(this)) => key(there) == key(this) && !self.path.is_symlink(),
            _ => false,
        }
    }

    fn descent(&self, look: Look) -> io::Result<Descent> {
        Descent::of(self.file.as_fd(), &self.path, look)
    }

    fn walk(&self, look: Look) -> io::Result<Walk> {
        Walk::of(self.descent(look)?)
    }

    /// Whether there is nothing in it that would be on a drive.
    pub fn is_empty(&self) -> io::Result<bool> {
        let mut walk = self.walk(Look::Only)?;
        while let Some(met) = walk.meet()? {
            if matches!(met, Met::Name(_, stat) if Met::is_kept(&stat)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// It gets the permission bits that the drive has for it.
    pub fn set_mode(&self, mode: u16) -> io::Result<()> {
        if self.mode()? == mode {
            return Ok(());
        }
        let mut at = self.descent(Look::Only)?;
        at.set_mode(mode);
        at.leave().map(drop)
    }

    /// All that is in it goes, but what is mounted there.
    pub fn empty(&self) -> io::Result<()> {
        self.remove(&mut |_, _, _| Some(Inode::ROOT))
    }

    /// What it was filled with goes, and nothing else.
    pub fn unfill<D: Disk>(&self, files: &Files<D>, inode: Inode) -> io::Result<()> {
        self.remove(&mut |parent, name, stat| {
            let child = files.lookup(parent.unwrap_or(inode), name).ok()??;
            (kind(stat) == Some(files.stat(child).ok()?.kind)).then_some(child)
        })
    }

    /// Removes the names for which `which` gives a number; it gets that of the folder, too.
    fn remove(&self, which: Which) -> io::Result<()> {
        let mut walk = self.walk(Look::AndChange)?;
        let (mut parents, mut mounted) = (Vec::new(), None);
        while let Some(met) = walk.meet()? {
            let (name, flags) = match met {
                Met::End(name) => {
                    parents.pop();
                    (name, AtFlags::REMOVEDIR)
                }
                Met::Name(name, stat) => {
                    let parent = parents.last().copied();
                    let Some(child) = which(parent, &name, &stat) else { continue };
                    if kind(&stat) == Some(Type::Folder) {
                        match walk.enter(&name)? {
                            true => parents.push(child),
                            false => mounted = Some(walk.at.path(&name)),
                        }
                        continue;
                    }
                    (name, AtFlags::empty())
                }
            };
            match unlinkat(walk.at.here(), &*name, flags).map_err(io::Error::from) {
                Err(e) if e.kind() == io::ErrorKind::ResourceBusy => {
                    mounted = Some(walk.at.path(&name));
                }
                // Something stays in it.
                Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => {}
                done => done?,
            }
        }
        mounted.map_or(Ok(()), |path| {
            let stays = format!("something is mounted at {}: that stays", path.display());
            Err(io::Error::other(stays))
        })
    }
}

/// Of a name in a folder of that number, or in the first one: its number, if it is to go.
type Which<'a> = &'a mut dyn FnMut(Option<Inode>, &[u8], &Stat) -> Option<Inode>;

fn kind(stat: &Stat) -> Option<Type> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Some(Type::Folder),
        FileType::Symlink => Some(Type::Link),
        FileType::RegularFile => Some(Type::File),
        _ => None,
    }
}

/// A folder of the drive that is being made: which, and names that are to be made in it.
struct Level {
    inode: Inode,
    names: IntoIter<(Vec<u8>, Inode)>,
}

impl Level {
    fn of<D: Disk>(files: &Files<D>, inode: Inode) -> Result<Self, FilesError> {
        let names = files.list(inode)?.map(|(name, child)| (name.to_vec(), child));
        Ok(Self { inode, names: names.collect::<Vec<_>>().into_iter() })
    }
}

/// Makes in an empty folder what the drive has. Permission bits come last, the deepest first, so
/// that none is in the way. What cannot be read is noted, and is zeros.
pub fn fill<D: Disk>(
    files: &mut Files<D>,
    inode: Inode,
    folder: &Folder,
    unreadable: &mut Unreadable,
) -> Result<(), String> {
    let mut to = folder.descent(Look::AndChange).map_err(|e| at(&folder.path)(&e))?;
    // Of files with several names, where the first is.
    let mut made: HashMap<Inode, Vec<Vec<u8>>> = HashMap::new();
    let mut levels = vec![Level::of(files, inode).map_err(|e| at(&folder.path)(&e))?];
    while let Some(level) = levels.last_mut() {
        let Some((name, child)) = level.names.next() else {
            let mode = files.stat(level.inode).map_err(|e| at(&folder.path)(&e))?.mode;
            if to.depth() > 0 {
                to.set_mode(mode);
            }
            to.leave().map_err(|e| at(&to.path(b""))(&e))?;
            levels.pop();
            continue;
        };
        let failed = |to: &Descent, e: &dyn std::fmt::Display| at(&to.path(&name))(e);
        if let Some(other) = made.get(&child) {
            link(folder, other, &to, &name).map_err(|e| failed(&to, &e))?;
            continue;
        }
        let known = files.stat(child).map_err(|e| failed(&to, &e))?;
        if known.links > 1 && known.kind != Type::Folder {
            let names = to.names().into_iter().chain([name.clone()]);
            made.insert(child, names.collect());
        }
        match known.kind {
            Type::Folder => {
                let made = mkdirat(to.here(), &*name, Mode::RWXU);
                let entered = made.map_err(io::Error::from).and_then(|()| to.enter(&name));
                entered.map_err(|e| failed(&to, &e))?;
                levels.push(Level::of(files, child).map_err(|e| failed(&to, &e))?);
            }
            Type::Link => {
                let target = files.target(child).map_err(|e| failed(&to, &e))?;
                symlinkat(target, to.here(), &*name).map_err(|e| failed(&to, &e))?;
            }
            Type::File => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                let file = openat(to.here(), &*name, flags, Mode::RUSR | Mode::WUSR);
                let file = File::from(file.map_err(|e| failed(&to, &e))?);
                let of = (child, known.size);
                each_piece(files, of, &|_| Ok(None), unreadable, &mut |offset, bytes, _| {
                    // What is zeros stays a hole.
                    match bytes.iter().all(|&byte| byte == 0) {
                        true => Ok(true),
                        false => file.write_all_at(bytes, offset).map(|()| true),
                    }
                })
                .map_err(|e| failed(&to, &e))?;
                unreadable.is_read(child, || to.path(&name));
                let mode = Mode::from_raw_mode(known.mode.into());
                let sized = file.set_len(known.size);
                let done = sized.and_then(|()| Ok(fchmod(&file, mode)?));
                done.map_err(|e| failed(&to, &e))?;
            }
        }
    }
    Ok(())
}

/// Another name for a file that was made before.
fn link(folder: &Folder, other: &[Vec<u8>], to: &Descent, name: &[u8]) -> io::Result<()> {
    let mut from = folder.descent(Look::Only)?;
    let (last, above) = other.split_last().expect("it has a name");
    for name in above {
        from.enter(name)?;
    }
    Ok(linkat(from.here(), &**last, to.here(), name, AtFlags::empty())?)
}

/// What gets a piece of a file, and which pages of it could not be read; whether it wants more.
type Each<'a> = &'a mut dyn FnMut(u64, &[u8], &[usize]) -> io::Result<bool>;

/// Where something is, from an offset on, that may be no zero.
type Next<'a> = &'a dyn Fn(u64) -> io::Result<Option<u64>>;

/// Gives a file's bytes piece by piece, but zeros where the `other` one has nothing either. Pages
/// that the drive cannot read are noted, and are zeros.
fn each_piece<D: Disk>(
    files: &mut Files<D>,
    (inode, size): (Inode, u64),
    other: Next,
    unreadable: &mut Unreadable,
    each: Each,
) -> Result<bool, String> {
    let mut buffer = vec![0; PIECE.min(size as usize)];
    let mut offset = 0;
    loop {
        let next = files.next_written(inode, offset).map_err(|e| e.to_string())?;
        let other = other(offset).map_err(|e| e.to_string())?;
        offset = match next.into_iter().chain(other).min() {
            Some(next) if next < size => next / BLOCK as u64 * BLOCK as u64,
            _ => return Ok(true),
        };
        let len = (size - offset).min(PIECE as u64) as usize;
        let bytes = &mut buffer[..len];
        let mut bad = Vec::new();
        match files.read(inode, offset, bytes) {
            Ok(_) => {}
            Err(FilesError::Disk(_)) => {
                for (n, page) in bytes.chunks_mut(BLOCK).enumerate() {
                    match files.read(inode, offset + (n * BLOCK) as u64, page) {
                        Ok(_) => {}
                        Err(FilesError::Disk(e)) => {
                            page.fill(0);
                            bad.push(n);
                            unreadable.add(inode, offset / BLOCK as u64 + n as u64, e);
                        }
                        Err(e) => return Err(e.to_string()),
                    }
                }
            }
            Err(e) => return Err(e.to_string()),
        }
        if !each(offset, bytes, &bad).map_err(|e| e.to_string())? {
            return Ok(false);
        }
        offset += len as u64;
    }
}

/// Whether a folder has what the drive has, and nothing else that a drive would have; the first
/// path that differs. What the drive cannot read differs from nothing.
pub fn difference<D: Disk>(
    files: &mut Files<D>,
    inode: Inode,
    folder: &Folder,
    unreadable: &mut Unreadable,
) -> Result<Option<PathBuf>, String> {
    let failed = |path: &Path, e: &dyn std::fmt::Display| at(path)(e);
    let mut walk = folder.walk(Look::Only).map_err(|e| failed(&folder.path, &e))?;
    // Names that are still to come.
    let mut levels = vec![names(files, inode).map_err(|e| failed(&folder.path, &e))?];
    loop {
        let met = walk.meet().map_err(|e| failed(&walk.at.path(b""), &e))?;
        let left = levels.last_mut().expect("it is in a folder");
        let (name, there) = match met {
            Some(Met::Name(name, stat)) => (name, stat),
            Some(Met::End(name)) => match levels.pop().and_then(|it| it.into_keys().next()) {
                None => continue,
                Some(lacks) => {
                    let inside = walk.at.path(&name);
                    return Ok(Some(inside.join(std::ffi::OsStr::from_bytes(&lacks))));
                }
            },
            None => return Ok(left.keys().next().map(|lacks| walk.at.path(lacks))),
        };
        let Some(child) = left.remove(&name) else {
            if !Met::is_kept(&there) {
                continue;
            }
            return Ok(Some(walk.at.path(&name)));
        };
        let path = |walk: &Walk| walk.at.path(&name);
        let known = files.stat(child).map_err(|e| failed(&path(&walk), &e))?;
        let is_same = kind(&there) == Some(known.kind)
            && (known.kind != Type::File || there.st_size as u64 == known.size)
            && (known.kind == Type::Link || there.st_mode & 0o7777 == u32::from(known.mode))
            && (known.kind == Type::Folder
                || u128::from(there.st_nlink) == u128::from(known.links));
        let is_same = is_same
            && match known.kind {
                Type::Folder => {
                    let entered = walk.enter(&name).map_err(|e| failed(&path(&walk), &e))?;
                    if entered {
                        levels.push(names(files, child).map_err(|e| failed(&path(&walk), &e))?);
                    }
                    entered
                }
                Type::Link => {
                    let to = readlinkat(walk.at.here(), &*name, Vec::new());
                    let to = to.map_err(|e| failed(&path(&walk), &io::Error::from(e)))?;
                    files.target(child).map_err(|e| failed(&path(&walk), &e))? == to.as_bytes()
                }
                Type::File => {
                    let file = walk.at.file(&name).map_err(|e| failed(&path(&walk), &e))?;
                    let mut other = vec![0; PIECE];
                    let of = (child, known.size);
                    let there = |offset| next_data(&file, offset);
                    let is_same =
                        each_piece(files, of, &there, unreadable, &mut |offset, bytes, bad| {
                            let other = &mut other[..bytes.len()];
                            file.read_exact_at(other, offset)?;
                            let pages = other.chunks(BLOCK).zip(bytes.chunks(BLOCK)).enumerate();
                            Ok(pages.into_iter().all(|(n, (a, b))| a == b || bad.contains(&n)))
                        });
                    unreadable.is_read(child, || path(&walk));
                    is_same.map_err(|e| failed(&path(&walk), &e))?
                }
            };
        if !is_same {
            return Ok(Some(path(&walk)));
        }
    }
}

/// Where a file has something that is no hole.
fn next_data(file: &File, offset: u64) -> io::Result<Option<u64>> {
    match seek(file, SeekFrom::Data(offset)) {
        Err(Errno::NXIO) => Ok(None),
        found => Ok(Some(found?)),
    }
}

fn names<D: Disk>(files: &Files<D>, inode: Inode) -> Result<HashMap<Vec<u8>, Inode>, FilesError> {
    Ok(files.list(inode)?.map(|(name, child)| (name.to_vec(), child)).collect())
}

#[cfg(test)]
mod tests;
