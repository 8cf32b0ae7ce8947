//! Which chunk has the least valid blocks, found without a look at each.
//!
//! Of each group of chunks a bound is kept that no candidate's number of valid
//! blocks is below. A search looks into the group with the least bound, makes that
//! exact, and is over when it was. What may lower a number, or make a chunk a
//! candidate, lowers the bound.

use std::ops::Range;

use flash::Geometry;
use port::OutOfMemory;
use port::lazy::table;

/// Chunks of a group, as a power of two, at most.
const GROUP_BITS: u32 = 6;

/// The bounds of all groups. A group's chunks are of one unit.
pub struct Least {
    bounds: Box<[u32]>,
    /// Chunks of a group, as a power of two.
    bits: u32,
}

impl Least {
    /// Of a drive's chunks, of which nothing is known.
    pub fn new(geometry: &Geometry) -> Result<Least, OutOfMemory> {
        let bits = GROUP_BITS.min(geometry.chunk_bits());
        let groups = geometry.chunk_slots() >> bits;
        Ok(Least { bounds: table(0, groups, "the target's chunks")?, bits })
    }

    /// A chunk has so many valid blocks now, and may be a candidate.
    #[inline]
    pub fn lower(&mut self, chunk: usize, valid: u32) {
        let bound = &mut self.bounds[chunk >> self.bits];
        *bound = valid.min(*bound);
    }

    /// A chunk may be a candidate from now on.
    #[inline]
    pub fn suspect(&mut self, chunk: usize) {
        self.lower(chunk, 0);
    }

    /// The candidate of `chunks` with the least valid blocks; of equals the
    /// first. `valid` gives their number, or `None` where a chunk is no candidate.
    /// `chunks` are all of some units.
    pub fn find(
        &mut self,
        chunks: Range<usize>,
        valid: impl Fn(usize) -> Option<u32>,
    ) -> Option<usize> {
        let size = 1 << self.bits;
        debug_assert!((chunks.start | chunks.end).is_multiple_of(size), "whole groups");
        let groups = chunks.start / size..chunks.end / size;
        loop {
            let bounds = &mut self.bounds[groups.clone()];
            let least = bounds.iter().copied().min()?;
            let group = bounds.iter().position(|&bound| bound == least)?;
            let first = (groups.start + group) * size;
            let mut best = (u32::MAX, None);
            for chunk in first..first + size {
                if let Some(valid) = valid(chunk)
                    && valid < best.0
                {
                    best = (valid, Some(chunk));
                }
            }
            // A number may have gone up, or its chunk away.
            if std::mem::replace(&mut bounds[group], best.0) == best.0 {
                return best.1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flash::Dimensions;
    use proptest::prelude::*;

    /// Four units of so many chunks.
    fn least(chunks: u32) -> Least {
        let dim = Dimensions { groups: 2, pus: 2, chunks, ..Dimensions::LEAST };
        Least::new(&Geometry::new(dim).unwrap()).unwrap()
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// A chunk has one valid block less, or so many in all.
        Fewer(usize),
        More(usize, u32),
        /// It is a candidate, or is none.
        Candidate(usize, bool),
        /// Of these of the units.
        Find(usize, usize),
    }

    fn step(chunks: usize) -> impl Strategy<Value = Step> {
        let chunk = move || 0usize..chunks;
        prop_oneof![
            4 => chunk().prop_map(Step::Fewer),
            1 => (chunk(), 0u32..50).prop_map(|(chunk, more)| Step::More(chunk, more)),
            2 => (chunk(), any::<bool>()).prop_map(|(chunk, is)| Step::Candidate(chunk, is)),
            1 => Just(Step::Find(0, 4)),
            2 => (0usize..=4, 0usize..=4).prop_map(|(a, b)| Step::Find(a.min(b), a.max(b))),
        ]
    }

    /// Chunks of a unit; of each chunk valid blocks, and whether it is a candidate;
    /// and what happens.
    fn life() -> impl Strategy<Value = (usize, Vec<(u32, bool)>, Vec<Step>)> {
        prop_oneof![Just(128usize), Just(8)].prop_flat_map(|unit| {
            let chunks = prop::collection::vec((0u32..50, any::<bool>()), 4 * unit);
            (Just(unit), chunks, prop::collection::vec(step(4 * unit), 0..400))
        })
    }

    proptest! {
        #[test]
        fn finds_what_a_scan_finds((unit, mut chunks, steps) in life()) {
            let mut least = least(unit as u32);
            for step in steps {
                match step {
                    Step::Fewer(chunk) => {
                        let valid = &mut chunks[chunk].0;
                        *valid = valid.saturating_sub(1);
                        least.lower(chunk, *valid);
                    }
                    Step::More(chunk, more) => chunks[chunk].0 += more,
                    Step::Candidate(chunk, is) => {
                        chunks[chunk].1 = is;
                        least.suspect(chunk);
                    }
                    Step::Find(from, to) => {
                        let (from, to) = (from * unit, to * unit);
                        let all = chunks.iter().enumerate().take(to).skip(from);
                        let all = all.filter(|(_, chunk)| chunk.1);
                        let scan = all.min_by_key(|(_, chunk)| chunk.0).map(|(at, _)| at);
                        let valid = |at: usize| chunks[at].1.then_some(chunks[at].0);
                        prop_assert_eq!(least.find(from..to, valid), scan);
                        prop_assert_eq!(least.find(from..to, valid), scan);
                    }
                }
            }
        }
    }

    /// When it was found once, only what changed is looked at again.
    #[test]
    fn looks_at_few() {
        let (group, all) = (1 << GROUP_BITS, 4096);
        let mut least = least(1024);
        let counts: Vec<u32> = (0..all as u32).map(|chunk| 100 + chunk * 7919 % 900).collect();
        let looked = std::cell::Cell::new(0);
        let valid = |chunk: usize| {
            looked.set(looked.get() + 1);
            Some(counts[chunk])
        };
        let first = least.find(0..all, valid);
        looked.set(0);
        least.suspect(70);
        assert_eq!(least.find(0..all, valid), first);
        // The group of 70, and that of the least.
        assert!(looked.get() <= 2 * group, "{}", looked.get());
    }
}
