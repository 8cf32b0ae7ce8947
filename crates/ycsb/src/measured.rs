//! What a run of YCSB gave: the difference of two marks, each all counters at a
//! moment. Nothing fails.

use btree::LogCounters;
use btree::store::Ticks;

use super::client::Kind;
use super::controller::Work;

/// Where the host's time went, in ns. All zero in virtual time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostTime {
    /// All of it.
    pub all: u64,
    /// Nothing was to be done but to look for completions.
    pub waiting: u64,
    /// The store's parts.
    pub store: Ticks,
}

impl HostTime {
    /// The tree, its cache, and the client: what is in no other part.
    pub fn tree(&self) -> u64 {
        let s = &self.store;
        let parts = s.submission + s.writing + s.reading + s.collection + s.checkpoint;
        self.all.saturating_sub(self.waiting + parts)
    }

    /// All but waiting.
    pub fn busy(&self) -> u64 {
        self.all - self.waiting
    }
}

/// How large a tree is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeSize {
    /// Its pages after loading.
    pub pages: u64,
    /// Its levels.
    pub levels: usize,
    /// Bytes of its cache.
    pub cache_bytes: u64,
}

/// What a run gave.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Operations.
    pub ops: u64,
    /// Their time, in seconds.
    pub seconds: f64,
    /// The tree, where there is one.
    pub tree: Option<TreeSize>,
    /// Look-ups of pages that missed, as a part of all.
    pub misses_per_op: f64,
    /// The latencies, by kind.
    pub latency: Vec<(Kind, measure::Histogram)>,
    /// Where the host's time went.
    pub host: HostTime,
    /// Processor time of the two threads as a part of what they could have
    /// had; `None` in virtual time.
    pub share: Option<f64>,
    /// Pages that the tree wrote.
    pub pages_written: u64,
    /// What the log did, where there is one.
    pub log: Option<LogCounters>,
    /// Blocks that the store wrote, counted when it gave them to the drive.
    pub blocks_written: u64,
    /// What the drive did.
    pub work: Work,
    /// It was written, and had never collected anything when the run ended.
    pub new_drive: bool,
    /// Of its operations, those whose records were not there and may not have to be.
    pub missing: u64,
    /// Operations that failed or gave wrong data, also while the cache was warmed and when
    /// records were read back; of several turns the last has all.
    pub errors: u64,
    /// The first of them.
    pub first_error: Option<String>,
    /// Somebody stopped it before its end.
    pub interrupted: bool,
}

impl Measured {
    /// Operations a second.
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.ops as f64 / self.seconds } else { 0.0 }
    }

    /// Blocks that the store wrote for each page of the tree.
    pub fn store_amplification(&self) -> Option<f64> {
        (self.pages_written > 0).then(|| self.blocks_written as f64 / self.pages_written as f64)
    }

    /// Blocks programmed for each block of the store that was programmed.
    pub fn drive_amplification(&self) -> Option<f64> {
        (self.work.user > 0).then(|| self.work.programmed as f64 / self.work.user as f64)
    }
}

/// What threads have used, in ns.
#[derive(Clone, Copy, Default)]
pub struct Used {
    /// The clock.
    pub clock: u64,
    /// Processor time of the host's thread.
    pub thread: u64,
    /// Processor time of all threads.
    pub process: u64,
}

/// All counters at a moment.
pub struct Mark {
    /// The time of the run, in ns: the drive's where it is virtual.
    pub now: u64,
    /// Time without anything to do so far, in ns.
    pub waiting: u64,
    /// The store's time.
    pub ticks: Ticks,
    /// The threads' time.
    pub used: Used,
    /// The cache of the tree.
    pub cache: btree::CacheCounters,
    /// Pages that the tree wrote.
    pub written: u64,
    /// Blocks that the store gave the drive to write.
    pub blocks: u64,
    /// The drive's work.
    pub work: Work,
    /// What the log did, where there is one.
    pub log: Option<LogCounters>,
}

impl Mark {
    /// What `ops` operations since `earlier` gave; what is not counted by marks is
    /// empty. `real`: in real time.
    pub fn since(&self, earlier: &Mark, ops: u64, real: bool) -> Measured {
        let (a, b) = (earlier, self);
        let wall = b.used.clock - a.used.clock;
        let (host, all) = (b.used.thread - a.used.thread, b.used.process - a.used.process);
        let least = host.min(all.saturating_sub(host));
        let store = b.ticks.since(&a.ticks);
        let time = HostTime { all: wall, waiting: b.waiting - a.waiting, store };
        let work = b.work.since(&a.work);
        let log = |(a, b): (LogCounters, LogCounters)| LogCounters {
            recovered: b.recovered,
            ..b.since(&a)
        };
        Measured {
            ops,
            seconds: (b.now - a.now) as f64 / 1e9,
            tree: None,
            misses_per_op: (b.cache.misses - a.cache.misses) as f64 / ops.max(1) as f64,
            latency: Vec::new(),
            host: if real { time } else { HostTime::default() },
            share: real.then(|| least as f64 / wall.max(1) as f64),
            pages_written: b.written - a.written,
            blocks_written: b.blocks - a.blocks,
            log: a.log.zip(b.log).map(log),
            new_drive: work.programmed > 0 && b.work.collections == 0,
            work,
            missing: 0,
            errors: 0,
            first_error: None,
            interrupted: false,
        }
    }
}
