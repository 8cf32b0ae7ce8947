//! The bytes of a drive in memory that keeps all of them: a page of memory for
//! each row that is programmed, or some of one size where a row is no power of
//! two of blocks, so that finding one needs no division.
//!
//! A row has memory from its first program until its chunk is reset, so a
//! drive takes as much as it holds, and what one chunk gave back the next one
//! writes while it is still in the caches. A row that was not programmed reads
//! as zeros. Programming fails where the system has no memory.
//!
//! What moves bytes is never inlined: a call is nothing beside them, and a
//! medium that keeps fewer would carry the code along.

use port::{BLOCK_BYTES, Lazy, OutOfMemory};

use crate::slabs::{Page, Slabs};
use crate::{Geometry, Moved, Ppa};

const BLOCK: usize = BLOCK_BYTES as usize;

/// The rows of a drive.
pub(crate) struct Rows {
    /// By address of the part of a row, its page as a word, or zero.
    of: Lazy<u64>,
    /// Blocks of a part, the greatest power of two that a row is a multiple of,
    /// and the bits that count them.
    blocks: u64,
    bits: u32,
    slabs: Slabs,
}

impl Rows {
    /// No row yet.
    pub fn new(geometry: &Geometry) -> Result<Rows, OutOfMemory> {
        let bits = geometry.row_blocks().trailing_zeros();
        let blocks = 1 << bits;
        let rows = 1usize << (geometry.address_bits() - bits);
        let slabs = Slabs::new(blocks as usize * BLOCK);
        Ok(Rows { of: Lazy::zeroed(rows, "the medium's rows")?, blocks, bits, slabs })
    }

    /// Bytes of the table for a drive of which so many blocks were written.
    pub fn table_bytes(geometry: &Geometry, blocks: u64) -> u64 {
        (blocks >> geometry.row_blocks().trailing_zeros()) * size_of::<u64>() as u64
    }

    /// Takes the memory for so many blocks now; see [`Slabs::reserve`].
    pub fn reserve(&mut self, blocks: u64, go_on: &mut impl FnMut() -> bool) -> bool {
        self.slabs.reserve(blocks.div_ceil(self.blocks) as usize, go_on)
    }

    /// The row of a block, and which byte of that it begins at.
    #[inline]
    fn place(&self, at: Ppa) -> (usize, usize) {
        ((at.0 >> self.bits) as usize, (at.0 & (self.blocks - 1)) as usize * BLOCK)
    }

    /// The page of a row, where it has one.
    #[inline]
    fn page(&self, row: usize) -> Option<Page> {
        Page::from_word(self.of[row])
    }

    /// Stores blocks from `at` on, of one chunk.
    #[inline(never)]
    pub fn program(&mut self, at: Ppa, mut data: &[u8]) -> Moved {
        let (mut row, mut from) = self.place(at);
        while !data.is_empty() {
            let Some(page) = self.page(row).or_else(|| self.take(row)) else {
                return Moved::Failed;
            };
            let to = &mut self.slabs.bytes_mut(&page)[from..];
            let some = data.len().min(to.len());
            to[..some].copy_from_slice(&data[..some]);
            (data, row, from) = (&data[some..], row + 1, 0);
        }
        Moved::Done
    }

    #[cold]
    fn take(&mut self, row: usize) -> Option<Page> {
        let page = self.slabs.take()?;
        self.of[row] = page.into_word();
        self.page(row)
    }

    /// Gets blocks from `at` on, of one chunk.
    #[inline(never)]
    pub fn read(&self, at: Ppa, mut data: &mut [u8]) {
        let (mut row, mut from) = self.place(at);
        while !data.is_empty() {
            let some = data.len().min(self.blocks as usize * BLOCK - from);
            let (to, rest) = data.split_at_mut(some);
            match self.page(row) {
                Some(page) => to.copy_from_slice(&self.slabs.bytes(&page)[from..from + some]),
                None => to.fill(0),
            }
            (data, row, from) = (rest, row + 1, 0);
        }
    }

    /// Forgets `blocks` blocks from a chunk's first one on.
    pub fn reset(&mut self, start: Ppa, blocks: u32) {
        let (first, _) = self.place(start);
        let rows = u64::from(blocks).div_ceil(self.blocks) as usize;
        for row in first..first + rows {
            if let Some(page) = self.page(row) {
                self.of[row] = 0;
                self.slabs.give(page);
            }
        }
    }

    /// Fetches the first `lines` lines of a block into the cache.
    #[inline(never)]
    pub fn hint(&self, at: Ppa, lines: usize) {
        let (row, from) = self.place(at);
        if let Some(page) = self.page(row) {
            (0..lines).for_each(|line| self.slabs.prefetch(&page, from + line * 64));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dimensions;

    /// Chunks of 4 rows of 2 blocks.
    fn geometry() -> Geometry {
        let dim = Dimensions { groups: 2, chunks: 3, pages: 4, planes: 2, ..Dimensions::LEAST };
        Geometry::new(dim).unwrap()
    }

    #[test]
    fn rows_have_memory_from_their_program_to_their_reset() {
        let g = geometry();
        let mut rows = Rows::new(&g).unwrap();
        let data: Vec<u8> = (0..3 * BLOCK).map(|i| (i / BLOCK + 1) as u8).collect();
        // From the middle of a row on, into the next.
        let at = g.ppa(1, 0, 2, 3);
        assert_eq!(rows.program(at, &data), Moved::Done);
        let mut back = vec![9; 5 * BLOCK];
        rows.read(g.ppa(1, 0, 2, 2), &mut back);
        assert!(back[BLOCK..4 * BLOCK] == data);
        rows.read(g.ppa(1, 0, 2, 6), &mut back[..BLOCK]);
        assert!(back[..BLOCK].iter().all(|&byte| byte == 0), "a row that was not programmed");
        rows.reset(g.ppa(1, 0, 2, 0), 8);
        rows.read(at, &mut back);
        assert!(back.iter().all(|&byte| byte == 0));
        // Again and again there is no more of it than is held.
        for chunk in 0..3 {
            let start = g.ppa(0, 0, chunk, 0);
            assert_eq!(rows.program(start, &vec![7; 8 * BLOCK]), Moved::Done);
            rows.hint(start, 8);
            rows.reset(start, 8);
        }
        let (first, next) = (rows.slabs.take().unwrap(), rows.slabs.take().unwrap());
        let words = [first.into_word(), next.into_word()];
        assert!(words.iter().all(|word| word >> 32 == 1), "all from the first slab: {words:x?}");
    }
}
