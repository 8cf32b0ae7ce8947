//! Targets that come and go: the drive that there is with one more, or one less.
//!
//! Guarantees: a new one lies where nobody is, under a name that is free, and has what one of
//! as many units has had from the beginning; all others stay as they are. Fails with what
//! cannot be, and what to do instead.

use measure::units::size_binary;
use media::Placement;
use port::BLOCK_BYTES;

use super::{Part, TARGET_UNIT, target_name};
use crate::spec::memory::KEYS_RANGE;
use crate::spec::rules::resolve_text;
use crate::spec::{DriveConfig, DriveError};

/// What a new target is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewTarget<'a> {
    /// Page-mapped.
    Pblk,
    /// Made of rules: a template, or their text.
    Rules(&'a str),
    /// One that keeps values by key, with room for so many; 0 for one for each 4 KiB of its
    /// size.
    Kv(u64),
}

/// Characters of a target's name, at most.
const MOST_NAME: usize = 64;

/// Whether a target can be called so.
pub fn is_target_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=MOST_NAME).contains(&name.len())
        && name.bytes().all(fits)
        && name.as_bytes()[0].is_ascii_alphanumeric()
        && name != WHOLE
}

/// What the whole drive is called beside its targets.
const WHOLE: &str = "ssdkit";

/// The fewest units of `of` that have whole MiB of so many bytes.
fn whole_units(size: u64, of: u64) -> u64 {
    let is_whole = |units: &u64| {
        let bytes = u128::from(size) * u128::from(*units);
        bytes.is_multiple_of(u128::from(of) * u128::from(TARGET_UNIT))
    };
    (1..=of).find(is_whole).unwrap_or(of)
}

impl DriveConfig {
    /// The same drive with another target: of so many units, at the first place that is wide
    /// enough. Gives which one it is. Fails with what cannot be, and what to do.
    pub fn with_target(
        &self,
        name: Option<&str>,
        units: Option<u32>,
        kind: NewTarget<'_>,
    ) -> Result<(DriveConfig, u32), String> {
        let is_free = |name: &str| self.parts.iter().all(|part| part.name != name);
        let name = match name {
            Some(name) if !is_target_name(name) => {
                return Err(format!(
                    "`{name}` is no name for a target: take 1 to {MOST_NAME} letters, digits, \
                     dots, dashes or underscores, beginning with a letter or digit, and not {WHOLE}"
                ));
            }
            Some(name) if !is_free(name) => {
                return Err(format!("there is a target {name} already: take another name"));
            }
            Some(name) => name.to_string(),
            None => (0..).map(target_name).find(|name| is_free(name)).expect("they are few"),
        };
        if self.parts.len() == media::MAX_TARGETS {
            return Err(format!("the drive has {} targets, and no more", media::MAX_TARGETS));
        }
        let is_striped = self.spec.placement == Placement::Stripe;
        let units = match units {
            Some(_) if is_striped => {
                let text = "its targets have chunks of all units, as many each: leave --units out";
                return Err(text.into());
            }
            None if is_striped => 1,
            None => return Err("say how many parallel units it is to have: --units N".into()),
            Some(0) => return Err("a target needs a parallel unit at least".into()),
            Some(units) => units,
        };
        let Some(first) = self.gap(units) else {
            let free = self.free_units();
            return Err(match is_striped {
                true => "all its chunks are of targets: remove one first".into(),
                false => format!(
                    "there are no {units} parallel units beside each other that are nobody's, \
                     of {free} that are: take fewer, or remove a target first"
                ),
            });
        };
        let mut next = self.clone();
        let at = next.parts.iter().filter(|part| part.first < first).count();
        next.parts.insert(at, Part::new(name, first, units));
        if next.place(at as u32).geometry(&self.above).is_err() {
            let text = "no drive is made of so many units of groups that have not as many each";
            return Err(format!("{text}: take 256 at most, or whole groups"));
        }
        let one = next.target(at as u32);
        if !one.size.is_multiple_of(TARGET_UNIT) || one.size == 0 {
            let of = u64::from(self.spec.slices(self.above.total_pus()));
            return Err(format!(
                "each target has whole MiB, and {units} parallel units have {}: take a multiple of \
                 {} units",
                size_binary(one.size),
                whole_units(self.size, of),
            ));
        }
        if !next.is_even() {
            return Err("so few units have no room for what a target keeps for itself".into());
        }
        next.make(at as u32, kind)?;
        Ok((next, at as u32))
    }

    /// Makes a page-mapped target what it is to be.
    fn make(&mut self, n: u32, kind: NewTarget<'_>) -> Result<(), String> {
        match kind {
            NewTarget::Pblk => Ok(()),
            NewTarget::Rules(_) if self.profile.has_units() => {
                Err("it maps units of several blocks, and rules decide of each".into())
            }
            NewTarget::Rules(rules) => self.rule(n, rules, resolve_text).map_err(|e| match e {
                DriveError::Template { name, source } => format!("--rules {name}: {source}"),
                e => e.to_string(),
            }),
            NewTarget::Kv(keys) => self.key(n, keys),
        }
    }

    /// Makes a target one that keeps values by key, with room for so many.
    fn key(&mut self, n: u32, keys: u64) -> Result<(), String> {
        crate::shared::refuse_layers(self, "a target that keeps values by key")?;
        let one = self.target(n);
        let keys = if keys == 0 { one.size / BLOCK_BYTES } else { keys };
        if !KEYS_RANGE.contains(&keys) {
            return Err(format!("--keys {keys}: take 1 to {}", KEYS_RANGE.end()));
        }
        let needed = targets::kv::reserve_chunks(&one.above, keys);
        if needed > one.reserve {
            return Err(format!(
                "{keys} keys need {needed} chunks of each unit beside the values, and the drive's \
                 targets have {}: take more units, or fewer keys with --keys",
                one.reserve
            ));
        }
        self.parts[n as usize].keys = keys;
        Ok(())
    }

    /// The same drive without a target.
    pub fn without_target(&self, name: &str) -> Result<DriveConfig, String> {
        let mut next = self.clone();
        next.parts.retain(|part| part.name != name);
        if next.parts.len() == self.parts.len() {
            return Err(format!("there is no target {name}: `target list` tells them"));
        }
        if next.parts.is_empty() {
            return Err(format!("{name} is the only target, and a drive has one at least"));
        }
        if !next.parts.iter().any(Part::has_blocks) {
            return Err(format!(
                "{name} is the only target with blocks, and a drive of several has one at least"
            ));
        }
        Ok(next)
    }

    /// The first place for so many units beside each other.
    fn gap(&self, units: u32) -> Option<u32> {
        let end = u64::from(self.spec.slices(self.above.total_pus()));
        let mut at = 0;
        for part in &self.parts {
            if at + u64::from(units) <= part.first.into() {
                break;
            }
            at = part.end();
        }
        (at + u64::from(units) <= end).then_some(at as u32)
    }
}
