//! The map from logical blocks to where they are (L2P).
//!
//! 4 bytes an entry where the drive's addresses fit, else 8, in 4 KiB map
//! pages with a dirty bit each, so that a checkpoint knows what to write. An
//! untouched page costs no memory.

use flash::Ppa;
use port::{Lazy, OutOfMemory};

/// Where a logical block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(u64);

/// Bit that tells a buffer slot from a flash address.
const BUFFERED: u64 = 1 << 63;

impl Place {
    /// Nowhere: reads as zeros.
    pub const UNMAPPED: Place = Place(0);

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
        if self.0 == 0 || self.0 & BUFFERED != 0 { None } else { Some(Ppa(self.0 - 1)) }
    }

    /// The buffer slot, if that is where it is.
    #[inline]
    pub fn slot(self) -> Option<u32> {
        if self.0 & BUFFERED != 0 { Some(self.0 as u32) } else { None }
    }
}

enum Entries {
    /// Bit 31 stands for [`BUFFERED`].
    Four(Lazy<u32>),
    Eight(Lazy<u64>),
}

/// Address bits that four-byte entries hold.
const FOUR_BYTE_BITS: u32 = 30;

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
                let raw = u64::from(e[lba as usize]);
                Place(((raw >> 31) << 63) | (raw & 0x7fff_ffff))
            }
            Entries::Eight(e) => Place(e[lba as usize]),
        }
    }

    #[inline]
    pub fn set(&mut self, lba: u64, place: Place) {
        match &mut self.entries {
            Entries::Four(e) => {
                debug_assert!(place.0 & !BUFFERED < 1 << 31);
                e[lba as usize] = ((place.0 >> 63) << 31) as u32 | place.0 as u32;
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

    /// Map pages changed since the map was made.
    pub fn dirty_pages(&self) -> u64 {
        self.dirty.iter().map(|word| u64::from(word.count_ones())).sum()
    }
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
            for place in [Place::flash(Ppa(0)), Place::flash(last), Place::buffer(77)] {
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
        }
    }
}
