//! The drive's future: at most one event for each parallel unit.
//!
//! A tournament tree over them. Setting an event costs one walk to the root
//! without a branch that depends on the times; looking at the next costs
//! nothing. Events of the same time come in the order of their numbers, so
//! runs repeat exactly.

use port::Time;

const NEVER: u64 = u64::MAX;

/// One pending event for each of a fixed number of sources.
pub(crate) struct Timeline {
    /// Heap order: node 1 is the root, node `leaves + i` is source `i`. A key
    /// is the time since `base`, then the source.
    nodes: Vec<u64>,
    leaves: usize,
    bits: u32,
    /// Moves forward now and then, so that keys never run out of bits.
    base: u64,
}

impl Timeline {
    /// Bytes of memory for each source, of a power of two of them.
    pub const BYTES: usize = 2 * size_of::<u64>();

    pub fn new(sources: usize) -> Timeline {
        let leaves = sources.next_power_of_two().max(2);
        let bits = leaves.trailing_zeros();
        assert!(bits <= 24, "keys leave at least 40 bits of time");
        Timeline { nodes: vec![NEVER; 2 * leaves], leaves, bits, base: 0 }
    }

    /// The next event's time.
    #[inline]
    pub fn next(&self) -> Option<Time> {
        let root = self.nodes[1];
        if root == NEVER { None } else { Some(Time(self.base + (root >> self.bits))) }
    }

    /// The next event, if it is due at `to`: its source and its time.
    #[inline]
    pub fn due(&self, to: Time) -> Option<(usize, Time)> {
        let root = self.nodes[1];
        let at = self.base.wrapping_add(root >> self.bits);
        if root == NEVER || at > to.0 {
            return None;
        }
        Some((root as usize & (self.leaves - 1), Time(at)))
    }

    /// Sets the event of `source`, in place of the one it may have.
    #[inline]
    pub fn set(&mut self, source: usize, at: Time) {
        let mut since = at.0 - self.base;
        if since >> (62 - self.bits) != 0 {
            self.rebase(at.0);
            since = at.0 - self.base;
        }
        self.put(source, (since << self.bits) | source as u64);
    }

    /// Takes the event of `source` away.
    #[inline]
    pub fn clear(&mut self, source: usize) {
        self.put(source, NEVER);
    }

    #[inline]
    fn put(&mut self, source: usize, key: u64) {
        assert!(source < self.leaves, "a source has a leaf");
        let mut at = self.leaves + source;
        let mut key = key;
        // SAFETY: there are `2 * leaves` nodes and `at` is below that: at
        // first because `source` is below `leaves`, then because it shrinks;
        // so is its neighbour, because the count is even. Checked indexing
        // costs a third of a simulated read.
        unsafe {
            *self.nodes.get_unchecked_mut(at) = key;
            while at > 1 {
                key = key.min(*self.nodes.get_unchecked(at ^ 1));
                at >>= 1;
                *self.nodes.get_unchecked_mut(at) = key;
            }
        }
    }

    /// Counts time from somewhat before the earliest pending event and `at`:
    /// an event that is set later may still come sooner.
    #[cold]
    fn rebase(&mut self, at: u64) {
        let earliest = self.next().map_or(at, |t| t.0.min(at));
        let base = earliest.saturating_sub(1 << (60 - self.bits)).max(self.base);
        let shift = (base - self.base) << self.bits;
        for key in self.nodes.iter_mut().filter(|key| **key != NEVER) {
            *key -= shift;
        }
        self.base = base;
        assert!((at - base) >> (62 - self.bits) == 0, "events lie within months of each other");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn gives_the_earliest(
            sources in 1usize..80,
            steps in prop::collection::vec((any::<usize>(), prop::option::of(0u64..1000)), 1..200),
            far in 0u64..1 << 62,
        ) {
            let mut line = Timeline::new(sources);
            let mut model = vec![None; sources];
            for (source, at) in steps {
                let source = source % sources;
                model[source] = at.map(|t| t + far);
                match at {
                    Some(t) => line.set(source, Time(t + far)),
                    None => line.clear(source),
                }
                let best = (0..sources).filter_map(|s| model[s].map(|t| (t, s))).min();
                prop_assert_eq!(line.next().map(|t| t.0), best.map(|b| b.0));
                let due = line.due(Time(u64::MAX >> 1)).map(|(s, t)| (t.0, s));
                prop_assert_eq!(due, best);
            }
        }
    }

    #[test]
    fn a_far_event_leaves_room_for_nearer_ones() {
        let mut line = Timeline::new(2);
        let far = 1 << 61;
        line.set(0, Time(far));
        line.set(1, Time(far - 1_000_000));
        assert_eq!(line.due(Time(far)), Some((1, Time(far - 1_000_000))));
    }

    #[test]
    fn runs_for_centuries() {
        let mut line = Timeline::new(1 << 16);
        let mut t = 0u64;
        for step in 0..400 {
            t += 1 << 45;
            line.set(step % 7, Time(t));
            line.set(9, Time(t + 5));
            assert_eq!(line.due(Time(t)), Some((step % 7, Time(t))));
            line.clear(step % 7);
            assert_eq!(line.next(), Some(Time(t + 5)));
        }
    }
}
