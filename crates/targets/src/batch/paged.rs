//! Where the pages of a table are on flash: a small table.

use super::dirty::Dirty;
use super::location::Location;

/// Words of a page.
pub(super) const PAGE_WORDS: usize = 512;

/// Pages that hold `words` words.
pub(super) fn pages_for(words: usize) -> usize {
    words.div_ceil(PAGE_WORDS)
}

/// The pages of a table that is wholly in memory: where each is on flash, and
/// how far memory is ahead of that.
pub(super) struct Paged {
    place: Vec<Location>,
    dirty: Vec<Dirty>,
}

impl Paged {
    pub fn new(pages: usize) -> Paged {
        Paged { place: vec![Location::NONE; pages], dirty: vec![Dirty::default(); pages] }
    }

    pub fn len(&self) -> usize {
        self.place.len()
    }

    pub fn place(&self, page: usize) -> Location {
        self.place[page]
    }

    pub fn places(&self) -> &[Location] {
        &self.place
    }

    /// The page is at `to` now.
    pub fn set_place(&mut self, page: usize, to: Location) {
        self.place[page] = to;
    }

    pub fn dirty(&mut self, page: usize) -> &mut Dirty {
        &mut self.dirty[page]
    }

    /// The first page from `from` on that is due for the log up to `lsn`.
    pub fn due(&self, from: usize, lsn: u64) -> Option<usize> {
        (from..self.dirty.len()).find(|&page| self.dirty[page].is_due(lsn))
    }

    /// The first LSN that recovery must read for any page.
    pub fn oldest(&self) -> u64 {
        self.dirty.iter().map(Dirty::oldest).min().unwrap_or(u64::MAX)
    }

    /// Its places as words, for the page of the table above.
    pub fn store(&self, page: usize, to: &mut [u8]) {
        to.fill(0);
        let places = &self.place[page * PAGE_WORDS..];
        for (bytes, place) in to.chunks_exact_mut(8).zip(places) {
            bytes.copy_from_slice(&place.word().to_le_bytes());
        }
    }
}
