//! Flash: what a drive is made of.
//!
//! Geometry and packed addresses, chunk states and their rules, timings and
//! profiles, and the media that keep the bytes. Nothing here knows time or commands.

pub mod chunk;
pub mod geometry;
pub mod medium;
pub mod profile;
pub mod timing;

pub use chunk::{Chunk, ChunkState};
pub use geometry::{Dimensions, Geometry, GeometryError, Ppa};
pub use medium::{Medium, Moved, RamMedium, TAG_BYTES, Tag};
pub use profile::{KeyError, LinkTiming, Profile, ProfileError, Side};
pub use timing::Timing;
