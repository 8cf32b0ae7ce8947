//! One way of the link: when its wire is free, and what is on it.
//!
//! Guarantees: what was sent is received in the order of its arrival; of what
//! arrives together, what was sent as one that waits for the wire is first.

use port::{Ring, Time};

use crate::link::LINK_DEPTH;

/// When nothing arrives.
pub(crate) const NEVER: Time = Time(u64::MAX);

/// One way of the link, with what is on it: at most [`LINK_DEPTH`].
pub(crate) struct Way<T> {
    /// When the wire is free, seen from its end.
    free: Time,
    /// Wire time of a queue's entry.
    entry: u64,
    /// When the first of the two that follow arrives.
    next: Time,
    /// In the order of their turns on the wire, which is that of their arrivals.
    queued: Ring<(Time, T)>,
    /// What goes between them, in the order of its arrivals.
    passing: Ring<(Time, T)>,
}

impl<T> Way<T> {
    pub fn new(entry: u64) -> Way<T> {
        let (queued, passing) = (Ring::new(LINK_DEPTH), Ring::new(LINK_DEPTH));
        Way { free: Time::ZERO, entry, next: NEVER, queued, passing }
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

    /// Puts the first of `items` on its way, that arrives at `arrival`.
    #[inline(always)]
    pub fn send(&mut self, arrival: Time, passes: bool, items: &mut Ring<T>) {
        let ring = if passes { &mut self.passing } else { &mut self.queued };
        ring.put(|| (arrival, items.pop().expect("the caller saw one")));
        self.next = self.next.min(arrival);
        // Cores that work side by side may end in another order.
        let mut at = ring.len() - 1;
        while at > 0 && ring.get(at - 1).is_some_and(|before| before.0 > arrival) {
            ring.swap(at - 1, at);
            at -= 1;
        }
    }

    /// When the next one arrives; [`NEVER`] where nothing is on its way.
    #[inline]
    pub fn next(&self) -> Time {
        self.next
    }

    /// Puts the next one that has arrived at `to` at the end of `all`, which has room.
    /// Gives when it arrived.
    #[inline(always)]
    pub fn receive_to(&mut self, to: Time, all: &mut Ring<T>) -> Option<Time> {
        let at = self.next;
        if at > to || at == NEVER {
            return None;
        }
        let is_queued = self.queued.front().is_some_and(|item| item.0 == at);
        let ring = if is_queued { &mut self.queued } else { &mut self.passing };
        all.put(|| ring.pop().expect("it was looked at").1);
        let first = |ring: &Ring<(Time, T)>| ring.front().map_or(NEVER, |item| item.0);
        self.next = first(&self.queued).min(first(&self.passing));
        Some(at)
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
            let (mut way, mut ring) = (Way::new(0), Ring::new(1));
            for (i, &(at, passes)) in sent.iter().enumerate() {
                ring.put(|| i);
                way.send(Time(at), passes, &mut ring);
            }
            let (mut to, mut got) = (0, Vec::new());
            for step in steps {
                while let Some(at) = way.receive_to(Time(to), &mut ring) {
                    let i = ring.pop().expect("it was put there");
                    prop_assert!(sent[i].0 == at.0 && at.0 <= to);
                    got.push(i);
                }
                prop_assert!(way.next() > Time(to));
                to += step;
            }
            while way.receive_to(Time(1000), &mut ring).is_some() {
                got.extend(ring.pop());
            }
            let order = |&i: &usize| (sent[i].0, sent[i].1, i);
            let mut all: Vec<usize> = (0..sent.len()).collect();
            all.sort_by_key(order);
            prop_assert_eq!(got, all);
            prop_assert_eq!(way.next(), NEVER);
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
