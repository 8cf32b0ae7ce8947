//! One run of YCSB over one store: loads, warms the cache, measures, checks.
//!
//! The store is loaded in the order of insertion, which is none of the keys;
//! then the tree is opened anew with the cache that was asked for, and
//! operations of the workload are run uncounted until they have filled it
//! twice. In virtual time the host's own work takes no time: operations that
//! find their pages in memory take none, and throughput is that of drive and
//! depth alone. In real time the controller has a thread of its own, which
//! polls, and so does the host.
//!
//! Fails when the drive cannot be, or is too small, and when an operation that
//! must not fail does; wrong data is counted, and told by [`Measured`].

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::OnceLock;

use btree::store::{Ticks, no_clock};
use btree::{
    BatchStore, Drive, FRAME_BYTES, InPlaceConfig, InPlaceStore, Inline, LogConfig, LogCounters,
    LogStore, PAGE_BYTES, PageStore, Remote, StoreError, Tree, TreeConfig,
};
use device::hosted::{Hosted, HostedOptions, Queue};
use device::realtime::{Clock, process_cpu, thread_cpu};
use device::{Device, Link, OpenChannel};
use flash::RamMedium;
use port::{BLOCK_BYTES, BatchDone, BatchReq, BatchShape, BlockDone, BlockReq, Port, Shape, Time};
use targets::{Batch, BatchConfig, Pblk};
use workload::ycsb::{Workload, Ycsb};

use super::client::{All, Client, Fill, Kind, Source};
use super::controller::{Controller, Published, Work};
use super::counted::Counted;
use crate::drive::DriveConfig;
use crate::error::Error;
use crate::stack;
use crate::watch::Watch;

/// Operations between two polls while nothing must be waited for.
const POLL_EVERY: u32 = 16;
/// Turns between two looks at who watches.
const LOOK_EVERY: u32 = 1 << 12;
/// How long nothing may end in real time, in ns.
const PATIENCE: u64 = 60_000_000_000;
/// The device thread never sleeps once it has had work.
const LINGER: u64 = u64::MAX;
/// The least cache, in frames: what a tree needs, and a little.
const LEAST_FRAMES: u64 = 256;
/// Pages of a batch.
const BATCH: usize = 256;
/// Bytes of the log's map for each page.
const MAP_ENTRY: u64 = 4;

/// What keeps the tree's pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum StoreKind {
    /// A log on the host, on a conventional drive.
    Log,
    /// A drive that takes batches.
    #[default]
    Batch,
    /// Pages in their places, on a conventional drive.
    InPlace,
}

/// How large the cache is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CacheSize {
    /// In percent of the tree's pages when it is loaded.
    Percent(f64),
    /// In bytes.
    Bytes(u64),
}

/// What is run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The flash, its link, and the conventional drive above.
    pub drive: DriveConfig,
    /// The workload.
    pub workload: Workload,
    /// Records that are loaded.
    pub records: u64,
    /// Operations that are counted.
    pub ops: u64,
    /// The cache.
    pub cache: CacheSize,
    /// The store.
    pub store: StoreKind,
    /// With collection and checkpoints.
    pub durable: bool,
    /// Operations under way at once.
    pub clients: usize,
    /// Nanoseconds for which each command occupies the controller, beside what
    /// this machine's processor takes for it.
    pub controller: u64,
    /// What all random numbers come from.
    pub seed: u64,
    /// In real time.
    pub real: bool,
    /// Checks all that is read, and at the end all records.
    pub verify: bool,
}

/// Bytes of a drive that such a load needs: twice what lives, with room for
/// the metadata; and without collection all that is written besides.
pub fn size_for(workload: Workload, records: u64, ops: u64, durable: bool) -> u64 {
    let inserts = if matches!(workload, Workload::D | Workload::E) { ops / 10 } else { 0 };
    let live = (records + inserts) * 4608 + (48 << 20);
    let rewritten = match workload {
        Workload::C => 0,
        Workload::A | Workload::F => 2 * ops / 3,
        _ => ops / 3,
    };
    // Operations that warm the cache are at most twice its pages.
    let grown = if durable { 0 } else { (rewritten + records / 3) * (PAGE_BYTES as u64 + 512) };
    (live + grown).next_multiple_of(1 << 20)
}

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

/// What a run gave.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Operations.
    pub ops: u64,
    /// Their time, in seconds.
    pub seconds: f64,
    /// Pages of the tree after loading, and its levels.
    pub pages: u64,
    /// Levels of the tree.
    pub levels: usize,
    /// Bytes of the cache.
    pub cache_bytes: u64,
    /// Look-ups of pages that missed, as a part of all.
    pub misses: f64,
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
    /// Records that were not there and may not have to be.
    pub missing: u64,
    /// Operations that failed or gave wrong data.
    pub errors: u64,
    /// The first of them.
    pub first_error: Option<String>,
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

/// Nanoseconds since the first call.
fn clock() -> u64 {
    static START: OnceLock<Clock> = OnceLock::new();
    START.get_or_init(Clock::start).now().0
}

fn failed(e: impl std::fmt::Display) -> Error {
    Error::Failed(e.to_string())
}

/// The store cannot be on such a drive, or something went wrong.
fn store_error(e: StoreError) -> Error {
    match e {
        StoreError::Shape { .. } => Error::Usage(format!("the store: {e}")),
        e => failed(format!("the store: {e}")),
    }
}

/// Runs it.
pub fn measure(setup: &Setup, watch: &mut Watch) -> Result<Measured, Error> {
    let mut run = Run {
        setup,
        watch,
        now: Time::ZERO,
        blocks: Rc::default(),
        published: Arc::default(),
        waiting: 0,
    };
    match setup.store {
        StoreKind::Batch => run.batched(),
        StoreKind::Log | StoreKind::InPlace => run.blocks(),
    }
}

/// A conventional drive: translation behind the link, on the controller.
pub type Blocks = Link<Controller<Pblk<Device<RamMedium>>>>;
type Batched = Link<Controller<Batch<Device<RamMedium>>>>;

/// A drive on a thread of its own, and the host's queue to it.
type Sides<P> = (Hosted<P>, Queue<<P as Port>::Cmd, <P as Port>::Done>);

fn device(setup: &Setup) -> Result<Device<RamMedium>, Error> {
    let config = &setup.drive;
    let medium = RamMedium::new(&config.geometry, BLOCK_BYTES as u32)?;
    Ok(stack::new_device(config, setup.seed, medium)?)
}

/// The conventional drive of a run, new, and its outside with at most `depth`
/// requests inside.
pub fn conventional(setup: &Setup, depth: usize) -> Result<(Blocks, Shape), Error> {
    let config = &setup.drive;
    let target = stack::target(config, setup.seed);
    let pblk = stack::new_target(config, device(setup)?, target)?;
    let shape = Shape { depth: pblk.shape().depth.min(depth), ..pblk.shape() };
    let controller = Controller::new(pblk, setup.controller);
    Ok((Link::new(config.profile.link, controller), shape))
}

/// What the host's thread has used.
#[derive(Clone, Copy, Default)]
struct Used {
    clock: u64,
    thread: u64,
    process: u64,
}

/// A run under way.
struct Run<'a, 'b> {
    setup: &'a Setup,
    watch: &'b mut Watch,
    /// The drive's time, where it is virtual.
    now: Time,
    /// Blocks that were given to the drive to be written.
    blocks: Rc<Cell<u64>>,
    published: Arc<Published>,
    /// Time without anything to do, in real time, in ns.
    waiting: u64,
}

impl Run<'_, '_> {
    fn clock(&self) -> fn() -> u64 {
        if self.setup.real { clock } else { no_clock }
    }

    /// Requests that the drive may have inside.
    fn depth(&self) -> usize {
        (2 * self.setup.clients + 128).min(1024)
    }

    fn host<P>(&self, drive: P) -> Result<Sides<P>, Error>
    where
        P: Port + Send + 'static,
        P::Cmd: port::Numbered + Send,
        P::Done: port::Completed + Send,
    {
        let options =
            HostedOptions { depth: self.depth(), linger: LINGER, ..HostedOptions::default() };
        let (hosted, mut queues) = Hosted::start(drive, options).map_err(failed)?;
        let queue = queues.pop().ok_or_else(|| failed("the drive has no queue"))?;
        Ok((hosted, queue))
    }

    /// A store on a conventional drive.
    fn blocks(&mut self) -> Result<Measured, Error> {
        let (drive, shape) = conventional(self.setup, self.depth())?;
        self.published = drive.below().published();
        if self.setup.real {
            let (hosted, queue) = self.host(drive)?;
            let measured = self.on_blocks(Remote::new(queue), shape);
            hosted.stop();
            measured
        } else {
            self.on_blocks(Inline(drive), shape)
        }
    }

    fn on_blocks<D>(&mut self, drive: D, shape: Shape) -> Result<Measured, Error>
    where
        D: Drive<Cmd = BlockReq, Done = BlockDone>,
    {
        let clock = self.clock();
        let drive = Counted::new(drive, self.blocks.clone());
        if self.setup.store == StoreKind::InPlace {
            let config = InPlaceConfig { clock, ..InPlaceConfig::default() };
            let store = InPlaceStore::create(drive, shape, config, self.now);
            let (store, mut client) = self.load(store.map_err(store_error)?)?;
            return self.measure((store, &mut client), 0, |_| None);
        }
        let config = LogConfig { clock, ..LogConfig::default() };
        let store = LogStore::create(drive, shape, config, self.now).map_err(store_error)?;
        let (mut store, mut client) = self.load(store)?;
        if !self.setup.durable {
            // What is not collected any more must have been before.
            let config = LogConfig { durable: false, ..config };
            let opened = LogStore::open(store.into_drive(), shape, config, self.now);
            store = opened.map_err(store_error)?;
        }
        let map = MAP_ENTRY * store.pages();
        self.measure((store, &mut client), map, |store| Some(store.counters()))
    }

    /// A drive that takes batches.
    fn batched(&mut self) -> Result<Measured, Error> {
        let device = device(self.setup)?;
        let mut config = BatchConfig::for_geometry(device.geometry(), 0.0);
        if !self.setup.durable {
            config.checkpoint_every = 0;
        }
        config.depth = self.depth();
        config.pages = config.pages.min(self.setup.drive.size / BLOCK_BYTES);
        let target = Batch::open(device, config, Time::ZERO)
            .map_err(|e| Error::Usage(format!("the drive with batched writes: {e}")))?;
        let shape = BatchShape { depth: target.shape().depth.min(self.depth()), ..*target.shape() };
        self.now = target.now();
        let controller = Controller::new(target, self.setup.controller);
        self.published = controller.published();
        let drive: Batched = Link::new(self.setup.drive.profile.link, controller);
        if self.setup.real {
            let (hosted, queue) = self.host(drive)?;
            let measured = self.on_batches(Remote::new(queue), shape);
            hosted.stop();
            measured
        } else {
            self.on_batches(Inline(drive), shape)
        }
    }

    fn on_batches<D>(&mut self, drive: D, shape: BatchShape) -> Result<Measured, Error>
    where
        D: Drive<Cmd = BatchReq, Done = BatchDone>,
    {
        let drive = Counted::new(drive, self.blocks.clone());
        let store = BatchStore::new(drive, shape, BATCH, self.clock()).map_err(store_error)?;
        let (store, mut client) = self.load(store)?;
        self.measure((store, &mut client), 0, |_| None)
    }

    /// A tree's set-up with a cache of so many bytes.
    fn tree(&self, memory: u64) -> TreeConfig {
        let operations = 2 * self.setup.clients;
        let least = LEAST_FRAMES * FRAME_BYTES + (operations * 256) as u64;
        TreeConfig { memory: memory.max(least), operations, ..TreeConfig::default() }
    }

    /// Makes a tree and fills it. Gives the store at rest, and who knows what
    /// is in it.
    fn load<S: PageStore>(&mut self, store: S) -> Result<(S, Client), Error> {
        self.watch.phase("loading");
        // Enough that few pages are written more than a few times.
        let config = self.tree((self.setup.records * 1024).max(8 << 20));
        let mut tree = Tree::create(store, config, self.now).map_err(failed)?;
        let real: fn() -> u64 = clock;
        let real = self.setup.real.then_some(real);
        let mut client = Client::new(2 * self.setup.clients, real, self.setup.verify);
        self.settle(&mut tree, &mut client)?;
        self.operate(&mut tree, &mut client, &mut Fill(0), self.setup.records)?;
        self.settle(&mut tree, &mut client)?;
        refuse_errors(&client)?;
        Ok((tree.into_store(), client))
    }

    /// Opens the tree with its cache, warms that, measures, and checks.
    fn measure<S: PageStore>(
        &mut self,
        (store, client): (S, &mut Client),
        resident: u64,
        log: impl Fn(&S) -> Option<LogCounters>,
    ) -> Result<Measured, Error> {
        // Any cache will do to see how many pages there are.
        let tree = Tree::open(store, self.tree(0), self.now).map_err(failed)?;
        let pages = tree.pages();
        let store = tree.into_store();
        let bytes = match self.setup.cache {
            CacheSize::Percent(part) => (pages as f64 * PAGE_BYTES as f64 * part / 100.0) as u64,
            CacheSize::Bytes(bytes) => bytes,
        };
        let config = self.tree(bytes.saturating_sub(resident));
        let mut tree = Tree::open(store, config, self.now).map_err(failed)?;
        self.settle(&mut tree, client)?;
        let frames = tree.memory() / FRAME_BYTES;
        let mut source = Ycsb::new(self.setup.workload, self.setup.records, self.setup.seed);
        self.watch.phase("warming the cache");
        self.operate(&mut tree, client, &mut source, 2 * frames.min(pages))?;
        self.watch.phase("measuring");
        client.clear();
        let before = self.mark(&tree, log(tree.store()));
        self.operate(&mut tree, client, &mut source, self.setup.ops)?;
        let after = self.mark(&tree, log(tree.store()));
        let mut measured = after.since(&before, self.setup);
        (measured.pages, measured.levels) = (pages, tree.levels());
        measured.cache_bytes = config.memory;
        let kinds = Kind::ALL.into_iter().map(|kind| (kind, client.latency(kind).clone()));
        measured.latency = kinds.filter(|(_, latency)| latency.count() > 0).collect();
        if self.setup.verify {
            self.watch.phase("reading back");
            self.settle(&mut tree, client)?;
            self.operate(&mut tree, client, &mut All::new(source.records()), source.records())?;
        }
        self.settle(&mut tree, client)?;
        (measured.missing, measured.errors) = (client.missing, client.failed);
        measured.first_error = client.first_error.take();
        Ok(measured)
    }

    fn mark<S: PageStore>(&self, tree: &Tree<S>, log: Option<LogCounters>) -> Mark {
        Mark {
            now: if self.setup.real { clock() } else { self.now.0 },
            waiting: self.waiting,
            ticks: tree.store().ticks(),
            used: Used { clock: clock(), thread: thread_cpu(), process: process_cpu() },
            cache: tree.cache_counters(),
            written: tree.counters().pages_written,
            blocks: self.blocks.get(),
            work: self.published.work(),
            log,
        }
    }

    /// Runs `count` operations and waits for all.
    fn operate<S: PageStore>(
        &mut self,
        tree: &mut Tree<S>,
        client: &mut Client,
        source: &mut impl Source,
        count: u64,
    ) -> Result<(), Error> {
        let most = self.setup.clients;
        let (mut left, mut fresh, mut turns) = (count, 0, 0u32);
        let mut last = (client.ended, clock());
        while left > 0 || client.live() > 0 {
            let room = tree.waiting() < most;
            if room && fresh < POLL_EVERY && (left > 0 || client.has_rewrites()) {
                if !client.rewrite(tree)? && client.live() < most {
                    client.submit(tree, source.next())?;
                    left -= 1;
                }
                fresh += 1;
                continue;
            }
            if fresh < POLL_EVERY {
                self.wait(tree, client)?
            } else {
                self.poll(tree, client)
            }
            fresh = 0;
            turns = turns.wrapping_add(1);
            if turns.is_multiple_of(LOOK_EVERY) {
                let now = clock();
                if client.ended != last.0 {
                    last = (client.ended, now);
                } else if self.setup.real && now - last.1 > PATIENCE {
                    return Err(failed("the drive completes nothing any more"));
                }
                if !self.watch.look(1.0 - left as f64 / count as f64) {
                    return Err(failed("stopped before its end"));
                }
            }
        }
        Ok(())
    }

    /// Looks after what is due now.
    #[inline]
    fn poll<S: PageStore>(&mut self, tree: &mut Tree<S>, client: &mut Client) {
        if !self.setup.real {
            tree.poll(self.now, client);
            return;
        }
        let (start, before) = (clock(), (client.ended, tree.store().ticks()));
        tree.poll(Time(start), client);
        if before == (client.ended, tree.store().ticks()) {
            self.waiting += clock() - start;
        }
    }

    /// Nothing can be done before something completes.
    fn wait<S: PageStore>(&mut self, tree: &mut Tree<S>, client: &mut Client) -> Result<(), Error> {
        if self.setup.real {
            self.poll(tree, client);
            std::hint::spin_loop();
            return Ok(());
        }
        let at = tree.next_event().ok_or_else(|| failed("the drive completes nothing any more"))?;
        self.now = self.now.max(at);
        client.now = self.now.0;
        tree.poll(self.now, client);
        Ok(())
    }

    /// Makes all durable and lets the drive come to rest.
    fn settle<S: PageStore>(
        &mut self,
        tree: &mut Tree<S>,
        client: &mut Client,
    ) -> Result<(), Error> {
        client.flush(tree);
        if self.setup.real {
            self.now = Time(clock());
        }
        tree.poll(self.now, client);
        while let Some(at) = tree.store_mut().wait() {
            let at = if self.setup.real { Time(clock()) } else { at };
            self.now = self.now.max(at);
            client.now = self.now.0;
            tree.poll(self.now, client);
        }
        if client.flushed { Ok(()) } else { Err(failed("the drive completes nothing any more")) }
    }
}

/// Operations of a load must not fail.
fn refuse_errors(client: &Client) -> Result<(), Error> {
    match &client.first_error {
        Some(first) => Err(failed(format!("loading: {first}"))),
        None => Ok(()),
    }
}

/// All counters at a moment.
struct Mark {
    now: u64,
    waiting: u64,
    ticks: Ticks,
    used: Used,
    cache: btree::CacheCounters,
    written: u64,
    blocks: u64,
    work: Work,
    log: Option<LogCounters>,
}

impl Mark {
    fn since(&self, earlier: &Mark, setup: &Setup) -> Measured {
        let (a, b) = (earlier, self);
        let wall = b.used.clock - a.used.clock;
        let (host, all) = (b.used.thread - a.used.thread, b.used.process - a.used.process);
        let lookups = (b.cache.lookups - a.cache.lookups).max(1) as f64;
        let least = host.min(all.saturating_sub(host));
        let ticks = Ticks {
            submission: b.ticks.submission - a.ticks.submission,
            writing: b.ticks.writing - a.ticks.writing,
            reading: b.ticks.reading - a.ticks.reading,
            collection: b.ticks.collection - a.ticks.collection,
            checkpoint: b.ticks.checkpoint - a.ticks.checkpoint,
        };
        let time = HostTime { all: wall, waiting: b.waiting - a.waiting, store: ticks };
        Measured {
            ops: setup.ops,
            seconds: (b.now - a.now) as f64 / 1e9,
            pages: 0,
            levels: 0,
            cache_bytes: 0,
            misses: (b.cache.misses - a.cache.misses) as f64 / lookups,
            latency: Vec::new(),
            host: if setup.real { time } else { HostTime::default() },
            share: setup.real.then(|| least as f64 / wall.max(1) as f64),
            pages_written: b.written - a.written,
            blocks_written: b.blocks - a.blocks,
            log: a.log.zip(b.log).map(|(a, b)| log_since(&a, &b)),
            work: b.work.since(&a.work),
            missing: 0,
            errors: 0,
            first_error: None,
        }
    }
}

fn log_since(a: &LogCounters, b: &LogCounters) -> LogCounters {
    LogCounters {
        records: b.records - a.records,
        pages: b.pages - a.pages,
        collected: b.collected - a.collected,
        moved: b.moved - a.moved,
        checkpoints: b.checkpoints - a.checkpoints,
        checkpoint_blocks: b.checkpoint_blocks - a.checkpoint_blocks,
        unused: b.unused - a.unused,
        recovered: b.recovered,
    }
}
