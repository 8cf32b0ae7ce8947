//! The out-of-band entry of a block.
//!
//! Guarantees: an entry that was changed, belongs to another block or to
//! another life of its chunk is refused, and so are data that are not those
//! that were stored with it.

use flash::{Ppa, TAG_BYTES};

use crate::header::{checksum, put_u32, put_u64, u32_at, u64_at};

/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 32;

/// Most sessions of a file: their number has 28 bits.
pub const MAX_SESSION: u32 = (1 << 28) - 1;

/// The block was stored whole, in the area of whole blocks.
const WHOLE: u32 = 1 << 28;
/// The last block of a program.
const LAST: u32 = 1 << 29;

/// What is kept of a block beside its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its tag.
    pub tag: [u8; TAG_BYTES],
    /// The life of its chunk.
    pub life: u32,
    /// The session in which it was programmed: up to [`MAX_SESSION`].
    pub session: u32,
    /// Whether it was stored whole on a medium that keeps less.
    pub whole: bool,
    /// Whether it is the last block of a program.
    pub last: bool,
    /// The checksum of its data.
    pub data_sum: u32,
}

impl Entry {
    /// Puts the entry of block `at` at the start of `bytes`.
    ///
    /// # Panics
    /// With fewer than [`ENTRY_BYTES`].
    #[inline]
    pub fn encode(&self, at: Ppa, bytes: &mut [u8]) {
        let flags = if self.whole { WHOLE } else { 0 } | if self.last { LAST } else { 0 };
        bytes[..TAG_BYTES].copy_from_slice(&self.tag);
        put_u32(bytes, 16, self.life);
        put_u32(bytes, 20, self.session | flags);
        put_u32(bytes, 24, self.data_sum);
        let sum = sum(bytes, at);
        put_u32(bytes, 28, sum);
    }

    /// The entry of block `at` in this `life` of its chunk, if it is that.
    ///
    /// # Panics
    /// With fewer than [`ENTRY_BYTES`].
    #[inline]
    pub fn decode(bytes: &[u8], at: Ppa, life: u32) -> Option<Entry> {
        let word = u32_at(bytes, 20);
        let entry = Entry {
            tag: bytes[..TAG_BYTES].try_into().expect("16 bytes"),
            life: u32_at(bytes, 16),
            session: word & MAX_SESSION,
            whole: word & WHOLE != 0,
            last: word & LAST != 0,
            data_sum: u32_at(bytes, 24),
        };
        let known = word & !(MAX_SESSION | WHOLE | LAST) == 0;
        (known && entry.life == life && u32_at(bytes, 28) == sum(bytes, at)).then_some(entry)
    }
}

/// The checksum of an entry and of whose it is.
#[inline]
fn sum(bytes: &[u8], at: Ppa) -> u32 {
    let mut all = [0; ENTRY_BYTES + 4];
    all[..28].copy_from_slice(&bytes[..28]);
    put_u64(&mut all, 28, at.0);
    debug_assert_eq!(u64_at(&all, 28), at.0);
    checksum(&all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_comes_back_and_nothing_else_does(
            tag: [u8; 16], life: u32, session in 0..=MAX_SESSION, whole: bool, last: bool,
            data_sum: u32, at in 0usize..32, flip in 1u8..,
        ) {
            let entry = Entry { tag, life, session, whole, last, data_sum };
            let mut bytes = [0; ENTRY_BYTES];
            entry.encode(Ppa(99), &mut bytes);
            prop_assert_eq!(Entry::decode(&bytes, Ppa(99), life), Some(entry));
            prop_assert_eq!(Entry::decode(&bytes, Ppa(98), life), None);
            prop_assert_eq!(Entry::decode(&bytes, Ppa(99), life.wrapping_add(1)), None);
            bytes[at] ^= flip;
            prop_assert_eq!(Entry::decode(&bytes, Ppa(99), life), None);
        }
    }

    #[test]
    fn a_hole_is_no_entry() {
        for at in 0..1000 {
            assert_eq!(Entry::decode(&[0; ENTRY_BYTES], Ppa(at), 0), None);
        }
    }
}
