//! Flash: what a drive is made of.
//!
//! Geometry and packed addresses, chunk states and their rules, timings,
//! reliability, energy and profiles, and the media that keep the bytes. Nothing
//! here knows time or commands.

pub mod cache;
pub mod chunk;
mod divisor;
pub mod energy;
pub mod geometry;
pub mod link;
pub mod medium;
pub mod power;
pub mod profile;
pub mod queues;
mod quote;
pub mod reliability;
mod rows;
mod slabs;
pub mod slc;
pub mod timing;

pub use cache::ReadCache;
pub use chunk::{CHUNK_BYTES, Cause, Chunk, ChunkState, FailedRun, SINCE_BITS};
pub use energy::{Energy, EnergyCosts, EnergyCounts};
pub use geometry::{
    BlockBits, Dimensions, Geometry, GeometryError, MAX_ROW_BLOCKS, Ppa, block_bits,
};
pub use link::LinkTiming;
pub use medium::{Medium, Moved, RamMedium, TAG_BYTES, Tag};
pub use power::{MAX_SLEEP_STATES, Power, Sleep, Temperature};
pub use profile::{KeyError, Profile, ProfileError, Side};
pub use queues::{Arbitration, Class, Queues};
pub use reliability::{ErrorLevel, Reliability, Sensed};
pub use slc::{SlcCache, SlcSize};
pub use timing::{LONGEST_OPERATION, MultiPlane, Timing};
