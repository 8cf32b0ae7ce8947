//! Where a record is, in a word: its first block, where it begins there, how long it
//! is, and of what kind.

use flash::{Geometry, Ppa};
use port::BLOCK_BYTES;

const BLOCK: usize = BLOCK_BYTES as usize;

/// Records begin and end at multiples of so many bytes.
pub(super) const GRAIN: usize = 32;

/// Bits of a block's address that a place has room for.
pub(super) const PPA_BITS: u32 = 39;
const OFFSET_BITS: u32 = 7;
const LEN_BITS: u32 = 14;
const LEN_AT: u32 = PPA_BITS + OFFSET_BITS;
const KIND_AT: u32 = LEN_AT + LEN_BITS;
const AGE_AT: u32 = KIND_AT + 2;

const _: () = assert!(GRAIN << OFFSET_BITS == BLOCK && AGE_AT + 2 == 64);
const _: () = assert!(flash::MAX_ROW_BLOCKS as usize * BLOCK / GRAIN < 1 << LEN_BITS);

/// What a record tells of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Its value, which the record has.
    Small,
    /// Where its value is.
    Large,
    /// That it is deleted.
    Gone,
}

/// Where a record is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place(pub u64);

impl Place {
    /// No record.
    pub const NONE: Place = Place(0);

    /// The place of a record of `len` bytes, at byte `at` of a row that begins with
    /// the block `row`. The age is of what is deleted: the epoch, of which the last
    /// two bits are kept.
    pub fn new(row: Ppa, at: usize, len: usize, kind: Kind, age: u64) -> Place {
        let ppa = row.0 + (at / BLOCK) as u64;
        debug_assert!(ppa >> PPA_BITS == 0 && len.is_multiple_of(GRAIN) && len > 0);
        let offset = (at % BLOCK / GRAIN) as u64;
        let len = (len / GRAIN) as u64;
        Place(
            ppa | offset << PPA_BITS
                | len << LEN_AT
                | (kind as u64) << KIND_AT
                | (age & 3) << AGE_AT,
        )
    }

    /// Its first block.
    pub fn ppa(self) -> Ppa {
        Ppa(self.0 & ((1 << PPA_BITS) - 1))
    }

    /// Where it begins in its first block, in bytes.
    pub fn offset(self) -> usize {
        (self.0 >> PPA_BITS & ((1 << OFFSET_BITS) - 1)) as usize * GRAIN
    }

    /// Its bytes.
    pub fn len(self) -> usize {
        (self.0 >> LEN_AT & ((1 << LEN_BITS) - 1)) as usize * GRAIN
    }

    /// The blocks that it is in.
    pub fn blocks(self) -> usize {
        (self.offset() + self.len()).div_ceil(BLOCK)
    }

    /// Whether it is in a row of the drive.
    pub fn is_of(self, geometry: &Geometry) -> bool {
        let row = geometry.row_blocks() as usize;
        self.len() > 0
            && geometry.contains(self.ppa())
            && geometry.block(self.ppa()) as usize % row + self.blocks() <= row
    }

    /// Of what kind it is.
    pub fn kind(self) -> Kind {
        match self.0 >> KIND_AT & 3 {
            0 => Kind::Small,
            1 => Kind::Large,
            _ => Kind::Gone,
        }
    }

    /// The last two bits of its age.
    pub fn age(self) -> u64 {
        self.0 >> AGE_AT
    }

    /// Whether it is of a key that is there.
    pub fn is_live(self) -> bool {
        self != Place::NONE && self.kind() != Kind::Gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_comes_back_as_it_was() {
        let row = Ppa((1 << PPA_BITS) - 96);
        for kind in [Kind::Small, Kind::Large, Kind::Gone] {
            let place = Place::new(row, 95 * BLOCK + 4064, 32, kind, 7);
            assert_eq!((place.ppa().0, place.offset()), (row.0 + 95, 4064));
            assert_eq!((place.len(), place.blocks(), place.kind()), (32, 1, kind));
            assert_eq!((place.age(), place.is_live()), (3, kind != Kind::Gone));
        }
        let whole = Place::new(Ppa(0), 32, 96 * BLOCK - 32, Kind::Small, 0);
        assert_eq!((whole.len(), whole.blocks()), (96 * BLOCK - 32, 96));
        assert!(!Place::NONE.is_live());
    }
}
