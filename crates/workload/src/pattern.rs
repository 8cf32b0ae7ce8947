//! Which operation on which address: the pattern.
//!
//! A pattern that cannot be followed is refused when its [`Generator`] is made, with a
//! [`PatternError`].

mod generator;

pub use generator::{Access, Generator, Uniform};

use port::SECTOR_BYTES;
use port::units::size_binary;
use serde::Serialize;
use thiserror::Error;

use crate::sizes::{SizesError, Varied};
use generator::hot_blocks;

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
        "the block size of {} is not a multiple of 512 B from 512 B to 1 MiB; use for example 4k",
        size_binary(*bs)
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
        "the range of {} is smaller than a block of {}; use a larger range or a smaller block",
        size_binary(*length), size_binary(*bs)
    )]
    RangeTooSmall {
        /// The range, in bytes.
        length: u64,
        /// The block size, in bytes.
        bs: u64,
    },
    /// The range does not start at a whole sector.
    #[error(
        "the range starts at {}, which is not a multiple of 512 B; use {}",
        size_binary(*offset), size_binary(offset - offset % SECTOR_BYTES)
    )]
    Misaligned {
        /// Where the range starts, in bytes.
        offset: u64,
    },
    /// The range ends past what an address can say.
    #[error(
        "the range of {} from {} ends beyond 2^64; use a smaller offset",
        size_binary(*length), size_binary(*offset)
    )]
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

#[cfg(test)]
mod tests;
