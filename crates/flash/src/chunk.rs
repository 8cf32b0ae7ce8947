//! Chunk states and the rules of flash.
//!
//! The rules are those of the thesis, chapter 2.2 and 6: (C1) reads and writes
//! are whole units, (C2) a chunk is erased before it is written again, (C3)
//! writes go in order, (C4) erases wear it out. (C5) and (C6), what runs in
//! parallel and what does not, are the scheduler's.
//!
//! A chunk also remembers what must outlive a restart for its errors to be
//! right: which of its programs failed, since when it holds data, how often it
//! was read. It is 32 bytes, in memory and, by [`Chunk::to_bytes`], in a file.

use port::Status;
use thiserror::Error;

use crate::{BlockBits, ErrorLevel, MAX_ROW_BLOCKS, block_bits};

/// Failed programs that a chunk remembers; the next closes it early.
pub const MAX_FAILED: usize = 2;

/// Bytes of [`Chunk::to_bytes`].
pub const CHUNK_BYTES: usize = 32;

/// The unit of [`Chunk::since`]: 2^26 ns of drive time, 67 ms, so that 32 bits
/// hold nine years.
pub const SINCE_BITS: u32 = 26;

/// The state of a chunk, numbered as in the chunk descriptor of Open-Channel
/// SSD 2.0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum ChunkState {
    /// Erased, nothing written.
    #[default]
    Free = 1,
    /// Written to its end.
    Closed = 2,
    /// Written in part.
    Open = 4,
    /// Given up.
    Offline = 8,
}

impl ChunkState {
    /// The state of that number.
    pub fn from_number(number: u8) -> Option<ChunkState> {
        [ChunkState::Free, ChunkState::Closed, ChunkState::Open, ChunkState::Offline]
            .into_iter()
            .find(|&state| state as u8 == number)
    }
}

/// Why a chunk is offline, numbered as in [`Chunk::to_bytes`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Cause {
    /// It is not; or it is, and was kept by a format that did not say why.
    #[default]
    Untold = 0,
    /// It was bad from the factory.
    Factory = 1,
    /// It grew bad: an erase failed, or its endurance was at its end.
    Grown = 2,
    /// The target gave it up, as programs in it failed.
    Retired = 3,
}

impl Cause {
    /// The cause of that number.
    pub fn from_number(number: u8) -> Option<Cause> {
        [Cause::Untold, Cause::Factory, Cause::Grown, Cause::Retired]
            .into_iter()
            .find(|&cause| cause as u8 == number)
    }
}

/// Neighbouring blocks whose program failed: at most a row's, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FailedRun(u32);

impl FailedRun {
    /// `count` blocks, 1 to [`MAX_ROW_BLOCKS`], from `block` on, which is below 2^25.
    pub fn new(block: u32, count: u32) -> FailedRun {
        debug_assert!(block < 1 << 25 && (1..=MAX_ROW_BLOCKS).contains(&count));
        FailedRun(block << 7 | count)
    }

    /// The first of them.
    pub fn block(self) -> u32 {
        self.0 >> 7
    }

    /// How many they are.
    pub fn count(self) -> u32 {
        self.0 & 0x7f
    }
}

/// What the drive knows of one chunk. Aligned, so that it is in one line of the
/// processor's caches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(align(32))]
pub struct Chunk {
    /// Its state.
    pub state: ChunkState,
    /// Write pointer: the next block that a write must begin at.
    pub wp: u32,
    /// Blocks that are programmed: at most `wp`, less by what is on its way.
    pub programmed: u32,
    /// Erases so far.
    pub wear: u32,
    /// Array reads since its erase, where errors are modelled.
    pub reads: u32,
    /// When its first block was programmed, in units of 2^[`SINCE_BITS`] ns of
    /// drive time, where errors are modelled.
    pub since: u32,
    /// Blocks below `programmed` that cannot be read: their programs failed. Of a chunk
    /// that stands for several they may be the first of more.
    pub failed: [FailedRun; MAX_FAILED],
    /// The worst that its reads came to since its erase, as far as the drive
    /// has said so.
    pub level: ErrorLevel,
    /// Whether the drive has said that it is worn more than the others.
    pub worn: bool,
    /// Why it is offline, if it is: [`Chunk::why_offline`].
    pub cause: Cause,
}

/// Bytes that describe no chunk.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{field} of a chunk descriptor, at byte {at}, is {value}: it must be {range}")]
pub struct ChunkError {
    /// Which field.
    pub field: &'static str,
    /// Where it is.
    pub at: usize,
    /// What it holds.
    pub value: u32,
    /// What it may hold.
    pub range: &'static str,
}

impl Chunk {
    /// Takes a write of `count` blocks at `block`, or says which rule it
    /// breaks. `unit` is the smallest write, `size` the chunk's blocks.
    #[inline]
    pub fn write(&mut self, block: u32, count: u32, unit: u32, size: u32) -> Result<(), Status> {
        match self.state {
            ChunkState::Offline => return Err(Status::OFFLINE_CHUNK),
            ChunkState::Closed => return Err(Status::OUT_OF_ORDER_WRITE),
            ChunkState::Free | ChunkState::Open => {}
        }
        if block != self.wp {
            return Err(Status::OUT_OF_ORDER_WRITE);
        }
        if count == 0 || !count.is_multiple_of(unit) || count > size - self.wp {
            return Err(Status::INVALID_FIELD);
        }
        self.wp += count;
        self.state = if self.wp == size { ChunkState::Closed } else { ChunkState::Open };
        Ok(())
    }

    /// Takes note that `count` more blocks are programmed.
    #[inline]
    pub fn program(&mut self, count: u32) {
        self.programmed += count;
        debug_assert!(self.programmed <= self.wp);
    }

    /// How many blocks from its start can be read: all that are programmed, but of
    /// an open chunk not the last `window` of these (mw_cunits of Open-Channel SSD
    /// 2.0, in logical blocks of a chunk).
    #[inline]
    pub fn readable(&self, window: u32) -> u32 {
        match self.state {
            ChunkState::Offline => 0,
            ChunkState::Open => self.programmed.saturating_sub(window),
            ChunkState::Free | ChunkState::Closed => self.programmed,
        }
    }

    /// Whether `count` blocks at `block` are [readable](Self::readable).
    #[inline]
    pub fn read(&self, block: u32, count: u32, window: u32) -> Result<(), Status> {
        if self.state == ChunkState::Offline {
            return Err(Status::OFFLINE_CHUNK);
        }
        if block + count > self.readable(window) { Err(Status::UNWRITTEN) } else { Ok(()) }
    }

    /// Takes note that the program of `count` blocks at `block` failed. True
    /// when the chunk goes on: the blocks count as programmed and cannot be
    /// read. Else it is closed early, at what was programmed so far, and this
    /// program and all behind it were never taken; each is to be given here.
    pub fn fail(&mut self, block: u32, count: u32) -> bool {
        let free = self.failed.iter_mut().find(|run| run.count() == 0);
        match free {
            Some(free) if block == self.programmed => {
                *free = FailedRun::new(block, count);
                self.program(count);
                true
            }
            _ => {
                self.state = ChunkState::Closed;
                self.wp -= count;
                false
            }
        }
    }

    /// Which of `count` blocks at `block`, at most [`MAX_ROW_BLOCKS`], cannot be
    /// read as their programs failed: bit `i` stands for block `i`.
    pub fn failed_of(&self, block: u32, count: u32) -> BlockBits {
        let of = |run: &FailedRun| {
            let from = run.block().max(block);
            let end = (run.block() + run.count()).min(block + count);
            if from < end { block_bits((from - block) as usize, (end - from) as usize) } else { 0 }
        };
        self.failed.iter().map(of).fold(0, |all, bits| all | bits)
    }

    /// Whether any of its programs failed that it remembers.
    pub fn has_failed(&self) -> bool {
        self.failed.iter().any(|run| run.count() > 0)
    }

    /// Whether a failed program closed it before its end. `size` is the
    /// chunk's blocks.
    pub fn is_closed_early(&self, size: u32) -> bool {
        self.state == ChunkState::Closed && self.wp < size
    }

    /// Whether a program of it failed: one that it remembers, or one of which it
    /// shows only that it was closed, as over parity, where the data are all
    /// there. It is written and erased no more. `size` is the chunk's blocks.
    pub fn is_spoilt(&self, size: u32) -> bool {
        self.has_failed() || self.is_closed_early(size)
    }

    /// Its age at `now`, in ns: how long its oldest data are there.
    pub fn age(&self, now: u64) -> u64 {
        now.saturating_sub(u64::from(self.since) << SINCE_BITS)
    }

    /// Takes note that its first block was programmed at `now`, in ns.
    pub fn begin(&mut self, now: u64) {
        self.since = u32::try_from(now >> SINCE_BITS).unwrap_or(u32::MAX);
    }

    /// Takes note that the erase of a reset is over: what was known of the
    /// data is no more.
    pub fn erased(&mut self) {
        (self.reads, self.since) = (0, 0);
        (self.failed, self.level) = (Default::default(), ErrorLevel::Fine);
    }

    /// Whether it remembers anything beyond states and erases.
    pub fn has_history(&self) -> bool {
        let rest = Chunk { state: self.state, cause: self.cause, ..Chunk::default() };
        *self != Chunk { wp: self.wp, programmed: self.programmed, wear: self.wear, ..rest }
    }

    /// Why it is offline, if it is. Where nothing was told, one that was never
    /// erased was bad from the factory, and others are taken to have grown bad.
    pub fn why_offline(&self) -> Option<Cause> {
        match (self.state, self.cause) {
            (ChunkState::Offline, Cause::Untold) if self.wear == 0 => Some(Cause::Factory),
            (ChunkState::Offline, Cause::Untold) => Some(Cause::Grown),
            (ChunkState::Offline, cause) => Some(cause),
            _ => None,
        }
    }

    /// It is bad from the factory.
    pub fn leave_factory_bad(&mut self) {
        (self.state, self.cause) = (ChunkState::Offline, Cause::Factory);
    }

    /// All of it, little-endian: byte 0 state, 1 level, 2 whether worn, 3 why
    /// it is offline; then 32-bit words: wp, programmed, wear, reads, since, and for
    /// each failed run its first block times 128 plus its count. Failed runs of
    /// data that an erase on its way takes are left out: they are not among the
    /// programmed blocks.
    pub fn to_bytes(&self) -> [u8; CHUNK_BYTES] {
        let mut bytes = [0; CHUNK_BYTES];
        let small = [self.state as u8, self.level as u8, self.worn.into(), self.cause as u8];
        bytes[..4].copy_from_slice(&small);
        for (to, word) in bytes[4..].chunks_exact_mut(4).zip(self.words()) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Reads what [`Chunk::to_bytes`] wrote. Fails on anything that no chunk
    /// is; whether it fits the geometry is the caller's to see.
    pub fn from_bytes(bytes: &[u8; CHUNK_BYTES]) -> Result<Chunk, ChunkError> {
        let wrong = |field, at, value, range| ChunkError { field, at, value, range };
        let word = |n: usize| {
            let bytes = &bytes[4 + 4 * n..][..4];
            bytes.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte))
        };
        let number = |at: usize| u32::from(bytes[at]);
        let state = ChunkState::from_number(bytes[0])
            .ok_or_else(|| wrong("state", 0, number(0), "1, 2, 4 or 8"))?;
        let level = ErrorLevel::from_number(bytes[1])
            .ok_or_else(|| wrong("level", 1, number(1), "0 to 4"))?;
        if bytes[2] > 1 {
            return Err(wrong("worn", 2, number(2), "0 or 1"));
        }
        let cause = Cause::from_number(bytes[3])
            .filter(|&cause| cause == Cause::Untold || state == ChunkState::Offline)
            .ok_or_else(|| wrong("cause", 3, number(3), "0, or 1 to 3 of an offline chunk"))?;
        let [wp, programmed, wear, reads, since] = [0, 1, 2, 3, 4].map(word);
        if programmed > wp {
            return Err(wrong("programmed", 8, programmed, "at most the write pointer"));
        }
        let failed = [word(5), word(6)].map(FailedRun);
        for (at, run) in [24, 28].into_iter().zip(failed) {
            if run.count() > MAX_ROW_BLOCKS || run.block() + run.count() > programmed {
                return Err(wrong("failed", at, run.0, "a run of programmed blocks"));
            }
        }
        let worn = bytes[2] == 1;
        Ok(Chunk { state, wp, programmed, wear, reads, since, failed, level, worn, cause })
    }

    fn words(&self) -> [u32; 7] {
        let known = |run: FailedRun| run.block() + run.count() <= self.programmed;
        let [first, second] = self.failed.map(|run| if known(run) { run.0 } else { 0 });
        [self.wp, self.programmed, self.wear, self.reads, self.since, first, second]
    }

    /// An erase failed: the chunk is given up, with all that was known of it.
    pub fn give_up(&mut self) {
        self.erased();
        if self.state != ChunkState::Offline {
            (self.state, self.cause) = (ChunkState::Offline, Cause::Grown);
        }
    }

    /// Takes the chunk out of use for good. Its data end with an erase, which
    /// counts. What is known of them stays until then, as with [`Chunk::reset`].
    pub fn retire(&mut self) -> Result<(), Status> {
        if self.state == ChunkState::Offline {
            return Err(Status::OFFLINE_CHUNK);
        }
        if self.programmed != self.wp {
            return Err(Status::INVALID_RESET);
        }
        (self.wp, self.programmed, self.wear) = (0, 0, self.wear.saturating_add(1));
        (self.state, self.cause) = (ChunkState::Offline, Cause::Retired);
        Ok(())
    }

    /// Takes a reset. At the end of its `endurance` the chunk goes offline.
    /// What is known of its data stays until [`Chunk::erased`]: reads that came
    /// before may still be waiting.
    pub fn reset(&mut self, endurance: u32) -> Result<(), Status> {
        match self.state {
            ChunkState::Offline => return Err(Status::OFFLINE_CHUNK),
            ChunkState::Free => return Err(Status::INVALID_RESET),
            ChunkState::Open | ChunkState::Closed => {}
        }
        if self.programmed != self.wp {
            return Err(Status::INVALID_RESET);
        }
        self.wear += 1;
        (self.wp, self.programmed) = (0, 0);
        if self.wear > endurance {
            (self.state, self.cause) = (ChunkState::Offline, Cause::Grown);
            return Err(Status::OFFLINE_CHUNK);
        }
        self.state = ChunkState::Free;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
