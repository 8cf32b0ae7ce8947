//! Why something could not be done, and what a program is told then.

use thiserror::Error;

use crate::disk::DiskError;
use crate::operation::Inode;

/// Why something could not be done. What failed changed nothing, unless the disk failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FilesError {
    /// The drive failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A write of the journal failed before; what is on the disk may be read.
    #[error(
        "the journal could not be written: the files are read-only until they are mounted again"
    )]
    Aborted,
    /// The disk has something else.
    #[error("there are no files of ssdkit here: format it first, if what it has may go")]
    NotOurs,
    /// Another version wrote it.
    #[error("the files are of version {0}, and this reads 1 to {ours}", ours = crate::VERSION)]
    Version(u32),
    /// What is on the disk does not fit together.
    #[error("block {block}: {what}: the files were damaged; format the disk, or copy it first")]
    Damaged {
        /// Where.
        block: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// The disk or an option is out of range.
    #[error("{what} is {value}: {range}")]
    Range {
        /// Of what.
        what: &'static str,
        /// What it is.
        value: u64,
        /// What it may be.
        range: &'static str,
    },
    /// No file has the number.
    #[error("there is no file {}", .0.0)]
    NoInode(Inode),
    /// The number is taken.
    #[error("file {} is there already", .0.0)]
    Taken(Inode),
    /// Nothing has the name.
    #[error("{:?} is not there", String::from_utf8_lossy(.0))]
    NoName(Vec<u8>),
    /// Something has the name.
    #[error("{:?} is there already", String::from_utf8_lossy(.0))]
    Exists(Vec<u8>),
    /// No name can be so.
    #[error("a name has 1 to 255 bytes without '/' and zeros, and is not '.' or '..'")]
    BadName(usize),
    /// The path of a link is too long, or nothing.
    #[error("the path of a link has 1 to 4095 bytes, not {0}")]
    BadPath(usize),
    /// It is no folder.
    #[error("{} is no folder", .0.0)]
    NotFolder(Inode),
    /// It is a folder.
    #[error("{} is a folder", .0.0)]
    IsFolder(Inode),
    /// It has no bytes: it is a link.
    #[error("{} is no file of bytes", .0.0)]
    NotFile(Inode),
    /// The folder has names in it.
    #[error("folder {} is not empty", .0.0)]
    NotEmpty(Inode),
    /// A folder would be inside itself.
    #[error("folder {} would be inside itself", .0.0)]
    Loop(Inode),
    /// It has a name, and so does not go.
    #[error("file {} has a name", .0.0)]
    Named(Inode),
    /// The disk is full.
    #[error("no room is left: {needed} blocks are needed and {free} are free")]
    NoRoom {
        /// Blocks of 4 KiB.
        needed: u64,
        /// Blocks of 4 KiB.
        free: u64,
    },
    /// It ends behind the largest size.
    #[error("a file has at most 2^44 - 4096 bytes, not {0}")]
    TooLarge(u64),
}

impl FilesError {
    /// The number of the error as Linux has it: what a program's call fails with.
    pub fn errno(&self) -> i32 {
        match self {
            FilesError::NoInode(_) | FilesError::NoName(_) => 2,
            FilesError::Disk(_) => 5,
            FilesError::Exists(_) | FilesError::Taken(_) => 17,
            FilesError::NotFolder(_) => 20,
            FilesError::IsFolder(_) => 21,
            FilesError::NotFile(_)
            | FilesError::Loop(_)
            | FilesError::Named(_)
            | FilesError::Range { .. } => 22,
            FilesError::TooLarge(_) => 27,
            FilesError::NoRoom { .. } => 28,
            FilesError::Aborted => 30,
            FilesError::BadName(n) if *n <= 255 => 22,
            FilesError::BadPath(0) => 2,
            FilesError::BadName(_) | FilesError::BadPath(_) => 36,
            FilesError::NotEmpty(_) => 39,
            FilesError::NotOurs | FilesError::Version(_) | FilesError::Damaged { .. } => 117,
        }
    }
}
