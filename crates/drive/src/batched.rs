//! Drives with batched writes: `target=batch`.
//!
//! Such a drive has pages by number and no blocks ([`targets::Batch`]), so it
//! is served as a key-value store only. One in a file is made new when it is
//! first started, and at no other time unless asked, and found again later; its set-up follows from the drive's
//! configuration. May fail: the drive is too small or has layers that its kind
//! cannot have, or what it holds cannot be recovered.

use std::time::Instant;

use device::Device;
use port::{BLOCK_BYTES, BatchDone, Port, Ring, Time};
use targets::{Batch, BatchConfig, BatchError};

use crate::backing::Backing;
use crate::error::Error;
use crate::memory;
use crate::patience::Patience;
use crate::restore::Recovery;
use crate::spec::{Cache, DriveConfig, Store, TargetKind};
use crate::stack::new_device;

/// Part of the flash that the drive keeps for itself.
const SPARE: f64 = 0.1;

/// Completions that are taken at a time while a drive is ended.
const DONE: usize = 64;

/// Whether there can be such a drive, wherever its bytes are.
pub fn check(config: &DriveConfig, seed: u64) -> Result<(), Error> {
    let medium = memory::medium(config, BLOCK_BYTES as u32)?;
    start(config, new_device(config, seed, medium.into())?).map(drop)
}

/// Makes a new drive on a device that holds nothing.
pub fn start(
    config: &DriveConfig,
    device: Device<Backing>,
) -> Result<Batch<Device<Backing>>, Error> {
    open(config, device, true)
}

fn open(
    config: &DriveConfig,
    device: Device<Backing>,
    may_be_new: bool,
) -> Result<Batch<Device<Backing>>, Error> {
    refuse_layers(config)?;
    let most = BatchConfig::for_geometry(&config.geometry, SPARE);
    let set_up = BatchConfig { pages: (config.size / BLOCK_BYTES).min(most.pages), ..most };
    let opened = match may_be_new {
        true => Batch::open(device, set_up, Time::ZERO),
        false => Batch::find(device, set_up, Time::ZERO),
    };
    opened.map_err(|e| {
        let text = format!("{}: {e}", config.name);
        match e {
            BatchError::Range { .. }
            | BatchError::Capacity { .. }
            | BatchError::Small { .. }
            | BatchError::Cache { .. }
            | BatchError::Unreadable(_)
            | BatchError::Row(_)
            | BatchError::Slots => Error::Usage(text),
            BatchError::Nothing => Error::Usage(format!(
                "{} was used before and has nothing on it now: add --destroy to make a new store",
                config.name
            )),
            _ => Error::Failed(text),
        }
    })
}

/// Starts what a device holds, or a new drive where that may be; and tells how
/// it was found.
pub fn recover(
    config: &DriveConfig,
    device: Device<Backing>,
    clean: bool,
    may_be_new: bool,
) -> Result<(Batch<Device<Backing>>, Recovery), Error> {
    let began = Instant::now();
    let target = open(config, device, may_be_new)?;
    let (wall, drive) = (began.elapsed(), target.now());
    Ok((target, Recovery { wall, drive, clean, journal: None }))
}

/// Refuses what such a drive cannot have.
pub fn refuse_layers(config: &DriveConfig) -> Result<(), Error> {
    let what = match &config.spec {
        spec if spec.parity > 0 => "parity",
        spec if spec.cache != Cache::Volatile => "protected cache",
        spec if spec.store != Store::Memory => "other store than memory",
        _ if !config.faults.is_empty() => "--fault",
        _ => return Ok(()),
    };
    Err(Error::Usage(format!(
        "{}: a drive with batched writes has no {what}: leave it out, or take {}",
        config.name,
        if config.spec.target == TargetKind::Batch { "target=pblk" } else { "--pages log" },
    )))
}

/// Shuts a drive down that nobody uses, at `now`: its next start reads no log.
pub fn end(mut target: Batch<Device<Backing>>, now: Time) -> Result<(), Error> {
    target.below_mut().set_on_a_clock(false);
    let mut done = Ring::<BatchDone>::new(DONE);
    let mut patience = Patience::default();
    let mut at = now.max(target.now());
    for asks in [false, true] {
        if asks && target.fault().is_none() {
            target.request_checkpoint();
        }
        target.submit(at, &mut Ring::new(1));
        while let Some(event) = target.next_event() {
            at = at.max(event);
            target.advance(event, &mut done);
            done.drain().for_each(drop);
            patience.look(event);
        }
    }
    let fault = target.fault().map(|e| Error::Failed(e.to_string()));
    let medium = target.into_below().cut();
    match medium.fault().map(|(why, _)| why).or(fault) {
        Some(fault) => Err(fault),
        None => medium.put_away(),
    }
}
