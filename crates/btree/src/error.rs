//! What a tree may answer.

use port::units::size_binary;
use thiserror::Error;

use crate::store::StoreError;

/// Why something could not be done. Nothing was changed by what failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// All operation slots are taken.
    #[error("all {0} operations are under way; poll first")]
    Busy(usize),
    /// A key over the limit.
    #[error("a key of {0} bytes is longer than {1}")]
    KeyTooLong(usize, usize),
    /// A value over the limit.
    #[error("a value of {0} bytes is longer than {1}")]
    ValueTooLong(usize, usize),
    /// A batch that may touch more pages than are written at once.
    #[error(
        "the writes may change {pages} pages, and {most} are the most that this store and cache \
         write at once; make the batch smaller"
    )]
    BatchTooLarge {
        /// Pages that it may change.
        pages: usize,
        /// The most that are written at once.
        most: usize,
    },
    /// No page is left.
    #[error("all {0} pages are in use; delete something or take a larger drive")]
    Full(u64),
    /// A page is not what it should be.
    #[error("page {page} is damaged: {what}")]
    Damaged {
        /// Which page.
        page: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// The page store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The budget is too small.
    #[error("a cache of {} is too small; {} is the least", size_binary(*.0), size_binary(*.1))]
    Memory(u64, u64),
    /// The memory could not be had.
    #[error("there is no memory for {0} bytes")]
    OutOfMemory(u64),
    /// The store holds no tree that this version can read.
    #[error("the store holds no tree that can be opened: {0}")]
    NotATree(&'static str),
}
