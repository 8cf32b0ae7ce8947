//! The SLC cache: flash that is programmed with one bit a cell, beside the
//! flash that holds the data.
//!
//! Here is what a profile says of it: how much there is, how much of that free
//! chunks lend, how long it takes, when it is emptied. What a drive does with it is
//! in docs/slc-cache.md. Nothing here fails.

use port::BLOCK_BYTES;

use crate::Geometry;

/// A whole, in the unit of shares: a thousandth of a percent.
pub const WHOLE: u32 = 100_000;

/// How large the SLC cache is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlcSize {
    /// Bytes of all the drive.
    Bytes(u64),
    /// A share of all the flash, what is kept free included, in parts of [`WHOLE`].
    Share(u32),
}

impl SlcSize {
    /// What each of so many equal parts of a drive has of it.
    pub fn part(self, parts: u32) -> SlcSize {
        match self {
            SlcSize::Bytes(bytes) => SlcSize::Bytes(bytes.div_ceil(parts.into())),
            SlcSize::Share(_) => self,
        }
    }

    /// Bytes on a drive of this geometry.
    pub fn bytes(self, geometry: &Geometry) -> u64 {
        match self {
            SlcSize::Bytes(bytes) => bytes,
            SlcSize::Share(share) => {
                let all = u128::from(geometry.blocks()) * u128::from(BLOCK_BYTES);
                (all * u128::from(share) / u128::from(WHOLE)) as u64
            }
        }
    }
}

/// The SLC cache of a drive. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlcCache {
    /// What it holds at most; nothing where there is none.
    pub size: SlcSize,
    /// Free chunks lend it what is not its own, and take it back when they are
    /// written. If not, all of it is flash of its own: the drive's chunks are not fewer.
    pub dynamic: bool,
    /// Of one that is lent, what it has of its own.
    pub own: SlcSize,
    /// So many free chunks of each unit lend nothing: the target's reserve.
    pub kept: u32,
    /// tR of a page in it.
    pub read: u64,
    /// tPROG of a page in it.
    pub program: u64,
    /// How long a parallel unit has nothing to do before it folds.
    pub idle: u64,
    /// Share of its area, in parts of [`WHOLE`], from which on a parallel unit
    /// that has nothing to do folds at once.
    pub mark: u32,
}

impl Default for SlcCache {
    /// None.
    fn default() -> SlcCache {
        let none = SlcSize::Bytes(0);
        SlcCache {
            size: none,
            dynamic: false,
            own: none,
            kept: 0,
            read: 0,
            program: 0,
            idle: 0,
            mark: WHOLE,
        }
    }
}

impl SlcCache {
    /// Whether there is one.
    #[inline]
    pub fn is_on(&self) -> bool {
        !matches!(self.size, SlcSize::Bytes(0) | SlcSize::Share(0))
    }

    /// Bytes that it is to hold on a drive of this geometry, before they are
    /// rounded up to whole blocks.
    pub fn bytes(&self, geometry: &Geometry) -> u64 {
        self.size.bytes(geometry)
    }

    /// Blocks that a parallel unit has of it at most, at least one where there is a
    /// cache, and its own of them, if each holds `block_rows` rows.
    pub fn blocks_per_pu(&self, geometry: &Geometry, block_rows: u32) -> (u64, u64) {
        let row = u64::from(geometry.row_blocks()) * BLOCK_BYTES;
        let block = u64::from(block_rows) * row * u64::from(geometry.total_pus());
        let most = self.bytes(geometry).div_ceil(block);
        let own = if self.dynamic { self.own.bytes(geometry).div_ceil(block) } else { most };
        (most, own.min(most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dimensions;

    #[test]
    fn sizes_are_whole_blocks_on_each_unit() {
        let dim = Dimensions { groups: 2, pus: 2, chunks: 100, pages: 12, ..Dimensions::LEAST };
        let g = Geometry::new(dim).unwrap();
        let of = |size| {
            let slc = SlcCache { size, ..SlcCache::default() };
            (slc.is_on(), slc.bytes(&g), slc.blocks_per_pu(&g, 4).0)
        };
        assert_eq!(of(SlcSize::Bytes(0)), (false, 0, 0));
        assert_eq!(of(SlcSize::Bytes(1)), (true, 1, 1));
        // A block of four rows on each of four units has 64 KiB.
        assert_eq!(of(SlcSize::Bytes(65536)), (true, 65536, 1));
        assert_eq!(of(SlcSize::Bytes(65537)), (true, 65537, 2));
        // 1 % of 4800 pages is 48, 12 rows a unit.
        assert_eq!(of(SlcSize::Share(1000)), (true, 48 * 4096, 3));
        assert_eq!(of(SlcSize::Share(WHOLE)), (true, 4800 * 4096, 300));
        let dynamic = |own| SlcCache {
            size: SlcSize::Share(1000),
            dynamic: true,
            own: SlcSize::Bytes(own),
            ..SlcCache::default()
        };
        let own_of = |slc: SlcCache| slc.blocks_per_pu(&g, 4).1;
        assert_eq!([0, 1, 65537, 1 << 40].map(|own| own_of(dynamic(own))), [0, 1, 2, 3]);
        assert_eq!(own_of(SlcCache { dynamic: false, ..dynamic(0) }), 3);
    }
}
