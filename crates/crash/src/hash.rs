//! A number for a tree of files.

use std::collections::BTreeMap;

use files::{Disk, Files, FilesError, Inode, Type};
use xxhash_rust::xxh3::Xxh3;

/// Bytes that are read at once.
const AT_ONCE: usize = 64 << 10;

/// A number for names, kinds, modes, links and bytes: trees that differ have the same one with a
/// chance of 2^-64.
pub fn hash<D: Disk>(files: &mut Files<D>) -> Result<u64, FilesError> {
    let mut sum = Xxh3::new();
    let (mut seen, mut bytes) = (BTreeMap::new(), vec![0; AT_ONCE]);
    hash_folder(files, Inode::ROOT, &mut sum, &mut seen, &mut bytes)?;
    Ok(sum.digest())
}

fn hash_folder<D: Disk>(
    files: &mut Files<D>,
    folder: Inode,
    sum: &mut Xxh3,
    seen: &mut BTreeMap<Inode, u64>,
    bytes: &mut [u8],
) -> Result<(), FilesError> {
    let names: Vec<(Vec<u8>, Inode)> =
        files.list(folder)?.map(|(name, inode)| (name.to_vec(), inode)).collect();
    let mut folders = Vec::new();
    sum.update(&(names.len() as u64).to_le_bytes());
    for (name, inode) in names {
        sum.update(&name);
        // A number for each file, so that names of the same are told from copies.
        let new = seen.len() as u64;
        let number = *seen.entry(inode).or_insert(new);
        let stat = files.stat(inode)?;
        sum.update(&[0, stat.kind as u8, stat.mode as u8, (stat.mode >> 8) as u8]);
        sum.update(&number.to_le_bytes());
        sum.update(&stat.size.to_le_bytes());
        match stat.kind {
            Type::Folder => folders.push(inode),
            Type::Link => sum.update(files.target(inode)?),
            Type::File if number == new => hash_bytes(files, inode, sum, bytes)?,
            Type::File => {}
        }
    }
    folders.into_iter().try_for_each(|folder| hash_folder(files, folder, sum, seen, bytes))
}

fn hash_bytes<D: Disk>(
    files: &mut Files<D>,
    inode: Inode,
    sum: &mut Xxh3,
    bytes: &mut [u8],
) -> Result<(), FilesError> {
    let mut at = 0;
    // Zeros are left out, whether they were written or not.
    while let Some(next) = files.next_written(inode, at)? {
        at = next / AT_ONCE as u64 * AT_ONCE as u64;
        let len = files.read(inode, at, bytes)?;
        if bytes[..len].iter().any(|&byte| byte != 0) {
            sum.update(&at.to_le_bytes());
            sum.update(&bytes[..len]);
        }
        at += len as u64;
    }
    Ok(())
}
