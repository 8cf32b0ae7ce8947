//! Which pages of files the kernel would have in its page cache: reads of others go to the drive,
//! once.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use files::{Inode, Operation};

const PAGE: u64 = 4096;

/// Pages that were read or written. A bit each, 64 of them by the number of the first.
#[derive(Default)]
pub struct Cached {
    files: HashMap<Inode, BTreeMap<u64, u64>>,
}

/// The pages that bytes are in.
pub fn pages(offset: u64, len: u64) -> Range<u64> {
    offset / PAGE..(offset + len).div_ceil(PAGE)
}

impl Cached {
    fn has(&self, inode: Inode, page: u64) -> bool {
        let word = self.files.get(&inode).and_then(|bits| bits.get(&(page / 64)));
        word.is_some_and(|word| word >> (page % 64) & 1 != 0)
    }

    /// Pages are there from now on.
    pub fn add(&mut self, inode: Inode, pages: Range<u64>) {
        let bits = self.files.entry(inode).or_default();
        for page in pages {
            *bits.entry(page / 64).or_default() |= 1 << (page % 64);
        }
    }

    /// Pages are not there any more.
    pub fn remove(&mut self, inode: Inode, pages: Range<u64>) {
        let Some(bits) = self.files.get_mut(&inode) else { return };
        for page in pages {
            if let Some(word) = bits.get_mut(&(page / 64)) {
                *word &= !(1 << (page % 64));
            }
        }
    }

    /// The next run of pages of these that are not there.
    pub fn missing(&self, inode: Inode, pages: Range<u64>) -> Option<Range<u64>> {
        let first = pages.clone().find(|&page| !self.has(inode, page))?;
        let end = (first..pages.end).find(|&page| self.has(inode, page)).unwrap_or(pages.end);
        Some(first..end)
    }

    /// What an operation brings in and takes away.
    pub fn note(&mut self, operation: &Operation) {
        match operation {
            Operation::Write { inode, offset, data } => {
                self.add(*inode, pages(*offset, data.len() as u64));
            }
            Operation::Truncate { inode, size } => {
                if let Some(bits) = self.files.get_mut(inode) {
                    bits.split_off(&size.div_ceil(PAGE).div_ceil(64));
                }
            }
            Operation::Forget { inode } => {
                self.files.remove(inode);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn missing_is_what_was_not_added(
            added in prop::collection::vec((0u64..300, 0u64..100), 0..6),
            asked in (0u64..300, 0u64..200),
        ) {
            let (mut cached, mut model) = (Cached::default(), HashSet::new());
            for (first, len) in added {
                cached.add(Inode(7), first..first + len);
                model.extend(first..first + len);
            }
            let (mut at, end) = (asked.0, asked.0 + asked.1);
            let mut missing = Vec::new();
            while let Some(run) = cached.missing(Inode(7), at..end) {
                prop_assert!(!run.is_empty());
                at = run.end;
                missing.extend(run);
            }
            let expected: Vec<u64> =
                (asked.0..end).filter(|page| !model.contains(page)).collect();
            prop_assert_eq!(missing, expected);
            prop_assert_eq!(cached.missing(Inode(8), 0..1), Some(0..1));
        }
    }
}
