//! How a drive is made, is found again after a cut, and what is told of it.
//!
//! Guarantees: what was in flight when power went never happened; a chunk whose erase
//! may not have ended is erased. Fails for want of memory.

use std::collections::VecDeque;

use flash::{Chunk, ChunkState, Geometry, Medium, Reliability, TAG_BYTES, Timing};
use port::lazy::table;
use port::{Buffer, OutOfMemory, Ring, Slots};
use xxhash_rust::xxh3::Xxh3;

use super::flaws::{self, Flaws};
use super::{Command, Counters, Device, MAX_COPIES, MAX_DEPTH, most_ops};
use crate::command::{MAX_ADDRESSES, VectorDone};
use crate::opened::Opened;
use crate::units::Units;

impl<M: Medium> Device<M> {
    /// A drive with all chunks free.
    pub fn new(geometry: &Geometry, timing: &Timing, medium: M) -> Result<Device<M>, OutOfMemory> {
        let ops = most_ops(geometry);
        let slots = geometry.chunk_slots();
        let kept = medium.kept();
        let copy_bytes = MAX_ADDRESSES * (kept as usize + TAG_BYTES);
        let mut device = Device {
            geometry: *geometry,
            chunks: table(Chunk::default(), slots, "the drive's chunks")?,
            whole: table(0, slots.div_ceil(64), "the drive's chunks")?,
            erasing: table(0, slots.div_ceil(64), "the drive's chunks")?,
            opened: Opened::new(geometry, timing)?,
            instant: timing.is_instant(),
            closely: false,
            cliff: timing.endurance,
            flaws: Box::new(Flaws::new(Units::slots(geometry, timing))),
            units: Units::new(geometry, timing, ops)?,
            commands: Slots::new(MAX_DEPTH),
            ready: Ring::new(MAX_DEPTH),
            copy_buffers: Buffer::carve(MAX_COPIES, copy_bytes)?,
            copied_row: Buffer::empty(),
            flushes: VecDeque::new(),
            on_a_clock: false,
            gives_nothing: kept == 0 && medium.reads_nothing_at_once(),
            medium,
            kept,
            counters: Counters::default(),
        };
        device.prepare_copies()?;
        Ok(device)
    }

    /// Bytes of memory that the tables of such a drive take, those of its medium
    /// apart.
    pub fn tables(geometry: &Geometry, timing: &Timing) -> u64 {
        let slots = geometry.chunk_slots() as u64;
        let chunks = slots * size_of::<Chunk>() as u64 + 2 * slots.div_ceil(64) * 8;
        let commands = MAX_DEPTH * (size_of::<Command>() + 4 + size_of::<VectorDone>());
        let outcomes = Units::slots(geometry, timing) * size_of::<flaws::Outcome>();
        let units = Units::tables(geometry, timing, most_ops(geometry));
        chunks + (commands + outcomes) as u64 + units + Opened::tables(geometry, timing)
    }

    /// A drive that errs as `reliability` says, its draws decided by `seed`.
    /// The chunks that are bad from the factory are offline, the others free.
    pub fn with(
        geometry: &Geometry,
        timing: &Timing,
        reliability: &Reliability,
        seed: u64,
        medium: M,
    ) -> Result<Device<M>, OutOfMemory> {
        let mut device = Device::new(geometry, timing, medium)?;
        device.set_model(reliability, seed);
        device.leave_factory();
        (0..device.chunks.len()).for_each(|index| device.note_free(index));
        Ok(device)
    }

    /// What it has done so far.
    pub fn counters(&self) -> Counters {
        let (shared, joined) = self.units.shared_reads();
        let reads = self.counters.reads - shared;
        Counters { reads, suspends: self.units.suspends, shared, joined, ..self.counters }
    }

    /// Whether its time is a clock's. If not, time stands still while the
    /// medium has not moved the bytes of an operation or flush, so that its
    /// completion does not depend on how long that took. On a clock only what
    /// waits is late: the medium is asked again a little later, and all else
    /// goes on.
    pub fn set_on_a_clock(&mut self, on_a_clock: bool) {
        self.on_a_clock = on_a_clock;
    }

    /// The medium.
    pub fn medium(&self) -> &M {
        &self.medium
    }

    /// The medium, to be told how it is to err. Its bytes are the drive's.
    pub fn medium_mut(&mut self) -> &mut M {
        &mut self.medium
    }

    /// Power goes: what was in flight is lost, the medium keeps what was
    /// programmed.
    pub fn cut(self) -> M {
        self.medium
    }

    /// A drive made again from a medium and the chunks' descriptors, as after
    /// a power cut. Writes that were in flight never happened.
    pub fn restore(
        geometry: &Geometry,
        timing: &Timing,
        medium: M,
        chunks: &[Chunk],
    ) -> Result<Device<M>, OutOfMemory> {
        Device::restore_with(geometry, timing, &Reliability::default(), 0, medium, chunks)
    }

    /// The same of a drive that errs. Its data keep their age where the medium
    /// kept the drive's time, or its clock goes on from where it was; see
    /// [`Device::let_time_pass`].
    pub fn restore_with(
        geometry: &Geometry,
        timing: &Timing,
        reliability: &Reliability,
        seed: u64,
        medium: M,
        chunks: &[Chunk],
    ) -> Result<Device<M>, OutOfMemory> {
        let mut device = Device::new(geometry, timing, medium)?;
        assert_eq!(chunks.len(), device.chunks.len(), "descriptors of the same geometry");
        device.chunks.copy_from_slice(chunks);
        let size = geometry.chunk_blocks();
        for chunk in &mut device.chunks {
            let closed_early = chunk.is_closed_early(size);
            chunk.wp = chunk.programmed;
            if chunk.state != ChunkState::Offline {
                chunk.state = match chunk.wp {
                    0 => ChunkState::Free,
                    wp if wp == size || closed_early => ChunkState::Closed,
                    _ => ChunkState::Open,
                };
            }
            if chunk.programmed == 0 {
                // Its erase may not have ended before the cut.
                chunk.erased();
            }
        }
        (0..chunks.len()).for_each(|index| {
            device.note_whole(index);
            device.note_free(index);
        });
        if chunks.iter().any(Chunk::has_failed) {
            device.look_closely();
        }
        device.set_model(reliability, seed);
        device.resume_clock();
        Ok(device)
    }

    /// All chunk descriptors, by [`Geometry::chunk_index`].
    pub fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }

    /// A hash of all chunk descriptors and counters: equal where two runs were
    /// equal.
    pub fn state_hash(&self) -> u64 {
        let mut hash = Xxh3::new();
        for c in &self.chunks {
            for word in [c.state as u32, c.wp, c.programmed, c.wear] {
                hash.update(&word.to_le_bytes());
            }
        }
        let c = self.counters();
        for word in [c.reads, c.programs, c.erases, c.blocks_read, c.blocks_programmed, c.suspends]
        {
            hash.update(&word.to_le_bytes());
        }
        self.flaw_words().for_each(|word| hash.update(&word.to_le_bytes()));
        hash.digest()
    }
}
