//! What can be wrong with a journal: what, where, and what to do.

use std::io;

use port::OutOfMemory;
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
        matches!(self, JournalError::Store { source, .. } if has_no_room(source))
    }

    pub(crate) fn store(doing: &'static str) -> impl FnOnce(io::Error) -> JournalError {
        move |source| JournalError::Store { doing, source }
    }
}

fn has_no_room(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// What to do about an error of the store.
fn advice(error: &io::Error) -> &'static str {
    if has_no_room(error) { "; make room on the file system, then try again" } else { "" }
}
