//! `ssdkit serve --redis`: a key-value store on a drive in memory or in a file,
//! for clients of Redis.
//!
//! One thread has all connections, the store, and the drive; syncs of a drive file are
//! made on another, but where nobody wants anything else. Serves until Ctrl-C, SIGTERM or
//! a hangup; then answers what was received, flushes, and shuts a drive in a file down.
//!
//! On a drive file the store is found again, or made where the drive was never
//! used; anything else stays, unless it may be destroyed.
//!
//! May fail: the drive is too small, has something else on it or layers that
//! its kind cannot have, the address cannot be listened on, or a flush fails.

mod found;
mod keyed;
mod tended;

pub(crate) use self::keyed::{MEMORY, check as check_keyed};

use std::io::Write;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use btree::{
    AnyStore, Clocked, InPlaceConfig, LogConfig, Records, Sleeper, StoreKind, Tree, TreeConfig,
};
use device::Link;
use drivefile::Wakes;
use exports::nbd::{ListenAddr, StopHandle};
use exports::redis::{OpenError, Opened, Options, Server, Sync};
use measure::units;
use metrics::Facts;
use port::{BLOCK_BYTES, Shape, Time};
use serde_json::json;

use self::found::look;
use self::tended::{Tend, Tended};
use crate::args::{ServeArgs, SyncWhen};
use crate::blocks::not_stored;
use crate::desk::{AnyDesk, AtDesk, Desk, OfStore, Staffed};
use crate::figures::Figures;
use crate::serve::{limits, watched};
use drive::batched::{self, BoxedBatch};
use drive::error::Error;
use drive::fault_rules::Injected;
use drive::kv;
use drive::lent::Lent;
use drive::live::Seen;
use drive::lower;
use drive::memory;
use drive::read::is_blank;
use drive::remote::{first_of, resolve};
use drive::restore::{OpenDevice, Recovery, Restored};
use drive::say::say;
use drive::spec::file::OpenFile;
use drive::spec::{DriveConfig, DriveSpec, NbdAddress, TargetKind};
use drive::stack::{self, needs_stories, new_device};
use drive::whole::{Boxed, Drive, Ended};

/// Operations of the tree that may wait at once.
pub(crate) const OPERATIONS: usize = 256;

/// Commands outside the store's hands at once.
const DEPTH: usize = 384;

/// The least memory for pages, in bytes.
const LEAST: u64 = 8 << 20;

fn failed(e: impl std::fmt::Display) -> Error {
    Error::Failed(e.to_string())
}

fn refuse<T>(text: impl Into<String>) -> Result<T, Error> {
    Err(Error::Usage(text.into()))
}

/// Whether the options agree with each other and with the drive's name.
pub(crate) fn check(args: &ServeArgs) -> Result<(), Error> {
    if args.memory.is_some_and(|bytes| bytes < LEAST) {
        return refuse("--memory is less than 8M: raise it");
    }
    match &args.drive {
        DriveSpec::Memory(_) if args.destroy => refuse(
            "--destroy is for drive files, and there is nothing on a mem: drive: leave it out",
        ),
        DriveSpec::Memory(spec) if spec.target == TargetKind::Kv => keyed::check(args),
        DriveSpec::Memory(spec) if spec.target == TargetKind::Batch => pages_of_batch(args),
        DriveSpec::Memory(spec) if spec.target == TargetKind::Rules => {
            pages_of_blocks(args, "a drive of rules")
        }
        DriveSpec::Memory(_) | DriveSpec::File(_) => Ok(()),
        _ => refuse("--redis is for mem: drives and drive files: take one"),
    }
}

/// A drive with batched writes keeps the pages itself.
fn pages_of_batch(args: &ServeArgs) -> Result<(), Error> {
    match args.pages {
        None | Some(StoreKind::Batched) => Ok(()),
        Some(_) => refuse(
            "the drive has batched writes (target=batch) and no blocks: leave --pages out, or \
             take a drive with target=pblk",
        ),
    }
}

fn pages_of_blocks(args: &ServeArgs, path: &str) -> Result<(), Error> {
    match args.pages {
        Some(StoreKind::Batched) => refuse(format!(
            "{path} has blocks, and --pages batched is for drives with batched writes: leave \
             it out, or make such a drive with `ssdkit create … target=batch`"
        )),
        _ => Ok(()),
    }
}

/// Serves, and tells `out` where.
pub(crate) fn run(args: &ServeArgs, out: &mut dyn Write) -> Result<(), Error> {
    let Some(address) = &args.redis else { return refuse("--redis is missing") };
    let faults = args.faults.read(args.seed)?;
    let stop = watched()?;
    // Before the drive is touched.
    let server = (first_of(&resolve(address)?, Server::bind)?, stop, Figures::bind(args)?);
    match &args.drive {
        DriveSpec::Memory(spec) => {
            let config = DriveConfig { faults, ..spec.resolve()? };
            let serving =
                Serving { args, config: &config, is_new: true, recovery: None, server, out };
            if spec.target == TargetKind::Kv {
                let medium = memory::medium(&config, config.spec.store.kept())?;
                let device = new_device(&config, args.seed, medium.into())?;
                return serving.keyed(kv::start(&config, args.seed, device)?);
            }
            let pages = args.pages.unwrap_or(match spec.target {
                TargetKind::Rules => StoreKind::Log,
                _ => StoreKind::default(),
            });
            if spec.target == TargetKind::Batch || pages == StoreKind::Batched {
                let medium = memory::medium(&config, config.spec.store.kept())?;
                let device = new_device(&config, args.seed, medium.into())?;
                return serving.batched(batched::start(&config, device)?);
            }
            let drive = stack::build(&config, args.seed)?;
            Blocks { serving, ready: Time::ZERO }.serve(drive)
        }
        DriveSpec::File(spec) => {
            let mut open = spec.open(false)?;
            open.config.faults = faults;
            let target = open.config.spec.target;
            let fit = match target {
                TargetKind::Pblk | TargetKind::Rules => pages_of_blocks(args, &spec.path),
                TargetKind::Batch => pages_of_batch(args),
                TargetKind::Kv => keyed::check(args),
            };
            let fit = fit.and_then(|()| match target {
                TargetKind::Pblk | TargetKind::Rules => Ok(()),
                _ => batched::refuse_layers(&open.config),
            });
            let fit = args.check_kept(open.config.spec.store).and(fit);
            let mut open = open.if_fit(fit)?;
            if !spec.copy {
                open.count_time_off();
            }
            let is_new = open.is_new();
            match target {
                TargetKind::Pblk | TargetKind::Rules => {}
                TargetKind::Batch => return batched_file(args, open, spec.copy, server, out),
                TargetKind::Kv => return keyed::file(args, open, spec.copy, server, out),
            }
            let open = if spec.copy { Restored::copied(open)? } else { Restored::opened(open)? };
            let (ready, recovery) = (open.ready(), open.recovery);
            let serving = Serving { args, config: &open.config, is_new, recovery, server, out };
            Blocks { serving, ready }.serve(open.drive)
        }
        _ => refuse("--redis is for mem: drives and drive files: take one"),
    }
}

/// Serves from a drive with batched writes in a file, or from a copy of it in
/// memory.
fn batched_file(
    args: &ServeArgs,
    open: OpenFile,
    copy: bool,
    server: Listening,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let is_new = open.is_new();
    let OpenDevice { config, device, clean, doubt, .. } = OpenDevice::of(open, copy)?;
    let recovered = batched::recover(&config, device, clean, is_new || args.destroy);
    let (target, recovery) = doubt.found(recovered)?;
    Serving { args, config: &config, is_new, recovery: Some(recovery), server, out }.batched(target)
}

/// A drive that is looked after, and asked at its desk.
type Kept<P> = Staffed<Tended<P>>;

/// A drive that its server drives: what the store has of it, and where it comes back from.
struct Driven<P: Tend> {
    drive: Clocked<Kept<P>>,
    back: Receiver<Kept<P>>,
    at: Place,
}

/// The thread that drives a drive, and where that is asked how it is.
struct Place {
    sleeper: Arc<Sleeper>,
    desk: Option<AnyDesk>,
}

impl<P: Tend + Seen + 'static> Driven<P> {
    /// Drives `drive` from now on, whose file wakes who drives it; with a desk where it is
    /// `watched`.
    fn new(drive: Tended<P>, wakes: Option<Arc<Wakes>>, watched: bool) -> Result<Self, Error> {
        let desk = watched.then(Desk::new);
        let (drive, back) = Clocked::new(Staffed::new(drive, desk.clone()))
            .map_err(|e| Error::system("get a bell for the drive", &e))?;
        let sleeper = drive.sleeper().clone();
        if let Some(wakes) = wakes {
            let (woken, asked) = (sleeper.clone(), sleeper.clone());
            let wake = move || {
                woken.bell().ring();
            };
            wakes.set(wake, move || asked.is_idle());
        }
        let desk = desk.map(|desk| Box::new(AtDesk::new(desk, sleeper.clone())) as AnyDesk);
        Ok(Driven { drive, back, at: Place { sleeper, desk } })
    }
}

/// A drive whose store is gone.
fn come_back<P: Tend>(back: &Receiver<Kept<P>>) -> Result<P, Error> {
    let gone = |_| failed("the drive has not come back: this is a fault, report it");
    Ok(back.try_recv().map_err(gone)?.into_drive().into_drive())
}

/// A store that could not be opened.
fn unusable(config: &DriveConfig, why: impl std::fmt::Display) -> Error {
    let way = way_out(config.spec.target);
    Error::Failed(format!("{}: {why}; if nothing on the drive is needed, {way}", config.name))
}

/// What to do with a drive whose store is not to be had.
fn way_out(kind: TargetKind) -> String {
    match kind {
        TargetKind::Kv => format!("make it anew: {}", keyed::ANEW),
        _ => "--destroy makes a new store".into(),
    }
}

/// A server, what stops it, and where its figures are to be had.
type Listening = (Server, StopHandle, Option<Figures>);

/// What is served, and how.
struct Serving<'a> {
    args: &'a ServeArgs,
    config: &'a DriveConfig,
    /// The drive was never used.
    is_new: bool,
    recovery: Option<Recovery>,
    server: Listening,
    out: &'a mut dyn Write,
}

/// What was injected into a drive, and how that ended.
type Last = (Vec<Injected>, Result<(), Error>);

/// A store, and whether it was there before.
struct Stored {
    records: Records<'static>,
    /// Room for pages, or for values.
    bytes: u64,
    was_there: bool,
}

impl Serving<'_> {
    fn tree_config(&self) -> TreeConfig {
        let memory = self.args.memory.unwrap_or(TreeConfig::default().memory);
        // Without flushes nothing waits for a log.
        let redo = when(self.args) != Sync::No;
        TreeConfig { memory, operations: OPERATIONS, redo, ..TreeConfig::default() }
    }

    /// The tree in a store, or a new one.
    fn tree(&self, store: AnyStore<'static>, opens: bool, now: Time) -> Result<Stored, Error> {
        let bytes = store.pages() * BLOCK_BYTES;
        let tree = match opens {
            true => {
                Tree::open(store, self.tree_config(), now).map_err(|e| unusable(self.config, e))?
            }
            false => Tree::create(store, self.tree_config(), now).map_err(failed)?,
        };
        Ok(Stored { records: tree.into(), bytes, was_there: opens })
    }

    /// Serves from a drive with batched writes in its controller.
    fn batched(self, mut target: BoxedBatch) -> Result<(), Error> {
        let (shape, rules) = (target.shape(), &self.config.faults);
        let opens = !target.recovery().fresh && !self.args.destroy;
        target.lower_mut().device_mut().set_on_a_clock(true);
        target.lower_mut().set_rules(rules);
        // Of one that is watched units say how long they worked.
        let from = self.server.2.as_ref().map(|_| Time::ZERO);
        target.lower_mut().device_mut().set_die_clocks(from);
        let wakes = target.lower().device().medium().wakes();
        let link = Link::new(lower::link_above(self.config), target);
        let Driven { drive, back, at } =
            Driven::new(Tended::new(link), wakes, self.server.2.is_some())?;
        let clock = at.sleeper.clock();
        let store = StoreKind::on_batches(drive, shape, opens).map_err(failed)?;
        let kept = self.tree(store, opens, clock.now())?;
        let end = || {
            let target = come_back(&back)?.into_below();
            let injected = lower::injected(target.lower(), rules);
            let ended = match target.lower().device().medium().outlives() {
                true => batched::end(target, clock.now()),
                false => Ok(()),
            };
            Ok((injected, ended))
        };
        self.serve(kept, "batched", at, Box::new(end))
    }

    /// Serves a store, and figures of its drive where that answers at a desk; then ends the
    /// drive, which gives what was injected into it.
    fn serve(
        self,
        kept: Stored,
        pages: &str,
        at: Place,
        end: Box<dyn FnOnce() -> Result<Last, Error> + '_>,
    ) -> Result<(), Error> {
        let Serving { args, config, recovery, server: (server, stop, figures), out, .. } = self;
        let Stored { records, bytes, was_there } = kept;
        let Place { sleeper, desk } = at;
        let options = Options { sync: when(args), limits: limits(args) };
        let keys = Opened::new(records, options.limits.clients).map_err(|e| no_keys(config, e))?;
        if let Some(error) = keys.uncounted() {
            let counted = keys.keys();
            say(format!(
                "{error}; its keys are answered with errors, and DBSIZE has the {counted} that \
                 were counted before it"
            ));
        }
        let address = match server.addr().map_err(|e| Error::system("serve", &e))? {
            ListenAddr::Unix(path) => NbdAddress::Unix(path.display().to_string()).to_string(),
            ListenAddr::Tcp(at) => at.to_string(),
        };
        if let Some(recovery) = recovery.filter(Recovery::took_long) {
            say(format!("recovered {recovery}"));
        }
        if args.json {
            let mut json = json!({
                "serving": address,
                "drive": config.name,
                "size_bytes": bytes,
                "pages": pages,
                "store": if was_there { "found" } else { "new" },
            });
            if let Some(recovery) = recovery {
                json["recovery"] = recovery.to_json();
            }
            if let Some(figures) = &figures {
                json["metrics"] = figures.url.as_str().into();
            }
            writeln!(out, "{json}")?;
        } else {
            let (size, what) = (units::capacity(bytes), if was_there { "the" } else { "new" });
            let name = &config.name;
            writeln!(out, "serving {what} keys on {name} ({size}, {pages}) at {address}")?;
            if let Some(figures) = &figures {
                writeln!(out, "metrics at {}", figures.url)?;
            }
            writeln!(out, "Ctrl-C stops it")?;
        }
        out.flush()?;
        let (report, counters) = std::thread::scope(|scope| {
            let facts = Facts { drive: config.name.clone(), front: "redis", bytes };
            let failure = keys.failure();
            let reach = desk.map(|desk| OfStore { desk, failure });
            let figures = figures.zip(reach).map(|(it, reach)| it.serve(scope, reach, facts));
            // Until the server has ended, and the drive answers no more.
            let _figures = figures.transpose()?;
            let ran = server.run(keys, &sleeper, options, &stop);
            let (report, records) = ran.map_err(failed)?;
            // The store lets go of the drive here.
            let counters = records.tree().map(|tree| (tree.counters(), tree.redo()));
            Ok::<_, Error>((report, counters))
        })?;
        let (injected, ended) = end()?;
        let unflushed = report.unflushed.as_ref().map(|e| failed(not_stored(e)));
        let ended = unflushed.map_or(Ok(()), Err).and(ended);
        if args.json {
            let mut json = json!({
                "connections": report.connections,
                "refused": report.refused,
                "faults": report.faults,
                "evicted": report.evicted,
                "commands": report.commands,
                "flushes": report.flushes,
            });
            if let Some((counters, redo)) = counters {
                json["pages_written"] = counters.pages_written.into();
                json["page_batches"] = counters.batches.into();
                if let Some(redo) = redo {
                    json["log_writes"] = redo.writes.into();
                    json["log_blocks"] = redo.blocks.into();
                }
            }
            if !injected.is_empty() {
                json["injected"] = injected.iter().map(Injected::to_json).collect();
            }
            if let Err(e) = &ended {
                json["error"] = e.to_string().into();
            }
            writeln!(out, "{json}")?;
        } else {
            writeln!(
                out,
                "stopped after {} on {} ({} refused, {} faulty); the store is {}flushed",
                units::exactly(report.commands, "command"),
                units::exactly(report.connections, "connection"),
                report.refused,
                report.faults,
                if ended.is_ok() { "" } else { "not " },
            )?;
            for one in &injected {
                writeln!(out, "fault {}: {}", one.rule, units::exactly(one.times, "time"))?;
            }
        }
        out.flush()?;
        ended
    }
}

fn no_keys(config: &DriveConfig, e: OpenError) -> Error {
    match e {
        OpenError::Memory(_) => failed(e),
        OpenError::Tree(_) | OpenError::Foreign => unusable(config, e),
    }
}

pub(crate) fn when(args: &ServeArgs) -> Sync {
    match args.sync.unwrap_or_default() {
        SyncWhen::Always => Sync::Always,
        SyncWhen::Everysec => Sync::EverySecond,
        SyncWhen::No => Sync::No,
    }
}

/// Serves from a block drive that is ready at a time.
struct Blocks<'a> {
    serving: Serving<'a>,
    ready: Time,
}

impl Blocks<'_> {
    /// Refuses a drive of so many bytes that is too small for a new store.
    fn ask_size(&self, bytes: u64, kind: StoreKind) -> Result<(), Error> {
        let least = match kind {
            StoreKind::Log => LogConfig::default().least_bytes(),
            StoreKind::InPlace => InPlaceConfig::default().least_bytes(),
            StoreKind::Batched => 0,
        };
        if bytes >= least {
            return Ok(());
        }
        let size = units::capacity;
        refuse(format!(
            "{} has {}, and --pages {} needs {}: take a drive of that size or more, or --pages \
             batched on a mem: drive",
            self.serving.config.name,
            size(bytes),
            kind.name(),
            size(least),
        ))
    }

    /// Which store is on the drive, if there is one that may stay, and which it
    /// is to be.
    fn choose<D: Drive>(&mut self, drive: &mut D) -> Result<(Option<StoreKind>, StoreKind), Error> {
        let ServeArgs { pages, destroy, .. } = *self.serving.args;
        let asked = pages.filter(|&kind| kind != StoreKind::Batched);
        let new = asked.unwrap_or(StoreKind::Log);
        if self.serving.is_new || destroy {
            self.ask_size(drive.shape().bytes, new)?;
            return Ok((None, new));
        }
        let name = &self.serving.config.name;
        match look(drive, &mut self.ready)? {
            Some(kind) if asked.is_none_or(|asked| asked == kind) => Ok((Some(kind), kind)),
            Some(kind) => refuse(format!(
                "{name} has a store of another kind: leave --pages out or take --pages {}, or add \
                 --destroy if what is on it may be lost",
                kind.name()
            )),
            // Its first store was cut while it was made, or it was trimmed whole.
            None if is_blank(drive, &mut self.ready)? => {
                self.ask_size(drive.shape().bytes, new)?;
                Ok((None, new))
            }
            None => refuse(format!(
                "{name} was used before and has something else than a key-value store on it, or \
                 one that is damaged: add --destroy if that may be lost"
            )),
        }
    }

    fn serve(mut self, mut drive: Boxed) -> Result<(), Error> {
        let (there, kind) = match self.choose(&mut drive) {
            Ok(chosen) => chosen,
            Err(e) => {
                // It was only read; one that is refused stays as it was.
                if drive.outlives() {
                    drive.end(self.ready)?.put_away()?;
                }
                return Err(e);
            }
        };
        let Blocks { serving, ready } = self;
        let config = serving.config;
        let shape = Shape { depth: DEPTH, ..drive.shape() };
        drive.set_on_a_clock(true);
        drive.begin_faults();
        let is_watched = serving.server.2.is_some();
        let wakes = drive.lower(0).device().medium().wakes();
        let (lent, owner) = match is_watched {
            true => Lent::watched(drive, ready, needs_stories(config).is_ok()),
            false => Lent::new(drive, ready),
        };
        let tended = Tended::new(lent).until(serving.server.1.clone());
        let Driven { drive, back, at } = Driven::new(tended, wakes, is_watched)?;
        let clock = at.sleeper.clock();
        let now = clock.now();
        let end = || {
            drop(back);
            let drive = owner.take_back()?;
            let injected = drive.injected();
            let ended = match drive.outlives() {
                true => drive.end(ready + clock.now().0).and_then(Ended::put_away),
                false => Ok(()),
            };
            Ok((injected, ended))
        };
        let (pages, opens) = (kind.name(), there.is_some());
        let bad = |e| if opens { unusable(config, e) } else { failed(e) };
        let store = kind.on_blocks(drive, shape, opens, now);
        let kept = serving.tree(store.map_err(bad)?, opens, clock.now())?;
        serving.serve(kept, pages, at, Box::new(end))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ServeArgs,
    }

    /// What is refused anyway is no advice.
    #[test]
    fn who_cannot_destroy_is_told_another_way() {
        let line =
            Line::try_parse_from(["serve", "mem:tlc,target=kv", "--redis", "/r", "--destroy"]);
        let refused = check_keyed(&line.unwrap().args).unwrap_err().to_string();
        for kind in [TargetKind::Kv, TargetKind::Pblk, TargetKind::Batch] {
            let way = way_out(kind);
            assert_eq!(way.contains("--destroy"), kind != TargetKind::Kv, "{way}");
            assert!(refused.contains(&way), "{way}");
        }
    }
}
