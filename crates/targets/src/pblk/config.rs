//! How a block target is set up.

use flash::{Dimensions, Geometry};
use ftl::Victim;
use port::BLOCK_BYTES;
use port::units::size_binary;
use thiserror::Error;

use super::meta::{ANCHORS, metadata_chunks};

/// Chunks of each parallel unit that hold nothing, all in all: free ones, what
/// is left of the two open ones, and what of the victim was moved. With three
/// there is always one for the user; the fourth is for what cuts spoil, which may
/// come again and again before a victim is moved.
const KEPT_CHUNKS: u32 = 4;

/// User rows gathered or on their way where nobody says how many, for each row that a
/// parallel unit programs at once: one being programmed, one queued behind it, and two
/// that are gathered or wait.
const ROWS_PER_UNIT: u64 = 4;

/// Fewest of these where nobody says how many, and where somebody does: more than
/// there are streams, each of which gathers one.
const FEW_ROWS: u64 = 16;
const FEWEST_ROWS: u64 = 8;

/// Bytes of a write buffer at most.
const MOST_BUFFER: u64 = 1 << 30;

/// The most streams of the user's writes.
pub const MAX_STREAMS: usize = 4;

/// Chunks of each parallel unit that hold nothing where the user's writes are in
/// so many streams: each beyond the first has one more open.
pub(super) fn kept_chunks(streams: u32) -> u32 {
    KEPT_CHUNKS + streams.saturating_sub(1)
}

/// Chunks that each parallel unit needs beyond those that hold data: for
/// collection, for roots, for the target's own blocks, and for more than one
/// stream of the user's writes. `dim.chunks` are those that hold data.
pub fn reserve_chunks(dim: &Dimensions, streams: u32) -> u32 {
    kept_chunks(streams) + ANCHORS + metadata_chunks(dim, dim.chunks)
}

/// Blocks that a target writes for itself before chunks with the first of them
/// are free again, of a drive whose chunks hold data: about as many of them
/// there are at a time.
pub fn own_blocks(data: &Dimensions) -> u64 {
    let pus = u64::from(data.groups) * u64::from(data.pus);
    u64::from(metadata_chunks(data, data.chunks) / 2) * pus * data.chunk_blocks()
}

/// Blocks that the chunks of a drive hold at a time, about and at most: those
/// for data, the target's own, and of a victim in each unit what has been moved.
pub fn held_blocks(data: &Dimensions) -> u64 {
    let units = u64::from(data.groups) * u64::from(data.pus);
    own_blocks(data) + u64::from(data.chunks + 1) * units * data.chunk_blocks()
}

/// Rows of a write buffer of so many bytes, 0 where nobody says, of a drive that takes
/// `rows_at_once` for each of its units.
pub(super) fn buffer_rows(bytes: u64, geometry: &Geometry, rows_at_once: u32) -> u64 {
    match bytes {
        0 => {
            let at_once = u64::from(geometry.total_pus()) * u64::from(rows_at_once);
            (ROWS_PER_UNIT * at_once).max(FEW_ROWS)
        }
        bytes => bytes / (u64::from(geometry.row_blocks()) * BLOCK_BYTES),
    }
}

/// Whether a write buffer can be of this size. With parity a row may wait for the others
/// of its stripe, so that it has as many as where nobody says.
pub(super) fn check_buffer(
    bytes: u64,
    geometry: &Geometry,
    rows_at_once: u32,
) -> Result<(), PblkError> {
    let row = u64::from(geometry.row_blocks()) * BLOCK_BYTES;
    let rows = if rows_at_once > 1 { buffer_rows(0, geometry, rows_at_once) } else { FEWEST_ROWS };
    let (least, most) = (rows * row, MOST_BUFFER.max(rows * row));
    if bytes > 0 && !(least..=most).contains(&bytes) {
        return Err(PblkError::Buffer { bytes, least, most, row });
    }
    Ok(())
}

/// The numbers of a drive with what [`reserve_chunks`] adds to those chunks
/// that hold data, for one stream.
pub fn with_reserve(data: Dimensions) -> Dimensions {
    Dimensions { chunks: data.chunks + reserve_chunks(&data, 1), ..data }
}

/// How a block target is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PblkConfig {
    /// Logical capacity in bytes; a multiple of 4096.
    pub bytes: u64,
    /// Chunks that hold data, in each parallel unit (T of the formulas, with
    /// `idle`). The geometry must have [`reserve_chunks`] more; what it has
    /// beyond that is kept free, too, until chunks are lost.
    pub data_chunks: u32,
    /// Blocks of these that hold none, in each parallel unit: T need not be whole
    /// chunks. Less than a chunk.
    pub idle: u32,
    /// Streams of the user's writes, 1 to [`MAX_STREAMS`]: a write's placement says
    /// in which it is, 0 where it says more than there are. Each is gathered in
    /// rows, and kept in chunks, of its own.
    pub streams: u32,
    /// Pages of the map, of 4 KiB, that the drive's memory holds at a time, at least
    /// [`LEAST_MAP_PAGES`](super::LEAST_MAP_PAGES); 0 for all.
    pub map_pages: u64,
    /// Bytes of the write buffer: of the rows in which the user's writes are gathered,
    /// and kept until they are programmed; what is no whole row is left out. At least 8
    /// rows, at most 1 GiB; 0 for four rows for each that a parallel unit programs at
    /// once, and 16 at least.
    pub write_buffer: u64,
    /// How long no request is inside, in ns, before it collects though it has room
    /// enough; 0 for never.
    pub idle_collection: u64,
    /// Which chunk is collected.
    pub victim: Victim,
    /// Seed of the policies that draw.
    pub seed: u64,
}

impl PblkConfig {
    /// One stream, the whole map in memory, the usual write buffer, collection by greed
    /// when there is need, and data in all blocks of the chunks for them.
    pub fn new(bytes: u64, data_chunks: u32, seed: u64) -> PblkConfig {
        PblkConfig {
            bytes,
            data_chunks,
            idle: 0,
            streams: 1,
            map_pages: 0,
            write_buffer: 0,
            idle_collection: 0,
            victim: Victim::Greedy,
            seed,
        }
    }

    /// Physical blocks of each parallel unit that hold data, in chunks of `size`.
    pub(super) fn unit_blocks(&self, size: u32) -> u64 {
        let blocks = u64::from(self.data_chunks) * u64::from(size);
        blocks.saturating_sub(u64::from(self.idle))
    }
}

/// A limit; all ones is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Most(pub u32);

impl std::fmt::Display for Most {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            u32::MAX => write!(f, "none"),
            most => write!(f, "{most}"),
        }
    }
}

/// A target that cannot be set up.
#[derive(Debug, Error)]
pub enum PblkError {
    /// Too few chunks for data and reserve.
    #[error(
        "a parallel unit has {chunks} chunks, but {data} for data and {reserve} in reserve \
         are needed; make the drive smaller or give it more chunks"
    )]
    TooFewChunks {
        /// What there is.
        chunks: u32,
        /// What data needs.
        data: u32,
        /// What is needed beyond.
        reserve: u32,
    },
    /// The logical capacity leaves no space to collect.
    #[error(
        "a capacity of {} does not fit in {} of flash with room to collect; raise spare or take \
         more chunks",
        size_binary(*bytes), size_binary(*space)
    )]
    NoSpare {
        /// The logical capacity.
        bytes: u64,
        /// What the data chunks hold.
        space: u64,
    },
    /// More blocks of the chunks for data are to hold none than a chunk has.
    #[error("{idle} idle blocks are a chunk of {size} or more: take fewer chunks for data")]
    Idle {
        /// What was asked for.
        idle: u32,
        /// Blocks of a chunk.
        size: u32,
    },
    /// Fewer chunks may be open than are written at a time.
    #[error(
        "{needed} chunks are open at a time, up to {needed_of_pu} of a parallel unit, but \
         open_chunks is {most} and open_chunks_pu {most_of_pu}; take fewer streams, or raise them"
    )]
    OpenChunks {
        /// Those that the drive allows in all.
        most: Most,
        /// Of a parallel unit.
        most_of_pu: Most,
        /// Those that are needed in all.
        needed: u32,
        /// Of a parallel unit.
        needed_of_pu: u32,
    },
    /// The capacity is not whole blocks, or zero.
    #[error("the capacity of {0} B is not a whole number of 4 KiB blocks above zero")]
    Capacity(u64),
    /// No stream, or too many.
    #[error("{0} streams cannot be kept apart: take 1 to {MAX_STREAMS}")]
    Streams(u32),
    /// A write buffer that cannot be so small, or so large.
    #[error(
        "a write buffer of {} cannot be: write_buffer takes auto, or {} to {} here, of which each \
         row is {}",
        size_binary(*bytes), size_binary(*least), size_binary(*most), size_binary(*row)
    )]
    Buffer {
        /// What was asked for.
        bytes: u64,
        /// Fewest bytes.
        least: u64,
        /// Most bytes.
        most: u64,
        /// Bytes of a row.
        row: u64,
    },
    /// A policy that draws nothing.
    #[error("victim d-choices:{0} must draw at least one chunk")]
    NoChoices(u32),
    /// Recovery met a device error.
    #[error("recovery could not use the drive: {0}")]
    Recovery(port::Status),
    /// A block cannot be read without which nothing can be found.
    #[error(
        "block {:#x} of the flash, which has what the drive needs to be opened, cannot be read: \
         {status}; what was on the drive is in copies alone", ppa.0
    )]
    Unread {
        /// The block.
        ppa: flash::Ppa,
        /// What was said of it.
        status: port::Status,
    },
    /// There was a checkpoint and no root of it is whole.
    #[error("the drive's checkpoint is damaged: what it held cannot be found any more")]
    Root,
    /// The log is damaged.
    #[error("the drive's log is damaged: what was trimmed is not known any more")]
    Log,
    /// Another version wrote the drive.
    #[error(
        "the drive was written by another version (checkpoint format {0}, this one reads 2): \
         use that version"
    )]
    Version(u64),
    /// The drive was made with another configuration.
    #[error(
        "the drive was made with another configuration ({found} logical blocks, not {config}): \
         open it with the one it was made with"
    )]
    Mismatch {
        /// Logical blocks that were found.
        found: u64,
        /// Logical blocks that were asked for.
        config: u64,
    },
    /// The chunks for roots are bad.
    #[error("the drive has no two good chunks for its checkpoints at the beginning of a unit")]
    Anchors,
    /// No memory.
    #[error(transparent)]
    Memory(#[from] port::OutOfMemory),
}

impl From<ftl::Halt> for PblkError {
    fn from(halt: ftl::Halt) -> PblkError {
        match halt {
            ftl::Halt::Stopped => PblkError::Recovery(port::Status::ABORTED),
            ftl::Halt::Memory(e) => e.into(),
        }
    }
}
