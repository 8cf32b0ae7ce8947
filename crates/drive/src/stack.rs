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

use device::{Device, Link, OpenChannel};
use drivefile::CacheMode;
use flash::{Chunk, ChunkState, Dimensions, Side};
use nvram::{NvRam, Protected, Started};
use port::Time;
use targets::pblk::{Memory, Peek};
use targets::{Pblk, PblkConfig};

use crate::backing::{Backing, Store};
use crate::error::Error;
use crate::lower::{self, Lower};
use crate::memory;
use crate::slc::SlcReport;
use crate::spec::{DriveConfig, TargetKind};
use crate::whole::{Boxed, Drive, Faulted};

/// Of a drive that is there again: its chunks, by `Geometry::chunk_index`, and
/// for how long it was off, in ns. Nothing of a new one.
type Found<'a> = Option<(&'a [Chunk], u64)>;

/// A drive, when it is ready, and what the start of its protected cache did.
pub type Assembled = (Boxed, Time, Option<Started>);

/// Builds the drive, empty. `seed` decides what its policies draw.
pub fn build(config: &DriveConfig, seed: u64) -> Result<Boxed, Error> {
    new(config, seed, memory::medium(config, config.spec.store.kept())?.into())
}

/// The same, with all its memory taken now: a drive whose real time is
/// measured does not wait for the system's.
/// Fails where `go_on` says no, which is asked while that takes its time.
pub fn build_populated(
    config: &DriveConfig,
    seed: u64,
    go_on: impl FnMut() -> bool,
) -> Result<Boxed, Error> {
    let mut medium = memory::medium(config, config.spec.store.kept())?;
    let data = Dimensions { chunks: config.data_chunks(), ..config.above.dimensions() };
    let (held, own) = (memory::held_blocks(config), targets::own_blocks(&data));
    if !medium.populate(held, own, go_on) {
        return Err(Error::Failed("stopped before anything was measured".into()));
    }
    let drive = new(config, seed, medium.into())?;
    drive.target().populate();
    Ok(drive)
}

/// Whether there can be such a drive, wherever its bytes are. Gives what
/// its tables take in memory.
pub fn check(config: &DriveConfig, seed: u64) -> Result<Memory, Error> {
    // Only blocks that are written take memory, and none is.
    let drive = new(config, seed, memory::medium(config, 0)?.into())?;
    Ok(drive.target().memory())
}

fn new(config: &DriveConfig, seed: u64, medium: Backing) -> Result<Boxed, Error> {
    Ok(assemble(config, seed, medium, None, empty_journal(config)?)?.0)
}

/// The drive that a medium holds, as it was left: ended, or cut, `away` ns
/// ago, by which its data are older. `chunks` by `Geometry::chunk_index`.
/// It has a protected cache where there is a
/// `journal`. Gives the time at which it is ready, which recovery began at
/// zero, and what the start of the protected cache did.
pub fn recover(
    config: &DriveConfig,
    seed: u64,
    medium: Backing,
    chunks: &[Chunk],
    away: u64,
    journal: Option<Store>,
) -> Result<Assembled, Error> {
    assemble(config, seed, medium, Some((chunks, away)), journal)
}

/// What a drive says of itself before it is started.
pub struct Look {
    /// What the target's checkpoint says; one with batched writes tells nothing.
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
    let flash = lower::before(config, old_device(config, seed, medium, chunks, 0)?)?;
    let degraded = flash.degraded();
    let failed = |source| Error::Recovery { name: config.name.clone(), source };
    let peek = match config.spec.target {
        TargetKind::Batch => None,
        TargetKind::Pblk => Some(Pblk::peek(flash, target(config, seed)).map_err(failed)?),
    };
    Ok(Look { peek, degraded })
}

/// The SLC cache of a drive that has one, before it has done anything.
pub fn slc(config: &DriveConfig) -> Result<Option<SlcReport>, Error> {
    let health = new_device(config, 1, memory::medium(config, 0)?.into())?.slc_health();
    Ok(SlcReport::new(&config.geometry, &health, &health))
}

/// Puts a drive together over a medium that holds what was found, or nothing.
fn assemble(
    config: &DriveConfig,
    seed: u64,
    medium: Backing,
    found: Found<'_>,
    journal: Option<Store>,
) -> Result<Assembled, Error> {
    needs_blocks(config)?;
    let device = match found {
        Some((chunks, away)) => old_device(config, seed, medium, chunks, away)?,
        None => new_device(config, seed, medium)?,
    };
    let (link, is_found) = (config.profile.link, found.is_some());
    let is_inside = config.profile.side == Side::Device && !link.is_instant();
    let is_plain = config.spec.parity == 0 && config.faults.is_empty() && journal.is_none();
    if is_plain && (is_inside || link.is_instant()) {
        let (pblk, at) = start(config, seed, device, is_found)?;
        let drive: Boxed = match is_inside {
            true => Box::new(Link::new(link, pblk)),
            false => Box::new(pblk),
        };
        return Ok((drive, at, None));
    }
    let (pblk, mut at) = start(config, seed, lower::before(config, device)?, is_found)?;
    let (mut drive, mut started): (Boxed, _) = (Box::new(pblk), None);
    if let Some(journal) = journal {
        let (protected, did) = protect(config, drive, journal, at)?;
        (drive, at, started) = (protected, did.ready, Some(did));
    }
    if is_inside {
        drive = Box::new(Link::new(link, drive));
    }
    if !config.faults.is_empty() {
        drive = Box::new(Faulted::new(drive, config.faults.clone()));
    }
    Ok((drive, at, started))
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
    let (shape, before) = (drive.shape(), drive.target().counters());
    let started = |e| Error::Failed(format!("{}: {e}", config.name));
    let (mut drive, did) = Protected::start(drive, shape, journal, at).map_err(started)?;
    drive.target_mut().count_as_own(before);
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
    let mut store = NvRam::new(journal as usize);
    nvram::format(&mut store).map_err(|e| Error::Failed(format!("{}: {e}", config.name)))?;
    Ok(Some(Box::new(store)))
}

/// A drive with batched writes has no blocks.
pub fn needs_blocks(config: &DriveConfig) -> Result<(), Error> {
    if config.spec.target != TargetKind::Batch {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "{}: a drive with batched writes (target=batch) has pages and no blocks: take one \
         with target=pblk, or serve it with --redis",
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
        victim: config.spec.victim,
        seed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault_rules::FaultArgs;
    use crate::spec::DriveSpec;
    use crate::whole::Ended;
    use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Ring};

    fn build(name: &str) -> Boxed {
        let Ok(DriveSpec::Memory(spec)) = name.parse() else { panic!("{name}") };
        super::build(&spec.resolve().unwrap(), 1).unwrap()
    }

    #[test]
    fn all_kinds_show_the_same_outside() {
        let of = |rest: &str| {
            let drive = build(&format!("mem:znand,size=64M,store=checksum{rest}"));
            (drive.shape().bytes, drive.shape().kept, drive.target().free_chunks())
        };
        let (bytes, kept, free) = of("");
        assert_eq!((bytes, kept), (64 << 20, 8));
        assert!(free > 0);
        assert_eq!(of(",side=host"), of(""));
        assert_eq!(of(",cache=protected"), of(""));
        assert_eq!(of(",link_latency=0ns,link_rate=none,controller=0ns"), of(""));
    }

    /// One request at `now`; gives what came of it, and when.
    fn act(drive: &mut Boxed, now: Time, op: BlockOp, offset: u64, byte: u8) -> (BlockDone, Time) {
        let (mut cmds, mut done) = (Ring::new(1), Ring::new(1));
        let len = if op == BlockOp::Flush { 0 } else { PIECE };
        let mut buffer = Buffer::zeroed(len as usize).unwrap();
        buffer.bytes_mut().fill(byte);
        cmds.put(|| BlockReq { id: 0, op, fua: false, offset, len, buffer });
        drive.submit(now, &mut cmds);
        loop {
            let at = drive.next_event().expect("it is inside");
            drive.advance(at, &mut done);
            if let Some(done) = done.pop() {
                return (done, at);
            }
        }
    }

    const PIECE: u64 = 16 << 10;

    /// A drive with these rules is written, ended and found again, and all is
    /// there. Gives how often each rule struck.
    fn lives(name: &str, rules: &[&str]) -> Vec<u64> {
        let Ok(DriveSpec::Memory(spec)) = name.parse() else { panic!("{name}") };
        let mut config = spec.resolve().unwrap_or_else(|e| panic!("{name}: {e}"));
        let rules = rules.iter().map(|rule| rule.to_string()).collect();
        config.faults = FaultArgs { rules, file: None }.read(1).unwrap();
        let mut drive = super::build(&config, 1).unwrap_or_else(|e| panic!("{name}: {e}"));
        drive.begin_faults();
        let (mut now, pieces) = (Time::ZERO, 40);
        for i in 0..pieces {
            now = act(&mut drive, now, BlockOp::Write, i * PIECE, i as u8 + 1).1;
        }
        now = act(&mut drive, now, BlockOp::Flush, 0, 0).1;
        now = act(&mut drive, now, BlockOp::Read, 0, 0).1;
        let struck = drive.injected().iter().map(|one| one.times).collect();
        let Ended { medium, chunks, .. } = drive.end(now).unwrap();
        let journal = empty_journal(&config).unwrap();
        let (mut drive, mut now, _) = recover(&config, 1, medium, &chunks, 0, journal).unwrap();
        for i in 0..pieces {
            let (done, at) = act(&mut drive, now, BlockOp::Read, i * PIECE, 0);
            assert!(done.status.is_ok(), "{name}: {:?}", done.status);
            assert!(done.buffer.bytes().iter().all(|&b| b == i as u8 + 1), "{name}: piece {i}");
            now = at;
        }
        struck
    }

    #[test]
    fn any_layers_go_together() {
        for side in ["host", "device"] {
            for cache in ["volatile", "protected"] {
                for parity in ["", ",parity=4"] {
                    for rules in [
                        &[][..],
                        &[
                            "above:read,delay=1ms",
                            "below:write,delay=1us",
                            "medium:slow,probability=1",
                        ],
                    ] {
                        let name = format!(
                            "mem:tlc,size=16M,groups=2,pus=2,pages=16,side={side},cache={cache}{parity}"
                        );
                        let struck = lives(&name, rules);
                        assert!(struck.iter().all(|&times| times > 0), "{name}: {struck:?}");
                    }
                }
            }
        }
    }
}
