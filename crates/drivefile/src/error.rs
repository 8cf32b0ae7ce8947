//! What can be wrong with a drive file: what, where, and what to do.

use std::io;
use std::path::PathBuf;

use nvram::advice;
use port::OutOfMemory;
use thiserror::Error;

/// A drive file that cannot be made, opened, written or read.
#[derive(Clone, Debug, Error)]
pub enum FileError {
    /// There is nothing of this name.
    #[error("{path}: no such file; make it with `ssdkit create`")]
    Missing {
        /// What was to be opened.
        path: PathBuf,
    },
    /// There is something of this name already.
    #[error("{path} exists already; remove it first, or take another name")]
    Exists {
        /// What was to be made.
        path: PathBuf,
    },
    /// It is not a regular file.
    #[error("{path} is {kind}: a drive file is a regular file")]
    NotAFile {
        /// What was to be opened.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// Somebody else has it open.
    #[error("{path} is in use by {by}; close it there first")]
    InUse {
        /// What was to be opened.
        path: PathBuf,
        /// Who has it: a process's number where the system says so.
        by: String,
    },
    /// It may not be written.
    #[error("{path} cannot be written: {reason}; change its permissions, or work on a copy")]
    NoWrite {
        /// What was to be opened.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// It was opened for reading only, and something was to be changed.
    #[error("the drive file was opened for reading only; open it for writing to change the drive")]
    ReadOnly,
    /// There is nothing in it.
    #[error(
        "the file is empty, and so no drive file; remove it, and make one with `ssdkit create`"
    )]
    Empty,
    /// It does not begin as a drive file does.
    #[error("this is not a drive file: it does not begin with `ssdkitDF`")]
    Foreign,
    /// It was never finished.
    #[error(
        "this drive file was never finished: the process that made it was killed, or still makes \
         it; make it again, or remove it"
    )]
    Unfinished,
    /// It is of a version that this program does not know.
    #[error("the drive file is of version {found}, this program knows {known}; use a newer ssdkit")]
    Version {
        /// Its version.
        found: u32,
        /// The version that is known.
        known: u32,
    },
    /// Its header is damaged.
    #[error("the drive file's header is damaged: {what}; restore the file from a copy")]
    Header {
        /// What is wrong with it.
        what: String,
    },
    /// It is not as long as its header says.
    #[error(
        "the drive file has {found} bytes and its header asks for {expected}: it was cut or \
         extended; restore it from a copy"
    )]
    Length {
        /// How long it is.
        found: u64,
        /// How long it should be.
        expected: u64,
    },
    /// What is known of a chunk is damaged.
    #[error(
        "the drive file's descriptor of chunk {chunk} (byte {offset}) is damaged: {what}; \
         the drive cannot be trusted without it: restore the file from a copy"
    )]
    Descriptor {
        /// The chunk, by [`flash::Geometry::chunk_index`].
        chunk: usize,
        /// Where the descriptor lies in the file.
        offset: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// What is known of the chunks is not what was synced last.
    #[error(
        "the drive file's chunk descriptors are not those of its last sync: some are lost, or \
         older than the others; the drive cannot be trusted without them: restore the file from \
         a copy"
    )]
    Table,
    /// There is no memory for what it tells of its chunks.
    #[error(
        "the drive file: {reason}; end what else takes memory, or open it on a machine with more"
    )]
    Memory {
        /// What could not be had.
        reason: String,
    },
    /// A header that cannot be written.
    #[error("a drive file cannot have {what} = {value}: it must be {range}")]
    Range {
        /// What is wrong.
        what: &'static str,
        /// What it was.
        value: u64,
        /// What it may be.
        range: &'static str,
    },
    /// A chunk was said to have changed as none can.
    #[error(
        "chunk {chunk} cannot have come from {from} erases to {to}; this is a bug of the drive"
    )]
    Life {
        /// The chunk, by [`flash::Geometry::chunk_index`].
        chunk: usize,
        /// Erases that were known.
        from: u32,
        /// Erases that were told.
        to: u32,
    },
    /// A block cannot be read where all are needed.
    #[error("block {ppa:#x} cannot be read; the copy would not be the same drive")]
    Unreadable {
        /// Its physical address.
        ppa: u64,
    },
    /// A block cannot be written.
    #[error("block {ppa:#x} cannot be written to the copy")]
    Write {
        /// Its physical address.
        ppa: u64,
    },
    /// A block was not read, and not for damage of its own: its disk is away, or does not say.
    #[error("the drive file: reading a block: {reason}")]
    Away {
        /// What the system said.
        reason: String,
    },
    /// The system refused.
    #[error("the drive file: {doing}: {reason}{advice}")]
    System {
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        reason: String,
        /// Of which kind that is.
        kind: io::ErrorKind,
        /// What to do about it, if that is known.
        advice: &'static str,
    },
}

impl FileError {
    /// Whether there was no room for what was to be written.
    pub fn is_full(&self) -> bool {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        matches!(self, FileError::System { kind: StorageFull | QuotaExceeded | FileTooLarge, .. })
    }

    /// No memory for what is known of the chunks.
    pub(crate) fn memory(short: OutOfMemory) -> FileError {
        let OutOfMemory { what, bytes, source } = short;
        FileError::Memory { reason: format!("no {bytes} bytes of memory for {what}: {source}") }
    }

    /// What the system said while `doing` something.
    pub(crate) fn system(doing: &'static str, source: &io::Error) -> FileError {
        FileError::refused(doing, source.to_string(), source)
    }

    /// The same, told as `reason`.
    pub(crate) fn refused(doing: &'static str, reason: String, source: &io::Error) -> FileError {
        FileError::System { doing, reason, kind: source.kind(), advice: advice(source) }
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    /// Whether the file is being made or used, what to do is the same.
    #[test]
    fn what_failed_below_a_file_is_told_with_what_to_do() {
        for (errno, is_full, advice) in [
            (Errno::NOSPC, true, "make room on the file system, then try again"),
            (Errno::DQUOT, true, "make room on the file system, then try again"),
            (Errno::FBIG, true, "ulimit -f"),
            (Errno::IO, false, "the disk below the file failed"),
        ] {
            let error = FileError::system("making it", &errno.into());
            assert_eq!(error.is_full(), is_full, "{error}");
            assert!(error.to_string().contains(advice), "{error}");
        }
        let other = FileError::system("making it", &Errno::PERM.into()).to_string();
        assert!(other.ends_with("(os error 1)"), "{other}");
    }
}
