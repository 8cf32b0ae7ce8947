//! One run of YCSB over one store: loads, warms the cache, measures, checks; or
//! two, measured by turns.
//!
//! The store is loaded in the order of insertion, which is none of the keys;
//! then the tree is opened anew with the cache that was asked for, and
//! operations of the workload are run uncounted until they have filled it
//! twice. In virtual time the host's own work takes no time: operations that
//! find their pages in memory take none, and throughput is that of drive and
//! depth alone. In real time the controller has a thread of its own, which
//! polls, and so does the host.
//!
//! By turns, both stores are loaded and warmed; then each in its turn does so
//! many operations while the other rests, and its drive sleeps. What the
//! machine gives them changes slower than that, so the ratio of two turns that
//! follow each other says more than that of two runs.
//!
//! A run that is stopped gives what it measured until then, and checks nothing.
//!
//! Fails when the drive cannot be, or is too small, and when an operation that
//! must not fail does; wrong data is counted, and told by [`Measured`].

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::OnceLock;
use std::time::Duration;

use btree::store::no_clock;
use btree::{
    AnyStore, Awaited, BatchStore, FRAME_BYTES, InPlaceConfig, InPlaceStore, Inline, LogConfig,
    LogStore, PAGE_BYTES, PageStore, Remote, StoreError, StoreKind, Tree, TreeConfig,
};
use device::hosted::{Hosted, HostedOptions};
use device::realtime::{Clock, process_cpu, thread_cpu};
use device::{Link, OpenChannel};
use port::{BLOCK_BYTES, BatchDone, BatchReq, BatchShape, Port, Shape, Time};
use targets::BatchConfig;
use workload::ycsb::Ycsb;

use super::baton::{Baton, Runner};
use super::client::{All, Client, Fill, Kind, Source};
use super::controller::{Controller, Published};
use super::counted::Counted;
use super::measured::{Mark, Measured, Used};
use super::setup::{CacheSize, Setup};
use drive::batched;
use drive::error::Error;
use drive::lower;
use drive::memory;
use drive::stack;
use drive::whole::{Boxed, Drive};
use load::threads::run_all;
use load::watch::Watch;

/// Operations between two polls while nothing must be waited for.
const POLL_EVERY: u32 = 16;
/// Turns between two looks at who watches.
const LOOK_EVERY: u32 = 1 << 12;
/// How long what is under way has to end when a run is stopped.
const GRACE: Duration = Duration::from_millis(300);
/// How long nothing may end in real time, in ns.
const PATIENCE: u64 = 60_000_000_000;
/// The device thread never sleeps once it has had work; by turns it does when
/// it has had none for so long, in ns.
const LINGER: u64 = u64::MAX;
const LINGER_BY_TURNS: u64 = 1_000_000;
/// How long a drive has after its turn to end what it does.
const REST: Duration = Duration::from_millis(5);
/// The least cache, in frames: what a tree needs, and a little.
const LEAST_FRAMES: u64 = 256;
/// Pages of a batch.
const BATCH: usize = 256;
/// Bytes of the log's map for each page.
const MAP_ENTRY: u64 = 4;

/// Nanoseconds since the first call.
fn clock() -> u64 {
    static START: OnceLock<Clock> = OnceLock::new();
    START.get_or_init(Clock::start).now().0
}

fn failed(e: impl std::fmt::Display) -> Error {
    Error::Failed(e.to_string())
}

fn stopped() -> Error {
    failed("it was stopped before anything was measured")
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
    let mut turns = Run::new(setup, watch, Turns { count: 1, runner: None }).all()?;
    Ok(turns.pop().expect("there was one"))
}

/// Runs both, the operations of each in `count` turns, and gives what each turn
/// gave. They share the processors, and need memory for both drives.
pub fn measure_by_turns(
    setups: &[Setup; 2],
    count: u64,
    watch: &Watch,
) -> Result<Vec<[Measured; 2]>, Error> {
    let baton = &Baton::new(setups.len());
    let runs = setups.iter().enumerate().map(|(number, setup)| {
        move || {
            let turns = Turns { count, runner: Some(baton.runner(number)) };
            Run::new(setup, &mut watch.helper(), turns).all()
        }
    });
    let mut runs = run_all(runs)?.into_iter();
    let mut next = || runs.next().expect("there are two");
    let (a, b) = (next(), next());
    Ok(a?.into_iter().zip(b?).map(|(a, b)| [a, b]).collect())
}

/// In which turns a run is measured.
struct Turns<'a> {
    count: u64,
    /// With others in between.
    runner: Option<Runner<'a>>,
}

impl Turns<'_> {
    /// The others' turns.
    fn pass(&self) {
        if let Some(runner) = &self.runner {
            std::thread::sleep(REST);
            runner.pass();
        }
    }
}

/// A conventional drive: translation behind the link, on the controller.
pub type Blocks = Link<Controller<Boxed>>;

/// A drive as the tree sees it.
type AnyDrive<P> = Box<dyn Awaited<Cmd = <P as Port>::Cmd, Done = <P as Port>::Done>>;

/// The conventional drive of a run, new, and its outside with at most `depth`
/// requests inside.
pub fn conventional(setup: &Setup, depth: usize) -> Result<(Blocks, Shape), Error> {
    let mut config = setup.drive.clone();
    // That of the profile is in front of the controller.
    let link = std::mem::take(&mut config.profile.link);
    let drive = stack::build(&config, setup.seed)?;
    let shape = Shape { depth: drive.shape().depth.min(depth), ..drive.shape() };
    Ok((Link::new(link, Controller::new(drive, setup.controller)), shape))
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
    turns: Turns<'b>,
}

impl<'a, 'b> Run<'a, 'b> {
    fn new(setup: &'a Setup, watch: &'b mut Watch, turns: Turns<'b>) -> Run<'a, 'b> {
        Run {
            setup,
            watch,
            now: Time::ZERO,
            blocks: Rc::default(),
            published: Arc::default(),
            waiting: 0,
            turns,
        }
    }

    fn all(&mut self) -> Result<Vec<Measured>, Error> {
        match self.setup.store {
            StoreKind::Batched => self.batched(),
            StoreKind::Log | StoreKind::InPlace => self.blocks(),
        }
    }

    fn clock(&self) -> fn() -> u64 {
        if self.setup.real { clock } else { no_clock }
    }

    /// Requests that the drive may have inside.
    fn depth(&self) -> usize {
        (2 * self.setup.clients + 128).min(1024)
    }

    /// Measures with the drive as the tree sees it: on a thread of its own in real
    /// time.
    fn with<P>(
        &mut self,
        drive: P,
        measured: impl FnOnce(&mut Self, AnyDrive<P>) -> Result<Vec<Measured>, Error>,
    ) -> Result<Vec<Measured>, Error>
    where
        P: Port + Send + 'static,
        P::Cmd: port::Numbered + Send,
        P::Done: port::Completed + Send,
    {
        if !self.setup.real {
            return measured(self, Box::new(Inline(drive)));
        }
        let linger = if self.turns.runner.is_some() { LINGER_BY_TURNS } else { LINGER };
        let options = HostedOptions { depth: self.depth(), linger, ..HostedOptions::default() };
        let (hosted, mut queues) = Hosted::start(drive, options).map_err(failed)?;
        let queue = queues.pop().ok_or_else(|| failed("the drive has no queue"))?;
        let measured = measured(self, Box::new(Remote::new(queue)));
        // The store is gone: nobody waits for what is inside.
        hosted.leave();
        measured
    }

    /// A store on a conventional drive.
    fn blocks(&mut self) -> Result<Vec<Measured>, Error> {
        let (drive, shape) = conventional(self.setup, self.depth())?;
        self.published = drive.below().published();
        self.with(drive, |run, drive| run.on_blocks(drive, shape))
    }

    fn on_blocks(&mut self, drive: AnyDrive<Blocks>, shape: Shape) -> Result<Vec<Measured>, Error> {
        let clock = self.clock();
        let drive = Counted::new(drive, self.blocks.clone());
        if self.setup.store == StoreKind::InPlace {
            let config = InPlaceConfig { clock, ..InPlaceConfig::default() };
            let store = InPlaceStore::create(drive, shape, config, self.now);
            let mut store = store.map_err(store_error)?;
            let mut client = self.load(Box::new(&mut store))?;
            return self.measure(Box::new(store), &mut client, 0);
        }
        let config = LogConfig { clock, ..LogConfig::default() };
        let mut store = LogStore::create(drive, shape, config, self.now).map_err(store_error)?;
        let mut client = self.load(Box::new(&mut store))?;
        if !self.setup.durable {
            // What is not collected any more must have been before.
            let config = LogConfig { durable: false, ..config };
            let opened = LogStore::open(store.into_drive(), shape, config, self.now);
            store = opened.map_err(store_error)?;
        }
        let map = MAP_ENTRY * store.pages();
        self.measure(Box::new(store), &mut client, map)
    }

    /// A drive that takes batches.
    fn batched(&mut self) -> Result<Vec<Measured>, Error> {
        let setup = self.setup;
        batched::refuse_layers(&setup.drive)?;
        let medium = memory::medium(&setup.drive, BLOCK_BYTES as u32)?;
        let device = stack::new_device(&setup.drive, setup.seed, medium.into())?;
        let flash = lower::before(&setup.drive, device, None)?;
        let mut config = BatchConfig::for_geometry(flash.geometry(), 0.0);
        if !self.setup.durable {
            config.checkpoint_every = 0;
        }
        config.depth = self.depth();
        config.pages = config.pages.min(self.setup.drive.size / BLOCK_BYTES);
        let target = batched::over(flash, config)
            .map_err(|e| Error::Usage(format!("the drive with batched writes: {e}")))?;
        let shape = BatchShape { depth: target.shape().depth.min(self.depth()), ..target.shape() };
        self.now = target.now();
        let controller = Controller::new(target, self.setup.controller);
        self.published = controller.published();
        let drive = Link::new(lower::link_above(&setup.drive), controller);
        self.with(drive, |run, drive| run.on_batches(drive, shape))
    }

    fn on_batches(
        &mut self,
        drive: Box<dyn Awaited<Cmd = BatchReq, Done = BatchDone>>,
        shape: BatchShape,
    ) -> Result<Vec<Measured>, Error> {
        let drive = Counted::new(drive, self.blocks.clone());
        let mut store = BatchStore::new(drive, shape, BATCH, self.clock()).map_err(store_error)?;
        let mut client = self.load(Box::new(&mut store))?;
        self.measure(Box::new(store), &mut client, 0)
    }

    /// A tree's set-up with a cache of so many bytes.
    fn tree(&self, memory: u64) -> TreeConfig {
        let operations = 2 * self.setup.clients;
        let least = LEAST_FRAMES * FRAME_BYTES + (operations * 256) as u64;
        TreeConfig { memory: memory.max(least), operations, ..TreeConfig::default() }
    }

    /// Makes a tree and fills it; then the store is at rest. Gives who knows what
    /// is in it.
    fn load(&mut self, store: AnyStore<'_>) -> Result<Client, Error> {
        self.watch.phase("loading");
        let config = self.tree(self.setup.loading_cache());
        let mut tree = Tree::create(store, config, self.now).map_err(failed)?;
        let real: fn() -> u64 = clock;
        let real = self.setup.real.then_some(real);
        let mut client = Client::new(2 * self.setup.clients, real, self.setup.verify);
        self.settle(&mut tree, &mut client)?;
        self.complete(&mut tree, &mut client, &mut Fill(0), self.setup.records)?;
        self.settle(&mut tree, &mut client)?;
        refuse_errors(&client)?;
        Ok(client)
    }

    /// Opens the tree with its cache, warms that, measures, and checks.
    fn measure(
        &mut self,
        store: AnyStore<'_>,
        client: &mut Client,
        resident: u64,
    ) -> Result<Vec<Measured>, Error> {
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
        self.complete(&mut tree, client, &mut source, 2 * frames.min(pages))?;
        let mut all = Vec::new();
        for turn in 0..self.turns.count {
            self.turns.pass();
            self.watch.phase("measuring");
            let ops = share(self.setup.ops, self.turns.count, turn);
            client.clear();
            let before = self.mark(&tree);
            let done = self.operate(&mut tree, client, &mut source, ops)?;
            if done == 0 && ops > 0 {
                return Err(stopped());
            }
            let after = self.mark(&tree);
            let mut measured = after.since(&before, done, self.setup.real);
            measured.interrupted = done < ops;
            (measured.pages, measured.levels) = (pages, tree.levels());
            measured.cache_bytes = config.memory;
            let kinds = Kind::ALL.into_iter().map(|kind| (kind, client.latency(kind).clone()));
            measured.latency = kinds.filter(|(_, latency)| latency.count() > 0).collect();
            all.push(measured);
            if done < ops {
                break;
            }
        }
        let last = all.last_mut().expect("there is a turn");
        if !last.interrupted {
            if self.setup.verify {
                self.watch.phase("reading back");
                self.settle(&mut tree, client)?;
                let count = source.records();
                let read = self.operate(&mut tree, client, &mut All::new(count), count)?;
                last.interrupted = read < count;
            }
            self.settle(&mut tree, client)?;
        }
        (last.missing, last.errors) = (client.missing, client.failed);
        last.first_error = client.first_error.take();
        Ok(all)
    }

    fn mark(&self, tree: &Tree<AnyStore<'_>>) -> Mark {
        // Looked at once, so that in real time the parts make the whole however
        // long this thread stands still between two looks.
        let now = clock();
        Mark {
            now: if self.setup.real { now } else { self.now.0 },
            waiting: self.waiting,
            ticks: tree.store().ticks(),
            used: Used { clock: now, thread: thread_cpu(), process: process_cpu() },
            cache: tree.cache_counters(),
            written: tree.counters().pages_written,
            blocks: self.blocks.get(),
            work: self.published.work(),
            log: tree.store().log(),
        }
    }

    /// Runs `count` operations, all of them.
    fn complete(
        &mut self,
        tree: &mut Tree<AnyStore<'_>>,
        client: &mut Client,
        source: &mut impl Source,
        count: u64,
    ) -> Result<(), Error> {
        match self.operate(tree, client, source, count)? {
            done if done < count => Err(stopped()),
            _ => Ok(()),
        }
    }

    /// Runs `count` operations, or as many as it may before it is stopped, and
    /// waits for all. Gives how many have ended.
    fn operate(
        &mut self,
        tree: &mut Tree<AnyStore<'_>>,
        client: &mut Client,
        source: &mut impl Source,
        count: u64,
    ) -> Result<u64, Error> {
        let most = self.setup.clients;
        let (mut count, mut left, mut fresh, mut turns) = (count, count, 0, 0u32);
        let mut stopped = None;
        let mut last = (client.ended, clock());
        while left > 0 || client.live() > 0 {
            let room = tree.waiting() < most;
            if room && fresh < POLL_EVERY && (left > 0 || client.has_rewrites()) {
                if !client.rewrite(tree)? && client.live() < most {
                    client.submit(tree, source.next(client.inserting()))?;
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
                if !self.watch.look(1.0 - left as f64 / count.max(1) as f64) {
                    (count, left) = (count - left, 0);
                    if now - *stopped.get_or_insert(now) > GRACE.as_nanos() as u64 {
                        return Ok(count - client.live() as u64);
                    }
                }
            }
        }
        Ok(count)
    }

    /// Looks after what is due now.
    #[inline]
    fn poll(&mut self, tree: &mut Tree<AnyStore<'_>>, client: &mut Client) {
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
    fn wait(&mut self, tree: &mut Tree<AnyStore<'_>>, client: &mut Client) -> Result<(), Error> {
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
    fn settle(&mut self, tree: &mut Tree<AnyStore<'_>>, client: &mut Client) -> Result<(), Error> {
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

/// The part of `all` of one of `parts` parts.
fn share(all: u64, parts: u64, part: u64) -> u64 {
    all * (part + 1) / parts - all * part / parts
}

#[cfg(test)]
mod tests {
    use workload::ycsb::Workload;

    use super::*;
    use drive::spec::DriveSpec;

    fn setup(store: StoreKind, real: bool) -> Setup {
        let DriveSpec::Memory(spec) = "mem:znand,groups=2,pus=2,pages=64".parse().unwrap() else {
            unreachable!()
        };
        Setup {
            drive: crate::drive(&spec, 96 << 20).unwrap(),
            workload: Workload::Paper,
            records: 2000,
            ops: 1001,
            cache: CacheSize::Percent(30.0),
            store,
            durable: true,
            clients: 16,
            controller: 0,
            seed: 1,
            real,
            verify: true,
        }
    }

    #[test]
    fn turns_do_all_operations_between_them() {
        let watch = Watch::quiet();
        for real in [false, true] {
            let setups = [StoreKind::Log, StoreKind::Batched].map(|store| setup(store, real));
            let turns = measure_by_turns(&setups, 4, &watch).unwrap();
            for side in [0, 1] {
                let all: Vec<&Measured> = turns.iter().map(|turn| &turn[side]).collect();
                let ops: Vec<u64> = all.iter().map(|m| m.ops).collect();
                assert_eq!(ops, [250, 250, 250, 251]);
                for m in all {
                    let counted: u64 = m.latency.iter().map(|(_, all)| all.count()).sum();
                    assert_eq!((counted, m.errors), (m.ops, 0), "{:?}", m.first_error);
                    assert!(m.seconds > 0.0 && m.share.is_some() == real);
                }
            }
        }
    }

    #[test]
    fn one_that_fails_lets_the_other_end() {
        let mut setups = [StoreKind::Log, StoreKind::Batched].map(|store| setup(store, false));
        setups[0].records = 1 << 20;
        let failed = measure_by_turns(&setups, 4, &Watch::quiet()).unwrap_err();
        assert_eq!(failed.exit_code(), 1, "{failed}");
    }
}
