//! Which chunk is collected.
//!
//! Guarantee: one that is given may go, and what is valid in it has room elsewhere.

use std::ops::Range;

use device::OpenChannel;

use super::Batch;
use super::space::Stream;

impl<D: OpenChannel> Batch<D> {
    /// The chunk to collect: one that failed; else one that was asked for; else
    /// that with the most garbage, of the unit that has the fewest free chunks.
    /// Where all its chunks have much less garbage than the best, that of the next
    /// unit.
    ///
    /// Free chunks are so on all units, and the host's writes go to all of them.
    pub(super) fn victim(&mut self, wanted: bool) -> Option<usize> {
        let (space, failed) = (&self.space, &self.failed);
        let valid = |chunk| self.garbage.valid(chunk);
        // Its survivors take room, and it gives none.
        let room = space.room(Stream::Collect, self.layout.reserve / 2);
        let can = |chunk| space.can_go(chunk, valid(chunk)) && u64::from(valid(chunk)) <= room;
        let candidates = failed.iter().filter(|&&chunk| can(chunk));
        let found = candidates.copied().min_by_key(|&chunk| (valid(chunk), chunk));
        let found = found.or_else(|| self.next_asked());
        if found.is_some() || !wanted {
            return found;
        }
        let best = self.least(0..self.space.chunks.len())?;
        let (most, size) = (self.layout.most_valid, self.geometry.chunk_blocks());
        if self.garbage.valid(best) > most {
            return None;
        }
        let good = most.min(self.garbage.valid(best) + size / 8);
        let (mut place, each) = (0, 1 << self.geometry.chunk_bits());
        while let Some(unit) = self.space.needs(place) {
            let here = self.least(unit * each..(unit + 1) * each);
            if let Some(here) = here.filter(|&chunk| self.garbage.valid(chunk) <= good) {
                return Some(here);
            }
            place += 1;
        }
        Some(best)
    }

    /// Of some chunks that with the most garbage which can be collected.
    fn least(&mut self, chunks: Range<usize>) -> Option<usize> {
        let space = &self.space;
        let found = self.garbage.least(chunks.clone(), |chunk, valid| space.can_go(chunk, valid));
        debug_assert_eq!(found, self.least_by_scan(chunks));
        found
    }

    /// The same, by a look at every chunk: what tests hold it against.
    fn least_by_scan(&self, chunks: Range<usize>) -> Option<usize> {
        let valid = |chunk: &usize| self.garbage.valid(*chunk);
        let can = |chunk: &usize| self.space.can_go(*chunk, valid(chunk));
        chunks.filter(can).min_by_key(valid)
    }
}
