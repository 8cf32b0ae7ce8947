//! A block of the redo log. Numbers are little-endian.
//!
//! ```text
//!  byte 0     8      12     14      16      24    32       40
//!       │seal │magic │used  │ begins│ number│ from│ durable│ records … │ 0 …
//!       │u64  │u32   │u16   │ u16   │ u64   │ u64 │ u64    │
//! ```
//!
//! The seal is the store's ([`crate::store::seal`]). `used` is how many bytes of
//! records there are, `begins` 1 in the first block of a write, with which a record
//! begins, else 0. What `from` and `durable` are: [`crate::redo`].

use crate::page::PAGE_BYTES;

const MAGIC: u32 = u32::from_le_bytes(*b"SRDO");
const HEAD: usize = 40;

/// Most bytes of records of a block.
pub(crate) const PAYLOAD: usize = PAGE_BYTES - HEAD;

/// Blocks for so many bytes of records.
pub(crate) fn count(bytes: usize) -> u64 {
    bytes.div_ceil(PAYLOAD) as u64
}

/// What a block says beside its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) number: u64,
    /// It is the first of a write.
    pub(crate) begins: bool,
    /// The first block that opening needs.
    pub(crate) from: u64,
    /// All blocks below were durable.
    pub(crate) durable: u64,
}

impl Head {
    /// Writes it, and the records, into a block.
    pub(crate) fn write(&self, records: &[u8], to: &mut [u8]) {
        to[8..12].copy_from_slice(&MAGIC.to_le_bytes());
        to[12..14].copy_from_slice(&(records.len() as u16).to_le_bytes());
        to[14..16].copy_from_slice(&u16::from(self.begins).to_le_bytes());
        for (to, word) in
            to[16..HEAD].chunks_exact_mut(8).zip([self.number, self.from, self.durable])
        {
            to.copy_from_slice(&word.to_le_bytes());
        }
        let (used, rest) = to[HEAD..PAGE_BYTES].split_at_mut(records.len());
        used.copy_from_slice(records);
        rest.fill(0);
    }

    /// The head of a block whose seal is right, and its records; `None` where it is
    /// something else.
    pub(crate) fn read(block: &[u8]) -> Option<(Head, &[u8])> {
        let block = block.get(..PAGE_BYTES)?;
        let u64_at = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().expect("8 bytes"));
        let u16_at = |at: usize| u16::from_le_bytes([block[at], block[at + 1]]);
        let used = usize::from(u16_at(12));
        if block[8..12] != MAGIC.to_le_bytes() || used > PAYLOAD || u16_at(14) > 1 {
            return None;
        }
        let (number, from, durable) = (u64_at(16), u64_at(24), u64_at(32));
        // In this order; far from where they would overflow.
        if from > durable || durable > number || number > u64::MAX / 2 {
            return None;
        }
        let head = Head { number, begins: u16_at(14) == 1, from, durable };
        Some((head, &block[HEAD..HEAD + used]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{check_seal, seal};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn blocks_come_back(
            numbers in prop::array::uniform3(0u64..1 << 60), begins in any::<bool>(),
            records in prop::collection::vec(any::<u8>(), 0..=PAYLOAD), flip in 0usize..4096 * 8,
        ) {
            let mut numbers = numbers;
            numbers.sort_unstable();
            let [from, durable, number] = numbers;
            let head = Head { number, begins, from, durable };
            let mut block = vec![0xAA; PAGE_BYTES];
            head.write(&records, &mut block);
            seal(7, &mut block);
            prop_assert_eq!(Head::read(&block), Some((head, &records[..])));
            block[flip / 8] ^= 1 << (flip % 8);
            prop_assert!(check_seal(7, &block).is_none());
        }

        #[test]
        fn anything_is_read(block in prop::collection::vec(any::<u8>(), 0..5000), magic in any::<bool>()) {
            let mut block = block;
            if magic && block.len() > 12 {
                block[8..12].copy_from_slice(&MAGIC.to_le_bytes());
            }
            if let Some((head, records)) = Head::read(&block) {
                prop_assert!(head.from <= head.number && records.len() <= PAYLOAD);
            }
        }
    }
}
