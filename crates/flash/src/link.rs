//! How long the way between host and drive takes, and the controller at its end.

/// Bytes of an entry of a submission queue (NVMe base specification 2.0, 3.3.3.1).
pub const SUBMISSION_BYTES: u64 = 64;
/// Bytes of an entry of a completion queue (NVMe base specification 2.0, 3.3.3.2).
pub const COMPLETION_BYTES: u64 = 16;

/// What `bytes` take at `rate` bytes a second, in ns, rounded up; nothing where `rate`
/// is 0.
#[inline]
pub fn time_at(bytes: u64, rate: u64) -> u64 {
    if rate == 0 {
        return 0;
    }
    // No buffer has 4 GiB, so a longer transfer cannot be.
    (bytes.min(u64::from(u32::MAX)) * 1_000_000_000).div_ceil(rate)
}

/// The way between host and drive, and the controller at its end. All zero
/// means that there is none. Times in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkTiming {
    /// Controller time, once a command. It keeps no other command waiting.
    pub controller: u64,
    /// Latency, once each way.
    pub latency: u64,
    /// Bytes a second, each way; 0 for no transfer time.
    pub rate: u64,
    /// Whether entries of queues take their time on the link, too.
    pub entries: bool,
    /// Cores of the controller, at most [`MAX_CORES`]; 0 for one a command.
    pub cores: u32,
    /// What a read takes of a core.
    pub core_read: u64,
    /// What any other command takes of a core.
    pub core_write: u64,
    /// What each block of a command takes of a core beside that.
    pub core_block: u64,
}

/// Most cores that a controller may have.
pub const MAX_CORES: u32 = 64;

impl LinkTiming {
    /// Whether it takes no time at all: there is no link.
    pub fn is_instant(&self) -> bool {
        let limits = LinkTiming { cores: 0, entries: false, ..*self };
        limits == LinkTiming::default()
    }

    /// Wire time of `bytes`, rounded up.
    #[inline]
    pub fn wire(&self, bytes: u64) -> u64 {
        time_at(bytes, self.rate)
    }

    /// Wire time of a queue's entry of `bytes`, where entries take any.
    pub fn entry(&self, bytes: u64) -> u64 {
        if self.entries { self.wire(bytes) } else { 0 }
    }

    /// What a command of so many blocks takes of a core.
    #[inline]
    pub fn work(&self, is_read: bool, blocks: u64) -> u64 {
        let once = if is_read { self.core_read } else { self.core_write };
        once + self.core_block * blocks
    }
}
