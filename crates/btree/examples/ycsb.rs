//! YCSB over each page store, on a drive whose controller has a core of its
//! own, in real time.
//!
//! ```text
//! cargo run --release -p ssdkit-btree --example ycsb -- \
//!     [WORKLOAD [RECORDS [OPERATIONS [CACHE_PERCENT [PROFILE]]]]]
//! ```
//!
//! by default `paper 200000 1000000 25 instant`. Prints operations a second
//! and where the host's time went. `instant` is flash without any times: what
//! remains is the cost of the software; other names are profiles of drives
//! (`tlc`, `znand`).

use std::collections::VecDeque;
use std::error::Error;
use std::sync::OnceLock;
use std::time::Instant;

use btree::store::Ticks;
use btree::{
    BatchStore, FRAME_BYTES, InPlaceConfig, InPlaceStore, LogConfig, LogStore, Outcome, PageStore,
    Remote, Sink, Tree, TreeConfig,
};
use device::hosted::{Hosted, HostedOptions, Queue};
use device::{Device, Link, LinkTiming, OpenChannel};
use flash::profile::Profile;
use flash::{Dimensions, Geometry, RamMedium, Timing};
use port::{BLOCK_BYTES, BatchDone, BatchReq, BatchShape, BlockDone, BlockReq, Shape, Time};
use targets::{Batch, BatchConfig, Pblk, PblkConfig, Victim, with_reserve};
use workload::ycsb::{self, Operation, RECORD_BYTES, Workload, Ycsb};

/// Operations that wait for the drive at once.
const DEPTH: usize = 128;

/// Operations between two polls while nothing waits.
const POLL_EVERY: u32 = 16;

/// Nanoseconds since the first call.
fn clock() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

struct Setup {
    workload: Workload,
    records: u64,
    operations: u64,
    cache: u64,
    profile: String,
}

/// An open-channel device with room for `bytes` and a quarter more, and what it
/// costs to reach the drive.
fn device(
    setup: &Setup,
    bytes: u64,
) -> Result<(Device<RamMedium>, u32, LinkTiming), Box<dyn Error>> {
    let (timing, link) = match setup.profile.as_str() {
        "instant" => (Timing::default(), LinkTiming::default()),
        name => {
            let profile = Profile::builtin(name).ok_or("no such profile")?;
            (profile.timing.clone(), profile.link)
        }
    };
    let mut dim =
        Dimensions { groups: 4, pus: 2, chunks: 1, pages: 128, planes: 2, page_bytes: 16384 };
    let row = u64::from(dim.groups * dim.pus * dim.pages * dim.planes * dim.page_bytes);
    dim.chunks = (bytes * 5 / 4).div_ceil(row) as u32;
    let geometry = Geometry::new(with_reserve(dim))?;
    let medium = RamMedium::new(&geometry, BLOCK_BYTES as u32)?;
    Ok((Device::new(&geometry, &timing, medium)?, dim.chunks, link))
}

fn options() -> HostedOptions {
    HostedOptions { depth: 2 * DEPTH + 128, ..HostedOptions::default() }
}

type BlockHosted = (Hosted<Link<Pblk<Device<RamMedium>>>>, Queue<BlockReq, BlockDone>, Shape);

/// A hosted drive of `bytes` with the block interface.
fn block_drive(setup: &Setup, bytes: u64) -> Result<BlockHosted, Box<dyn Error>> {
    let (device, data_chunks, link) = device(setup, bytes)?;
    let config = PblkConfig { bytes, data_chunks, victim: Victim::Greedy, seed: 1 };
    let target = Pblk::new(device, config)?;
    let shape = Shape { depth: options().depth, ..target.shape() };
    let (hosted, mut queues) = Hosted::start(Link::new(link, target), options())?;
    Ok((hosted, queues.remove(0), shape))
}

type BatchHosted = (Hosted<Link<Batch<Device<RamMedium>>>>, Queue<BatchReq, BatchDone>, BatchShape);

/// The same with the batched interface.
fn batch_drive(setup: &Setup, bytes: u64) -> Result<BatchHosted, Box<dyn Error>> {
    let (device, _, link) = device(setup, bytes)?;
    let config = BatchConfig::for_geometry(device.geometry(), 0.1);
    let config = BatchConfig { pages: (bytes / BLOCK_BYTES).min(config.pages), ..config };
    let target = Batch::open(device, config, Time::ZERO)?;
    let shape = *target.shape();
    let (hosted, mut queues) = Hosted::start(Link::new(link, target), options())?;
    Ok((hosted, queues.remove(0), shape))
}

/// Counts what ends.
#[derive(Default)]
struct Count {
    ended: u64,
    failed: u64,
    bytes: u64,
    /// Records read to be written again.
    rewrite: VecDeque<u64>,
}

/// Tags of reads of which a write follows.
const REWRITE: u64 = 1 << 63;

impl Sink for Count {
    fn record(&mut self, _tag: u64, _key: &[u8], value: &[u8]) {
        self.bytes += value.len() as u64;
    }

    fn done(&mut self, tag: u64, outcome: Result<Outcome, btree::Error>) {
        if tag & REWRITE != 0 && outcome.is_ok() {
            self.rewrite.push_back(tag & !REWRITE);
            return;
        }
        self.ended += 1;
        self.failed += u64::from(!matches!(outcome, Ok(found) if found != Outcome::Missing));
    }
}

fn run<S: PageStore>(name: &str, store: S, setup: &Setup) -> Result<(), Box<dyn Error>> {
    let leaves = setup.records / 3 * 4096 / 3 * 4;
    let memory = (leaves * setup.cache / 100).max(2000 * FRAME_BYTES);
    let config = TreeConfig { memory, operations: 2 * DEPTH, ..TreeConfig::default() };
    let mut tree = Tree::create(store, config, Time::ZERO)?;
    let mut count = Count::default();
    let mut value = vec![0; RECORD_BYTES];
    for record in 0..setup.records {
        ycsb::fill(record, 0, &mut value);
        tree.put(record, &ycsb::key(record), &value, &mut count)?;
        drain(&mut tree, &mut count, DEPTH);
    }
    drain(&mut tree, &mut count, 1);
    let loaded = (tree.pages(), tree.levels());
    let (before, cache_before) = (tree.store().ticks(), tree.cache_counters());
    count = Count::default();
    let mut ycsb = Ycsb::new(setup.workload, setup.records, 2);
    let start = Instant::now();
    let mut polled = 0;
    for version in 1..=setup.operations {
        while let Some(record) = count.rewrite.pop_front() {
            ycsb::fill(record, version, &mut value[..100]);
            tree.put(record, &ycsb::key(record), &value, &mut count)?;
        }
        match ycsb.draw() {
            Operation::Read(record) => tree.get(record, &ycsb::key(record), &mut count)?,
            Operation::Scan(record, n) => tree.scan(record, &ycsb::key(record), n, &mut count)?,
            Operation::ReadModifyWrite(record) => {
                tree.get(record | REWRITE, &ycsb::key(record), &mut count)?;
            }
            Operation::Update(record) | Operation::Insert(record) => {
                ycsb::fill(record, version, &mut value[..100]);
                tree.put(record, &ycsb::key(record), &value, &mut count)?;
            }
        }
        polled += 1;
        if tree.waiting() >= DEPTH || polled % POLL_EVERY == 0 {
            drain(&mut tree, &mut count, DEPTH);
        }
    }
    drain(&mut tree, &mut count, 1);
    let seconds = start.elapsed().as_secs_f64();
    let ticks = tree.store().ticks();
    let cache = tree.cache_counters();
    let lookups = (cache.lookups - cache_before.lookups).max(1) as f64;
    println!(
        "{name:16} {:>9.0} ops/s  {:.2} us an op  {} pages, {} levels, {:.1} % misses, {} failed",
        setup.operations as f64 / seconds,
        seconds * 1e6 / setup.operations as f64,
        loaded.0,
        loaded.1,
        (cache.misses - cache_before.misses) as f64 * 100.0 / lookups,
        count.failed,
    );
    print_ticks(&before, &ticks, seconds, setup.operations);
    Ok(())
}

fn print_ticks(before: &Ticks, after: &Ticks, seconds: f64, operations: u64) {
    let each = |a: u64, b: u64| (b - a) as f64 / operations as f64;
    let parts = [
        ("submission", each(before.submission, after.submission)),
        ("writing", each(before.writing, after.writing)),
        ("reading", each(before.reading, after.reading)),
        ("collection", each(before.collection, after.collection)),
        ("checkpoint", each(before.checkpoint, after.checkpoint)),
    ];
    let sum: f64 = parts.iter().map(|part| part.1).sum();
    print!("{:16}", "");
    for (name, ns) in parts {
        print!(" {name} {ns:.0} ns,");
    }
    println!(" tree and waiting {:.0} ns", seconds * 1e9 / operations as f64 - sum);
}

/// Polls until fewer than `most` operations wait.
fn drain<S: PageStore>(tree: &mut Tree<S>, count: &mut Count, most: usize) {
    loop {
        tree.poll(Time(clock()), count);
        if tree.waiting() < most {
            return;
        }
        std::hint::spin_loop();
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let mut next = |default: &str| args.next().unwrap_or_else(|| default.to_owned());
    let setup = Setup {
        workload: next("paper").parse()?,
        records: next("200000").parse()?,
        operations: next("1000000").parse()?,
        cache: next("25").parse()?,
        profile: next("instant"),
    };
    // The same drive for all, with 100 % overhead for the log: a leaf has two
    // to three records.
    let bytes = setup.records * 4600 + (64 << 20);
    let bytes = bytes.next_multiple_of(1 << 20);
    for durable in [true, false] {
        let name = if durable { "log" } else { "log, not durable" };
        let size = if durable { bytes } else { bytes + setup.operations * 4096 };
        let (_hosted, queue, shape) = block_drive(&setup, size)?;
        let config = LogConfig { durable, clock, ..LogConfig::default() };
        run(name, LogStore::create(Remote::new(queue), shape, config, Time::ZERO)?, &setup)?;
    }
    let (_hosted, queue, shape) = batch_drive(&setup, bytes)?;
    run("batched", BatchStore::new(Remote::new(queue), shape, 256, clock)?, &setup)?;
    let (_hosted, queue, shape) = block_drive(&setup, bytes)?;
    let config = InPlaceConfig { clock, ..InPlaceConfig::default() };
    run("in place", InPlaceStore::create(Remote::new(queue), shape, config, Time::ZERO)?, &setup)?;
    Ok(())
}
