//! Which chunk to collect: that with the least valid blocks, found without a
//! look at each.
//!
//! Of each group of chunks a bound is kept that no candidate's number of valid
//! blocks is below. A search looks only into groups whose bound is less than the
//! best found so far, and makes their bounds exact. What may lower a number, or
//! make a chunk a candidate, lowers the bound.

use std::ops::Range;

/// Chunks of a group.
const GROUP: usize = 64;

/// The bounds of all groups.
pub(super) struct Groups {
    least: Vec<u32>,
    chunks: usize,
}

impl Groups {
    /// Of so many chunks, of which nothing is known.
    pub fn new(chunks: usize) -> Groups {
        Groups { least: vec![0; chunks.div_ceil(GROUP)], chunks }
    }

    /// A chunk has so many valid blocks now.
    #[inline]
    pub fn lower(&mut self, chunk: usize, valid: u32) {
        let least = &mut self.least[chunk / GROUP];
        *least = valid.min(*least);
    }

    /// A chunk may be a candidate from now on.
    #[inline]
    pub fn suspect(&mut self, chunk: usize) {
        self.lower(chunk, 0);
    }

    /// The candidate of `chunks` with the least valid blocks; of equals the
    /// first. `valid` gives their number, or `None` where a chunk is no candidate.
    pub fn find(
        &mut self,
        chunks: Range<usize>,
        valid: impl Fn(usize) -> Option<u32>,
    ) -> Option<usize> {
        let mut best = (u32::MAX, None);
        for group in chunks.start / GROUP..chunks.end.div_ceil(GROUP) {
            if self.least[group] >= best.0 {
                continue;
            }
            let all = group * GROUP..self.chunks.min((group + 1) * GROUP);
            let looked_at = all.start.max(chunks.start)..all.end.min(chunks.end);
            let mut bound = u32::MAX;
            for chunk in looked_at.clone() {
                let Some(valid) = valid(chunk) else { continue };
                bound = valid.min(bound);
                if valid < best.0 {
                    best = (valid, Some(chunk));
                }
            }
            if looked_at == all {
                self.least[group] = bound;
            }
        }
        best.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        /// A chunk has one valid block less, or so many in all.
        Fewer(usize),
        More(usize, u32),
        /// It is a candidate, or is none.
        Candidate(usize, bool),
        Find(usize, usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let chunk = || 0usize..300;
        prop_oneof![
            4 => chunk().prop_map(Step::Fewer),
            1 => (chunk(), 0u32..50).prop_map(|(chunk, more)| Step::More(chunk, more)),
            2 => (chunk(), any::<bool>()).prop_map(|(chunk, is)| Step::Candidate(chunk, is)),
            1 => Just(Step::Find(0, 300)),
            2 => (0usize..=300, 0usize..=300).prop_map(|(a, b)| Step::Find(a.min(b), a.max(b))),
        ]
    }

    proptest! {
        #[test]
        fn finds_what_a_scan_finds(
            start in prop::collection::vec((0u32..50, any::<bool>()), 300),
            steps in prop::collection::vec(step(), 0..400),
        ) {
            let (mut chunks, mut groups) = (start, Groups::new(300));
            for step in steps {
                match step {
                    Step::Fewer(chunk) => {
                        let valid = &mut chunks[chunk].0;
                        *valid = valid.saturating_sub(1);
                        groups.lower(chunk, *valid);
                    }
                    Step::More(chunk, more) => chunks[chunk].0 += more,
                    Step::Candidate(chunk, is) => {
                        chunks[chunk].1 = is;
                        groups.suspect(chunk);
                    }
                    Step::Find(from, to) => {
                        let all = chunks.iter().enumerate().take(to).skip(from);
                        let all = all.filter(|(_, chunk)| chunk.1);
                        let scan = all.min_by_key(|(_, chunk)| chunk.0).map(|(at, _)| at);
                        let valid = |at: usize| chunks[at].1.then_some(chunks[at].0);
                        prop_assert_eq!(groups.find(from..to, valid), scan);
                        prop_assert_eq!(groups.find(from..to, valid), scan);
                    }
                }
            }
        }
    }

    /// When it was found once, only what changed is looked at again.
    #[test]
    fn looks_at_few() {
        let mut groups = Groups::new(64 * GROUP);
        let counts: Vec<u32> =
            (0..64 * GROUP as u32).map(|chunk| 100 + chunk * 7919 % 900).collect();
        let looked = std::cell::Cell::new(0);
        let valid = |chunk: usize| {
            looked.set(looked.get() + 1);
            Some(counts[chunk])
        };
        let first = groups.find(0..64 * GROUP, valid);
        looked.set(0);
        groups.suspect(70);
        assert_eq!(groups.find(0..64 * GROUP, valid), first);
        // The group of 70, and those that have a least one as they come by.
        assert!(looked.get() <= 6 * GROUP, "{}", looked.get());
    }
}
