//! The checkpoint record, and the two slots that it alternates between.
//!
//! The record holds all that recovery cannot find otherwise: MAP_T, GBITV_T,
//! WEAR_S, and the row of the log where the redo scan starts (RSSP). It is
//! larger than a row. Its well-known place needs no search: the first chunks of
//! the first unit are one slot, those of the last unit the other. Records go
//! behind each other into a slot's chunk, in turn to the one slot and the other,
//! and the newest whole one is never erased.
//!
//! ```text
//!   0  8   checksum: xxh3-64 of bytes 8 to the end
//!   8  4   magic "CKPT"
//!  12  4   version, 2; 1 had no locations that are lost
//!  16  8   bytes of the record
//!  24  8   number, from 1
//!  32  8   logical pages
//!  40  8   blocks of a chunk << 32 | blocks of a row
//!  48  8   length of arrays by chunk index
//!  56  8   LSN: all batches up to it are in MAP_T, GBITV_T and WEAR_S
//!  64  8   RSSP: location of the row of the log
//!  72  8   number of that row
//!  80  8   LSN of the first batch that the scan needs
//!  88  8   RSSP of the record before, or 0, and
//!  96  8   number of that row: the log is kept from there on
//! 104  24  number of locations in MAP_T, in GBITV_T and in WEAR_S
//! 128  8   number of detours
//! 136      MAP_T, GBITV_T, WEAR_S: locations
//!          detours, 72 bytes each: number of a row of the log, and 8 locations
//! ```
//! A *detour* is more places for the row behind one: where a start found none of
//! those that the row names in a state to be written.

use flash::{Geometry, Ppa};
use ftl::bytes::{is_sealed, seal};
use port::BLOCK_BYTES;

use super::config::SLOT_CHUNKS;
use super::location::Location;
use super::record::MAX_LINKS;

const MAGIC: u32 = u32::from_le_bytes(*b"CKPT");
const VERSION: u32 = 2;

/// Versions that are read.
const VERSIONS: std::ops::RangeInclusive<u32> = 1..=VERSION;
const HEADER: usize = 136;

/// Most detours of a record.
pub(super) const MAX_DETOURS: usize = 16;

/// Words of a detour.
const DETOUR_WORDS: usize = 1 + MAX_LINKS;

/// Where a redo scan starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Start {
    /// The row of the log.
    pub at: Location,
    /// Its number.
    pub row: u64,
}

/// More places for the row of the log behind `row`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Detour {
    pub row: u64,
    pub links: [Location; MAX_LINKS],
}

/// What a checkpoint record says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Checkpoint {
    pub number: u64,
    pub pages: u64,
    /// All batches up to this are in the tables below.
    pub lsn: u64,
    pub start: Start,
    /// The first batch that the scan needs.
    pub first: u64,
    /// The start of the record before.
    pub before: Start,
    pub map_t: Vec<Location>,
    pub garbage_t: Vec<Location>,
    pub wear_s: Vec<Location>,
    pub detours: Vec<Detour>,
}

/// Why bytes are no checkpoint record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoRecord {
    Damaged,
    Version(u32),
    /// Of another drive: its number of pages.
    Mismatch(u64),
}

fn shape_words(geometry: &Geometry) -> [u64; 2] {
    let blocks = u64::from(geometry.chunk_blocks()) << 32 | u64::from(geometry.row_blocks());
    [blocks, geometry.chunk_slots() as u64]
}

impl Checkpoint {
    /// Bytes of a record with so many locations and detours.
    fn bytes(locations: usize, detours: usize) -> usize {
        HEADER + 8 * (locations + detours * DETOUR_WORDS)
    }

    /// Writes it to the beginning of `to`; the rest becomes zeros.
    pub fn store(&self, geometry: &Geometry, to: &mut [u8]) {
        to.fill(0);
        let tables = [&self.map_t, &self.garbage_t, &self.wear_s];
        let locations = tables.iter().map(|table| table.len()).sum();
        let len = Checkpoint::bytes(locations, self.detours.len());
        to[8..12].copy_from_slice(&MAGIC.to_le_bytes());
        to[12..16].copy_from_slice(&VERSION.to_le_bytes());
        let [blocks, chunks] = shape_words(geometry);
        let head = [len as u64, self.number, self.pages, blocks, chunks, self.lsn];
        let starts = [self.start.at.word(), self.start.row, self.first];
        let before = [self.before.at.word(), self.before.row];
        let counts = tables.map(|table| table.len() as u64);
        let detours = [self.detours.len() as u64];
        let words = head.into_iter().chain(starts).chain(before).chain(counts).chain(detours);
        let locations = tables.into_iter().flatten().map(|location| location.word());
        let links = |detour: &Detour| detour.links.map(Location::word);
        let detours = self.detours.iter().flat_map(|d| std::iter::once(d.row).chain(links(d)));
        let words = words.chain(locations).chain(detours);
        for (bytes, word) in to[16..].chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        seal(&mut to[..len], 0);
    }

    /// Reads it.
    pub fn load(from: &[u8], geometry: &Geometry, pages: u64) -> Result<Checkpoint, NoRecord> {
        let word = |i: usize| {
            let bytes = from.get(8 * i..8 * i + 8).ok_or(NoRecord::Damaged)?;
            Ok(u64::from_le_bytes(bytes.try_into().expect("8 bytes")))
        };
        let (magic, version) = (word(1)? as u32, (word(1)? >> 32) as u32);
        if magic != MAGIC {
            return Err(NoRecord::Damaged);
        }
        let len = word(2)?;
        if len < HEADER as u64 || len > from.len() as u64 || !len.is_multiple_of(8) {
            return Err(NoRecord::Damaged);
        }
        if !is_sealed(&from[..len as usize], 0) {
            return Err(NoRecord::Damaged);
        }
        if !VERSIONS.contains(&version) {
            return Err(NoRecord::Version(version));
        }
        if word(4)? != pages || [word(5)?, word(6)?] != shape_words(geometry) {
            return Err(NoRecord::Mismatch(word(4)?));
        }
        let place = |i: usize| Location::from_flash(word(i)?, geometry).ok_or(NoRecord::Damaged);
        let mut at = HEADER / 8;
        let mut table = |count: u64| {
            if count > (len / 8).saturating_sub(at as u64) {
                return Err(NoRecord::Damaged);
            }
            at += count as usize;
            (at - count as usize..at).map(place).collect::<Result<Vec<Location>, NoRecord>>()
        };
        let [map_t, garbage_t, wear_s] = [table(word(13)?)?, table(word(14)?)?, table(word(15)?)?];
        let count = word(16)?;
        if count > MAX_DETOURS as u64 || at + count as usize * DETOUR_WORDS > len as usize / 8 {
            return Err(NoRecord::Damaged);
        }
        let mut detours = Vec::with_capacity(MAX_DETOURS);
        for at in (at..).step_by(DETOUR_WORDS).take(count as usize) {
            let mut links = [Location::NONE; MAX_LINKS];
            for (i, link) in links.iter_mut().enumerate() {
                *link = place(at + 1 + i)?;
            }
            detours.push(Detour { row: word(at)?, links });
        }
        Ok(Checkpoint {
            number: word(3)?,
            pages,
            lsn: word(7)?,
            start: Start { at: place(8)?, row: word(9)? },
            first: word(10)?,
            before: Start { at: place(11)?, row: word(12)? },
            map_t,
            garbage_t,
            wear_s,
            detours,
        })
    }
}

/// A chunk of a slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotChunk {
    pub chunk: usize,
    /// Its next block; the chunk's blocks where no record fits any more.
    pub next: u32,
    /// Number of the newest whole record in it, or 0.
    pub newest: u64,
    pub usable: bool,
}

/// Both slots.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    /// The chunks of the first slot, and behind them those of the second.
    pub chunks: Vec<SlotChunk>,
    /// Blocks of a record, whole rows.
    pub record_blocks: u32,
    chunk_blocks: u32,
}

/// What is to be done so that a record can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Write to this of the slots' chunks.
    Write(usize),
    /// Erase this one first.
    Erase(usize),
}

/// The chunks that are reserved for slots: of the first unit, and of the last
/// one. On a drive of one unit both are there.
pub(super) fn slot_chunks(geometry: &Geometry) -> [Vec<usize>; 2] {
    let mut units = geometry.pus_channels_first();
    let first = units.next().expect("a drive has a unit");
    match units.last() {
        Some(last) => {
            [first, last].map(|unit| (0..SLOT_CHUNKS).map(|n| geometry.chunk_of(unit, n)).collect())
        }
        None => [0, SLOT_CHUNKS]
            .map(|from| (from..from + SLOT_CHUNKS).map(|n| geometry.chunk_of(first, n)).collect()),
    }
}

impl Slots {
    pub fn new(geometry: &Geometry, locations: usize) -> Slots {
        let row = geometry.row_blocks() as usize * BLOCK_BYTES as usize;
        let rows = Checkpoint::bytes(locations, MAX_DETOURS).div_ceil(row) as u32;
        let chunks = slot_chunks(geometry).into_iter().flatten();
        let chunks = chunks.map(|chunk| SlotChunk { chunk, next: 0, newest: 0, usable: false });
        Slots {
            chunks: chunks.collect(),
            record_blocks: rows * geometry.row_blocks(),
            chunk_blocks: geometry.chunk_blocks(),
        }
    }

    /// Where record `number` goes: to its slot if that can take it, else to the
    /// other. `None` where neither can.
    pub fn turn(&self, number: u64) -> Option<Turn> {
        let half = self.chunks.len() / 2;
        let own = (number % 2) as usize * half;
        let order = || (0..self.chunks.len()).map(|i| (own + i) % self.chunks.len());
        let newest = self.chunks.iter().map(|held| held.newest).max().unwrap_or(0);
        let usable = |i: &usize| self.chunks[*i].usable;
        let fits = |i: &usize| self.chunks[*i].next + self.record_blocks <= self.chunk_blocks;
        let idle = |i: &usize| self.chunks[*i].newest < newest || newest == 0;
        for slot in [0, half] {
            let of = || order().skip(slot).take(half).filter(usable);
            if let Some(i) = of().find(|i| fits(i) && self.chunks[*i].next > 0) {
                return Some(Turn::Write(i));
            }
            if let Some(i) = of().find(fits) {
                return Some(Turn::Write(i));
            }
            if let Some(i) = of().find(idle) {
                return Some(Turn::Erase(i));
            }
        }
        None
    }

    /// The first block of the record that goes to a chunk next.
    pub fn at(&self, geometry: &Geometry, i: usize) -> Ppa {
        let held = &self.chunks[i];
        Ppa(geometry.chunk_start(held.chunk).0 + u64::from(held.next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flash::Dimensions;
    use proptest::prelude::*;

    fn geometry() -> Geometry {
        let dim =
            Dimensions { groups: 2, pus: 2, chunks: 16, pages: 4, planes: 2, ..Dimensions::LEAST };
        Geometry::new(dim).unwrap()
    }

    fn table() -> impl Strategy<Value = Vec<Location>> {
        let location = prop_oneof![
            Just(Location::NONE),
            (0u64..512).prop_map(|at| Location::at(Ppa(at), true))
        ];
        prop::collection::vec(location, 0..200)
    }

    proptest! {
        #[test]
        fn records_read_back_and_damage_is_found(
            words in any::<[u64; 5]>(),
            tables in (table(), table(), table()),
            detours in prop::collection::vec((any::<u64>(), 0u64..512), 0..MAX_DETOURS),
            flip in any::<usize>(),
        ) {
            let g = geometry();
            let (map_t, garbage_t, wear_s) = tables;
            let [number, lsn, first, row, before] = words;
            let at = Location::at(Ppa(7), true);
            let detour = |(row, at)| Detour { row, links: [Location::at(Ppa(at), true); MAX_LINKS] };
            let record = Checkpoint {
                number, pages: 55, lsn, first, map_t, garbage_t, wear_s,
                detours: detours.into_iter().map(detour).collect(),
                start: Start { at, row }, before: Start { at, row: before },
            };
            let mut bytes = vec![3; 8192];
            record.store(&g, &mut bytes);
            prop_assert_eq!(Checkpoint::load(&bytes, &g, 55), Ok(record.clone()));
            prop_assert_eq!(Checkpoint::load(&bytes, &g, 56), Err(NoRecord::Mismatch(55)));
            let mut later = bytes.clone();
            later[12] += 1;
            prop_assert_eq!(Checkpoint::load(&later, &g, 55), Err(NoRecord::Damaged));
            let len = u64::from_le_bytes(later[16..24].try_into().unwrap()) as usize;
            seal(&mut later[..len], 0);
            prop_assert_eq!(Checkpoint::load(&later, &g, 55), Err(NoRecord::Version(VERSION + 1)));
            let locations = record.map_t.len() + record.garbage_t.len() + record.wear_s.len();
            let flip = flip % (Checkpoint::bytes(locations, record.detours.len()) * 8);
            bytes[flip / 8] ^= 1 << (flip % 8);
            prop_assert!(Checkpoint::load(&bytes, &g, 55).is_err());
        }

        /// Magic, version, length, shape and checksum are right, whatever the rest.
        #[test]
        fn any_bytes_are_taken_or_refused(
            mut bytes in prop::collection::vec(any::<u8>(), HEADER..2000),
            counts in [0u64..90, 0u64..90, 0u64..90, 0u64..20],
            wild in prop::option::of((13usize..17, any::<u64>())),
            near in any::<bool>(),
            cut in 0usize..16,
        ) {
            let g = geometry();
            let len = bytes.len() / 8 * 8;
            let mut put = |at: usize, word: u64| {
                bytes[8 * at..][..8].copy_from_slice(&word.to_le_bytes());
            };
            let [blocks, chunks] = shape_words(&g);
            put(1, u64::from(VERSION) << 32 | u64::from(MAGIC));
            for (at, word) in [(2, len as u64), (4, 55), (5, blocks), (6, chunks)] {
                put(at, word);
            }
            counts.into_iter().enumerate().for_each(|(i, count)| put(13 + i, count));
            if let Some((at, word)) = wild {
                put(at, word);
            }
            if near {
                // Locations that the drive has.
                put(8, 3);
                put(11, 0);
                (HEADER / 8..len / 8).for_each(|at| put(at, at as u64 % 256));
            }
            seal(&mut bytes[..len], 0);
            if let Ok(record) = Checkpoint::load(&bytes, &g, 55) {
                let tables = record.map_t.len() + record.garbage_t.len() + record.wear_s.len();
                prop_assert!(Checkpoint::bytes(tables, record.detours.len()) <= len);
                let mut again = vec![0; len];
                record.store(&g, &mut again);
                prop_assert_eq!(Checkpoint::load(&again, &g, 55), Ok(record));
            }
            // Cut short it is none.
            prop_assert!(Checkpoint::load(&bytes[..len - 1 - cut.min(len - 1)], &g, 55).is_err());
        }

        #[test]
        fn other_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            prop_assert_eq!(Checkpoint::load(&bytes, &geometry(), 1), Err(NoRecord::Damaged));
        }
    }

    #[test]
    fn records_alternate_and_the_newest_is_never_erased() {
        let g = geometry();
        let mut slots = Slots::new(&g, 1300);
        assert_eq!((slots.record_blocks, slots.chunks.len()), (4, 4));
        slots.chunks.iter_mut().for_each(|held| held.usable = true);
        let mut erases = 0;
        for number in 1..200u64 {
            if number == 90 {
                // A slot is gone.
                slots.chunks[2].usable = false;
                slots.chunks[3].usable = false;
            }
            let newest = number - 1;
            match slots.turn(number).unwrap() {
                Turn::Erase(i) => {
                    assert!(newest == 0 || slots.chunks[i].newest < newest, "the newest stays");
                    (slots.chunks[i].next, slots.chunks[i].newest) = (0, 0);
                    erases += 1;
                }
                Turn::Write(_) => {}
            }
            let Some(Turn::Write(i)) = slots.turn(number) else { panic!("it was erased") };
            assert!(number >= 90 || i / 2 == number as usize % 2, "they alternate");
            slots.chunks[i].next += slots.record_blocks;
            slots.chunks[i].newest = number;
        }
        assert!(erases > 10);
    }
}
