//! Chunks counted by state and wear, in pieces: whoever holds the drive meanwhile holds
//! it for microseconds, however large it is. What is counted is of no one moment.
//!
//! Nothing here fails.

use flash::{Cause, Chunk, ChunkState, Medium};

use super::Device;

/// How many chunks are in each state, and how worn they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkCount {
    /// Free, open, closed and offline ones.
    pub states: [u64; 4],
    /// Chunks that `erases` are of: all but those that are bad from the factory.
    pub worn: u64,
    /// Erases of these.
    pub erases: u64,
    /// The fewest of one; the most there can be while `worn` is zero.
    pub least: u32,
    /// The most of one.
    pub most: u32,
}

impl ChunkCount {
    /// Of no chunk yet.
    pub fn new() -> ChunkCount {
        ChunkCount { least: u32::MAX, ..ChunkCount::default() }
    }

    fn note(&mut self, chunk: &Chunk) {
        let state = match chunk.state {
            ChunkState::Free => 0,
            ChunkState::Open => 1,
            ChunkState::Closed => 2,
            ChunkState::Offline => 3,
        };
        self.states[state] += 1;
        if chunk.why_offline() != Some(Cause::Factory) {
            self.worn += 1;
            self.erases += u64::from(chunk.wear);
            (self.least, self.most) = (self.least.min(chunk.wear), self.most.max(chunk.wear));
        }
    }
}

impl<M: Medium> Device<M> {
    /// Counts those of the next `most` places for chunks from `from` on. Gives where to
    /// go on; `None` when that was the last.
    pub fn count_chunks(&self, from: usize, most: usize, count: &mut ChunkCount) -> Option<usize> {
        let g = &self.geometry;
        let end = from.saturating_add(most).min(g.chunk_slots());
        // Between them are places that are no chunk, where a number is no power of two.
        let is_one = |&index: &usize| g.contains(g.chunk_start(index));
        (from..end).filter(is_one).for_each(|index| count.note(&self.chunks[index]));
        (end < g.chunk_slots()).then_some(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flash::{Dimensions, Geometry, RamMedium, Timing};

    /// In pieces of any length it finds what a look at all of them does.
    #[test]
    fn chunks_are_counted_in_pieces() {
        let (groups, pus, chunks, pages, planes) = (3, 3, 5, 2, 1);
        let (page_bytes, pages_at_once) = (4096, 1);
        let dim = Dimensions { groups, pus, chunks, pages, planes, page_bytes, pages_at_once };
        let geometry = Geometry::new(dim).unwrap();
        let medium = RamMedium::new(&geometry, 0).unwrap();
        let mut device = Device::new(&geometry, &Timing::default(), medium).unwrap();
        for n in 0..9 {
            let index =
                geometry.chunk_of(geometry.pu_index(geometry.ppa(n / 3, n % 3, 0, 0)), n % 5);
            let chunk = &mut device.chunks[index];
            (chunk.wear, chunk.state) = (n, ChunkState::Closed);
            if n == 8 {
                (chunk.state, chunk.cause) = (ChunkState::Offline, Cause::Factory);
            }
        }
        let health = device.health();
        for most in [1, 3, 7, 64, 1000] {
            let (mut count, mut from) = (ChunkCount::new(), Some(0));
            while let Some(at) = from {
                from = device.count_chunks(at, most, &mut count);
            }
            assert_eq!(count.states, [health.free, health.open, health.closed, 1]);
            assert_eq!((count.least, count.most), (health.wear.least, health.wear.most));
            assert_eq!(count.erases as f64 / count.worn as f64, health.wear.mean);
        }
    }
}
