//! How a block layer is set up.

use crate::scheduler::SchedulerKind;
use crate::topology::{Spread, Topology};

/// The most dispatch queues of a driver: as many as the paper's interrupts
/// (thesis, section 3.2: "from one to 2048").
pub const MOST_QUEUES: usize = 2048;

/// Which requests in the staging queues are merged with neighbours, as
/// Linux's `nomerges` has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Merge {
    /// None.
    #[default]
    Off,
    /// With the request staged last only.
    Simple,
    /// With any of the newest that are staged.
    Full,
}

/// When a plugged staging queue lets its requests go: as soon as any of these
/// is reached, or somebody unplugs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plug {
    /// So many requests are staged; at least 1.
    pub requests: usize,
    /// The request staged last is so long, in bytes.
    pub bytes: u64,
    /// So many ns after the first was staged.
    pub ns: u64,
}

impl Default for Plug {
    /// As Linux plugs: 32 requests or one of 128 KiB; and after 100 us.
    fn default() -> Plug {
        Plug { requests: 32, bytes: 128 << 10, ns: 100_000 }
    }
}

/// A block layer's configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Cores and sockets.
    pub topology: Topology,
    /// Staging queues.
    pub staging: Spread,
    /// Requests that a staging queue holds at most; at least 1.
    pub staging_depth: usize,
    /// How staged requests are ordered.
    pub scheduler: SchedulerKind,
    /// Which are merged.
    pub merge: Merge,
    /// Whether requests are merged while the device has room for more, which
    /// only a plugged queue can do; otherwise only while it is busy.
    pub merge_idle: bool,
    /// Whether staging queues are plugged.
    pub plug: Option<Plug>,
    /// A request that was dispatched so long ago, in ns, is asked for; at most
    /// [`MOST_TIMEOUT`].
    pub timeout: u64,
}

/// Linux's default timeout of a request: 30 s.
pub const TIMEOUT: u64 = 30_000_000_000;

/// The longest timeout, in ns: 146 years. With the time it is not past the end
/// of times.
pub const MOST_TIMEOUT: u64 = 1 << 62;

impl Config {
    /// Staging queues per core, no scheduler, no merging, no plug.
    pub fn new(topology: Topology) -> Config {
        Config {
            topology,
            staging: Spread::PerCore,
            staging_depth: 256,
            scheduler: SchedulerKind::None,
            merge: Merge::Off,
            merge_idle: false,
            plug: None,
            timeout: TIMEOUT,
        }
    }
}
