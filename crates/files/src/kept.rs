//! Pages that were written and are clean, kept in memory as a kernel's page cache keeps them, so
//! that a write to a part of one does not read it from the disk. Off unless asked for
//! ([`Files::keep_pages`]); what is kept is what the disk has. Memory is bounded.
//!
//! [`Files::keep_pages`]: crate::Files::keep_pages

use std::collections::{BTreeMap, VecDeque};

use crate::disk::Page;
use crate::operation::Inode;

/// The pages, the first to come first to go.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    most: usize,
    /// Each with when it came.
    pages: BTreeMap<At, (u64, Page)>,
    /// When they came, and such as have gone: those are taken out together.
    order: VecDeque<(u64, At)>,
    came: u64,
}

type At = (Inode, u32);

impl Kept {
    /// Keeps that many from now on.
    pub fn with(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    /// A page as the disk has it, if it is kept.
    pub fn get(&self, inode: Inode, number: u32) -> Option<&Page> {
        self.pages.get(&(inode, number)).map(|it| &it.1)
    }

    /// A page was written.
    pub fn put(&mut self, inode: Inode, number: u32, page: &Page) {
        if self.most == 0 {
            return;
        }
        let at = (inode, number);
        if let Some(there) = self.pages.get_mut(&at) {
            there.1 = page.clone();
            return;
        }
        self.came += 1;
        self.pages.insert(at, (self.came, page.clone()));
        self.order.push_back((self.came, at));
        while self.pages.len() > self.most {
            if let Some(oldest) = self.order.pop_front().filter(|it| self.has(it)) {
                self.pages.remove(&oldest.1);
            }
        }
        if self.order.len() >= 2 * self.most {
            let mut order = std::mem::take(&mut self.order);
            order.retain(|it| self.has(it));
            self.order = order;
        }
    }

    /// Whether what came then is still there.
    fn has(&self, (came, at): &(u64, At)) -> bool {
        self.pages.get(at).is_some_and(|there| there.0 == *came)
    }

    /// These pages of a file are no more what they were.
    pub fn drop(&mut self, inode: Inode, from: u32, to: u32) {
        let gone: Vec<At> = self.pages.range((inode, from)..(inode, to)).map(|it| *it.0).collect();
        gone.iter().for_each(|at| drop(self.pages.remove(at)));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn the_oldest_go_first_and_no_more_are_kept() {
        let page = |byte| Arc::new([byte; 4096]);
        let mut kept = Kept::with(3);
        for n in 0..4 {
            kept.put(Inode(1), n, &page(n as u8));
        }
        kept.put(Inode(1), 2, &page(9));
        let has = |kept: &Kept, n| kept.get(Inode(1), n).map(|page| page[0]);
        assert_eq!([0, 1, 2, 3].map(|n| has(&kept, n)), [None, Some(1), Some(9), Some(3)]);
        kept.drop(Inode(1), 2, u32::MAX);
        assert_eq!((has(&kept, 1), has(&kept, 2), kept.pages.len()), (Some(1), None, 1));
        // What went and came again is as young as it came.
        kept.put(Inode(1), 3, &page(3));
        kept.put(Inode(1), 2, &page(2));
        kept.put(Inode(1), 4, &page(4));
        assert_eq!([1, 2, 3, 4].map(|n| has(&kept, n)), [None, Some(2), Some(3), Some(4)]);
        let mut none = Kept::default();
        none.put(Inode(1), 0, &page(1));
        assert_eq!(has(&none, 0), None);
    }

    /// Who writes and drops for ever does not keep when.
    #[test]
    fn what_is_kept_is_bounded() {
        let mut kept = Kept::with(4);
        for n in 0..100 {
            kept.put(Inode(n), 0, &Arc::new([0; 4096]));
            kept.drop(Inode(n), 0, u32::MAX);
            assert!(kept.pages.is_empty() && kept.order.len() < 8);
        }
    }
}
