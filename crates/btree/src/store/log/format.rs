//! What the log is on the drive. Numbers are little-endian, checksums XXH3 of
//! 64 bits.
//!
//! ```text
//!  block  0  1   2 …            …                  from a multiple of a segment on
//!         │ headers │ map, even checkpoints │ map, odd ones │ segments …
//!
//!  header of a checkpoint, block (number & 1)
//!  byte 0     8       12      16      24    32       40   48   56      60     64    68  72     80     88
//!       │magic│version│segment│ number│epoch│ entries│ sum│ seq│segment│offset│ next│ 0│ blocks│ beside│ 0 … │ checksum│
//!       │u64  │u32    │blocks │u64    │u64  │ u64    │ u64│ u64│u32    │u32   │ u32 │  │ u64   │ u64   │ 4088│ u64     │
//!
//!  header of a record
//!  byte 0        8     12     14     16    24    32    36  40     48       56  64
//!       │checksum│magic│ count│ moves│ seq │epoch│ next│ 0 │ seals│ flushed│ 0 │ entries …
//!       │u64     │u32  │ u16  │ u16  │ u64 │u64  │ u32 │   │ u64  │ u64    │   │ page (u64), old block (u32)
//! ```
//!
//! A header's checksum is of the block behind or before it. `sum` is that of
//! the map's pages as written, `seals` that of the seals of the record's pages,
//! 8 bytes each. `seq`, `segment`, `offset` say where opening begins to read
//! records, `next` which segment comes after that one. All records below
//! `flushed` were durable when the header was written. Behind the `blocks` of the log
//! are `beside` more, for a redo log.

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::page::PAGE_BYTES;

const RECORD_MAGIC: u32 = u32::from_le_bytes(*b"SLOG");
const CHECKPOINT_MAGIC: u64 = u64::from_le_bytes(*b"ssdkslog");
const VERSION: u32 = 2;
const ENTRIES_AT: usize = 64;
const ENTRY: usize = 12;
const SUM_AT: usize = PAGE_BYTES - 8;

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("2 bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

/// Where a record is, or the next will be, and its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) segment: u32,
    pub(super) offset: u32,
    pub(super) seq: u64,
}

/// A page of a record, and where collection took it from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) page: u64,
    pub(super) old: u32,
}

impl Entry {
    /// Entry `i` of the record that begins with `bytes`.
    pub(super) fn read(bytes: &[u8], i: usize) -> Entry {
        let at = ENTRIES_AT + i * ENTRY;
        Entry { page: u64_at(bytes, at), old: u32_at(bytes, at + 8) }
    }
}

/// The checksum of a record's seals.
#[derive(Default)]
pub(super) struct Seals(Xxh3);

impl Seals {
    pub(super) fn add(&mut self, seal: u64) {
        self.0.update(&seal.to_le_bytes());
    }

    pub(super) fn sum(&self) -> u64 {
        self.0.digest()
    }
}

/// The header of a record, but for its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordHeader {
    pub(super) count: u16,
    pub(super) moves: bool,
    pub(super) seq: u64,
    pub(super) epoch: u64,
    pub(super) next: u32,
    pub(super) seals: u64,
    pub(super) flushed: u64,
}

impl RecordHeader {
    /// Writes it with its entries into the first block of `to`.
    pub(super) fn write(&self, entries: &[Entry], to: &mut [u8]) {
        let block = &mut to[..PAGE_BYTES];
        block[..ENTRIES_AT].fill(0);
        block[8..12].copy_from_slice(&RECORD_MAGIC.to_le_bytes());
        block[12..14].copy_from_slice(&self.count.to_le_bytes());
        block[14..16].copy_from_slice(&u16::from(self.moves).to_le_bytes());
        block[16..24].copy_from_slice(&self.seq.to_le_bytes());
        block[24..32].copy_from_slice(&self.epoch.to_le_bytes());
        block[32..36].copy_from_slice(&self.next.to_le_bytes());
        block[40..48].copy_from_slice(&self.seals.to_le_bytes());
        block[48..56].copy_from_slice(&self.flushed.to_le_bytes());
        let (list, rest) = block[ENTRIES_AT..].split_at_mut(entries.len() * ENTRY);
        for (to, entry) in list.chunks_exact_mut(ENTRY).zip(entries) {
            to[..8].copy_from_slice(&entry.page.to_le_bytes());
            to[8..].copy_from_slice(&entry.old.to_le_bytes());
        }
        rest.fill(0);
        let sum = xxh3_64(&block[8..]);
        block[..8].copy_from_slice(&sum.to_le_bytes());
    }

    /// The header in a block; `None` if it is none, or damaged.
    pub(super) fn read(block: &[u8]) -> Option<RecordHeader> {
        let block = &block[..PAGE_BYTES];
        if u32_at(block, 8) != RECORD_MAGIC || u64_at(block, 0) != xxh3_64(&block[8..]) {
            return None;
        }
        let header = RecordHeader {
            count: u16_at(block, 12),
            moves: u16_at(block, 14) != 0,
            seq: u64_at(block, 16),
            epoch: u64_at(block, 24),
            next: u32_at(block, 32),
            seals: u64_at(block, 40),
            flushed: u64_at(block, 48),
        };
        let fits = ENTRIES_AT + usize::from(header.count) * ENTRY <= PAGE_BYTES;
        (fits && header.count > 0).then_some(header)
    }
}

/// The header of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CheckpointHeader {
    pub(super) segment_blocks: u32,
    pub(super) number: u64,
    pub(super) epoch: u64,
    pub(super) entries: u64,
    pub(super) sum: u64,
    pub(super) start: Place,
    pub(super) next: u32,
    pub(super) blocks: u64,
    /// Blocks behind those of the log.
    pub(super) beside: u64,
}

impl CheckpointHeader {
    /// Writes it into a block.
    pub(super) fn write(&self, block: &mut [u8]) {
        block[..PAGE_BYTES].fill(0);
        block[..8].copy_from_slice(&CHECKPOINT_MAGIC.to_le_bytes());
        block[8..12].copy_from_slice(&VERSION.to_le_bytes());
        block[12..16].copy_from_slice(&self.segment_blocks.to_le_bytes());
        block[16..24].copy_from_slice(&self.number.to_le_bytes());
        block[24..32].copy_from_slice(&self.epoch.to_le_bytes());
        block[32..40].copy_from_slice(&self.entries.to_le_bytes());
        block[40..48].copy_from_slice(&self.sum.to_le_bytes());
        block[48..56].copy_from_slice(&self.start.seq.to_le_bytes());
        block[56..60].copy_from_slice(&self.start.segment.to_le_bytes());
        block[60..64].copy_from_slice(&self.start.offset.to_le_bytes());
        block[64..68].copy_from_slice(&self.next.to_le_bytes());
        block[72..80].copy_from_slice(&self.blocks.to_le_bytes());
        block[80..88].copy_from_slice(&self.beside.to_le_bytes());
        let sum = xxh3_64(&block[..SUM_AT]);
        block[SUM_AT..PAGE_BYTES].copy_from_slice(&sum.to_le_bytes());
    }

    /// The header in a block; `None` if it is none, or damaged. Another
    /// version is an error.
    pub(super) fn read(block: &[u8]) -> Option<Result<CheckpointHeader, &'static str>> {
        let block = &block[..PAGE_BYTES];
        let good = u64_at(block, SUM_AT) == xxh3_64(&block[..SUM_AT]);
        if u64_at(block, 0) != CHECKPOINT_MAGIC || !good {
            return None;
        }
        if u32_at(block, 8) != VERSION {
            return Some(Err("the log was written by another version"));
        }
        Some(Ok(CheckpointHeader {
            segment_blocks: u32_at(block, 12),
            number: u64_at(block, 16),
            epoch: u64_at(block, 24),
            entries: u64_at(block, 32),
            sum: u64_at(block, 40),
            start: Place {
                segment: u32_at(block, 56),
                offset: u32_at(block, 60),
                seq: u64_at(block, 48),
            },
            next: u32_at(block, 64),
            blocks: u64_at(block, 72),
            beside: u64_at(block, 80),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn records_come_back(
            pages in prop::collection::vec((any::<u64>(), any::<u32>()), 1..256),
            moves in any::<bool>(), seq in any::<u64>(), epoch in any::<u64>(), next in any::<u32>(),
            flip in 0usize..4096 * 8,
        ) {
            let entries: Vec<Entry> =
                pages.into_iter().map(|(page, old)| Entry { page, old }).collect();
            let header = RecordHeader {
                count: entries.len() as u16, moves, seq, epoch, next, seals: seq ^ epoch,
                flushed: seq / 2,
            };
            let mut block = vec![0xAA; PAGE_BYTES];
            header.write(&entries, &mut block);
            prop_assert_eq!(RecordHeader::read(&block), Some(header));
            for (i, entry) in entries.iter().enumerate() {
                prop_assert_eq!(Entry::read(&block, i), *entry);
            }
            block[flip / 8] ^= 1 << (flip % 8);
            prop_assert_eq!(RecordHeader::read(&block), None);
        }

        #[test]
        fn checkpoints_come_back(
            words in prop::array::uniform6(any::<u64>()), small in prop::array::uniform4(any::<u32>()),
            flip in 0usize..4096 * 8,
        ) {
            let [number, epoch, entries, sum, seq, blocks] = words;
            let [segment_blocks, segment, offset, next] = small;
            let start = Place { segment, offset, seq };
            let header = CheckpointHeader {
                segment_blocks, number, epoch, entries, sum, start, next, blocks,
                beside: seq ^ blocks,
            };
            let mut block = vec![0xAA; PAGE_BYTES];
            header.write(&mut block);
            prop_assert_eq!(CheckpointHeader::read(&block), Some(Ok(header)));
            block[flip / 8] ^= 1 << (flip % 8);
            prop_assert_eq!(CheckpointHeader::read(&block), None);
        }
    }
}
