//! Stacks: a drive's configuration made into layers.
//!
//! Any drive is a chain of layers ([`Drive`], [`Lower`]), each over any other by
//! a call through a table for each event. The two kinds that are measured most
//! are compiled as a whole: whoever has one calls through a table once a turn
//! ([`port::Port::turn`]), and all below is without.
//!
//! A stack is over a medium in memory or in a drive file. It is built empty, or
//! recovered from what a medium holds, and can be ended, so that its medium
//! holds all of it.
//!
//! May fail: no memory for its tables, a profile that the target cannot work
//! on, or a medium that cannot be read or written.

use device::{Buffered, Cached, Coarse, Device, Link, OpenChannel, Powered, Queued};
use drivefile::CacheMode;
use flash::{Chunk, ChunkState, Dimensions, RamMedium, Side};
use nvram::{NvRam, Protected, Started};
use port::lazy::{SPARE, ask_for};
use port::{BLOCK_BYTES, Port, Ring, Striped, Time, random};
use targets::pblk::{Memory, Peek};
use targets::{Pblk, PblkConfig};

use crate::backing::{Backing, Store};
use crate::error::Error;
use crate::fault_rules::Layer;
use crate::lower::{self, Lower};
use crate::memory;
use crate::ruled;
use crate::shared::{Shared, share};
use crate::slc::SlcReport;
use crate::spec::{DriveConfig, TargetKind};
use crate::whole::{self, Boxed, Drive, Faulted, Left};

/// Of a drive that is there again: for how long it was off, in ns. Nothing of a
/// new one.
type Found = Option<u64>;

/// A drive, when it is ready, and what the start of its protected cache did.
pub type Assembled = (Boxed, Time, Option<Started>);

/// Builds the drive, empty. `seed` decides what its policies draw.
pub fn build(config: &DriveConfig, seed: u64) -> Result<Boxed, Error> {
    build_keeping(config, seed, config.spec.store.kept())
}

/// The same, on a medium that keeps so many bytes of each block.
pub(crate) fn build_keeping(config: &DriveConfig, seed: u64, kept: u32) -> Result<Boxed, Error> {
    new(config, seed, media(config, kept)?)
}

/// An empty medium for each of its shards.
fn media(config: &DriveConfig, kept: u32) -> Result<Vec<RamMedium>, Error> {
    memory::ask(config)?;
    (0..config.spec.shards).map(|shard| memory::medium(&config.shard(shard), kept)).collect()
}

/// The same, with all its memory taken now: a drive whose real time is
/// measured does not wait for the system's.
/// Fails where `go_on` says no, which is asked while that takes its time.
pub fn build_populated(
    config: &DriveConfig,
    seed: u64,
    mut go_on: impl FnMut() -> bool,
) -> Result<Boxed, Error> {
    let mut media = media(config, config.spec.store.kept())?;
    for (shard, medium) in (0..).zip(&mut media) {
        let config = &config.shard(shard);
        let own = |one: &DriveConfig| {
            let chunks = one.data_chunks();
            targets::own_blocks(&Dimensions { chunks, ..one.above.dimensions() })
        };
        let own = (0..config.targets()).map(|n| own(&config.target(n))).sum();
        let held = memory::held_blocks(config);
        if !medium.populate(held, own, &mut go_on) {
            return Err(Error::Failed("stopped before anything was measured".into()));
        }
    }
    let drive = new(config, seed, media)?;
    (0..drive.targets()).for_each(|target| drive.target(target).populate());
    Ok(drive)
}

/// Whether there can be such a drive, wherever its bytes are. Gives what
/// its tables take in memory.
pub fn check(config: &DriveConfig, seed: u64) -> Result<Memory, Error> {
    // Only blocks that are written take memory, and none is.
    let drive = new(config, seed, media(config, 0)?)?;
    Ok(drive.memory())
}

fn new(config: &DriveConfig, seed: u64, media: Vec<RamMedium>) -> Result<Boxed, Error> {
    let left = |medium: RamMedium| Left { medium: medium.into(), chunks: Vec::new() };
    let shards = media.into_iter().map(left).collect();
    Ok(assemble(config, seed, shards, None, empty_journal(config)?)?.0)
}

/// The same where a target is not found again of several that share the device: the others
/// are served ([`crate::shared::Shared::damaged`]). Not under a protected cache, which may have
/// what is that target's.
pub fn recover_in_part(
    config: &DriveConfig,
    seed: u64,
    shards: Vec<Left>,
    away: u64,
    journal: Option<Store>,
) -> Result<Assembled, Error> {
    match journal {
        Some(_) => recover(config, seed, shards, away, journal),
        None => assemble(config, seed, shards, Some(away), None),
    }
}

/// The drive whose shards were left so: ended, or cut, `away` ns ago, by which
/// their data are older. It has a protected cache where there is a `journal`. Gives
/// the time at which it is ready, which recovery began at zero, and what the start
/// of the protected cache did.
pub fn recover(
    config: &DriveConfig,
    seed: u64,
    shards: Vec<Left>,
    away: u64,
    journal: Option<Store>,
) -> Result<Assembled, Error> {
    let mut found = assemble(config, seed, shards, Some(away), journal)?;
    all_found(&mut found.0)?;
    Ok(found)
}

/// Refuses a drive of which a target was not found again.
fn all_found(drive: &mut Boxed) -> Result<(), Error> {
    drive.shared_mut().and_then(Shared::take_damage).map_or(Ok(()), Err)
}

/// What a drive says of itself before it is started.
pub struct Look {
    /// What the target's checkpoint says; one with batched writes, and several, tell
    /// nothing.
    pub peek: Option<Peek>,
    /// Superblocks with an offline member, where there is parity.
    pub degraded: usize,
}

/// Looks at the drive that a medium holds, and changes nothing of it.
pub fn look(
    config: &DriveConfig,
    seed: u64,
    medium: Backing,
    chunks: &[Chunk],
) -> Result<Look, Error> {
    let flash = lower::before(config, old_device(config, seed, medium, chunks, 0)?, None)?;
    let degraded = flash.degraded();
    let failed = |source| Error::Recovery { name: config.name.clone(), source };
    let peek = match config.spec.target {
        TargetKind::Batch | TargetKind::Kv | TargetKind::Rules => None,
        TargetKind::Pblk if config.spec.is_shared() => None,
        TargetKind::Pblk => Some(Pblk::peek(flash, target(config, seed)).map_err(failed)?),
    };
    Ok(Look { peek, degraded })
}

/// The SLC cache of a drive that has one, before it has done anything.
pub fn slc(config: &DriveConfig) -> Result<Option<SlcReport>, Error> {
    let health = new_device(config, 1, memory::medium(config, 0)?.into())?.slc_health();
    Ok(SlcReport::new(&config.geometry, &health, &health))
}

/// Puts a drive together over what its shards left, or over empty media.
fn assemble(
    config: &DriveConfig,
    seed: u64,
    shards: Vec<Left>,
    found: Found,
    journal: Option<Store>,
) -> Result<Assembled, Error> {
    needs_blocks(config)?;
    needs_one_shard(config)?;
    assert_eq!(shards.len(), config.spec.shards as usize, "each shard has a medium");
    let link = config.profile.link;
    let is_inside = config.profile.side == Side::Device && !link.is_instant();
    let buffer = lower::buffer(config);
    let is_bare = config.spec.parity == 0
        && !config.spec.is_shared()
        && config.spec.target == TargetKind::Pblk
        && config.faults.is_empty()
        && buffer.is_none()
        && (is_inside || link.is_instant());
    let cache = config.profile.cache;
    let power = &config.profile.power;
    let queues = &config.profile.queues;
    let has_units = config.profile.has_units();
    let is_more =
        has_units || journal.is_some() || cache.is_on() || power.is_on() || queues.is_on();
    let is_alone = is_bare && !is_more && config.spec.shards == 1;
    let (mut parts, mut at) = (Vec::new(), Time::ZERO);
    for (n, left) in (0..).zip(shards) {
        // The first has the seed itself, so that one shard is a drive as it was.
        let seed = seed.wrapping_add(random::STEP.wrapping_mul(n.into()));
        let (config, whole) = (&config.shard(n), config);
        let failed = |e: Error| e.of_whole_drive(whole);
        let device = match found {
            Some(away) => old_device(config, seed, left.medium, &left.chunks, away)?,
            None => new_device(config, seed, left.medium)?,
        };
        let (drive, ready): (Boxed, _) = if is_alone && is_inside {
            let (pblk, ready) = start(config, seed, device, found.is_some()).map_err(failed)?;
            return Ok((Box::new(Link::new(link, pblk)), ready, None));
        } else if is_bare {
            let (pblk, ready) = start(config, seed, device, found.is_some()).map_err(failed)?;
            (Box::new(pblk), ready)
        } else if config.spec.is_shared() {
            let flash = lower::before(config, device, buffer.as_ref())?;
            let (shared, ready) = share(config, seed, flash, found.is_some())?;
            (Box::new(shared), ready)
        } else if config.spec.target == TargetKind::Rules {
            let flash = lower::before(config, device, buffer.as_ref())?;
            ruled::warn(config);
            let (ruled, ready) = ruled::start(config, seed, flash, found.map(|_| Time::ZERO))?;
            (Box::new(ruled), ready)
        } else {
            let flash = lower::before(config, device, buffer.as_ref())?;
            let (pblk, ready) = start(config, seed, flash, found.is_some()).map_err(failed)?;
            (Box::new(pblk), ready)
        };
        parts.push(drive);
        at = at.max(ready);
    }
    let mut drive = together(config, parts, at)?;
    if has_units {
        let shape = drive.shape();
        drive = Box::new(Coarse::new(config.profile.map_unit.into(), drive, shape)?);
    }
    let mut started = None;
    if let Some(journal) = journal {
        all_found(&mut drive)?;
        let (protected, did) = protect(config, drive, journal, at)?;
        (drive, at, started) = (protected, did.ready, Some(did));
    }
    if cache.is_on() {
        let shape = drive.shape();
        ask_for(Cached::<Boxed>::bytes(&cache, &shape).saturating_add(SPARE), "the read cache")?;
        drive = Box::new(Cached::new(cache, drive, shape)?);
    }
    if let Some(memory) = buffer {
        drive = Box::new(Buffered::new(memory, drive));
    }
    if is_inside {
        let link = Link::new(link, drive);
        drive = if queues.is_on() { Box::new(Queued::new(queues, link)) } else { Box::new(link) };
    }
    if power.is_on() {
        let energy = config.profile.energy;
        let idle_power = if energy.counted { energy.idle } else { 0 };
        drive = Box::new(Powered::new(power, idle_power, at, drive));
    }
    if !config.faults.is_empty() {
        drive = Box::new(Faulted::new(drive, config.faults.clone()));
    }
    Ok((drive, at, started))
}

/// The shards as one drive, when all of them have come to `at`.
fn together(config: &DriveConfig, mut parts: Vec<Boxed>, at: Time) -> Result<Boxed, Error> {
    if parts.len() == 1 {
        return Ok(parts.remove(0));
    }
    let mut done = Ring::new(1);
    for part in &mut parts {
        while let Some(event) = part.next_event().filter(|&event| event < at) {
            part.advance(event, &mut done);
        }
    }
    let each = parts[0].shape();
    ask_for(Striped::<Boxed>::bytes(parts.len(), &each) + SPARE, "requests to several shards")?;
    Ok(whole::together(parts, config.size))
}

/// Refuses several shards of a drive that has something which they would share.
fn needs_one_shard(config: &DriveConfig) -> Result<(), Error> {
    let what = if config.faults.has(Layer::Below) || config.faults.has(Layer::Medium) {
        "faults below its target (above: ones are)"
    } else if config.profile.side == Side::Host && !config.profile.link.is_instant() {
        "a link below its target (side=device has it above)"
    } else {
        return Ok(());
    };
    if config.spec.shards == 1 {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "{}: {what} are not for a drive of several shards: leave out shards",
        config.name
    )))
}

/// The target on what is below it: new, or recovered from what that holds.
fn start<D: Lower>(
    config: &DriveConfig,
    seed: u64,
    lower: D,
    is_found: bool,
) -> Result<(Pblk<D>, Time), Error> {
    let set_up = target(config, seed);
    if !is_found {
        return Ok((new_target(config, lower, set_up)?, Time::ZERO));
    }
    let failed = |source| Error::Recovery { name: config.name.clone(), source };
    Pblk::recover(lower, set_up, Time::ZERO).map_err(failed)
}

/// Puts a protected cache above a drive. What its journal writes again the host
/// had asked for once.
fn protect(
    config: &DriveConfig,
    drive: Boxed,
    journal: Store,
    at: Time,
) -> Result<(Boxed, Started), Error> {
    let shape = drive.shape();
    let before: Vec<_> = (0..drive.targets()).map(|n| drive.target(n).counters()).collect();
    let started = |e| Error::Failed(format!("{}: {e}", config.name));
    let (mut drive, did) = Protected::start(drive, shape, journal, at).map_err(started)?;
    for (target, before) in before.into_iter().enumerate() {
        drive.target_mut(target).count_as_own(before);
    }
    Ok((Box::new(drive), did))
}

/// A target on a new drive. Refused where so many chunks are bad from the
/// factory that nothing could ever be written.
pub fn new_target<D: OpenChannel>(
    config: &DriveConfig,
    device: D,
    target: PblkConfig,
) -> Result<Pblk<D>, Error> {
    let pblk = Pblk::new(device, target)?;
    if !pblk.is_read_only() {
        return Ok(pblk);
    }
    let (geometry, device) = (&config.above, pblk.device());
    let chunks = geometry.pus_channels_first();
    let chunks = chunks.flat_map(|pu| (0..geometry.chunks()).map(move |n| (pu, n)));
    let is_bad = |&(pu, n): &(usize, u32)| {
        device.chunk(geometry.chunk_of(pu, n)).state == ChunkState::Offline
    };
    let lost = chunks.filter(is_bad).count() as u64;
    Err(Error::Usage(format!(
        "{}: {lost} of its {} chunks are bad from the factory, and the others leave no room to \
         write: {} there are more of them, or take factory_bad=0",
        config.name,
        u64::from(geometry.total_pus()) * u64::from(geometry.chunks()),
        config.with_more_chunks(),
    )))
}

/// The journal of a drive in memory with a protected cache, empty.
pub fn empty_journal(config: &DriveConfig) -> Result<Option<Store>, Error> {
    let CacheMode::Protected { journal } = config.cache_mode() else { return Ok(None) };
    ask_for(journal + SPARE, "the journal of its cache")?;
    let mut store = NvRam::new(journal as usize);
    nvram::format(&mut store).map_err(|e| Error::Failed(format!("{}: {e}", config.name)))?;
    Ok(Some(Box::new(store)))
}

/// A drive with batched writes has no blocks, and one that keeps values by key neither.
pub fn needs_blocks(config: &DriveConfig) -> Result<(), Error> {
    let drive = match config.spec.target {
        TargetKind::Pblk | TargetKind::Rules => return Ok(()),
        TargetKind::Batch => "a drive with batched writes (target=batch) has pages",
        TargetKind::Kv => "a drive with values by key (target=kv) has keys",
    };
    Err(Error::Usage(format!(
        "{}: {drive} and no blocks: take one with target=pblk, or serve it with --redis",
        config.name
    )))
}

/// Refuses a drive that cannot tell where its requests' time went.
pub fn needs_stories(config: &DriveConfig) -> Result<(), Error> {
    let what = if !config.faults.is_empty() {
        "fault rules stand between, which tell no stories: leave them out"
    } else if config.spec.target == TargetKind::Rules {
        "its target (target=rules) tells no stories: take target=pblk"
    } else if config.spec.is_shared() {
        "its targets share a device, and who waited behind whom is told of one: take targets=1"
    } else if config.cache_mode() != CacheMode::Volatile {
        "its protected cache tells no stories: take cache=volatile"
    } else if config.profile.has_units() {
        "what reads and writes units of its map tells no stories: take map_unit=4k"
    } else {
        return Ok(());
    };
    Err(Error::Usage(format!(
        "{}: nobody can say where the time of its requests went, as {what}",
        config.name
    )))
}

/// A medium that holds these chunks, damaged on purpose where rules say so.
fn damaged(config: &DriveConfig, medium: Backing, chunks: &[Chunk]) -> Result<Backing, Error> {
    match config.faults.medium()[..] {
        [] => Ok(medium),
        _ => medium.damaged(&config.geometry, chunks),
    }
}

/// A new device, as it leaves the factory.
pub fn new_device(
    config: &DriveConfig,
    seed: u64,
    medium: Backing,
) -> Result<Device<Backing>, Error> {
    memory::ask(config)?;
    let (geometry, profile) = (&config.geometry, &config.profile);
    let medium = damaged(config, medium, &[])?;
    let mut device = Device::with(geometry, &profile.timing, &profile.reliability, seed, medium)?;
    device.set_energy(&profile.energy);
    Ok(device)
}

/// The device that a medium holds, as it was left `away` ns ago. `chunks` by
/// `Geometry::chunk_index`.
pub fn old_device(
    config: &DriveConfig,
    seed: u64,
    medium: Backing,
    chunks: &[Chunk],
    away: u64,
) -> Result<Device<Backing>, Error> {
    memory::ask(config)?;
    let (geometry, profile) = (&config.geometry, &config.profile);
    let (timing, reliability) = (&profile.timing, &profile.reliability);
    let medium = damaged(config, medium, chunks)?;
    let mut device = Device::restore_with(geometry, timing, reliability, seed, medium, chunks)?;
    device.set_energy(&profile.energy);
    device.let_time_pass(away);
    Ok(device)
}

/// How the target is set up.
pub fn target(config: &DriveConfig, seed: u64) -> PblkConfig {
    PblkConfig {
        bytes: config.size,
        data_chunks: config.data_chunks(),
        idle: config.idle,
        streams: config.spec.streams,
        map_pages: config.profile.map_cache.div_ceil(BLOCK_BYTES),
        write_buffer: config.profile.write_buffer,
        idle_collection: config.profile.idle_collection,
        victim: config.spec.victim,
        seed,
    }
}

#[cfg(test)]
mod tests;
