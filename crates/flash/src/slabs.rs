//! Memory in pages of 4 KiB, taken in slabs that grow.
//!
//! To take each page from the system by itself costs more than to fill it. So
//! a slab is as large as all before it, within bounds: a small drive takes
//! little, a large one asks the system seldom, and for huge pages. Pages given
//! back are used again, the last one first, since it is likely in the caches;
//! slabs stay until the end. May fail where the system has no memory.

use port::{BLOCK_BYTES, Lazy};

/// Pages of the first slab, 64 KiB, and of the largest, 32 MiB.
const PAGES: (usize, usize) = (16, 8192);

const PAGE: usize = BLOCK_BYTES as usize;

/// A page: its slab, and its place there. Only [`Slabs`] makes one, and only
/// until it is given back is it its holder's.
#[derive(Debug)]
pub(crate) struct Page {
    slab: u32,
    at: u32,
}

/// All pages.
#[derive(Default)]
pub(crate) struct Slabs {
    slabs: Vec<Lazy<u8>>,
    unused: Vec<Page>,
    /// Pages of the last slab that were never taken.
    fresh: usize,
}

impl Slabs {
    /// Takes a page, of any content. None where there is no memory for it.
    pub fn take(&mut self) -> Option<Page> {
        if let Some(page) = self.unused.pop() {
            return Some(page);
        }
        if self.fresh == 0 {
            let all: usize = self.slabs.iter().map(|slab| slab.len() / PAGE).sum();
            let pages = all.clamp(PAGES.0, PAGES.1);
            self.slabs.push(Lazy::zeroed(pages * PAGE, "blocks stored whole").ok()?);
            self.fresh = pages;
        }
        self.take_fresh()
    }

    /// The next page of the last slab that was never taken.
    fn take_fresh(&mut self) -> Option<Page> {
        let slab = self.slabs.len().checked_sub(1)?;
        let left = self.fresh.checked_sub(1)?;
        let at = self.slabs[slab].len() / PAGE - self.fresh;
        self.fresh = left;
        Some(Page { slab: slab as u32, at: at as u32 })
    }

    /// Takes the memory for so many more pages now, in one slab. Where the
    /// system has none, [`Slabs::take`] finds out.
    pub fn reserve(&mut self, pages: usize) {
        let bytes = pages * PAGE;
        let Ok(slab) = Lazy::zeroed(bytes, "blocks stored whole") else { return };
        slab.populate(0..bytes);
        // What is left of the last slab is not lost.
        let rest = self.pages_left();
        self.unused.extend(rest);
        self.slabs.push(slab);
        self.fresh = pages;
    }

    /// Takes the rest of the last slab.
    fn pages_left(&mut self) -> Vec<Page> {
        (0..self.fresh).filter_map(|_| self.take_fresh()).collect()
    }

    /// Gives pages back.
    pub fn give(&mut self, pages: impl Iterator<Item = Page>) {
        self.unused.extend(pages);
    }

    pub fn bytes(&self, page: &Page) -> &[u8] {
        &self.slabs[page.slab as usize][page.at as usize * PAGE..][..PAGE]
    }

    pub fn bytes_mut(&mut self, page: &Page) -> &mut [u8] {
        &mut self.slabs[page.slab as usize][page.at as usize * PAGE..][..PAGE]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_apart_and_used_again() {
        let mut slabs = Slabs::default();
        let pages: Vec<Page> = (0..100).map(|_| slabs.take().unwrap()).collect();
        for (i, page) in pages.iter().enumerate() {
            slabs.bytes_mut(page).fill(i as u8);
        }
        for (i, page) in pages.iter().enumerate() {
            assert!(slabs.bytes(page).iter().all(|&byte| byte == i as u8));
        }
        let sizes: Vec<usize> = slabs.slabs.iter().map(|slab| slab.len() / PAGE).collect();
        assert_eq!(sizes, [16, 16, 32, 64]);
        slabs.give(pages.into_iter());
        let again: Vec<Page> = (0..100).map(|_| slabs.take().unwrap()).collect();
        assert_eq!(slabs.slabs.len(), 4, "no new memory");
        assert_eq!((again[0].slab, again[0].at), (3, 35), "the last first");
    }

    #[test]
    fn what_is_taken_ahead_is_used_and_the_rest_of_a_slab_too() {
        let mut slabs = Slabs::default();
        let first = slabs.take().unwrap();
        slabs.reserve(40);
        let mut all: Vec<(u32, u32)> =
            (0..55).map(|_| slabs.take().unwrap()).map(|page| (page.slab, page.at)).collect();
        assert_eq!(slabs.slabs.len(), 2, "15 of the first slab, 40 of the second");
        all.push((first.slab, first.at));
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 56, "each once");
        assert_eq!(slabs.take().unwrap().slab, 2);
    }
}
