//! What can be wrong with a journal: what, where, and what to do.

use std::io;

use port::OutOfMemory;
use rustix::io::Errno;
use thiserror::Error;

/// A journal that cannot be opened or written, or not be written again into the
/// drive.
#[derive(Debug, Error)]
pub enum JournalError {
    /// It does not begin as a journal does, or its state is damaged.
    #[error("the protected cache's state is damaged: {what}; restore the drive from a copy")]
    State {
        /// What is wrong with it.
        what: &'static str,
    },
    /// It is of a version that this program does not know.
    #[error(
        "the protected cache is of version {found}, this program knows {known}; use a newer ssdkit"
    )]
    Version {
        /// Its version.
        found: u32,
        /// The version that is known.
        known: u32,
    },
    /// Something that was acknowledged is damaged.
    #[error(
        "the protected cache's entry at byte {offset} of its area is damaged: {what}; it was \
         acknowledged, and the drive cannot be trusted without it: restore the drive from a \
         copy{}",
        if *is_synced { "" } else { UNSYNCED }
    )]
    Entry {
        /// Where it begins in the area.
        offset: u64,
        /// What is wrong with it.
        what: &'static str,
        /// Whether it is known to have been synced.
        is_synced: bool,
    },
    /// The store is too small, or no multiple of 4096 bytes.
    #[error("a protected cache cannot have {bytes} bytes: {range}")]
    Size {
        /// How many there are.
        bytes: u64,
        /// How many there may be.
        range: &'static str,
    },
    /// The store failed.
    #[error("the protected cache: {doing}: {source}{}", advice(source))]
    Store {
        /// What was being done.
        doing: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// The drive stopped answering.
    #[error("the drive stopped while its protected cache was written to it: report this")]
    Stopped,
    /// No memory for a request.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
}

/// What may have happened to an entry that was not synced, while its host has not crashed.
const UNSYNCED: &str = "; or, if its disk refused writes since, open it when the host was started \
                        anew: all that was flushed is there, and this is gone";

impl JournalError {
    /// Whether the store had no room for what was to be written.
    pub fn is_full(&self) -> bool {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        let JournalError::Store { source, .. } = self else { return false };
        matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge)
    }

    pub(crate) fn store(doing: &'static str) -> impl FnOnce(io::Error) -> JournalError {
        move |source| JournalError::Store { doing, source }
    }
}

/// Whether the disk below a file refuses: it cannot read what it has there, or failed.
pub fn is_of_the_disk(error: &io::Error) -> bool {
    let kinds = [Errno::IO, Errno::BADMSG, Errno::UCLEAN, Errno::NODATA];
    Errno::from_io_error(error).is_some_and(|e| kinds.contains(&e))
}

/// What to do about an error of a file: of a store, or of the drive beside it.
pub fn advice(error: &io::Error) -> &'static str {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    match error.kind() {
        StorageFull | QuotaExceeded => "; make room on the file system, then try again",
        FileTooLarge => {
            "; the file system or a limit (ulimit -f) allows no file of this size: raise that, or \
             use another file system"
        }
        _ if is_of_the_disk(error) => {
            "; the disk below the file failed: see what the system says of it (dmesg)"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What failed below a store is told with what to do, and a limit is no full disk.
    #[test]
    fn what_failed_below_a_store_is_told_with_what_to_do() {
        for (errno, is_full, advice) in [
            (Errno::NOSPC, true, "make room on the file system, then try again"),
            (Errno::DQUOT, true, "make room on the file system, then try again"),
            (Errno::FBIG, true, "ulimit -f"),
            (Errno::IO, false, "the disk below the file failed"),
        ] {
            let error = JournalError::store("syncing")(errno.into());
            assert_eq!(error.is_full(), is_full, "{error}");
            assert!(error.to_string().contains(advice), "{error}");
        }
        let other = JournalError::store("syncing")(Errno::PERM.into()).to_string();
        assert!(other.ends_with("(os error 1)"), "{other}");
    }
}
