//! `ssdkit serve --redis`: a key-value store on a drive in memory, for clients
//! of Redis.
//!
//! The drive has a thread of its own; the store and all connections are on
//! another. Serves until Ctrl-C or SIGTERM; then answers what was received and
//! flushes. May fail: the drive is none of memory, too small or has layers that
//! its kind cannot have, the address cannot be listened on, or a flush fails.

use std::io::Write;

use btree::store::no_clock;
use btree::{
    BatchStore, InPlaceConfig, InPlaceStore, LogConfig, LogStore, PageStore, Remote, Tree,
    TreeConfig,
};
use device::Link;
use device::hosted::{Bell, Hosted, HostedError, HostedOptions, Queue};
use device::realtime::Clock;
use exports::nbd::{ListenAddr, StopHandle};
use exports::redis::{Options, Server, Sync};
use flash::RamMedium;
use measure::units;
use port::{BLOCK_BYTES, BlockDone, BlockReq, Shape, Time};
use serde_json::json;
use targets::{Batch, BatchConfig};

use crate::cli::{Pages, ServeArgs, SyncWhen};
use crate::drive::{Cache, DriveConfig, DriveSpec, NbdAddress};
use crate::error::Error;
use crate::nbd::resolve;
use crate::serve::watch_signals;
use crate::stack::{Drive, Stack, Visitor, new_device};

/// Operations of the tree that may wait at once.
const OPERATIONS: usize = 256;

/// Commands outside the store's hands at once.
const DEPTH: usize = 384;

/// The least memory for pages, in bytes.
const LEAST: u64 = 8 << 20;

/// Part of the flash that a drive with batched writes keeps for itself.
const SPARE: f64 = 0.1;

fn failed(e: impl std::fmt::Display) -> Error {
    Error::Failed(e.to_string())
}

/// Whether the options agree with each other and with the drive.
pub(crate) fn check(args: &ServeArgs) -> Result<(), Error> {
    let refuse = |text: &str| Err(Error::Usage(text.into()));
    let DriveSpec::Memory(spec) = &args.drive else {
        return refuse("--redis is for mem: drives: take one");
    };
    if args.memory.is_some_and(|bytes| bytes < LEAST) {
        return refuse("--memory is less than 8M: raise it");
    }
    let is_batched = args.pages.unwrap_or_default() == Pages::Batched;
    if is_batched && (spec.parity > 0 || spec.cache != Cache::Volatile || args.faults.are_given()) {
        return refuse(
            "a drive with batched writes has no parity, protected cache or --fault: leave them \
             out, or take --pages log",
        );
    }
    Ok(())
}

/// Serves, and tells `out` where.
pub(crate) fn run(args: &ServeArgs, out: &mut dyn Write) -> Result<(), Error> {
    let (Some(address), DriveSpec::Memory(spec)) = (&args.redis, &args.drive) else {
        return Err(Error::Usage("--redis is for mem: drives: take one".into()));
    };
    let faults = args.faults.read(args.seed)?;
    let config = DriveConfig { faults, ..spec.resolve()? };
    let server = Server::bind(&resolve(address)?).map_err(failed)?;
    match args.pages.unwrap_or_default() {
        Pages::Batched => batched(args, &config, server, out),
        _ => {
            let stack = Stack::build(&config, args.seed)?;
            stack.visit(Blocks { args, config: &config, server, out })
        }
    }
}

fn options() -> HostedOptions {
    HostedOptions { depth: DEPTH, ..HostedOptions::default() }
}

fn hosted(e: HostedError) -> Error {
    Error::Failed(e.to_string())
}

/// Serves from a drive with batched writes in its controller.
fn batched(
    args: &ServeArgs,
    config: &DriveConfig,
    server: Server,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let medium = RamMedium::new(&config.geometry, config.spec.store.kept())?;
    let device = new_device(config, args.seed, medium)?;
    let set_up = BatchConfig::for_geometry(&config.geometry, SPARE);
    let set_up = BatchConfig { pages: (config.size / BLOCK_BYTES).min(set_up.pages), ..set_up };
    let cannot = |e: targets::BatchError| Error::Usage(format!("{}: {e}", config.name));
    let target = Batch::open(device, set_up, Time::ZERO).map_err(cannot)?;
    let shape = *target.shape();
    let link = Link::new(config.profile.link, target);
    let (_drive, mut queues) = Hosted::start(link, options()).map_err(hosted)?;
    let queue = queues.remove(0);
    let (bell, clock) = (queue.bell(), queue.clock());
    let most = shape.max_pages as usize;
    let store = BatchStore::new(Remote::new(queue), shape, most.min(256), no_clock);
    serve(args, config, server, store.map_err(failed)?, (&bell, clock), out)
}

/// Serves from a block drive.
struct Blocks<'a> {
    args: &'a ServeArgs,
    config: &'a DriveConfig,
    server: Server,
    out: &'a mut dyn Write,
}

impl Visitor for Blocks<'_> {
    type Out = Result<(), Error>;

    fn visit<D: Drive<Medium = RamMedium>>(self, mut drive: D) -> Self::Out {
        let Blocks { args, config, server, out } = self;
        let shape = Shape { depth: DEPTH, ..drive.shape() };
        drive.set_on_a_clock(true);
        drive.begin_faults();
        let (_drive, mut queues) = Hosted::start(drive, options()).map_err(hosted)?;
        let queue: Queue<BlockReq, BlockDone> = queues.remove(0);
        let (bell, clock) = (queue.bell(), queue.clock());
        let (remote, now) = (Remote::new(queue), clock.now());
        if args.pages == Some(Pages::InPlace) {
            let store = InPlaceStore::create(remote, shape, InPlaceConfig::default(), now);
            serve(args, config, server, store.map_err(failed)?, (&bell, clock), out)
        } else {
            let store = LogStore::create(remote, shape, LogConfig::default(), now);
            serve(args, config, server, store.map_err(failed)?, (&bell, clock), out)
        }
    }
}

/// Serves a store, whose drive rings the bell, by the clock.
fn serve<S: PageStore>(
    args: &ServeArgs,
    config: &DriveConfig,
    server: Server,
    store: S,
    (bell, clock): (&Bell, Clock),
    out: &mut dyn Write,
) -> Result<(), Error> {
    let bytes = store.pages() * BLOCK_BYTES;
    let memory = args.memory.unwrap_or(TreeConfig::default().memory);
    let set_up = TreeConfig { memory, operations: OPERATIONS, ..TreeConfig::default() };
    let tree = Tree::create(store, set_up, clock.now()).map_err(failed)?;
    let sync = match args.sync.unwrap_or_default() {
        SyncWhen::Always => Sync::Always,
        SyncWhen::Everysec => Sync::EverySecond,
        SyncWhen::No => Sync::No,
    };
    let stop = StopHandle::new()?;
    watch_signals(stop.clone())?;
    let at = match server.addr()? {
        ListenAddr::Unix(path) => NbdAddress::Unix(path.display().to_string()).to_string(),
        ListenAddr::Tcp(at) => at.to_string(),
    };
    if args.json {
        let json = json!({ "serving": at, "drive": config.name, "size_bytes": bytes });
        writeln!(out, "{json}")?;
    } else {
        let size = units::size_binary(bytes);
        writeln!(out, "serving keys on {} ({size}) at {at}\nCtrl-C stops it", config.name)?;
    }
    out.flush()?;
    let options = Options { sync, ..Options::default() };
    let (report, tree) = server.run(tree, bell, clock, options, &stop).map_err(failed)?;
    let counters = tree.counters();
    if args.json {
        let json = json!({
            "connections": report.connections,
            "refused": report.refused,
            "faults": report.faults,
            "commands": report.commands,
            "flushes": report.flushes,
            "pages_written": counters.pages_written,
            "page_batches": counters.batches,
        });
        writeln!(out, "{json}")?;
    } else {
        writeln!(
            out,
            "stopped after {} commands on {} connections ({} refused, {} faulty); the store is \
             flushed",
            report.commands, report.connections, report.refused, report.faults,
        )?;
    }
    Ok(())
}
