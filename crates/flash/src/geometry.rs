//! Geometry and physical addresses.
//!
//! A drive is groups (channels) of parallel units (PU: dies that work by
//! themselves) of chunks (one block on every plane of the PU) of rows of 4 KiB
//! logical blocks. A row is what one program takes: one *wide page*, which is one
//! page on every plane, or where the pages of a word line are programmed at once
//! as many. A wide page is what one array read gives. Logical blocks of a chunk
//! are numbered along a wide page first, then along a row, so that each is one
//! run.
//!
//! A [`Ppa`] packs group, PU, chunk and block in as many bits as each needs,
//! least significant block first (Open-Channel SSD 2.0, "LBA format"). The
//! space is sparse: arrays indexed by it have holes where a count is not a
//! power of two.

use port::BLOCK_BYTES;
use thiserror::Error;

use crate::divisor::Divisor;

/// A physical address: group, PU, chunk and block, packed by
/// [`Geometry::ppa`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ppa(pub u64);

/// Most blocks of a row, and so of a command: six planes of four pages of 16 KiB.
pub const MAX_ROW_BLOCKS: u32 = 96;

/// A bit for each block of a row, or each address of a command, the first lowest.
pub type BlockBits = u128;

/// Bits `first` to `first + count - 1`; `count` is at least 1.
#[inline]
pub fn block_bits(first: usize, count: usize) -> BlockBits {
    (BlockBits::MAX >> (BlockBits::BITS as usize - count)) << first
}

/// The numbers that a geometry is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dimensions {
    /// Groups (channels), 1 to 256.
    pub groups: u32,
    /// Parallel units a group, 1 to 256.
    pub pus: u32,
    /// Chunks a parallel unit, 1 to 2^24.
    pub chunks: u32,
    /// Pages a block, and so wide pages a chunk, 1 to 65536: a multiple of
    /// `pages_at_once`.
    pub pages: u32,
    /// Planes a parallel unit, 1 to 8.
    pub planes: u32,
    /// Bytes a page as the parallel unit programs it: 4096 times a power of
    /// two, at most 64 KiB.
    pub page_bytes: u32,
    /// Pages of a word line that one program takes on every plane, 1 to 4: more
    /// than one in one-shot programming.
    pub pages_at_once: u32,
}

impl Dimensions {
    /// The least drive: one of each, with pages of a block.
    pub const LEAST: Dimensions = Dimensions {
        groups: 1,
        pus: 1,
        chunks: 1,
        pages: 1,
        planes: 1,
        page_bytes: BLOCK_BYTES as u32,
        pages_at_once: 1,
    };

    /// Blocks in a row.
    pub fn row_blocks(&self) -> u64 {
        let page = u64::from(self.page_bytes) / BLOCK_BYTES;
        (u64::from(self.planes) * page).saturating_mul(self.pages_at_once.into())
    }

    /// Rows in a chunk.
    pub fn rows(&self) -> u32 {
        self.pages / self.pages_at_once.max(1)
    }

    /// Blocks in a chunk.
    pub fn chunk_blocks(&self) -> u64 {
        self.row_blocks().saturating_mul(self.rows().into())
    }
}

/// A geometry that cannot be.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum GeometryError {
    /// A number is outside its range.
    #[error("{what} = {value} is out of range: it must be {range}")]
    Range {
        /// Which number.
        what: &'static str,
        /// What it was.
        value: u64,
        /// What it may be.
        range: &'static str,
    },
}

/// A geometry that was checked, with its address layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    dim: Dimensions,
    row: Divisor,
    wide_page: Divisor,
    chunk_blocks: u32,
    block_bits: u32,
    chunk_bits: u32,
    pu_bits: u32,
    group_bits: u32,
}

/// Bits that hold the numbers 0 to n - 1.
fn bits_for(n: u32) -> u32 {
    n.next_power_of_two().trailing_zeros()
}

impl Geometry {
    /// Checks the numbers.
    pub fn new(dim: Dimensions) -> Result<Geometry, GeometryError> {
        let range = |what, value: u32, ok: bool, range| {
            if ok { Ok(()) } else { Err(GeometryError::Range { what, value: value.into(), range }) }
        };
        range("groups", dim.groups, (1..=256).contains(&dim.groups), "1 to 256")?;
        range("pus", dim.pus, (1..=256).contains(&dim.pus), "1 to 256")?;
        range("chunks", dim.chunks, (1..=1 << 24).contains(&dim.chunks), "1 to 16777216")?;
        range("pages", dim.pages, (1..=65536).contains(&dim.pages), "1 to 65536")?;
        range("planes", dim.planes, (1..=8).contains(&dim.planes), "1 to 8")?;
        let page_ok = dim.page_bytes.is_power_of_two()
            && (BLOCK_BYTES as u32..=65536).contains(&dim.page_bytes);
        range("page_bytes", dim.page_bytes, page_ok, "4096, 8192, 16384, 32768 or 65536")?;
        let at_once = dim.pages_at_once;
        range("pages_at_once", at_once, (1..=4).contains(&at_once), "1 to 4")?;
        let whole = dim.pages.is_multiple_of(at_once);
        range("pages", dim.pages, whole, "a multiple of pages_at_once")?;
        let wide_page = dim.planes * dim.page_bytes / BLOCK_BYTES as u32;
        let row_blocks = wide_page * at_once;
        let row_ok = row_blocks <= MAX_ROW_BLOCKS;
        range(
            "blocks of a row",
            row_blocks,
            row_ok,
            "at most 96; take fewer planes or smaller pages",
        )?;
        let chunk_blocks = dim.pages * wide_page;
        let geometry = Geometry {
            dim,
            row: Divisor::new(row_blocks),
            wide_page: Divisor::new(wide_page),
            chunk_blocks,
            block_bits: bits_for(chunk_blocks),
            chunk_bits: bits_for(dim.chunks),
            pu_bits: bits_for(dim.pus),
            group_bits: bits_for(dim.groups),
        };
        if geometry.address_bits() > 44 {
            return Err(GeometryError::Range {
                what: "blocks in all",
                value: geometry.blocks(),
                range: "what 44 address bits hold; take fewer chunks or pages",
            });
        }
        Ok(geometry)
    }

    /// The numbers it is made of.
    pub fn dimensions(&self) -> Dimensions {
        self.dim
    }

    /// Blocks in a row: what one program takes at most.
    #[inline]
    pub fn row_blocks(&self) -> u32 {
        self.row.by()
    }

    /// Blocks in a wide page: what one array read gives at most.
    #[inline]
    pub fn wide_page_blocks(&self) -> u32 {
        self.wide_page.by()
    }

    /// Blocks in a page of one plane.
    #[inline]
    pub fn page_blocks(&self) -> u32 {
        self.dim.page_bytes / BLOCK_BYTES as u32
    }

    /// Blocks of the smallest write: a page of one plane, and where the pages of a
    /// word line are programmed at once a row.
    #[inline]
    pub fn write_blocks(&self) -> u32 {
        if self.dim.pages_at_once == 1 { self.page_blocks() } else { self.row_blocks() }
    }

    /// Blocks in a chunk.
    #[inline]
    pub fn chunk_blocks(&self) -> u32 {
        self.chunk_blocks
    }

    /// Chunks a parallel unit.
    #[inline]
    pub fn chunks(&self) -> u32 {
        self.dim.chunks
    }

    /// Parallel units in all.
    pub fn total_pus(&self) -> u32 {
        self.dim.groups * self.dim.pus
    }

    /// Blocks in all.
    pub fn blocks(&self) -> u64 {
        u64::from(self.total_pus()) * u64::from(self.dim.chunks) * u64::from(self.chunk_blocks)
    }

    /// Bits of an address: arrays indexed by [`Ppa`] have `1 << address_bits`
    /// elements.
    #[inline]
    pub fn address_bits(&self) -> u32 {
        self.block_bits + self.chunk_bits + self.pu_bits + self.group_bits
    }

    /// Bits of the chunk number.
    #[inline]
    pub fn chunk_bits(&self) -> u32 {
        self.chunk_bits
    }

    /// Length of arrays indexed by [`Geometry::chunk_index`].
    pub fn chunk_slots(&self) -> usize {
        1 << (self.chunk_bits + self.pu_bits + self.group_bits)
    }

    /// Length of arrays indexed by [`Geometry::pu_index`].
    pub fn pu_slots(&self) -> usize {
        1 << (self.pu_bits + self.group_bits)
    }

    /// The address of a block.
    #[inline]
    pub fn ppa(&self, group: u32, pu: u32, chunk: u32, block: u32) -> Ppa {
        let pu = (u64::from(group) << self.pu_bits) | u64::from(pu);
        let chunk = (pu << self.chunk_bits) | u64::from(chunk);
        Ppa((chunk << self.block_bits) | u64::from(block))
    }

    /// The first block of a chunk given by its index.
    #[inline]
    pub fn chunk_start(&self, chunk_index: usize) -> Ppa {
        Ppa((chunk_index as u64) << self.block_bits)
    }

    /// The chunk index of chunk number `chunk` of a parallel unit.
    #[inline]
    pub fn chunk_of(&self, pu_index: usize, chunk: u32) -> usize {
        (pu_index << self.chunk_bits) | chunk as usize
    }

    /// Block within its chunk.
    #[inline]
    pub fn block(&self, ppa: Ppa) -> u32 {
        (ppa.0 & ((1 << self.block_bits) - 1)) as u32
    }

    /// The chunk, numbered through the whole (sparse) drive.
    #[inline]
    pub fn chunk_index(&self, ppa: Ppa) -> usize {
        (ppa.0 >> self.block_bits) as usize
    }

    /// The parallel unit, numbered through the whole (sparse) drive.
    #[inline]
    pub fn pu_index(&self, ppa: Ppa) -> usize {
        (ppa.0 >> (self.block_bits + self.chunk_bits)) as usize
    }

    /// The group of a parallel unit.
    #[inline]
    pub fn group_of_pu(&self, pu_index: usize) -> usize {
        pu_index >> self.pu_bits
    }

    /// The parallel unit's number in its group.
    pub fn pu_in_group(&self, pu_index: usize) -> u32 {
        (pu_index & ((1 << self.pu_bits) - 1)) as u32
    }

    /// Wide page within the chunk: which page of each plane's block.
    #[inline]
    pub fn wide_page(&self, ppa: Ppa) -> u32 {
        self.wide_page.quotient(self.block(ppa))
    }

    /// Block within its wide page.
    #[inline]
    pub fn in_wide_page(&self, ppa: Ppa) -> u32 {
        self.wide_page.remainder(self.block(ppa))
    }

    /// Whether blocks of a wide page lie in one quarter of a page.
    pub fn is_in_quarter(&self, ppa: Ppa, count: u32) -> bool {
        let (quarter, at) = (self.page_blocks() / 4, self.in_wide_page(ppa));
        quarter > 0 && at / quarter == (at + count - 1) / quarter
    }

    /// Row within the chunk.
    #[inline]
    pub fn row(&self, ppa: Ppa) -> u32 {
        self.row.quotient(self.block(ppa))
    }

    /// Block within its row.
    #[inline]
    pub fn in_row(&self, ppa: Ppa) -> u32 {
        self.row.remainder(self.block(ppa))
    }

    /// The first block of its row.
    #[inline]
    pub fn row_start(&self, ppa: Ppa) -> Ppa {
        Ppa(ppa.0 - u64::from(self.in_row(ppa)))
    }

    /// All parallel units, channels first: the order in which writes are
    /// striped.
    pub fn pus_channels_first(&self) -> impl Iterator<Item = usize> + use<> {
        let (dim, bits) = (self.dim, self.pu_bits);
        (0..dim.pus).flat_map(move |pu| (0..dim.groups).map(move |g| ((g << bits) | pu) as usize))
    }

    /// Whether the address names a block of the drive.
    #[inline]
    pub fn contains(&self, ppa: Ppa) -> bool {
        let pu = self.pu_index(ppa);
        let chunk = self.chunk_index(ppa) & ((1 << self.chunk_bits) - 1);
        self.block(ppa) < self.chunk_blocks
            && (chunk as u32) < self.dim.chunks
            && self.pu_in_group(pu) < self.dim.pus
            && self.group_of_pu(pu) < self.dim.groups as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn dims() -> impl Strategy<Value = Dimensions> {
        (1u32..9, 1u32..9, 1u32..300, 1u32..100, (1u32..9, 1u32..5), 0u32..2).prop_map(
            |(groups, pus, chunks, rows, (planes, pages_at_once), page)| Dimensions {
                groups,
                pus,
                chunks,
                pages: rows * pages_at_once,
                planes,
                page_bytes: 4096 << page,
                pages_at_once,
            },
        )
    }

    proptest! {
        #[test]
        fn addresses_pack_and_unpack(dim in dims(), pick in any::<[u32; 4]>()) {
            let g = Geometry::new(dim).unwrap();
            let (group, pu) = (pick[0] % dim.groups, pick[1] % dim.pus);
            let (chunk, block) = (pick[2] % dim.chunks, pick[3] % g.chunk_blocks());
            let ppa = g.ppa(group, pu, chunk, block);
            prop_assert!(g.contains(ppa));
            prop_assert!(ppa.0 < 1 << g.address_bits());
            prop_assert_eq!(g.block(ppa), block);
            prop_assert_eq!(g.row(ppa), block / g.row_blocks());
            prop_assert_eq!(g.in_row(ppa), block % g.row_blocks());
            prop_assert_eq!(g.wide_page(ppa), block / g.wide_page_blocks());
            prop_assert_eq!(g.in_wide_page(ppa), block % g.wide_page_blocks());
            prop_assert_eq!(g.row(ppa), g.wide_page(ppa) / dim.pages_at_once);
            let sizes = (g.row_blocks().into(), g.chunk_blocks().into());
            prop_assert_eq!((dim.row_blocks(), dim.chunk_blocks()), sizes);
            prop_assert_eq!(g.row_start(ppa).0 + u64::from(g.in_row(ppa)), ppa.0);
            let pu_index = g.pu_index(ppa);
            prop_assert_eq!(g.group_of_pu(pu_index), group as usize);
            prop_assert_eq!(g.pu_in_group(pu_index), pu);
            prop_assert_eq!(g.chunk_of(pu_index, chunk), g.chunk_index(ppa));
            prop_assert_eq!(g.chunk_start(g.chunk_index(ppa)).0 + u64::from(block), ppa.0);
        }

        #[test]
        fn stripes_visit_every_unit_once(dim in dims()) {
            let g = Geometry::new(dim).unwrap();
            let mut seen: Vec<usize> = g.pus_channels_first().collect();
            prop_assert_eq!(seen.len(), g.total_pus() as usize);
            seen.sort_unstable();
            seen.dedup();
            prop_assert_eq!(seen.len(), g.total_pus() as usize);
        }
    }

    #[test]
    fn outside_is_not_inside() {
        let dim = Dimensions { groups: 3, pus: 3, chunks: 5, pages: 3, ..Dimensions::LEAST };
        let g = Geometry::new(dim).unwrap();
        assert!(g.contains(g.ppa(2, 2, 4, 2)));
        assert!(!g.contains(g.ppa(3, 0, 0, 0)));
        assert!(!g.contains(g.ppa(0, 3, 0, 0)));
        assert!(!g.contains(g.ppa(0, 0, 5, 0)));
        assert!(!g.contains(g.ppa(0, 0, 0, 3)));
        assert!(!g.contains(Ppa(u64::MAX)));
    }

    #[test]
    fn impossible_numbers_are_named() {
        let good = Dimensions::LEAST;
        let err = Geometry::new(Dimensions { planes: 9, ..good }).unwrap_err();
        assert!(err.to_string().contains("planes = 9"), "{err}");
        let err = Geometry::new(Dimensions { page_bytes: 2048, ..good }).unwrap_err();
        assert!(err.to_string().contains("page_bytes = 2048"), "{err}");
        assert!(Geometry::new(Dimensions { groups: 0, ..good }).is_err());
        let err = Geometry::new(Dimensions { pages: 4, pages_at_once: 3, ..good }).unwrap_err();
        assert!(err.to_string().contains("pages = 4"), "{err}");
        assert!(Geometry::new(Dimensions { pages: 5, pages_at_once: 5, ..good }).is_err());
        let wide = Dimensions { planes: 6, page_bytes: 16384, ..good };
        assert!(Geometry::new(Dimensions { pages: 4, pages_at_once: 4, ..wide }).is_ok());
        let err = Geometry::new(Dimensions { page_bytes: 65536, planes: 7, ..good }).unwrap_err();
        assert!(err.to_string().contains("blocks of a row = 112"), "{err}");
        let big = Dimensions { groups: 256, pus: 256, chunks: 1 << 24, pages: 65536, ..good };
        assert!(Geometry::new(big).is_err());
    }
}
