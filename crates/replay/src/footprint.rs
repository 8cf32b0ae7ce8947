//! Which 4 KiB blocks a trace touches, and how often again.
//!
//! Blocks are kept in regions of 64 (256 KiB), with a bit each for touched and written.
//! Guarantees: exact as long as they lie in fewer than [`MOST_REGIONS`] regions; from then
//! on in a sample of the regions, chosen by a hash of where they are, and halved as often as
//! need be, so that memory stays below 160 MB, whatever the addresses. An estimate of so many
//! regions is within 1 % where no few of them have most of the blocks, and none is more than
//! the accesses. Nothing here fails.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

/// Bytes of a block.
pub const BLOCK: u64 = 4096;
/// Blocks of a region.
const BLOCKS: u64 = 64;
/// Bytes of a request that count, at most: what it takes to note is bounded.
const MOST_NOTED: u64 = 1 << 30;
/// Regions that are kept at most: as many as a table of 4 Mi places holds.
const MOST_REGIONS: usize = 7 << 19;
/// Bits of a region's number in its volume: addresses end at 2^63.
const REGION_BITS: u32 = 63 - 18;

/// A region's blocks, a bit each.
#[derive(Clone, Copy, Default)]
struct Region {
    touched: u64,
    written: u64,
}

/// What was touched so far.
pub(crate) struct Footprint {
    /// By the mixed number of each. The table mixes it again, by numbers that no trace can
    /// know: none makes all regions meet in one place.
    regions: HashMap<u64, Region, Seeded>,
    most: usize,
    /// Regions are kept whose keys are [`is_kept`] so often.
    halved: u32,
    /// Accesses of blocks, and writes among them.
    accesses: u64,
    writes: u64,
    /// Reads and writes longer than what counts of one.
    longer: u64,
}

/// Hashes a key by two numbers at random: `(times * key + plus) / 2^64`, of 128 bits. Whatever
/// keys there are, two of them have any two hashes as often as any others (Dietzfelbinger's
/// multiply-shift, which is strongly universal), so that as many meet as by chance.
#[derive(Clone, Copy)]
struct Seeded {
    times: u128,
    plus: u128,
}

impl Seeded {
    /// By numbers of its own.
    fn new() -> Seeded {
        let random = RandomState::new();
        let [a, b, c, d] = [0, 1, 2, 3].map(|n: u64| u128::from(random.hash_one(n)));
        Seeded { times: a << 64 | b, plus: c << 64 | d }
    }
}

impl BuildHasher for Seeded {
    type Hasher = Hashed;

    #[inline]
    fn build_hasher(&self) -> Hashed {
        Hashed { by: *self, hash: 0 }
    }
}

/// The hash of a key.
struct Hashed {
    by: Seeded,
    hash: u64,
}

impl Hasher for Hashed {
    #[inline]
    fn write_u64(&mut self, key: u64) {
        let Seeded { times, plus } = self.by;
        self.hash = (times.wrapping_mul(key.into()).wrapping_add(plus) >> 64) as u64;
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("a key is a number of 64 bits");
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.hash
    }
}

/// What a footprint comes to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Touched {
    /// Different blocks.
    pub blocks: u64,
    /// Different blocks that were written.
    pub written: u64,
    /// Accesses of blocks: one of each block of each read and write.
    pub accesses: u64,
    /// Writes among them.
    pub writes: u64,
    /// Whether the numbers of different blocks are estimates.
    pub is_estimate: bool,
    /// Reads and writes of more than 1 GiB, of which the first 1 GiB counts.
    pub longer: u64,
}

impl Touched {
    /// Share of the accesses that went to blocks seen before.
    pub fn reused(&self) -> f64 {
        share(self.accesses.saturating_sub(self.blocks), self.accesses)
    }

    /// Share of the writes that went to blocks written before.
    pub fn overwritten(&self) -> f64 {
        share(self.writes.saturating_sub(self.written), self.writes)
    }
}

/// A part of a whole, 0 to 1; 0 of nothing.
pub(crate) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Mixes a number: another for every other one, with bits as good as random.
#[inline]
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Whether a region stays in a sample that was halved so often, 63 times at most. All bits
/// of a key count, and no two keys are alike: halved often enough, any sample is small.
#[inline]
fn is_kept(key: u64, halved: u32) -> bool {
    key & ((1 << halved) - 1) == 0
}

/// So many bits from `first` on.
#[inline]
fn bits(first: u64, count: u64) -> u64 {
    (u64::MAX >> (BLOCKS - count)) << first
}

impl Footprint {
    pub fn new() -> Footprint {
        Footprint::of_at_most(MOST_REGIONS)
    }

    fn of_at_most(most: usize) -> Footprint {
        let regions = HashMap::with_hasher(Seeded::new());
        Footprint { regions, most, halved: 0, accesses: 0, writes: 0, longer: 0 }
    }

    /// Takes note of a read or write of at least a byte, which ends at 2^63 at most. Of one
    /// beyond 1 GiB the first 1 GiB counts.
    #[inline]
    pub fn touch(&mut self, volume: u32, offset: u64, len: u64, writes: bool) {
        let (first, last) = (offset / BLOCK, (offset + len.min(MOST_NOTED) - 1) / BLOCK);
        self.longer += u64::from(len > MOST_NOTED);
        let count = last - first + 1;
        self.accesses += count;
        if writes {
            self.writes += count;
        }
        let mut at = first;
        while at <= last {
            let (region, begin) = (at / BLOCKS, at % BLOCKS);
            let n = (BLOCKS - begin).min(last - at + 1);
            self.mark((u64::from(volume) << REGION_BITS) | region, bits(begin, n), writes);
            at += n;
        }
    }

    #[inline]
    fn mark(&mut self, region: u64, bits: u64, writes: bool) {
        let key = mix(region);
        if !is_kept(key, self.halved) {
            return;
        }
        let region = self.regions.entry(key).or_default();
        region.touched |= bits;
        if writes {
            region.written |= bits;
        }
        if self.regions.len() >= self.most {
            self.halve();
        }
    }

    /// Forgets about half of the regions, until they fit into a table of half as many
    /// places. They move to one: a table that much was taken out of grows before it is full.
    #[cold]
    fn halve(&mut self) {
        while self.regions.len() > self.most / 2 {
            self.halved += 1;
            let halved = self.halved;
            self.regions.retain(|&key, _| is_kept(key, halved));
        }
        self.regions.shrink_to_fit();
    }

    pub fn touched(&self) -> Touched {
        let sum = |bits: fn(&Region) -> u64| {
            self.regions.values().map(|region| u64::from(bits(region).count_ones())).sum::<u64>()
        };
        let (blocks, written) = (sum(|region| region.touched), sum(|region| region.written));
        let is_estimate = self.halved > 0;
        // No estimate is beyond what can be.
        let of_all = |n: u64| n.saturating_mul(1 << self.halved);
        let (blocks, written) =
            (of_all(blocks).min(self.accesses), of_all(written).min(self.writes));
        let Footprint { accesses, writes, longer, .. } = *self;
        Touched { blocks, written, accesses, writes, is_estimate, longer }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn blocks_that_are_touched_in_part_count() {
        let mut footprint = Footprint::new();
        footprint.touch(0, 4095, 2, false);
        footprint.touch(0, 0, 4096, true);
        footprint.touch(1, 0, 64 * 4096 + 1, true);
        footprint.touch(1, 0, 4096, true);
        let touched = footprint.touched();
        let (accesses, writes) = (2 + 1 + 65 + 1, 1 + 65 + 1);
        let expected =
            Touched { blocks: 67, written: 66, accesses, writes, is_estimate: false, longer: 0 };
        assert_eq!(touched, expected);
        assert_eq!(touched.reused(), 2.0 / 69.0);
        assert_eq!(touched.overwritten(), 1.0 / 67.0);
        footprint.touch(2, (1 << 63) - 1, 1, false);
        assert_eq!(footprint.touched().blocks, 68);
        // Of a very long one a part, so that it takes no time.
        footprint.touch(3, 0, 1 << 63, true);
        let touched = footprint.touched();
        assert_eq!((touched.blocks, touched.longer), (68 + (1 << 18), 1));
    }

    proptest! {
        #[test]
        fn it_is_what_a_set_of_blocks_says(
            asked in proptest::collection::vec((0u32..3, 0u64..3_000_000, 1u64..600_000, any::<bool>()), 1..60)
        ) {
            let mut footprint = Footprint::new();
            let (mut blocks, mut written) = (HashSet::new(), HashSet::new());
            for &(volume, offset, len, writes) in &asked {
                footprint.touch(volume, offset, len, writes);
                for block in offset / 4096..=(offset + len - 1) / 4096 {
                    blocks.insert((volume, block));
                    if writes {
                        written.insert((volume, block));
                    }
                }
            }
            let touched = footprint.touched();
            prop_assert_eq!(touched.blocks, blocks.len() as u64);
            prop_assert_eq!(touched.written, written.len() as u64);
            prop_assert!(!touched.is_estimate);
        }
    }

    /// As many as a table of 4096 places holds.
    const FEW: usize = 7 << 9;

    /// 100 000 regions of one block: the standard deviation of the estimate is about one in
    /// the root of what is kept.
    #[test]
    fn what_is_too_much_is_estimated() {
        let mut footprint = Footprint::of_at_most(FEW);
        for i in 0..100_000u64 {
            footprint.touch(0, i * 64 * 4096, 4096, i % 4 == 0);
            assert!(footprint.regions.capacity() <= FEW);
        }
        let touched = footprint.touched();
        assert!(touched.is_estimate);
        assert!((touched.blocks as f64 / 100_000.0 - 1.0).abs() < 0.06, "{touched:?}");
        assert!((touched.written as f64 / 25_000.0 - 1.0).abs() < 0.12, "{touched:?}");
        assert_eq!((touched.accesses, touched.writes), (100_000, 25_000));
    }

    /// Keys of which only some bits differ are everywhere in a table: by its lowest bits are
    /// their places, by its highest the marks by which these are told apart.
    #[test]
    fn keys_that_are_alike_are_spread() {
        let seeded = Seeded {
            times: 0x243f_6a88_85a3_08d3_1319_8a2e_0370_7344,
            plus: 0xa409_3822_299f_31d0_082e_fa98_ec4e_6c89,
        };
        assert_ne!(Seeded::new().hash_one(1u64), Seeded::new().hash_one(1u64));
        for first in [0, 7, 20, 32, 48] {
            let mut places = [[0u32; 128]; 2];
            for key in 0..12_800u64 {
                let hash = seeded.hash_one(key << first);
                places[0][(hash % 128) as usize] += 1;
                places[1][(hash >> 57) as usize] += 1;
            }
            for places in places {
                let most = places.iter().max().unwrap();
                assert!(*most < 400, "{most} of 12 800 in one of 128 places");
            }
        }
    }

    /// The number that [`mix`] makes this of.
    fn unmixed(mut x: u64) -> u64 {
        // Each step has twice as many bits right.
        let inverse =
            |of: u64| (0..6).fold(of, |x, _| x.wrapping_mul(2u64.wrapping_sub(of.wrapping_mul(x))));
        x = (x ^ (x >> 31) ^ (x >> 62)).wrapping_mul(inverse(0x94d0_49bb_1331_11eb));
        x = (x ^ (x >> 27) ^ (x >> 54)).wrapping_mul(inverse(0xbf58_476d_1ce4_e5b9));
        x ^ (x >> 30) ^ (x >> 60)
    }

    /// Regions are chosen so that their keys differ in few bits, wherever these are.
    #[test]
    fn addresses_that_were_made_against_the_sample_end_it_not() {
        for first in [0, 16, 32, 49] {
            let mut footprint = Footprint::of_at_most(FEW);
            for key in (1..30_000).map(|i: u64| i << first) {
                let region = unmixed(key);
                assert_eq!(mix(region), key);
                let (volume, region) = (region >> REGION_BITS, region & ((1 << REGION_BITS) - 1));
                footprint.touch(volume as u32, region * BLOCKS * BLOCK, 4096, false);
                assert!(footprint.regions.capacity() <= FEW && footprint.halved < 64);
            }
            let touched = footprint.touched();
            assert!(touched.is_estimate && touched.blocks <= touched.accesses, "{touched:?}");
        }
    }
}
