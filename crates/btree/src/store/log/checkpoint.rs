//! Checkpoints of the map.
//!
//! The map is written to one of two areas in turn, piece by piece while it
//! changes; then, after a flush, the header that names it, to one of two
//! blocks in turn; then a flush. After that the segments that had been dead
//! when it began are trimmed, and free after the next flush.

use port::{BlockDone, BlockOp, BlockReq, Buffer, Time};
use xxhash_rust::xxh3::Xxh3;

use super::format::{CheckpointHeader, Place};
use super::{LEAST_ROOM, LogStore, RESERVE, State, Task};
use crate::page::PAGE_BYTES;
use crate::store::StoreError;
use crate::store::awaited::Awaited;
use crate::store::blocks::buffer;

/// Blocks of the map that are written at once.
pub(super) const PART: u64 = 32;

/// Parts on their way at once.
const PARTS: usize = 2;

/// Bytes of memory for checkpoints.
pub(super) const MEMORY: u64 = (PARTS as u64 * PART + 1) * PAGE_BYTES as u64;

/// Entries of the map in a block.
pub(super) const ENTRIES: u64 = PAGE_BYTES as u64 / 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Map,
    MapFlush,
    Header,
    HeaderFlush,
}

/// The checkpoint under way, and the last one.
pub(super) struct Checkpoint {
    phase: Phase,
    /// Number of the last one that was begun, and that is durable.
    begun: u64,
    durable: u64,
    /// Where opening begins to read records.
    start: Place,
    next: u32,
    entries: u64,
    /// Blocks of the map that were given to the drive.
    written: u64,
    sum: Xxh3,
    buffers: Vec<Buffer>,
    header: Option<Buffer>,
    /// When the last one began.
    at: Time,
    forced: bool,
}

impl Checkpoint {
    pub(super) fn new(start: Place) -> Result<Checkpoint, StoreError> {
        let buffers = (0..PARTS).map(|_| buffer(PART as usize * PAGE_BYTES));
        Ok(Checkpoint {
            phase: Phase::Idle,
            begun: 0,
            durable: 0,
            start,
            next: 0,
            entries: 0,
            written: 0,
            sum: Xxh3::new(),
            buffers: buffers.collect::<Result<_, _>>()?,
            header: Some(buffer(PAGE_BYTES)?),
            at: Time::ZERO,
            forced: false,
        })
    }

    pub(super) fn begun(&self) -> u64 {
        self.begun
    }

    pub(super) fn is_durable(&self) -> bool {
        self.durable == self.begun
    }

    /// Whether none is under way, or wanted at once.
    pub(super) fn is_idle(&self) -> bool {
        self.phase == Phase::Idle && !self.forced
    }

    /// Goes on from the checkpoint `number`; another is wanted at once.
    pub(super) fn resume(&mut self, number: u64, now: Time) {
        (self.begun, self.durable, self.at) = (number, number, now);
        self.forced = true;
    }
}

impl<D: Awaited<Cmd = BlockReq, Done = BlockDone>> LogStore<D> {
    /// When the next checkpoint begins by itself; `None` without reason, or
    /// while one is under way.
    pub(super) fn checkpoint_due(&self) -> Option<Time> {
        let reason = self.head.seq != self.checkpoint.start.seq;
        let idle = self.checkpoint.phase == Phase::Idle;
        let due = Time(self.checkpoint.at.0.saturating_add(self.config.checkpoint_every));
        (self.config.durable && self.failed.is_none() && reason && idle).then_some(due)
    }

    /// Whether dead segments are wanted that wait for a checkpoint.
    fn is_scarce(&self) -> bool {
        let low = RESERVE + 2 + self.segments.len() / 16;
        let last = self.checkpoint.durable;
        let waits = |&segment: &u32| self.died(segment).is_some_and(|at| at >= last);
        self.free.len() <= low && self.dead.back().is_some_and(waits)
    }

    /// How many checkpoints had begun when a segment died.
    fn died(&self, segment: u32) -> Option<u64> {
        match self.segments[segment as usize].state {
            State::Dead(at) => Some(at),
            _ => None,
        }
    }

    /// Goes on with the checkpoint: a part at most. False when there was nothing
    /// to do.
    pub(super) fn checkpoint_work(&mut self) -> bool {
        let before = self.blocks.room();
        self.release();
        self.flush_trims();
        let due = self.checkpoint_due().is_some_and(|at| at <= self.blocks.now());
        if self.checkpoint.phase == Phase::Idle
            && (due || self.checkpoint.forced || self.is_scarce())
        {
            self.begin_checkpoint();
        }
        if self.checkpoint.phase == Phase::Map {
            self.write_part();
        }
        self.blocks.room() < before
    }

    fn begin_checkpoint(&mut self) {
        let checkpoint = &mut self.checkpoint;
        checkpoint.phase = Phase::Map;
        checkpoint.forced = false;
        checkpoint.begun += 1;
        checkpoint.start = self.records.front().map_or(self.head, |record| record.place);
        checkpoint.next = self.next;
        checkpoint.entries = self.mapped;
        checkpoint.written = 0;
        checkpoint.sum = Xxh3::new();
        checkpoint.at = self.blocks.now();
        self.counters.checkpoints += 1;
    }

    /// Gives the next part of the map to the drive, or ends the map.
    fn write_part(&mut self) {
        let checkpoint = &mut self.checkpoint;
        let total = checkpoint.entries.div_ceil(ENTRIES);
        let left = total - checkpoint.written;
        if left == 0 {
            if checkpoint.buffers.len() == PARTS && self.blocks.room() > 4 {
                checkpoint.phase = Phase::MapFlush;
                self.begin_flush(Task::CheckpointFlush);
            }
            return;
        }
        if self.blocks.room() <= 4 {
            return;
        }
        let Some(mut buffer) = checkpoint.buffers.pop() else { return };
        let count = left.min(PART);
        let from = (checkpoint.written * ENTRIES) as usize;
        let bytes = &mut buffer.bytes_mut()[..count as usize * PAGE_BYTES];
        for (i, to) in bytes.chunks_exact_mut(4).enumerate() {
            let entry = self.map.get(from + i).copied().unwrap_or(0);
            to.copy_from_slice(&entry.to_le_bytes());
        }
        checkpoint.sum.update(bytes);
        let block = self.layout.area(checkpoint.begun) + checkpoint.written;
        checkpoint.written += count;
        self.counters.checkpoint_blocks += count;
        let front = buffer.split_to(count as usize * PAGE_BYTES);
        if !buffer.is_empty() {
            self.part_rest = Some(buffer);
        }
        self.blocks.transfer(BlockOp::Write, block, front, Task::CheckpointPart);
    }

    /// Something of a checkpoint has completed.
    pub(super) fn checkpoint_step(
        &mut self,
        task: Task,
        result: Result<(), StoreError>,
        mut buffer: Buffer,
    ) {
        if let Err(error) = result {
            self.fail(error);
        }
        match (task, self.checkpoint.phase) {
            (Task::CheckpointPart, _) => {
                if buffer.len() < PART as usize * PAGE_BYTES {
                    let rest = self.part_rest.take().expect("the last part's end was kept");
                    let joined = buffer.join(rest);
                    assert!(joined.is_ok(), "they adjoin");
                }
                self.checkpoint.buffers.push(buffer);
                return;
            }
            (Task::CheckpointHeader, _) => self.checkpoint.header = Some(buffer),
            _ => {}
        }
        if self.failed.is_some() {
            return;
        }
        match self.checkpoint.phase {
            Phase::MapFlush => self.write_header(),
            Phase::Header => {
                self.checkpoint.phase = Phase::HeaderFlush;
                self.begin_flush(Task::CheckpointFlush);
            }
            Phase::HeaderFlush => {
                self.checkpoint.phase = Phase::Idle;
                self.checkpoint.durable = self.checkpoint.begun;
            }
            Phase::Idle | Phase::Map => unreachable!("nothing was asked for"),
        }
    }

    fn write_header(&mut self) {
        let checkpoint = &mut self.checkpoint;
        checkpoint.phase = Phase::Header;
        let header = CheckpointHeader {
            segment_blocks: self.layout.segment_blocks,
            number: checkpoint.begun,
            epoch: self.epoch,
            entries: checkpoint.entries,
            sum: checkpoint.sum.digest(),
            start: checkpoint.start,
            next: checkpoint.next,
            blocks: self.layout.blocks,
            beside: self.layout.beside.blocks,
        };
        let mut buffer = checkpoint.header.take().expect("it is not on its way");
        header.write(buffer.bytes_mut());
        let block = checkpoint.begun & 1;
        self.counters.checkpoint_blocks += 1;
        self.blocks.transfer(BlockOp::Write, block, buffer, Task::CheckpointHeader);
    }

    /// Trims dead segments that no checkpoint that opening may read names.
    fn release(&mut self) {
        while let Some(&segment) = self.dead.front() {
            let free = self.died(segment).is_some_and(|at| at < self.checkpoint.durable);
            let entry = &mut self.segments[segment as usize];
            if !free || entry.reads > 0 || self.blocks.room() <= LEAST_ROOM {
                return;
            }
            entry.state = State::Trimming;
            self.dead.pop_front();
            self.trimming += 1;
            let block = self.layout.block(Place { segment, ..Place::default() });
            let count = u64::from(self.layout.segment_blocks);
            self.blocks.command(BlockOp::Trim, block, count, Task::Trim(segment));
        }
    }

    /// Makes trims durable when all have come back, if no other flush does.
    fn flush_trims(&mut self) {
        let waits = self.trimming == 0 && self.flushing < self.trims;
        if waits && self.blocks.room() > 4 {
            self.begin_flush(|covered| Task::Flush(None, covered));
        }
    }
}
