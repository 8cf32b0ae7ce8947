//! What a block target is to those who have one, whichever it is.
//!
//! [`Target`] is the part that runs, and can be had as `dyn`, whatever is below it;
//! [`Over`] is also that with a drive below of a certain type. [`Start`] makes one.

use std::error::Error;

use device::OpenChannel;
use port::{BlockDone, BlockReq, KvDone, KvReq, Port, Shape, Time};

use crate::{MapCacheCounters, Memory, WriteCounters};

/// A block target.
///
/// It keeps the contract of `docs/architecture.md`: what completed before a
/// successful flush, or with FUA, is there after a power cut; any other block is as
/// one of its writes or trims left it; damage that is found is an error.
pub trait Target: Port<Cmd = BlockReq, Done = BlockDone> {
    /// Its outside.
    fn shape(&self) -> Shape;

    /// What it wrote and collected since it was made.
    fn counters(&self) -> WriteCounters;

    /// Free chunks of all parallel units.
    fn free_chunks(&self) -> u64;

    /// Valid blocks of a chunk of what is below it, by its index there.
    fn valid_blocks(&self, chunk: usize) -> u32;

    /// Bytes of memory that its tables take.
    fn memory(&self) -> Memory;

    /// What its map cache did, where it has one.
    fn map_cache(&self) -> Option<MapCacheCounters> {
        None
    }

    /// Takes the memory for its tables now.
    fn populate(&self) {}

    /// Whether it takes no more writes: too much is worn out, or nothing can be
    /// made durable any more.
    fn is_read_only(&self) -> bool;

    /// A hash of its state: equal where two runs were equal. May read all its
    /// tables.
    fn state_hash(&self) -> u64;

    /// Acts on what the drive has to tell. To be called after the drive was told
    /// to look by itself.
    fn heed_notices(&mut self, _now: Time) {}

    /// From now on nothing waits in it for the sake of time, or again as its rules say: what
    /// they delay or pace goes on at once. For one that is to end, or to be removed.
    fn set_hurried(&mut self, _is_hurried: bool, _now: Time) {}

    /// What was written since the counters were `before` was asked for before
    /// that: who lies above wrote it again.
    fn count_as_own(&mut self, _before: WriteCounters) {}

    /// Shuts it down: all that was written becomes durable. No request may be
    /// inside, and none be submitted after. Done when [`Target::is_closed`] says
    /// so, which takes the drive's events.
    fn close(&mut self, now: Time);

    /// Whether it is shut down.
    fn is_closed(&self) -> bool;
}

/// What a block target is over.
pub trait Over: Target {
    /// The drive.
    type Below: OpenChannel;

    /// The drive below.
    fn below(&self) -> &Self::Below;

    /// The drive below, to be told what is no command.
    fn below_mut(&mut self) -> &mut Self::Below;

    /// Takes the target away, as a power cut does.
    fn into_below(self: Box<Self>) -> Self::Below;

    /// Where requests by key go in and come out, of a target that keeps values by key and has
    /// no blocks. Time goes on by the target's own port: what this one gives has completed.
    fn keyed(&mut self) -> Option<&mut dyn Port<Cmd = KvReq, Done = KvDone>> {
        None
    }
}

/// How a block target comes to be.
pub trait Start: Over + Sized {
    /// How it is set up.
    type Config;

    /// Why it cannot be.
    type Error: Error + Send + Sync + 'static;

    /// A target on a drive whose chunks are all free, or offline from the factory.
    fn new(device: Self::Below, config: &Self::Config) -> Result<Self, Self::Error>;

    /// The target that a drive has, after a power cut or a clean end. `config` is
    /// the one that it was made with. Drives the device itself from `now` on;
    /// gives it and the time at which it is ready.
    fn recover(
        device: Self::Below,
        config: &Self::Config,
        now: Time,
    ) -> Result<(Self, Time), Self::Error>;
}
