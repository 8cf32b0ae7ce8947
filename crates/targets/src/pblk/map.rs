//! The map from logical blocks to where they are (L2P).
//!
//! 4 bytes an entry where the drive's addresses fit, else 8, in 4 KiB map
//! pages with a dirty bit each, so that a checkpoint knows what to write. An
//! untouched page costs no memory.

use std::ops::BitOr;

use flash::Ppa;
use port::{BLOCK_BYTES, Lazy, OutOfMemory};

/// Where a logical block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(u64);

/// Bit that tells a buffer slot from a flash address.
const BUFFERED: u64 = 1 << 63;

impl Place {
    /// Nowhere: reads as zeros.
    pub const UNMAPPED: Place = Place(0);

    /// It was somewhere and cannot be read any more: reads as an error. The
    /// number of a slot that there never is, so that what is on flash, the
    /// usual case, is told by one comparison.
    pub const LOST: Place = Place(BUFFERED | FOUR_LOST as u64);

    #[inline]
    pub fn flash(ppa: Ppa) -> Place {
        Place(ppa.0 + 1)
    }

    #[inline]
    pub fn buffer(slot: u32) -> Place {
        Place(BUFFERED | u64::from(slot))
    }

    /// The flash address, if that is where it is.
    #[inline]
    pub fn ppa(self) -> Option<Ppa> {
        if self.0.wrapping_sub(1) >= BUFFERED - 1 { None } else { Some(Ppa(self.0 - 1)) }
    }

    /// The buffer slot, if that is where it is.
    #[inline]
    pub fn slot(self) -> Option<u32> {
        if self.0 & BUFFERED != 0 && self != Place::LOST { Some(self.0 as u32) } else { None }
    }
}

enum Entries {
    /// Bit 31 stands for [`BUFFERED`].
    Four(Lazy<u32>),
    Eight(Lazy<u64>),
}

/// Address bits that four-byte entries hold.
const FOUR_BYTE_BITS: u32 = 30;

/// [`Place::LOST`] in four bytes on flash, where no place has the highest bit.
const FOUR_LOST: u32 = 0x7fff_ffff;

/// The same in eight.
const EIGHT_LOST: u64 = BUFFERED - 1;

/// The map.
pub(super) struct Map {
    entries: Entries,
    dirty: Vec<u64>,
    page_shift: u32,
    blocks: u64,
}

impl Map {
    /// A map of `blocks` unmapped blocks, for flash addresses of
    /// `address_bits`.
    pub fn new(blocks: u64, address_bits: u32) -> Result<Map, OutOfMemory> {
        let len = blocks as usize;
        let four = address_bits <= FOUR_BYTE_BITS;
        let entries = if four {
            Entries::Four(Lazy::zeroed(len, "the map")?)
        } else {
            Entries::Eight(Lazy::zeroed(len, "the map")?)
        };
        let page_shift = if four { 10 } else { 9 };
        let pages = (len >> page_shift) + 1;
        Ok(Map { entries, dirty: vec![0; pages / 64 + 1], page_shift, blocks })
    }

    /// Takes the memory for all entries now.
    pub fn populate(&self) {
        let all = 0..self.blocks as usize;
        match &self.entries {
            Entries::Four(entries) => entries.populate(all),
            Entries::Eight(entries) => entries.populate(all),
        }
    }

    /// Logical blocks.
    #[inline]
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    #[inline]
    pub fn get(&self, lba: u64) -> Place {
        match &self.entries {
            Entries::Four(e) => {
                let raw = e[lba as usize];
                Place(u64::from(raw >> 31) << 63 | u64::from(raw & FOUR_LOST))
            }
            Entries::Eight(e) => Place(e[lba as usize]),
        }
    }

    #[inline]
    pub fn set(&mut self, lba: u64, place: Place) {
        match &mut self.entries {
            Entries::Four(e) => {
                debug_assert!(place.0 & !BUFFERED < 1 << 31);
                e[lba as usize] = Map::four(place);
            }
            Entries::Eight(e) => e[lba as usize] = place.0,
        }
        let page = lba >> self.page_shift;
        self.dirty[(page >> 6) as usize] |= 1 << (page & 63);
    }

    /// Fetches the entry's cache line.
    #[inline]
    pub fn prefetch(&self, lba: u64) {
        match &self.entries {
            Entries::Four(e) => e.prefetch(lba as usize),
            Entries::Eight(e) => e.prefetch(lba as usize),
        }
    }

    /// Whether a page changed since a checkpoint wrote it.
    #[inline]
    pub fn is_dirty(&self, page: u64) -> bool {
        self.dirty[(page / 64) as usize] >> (page % 64) & 1 == 1
    }

    /// Map pages that changed since a checkpoint wrote them.
    pub fn dirty_pages(&self) -> u64 {
        self.dirty.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Bytes of an entry.
    pub fn entry_bytes(&self) -> u64 {
        BLOCK_BYTES >> self.page_shift
    }

    /// Pages of 4 KiB.
    pub fn pages(&self) -> u64 {
        self.blocks.div_ceil(1 << self.page_shift)
    }

    /// Pages of the map of a drive.
    pub fn pages_of(blocks: u64, address_bits: u32) -> u64 {
        let shift = if address_bits <= FOUR_BYTE_BITS { 10 } else { 9 };
        blocks.div_ceil(1 << shift)
    }

    /// Bytes of an entry.
    pub fn entry_bytes_of(address_bits: u32) -> u64 {
        if address_bits <= FOUR_BYTE_BITS { 4 } else { 8 }
    }

    /// The page that a block's entry is in.
    #[inline]
    pub fn page_of(&self, lba: u64) -> u64 {
        lba >> self.page_shift
    }

    /// The blocks of a page.
    pub fn blocks_of(&self, page: u64) -> std::ops::Range<u64> {
        let first = page << self.page_shift;
        first..(first + (1 << self.page_shift)).min(self.blocks)
    }

    /// Takes the next page from `from` on that changed.
    pub fn take_dirty(&mut self, from: u64) -> Option<u64> {
        let mut at = (from >> 6) as usize;
        let mut mask = u64::MAX << (from & 63);
        while at < self.dirty.len() {
            let word = self.dirty[at] & mask;
            if word != 0 {
                let bit = word.trailing_zeros();
                self.dirty[at] &= !(1 << bit);
                return Some((at as u64) << 6 | u64::from(bit));
            }
            (at, mask) = (at + 1, u64::MAX);
        }
        None
    }

    /// A page is to be written again.
    pub fn touch(&mut self, page: u64) {
        self.dirty[(page >> 6) as usize] |= 1 << (page & 63);
    }

    /// Writes a page as flash has it: little-endian entries. What is only in
    /// the buffer is asked of `durable`.
    pub fn encode(&self, page: u64, to: &mut [u8], durable: impl Fn(Place) -> Place) {
        let blocks = self.blocks_of(page);
        let range = blocks.start as usize..blocks.end as usize;
        let (used, rest) = to.split_at_mut(range.len() * self.entry_bytes() as usize);
        rest.fill(0);
        match &self.entries {
            Entries::Four(e) => encode_entries(&e[range], used, |raw| {
                let place = Place(BUFFERED | u64::from(raw & FOUR_LOST));
                if place == Place::LOST { FOUR_LOST } else { Map::four(durable(place)) & FOUR_LOST }
            }),
            Entries::Eight(e) => encode_entries(&e[range], used, |raw| {
                let place =
                    if Place(raw) == Place::LOST { Place::LOST } else { durable(Place(raw)) };
                if place == Place::LOST { EIGHT_LOST } else { place.0 }
            }),
        }
    }

    /// The entry at `at` of a page as flash has it; `None` where there cannot
    /// be one.
    pub fn decode(&self, page: &[u8], at: usize) -> Option<Place> {
        let (raw, lost) = match &self.entries {
            Entries::Four(_) => {
                let raw = u32::from_le_bytes(page[at * 4..at * 4 + 4].try_into().expect("4 bytes"));
                (raw.into(), FOUR_LOST.into())
            }
            Entries::Eight(_) => (ftl::bytes::word(page, at * 8), EIGHT_LOST),
        };
        if raw == lost {
            return Some(Place::LOST);
        }
        let highest = if lost == EIGHT_LOST { 1 << 44 } else { u64::from(FOUR_LOST) };
        (raw <= highest).then_some(Place(raw))
    }

    /// Sets an entry as it was loaded: its page has not changed.
    pub fn install(&mut self, lba: u64, place: Place) {
        match &mut self.entries {
            Entries::Four(e) => e[lba as usize] = Map::four(place),
            Entries::Eight(e) => e[lba as usize] = place.0,
        }
    }

    /// A place in four bytes of memory.
    #[inline]
    fn four(place: Place) -> u32 {
        ((place.0 >> 63) << 31) as u32 | (place.0 as u32 & FOUR_LOST)
    }
}

/// An entry as flash has it.
trait Entry<const N: usize>: Copy + BitOr<Output = Self> {
    fn bytes(self) -> [u8; N];
    /// Whether the highest bit is set.
    fn is_high(self) -> bool;
}

impl Entry<4> for u32 {
    #[inline]
    fn bytes(self) -> [u8; 4] {
        self.to_le_bytes()
    }
    #[inline]
    fn is_high(self) -> bool {
        self >> 31 == 1
    }
}

impl Entry<8> for u64 {
    #[inline]
    fn bytes(self) -> [u8; 8] {
        self.to_le_bytes()
    }
    #[inline]
    fn is_high(self) -> bool {
        self >> 63 == 1
    }
}

/// Entries that are written at once when none of them is in the buffer: 64
/// bytes of them, which the processor's wide registers take.
const AT_ONCE: usize = 16;

/// Writes entries; those with the highest bit as `slow` says.
fn encode_entries<const N: usize, E: Entry<N>>(from: &[E], to: &mut [u8], slow: impl Fn(E) -> E) {
    let one = |entry: E| if entry.is_high() { slow(entry) } else { entry }.bytes();
    let (all, rest) = from.as_chunks::<AT_ONCE>();
    let (to, _) = to.as_chunks_mut::<N>();
    let (to_all, to_rest) = to.as_chunks_mut::<AT_ONCE>();
    for (from, to) in all.iter().zip(to_all) {
        let any = from[1..].iter().fold(from[0], |any, &entry| any | entry);
        *to = if any.is_high() { from.map(one) } else { from.map(E::bytes) };
    }
    rest.iter().zip(to_rest).for_each(|(entry, to)| *to = one(*entry));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_widths_keep_all_kinds() {
        for bits in [30, 40] {
            let mut map = Map::new(5000, bits).unwrap();
            assert_eq!(map.get(4999), Place::UNMAPPED);
            let last = Ppa((1 << bits) - 1);
            for place in [Place::flash(Ppa(0)), Place::flash(last), Place::LOST, Place::buffer(77)]
            {
                map.set(4999, place);
                assert_eq!(map.get(4999), place);
                assert_eq!(map.get(4998), Place::UNMAPPED);
            }
            assert_eq!(map.get(4999).slot(), Some(77));
            assert_eq!(map.get(4999).ppa(), None);
            assert_eq!(map.dirty_pages(), 1);
            map.set(0, Place::flash(last));
            assert_eq!(map.get(0).ppa(), Some(last));
            assert_eq!(map.dirty_pages(), 2);
            assert_eq!(Place::LOST.ppa(), None);
            assert_eq!(Place::LOST.slot(), None);
        }
    }

    #[test]
    fn pages_go_to_flash_and_back() {
        for bits in [30, 40] {
            let mut map = Map::new(1500, bits).unwrap();
            let places = [Place::flash(Ppa((1 << bits) - 1)), Place::LOST, Place::UNMAPPED];
            (0..3).for_each(|i| map.set(1497 + i as u64, places[i]));
            map.set(0, Place::buffer(3));
            assert_eq!(map.pages(), Map::pages_of(1500, bits));
            let last = map.page_of(1499);
            assert_eq!((map.take_dirty(0), map.take_dirty(1)), (Some(0), Some(last)));
            assert_eq!(map.take_dirty(0), None);
            let mut page = [0xff; 4096];
            map.encode(last, &mut page, |_| unreachable!());
            let blocks = map.blocks_of(last);
            assert_eq!(blocks.end, 1500);
            for (i, place) in places.into_iter().enumerate() {
                let at = (1497 + i as u64 - blocks.start) as usize;
                assert_eq!(map.decode(&page, at), Some(place));
                map.install(1497 + i as u64, Place::UNMAPPED);
                map.install(1497 + i as u64, place);
                assert_eq!(map.get(1497 + i as u64), place);
            }
            for durable in [Place::flash(Ppa(9)), Place::LOST, Place::UNMAPPED] {
                map.encode(0, &mut page, |place| {
                    assert_eq!(place, Place::buffer(3));
                    durable
                });
                assert_eq!(map.decode(&page, 0), Some(durable));
            }
            assert_eq!(map.dirty_pages(), 0);
        }
    }
}
