//! What every translation layer needs and none should write again.
//!
//! [`runner`] is the drive during start-up: commands that are waited for.
//! [`Least`] finds the chunk with the fewest valid blocks, [`victim`] are the ways
//! to choose what is collected. [`cookies`] names what a completion belongs to,
//! [`mutations`] what can be broken on purpose.
//! [`bytes`] are the words and checksums of what is kept on flash.
//! [`Target`] is what a block target is to those above it, [`Start`] how one is made.
//! [`OneOf`] is a target of one of two kinds.

pub mod bytes;
pub mod cookie;
mod counters;
mod least;
mod one_of;
pub mod runner;
pub mod target;
pub mod victim;

use flash::Geometry;
use port::Status;

pub use counters::{MapCacheCounters, Memory, WriteCounters};
pub use least::Least;
pub use one_of::OneOf;
pub use runner::{Block, Ended, Halt, Job, Runner, pieces};
pub use target::{Over, Start, Target};
pub use victim::{Victim, VictimPolicy};

/// Whether a read gave the data: also one at the limit of what can be corrected.
#[inline]
pub fn is_read(status: Status) -> bool {
    status.is_ok() || status == Status::HIGH_ECC
}

/// All chunks of a drive, by [`Geometry::chunk_index`], unit by unit.
pub fn all_chunks(geometry: &Geometry) -> impl Iterator<Item = usize> + use<> {
    let geometry = *geometry;
    let of_pu = move |pu| (0..geometry.chunks()).map(move |n| geometry.chunk_of(pu, n));
    geometry.pus_channels_first().flat_map(of_pu)
}
