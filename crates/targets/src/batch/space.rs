//! Chunks: what each is used for, and the streams of rows that go to them.
//!
//! What the host writes, what collection moves, the pages of tables, and the log
//! go to chunks of their own. A stream has lanes, each with one open chunk, that
//! take rows in turn. Of the free chunks of a unit the least erased is taken.

use flash::{Geometry, Ppa};

use super::wear::Wear;

/// What a chunk is used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Use {
    /// Not there, or not any more.
    #[default]
    Gone,
    /// Holds checkpoint records.
    Slot,
    /// Erased.
    Free,
    /// A stream writes to it.
    Open,
    /// Written.
    Closed,
    /// All garbage, and to be erased.
    Leaving,
    /// Being erased or retired.
    Erasing,
}

/// What is known of a chunk.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chunk {
    pub usage: Use,
    /// A program of it failed: it is retired when it is empty.
    pub failed: bool,
    /// A block of it that counts cannot be read: it stays as it is until that
    /// is written anew.
    pub stuck: bool,
    /// It is being collected or erased.
    pub victim: bool,
    /// It is in the queue of those to be collected.
    pub asked: bool,
    /// Rows of the live log in it, with that being written.
    pub log_rows: u32,
    /// Pages of batches that are not installed.
    pub pending: u32,
    /// Reads under way.
    pub readers: u32,
}

/// Which stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    User,
    Collect,
    Meta,
}

/// An open chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lane {
    /// The unit that its chunks are of; any where there is none.
    home: Option<usize>,
    pub chunk: Option<usize>,
    /// Its next block.
    pub next: u32,
}

impl Lane {
    pub const fn floating() -> Lane {
        Lane { home: None, chunk: None, next: 0 }
    }
}

struct Lanes {
    lanes: Vec<Lane>,
    cursor: usize,
}

/// All chunks.
pub(super) struct Space {
    geometry: Geometry,
    pub chunks: Vec<Chunk>,
    /// Free chunks of each unit.
    free: Vec<Vec<usize>>,
    free_total: usize,
    /// Chunks of each unit that are being collected or erased.
    coming: Vec<usize>,
    /// All units, in the order of the last look at what they have.
    by_need: Vec<usize>,
    streams: [Lanes; 3],
    /// Where chunks for no unit in particular are taken next.
    turn: usize,
}

impl Space {
    /// A space with no chunk yet.
    pub fn new(geometry: &Geometry, user_lanes: usize, side_lanes: usize) -> Space {
        let units: Vec<usize> = geometry.pus_channels_first().collect();
        let home = |i| Lane {
            home: (user_lanes >= units.len()).then(|| units[i % units.len()]),
            ..Lane::floating()
        };
        let homes = (0..user_lanes).map(home).collect();
        let side = || Lanes { lanes: vec![Lane::floating(); side_lanes], cursor: 0 };
        let mut free: Vec<Vec<usize>> = vec![Vec::new(); geometry.pu_slots()];
        for &unit in &units {
            free[unit].reserve(geometry.chunks() as usize);
        }
        Space {
            geometry: *geometry,
            chunks: vec![Chunk::default(); geometry.chunk_slots()],
            free,
            free_total: 0,
            coming: vec![0; geometry.pu_slots()],
            by_need: units,
            streams: [Lanes { lanes: homes, cursor: 0 }, side(), side()],
            turn: 0,
        }
    }

    /// Whether a chunk with so many valid blocks can be collected.
    #[inline]
    pub fn can_go(&self, chunk: usize, valid: u32) -> bool {
        let held = &self.chunks[chunk];
        held.usage == Use::Closed
            && !held.victim
            && held.pending == 0
            && held.log_rows == 0
            && (!held.stuck || valid == 0)
    }

    /// Free chunks.
    pub fn free(&self) -> usize {
        self.free_total
    }

    fn unit(&self, chunk: usize) -> usize {
        self.geometry.pu_index(self.geometry.chunk_start(chunk))
    }

    /// A chunk is to be collected and erased.
    pub fn begin(&mut self, victim: usize) {
        let unit = self.unit(victim);
        self.chunks[victim].victim = true;
        self.coming[unit] += 1;
    }

    /// A victim is none any more: it was erased, is lost, or stays as it is.
    pub fn end(&mut self, victim: usize) {
        if std::mem::take(&mut self.chunks[victim].victim) {
            let unit = self.unit(victim);
            self.coming[unit] -= 1;
        }
    }

    /// The unit with so many others in front of it that have fewer free chunks,
    /// those counted that will be.
    pub fn needs(&mut self, place: usize) -> Option<usize> {
        if place == 0 {
            let (free, coming) = (&self.free, &self.coming);
            self.by_need.sort_unstable_by_key(|&unit| (free[unit].len() + coming[unit], unit));
        }
        self.by_need.get(place).copied()
    }

    /// A chunk is erased and can be used.
    pub fn give(&mut self, chunk: usize) {
        self.end(chunk);
        self.chunks[chunk] = Chunk { usage: Use::Free, ..Chunk::default() };
        let unit = self.unit(chunk);
        self.free[unit].push(chunk);
        self.free_total += 1;
    }

    /// Takes one chunk out of the free ones.
    pub fn take(&mut self, chunk: usize) -> bool {
        let unit = self.unit(chunk);
        let Some(at) = self.free[unit].iter().position(|&free| free == chunk) else { return false };
        self.free[unit].swap_remove(at);
        self.free_total -= 1;
        self.chunks[chunk].usage = Use::Open;
        true
    }

    /// Opens the least erased free chunk of a unit, or of the next unit in turn
    /// that has one and is not to be avoided; of one that is, where no other
    /// has any.
    pub fn open(&mut self, home: Option<usize>, wear: &Wear, avoid: &[usize]) -> Option<usize> {
        let unit = match home {
            Some(home) => home,
            None => {
                let units = self.free.len();
                let turn = (self.turn..self.turn + units).map(|unit| unit % units);
                let with = turn.filter(|&unit| !self.free[unit].is_empty());
                with.min_by_key(|unit| avoid.contains(unit))?
            }
        };
        let free = &self.free[unit];
        let best = (0..free.len()).min_by_key(|&at| (wear.get(free[at]), free[at]))?;
        let chunk = self.free[unit].swap_remove(best);
        if home.is_none() {
            self.turn = unit + 1;
        }
        self.free_total -= 1;
        self.chunks[chunk].usage = Use::Open;
        Some(chunk)
    }

    /// Goes on with a partly written chunk. False if the stream has no lane for
    /// it.
    pub fn resume(&mut self, stream: Stream, chunk: usize, next: u32) -> bool {
        let unit = self.unit(chunk);
        let fits =
            |lane: &&mut Lane| lane.chunk.is_none() && lane.home.is_none_or(|home| home == unit);
        let Some(lane) = self.streams[stream as usize].lanes.iter_mut().find(fits) else {
            return false;
        };
        (lane.chunk, lane.next) = (Some(chunk), next);
        self.chunks[chunk].usage = Use::Open;
        true
    }

    /// The next row of a stream. New chunks are opened only while more than
    /// `keep` are free.
    pub fn row(&mut self, stream: Stream, wear: &Wear, keep: usize) -> Option<Ppa> {
        let count = self.streams[stream as usize].lanes.len();
        let row = self.geometry.row_blocks();
        for _ in 0..count {
            let lanes = &mut self.streams[stream as usize];
            let turn = lanes.cursor;
            lanes.cursor = (turn + 1) % count;
            let lane = lanes.lanes[turn];
            let chunk = match lane.chunk {
                Some(chunk) => chunk,
                None if self.free_total > keep => match self.open(lane.home, wear, &[]) {
                    Some(chunk) => chunk,
                    None => continue,
                },
                None => continue,
            };
            let next = if lane.chunk.is_some() { lane.next } else { 0 };
            let lane = &mut self.streams[stream as usize].lanes[turn];
            (lane.chunk, lane.next) = (Some(chunk), next + row);
            if lane.next == self.geometry.chunk_blocks() {
                lane.chunk = None;
                self.chunks[chunk].usage = Use::Closed;
            }
            return Some(Ppa(self.geometry.chunk_start(chunk).0 + u64::from(next)));
        }
        None
    }

    /// Blocks that a stream can take while more than `keep` chunks stay free.
    pub fn room(&self, stream: Stream, keep: usize) -> u64 {
        let size = self.geometry.chunk_blocks();
        let lanes = &self.streams[stream as usize].lanes;
        let open = lanes.iter().filter(|lane| lane.chunk.is_some());
        let open: u64 = open.map(|lane| u64::from(size - lane.next)).sum();
        open + self.free_total.saturating_sub(keep) as u64 * u64::from(size)
    }

    /// A program of a chunk failed: no stream writes to it any more.
    pub fn fail(&mut self, chunk: usize) {
        self.close(chunk);
        self.chunks[chunk].failed = true;
    }

    /// No stream writes to a chunk any more.
    pub fn close(&mut self, chunk: usize) {
        for lane in self.streams.iter_mut().flat_map(|stream| &mut stream.lanes) {
            lane.chunk.take_if(|open| *open == chunk);
        }
        let held = &mut self.chunks[chunk];
        if held.usage == Use::Open {
            held.usage = Use::Closed;
        }
    }

    /// An open chunk of a stream that is one of those.
    pub fn open_chunk(&self, is: impl Fn(usize) -> bool) -> Option<usize> {
        let lanes = self.streams.iter().flat_map(|stream| &stream.lanes);
        lanes.filter_map(|lane| lane.chunk).find(|&chunk| is(chunk))
    }
}
