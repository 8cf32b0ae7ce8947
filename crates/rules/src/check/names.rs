//! What the names of a set stand for. Counters, maps, timers and limits share one space of
//! names; rules have their own.

use std::collections::{BTreeMap, BTreeSet};

use crate::bounds::Bounds;
use crate::error::{Problem, What};
use crate::syntax::{Content, Counter, Limit, Map, Name, Place, Set};

/// What a name stands for.
#[derive(Clone, Copy)]
enum Meaning {
    Counter(usize),
    Map(usize),
    Timer,
    Limit(usize),
}

/// The names of a set.
pub(super) struct Names<'s> {
    set: &'s Set,
    all: BTreeMap<&'s str, Meaning>,
}

impl<'s> Names<'s> {
    /// Collects them, and says which are there twice, and which maps are beyond addresses.
    pub(super) fn new(set: &'s Set, problems: &mut Vec<Problem>) -> Names<'s> {
        let mut all = BTreeMap::new();
        let mut add = |name: &'s Name, meaning| {
            if all.insert(name.text.as_str(), meaning).is_some() {
                let what = What::Twice("table", name.text.clone());
                problems.push(Problem::new(what, name.at));
            }
        };
        set.counters.iter().enumerate().for_each(|(n, c)| add(&c.name, Meaning::Counter(n)));
        set.maps.iter().enumerate().for_each(|(n, map)| add(&map.name, Meaning::Map(n)));
        set.timers.iter().for_each(|timer| add(timer, Meaning::Timer));
        set.limits.iter().enumerate().for_each(|(n, l)| add(&l.name, Meaning::Limit(n)));
        let mut rules = BTreeSet::new();
        for rule in &set.rules {
            if !rules.insert(rule.name.text.as_str()) {
                let what = What::Twice("rule", rule.name.text.clone());
                problems.push(Problem::new(what, rule.name.at));
            }
        }
        Names { set, all }
    }

    fn unknown<T>(&self, kind: &'static str, name: &str, at: Place) -> Result<T, Problem> {
        let distance = |other: &str| strsim::damerau_levenshtein(name, other);
        // No slip makes one name of another that is much longer.
        let near = self.all.keys().filter(|other| other.len().abs_diff(name.len()) <= 2);
        let near = near.map(|other| (distance(other), *other)).min();
        let near = near.filter(|(distance, _)| *distance <= 2).map(|(_, name)| name.to_string());
        Err(Problem::new(What::Unknown { kind, name: name.into(), near }, at))
    }

    pub(super) fn counter(&self, name: &str, at: Place) -> Result<&'s Counter, Problem> {
        match self.all.get(name) {
            Some(Meaning::Counter(n)) => Ok(&self.set.counters[*n]),
            _ => self.unknown("counter", name, at),
        }
    }

    pub(super) fn map(&self, name: &str, at: Place) -> Result<&'s Map, Problem> {
        match self.all.get(name) {
            Some(Meaning::Map(n)) => Ok(&self.set.maps[*n]),
            _ => self.unknown("map", name, at),
        }
    }

    pub(super) fn timer(&self, name: &str, at: Place) -> Result<(), Problem> {
        match self.all.get(name) {
            Some(Meaning::Timer) => Ok(()),
            _ => self.unknown("timer", name, at),
        }
    }

    pub(super) fn limit(&self, name: &str, at: Place) -> Result<&'s Limit, Problem> {
        match self.all.get(name) {
            Some(Meaning::Limit(n)) => Ok(&self.set.limits[*n]),
            _ => self.unknown("limit", name, at),
        }
    }

    /// A map of addresses, and their units.
    pub(super) fn addresses(&self, name: &str, at: Place) -> Result<(&'s Map, Bounds), Problem> {
        let map = self.map(name, at)?;
        match map.content {
            Content::Address(units) => Ok((map, units)),
            Content::Number(_) => {
                let what = What::Kind { wanted: "a map of addresses", found: "one of numbers" };
                Err(Problem::new(what, at))
            }
        }
    }
}
