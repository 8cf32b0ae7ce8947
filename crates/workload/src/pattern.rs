//! Which operation on which address: the pattern, and the generator that
//! follows it.
//!
//! Guarantees: the accesses depend on the pattern, the seed and the
//! submitter's number alone; every access lies in the range, a whole
//! number of blocks after its start; drawing one allocates nothing, and a uniform one takes a
//! few nanoseconds. A pattern that cannot be followed is refused when the
//! generator is made, with a [`PatternError`]; after that nothing fails.

use port::{BlockOp, SECTOR_BYTES};
use serde::Serialize;
use thiserror::Error;

use crate::rng::Rng;
use crate::zipf::{Spread, Zipf};

/// The largest block size, in bytes.
pub const MAX_BS: u64 = 1 << 20;
/// The largest skew of Zipf's distribution.
pub const MAX_THETA: f64 = 5.0;

/// In which order addresses come.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// One after the other, from the start again after the end.
    Sequential,
    /// Each so many blocks after the one before; from the start again after the end. 0 is
    /// the same block each time, -1 is backwards.
    Stride {
        /// How many blocks further.
        step: i64,
    },
    /// The range in so many equal parts, one block of each in turn, and each in order.
    /// What is left over after equal parts is not used.
    Partitioned {
        /// How many parts: from 1 to as many as there are blocks.
        parts: u32,
    },
    /// Each block as likely as the next.
    Uniform,
    /// The k-th hottest block in proportion to k^-theta; hot blocks are
    /// spread over the range.
    Zipf {
        /// The skew, above 0 and at most [`MAX_THETA`]. 0.99 is usual.
        theta: f64,
    },
    /// `accesses_percent` of the accesses go to the first `range_percent` of
    /// the range, the others to the rest; both uniformly.
    HotCold {
        /// Share of accesses to the hot part, 0 to 100.
        accesses_percent: u8,
        /// Share of the range that is hot, 1 to 99.
        range_percent: u8,
        /// Accesses to the hot part say so, by a placement of their own.
        placed: bool,
    },
}

/// What to do with a drive.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Pattern {
    /// First byte of the range; a multiple of 512.
    pub offset: u64,
    /// Bytes of the range. What is left over after whole blocks is not used.
    pub length: u64,
    /// Bytes of each access: a multiple of 512, at most [`MAX_BS`].
    pub bs: u64,
    /// Share of reads, 0 to 100.
    pub read_percent: u8,
    /// Share of trims, 0 to 100 less the reads. The rest is writes.
    pub trim_percent: u8,
    /// In which order addresses come.
    pub order: Order,
    /// Every how many writes one is forced to the medium; 0 is never.
    pub fua_every: u32,
    /// After how many writes a flush follows; 0 is never.
    pub flush_every: u32,
}

/// Why a pattern cannot be followed.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum PatternError {
    /// A block size of zero, not of whole sectors, or too large.
    #[error(
        "the block size of {bs} bytes is not a multiple of 512 from 512 to 1048576; use for example 4096"
    )]
    BlockSize {
        /// The block size, in bytes.
        bs: u64,
    },
    /// The range has no room for one block.
    #[error(
        "the range of {length} bytes is smaller than a block of {bs}; use a larger range or a smaller block"
    )]
    RangeTooSmall {
        /// The range, in bytes.
        length: u64,
        /// The block size, in bytes.
        bs: u64,
    },
    /// The range does not start at a whole sector.
    #[error("the range starts at {offset}, which is not a multiple of 512; use {}", offset - offset % SECTOR_BYTES)]
    Misaligned {
        /// Where the range starts, in bytes.
        offset: u64,
    },
    /// The range ends past what an address can say.
    #[error("the range of {length} bytes from {offset} ends beyond 2^64; use a smaller offset")]
    RangeTooLarge {
        /// Where the range starts, in bytes.
        offset: u64,
        /// The range, in bytes.
        length: u64,
    },
    /// More than 100 %.
    #[error("{reads} % reads and {trims} % trims are more than 100 %; lower one of them")]
    Mix {
        /// Percent of reads.
        reads: u8,
        /// Percent of trims.
        trims: u8,
    },
    /// A skew that Zipf's distribution does not have here.
    #[error("theta of {theta} is not above 0 and at most 5; use for example 0.99")]
    Theta {
        /// The skew.
        theta: f64,
    },
    /// A hot part that is no part.
    #[error(
        "{accesses} % of accesses to {range} % of the range is not 0 to 100 % to 1 to 99 %; use for example 80 and 20"
    )]
    HotShares {
        /// Percent of accesses.
        accesses: u8,
        /// Percent of the range.
        range: u8,
    },
    /// Parts that are none, or hold no block.
    #[error("a range of {blocks} blocks has no {parts} parts; use 1 to {blocks}")]
    Parts {
        /// How many parts.
        parts: u32,
        /// Blocks of the range.
        blocks: u64,
    },
    /// One block cannot be split in hot and cold.
    #[error(
        "the range holds only one block, which cannot be split in hot and cold; use a larger range"
    )]
    TooSmallToSplit,
    /// A submitter's number that does not exist.
    #[error("submitter {submitter} does not exist among {submitters}; they are numbered from 0")]
    Submitter {
        /// Its number.
        submitter: u32,
        /// How many there are.
        submitters: u32,
    },
}

impl Pattern {
    /// A uniform random pattern of 4 KiB blocks over the first `length` bytes.
    pub fn uniform(length: u64, read_percent: u8) -> Pattern {
        Pattern {
            offset: 0,
            length,
            bs: port::BLOCK_BYTES,
            read_percent,
            trim_percent: 0,
            order: Order::Uniform,
            fua_every: 0,
            flush_every: 0,
        }
    }

    /// The pattern of preconditioning: 128 KiB sequential writes.
    pub fn precondition(length: u64) -> Pattern {
        Pattern { bs: 128 << 10, order: Order::Sequential, ..Pattern::uniform(length, 0) }
    }

    /// How many whole blocks the range holds; zero when `bs` is zero.
    pub fn blocks(&self) -> u64 {
        self.length.checked_div(self.bs).unwrap_or(0)
    }

    /// Accesses below this address say that they are hot; none for 0.
    pub fn hot_end(&self) -> u64 {
        match self.order {
            Order::HotCold { range_percent, placed: true, .. } => {
                self.offset + hot_blocks(self.blocks(), range_percent) * self.bs
            }
            _ => 0,
        }
    }

    /// Whether it can be followed.
    pub fn check(&self) -> Result<(), PatternError> {
        let Pattern { offset, length, bs, .. } = *self;
        let (reads, trims) = (self.read_percent, self.trim_percent);
        if bs == 0 || !bs.is_multiple_of(SECTOR_BYTES) || bs > MAX_BS {
            return Err(PatternError::BlockSize { bs });
        }
        if length < bs {
            return Err(PatternError::RangeTooSmall { length, bs });
        }
        if !offset.is_multiple_of(SECTOR_BYTES) {
            return Err(PatternError::Misaligned { offset });
        }
        if offset.checked_add(length).is_none() {
            return Err(PatternError::RangeTooLarge { offset, length });
        }
        if u16::from(reads) + u16::from(trims) > 100 {
            return Err(PatternError::Mix { reads, trims });
        }
        self.check_order()
    }

    fn check_order(&self) -> Result<(), PatternError> {
        match self.order {
            Order::Sequential | Order::Uniform | Order::Stride { .. } => Ok(()),
            Order::Partitioned { parts } if (1..=self.blocks()).contains(&parts.into()) => Ok(()),
            Order::Partitioned { parts } => {
                Err(PatternError::Parts { parts, blocks: self.blocks() })
            }
            Order::Zipf { theta } if theta > 0.0 && theta <= MAX_THETA => Ok(()),
            Order::Zipf { theta } => Err(PatternError::Theta { theta }),
            Order::HotCold { accesses_percent: accesses, range_percent: range, .. }
                if accesses > 100 || range == 0 || range > 99 =>
            {
                Err(PatternError::HotShares { accesses, range })
            }
            Order::HotCold { .. } if self.blocks() < 2 => Err(PatternError::TooSmallToSplit),
            Order::HotCold { .. } => Ok(()),
        }
    }
}

/// One access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Read, write, trim or flush.
    pub op: BlockOp,
    /// First byte; zero for a flush.
    pub offset: u64,
    /// Bytes; zero for a flush.
    pub len: u64,
    /// A write that completes only when durable.
    pub fua: bool,
}

/// How the next block number is found.
#[derive(Clone, Debug)]
enum Source {
    /// `step` is below the number of blocks.
    Stride {
        next: u64,
        step: u64,
    },
    Partitioned {
        parts: u64,
        part: u64,
        next: u64,
    },
    Uniform,
    Zipf {
        zipf: Zipf,
        spread: Spread,
    },
    HotCold {
        hot: u64,
        threshold: u64,
    },
}

/// Follows a pattern.
#[derive(Clone, Debug)]
pub struct Generator {
    rng: Rng,
    blocks: u64,
    bs: u64,
    offset: u64,
    source: Source,
    /// A draw below this is a read.
    reads: u64,
    /// A draw below this, and no read, is a trim.
    trims: u64,
    /// No draw is needed when there is one operation only.
    only: Option<BlockOp>,
    counts_writes: bool,
    fua_every: u32,
    writes_to_fua: u32,
    flush_every: u32,
    writes_to_flush: u32,
}

/// How many of so many blocks are hot.
fn hot_blocks(blocks: u64, percent: u8) -> u64 {
    let hot = u128::from(blocks) * u128::from(percent) / 100;
    (hot as u64).max(1)
}

/// The draw of 32 bits that stands for a share.
fn threshold(percent: u64) -> u64 {
    (percent << 32) / 100
}

impl Generator {
    /// The generator of submitter `submitter` of `submitters`. They draw
    /// different numbers; sequential ones start in different parts of the
    /// range; with Zipf the same blocks are hot for all.
    pub fn new(
        pattern: &Pattern,
        seed: u64,
        submitter: u32,
        submitters: u32,
    ) -> Result<Generator, PatternError> {
        pattern.check()?;
        if submitter >= submitters {
            return Err(PatternError::Submitter { submitter, submitters });
        }
        let blocks = pattern.blocks();
        let part = u128::from(blocks) * u128::from(submitter) / u128::from(submitters);
        let source = match pattern.order {
            Order::Sequential => Source::Stride { next: part as u64, step: 1 % blocks },
            Order::Stride { step } => {
                let step = i128::from(step).rem_euclid(blocks.into()) as u64;
                Source::Stride { next: part as u64, step }
            }
            Order::Partitioned { parts } => {
                let next = part as u64 % (blocks / u64::from(parts));
                Source::Partitioned { parts: parts.into(), part: 0, next }
            }
            Order::Uniform => Source::Uniform,
            Order::Zipf { theta } => {
                Source::Zipf { zipf: Zipf::new(blocks, theta), spread: Spread::new(blocks, seed) }
            }
            Order::HotCold { accesses_percent, range_percent, .. } => {
                let threshold = threshold(accesses_percent.into());
                Source::HotCold { hot: hot_blocks(blocks, range_percent), threshold }
            }
        };
        let (reads, trims) = (u64::from(pattern.read_percent), u64::from(pattern.trim_percent));
        let only = match (reads, trims) {
            (100, _) => Some(BlockOp::Read),
            (_, 100) => Some(BlockOp::Trim),
            (0, 0) => Some(BlockOp::Write),
            _ => None,
        };
        Ok(Generator {
            rng: Rng::new(seed, u64::from(submitter)),
            blocks,
            bs: pattern.bs,
            offset: pattern.offset,
            source,
            reads: threshold(reads),
            trims: threshold(reads + trims),
            only,
            counts_writes: pattern.fua_every > 0 || pattern.flush_every > 0,
            fua_every: pattern.fua_every,
            writes_to_fua: pattern.fua_every,
            flush_every: pattern.flush_every,
            writes_to_flush: pattern.flush_every,
        })
    }

    /// The next access. There always is one.
    #[inline(always)]
    #[expect(clippy::should_implement_trait, reason = "it never ends, so it gives no option")]
    pub fn next(&mut self) -> Access {
        if self.flush_every > 0 && self.writes_to_flush == 0 {
            self.writes_to_flush = self.flush_every;
            return Access { op: BlockOp::Flush, offset: 0, len: 0, fua: false };
        }
        let op = self.only.unwrap_or_else(|| self.draw_op());
        // Asked first, so that most patterns need no branch on the operation.
        let fua = self.counts_writes && op == BlockOp::Write && self.count_write();
        Access { op, offset: self.offset + self.draw_block() * self.bs, len: self.bs, fua }
    }

    #[inline]
    fn draw_op(&mut self) -> BlockOp {
        let draw = self.rng.bits() >> 32;
        match draw {
            d if d < self.reads => BlockOp::Read,
            d if d < self.trims => BlockOp::Trim,
            _ => BlockOp::Write,
        }
    }

    /// Counts a write; true when it is to be forced to the medium.
    #[inline]
    fn count_write(&mut self) -> bool {
        self.writes_to_flush = self.writes_to_flush.saturating_sub(1);
        if self.fua_every == 0 {
            return false;
        }
        self.writes_to_fua -= 1;
        if self.writes_to_fua > 0 {
            return false;
        }
        self.writes_to_fua = self.fua_every;
        true
    }

    #[inline]
    fn draw_block(&mut self) -> u64 {
        match &mut self.source {
            Source::Uniform => self.rng.below(self.blocks),
            Source::Stride { next, step } => {
                let block = *next;
                let after = block + *step;
                *next = if after >= self.blocks { after - self.blocks } else { after };
                block
            }
            Source::Partitioned { parts, part, next } => {
                let each = self.blocks / *parts;
                let block = *part * each + *next;
                *part += 1;
                if *part == *parts {
                    *part = 0;
                    *next = (*next + 1) % each;
                }
                block
            }
            Source::Zipf { zipf, spread } => spread.of(zipf.draw(&mut self.rng)),
            Source::HotCold { hot, threshold } => {
                if self.rng.bits() >> 32 < *threshold {
                    self.rng.below(*hot)
                } else {
                    *hot + self.rng.below(self.blocks - *hot)
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn take(pattern: &Pattern, n: usize) -> Vec<Access> {
        let mut g = Generator::new(pattern, 1, 0, 1).unwrap();
        (0..n).map(|_| g.next()).collect()
    }

    #[test]
    fn impossible_patterns_are_refused() {
        let good = Pattern::uniform(1 << 20, 50);
        let zipf = |theta| Pattern { order: Order::Zipf { theta }, ..good };
        let hot = |accesses_percent, range_percent| Pattern {
            order: Order::HotCold { accesses_percent, range_percent, placed: false },
            ..good
        };
        use PatternError as E;
        let refused = [
            (Pattern { bs: 0, ..good }, E::BlockSize { bs: 0 }),
            (Pattern { bs: 1000, ..good }, E::BlockSize { bs: 1000 }),
            (Pattern { bs: 2 << 20, ..good }, E::BlockSize { bs: 2 << 20 }),
            (Pattern { length: 4095, ..good }, E::RangeTooSmall { length: 4095, bs: 4096 }),
            (Pattern { offset: 513, ..good }, E::Misaligned { offset: 513 }),
            (
                Pattern { offset: u64::MAX - 4095, length: 8192, ..good },
                E::RangeTooLarge { offset: u64::MAX - 4095, length: 8192 },
            ),
            (
                Pattern { order: Order::Partitioned { parts: 257 }, ..good },
                E::Parts { parts: 257, blocks: 256 },
            ),
            (
                Pattern { order: Order::Partitioned { parts: 0 }, ..good },
                E::Parts { parts: 0, blocks: 256 },
            ),
            (Pattern { read_percent: 101, ..good }, E::Mix { reads: 101, trims: 0 }),
            (Pattern { trim_percent: 51, ..good }, E::Mix { reads: 50, trims: 51 }),
            (
                Pattern { read_percent: 255, trim_percent: 255, ..good },
                E::Mix { reads: 255, trims: 255 },
            ),
            (zipf(0.0), E::Theta { theta: 0.0 }),
            (zipf(5.1), E::Theta { theta: 5.1 }),
            (hot(101, 20), E::HotShares { accesses: 101, range: 20 }),
            (hot(80, 0), E::HotShares { accesses: 80, range: 0 }),
            (hot(80, 100), E::HotShares { accesses: 80, range: 100 }),
            (Pattern { length: 4096, ..hot(80, 20) }, E::TooSmallToSplit),
        ];
        for (pattern, error) in refused {
            assert_eq!(Generator::new(&pattern, 0, 0, 1).unwrap_err(), error);
        }
        assert!(matches!(zipf(f64::NAN).check(), Err(E::Theta { .. })));
        assert!(matches!(Generator::new(&good, 0, 1, 1), Err(E::Submitter { .. })));
        assert!(E::Misaligned { offset: 513 }.to_string().ends_with("use 512"));
        assert_eq!(good.check(), Ok(()));
    }

    #[test]
    fn sequential_wraps_and_submitters_start_apart() {
        let pattern =
            Pattern { length: 10 * 4096 + 100, order: Order::Sequential, ..Pattern::uniform(0, 0) };
        let blocks: Vec<u64> = take(&pattern, 12).iter().map(|a| a.offset / 4096).collect();
        assert_eq!(blocks, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]);
        let mut second = Generator::new(&pattern, 1, 1, 2).unwrap();
        assert_eq!(second.next().offset, 5 * 4096);
    }

    #[test]
    fn strides_go_round_and_partitions_take_turns() {
        let blocks = |order, length: u64, n| {
            let pattern = Pattern { order, ..Pattern::uniform(length * 4096, 0) };
            take(&pattern, n).iter().map(|a| a.offset / 4096).collect::<Vec<u64>>()
        };
        let stride = |step| blocks(Order::Stride { step }, 10, 6);
        assert_eq!(stride(0), [0; 6]);
        assert_eq!(stride(-1), [0, 9, 8, 7, 6, 5]);
        assert_eq!(stride(4), [0, 4, 8, 2, 6, 0]);
        assert_eq!(stride(i64::MIN), [0, 2, 4, 6, 8, 0], "-9223372036854775808 is 2 of 10");
        // 11 blocks in 3 parts of 3.
        let parts = blocks(Order::Partitioned { parts: 3 }, 11, 10);
        assert_eq!(parts, [0, 3, 6, 1, 4, 7, 2, 5, 8, 0]);
        assert_eq!(blocks(Order::Partitioned { parts: 1 }, 3, 4), [0, 1, 2, 0]);
        assert_eq!(blocks(Order::Sequential, 1, 3), [0; 3], "a range of one block");
    }

    #[test]
    fn seeds_and_submitters_decide_everything() {
        let pattern = Pattern::uniform(1 << 30, 70);
        let run = |seed, submitter| {
            let mut g = Generator::new(&pattern, seed, submitter, 4).unwrap();
            (0..50).map(|_| g.next()).collect::<Vec<_>>()
        };
        assert_eq!(run(1, 0), run(1, 0));
        assert_ne!(run(1, 0), run(2, 0));
        assert_ne!(run(1, 0), run(1, 1));
    }

    #[test]
    fn uniform_is_even() {
        const BLOCKS: usize = 256;
        let mut seen = [0u32; BLOCKS];
        for a in take(&Pattern::uniform(BLOCKS as u64 * 4096, 100), BLOCKS * 400) {
            seen[(a.offset / 4096) as usize] += 1;
        }
        // 255 degrees of freedom: 330 is passed once in a thousand seeds.
        let chi: f64 = seen.iter().map(|&n| (f64::from(n) - 400.0).powi(2) / 400.0).sum();
        assert!((180.0..330.0).contains(&chi), "chi-square {chi}");
    }

    #[test]
    fn operations_come_in_their_shares() {
        let pattern = Pattern { trim_percent: 10, ..Pattern::uniform(1 << 20, 65) };
        let all = take(&pattern, 100_000);
        let share = |op| all.iter().filter(|a| a.op == op).count() as f64 / 1000.0;
        // Five standard deviations are below 0.8 %.
        assert!((share(BlockOp::Read) - 65.0).abs() < 0.8);
        assert!((share(BlockOp::Trim) - 10.0).abs() < 0.5);
        assert!((share(BlockOp::Write) - 25.0).abs() < 0.7);
        for (reads, trims, op) in
            [(100, 0, BlockOp::Read), (0, 100, BlockOp::Trim), (0, 0, BlockOp::Write)]
        {
            let pattern = Pattern { trim_percent: trims, ..Pattern::uniform(1 << 20, reads) };
            assert!(take(&pattern, 10_000).iter().all(|a| a.op == op));
        }
    }

    #[test]
    fn hot_and_cold_get_their_shares() {
        let order = Order::HotCold { accesses_percent: 80, range_percent: 20, placed: true };
        let pattern = Pattern { order, ..Pattern::uniform(1000 * 4096, 0) };
        let all = take(&pattern, 100_000);
        let unplaced = Pattern::uniform(1000 * 4096, 0);
        let hot: Vec<_> = all.iter().filter(|a| a.offset < 200 * 4096).collect();
        assert!((hot.len() as f64 / 1000.0 - 80.0).abs() < 0.7, "{} hot", hot.len());
        assert_eq!((pattern.hot_end(), unplaced.hot_end()), (200 * 4096, 0));
        let distinct: std::collections::HashSet<u64> = all.iter().map(|a| a.offset).collect();
        assert_eq!(distinct.len(), 1000, "every block comes");
        let all_hot = Order::HotCold { accesses_percent: 100, range_percent: 1, placed: false };
        let pattern = Pattern { order: all_hot, ..Pattern::uniform(2 * 4096, 0) };
        assert!(take(&pattern, 1000).iter().all(|a| a.offset == 0));
    }

    #[test]
    fn the_hottest_block_is_as_hot_as_zipf_says() {
        let pattern =
            Pattern { order: Order::Zipf { theta: 0.99 }, ..Pattern::uniform(10_000 * 4096, 0) };
        let mut seen = vec![0u32; 10_000];
        for a in take(&pattern, 200_000) {
            seen[(a.offset / 4096) as usize] += 1;
        }
        let total: f64 = (1..=10_000).map(|k| f64::from(k).powf(-0.99)).sum();
        let expected = 200_000.0 / total;
        let hottest = f64::from(seen.iter().copied().max().unwrap());
        assert!((hottest / expected - 1.0).abs() < 0.05, "{hottest}, not {expected}");
        // The same blocks are hot for every submitter.
        let place = seen.iter().position(|&n| f64::from(n) == hottest).unwrap() as u64;
        let mut other = Generator::new(&pattern, 1, 3, 4).unwrap();
        let again = (0..10_000).filter(|_| other.next().offset / 4096 == place).count();
        assert!((again as f64 / (10_000.0 / total) - 1.0).abs() < 0.2, "{again}");
    }

    #[test]
    fn flushes_and_forced_writes_come_on_time() {
        let pattern = Pattern { flush_every: 3, fua_every: 2, ..Pattern::uniform(1 << 20, 0) };
        let marks: String = take(&pattern, 9)
            .iter()
            .map(|a| match (a.op, a.fua) {
                (BlockOp::Flush, false) => 'f',
                (BlockOp::Write, true) => 'W',
                (BlockOp::Write, false) => 'w',
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(marks, "wWwfWwWfw");
    }

    #[test]
    fn reads_do_not_count_as_writes() {
        let pattern = Pattern { flush_every: 4, ..Pattern::uniform(1 << 20, 50) };
        let all = take(&pattern, 1000);
        for part in all.split(|a| a.op == BlockOp::Flush).rev().skip(1) {
            assert_eq!(part.iter().filter(|a| a.op == BlockOp::Write).count(), 4);
        }
    }

    fn order() -> impl Strategy<Value = Order> {
        prop_oneof![
            Just(Order::Sequential),
            Just(Order::Uniform),
            any::<i64>().prop_map(|step| Order::Stride { step }),
            (1u32..=2).prop_map(|parts| Order::Partitioned { parts }),
            (0.01f64..=5.0).prop_map(|theta| Order::Zipf { theta }),
            (0u8..=100, 1u8..=99, any::<bool>()).prop_map(
                |(accesses_percent, range_percent, placed)| Order::HotCold {
                    accesses_percent,
                    range_percent,
                    placed,
                }
            ),
        ]
    }

    proptest! {
        #[test]
        fn accesses_stay_in_the_range_and_aligned(
            order in order(), sectors in 1u64..=2048, start in 0u64..100_000, blocks in 2u64..5000,
            rest in 0u64..512, read_percent in 0u8..=100, seed in any::<u64>(),
        ) {
            let bs = sectors * 512;
            let pattern = Pattern {
                offset: start * 512,
                length: blocks * bs + rest,
                bs,
                order,
                ..Pattern::uniform(0, read_percent)
            };
            let mut g = Generator::new(&pattern, seed, 2, 3).unwrap();
            for _ in 0..100 {
                let a = g.next();
                prop_assert_eq!(a.len, bs);
                prop_assert_eq!((a.offset - pattern.offset) % bs, 0);
                prop_assert!(a.offset >= pattern.offset);
                prop_assert!(a.offset + a.len <= pattern.offset + pattern.length);
            }
        }
    }
}
