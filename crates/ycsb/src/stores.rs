//! The stores of a run, on new drives: a tree on a conventional drive or on one that
//! takes batches, or a drive that keeps values by key, without a tree.
//!
//! Fails when the drive cannot be, or is too small, and when an operation that must not
//! fail does.

use ::measure::units;
use btree::{
    AnyStore, Awaited, BatchStore, FRAME_BYTES, InPlaceConfig, InPlaceStore, Inline, Keyed,
    KeyedConfig, LogConfig, LogStore, PAGE_BYTES, PageStore, Records, Remote, Store, StoreError,
    StoreKind, Tree, TreeConfig,
};
use device::hosted::{Hosted, HostedOptions};
use device::{Link, OpenChannel};
use port::{BLOCK_BYTES, BatchDone, BatchReq, BatchShape, Port, Shape};
use targets::BatchConfig;

use super::client::Client;
use super::controller::Controller;
use super::counted::Counted;
use super::measure::{Run, failed};
use super::measured::{Measured, TreeSize};
use super::setup::{CacheSize, Setup};
use drive::error::Error;
use drive::whole::{Boxed, Drive};
use drive::{batched, kv, lower, memory, stack};

/// The device thread never sleeps once it has had work; by turns it does when
/// it has had none for so long, in ns.
const LINGER: u64 = u64::MAX;
const LINGER_BY_TURNS: u64 = 1_000_000;
/// The least cache, in frames: what a tree needs, and a little.
const LEAST_FRAMES: u64 = 256;
/// Pages of a batch.
const BATCH: usize = 256;
/// Bytes of the log's map for each page.
const MAP_ENTRY: u64 = 4;

/// The store cannot be on such a drive, or something went wrong.
fn store_error(e: StoreError) -> Error {
    match e {
        StoreError::Shape { .. } => Error::Usage(format!("the store: {e}")),
        e => failed(format!("the store: {e}")),
    }
}

/// A conventional drive: translation behind the link, on the controller.
pub type Blocks = Link<Controller<Boxed>>;

/// A drive as its store sees it.
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

impl Run<'_, '_> {
    /// Measures with the drive as the store sees it: on a thread of its own in real
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

    /// A drive that keeps values by key.
    pub(super) fn keyed(&mut self) -> Result<Vec<Measured>, Error> {
        let setup = self.setup;
        let medium = memory::medium(&setup.drive, BLOCK_BYTES as u32)?;
        let device = stack::new_device(&setup.drive, setup.seed, medium.into())?;
        let drive = kv::start(&setup.drive, setup.seed, device)?;
        let shape = drive.shape();
        if setup.value as u64 > shape.max_value {
            return Err(Error::Usage(format!(
                "a value of this drive has at most {}: lower --value",
                units::size_binary(shape.max_value)
            )));
        }
        let controller = Controller::new(drive, setup.controller);
        self.published = controller.published();
        let link = Link::new(lower::link_above(&setup.drive), controller);
        self.with(link, |run, drive| {
            let operations = 2 * setup.clients;
            let config = KeyedConfig { operations, memory: setup.buffers(), keys: 0 };
            let keyed = Keyed::new(drive, shape, config, run.now).map_err(failed)?;
            let mut store = Records::Drive(Box::new(keyed));
            let mut client = run.load(&mut store)?;
            run.measure(&mut store, &mut client, 0, None)
        })
    }

    /// A tree on a conventional drive.
    pub(super) fn blocks(&mut self) -> Result<Vec<Measured>, Error> {
        let (drive, shape) = conventional(self.setup, self.depth())?;
        self.published = drive.below().published();
        self.with(drive, |run, drive| run.on_blocks(drive, shape))
    }

    fn on_blocks(&mut self, drive: AnyDrive<Blocks>, shape: Shape) -> Result<Vec<Measured>, Error> {
        let clock = self.clock();
        let drive = Counted::new(drive, self.blocks.clone());
        if self.setup.store == Store::Tree(StoreKind::InPlace) {
            let config = InPlaceConfig { clock, ..InPlaceConfig::default() };
            let store = InPlaceStore::create(drive, shape, config, self.now);
            let mut store = store.map_err(store_error)?;
            let mut client = self.load_tree(Box::new(&mut store))?;
            return self.measure_tree(Box::new(store), &mut client, 0);
        }
        let config = LogConfig { clock, ..LogConfig::default() };
        let mut store = LogStore::create(drive, shape, config, self.now).map_err(store_error)?;
        let mut client = self.load_tree(Box::new(&mut store))?;
        if !self.setup.durable {
            // What is not collected any more must have been before.
            let config = LogConfig { durable: false, ..config };
            let opened = LogStore::open(store.into_drive(), shape, config, self.now);
            store = opened.map_err(store_error)?;
        }
        let map = MAP_ENTRY * store.pages();
        self.measure_tree(Box::new(store), &mut client, map)
    }

    /// A tree on a drive that takes batches.
    pub(super) fn batched(&mut self) -> Result<Vec<Measured>, Error> {
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
        let mut client = self.load_tree(Box::new(&mut store))?;
        self.measure_tree(Box::new(store), &mut client, 0)
    }

    /// A tree's set-up with a cache of so many bytes.
    fn tree(&self, memory: u64) -> TreeConfig {
        let operations = 2 * self.setup.clients;
        let least = LEAST_FRAMES * FRAME_BYTES + (operations * 256) as u64;
        TreeConfig { memory: memory.max(least), operations, ..TreeConfig::default() }
    }

    /// Makes a tree and fills it; then the store is at rest. Gives who knows what
    /// is in it.
    fn load_tree(&mut self, store: AnyStore<'_>) -> Result<Client, Error> {
        let config = self.tree(self.setup.loading_cache());
        let tree = Tree::create(store, config, self.now).map_err(failed)?;
        self.load(&mut tree.into())
    }

    /// Opens the tree with its cache, warms that, measures, and checks.
    fn measure_tree(
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
        let tree = Tree::open(store, config, self.now).map_err(failed)?;
        let (frames, levels) = (tree.memory() / FRAME_BYTES, tree.levels());
        let size = TreeSize { pages, levels, cache_bytes: config.memory };
        self.measure(&mut tree.into(), client, 2 * frames.min(pages), Some(size))
    }
}
