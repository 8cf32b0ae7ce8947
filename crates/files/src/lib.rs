//! Files of a program on a drive: names, extents, a journal, and what a power cut leaves of them.
//! It looks at no clock and does no I/O of its own.
#![forbid(unsafe_code)]

pub mod operation;

pub use operation::{Inode, Kind, Operation};
