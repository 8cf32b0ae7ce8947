//! The side table: where the newest copies of pages are that are on their way.
//!
//! Associative, and much smaller than MAP: it has a place for each page that
//! can be in the controller's memory, and is never more than half full. A mark
//! in the entry of MAP says that the page is here.

use super::location::Location;

/// The newest copy of a page that a batch is writing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Way {
    /// LPID plus one; 0 where there is none.
    key: u64,
    to: Location,
    lsn: u64,
}

/// Open addressing with linear steps.
pub(super) struct Side {
    ways: Vec<Way>,
}

impl Side {
    /// A table for `pages` pages.
    pub fn new(pages: usize) -> Side {
        Side { ways: vec![Way::default(); (2 * pages).next_power_of_two()] }
    }

    fn home(&self, key: u64) -> usize {
        (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & (self.ways.len() - 1)
    }

    /// Where `lpid` is, or would be.
    fn find(&self, lpid: u64) -> usize {
        let mut at = self.home(lpid + 1);
        while self.ways[at].key != 0 && self.ways[at].key != lpid + 1 {
            at = (at + 1) & (self.ways.len() - 1);
        }
        at
    }

    /// The newest copy of `lpid`.
    pub fn get(&self, lpid: u64) -> Option<Location> {
        let way = self.ways[self.find(lpid)];
        (way.key != 0).then_some(way.to)
    }

    /// Whether the newest copy of `lpid` is that of the batch `lsn`.
    pub fn is_of(&self, lpid: u64, lsn: u64) -> bool {
        let way = self.ways[self.find(lpid)];
        way.key != 0 && way.lsn == lsn
    }

    /// The batch `lsn` writes `lpid` to `to`. Where a later batch does, nothing
    /// changes.
    pub fn set(&mut self, lpid: u64, to: Location, lsn: u64) {
        let at = self.find(lpid);
        if self.ways[at].lsn <= lsn {
            self.ways[at] = Way { key: lpid + 1, to, lsn };
        }
    }

    /// The batch `lsn` is installed. True when no later one writes `lpid`.
    pub fn remove(&mut self, lpid: u64, lsn: u64) -> bool {
        let mut hole = self.find(lpid);
        if self.ways[hole].key == 0 || self.ways[hole].lsn != lsn {
            return false;
        }
        let mask = self.ways.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            if self.ways[at].key == 0 {
                break;
            }
            let home = self.home(self.ways[at].key);
            // It may go to the hole if that is not before its home.
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                self.ways[hole] = self.ways[at];
                hole = at;
            }
        }
        self.ways[hole] = Way::default();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flash::Ppa;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn is_a_map_that_keeps_the_latest(
            steps in prop::collection::vec((0u64..40, 1u64..9, any::<bool>()), 0..200)
        ) {
            let (mut side, mut model) = (Side::new(40), BTreeMap::new());
            for (lpid, lsn, set) in steps {
                if set {
                    let to = Location::at(Ppa(lsn), false);
                    side.set(lpid, to, lsn);
                    let held = model.entry(lpid).or_insert((lsn, to));
                    if held.0 <= lsn {
                        *held = (lsn, to);
                    }
                } else {
                    let goes = model.get(&lpid).is_some_and(|held| held.0 == lsn);
                    prop_assert_eq!(side.remove(lpid, lsn), goes);
                    if goes {
                        model.remove(&lpid);
                    }
                }
                for lpid in 0..40 {
                    prop_assert_eq!(side.get(lpid), model.get(&lpid).map(|held| held.1));
                }
            }
        }
    }
}
