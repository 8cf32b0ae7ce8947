//! The drive's future: what ends when.
//!
//! A channel has at most one transfer under way, and each of its parallel units
//! at most one event beside that, mostly the end of its array's work. Those of
//! a channel stand in two lists in the order of their times, one of reads and
//! one of all else: what is alike takes about as long, so that a new event
//! mostly belongs at the end, and the next is the first. A tournament tree over
//! the channels gives the next of all: setting a channel's costs one walk to the
//! root without a branch that depends on the times; looking at the next costs
//! nothing. Events of the same time come in the order of their units' numbers, so
//! runs repeat exactly.

use flash::Geometry;
use port::Time;

const NEVER: u64 = u64::MAX;

/// Events in their order: a ring of the line's `places`.
#[derive(Clone, Copy)]
struct Order {
    /// The first one's key.
    key: u64,
    /// How many there were before the first, and the last: their places are the rests
    /// of these by the ring's length.
    head: u32,
    tail: u32,
}

/// The events of a channel.
#[derive(Clone, Copy)]
struct Agenda {
    /// The end of its transfer.
    transfer: u64,
    /// Of all but reads, and of reads.
    orders: [Order; 2],
}

impl Agenda {
    /// The key of the next of them.
    #[inline(always)]
    fn next(&self) -> u64 {
        self.transfer.min(self.orders[1].key).min(self.orders[0].key)
    }
}

/// One transfer of each channel, and one event more of each parallel unit.
///
/// After a channel's events were changed, [`Timeline::settle`] enters that in
/// what [`Timeline::next`] and [`Timeline::due`] say.
pub(crate) struct Timeline {
    /// Heap order: node 1 is the root, node `leaves + i` is channel `i`. A key
    /// is the time since `base`, then the unit.
    nodes: Box<[u64]>,
    leaves: usize,
    channels: Box<[Agenda]>,
    /// Keys of events. Of each channel two rings, each with a place for each unit.
    places: Box<[u64]>,
    /// The highest number of a unit; all below are numbers.
    last: u32,
    /// Bits of a unit's number, of its number in its channel, and of the channel's.
    bits: u32,
    bits_in_channel: u32,
    channel_bits: u32,
    /// Moves forward now and then, so that keys never run out of bits.
    base: u64,
}

impl Timeline {
    /// Bytes of memory that it takes.
    pub fn bytes(geometry: &Geometry, units: usize) -> usize {
        let channels = geometry.dimensions().groups as usize;
        let tree = 2 * channels.next_power_of_two() * size_of::<u64>();
        2 * units * size_of::<u64>() + channels * size_of::<Agenda>() + tree
    }

    /// One of so many units without an event.
    pub fn new(geometry: &Geometry, units: usize) -> Timeline {
        Timeline::of(geometry.dimensions().groups as usize, units)
    }

    /// One of so many units, a power of two, of which the number of the channel
    /// is the upper bits.
    fn of(channels: usize, units: usize) -> Timeline {
        let leaves = channels.next_power_of_two();
        let bits = units.trailing_zeros();
        assert!(bits <= 20, "keys leave room for the longest operation");
        let empty = Order { key: NEVER, head: 0, tail: 0 };
        let channel = Agenda { transfer: NEVER, orders: [empty; 2] };
        Timeline {
            nodes: vec![NEVER; 2 * leaves].into(),
            leaves,
            channels: vec![channel; channels].into(),
            places: vec![NEVER; 2 * units].into(),
            last: units as u32 - 1,
            bits,
            bits_in_channel: bits - leaves.trailing_zeros(),
            channel_bits: leaves.trailing_zeros(),
            base: 0,
        }
    }

    /// The next event's time.
    #[inline]
    pub fn next(&self) -> Option<Time> {
        let root = self.nodes[1];
        if root == NEVER { None } else { Some(Time(self.base + (root >> self.bits))) }
    }

    /// The next event, if it is due at `to`: its unit and its time.
    #[inline]
    pub fn due(&self, to: Time) -> Option<(u32, Time)> {
        let root = self.nodes[1];
        let at = self.base.wrapping_add(root >> self.bits);
        if root == NEVER || at > to.0 {
            return None;
        }
        Some((root as u32 & self.last, Time(at)))
    }

    /// Where the ring of an order begins, and the highest number of a place in it.
    #[inline(always)]
    fn ring(&self, channel: usize, is_read: bool) -> (usize, u32) {
        (
            (2 * channel + usize::from(is_read)) << self.bits_in_channel,
            self.last >> self.channel_bits,
        )
    }

    /// Sets the event of a unit that has none: of a read, or of something else.
    #[inline(always)]
    pub fn set(&mut self, unit: u32, is_read: bool, at: Time) {
        let key = self.key(unit, at);
        let channel = (unit >> self.bits_in_channel) as usize;
        let (start, last) = self.ring(channel, is_read);
        let order = &mut self.channels[channel].orders[usize::from(is_read)];
        let mut at = order.tail;
        order.tail = at.wrapping_add(1);
        while at != order.head {
            let before = self.places[start + (at.wrapping_sub(1) & last) as usize];
            if before < key {
                break;
            }
            self.places[start + (at & last) as usize] = before;
            at = at.wrapping_sub(1);
        }
        self.places[start + (at & last) as usize] = key;
        if at == order.head {
            order.key = key;
        }
    }

    /// Takes the event of a unit away, which has one: mostly the first of its list.
    #[inline(always)]
    pub fn clear(&mut self, unit: u32) {
        let channel = (unit >> self.bits_in_channel) as usize;
        let is_first = |order: &Order| order.key as u32 & self.last == unit && order.key != NEVER;
        let [others, reads] = &self.channels[channel].orders;
        let is_read = is_first(reads);
        if !is_read && !is_first(others) {
            self.clear_any(unit);
            return;
        }
        let (start, last) = self.ring(channel, is_read);
        let order = &mut self.channels[channel].orders[usize::from(is_read)];
        order.head = order.head.wrapping_add(1);
        order.key = match order.head == order.tail {
            true => NEVER,
            false => self.places[start + (order.head & last) as usize],
        };
    }

    /// The same of an event that is not the first.
    #[inline(never)]
    fn clear_any(&mut self, unit: u32) {
        let channel = (unit >> self.bits_in_channel) as usize;
        for is_read in [false, true] {
            let (start, last) = self.ring(channel, is_read);
            let order = &mut self.channels[channel].orders[usize::from(is_read)];
            let place = |at: u32| start + (at & last) as usize;
            let mut at = order.head;
            while at != order.tail && self.places[place(at)] as u32 & self.last != unit {
                at = at.wrapping_add(1);
            }
            if at == order.tail {
                continue;
            }
            order.tail = order.tail.wrapping_sub(1);
            while at != order.tail {
                self.places[place(at)] = self.places[place(at.wrapping_add(1))];
                at = at.wrapping_add(1);
            }
            return;
        }
        unreachable!("the unit has an event");
    }

    /// The unit has its channel until `end`.
    #[inline(always)]
    pub fn set_transfer(&mut self, unit: u32, end: Time) {
        let key = self.key(unit, end);
        self.channels[(unit >> self.bits_in_channel) as usize].transfer = key;
    }

    /// No unit has the channel.
    #[inline(always)]
    pub fn end_transfer(&mut self, channel: u32) {
        self.channels[channel as usize].transfer = NEVER;
    }

    /// Enters what has changed of a unit's channel.
    #[inline(always)]
    pub fn settle(&mut self, unit: u32) {
        let number = (unit >> self.bits_in_channel) as usize;
        let key = self.channels[number].next();
        if self.nodes[self.leaves + number] != key {
            self.put(self.leaves + number, key);
        }
    }

    #[inline(always)]
    fn key(&mut self, unit: u32, at: Time) -> u64 {
        let mut since = at.0 - self.base;
        if since >> (62 - self.bits) != 0 {
            self.rebase(at.0);
            since = at.0 - self.base;
        }
        (since << self.bits) | u64::from(unit)
    }

    /// Sets the key of a leaf of the tree.
    #[inline(always)]
    fn put(&mut self, mut at: usize, mut key: u64) {
        assert!(at < self.nodes.len(), "a channel has a leaf");
        // SAFETY: `at` is below the count of the nodes: at first as was looked
        // at, then because it shrinks; so is its neighbour, because the count
        // is even. Checked indexing costs a third of a simulated read.
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
        let earliest = self.channels.iter().map(Agenda::next).min().filter(|&key| key != NEVER);
        let earliest = earliest.map_or(at, |key| at.min(self.base + (key >> self.bits)));
        let base = earliest.saturating_sub(1 << (60 - self.bits)).max(self.base);
        let shift = (base - self.base) << self.bits;
        // What the tree has of a channel that is not settled yet may be long past.
        let later = |key: &mut u64| {
            *key = if *key == NEVER { NEVER } else { key.saturating_sub(shift) };
        };
        self.nodes.iter_mut().for_each(later);
        for channel in &mut self.channels {
            later(&mut channel.transfer);
            channel.orders.iter_mut().for_each(|order| later(&mut order.key));
        }
        // Places without an event are not looked at.
        self.places.iter_mut().for_each(later);
        self.base = base;
        assert!(
            (at - base) >> (62 - self.bits) == 0,
            "events lie within an operation of each other"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What is done to a unit of the line.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Set { is_read: bool, at: u64 },
        Clear,
        Transfer { end: u64 },
        EndTransfer,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (any::<bool>(), 0u64..1000).prop_map(|(is_read, at)| Step::Set { is_read, at }),
            1 => Just(Step::Clear),
            2 => (0u64..1000).prop_map(|end| Step::Transfer { end }),
            1 => Just(Step::EndTransfer),
        ]
    }

    proptest! {
        #[test]
        fn gives_the_earliest(
            channels in 1usize..10,
            bits in 0u32..4,
            steps in prop::collection::vec((any::<u32>(), step()), 1..200),
            far in 0u64..1 << 60,
        ) {
            let mut line = Timeline::of(channels, channels.next_power_of_two() << bits);
            let mut events = vec![None; channels << bits];
            let mut transfers = vec![None; channels];
            for (unit, step) in steps {
                let unit = unit % (channels << bits) as u32;
                let channel = (unit >> bits) as usize;
                let event = &mut events[unit as usize];
                match step {
                    Step::Set { .. } | Step::Clear if event.take().is_some() => line.clear(unit),
                    Step::Set { is_read, at } => {
                        *event = Some((far + at, unit));
                        line.set(unit, is_read, Time(far + at));
                    }
                    Step::Clear => {}
                    Step::Transfer { end } => {
                        transfers[channel] = Some((far + end, unit));
                        line.set_transfer(unit, Time(far + end));
                    }
                    Step::EndTransfer => {
                        transfers[channel] = None;
                        line.end_transfer(channel as u32);
                    }
                }
                line.settle(unit);
                let best = events.iter().chain(&transfers).flatten().min().copied();
                prop_assert_eq!(line.next().map(|t| t.0), best.map(|b| b.0));
                let due = line.due(Time(u64::MAX >> 1)).map(|(unit, t)| (t.0, unit));
                prop_assert_eq!(due, best);
            }
        }
    }

    #[test]
    fn a_far_event_leaves_room_for_nearer_ones() {
        let mut line = Timeline::of(2, 2);
        let far = 1 << 61;
        line.set(0, true, Time(far));
        line.set_transfer(1, Time(far - 1_000_000));
        line.settle(0);
        line.settle(1);
        assert_eq!(line.due(Time(far)), Some((1, Time(far - 1_000_000))));
    }

    /// With as many units as a drive has at most.
    #[test]
    fn the_longest_operation_has_room() {
        let mut line = Timeline::of(1 << 8, 1 << 20);
        for round in 1..2000 {
            let now = round * 1_234_567_891;
            line.set(0, true, Time(now));
            line.set(1, false, Time(now + flash::LONGEST_OPERATION));
            line.settle(0);
            assert_eq!(line.due(Time(now)), Some((0, Time(now))));
            line.clear(0);
            line.settle(0);
            assert_eq!(line.next(), Some(Time(now + flash::LONGEST_OPERATION)));
            line.clear(1);
            line.settle(0);
        }
    }

    #[test]
    fn runs_for_centuries() {
        let mut line = Timeline::of(1 << 8, 1 << 16);
        let mut t = 0u64;
        for step in 0..400 {
            let unit = step % 7;
            if step > 0 {
                line.clear(300);
            }
            t += 1 << 45;
            line.set(unit, step % 2 == 0, Time(t));
            line.set(300, true, Time(t + 5));
            line.set_transfer(700, Time(t + 9));
            for unit in [unit, 300, 700] {
                line.settle(unit);
            }
            assert_eq!(line.due(Time(t)), Some((unit, Time(t))));
            line.clear(unit);
            line.settle(unit);
            assert_eq!(line.next(), Some(Time(t + 5)));
        }
    }
}
