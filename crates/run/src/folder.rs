//! The program's view of its files: an ordinary folder, which begins as what the drive has. Never
//! changes what was in a folder before, but for [`empty`].

use std::collections::HashMap;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use files::{Disk, Files, Inode, Type};

/// Bytes that are read at once.
const PIECE: usize = 1 << 20;

/// What went wrong with a path, in words.
pub fn at(path: &Path) -> impl Fn(&dyn std::fmt::Display) -> String + '_ {
    move |e| format!("{}: {e}", path.display())
}

/// Whether there is nothing in a folder.
pub fn is_empty(folder: &Path) -> io::Result<bool> {
    Ok(fs::read_dir(folder)?.next().is_none())
}

/// All that is in a folder goes.
pub fn empty(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn name(bytes: &[u8]) -> PathBuf {
    std::ffi::OsString::from_vec(bytes.to_vec()).into()
}

/// Makes in an empty folder what the drive has.
pub fn fill<D: Disk>(
    files: &mut Files<D>,
    inode: Inode,
    folder: &Path,
    made: &mut HashMap<Inode, PathBuf>,
) -> Result<(), String> {
    let failed = |e| e_at(folder, e);
    let list = files.list(inode).map_err(|e| at(folder)(&e))?;
    let list: Vec<(Vec<u8>, Inode)> = list.map(|(name, inode)| (name.to_vec(), inode)).collect();
    for (bytes, child) in list {
        let path = folder.join(name(&bytes));
        if let Some(other) = made.get(&child) {
            fs::hard_link(other, &path).map_err(failed)?;
            continue;
        }
        let stat = files.stat(child).map_err(|e| at(&path)(&e))?;
        match stat.kind {
            Type::Folder => {
                fs::create_dir(&path).map_err(failed)?;
                fill(files, child, &path, made)?;
            }
            Type::Link => {
                let to = files.target(child).map_err(|e| at(&path)(&e))?;
                symlink(name(to), &path).map_err(failed)?;
            }
            Type::File => {
                let mut file = File::create_new(&path).map_err(failed)?;
                each_piece(files, child, stat.size, &mut |offset, bytes| {
                    // What is zeros stays a hole.
                    match bytes.iter().all(|&byte| byte == 0) {
                        true => Ok(true),
                        false => file.write_all_at(bytes, offset).map(|()| true),
                    }
                })
                .map_err(|e| at(&path)(&e))?;
                file.set_len(stat.size).and_then(|()| file.flush()).map_err(failed)?;
            }
        }
        if stat.kind != Type::Folder {
            made.insert(child, path.clone());
        }
        if stat.kind != Type::Link {
            let mode = Permissions::from_mode(stat.mode.into());
            fs::set_permissions(&path, mode).map_err(failed)?;
        }
    }
    Ok(())
}

fn e_at(path: &Path, e: io::Error) -> String {
    at(path)(&e)
}

/// Gives a file's bytes piece by piece, until `each` says that it is enough.
fn each_piece<D: Disk>(
    files: &mut Files<D>,
    inode: Inode,
    size: u64,
    each: &mut dyn FnMut(u64, &[u8]) -> io::Result<bool>,
) -> Result<bool, String> {
    let mut buffer = vec![0; PIECE.min(size as usize)];
    let mut offset = 0;
    while offset < size {
        let got = files.read(inode, offset, &mut buffer).map_err(|e| e.to_string())?;
        if !each(offset, &buffer[..got]).map_err(|e| e.to_string())? {
            return Ok(false);
        }
        offset += got as u64;
    }
    Ok(true)
}

/// Whether a folder has what the drive has, and nothing else; the first path that differs.
pub fn difference<D: Disk>(
    files: &mut Files<D>,
    inode: Inode,
    folder: &Path,
) -> Result<Option<PathBuf>, String> {
    let failed = |e| e_at(folder, e);
    let list = files.list(inode).map_err(|e| at(folder)(&e))?;
    let mut list: HashMap<Vec<u8>, Inode> = list.map(|(name, it)| (name.to_vec(), it)).collect();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = entry.path();
        let Some(child) = list.remove(entry.file_name().as_bytes()) else {
            return Ok(Some(path));
        };
        let (there, stat) = (entry.metadata().map_err(failed)?, files.stat(child));
        let stat = stat.map_err(|e| at(&path)(&e))?;
        let kind = match stat.kind {
            Type::Folder => there.is_dir(),
            Type::Link => there.is_symlink(),
            Type::File => there.is_file() && there.len() == stat.size,
        };
        let has_mode = stat.kind == Type::Link || there.mode() & 0o7777 == u32::from(stat.mode);
        let has_names = stat.kind == Type::Folder || there.nlink() == u64::from(stat.links);
        if !(kind && has_mode && has_names) {
            return Ok(Some(path));
        }
        let is_same = match stat.kind {
            Type::Folder => {
                if let Some(path) = difference(files, child, &path)? {
                    return Ok(Some(path));
                }
                true
            }
            Type::Link => {
                let to = fs::read_link(&path).map_err(failed)?;
                files.target(child).map_err(|e| at(&path)(&e))? == to.as_os_str().as_bytes()
            }
            Type::File => {
                let file = File::open(&path).map_err(failed)?;
                let mut other = vec![0; PIECE];
                each_piece(files, child, stat.size, &mut |offset, bytes| {
                    let other = &mut other[..bytes.len()];
                    file.read_exact_at(other, offset)?;
                    Ok(other == bytes)
                })
                .map_err(|e| at(&path)(&e))?
            }
        };
        if !is_same {
            return Ok(Some(path));
        }
    }
    Ok(list.into_keys().next().map(|bytes| folder.join(name(&bytes))))
}
