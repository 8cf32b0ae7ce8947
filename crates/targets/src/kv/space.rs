//! The drive's chunks: what each is for, which are free, and where the next row goes.
//!
//! Guarantees: rows of a chunk are given out in their order; one that failed, or that
//! holds something, is not given out again before its erase. Fails where there is no
//! row.

use std::collections::VecDeque;

use device::OpenChannel;
use flash::{Chunk as Descriptor, ChunkState, Geometry, Ppa};
use ftl::Least;
use port::lazy::table;
use port::{BLOCK_BYTES, OutOfMemory};

/// What a chunk is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Use {
    /// Nothing: it is erased.
    #[default]
    Free,
    /// Rows of records.
    Packed,
    /// Rows of large values.
    Large,
    /// Rows of a checkpoint.
    Checkpoint,
    /// Nothing any more.
    Offline,
}

/// What is written: where its next row goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    /// Records.
    Packed,
    /// Large values.
    Large,
    /// Rows of large values that collection moves.
    Moved,
    /// A checkpoint.
    Checkpoint,
}

/// What is known of a chunk.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chunk {
    /// What it is for.
    pub used: Use,
    /// Rows are given out.
    pub open: bool,
    /// A program failed: it is given up when it is empty.
    pub failed: bool,
    /// Its erase is under way.
    pub erasing: bool,
    /// It is among those that are to be erased.
    pub dying: bool,
    /// Something in it cannot be read: it is not collected.
    pub stuck: bool,
    /// The next row.
    pub next: u32,
    /// Programs under way.
    pub programs: u32,
    /// Reads under way, and rows of values that are not whole yet.
    pub holds: u32,
    /// Bytes that count.
    pub live: u64,
    /// All rows of records up to this one must be programmed before it is erased.
    pub killed: u64,
}

/// The first block of a row.
pub(super) fn row_ppa(geometry: &Geometry, chunk: usize, row: u32) -> Ppa {
    Ppa(geometry.chunk_start(chunk).0 + u64::from(row * geometry.row_blocks()))
}

/// All chunks.
pub(super) struct Space {
    geometry: Geometry,
    chunks: Box<[Chunk]>,
    /// Free chunks of each unit, those that were erased first in front.
    free: Vec<VecDeque<u32>>,
    free_chunks: usize,
    /// The units in the order in which rows go to them.
    units: Vec<usize>,
    /// Open chunks of each stream: of records and of large values by place in that order;
    /// the others have one.
    lanes: [Lanes; 4],
    /// Finds the chunk with the least live blocks.
    least: Least,
    /// Bytes that count, in all.
    live: u64,
    /// Empty chunks.
    pub dying: VecDeque<usize>,
}

/// Open chunks, and whose turn it is.
#[derive(Debug)]
struct Lanes {
    open: Vec<Option<usize>>,
    turn: usize,
    /// The unit at which a single one looks first.
    unit: usize,
}

impl Lanes {
    fn new(count: usize) -> Lanes {
        Lanes { open: vec![None; count], turn: 0, unit: 0 }
    }
}

impl Space {
    /// The chunks as the drive has them: what was written is for nothing yet.
    pub fn new<D: OpenChannel>(device: &D) -> Result<Space, OutOfMemory> {
        let geometry = *device.geometry();
        let units: Vec<usize> = geometry.pus_channels_first().collect();
        let mut space = Space {
            chunks: table(Chunk::default(), geometry.chunk_slots(), "the target's chunks")?,
            free: vec![VecDeque::with_capacity(geometry.chunks() as usize); geometry.pu_slots()],
            free_chunks: 0,
            lanes: [units.len(), units.len(), 1, 1].map(Lanes::new),
            least: Least::new(&geometry)?,
            live: 0,
            dying: VecDeque::with_capacity(geometry.chunk_slots()),
            units,
            geometry,
        };
        for chunk in ftl::all_chunks(&geometry) {
            let found = device.chunk(chunk);
            match found.state {
                ChunkState::Offline => space.chunks[chunk].used = Use::Offline,
                ChunkState::Free => space.give(chunk),
                ChunkState::Open | ChunkState::Closed => {
                    space.chunks[chunk].failed = found.is_spoilt(geometry.chunk_blocks());
                }
            }
        }
        Ok(space)
    }

    /// Rows of a chunk.
    pub fn rows(&self) -> u32 {
        self.geometry.chunk_blocks() / self.geometry.row_blocks()
    }

    /// Bytes of a row.
    pub fn row_bytes(&self) -> u64 {
        u64::from(self.geometry.row_blocks()) * BLOCK_BYTES
    }

    /// Units, and so the lanes of a large value at most.
    pub fn units(&self) -> usize {
        self.units.len()
    }

    /// Free chunks.
    pub fn free_chunks(&self) -> usize {
        self.free_chunks
    }

    /// Bytes that count.
    pub fn live(&self) -> u64 {
        self.live
    }

    /// Chunks that are not offline.
    pub fn usable(&self) -> usize {
        let chunks = ftl::all_chunks(&self.geometry);
        chunks.filter(|&chunk| self.chunks[chunk].used != Use::Offline).count()
    }

    /// The first block of a row.
    pub fn row_ppa(&self, chunk: usize, row: u32) -> Ppa {
        row_ppa(&self.geometry, chunk, row)
    }

    /// The number of a row among those of all chunks.
    pub fn row_number(&self, ppa: Ppa) -> usize {
        self.chunk_of(ppa) * self.rows() as usize + self.geometry.row(ppa) as usize
    }

    /// The chunk of a block.
    pub fn chunk_of(&self, ppa: Ppa) -> usize {
        self.geometry.chunk_index(ppa)
    }

    /// What is known of a chunk.
    pub fn chunk(&self, chunk: usize) -> &Chunk {
        &self.chunks[chunk]
    }

    /// The same, to be changed; it may then be collectable, or empty.
    pub fn chunk_mut(&mut self, chunk: usize) -> &mut Chunk {
        self.least.suspect(chunk);
        &mut self.chunks[chunk]
    }

    fn give(&mut self, chunk: usize) {
        self.chunks[chunk] = Chunk::default();
        self.free[chunk >> self.geometry.chunk_bits()].push_back(chunk as u32);
        self.free_chunks += 1;
    }

    /// Says what a chunk with something in it is for, which is all that is known of
    /// it; where it may be gone on with it may be opened.
    pub fn found(&mut self, chunk: usize, used: Use, of: &Descriptor, goes_on: bool) {
        let row = self.geometry.row_blocks();
        let at = self.units.iter().position(|&unit| unit == chunk >> self.geometry.chunk_bits());
        let at = at.expect("it is of a unit");
        let held = &mut self.chunks[chunk];
        (held.used, held.next) = (used, of.programmed / row);
        let stream = if used == Use::Packed { Stream::Packed } else { Stream::Large };
        let lanes = &mut self.lanes[stream as usize];
        let is_part = of.state == ChunkState::Open && of.programmed.is_multiple_of(row);
        if goes_on && is_part && !held.failed && lanes.open[at].is_none() {
            held.open = true;
            lanes.open[at] = Some(chunk);
        }
        self.note_empty(chunk);
    }

    /// Units that have a row for large values, where so many chunks are to stay free.
    pub fn units_with_room(&self, spare: usize) -> usize {
        let has = |(open, &unit): (&Option<usize>, &usize)| {
            open.is_some() || (self.free_chunks > spare && !self.free[unit].is_empty())
        };
        self.lanes[Stream::Large as usize]
            .open
            .iter()
            .zip(&self.units)
            .filter(|&lane| has(lane))
            .count()
    }

    /// Gives out the next row of a stream, of the unit whose turn it is or the next
    /// that has one. So many chunks are to stay free.
    pub fn take_row(&mut self, stream: Stream, spare: usize) -> Option<(usize, u32)> {
        let rows = self.rows();
        for _ in 0..self.lanes[stream as usize].open.len() {
            let lanes = &mut self.lanes[stream as usize];
            let at = lanes.turn;
            lanes.turn = if at + 1 == lanes.open.len() { 0 } else { at + 1 };
            let open = lanes.open[at].or_else(|| self.open(stream, at, spare));
            let Some(chunk) = open else { continue };
            let held = &mut self.chunks[chunk];
            let row = held.next;
            held.next += 1;
            held.open = held.next < rows;
            if !held.open {
                self.lanes[stream as usize].open[at] = None;
                self.least.suspect(chunk);
            }
            return Some((chunk, row));
        }
        None
    }

    /// Opens a free chunk for a stream. So many chunks are to stay free.
    fn open(&mut self, stream: Stream, at: usize, spare: usize) -> Option<usize> {
        if self.free_chunks <= spare {
            return None;
        }
        let (count, lanes) = (self.units.len(), &mut self.lanes[stream as usize]);
        let (first, tries) = if lanes.open.len() == 1 { (lanes.unit, count) } else { (at, 1) };
        let chunk = (first..first + tries).find_map(|at| {
            let unit = self.units[at % count];
            self.free[unit].pop_front().map(|chunk| chunk as usize)
        })?;
        self.free_chunks -= 1;
        lanes.unit = (lanes.unit + 1) % count;
        let used = match stream {
            Stream::Packed => Use::Packed,
            Stream::Large | Stream::Moved => Use::Large,
            Stream::Checkpoint => Use::Checkpoint,
        };
        self.chunks[chunk] = Chunk { used, ..Chunk::default() };
        lanes.open[at] = Some(chunk);
        Some(chunk)
    }

    /// No more rows of a chunk are given out.
    pub fn close(&mut self, chunk: usize) {
        let open = self.lanes.iter_mut().flat_map(|lanes| &mut lanes.open);
        open.filter(|open| **open == Some(chunk)).for_each(|open| *open = None);
        self.chunk_mut(chunk).open = false;
        self.note_empty(chunk);
    }

    /// Bytes of a chunk count from now on.
    pub fn count(&mut self, chunk: usize, bytes: u64) {
        self.chunks[chunk].live += bytes;
        self.live += bytes;
    }

    /// A row of a large value is sent to a chunk, and counts: that is kept until the row
    /// has an owner.
    pub fn begin_row(&mut self, chunk: usize) {
        self.count(chunk, self.row_bytes());
        // It is not to be collected or erased for that: nobody need look at it.
        let held = &mut self.chunks[chunk];
        (held.holds, held.programs) = (held.holds + 1, held.programs + 1);
    }

    /// Bytes of a chunk count no more, since what is in a row of records.
    pub fn discount(&mut self, chunk: usize, bytes: u64, row: u64) {
        let held = self.chunk_mut(chunk);
        debug_assert!(held.live >= bytes, "only what counts is given up, and once");
        held.live -= bytes;
        held.killed = held.killed.max(row);
        self.live -= bytes;
        self.note_empty(chunk);
    }

    /// Puts a chunk down to be erased, if it is empty.
    pub fn note_empty(&mut self, chunk: usize) {
        let held = &mut self.chunks[chunk];
        let is_used = matches!(held.used, Use::Packed | Use::Large | Use::Checkpoint);
        if is_used && !held.open && held.live == 0 && !held.dying && !held.erasing {
            held.dying = true;
            self.dying.push_back(chunk);
        }
    }

    /// The next of the chunks that are to be erased which nobody needs, where rows of
    /// records below `done` are programmed; none of large values, if they are to be kept.
    pub fn next_erase(&mut self, done: u64, keeps_large: bool) -> Option<usize> {
        for _ in 0..self.dying.len() {
            let chunk = self.dying.pop_front()?;
            let held = &mut self.chunks[chunk];
            if held.live > 0 || held.open {
                held.dying = false;
            } else if held.programs > 0
                || held.holds > 0
                || held.killed >= done
                || (keeps_large && held.used == Use::Large)
            {
                self.dying.push_back(chunk);
            } else {
                (held.dying, held.erasing) = (false, true);
                return Some(chunk);
            }
        }
        None
    }

    /// Whether a chunk waits for rows of records from `done` on to be programmed.
    pub fn waits_for_rows(&self, done: u64) -> bool {
        self.dying.iter().any(|&chunk| self.chunks[chunk].killed >= done)
    }

    /// An erase is over. One that was given up is used no more, whatever the drive says.
    pub fn erased(&mut self, chunk: usize, of: &Descriptor) {
        match of.state {
            ChunkState::Free if !self.chunks[chunk].failed => self.give(chunk),
            _ => self.chunks[chunk] = Chunk { used: Use::Offline, ..Chunk::default() },
        }
    }

    /// The chunk of a kind with the least that counts, which its collection makes free.
    pub fn victim(&mut self) -> Option<usize> {
        let chunks = &self.chunks;
        let (row, rows) = (self.row_bytes(), u64::from(self.rows()));
        let candidate = |chunk: usize| {
            let held = &chunks[chunk];
            let is = matches!(held.used, Use::Packed | Use::Large)
                && !(held.open || held.erasing || held.dying || held.stuck)
                && held.programs == 0
                && held.holds == 0
                && held.live + row <= row * rows;
            is.then_some((held.live / BLOCK_BYTES) as u32)
        };
        self.least.find(0..chunks.len(), candidate)
    }
}
