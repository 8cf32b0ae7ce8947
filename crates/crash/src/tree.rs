//! A real folder that becomes one state after the other.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use files::{Disk, Files, Inode, Stat, Type};

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
        let mut first = BTreeMap::new();
        extract_folder(files, Inode::ROOT, &self.folder, &mut first)
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

fn extract_file<D: Disk>(
    files: &mut Files<D>,
    inode: Inode,
    at: &Path,
    there: Option<fs::Metadata>,
    stat: &Stat,
) -> Result<(), CrashError> {
    let mut bytes = vec![0; stat.size as usize];
    files.read(inode, 0, &mut bytes)?;
    let failed = CrashError::folder(at);
    let make = || {
        if let Some(data) = there {
            fs::set_permissions(at, Permissions::from_mode(0o600))?;
            if data.len() == stat.size && fs::read(at)? == bytes {
                return Ok(());
            }
        }
        fs::write(at, &bytes)
    };
    make().map_err(failed)
}
