//! Why chunks cannot be handed out, or taken back.

use flash::GeometryError;
use thiserror::Error;

use crate::manager::MAX_TARGETS;

/// What cannot be handed out, or taken back.
#[derive(Debug, Error)]
pub enum MediaError {
    /// More targets than numbers for them.
    #[error("a drive has {MAX_TARGETS} targets at most")]
    TooMany,
    /// There is no such target.
    #[error("target {0} does not exist")]
    NoTarget(usize),
    /// It takes no requests by key.
    #[error("target {0} serves no keys: it has blocks, or does not serve")]
    NoKeys(usize),
    /// Something of it is still under way.
    #[error("target {0} has commands under way: it can be removed when these have ended")]
    Busy(usize),
    /// The drive has no next event, with commands inside.
    #[error("the drive stopped answering")]
    Stopped,
    /// No unit, or no chunk.
    #[error("a target needs a parallel unit and a chunk of each at least")]
    Empty,
    /// A unit that the drive does not have.
    #[error("unit {unit} is not one of the drive's {units}")]
    Unit {
        /// Its number.
        unit: u32,
        /// Units of the drive.
        units: u32,
    },
    /// A unit was named twice.
    #[error("unit {0} was named twice")]
    Twice(u32),
    /// Chunks that the drive does not have.
    #[error("chunks {first} to {last} of each unit are more than the drive's {chunks}")]
    Chunks {
        /// The first.
        first: u32,
        /// The last.
        last: u32,
        /// Chunks of a unit.
        chunks: u32,
    },
    /// A chunk is another's.
    #[error("chunk {chunk} of unit {unit} belongs to target {owner}")]
    Taken {
        /// The unit.
        unit: u32,
        /// Its chunk.
        chunk: u32,
        /// Whose it is.
        owner: usize,
    },
    /// A chunk of a target that was removed is not erased yet.
    #[error("chunk {chunk} of unit {unit} is being erased, as its target was removed")]
    Erasing {
        /// The unit.
        unit: u32,
        /// Its chunk.
        chunk: u32,
    },
    /// A chunk holds what nobody knows of.
    #[error("chunk {chunk} of unit {unit} is written: it has to be erased first, and could not be")]
    Written {
        /// The unit.
        unit: u32,
        /// Its chunk.
        chunk: u32,
    },
    /// The chunks that may be open are all promised to others.
    #[error("{asked} open chunks are more than the {left} that others leave")]
    OpenChunks {
        /// What was asked for.
        asked: u32,
        /// What there is.
        left: u32,
    },
    /// Nobody counts what an application has open.
    #[error("a drive that limits its open chunks has no direct targets, as nobody counts theirs")]
    DirectOpenChunks,
    /// Parts that do not come out even.
    #[error("{count} {what} cannot be shared evenly by {parts} targets: take a divisor of {count}")]
    Uneven {
        /// Of what.
        what: &'static str,
        /// How many there are.
        count: u32,
        /// How many targets.
        parts: u32,
    },
    /// Addresses are another's.
    #[error("addresses {first} to {end} belong to another target, or some of them")]
    Addresses {
        /// The first.
        first: u64,
        /// The one behind the last.
        end: u64,
    },
    /// The commands that may be inside at once are all promised to others.
    #[error("{asked} commands at once are more than the {left} that others leave")]
    Depth {
        /// What was asked for.
        asked: usize,
        /// What there is.
        left: usize,
    },
    /// What would be handed out is no geometry.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
}
