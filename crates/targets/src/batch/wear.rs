//! WEAR: how often each chunk was erased, with WEAR_S above it.
//!
//! The drive counts erases too; of both the higher number counts. No batch
//! changes it, so no page of it ever needs the log.

use flash::Geometry;

use super::paged::Paged;

/// Counters of a page.
const PAGE_COUNTERS: usize = 1024;

/// WEAR, wholly in memory.
pub(super) struct Wear {
    erases: Vec<u32>,
    total: u64,
    changed: Vec<bool>,
    /// WEAR_S: where its pages are.
    pub small: Paged,
}

impl Wear {
    pub fn new(geometry: &Geometry) -> Wear {
        let pages = geometry.chunk_slots().div_ceil(PAGE_COUNTERS);
        let erases = vec![0; pages * PAGE_COUNTERS];
        Wear { erases, total: 0, changed: vec![false; pages], small: Paged::new(pages) }
    }

    #[inline]
    pub fn get(&self, chunk: usize) -> u32 {
        self.erases[chunk]
    }

    /// Erases of all chunks together.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// A chunk was erased so often, or more often.
    pub fn raise(&mut self, chunk: usize, erases: u32) {
        if erases > self.erases[chunk] {
            self.total += u64::from(erases - self.erases[chunk]);
            self.erases[chunk] = erases;
            self.changed[chunk / PAGE_COUNTERS] = true;
        }
    }

    /// A page is to be written.
    pub fn change(&mut self, page: usize) {
        self.changed[page] = true;
    }

    /// The first page from `from` on that changed and is not being written.
    pub fn due(&mut self, from: usize) -> Option<usize> {
        (from..self.changed.len()).find(|&page| self.changed[page] && !self.small.dirty(page).busy)
    }

    /// A page as it is on flash; what changes from now on is not in it.
    pub fn store(&mut self, page: usize, to: &mut [u8]) {
        self.changed[page] = false;
        let counters = &self.erases[page * PAGE_COUNTERS..][..PAGE_COUNTERS];
        for (bytes, erases) in to.chunks_exact_mut(4).zip(counters) {
            bytes.copy_from_slice(&erases.to_le_bytes());
        }
    }

    /// Takes a page from flash.
    pub fn load(&mut self, page: usize, from: &[u8]) {
        let counters = &mut self.erases[page * PAGE_COUNTERS..][..PAGE_COUNTERS];
        for (erases, bytes) in counters.iter_mut().zip(from.chunks_exact(4)) {
            *erases = u32::from_le_bytes(bytes.try_into().expect("4 bytes"));
        }
        self.total = self.erases.iter().map(|&erases| u64::from(erases)).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flash::Dimensions;

    #[test]
    fn the_higher_count_stays() {
        let dim = Dimensions { groups: 4, pus: 4, chunks: 300, pages: 4, ..Dimensions::LEAST };
        let g = Geometry::new(dim).unwrap();
        let mut wear = Wear::new(&g);
        wear.raise(5000, 7);
        wear.raise(5000, 6);
        assert_eq!((wear.get(5000), wear.due(0)), (7, Some(4)));
        let mut page = vec![0; 4096];
        wear.store(4, &mut page);
        assert_eq!(wear.due(0), None);
        let mut again = Wear::new(&g);
        again.load(4, &page);
        assert_eq!((again.get(5000), again.total()), (7, 7));
    }
}
