//! How large a drive is: capacity, chunks and reserve from geometry, size, spare and
//! parity.
//!
//! `spare` is (T - U) / T: T the physical pages that hold data, U the logical
//! ones. With `size` T is exact: it need not be whole chunks, and what is left
//! of the last chunk of each unit is reserve. The target's reserve is outside T,
//! kept free, and added on top, and so is parity: with `size` the flash is larger
//! by its part, without it the drive smaller.
//!
//! Each unit has two chunks open, so that a drive of few chunks a unit cannot
//! have any spare: one that was asked for and cannot be kept is refused; a
//! profile's is raised, and the report says to what.

use flash::{Dimensions, Geometry, GeometryError, Profile, ProfileError, SlcCache};
use parity::ParityError;
use port::BLOCK_BYTES;
use port::striped::{STRIPE, share};
use targets::Victim;

use super::memory::{KEY_COUNT, MemorySpec, STREAMS, TargetKind, VICTIMS, victim_name};
use super::rules::is_name;
use super::{DriveConfig, DriveError};
use crate::fault_rules::Rules;

/// Chunks that a unit has open: for the user, and for collection.
const CHUNKS_OPEN: u128 = 2;

/// With so many chunks for data in a unit enough are closed: with fewer the
/// write amplification is off the formulas by more than 2 %, since what is in
/// the user's open chunk is of all ages.
const LEAST_CHUNKS: u128 = 6;

/// Chunks a unit that the batch target has open beside those of pblk.
const BATCH_CHUNKS: u32 = 2;

impl MemorySpec {
    /// Loads the profile and derives the drive, with the chunks that the target
    /// needs beside the data: for open chunks, free ones and metadata.
    pub fn resolve(&self) -> Result<DriveConfig, DriveError> {
        if self.is_shared() {
            return self.resolve_shared();
        }
        if self.victim != Victim::default() && self.target != TargetKind::Pblk {
            let value = victim_name(self.victim);
            return Err(DriveError::Value { key: "victim", value, takes: VICTIMS });
        }
        let (profile, chunks_given) = self.profile()?;
        self.resolve_of(profile, chunks_given)
    }

    /// The same, of this profile instead of its own, of which the chunks are given or follow
    /// from the size.
    pub(super) fn resolve_of(
        &self,
        mut profile: Profile,
        chunks_given: bool,
    ) -> Result<DriveConfig, DriveError> {
        let (mut idle, mut more) = (0, 0);
        let groups = profile.dimensions.groups;
        let shards = self.shards;
        let has_blocks = self.target == TargetKind::Pblk;
        let is_short = self.size.is_some_and(|size| size < STRIPE * u64::from(shards));
        if shards > 1 && (!has_blocks || is_short || !groups.is_multiple_of(shards)) {
            let divisors = (1..=groups).filter(|n| groups.is_multiple_of(*n));
            let divisors = divisors.map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
            return Err(DriveError::Shards { shards, divisors });
        }
        if self.keys > 0 && self.target != TargetKind::Kv {
            let value = self.keys.to_string();
            return Err(DriveError::Value { key: "keys", value, takes: KEY_COUNT });
        }
        let of_one = self.rules.is_empty() || is_name(&self.rules);
        if !of_one || !self.rules.is_empty() && self.target != TargetKind::Rules {
            let (value, takes) = (self.rules.clone(), super::rules::RULES);
            return Err(DriveError::Value { key: "rules", value, takes });
        }
        let remote = self.resolve_remote()?;
        // A unit may be of two applications: the one's writes would be the other's reads.
        if profile.has_units() && self.target == TargetKind::Rules {
            let (value, takes) = (profile.map_unit.to_string(), "4k with target=rules");
            return Err(DriveError::Value { key: "map_unit", value, takes });
        }
        if self.streams > 1 && !has_blocks {
            let value = self.streams.to_string();
            return Err(DriveError::Value { key: "streams", value, takes: STREAMS });
        }
        // As if all shards were as large as the first; so are their units.
        let even = |size| share(size, shards as usize, 0).saturating_mul(shards.into());
        if let Some(size) = self.size {
            let size = even(size);
            let given = chunks_given.then_some(profile.dimensions.chunks);
            profile.dimensions.chunks = 1;
            let one = above(&without_slc(&profile).check()?, self.parity)?;
            let blocks = self.blocks_for(size, profile.spare, &one)?;
            let chunks = blocks.div_ceil(u64::from(one.chunk_blocks()));
            profile.dimensions.chunks = whole_chunks(chunks, size, profile.spare, given)?;
            if has_blocks {
                idle = (chunks * u64::from(one.chunk_blocks()) - blocks) as u32;
            }
            if given.is_none() && self.parity == 0 {
                let groups = groups / shards;
                let dimensions = Dimensions { groups, ..profile.dimensions };
                let of_shard = Profile { dimensions, ..without_slc(&profile) };
                more = more_for_bad_chunks(&of_shard, size / u64::from(shards));
            }
        }
        let checked = without_slc(&profile).check().map_err(|e| match e {
            // It follows from the size.
            ProfileError::Geometry { source, .. } if self.size.is_some() && !chunks_given => {
                DriveError::TooLarge { source }
            }
            e => e.into(),
        })?;
        profile.check()?;
        let data = above(&checked, self.parity)?;
        let size = match self.size {
            Some(size) => size,
            None => {
                let size = logical_blocks(data.blocks(), profile.spare)? * BLOCK_BYTES;
                // All shards are of one size.
                if shards > 1 { size - size % (STRIPE * u64::from(shards)) } else { size }
            }
        };
        let of_shard = above(&part(&checked, shards), self.parity)?;
        let of_target = targets::reserve_chunks(&of_shard.dimensions(), self.streams);
        let mut reserve = of_target.saturating_add(more);
        match self.target {
            TargetKind::Pblk => {}
            TargetKind::Batch => reserve = reserve.saturating_add(BATCH_CHUNKS),
            TargetKind::Kv => {
                let own = targets::kv::reserve_chunks(&of_shard, self.keys_of(size));
                reserve = own.saturating_add(more);
            }
            TargetKind::Rules => reserve = ruled::RESERVE.saturating_add(more),
        }
        let chunks = data.chunks().saturating_add(reserve);
        let geometry = Geometry::new(Dimensions { chunks, ..profile.dimensions })
            .map_err(|source| DriveError::TooLarge { source })?;
        let above = above(&geometry, self.parity)?;
        // What the target keeps free is not lent.
        profile.timing.slc.kept = reserve;
        let name = self.to_string();
        let spec = self.clone();
        let is_ruled = self.target == TargetKind::Rules;
        let ruling = is_ruled.then(|| super::rules::resolve(&self.rules, size, &above));
        let (rules, control) = ruling.transpose()?.unzip();
        Ok(DriveConfig {
            name,
            spec,
            profile,
            size,
            idle,
            reserve,
            geometry,
            above,
            rules,
            control: control.flatten(),
            remote,
            faults: Rules::default(),
            parts: Vec::new(),
        })
    }

    /// The blocks of each unit that hold data, so that less the spare they are
    /// `size` bytes. `one` is the geometry with one chunk. A unit needs its open
    /// chunks beside what is closed: where that is more than the spare, one that
    /// was asked for is refused.
    fn blocks_for(&self, size: u64, spare: f64, one: &Geometry) -> Result<u64, DriveError> {
        let pus = u128::from(one.total_pus());
        let user = u128::from(size / BLOCK_BYTES);
        let blocks = (user * 1_000_000_000).div_ceil(left_of(spare)).div_ceil(pus);
        let chunk = u128::from(one.chunk_blocks());
        let least = least_blocks(user.div_ceil(pus), chunk);
        let too_large = |_| DriveError::TooLarge {
            source: GeometryError::Range {
                what: "chunks",
                value: u64::try_from(blocks.max(least) / chunk).unwrap_or(u64::MAX),
                range: "1 to 16777216",
            },
        };
        let is_asked = self.overrides.iter().any(|(key, _)| key == "spare");
        if blocks < least && is_asked && self.target == TargetKind::Pblk {
            let of = |blocks: f64| (blocks * (1.0 - spare)) as u64;
            let (open, some) = (CHUNKS_OPEN as f64, LEAST_CHUNKS as f64);
            let nearest_size = of((chunk * pus) as f64 * (open / spare).min(some)) * BLOCK_BYTES;
            return Err(DriveError::Spare {
                spare,
                size,
                pus: one.total_pus(),
                parity: self.parity,
                chunk: chunk as u64 * BLOCK_BYTES,
                nearest: ((1.0 - user as f64 / (least * pus) as f64) * 1e4).ceil() / 1e4,
                nearest_size: (nearest_size + 2 * pus as u64 * BLOCK_BYTES)
                    .next_multiple_of(1 << 20),
            });
        }
        u64::try_from(blocks.max(least)).map_err(too_large)
    }
}

/// The units that a target fills, so many, and what they are filled by: with parity groups of
/// units and superblocks.
pub(super) fn units_in_words(pus: u32, parity: u32) -> (String, &'static str) {
    match (pus, parity) {
        (1, 0) => ("the one parallel unit".into(), "chunks"),
        (_, 0) => (format!("{pus} parallel units"), "chunks"),
        (1, _) => (format!("the one group of {parity} units"), "superblocks"),
        _ => (format!("{pus} groups of {parity} units"), "superblocks"),
    }
}

/// The same without its SLC cache, which may be held against all chunks only.
pub(super) fn without_slc(profile: &Profile) -> Profile {
    let mut without = profile.clone();
    without.timing.slc = SlcCache::default();
    without
}

/// The fewest blocks of a unit that hold data, of which `user` are logical, in
/// chunks of `chunk`: with fewer nothing would be closed to be collected.
fn least_blocks(user: u128, chunk: u128) -> u128 {
    (user + CHUNKS_OPEN * chunk).min(LEAST_CHUNKS * chunk)
}

/// The geometry of one of some shards, whose number divides the groups.
pub(super) fn part(geometry: &Geometry, shards: u32) -> Geometry {
    let groups = geometry.dimensions().groups / shards;
    Geometry::new(Dimensions { groups, ..geometry.dimensions() }).expect("fewer groups will do")
}

/// What a target on a drive of this geometry sees, with parity of a width or
/// none.
pub(super) fn above(geometry: &Geometry, parity: u32) -> Result<Geometry, ParityError> {
    match parity {
        0 => Ok(*geometry),
        width => parity::geometry(geometry, width),
    }
}

/// Parts of a billion that the spare leaves: whole numbers keep `spare=0.7` of
/// ten blocks at three blocks.
fn left_of(spare: f64) -> u128 {
    1_000_000_000 - (spare * 1e9).round() as u128
}

/// U for T blocks, rounded down.
fn logical_blocks(data: u64, spare: f64) -> Result<u64, DriveError> {
    let blocks = (u128::from(data) * left_of(spare) / 1_000_000_000) as u64;
    if blocks == 0 {
        return Err(DriveError::Empty { spare, blocks: data });
    }
    Ok(blocks)
}

/// `derived` chunks a parallel unit. Refused when `given` is another number.
fn whole_chunks(
    derived: u64,
    size: u64,
    spare: f64,
    given: Option<u32>,
) -> Result<u32, DriveError> {
    match given {
        Some(given) if u64::from(given) != derived => {
            Err(DriveError::Contradiction { size, spare, derived, given })
        }
        _ => u32::try_from(derived).map_err(|_| DriveError::TooLarge {
            source: GeometryError::Range { what: "chunks", value: derived, range: "1 to 16777216" },
        }),
    }
}

/// Chunks a parallel unit to be added to the reserve where so many may be bad
/// from the factory that a drive of this size has no room to be written: a small
/// one, of few chunks. As many as are expected, and six deviations.
fn more_for_bad_chunks(profile: &Profile, size: u64) -> u32 {
    let share = match &profile.reliability {
        // Bad on any of the channels that share a chunk, at most.
        model if model.errors => model.factory_bad * f64::from(profile.timing.channel_split),
        _ => return 0,
    };
    let dim = profile.dimensions;
    let pus = u64::from(dim.groups) * u64::from(dim.pus);
    let Ok(data) = profile.check() else { return 0 };
    let full = size.div_ceil(u64::from(data.chunk_blocks()) * BLOCK_BYTES);
    let enough = |more: &u32| {
        let all = u64::from(dim.chunks)
            + u64::from(targets::reserve_chunks(&dim, 1).saturating_add(*more));
        let expected = (pus * all) as f64 * share;
        let bad = (expected + 6.0 * expected.sqrt()).ceil() as u64;
        // With no more than one a unit beside those that are full of data it can
        // only be read.
        pus * u64::from(dim.chunks + more) > full + pus + bad
    };
    // A drive of which most is bad cannot be made up for.
    if share == 0.0 { 0 } else { (0..=dim.chunks.max(64)).find(enough).unwrap_or(0) }
}
