//! A drive of several targets: which units and chunks each has, how large each is, and what
//! it has of all that the drive has once.
//!
//! Targets with units of their own ([`Placement::Isolate`]) have as many as the name says
//! (`units=`), or as many as each other; of addresses, buffers and map cache each has as
//! large a part as of the units. What `units=` leaves is nobody's, until a target comes that
//! has it. Those that have some chunks of every unit
//! ([`Placement::Stripe`]) are all alike. Fails where that does not come out even, or a
//! target is too small for what it keeps for itself.

mod changes;

use std::collections::BTreeSet;
use std::ops::Range;

use flash::{Dimensions, Geometry, Profile};
use media::{Place, Placement};
use port::BLOCK_BYTES;
use serde::{Deserialize, Serialize};

pub use self::changes::{NewTarget, is_target_name};
use super::capacity::without_slc;
use super::memory::{KEY_COUNT, KEYS_RANGE, MemorySpec, STREAMS, TargetKind};
use super::rules::{RULES, Ruling, is_name, learnt, resolve, resolve_text};
use super::{DriveConfig, DriveError};
use crate::fault_rules::Rules;

/// Bytes of which each of several targets has a multiple.
const TARGET_UNIT: u64 = 1 << 20;

/// What target `n` is called where nobody said a name.
fn target_name(n: u32) -> String {
    format!("target{n}")
}

/// What a target has of a drive: so many of so many parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    parts: u32,
    of: u32,
}

/// What a target of several has of a drive: units of its own or, with
/// [`Placement::Stripe`], slices of the chunks of all units.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// What it is called.
    pub name: String,
    /// The first of its units, or slices.
    pub first: u32,
    /// How many: 1 of slices.
    pub units: u32,
    /// The rule set of a target of rules: its text, or the template that it learns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<String>,
    /// Keys that a target has room for which keeps values by key; 0 of any other.
    #[serde(default, skip_serializing_if = "is_none")]
    pub keys: u64,
    /// What the set says.
    #[serde(skip)]
    ruling: Option<Ruling>,
}

impl PartialEq for Part {
    fn eq(&self, other: &Part) -> bool {
        let all = |part: &Part| (part.first, part.units, part.keys);
        all(self) == all(other) && self.name == other.name && self.rules == other.rules
    }
}

impl Part {
    /// What the target is.
    pub fn kind(&self) -> TargetKind {
        match self.rules {
            Some(_) => TargetKind::Rules,
            None if self.keys > 0 => TargetKind::Kv,
            None => TargetKind::Pblk,
        }
    }

    /// A page-mapped one.
    fn new(name: String, first: u32, units: u32) -> Part {
        Part { name, first, units, rules: None, keys: 0, ruling: None }
    }

    /// Whether it is one of blocks, and not of keys.
    fn has_blocks(&self) -> bool {
        self.kind() != TargetKind::Kv
    }

    fn end(&self) -> u64 {
        u64::from(self.first) + u64::from(self.units)
    }
}

fn is_none(keys: &u64) -> bool {
    *keys == 0
}

impl MemorySpec {
    /// Whether several targets share the device, or may.
    pub fn is_shared(&self) -> bool {
        self.targets > 1 || !self.units.is_empty() || !self.kinds.is_empty()
    }

    /// Whether one of several targets at least keeps values by key.
    pub fn has_keyed_parts(&self) -> bool {
        self.is_shared() && self.keyed().next().is_some()
    }

    /// The targets of rules, by their numbers, and the names of their sets.
    fn sets(&self) -> impl Iterator<Item = (u32, &str)> {
        let ruled = (0..self.targets).filter(|n| self.kind(*n) == TargetKind::Rules);
        let names = self.set_names();
        ruled.enumerate().map(move |(at, n)| (n, names[at.min(names.len() - 1)]))
    }

    /// The targets that keep values by key, by their numbers.
    fn keyed(&self) -> impl Iterator<Item = u32> {
        (0..self.targets).filter(|n| self.kind(*n) == TargetKind::Kv)
    }

    /// The names of sets that it has, at least one. What names a set as it is may have a `+`.
    fn set_names(&self) -> Vec<&str> {
        let ruled = (0..self.targets).filter(|n| self.kind(*n) == TargetKind::Rules);
        match ruled.count() > 1 && self.rules.split('+').all(is_name) {
            true => self.rules.split('+').collect(),
            false => vec![&self.rules],
        }
    }

    /// Why it cannot have such targets, by the key that says how many they are.
    fn no_targets(&self, why: String) -> DriveError {
        let texts = |all: &mut dyn Iterator<Item = String>| all.collect::<Vec<_>>().join("/");
        let (key, value) = if !self.units.is_empty() {
            ("units", texts(&mut self.units.iter().map(u32::to_string)))
        } else if self.kinds.len() == self.targets as usize {
            ("target", texts(&mut self.kinds.iter().map(|kind| kind.name().to_string())))
        } else {
            ("targets", self.targets.to_string())
        };
        DriveError::Targets { key, value, why }
    }

    /// Refuses targets that are not, or sets that are nobody's.
    fn check_kinds(&self, profile: &Profile) -> Result<(), DriveError> {
        let kinds = self.kinds.len();
        if kinds > 0 && kinds != self.targets as usize {
            let why = format!("target= tells what {kinds} targets are");
            return Err(self.no_targets(why));
        }
        let ruled = self.sets().count();
        let given = if self.rules.is_empty() { 0 } else { self.set_names().len() };
        if given > ruled || given > 0 && !self.set_names().into_iter().all(is_name) {
            let (key, value) = ("rules", self.rules.clone());
            return Err(DriveError::Value { key, value, takes: RULES });
        }
        let keyed = self.keyed().count();
        if keyed == self.targets as usize {
            let why = "they keep values by key, and one of them at least has blocks: take pblk or \
                       rules for it, as in target=pblk/kv, or one target";
            return Err(self.no_targets(why.into()));
        }
        if keyed == 0 && self.keys > 0 {
            let (key, value) = ("keys", self.keys.to_string());
            return Err(DriveError::Value { key, value, takes: KEY_COUNT });
        }
        if self.streams > 1 && ruled + keyed == self.targets as usize {
            let (key, value) = ("streams", self.streams.to_string());
            return Err(DriveError::Value { key, value, takes: STREAMS });
        }
        for (count, takes) in [(ruled, "4k with target=rules"), (keyed, "4k with target=kv")] {
            if profile.has_units() && count > 0 {
                let (key, value) = ("map_unit", profile.map_unit.to_string());
                return Err(DriveError::Value { key, value, takes });
            }
        }
        Ok(())
    }

    /// Parts that a drive of so many units is cut into.
    fn slices(&self, units: u32) -> u32 {
        if self.placement == Placement::Stripe { self.targets } else { units }
    }

    /// The parts of the targets that its name tells of, on so many units; or why they cannot
    /// be. Units that are left are nobody's.
    pub(super) fn parts(&self, all: u32) -> Result<Vec<Part>, String> {
        let each = if self.placement == Placement::Stripe { 1 } else { all / self.targets };
        let units = match self.units.is_empty() {
            true => vec![each; self.targets as usize],
            false => self.units.clone(),
        };
        let is_even = self.placement == Placement::Stripe || all.is_multiple_of(self.targets);
        if self.units.is_empty() && !is_even {
            return Err(format!(
                "{all} parallel units cannot be shared evenly: take a divisor of {all}, or say units="
            ));
        }
        if units.iter().map(|&units| u64::from(units)).sum::<u64>() > self.slices(all).into() {
            return Err(format!(
                "the drive has {all} parallel units: take units= that are as many"
            ));
        }
        let mut first = 0;
        let parts = (0..).zip(units).map(|(n, units)| {
            let part = Part::new(target_name(n), first, units);
            first += units;
            part
        });
        Ok(parts.collect())
    }

    /// What a part is of a drive of this geometry, and where.
    fn place(&self, geometry: &Geometry, part: &Part) -> Result<(Share, Place), String> {
        let of = self.slices(geometry.total_pus());
        let share = Share { parts: part.units, of };
        if self.placement == Placement::Stripe {
            let place = self.placement.place(geometry, of, part.first);
            return Ok((share, place.map_err(|e| e.to_string())?));
        }
        let units = part.first..part.first + part.units;
        Ok((share, Place { units: units.collect(), chunks: 0..geometry.chunks() }))
    }

    /// A drive of several targets: each as if it were a drive, and together what all of them
    /// need.
    pub(super) fn resolve_shared(&self) -> Result<DriveConfig, DriveError> {
        let wrong = |why: String| self.no_targets(why);
        let has = |kind| (0..self.targets).any(|n| self.kind(n) == kind);
        for (is_there, what) in [
            (self.shards > 1, "shards"),
            (self.parity > 0, "parity"),
            (has(TargetKind::Batch), "target=batch"),
            (self.remote.is_some(), "remote"),
        ] {
            if is_there {
                return Err(wrong(format!("{what} is for a drive of one target")));
            }
        }
        if self.placement == Placement::Stripe && !self.units.is_empty() {
            return Err(wrong("units are for placement=isolate".into()));
        }
        let (mut profile, chunks_given) = self.profile()?;
        self.check_kinds(&profile)?;
        if self.size.is_some() && !chunks_given {
            // They follow from the size: here as many as are shared evenly.
            profile.dimensions.chunks = self.targets;
        }
        // The cache is the whole drive's.
        let without = without_slc(&profile);
        let checked = without.check()?;
        let parts = self.parts(checked.total_pus()).map_err(wrong)?;
        let places = parts.iter().map(|part| self.place(&checked, part).map_err(wrong));
        let places: Vec<_> = places.collect::<Result<_, _>>()?;
        let each: Vec<_> = (places.iter())
            .map(|(share, place)| {
                self.resolve_one((*share, place), &without, chunks_given, TargetKind::Pblk)
            })
            .collect::<Result<_, _>>()?;
        let reserve = self.reserve_for_keys(&places, &without, chunks_given)?;
        let most = |of: fn(&DriveConfig) -> u32| each.iter().map(of).max().unwrap_or(0);
        let data = most(DriveConfig::data_chunks);
        let reserve = most(|one| one.reserve).max(reserve);
        let chunk = each[0].geometry.chunk_blocks();
        let idle = each.iter().map(|one| (data - one.data_chunks()) * chunk + one.idle).min();
        let of = places[0].0.of;
        let part =
            places.iter().zip(&each).map(|((share, _), one)| one.size / u64::from(share.parts));
        let part = part.min().unwrap_or(0);
        let size = self.size.unwrap_or((part - part % TARGET_UNIT) * u64::from(of));
        if size == 0 {
            return Err(wrong("each has less than 1 MiB: take fewer, or a larger drive".into()));
        }
        let times = if self.placement == Placement::Stripe { of } else { 1 };
        let many = |chunks: u32| {
            chunks.checked_mul(times).ok_or_else(|| wrong("they have too many chunks".into()))
        };
        profile.dimensions.chunks = many(data)?;
        let (chunks, reserve) = (many(data.saturating_add(reserve))?, many(reserve)?);
        profile.check()?;
        profile.timing.slc.kept = reserve;
        let geometry = Geometry::new(Dimensions { chunks, ..profile.dimensions })
            .map_err(|source| DriveError::TooLarge { source })?;
        let (name, idle) = (self.to_string(), idle.unwrap_or(0));
        // Its parts tell what its targets are.
        let spec = self.as_pblk();
        let (above, faults) = (geometry, Rules::default());
        let mut config = DriveConfig {
            name,
            spec,
            profile,
            size,
            idle,
            reserve,
            geometry,
            above,
            rules: None,
            remote: None,
            control: None,
            faults,
            parts,
        };
        self.sets().try_for_each(|(n, name)| config.rule(n, name, resolve))?;
        for n in self.keyed() {
            config.parts[n as usize].keys = self.keys_of(config.target(n).size);
        }
        Ok(config)
    }

    /// Chunks of a unit, beside those that hold data, that targets need which keep values by
    /// key: those of many keys on few units more than one of blocks.
    fn reserve_for_keys(
        &self,
        places: &[(Share, Place)],
        profile: &Profile,
        chunks_given: bool,
    ) -> Result<u32, DriveError> {
        self.keyed().try_fold(0, |most, n| {
            let (share, place) = &places[n as usize];
            let one = self.resolve_one((*share, place), profile, chunks_given, TargetKind::Kv)?;
            Ok(most.max(one.reserve))
        })
    }

    /// The same where all targets are pblk, which needs most chunks for itself: so there is
    /// room for either.
    fn as_pblk(&self) -> MemorySpec {
        MemorySpec {
            target: TargetKind::Pblk,
            kinds: Vec::new(),
            keys: 0,
            rules: String::new(),
            ..self.clone()
        }
    }

    /// One target, as if it were a drive: of blocks, or of keys.
    fn resolve_one(
        &self,
        (share, place): (Share, &Place),
        profile: &Profile,
        chunks_given: bool,
        kind: TargetKind,
    ) -> Result<DriveConfig, DriveError> {
        let wrong = |why: String| self.no_targets(why);
        let mut one = MemorySpec { targets: 1, units: Vec::new(), ..self.as_pblk() };
        if kind == TargetKind::Kv {
            (one.target, one.keys, one.streams) = (kind, self.keys, 1);
        }
        one.placement = Placement::default();
        if let Some(size) = self.size {
            let parts = u128::from(size) * u128::from(share.parts);
            if !parts.is_multiple_of(u128::from(share.of) * u128::from(TARGET_UNIT)) {
                return Err(wrong(format!(
                    "each has whole MiB: take a size that is a multiple of {} MiB",
                    share.of
                )));
            }
            one.size = Some((parts / u128::from(share.of)) as u64);
        }
        let all = Geometry::new(profile.dimensions);
        let all = all.map_err(|source| DriveError::TooLarge { source })?;
        let mut profile = profile.clone();
        profile.dimensions = place.geometry(&all).map_err(|e| wrong(e.to_string()))?.dimensions();
        one.resolve_of(profile, chunks_given)
    }
}

impl DriveConfig {
    /// Makes a target one of rules, of the set that `resolve` finds by what it is told.
    pub(super) fn rule(
        &mut self,
        n: u32,
        told: &str,
        resolve: fn(&str, u64, &Geometry) -> Result<Ruling, DriveError>,
    ) -> Result<(), DriveError> {
        let one = self.target(n);
        let ruling = resolve(told, one.size, &one.above)?;
        let text = learnt(told).map_or_else(|| ruling.0.set().to_string(), |_| told.into());
        let part = &mut self.parts[n as usize];
        (part.rules, part.ruling) = (Some(text), Some(ruling));
        Ok(())
    }

    /// The same of the sets that its parts tell of.
    pub(super) fn rule_parts(&mut self) -> Result<(), DriveError> {
        for n in 0..self.parts.len() {
            if let Some(text) = self.parts[n].rules.clone() {
                self.rule(n as u32, &text, resolve_text)?;
            }
        }
        Ok(())
    }

    /// What its targets are: one word where all are alike.
    pub fn kinds_text(&self) -> String {
        let kinds = self.parts.iter().map(|part| part.kind().name());
        let mut kinds: Vec<&str> = kinds.collect();
        if kinds.windows(2).all(|two| two[0] == two[1]) {
            kinds.truncate(1);
        }
        if kinds.is_empty() { self.spec.target.name().into() } else { kinds.join("/") }
    }

    /// Whether one of its targets at least is made of rules.
    pub fn has_rules(&self) -> bool {
        self.rules.is_some() || self.parts.iter().any(|part| part.rules.is_some())
    }

    /// Whether one of its targets at least keeps values by key, beside others.
    pub fn has_keyed_parts(&self) -> bool {
        self.parts.iter().any(|part| !part.has_blocks())
    }

    /// Whether its targets can share it so: each has whole MiB, and room for them.
    pub(super) fn is_even(&self) -> bool {
        let spec = &self.spec;
        if !spec.is_shared() {
            return self.parts.is_empty();
        }
        let slices = u64::from(spec.slices(self.above.total_pus()));
        let is_part = |part: &Part| {
            is_target_name(&part.name)
                && part.units > 0
                && (spec.placement == Placement::Isolate || part.units == 1)
                && part.end() <= slices
                && (part.keys == 0 || part.rules.is_none() && KEYS_RANGE.contains(&part.keys))
                && spec
                    .place(&self.above, part)
                    .is_ok_and(|(_, place)| place.geometry(&self.above).is_ok())
        };
        let names: BTreeSet<&str> = self.parts.iter().map(|part| part.name.as_str()).collect();
        (1..=media::MAX_TARGETS).contains(&self.parts.len())
            && (spec.placement == Placement::Isolate || spec.units.is_empty())
            && self.data_chunks().is_multiple_of(self.targets_a_unit())
            && names.len() == self.parts.len()
            && self.parts.windows(2).all(|two| two[0].end() <= two[1].first.into())
            && self.parts.iter().all(is_part)
            && self.parts.iter().any(Part::has_blocks)
            && (0..self.targets()).all(|n| self.target(n).fits())
    }

    /// Whether what a target is given is enough for it.
    fn fits(&self) -> bool {
        self.size > 0
            && self.size.is_multiple_of(TARGET_UNIT)
            && self.idle < self.above.chunk_blocks() * self.data_chunks()
            && self.size / BLOCK_BYTES < self.data_blocks()
    }

    /// Targets that have chunks of the same unit, at most.
    pub(super) fn targets_a_unit(&self) -> u32 {
        if self.spec.placement == Placement::Stripe { self.spec.targets } else { 1 }
    }

    /// How many targets it has.
    pub fn targets(&self) -> u32 {
        (self.parts.len() as u32).max(1)
    }

    /// Parts of it that are nobody's: units, or slices of the chunks of all.
    pub fn free_units(&self) -> u32 {
        let taken: u32 = self.parts.iter().map(|part| part.units).sum();
        if self.parts.is_empty() { 0 } else { self.spec.slices(self.above.total_pus()) - taken }
    }

    /// The same, in words.
    pub fn free_text(&self) -> String {
        let what = match self.spec.placement {
            Placement::Isolate => "parallel units",
            Placement::Stripe => "slices of the chunks of all units",
        };
        let all = self.spec.slices(self.above.total_pus());
        format!("{} of {all} {what}", self.free_units())
    }

    fn share(&self, target: u32) -> (Share, Place) {
        self.spec.place(&self.above, &self.parts[target as usize]).expect("it was resolved so")
    }

    /// Where a target of several lies.
    pub fn place(&self, target: u32) -> Place {
        self.share(target).1
    }

    /// What a target has of so many that all of them have.
    pub fn part_of(&self, target: u32, all: usize) -> usize {
        let (Share { parts, of }, _) = self.share(target);
        all * parts as usize / of as usize
    }

    /// Where a target's addresses begin: as far as its units do, so that they stay where
    /// they are whoever comes and goes.
    pub fn first_byte(&self, target: u32) -> u64 {
        let (Share { of, .. }, _) = self.share(target);
        let first = self.parts[target as usize].first;
        let at = (u128::from(self.size) * u128::from(first)).div_ceil(of.into()) as u64;
        at.next_multiple_of(BLOCK_BYTES)
    }

    /// The addresses that have blocks, in order: all but those of targets that keep values
    /// by key, and of nobody.
    pub fn spans(&self) -> Vec<Range<u64>> {
        let has_blocks = |n: &u32| self.parts.get(*n as usize).is_none_or(|part| part.keys == 0);
        let span = |n: u32| {
            let first = if self.parts.is_empty() { 0 } else { self.first_byte(n) };
            first..first + self.target(n).size
        };
        let mut all: Vec<Range<u64>> = (0..self.targets()).filter(has_blocks).map(span).collect();
        all.sort_by_key(|span| span.start);
        all.dedup_by(|next, before| {
            let are_neighbours = before.end == next.start;
            if are_neighbours {
                before.end = next.end;
            }
            are_neighbours
        });
        all
    }

    /// Where its addresses end: with its size, unless what comes last is nobody's or has
    /// keys.
    pub fn end(&self) -> u64 {
        self.spans().last().map_or(0, |span| span.end)
    }

    /// A target of it, on its part of the device.
    pub fn target(&self, target: u32) -> DriveConfig {
        if self.parts.is_empty() {
            return self.clone();
        }
        let (Share { parts, of }, place) = self.share(target);
        let mut one = self.clone();
        let part = &self.parts[target as usize];
        (one.spec.targets, one.spec.units, one.parts) = (1, Vec::new(), Vec::new());
        (one.name, one.spec.target) = (format!("{}: {}", self.name, part.name), part.kind());
        one.spec.keys = part.keys;
        let (rules, control) = part.ruling.clone().unzip();
        (one.rules, one.control) = (rules, control.flatten());
        one.size = (u128::from(self.size) * u128::from(parts) / u128::from(of)) as u64;
        one.above = place.geometry(&self.above).expect("it was resolved so");
        one.geometry = one.above;
        let chunks = self.data_chunks() / self.targets_a_unit();
        one.profile.dimensions = Dimensions { chunks, ..one.above.dimensions() };
        one.reserve = one.above.chunks() - chunks;
        one.has_part(parts, of);
        if self.targets_a_unit() > 1 && self.profile.timing.open_chunks_pu < u32::MAX {
            one.profile.timing.open_chunks_pu /= of;
        }
        one
    }

    /// It has so many parts of what the whole drive has once.
    pub(super) fn has_part(&mut self, parts: u32, of: u32) {
        let profile = &mut self.profile;
        let part = |all: u64| (u128::from(all) * u128::from(parts) / u128::from(of)) as u64;
        // What is said is no 0, which would be `auto`.
        let least = profile.write_buffer.min(1);
        profile.write_buffer = part(profile.write_buffer).max(least);
        profile.map_cache = part(profile.map_cache).max(profile.map_cache.min(1));
        // What one leaves, others cannot have.
        if profile.timing.open_chunks < u32::MAX {
            profile.timing.open_chunks = part(profile.timing.open_chunks.into()) as u32;
        }
    }
}
