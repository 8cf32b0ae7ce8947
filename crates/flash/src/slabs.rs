//! Memory in pages of one size, taken in slabs that grow.
//!
//! To take each page from the system by itself costs more than to fill it. So
//! a slab is as large as all before it, within bounds: a small drive takes
//! little, a large one asks the system seldom, and for huge pages. Pages given
//! back are used again, the last one first, since it is likely in the caches;
//! slabs stay until the end. May fail where the system has no memory; some is left
//! then for what cannot fail.

use port::Lazy;
use port::lazy::{SPARE, ask_for};

/// Bytes of the first slab and of the largest, where pages are not larger.
const BYTES: (usize, usize) = (64 << 10, 32 << 20);

/// A page: its slab, and its place there. Only [`Slabs`] makes one, and only
/// until it is given back is it its holder's.
#[derive(Debug)]
pub(crate) struct Page {
    slab: u32,
    at: u32,
}

impl Page {
    /// The page as a word, which is never zero.
    pub fn into_word(self) -> u64 {
        u64::from(self.slab + 1) << 32 | u64::from(self.at)
    }

    /// The page of a word; none of zero.
    #[inline]
    pub fn from_word(word: u64) -> Option<Page> {
        let slab = ((word >> 32) as u32).checked_sub(1)?;
        Some(Page { slab, at: word as u32 })
    }
}

/// All pages.
pub(crate) struct Slabs {
    /// Bytes of a page.
    page: usize,
    slabs: Vec<Lazy<u8>>,
    unused: Vec<Page>,
    /// Pages of the last slab that were never taken.
    fresh: usize,
}

impl Slabs {
    /// None yet, of so many bytes each.
    pub fn new(page: usize) -> Slabs {
        Slabs { page, slabs: Vec::new(), unused: Vec::new(), fresh: 0 }
    }

    /// Takes a page, of any content. None where there is no memory for it.
    pub fn take(&mut self) -> Option<Page> {
        if let Some(page) = self.unused.pop() {
            return Some(page);
        }
        if self.fresh == 0 {
            let all: usize = self.slabs.iter().map(|slab| slab.len()).sum();
            let pages = (all.clamp(BYTES.0, BYTES.1) / self.page).max(1);
            self.slabs.push(self.slab(pages)?);
            self.fresh = pages;
        }
        self.take_fresh()
    }

    fn slab(&self, pages: usize) -> Option<Lazy<u8>> {
        let (bytes, what) = (pages.checked_mul(self.page)?, "the medium's data");
        ask_for((bytes as u64).saturating_add(SPARE), what).ok()?;
        Lazy::zeroed(bytes, what).ok()
    }

    /// The next page of the last slab that was never taken.
    fn take_fresh(&mut self) -> Option<Page> {
        let slab = self.slabs.len().checked_sub(1)?;
        let left = self.fresh.checked_sub(1)?;
        let at = self.slabs[slab].len() / self.page - self.fresh;
        self.fresh = left;
        Some(Page { slab: slab as u32, at: at as u32 })
    }

    /// Takes the memory for so many more pages now. Where the system has none,
    /// [`Slabs::take`] finds out. `go_on` is asked now and then; where it says
    /// no, that is the end and the answer.
    pub fn reserve(&mut self, mut pages: usize, go_on: &mut impl FnMut() -> bool) -> bool {
        let most = (BYTES.1 / self.page).max(1);
        while pages > 0 {
            if !go_on() {
                return false;
            }
            let some = pages.min(most);
            let Some(slab) = self.slab(some) else { return true };
            slab.populate(0..some * self.page);
            // What is left of the last slab is not lost.
            while let Some(page) = self.take_fresh() {
                self.unused.push(page);
            }
            self.slabs.push(slab);
            self.fresh = some;
            pages -= some;
        }
        true
    }

    /// Gives a page back.
    pub fn give(&mut self, page: Page) {
        self.unused.push(page);
    }

    #[inline]
    pub fn bytes(&self, page: &Page) -> &[u8] {
        &self.slabs[page.slab as usize][page.at as usize * self.page..][..self.page]
    }

    #[inline]
    pub fn bytes_mut(&mut self, page: &Page) -> &mut [u8] {
        &mut self.slabs[page.slab as usize][page.at as usize * self.page..][..self.page]
    }

    /// Fetches the line of a page's byte `at` into the cache, or nothing.
    #[inline]
    pub fn prefetch(&self, page: &Page, at: usize) {
        self.slabs[page.slab as usize].prefetch(page.at as usize * self.page + at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_apart_and_used_again() {
        let mut slabs = Slabs::new(4096);
        let pages: Vec<Page> = (0..100).map(|_| slabs.take().unwrap()).collect();
        for (i, page) in pages.iter().enumerate() {
            slabs.bytes_mut(page).fill(i as u8);
        }
        for (i, page) in pages.iter().enumerate() {
            assert!(slabs.bytes(page).iter().all(|&byte| byte == i as u8));
        }
        let sizes: Vec<usize> = slabs.slabs.iter().map(|slab| slab.len() / 4096).collect();
        assert_eq!(sizes, [16, 16, 32, 64]);
        pages.into_iter().for_each(|page| slabs.give(page));
        let again: Vec<Page> = (0..100).map(|_| slabs.take().unwrap()).collect();
        assert_eq!(slabs.slabs.len(), 4, "no new memory");
        assert_eq!((again[0].slab, again[0].at), (3, 35), "the last first");
    }

    #[test]
    fn what_is_taken_ahead_is_used_and_the_rest_of_a_slab_too() {
        let mut slabs = Slabs::new(4096);
        let first = slabs.take().unwrap();
        assert!(slabs.reserve(40, &mut || true));
        let mut all: Vec<(u32, u32)> =
            (0..55).map(|_| slabs.take().unwrap()).map(|page| (page.slab, page.at)).collect();
        assert_eq!(slabs.slabs.len(), 2, "15 of the first slab, 40 of the second");
        all.push((first.slab, first.at));
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 56, "each once");
        assert_eq!(slabs.take().unwrap().slab, 2);
    }

    #[test]
    fn pages_larger_than_the_first_slab_are_taken_one_by_one() {
        let mut slabs = Slabs::new(256 << 10);
        let pages: Vec<Page> = (0..3).map(|_| slabs.take().unwrap()).collect();
        let places: Vec<(u32, u32)> = pages.iter().map(|page| (page.slab, page.at)).collect();
        assert_eq!(places, [(0, 0), (1, 0), (2, 0)]);
        let mut asked = 0;
        let mut twice = || {
            asked += 1;
            asked < 3
        };
        assert!(!slabs.reserve(1000, &mut twice), "it was stopped");
        assert_eq!(slabs.slabs.len(), 3 + 2, "after two of 32 MiB");
    }

    #[test]
    fn a_word_is_a_page() {
        assert!(Page::from_word(0).is_none());
        for (slab, at) in [(0, 0), (7, 3), (u32::MAX - 1, u32::MAX)] {
            let back = Page::from_word(Page { slab, at }.into_word()).unwrap();
            assert_eq!((back.slab, back.at), (slab, at));
        }
    }
}
