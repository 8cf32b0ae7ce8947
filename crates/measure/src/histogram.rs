//! Latencies in a fixed array of buckets.
//!
//! Guarantees: a percentile is within 1 % of the value a sorted list would
//! give (exact below 128 ns, 0.4 % above); minimum, maximum, mean and count
//! are exact; recording allocates nothing and takes a few nanoseconds. Values
//! above [`MAX_NS`] share one bucket, so that only percentiles lose them.
//! Nothing here fails.

use serde::{Deserialize, Serialize};

/// Each power of two is cut in `1 << SUB_BITS` buckets.
const SUB_BITS: u32 = 7;
const SUB: u64 = 1 << SUB_BITS;

/// The largest value that percentiles tell apart: about 73 minutes.
pub const MAX_NS: u64 = 1 << 42;

/// One bucket for each value below `SUB`, then `SUB` for each power of two,
/// and one for `MAX_NS` and above.
pub const BUCKETS: usize = bucket_of(MAX_NS) + 1;

/// The bucket that counts `ns`, which is at most [`MAX_NS`].
#[inline]
pub const fn bucket_of(ns: u64) -> usize {
    // For values below `SUB` the shift is zero and the bucket the value.
    let shift = 63 - SUB_BITS - (ns | SUB).leading_zeros();
    (((shift as u64) << SUB_BITS) + (ns >> shift)) as usize
}

/// The value in the middle of a bucket.
fn middle_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * SUB {
        return bucket;
    }
    let shift = (bucket >> SUB_BITS) - 1;
    let start = (bucket - (shift << SUB_BITS)) << shift;
    if start >= MAX_NS { MAX_NS } else { start + (1 << (shift - 1)) }
}

/// The values in the middles of the buckets before and after one.
pub(crate) fn around(bucket: usize) -> [u64; 2] {
    [middle_of(bucket.saturating_sub(1)), middle_of((bucket + 1).min(BUCKETS - 1))]
}

/// How many nanoseconds, how often.
#[derive(Clone)]
pub struct Histogram {
    counts: Box<[u64; BUCKETS]>,
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

impl Histogram {
    /// An empty histogram: about 37 KB, taken once.
    pub fn new() -> Histogram {
        // By way of a vector, so that the array is not built on the stack.
        let counts = vec![0; BUCKETS].into_boxed_slice();
        let counts = counts.try_into().expect("the vector has just this length");
        Histogram { counts, count: 0, sum: 0, min: u64::MAX, max: 0 }
    }

    /// A histogram of counts that were kept elsewhere.
    pub(crate) fn of(counts: impl Iterator<Item = u64>, sum: u64, min: u64, max: u64) -> Histogram {
        let mut histogram = Histogram::new();
        for (mine, n) in histogram.counts.iter_mut().zip(counts) {
            *mine = n;
            histogram.count += n;
        }
        (histogram.sum, histogram.min, histogram.max) = (sum.into(), min, max);
        histogram
    }

    /// Counts one value, in nanoseconds.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.record_many(ns, 1);
    }

    /// Counts one value, in nanoseconds, `n` times: at least once.
    #[inline]
    pub fn record_many(&mut self, ns: u64, n: u64) {
        self.counts[bucket_of(ns.min(MAX_NS))] += n;
        self.count += n;
        self.sum += u128::from(ns) * u128::from(n);
        // Nearly always neither: a branch is less than two values that are written back.
        if ns < self.min {
            self.min = ns;
        }
        if ns > self.max {
            self.max = ns;
        }
    }

    /// Adds all that `other` counted.
    pub fn merge(&mut self, other: &Histogram) {
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts.iter()) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Forgets everything; keeps the memory.
    pub fn clear(&mut self) {
        if self.count == 0 {
            return;
        }
        self.counts.fill(0);
        (self.count, self.sum, self.min, self.max) = (0, 0, u64::MAX, 0);
    }

    /// How many values.
    #[inline]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The smallest value, exact; `None` when empty.
    pub fn min(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min)
    }

    /// The largest value, exact; `None` when empty.
    pub fn max(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max)
    }

    /// The mean in nanoseconds; `None` when empty.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    /// The standard deviation in nanoseconds, from the middles of the buckets: within
    /// 1 %, and zero below two values.
    pub fn deviation(&self) -> f64 {
        let Some(mean) = self.mean().filter(|_| self.count > 1) else { return 0.0 };
        let square = |(ns, n): (u64, u64)| n as f64 * (ns as f64 - mean) * (ns as f64 - mean);
        (self.cells().map(square).sum::<f64>() / (self.count - 1) as f64).sqrt()
    }

    /// The buckets in use, rising: the value in the middle of each, in nanoseconds and
    /// between the extremes, and how many values it has.
    pub fn cells(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let used = self.counts.iter().enumerate().filter(|&(_, &n)| n > 0);
        used.map(|(bucket, &n)| (middle_of(bucket).clamp(self.min, self.max), n))
    }

    /// The value that `p` percent of all values do not exceed. `None` when
    /// empty, or when `p` is not between 0 and 100. It says nothing about
    /// whether there are enough values to mean something: [`Summary`] does.
    pub fn percentile(&self, p: f64) -> Option<u64> {
        if self.count == 0 || !(0.0..=100.0).contains(&p) {
            return None;
        }
        let rank = rank(p, self.count);
        if rank == self.count {
            return Some(self.max);
        }
        let mut seen = 0;
        let bucket = self.counts.iter().position(|&n| {
            seen += n;
            seen >= rank
        })?;
        Some(middle_of(bucket).clamp(self.min, self.max))
    }

    /// Mean, extremes and percentiles.
    pub fn summary(&self) -> Summary {
        let enough = |p| self.percentile(p).filter(|_| self.count >= Summary::samples(p));
        Summary {
            mean: self.mean(),
            min: self.min(),
            max: self.max(),
            n: self.count,
            p50: enough(50.0),
            p90: enough(90.0),
            p99: enough(99.0),
            p999: enough(99.9),
            p9999: enough(99.99),
            p99999: enough(99.999),
        }
    }

    /// How the values lie, in little space: an eighth of a power of two each.
    pub fn distribution(&self) -> Distribution {
        let mut all = Distribution::default();
        for (bucket, &n) in self.counts.iter().enumerate().filter(|&(_, &n)| n > 0) {
            let below = coarse_end(middle_of(bucket));
            if all.below_ns.last() == Some(&below) {
                *all.n.last_mut().expect("as many") += n;
            } else {
                all.below_ns.push(below);
                all.n.push(n);
            }
        }
        all
    }

    /// The buckets in use, in little memory.
    pub(crate) fn pack(&self) -> Packed {
        if self.count == 0 {
            return Packed::default();
        }
        let used = self.counts.iter().enumerate().filter(|&(_, &n)| n > 0);
        let cells = used.map(|(bucket, &n)| Packed::cell(bucket, n)).collect();
        Packed { cells, max: self.max }
    }
}

/// The end of the eighth of a power of two that a value is in.
fn coarse_end(ns: u64) -> u64 {
    let shift = ns.checked_ilog2().unwrap_or(0).saturating_sub(3);
    ((ns >> shift) + 1) << shift
}

/// How many values lie where: `n[i]` of them are below `below_ns[i]` and not below
/// the end before it, or seven eighths of it where that is further up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distribution {
    /// Ends, in nanoseconds, rising.
    pub below_ns: Vec<u64>,
    /// Values, for each end.
    pub n: Vec<u64>,
}

/// The place of percentile `p` among `n` sorted values, from 1 to `n`.
fn rank(p: f64, n: u64) -> u64 {
    // 99.9 % of 1000 is 999, not the 1000 that rounding up a sum which is off
    // in its last bit would give.
    let exact = p / 100.0 * n as f64 * (1.0 - 1e-12);
    (exact.ceil() as u64).clamp(1, n)
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram::new()
    }
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.summary().fmt(f)
    }
}

/// What a report says about a histogram. Times are in nanoseconds. A
/// percentile that has [too few values](Summary::samples) is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// The mean; `None` when there are no values, as for all below.
    pub mean: Option<f64>,
    /// The smallest value.
    pub min: Option<u64>,
    /// The largest value.
    pub max: Option<u64>,
    /// How many values.
    pub n: u64,
    /// The median.
    pub p50: Option<u64>,
    /// The 90th percentile.
    pub p90: Option<u64>,
    /// The 99th percentile.
    pub p99: Option<u64>,
    /// The 99.9th percentile.
    pub p999: Option<u64>,
    /// The 99.99th percentile.
    pub p9999: Option<u64>,
    /// The 99.999th percentile.
    pub p99999: Option<u64>,
}

impl Summary {
    /// Values that a percentile needs: ten are to be beyond it, and beyond five nines, which
    /// a single stall of the machine can make, a hundred.
    pub fn samples(p: f64) -> u64 {
        let beyond = if p > 99.99 { 100.0 } else { 10.0 };
        (beyond * 100.0 / (100.0 - p)).round() as u64
    }
}

/// A histogram that is kept for later: only the buckets in use, 8 bytes each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Packed {
    /// Bucket in the upper bits, count in the lower; sorted.
    cells: Vec<u64>,
    max: u64,
}

impl Packed {
    /// A count never reaches this: at 100 million a second it takes 260 days.
    const COUNT_BITS: u32 = 51;
    const COUNT_MASK: u64 = (1 << Self::COUNT_BITS) - 1;

    fn cell(bucket: usize, count: u64) -> u64 {
        (bucket as u64) << Self::COUNT_BITS | count.min(Self::COUNT_MASK)
    }

    fn open(cell: u64) -> (usize, u64) {
        ((cell >> Self::COUNT_BITS) as usize, cell & Self::COUNT_MASK)
    }

    /// The buckets in use, and how many values each has.
    pub(crate) fn cells(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.cells.iter().map(|&cell| Packed::open(cell))
    }

    /// The two together.
    pub(crate) fn merge(&self, other: &Packed) -> Packed {
        let mut all: Vec<u64> = self.cells.iter().chain(&other.cells).copied().collect();
        all.sort_unstable();
        let mut cells: Vec<u64> = Vec::with_capacity(all.len());
        for cell in all {
            let (bucket, n) = Packed::open(cell);
            match cells.last_mut().map(|last| (Packed::open(*last), last)) {
                Some(((same, m), last)) if same == bucket => *last = Packed::cell(bucket, n + m),
                _ => cells.push(cell),
            }
        }
        cells.shrink_to_fit();
        Packed { cells, max: self.max.max(other.max) }
    }

    /// As [`Histogram::percentile`].
    pub(crate) fn percentile(&self, p: f64) -> Option<u64> {
        let total = self.cells.iter().map(|&c| Packed::open(c).1).sum::<u64>();
        if total == 0 {
            return None;
        }
        let rank = rank(p, total);
        if rank == total {
            return Some(self.max);
        }
        let mut seen = 0;
        let cell = self.cells.iter().find(|&&c| {
            seen += Packed::open(c).1;
            seen >= rank
        })?;
        Some(middle_of(Packed::open(*cell).0).min(self.max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn filled(values: &[u64]) -> Histogram {
        let mut h = Histogram::new();
        values.iter().for_each(|&v| h.record(v));
        h
    }

    #[test]
    fn buckets_follow_each_other_and_hold_their_middle() {
        assert_eq!(bucket_of(MAX_NS), BUCKETS - 1);
        assert_eq!(BUCKETS, 4609);
        let mut last = 0;
        for v in (0..100_000).chain((17..42).map(|e| 1 << e)) {
            let b = bucket_of(v);
            assert!(b == last || b == last + 1 || v >= 1 << 17, "a gap at {v}");
            assert_eq!(bucket_of(middle_of(b)), b, "the middle of the bucket of {v}");
            last = b;
        }
    }

    #[test]
    fn empty_and_wrong_percentiles_are_none() {
        assert_eq!(Histogram::new().percentile(50.0), None);
        assert_eq!(Histogram::new().summary(), Summary::default());
        let h = filled(&[5]);
        for p in [-0.1, 100.1, f64::NAN] {
            assert_eq!(h.percentile(p), None);
        }
        assert_eq!(h.percentile(0.0), Some(5));
    }

    #[test]
    fn a_percentile_needs_ten_values_beyond_it() {
        let told = |n: u64| {
            let mut h = Histogram::new();
            h.record_many(7, n);
            let Summary { p50, p90, p99, p999, p9999, p99999, .. } = h.summary();
            [p50, p90, p99, p999, p9999, p99999].map(|p| p.is_some())
        };
        let from = [20, 100, 1000, 10_000, 100_000, 10_000_000];
        for (at, n) in from.into_iter().enumerate() {
            let expected = |told: usize| std::array::from_fn(|p| p < told);
            assert_eq!((told(n - 1), told(n)), (expected(at), expected(at + 1)), "{n}");
        }
    }

    #[test]
    fn ranks_are_not_off_by_one() {
        assert_eq!(rank(99.9, 1000), 999);
        assert_eq!(rank(99.99, 10_000), 9_999);
        assert_eq!(rank(50.0, 3), 2);
        assert_eq!(rank(0.0, 3), 1);
        assert_eq!(rank(100.0, u64::from(u32::MAX)), u64::from(u32::MAX));
    }

    #[test]
    fn huge_values_keep_extremes_and_mean() {
        let h = filled(&[10, 10, u64::MAX]);
        assert_eq!((h.min(), h.max()), (Some(10), Some(u64::MAX)));
        let mean = (20.0 + u64::MAX as f64) / 3.0;
        assert!((h.mean().unwrap() / mean - 1.0).abs() < 1e-12);
        let h = filled(&[1, MAX_NS * 2, MAX_NS * 3]);
        assert_eq!(h.percentile(50.0), Some(MAX_NS));
    }

    #[test]
    fn clear_forgets_everything() {
        let mut h = filled(&[1, 1 << 30]);
        h.clear();
        assert_eq!(h.summary(), Summary::default());
        h.record(9);
        assert_eq!((h.min(), h.max(), h.percentile(50.0)), (Some(9), Some(9), Some(9)));
    }

    #[test]
    fn a_distribution_has_all_values_in_eighths() {
        let mut histogram = Histogram::new();
        let values = [0, 7, 8, 9, 100, 1023, 1024, 1151, 1152, 5_000_000, MAX_NS + 5];
        values.iter().for_each(|&ns| histogram.record(ns));
        let Distribution { below_ns, n } = histogram.distribution();
        let ends = [1, 8, 9, 10, 104, 1024, 1152, 1280, 5_242_880, (MAX_NS >> 3) * 9];
        assert_eq!(below_ns, ends);
        assert_eq!(n, [1, 1, 1, 1, 1, 1, 2, 1, 1, 1]);
        assert_eq!(Histogram::new().distribution(), Distribution::default());
    }

    #[test]
    fn cells_hold_all_and_spread_as_values_do() {
        let h = filled(&[100, 100, 100, 300, 1_000_000]);
        let cells: Vec<_> = h.cells().collect();
        assert_eq!(cells.iter().map(|cell| cell.1).sum::<u64>(), 5);
        assert_eq!((cells[0], cells[2].1), ((100, 3), 1));
        let mean = 200_120.0f64;
        let squares = [100.0, 100.0, 100.0, 300.0, 1e6].map(|ns: f64| (ns - mean).powi(2));
        let exact = (squares.iter().sum::<f64>() / 4.0).sqrt();
        assert!((h.deviation() / exact - 1.0).abs() < 0.01, "{} {exact}", h.deviation());
        assert_eq!((filled(&[5]).deviation(), Histogram::new().deviation()), (0.0, 0.0));
    }

    /// Values of all magnitudes.
    fn latency() -> impl Strategy<Value = u64> {
        (0u32..42, any::<u64>()).prop_map(|(bits, x)| (1 << bits) | (x & ((1 << bits) - 1)))
    }

    proptest! {
        #[test]
        fn percentiles_match_a_sorted_list(
            mut values in prop::collection::vec(latency(), 1..500), p in 0.0f64..=100.0
        ) {
            let h = filled(&values);
            values.sort_unstable();
            let exact = values[rank(p, values.len() as u64) as usize - 1] as f64;
            let told = h.percentile(p).unwrap() as f64;
            prop_assert!((told - exact).abs() <= exact * 0.01, "{told} for {exact}");
            prop_assert_eq!(h.min(), values.first().copied());
            prop_assert_eq!(h.max(), values.last().copied());
        }

        #[test]
        fn merging_is_recording_both(
            a in prop::collection::vec(latency(), 0..200),
            b in prop::collection::vec(latency(), 0..200),
            p in 0.0f64..=100.0,
        ) {
            let both: Vec<u64> = a.iter().chain(&b).copied().collect();
            let mut merged = filled(&a);
            merged.merge(&filled(&b));
            prop_assert_eq!(merged.summary(), filled(&both).summary());
            prop_assert_eq!(merged.percentile(p), filled(&both).percentile(p));
            let packed = filled(&a).pack().merge(&filled(&b).pack());
            // A packed histogram knows no minimum, so its lowest bucket may
            // answer with its middle.
            match (packed.percentile(p), merged.percentile(p)) {
                (Some(x), Some(y)) => prop_assert!(x.abs_diff(y) * 250 <= y, "{x} for {y}"),
                (x, y) => prop_assert_eq!(x, y),
            }
        }
    }
}
