//! What a store in place is on the drive. Numbers are little-endian, checksums
//! XXH3 of 64 bits.
//!
//! ```text
//!  block  0  1     2 …                                a multiple of 64 …
//!         │ roots │ slots of 1 + max_batch blocks … │ pages …
//!
//!  root, block (number & 1)
//!  byte 0     8       12      16     24    32   40     48      56     64
//!       │magic│version│batch  │number│epoch│tail│blocks│durable│beside│ 0 … │ checksum (4088) │
//!       │u64  │u32    │u32    │u64   │u64  │u64 │u64   │u64    │u64   │
//!
//!  header of a record
//!  byte 0        8     12     16    24    32    40
//!       │checksum│magic│count │ seq │epoch│seals│ pages (u64) …
//!       │u64     │u32  │u32   │ u64 │u64  │u64  │
//! ```
//!
//! A checksum is of the block but itself; `seals` that of the pages' seals. Behind
//! the `blocks` of the store are `beside` more, for a redo log.

use xxhash_rust::xxh3::xxh3_64;

use crate::page::PAGE_BYTES;

const ROOT_MAGIC: u64 = u64::from_le_bytes(*b"ssdkinpl");
const RECORD_MAGIC: u32 = u32::from_le_bytes(*b"SJRN");
const VERSION: u32 = 2;
const LIST_AT: usize = 40;
const ROOT_SUM_AT: usize = PAGE_BYTES - 8;

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

/// The root of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Root {
    pub(super) max_batch: u32,
    pub(super) number: u64,
    pub(super) epoch: u64,
    /// All records below are durable in their blocks.
    pub(super) tail: u64,
    pub(super) blocks: u64,
    /// All records below were durable in the journal.
    pub(super) durable: u64,
    /// Blocks behind those of the store.
    pub(super) beside: u64,
}

impl Root {
    pub(super) fn write(&self, block: &mut [u8]) {
        block[..PAGE_BYTES].fill(0);
        block[..8].copy_from_slice(&ROOT_MAGIC.to_le_bytes());
        block[8..12].copy_from_slice(&VERSION.to_le_bytes());
        block[12..16].copy_from_slice(&self.max_batch.to_le_bytes());
        let Root { number, epoch, tail, blocks, durable, beside, .. } = *self;
        let words = [number, epoch, tail, blocks, durable, beside];
        for (to, word) in block[16..64].chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        let sum = xxh3_64(&block[..ROOT_SUM_AT]);
        block[ROOT_SUM_AT..PAGE_BYTES].copy_from_slice(&sum.to_le_bytes());
    }

    /// `None` if it is none, or damaged. Another version is an error.
    pub(super) fn read(block: &[u8]) -> Option<Result<Root, &'static str>> {
        let good = u64_at(block, ROOT_SUM_AT) == xxh3_64(&block[..ROOT_SUM_AT]);
        if u64_at(block, 0) != ROOT_MAGIC || !good {
            return None;
        }
        if u32_at(block, 8) != VERSION {
            let what = "another version wrote the store in place, and this one reads format 2: copy \
                        what it holds with that one";
            return Some(Err(what));
        }
        Some(Ok(Root {
            max_batch: u32_at(block, 12),
            number: u64_at(block, 16),
            epoch: u64_at(block, 24),
            tail: u64_at(block, 32),
            blocks: u64_at(block, 40),
            durable: u64_at(block, 48),
            beside: u64_at(block, 56),
        }))
    }
}

/// The header of a record, but for its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) count: u32,
    pub(super) seq: u64,
    pub(super) epoch: u64,
    pub(super) seals: u64,
}

impl Header {
    pub(super) fn write(&self, pages: &[u64], to: &mut [u8]) {
        let block = &mut to[..PAGE_BYTES];
        block[8..12].copy_from_slice(&RECORD_MAGIC.to_le_bytes());
        block[12..16].copy_from_slice(&self.count.to_le_bytes());
        let words = [self.seq, self.epoch, self.seals];
        let all = words.iter().chain(pages).copied().chain(std::iter::repeat(0));
        for (to, word) in block[16..].chunks_exact_mut(8).zip(all) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        let sum = xxh3_64(&block[8..]);
        block[..8].copy_from_slice(&sum.to_le_bytes());
    }

    /// `None` if it is none, or damaged.
    pub(super) fn read(block: &[u8], max_batch: u32) -> Option<Header> {
        if u32_at(block, 8) != RECORD_MAGIC || u64_at(block, 0) != xxh3_64(&block[8..]) {
            return None;
        }
        let count = u32_at(block, 12);
        (1..=max_batch).contains(&count).then(|| Header {
            count,
            seq: u64_at(block, 16),
            epoch: u64_at(block, 24),
            seals: u64_at(block, 32),
        })
    }

    /// The number of page `i` of the record.
    pub(super) fn page(block: &[u8], i: usize) -> u64 {
        u64_at(block, LIST_AT + 8 * i)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn headers_come_back(
            pages in prop::collection::vec(any::<u64>(), 1..=256), words in any::<[u64; 4]>(),
            flip in 0usize..4096 * 8,
        ) {
            let [seq, epoch, seals, blocks] = words;
            let header = Header { count: pages.len() as u32, seq, epoch, seals };
            let mut block = vec![0xAA; PAGE_BYTES];
            header.write(&pages, &mut block);
            prop_assert_eq!(Header::read(&block, 256), Some(header));
            let read: Vec<u64> = (0..pages.len()).map(|i| Header::page(&block, i)).collect();
            prop_assert_eq!(read, pages);
            block[flip / 8] ^= 1 << (flip % 8);
            prop_assert_eq!(Header::read(&block, 256), None);
            let durable = blocks ^ seq;
            let (tail, beside) = (seals, seq ^ seals);
            let root =
                Root { max_batch: 64, number: seq, epoch, tail, blocks, durable, beside };
            root.write(&mut block);
            prop_assert_eq!(Root::read(&block), Some(Ok(root)));
            block[flip / 8] ^= 1 << (flip % 8);
            prop_assert_eq!(Root::read(&block), None);
        }
    }

    #[test]
    fn another_version_is_told() {
        let mut block = vec![0; PAGE_BYTES];
        let (number, epoch, tail, durable) = (1, 1, 1, 1);
        let root = Root { max_batch: 64, number, epoch, tail, blocks: 4000, durable, beside: 0 };
        root.write(&mut block);
        block[8..12].copy_from_slice(&1u32.to_le_bytes());
        let sum = xxh3_64(&block[..ROOT_SUM_AT]);
        block[ROOT_SUM_AT..].copy_from_slice(&sum.to_le_bytes());
        assert!(matches!(Root::read(&block), Some(Err(what)) if what.contains("version")));
    }
}
