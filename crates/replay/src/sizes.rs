//! How long requests are: how often each length.
//!
//! Guarantees: exact for multiples of 512 bytes up to 1 MiB, and for the first 4096 other
//! lengths; more are rounded up to a power of two. Nothing here fails.

use std::collections::BTreeMap;

/// The unit of what is counted in a table.
const UNIT: u64 = 512;
/// Entries of the table: up to 1 MiB.
const TABLE: usize = 2049;
/// Other lengths that are counted.
const OTHERS: usize = 4096;

/// Counts of lengths.
pub(crate) struct Sizes {
    table: Box<[u64]>,
    others: BTreeMap<u64, u64>,
    count: u64,
}

impl Sizes {
    pub fn new() -> Sizes {
        Sizes { table: vec![0; TABLE].into_boxed_slice(), others: BTreeMap::new(), count: 0 }
    }

    /// Counts a request of so many bytes.
    #[inline]
    pub fn note(&mut self, len: u64) {
        self.count += 1;
        if len.is_multiple_of(UNIT) && len / UNIT < TABLE as u64 {
            self.table[(len / UNIT) as usize] += 1;
            return;
        }
        let is_known = self.others.len() < OTHERS || self.others.contains_key(&len);
        // At most 2^63.
        let len = if is_known { len } else { len.next_power_of_two() };
        *self.others.entry(len).or_default() += 1;
    }

    /// All lengths, the shortest first, and how often each was.
    fn all(&self) -> Vec<(u64, u64)> {
        let table = (0u64..).zip(&self.table).map(|(i, &count)| (i * UNIT, count));
        let others = self.others.iter().map(|(&len, &count)| (len, count));
        let mut all: Vec<_> = table.chain(others).filter(|(_, count)| *count > 0).collect();
        all.sort_unstable();
        all
    }

    /// The shortest length that so many percent of the requests do not exceed.
    pub fn percentile(&self, percent: f64) -> Option<u64> {
        let mut left = ((self.count as f64 * percent / 100.0).ceil() as u64).max(1);
        for (len, count) in self.all() {
            if count >= left {
                return Some(len);
            }
            left -= count;
        }
        None
    }

    /// The most frequent lengths, at most so many, and how often each was.
    pub fn common(&self, most: usize) -> Vec<(u64, u64)> {
        let mut all = self.all();
        all.sort_by_key(|&(len, count)| (std::cmp::Reverse(count), len));
        all.truncate(most);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_counted() {
        let mut sizes = Sizes::new();
        assert_eq!((sizes.percentile(50.0), sizes.common(3)), (None, vec![]));
        for (len, times) in [(4096, 5), (512, 3), (700, 1), (2 << 20, 1)] {
            (0..times).for_each(|_| sizes.note(len));
        }
        assert_eq!(sizes.common(2), [(4096, 5), (512, 3)]);
        let percentile = |percent| sizes.percentile(percent).unwrap();
        assert_eq!(
            [0.0, 30.0, 31.0, 40.0, 41.0, 90.0, 91.0, 100.0].map(percentile),
            [512, 512, 700, 700, 4096, 4096, 2 << 20, 2 << 20]
        );
    }

    #[test]
    fn memory_is_bounded() {
        let mut sizes = Sizes::new();
        (0..100_000u64).for_each(|i| sizes.note(i * 513 + 1));
        assert!(sizes.others.len() <= OTHERS + 64 && sizes.count == 100_000);
        assert_eq!(sizes.all().iter().map(|(_, count)| count).sum::<u64>(), 100_000);
    }
}
