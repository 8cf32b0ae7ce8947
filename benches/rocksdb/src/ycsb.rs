//! One run of YCSB over RocksDB, as `ssdkit ycsb` runs it over its own
//! stores: the same drive, operations in the same order, sizes and counting.
//!
//! RocksDB's calls wait, so each operation under way has a thread. All of the
//! host's threads, those of RocksDB among them, share one core: they inherit
//! it from the thread that starts them; the drive's controller has another.
//! The database is loaded, brought to rest, closed, and opened anew with the
//! cache that was asked for; operations that fill it twice are not counted.
//!
//! Fails when the drive cannot be, is too small, or loading fails; wrong data
//! and failures afterwards are counted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use btree::Remote;
use device::hosted::{Hosted, HostedOptions};
use device::realtime::{Clock, pin, process_cpu};
use measure::Histogram;
use ssdkit::Error;
use ssdkit::ycsb::Setup;
use ssdkit::ycsb::client::Kind;
use ssdkit::ycsb::controller::Work;
use ssdkit::ycsb::stores::conventional;
use workload::ycsb::{self, Operation, Ycsb};

use crate::db::{Counters, Db, Options, Reader};
use crate::disk::{Disk, DiskCounters};
use crate::files::Files;

/// Bytes that say whose value it is: its record and version.
const HEAD: usize = 16;
/// Memtables for loading, in bytes.
const LOAD_MEMTABLES: u64 = 64 << 20;
/// Requests that the drive may have inside.
const DEPTH: usize = 1024;

/// What is asked for beside the [`Setup`]; of that, `cache`, `store`,
/// `durable`, `clients` and `real` are not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beside {
    /// Bytes for blocks, indexes, filters and memtables together.
    pub cache: u64,
    /// Of these, at most so many for memtables.
    pub memtables: u64,
    /// Each write is durable when it returns.
    pub sync: bool,
    /// Operations under way at once, each on a thread.
    pub threads: usize,
    /// RocksDB's threads for flushes and compactions.
    pub background: i32,
    /// The core of the host, and that of the controller; `None` leaves both
    /// to the system.
    pub cores: Option<(usize, usize)>,
}

/// What a run gave.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Operations.
    pub ops: u64,
    /// Their time, in seconds.
    pub seconds: f64,
    /// The latencies, by kind.
    pub latency: Vec<(Kind, Histogram)>,
    /// Processor time of the host's threads, in ns; `None` where the system
    /// does not tell that of the controller's.
    pub host_cpu: Option<u64>,
    /// What RocksDB did.
    pub counters: Counters,
    /// What the disk did.
    pub disk: DiskCounters,
    /// What the drive did.
    pub work: Work,
    /// Records that were not there.
    pub missing: u64,
    /// Operations that failed or gave wrong data.
    pub errors: u64,
    /// The first of them.
    pub first_error: Option<String>,
}

impl Measured {
    /// Operations a second.
    pub fn rate(&self) -> f64 {
        self.ops as f64 / self.seconds
    }
}

fn failed(e: impl std::fmt::Display) -> Error {
    Error::Failed(e.to_string())
}

/// Where operations come from.
type Next = Box<dyn FnMut() -> Operation + Send>;

/// Operations that remain of a phase.
struct Source {
    next: Next,
    left: u64,
    version: u64,
}

/// What all threads of a phase use.
struct Phase<'a> {
    db: &'a Db,
    clock: Clock,
    source: Mutex<Source>,
    verify: bool,
    /// Bytes of a value.
    value: usize,
    stopped: AtomicBool,
}

/// What a thread has counted.
struct Counted {
    latency: [Histogram; 5],
    missing: u64,
    errors: u64,
    first_error: Option<String>,
}

impl Default for Counted {
    fn default() -> Counted {
        let latency = std::array::from_fn(|_| Histogram::new());
        Counted { latency, missing: 0, errors: 0, first_error: None }
    }
}

impl Counted {
    #[cold]
    fn fail(&mut self, what: impl std::fmt::Display) {
        self.errors += 1;
        self.first_error.get_or_insert_with(|| what.to_string());
    }

    fn merge(&mut self, other: Counted) {
        for (to, from) in self.latency.iter_mut().zip(&other.latency) {
            to.merge(from);
        }
        self.missing += other.missing;
        self.errors += other.errors;
        self.first_error = self.first_error.take().or(other.first_error);
    }
}

/// One thread's client.
struct Client<'a> {
    phase: &'a Phase<'a>,
    counted: Counted,
    reader: Reader,
    value: Vec<u8>,
    expected: Vec<u8>,
}

impl Phase<'_> {
    /// The next operation, and a version for what it writes.
    fn next(&self) -> Option<(Operation, u64)> {
        let mut source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        if source.left == 0 || self.stopped.load(Ordering::Relaxed) {
            return None;
        }
        source.left -= 1;
        source.version += 1;
        Some(((source.next)(), source.version))
    }

    /// Runs all on so many threads.
    fn run(&self, threads: usize) -> Counted {
        let mut all = Counted::default();
        std::thread::scope(|scope| {
            let each: Vec<_> =
                (0..threads).map(|_| scope.spawn(|| Client::new(self).run())).collect();
            for one in each {
                all.merge(one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
        });
        all
    }
}

/// Fills the value of a record; without verification only what tells whose it
/// is changes.
fn fill(record: u64, version: u64, whole: bool, value: &mut [u8]) {
    let (head, rest) = value.split_at_mut(HEAD);
    head[..8].copy_from_slice(&record.to_le_bytes());
    head[8..].copy_from_slice(&version.to_le_bytes());
    if whole {
        ycsb::fill(record, version, rest);
    }
}

/// Whether a value is one of the record of this key, of so many bytes.
fn check(
    key: &[u8],
    value: &[u8],
    bytes: usize,
    expected: Option<&mut Vec<u8>>,
) -> Result<(), String> {
    let word = |at: usize| {
        let eight = value.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        eight.map(u64::from_le_bytes)
    };
    let (Some(record), Some(version)) = (word(0), word(8)) else {
        return Err(format!("a value has {} bytes", value.len()));
    };
    if key != ycsb::key(record) || value.len() != bytes {
        return Err(format!("a read gave {} bytes of record {record}", value.len()));
    }
    if let Some(expected) = expected {
        fill(record, version, true, expected);
        if expected != value {
            return Err(format!("record {record}, version {version}, is not what was written"));
        }
    }
    Ok(())
}

impl<'a> Client<'a> {
    fn new(phase: &'a Phase<'a>) -> Client<'a> {
        let mut value = vec![0; phase.value];
        fill(0, 0, true, &mut value);
        let expected = vec![0; phase.value];
        Client { phase, counted: Counted::default(), reader: Reader::new(), value, expected }
    }

    fn run(mut self) -> Counted {
        while let Some((operation, version)) = self.phase.next() {
            let start = self.phase.clock.now();
            let (kind, outcome) = match operation {
                Operation::Read(record) => (Kind::Read, self.read(record)),
                Operation::Update(record) => (Kind::Update, self.write(record, version)),
                Operation::Insert(record) => (Kind::Insert, self.write(record, version)),
                Operation::Scan(record, count) => (Kind::Scan, self.scan(record, count)),
                Operation::ReadModifyWrite(record) => {
                    let read = self.read(record);
                    (Kind::ReadModifyWrite, read.and_then(|()| self.write(record, version)))
                }
            };
            self.counted.latency[kind as usize].record(self.phase.clock.now().since(start));
            if let Err(what) = outcome {
                self.counted.fail(what);
                self.phase.stopped.store(self.counted.errors > 1000, Ordering::Relaxed);
            }
        }
        self.counted
    }

    fn read(&mut self, record: u64) -> Result<(), String> {
        let key = ycsb::key(record);
        let value = self.phase.db.get(&mut self.reader, &key).map_err(|e| e.to_string())?;
        let Some(value) = value else {
            self.counted.missing += 1;
            return Ok(());
        };
        check(&key, value, self.value.len(), self.phase.verify.then_some(&mut self.expected))
    }

    fn write(&mut self, record: u64, version: u64) -> Result<(), String> {
        fill(record, version, self.phase.verify, &mut self.value);
        self.phase.db.put(&ycsb::key(record), &self.value).map_err(|e| e.to_string())
    }

    fn scan(&mut self, record: u64, count: u64) -> Result<(), String> {
        let (expected, verify) = (&mut self.expected, self.phase.verify);
        let (bytes, mut wrong) = (self.value.len(), None);
        let each = |key: &[u8], value: &[u8]| {
            let checked = check(key, value, bytes, verify.then_some(&mut *expected));
            wrong = wrong.take().or(checked.err());
        };
        self.phase.db.scan(&ycsb::key(record), count, each).map_err(|e| e.to_string())?;
        wrong.map_or(Ok(()), Err)
    }
}

/// The processor time of the controller's thread, in ns.
fn device_cpu() -> Option<u64> {
    for task in std::fs::read_dir("/proc/self/task").ok()? {
        let path = task.ok()?.path();
        if std::fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim() == "device") {
            let stat = std::fs::read_to_string(path.join("schedstat")).ok()?;
            return stat.split_whitespace().next()?.parse().ok();
        }
    }
    None
}

/// Runs it.
pub fn measure(setup: &Setup, beside: &Beside) -> Result<Measured, Error> {
    if let Some((host, _)) = beside.cores {
        pin(host).map_err(failed)?;
    }
    let (drive, shape) = conventional(setup, DEPTH)?;
    let published = drive.below().published();
    let options = HostedOptions {
        depth: DEPTH,
        linger: u64::MAX,
        core: beside.cores.map(|cores| cores.1),
        ..HostedOptions::default()
    };
    let (hosted, mut queues) = Hosted::start(drive, options).map_err(failed)?;
    let queue = queues.pop().ok_or_else(|| failed("the drive has no queue"))?;
    let disk = Disk::new(Box::new(Remote::new(queue)), shape);
    let measured = on_disk(setup, beside, disk, &|| published.work());
    hosted.stop();
    measured
}

fn on_disk(
    setup: &Setup,
    beside: &Beside,
    disk: Disk,
    work: &dyn Fn() -> Work,
) -> Result<Measured, Error> {
    let files = load(setup, beside, disk)?;
    let options = Options {
        cache: beside.cache,
        memtables: beside.memtables,
        sync: beside.sync.into(),
        background_jobs: beside.background,
    };
    let db = Db::open(files, &options).map_err(failed)?;
    let mut draw = Ycsb::new(setup.workload, setup.records, setup.seed);
    let records = setup.records;
    let clock = Clock::start();
    let phase = |next: Next, left, version| Phase {
        db: &db,
        clock,
        source: Mutex::new(Source { next, left, version }),
        verify: setup.verify,
        value: setup.value,
        stopped: AtomicBool::new(false),
    };
    let warming = 2 * (beside.cache / port::BLOCK_BYTES).min(records);
    // One generator for both phases.
    let versions = records + 1;
    let warm = phase(Box::new(move || draw.draw()), warming, versions);
    let mut all = warm.run(beside.threads);
    let source = warm.source.into_inner().unwrap_or_else(PoisonError::into_inner);
    let run = phase(source.next, setup.ops, source.version);
    let mark =
        || (db.counters(), db.files().disk().counters(), work(), process_cpu(), device_cpu());
    let (before, start) = (mark(), clock.now());
    let counted = run.run(beside.threads);
    let (end, after) = (clock.now(), mark());
    let host = before.4.zip(after.4).map(|(a, b)| (after.3 - before.3).saturating_sub(b - a));
    let kinds = Kind::ALL.into_iter().map(|kind| (kind, counted.latency[kind as usize].clone()));
    let latency = kinds.filter(|(_, latency)| latency.count() > 0).collect();
    all.merge(counted);
    if setup.verify {
        let mut next = 0;
        let each = move || {
            next += 1;
            Operation::Read(next - 1)
        };
        all.merge(phase(Box::new(each), records, 0).run(beside.threads));
    }
    if let Some(e) = db.file_error() {
        all.fail(e);
    }
    drop(run);
    drop(db.close().map_err(failed)?);
    Ok(Measured {
        ops: setup.ops,
        seconds: (end.0 - start.0) as f64 / 1e9,
        latency,
        host_cpu: host,
        counters: since(&after.0, &before.0),
        disk: disk_since(&after.1, &before.1),
        work: after.2.since(&before.2),
        missing: all.missing,
        errors: all.errors,
        first_error: all.first_error,
    })
}

/// Makes the database and brings it to rest. Gives its files.
fn load(setup: &Setup, beside: &Beside, disk: Disk) -> Result<Files, Error> {
    let files = Files::create(disk).map_err(failed)?;
    let options = Options {
        cache: 2 * LOAD_MEMTABLES,
        memtables: LOAD_MEMTABLES,
        sync: 0,
        background_jobs: beside.background,
    };
    let db = Db::open(files, &options).map_err(failed)?;
    let mut next = 0;
    let each = move || {
        next += 1;
        Operation::Insert(next - 1)
    };
    let source = Source { next: Box::new(each), left: setup.records, version: 0 };
    let phase = Phase {
        db: &db,
        clock: Clock::start(),
        source: Mutex::new(source),
        verify: setup.verify,
        value: setup.value,
        stopped: AtomicBool::new(false),
    };
    // Writes do not wait: one thread is as good as many.
    let loaded = phase.run(1);
    drop(phase);
    if let Some(first) = loaded.first_error {
        return Err(failed(format!("loading: {first}")));
    }
    db.settle().map_err(failed)?;
    db.close().map_err(failed)
}

fn since(b: &Counters, a: &Counters) -> Counters {
    Counters {
        block_hits: b.block_hits - a.block_hits,
        block_misses: b.block_misses - a.block_misses,
        stalls_us: b.stalls_us - a.stalls_us,
        wal_bytes: b.wal_bytes - a.wal_bytes,
        flush_bytes: b.flush_bytes - a.flush_bytes,
        compaction_read: b.compaction_read - a.compaction_read,
        compaction_written: b.compaction_written - a.compaction_written,
    }
}

fn disk_since(b: &DiskCounters, a: &DiskCounters) -> DiskCounters {
    DiskCounters {
        reads: b.reads - a.reads,
        blocks_read: b.blocks_read - a.blocks_read,
        writes: b.writes - a.writes,
        blocks_written: b.blocks_written - a.blocks_written,
        flushes: b.flushes - a.flushes,
    }
}
