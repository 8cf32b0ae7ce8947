//! The drive file: a medium that outlives its process, and its format.
//!
//! A [`DriveFile`] is a [`flash::Medium`] in a sparse file: the blocks, their
//! out-of-band tags, and the drive's chunk descriptors. `docs/formats.md`,
//! "Drive file", draws the bytes.
//!
//! Guarantees:
//! - what a [`barrier`](flash::Medium::barrier) covered is there when the file
//!   is opened again, whatever happened to the process or the host; what came
//!   after it is there or not, in each chunk a prefix of what was programmed;
//! - a block that was changed in any way since it was programmed is an error,
//!   never wrong data;
//! - a chunk that was reset keeps what it had until a sync that began after
//!   the reset has ended, so that what was moved out of it is never lost; and
//!   until the sync behind that has, so that damage of what came with the first
//!   takes nothing older along;
//! - what the disk cannot read is lost alone, where it is neither the header nor
//!   a chunk's descriptor;
//! - two processes cannot have one file open, unless both only read;
//! - a file that is being made has another name, and cannot be opened, until it
//!   is whole ([`Unfinished`]).
//!
//! It assumes that the system writes a sector of 512 bytes as a whole, that a
//! sync which succeeds is one, and that an error of writing back is told to
//! whoever has the file open, once. Nobody is told of one that a process met
//! which is gone: so what the disk has, not what the system remembers, is looked
//! at when a file is opened.
//! A full disk or a failed write is [`flash::Moved::Failed`], from then on for
//! everything that changes the drive, and [`DriveFile::error`] says why.

mod area;
mod away;
mod blocks;
mod claim;
mod copy;
mod descriptor;
#[cfg(any(test, feature = "disk"))]
pub mod disk;
mod entry;
mod error;
mod file;
mod file_io;
mod guarded;
mod header;
mod layout;
pub mod mutation;
mod open;
mod service;
mod states;
mod sync;
mod text;
mod unfinished;

pub use area::Area;
pub use copy::{clone, load, save};
pub use error::FileError;
pub use file::{DriveFile, Opened};
pub use file_io::{FileIo, SystemFile};
pub use header::{CacheMode, Header, MAX_TEXT, VERSION, is_begin};
pub use service::Wakes;
pub use text::ChangingText;
pub use unfinished::Unfinished;

#[cfg(test)]
mod tests;
