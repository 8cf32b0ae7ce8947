//! The state of an installed set: counters, timers, rates and maps. Its size is fixed when
//! it is made.

use thiserror::Error;

use crate::check::MOST_HITS;
use crate::decision::{Address, Entry};
use crate::parse::MOST_STEPS;
use crate::syntax::{Content, Set};

/// What changes while a set is in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub(crate) counters: Box<[u64]>,
    /// When each was started.
    pub(crate) timers: Box<[u64]>,
    /// By limit, of a rate, when the next request would be due.
    pub(crate) due: Box<[u64]>,
    /// By limit, its number in the set before, where that declared it the same.
    before: Box<[Option<u16>]>,
    pub(crate) maps: Box<[Box<[u64]>]>,
    /// What the last decision gave up. It has room for all that one can.
    pub(crate) released: Vec<(Entry, Option<Address>)>,
    /// The entry by which it serves, if it does.
    pub(crate) served: Option<Entry>,
}

/// An address that a map cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum StoreError {
    /// The set has no such entry.
    #[error(
        "the set has no entry {key} of a map of addresses {map}; store only where a decision says"
    )]
    NoEntry {
        /// The map's number.
        map: u16,
        /// The entry.
        key: u64,
    },
    /// The map is not of this unit.
    #[error("map {map} holds no addresses of unit {unit}; place only on the units of the decision")]
    Unit {
        /// The map's number.
        map: u16,
        /// The address's unit.
        unit: u16,
    },
}

impl State {
    /// Bytes of memory that the maps of a set take: asked for beforehand, as a set that
    /// somebody installs may have many entries.
    pub fn bytes_of(set: &Set) -> u64 {
        let entries = set.maps.iter().map(|map| map.entries);
        entries.fold(0, u64::saturating_add).saturating_mul(size_of::<u64>() as u64)
    }

    /// As a set begins: counters and entries at their least, entries of addresses at
    /// none, timers at time 0.
    pub fn new(set: &Set) -> State {
        let least = |content: Content| match content {
            Content::Number(bounds) => bounds.lo,
            Content::Address(_) => 0,
        };
        State {
            counters: set.counters.iter().map(|counter| counter.bounds.lo).collect(),
            timers: vec![0; set.timers.len()].into(),
            released: Vec::with_capacity((MOST_HITS + 1) * MOST_STEPS),
            served: None,
            due: vec![0; set.limits.len()].into(),
            before: vec![None; set.limits.len()].into(),
            maps: set
                .maps
                .iter()
                .map(|map| vec![least(map.content); map.entries as usize].into())
                .collect(),
        }
    }

    /// Takes from the state of another set what is declared the same there: a counter,
    /// timer or limit by its value, a map as a whole, for which the other gets ours.
    /// Nothing is copied but single values.
    pub(crate) fn keep(&mut self, set: &Set, old: &mut State, was: &Set) {
        for (n, counter) in set.counters.iter().enumerate() {
            if let Some(at) = was.counters.iter().position(|c| c == counter) {
                self.counters[n] = old.counters[at];
            }
        }
        for (n, timer) in set.timers.iter().enumerate() {
            if let Some(at) = was.timers.iter().position(|t| t == timer) {
                self.timers[n] = old.timers[at];
            }
        }
        for (n, limit) in set.limits.iter().enumerate() {
            if let Some(at) = was.limits.iter().position(|l| l == limit) {
                self.due[n] = old.due[at];
                self.before[n] = Some(at as u16);
            }
        }
        for (n, map) in set.maps.iter().enumerate() {
            if let Some(at) = was.maps.iter().position(|m| m == map) {
                std::mem::swap(&mut self.maps[n], &mut old.maps[at]);
            }
        }
    }

    /// Entries that the last decision set to none, each with the address that it had, if any.
    pub fn released(&self) -> &[(Entry, Option<Address>)] {
        &self.released
    }

    /// The entry by which the last decision that served did so. Whoever serves later looks
    /// again where it leads.
    #[inline]
    pub fn served(&self) -> Option<Entry> {
        self.served
    }

    /// The address that an entry leads to; none also where there is no such entry.
    #[inline]
    pub fn address(&self, entry: Entry) -> Option<Address> {
        Address::of(*self.maps.get(usize::from(entry.map))?.get(entry.key as usize)?)
    }

    /// Stores in an entry of a set where its block is, or that it is nowhere.
    #[inline]
    pub fn store(
        &mut self,
        set: &Set,
        entry: Entry,
        address: Option<Address>,
    ) -> Result<(), StoreError> {
        let Entry { map, key } = entry;
        let none = StoreError::NoEntry { map, key };
        let Content::Address(units) = set.maps.get(usize::from(map)).ok_or(none)?.content else {
            return Err(none);
        };
        let maps = self.maps.get_mut(usize::from(map)).ok_or(none)?;
        let at = usize::try_from(key).ok().and_then(|key| maps.get_mut(key)).ok_or(none)?;
        if let Some(unit) = address.map(Address::unit)
            && !units.has(unit.into())
        {
            return Err(StoreError::Unit { map, unit });
        }
        *at = address.map_or(0, Address::number);
        Ok(())
    }

    /// The number of a limit of the set before in this one, if both declare it the same.
    pub fn limit_now(&self, before: u16) -> Option<u16> {
        self.before.iter().position(|&was| was == Some(before)).map(|n| n as u16)
    }

    /// A counter of a set by its name.
    pub fn counter(&self, set: &Set, name: &str) -> Option<u64> {
        set.counters
            .iter()
            .position(|counter| counter.name.text == name)
            .map(|at| self.counters[at])
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> u64 {
        let entries: usize = self.maps.iter().map(|map| map.len()).sum();
        8 * (entries + self.counters.len() + self.timers.len() + self.due.len()) as u64
    }
}

/// How long a rate makes a request wait, ns, and when the next would be due then: the
/// generic cell rate algorithm (ITU-T I.371) with `burst` cells of tolerance.
#[inline]
pub(crate) fn paced(due: u64, now: u64, rate: u64, burst: u64) -> (u64, u64) {
    let interval = (1_000_000_000 / rate).max(1);
    let turn = due.max(now);
    let wait = (turn - now).saturating_sub((burst - 1).saturating_mul(interval));
    (wait, turn.saturating_add(interval))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_lets_a_burst_through_and_then_its_rate() {
        let mut due = 0;
        let mut waits = Vec::new();
        for _ in 0..5 {
            let (wait, next) = paced(due, 1000, 1_000_000, 3);
            waits.push(wait);
            due = next;
        }
        assert_eq!(waits, [0, 0, 0, 1000, 2000]);
        assert_eq!(paced(due, 1_000_000, 1_000_000, 3).0, 0, "after a rest");
        assert_eq!(paced(u64::MAX, 0, 1, 1).1, u64::MAX);
    }
}
