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
    pages: BTreeMap<(Inode, u32), Page>,
    order: VecDeque<(Inode, u32)>,
}

impl Kept {
    /// Keeps that many from now on.
    pub fn with(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    /// A page as the disk has it, if it is kept.
    pub fn get(&self, inode: Inode, number: u32) -> Option<&Page> {
        self.pages.get(&(inode, number))
    }

    /// A page was written.
    pub fn put(&mut self, inode: Inode, number: u32, page: &Page) {
        if self.most == 0 {
            return;
        }
        let at = (inode, number);
        if self.pages.insert(at, page.clone()).is_none() {
            self.order.push_back(at);
        }
        while self.order.len() > self.most {
            if let Some(oldest) = self.order.pop_front() {
                self.pages.remove(&oldest);
            }
        }
    }

    /// These pages of a file are no more what they were.
    pub fn drop(&mut self, inode: Inode, from: u32, to: u32) {
        let gone: Vec<(Inode, u32)> =
            self.pages.range((inode, from)..(inode, to)).map(|it| *it.0).collect();
        if gone.is_empty() {
            return;
        }
        gone.iter().for_each(|at| drop(self.pages.remove(at)));
        self.order.retain(|at| self.pages.contains_key(at));
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
        assert_eq!((has(&kept, 1), has(&kept, 2), kept.order.len()), (Some(1), None, 1));
        let mut none = Kept::default();
        none.put(Inode(1), 0, &page(1));
        assert_eq!(has(&none, 0), None);
    }
}
