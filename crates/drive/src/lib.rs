//! Drives: by name, put together from layers, and found again.
//!
//! A name is a [`DriveSpec`]; a `mem:` drive or a drive file comes to a
//! [`DriveConfig`], which [`stack`] makes into layers: [`lower`] below the
//! target, [`whole`] above it, over a medium ([`backing`]). This is the one place
//! where targets, devices and parity are put together, and so the one that is
//! compiled for them; to all others a drive is one thing ([`whole::Drive`]).
//!
//! Drives in files are made and saved by [`image`] and found again by
//! [`restore`], those in memory after a power [`cut`](mod@cut). Things go wrong in a drive as [`fault_rules`] say. A drive may be
//! [`lent`], and what it does then is seen by [`live`], and [`told`]; [`chunk_map`] is all of its
//! chunks, and [`read`] says what is on one before anybody uses it. Fails as [`Error`] says.

pub mod activity;
pub mod array;
pub mod backing;
pub mod batched;
pub mod caches;
pub mod chunk_map;
pub mod cut;
pub mod energy;
pub mod error;
pub mod fault_rules;
pub mod flash_errors;
pub mod image;
pub mod kv;
pub mod lent;
pub mod live;
pub mod lower;
pub mod memory;
pub mod patience;
pub mod power;
pub mod read;
pub mod redundancy;
pub mod remote;
pub mod restore;
pub mod ruled;
pub mod say;
pub mod shared;
pub mod slc;
pub mod spec;
pub mod stack;
#[cfg(test)]
mod stories;
pub mod told;
#[cfg(test)]
mod turns;
pub mod whole;

pub use error::Error;
pub use spec::{DriveConfig, DriveSpec, MemorySpec};
