//! Where a page is on flash.

use flash::{Geometry, Ppa};

/// A flash address as MAP and the records of the log hold it: 8 bytes, in
/// memory and on flash. Zero is nowhere; the highest bit alone is lost; else the
/// address plus one, with marks in the highest bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Location(u64);

/// The block was written whole: it lies in a row of the log or of metadata.
const WHOLE: u64 = 1 << 63;

/// Only in memory, only in MAP: a newer copy of the page is in the controller's
/// memory, and the side table leads to it.
const PENDING: u64 = 1 << 62;

impl Location {
    /// Nowhere: never written.
    pub const NONE: Location = Location(0);

    /// Somewhere, and nobody knows where: it was written and cannot be found.
    pub const LOST: Location = Location(WHOLE);

    /// The block at `ppa`.
    pub fn at(ppa: Ppa, whole: bool) -> Location {
        Location((ppa.0 + 1) | if whole { WHOLE } else { 0 })
    }

    /// The address, if there is one.
    #[inline]
    pub fn ppa(self) -> Option<Ppa> {
        (self.0 & !(WHOLE | PENDING)).checked_sub(1).map(Ppa)
    }

    /// Whether it cannot be found.
    #[inline]
    pub fn is_lost(self) -> bool {
        self.pending(false) == Location::LOST
    }

    /// Whether the block was written whole.
    #[inline]
    pub fn is_whole(self) -> bool {
        self.0 & WHOLE != 0
    }

    /// Whether a newer copy is on its way.
    #[inline]
    pub fn is_pending(self) -> bool {
        self.0 & PENDING != 0
    }

    /// The same, with a newer copy on its way or not.
    #[inline]
    pub fn pending(self, pending: bool) -> Location {
        Location(if pending { self.0 | PENDING } else { self.0 & !PENDING })
    }

    /// The word that holds it in memory.
    #[inline]
    pub fn word(self) -> u64 {
        self.0
    }

    /// The location that a word of memory holds.
    #[inline]
    pub fn from_word(word: u64) -> Location {
        Location(word)
    }

    /// The location that a word on flash holds. `None` if the drive has no such
    /// block.
    pub fn from_flash(word: u64, geometry: &Geometry) -> Option<Location> {
        let location = Location(word);
        if location == Location::NONE || location == Location::LOST {
            return Some(location);
        }
        let good = !location.is_pending() && location.ppa().is_some_and(|at| geometry.contains(at));
        good.then_some(location)
    }
}
