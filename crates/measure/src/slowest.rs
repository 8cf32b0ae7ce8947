//! The slowest requests of a run, with where their time went.
//!
//! Guarantees: of requests that took as long the first are kept; memory is bounded
//! by how many are kept, and taken when it is made. Nothing here fails.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use port::{BlockOp, Story};

/// A request that was slow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slow {
    /// What it asked for.
    pub op: BlockOp,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// Where its time went, from when it was meant to start.
    pub story: Story,
    /// Which of those that completed it is.
    number: u64,
}

impl Slow {
    /// A request with its story.
    pub fn new(op: BlockOp, offset: u64, len: u64, story: Story) -> Slow {
        Slow { op, offset, len, story, number: 0 }
    }

    /// The slower ones are greater, and of those that took as long the first.
    fn rank(&self) -> (u64, Reverse<u64>) {
        (self.story.ns(), Reverse(self.number))
    }
}

impl Ord for Slow {
    fn cmp(&self, other: &Slow) -> std::cmp::Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl PartialOrd for Slow {
    fn partial_cmp(&self, other: &Slow) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// So many of the slowest.
#[derive(Clone, Debug)]
pub struct Slowest {
    most: usize,
    completed: u64,
    /// How long those take at least that are kept.
    from: u64,
    /// The least slow of them is on top.
    heap: BinaryHeap<Reverse<Slow>>,
}

impl Slowest {
    /// Keeps `most` of them, at least one.
    pub fn new(most: usize) -> Slowest {
        let most = most.max(1);
        Slowest { most, completed: 0, from: 0, heap: BinaryHeap::with_capacity(most + 1) }
    }

    /// A request has completed, and so many had before it.
    #[inline]
    pub fn completed(&mut self) -> u64 {
        self.completed += 1;
        self.completed - 1
    }

    /// The same of a request that so many of others completed before, of which nothing
    /// was said.
    #[inline]
    pub fn completed_after(&mut self, others: u64) -> u64 {
        self.completed += others;
        self.completed()
    }

    /// So many requests have completed of which nothing is kept.
    #[inline]
    pub fn pass_over(&mut self, requests: u64) {
        self.completed += requests;
    }

    /// How long those take at least that are kept.
    #[inline]
    pub fn from(&self) -> u64 {
        self.from
    }

    /// The request that completed last took so long.
    #[inline]
    pub fn note(&mut self, ns: u64, slow: impl FnOnce() -> Slow) {
        self.note_of(ns, self.completed, slow);
    }

    /// The same of one that so many completed before.
    #[inline]
    pub fn note_of(&mut self, ns: u64, number: u64, slow: impl FnOnce() -> Slow) {
        if ns < self.from {
            return;
        }
        if self.heap.len() == self.most {
            self.heap.pop();
        }
        self.heap.push(Reverse(Slow { number, ..slow() }));
        // Of those that take as long the first are kept.
        if let Some(Reverse(least)) = self.heap.peek().filter(|_| self.heap.len() == self.most) {
            self.from = least.story.ns() + 1;
        }
    }

    /// Keeps none any more.
    pub fn clear(&mut self) {
        self.heap.clear();
        self.from = 0;
    }

    /// Those of another, too, all of which came later.
    pub fn join(&mut self, later: &Slowest) {
        for slow in later.all() {
            self.note_of(slow.story.ns(), slow.number, || slow);
        }
        self.completed = self.completed.max(later.completed);
    }

    /// Those that are kept, the slowest first.
    pub fn all(&self) -> Vec<Slow> {
        let mut all: Vec<Slow> = self.heap.iter().map(|Reverse(slow)| slow.clone()).collect();
        all.sort_by(|a, b| b.cmp(a));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use port::{Part, Time, random};

    #[test]
    fn the_slowest_are_kept_and_of_equals_the_first() {
        let mut random = random::Random::new(1, 1);
        for round in 0..200 {
            let mut slowest = Slowest::new(1 + round % 12);
            let mut all = Vec::new();
            for offset in 0..random.bits() % 100 {
                let ns = random.bits() % 40;
                let mut story = Story::at(Time(7));
                story.add(Part::Array, ns);
                slowest.completed();
                slowest.note(ns, || Slow::new(BlockOp::Read, offset, 4096, story));
                all.push((ns, offset));
            }
            all.sort_by_key(|&(ns, offset)| (Reverse(ns), offset));
            all.truncate(1 + round % 12);
            let kept = slowest.all().into_iter().map(|slow| (slow.story.ns(), slow.offset));
            assert_eq!(kept.collect::<Vec<_>>(), all);
        }
    }
}
