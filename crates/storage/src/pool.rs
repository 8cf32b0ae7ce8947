//! Memory for the data path: buffers cut from regions that the kernel knows.
//!
//! Guarantees: a [`Region`] keeps its memory mapped as long as it lives, so an
//! address inside it is always its own. A pool's buffers begin at multiples of
//! their length from the start of a page. Nothing here fails except getting
//! the memory.

use std::ops::Range;
use std::sync::Arc;

use port::{Buffer, OutOfMemory};

/// The most that the kernel takes as one registered range, in bytes.
const MOST_REGION: usize = 1 << 30;

/// A range of memory to be registered with a queue. A clone is the same
/// memory.
#[derive(Clone, Debug)]
pub struct Region {
    start: usize,
    len: usize,
    /// An empty piece of it, which keeps the mapping.
    _keep: Arc<Buffer>,
}

impl Region {
    /// The region of a buffer, which may be cut in pieces later. Of a longer
    /// one than 1 GiB, the first GiB.
    pub fn of(buffer: &mut Buffer) -> Region {
        let (start, len) = (buffer.bytes().as_ptr() as usize, buffer.len().min(MOST_REGION));
        Region { start, len, _keep: Arc::new(buffer.split_to(0)) }
    }

    /// Its addresses.
    pub(crate) fn range(&self) -> Range<usize> {
        self.start..self.start + self.len
    }
}

/// Buffers of one length, to be taken and given back.
#[derive(Debug)]
pub struct Pool {
    free: Vec<Buffer>,
    regions: Vec<Region>,
}

impl Pool {
    /// `count` buffers of `each` zeros.
    ///
    /// # Panics
    /// When `each` is zero or more than 1 GiB.
    pub fn new(count: usize, each: usize) -> Result<Pool, OutOfMemory> {
        assert!(each > 0 && each <= MOST_REGION, "a pool's buffer has 1 byte to 1 GiB");
        let mut pool = Pool { free: Vec::with_capacity(count), regions: Vec::new() };
        let mut left = count;
        while left > 0 {
            let some = left.min(MOST_REGION / each);
            let mut whole = Buffer::zeroed(some * each)?;
            pool.regions.push(Region::of(&mut whole));
            pool.free.extend((0..some).map(|_| whole.split_to(each)));
            left -= some;
        }
        Ok(pool)
    }

    /// Its memory, for [`StorageOptions::regions`](crate::StorageOptions::regions).
    pub fn regions(&self) -> Vec<Region> {
        self.regions.clone()
    }

    /// Takes a buffer, with whatever is in it; `None` when all are taken.
    #[inline]
    pub fn take(&mut self) -> Option<Buffer> {
        self.free.pop()
    }

    /// Gives a buffer back.
    #[inline]
    pub fn give(&mut self, buffer: Buffer) {
        self.free.push(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_buffers_lie_in_the_regions_and_apart() {
        let mut pool = Pool::new(5, 8192).unwrap();
        let ranges: Vec<_> = pool.regions().iter().map(Region::range).collect();
        let mut starts = Vec::new();
        while let Some(buffer) = pool.take() {
            let start = buffer.bytes().as_ptr() as usize;
            assert!(ranges.iter().any(|r| r.contains(&start) && start + 8192 <= r.end));
            assert_eq!(start % 4096, 0);
            starts.push(start);
        }
        starts.sort_unstable();
        assert!(starts.len() == 5 && starts.windows(2).all(|w| w[1] - w[0] >= 8192));
    }

    #[test]
    fn a_region_keeps_its_memory() {
        let mut buffer = Buffer::zeroed(4096).unwrap();
        let region = Region::of(&mut buffer);
        let at = region.range().start;
        drop(buffer);
        let others: Vec<_> = (0..64).map(|_| Buffer::zeroed(4096).unwrap()).collect();
        assert!(others.iter().all(|b| b.bytes().as_ptr() as usize != at));
    }
}
