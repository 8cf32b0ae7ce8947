//! How large accesses are, where they are not all of one size.
//!
//! Guarantees: each size drawn is one of those given, in the shares given; drawing one
//! takes one random number and allocates nothing. What cannot be is refused by
//! [`Sizes::check`] and when a split is read or made; after that nothing fails.

use std::str::FromStr;

use port::SECTOR_BYTES;
use port::units::size_binary;
use serde::{Serialize, Serializer};
use thiserror::Error;

use crate::pattern::MAX_BS;
use crate::rng::Rng;

/// Sizes in a split, at most.
pub const MOST_SIZES: usize = 16;

/// Why sizes cannot be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SizesError {
    /// A size of zero, not of whole sectors, or too large.
    #[error(
        "a request of {} is not a multiple of 512 B from 512 B to 1 MiB; use for example 4k",
        size_binary(*bytes)
    )]
    Size {
        /// The size, in bytes.
        bytes: u64,
    },
    /// No sizes, or more than are kept.
    #[error("{n} sizes are not 1 to {MOST_SIZES}; leave the rarest out")]
    Count {
        /// How many there are.
        n: usize,
    },
    /// Shares that are not the whole.
    #[error("the shares are {percent} % in all, not 100; correct them, or leave one blank")]
    Shares {
        /// Their sum, in percent.
        percent: u32,
    },
    /// A range that ends before it begins, or that is not cut evenly.
    #[error(
        "a range from {} to {} does not end at a multiple of its beginning",
        size_binary((*least).into()), size_binary((*most).into())
    )]
    Range {
        /// The smallest size, in bytes.
        least: u32,
        /// The largest, in bytes.
        most: u32,
    },
    /// A text that is no split.
    #[error("{text:?} is no split; write SIZE/PERCENT:SIZE/PERCENT, as in 4k/60:64k/40")]
    Text {
        /// The text.
        text: String,
    },
}

/// Sizes with a share each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// Bytes and percent. Those not in use are zero.
    parts: [(u32, u8); MOST_SIZES],
    /// A draw of 32 bits below this is of the same place in `parts`, or of one before.
    below: [u64; MOST_SIZES],
    count: u8,
}

impl Split {
    /// Of sizes in bytes with shares in percent, which sum to 100.
    pub fn new(parts: &[(u32, u8)]) -> Result<Split, SizesError> {
        if !(1..=MOST_SIZES).contains(&parts.len()) {
            return Err(SizesError::Count { n: parts.len() });
        }
        let percent = parts.iter().map(|&(_, percent)| u32::from(percent)).sum();
        if percent != 100 {
            return Err(SizesError::Shares { percent });
        }
        let mut split = Split { parts: [(0, 0); MOST_SIZES], below: [0; MOST_SIZES], count: 0 };
        let mut sum = 0;
        for (n, &(bytes, share)) in parts.iter().enumerate() {
            check_size(bytes)?;
            sum += u64::from(share);
            (split.parts[n], split.below[n]) = ((bytes, share), (sum << 32) / 100);
        }
        split.count = parts.len() as u8;
        Ok(split)
    }

    /// Bytes of each size, and its share in percent.
    pub fn parts(&self) -> &[(u32, u8)] {
        &self.parts[..usize::from(self.count)]
    }
}

impl FromStr for Split {
    type Err = SizesError;

    /// As [`Split::read`], with binary units.
    fn from_str(text: &str) -> Result<Split, SizesError> {
        Split::read(text, |size| port::units::parse(&size.to_lowercase(), UNITS).ok())
    }
}

impl Split {
    /// Reads `4k/60:64k/40`, as fio has it, each size by `size`, which gives bytes: sizes
    /// with a blank share have what is left, each as much; what cannot be shared evenly
    /// goes to the first of them.
    pub fn read(text: &str, size: impl Fn(&str) -> Option<u64>) -> Result<Split, SizesError> {
        let wrong = || SizesError::Text { text: text.into() };
        let part = |part: &str| {
            let (bytes, share) = part.split_once('/').unwrap_or((part, ""));
            let bytes = size(bytes.trim())?;
            let share = match share.trim() {
                "" => None,
                share => Some(share.parse::<u8>().ok().filter(|&share| share <= 100)?),
            };
            Some((u32::try_from(bytes).ok()?, share))
        };
        let parts: Option<Vec<_>> = text.split(':').take(MOST_SIZES + 1).map(part).collect();
        let parts = parts.ok_or_else(wrong)?;
        let given: u32 = parts.iter().filter_map(|&(_, share)| share).map(u32::from).sum();
        let blank = parts.iter().filter(|(_, share)| share.is_none()).count() as u32;
        let Some(left) = 100u32.checked_sub(given) else {
            return Err(SizesError::Shares { percent: given });
        };
        let mut odd = left.checked_rem(blank).unwrap_or(0);
        let each = left.checked_div(blank).unwrap_or(0);
        let mut share =
            |share: Option<u8>| share.unwrap_or_else(|| (each + std::mem::take(&mut odd)) as u8);
        let parts: Vec<_> = parts.into_iter().map(|(size, of)| (size, share(of))).collect();
        Split::new(&parts)
    }
}

/// Units of a size in a split, binary.
const UNITS: &[(&str, u64)] =
    &[("", 1), ("b", 1), ("k", 1 << 10), ("kib", 1 << 10), ("m", 1 << 20), ("mib", 1 << 20)];

fn check_size(bytes: u32) -> Result<(), SizesError> {
    let bytes = u64::from(bytes);
    if bytes == 0 || !bytes.is_multiple_of(SECTOR_BYTES) || bytes > MAX_BS {
        return Err(SizesError::Size { bytes });
    }
    Ok(())
}

/// Sizes of accesses, in bytes: multiples of 512, at most [`MAX_BS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "it is copied when a load is made, and not after")]
pub enum Sizes {
    /// All the same.
    One(u32),
    /// Each with a share.
    Split(Split),
    /// Multiples of `least` up to `most`, each as likely as the next.
    Range {
        /// The smallest.
        least: u32,
        /// The largest: a multiple of the smallest.
        most: u32,
    },
}

impl Sizes {
    /// Whether they can be.
    pub fn check(&self) -> Result<(), SizesError> {
        match *self {
            Sizes::One(bytes) => check_size(bytes),
            Sizes::Split(_) => Ok(()),
            Sizes::Range { least, most } => {
                check_size(least)?;
                check_size(most)?;
                if most < least || !most.is_multiple_of(least) {
                    return Err(SizesError::Range { least, most });
                }
                Ok(())
            }
        }
    }

    /// The smallest; random addresses are multiples of it.
    pub fn least(&self) -> u32 {
        match self {
            Sizes::One(bytes) => *bytes,
            Sizes::Split(split) => split.parts().iter().map(|part| part.0).min().unwrap_or(512),
            Sizes::Range { least, .. } => *least,
        }
    }

    /// The largest.
    pub fn most(&self) -> u32 {
        match self {
            Sizes::One(bytes) => *bytes,
            Sizes::Split(split) => split.parts().iter().map(|part| part.0).max().unwrap_or(512),
            Sizes::Range { most, .. } => *most,
        }
    }

    /// Whether all are multiples of `unit`.
    pub fn are_multiples_of(&self, unit: u32) -> bool {
        match self {
            Sizes::One(bytes) => bytes.is_multiple_of(unit),
            Sizes::Split(split) => split.parts().iter().all(|part| part.0.is_multiple_of(unit)),
            Sizes::Range { least, .. } => least.is_multiple_of(unit),
        }
    }

    /// One of them.
    #[inline]
    pub(crate) fn draw(&self, rng: &mut Rng) -> u64 {
        match self {
            Sizes::One(bytes) => (*bytes).into(),
            Sizes::Split(split) => {
                let draw = rng.bits() >> 32;
                let place = split.below.iter().position(|&below| draw < below);
                split.parts[place.unwrap_or(0)].0.into()
            }
            Sizes::Range { least, most } => {
                u64::from(*least) * (1 + rng.below(u64::from(most / least)))
            }
        }
    }
}

impl std::fmt::Display for Sizes {
    /// As they are read: `4096`, `4096/60:65536/40`, `4096-65536`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Sizes::One(bytes) => write!(f, "{bytes}"),
            Sizes::Range { least, most } => write!(f, "{least}-{most}"),
            Sizes::Split(split) => {
                for (n, (bytes, share)) in split.parts().iter().enumerate() {
                    write!(f, "{}{bytes}/{share}", if n > 0 { ":" } else { "" })?;
                }
                Ok(())
            }
        }
    }
}

impl Serialize for Sizes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The sizes of a pattern whose accesses are not all of one size. Reads and all else are
/// apart; in order, each goes on where its own kind was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Varied {
    /// Sizes of reads.
    pub reads: Sizes,
    /// Sizes of writes and trims.
    pub others: Sizes,
}

impl Varied {
    /// The smallest of all.
    pub fn least(&self) -> u64 {
        self.reads.least().min(self.others.least()).into()
    }

    /// The largest of all.
    pub fn most(&self) -> u64 {
        self.reads.most().max(self.others.most()).into()
    }

    /// Whether all are multiples of `unit`.
    pub fn are_multiples_of(&self, unit: u32) -> bool {
        self.reads.are_multiples_of(unit) && self.others.are_multiples_of(unit)
    }
}

impl std::fmt::Display for Varied {
    /// As fio has it: once where all have the same, else reads, then the others.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.reads == self.others {
            true => self.reads.fmt(f),
            false => write!(f, "{},{}", self.reads, self.others),
        }
    }
}

impl FromStr for Varied {
    type Err = SizesError;

    /// A split for all, or one of reads and one of the others, `4k/60:64k/40,8k`.
    fn from_str(text: &str) -> Result<Varied, SizesError> {
        let (reads, others) = text.split_once(',').unwrap_or((text, text));
        let sizes = |text: &str| text.parse().map(Sizes::Split);
        Ok(Varied { reads: sizes(reads)?, others: sizes(others)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop_assert_eq, proptest};

    #[test]
    fn splits_are_read_as_fio_does() {
        let parts = |text: &str| text.parse::<Split>().map(|split| split.parts().to_vec());
        assert_eq!(parts("4k/60:64k/40").unwrap(), [(4096, 60), (65536, 40)]);
        assert_eq!(parts("4k/50:1k/:32k/").unwrap(), [(4096, 50), (1024, 25), (32768, 25)]);
        assert_eq!(parts("512/:1k/:2k").unwrap(), [(512, 34), (1024, 33), (2048, 33)]);
        assert_eq!(parts("8k").unwrap(), [(8192, 100)]);
        for (text, error) in [
            ("4k/60:64k/41", SizesError::Shares { percent: 101 }),
            ("4k/60:64k/39", SizesError::Shares { percent: 99 }),
            ("4k/255:64k/", SizesError::Text { text: "4k/255:64k/".into() }),
            ("", SizesError::Text { text: "".into() }),
            ("4k/x", SizesError::Text { text: "4k/x".into() }),
            ("100/100", SizesError::Size { bytes: 100 }),
            ("2m/100", SizesError::Size { bytes: 2 << 20 }),
        ] {
            assert_eq!(parts(text), Err(error), "{text}");
        }
        let many = vec!["4k/"; 17].join(":");
        assert_eq!(parts(&many), Err(SizesError::Count { n: 17 }));
        let varied: Varied = "4k/60:64k/40,8k".parse().unwrap();
        assert_eq!(varied.to_string(), "4096/60:65536/40,8192/100");
        assert_eq!((varied.least(), varied.most()), (4096, 65536));
    }

    #[test]
    fn ranges_are_cut_evenly() {
        let range = |least, most| Sizes::Range { least, most };
        assert_eq!(range(4096, 65536).check(), Ok(()));
        for (least, most) in [(4096, 6144), (8192, 4096)] {
            assert_eq!(range(least, most).check(), Err(SizesError::Range { least, most }));
        }
        assert!(range(0, 4096).check().is_err());
    }

    /// Within five standard deviations.
    #[test]
    fn shares_are_those_given() {
        const DRAWS: usize = 100_000;
        let mut rng = Rng::new(3, 0);
        let split: Split = "512/4:4k/67:8k/10:64k/19".parse().unwrap();
        let range = Sizes::Range { least: 4096, most: 16384 };
        let quarter = [4096, 8192, 12288, 16384].map(|bytes| (bytes, 25));
        for (sizes, parts) in [(Sizes::Split(split), split.parts()), (range, &quarter)] {
            let drawn: Vec<u64> = (0..DRAWS).map(|_| sizes.draw(&mut rng)).collect();
            let mut all = 0;
            for &(bytes, share) in parts {
                let seen = drawn.iter().filter(|&&len| len == u64::from(bytes)).count();
                let (n, p) = (DRAWS as f64, f64::from(share) / 100.0);
                let tolerance = 5.0 * (n * p * (1.0 - p)).sqrt();
                assert!((seen as f64 - n * p).abs() < tolerance, "{bytes}: {seen}");
                all += seen;
            }
            assert_eq!(all, DRAWS, "nothing else is drawn");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_split_or_an_error(text in "[0-9kmi/:,. x]{0,40}|.{0,20}") {
            if let Ok(split) = text.parse::<Split>() {
                let again = Sizes::Split(split).to_string().parse::<Split>();
                prop_assert_eq!(again, Ok(split));
            }
            let _ = text.parse::<Varied>();
        }
    }
}
