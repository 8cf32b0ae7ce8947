//! Where everything lies in the file.
//!
//! Chunks and blocks are numbered without the holes of physical addresses, so
//! that a file is no longer than it must be.

use flash::{Geometry, Ppa};
use port::BLOCK_BYTES;

use crate::descriptor::DESCRIPTOR_BYTES;
use crate::entry::ENTRY_BYTES;

/// Where the states are: two pages, so that one may be lost. Each has a place for
/// the states of even generations, and then one for those of odd ones.
pub const STATE_PAGES: [u64; 2] = [256 << 10, 260 << 10];

/// Bytes of a place.
pub const SLOT_BYTES: usize = 2048;

/// Where the state of a generation lies, in each page: not over that of the one before.
pub fn state_offsets(generation: u64) -> [u64; 2] {
    STATE_PAGES.map(|page| page + generation % 2 * SLOT_BYTES as u64)
}

/// The descriptors.
pub const TABLE_OFFSET: u64 = 264 << 10;

/// What areas begin at a multiple of: a page, so that all of one can be given
/// back.
const ALIGN: u64 = 4096;

/// The areas of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    geometry: Geometry,
    kept: u64,
    entries: u64,
    data: u64,
    whole: u64,
    /// Length of the file.
    pub len: u64,
}

impl Layout {
    /// The areas of a drive that keeps `kept` bytes a block.
    pub fn new(geometry: &Geometry, kept: u32) -> Layout {
        // A geometry has at most 2^44 blocks, so nothing overflows.
        let (blocks, kept) = (geometry.blocks(), u64::from(kept));
        let chunks = blocks / u64::from(geometry.chunk_blocks());
        let after = |start: u64, bytes: u64| (start + bytes).next_multiple_of(ALIGN);
        let entries = after(TABLE_OFFSET, chunks * DESCRIPTOR_BYTES as u64);
        let data = after(entries, blocks * ENTRY_BYTES as u64);
        let whole = after(data, blocks * kept);
        let len = if kept == BLOCK_BYTES { whole } else { after(whole, blocks * BLOCK_BYTES) };
        Layout { geometry: *geometry, kept, entries, data, whole, len }
    }

    /// How many chunks there are.
    pub fn chunks(&self) -> usize {
        self.geometry.total_pus() as usize * self.geometry.chunks() as usize
    }

    /// Blocks of a chunk.
    pub fn chunk_blocks(&self) -> u32 {
        self.geometry.chunk_blocks()
    }

    /// The number in the file of a chunk given by its index.
    #[inline]
    pub fn number(&self, chunk_index: usize) -> usize {
        let g = &self.geometry;
        let pu = chunk_index >> g.chunk_bits();
        let pus = g.dimensions().pus as usize;
        let unit = g.group_of_pu(pu) * pus + g.pu_in_group(pu) as usize;
        unit * g.chunks() as usize + (chunk_index & ((1 << g.chunk_bits()) - 1))
    }

    /// The index of a chunk given by its number in the file.
    pub fn index(&self, number: usize) -> usize {
        let g = &self.geometry;
        let (unit, chunk) = (number / g.chunks() as usize, number % g.chunks() as usize);
        let pus = g.dimensions().pus as usize;
        let first = g.ppa((unit / pus) as u32, (unit % pus) as u32, chunk as u32, 0);
        g.chunk_index(first)
    }

    /// Where the descriptors end.
    pub fn table_end(&self) -> u64 {
        self.descriptor(self.chunks())
    }

    /// Where a chunk's descriptor lies.
    #[inline]
    pub fn descriptor(&self, number: usize) -> u64 {
        TABLE_OFFSET + (number * DESCRIPTOR_BYTES) as u64
    }

    #[inline]
    fn block(&self, at: Ppa) -> u64 {
        let number = self.number(self.geometry.chunk_index(at)) as u64;
        number * u64::from(self.geometry.chunk_blocks()) + u64::from(self.geometry.block(at))
    }

    /// Where a block's entry lies.
    #[inline]
    pub fn entry(&self, at: Ppa) -> u64 {
        self.entries + self.block(at) * ENTRY_BYTES as u64
    }

    /// Where a block's kept bytes lie.
    #[inline]
    pub fn data(&self, at: Ppa) -> u64 {
        self.data + self.block(at) * self.kept
    }

    /// Where a block lies that was stored whole.
    #[inline]
    pub fn whole(&self, at: Ppa) -> u64 {
        if self.kept == BLOCK_BYTES {
            return self.data(at);
        }
        self.whole + self.block(at) * BLOCK_BYTES
    }

    /// The ranges that hold a chunk's blocks: offset and length.
    pub fn ranges(&self, number: usize) -> [(u64, u64); 3] {
        let first = self.geometry.chunk_start(self.index(number));
        let blocks = u64::from(self.geometry.chunk_blocks());
        let whole = if self.kept == BLOCK_BYTES { 0 } else { blocks * BLOCK_BYTES };
        [
            (self.data(first), blocks * self.kept),
            (self.whole(first), whole),
            (self.entry(first), blocks * ENTRY_BYTES as u64),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flash::Dimensions;

    #[test]
    fn areas_are_full_and_apart() {
        let dim = Dimensions {
            groups: 3,
            pus: 3,
            chunks: 5,
            pages: 3,
            planes: 2,
            page_bytes: 8192,
            pages_at_once: 1,
        };
        let g = Geometry::new(dim).unwrap();
        for kept in [4096u32, 8, 0] {
            let layout = Layout::new(&g, kept);
            assert_eq!(layout.chunks(), 45);
            let mut ranges = vec![(0, TABLE_OFFSET)];
            for number in 0..layout.chunks() {
                assert_eq!(layout.number(layout.index(number)), number);
                ranges.push((layout.descriptor(number), DESCRIPTOR_BYTES as u64));
                let first = g.chunk_start(layout.index(number));
                for at in (first.0..first.0 + 12).map(Ppa) {
                    assert!(g.contains(at));
                    ranges.push((layout.entry(at), ENTRY_BYTES as u64));
                    ranges.push((layout.data(at), kept.into()));
                    if kept < 4096 {
                        ranges.push((layout.whole(at), 4096));
                    }
                }
                let bytes: u64 = layout.ranges(number).iter().map(|range| range.1).sum();
                let whole = if kept < 4096 { 4096 } else { 0 };
                assert_eq!(bytes, 12 * (32 + u64::from(kept) + whole));
            }
            ranges.sort_unstable();
            assert!(ranges.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0), "{kept}");
            let last = ranges.last().unwrap();
            assert!(last.0 + last.1 <= layout.len && layout.len - last.0 - last.1 < ALIGN);
        }
    }
}
