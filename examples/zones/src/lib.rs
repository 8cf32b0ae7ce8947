//! zones: the simplest block target that keeps the contract.
//!
//! A zone of the address space is a chunk of the drive. It is written from its
//! beginning to its end, in whole pages, and reset by a trim of all of it. So there
//! is no map, no collection, and nothing to recover but the chunks' write pointers.
//!
//! Guarantees: a write completes when it is programmed, a flush or FUA when that is
//! durable; what was not written since its zone's reset reads as zeros. A reset
//! waits for what is under way in its zone, and what comes later waits for it.
//!
//! Refused: a write that is not at its zone's write pointer, or to a zone of which
//! a program has failed, until that is reset; requests for parts of blocks, writes
//! of parts of pages or over the end of a zone, trims of parts of zones. Data that
//! grow old are the host's to move.

#[cfg(test)]
mod measured;
mod requests;
mod target;
#[cfg(test)]
mod tests;
mod zone;

use std::collections::VecDeque;

use device::{OpenChannel, VectorCmd, VectorDone};
use flash::Geometry;
use ftl::WriteCounters;
use port::{BlockDone, BlockReq, Ring, Shape, Slots};
use thiserror::Error;

use requests::Request;
use zone::Zone;

/// Requests that may be inside at once.
const DEPTH: usize = 64;

/// Blocks of the longest read or write.
const MAX_BLOCKS: usize = device::MAX_ADDRESSES;

/// How zones are set up.
#[derive(Clone, Copy, Debug)]
pub struct ZonesConfig {
    /// How many there are.
    pub zones: usize,
}

/// A target that cannot be set up.
#[derive(Debug, Error)]
pub enum ZonesError {
    /// There are fewer chunks, or no zone.
    #[error("{zones} zones are not from 1 to the drive's {chunks} chunks")]
    Zones {
        /// How many were asked for.
        zones: usize,
        /// How many there can be.
        chunks: usize,
    },
    /// The drive makes recent writes wait before they can be read.
    #[error("the last {0} blocks of an open chunk are unreadable on this drive; they must be 0")]
    Unreadable(u32),
    /// The drive limits how many chunks are open.
    #[error("this drive limits its open chunks: open_chunks and open_chunks_pu must be none")]
    OpenChunks,
}

ftl::cookies! {
    /// What a completion of the drive belongs to.
    #[derive(Clone, Copy, Debug)]
    enum Cookie {
        /// A part of a read or write: request, zone.
        Part(request: u32 = 16, zone: usize = 44),
        /// A zone's reset, for a request.
        Reset(request: u32 = 16, zone: usize = 44),
        /// The drive's flush for a request.
        Flush(request: u32 = 16),
        /// The drive's flush for the end.
        Close,
    }
}

/// Zones over an open-channel drive.
pub struct Zones<D> {
    device: D,
    geometry: Geometry,
    shape: Shape,
    zones: Vec<Zone>,
    requests: Slots<Request>,
    /// Requests that wait for a zone's reset, or for what is under way in theirs,
    /// and all that came behind the first of them.
    waiting: VecDeque<BlockReq>,
    closed: bool,
    out: Ring<VectorCmd>,
    device_done: Ring<VectorDone>,
    ready: Ring<BlockDone>,
    counters: WriteCounters,
}

impl<D: OpenChannel> Zones<D> {
    /// The zones as the write pointers say. That is all that is known of a drive,
    /// new or not.
    fn open(device: D, config: &ZonesConfig) -> Result<Zones<D>, ZonesError> {
        let geometry = *device.geometry();
        let (zones, chunks) = (config.zones, ftl::all_chunks(&geometry).count());
        if zones == 0 || zones > chunks {
            return Err(ZonesError::Zones { zones, chunks });
        }
        if device.timing().unreadable > 0 {
            return Err(ZonesError::Unreadable(device.timing().unreadable));
        }
        if device.timing().limits_open() {
            return Err(ZonesError::OpenChunks);
        }
        // Neighbours are in different units, which are written at once.
        let by_number = (0..geometry.chunks()).flat_map(|number| {
            geometry.pus_channels_first().map(move |pu| geometry.chunk_of(pu, number))
        });
        let zones: Vec<Zone> =
            by_number.take(zones).map(|chunk| Zone::found(chunk, &device)).collect();
        let block = port::BLOCK_BYTES;
        let shape = Shape {
            bytes: zones.len() as u64 * u64::from(geometry.chunk_blocks()) * block,
            kept: device.kept(),
            max_bytes: MAX_BLOCKS as u64 * block,
            depth: DEPTH,
        };
        // A part has at least a block, and a zone is reset once at a time.
        let commands = DEPTH * MAX_BLOCKS + zones.len() + 1;
        Ok(Zones {
            device,
            geometry,
            shape,
            zones,
            requests: Slots::new(DEPTH),
            waiting: VecDeque::with_capacity(DEPTH),
            closed: false,
            out: Ring::new(commands),
            device_done: Ring::new(commands),
            ready: Ring::new(DEPTH),
            counters: WriteCounters::default(),
        })
    }
}
