//! A whole block drive: its targets, what is below them, and what is before them.
//!
//! ```text
//! DelayPort, FaultPort    requests are late, or fail on purpose
//! Queued, Link            of a drive with its translation layer inside
//! Buffered                what crosses the memory of its buffer
//! Cached                  a read cache
//! Protected               a cache that is protected against power loss
//! Coarse                  of a drive that maps units of several blocks
//! Striped                 of a drive of several shards
//! Shared                  of several targets that have one device
//! target                  of each shard, and below it what [`Lower`] tells
//! ```
//!
//! Each is a [`Drive`] over any other. Rules strike from [`Drive::begin_faults`]
//! on, so that a drive is recovered and preconditioned without, and no longer
//! when it is ended. Fails where a drive cannot be ended well.

use std::any::Any;

use device::{CacheCounters, Device, OpenChannel, PowerHealth, SlcHealth};
use flash::{Chunk, Energy};
use ftl::{MapCacheCounters, Memory, Over, Target, WriteCounters};
use measure::Programmed;
use parity::ParityCounters;
use port::{BlockDone, BlockReq, Port, Ring, Shape, Striped, Time};
use ruled::SetInstaller;
use targets::Pblk;

use crate::backing::{Backing, Store};
use crate::error::Error;
use crate::fault_rules::{Injected, Layer, Rules};
use crate::lower::{Lower, Struck, set_rules, struck, two_ports};
use crate::shared::Shared;

/// What a shard left, or is to be found in.
pub struct Left {
    /// Its bytes.
    pub medium: Backing,
    /// Its chunks, by `Geometry::chunk_index`.
    pub chunks: Vec<Chunk>,
}

/// What is told of a drive that is [read-only](Drive::is_read_only): which of these it was
/// is not known here.
pub const READ_ONLY: &str = "too many of its chunks gave way, its own records could not be \
                             written, or memory was short: the drive takes no more writes, and \
                             what it holds can be read; of a drive file `ssdkit info` says how its \
                             flash is";

/// A drive that was ended.
pub struct Ended {
    /// What its shards left.
    pub shards: Vec<Left>,
    /// When.
    pub at: Time,
}

impl Ended {
    /// Puts its media away.
    pub fn put_away(self) -> Result<(), Error> {
        self.shards.into_iter().try_for_each(|left| left.medium.put_away())
    }
}

/// A drive whose power was cut.
pub struct Cut {
    /// What its shards left.
    pub shards: Vec<Left>,
    /// What the journal of a protected cache lies in, where it has one.
    pub journal: Option<Store>,
}

/// Parallel units of which the load is told, at most.
pub const MOST_UNITS: usize = 1024;

/// What is told of each unit, where these are not too many.
pub(crate) fn few(of_units: impl Iterator<Item = u64>) -> Vec<u64> {
    let all: Vec<u64> = of_units.take(MOST_UNITS + 1).collect();
    if all.len() > MOST_UNITS { Vec::new() } else { all }
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

    /// Blocks programmed for parity, where it has that.
    fn parity_blocks(&self) -> Option<u64> {
        None
    }

    /// Blocks folded out of its SLC cache, where it has one.
    fn folded_blocks(&self) -> Option<u64> {
        None
    }

    /// All blocks that it programmed, by reason.
    fn programmed(&self) -> Programmed {
        let WriteCounters { user, gc, padding, metadata, .. } = self.counters();
        let (parity, folds) = (self.parity_blocks(), self.folded_blocks());
        Programmed { user, gc, padding, metadata, parity, folds }
    }

    /// From then on its dies tell how long they work, or no more.
    fn set_die_clocks(&mut self, _from: Option<Time>) {}

    /// How long the array of each die worked until `now` since then, in ns, by group and
    /// unit: of [`MOST_UNITS`] at most, else none.
    fn dies_worked(&self, _now: Time) -> Vec<u64> {
        Vec::new()
    }

    /// The energy that its device has taken until `now`, where that is counted.
    fn energy(&self, _now: Time) -> Energy {
        Energy::default()
    }
}

/// A target's part of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartOf<'a> {
    /// What the target is called.
    pub name: &'a str,
    /// The first of its addresses.
    pub first: u64,
    /// How many.
    pub bytes: u64,
}

/// A whole block drive, whatever it is made of.
pub trait Drive: Port<Cmd = BlockReq, Done = BlockDone> + Any + Send {
    /// How many shards it has, each with a device of its own.
    fn shards(&self) -> usize;
    /// What is below the targets of a shard.
    fn lower(&self, shard: usize) -> &dyn Lower;
    /// What is below the targets of a shard.
    fn lower_mut(&mut self, shard: usize) -> &mut dyn Lower;
    /// How many targets it has: one of each shard, or several that share the device.
    fn targets(&self) -> usize {
        self.shards()
    }
    /// A target.
    fn target(&self, target: usize) -> &dyn Target;
    /// A target.
    fn target_mut(&mut self, target: usize) -> &mut dyn Target;
    /// The part of the addresses that is a target's; nothing where they go round the
    /// targets.
    fn part(&self, _target: usize) -> Option<PartOf<'_>> {
        None
    }
    /// What targets wrote and collected that are gone.
    fn gone(&self) -> WriteCounters {
        WriteCounters::default()
    }
    /// Several targets that share a device, which come and go; none of any other drive.
    fn shared(&self) -> Option<&Shared> {
        None
    }
    /// The same, to have one come or go.
    fn shared_mut(&mut self) -> Option<&mut Shared> {
        None
    }
    /// Valid blocks of a chunk of a shard's device, as its target's counts them.
    fn valid_blocks(&self, shard: usize, chunk: usize) -> u32 {
        self.target(shard).valid_blocks(chunk)
    }
    /// Who installs rule sets in it, where it is made of rules.
    fn rules(&self) -> Option<SetInstaller> {
        None
    }
    /// Its outside.
    fn shape(&self) -> Shape;
    /// Shuts it down: what is in its buffer and all it knows goes to the
    /// medium. No request may be inside. `now` is not before anything that
    /// happened in it. Fails when its medium does, or it does not come to
    /// rest; what was flushed is then on the medium as after a power cut.
    fn end(self: Box<Self>, now: Time) -> Result<Ended, Error>;
    /// Its power goes now: what is inside is lost, and what its media do not have.
    fn cut(self: Box<Self>) -> Cut;

    /// The memory of its tables.
    fn memory(&self) -> Memory {
        targets(self).map(|target| target.memory()).sum()
    }

    /// A hash of targets and devices: equal where two runs were equal. Reads
    /// the whole map.
    fn state_hash(&self) -> u64 {
        let devices =
            devices(self).fold(0, |all: u64, device| all.rotate_left(1) ^ device.state_hash());
        let of_targets = |all: u64, target: &dyn Target| all.rotate_left(1) ^ target.state_hash();
        targets(self).fold(0, of_targets) ^ devices.rotate_left(32)
    }

    /// Whether its time is a clock's, so that it passes while the drive waits
    /// for a disk ([`device::Device::set_on_a_clock`]).
    fn set_on_a_clock(&mut self, on_a_clock: bool) {
        for shard in 0..self.shards() {
            self.lower_mut(shard).device_mut().set_on_a_clock(on_a_clock);
        }
    }

    /// Looks after what nobody reads: data that have grown old are written
    /// anew. For a drive on a clock, now and then.
    fn tend(&mut self, now: Time) {
        (0..self.shards()).for_each(|shard| self.lower_mut(shard).device_mut().patrol(now));
        (0..self.targets()).for_each(|target| self.target_mut(target).heed_notices(now));
    }

    /// From now on nothing waits in it for the sake of time, as rules of its targets or of
    /// faults would have it: it is to end soon.
    fn hurry(&mut self, now: Time) {
        (0..self.shards()).for_each(|shard| self.lower_mut(shard).hurry(now));
        (0..self.targets()).for_each(|target| self.target_mut(target).set_hurried(true, now));
    }

    /// The SLC cache of its devices; zeros where they have none.
    fn slc(&self) -> SlcHealth {
        devices(self).map(Device::slc_health).sum()
    }

    /// Why its medium can be written no more, if that is so, and whether that
    /// is for want of room.
    fn fault(&self) -> Option<(Error, bool)> {
        devices(self).find_map(|device| device.medium().fault())
    }

    /// Whether it takes no more writes, in a shard at least, as too much of its flash
    /// is worn out or failed.
    fn is_read_only(&self) -> bool {
        targets(self).any(|target| target.is_read_only())
    }

    /// Whether its bytes are there after the process has ended.
    fn outlives(&self) -> bool {
        devices(self).any(|device| device.medium().outlives())
    }

    /// How it sleeps, and how warm it is, where it does or is.
    fn power(&self, _now: Time) -> Option<PowerHealth> {
        None
    }

    /// What was done for the sake of parity, where it has that.
    fn parity(&self) -> Option<ParityCounters> {
        (0..self.shards()).map(|shard| self.lower(shard).parity()).sum()
    }

    /// What its read cache did, where it has one.
    fn read_cache(&self) -> Option<CacheCounters> {
        None
    }

    /// What its map caches did, where it has these.
    fn map_cache(&self) -> Option<MapCacheCounters> {
        targets(self).map(|target| target.map_cache()).sum()
    }

    /// From now on the fault rules that it was made with strike.
    fn begin_faults(&mut self) {}

    /// How often each of them struck.
    fn injected(&self) -> Vec<Injected> {
        Vec::new()
    }
}

mod end;
mod faulted;
mod layers;

pub(crate) use end::{close, cut, end, ended, rest};
pub use faulted::Faulted;

/// The targets of a drive.
fn targets<D: Drive + ?Sized>(drive: &D) -> impl Iterator<Item = &dyn Target> {
    (0..drive.targets()).map(|target| drive.target(target))
}

/// The devices of a drive.
pub fn devices<D: Drive + ?Sized>(drive: &D) -> impl Iterator<Item = &Device<Backing>> {
    (0..drive.shards()).map(|shard| drive.lower(shard).device())
}

impl<D: Drive + ?Sized> Observed for D {
    fn counters(&self) -> WriteCounters {
        targets(self).map(|target| target.counters()).chain([self.gone()]).sum()
    }

    fn free_chunks(&self) -> u64 {
        targets(self).map(|target| target.free_chunks()).sum()
    }

    fn parity_blocks(&self) -> Option<u64> {
        self.parity().map(|parity| parity.parity + parity.padded)
    }

    fn folded_blocks(&self) -> Option<u64> {
        let slc = self.slc();
        let row = u64::from(self.lower(0).device().geometry().row_blocks());
        (slc.blocks > 0).then_some(slc.folded * row)
    }

    fn set_die_clocks(&mut self, from: Option<Time>) {
        for shard in 0..self.shards() {
            self.lower_mut(shard).device_mut().set_die_clocks(from);
        }
    }

    fn dies_worked(&self, now: Time) -> Vec<u64> {
        few(devices(self).flat_map(|device| device.worked_until(now)))
    }

    fn energy(&self, now: Time) -> Energy {
        let all: Energy = devices(self).map(|device| device.energy(now)).sum();
        let saved = self.power(now).map_or(0, |power| power.saved);
        Energy { idle: all.idle.saturating_sub(saved), ..all }
    }
}

/// A drive of any kind.
pub type Boxed = Box<dyn Drive>;

/// The shards of a drive that is nothing more, to be polled by several; or the
/// drive. Nothing may be inside.
pub fn apart(drive: Boxed) -> Result<Vec<Boxed>, Boxed> {
    let any: &dyn Any = &*drive;
    if !any.is::<Striped<Boxed>>() {
        return Err(drive);
    }
    let any: Box<dyn Any> = drive;
    let striped = any.downcast::<Striped<Boxed>>().expect("it was asked");
    assert!(striped.is_idle(), "nothing is inside");
    Ok(striped.into_shards())
}

/// Shards of a drive of `bytes` as one again. All are at the same time, and nothing
/// is inside.
pub fn together(shards: Vec<Boxed>, bytes: u64) -> Boxed {
    let each = shards[0].shape();
    Box::new(Striped::new(shards, bytes, each))
}

impl Drive for Boxed {
    fn shards(&self) -> usize {
        (**self).shards()
    }

    fn lower(&self, shard: usize) -> &dyn Lower {
        (**self).lower(shard)
    }

    fn lower_mut(&mut self, shard: usize) -> &mut dyn Lower {
        (**self).lower_mut(shard)
    }

    fn targets(&self) -> usize {
        (**self).targets()
    }

    fn target(&self, target: usize) -> &dyn Target {
        (**self).target(target)
    }

    fn target_mut(&mut self, target: usize) -> &mut dyn Target {
        (**self).target_mut(target)
    }

    fn part(&self, target: usize) -> Option<PartOf<'_>> {
        (**self).part(target)
    }

    fn gone(&self) -> WriteCounters {
        (**self).gone()
    }

    fn shared(&self) -> Option<&Shared> {
        (**self).shared()
    }

    fn shared_mut(&mut self) -> Option<&mut Shared> {
        (**self).shared_mut()
    }

    fn valid_blocks(&self, shard: usize, chunk: usize) -> u32 {
        (**self).valid_blocks(shard, chunk)
    }

    fn tend(&mut self, now: Time) {
        (**self).tend(now);
    }

    fn hurry(&mut self, now: Time) {
        (**self).hurry(now);
    }

    fn set_on_a_clock(&mut self, on_a_clock: bool) {
        (**self).set_on_a_clock(on_a_clock);
    }

    fn rules(&self) -> Option<SetInstaller> {
        (**self).rules()
    }

    fn shape(&self) -> Shape {
        (**self).shape()
    }

    fn read_cache(&self) -> Option<CacheCounters> {
        (**self).read_cache()
    }

    fn end(self: Box<Self>, now: Time) -> Result<Ended, Error> {
        (*self).end(now)
    }

    fn cut(self: Box<Self>) -> Cut {
        (*self).cut()
    }

    fn fault(&self) -> Option<(Error, bool)> {
        (**self).fault()
    }

    fn power(&self, now: Time) -> Option<PowerHealth> {
        (**self).power(now)
    }

    fn begin_faults(&mut self) {
        (**self).begin_faults();
    }

    fn injected(&self) -> Vec<Injected> {
        (**self).injected()
    }
}

/// Of a target that is a drive by itself.
macro_rules! is_one_target {
    () => {
        fn shards(&self) -> usize {
            1
        }

        fn lower(&self, _shard: usize) -> &dyn Lower {
            self.below()
        }

        fn lower_mut(&mut self, _shard: usize) -> &mut dyn Lower {
            self.below_mut()
        }

        fn target(&self, _target: usize) -> &dyn Target {
            self
        }

        fn target_mut(&mut self, _target: usize) -> &mut dyn Target {
            self
        }

        fn shape(&self) -> Shape {
            Target::shape(self)
        }
    };
}
pub(crate) use is_one_target;

impl<D: Lower> Drive for Pblk<D> {
    is_one_target!();

    fn end(self: Box<Self>, now: Time) -> Result<Ended, Error> {
        end(self, now)
    }

    fn cut(self: Box<Self>) -> Cut {
        cut(Box::new(self.into_below()))
    }
}
