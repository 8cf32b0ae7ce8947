//! The folder that a program begins with, as operations.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use files::{Inode, Kind, Operation};

/// Bytes of a file that one operation has.
const AT_ONCE: usize = 1 << 20;

/// What a folder has.
#[derive(Clone, Debug, Default)]
pub struct Collected {
    /// What makes it.
    pub operations: Vec<Operation>,
    /// The number that each file has here, by the kernel's numbers of its device and of itself.
    pub inodes: BTreeMap<(u64, u64), Inode>,
    /// What is neither file, folder nor link, and was left out.
    pub left_out: Vec<PathBuf>,
}

/// Reads a folder: names, modes, links, bytes. Its own mode is left out. New files get numbers
/// from 2 on.
pub fn collect(folder: &Path) -> Collected {
    let mut collected = Collected::default();
    let data = fs::metadata(folder).unwrap();
    collected.inodes.insert((data.dev(), data.ino()), Inode::ROOT);
    collected.read(folder, Inode::ROOT);
    collected
}

impl Collected {
    fn read(&mut self, folder: &Path, parent: Inode) {
        let entries = fs::read_dir(folder).unwrap();
        let mut paths = entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<Vec<PathBuf>, _>>()
            .unwrap();
        // So that it is the same each time.
        paths.sort();
        paths.iter().for_each(|path| self.add(path, parent));
    }

    fn add(&mut self, path: &Path, parent: Inode) {
        let data = fs::symlink_metadata(path).unwrap();
        let name = path.file_name().expect("it is in a folder").as_bytes().to_vec();
        let number = (data.dev(), data.ino());
        if let Some(&inode) = self.inodes.get(&number) {
            self.operations.push(Operation::Link { parent, name, inode });
            return;
        }
        let kind = if data.is_dir() {
            Kind::Folder
        } else if data.is_file() {
            Kind::File
        } else if data.is_symlink() {
            let path = fs::read_link(path).unwrap();
            Kind::Link(path.into_os_string().into_vec())
        } else {
            self.left_out.push(path.to_path_buf());
            return;
        };
        let inode = Inode(self.inodes.len() as u64 + 1);
        self.inodes.insert(number, inode);
        let mode = (data.mode() & 0o7777) as u16;
        self.operations.push(Operation::Create { parent, name, inode, kind, mode });
        if data.is_dir() {
            self.read(path, inode);
        } else if data.is_file() {
            self.read_bytes(path, inode);
        }
    }

    /// The bytes of a file; pieces that are zeros stay holes.
    fn read_bytes(&mut self, path: &Path, inode: Inode) {
        let bytes = fs::read(path).unwrap();
        for (n, data) in bytes.chunks(AT_ONCE).enumerate() {
            if data.iter().any(|&byte| byte != 0) {
                let (offset, data) = ((n * AT_ONCE) as u64, data.to_vec());
                self.operations.push(Operation::Write { inode, offset, data });
            }
        }
        self.operations.push(Operation::Truncate { inode, size: bytes.len() as u64 });
    }
}
