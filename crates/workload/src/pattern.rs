//! Which operation on which address: the pattern, and the generator that
//! follows it.
//!
//! Guarantees: the accesses depend on the pattern, the seed and the
//! submitter's number alone; every access lies in the range, a whole
//! number of blocks after its start (in order, of several sizes, where the one before
//! ended); drawing one allocates nothing, and a uniform one takes a few nanoseconds. A pattern that cannot be followed is refused when the
//! generator is made, with a [`PatternError`]; after that nothing fails.

use port::{BlockOp, SECTOR_BYTES};
use serde::Serialize;
use thiserror::Error;

use crate::rng::{Rng, mix};
use crate::sizes::{SizesError, Varied};
use crate::zipf::{Pareto, Spread, Zipf};

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
    /// Each block once in no order, then all of them again in another.
    Once,
    /// The k-th hottest block in proportion to k^-theta; hot blocks are
    /// spread over the range.
    Zipf {
        /// The skew, above 0 and at most [`MAX_THETA`]. 0.99 is usual.
        theta: f64,
    },
    /// `1 - h` of the accesses go to `h` of the blocks, and so it is within these again: as
    /// fio's `pareto`; hot blocks are spread over the range.
    Pareto {
        /// Above 0 and below 1. 0.2 is usual: 80 % of the accesses to 20 % of the blocks.
        h: f64,
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
    /// Bytes of each access: a multiple of 512, at most [`MAX_BS`]. Where they vary, the
    /// smallest.
    pub bs: u64,
    /// Where accesses are of several sizes, these.
    pub varied: Option<Varied>,
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
#[derive(Clone, Debug, PartialEq, Error)]
pub enum PatternError {
    /// A block size of zero, not of whole sectors, or too large.
    #[error(
        "the block size of {bs} bytes is not a multiple of 512 from 512 to 1048576; use for example 4096"
    )]
    BlockSize {
        /// The block size, in bytes.
        bs: u64,
    },
    /// Sizes that cannot be.
    #[error(transparent)]
    Sizes(#[from] SizesError),
    /// Sizes that vary in an order that counts in blocks.
    #[error("addresses come in this order only where all accesses are of one size; take one size")]
    SeveralSizes,
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
    /// A share that Pareto's distribution does not have.
    #[error("a share of {h} is not above 0 and below 1; use for example 0.2")]
    Pareto {
        /// The share.
        h: f64,
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
            varied: None,
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

    /// The same with accesses of these sizes.
    #[must_use]
    pub fn of_sizes(self, varied: Varied) -> Pattern {
        Pattern { bs: varied.least(), varied: Some(varied), ..self }
    }

    /// Bytes of the largest access.
    pub fn most(&self) -> u64 {
        self.varied.map_or(self.bs, |varied| varied.most())
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
        if let Some(varied) = &self.varied {
            varied.reads.check()?;
            varied.others.check()?;
            let counts = |order| {
                matches!(order, Order::Once | Order::Stride { .. } | Order::Partitioned { .. })
            };
            if counts(self.order) {
                return Err(PatternError::SeveralSizes);
            }
        }
        let most = self.most();
        if length < most {
            return Err(PatternError::RangeTooSmall { length, bs: most });
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
            Order::Sequential | Order::Uniform | Order::Once | Order::Stride { .. } => Ok(()),
            Order::Partitioned { parts } if (1..=self.blocks()).contains(&parts.into()) => Ok(()),
            Order::Partitioned { parts } => {
                Err(PatternError::Parts { parts, blocks: self.blocks() })
            }
            Order::Zipf { theta } if theta > 0.0 && theta <= MAX_THETA => Ok(()),
            Order::Zipf { theta } => Err(PatternError::Theta { theta }),
            Order::Pareto { h } if h > 0.0 && h < 1.0 => Ok(()),
            Order::Pareto { h } => Err(PatternError::Pareto { h }),
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
    Once {
        next: u64,
        round: u64,
        spread: Spread,
    },
    Zipf {
        zipf: Zipf,
        spread: Spread,
    },
    Pareto {
        pareto: Pareto,
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
    mix: Mix,
    /// Whether addresses are uniform, all are of one size and writes need not be counted.
    is_uniform: bool,
    /// Whether anything but plain accesses of one size may come: looked at first, so that
    /// those need no other branch.
    is_special: bool,
    counts_writes: bool,
    fua_every: u32,
    writes_to_fua: u32,
    flush_every: u32,
    writes_to_flush: u32,
    varied: Option<Box<Course>>,
}

/// Where accesses of several sizes go.
#[derive(Clone, Debug)]
struct Course {
    sizes: Varied,
    /// Bytes of the range.
    length: u64,
    /// In order: where the next read is, and the next of all else, in bytes from the start.
    next: [u64; 2],
}

impl Course {
    /// Where the next of its kind is, from the start again where it does not fit.
    fn in_order(&mut self, is_read: bool, len: u64) -> u64 {
        let next = &mut self.next[usize::from(!is_read)];
        let at = if *next + len <= self.length { *next } else { 0 };
        *next = at + len;
        at
    }
}

/// Accesses of one size at uniform addresses: what is left of a generator where nothing
/// else comes, so small that many are drawn from the processor's registers.
pub struct Uniform {
    rng: Rng,
    blocks: u64,
    bs: u64,
    offset: u64,
    mix: Mix,
}

/// The shares of operations.
#[derive(Clone, Copy, Debug)]
struct Mix {
    /// No draw is needed when there is one operation only.
    only: Option<BlockOp>,
    /// A draw below this is a read.
    reads: u64,
    /// A draw below this, and no read, is a trim.
    trims: u64,
}

impl Mix {
    #[inline(always)]
    fn draw(&self, rng: &mut Rng) -> BlockOp {
        if let Some(op) = self.only {
            return op;
        }
        match rng.bits() >> 32 {
            d if d < self.reads => BlockOp::Read,
            d if d < self.trims => BlockOp::Trim,
            _ => BlockOp::Write,
        }
    }
}

impl Uniform {
    /// The next access. There always is one.
    #[inline(always)]
    #[expect(clippy::should_implement_trait, reason = "it never ends, so it gives no option")]
    pub fn next(&mut self) -> Access {
        let Uniform { rng, blocks, bs, offset, mix } = self;
        let op = mix.draw(rng);
        Access { op, offset: *offset + rng.below(*blocks) * *bs, len: *bs, fua: false }
    }
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
            Order::Once => {
                let round = u64::from(submitter) << 32;
                Source::Once { next: 0, round, spread: Spread::new(blocks, seed ^ mix(round)) }
            }
            Order::Zipf { theta } => {
                Source::Zipf { zipf: Zipf::new(blocks, theta), spread: Spread::new(blocks, seed) }
            }
            Order::Pareto { h } => {
                Source::Pareto { pareto: Pareto::new(blocks, h), spread: Spread::new(blocks, seed) }
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
        let course = |sizes| {
            // Where in the range it begins, as those of one size do.
            let start = part as u64 * pattern.bs;
            Box::new(Course { sizes, length: pattern.length, next: [start; 2] })
        };
        let counts_writes = pattern.fua_every > 0 || pattern.flush_every > 0;
        let is_even = !counts_writes && pattern.varied.is_none();
        Ok(Generator {
            is_uniform: pattern.order == Order::Uniform && is_even,
            rng: Rng::new(seed, u64::from(submitter)),
            blocks,
            bs: pattern.bs,
            offset: pattern.offset,
            source,
            mix: Mix { only, reads: threshold(reads), trims: threshold(reads + trims) },
            is_special: pattern.flush_every > 0 || pattern.varied.is_some(),
            counts_writes,
            fua_every: pattern.fua_every,
            writes_to_fua: pattern.fua_every,
            flush_every: pattern.flush_every,
            writes_to_flush: pattern.flush_every,
            varied: pattern.varied.map(course),
        })
    }

    /// The same accesses, where all are uniform and of one size. Those drawn from there
    /// count here once this [goes on](Generator::go_on).
    #[inline(always)]
    pub fn to_uniform(&self) -> Option<Uniform> {
        let Generator { blocks, bs, offset, mix, .. } = *self;
        self.is_uniform.then(|| Uniform { rng: self.rng.clone(), blocks, bs, offset, mix })
    }

    /// Goes on where those of `uniform` ended.
    #[inline(always)]
    pub fn go_on(&mut self, uniform: Uniform) {
        self.rng = uniform.rng;
    }

    /// The next access. There always is one.
    #[inline(always)]
    #[expect(clippy::should_implement_trait, reason = "it never ends, so it gives no option")]
    pub fn next(&mut self) -> Access {
        if self.is_special {
            return self.next_special();
        }
        self.next_plain()
    }

    #[inline(always)]
    fn next_plain(&mut self) -> Access {
        if let Some(mut uniform) = self.to_uniform() {
            let access = uniform.next();
            self.go_on(uniform);
            return access;
        }
        let op = self.mix.draw(&mut self.rng);
        // Asked first, so that most patterns need no branch on the operation.
        let fua = self.counts_writes && op == BlockOp::Write && self.count_write();
        Access { op, offset: self.offset + self.draw_block() * self.bs, len: self.bs, fua }
    }

    /// The next access where there are flushes, or several sizes.
    #[inline(never)]
    fn next_special(&mut self) -> Access {
        if self.flush_every > 0 && self.writes_to_flush == 0 {
            self.writes_to_flush = self.flush_every;
            return Access { op: BlockOp::Flush, offset: 0, len: 0, fua: false };
        }
        let Some(mut course) = self.varied.take() else { return self.next_plain() };
        let op = self.mix.draw(&mut self.rng);
        let fua = self.counts_writes && op == BlockOp::Write && self.count_write();
        let is_read = op == BlockOp::Read;
        let sizes = if is_read { &course.sizes.reads } else { &course.sizes.others };
        let (len, unit) = (sizes.draw(&mut self.rng), u64::from(sizes.least()));
        let at = match self.source {
            Source::Stride { .. } => course.in_order(is_read, len),
            _ => self.place(course.length - len, unit),
        };
        self.varied = Some(course);
        Access { op, offset: self.offset + at, len, fua }
    }

    /// A random place, a multiple of `unit` and at most `last`. One beyond, where the
    /// access would not fit, is drawn again from all that do.
    fn place(&mut self, last: u64, unit: u64) -> u64 {
        let at = self.draw_block() * self.bs;
        let at = at - at % unit;
        if at <= last { at } else { self.rng.below(last / unit + 1) * unit }
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
            Source::Once { next, round, spread } => {
                if *next == self.blocks {
                    (*next, *round) = (0, *round + 1);
                    *spread = Spread::new(self.blocks, self.rng.bits() ^ mix(*round));
                }
                *next += 1;
                spread.of(*next - 1)
            }
            Source::Zipf { zipf, spread } => spread.of(zipf.draw(&mut self.rng)),
            Source::Pareto { pareto, spread } => spread.of(pareto.draw(&mut self.rng)),
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
mod tests;
