//! What a drive that is served tells of its requests, to be explained while it goes on:
//! where their time went, by how long they took, and the slowest of the last seconds.
//!
//! Guarantees: parts sum to the times exactly; memory is taken when it is made, about a
//! third of a megabyte, and counting takes none as long as no more than `INSIDE` requests
//! are inside or wait; then it is bounded by how many are. Nothing here fails.

use std::collections::HashMap;

use measure::slowest::{Slow, Slowest};
use port::{BlockDone, BlockReq, Ring, Story, StorySum, Time};

use crate::live::{OPS, RANGES, range_of};

/// Seconds of which the slowest are kept: this one and those before it. Two more than may
/// be asked for: a page may be old when it is read.
pub const SECONDS: u64 = 13;
/// Requests that are kept of each second.
pub const KEPT: usize = 16;
/// Requests that are inside a drive at most; where there were more, their tables grow.
const INSIDE: usize = 1024;

/// Requests that took about as long.
#[derive(Clone, Copy, Debug, Default)]
pub struct Band {
    /// How many.
    pub requests: u64,
    /// Where their time went.
    pub sum: StorySum,
}

/// The slowest of a second.
struct Second {
    number: u64,
    slowest: Slowest,
}

/// What requests told.
pub struct Told {
    /// By operation, as [`OPS`] has them, and range of latencies.
    works: Vec<Vec<Band>>,
    /// What is inside: offset and length of each, by number.
    inside: HashMap<u64, (u64, u64)>,
    /// Of the requests that the drive refused last: how many there are, and number,
    /// offset and length of the last. They are noted.
    refused: Option<(usize, [u64; 3])>,
    /// By the number of the second, round and round.
    seconds: Vec<Second>,
    completed: u64,
}

/// What there is to explain, at one moment.
#[derive(Clone, Debug, Default)]
pub struct Explained {
    /// When, in ns since it was lent.
    pub at: u64,
    /// By operation, as [`OPS`] has them, and range of latencies.
    pub works: Vec<Vec<Band>>,
    /// The slowest of each of the last [`SECONDS`] at least, and when each ended.
    pub slowest: Vec<(Slow, u64)>,
}

impl Default for Told {
    fn default() -> Told {
        Told::new()
    }
}

impl Told {
    /// Of no request yet.
    pub fn new() -> Told {
        let second = |number| Second { number, slowest: Slowest::new(KEPT) };
        Told {
            works: vec![vec![Band::default(); RANGES + 1]; OPS.len()],
            inside: HashMap::with_capacity(2 * INSIDE),
            refused: None,
            seconds: (0..SECONDS).map(second).collect(),
            completed: 0,
        }
    }

    /// These ask, and some of them will be taken. Those that were refused before, in the
    /// same order, are not looked at again.
    pub fn come(&mut self, requests: &Ring<BlockReq>) {
        let is_known = |&(count, last): &(usize, [u64; 3])| of(requests, count) == Some(last);
        let known = self.refused.filter(is_known).map_or(0, |(count, _)| count);
        for i in known..requests.len() {
            let Some(one) = requests.get(i) else { return };
            self.inside.insert(one.id, (one.offset, one.len));
        }
    }

    /// These were refused of those that [came](Told::come).
    pub fn stay(&mut self, requests: &Ring<BlockReq>) {
        self.refused = of(requests, requests.len()).map(|last| (requests.len(), last));
    }

    /// One ended, at that time since it was lent; what it tells, where it did what it
    /// was asked.
    pub fn note(&mut self, done: &BlockDone, at: Time, story: Option<&Story>) {
        let (offset, len) = self.inside.remove(&done.id).unwrap_or_default();
        let number = self.completed;
        self.completed += 1;
        let Some(story) = story else { return };
        let band = &mut self.works[done.op as usize][range_of(story.ns())];
        band.requests += 1;
        band.sum.note(story);
        let second = at.0 / 1_000_000_000;
        let place = &mut self.seconds[(second % SECONDS) as usize];
        if place.number != second {
            place.number = second;
            place.slowest.clear();
        }
        place.slowest.note_of(story.ns(), number, || Slow::new(done.op, offset, len, *story));
    }

    /// Where the time of an operation's requests went.
    pub fn sum(&self, op: usize) -> StorySum {
        let mut sum = StorySum::default();
        let some = self.works[op].iter().filter(|band| band.requests > 0);
        some.for_each(|band| sum.join(&band.sum));
        sum
    }

    /// What there is to explain at `now` of a drive whose time was `base` when it was
    /// lent.
    pub fn explained(&self, now: Time, base: Time) -> Explained {
        let second = now.0 / 1_000_000_000;
        let is_recent = |of: &&Second| of.number + SECONDS > second;
        let recent = self.seconds.iter().filter(is_recent).flat_map(|of| of.slowest.all());
        let slowest = recent.map(|slow| {
            let end = slow.story.end().since(base);
            (slow, end)
        });
        Explained { at: now.0, works: self.works.clone(), slowest: slowest.collect() }
    }
}

/// The last of so many of these: its number, offset and length.
fn of(requests: &Ring<BlockReq>, count: usize) -> Option<[u64; 3]> {
    requests.get(count.checked_sub(1)?).map(|one| [one.id, one.offset, one.len])
}

#[cfg(test)]
mod tests {
    use super::*;
    use port::{BlockOp, Buffer, Part, Status};

    fn request(id: u64, offset: u64) -> BlockReq {
        BlockReq::new(id, BlockOp::Read, offset, 4096, Buffer::empty())
    }

    /// A drive that is full is asked again and again: what waits is noted once.
    #[test]
    fn what_waits_is_looked_at_once() {
        let (mut told, mut requests) = (Told::new(), Ring::new(8));
        let noted = |told: &mut Told, requests: &Ring<BlockReq>| {
            told.inside.clear();
            told.come(requests);
            let mut ids: Vec<u64> = told.inside.keys().copied().collect();
            ids.sort_unstable();
            ids
        };
        (0..4).for_each(|id| requests.put(|| request(id, 4096 * id)));
        assert_eq!(noted(&mut told, &requests), [0, 1, 2, 3]);
        requests.pop();
        told.stay(&requests);
        assert_eq!(noted(&mut told, &requests), [0; 0], "1, 2 and 3 are known");
        requests.put(|| request(0, 0));
        assert_eq!(noted(&mut told, &requests), [0]);
        told.stay(&requests);
        (0..4).for_each(|_| _ = requests.pop());
        told.stay(&requests);
        requests.put(|| request(0, 8192));
        assert_eq!(noted(&mut told, &requests), [0], "none was left");
        // Others than those that stayed, and as many.
        told.stay(&requests);
        requests.pop();
        requests.put(|| request(0, 4096));
        assert_eq!(noted(&mut told, &requests), [0]);
    }

    fn done(id: u64, op: BlockOp, at: Time) -> BlockDone {
        BlockDone { id, op, status: Status::SUCCESS, at, buffer: Buffer::empty() }
    }

    /// What ended in the last seconds is there, the slowest of each; what ended before is
    /// not; sums have all.
    #[test]
    fn the_slowest_of_the_last_seconds_are_kept() {
        let (mut told, base) = (Told::new(), Time(500));
        let mut requests = Ring::new(1);
        for n in 0..40u64 {
            // Two a second for twenty seconds, and one of them slow.
            let at = Time(n * 500_000_000 + 7);
            let op = BlockOp::Read;
            requests.put(|| request(n % 3, 4096 * n));
            told.come(&requests);
            requests.pop();
            let mut story = Story::at(Time(base.0 + at.0 - 100 * (1 + n)));
            story.add(Part::Array, 100 * (1 + n));
            told.note(&done(n % 3, op, at), at, Some(&story));
        }
        told.note(&done(9, BlockOp::Write, Time(20_000_000_000)), Time(20_000_000_000), None);
        let all = told.explained(Time(19_999_999_999), base);
        let ns: u128 = (0..40).map(|n| 100 * (1 + n)).sum();
        assert_eq!((told.sum(0).ns(), told.sum(0).ns_of(Part::Array)), (ns, ns));
        assert_eq!(all.works[0].iter().map(|band| band.requests).sum::<u64>(), 40);
        assert_eq!(told.sum(1).ns(), 0, "one that failed tells nothing");
        let mut numbers: Vec<u64> =
            all.slowest.iter().map(|(slow, _)| slow.offset / 4096).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (2 * (20 - SECONDS)..40).collect::<Vec<_>>());
        for (slow, end) in &all.slowest {
            assert_eq!((slow.len, *end), (4096, slow.offset / 4096 * 500_000_000 + 7));
        }
        // Later nothing is recent.
        assert!(told.explained(Time(60_000_000_000), base).slowest.is_empty());
    }
}
