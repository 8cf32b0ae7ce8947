//! Parity across a superblock.
//!
//! [`Parity`] is an open-channel drive over another. It takes the parallel
//! units in groups of `width` and makes one unit of each; a chunk of it, a
//! *superblock*, is one chunk of each unit of the group. All but one of them
//! hold data, the last the exclusive or of their rows and tags. So what one
//! unit cannot give back is rebuilt from the others. A target needs to know
//! nothing of it. `docs/parity.md` has the picture and the argument.

mod catchup;
mod commands;
mod error;
mod layout;
pub mod mutation;
mod parity;
mod reads;
mod resets;
mod stripes;
mod superblock;
mod writes;

pub use error::ParityError;
pub use layout::{MAX_WIDTH, MIN_WIDTH, geometry};
pub use parity::{Parity, ParityCounters};
