//! What was done in lives: how much, of which kinds, and how it ended.

use port::BlockOp;

use crate::nature::Kind;
use crate::ondisk::DiskCounts;
use crate::power::Flash;
use crate::setup::Setup;
use crate::trouble::Struck;

/// What is counted, and added field by field.
macro_rules! counts {
    ($(#[$of:meta])* pub struct $name:ident { $($(#[$doc:meta])* pub $field:ident: $type:ty,)* }) => {
        $(#[$of])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
        pub struct $name { $($(#[$doc])* pub $field: $type,)* }

        impl std::ops::AddAssign for $name {
            fn add_assign(&mut self, other: $name) {
                $(self.$field += other.$field;)*
            }
        }
    };
}
pub(crate) use counts;

counts! {
    /// What was done.
    pub struct Counts {
        /// Drives.
        pub lives: u64,
        /// Cycles of work, a cut, recovery and a check.
        pub cycles: u64,
        /// Cycles that met collection.
        pub cycles_collecting: u64,
        /// Cuts at work: those of the cycles, and some soon after recovery.
        pub cuts: u64,
        /// Cuts in recovery.
        pub cut_recoveries: u64,
        /// Those of them that came after a program of that recovery.
        pub cut_writing_recoveries: u64,
        /// Cuts at work of drives with a cache.
        pub cached_cuts: u64,
        /// Drives that were shut down in good order, and not cut.
        pub clean_closes: u64,
        /// Recoveries that were refused, since something needed could not be read
        /// or written.
        pub refusals: u64,
        /// Drives that were replaced: read-only for long, or never to start again.
        pub replaced: u64,
        /// Lives that ended early, as no drive was to be had: all had too many bad
        /// chunks.
        pub over: u64,
        /// Drives that were read-only when power went.
        pub ends_of_life: u64,
        /// Lives with flash that errs and wears out.
        pub wearing: Kind,
        /// Lives with an SLC cache.
        pub slc: Kind,
        /// Lives with a protected cache.
        pub protected: Kind,
        /// Starts that found the drive unable to take what the protected cache had.
        pub frozen: u64,
        /// Blocks that these did not give in a check.
        pub withheld: u64,
        /// Lives with media that damage what they store.
        pub damaged: Kind,
        /// Lives of the batched target, and the batches that were sent there.
        pub batched: Kind,
        /// See above.
        pub batches: u64,
        /// Lives of the key-value target.
        pub keyed: Kind,
        /// Lives below the block layer, and requests that it merged with another.
        pub layered: Kind,
        /// See above.
        pub merged: u64,
        /// Lives with a map of units of several blocks.
        pub coarse: Kind,
        /// Lives of drives with memory for a part of their map, and pages of it that were
        /// read as a request needed them.
        pub mapped: Kind,
        /// See above.
        pub map_reads: u64,
        /// Lives with a read cache, and reads that it answered.
        pub read_cached: Kind,
        /// See above.
        pub cache_hits: u64,
        /// Lives with parity.
        pub parity: Kind,
        /// Lives of the tree.
        pub trees: Kind,
        /// Lives of the Redis server, replies that its clients saw, and cuts behind a write or
        /// flush of its store that failed.
        pub served: Kind,
        /// See above.
        pub replies: u64,
        /// See above.
        pub failed_stores: u64,
        /// Lives of drives that targets of blocks and of keys share, and targets of keys that
        /// left and came.
        pub shared: Kind,
        /// See above.
        pub tenants_left: u64,
        /// See above.
        pub tenants_came: u64,
        /// Lives in a drive file.
        pub on_disk: Kind,
        /// What became of them.
        #[serde(flatten)]
        pub disk: DiskCounts,
        /// Chunks that were bad when their drive or its life ended, and those of
        /// them that were so from the factory.
        pub bad_chunks: u64,
        /// See above.
        pub factory_bad: u64,
        /// Requests that failed where a fault allows it.
        pub errors: u64,
        /// Blocks that could not be read in a check where a fault allows it.
        pub lost: u64,
        /// Faults.
        #[serde(flatten)]
        pub struck: Struck,
        /// Requests sent.
        pub requests: u64,
        /// Reads among them.
        pub reads: u64,
        /// Flushes among them.
        pub flushes: u64,
        /// Trims and write zeroes among them.
        pub trims: u64,
        /// Requests with FUA among them.
        pub fua: u64,
        /// Chunks collected.
        pub collections: u64,
        /// Blocks that collection copied inside their dies.
        pub copied: u64,
        /// Chunks erased.
        pub erases: u64,
    }
}

impl Counts {
    /// One more request.
    pub(crate) fn note(&mut self, op: BlockOp, fua: bool) {
        self.requests += 1;
        self.fua += u64::from(fua);
        match op {
            BlockOp::Read => self.reads += 1,
            BlockOp::Flush => self.flushes += 1,
            BlockOp::Trim | BlockOp::WriteZeroes => self.trims += 1,
            BlockOp::Write => {}
        }
    }

    /// Adds what was done to a drive's flash, and to the disk that it is on.
    pub(crate) fn add_flash(&mut self, flash: &Flash) {
        self.disk += flash.disk_counts();
        self.struck += flash.struck();
        let (bad, factory_bad) = flash.bad_chunks();
        self.bad_chunks += bad;
        self.factory_bad += factory_bad;
    }

    /// Which kinds of lives the one with this set-up is among.
    pub(crate) fn add_kinds(&mut self, setup: &Setup) {
        let of = |is_one: bool| Kind::of(is_one, self.cycles);
        self.wearing = of(setup.troubles.wear.is_some());
        self.slc = of(setup.timing.slc.is_on());
        self.protected = of(setup.protected);
        self.damaged = of(!setup.troubles.damage.is_empty());
        self.on_disk = of(setup.troubles.on_disk);
        self.layered = of(setup.layers.is_some());
        self.coarse = of(setup.unit > 1);
        self.mapped = of(setup.map_pages > 0);
        self.parity = of(setup.parity > 0);
        self.read_cached = of(setup.read_cache.is_on());
    }
}
