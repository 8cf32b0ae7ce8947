//! Counters and histograms that one thread counts and others read meanwhile.
//!
//! Guarantees: counting is plain loads and stores, no locked operation, and
//! writes no cache line that another thread writes; a reader takes no lock and
//! disturbs nobody. What is read is as of a moment ago, and its parts may be
//! of moments a few counts apart. Counting from two threads at once loses
//! counts, and nothing else. Nothing here fails.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::histogram::{BUCKETS, Histogram, MAX_NS, bucket_of};

/// A counter with one writer.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Sets it.
    #[inline]
    pub fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }

    /// Its value.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A [`Histogram`] with one writer.
pub struct LiveHistogram {
    counts: Box<[AtomicU64; BUCKETS]>,
    sum: AtomicU64,
    min: AtomicU64,
    max: AtomicU64,
}

impl LiveHistogram {
    /// Bytes of memory that one takes.
    pub const BYTES: u64 = (BUCKETS * size_of::<AtomicU64>()) as u64;

    /// An empty histogram: about 37 KB, taken once.
    pub fn new() -> LiveHistogram {
        let counts: Box<[AtomicU64]> = (0..BUCKETS).map(|_| AtomicU64::new(0)).collect();
        let counts = counts.try_into().expect("there are just as many");
        let (sum, min, max) = (AtomicU64::new(0), AtomicU64::new(u64::MAX), AtomicU64::new(0));
        LiveHistogram { counts, sum, min, max }
    }

    /// Counts one value, in nanoseconds.
    #[inline]
    pub fn record(&self, ns: u64) {
        let bucket = &self.counts[bucket_of(ns.min(MAX_NS))];
        bucket.store(bucket.load(Relaxed) + 1, Relaxed);
        self.sum.store(self.sum.load(Relaxed).wrapping_add(ns), Relaxed);
        if ns < self.min.load(Relaxed) {
            self.min.store(ns, Relaxed);
        }
        if ns > self.max.load(Relaxed) {
            self.max.store(ns, Relaxed);
        }
    }

    /// What was counted so far.
    pub fn read(&self) -> Histogram {
        let counts = self.counts.iter().map(|n| n.load(Relaxed));
        let [sum, min, max] = [&self.sum, &self.min, &self.max].map(|n| n.load(Relaxed));
        Histogram::of(counts, sum, min, max)
    }
}

impl Default for LiveHistogram {
    fn default() -> LiveHistogram {
        LiveHistogram::new()
    }
}

impl std::fmt::Debug for LiveHistogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.read().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_reads_as_a_histogram_that_saw_the_same(
            values in prop::collection::vec(0u64..1 << 45, 0..200),
        ) {
            let (live, mut plain) = (LiveHistogram::new(), Histogram::new());
            for &ns in &values {
                live.record(ns);
                plain.record(ns);
            }
            prop_assert_eq!(live.read().summary(), plain.summary());
        }
    }

    #[test]
    fn it_is_read_while_it_counts() {
        let live = LiveHistogram::new();
        let counter = Counter::default();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for ns in 0..100_000 {
                    live.record(ns);
                    counter.add(1);
                }
            });
            let mut before = 0;
            while before < 100_000 {
                let now = live.read().count();
                assert!(now >= before && counter.get() <= 100_000);
                before = now;
            }
        });
        assert_eq!((live.read().count(), counter.get()), (100_000, 100_000));
    }
}
