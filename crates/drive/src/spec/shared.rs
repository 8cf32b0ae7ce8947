//! A drive of several targets: which units and chunks each has, how large each is, and what
//! it has of all that the drive has once.
//!
//! Targets with units of their own ([`Placement::Isolate`]) have as many as the name says
//! (`units=`), or as many as each other; of addresses, buffers and map cache each has as
//! large a part as of the units. Those that have some chunks of every unit
//! ([`Placement::Stripe`]) are all alike. Fails where that does not come out even, or a
//! target is too small for what it keeps for itself.

use flash::{Dimensions, Geometry, Profile};
use media::{Place, Placement};
use port::BLOCK_BYTES;

use super::capacity::without_slc;
use super::memory::{MemorySpec, TargetKind};
use super::{DriveConfig, DriveError};
use crate::fault_rules::Rules;

/// Bytes of which each of several targets has a multiple.
const TARGET_UNIT: u64 = 1 << 20;

/// What a target has of a drive: so many of so many parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    parts: u32,
    of: u32,
}

impl MemorySpec {
    /// The units of each target, where each has some of its own; none where those do not
    /// come out even.
    fn units_of(&self, all: u32) -> Option<Vec<u32>> {
        if !self.units.is_empty() {
            let sum: u64 = self.units.iter().map(|&units| u64::from(units)).sum();
            return (sum == u64::from(all)).then(|| self.units.clone());
        }
        let each = all / self.targets;
        all.is_multiple_of(self.targets).then(|| vec![each; self.targets as usize])
    }

    /// What each target has, and where, of a drive of this geometry; or why that cannot be.
    fn places(&self, geometry: &Geometry) -> Result<Vec<(Share, Place)>, String> {
        let all = geometry.total_pus();
        if self.placement == Placement::Stripe {
            let share = Share { parts: 1, of: self.targets };
            let place = |n| self.placement.place(geometry, self.targets, n);
            let places =
                (0..self.targets).map(|n| Ok((share, place(n).map_err(|e| e.to_string())?)));
            return places.collect();
        }
        let uneven = || match self.units.is_empty() {
            true => format!(
                "{all} parallel units cannot be shared evenly: take a divisor of {all}, or say units="
            ),
            false => format!("the drive has {all} parallel units: take units= that are as many"),
        };
        let mut first = 0;
        let units = self.units_of(all).ok_or_else(uneven)?;
        let place = |parts: u32| {
            let units = first..first + parts;
            first = units.end;
            let place = Place { units: units.collect(), chunks: 0..geometry.chunks() };
            (Share { parts, of: all }, place)
        };
        Ok(units.into_iter().map(place).collect())
    }

    /// A drive of several targets: each as if it were a drive, and together what all of them
    /// need.
    pub(super) fn resolve_shared(&self) -> Result<DriveConfig, DriveError> {
        let wrong = |why: String| DriveError::Targets { targets: self.targets, why };
        for (is_there, what) in [
            (self.shards > 1, "shards"),
            (self.parity > 0, "parity"),
            (self.target == TargetKind::Batch, "target=batch"),
            (self.target == TargetKind::Kv, "target=kv"),
            (self.target == TargetKind::Rules, "target=rules"),
        ] {
            if is_there {
                return Err(wrong(format!("{what} is for a drive of one target")));
            }
        }
        if self.placement == Placement::Stripe && !self.units.is_empty() {
            return Err(wrong("units are for placement=isolate".into()));
        }
        let (mut profile, chunks_given) = self.profile()?;
        if self.size.is_some() && !chunks_given {
            // They follow from the size: here as many as are shared evenly.
            profile.dimensions.chunks = self.targets;
        }
        // The cache is the whole drive's.
        let without = without_slc(&profile);
        let places = self.places(&without.check()?).map_err(wrong)?;
        let each: Vec<_> = (places.iter())
            .map(|(share, place)| self.resolve_one(*share, place, &without, chunks_given))
            .collect::<Result<_, _>>()?;
        let most = |of: fn(&DriveConfig) -> u32| each.iter().map(of).max().unwrap_or(0);
        let (data, reserve) = (most(DriveConfig::data_chunks), most(|one| one.reserve));
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
        let (name, spec, idle) = (self.to_string(), self.clone(), idle.unwrap_or(0));
        let (above, faults) = (geometry, Rules::default());
        Ok(DriveConfig {
            name,
            spec,
            profile,
            size,
            idle,
            reserve,
            geometry,
            above,
            rules: None,
            control: None,
            faults,
        })
    }

    /// One target, as if it were a drive.
    fn resolve_one(
        &self,
        share: Share,
        place: &Place,
        profile: &Profile,
        chunks_given: bool,
    ) -> Result<DriveConfig, DriveError> {
        let wrong = |why: String| DriveError::Targets { targets: self.targets, why };
        let mut one = MemorySpec { targets: 1, units: Vec::new(), ..self.clone() };
        one.placement = Placement::default();
        if let Some(size) = self.size {
            let parts = u128::from(size) * u128::from(share.parts);
            if !parts.is_multiple_of(u128::from(share.of) * u128::from(TARGET_UNIT)) {
                return Err(wrong(format!(
                    "each has whole MiB: take a size of so many times {}",
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
    /// Whether its targets can share it so: each has whole MiB, and room for them.
    pub(super) fn is_even(&self) -> bool {
        let spec = &self.spec;
        let is_shared = spec.targets > 1
            && (spec.placement == Placement::Isolate || spec.units.is_empty())
            && self.data_chunks().is_multiple_of(self.targets_a_unit())
            && spec.places(&self.above).is_ok();
        let fits = |one: DriveConfig| {
            one.size > 0
                && one.size.is_multiple_of(TARGET_UNIT)
                && one.idle < one.above.chunk_blocks() * one.data_chunks()
                && one.size / BLOCK_BYTES < one.data_blocks()
        };
        spec.targets == 1 || is_shared && (0..spec.targets).all(|n| fits(self.target(n)))
    }

    /// Targets that have chunks of the same unit.
    pub(super) fn targets_a_unit(&self) -> u32 {
        if self.spec.placement == Placement::Stripe { self.spec.targets } else { 1 }
    }

    fn share(&self, target: u32) -> (Share, Place) {
        let places = self.spec.places(&self.above).expect("it was resolved so");
        places.into_iter().nth(target as usize).expect("there is such a target")
    }

    /// Where a target of several lies.
    pub fn place(&self, target: u32) -> Place {
        self.share(target).1
    }

    /// A target of it, on its part of the device.
    pub fn target(&self, target: u32) -> DriveConfig {
        if self.spec.targets == 1 {
            return self.clone();
        }
        let (Share { parts, of }, place) = self.share(target);
        let mut one = self.clone();
        (one.spec.targets, one.spec.units) = (1, Vec::new());
        one.size = self.size / u64::from(of) * u64::from(parts)
            + self.size % u64::from(of) * u64::from(parts) / u64::from(of);
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
