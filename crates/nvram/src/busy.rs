//! Which blocks are being written below.
//!
//! Guarantees: what overlaps something under way is always told; now and then
//! also what does not, which only waits for nothing. No search, no list: a
//! table of counters, by a hash of the block's number.

use port::BLOCK_BYTES;

/// Counters; a power of two, so many that few blocks share one.
const COUNTERS: usize = 1 << 14;

/// Blocks above which a request is under way alone, instead of counting each.
const WIDE: u64 = 512;

/// The blocks under way.
pub struct Busy {
    counters: Box<[u16]>,
    /// Requests under way.
    all: u32,
    /// One of them is wide.
    wide: bool,
}

/// Blocks that a request touches: first, and behind the last.
fn blocks(offset: u64, len: u64) -> (u64, u64) {
    (offset / BLOCK_BYTES, (offset + len).div_ceil(BLOCK_BYTES))
}

#[inline]
fn place(block: u64) -> usize {
    (block.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50) as usize & (COUNTERS - 1)
}

impl Busy {
    pub fn new() -> Busy {
        Busy { counters: vec![0; COUNTERS].into(), all: 0, wide: false }
    }

    /// Whether a request may overlap one that is under way.
    #[inline]
    pub fn meets(&self, offset: u64, len: u64) -> bool {
        let (first, end) = blocks(offset, len);
        if self.all == 0 {
            return false;
        }
        self.wide || end - first > WIDE || (first..end).any(|b| self.counters[place(b)] > 0)
    }

    /// A request that meets none is under way from now on.
    #[inline]
    pub fn enter(&mut self, offset: u64, len: u64) {
        let (first, end) = blocks(offset, len);
        self.all += 1;
        if end - first > WIDE {
            self.wide = true;
        } else {
            // Blocks of one request that share a counter count twice.
            (first..end).for_each(|b| self.counters[place(b)] += 1);
        }
    }

    /// It is no more.
    #[inline]
    pub fn leave(&mut self, offset: u64, len: u64) {
        let (first, end) = blocks(offset, len);
        self.all -= 1;
        if end - first > WIDE {
            self.wide = false;
        } else {
            (first..end).for_each(|b| self.counters[place(b)] -= 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_overlaps_is_told() {
        let mut busy = Busy::new();
        assert!(!busy.meets(0, u64::MAX / 2));
        busy.enter(8192, 4096);
        busy.enter(512 << 12, 300 << 12);
        assert!(busy.meets(8192, 512) && busy.meets(0, 8193) && busy.meets(8704, 512));
        assert!(busy.meets(811 << 12, 4096) && busy.meets(0, 1 << 40));
        assert!(!busy.meets(0, 8192) && !busy.meets(12288, 4096));
        busy.leave(512 << 12, 300 << 12);
        assert!(!busy.meets(811 << 12, 4096));
        busy.leave(8192, 4096);
        assert!(!busy.meets(0, 1 << 40));
        busy.enter(0, 1 << 40);
        assert!(busy.meets(1 << 50, 512));
        busy.leave(0, 1 << 40);
        assert!(!busy.meets(0, 512) && busy.counters.iter().all(|&n| n == 0));
    }
}
