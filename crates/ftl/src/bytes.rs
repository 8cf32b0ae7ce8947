//! Bytes on flash: little-endian words, and checksums over what is behind them.

use xxhash_rust::xxh3::xxh3_64;

/// Bytes of a checksum.
const SUM_BYTES: usize = 8;

/// Reads the little-endian word at `at`.
pub fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

/// Writes the little-endian word at `at`.
pub fn put_word(bytes: &mut [u8], at: usize, word: u64) {
    bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
}

/// Writes at `at` the checksum of all that is behind it.
pub fn seal(bytes: &mut [u8], at: usize) {
    let sum = xxh3_64(&bytes[at + SUM_BYTES..]);
    put_word(bytes, at, sum);
}

/// Whether at `at` there is the checksum of all that is behind it.
pub fn is_sealed(bytes: &[u8], at: usize) -> bool {
    word(bytes, at) == xxh3_64(&bytes[at + SUM_BYTES..])
}
