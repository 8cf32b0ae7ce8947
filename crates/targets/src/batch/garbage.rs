//! GBITV: which blocks are garbage, with GBITV_S and GBITV_T above it.
//!
//! A block is garbage unless the tables lead to it. So nothing need be noted
//! when a chunk is erased, nor for blocks that only fill a row: a bit becomes
//! valid when a batch that wrote the block is installed, and garbage when a
//! newer one is. In memory a set bit is a valid block, so that an empty drive is
//! zeros; on flash a set bit is garbage, as the paper has it.

use std::ops::Range;

use flash::{Geometry, Ppa};
use ftl::Least;
use port::{BLOCK_BYTES, Lazy, OutOfMemory};

use super::location::Location;
use super::paged::{PAGE_WORDS, Paged, pages_for};

/// GBITV, wholly in memory.
pub(super) struct Garbage {
    valid: Lazy<u64>,
    /// Valid blocks of each chunk.
    counts: Vec<u32>,
    /// To find the chunk with the least of them.
    pub by_valid: Least,
    chunk_words: usize,
    geometry: Geometry,
    /// GBITV_S: where its pages are.
    pub small: Paged,
    /// GBITV_T: where the pages of GBITV_S are.
    pub tiny: Paged,
}

impl Garbage {
    pub fn new(geometry: &Geometry) -> Result<Garbage, OutOfMemory> {
        let chunk_words = (geometry.chunk_blocks() as usize).div_ceil(64);
        let words = geometry.chunk_slots() * chunk_words;
        let pages = pages_for(words);
        Ok(Garbage {
            valid: Lazy::zeroed(pages * PAGE_WORDS, "which blocks are garbage")?,
            counts: vec![0; geometry.chunk_slots()],
            by_valid: Least::new(geometry)?,
            chunk_words,
            geometry: *geometry,
            small: Paged::new(pages),
            tiny: Paged::new(pages_for(pages)),
        })
    }

    #[inline]
    fn bit(&self, at: Ppa) -> (usize, u64) {
        let block = self.geometry.block(at) as usize;
        let word = self.geometry.chunk_index(at) * self.chunk_words + block / 64;
        (word, 1 << (block % 64))
    }

    /// The tables lead to a block from now on, by the batch `lsn`.
    pub fn set_valid(&mut self, to: Location, lsn: u64) {
        self.set(to, lsn, true);
    }

    /// The tables lead to a block no more, by the batch `lsn`.
    pub fn set_garbage(&mut self, from: Location, lsn: u64) {
        self.set(from, lsn, false);
    }

    fn set(&mut self, at: Location, lsn: u64, valid: bool) {
        let Some(at) = at.ppa() else { return };
        let (word, bit) = self.bit(at);
        if (self.valid[word] & bit != 0) == valid {
            return;
        }
        self.valid[word] ^= bit;
        let chunk = self.geometry.chunk_index(at);
        if valid {
            self.counts[chunk] += 1;
        } else {
            self.counts[chunk] -= 1;
            self.by_valid.lower(chunk, self.counts[chunk]);
        }
        self.small.touch(word / PAGE_WORDS, lsn);
    }

    pub fn is_valid(&self, at: Ppa) -> bool {
        let (word, bit) = self.bit(at);
        self.valid[word] & bit != 0
    }

    /// Valid blocks of a chunk.
    #[inline]
    pub fn valid(&self, chunk: usize) -> u32 {
        self.counts[chunk]
    }

    /// The one of `chunks`, all of some units, with the least valid blocks of those that `can` allows,
    /// given their number; of equals the first.
    pub fn least(
        &mut self,
        chunks: Range<usize>,
        can: impl Fn(usize, u32) -> bool,
    ) -> Option<usize> {
        let counts = &self.counts;
        self.by_valid.find(chunks, |chunk| Some(counts[chunk]).filter(|&valid| can(chunk, valid)))
    }

    /// The first valid block of a chunk from `from` on.
    pub fn next_valid(&self, chunk: usize, from: u32) -> Option<u32> {
        let start = self.geometry.chunk_start(chunk).0;
        let blocks = from..self.geometry.chunk_blocks();
        blocks.into_iter().find(|&block| self.is_valid(Ppa(start + u64::from(block))))
    }

    /// A page as it is on flash.
    pub fn store(&self, page: usize, to: &mut [u8]) {
        let words = &self.valid[page * PAGE_WORDS..][..PAGE_WORDS];
        for (bytes, word) in to.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&(!word).to_le_bytes());
        }
    }

    /// Takes a page from flash. Call [`Garbage::count`] after the last.
    pub fn load(&mut self, page: usize, from: &[u8]) {
        assert_eq!(from.len(), BLOCK_BYTES as usize);
        let words = &mut self.valid[page * PAGE_WORDS..][..PAGE_WORDS];
        for (word, bytes) in words.iter_mut().zip(from.chunks_exact(8)) {
            *word = !u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
        }
    }

    /// No block is valid, and all pages are to be written.
    pub fn forget(&mut self, lsn: u64) {
        self.valid.fill(0);
        self.counts.fill(0);
        (0..self.small.len()).for_each(|page| self.small.touch(page, lsn));
    }

    /// Counts the valid blocks of all chunks anew.
    pub fn count(&mut self) {
        for (count, words) in self.counts.iter_mut().zip(self.valid.chunks_exact(self.chunk_words))
        {
            *count = words.iter().map(|word| word.count_ones()).sum();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flash::Dimensions;

    #[test]
    fn pages_read_back_and_are_counted() {
        let dim = Dimensions { groups: 2, chunks: 300, pages: 70, ..Dimensions::LEAST };
        let g = Geometry::new(dim).unwrap();
        let mut garbage = Garbage::new(&g).unwrap();
        let at = |chunk, block| Location::at(g.ppa(1, 0, chunk, block), true);
        for (i, (chunk, block)) in [(0, 0), (0, 69), (299, 64), (7, 5)].into_iter().enumerate() {
            garbage.set_valid(at(chunk, block), i as u64 + 1);
        }
        garbage.set_garbage(at(7, 5), 9);
        garbage.set_garbage(at(7, 5), 10);
        let chunk = g.chunk_of(g.pu_index(g.ppa(1, 0, 0, 0)), 0);
        assert_eq!((garbage.valid(chunk), garbage.valid(chunk + 7)), (2, 0));
        assert_eq!(
            (garbage.next_valid(chunk, 1), garbage.next_valid(chunk + 299, 65)),
            (Some(69), None)
        );
        assert_eq!(garbage.small.oldest(), 1);

        let mut again = Garbage::new(&g).unwrap();
        let mut page = vec![0; 4096];
        for n in 0..garbage.small.len() {
            garbage.store(n, &mut page);
            again.load(n, &page);
        }
        again.count();
        assert!((0..g.chunk_slots()).all(|c| again.valid(c) == garbage.valid(c)));
        assert_eq!(again.valid[..], garbage.valid[..]);
    }
}
