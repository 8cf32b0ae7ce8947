//! Targets that keep values by key beside targets of blocks.
//!
//! Such a target has units, and no addresses: those of its units are nobody's. It is asked
//! by key under its number, beside the block drive, and pays no link there: whoever asks has
//! one before it ([`crate::lower::link_above`]). Fails where the drive has what such requests
//! would go past.

use device::OpenChannel;
use ftl::OneOf;
use media::MediaError;
use port::{KvDone, KvReq, Ring, Time};
use targets::{Kv, KvTenant};

use super::{Part, Shared};
use crate::error::Error;
use crate::kv::{set_up, why};
use crate::spec::{Cache, DriveConfig};

/// Refuses what requests by key would go past: it is before the targets of blocks alone.
pub(crate) fn refuse_layers(config: &DriveConfig, who: &str) -> Result<(), String> {
    let profile = &config.profile;
    let what = match () {
        () if config.spec.cache != Cache::Volatile => "protected cache",
        () if profile.buffer_rate > 0 => "buffer with a rate (buffer_rate=)",
        () if profile.queues.is_on() => "submission queues (queues=, queue_depth=)",
        () if profile.power.is_on() => "power states (sleep_after=, thermal_resistance=)",
        () if profile.has_units() => "mapping unit of its own (map_unit=)",
        () => return Ok(()),
    };
    Err(format!("{who} would be asked past the drive's {what}: leave that out"))
}

/// A target on its part: new, or found again from some time on.
pub(super) fn start(
    config: &DriveConfig,
    seed: u64,
    part: Part,
    found: Option<Time>,
) -> Result<(KvTenant<Part>, Time), Error> {
    let set_up = set_up(config, seed, part.geometry());
    let started = match found {
        Some(now) => Kv::recover(part, set_up, now),
        None => Kv::new(part, set_up).map(|target| (target, Time::ZERO)),
    };
    let (target, ready) = started.map_err(|e| why(config, e))?;
    Ok((KvTenant::new(target), ready))
}

impl Shared {
    /// A target that keeps values by key; nothing where it has blocks, or is damaged.
    pub fn keyed(&self, number: usize) -> Option<&KvTenant<Part>> {
        if self.is_damaged(number) || self.targets.is_gone(number) {
            return None;
        }
        match self.targets.target(number) {
            OneOf::Second(OneOf::Second(target)) => Some(target),
            OneOf::First(_) | OneOf::Second(OneOf::First(_)) => None,
        }
    }

    /// Takes a prefix of requests by key for a target. What stays has no room there until
    /// completions were [taken](Shared::take_keys), after the drive's events.
    ///
    /// Fails where it serves no keys.
    pub fn submit_keys(
        &mut self,
        number: usize,
        now: Time,
        reqs: &mut Ring<KvReq>,
    ) -> Result<(), MediaError> {
        self.targets.submit_keys(number, now, reqs)
    }

    /// Gives what completed of a target's requests by key, as far as there is room.
    ///
    /// Fails where it has no keys.
    pub fn take_keys(&mut self, number: usize, done: &mut Ring<KvDone>) -> Result<(), MediaError> {
        self.targets.take_keys(number, done)
    }
}

#[cfg(test)]
mod tests;
