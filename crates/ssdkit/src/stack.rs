//! Stacks: a drive's configuration made into layers.
//!
//! Where the link is decides the kind: none, above the device (an open-channel
//! drive, its translation layer on the host), or above the target (a
//! conventional drive). Each kind is a type of its own, so that what runs on
//! it can be compiled for it and the hot loop has no call through a table: a
//! [`Visitor`] is given the one that was built. A cache that is protected
//! against power loss is above the target, and below the link of a conventional
//! drive; that of an open-channel drive is the host's.
//!
//! Compiling for each kind costs minutes of building, so that is kept for who
//! measures virtual time ([`Stack::visit`]), and for the two kinds that are
//! measured most; all others are given a [`Boxed`] drive, which costs a call
//! through a table for each event.
//!
//! A stack is over a medium in memory or in a drive file. It is built empty, or
//! recovered from what a medium holds, and can be ended, so that its medium
//! holds all of it.
//!
//! May fail: no memory for its tables, a profile that the target cannot work
//! on, or a medium that cannot be read or written.

use device::{Counters, Device, Link, SlcHealth};
use drivefile::CacheMode;
use flash::{Chunk, ChunkState, Dimensions, Energy, Medium, Side};
use nvram::{JournalError, NvRam, Protected, Started};
use parity::ParityCounters;
use port::{BlockDone, BlockReq, Port, Ring, Shape, Time};
use targets::pblk::Memory;
use targets::{Pblk, PblkConfig, WriteCounters};

use crate::backing::{Backing, Store};
use crate::drive::{Cache, DriveConfig, Target};
use crate::driver::Patience;
use crate::error::Error;
use crate::fault_rules::Injected;
use crate::layered::Layered;
use crate::memory;

/// Completions that are taken at a time while a drive is ended.
const DONE: usize = 64;

/// A drive that was ended.
pub struct Ended {
    /// What it left.
    pub medium: Backing,
    /// Its chunks, by `Geometry::chunk_index`.
    pub chunks: Vec<Chunk>,
    /// When.
    pub at: Time,
}

impl Ended {
    /// What a drive left, if all of it is there. `closed`: its target was shut
    /// down.
    pub(crate) fn of(
        medium: Backing,
        chunks: Vec<Chunk>,
        at: Time,
        closed: bool,
    ) -> Result<Self, Error> {
        match medium.fault() {
            Some((fault, _)) => Err(fault),
            None if closed => Ok(Ended { medium, chunks, at }),
            None => Err(Error::Failed(
                "the drive could not be shut down, as too much of it is worn out or failed; \
                 what was flushed is there"
                    .into(),
            )),
        }
    }
}

/// Something that takes block requests, and may tell what it does.
pub trait Observed: Port<Cmd = BlockReq, Done = BlockDone> {
    /// What its target wrote and collected; zeros where nobody tells.
    fn counters(&self) -> WriteCounters {
        WriteCounters::default()
    }

    /// Free chunks of all parallel units; zero where nobody tells.
    fn free_chunks(&self) -> u64 {
        0
    }

    /// The energy that its device has taken until `now`, where that is counted.
    fn energy(&self, _now: Time) -> Energy {
        Energy::default()
    }
}

/// A whole block drive, whatever it is made of.
pub trait Drive: Observed + Send + 'static {
    /// Its outside.
    fn shape(&self) -> Shape;
    /// What its device did.
    fn device_counters(&self) -> Counters;
    /// A hash of target and device: equal where two runs were equal. Reads
    /// the whole map.
    fn state_hash(&self) -> u64;
    /// Bytes of memory that its target's tables take.
    fn memory(&self) -> Memory;
    /// Takes the memory for the target's tables now.
    fn populate(&self);
    /// Whether its time is a clock's, so that it passes while the drive waits
    /// for a disk ([`Device::set_on_a_clock`]).
    fn set_on_a_clock(&mut self, on_a_clock: bool);
    /// Looks after what nobody reads: data that have grown old are written
    /// anew. For a drive on a clock, now and then.
    fn tend(&mut self, now: Time);
    /// The SLC cache of its device; zeros where it has none.
    fn slc(&self) -> SlcHealth;
    /// Why its medium can be written no more, if that is so, and whether that
    /// is for want of room.
    fn fault(&self) -> Option<(Error, bool)>;
    /// Whether its bytes are there after the process has ended.
    fn outlives(&self) -> bool;
    /// What was done for the sake of parity, where it has that.
    fn parity(&self) -> Option<ParityCounters> {
        None
    }
    /// From now on the fault rules that it was made with strike.
    fn begin_faults(&mut self) {}
    /// How often each of them struck.
    fn injected(&self) -> Vec<Injected> {
        Vec::new()
    }
    /// Shuts it down: what is in its buffer and all it knows goes to the
    /// medium. No request may be inside. `now` is not before anything that
    /// happened in it. Fails when its medium does, or it does not come to
    /// rest; what was flushed is then on the medium as after a power cut.
    fn end(self: Box<Self>, now: Time) -> Result<Ended, Error>;
}

/// A drive of any kind.
pub type Boxed = Box<dyn Drive>;

impl Observed for Boxed {
    fn counters(&self) -> WriteCounters {
        (**self).counters()
    }

    fn free_chunks(&self) -> u64 {
        (**self).free_chunks()
    }

    fn energy(&self, now: Time) -> Energy {
        (**self).energy(now)
    }
}

impl Drive for Boxed {
    fn shape(&self) -> Shape {
        (**self).shape()
    }

    fn device_counters(&self) -> Counters {
        (**self).device_counters()
    }

    fn state_hash(&self) -> u64 {
        (**self).state_hash()
    }

    fn memory(&self) -> Memory {
        (**self).memory()
    }

    fn populate(&self) {
        (**self).populate();
    }

    fn set_on_a_clock(&mut self, on_a_clock: bool) {
        (**self).set_on_a_clock(on_a_clock);
    }

    fn tend(&mut self, now: Time) {
        (**self).tend(now);
    }

    fn slc(&self) -> SlcHealth {
        (**self).slc()
    }

    fn fault(&self) -> Option<(Error, bool)> {
        (**self).fault()
    }

    fn outlives(&self) -> bool {
        (**self).outlives()
    }

    fn parity(&self) -> Option<ParityCounters> {
        (**self).parity()
    }

    fn begin_faults(&mut self) {
        (**self).begin_faults();
    }

    fn injected(&self) -> Vec<Injected> {
        (**self).injected()
    }

    fn end(self: Box<Self>, now: Time) -> Result<Ended, Error> {
        (*self).end(now)
    }
}

/// A device, with a link before it or none.
pub trait Below: device::OpenChannel + Send + 'static {
    /// The device itself.
    fn device(&self) -> &Device<Backing>;
    /// The device itself.
    fn device_mut(&mut self) -> &mut Device<Backing>;
    /// The device without a link.
    fn into_device(self) -> Device<Backing>;
}

impl Below for Device<Backing> {
    fn device(&self) -> &Device<Backing> {
        self
    }

    fn device_mut(&mut self) -> &mut Device<Backing> {
        self
    }

    fn into_device(self) -> Device<Backing> {
        self
    }
}

impl Below for Link<Device<Backing>> {
    fn device(&self) -> &Device<Backing> {
        self.below()
    }

    fn device_mut(&mut self) -> &mut Device<Backing> {
        self.below_mut()
    }

    fn into_device(self) -> Device<Backing> {
        self.into_below()
    }
}

impl<D: Below> Observed for Pblk<D> {
    fn counters(&self) -> WriteCounters {
        Pblk::counters(self)
    }

    fn free_chunks(&self) -> u64 {
        Pblk::free_chunks(self)
    }

    fn energy(&self, now: Time) -> Energy {
        Pblk::device(self).device().energy(now)
    }
}

impl<D: Below> Drive for Pblk<D> {
    fn shape(&self) -> Shape {
        Pblk::shape(self)
    }

    fn device_counters(&self) -> Counters {
        self.device().device().counters()
    }

    fn state_hash(&self) -> u64 {
        Pblk::state_hash(self) ^ self.device().device().state_hash().rotate_left(32)
    }

    fn memory(&self) -> Memory {
        Pblk::memory(self)
    }

    fn populate(&self) {
        Pblk::populate(self);
    }

    fn fault(&self) -> Option<(Error, bool)> {
        Pblk::device(self).device().medium().fault()
    }

    fn outlives(&self) -> bool {
        Pblk::device(self).device().medium().outlives()
    }

    fn set_on_a_clock(&mut self, on_a_clock: bool) {
        Pblk::device_mut(self).device_mut().set_on_a_clock(on_a_clock);
    }

    fn slc(&self) -> SlcHealth {
        Pblk::device(self).device().slc_health()
    }

    fn tend(&mut self, now: Time) {
        Pblk::device_mut(self).device_mut().patrol(now);
        self.heed_notices(now);
    }

    fn end(mut self: Box<Self>, now: Time) -> Result<Ended, Error> {
        self.set_on_a_clock(false);
        let (device, at, closed) = shut_down(*self, now);
        let device = device.into_device();
        let chunks = device.chunks().to_vec();
        Ended::of(device.cut(), chunks, at, closed)
    }
}

/// Shuts a target down. Gives what is below it, when that was, and whether it
/// could be.
pub(crate) fn shut_down<D: device::OpenChannel>(mut pblk: Pblk<D>, now: Time) -> (D, Time, bool) {
    let mut done = Ring::new(DONE);
    let mut patience = Patience::default();
    let mut at = now;
    let mut rest = |pblk: &mut Pblk<D>, until: Option<Time>| {
        // Also what comes after the end: erases that nothing waits for.
        while let Some(event) = pblk.next_event().filter(|&e| until.is_none_or(|u| e <= u)) {
            at = at.max(event);
            pblk.advance(event, &mut done);
            done.drain().for_each(drop);
            patience.look(event);
        }
    };
    rest(&mut pblk, Some(now));
    pblk.close(now);
    rest(&mut pblk, None);
    let closed = pblk.is_closed();
    (pblk.into_device(), at, closed)
}

impl<D: Observed> Observed for Link<D> {
    fn counters(&self) -> WriteCounters {
        self.below().counters()
    }

    fn free_chunks(&self) -> u64 {
        self.below().free_chunks()
    }

    fn energy(&self, now: Time) -> Energy {
        self.below().energy(now)
    }
}

impl<D: Drive> Drive for Link<D> {
    fn shape(&self) -> Shape {
        self.below().shape()
    }

    fn device_counters(&self) -> Counters {
        self.below().device_counters()
    }

    fn state_hash(&self) -> u64 {
        self.below().state_hash()
    }

    fn memory(&self) -> Memory {
        self.below().memory()
    }

    fn populate(&self) {
        self.below().populate();
    }

    fn fault(&self) -> Option<(Error, bool)> {
        self.below().fault()
    }

    fn outlives(&self) -> bool {
        self.below().outlives()
    }

    fn set_on_a_clock(&mut self, on_a_clock: bool) {
        self.below_mut().set_on_a_clock(on_a_clock);
    }

    fn slc(&self) -> SlcHealth {
        self.below().slc()
    }

    fn tend(&mut self, now: Time) {
        self.below_mut().tend(now);
    }

    fn end(self: Box<Self>, now: Time) -> Result<Ended, Error> {
        Box::new(self.into_below()).end(now)
    }
}

impl<D: Observed> Observed for Protected<D, Store> {
    fn counters(&self) -> WriteCounters {
        self.below().counters()
    }

    fn free_chunks(&self) -> u64 {
        self.below().free_chunks()
    }

    fn energy(&self, now: Time) -> Energy {
        self.below().energy(now)
    }
}

impl<D: Drive> Drive for Protected<D, Store> {
    fn shape(&self) -> Shape {
        Protected::shape(self)
    }

    fn device_counters(&self) -> Counters {
        self.below().device_counters()
    }

    fn state_hash(&self) -> u64 {
        self.below().state_hash()
    }

    fn memory(&self) -> Memory {
        self.below().memory()
    }

    fn populate(&self) {
        self.below().populate();
    }

    fn fault(&self) -> Option<(Error, bool)> {
        let stopped = |e: &JournalError| (Error::Failed(e.to_string()), e.is_full());
        self.below().fault().or_else(|| self.error().map(stopped))
    }

    fn outlives(&self) -> bool {
        self.below().outlives()
    }

    fn set_on_a_clock(&mut self, on_a_clock: bool) {
        self.below_mut().set_on_a_clock(on_a_clock);
    }

    fn slc(&self) -> SlcHealth {
        self.below().slc()
    }

    fn tend(&mut self, now: Time) {
        self.below_mut().tend(now);
    }

    fn end(mut self: Box<Self>, now: Time) -> Result<Ended, Error> {
        let mut done = Ring::new(DONE);
        let mut patience = Patience::default();
        let mut at = now;
        while !self.is_idle() {
            let Some(event) = self.next_event() else { break };
            at = at.max(event);
            self.advance(event, &mut done);
            done.drain().for_each(drop);
            patience.look(event);
        }
        let (below, journal) = self.into_below();
        let ended = Box::new(below).end(at)?;
        // All is in flash: nothing is to be written again.
        if let Some(mut journal) = journal {
            journal.clear().map_err(|e| Error::Failed(e.to_string()))?;
        }
        Ok(ended)
    }
}

/// A drive.
pub enum Stack {
    /// The link takes no time, so there is none.
    Plain(Pblk<Device<Backing>>),
    /// The translation layer on the host, above the link.
    Host(Pblk<Link<Device<Backing>>>),
    /// The translation layer in the drive, below the link.
    Device(Link<Pblk<Device<Backing>>>),
    /// Either, with parity below the target, things that go wrong on purpose, or
    /// both.
    Layered(Layered),
    /// The translation layer on the host, with a protected cache.
    ProtectedHost(Protected<Pblk<Link<Device<Backing>>>, Store>),
    /// Translation layer and protected cache in the drive, below the link, also
    /// where that takes no time.
    ProtectedDevice(Link<Protected<Pblk<Device<Backing>>, Store>>),
}

/// What is done with a drive, whatever its kind.
pub trait Visitor {
    /// What comes of it.
    type Out;
    /// Does it.
    fn visit<D: Drive>(self, drive: D) -> Self::Out;
}

impl Stack {
    /// Builds the drive, empty. `seed` decides what its policies draw.
    pub fn build(config: &DriveConfig, seed: u64) -> Result<Stack, Error> {
        Stack::over(config, seed, memory::medium(config, config.spec.store.kept())?.into())
    }

    /// The same, with all its memory taken now: a drive whose real time is
    /// measured does not wait for the system's.
    /// Fails where `go_on` says no, which is asked while that takes its time.
    pub fn build_populated(
        config: &DriveConfig,
        seed: u64,
        go_on: impl FnMut() -> bool,
    ) -> Result<Stack, Error> {
        let mut medium = memory::medium(config, config.spec.store.kept())?;
        let data = Dimensions { chunks: config.data_chunks(), ..config.above.dimensions() };
        let (held, own) = (memory::held_blocks(config), targets::own_blocks(&data));
        if !medium.populate(held, own, go_on) {
            return Err(Error::Failed("stopped before anything was measured".into()));
        }
        let stack = Stack::over(config, seed, medium.into())?;
        stack.drive().populate();
        Ok(stack)
    }

    /// Whether there can be such a drive, wherever its bytes are. Gives what
    /// its tables take in memory.
    pub fn check(config: &DriveConfig, seed: u64) -> Result<Memory, Error> {
        // Only blocks that are written take memory, and none is.
        let stack = Stack::over(config, seed, memory::medium(config, 0)?.into())?;
        Ok(stack.drive().memory())
    }

    fn over(config: &DriveConfig, seed: u64, medium: Backing) -> Result<Stack, Error> {
        refuse_layers(config)?;
        if config.is_layered() {
            return Ok(Stack::Layered(Layered::new(config, seed, medium)?));
        }
        let profile = &config.profile;
        let device = new_device(config, seed, medium)?;
        let target = target(config, seed);
        let timing = profile.link;
        if let Some(journal) = empty_journal(config)? {
            let started = |e| Error::Failed(format!("{}: {e}", config.name));
            if profile.side == Side::Host && !timing.is_instant() {
                let pblk = new_target(config, Link::new(timing, device), target)?;
                let shape = pblk.shape();
                let drive = Protected::start(pblk, shape, journal, Time::ZERO);
                return Ok(Stack::ProtectedHost(drive.map_err(started)?.0));
            }
            let pblk = new_target(config, device, target)?;
            let shape = pblk.shape();
            let drive = Protected::start(pblk, shape, journal, Time::ZERO);
            return Ok(Stack::ProtectedDevice(Link::new(timing, drive.map_err(started)?.0)));
        }
        Ok(match profile.side {
            _ if timing.is_instant() => Stack::Plain(new_target(config, device, target)?),
            Side::Host => Stack::Host(new_target(config, Link::new(timing, device), target)?),
            Side::Device => Stack::Device(Link::new(timing, new_target(config, device, target)?)),
        })
    }
}

/// A target on a new drive. Refused where so many chunks are bad from the
/// factory that nothing could ever be written.
pub(crate) fn new_target<D: device::OpenChannel>(
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

/// A target with a protected cache, whose journal is written again: the host had
/// asked for that once.
fn again<D: Below>(
    pblk: Pblk<D>,
    journal: Store,
    at: Time,
) -> Result<(Protected<Pblk<D>, Store>, Started), JournalError> {
    let (shape, before) = (pblk.shape(), pblk.counters());
    let (mut drive, did) = Protected::start(pblk, shape, journal, at)?;
    drive.below_mut().count_as_own(before);
    Ok((drive, did))
}

/// The journal of a drive in memory with a protected cache, empty.
pub(crate) fn empty_journal(config: &DriveConfig) -> Result<Option<Store>, Error> {
    let CacheMode::Protected { journal } = config.cache_mode() else { return Ok(None) };
    let mut store = NvRam::new(journal as usize);
    nvram::format(&mut store).map_err(|e| Error::Failed(format!("{}: {e}", config.name)))?;
    Ok(Some(Box::new(store)))
}

/// A drive with batched writes has no blocks; and layers that most drives have
/// not are not for those with a protected cache.
pub(crate) fn refuse_layers(config: &DriveConfig) -> Result<(), Error> {
    if config.spec.target == Target::Batch {
        return Err(Error::Usage(format!(
            "{}: a drive with batched writes (target=batch) has pages and no blocks: take one \
             with target=pblk, or serve it with --redis",
            config.name
        )));
    }
    if config.spec.cache == Cache::Volatile || !config.is_layered() {
        return Ok(());
    }
    let what = if config.faults.is_empty() { "parity" } else { "--fault" };
    Err(Error::Usage(format!(
        "{what} is not for a drive with a protected cache: take one whose cache is volatile"
    )))
}

/// A new device, as it leaves the factory.
pub(crate) fn new_device<M: Medium>(
    config: &DriveConfig,
    seed: u64,
    medium: M,
) -> Result<Device<M>, Error> {
    memory::ask(config)?;
    let (geometry, profile) = (&config.geometry, &config.profile);
    let mut device = Device::with(geometry, &profile.timing, &profile.reliability, seed, medium)?;
    device.set_energy(&profile.energy);
    Ok(device)
}

/// The device that a medium holds, as it was left `away` ns ago. `chunks` by
/// `Geometry::chunk_index`.
pub(crate) fn old_device<M: Medium>(
    config: &DriveConfig,
    seed: u64,
    medium: M,
    chunks: &[Chunk],
    away: u64,
) -> Result<Device<M>, Error> {
    memory::ask(config)?;
    let (geometry, profile) = (&config.geometry, &config.profile);
    let (timing, reliability) = (&profile.timing, &profile.reliability);
    let mut device = Device::restore_with(geometry, timing, reliability, seed, medium, chunks)?;
    device.set_energy(&profile.energy);
    device.let_time_pass(away);
    Ok(device)
}

/// How the target is set up.
pub(crate) fn target(config: &DriveConfig, seed: u64) -> PblkConfig {
    PblkConfig {
        bytes: config.size,
        data_chunks: config.data_chunks(),
        idle: config.idle,
        victim: config.spec.victim,
        seed,
    }
}

impl Stack {
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
    ) -> Result<(Stack, Time, Option<Started>), Error> {
        refuse_layers(config)?;
        if config.is_layered() {
            let (drive, at) = Layered::recover(config, seed, medium, chunks, away)?;
            return Ok((Stack::Layered(drive), at, None));
        }
        let device = old_device(config, seed, medium, chunks, away)?;
        let target = target(config, seed);
        let timing = config.profile.link;
        let failed = |source| Error::Recovery { name: config.name.clone(), source };
        if let Some(journal) = journal {
            return Stack::recover_protected(config, seed, device, journal);
        }
        let (stack, at) = match config.profile.side {
            _ if timing.is_instant() => {
                let (pblk, at) = Pblk::recover(device, target, Time::ZERO).map_err(failed)?;
                (Stack::Plain(pblk), at)
            }
            Side::Host => {
                let device = Link::new(timing, device);
                let (pblk, at) = Pblk::recover(device, target, Time::ZERO).map_err(failed)?;
                (Stack::Host(pblk), at)
            }
            Side::Device => {
                let (pblk, at) = Pblk::recover(device, target, Time::ZERO).map_err(failed)?;
                (Stack::Device(Link::new(timing, pblk)), at)
            }
        };
        Ok((stack, at, None))
    }

    /// The same with a protected cache, whose journal is written again.
    fn recover_protected(
        config: &DriveConfig,
        seed: u64,
        device: Device<Backing>,
        journal: Store,
    ) -> Result<(Stack, Time, Option<Started>), Error> {
        let (target, timing) = (target(config, seed), config.profile.link);
        let failed = |source| Error::Recovery { name: config.name.clone(), source };
        let started = |e| Error::Failed(format!("{}: {e}", config.name));
        if config.profile.side == Side::Host && !timing.is_instant() {
            let device = Link::new(timing, device);
            let (pblk, at) = Pblk::recover(device, target, Time::ZERO).map_err(failed)?;
            let (drive, did) = again(pblk, journal, at).map_err(started)?;
            return Ok((Stack::ProtectedHost(drive), did.ready, Some(did)));
        }
        let (pblk, at) = Pblk::recover(device, target, Time::ZERO).map_err(failed)?;
        let (drive, did) = again(pblk, journal, at).map_err(started)?;
        Ok((Stack::ProtectedDevice(Link::new(timing, drive)), did.ready, Some(did)))
    }

    /// The drive, to be looked at.
    pub fn drive(&self) -> &dyn Drive {
        match self {
            Stack::Plain(drive) => drive,
            Stack::Host(drive) => drive,
            Stack::Device(drive) => drive,
            Stack::Layered(drive) => drive,
            Stack::ProtectedHost(drive) => drive,
            Stack::ProtectedDevice(drive) => drive,
        }
    }

    /// The drive, of any kind.
    pub fn boxed(self) -> Boxed {
        match self {
            Stack::Plain(drive) => Box::new(drive),
            Stack::Host(drive) => Box::new(drive),
            Stack::Device(drive) => Box::new(drive),
            Stack::Layered(drive) => Box::new(drive),
            Stack::ProtectedHost(drive) => Box::new(drive),
            Stack::ProtectedDevice(drive) => Box::new(drive),
        }
    }

    /// Gives the drive to `visitor`, which is compiled for the plain kinds.
    pub fn visit<V: Visitor>(self, visitor: V) -> V::Out {
        match self {
            Stack::Plain(drive) => visitor.visit(drive),
            Stack::Device(drive) => visitor.visit(drive),
            other => visitor.visit(other.boxed()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::DriveSpec;

    fn build(name: &str) -> Stack {
        let Ok(DriveSpec::Memory(spec)) = name.parse() else { panic!("{name}") };
        Stack::build(&spec.resolve().unwrap(), 1).unwrap()
    }

    #[test]
    fn link_side_and_cache_decide_the_kind() {
        assert!(matches!(build("mem:null,size=64M"), Stack::Plain(_)));
        assert!(matches!(build("mem:znand,size=64M"), Stack::Device(_)));
        assert!(matches!(build("mem:znand,size=64M,side=host"), Stack::Host(_)));
        let protected = |rest: &str| build(&format!("mem:znand,size=64M,cache=protected{rest}"));
        assert!(matches!(protected(""), Stack::ProtectedDevice(_)));
        assert!(matches!(protected(",side=host"), Stack::ProtectedHost(_)));
    }

    #[test]
    fn all_kinds_show_the_same_outside() {
        let of = |rest: &str| {
            let stack = build(&format!("mem:znand,size=64M,store=checksum{rest}"));
            let drive = stack.drive();
            (drive.shape().bytes, drive.shape().kept, drive.free_chunks())
        };
        let (bytes, kept, free) = of("");
        assert_eq!((bytes, kept), (64 << 20, 8));
        assert!(free > 0);
        assert_eq!(of(",side=host"), of(""));
        assert_eq!(of(",cache=protected"), of(""));
        assert_eq!(of(",link_latency=0ns,link_rate=none,controller=0ns"), of(""));
    }
}
