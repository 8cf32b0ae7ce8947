//! A set of addresses, kept as ranges that do not touch.

use std::ops::Range;

/// A set of numbers. Bounded by what it covers: neighbours are one entry.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges(Vec<Range<u64>>);

impl Ranges {
    /// Whether one of `range` is in the set.
    pub fn overlaps(&self, range: &Range<u64>) -> bool {
        let first = self.0.partition_point(|held| held.end <= range.start);
        range.start < range.end && self.0.get(first).is_some_and(|held| held.start < range.end)
    }

    /// Puts `range` in. Nothing when it is empty.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        // Those that touch it become one with it.
        let first = self.0.partition_point(|held| held.end < range.start);
        let last = self.0.partition_point(|held| held.start <= range.end);
        let mut joined = range;
        for held in &self.0[first..last] {
            joined = joined.start.min(held.start)..joined.end.max(held.end);
        }
        self.0.splice(first..last, [joined]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn is_a_set(ranges in prop::collection::vec((0u64..60, 0u64..9), 0..20)) {
            let mut set = Ranges::default();
            let mut model = [false; 80];
            for (start, len) in ranges {
                set.insert(start..start + len);
                (start..start + len).for_each(|i| model[i as usize] = true);
                prop_assert!(set.0.windows(2).all(|w| w[0].end < w[1].start));
                for at in 0..70u64 {
                    for n in 0..4 {
                        let has = (at..at + n).any(|i| model[i as usize]);
                        prop_assert_eq!(set.overlaps(&(at..at + n)), has);
                    }
                }
            }
        }
    }
}
