//! Key-value stores on drives in this process: made, found again, and put away.
//!
//! Guarantees: a store that is on a drive file is found, and nothing else on it is written
//! over. Fails where the drive is too small, has something else on it, or layers that its
//! kind cannot have.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::drive::batched::{self, BoxedBatch};
use ::drive::kv::{self, KvDrive};
use ::drive::read::{is_blank, read};
use ::drive::restore::{Doubt, Restored};
use ::drive::spec::file::OpenFile;
use ::drive::spec::{DriveSpec, MemorySpec, Store as Keeps, TargetKind};
use ::drive::whole::Boxed;
use ::drive::{DriveConfig, Error, lower, memory, stack};
use btree::{
    AnyStore, Awaited, Keyed, KeyedConfig, Records, Store, StoreError, StoreKind, Tree, TreeConfig,
};
use device::Link;
use port::{BLOCK_BYTES, Port, Ring, Shape, Time};

use crate::keys::OPERATIONS;
use crate::place::meant;

/// Requests of a store in its drive at once.
const DEPTH: usize = 384;
/// A drive that a store has, and that is taken back when the store is gone.
struct Held<P>(Arc<Mutex<(P, Time)>>);

impl<P> Held<P> {
    fn new(port: P, now: Time) -> (Held<P>, Held<P>) {
        let held = Arc::new(Mutex::new((port, now)));
        (Held(held.clone()), Held(held))
    }

    fn get(&self) -> MutexGuard<'_, (P, Time)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The drive, and the time that it has come to.
    fn take(self) -> (P, Time) {
        let held = Arc::into_inner(self.0).expect("the store has let go of it");
        held.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P: Port> Port for Held<P> {
    type Cmd = P::Cmd;
    type Done = P::Done;

    fn submit(&mut self, now: Time, cmds: &mut Ring<P::Cmd>) {
        self.get().0.submit(now, cmds);
    }

    fn next_event(&self) -> Option<Time> {
        self.get().0.next_event()
    }

    fn advance(&mut self, to: Time, done: &mut Ring<P::Done>) {
        let mut held = self.get();
        held.1 = held.1.max(to);
        held.0.advance(to, done);
    }
}

impl<P: Port> Awaited for Held<P> {
    fn wait(&mut self) -> Option<Time> {
        self.next_event()
    }
}

/// The drive of a store.
enum Below {
    Blocks(Held<Boxed>),
    Batched(Held<Link<BoxedBatch>>),
    Keyed(Held<Link<KvDrive>>),
}

/// A store and its drive.
pub struct Kept {
    /// The store.
    pub records: Records<'static>,
    /// Which it is.
    pub store: Store,
    /// Whether it was there before.
    pub found: bool,
    below: Below,
}

impl Kept {
    /// Drive time.
    pub fn now(&self) -> Time {
        match &self.below {
            Below::Blocks(held) => held.get().1,
            Below::Batched(held) => held.get().1,
            Below::Keyed(held) => held.get().1,
        }
    }

    /// Puts the drive away. What was not flushed is lost.
    pub fn end(self) -> Result<(), Error> {
        drop(self.records);
        match self.below {
            Below::Blocks(held) => {
                let (drive, now) = held.take();
                if drive.outlives() { drive.end(now)?.put_away() } else { Ok(()) }
            }
            Below::Batched(held) => {
                let (drive, now) = held.take();
                let drive = drive.into_below();
                if drive.lower().device().medium().outlives() {
                    batched::end(drive, now)?;
                }
                Ok(())
            }
            Below::Keyed(held) => {
                let (drive, now) = held.take();
                let drive = drive.into_below();
                if drive.lower().device().medium().outlives() {
                    kv::end(drive, now)?;
                }
                Ok(())
            }
        }
    }
}

fn usage<T>(text: String) -> Result<T, Error> {
    Err(Error::Usage(text))
}

fn failed(e: impl std::fmt::Display) -> Error {
    Error::Failed(e.to_string())
}

fn store_error(config: &DriveConfig, e: StoreError) -> Error {
    let text = format!("{}: the store: {e}", config.name);
    if matches!(e, StoreError::Shape { .. }) { Error::Usage(text) } else { Error::Failed(text) }
}

/// Opens a store by the drive's name, with so many bytes of memory. Gives it, and what the
/// drive is called.
pub fn open(
    name: &str,
    store: Option<Store>,
    seed: u64,
    memory: u64,
) -> Result<(Kept, String), Error> {
    match meant(name)? {
        DriveSpec::Memory(spec) => new(spec, store, seed, memory),
        DriveSpec::File(spec) => {
            let open = spec.open(false)?;
            let fit = fits(&open.config, store);
            let mut open = open.if_fit(fit)?;
            if !spec.copy {
                open.count_time_off();
            }
            let name = open.config.name.clone();
            Ok((of_file(open, spec.copy, store, memory)?, name))
        }
        other => usage(format!(
            "{other}: a store is for drives in this process, whose time is virtual: take a mem: \
             drive or a drive file"
        )),
    }
}

/// Whether a drive can have such a store.
fn fits(config: &DriveConfig, store: Option<Store>) -> Result<(), Error> {
    let name = &config.name;
    if config.spec.store != Keeps::Memory {
        return usage(format!(
            "{name}: it keeps no data, and a store needs them: take store=memory"
        ));
    }
    let (kind, takes) = match config.spec.target {
        TargetKind::Kv => ("values by key (target=kv)", &[Store::Keyed][..]),
        TargetKind::Batch => ("batched writes", &[Store::Tree(StoreKind::Batched)][..]),
        _ => ("blocks", &[Store::Tree(StoreKind::Log), Store::Tree(StoreKind::InPlace)][..]),
    };
    match store.filter(|store| !takes.contains(store)) {
        None => Ok(()),
        Some(store) => usage(format!(
            "{name}: the drive has {kind}, and the store {} is for others: take {}",
            store.name(),
            takes.iter().map(|store| store.name()).collect::<Vec<_>>().join(" or ")
        )),
    }
}

/// A new store on a new drive. A drive without a target has that of the store.
fn new(
    mut spec: MemorySpec,
    store: Option<Store>,
    seed: u64,
    memory: u64,
) -> Result<(Kept, String), Error> {
    if spec.target == TargetKind::Pblk && spec.kinds.is_empty() {
        match store {
            Some(Store::Keyed) => spec.set("target", "kv")?,
            Some(Store::Tree(StoreKind::Batched)) => spec.set("target", "batch")?,
            _ => {}
        }
    }
    let config = spec.resolve()?;
    fits(&config, store)?;
    let device = || {
        let medium = memory::medium(&config, config.spec.store.kept())?;
        stack::new_device(&config, seed, medium.into())
    };
    let kept = match config.spec.target {
        TargetKind::Kv => keyed(&config, kv::start(&config, seed, device()?)?, false, memory)?,
        TargetKind::Batch => batches(&config, batched::start(&config, device()?)?, memory)?,
        _ => {
            let (drive, at) = (stack::build(&config, seed)?, Time::ZERO);
            blocks(&config, (drive, at), store, true, memory)?
        }
    };
    Ok((kept, config.name))
}

/// The store on a drive file, or on a copy of it in memory.
fn of_file(open: OpenFile, copy: bool, store: Option<Store>, memory: u64) -> Result<Kept, Error> {
    let is_new = open.is_new();
    if !matches!(open.config.spec.target, TargetKind::Kv | TargetKind::Batch) {
        let restored = if copy { Restored::copied(open)? } else { Restored::opened(open)? };
        let ready = restored.ready();
        return blocks(&restored.config, (restored.drive, ready), store, is_new, memory);
    }
    let doubt = Doubt::of(&open);
    let OpenFile { config, seed, away, mut opened, .. } = open;
    let clean = opened.clean;
    let device = if copy {
        let mut medium = memory::medium(&config, config.spec.store.kept())?;
        drivefile::load(&mut opened, &mut medium).map_err(failed)?;
        stack::old_device(&config, seed, medium.into(), &opened.chunks, 0)?
    } else {
        stack::old_device(&config, seed, opened.medium.into(), &opened.chunks, away)?
    };
    if config.spec.target == TargetKind::Kv {
        let (drive, _) = doubt.found(kv::recover(&config, seed, device, clean))?;
        return keyed(&config, drive, !is_new, memory);
    }
    let recovered = doubt.found(batched::recover(&config, device, clean, is_new))?;
    batches(&config, recovered.0, memory)
}

fn tree_config(memory: u64) -> TreeConfig {
    TreeConfig { memory, operations: OPERATIONS, ..TreeConfig::default() }
}

/// The tree in a page store, or a new one.
fn tree(
    config: &DriveConfig,
    store: AnyStore<'static>,
    opens: bool,
    memory: u64,
    now: Time,
) -> Result<Records<'static>, Error> {
    let make = if opens { Tree::open } else { Tree::create };
    let tree = make(store, tree_config(memory), now).map_err(|e| {
        let text = format!("{}: {e}", config.name);
        if matches!(e, btree::Error::Memory(..)) { Error::Usage(text) } else { Error::Failed(text) }
    });
    tree.map(Records::from)
}

fn keyed(config: &DriveConfig, drive: KvDrive, found: bool, memory: u64) -> Result<Kept, Error> {
    let (shape, keys, now) = (drive.shape(), drive.target().keys(), drive.target().now());
    let (held, below) = Held::new(Link::new(lower::link_above(config), drive), now);
    let set_up = KeyedConfig { operations: OPERATIONS, memory, keys };
    let keyed = Keyed::new(Box::new(held), shape, set_up, now).map_err(failed)?;
    let records = Records::Drive(Box::new(keyed));
    Ok(Kept { records, store: Store::Keyed, found, below: Below::Keyed(below) })
}

fn batches(config: &DriveConfig, drive: BoxedBatch, memory: u64) -> Result<Kept, Error> {
    let (shape, now, found) = (drive.shape(), drive.now(), !drive.recovery().fresh);
    let (held, below) = Held::new(Link::new(lower::link_above(config), drive), now);
    let store = StoreKind::on_batches(held, shape, found).map_err(|e| store_error(config, e))?;
    let records = tree(config, store, found, memory, now)?;
    let store = Store::Tree(StoreKind::Batched);
    Ok(Kept { records, store, found, below: Below::Batched(below) })
}

fn blocks(
    config: &DriveConfig,
    (drive, at): (Boxed, Time),
    store: Option<Store>,
    is_new: bool,
    memory: u64,
) -> Result<Kept, Error> {
    let (drive, now, there) = if is_new { (drive, at, None) } else { look(config, drive, at)? };
    let asked = match store {
        Some(Store::Tree(kind)) => Some(kind),
        _ => None,
    };
    let refused = match (there, asked) {
        (Some(there), Some(asked)) if there != asked => Some(format!(
            "{} has a store of another kind: leave store out, or take {there}",
            config.name
        )),
        _ => None,
    };
    if let Some(text) = refused {
        // It was only read.
        if drive.outlives() {
            drive.end(now)?.put_away()?;
        }
        return usage(text);
    }
    let kind = there.or(asked).unwrap_or(StoreKind::Log);
    let shape = Shape { depth: drive.shape().depth.min(DEPTH), ..drive.shape() };
    let (held, below) = Held::new(drive, now);
    let opens = there.is_some();
    let store = kind.on_blocks(held, shape, opens, now).map_err(|e| store_error(config, e))?;
    let now = below.get().1;
    let records = tree(config, store, opens, memory, now)?;
    Ok(Kept { records, store: Store::Tree(kind), found: opens, below: Below::Blocks(below) })
}

/// Which store is on a drive that was used before. Refuses one with something else on it.
fn look(
    config: &DriveConfig,
    mut drive: Boxed,
    at: Time,
) -> Result<(Boxed, Time, Option<StoreKind>), Error> {
    let mut now = at;
    let kind = StoreKind::of(read(&mut drive, &mut now, 0, 2 * BLOCK_BYTES)?.bytes());
    let is_free = kind.is_some() || is_blank(&mut drive, &mut now)?;
    if is_free {
        return Ok((drive, now, kind));
    }
    if drive.outlives() {
        drive.end(now)?.put_away()?;
    }
    usage(format!(
        "{} was used before and has something else than a key-value store on it, or one that is \
         damaged: take another drive, or make it anew with ssdkit create --force",
        config.name
    ))
}
