//! Where the pages of a table are on flash: a small table.

use super::dirty::Dirty;
use super::location::Location;
use super::oldest::Oldest;

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
    oldest: Oldest,
}

impl Paged {
    pub fn new(pages: usize) -> Paged {
        Paged {
            place: vec![Location::NONE; pages],
            dirty: vec![Dirty::default(); pages],
            oldest: Oldest::new(pages),
        }
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

    /// Takes note that a page was changed by the batch `lsn`.
    pub fn touch(&mut self, page: usize, lsn: u64) {
        let Paged { dirty, oldest, .. } = self;
        if dirty[page].touch(lsn) {
            oldest.note(page, lsn, |page, lsn| dirty[page].needs(lsn));
        }
    }

    /// The first page from `from` on that is due for the log up to `lsn`.
    pub fn due(&self, from: usize, lsn: u64) -> Option<usize> {
        (from..self.dirty.len()).find(|&page| self.dirty[page].is_due(lsn))
    }

    /// The first LSN that recovery must read for any page.
    pub fn oldest(&mut self) -> u64 {
        let dirty = &self.dirty;
        self.oldest.first(|page, lsn| dirty[page].needs(lsn))
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
