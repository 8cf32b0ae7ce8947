//! Files of a program on a drive: names, extents, a journal, and what a power cut leaves of them.
//! It looks at no clock and does no I/O of its own: [`Disk`] does it. [`Files`] is the file
//! system, [`Operation`] what a program does to it, [`Recorder`] a disk that can be cut.
#![forbid(unsafe_code)]

mod bag;
mod check;
mod data;
mod disk;
mod error;
mod extents;
mod files;
mod journal;
mod layout;
mod load;
mod memory;
mod metadata;
#[cfg(not(feature = "mutations"))]
mod mutation;
#[cfg(feature = "mutations")]
pub mod mutation;
mod names;
mod node;
pub mod operation;
mod options;
mod recorder;
mod sector;
mod space;
mod sync;
mod table;

pub use disk::{BLOCK, Disk, DiskError, Page, Request};
pub use error::FilesError;
pub use files::{Files, Stat, Type};
pub use layout::VERSION;
pub use memory::Memory;
pub use operation::{Inode, Kind, Operation};
pub use options::{Journal, Names, Options};
pub use recorder::{Fate, Recorder, SECTORS};
pub use sync::WriteBack;
