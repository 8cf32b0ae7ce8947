//! Data that tells, when read back, whose it is.
//!
//! Each sector of 512 bytes is stamped:
//!
//! ```text
//! byte  0        8         16        24     32                512
//!       │ "ssdkit·1" │ sector │ version │ seed │ words of the four │
//! ```
//!
//! all little-endian; the words after the head follow from sector, version
//! and seed alone, so that every damaged byte is noticed. Version 0 is a block
//! that was never written, or was trimmed: all zeros.
//!
//! Guarantees: what [`fill`] wrote, [`check`] accepts for that address, seed
//! and version only, and it tells apart wrong address, another run's data,
//! torn, stale, not yet written, zero and garbage. Nothing is allocated.

use port::{BLOCK_BYTES, SECTOR_BYTES};
use thiserror::Error;
use xxhash_rust::xxh3::xxh3_64;

use crate::rng::mix;
use crate::versions::Allowed;

const SECTOR: usize = SECTOR_BYTES as usize;
const BLOCK: usize = BLOCK_BYTES as usize;
const SECTORS_A_BLOCK: u64 = BLOCK_BYTES / SECTOR_BYTES;
const WORDS: usize = SECTOR / 8;
/// Words of the head.
const HEAD: usize = 4;
const MAGIC: u64 = u64::from_le_bytes(*b"ssdkit\xb71");

/// What is wrong with data that was read. Sectors are numbered from the start
/// of the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Mismatch {
    /// Data of another address.
    #[error(
        "sector {sector} holds the data of sector {found}: a read or write went to the wrong address"
    )]
    WrongAddress {
        /// The sector that was read.
        sector: u64,
        /// The sector that the data was written to.
        found: u64,
    },
    /// Data of a run with another seed.
    #[error("sector {sector} holds data of a run with seed {found}: this run's write is lost")]
    WrongSeed {
        /// The sector that was read.
        sector: u64,
        /// The seed that the data was written with.
        found: u64,
    },
    /// Two versions in what is written as one. Version 0 is zeros.
    #[error("torn at sector {sector}: version {found} follows version {first}")]
    Torn {
        /// The first sector of the other version.
        sector: u64,
        /// The version before it.
        first: u64,
        /// The version from it on.
        found: u64,
    },
    /// A version that was overwritten.
    #[error(
        "sector {sector} holds version {found}, overwritten since: the oldest allowed is {oldest}"
    )]
    Stale {
        /// The sector that was read.
        sector: u64,
        /// The version that it holds.
        found: u64,
        /// The oldest that it might hold.
        oldest: u64,
    },
    /// A version that was not written yet.
    #[error("sector {sector} holds version {found}, never written: the newest is {newest}")]
    Unissued {
        /// The sector that was read.
        sector: u64,
        /// The version that it holds.
        found: u64,
        /// The newest that it might hold.
        newest: u64,
    },
    /// Zeros where there must be data.
    #[error("sector {sector} holds zeros where data was written")]
    Zero {
        /// The sector that was read.
        sector: u64,
    },
    /// Bytes that nobody wrote.
    #[error("sector {sector} holds garbage from its byte {byte} on")]
    Garbage {
        /// The sector that was read.
        sector: u64,
        /// The first wrong byte of it.
        byte: usize,
    },
    /// A digest that is none of those allowed, nor of a version shortly before.
    #[error(
        "block {block} has the digest {found:#018x}, which belongs to none of its last versions"
    )]
    Digest {
        /// The block that was read.
        block: u64,
        /// The digest that was read.
        found: u64,
    },
}

/// Writes the content of a whole block of 4096 bytes.
///
/// # Panics
/// When `out` is not one block long.
pub fn fill(block: u64, version: u64, seed: u64, out: &mut [u8]) {
    assert_eq!(out.len(), BLOCK, "a block is filled as a whole");
    fill_sectors(block * SECTORS_A_BLOCK, version, seed, out);
}

/// Writes the content of the sectors from `first` on, all of one version.
///
/// # Panics
/// When `out` is not a whole number of sectors.
pub fn fill_sectors(first: u64, version: u64, seed: u64, out: &mut [u8]) {
    let (sectors, rest) = out.as_chunks_mut::<SECTOR>();
    assert!(rest.is_empty(), "sectors are filled as a whole");
    if version == 0 {
        return sectors.as_flattened_mut().fill(0);
    }
    for (sector, bytes) in (first..).zip(sectors) {
        let key = key(sector, version, seed);
        let (words, _) = bytes.as_chunks_mut::<8>();
        for (i, out) in words.iter_mut().enumerate() {
            *out = body(key, i).to_le_bytes();
        }
        for (out, word) in words.iter_mut().zip([MAGIC, sector, version, seed]) {
            *out = word.to_le_bytes();
        }
    }
}

/// Checks a whole block of 4096 bytes and gives its version, which is 0 for
/// zeros. `allowed` may be a range of versions; then zeros are allowed if 0
/// is in it.
///
/// # Panics
/// When `bytes` is not one block long.
pub fn check(
    block: u64,
    seed: u64,
    bytes: &[u8],
    allowed: impl Into<Allowed>,
) -> Result<u64, Mismatch> {
    assert_eq!(bytes.len(), BLOCK, "a block is checked as a whole");
    check_sectors(block * SECTORS_A_BLOCK, seed, bytes, allowed)
}

/// Checks the sectors from `first` on, which are written together and so must
/// have one version, and gives it. As [`check`] otherwise.
///
/// # Panics
/// When `bytes` is not a whole number of sectors, or none.
pub fn check_sectors(
    first: u64,
    seed: u64,
    bytes: &[u8],
    allowed: impl Into<Allowed>,
) -> Result<u64, Mismatch> {
    let (sectors, rest) = bytes.as_chunks::<SECTOR>();
    assert!(rest.is_empty() && !sectors.is_empty(), "sectors are checked as a whole");
    let version = version_of(first, seed, &sectors[0])?;
    for (sector, bytes) in (first..).zip(sectors).skip(1) {
        let found = version_of(sector, seed, bytes)?;
        if found != version {
            return Err(Mismatch::Torn { sector, first: version, found });
        }
    }
    judge(first, version, &allowed.into())
}

/// Whether a version may be read now.
fn judge(sector: u64, found: u64, allowed: &Allowed) -> Result<u64, Mismatch> {
    let (oldest, newest) = (*allowed.versions.start(), *allowed.versions.end());
    match found {
        0 if allowed.zeros => Ok(0),
        0 => Err(Mismatch::Zero { sector }),
        v if v < oldest => Err(Mismatch::Stale { sector, found, oldest }),
        v if v > newest => Err(Mismatch::Unissued { sector, found, newest }),
        v => Ok(v),
    }
}

/// The version of an undamaged sector; 0 when it is all zeros.
fn version_of(sector: u64, seed: u64, bytes: &[u8; SECTOR]) -> Result<u64, Mismatch> {
    let (words, _) = bytes.as_chunks::<8>();
    let word = |i: usize| u64::from_le_bytes(words[i]);
    if word(0) == 0 && bytes.iter().all(|&b| b == 0) {
        return Ok(0);
    }
    let (found, version, found_seed) = (word(1), word(2), word(3));
    let key = key(found, version, found_seed);
    // The head is believed only if the rest of the sector follows from it.
    let wrong = (HEAD..WORDS).find(|&i| word(i) != body(key, i));
    match wrong {
        _ if word(0) != MAGIC => Err(Mismatch::Garbage { sector, byte: 0 }),
        // Nothing fits: it is the head that is damaged.
        Some(HEAD) => Err(Mismatch::Garbage { sector, byte: 8 }),
        Some(i) => Err(Mismatch::Garbage { sector, byte: 8 * i }),
        None if found_seed != seed => Err(Mismatch::WrongSeed { sector, found: found_seed }),
        None if found != sector => Err(Mismatch::WrongAddress { sector, found }),
        None => Ok(version),
    }
}

fn key(sector: u64, version: u64, seed: u64) -> u64 {
    mix(sector ^ mix(version ^ mix(seed)))
}

/// Word `i` of a sector. One multiplication: filling a block is on the way of
/// every verified write.
#[inline]
fn body(key: u64, i: usize) -> u64 {
    let x = key.wrapping_add(i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^ (x >> 32)
}

/// What a drive that keeps 8 bytes of each block is given for this version:
/// XXH3 (64 bits) of the bytes that [`fill`] writes; 0 for version 0, which is
/// what such a drive gives for a trimmed block.
pub fn digest(block: u64, version: u64, seed: u64) -> u64 {
    if version == 0 {
        return 0;
    }
    let mut bytes = [0; BLOCK];
    fill(block, version, seed, &mut bytes);
    xxh3_64(&bytes)
}

/// Checks a digest as [`check`] does a block. Stale and not yet written are
/// recognised up to 16 versions away; everything else is
/// [`Mismatch::Digest`]. It takes about half a microsecond for each version
/// that is tried.
pub fn check_digest(
    block: u64,
    seed: u64,
    found: u64,
    allowed: impl Into<Allowed>,
) -> Result<u64, Mismatch> {
    const AROUND: u64 = 16;
    let allowed = allowed.into();
    let sector = block * SECTORS_A_BLOCK;
    if found == 0 {
        return judge(sector, 0, &allowed);
    }
    let (oldest, newest) = (*allowed.versions.start(), *allowed.versions.end());
    // The newest first: it is the likeliest.
    let tried = (oldest.saturating_sub(AROUND)..=newest).rev();
    let tried = tried.chain(newest.saturating_add(1)..=newest.saturating_add(AROUND));
    match tried.filter(|&v| v > 0).find(|&v| digest(block, v, seed) == found) {
        Some(version) => judge(sector, version, &allowed),
        None => Err(Mismatch::Digest { block, found }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn block(number: u64, version: u64, seed: u64) -> Vec<u8> {
        let mut bytes = vec![0xff; BLOCK];
        fill(number, version, seed, &mut bytes);
        bytes
    }

    #[test]
    fn each_fault_is_told_apart() {
        let good = block(9, 5, 1);
        assert_eq!(check(9, 1, &good, 4..=5), Ok(5));
        assert_eq!(
            check(8, 1, &good, 5..=5),
            Err(Mismatch::WrongAddress { sector: 64, found: 72 })
        );
        assert_eq!(check(9, 2, &good, 5..=5), Err(Mismatch::WrongSeed { sector: 72, found: 1 }));
        assert_eq!(
            check(9, 1, &good, 6..=7),
            Err(Mismatch::Stale { sector: 72, found: 5, oldest: 6 })
        );
        assert_eq!(
            check(9, 1, &good, 0..=4),
            Err(Mismatch::Unissued { sector: 72, found: 5, newest: 4 })
        );
        let zeros = vec![0; BLOCK];
        assert_eq!(check(9, 1, &zeros, 5..=5), Err(Mismatch::Zero { sector: 72 }));
        assert_eq!(check(9, 1, &zeros, 0..=5), Ok(0));
        assert_eq!(block(9, 0, 1), zeros);
        let noise = vec![0xa5; BLOCK];
        assert_eq!(check(9, 1, &noise, 0..=9), Err(Mismatch::Garbage { sector: 72, byte: 0 }));
    }

    #[test]
    fn a_mix_of_two_versions_is_torn() {
        let mut bytes = block(2, 7, 1);
        bytes[3 * SECTOR..].copy_from_slice(&block(2, 8, 1)[3 * SECTOR..]);
        let torn = Err(Mismatch::Torn { sector: 19, first: 7, found: 8 });
        assert_eq!(check(2, 1, &bytes, 7..=8), torn);
        let mut bytes = block(2, 7, 1);
        bytes[..SECTOR].fill(0);
        let torn = Err(Mismatch::Torn { sector: 17, first: 0, found: 7 });
        assert_eq!(check(2, 1, &bytes, 0..=7), torn);
    }

    #[test]
    fn swapped_sectors_are_a_wrong_address() {
        let mut bytes = block(0, 3, 1);
        let (a, b) = bytes.split_at_mut(SECTOR);
        a.swap_with_slice(&mut b[..SECTOR]);
        assert_eq!(check(0, 1, &bytes, 3..=3), Err(Mismatch::WrongAddress { sector: 0, found: 1 }));
    }

    #[test]
    fn a_block_is_eight_sectors() {
        let mut parts = vec![0; BLOCK];
        for (i, part) in parts.chunks_mut(SECTOR).enumerate() {
            fill_sectors(40 + i as u64, 6, 3, part);
            assert_eq!(check_sectors(40 + i as u64, 3, part, 6..=6), Ok(6));
        }
        assert_eq!(parts, block(5, 6, 3));
    }

    #[test]
    fn digests_are_checked_like_blocks() {
        let d = digest(4, 40, 9);
        assert_eq!(d, xxh3_64(&block(4, 40, 9)));
        assert_eq!(check_digest(4, 9, d, 39..=41), Ok(40));
        let stale = Err(Mismatch::Stale { sector: 32, found: 40, oldest: 41 });
        assert_eq!(check_digest(4, 9, d, 41..=42), stale);
        let early = Err(Mismatch::Unissued { sector: 32, found: 40, newest: 39 });
        assert_eq!(check_digest(4, 9, d, 38..=39), early);
        let unknown = Err(Mismatch::Digest { block: 5, found: d });
        assert_eq!(check_digest(5, 9, d, 40..=40), unknown);
        assert_eq!(check_digest(4, 9, 0, 0..=40), Ok(0));
        assert_eq!(check_digest(4, 9, 0, 1..=40), Err(Mismatch::Zero { sector: 32 }));
        assert_eq!(digest(4, 0, 9), 0);
    }

    proptest! {
        #[test]
        fn what_was_filled_is_accepted(
            number in 0..1u64 << 52, version in any::<u64>(), seed in any::<u64>()
        ) {
            let bytes = block(number, version, seed);
            prop_assert_eq!(check(number, seed, &bytes, 0..=u64::MAX), Ok(version));
        }

        #[test]
        fn every_flipped_bit_is_noticed(
            number in 0..1u64 << 52, version in 1..=u64::MAX, seed in any::<u64>(),
            at in 0..BLOCK, bit in 0u8..8,
        ) {
            let mut bytes = block(number, version, seed);
            bytes[at] ^= 1 << bit;
            let sector = number * 8 + (at / SECTOR) as u64;
            match check(number, seed, &bytes, 0..=u64::MAX) {
                Err(Mismatch::Garbage { sector: s, byte }) => {
                    prop_assert_eq!(s, sector);
                    prop_assert!(byte <= at % SECTOR || at % SECTOR < 8 * HEAD);
                }
                other => prop_assert!(false, "{other:?}"),
            }
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), SECTOR), zeros in any::<bool>()) {
            let allowed = Allowed { versions: 0..=u64::MAX, zeros };
            prop_assert!(check_sectors(0, 0, &bytes, allowed).is_err());
        }
    }
}
