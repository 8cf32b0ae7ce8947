//! The first LSN that a table's pages need the log for, found without a look at
//! each page.
//!
//! A queue of changes, oldest first: which page, and the LSN of the change that
//! put it ahead of flash. A change that is no longer what its page needs the log
//! for stays in the queue until it is at the front, or until the queue is full:
//! then all of these go. A page has two changes at most that count, so each
//! change is looked at a bounded number of times.

use std::collections::VecDeque;

/// Changes of a table's pages.
pub(super) struct Oldest {
    /// LSN and page. In order, unless changes came again in a start.
    changes: VecDeque<(u64, u32)>,
    most: usize,
    in_order: bool,
}

impl Oldest {
    /// Of a table of so many pages.
    pub fn new(pages: usize) -> Oldest {
        let most = 4 * pages + 64;
        Oldest { changes: VecDeque::with_capacity(most), most, in_order: true }
    }

    /// The change `lsn` put a page ahead of flash, or ahead of the copy on its
    /// way. `counts` tells of a page and an LSN whether the page still needs the
    /// log for that change.
    pub fn note(&mut self, page: usize, lsn: u64, counts: impl Fn(usize, u64) -> bool) {
        if self.changes.len() >= self.most {
            self.changes.retain(|&(lsn, page)| counts(page as usize, lsn));
        }
        self.in_order &= self.changes.back().is_none_or(|&(last, _)| last <= lsn);
        self.changes.push_back((lsn, page as u32));
    }

    /// The first LSN that a page needs the log for, or `u64::MAX`.
    pub fn first(&mut self, counts: impl Fn(usize, u64) -> bool) -> u64 {
        if !self.in_order {
            self.changes.make_contiguous().sort_unstable();
            self.in_order = true;
        }
        while let Some(&(lsn, page)) = self.changes.front() {
            if counts(page as usize, lsn) {
                return lsn;
            }
            self.changes.pop_front();
        }
        u64::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::super::dirty::Dirty;
    use super::*;
    use proptest::prelude::*;
    use std::cell::Cell;

    const PAGES: usize = 7;

    #[derive(Clone, Debug)]
    enum Step {
        Touch(usize),
        Begin(usize),
        End(usize),
        /// A start: changes come again from here on.
        Back(u64),
        First,
    }

    fn step() -> impl Strategy<Value = Step> {
        let page = || 0..PAGES;
        prop_oneof![
            4 => page().prop_map(Step::Touch),
            2 => page().prop_map(Step::Begin),
            2 => page().prop_map(Step::End),
            1 => (1u64..50).prop_map(Step::Back),
            2 => Just(Step::First),
        ]
    }

    proptest! {
        #[test]
        fn finds_what_a_scan_finds(steps in prop::collection::vec(step(), 0..600)) {
            let (mut pages, mut oldest) = ([Dirty::default(); PAGES], Oldest::new(PAGES));
            let mut lsn = 1;
            for step in steps {
                match step {
                    Step::Touch(page) => {
                        lsn += 1;
                        if pages[page].touch(lsn) {
                            oldest.note(page, lsn, |page, lsn| pages[page].needs(lsn));
                        }
                    }
                    Step::Begin(page) => pages[page].begin(),
                    Step::End(page) => pages[page].end(),
                    Step::Back(by) => {
                        // Then nothing was changed yet.
                        pages = [Dirty::default(); PAGES];
                        lsn = lsn.saturating_sub(by).max(1);
                    }
                    Step::First => {}
                }
                let scan = pages.iter().map(Dirty::oldest).min().unwrap();
                prop_assert_eq!(oldest.first(|page, lsn| pages[page].needs(lsn)), scan);
            }
        }
    }

    /// As many pages as 512 MB hold: who asks again and again looks at one.
    #[test]
    fn looks_at_few() {
        const MANY: usize = 131_072;
        let (mut pages, mut oldest) = (vec![Dirty::default(); MANY], Oldest::new(MANY));
        let looked = Cell::new(0);
        let (mut lsn, mut changes) = (1, 1);
        pages[0].touch(lsn);
        oldest.note(0, lsn, |_, _| true);
        for page in (0..10).flat_map(|_| 1..MANY) {
            (lsn, changes) = (lsn + 1, changes + 1);
            pages[page].touch(lsn);
            let counts = |page: usize, lsn| {
                looked.set(looked.get() + 1);
                pages[page].needs(lsn)
            };
            oldest.note(page, lsn, counts);
            assert_eq!(oldest.first(counts), 1);
            // All are written but for the first.
            pages[page].begin();
            pages[page].end();
        }
        assert!(looked.get() <= 3 * changes, "{} looks for {changes} changes", looked.get());
    }
}
