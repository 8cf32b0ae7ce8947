//! What free chunks lend the SLC areas of their parallel units: each one block, with
//! one bit a cell.
//!
//! Guarantees: a chunk lends as long as it is free; a parallel unit's area may have
//! its own blocks and those that are lent, and never more than the most. So many free
//! chunks as a target keeps for itself lend nothing. Nothing here fails.

use flash::Geometry;
use port::OutOfMemory;
use port::lazy::table;

/// Who lends, and what that comes to.
pub(crate) struct Lending {
    /// A bit for each chunk: it is free.
    free: Box<[u64]>,
    /// Free chunks of each parallel unit.
    counts: Box<[u32]>,
    /// Of those, what lends nothing.
    kept: u32,
    /// Blocks that each area has of its own, and at most.
    own: u64,
    most: u64,
}

impl Lending {
    /// All chunks are free.
    pub fn new(
        geometry: &Geometry,
        kept: u32,
        (own, most): (u64, u64),
    ) -> Result<Lending, OutOfMemory> {
        let words = geometry.chunk_slots().div_ceil(64);
        let free = table(u64::MAX, words, "the SLC cache's chunks")?;
        let counts = table(geometry.chunks(), geometry.pu_slots(), "the SLC cache's chunks")?;
        Ok(Lending { free, counts, kept, own, most })
    }

    /// Bytes of memory that it takes.
    pub fn tables(geometry: &Geometry) -> u64 {
        (geometry.chunk_slots().div_ceil(64) * 8 + geometry.pu_slots() * 4) as u64
    }

    /// A chunk of a parallel unit is free, or is not. Says whether that is news.
    #[inline]
    pub fn set(&mut self, pu: usize, chunk: usize, is_free: bool) -> bool {
        let (word, bit) = (&mut self.free[chunk / 64], 1 << (chunk % 64));
        if (*word & bit != 0) == is_free {
            return false;
        }
        *word ^= bit;
        let count = &mut self.counts[pu];
        *count = if is_free { *count + 1 } else { *count - 1 };
        true
    }

    /// Blocks that the area of a parallel unit may have.
    #[inline]
    pub fn blocks(&self, pu: usize) -> u64 {
        let lent = u64::from(self.counts[pu].saturating_sub(self.kept));
        self.own + lent.min(self.most - self.own)
    }
}
