//! Which segment has the fewest live pages, found without a look at each.
//!
//! Of each group of segments a bound is kept that no candidate has fewer live
//! pages than. A search looks only into groups whose bound is below the best so
//! far, and makes their bounds exact. What takes a live page from a segment, or
//! makes it a candidate, lowers the bound.

/// Segments of a group.
const GROUP: usize = 64;

/// The bounds of all groups.
pub(super) struct Fewest {
    least: Vec<u16>,
}

impl Fewest {
    /// Of so many segments, of which nothing is known.
    pub(super) fn new(segments: usize) -> Fewest {
        Fewest { least: vec![0; segments.div_ceil(GROUP)] }
    }

    /// A candidate has so many live pages now.
    #[inline]
    pub(super) fn lower(&mut self, segment: usize, live: u16) {
        let least = &mut self.least[segment / GROUP];
        *least = live.min(*least);
    }

    /// The candidate with the fewest live pages; of equals the first. `live`
    /// gives how many one of `count` segments has, `None` where it is none.
    pub(super) fn find(
        &mut self,
        count: usize,
        live: impl Fn(usize) -> Option<u16>,
    ) -> Option<usize> {
        let mut best = (u16::MAX, None);
        for (group, least) in self.least.iter_mut().enumerate().filter(|one| *one.1 < u16::MAX) {
            if *least >= best.0 {
                continue;
            }
            *least = u16::MAX;
            for segment in group * GROUP..count.min((group + 1) * GROUP) {
                let Some(live) = live(segment) else { continue };
                *least = live.min(*least);
                if live < best.0 {
                    best = (live, Some(segment));
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

    proptest! {
        #[test]
        fn finds_what_a_scan_finds(
            start in prop::collection::vec((0u16..50, any::<bool>()), 200),
            steps in prop::collection::vec((0usize..200, 0u16..60, any::<bool>()), 0..300),
        ) {
            let (mut segments, mut fewest) = (start, Fewest::new(200));
            for (segment, live, is_candidate) in steps {
                segments[segment] = (live, is_candidate);
                fewest.lower(segment, live);
                let all = segments.iter().enumerate().filter(|(_, segment)| segment.1);
                let scan = all.min_by_key(|(_, segment)| segment.0).map(|(at, _)| at);
                let live = |at: usize| segments[at].1.then_some(segments[at].0);
                prop_assert_eq!(fewest.find(200, live), scan);
            }
        }
    }

    /// When it was found once, only what changed is looked at again: of the
    /// segments of 256 GiB few.
    #[test]
    fn looks_at_few() {
        let count = 1 << 18;
        let mut fewest = Fewest::new(count);
        let mut segments: Vec<u16> = (0..count as u32).map(|n| (n * 7919 % 256) as u16).collect();
        let looked = std::cell::Cell::new(0);
        fewest.find(count, |at| Some(segments[at]));
        for n in 0..1000usize {
            let at = n * 104_729 % count;
            segments[at] = segments[at].saturating_sub(1);
            fewest.lower(at, segments[at]);
            let live = |at: usize| {
                looked.set(looked.get() + 1);
                Some(segments[at])
            };
            let found = fewest.find(count, live).unwrap();
            segments[found] = 255;
        }
        // Groups that come before one with the best, and the one that changed.
        assert!(looked.get() <= 1000 * 8 * GROUP, "{}", looked.get());
    }
}
