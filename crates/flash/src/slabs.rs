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
        let slab = self.slabs.len() - 1;
        let at = self.slabs[slab].len() / PAGE - self.fresh;
        self.fresh -= 1;
        Some(Page { slab: slab as u32, at: at as u32 })
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
}
