//! Space: which chunks are free, open, closed or being collected, which of
//! their blocks are valid, and which chunk to collect next.
//!
//! All by parallel unit: a unit's free chunks, its open chunks and its victims
//! are its own, so that units never wait for each other's space.

use std::collections::VecDeque;

use flash::{Geometry, Ppa};
use ftl::{Least, VictimPolicy};
use port::lazy::table;
use port::{BLOCK_BYTES, Lazy, OutOfMemory};

use super::PblkConfig;
use super::config::kept_chunks;
use super::meta::ANCHORS;

/// Set in the valid count of a chunk that is not closed.
const NOT_CLOSED: u32 = 1 << 31;

/// The band of a unit's room is this part of a chunk, 1 in this, at most,
const CHUNK_PER_BAND: u32 = 16;

/// and this part of its spare;
const SPARE_PER_BAND: u64 = 8;

/// but so many rows at least.
const LEAST_BAND: u32 = 2;

/// An idle drive collects until this part of a unit's spare, 1 in this, is room
/// beside what it needs. As much is stale then, so that up to there some chunk has at
/// least that share stale: one with less is not worth its moves. A drive that waited
/// for more would move nearly full chunks for a few blocks.
const SPARE_PER_REST: u64 = 2;

/// A chunk that is being filled. Small, since each row looks at several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpenChunk {
    index: u32,
    /// The next block to write.
    pub next: u32,
}

impl OpenChunk {
    /// A chunk, by [`Geometry::chunk_index`], which is written up to `next`.
    #[inline]
    pub fn new(chunk: usize, next: u32) -> OpenChunk {
        OpenChunk { index: chunk as u32, next }
    }

    /// By [`Geometry::chunk_index`].
    #[inline]
    pub fn chunk(self) -> usize {
        self.index as usize
    }
}

/// The chunks of one parallel unit. What each row looks at comes first, in one
/// line of the caches.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(super) struct PuSpace {
    /// Free chunks, least worn first; of equals the longest free.
    free: VecDeque<u32>,
    /// So many of the free ones are kept back for the target's own blocks.
    kept_back: usize,
    /// From so many free chunks on it has room enough, whatever else there is.
    pub plenty: u32,
    /// The room, in blocks, below which the user waits: what is left of the
    /// usable chunks when as many blocks as may hold data, live or stale.
    pub low: u32,
    /// The room above which nothing is collected.
    pub high: u32,
    /// The room above which nothing is collected on an idle drive.
    pub rested: u32,
    /// Stale blocks with which a chunk is worth collecting there.
    worth: u32,
    /// Closed chunks.
    pub closed: u32,
    /// Valid blocks in closed chunks.
    pub closed_valid: u64,
    /// Chunks for data and for collection to live on: all but those that are
    /// lost, and those for own blocks.
    usable: u32,
    /// Chunks for the target's own blocks, and how many have some.
    own: u32,
    own_used: u32,
    /// Of those, lent to collection after a start that found no free chunk.
    lent: u32,
    /// Erases of all its chunks.
    pub wear: u64,
}

impl PuSpace {
    /// Free chunks for data.
    #[inline]
    pub fn free(&self) -> usize {
        self.free.len().saturating_sub(self.kept_back)
    }

    /// Whether it has room enough, whatever else there is.
    #[inline]
    pub fn has_plenty(&self) -> bool {
        self.free() >= self.plenty as usize
    }

    /// So many chunks have own blocks, and so many are lent.
    fn set_own_used(&mut self, used: u32, lent: u32) {
        (self.own_used, self.lent) = (used, lent);
        self.kept_back = self.own.saturating_sub(used + lent) as usize;
    }

    /// Own chunks in use above which older ones are emptied.
    pub fn own_span(&self) -> u32 {
        self.own / 2 - 1
    }
}

/// The space of a drive.
pub(super) struct Space {
    geometry: Geometry,
    policy: Box<dyn VictimPolicy>,
    /// Valid blocks by chunk, with [`NOT_CLOSED`].
    valid: Lazy<u32>,
    /// To find the closed chunk of a unit with the least of them.
    least: Least,
    /// A bit for each block, by address.
    bits: Lazy<u64>,
    /// Erases by chunk.
    wear: Box<[u32]>,
    /// Erases of all chunks.
    total_wear: u64,
    pub pus: Vec<PuSpace>,
    /// Blocks of each unit that may hold data.
    data: u64,
    /// Logical blocks of each unit.
    of_user: u64,
    /// Chunks of each unit that are kept free, until too many are lost.
    kept: u32,
    /// Blocks between the bounds of a unit's room.
    band: u32,
}

impl Space {
    /// Space of which `own` chunks of each unit are for the target's own blocks.
    pub fn new(geometry: &Geometry, config: &PblkConfig, own: u32) -> Result<Space, OutOfMemory> {
        let mut pus: Vec<PuSpace> = Vec::new();
        pus.resize_with(geometry.pu_slots(), PuSpace::default);
        for pu in geometry.pus_channels_first() {
            pus[pu].usable = geometry.chunks() - ANCHORS - own;
            pus[pu].own = own;
            pus[pu].set_own_used(0, 0);
        }
        let slots = geometry.chunk_slots();
        let mut valid = Lazy::zeroed(slots, "valid counts")?;
        valid.fill(NOT_CLOSED);
        let data = config.unit_blocks(geometry.chunk_blocks());
        let of_user = config.bytes / BLOCK_BYTES / u64::from(geometry.total_pus());
        let spare = data.saturating_sub(of_user);
        let of_chunk = u64::from(geometry.chunk_blocks() / CHUNK_PER_BAND);
        let band = of_chunk.min(spare / SPARE_PER_BAND) as u32;
        let mut space = Space {
            geometry: *geometry,
            policy: config.victim.policy(geometry, config.seed)?,
            valid,
            least: Least::new(geometry)?,
            bits: Lazy::zeroed((1usize << geometry.address_bits()).div_ceil(64), "valid bits")?,
            wear: table(0, slots, "the target's chunks")?,
            total_wear: 0,
            pus,
            data,
            of_user,
            kept: kept_chunks(config.streams),
            band: band.max(LEAST_BAND * geometry.row_blocks()),
        };
        geometry.pus_channels_first().for_each(|pu| space.set_bounds(pu));
        Ok(space)
    }

    /// Sets the bounds of a unit's room, by the chunks that it has. Where it
    /// has lost so many that its reserve is at its least, fewer blocks hold data.
    fn set_bounds(&mut self, pu: usize) {
        let size = u64::from(self.geometry.chunk_blocks());
        let pu = &mut self.pus[pu];
        let low = (u64::from(pu.usable) * size).saturating_sub(self.data);
        let low = low.max(u64::from(self.kept) * size);
        let high = low + u64::from(self.band);
        // Two rows of survivors may be gathered, and two more promised.
        let plenty = (high + 4 * u64::from(self.geometry.row_blocks())).div_ceil(size);
        let held = (u64::from(pu.usable) * size).saturating_sub(low);
        let rest = held.saturating_sub(self.of_user) / SPARE_PER_REST;
        let worth = (rest * size).checked_div(held).unwrap_or(size).max(1);
        let bounded = |blocks: u64| u32::try_from(blocks).unwrap_or(u32::MAX);
        (pu.low, pu.high, pu.plenty) = (bounded(low), bounded(high), bounded(plenty));
        (pu.rested, pu.worth) = (bounded(low + rest), bounded(worth));
    }

    /// Blocks between the bounds of a unit's room.
    #[inline]
    pub fn band(&self) -> u32 {
        self.band
    }

    /// Blocks of the chunks that a unit has for data and for collection.
    #[inline]
    pub fn usable_blocks(&self, pu: usize) -> u64 {
        u64::from(self.pus[pu].usable) * u64::from(self.geometry.chunk_blocks())
    }

    /// Whether collecting a closed chunk of a unit can win anything.
    pub fn can_win(&self, pu: usize) -> bool {
        let space = &self.pus[pu];
        let size = u64::from(self.geometry.chunk_blocks());
        space.closed > 0 && space.closed_valid < u64::from(space.closed) * size
    }

    /// A chunk has been erased so many times.
    pub fn note_wear(&mut self, chunk: usize, wear: u32) {
        let before = std::mem::replace(&mut self.wear[chunk], wear);
        self.total_wear = self.total_wear + u64::from(wear) - u64::from(before);
        let of_pu = &mut self.pus[chunk >> self.geometry.chunk_bits()].wear;
        *of_pu = *of_pu + u64::from(wear) - u64::from(before);
        self.policy.worn(chunk, wear);
    }

    /// Erases of a chunk.
    pub fn wear(&self, chunk: usize) -> u32 {
        self.wear[chunk]
    }

    /// Erases of all chunks.
    pub fn total_wear(&self) -> u64 {
        self.total_wear
    }

    /// Whether a chunk is full and waits to be collected.
    pub fn is_closed(&self, chunk: usize) -> bool {
        self.valid[chunk] & NOT_CLOSED == 0
    }

    /// Takes the memory for the bits of all chunks now.
    pub fn populate(&self) {
        let words = u64::from(self.geometry.chunk_blocks()).div_ceil(64);
        for pu in self.geometry.pus_channels_first() {
            for number in 0..self.geometry.chunks() {
                let start = self.geometry.chunk_start(self.geometry.chunk_of(pu, number)).0 / 64;
                self.bits.populate(start as usize..(start + words) as usize);
            }
        }
    }

    /// Valid blocks of a chunk.
    #[inline]
    pub fn valid_blocks(&self, chunk: usize) -> u32 {
        self.valid[chunk] & !NOT_CLOSED
    }

    #[inline]
    pub fn is_valid(&self, ppa: Ppa) -> bool {
        self.bits[(ppa.0 >> 6) as usize] >> (ppa.0 & 63) & 1 == 1
    }

    /// Fetches what is known of a block into the cache.
    #[inline]
    pub fn prefetch(&self, ppa: Ppa) {
        self.bits.prefetch((ppa.0 >> 6) as usize);
        self.valid.prefetch(self.geometry.chunk_index(ppa));
    }

    /// A block now holds what it will be asked for.
    #[inline]
    pub fn set_valid(&mut self, ppa: Ppa) {
        debug_assert!(!self.is_valid(ppa));
        self.bits[(ppa.0 >> 6) as usize] |= 1 << (ppa.0 & 63);
        let chunk = self.geometry.chunk_index(ppa);
        self.valid[chunk] += 1;
        if self.valid[chunk] & NOT_CLOSED == 0 {
            self.pus[self.geometry.pu_index(ppa)].closed_valid += 1;
        }
    }

    /// A block is given up. Gives its chunk when that has no valid block left.
    #[inline(always)]
    pub fn set_invalid(&mut self, ppa: Ppa) -> Option<usize> {
        assert!(self.is_valid(ppa), "a block is given up once");
        self.bits[(ppa.0 >> 6) as usize] &= !(1 << (ppa.0 & 63));
        let chunk = self.geometry.chunk_index(ppa);
        let valid = &mut self.valid[chunk];
        *valid -= 1;
        let left = *valid;
        if left & NOT_CLOSED == 0 {
            self.pus[self.geometry.pu_index(ppa)].closed_valid -= 1;
            self.least.lower(chunk, left);
        }
        if left & !NOT_CLOSED == 0 { Some(chunk) } else { None }
    }

    /// The next run of valid blocks in one row of a chunk, from block `from`
    /// on: its first block and its length.
    pub fn next_valid_run(&self, chunk: usize, from: u32) -> Option<(u32, u32)> {
        let start = self.geometry.chunk_start(chunk).0;
        let end = start + u64::from(self.geometry.chunk_blocks());
        let first = self.next_valid(start + u64::from(from), end)?;
        let most = self.geometry.row_blocks() - self.geometry.in_row(Ppa(first));
        Some(((first - start) as u32, self.valid_from(first, most)))
    }

    /// Valid blocks in a run from `first` on, at most so many: those of its word of
    /// bits, and where that ends with them, those of the next.
    fn valid_from(&self, first: u64, most: u32) -> u32 {
        let mut run = 0;
        loop {
            let at = first + u64::from(run);
            let some = (self.bits[(at >> 6) as usize] >> (at & 63)).trailing_ones();
            run += some;
            if run >= most || u64::from(some) + (at & 63) < 64 {
                return run.min(most);
            }
        }
    }

    fn next_valid(&self, from: u64, end: u64) -> Option<u64> {
        let mut at = from;
        while at < end {
            let word = self.bits[(at >> 6) as usize] >> (at & 63);
            if word != 0 {
                let found = at + u64::from(word.trailing_zeros());
                return if found < end { Some(found) } else { None };
            }
            at = (at | 63) + 1;
        }
        None
    }

    /// The numbers of a unit's free chunks.
    pub fn free(&self, pu: usize) -> impl Iterator<Item = u32> + '_ {
        self.pus[pu].free.iter().copied()
    }

    /// Free chunks of all units, those kept back too.
    pub fn all_free(&self) -> u64 {
        self.pus.iter().map(|pu| pu.free.len() as u64).sum()
    }

    /// Whether a unit has a chunk for the target's own blocks.
    pub fn has_own(&self, pu: usize) -> bool {
        self.pus[pu].own_used < self.pus[pu].own && !self.pus[pu].free.is_empty()
    }

    /// Whether a unit can leave a chunk of own blocks before its end: what a
    /// checkpoint writes has room in others.
    pub fn can_leave_own(&self, pu: usize) -> bool {
        let of_pu = &self.pus[pu];
        self.has_own(pu) && of_pu.own_used + of_pu.own_span() <= of_pu.own
    }

    /// Whether a unit has so many free chunks, whatever they are for.
    pub fn has_free(&self, pu: usize, least: usize) -> bool {
        self.pus[pu].free.len() >= least
    }

    /// Takes a free chunk for own blocks.
    pub fn open_own(&mut self, pu: usize) -> Option<OpenChunk> {
        let number = self.pus[pu].free.pop_front()?;
        let of_pu = &mut self.pus[pu];
        of_pu.set_own_used(of_pu.own_used + 1, of_pu.lent);
        Some(OpenChunk::new(self.geometry.chunk_of(pu, number), 0))
    }

    /// A chunk of own blocks was found on the drive.
    pub fn found_own(&mut self, pu: usize) {
        let pu = &mut self.pus[pu];
        pu.set_own_used(pu.own_used + 1, pu.lent);
    }

    /// An own chunk is no longer one: another is kept back.
    pub fn keep_back(&mut self, pu: usize) {
        let pu = &mut self.pus[pu];
        pu.set_own_used(pu.own_used - 1, pu.lent);
    }

    /// Lends collection a chunk that is kept back, if there is one. A cut spoils
    /// the rows that are being programmed, and may do so again and again: the
    /// room that was left may be gone, and nothing be won. The next chunks that
    /// come back repay it.
    pub fn lend(&mut self, pu: usize) {
        let pu = &mut self.pus[pu];
        let more = (pu.kept_back + 1).saturating_sub(pu.free.len()).min(pu.kept_back);
        pu.set_own_used(pu.own_used, pu.lent + more as u32);
    }

    /// The same where all that is free is kept back, and nothing is lent, or more
    /// is kept back than a checkpoint needs: a start may have found nothing to
    /// lend, or too little, and what came back since was kept back. Where it
    /// `comes_back` for sure, one is enough to stay.
    pub fn lend_one(&mut self, pu: usize, comes_back: bool) {
        let of_pu = &self.pus[pu];
        let free = of_pu.free.len();
        let stay = if comes_back { 1 } else { of_pu.own_span() as usize };
        if of_pu.free() == 0 && free > 0 && (of_pu.lent == 0 || free > stay) {
            self.lend(pu);
        }
    }

    /// Takes the least worn free chunk of a unit for data.
    pub fn open(&mut self, pu: usize) -> Option<OpenChunk> {
        if self.pus[pu].free() == 0 {
            return None;
        }
        let number = self.pus[pu].free.pop_front()?;
        Some(self.opened(pu, number))
    }

    /// Takes the most worn free chunk of a unit, for what should stay. Not one
    /// that is this far ahead of the unit's mean: what was put there did not
    /// stay, or it would not be.
    pub fn open_worn(&mut self, pu: usize, ahead: u32) -> Option<OpenChunk> {
        let of_pu = &self.pus[pu];
        if of_pu.free() == 0 {
            return None;
        }
        let mean = (of_pu.wear / u64::from(self.geometry.chunks() - ANCHORS)) as u32;
        let wear = |number: &u32| self.wear[self.geometry.chunk_of(pu, *number)];
        let at = of_pu.free.iter().rposition(|number| wear(number) < mean + ahead).unwrap_or(0);
        let number = self.pus[pu].free.remove(at)?;
        Some(self.opened(pu, number))
    }

    fn opened(&mut self, pu: usize, number: u32) -> OpenChunk {
        let chunk = self.geometry.chunk_of(pu, number);
        debug_assert_eq!(self.valid_blocks(chunk), 0);
        self.policy.opened(chunk);
        OpenChunk::new(chunk, 0)
    }

    /// A chunk is full: it may be collected.
    pub fn close(&mut self, chunk: usize) {
        assert!(self.valid[chunk] & NOT_CLOSED != 0, "a chunk is closed once");
        self.valid[chunk] &= !NOT_CLOSED;
        self.least.lower(chunk, self.valid[chunk]);
        self.policy.closed(chunk);
        let (pu, _) = self.split(chunk);
        let space = &mut self.pus[pu];
        space.closed += 1;
        space.closed_valid += u64::from(self.valid[chunk]);
    }

    /// Takes a closed chunk to collect, by the policy, or to the `rescue` of a
    /// unit without a free chunk the least valid; `None` where that would win
    /// nothing.
    pub fn take_victim(&mut self, pu: usize, rescue: bool) -> Option<usize> {
        if !self.can_win(pu) {
            return None;
        }
        let valid = &self.valid;
        let chosen = if rescue { None } else { self.policy.choose(pu, &|chunk| valid[chunk]) };
        let chunk = chosen.unwrap_or_else(|| {
            let least = self.least_valid(pu);
            self.policy.left(least);
            least
        });
        self.leave_closed(pu, chunk);
        Some(chunk)
    }

    /// Takes the closed chunk with the fewest valid blocks, to collect on an idle
    /// drive; `None` where that is not worth it.
    pub fn take_idle_victim(&mut self, pu: usize) -> Option<usize> {
        if !self.can_win(pu) {
            return None;
        }
        let chunk = self.least_valid(pu);
        let stale = self.geometry.chunk_blocks() - self.valid_blocks(chunk);
        if stale < self.pus[pu].worth {
            return None;
        }
        self.take(chunk);
        Some(chunk)
    }

    /// Takes a certain closed chunk to collect.
    pub fn take(&mut self, chunk: usize) {
        self.policy.left(chunk);
        self.leave_closed(self.split(chunk).0, chunk);
    }

    fn leave_closed(&mut self, pu: usize, chunk: usize) {
        let space = &mut self.pus[pu];
        space.closed -= 1;
        space.closed_valid -= u64::from(self.valid[chunk]);
        self.valid[chunk] |= NOT_CLOSED;
    }

    /// The first of a unit's closed chunks, of which there is one, with the fewest
    /// valid blocks.
    fn least_valid(&mut self, pu: usize) -> usize {
        let valid = &self.valid;
        let of_pu = pu << self.geometry.chunk_bits()..(pu + 1) << self.geometry.chunk_bits();
        let closed = |chunk: usize| Some(valid[chunk]).filter(|valid| valid & NOT_CLOSED == 0);
        self.least.find(of_pu, closed).expect("a chunk is closed")
    }

    /// A chunk is worn out. Gives how many blocks are left to hold data, in all.
    pub fn lose(&mut self, chunk: usize) -> u64 {
        let (pu, _) = self.split(chunk);
        self.pus[pu].usable = self.pus[pu].usable.saturating_sub(1);
        self.set_bounds(pu);
        let chunks = self.pus.iter().map(|pu| u64::from(pu.usable.saturating_sub(self.kept)));
        chunks.sum::<u64>() * u64::from(self.geometry.chunk_blocks())
    }

    /// Gives a chunk back, erased.
    pub fn give(&mut self, chunk: usize) {
        debug_assert_eq!(self.valid[chunk], NOT_CLOSED);
        let (pu, number) = self.split(chunk);
        let first = self.geometry.chunk_of(pu, 0);
        let (wear, free) = (&self.wear, &mut self.pus[pu].free);
        let at = free.partition_point(|&other| wear[first + other as usize] <= wear[chunk]);
        free.insert(at, number);
        let pu = &mut self.pus[pu];
        if pu.lent > 0 {
            pu.set_own_used(pu.own_used, pu.lent - 1);
        }
    }

    fn split(&self, chunk: usize) -> (usize, u32) {
        let bits = self.geometry.chunk_bits();
        (chunk >> bits, (chunk & ((1 << bits) - 1)) as u32)
    }

    /// All valid blocks, for hashing and checking.
    pub fn total_valid(&self) -> u64 {
        self.valid.iter().map(|v| u64::from(v & !NOT_CLOSED)).sum()
    }
}

#[cfg(test)]
mod tests {
    use flash::Dimensions;

    use super::super::Victim;
    use super::*;

    /// Of the chunks for own blocks that are free, collection is lent one after
    /// the other where it has none; not those that a checkpoint needs.
    #[test]
    fn what_is_kept_back_is_lent_but_for_a_checkpoint() {
        let (data_chunks, own) = (6, 6);
        let dim =
            Dimensions { chunks: 19, pages: 2, planes: 2, page_bytes: 16384, ..Dimensions::LEAST };
        let geometry = Geometry::new(dim).unwrap();
        let (bytes, victim) = (71 * BLOCK_BYTES, Victim::Greedy);
        let config = PblkConfig { victim, ..PblkConfig::new(bytes, data_chunks, 1) };
        let mut space = Space::new(&geometry, &config, own).unwrap();
        let pu = geometry.pus_channels_first().next().unwrap();
        (0..5).for_each(|number| space.give(geometry.chunk_of(pu, number)));
        space.open_own(pu).unwrap();

        let mut lent = 0;
        while space.open(pu).is_none() {
            let before = space.pus[pu].kept_back;
            space.lend_one(pu, false);
            if space.pus[pu].kept_back == before {
                break;
            }
            lent += u32::from(space.open(pu).is_some());
        }
        assert_eq!((lent, space.pus[pu].lent), (2, 3));
        assert_eq!(space.pus[pu].free.len() as u32, space.pus[pu].own_span());

        // Own chunks that come back repay what was lent, but free no more.
        space.keep_back(pu);
        space.lend_one(pu, false);
        assert_eq!((space.open(pu), space.pus[pu].free.len()), (None, 2));

        // What comes back for sure may leave a single one.
        space.lend_one(pu, true);
        assert!(space.open(pu).is_some());
        space.lend_one(pu, true);
        assert_eq!((space.open(pu), space.pus[pu].free.len()), (None, 1));
    }
}
