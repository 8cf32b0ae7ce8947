//! What a block of the drive holds: the pages of the tables and their names,
//! and the TAG of each block.
//!
//! ```text
//!  TAG, 16 bytes, little-endian
//!   a logical page   id: LPID                                   seq: LSN of its batch
//!   a table's page   id: kind << 56 | checksum << 36 | number   seq: LSN up to which it holds all
//!   a log record     id: 6 << 56 | row of the log               seq: row of the log
//!   a checkpoint     id: 7 << 56 | its number                   seq: block of the record
//!   padding          id: all ones                               seq: 0
//! ```

use flash::Tag;

/// The id of a block that only fills its row.
pub(super) const PAD: u64 = u64::MAX;

/// Bits of a page's number, and behind them of its checksum.
const NUMBER_BITS: u32 = 36;
const SUM_BITS: u32 = 20;

/// A table that is kept in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Kind {
    /// MAP: LPID to location.
    Map = 1,
    /// MAP_S: where the pages of MAP are.
    MapS = 2,
    /// GBITV: which blocks are garbage.
    Garbage = 3,
    /// GBITV_S: where the pages of GBITV are.
    GarbageS = 4,
    /// WEAR: erases of each chunk.
    Wear = 5,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 5] = [Kind::Map, Kind::MapS, Kind::Garbage, Kind::GarbageS, Kind::Wear];
}

/// The TAG kinds that are no table.
const LOG: u8 = 6;
const SLOT: u8 = 7;

/// A page of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Page {
    /// Of which table.
    pub kind: Kind,
    /// Its number there.
    pub number: u64,
}

impl Page {
    /// Its name in the records of the log: a tag's id without checksum.
    pub fn name(self) -> u64 {
        u64::from(self.kind as u8) << 56 | self.number
    }

    /// The page of that name.
    pub fn from_name(name: u64) -> Option<Page> {
        let number = name & ((1 << 56) - 1);
        let kind = Kind::ALL.into_iter().find(|&kind| kind as u64 == name >> 56)?;
        (number < 1 << NUMBER_BITS).then_some(Page { kind, number })
    }

    /// The TAG of its bytes, which hold all up to `lsn`.
    pub fn tag(self, bytes: &[u8], lsn: u64) -> Tag {
        Tag { id: self.name() | sum(bytes) << NUMBER_BITS, seq: lsn }
    }

    /// Whether a TAG is of this page, whatever its bytes.
    pub fn is_tagged(self, tag: Tag) -> bool {
        tag.id & !(((1 << SUM_BITS) - 1) << NUMBER_BITS) == self.name()
    }

    /// Whether bytes and TAG belong together and are of this page.
    pub fn matches(self, bytes: &[u8], tag: Tag) -> bool {
        tag.id == self.name() | sum(bytes) << NUMBER_BITS
    }
}

fn sum(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes) >> (64 - SUM_BITS)
}

/// What the TAG of a block says that it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// The logical page of this LPID.
    Data(u64),
    /// A page of a table.
    Page(Page),
    /// A record of the log, a part of a checkpoint record, padding, or
    /// something that this target did not write.
    Other,
}

/// Reads a TAG. `pages` is the number of logical pages.
pub(super) fn held(tag: Tag, pages: u64) -> Held {
    let name = tag.id & !(((1 << SUM_BITS) - 1) << NUMBER_BITS);
    match Page::from_name(name) {
        _ if tag.id < pages => Held::Data(tag.id),
        Some(page) => Held::Page(page),
        None => Held::Other,
    }
}

/// Whether a chunk that begins with this TAG is written in whole blocks: by the
/// log, or with pages of tables.
pub(super) fn is_whole(tag: Tag) -> bool {
    matches!((tag.id >> 56) as u8, 1..=LOG)
}

/// Whether a TAG is of the log.
pub(super) fn is_log(tag: Tag) -> bool {
    (tag.id >> 56) as u8 == LOG
}

/// The TAG of a record in a row of the log.
pub(super) fn log_tag(row: u64) -> Tag {
    Tag { id: u64::from(LOG) << 56 | row, seq: row }
}

/// The TAG of a block of a checkpoint record.
pub(super) fn slot_tag(number: u64, block: u64) -> Tag {
    Tag { id: u64::from(SLOT) << 56 | number, seq: block }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_say_what_a_block_holds() {
        let page = Page { kind: Kind::GarbageS, number: 77 };
        let bytes = [5; 4096];
        let tag = page.tag(&bytes, 9);
        assert_eq!(held(tag, 1000), Held::Page(page));
        assert_eq!(Page::from_name(page.name()), Some(page));
        assert!(page.matches(&bytes, tag) && page.is_tagged(tag) && is_whole(tag));
        assert!(!page.matches(&[6; 4096], tag));
        assert_eq!(held(Tag { id: 999, seq: 1 }, 1000), Held::Data(999));
        for other in [Tag { id: 1000, seq: 1 }, Tag { id: PAD, seq: 0 }, log_tag(5), slot_tag(1, 0)]
        {
            assert_eq!(held(other, 1000), Held::Other);
        }
        assert!(is_log(log_tag(5)) && is_whole(log_tag(5)) && !is_whole(slot_tag(1, 0)));
        assert!(!is_whole(Tag { id: 5, seq: 1 }) && !is_whole(Tag { id: PAD, seq: 0 }));
        assert_eq!(Page::from_name(9 << 56), None);
    }
}
