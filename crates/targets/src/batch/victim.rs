//! Which chunk to collect: that with the least valid blocks, found without a
//! look at each.
//!
//! Of each group of chunks a bound is kept that no candidate's number of valid
//! blocks is below. A search looks only into groups whose bound is less than the
//! best found so far, and makes their bounds exact. What may lower a number, or
//! make a chunk a candidate, lowers the bound.

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

    /// The candidate with the least valid blocks; of equals the first. `valid`
    /// gives their number, or `None` where a chunk is no candidate.
    pub fn find(&mut self, valid: impl Fn(usize) -> Option<u32>) -> Option<usize> {
        let mut best = (u32::MAX, None);
        for (group, bound) in self.least.iter_mut().enumerate() {
            if *bound >= best.0 {
                continue;
            }
            *bound = u32::MAX;
            for chunk in group * GROUP..self.chunks.min((group + 1) * GROUP) {
                let Some(valid) = valid(chunk) else { continue };
                *bound = valid.min(*bound);
                if valid < best.0 {
                    best = (valid, Some(chunk));
                }
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
        Find,
    }

    fn step() -> impl Strategy<Value = Step> {
        let chunk = || 0usize..300;
        prop_oneof![
            4 => chunk().prop_map(Step::Fewer),
            1 => (chunk(), 0u32..50).prop_map(|(chunk, more)| Step::More(chunk, more)),
            2 => (chunk(), any::<bool>()).prop_map(|(chunk, is)| Step::Candidate(chunk, is)),
            2 => Just(Step::Find),
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
                    Step::Find => {
                        let all = chunks.iter().enumerate().filter(|(_, chunk)| chunk.1);
                        let scan = all.min_by_key(|(_, chunk)| chunk.0).map(|(at, _)| at);
                        let valid = |at: usize| chunks[at].1.then_some(chunks[at].0);
                        prop_assert_eq!(groups.find(valid), scan);
                        prop_assert_eq!(groups.find(valid), scan);
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
        let first = groups.find(valid);
        looked.set(0);
        groups.suspect(70);
        assert_eq!(groups.find(valid), first);
        // The group of 70, and those that have a least one as they come by.
        assert!(looked.get() <= 6 * GROUP, "{}", looked.get());
    }
}
