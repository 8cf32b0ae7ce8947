//! The records of the log: RDESC, RDESC_A and the rest. One block each.
//!
//! A record says where the pages of a batch go before they go there. One that
//! does not fit in a block has parts, one behind the other in the log. Each
//! record of a row carries the row's links: back to the row before, and FORWARD
//! to the places where the next one is tried, in that order. Each carries a
//! *done* note: all batches up to that LSN are installed.
//!
//! ```text
//!    0  8   checksum: xxh3-64 of bytes 8 to 4095
//!    8  4   magic "RDES"
//!   12  2   version, 1
//!   14  2   what: 1 RDESC of the host's pages, 2 of collection, 3 of tables' pages,
//!           4 RDESC_A, 5 only a done note, 6 batches that never were
//!   16  8   row of the log, from 1
//!   24  8   back link: location of the row before, or 0
//!   32  8   LSN of the batch
//!   40  8   done: all batches up to this LSN are installed
//!   48  2   part, from 0      50  2   parts
//!   52  2   entries           54  1   records in this row     55  1   number of this one
//!   56  1   FORWARD links     57  7   zero
//!   64  64  FORWARD links: locations of rows, in the order in which they are tried
//!  128      entries: id (LPID, or name of a table's page), new location, prior location;
//!           of collection also the LSN of the page
//! ```

use flash::Geometry;
use ftl::bytes::{is_sealed, put_word, seal, word};
use port::BLOCK_BYTES;

use super::location::Location;

/// Most FORWARD links of a row.
pub(super) const MAX_LINKS: usize = 8;

const MAGIC: u32 = u32::from_le_bytes(*b"RDES");
const VERSION: u16 = 1;
const HEADER: usize = 128;
const LINKS_AT: usize = 64;

/// What a record says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum What {
    /// RDESC of a host's batch.
    #[default]
    User = 1,
    /// RDESC of pages that collection moves.
    Collect = 2,
    /// RDESC of pages of tables.
    Meta = 3,
    /// RDESC_A: other places for pages of a batch whose writes failed. Prior is
    /// the place where it failed.
    Amend = 4,
    /// Nothing but the done note.
    Done = 5,
    /// The batches from the one entry's id up to the record's LSN never were:
    /// a recovery found the first of them incomplete.
    Void = 6,
}

impl What {
    /// Bytes of an entry.
    fn entry_bytes(self) -> usize {
        if self == What::Collect { 32 } else { 24 }
    }

    /// Entries of a record.
    pub fn capacity(self) -> usize {
        (BLOCK_BYTES as usize - HEADER) / self.entry_bytes()
    }

    fn from_number(number: u16) -> Option<What> {
        [What::User, What::Collect, What::Meta, What::Amend, What::Done, What::Void]
            .into_iter()
            .find(|&what| what as u16 == number)
    }
}

/// The header of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Header {
    /// What it says.
    pub what: What,
    /// Row of the log.
    pub row: u64,
    /// The row before.
    pub back: Location,
    /// The batch.
    pub lsn: u64,
    /// All batches up to this one are installed.
    pub done: u64,
    /// Which part of how many.
    pub part: u16,
    /// How many parts.
    pub parts: u16,
    /// Entries in it.
    pub count: u16,
    /// Records in its row.
    pub records: u8,
    /// Its number among them.
    pub index: u8,
    /// Where the next row is tried; none behind the first none.
    pub links: [Location; MAX_LINKS],
}

/// One page of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    /// LPID, or the name of a table's page.
    pub id: u64,
    /// Where it goes.
    pub new: Location,
    /// Where it was.
    pub prior: Location,
    /// Of collection: the LSN of the batch that wrote it.
    pub seq: u64,
}

fn get_short(from: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([from[at], from[at + 1]])
}

/// Writes a record into a block. `entries` are as many as the header says, and
/// no more than [`What::capacity`].
pub(super) fn store(h: &Header, entries: impl Iterator<Item = Entry>, to: &mut [u8]) {
    to.fill(0);
    to[8..12].copy_from_slice(&MAGIC.to_le_bytes());
    to[12..14].copy_from_slice(&VERSION.to_le_bytes());
    to[14..16].copy_from_slice(&(h.what as u16).to_le_bytes());
    for (i, word) in [h.row, h.back.word(), h.lsn, h.done].into_iter().enumerate() {
        put_word(to, 16 + 8 * i, word);
    }
    for (i, short) in [h.part, h.parts, h.count].into_iter().enumerate() {
        to[48 + 2 * i..][..2].copy_from_slice(&short.to_le_bytes());
    }
    (to[54], to[55]) = (h.records, h.index);
    to[56] = h.links.iter().take_while(|&&link| link != Location::NONE).count() as u8;
    for (i, link) in h.links.iter().enumerate() {
        put_word(to, LINKS_AT + 8 * i, link.word());
    }
    let each = h.what.entry_bytes();
    for (i, entry) in entries.enumerate() {
        let at = HEADER + i * each;
        put_word(to, at, entry.id);
        put_word(to, at + 8, entry.new.word());
        put_word(to, at + 16, entry.prior.word());
        if h.what == What::Collect {
            put_word(to, at + 24, entry.seq);
        }
    }
    seal(&mut to[..BLOCK_BYTES as usize], 0);
}

/// Reads a record and its entries. `None` if it is none, or names a block that
/// the drive does not have.
pub(super) fn parse(from: &[u8], geometry: &Geometry) -> Option<(Header, Vec<Entry>)> {
    let from = from.get(..BLOCK_BYTES as usize)?;
    let magic = u32::from_le_bytes(from[8..12].try_into().ok()?);
    if magic != MAGIC || get_short(from, 12) != VERSION || !is_sealed(from, 0) {
        return None;
    }
    let what = What::from_number(get_short(from, 14))?;
    let place = |at: usize| Location::from_flash(word(from, at), geometry);
    let mut links = [Location::NONE; MAX_LINKS];
    for (i, link) in links.iter_mut().enumerate() {
        *link = place(LINKS_AT + 8 * i)?;
    }
    let header = Header {
        what,
        row: word(from, 16),
        back: place(24)?,
        lsn: word(from, 32),
        done: word(from, 40),
        part: get_short(from, 48),
        parts: get_short(from, 50),
        count: get_short(from, 52),
        records: from[54],
        index: from[55],
        links,
    };
    let good = header.part < header.parts
        && header.index < header.records
        && header.count as usize <= what.capacity();
    if !good {
        return None;
    }
    let each = what.entry_bytes();
    let entry = |i: usize| {
        let at = HEADER + i * each;
        let seq = if what == What::Collect { word(from, at + 24) } else { header.lsn };
        // The entry of a void record holds no locations.
        let of = |at| if what == What::Void { Some(Location::NONE) } else { place(at) };
        Some(Entry { id: word(from, at), new: of(at + 8)?, prior: of(at + 16)?, seq })
    };
    let entries = (0..header.count as usize).map(entry).collect::<Option<Vec<Entry>>>()?;
    Some((header, entries))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flash::{Dimensions, Ppa};
    use proptest::prelude::*;

    fn geometry() -> Geometry {
        let dim = Dimensions {
            groups: 2,
            pus: 2,
            chunks: 16,
            pages: 16,
            planes: 2,
            page_bytes: 8192,
            pages_at_once: 1,
        };
        Geometry::new(dim).unwrap()
    }

    fn location() -> impl Strategy<Value = Location> {
        prop_oneof![
            Just(Location::NONE),
            (0u64..1 << 12, any::<bool>()).prop_map(|(at, whole)| Location::at(Ppa(at), whole))
        ]
    }

    fn record() -> impl Strategy<Value = (Header, Vec<Entry>)> {
        let what = prop_oneof![
            Just(What::User),
            Just(What::Collect),
            Just(What::Meta),
            Just(What::Amend),
            Just(What::Done)
        ];
        let entry = (any::<u64>(), location(), location(), any::<u64>());
        let words = (any::<[u64; 3]>(), location(), prop::collection::vec(location(), 0..8));
        (what, words, prop::collection::vec(entry, 0..124)).prop_map(|(what, words, entries)| {
            let ([row, lsn, done], back, some) = words;
            let mut links = [Location::NONE; MAX_LINKS];
            links[..some.len()].copy_from_slice(&some);
            let count = entries.len() as u16;
            let entries = entries
                .into_iter()
                .map(|(id, new, prior, seq)| {
                    let seq = if what == What::Collect { seq } else { lsn };
                    Entry { id, new, prior, seq }
                })
                .collect();
            let (part, parts, records, index) = (1, 3, 8, 2);
            (
                Header { what, row, back, lsn, done, part, parts, count, records, index, links },
                entries,
            )
        })
    }

    proptest! {
        #[test]
        fn records_read_back_and_damage_is_found(r in record(), flip in 0usize..4096 * 8) {
            let (header, entries) = r;
            let mut block = vec![9; 4096];
            store(&header, entries.iter().copied(), &mut block);
            prop_assert_eq!(parse(&block, &geometry()), Some((header, entries)));
            block[flip / 8] ^= 1 << (flip % 8);
            prop_assert_eq!(parse(&block, &geometry()), None);
        }

        #[test]
        fn any_bytes_are_taken_or_refused(
            mut bytes in prop::collection::vec(any::<u8>(), 4096),
            what in 0u16..9,
            count in 0u16..400,
        ) {
            prop_assert_eq!(parse(&bytes, &geometry()), None);
            // With a header and checksum that are right, whatever is behind.
            bytes[8..12].copy_from_slice(&MAGIC.to_le_bytes());
            bytes[12..14].copy_from_slice(&VERSION.to_le_bytes());
            bytes[14..16].copy_from_slice(&what.to_le_bytes());
            bytes[24..32].fill(0);
            bytes[48..52].copy_from_slice(&[0, 0, 1, 0]);
            bytes[52..54].copy_from_slice(&count.to_le_bytes());
            bytes[54..56].copy_from_slice(&[1, 0]);
            bytes[64..128].fill(0);
            seal(&mut bytes, 0);
            if let Some((header, entries)) = parse(&bytes, &geometry()) {
                prop_assert_eq!(entries.len(), header.count as usize);
                prop_assert!(entries.len() <= header.what.capacity());
            }
        }
    }

    #[test]
    fn capacities_are_what_the_block_holds() {
        assert_eq!((What::User.capacity(), What::Collect.capacity()), (165, 124));
    }
}
