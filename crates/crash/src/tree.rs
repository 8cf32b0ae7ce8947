//! A real folder that becomes one state after the other.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use files::{Disk, Files, Inode, Stat, Type};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::error::CrashError;

/// A real folder that becomes one state after the other. What is there already as it should be
/// stays: files are read and written only where they differ. It holds nothing else.
#[derive(Clone, Debug)]
pub struct Tree {
    folder: PathBuf,
}

impl Tree {
    /// A folder that belongs to nobody else: what is in it will go. It is made if it is not there.
    pub fn new(folder: &Path) -> Result<Tree, CrashError> {
        fs::create_dir_all(folder).map_err(CrashError::folder(folder))?;
        Ok(Tree { folder: folder.to_path_buf() })
    }

    /// Makes the folder what these files are: names, bytes, modes, links.
    pub fn extract<D: Disk>(&self, files: &mut Files<D>) -> Result<(), CrashError> {
        // Whoever ran there may have put something else in its place, which others may own.
        let failed = CrashError::folder(&self.folder);
        let is_folder = fs::symlink_metadata(&self.folder).is_ok_and(|data| data.is_dir());
        if !is_folder {
            let _ = fs::remove_file(&self.folder);
            fs::create_dir(&self.folder).map_err(failed)?;
        }
        let mut first = BTreeMap::new();
        extract_folder(files, Inode::ROOT, &self.folder, &mut first)
    }
}

impl Tree {
    /// Removes the folder with all that is in it.
    pub fn remove(self) -> Result<(), CrashError> {
        remove(&self.folder).map_err(CrashError::folder(&self.folder))
    }
}

/// Removes whatever has the path, and nothing behind a link.
fn remove(path: &Path) -> io::Result<()> {
    let data = fs::symlink_metadata(path)?;
    if !data.is_dir() {
        return fs::remove_file(path);
    }
    fs::set_permissions(path, Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(path)? {
        remove(&entry?.path())?;
    }
    fs::remove_dir(path)
}

/// What is there, if it is of that kind; what is of another goes.
fn keep(path: &Path, stat: &Stat) -> io::Result<Option<fs::Metadata>> {
    let data = match fs::symlink_metadata(path) {
        Ok(data) => data,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let is_kind = match stat.kind {
        Type::File => data.is_file() && data.nlink() == 1 && stat.links == 1,
        Type::Folder => data.is_dir(),
        Type::Link => data.is_symlink() && data.nlink() == 1,
    };
    if is_kind {
        return Ok(Some(data));
    }
    remove(path)?;
    Ok(None)
}

fn extract_folder<D: Disk>(
    files: &mut Files<D>,
    folder: Inode,
    path: &Path,
    first: &mut BTreeMap<Inode, PathBuf>,
) -> Result<(), CrashError> {
    let failed = CrashError::folder;
    // Whoever ran in it may have left it closed.
    fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(failed(path))?;
    let names: BTreeMap<Vec<u8>, Inode> =
        files.list(folder)?.map(|(name, inode)| (name.to_vec(), inode)).collect();
    for entry in fs::read_dir(path).map_err(failed(path))? {
        let entry = entry.map_err(failed(path))?;
        if !names.contains_key(entry.file_name().as_bytes()) {
            remove(&entry.path()).map_err(failed(&entry.path()))?;
        }
    }
    for (name, inode) in names {
        let (at, stat) = (path.join(OsStr::from_bytes(&name)), files.stat(inode)?);
        let there = keep(&at, &stat).map_err(failed(&at))?;
        if let Some(first) = first.get(&inode) {
            fs::hard_link(first, &at).map_err(failed(&at))?;
            continue;
        }
        match stat.kind {
            Type::Folder => {
                if there.is_none() {
                    fs::create_dir(&at).map_err(failed(&at))?;
                }
                extract_folder(files, inode, &at, first)?;
            }
            Type::Link => extract_link(files, inode, &at, there.is_some())?,
            Type::File => extract_file(files, inode, &at, there, &stat)?,
        }
        if stat.kind != Type::Link {
            let mode = Permissions::from_mode(u32::from(stat.mode));
            fs::set_permissions(&at, mode).map_err(failed(&at))?;
        }
        if stat.links > 1 {
            first.insert(inode, at);
        }
    }
    Ok(())
}

fn extract_link<D: Disk>(
    files: &Files<D>,
    inode: Inode,
    at: &Path,
    is_there: bool,
) -> Result<(), CrashError> {
    let target = Path::new(OsStr::from_bytes(files.target(inode)?));
    let failed = CrashError::folder(at);
    let make = || {
        if is_there {
            if fs::read_link(at)? == target {
                return Ok(());
            }
            fs::remove_file(at)?;
        }
        symlink(target, at)
    };
    make().map_err(failed)
}

/// Bytes that are compared, and written if they differ, at once.
const AT_ONCE: usize = 256 << 10;

/// Where bytes come next that are more than a hole, in either.
fn next_data<D: Disk>(
    files: &Files<D>,
    inode: Inode,
    (file, path): (&File, &Path),
    from: u64,
) -> Result<Option<u64>, CrashError> {
    let there = match seek(file, SeekFrom::Data(from)) {
        Ok(at) => Some(at),
        Err(Errno::NXIO) => None,
        Err(e) => return Err(CrashError::folder(path)(e.into())),
    };
    Ok(files.next_written(inode, from)?.into_iter().chain(there).min())
}

/// What is there is changed only where it differs, so holes stay holes.
fn extract_file<D: Disk>(
    files: &mut Files<D>,
    inode: Inode,
    at: &Path,
    there: Option<fs::Metadata>,
    stat: &Stat,
) -> Result<(), CrashError> {
    let failed = CrashError::folder(at);
    let open = || {
        if there.is_some() {
            fs::set_permissions(at, Permissions::from_mode(0o600))?;
        }
        let file = File::options().read(true).write(true).create(true).truncate(false).open(at)?;
        if file.metadata()?.len() != stat.size {
            file.set_len(stat.size)?;
        }
        Ok(file)
    };
    let file = open().map_err(failed)?;
    let (mut bytes, mut old) = (vec![0; AT_ONCE], vec![0; AT_ONCE]);
    let mut from = 0;
    while let Some(next) = next_data(files, inode, (&file, at), from)? {
        from = next;
        let len = files.read(inode, from, &mut bytes)?;
        // It grows meanwhile: what a check left behind writes there.
        if len == 0 {
            break;
        }
        let (new, old) = (&bytes[..len], &mut old[..len]);
        let mut change = || {
            file.read_exact_at(old, from)?;
            if new != old { file.write_all_at(new, from) } else { Ok(()) }
        };
        change().map_err(CrashError::folder(at))?;
        from += len as u64;
    }
    Ok(())
}
