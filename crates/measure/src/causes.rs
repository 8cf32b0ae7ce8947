//! Where the time of a run's requests went, of the slow ones apart.
//!
//! Requests are kept by kind and in bands of latency, those of the histograms that
//! percentiles come from; of each band the stories of its requests are summed.
//!
//! Guarantees: sums are exact, however long it took, so that the parts of any share of the requests sum to
//! their time; memory is taken when it is made, some megabytes, and recording takes
//! none, but where all requests of a bucket took 584 years together. Nothing here fails.

use std::mem;

use crate::histogram::{BUCKETS, MAX_NS, bucket_of};
use port::story::ShortSum;
use port::{BlockOp, Story, StorySum};

/// Requests that took about as long.
#[derive(Clone, Debug, Default)]
struct Band {
    requests: u64,
    /// What the first of them took, or less.
    least: u64,
    /// Of all of them but those in `sum`.
    late: ShortSum,
    /// Of those that took more than a number has, or were summed elsewhere.
    sum: Option<Box<StorySum>>,
}

impl Band {
    /// One more.
    #[inline]
    fn note(&mut self, story: &Story) {
        if !self.late.note(story) {
            self.settle();
            // One alone is never too long.
            let _ = self.late.note(story);
        }
    }

    /// Those of late go with all others.
    #[cold]
    fn settle(&mut self) {
        let late = mem::take(&mut self.late);
        self.sum.get_or_insert_default().join_short(&late);
    }

    /// Of all of them.
    fn sum(&self) -> StorySum {
        let mut sum = self.sum.as_deref().copied().unwrap_or_default();
        sum.join_short(&self.late);
        sum
    }
}

/// Some requests, and where their time went.
#[derive(Clone, Copy, Debug, Default)]
pub struct Group {
    /// How many.
    pub requests: u64,
    /// How long each took at least, in ns.
    pub from: u64,
    /// Their stories as one.
    pub sum: StorySum,
}

/// Requests of one kind.
#[derive(Clone, Debug)]
pub struct Kind {
    bands: Box<[Band]>,
}

impl Kind {
    fn new() -> Kind {
        Kind { bands: vec![Band::default(); BUCKETS].into() }
    }

    /// Of requests that are in bands already, those of the fastest first.
    pub fn of_bands(bands: impl IntoIterator<Item = Group>) -> Kind {
        let band = |Group { requests, from, sum }| Band {
            requests,
            least: from,
            sum: Some(Box::new(sum)),
            ..Band::default()
        };
        Kind { bands: bands.into_iter().map(band).collect() }
    }

    #[inline]
    fn note(&mut self, story: &Story) {
        let ns = story.ns();
        let band = &mut self.bands[bucket_of(ns.min(MAX_NS))];
        band.least = if band.requests == 0 { ns } else { band.least.min(ns) };
        band.requests += 1;
        band.note(story);
    }

    /// These, too.
    fn join(&mut self, other: &Kind) {
        for (all, more) in self.bands.iter_mut().zip(&other.bands) {
            if more.requests == 0 {
                continue;
            }
            let least = if all.requests == 0 { u64::MAX } else { all.least };
            all.least = least.min(more.least);
            all.requests += more.requests;
            all.sum.get_or_insert_default().join(&more.sum());
        }
    }

    /// How many there were.
    pub fn requests(&self) -> u64 {
        self.bands.iter().map(|band| band.requests).sum()
    }

    /// The slowest of them: a `share` of all, above 0 and at most 1, and of the last
    /// band that these are in all. `None` where there were none.
    pub fn slowest(&self, share: f64) -> Option<Group> {
        let all = self.requests();
        let wanted = ((all as f64 * share).ceil() as u64).clamp(1, all.max(1));
        let mut group = Group::default();
        for band in self.bands.iter().rev().filter(|band| band.requests > 0) {
            group.requests += band.requests;
            group.from = band.least;
            group.sum.join(&band.sum());
            if group.requests >= wanted {
                return Some(group);
            }
        }
        None
    }
}

/// Requests of all kinds.
#[derive(Clone, Debug)]
pub struct Causes {
    reads: Kind,
    writes: Kind,
    others: Kind,
}

impl Default for Causes {
    fn default() -> Causes {
        Causes::new()
    }
}

impl Causes {
    /// Of no request yet.
    pub fn new() -> Causes {
        Causes { reads: Kind::new(), writes: Kind::new(), others: Kind::new() }
    }

    /// Of kinds that are known already.
    pub fn of_kinds(reads: Kind, writes: Kind, others: Kind) -> Causes {
        Causes { reads, writes, others }
    }

    /// A request has this story.
    #[inline]
    pub fn note(&mut self, op: BlockOp, story: &Story) {
        match op {
            BlockOp::Read => self.reads.note(story),
            BlockOp::Write => self.writes.note(story),
            _ => self.others.note(story),
        }
    }

    /// Those of another, too, which were noted in the same bands.
    pub fn join(&mut self, other: &Causes) {
        self.reads.join(&other.reads);
        self.writes.join(&other.writes);
        self.others.join(&other.others);
    }

    /// The kinds, by name.
    pub fn kinds(&self) -> [(&'static str, &Kind); 3] {
        [("reads", &self.reads), ("writes", &self.writes), ("others", &self.others)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use port::{Part, Time, random};

    /// Against a sorted list.
    #[test]
    fn the_slowest_are_those_of_a_sorted_list_and_all_of_their_band() {
        let mut random = random::Random::new(1, 1);
        for round in 1..60 {
            let mut causes = Causes::new();
            let mut all = Vec::new();
            for _ in 0..random.bits() % 300 {
                let (array, link) = (random.bits() % 5_000, random.bits() % 300);
                let mut story = Story::at(Time(round));
                story.add(Part::Array, array);
                story.add(Part::Link, link);
                causes.note(BlockOp::Write, &story);
                all.push((array + link, array));
            }
            all.sort_by(|a, b| b.cmp(a));
            let [reads, writes, others] = causes.kinds().map(|(_, kind)| kind);
            assert_eq!((reads.requests(), others.requests()), (0, 0));
            assert!(reads.slowest(0.5).is_none());
            for share in [1.0, 0.5, 0.1, 0.01] {
                let Some(group) = writes.slowest(share) else {
                    assert!(all.is_empty());
                    continue;
                };
                let wanted = (all.len() as f64 * share).ceil() as usize;
                let (last, band) = (all[wanted - 1].0, bucket_of(all[wanted - 1].0));
                let slow: Vec<_> = all.iter().filter(|one| bucket_of(one.0) >= band).collect();
                assert!(group.from <= last);
                assert_eq!(group.requests, slow.len() as u64);
                let sum = |of: fn(&(u64, u64)) -> u64| slow.iter().map(|one| of(one)).sum::<u64>();
                assert_eq!(group.sum.ns(), u128::from(sum(|one| one.0)));
                assert_eq!(group.sum.ns_of(Part::Array), u128::from(sum(|one| one.1)));
            }
        }
    }

    /// Requests that were noted apart are, joined, as if they had been noted together.
    #[test]
    fn what_is_joined_is_as_if_it_were_one() {
        let (mut apart, mut whole) = ([Causes::new(), Causes::new()], Causes::new());
        let mut random = random::Random::new(3, 1);
        for n in 0..400 {
            let mut story = Story::at(Time(n));
            story.add(Part::Array, random.bits() % 5_000);
            let op = if random.bits().is_multiple_of(3) { BlockOp::Write } else { BlockOp::Read };
            apart[(random.bits() % 2) as usize].note(op, &story);
            whole.note(op, &story);
        }
        let [mut first, second] = apart;
        first.join(&second);
        for ((_, joined), (_, whole)) in first.kinds().into_iter().zip(whole.kinds()) {
            for share in [1.0, 0.3, 0.01] {
                let of = |kind: &Kind| {
                    kind.slowest(share).map(|group| (group.requests, group.from, group.sum))
                };
                assert_eq!(of(joined), of(whole));
            }
        }
    }

    /// What waited for long, and by the thousand: more than 2^64 ns in all.
    #[test]
    fn sums_of_a_long_queue_are_exact() {
        let mut causes = Causes::new();
        let (queued, array) = (300_004_000_000_000, 77_777);
        let mut story = Story::at(Time(5));
        story.add(Part::Queue, queued);
        story.add(Part::Array, array);
        (0..300_000).for_each(|_| causes.note(BlockOp::Read, &story));
        let all = causes.kinds()[0].1.slowest(1.0).unwrap();
        assert_eq!((all.requests, all.from), (300_000, queued + array));
        assert_eq!(all.sum.ns(), u128::from(queued + array) * 300_000);
        assert_eq!(all.sum.ns_of(Part::Queue), u128::from(queued) * 300_000);
    }
}
