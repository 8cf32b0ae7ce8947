//! Why a drive cannot have parity.

use flash::GeometryError;
use port::OutOfMemory;
use thiserror::Error;

use crate::layout::{MAX_WIDTH, MIN_WIDTH};

/// A drive that cannot have parity of this width.
#[derive(Debug, Error)]
pub enum ParityError {
    /// Too few or too many units to a superblock.
    #[error("parity across {0} units: it must be {MIN_WIDTH} to {MAX_WIDTH}")]
    Width(u32),
    /// The units do not come out even.
    #[error(
        "parity across {width} units, but the drive has {units}: take a width that divides {units}"
    )]
    Units {
        /// Units to a superblock.
        width: u32,
        /// Units of the drive.
        units: u32,
    },
    /// The drive makes recent writes wait before they can be read.
    #[error(
        "parity cannot be kept on a drive whose last {0} blocks of an open chunk are unreadable \
         (unreadable must be 0)"
    )]
    Unreadable(u32),
    /// The drive limits how many chunks are open; a superblock opens many.
    #[error(
        "parity cannot be kept on a drive that limits its open chunks (open_chunks and \
         open_chunks_pu must be none)"
    )]
    OpenChunks,
    /// The groups of units cannot be numbered.
    #[error(
        "{units} units in groups of {width} cannot be numbered in at most 256 groups of 256; \
         take a larger width"
    )]
    TooMany {
        /// Units to a superblock.
        width: u32,
        /// Units of the drive.
        units: u32,
    },
    /// A superblock is more than a chunk may be.
    #[error("a superblock across {width} units is too large: {source}; take a smaller width")]
    Superblock {
        /// Units to a superblock.
        width: u32,
        /// What is wrong with it.
        source: GeometryError,
    },
    /// No memory.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
}
