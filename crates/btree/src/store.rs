//! The page store: what keeps the tree's pages, and the seam between them.
//!
//! Pages have numbers (LPIDs) below [`PageStore::pages`]. A store promises:
//! - A batch is written whole or not at all, whatever happens. Batches become
//!   durable in the order of their writes: after a crash those that are there
//!   are a prefix of those that were written.
//! - A completed flush means that each batch that completed before it was
//!   asked for is durable.
//! - A page reads as the last completed batch wrote it. A page is not read
//!   while a batch with it is on its way; the tree sees to that.
//! - What was damaged is an error ([`StoreError::Damaged`]), never another
//!   page's or an older one's bytes.
//! - Each read, write and flush that was taken completes once.
//! - A failed write or flush stops the store for ever: all later ones fail.
//!
//! A store has no thread, clock or randomness. It works when it is polled;
//! work of its own (collection, checkpoints) is done then, too, in small steps.

mod awaited;
mod batch;
mod beside;
mod blocks;
mod in_place;
mod kind;
mod log;

pub use awaited::{Awaited, Clocked, Inline, Remote, Sleeper};
pub use batch::BatchStore;
pub use beside::{Beside, LEAST_REDO};
pub use in_place::{InPlaceConfig, InPlaceStore};
pub use kind::{Store, StoreKind};
pub use log::{LogConfig, LogCounters, LogStore};

use port::{Buffer, Ring, Status, Time};
use thiserror::Error;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::page::PAGE_BYTES;

/// Bytes at a page's start that belong to the store.
pub const SEAL_BYTES: usize = 8;

/// Puts the checksum of a page into its first 8 bytes: XXH3 of the rest, 64
/// bits, with the page's number as the seed. Gives it.
pub fn seal(page: u64, bytes: &mut [u8]) -> u64 {
    let sum = sum(page, bytes);
    bytes[..SEAL_BYTES].copy_from_slice(&sum.to_le_bytes());
    sum
}

/// The seal of a page if it is right: it is that page's, and whole.
pub fn check_seal(page: u64, bytes: &[u8]) -> Option<u64> {
    let stored = u64::from_le_bytes(*bytes.first_chunk()?);
    (stored == sum(page, bytes)).then_some(stored)
}

/// Sees that a block beside the pages is whole, or blank.
fn check_beside(page: u64, bytes: &[u8]) -> Result<(), StoreError> {
    match check_seal(page, bytes) {
        Some(_) => Ok(()),
        None if blocks::is_blank(bytes) => Err(StoreError::Unwritten { page }),
        None => Err(StoreError::Damaged { page }),
    }
}

#[inline]
fn sum(page: u64, bytes: &[u8]) -> u64 {
    xxh3_64_with_seed(&bytes[SEAL_BYTES..PAGE_BYTES], page)
}

/// What a page store may answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum StoreError {
    /// A page's checksum is wrong.
    #[error("page {page} is damaged: its checksum is wrong")]
    Damaged {
        /// Which page.
        page: u64,
    },
    /// A page was never written, as far as the store can tell.
    #[error("page {page} is not there: it was never written")]
    Unwritten {
        /// Which page.
        page: u64,
    },
    /// The drive says no.
    #[error("the drive failed to {what}: {status}")]
    Drive {
        /// What it was to do.
        what: &'static str,
        /// What it said.
        status: Status,
    },
    /// A log without collection is full.
    #[error("the log is full and is not collected: take a larger drive or the durable mode")]
    LogFull,
    /// No segment of a log becomes free, as too many hold pages that cannot be
    /// read.
    #[error(
        "no space: {segments} of the {of} segments of the log hold pages that cannot be read, one \
         of them the segment at block {block}; open the log again to try them again, or copy what \
         can be read to another drive"
    )]
    NoSpace {
        /// Segments with pages that cannot be read.
        segments: u64,
        /// Segments of the log.
        of: u64,
        /// The first block of one of them.
        block: u64,
    },
    /// The drive cannot hold such a store.
    #[error("{what} = {value} does not fit: it must be {range}")]
    Shape {
        /// Which number.
        what: &'static str,
        /// What it is.
        value: u64,
        /// What it must be.
        range: &'static str,
    },
    /// What is on the drive is no such store, or is damaged.
    #[error("the drive holds no usable store: {0}")]
    Unusable(&'static str),
    /// A block without which a store cannot be opened right is damaged.
    #[error(
        "block {block} of the drive is damaged: it held {what}; the store was not opened and \
         none of it was changed: make it anew from a copy of it"
    )]
    DamagedBlock {
        /// Which block.
        block: u64,
        /// What it held.
        what: &'static str,
    },
    /// The drive is gone: nothing completes any more.
    #[error("the drive is gone")]
    Gone,
    /// An earlier write failed.
    #[error("the store has stopped after a failed write; open it again")]
    Stopped,
}

impl StoreError {
    pub(crate) fn drive(what: &'static str, status: Status) -> Result<(), StoreError> {
        if status.is_ok() || status == Status::HIGH_ECC {
            return Ok(());
        }
        Err(StoreError::Drive { what, status })
    }
}

/// What a store has completed.
#[derive(Debug)]
pub enum StoreDone {
    /// A page was read.
    Read {
        /// Which.
        page: u64,
        /// The buffer that was given, with the page if all went well.
        buffer: Buffer,
        /// How it went.
        result: Result<(), StoreError>,
    },
    /// A batch was written. It is durable after a flush.
    Write {
        /// Its number.
        id: u32,
        /// How it went.
        result: Result<(), StoreError>,
    },
    /// What completed before is durable.
    Flush {
        /// Its number.
        id: u32,
        /// How it went.
        result: Result<(), StoreError>,
    },
}

/// Where the host's time went, in ticks of the clock that the store was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticks {
    /// Giving commands to the drive and taking completions.
    pub submission: u64,
    /// Copying and sealing pages of batches, and entering them in a map.
    pub writing: u64,
    /// Checking pages that were read.
    pub reading: u64,
    /// Collection.
    pub collection: u64,
    /// Checkpoints.
    pub checkpoint: u64,
}

port::sums!(Ticks: submission, writing, reading, collection, checkpoint);

/// A clock that always shows zero: nothing is measured.
pub fn no_clock() -> u64 {
    0
}

/// Measures one thing after the other. The clock is read when something was
/// done: looking for work while there is none costs nobody anything.
struct Lap {
    clock: fn() -> u64,
    last: u64,
}

impl Lap {
    fn start(clock: fn() -> u64) -> Lap {
        Lap { clock, last: clock() }
    }

    /// Adds what has passed since the last lap to `ticks`, if something was
    /// done.
    #[inline]
    fn end(&mut self, worked: bool, ticks: &mut u64) {
        if worked {
            let now = (self.clock)();
            *ticks += now - self.last;
            self.last = now;
        }
    }
}

/// What keeps the tree's pages.
pub trait PageStore {
    /// How many pages there are.
    fn pages(&self) -> u64;

    /// Most pages of a batch.
    fn max_batch(&self) -> usize;

    /// How many pages a batch best has now, 1 to [`PageStore::max_batch`].
    fn best_batch(&self) -> usize {
        self.max_batch()
    }

    /// Whether there is room for another read now.
    fn can_read(&self) -> bool;

    /// Begins to read a page into a buffer of [`PAGE_BYTES`]. Gives the buffer
    /// back when there is no room for another read now.
    fn read(&mut self, page: u64, buffer: Buffer) -> Result<(), Buffer>;

    /// Whether there is room for a batch now.
    fn can_write(&self) -> bool;

    /// Gives pages up with the batch that is written next, which has none of them;
    /// both together are no more than [`PageStore::max_batch`]. The store need not
    /// keep them: read before it is written anew, one may be damaged. A store that
    /// does not look has nothing to do.
    fn give_up(&mut self, _pages: &[u64]) {}

    /// Writes a batch of different pages. `copy` is called once for each page,
    /// in order, to copy it; the first 8 bytes of the copy become its seal.
    ///
    /// # Panics
    /// Without room ([`PageStore::can_write`]), without pages or with too
    /// many.
    fn write(&mut self, id: u32, pages: &[u64], copy: &mut dyn FnMut(usize, &mut [u8]));

    /// Asks for what has completed to be durable. False when there is no room
    /// for it now.
    fn flush(&mut self, id: u32) -> bool;

    /// The blocks beside the pages, for a redo log. They are read as the pages
    /// from [`PageStore::pages`] on: one that was never written, or was trimmed, is
    /// [`StoreError::Unwritten`].
    fn beside(&self) -> Beside {
        Beside::default()
    }

    /// Says how many blocks are to be beside the pages, as page 0 has it. False
    /// when that is not as the store has it.
    fn expect_beside(&mut self, blocks: u64) -> bool {
        self.beside().blocks == blocks
    }

    /// Whether there is room for a write beside the pages now. There is one at a
    /// time.
    fn can_write_beside(&self) -> bool {
        false
    }

    /// Writes `count` of the blocks beside the pages, from number `at` on, the last
    /// followed by the first; `copy` is called as in [`PageStore::write`]. When it
    /// completes, as a [`StoreDone::Write`], they are durable. What a cut leaves of it
    /// is some of the blocks.
    ///
    /// # Panics
    /// Without room, or with more blocks than there are, or than a batch has pages.
    fn write_beside(
        &mut self,
        _id: u32,
        _at: u64,
        _count: usize,
        _copy: &mut dyn FnMut(usize, &mut [u8]),
    ) {
        unreachable!("the store has no blocks beside its pages")
    }

    /// Lets happen what is due at `now`, works, gives commands to the drive,
    /// and puts what completed into `done` while it has room. Time never goes
    /// back.
    fn poll(&mut self, now: Time, done: &mut Ring<StoreDone>);

    /// When to poll next, or `None` when only a command or, with a drive on
    /// another thread, a completion of it changes anything.
    fn next_event(&self) -> Option<Time>;

    /// Waits until there is reason to poll. Gives the time; `None` when there
    /// will be none.
    fn wait(&mut self) -> Option<Time>;

    /// Bytes of memory that grow with the number of pages or are for I/O.
    fn memory(&self) -> u64;

    /// Where the host's time went so far.
    fn ticks(&self) -> Ticks;

    /// What a log has done, if this is one.
    fn log(&self) -> Option<LogCounters> {
        None
    }
}

/// A store behind a reference or in a box is one, so that a tree can be compiled
/// once for all of them.
macro_rules! forwarded {
    ($store:ty) => {
        impl<S: PageStore + ?Sized> PageStore for $store {
            fn pages(&self) -> u64 {
                (**self).pages()
            }

            fn max_batch(&self) -> usize {
                (**self).max_batch()
            }

            fn best_batch(&self) -> usize {
                (**self).best_batch()
            }

            fn can_read(&self) -> bool {
                (**self).can_read()
            }

            fn read(&mut self, page: u64, buffer: Buffer) -> Result<(), Buffer> {
                (**self).read(page, buffer)
            }

            fn can_write(&self) -> bool {
                (**self).can_write()
            }

            fn give_up(&mut self, pages: &[u64]) {
                (**self).give_up(pages);
            }

            fn write(&mut self, id: u32, pages: &[u64], copy: &mut dyn FnMut(usize, &mut [u8])) {
                (**self).write(id, pages, copy);
            }

            fn flush(&mut self, id: u32) -> bool {
                (**self).flush(id)
            }

            fn beside(&self) -> Beside {
                (**self).beside()
            }

            fn expect_beside(&mut self, blocks: u64) -> bool {
                (**self).expect_beside(blocks)
            }

            fn can_write_beside(&self) -> bool {
                (**self).can_write_beside()
            }

            fn write_beside(
                &mut self,
                id: u32,
                at: u64,
                count: usize,
                copy: &mut dyn FnMut(usize, &mut [u8]),
            ) {
                (**self).write_beside(id, at, count, copy);
            }

            fn poll(&mut self, now: Time, done: &mut Ring<StoreDone>) {
                (**self).poll(now, done);
            }

            fn next_event(&self) -> Option<Time> {
                (**self).next_event()
            }

            fn wait(&mut self) -> Option<Time> {
                (**self).wait()
            }

            fn memory(&self) -> u64 {
                (**self).memory()
            }

            fn ticks(&self) -> Ticks {
                (**self).ticks()
            }

            fn log(&self) -> Option<LogCounters> {
                (**self).log()
            }
        }
    };
}
forwarded!(Box<S>);
forwarded!(&mut S);

/// Any store.
pub type AnyStore<'a> = Box<dyn PageStore + 'a>;
