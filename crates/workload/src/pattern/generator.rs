//! The generator that follows a pattern.
//!
//! Guarantees: the accesses depend on the pattern, the seed and the
//! submitter's number alone; every access lies in the range, a whole
//! number of blocks after its start (in order, of several sizes, where the one before
//! ended); drawing one allocates nothing, and a uniform one takes a few nanoseconds.
//! When it is made nothing fails any more.

use port::BlockOp;

use super::{Order, Pattern, PatternError};
use crate::rng::{Rng, mix};
use crate::sizes::Varied;
use crate::zipf::{Pareto, Spread, Zipf};

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
pub(super) fn hot_blocks(blocks: u64, percent: u8) -> u64 {
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
