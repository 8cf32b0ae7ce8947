//! One way of the link: when its wire is free, and what is on it.
//!
//! Guarantees: what was sent is received in the order of its arrival; of what
//! arrives together, what was sent as one that waits for the wire is first.

use port::{Ring, Time};

use crate::link::LINK_DEPTH;

/// One way of the link, with what is on it: at most [`LINK_DEPTH`].
pub(crate) struct Way<T> {
    /// When the wire is free, seen from its end.
    free: Time,
    /// Wire time of a queue's entry.
    entry: u64,
    /// In the order of their turns on the wire, which is that of their arrivals.
    queued: Ring<(Time, T)>,
    /// What goes between them, in the order of its arrivals.
    passing: Ring<(Time, T)>,
}

impl<T> Way<T> {
    pub fn new(entry: u64) -> Way<T> {
        let (queued, passing) = (Ring::new(LINK_DEPTH), Ring::new(LINK_DEPTH));
        Way { free: Time::ZERO, entry, queued, passing }
    }

    /// An entry goes between the data that are on the wire at `at`, which are later
    /// by its time. Gives that time.
    #[inline]
    pub fn entry(&mut self, at: Time) -> u64 {
        if self.free > at {
            self.free += self.entry;
        }
        self.entry
    }

    /// Takes the wire for `time`, from `at` on or from when it is free. Gives the end.
    #[inline]
    pub fn carry(&mut self, at: Time, time: u64) -> Time {
        self.free = self.free.max(at) + time;
        self.free
    }

    /// Puts one on its way, that arrives at `arrival`.
    #[inline(always)]
    pub fn send(&mut self, arrival: Time, passes: bool, item: T) {
        let ring = if passes { &mut self.passing } else { &mut self.queued };
        ring.put(|| (arrival, item));
        // Cores that work side by side may end in another order.
        let mut at = ring.len() - 1;
        while at > 0 && ring.get(at - 1).is_some_and(|before| before.0 > arrival) {
            ring.swap(at - 1, at);
            at -= 1;
        }
    }

    /// When the next one arrives.
    #[inline]
    pub fn next(&self) -> Option<Time> {
        let (queued, passing) = (self.queued.front(), self.passing.front());
        match (queued.map(|item| item.0), passing.map(|item| item.0)) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// The next one that has arrived at `to`, and when it did.
    #[inline(always)]
    pub fn receive(&mut self, to: Time) -> Option<(Time, T)> {
        let at = self.next().filter(|&at| at <= to)?;
        let is_queued = self.queued.front().is_some_and(|item| item.0 == at);
        let ring = if is_queued { &mut self.queued } else { &mut self.passing };
        ring.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn all_arrive_in_order(
            sent in prop::collection::vec((0u64..50, any::<bool>()), 0..100),
            steps in prop::collection::vec(1u64..20, 20),
        ) {
            let mut way = Way::new(0);
            for (i, &(at, passes)) in sent.iter().enumerate() {
                way.send(Time(at), passes, i);
            }
            let (mut to, mut got) = (0, Vec::new());
            for step in steps {
                while let Some((at, i)) = way.receive(Time(to)) {
                    prop_assert!(sent[i].0 == at.0 && at.0 <= to);
                    got.push(i);
                }
                prop_assert!(way.next().is_none_or(|at| at > Time(to)));
                to += step;
            }
            while let Some((_, i)) = way.receive(Time(1000)) {
                got.push(i);
            }
            let order = |&i: &usize| (sent[i].0, sent[i].1, i);
            let mut all: Vec<usize> = (0..sent.len()).collect();
            all.sort_by_key(order);
            prop_assert_eq!(got, all);
            prop_assert_eq!(way.next(), None);
        }
    }

    #[test]
    fn entries_delay_the_data_that_are_on_the_wire() {
        let mut way: Way<()> = Way::new(2);
        assert_eq!(way.entry(Time(10)), 2);
        assert_eq!(way.carry(Time(12), 8), Time(20), "nothing was on the wire");
        assert_eq!(way.entry(Time(15)), 2);
        assert_eq!(way.carry(Time(15), 8), Time(30));
    }
}
