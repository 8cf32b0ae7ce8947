//! Files that are mapped shared and writable into memory of the program: what it changes there no
//! call tells. It is found by digests of the pages as they were told last, and told page by page
//! when something asks for it: a sync of the file, `munmap`, the end of a process.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;

use files::{Inode, Operation};
use rustix::fs::{Mode, OFlags, SeekFrom, fstat, open, seek};
use rustix::io::{Errno, pread};
use xxhash_rust::xxh3::xxh3_64;

use crate::path;

const PAGE: u64 = 4096;

/// What was told of a file's pages: a digest of each that is not a hole, or none where a write
/// has changed it since, and so it may hold more than was told.
struct Told {
    file: OwnedFd,
    /// What the kernel calls it, on its device.
    kernels: u64,
    pages: BTreeMap<u64, Option<u64>>,
}

/// Of each such file what was told.
#[derive(Default)]
pub(crate) struct Mappings {
    files: HashMap<Inode, Told>,
}

impl Mappings {
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// From now on what changes in the file is found. `file` is open for reading.
    pub fn track(&mut self, inode: Inode, file: &OwnedFd) -> Result<(), Errno> {
        if self.files.contains_key(&inode) {
            return Ok(());
        }
        // Opened anew: locks belong to the program's open file and must not outlive it.
        let file = open(path::of_open(file), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let mut pages = BTreeMap::new();
        each_page(&file, &mut |page, bytes| {
            pages.insert(page, Some(xxh3_64(bytes)));
        })?;
        let kernels = fstat(&file)?.st_ino;
        self.files.insert(inode, Told { file, kernels, pages });
        Ok(())
    }

    /// An operation on the file was told.
    pub fn told(&mut self, operation: &Operation) {
        if self.files.is_empty() {
            return;
        }
        match *operation {
            Operation::Write { inode, offset, ref data } => {
                self.touch(inode, offset, offset + data.len() as u64);
            }
            Operation::Punch { inode, offset, len } => self.touch(inode, offset, offset + len),
            Operation::Truncate { inode, size } => {
                if let Some(told) = self.files.get_mut(&inode) {
                    told.pages.split_off(&size.div_ceil(PAGE));
                }
                self.touch(inode, size, size + 1);
            }
            Operation::Forget { inode } => {
                self.files.remove(&inode);
            }
            _ => {}
        }
    }

    fn touch(&mut self, inode: Inode, from: u64, to: u64) {
        if let Some(told) = self.files.get_mut(&inode) {
            for page in from / PAGE..to.div_ceil(PAGE) {
                told.pages.insert(page, None);
            }
        }
    }

    /// Which files there are, in the order of their numbers.
    pub fn all(&self) -> Vec<Inode> {
        let mut all: Vec<Inode> = self.files.keys().copied().collect();
        all.sort_unstable();
        all
    }

    /// Those that the kernel calls one of these.
    pub fn of_kernel(&self, kernels: &[u64]) -> Vec<Inode> {
        self.all().into_iter().filter(|it| kernels.contains(&self.files[it].kernels)).collect()
    }

    /// What has changed in the file since it was told, as writes.
    pub fn changes(&mut self, inode: Inode, tell: &mut dyn FnMut(Operation)) -> Result<(), Errno> {
        let Some(told) = self.files.get_mut(&inode) else { return Ok(()) };
        let pages = &mut told.pages;
        each_page(&told.file, &mut |page, bytes| {
            let now = Some(xxh3_64(bytes));
            // A page that nothing was told of reads as zeros.
            let is_told = match pages.get(&page) {
                Some(before) => *before == now,
                None => bytes.iter().all(|&byte| byte == 0),
            };
            pages.insert(page, now);
            if !is_told {
                tell(Operation::Write { inode, offset: page * PAGE, data: bytes.to_vec() });
            }
        })
    }
}

/// Goes through the pages of a file that are not holes.
fn each_page(file: &OwnedFd, each: &mut dyn FnMut(u64, &[u8])) -> Result<(), Errno> {
    let size = fstat(file)?.st_size as u64;
    let mut buffer = vec![0; 64 * PAGE as usize];
    let mut at = 0;
    while at < size {
        let data = match seek(file, SeekFrom::Data(at)) {
            Err(Errno::NXIO) => break,
            other => other?,
        };
        let hole = seek(file, SeekFrom::Hole(data))?;
        at = data / PAGE * PAGE;
        while at < hole.min(size) {
            let got = pread(file, &mut buffer, at)?;
            if got == 0 {
                return Ok(());
            }
            for (n, bytes) in buffer[..got].chunks(PAGE as usize).enumerate() {
                each(at / PAGE + n as u64, bytes);
            }
            at = (at + got as u64).div_ceil(PAGE) * PAGE;
        }
    }
    Ok(())
}
