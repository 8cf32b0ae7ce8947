//! What the target's own blocks say: tags, and the records of the log.
//!
//! Own blocks are whole blocks of 4096 bytes. Their tags' ids have bit 62 set,
//! which no logical block number and no padding has, then the kind and a
//! number.

use flash::Tag;
use ftl::bytes::{is_sealed, put_word, seal, word};
use port::BLOCK_BYTES;

/// Set in the ids of own blocks.
const OWN: u64 = 1 << 62;

/// Bits of the number in an id.
const NUMBER_BITS: u32 = 56;

/// What an own block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum Kind {
    /// A page of the map, then of the chunk table, numbered through.
    Page = 0,
    /// A page of the directory: where pages are.
    Directory = 1,
    /// A page of the log.
    Log = 2,
    /// A block of a root: its number in the root.
    Root = 3,
}

/// The tag id of an own block.
pub(super) fn own_id(kind: Kind, number: u64) -> u64 {
    OWN | (kind as u64) << NUMBER_BITS | number
}

/// What the tag id of an own block says; `None` of any other.
pub(super) fn own(id: u64) -> Option<(Kind, u64)> {
    if id >> NUMBER_BITS & !3 != OWN >> NUMBER_BITS {
        return None;
    }
    let kind = match id >> NUMBER_BITS & 3 {
        0 => Kind::Page,
        1 => Kind::Directory,
        2 => Kind::Log,
        _ => Kind::Root,
    };
    Some((kind, id & ((1 << NUMBER_BITS) - 1)))
}

/// Checkpoint numbers that the tag of a page tells apart.
const CHECKPOINTS: u64 = (1 << 30) - 1;

/// Where in the tag of a page its checksum begins.
const SUM_SHIFT: u32 = 30;

/// The tag of a page of map, table or directory, with its checksum: so that
/// what is damaged is told, whatever the drive says.
pub(super) fn page_tag(kind: Kind, number: u64, checkpoint: u64, page: &[u8]) -> Tag {
    let id = own_id(kind, number);
    // Never 0, and below 2^62: recovery looks at such tags only.
    Tag { id, seq: page_sum(id, page) << SUM_SHIFT | (checkpoint % CHECKPOINTS + 1) }
}

/// Whether a page of map, table or directory is as it was written, and the one
/// that its tag says.
pub(super) fn is_whole(tag: Tag, page: &[u8]) -> bool {
    tag.seq >> SUM_SHIFT == page_sum(tag.id, page)
}

/// 32 bits that depend on a page and on which it is.
fn page_sum(id: u64, page: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(page, id) & u64::from(u32::MAX)
}

/// Blocks whose older copies no longer count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Its number: grows with every block that was given up.
    pub number: u64,
    /// First logical block.
    pub lba: u64,
    /// Logical blocks, at least 1.
    pub count: u32,
    /// Copies up to this sequence number do not count.
    pub upto: u64,
    /// The blocks are lost: they read as errors, not as zeros.
    pub lost: bool,
}

/// Bytes of a record on flash.
const RECORD_BYTES: usize = 32;

/// Bytes before the records of a page.
const HEADER_BYTES: usize = 16;

/// Records of a page of the log.
pub(super) const PAGE_RECORDS: usize = (BLOCK_BYTES as usize - HEADER_BYTES) / RECORD_BYTES;

/// Writes a page of the log with up to [`PAGE_RECORDS`] records.
pub(super) fn store_page(page: &mut [u8], records: &[Record]) {
    page.fill(0);
    put_word(page, 8, records.len() as u64);
    for (bytes, record) in page[HEADER_BYTES..].chunks_exact_mut(RECORD_BYTES).zip(records) {
        put_word(bytes, 0, record.number);
        put_word(bytes, 8, record.lba);
        put_word(bytes, 16, record.upto);
        put_word(bytes, 24, u64::from(record.count) | u64::from(record.lost) << 32);
    }
    seal(page, 0);
}

/// Reads a page of the log; `None` when it is not one.
pub(super) fn load_page(page: &[u8]) -> Option<impl Iterator<Item = Record> + '_> {
    let count = word(page, 8);
    if !is_sealed(page, 0) || count > PAGE_RECORDS as u64 {
        return None;
    }
    let bytes = page[HEADER_BYTES..].chunks_exact(RECORD_BYTES).take(count as usize);
    Some(bytes.map(|bytes| {
        let last = word(bytes, 24);
        Record {
            number: word(bytes, 0),
            lba: word(bytes, 8),
            upto: word(bytes, 16),
            count: last as u32,
            lost: last >> 32 & 1 == 1,
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn own_blocks_are_told_from_others() {
        for kind in [Kind::Page, Kind::Directory, Kind::Log, Kind::Root] {
            assert_eq!(own(own_id(kind, 77)), Some((kind, 77)));
        }
        assert!([0, 1 << 44, (1 << 56) + 3, 1 << 63, u64::MAX].iter().all(|&id| own(id).is_none()));
    }

    proptest! {
        #[test]
        fn a_damaged_page_is_told(
            number in 0u64..1 << 56, checkpoint in any::<u64>(), seed in any::<u8>(), flip in 0usize..4096 * 8,
        ) {
            let mut page: Vec<u8> = (0..4096u32).map(|i| (i as u8).wrapping_mul(seed)).collect();
            let tag = page_tag(Kind::Page, number, checkpoint, &page);
            prop_assert_eq!(own(tag.id), Some((Kind::Page, number)));
            prop_assert!((1..1 << 62).contains(&tag.seq));
            prop_assert!(is_whole(tag, &page));
            let other = Tag { id: tag.id ^ 1, ..tag };
            prop_assert!(!is_whole(other, &page));
            page[flip / 8] ^= 1 << (flip % 8);
            prop_assert!(!is_whole(tag, &page));
        }

        #[test]
        fn pages_read_back(
            parts in prop::collection::vec((any::<[u64; 3]>(), any::<u32>(), any::<bool>()), 0..=PAGE_RECORDS),
            flip in 0usize..4096 * 8,
        ) {
            let records: Vec<Record> = parts
                .into_iter()
                .map(|([number, lba, upto], count, lost)| Record { number, lba, count, upto, lost })
                .collect();
            let mut page = vec![0xaa; 4096];
            store_page(&mut page, &records);
            prop_assert_eq!(load_page(&page).unwrap().collect::<Vec<_>>(), records);
            page[flip / 8] ^= 1 << (flip % 8);
            prop_assert!(load_page(&page).is_none());
        }

        #[test]
        fn other_bytes_are_no_page(bytes in prop::collection::vec(any::<u8>(), 4096)) {
            prop_assert!(load_page(&bytes).is_none());
        }
    }
}
