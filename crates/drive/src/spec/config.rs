//! A drive with all its numbers.

use std::sync::Arc;

use drivefile::CacheMode;
use flash::{Geometry, Profile};
use port::BLOCK_BYTES;
use port::striped::share;
use ruled::ControlPlane;
use rules::Checked;
use serde_json::{Value, json};

use super::capacity::{part, units_in_words};
use super::error::DriveError;
use super::memory::{Cache, MemorySpec, TargetKind, placement_name, victim_name};
use super::value::show_size;
use super::{NbdDrive, Part};
use crate::fault_rules::Rules;

/// A drive with all its numbers.
#[derive(Clone, Debug)]
pub struct DriveConfig {
    /// The name it came from.
    pub name: String,
    /// What is stored, and how victims are chosen.
    pub spec: MemorySpec,
    /// The profile with all keys set. Its `chunks` are those that hold data.
    pub profile: Profile,
    /// Logical capacity in bytes (U), a multiple of 4 KiB.
    pub size: u64,
    /// Blocks a parallel unit, of a target's chunks that hold data, that hold none.
    pub idle: u32,
    /// Chunks a parallel unit on top of those that hold data.
    pub reserve: u32,
    /// The geometry of the device: data and reserve.
    pub geometry: Geometry,
    /// What the target sees: that, or with parity fewer and larger units.
    pub above: Geometry,
    /// The set of a drive of rules.
    pub rules: Option<Arc<Checked>>,
    /// Who is asked what that leaves open; nobody unless it was asked for.
    pub control: Option<ControlPlane>,
    /// The remote drive of a drive of rules, if it has one.
    pub remote: Option<RemoteConfig>,
    /// What goes wrong in it on purpose; nothing unless it was asked for.
    pub faults: Rules,
    /// What each of several targets has, in the order of their units; empty where one has all.
    pub parts: Vec<Part>,
}

/// A remote drive with all its numbers.
#[derive(Clone, Debug)]
pub enum RemoteConfig {
    /// One in memory, made with the drive.
    Memory(Box<DriveConfig>),
    /// One that is served, for a drive on a clock.
    Nbd {
        /// Where.
        served: NbdDrive,
        /// Whether the drive is.
        on_a_clock: bool,
    },
}

impl DriveConfig {
    /// A shard of it: a part of its groups and of its addresses.
    pub fn shard(&self, shard: u32) -> DriveConfig {
        let shards = self.spec.shards;
        if shards == 1 {
            return self.clone();
        }
        let mut one = self.clone();
        one.spec.shards = 1;
        one.size = share(self.size, shards as usize, shard as usize);
        one.profile.dimensions.groups /= shards;
        one.profile.energy.idle /= u64::from(shards);
        one.has_part(1, shards);
        let slc = &mut one.profile.timing.slc;
        (slc.size, slc.own) = (slc.size.part(shards), slc.own.part(shards));
        one.geometry = part(&self.geometry, shards);
        one.above = match self.spec.parity {
            0 => one.geometry,
            width => parity::geometry(&one.geometry, width).expect("it was resolved so"),
        };
        one
    }

    /// The remote drive, if it is in memory.
    pub fn remote_in_memory(&self) -> Option<&DriveConfig> {
        match &self.remote {
            Some(RemoteConfig::Memory(config)) => Some(config),
            _ => None,
        }
    }

    /// Its time is to be a clock's: its remote drive may be one that is served.
    pub fn set_on_a_clock(&mut self) {
        match &mut self.remote {
            Some(RemoteConfig::Memory(config)) => config.set_on_a_clock(),
            Some(RemoteConfig::Nbd { on_a_clock, .. }) => *on_a_clock = true,
            None => {}
        }
    }

    /// Chunks a parallel unit that hold data (T).
    pub fn data_chunks(&self) -> u32 {
        self.profile.dimensions.chunks
    }

    /// Chunks a parallel unit in all.
    pub fn total_chunks(&self) -> u32 {
        self.geometry.chunks()
    }

    /// What a file of it does with its writes, and with how large a journal: a
    /// sixteenth of the drive, from 8 to 32 MiB. What that holds is written
    /// again after a cut, and each half of it costs a flush in the drive.
    pub fn cache_mode(&self) -> CacheMode {
        match self.spec.cache {
            Cache::Volatile => CacheMode::Volatile,
            Cache::Protected => {
                let journal = (self.size / 16).clamp(8 << 20, 32 << 20);
                CacheMode::Protected { journal: journal.next_multiple_of(4096) }
            }
        }
    }

    /// Keys that a drive with `target=kv` has room for.
    pub fn keys(&self) -> u64 {
        self.spec.keys_of(self.size)
    }

    /// Physical blocks that hold data (T), without those that hold parity.
    pub fn data_blocks(&self) -> u64 {
        let chunk = u64::from(self.above.chunk_blocks());
        let idle = u64::from(self.idle) * u64::from(self.targets_a_unit());
        let of_unit = u64::from(self.data_chunks()) * chunk - idle;
        u64::from(self.above.total_pus()) * of_unit
    }

    /// What to take instead, where too many chunks are bad from the factory.
    pub fn with_more_chunks(&self) -> String {
        match self.spec.parity {
            0 => format!("name size={} and leave out chunks, so that", show_size(self.size)),
            _ => "take more spare, or a larger size, so that".into(),
        }
    }

    /// Bytes of flash, of those in the geometry, that parity takes.
    pub fn parity_bytes(&self) -> u64 {
        (self.geometry.blocks() - self.above.blocks()) * BLOCK_BYTES
    }

    /// Logical blocks (U).
    pub fn logical_blocks(&self) -> u64 {
        self.size / BLOCK_BYTES
    }

    /// (T - U) / T as it came out: that of the name or the profile, but for a
    /// block a unit, or more where a unit's open chunks need it.
    pub fn spare(&self) -> f64 {
        let data = self.data_blocks();
        (data - self.logical_blocks()) as f64 / data as f64
    }

    /// Why it has more spare than its profile, where nobody asked for it.
    pub fn raised_spare(&self) -> Option<String> {
        let (spare, of_profile) = (self.spare(), self.profile.spare);
        if self.spec.overrides.iter().any(|(key, _)| key == "spare") {
            return None;
        }
        // Whole blocks a unit raise it a little, which is no more than was asked for.
        let mut asked = self.spec.clone();
        asked.overrides.push(("spare".into(), of_profile.to_string()));
        // A drive file's profile is its own, whatever is called so.
        let is_named = !self.spec.overrides.is_empty() || self.spec.is_shared();
        let resolved = match is_named {
            true => asked.resolve(),
            false => asked.resolve_of(self.profile.clone(), false),
        };
        let Err(DriveError::Spare { .. }) = resolved else { return None };
        let pus = self.above.total_pus();
        let logical =
            self.logical_blocks() as f64 / f64::from(pus) / f64::from(self.above.chunk_blocks());
        let (units, chunks) = units_in_words(pus, self.spec.parity);
        let each = if pus == 1 { "" } else { "each of " };
        Some(format!(
            "{spare:.4}, not the profile's {of_profile}: of so small a drive {each}{units} holds \
             {logical:.1} {chunks}, and has two open beside them",
        ))
    }

    /// Units of each target, where somebody said how many.
    fn units(&self) -> Vec<u32> {
        let is_said = !self.spec.units.is_empty();
        self.parts.iter().filter(|_| is_said).map(|part| part.units).collect()
    }

    /// What each of several targets is and has.
    fn parts_json(&self) -> Vec<Value> {
        let part = |(n, part): (u32, &Part)| {
            let mut json = json!(part);
            json["target"] = part.kind().name().into();
            json["size_bytes"] = self.target(n).size.into();
            json["first_byte"] = self.first_byte(n).into();
            json
        };
        (0..).zip(&self.parts).map(part).collect()
    }

    /// The effective configuration, for reports: every number, none implied.
    pub fn effective(&self) -> Value {
        let spec = &self.spec;
        let mut json = json!({
            "name": self.name,
            "size_bytes": self.size,
            "address_bytes": self.end(),
            "spare": self.spare(),
            "data_bytes": self.data_blocks() * BLOCK_BYTES,
            "physical_bytes": self.geometry.blocks() * BLOCK_BYTES,
            "parallel_units": self.geometry.total_pus(),
            "chunk_bytes": u64::from(self.geometry.chunk_blocks()) * BLOCK_BYTES,
            "data_chunks_per_pu": self.data_chunks(),
            "idle_blocks_per_pu": self.idle * self.targets_a_unit(),
            "reserve_chunks_per_pu": self.reserve,
            "total_chunks_per_pu": self.total_chunks(),
            "store": spec.store.name(),
            "target": self.kinds_text(),
            "victim": victim_name(spec.victim),
            "streams": spec.streams,
            "cache": spec.cache.name(),
            "shards": spec.shards,
            "targets": self.targets(),
            "placement": placement_name(spec.placement),
            "units": self.units(),
            "parts": self.parts_json(),
            "profile": self.profile.to_table(),
        });
        if spec.target == TargetKind::Kv {
            json["keys"] = self.keys().into();
        }
        if let Some(rules) = &self.rules {
            let set = rules.set();
            json["rules"] = json!({
                "set": set.name.text,
                "applications": set.applications.len(),
                "rules": set.rules.len(),
                "text": set.to_string(),
            });
        }
        match &self.remote {
            Some(RemoteConfig::Memory(config)) => json["remote"] = config.effective(),
            Some(RemoteConfig::Nbd { served, .. }) => {
                json["remote"] = json!({ "name": served.to_string() });
            }
            None => {}
        }
        if spec.parity > 0 {
            json["parity"] = json!({
                "width": spec.parity,
                "bytes": self.parity_bytes(),
                "superblock_bytes": u64::from(self.above.chunk_blocks()) * BLOCK_BYTES,
            });
        }
        if !self.faults.is_empty() {
            json["faults"] = self.faults.to_json();
        }
        json
    }
}
