//! `ssdkit serve`: a drive in memory or in a file, in real time, over NBD and by
//! application channels; what it serves to Redis clients is in [`crate::redis`].
//!
//! Serves until Ctrl-C, SIGTERM or a hangup; then finishes what was received, flushes,
//! shuts a drive in a file down, and removes the socket. May fail: the address
//! cannot be listened on, the drive cannot be opened, or it does not take the
//! last flush.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use device::realtime::Clock;
use exports::nbd::{Server, StopHandle};
use exports::{DriveLost, Limits, SharedDrive, channels, redis};
use measure::{WriteAmplification, units};
use metrics::Facts;
use port::Time;
use rustix::process::{Resource, Rlimit};
use serde_json::json;
use signal_hook::iterator::Signals;

use crate::args::ServeArgs;
use crate::blocks::{Fronts, Reports};
use crate::control::ControlSocket;
use crate::desk::AtLock;
use crate::figures::Figures;
use crate::rulebook::Rulebook;
use crate::tenants::Tenants;
use drive::activity::Activity;
use drive::error::Error;
use drive::fault_rules::Injected;
use drive::lent::Lent;
use drive::memory;
use drive::redundancy::Redundancy;
use drive::remote::{first_of, resolve};
use drive::restore::{Recovery, Restored};
use drive::say::say;
use drive::shared::{Damaged, Shared};
use drive::spec::{Cache, DriveConfig, DriveSpec};
use drive::stack::{self, needs_blocks, needs_stories};
use drive::whole::{Boxed, Drive, Ended, Observed};
use load::signals::{asking, insists};
use load::threads::no_thread;

/// How often a drive is looked after that nobody uses.
pub(crate) const BEAT: Duration = Duration::from_secs(10);

/// How long a channel's thread looks for requests unless something else is said.
const LINGER: Duration = Duration::from_micros(200);

/// The shortest sleep while it is at work by itself.
const SHORTEST: Duration = Duration::from_millis(1);
/// Ctrl-C so long after the first signal is a second one.
const LATER: Duration = Duration::from_secs(1);

/// Serves, and tells `out` where.
pub fn run(args: &ServeArgs, out: &mut dyn Write) -> Result<(), Error> {
    let args = &ServeArgs { drive: args.drive.found()?, ..args.clone() };
    args.check()?;
    if args.redis.is_some() && !args.serves_target_keys()? {
        return crate::redis::run(args, out);
    }
    let faults = args.faults.read(args.seed)?;
    let limits = limits(args);
    let stop = watched()?;
    // Before the drive is touched.
    let nbd = args.nbd.as_ref().map(|nbd| first_of(&resolve(nbd)?, Server::bind)).transpose()?;
    let channel = args.channel.as_deref().map(channels::Server::bind).transpose();
    let channel = channel.map_err(|e| Error::Failed(e.to_string()))?;
    let by_key = args.redis.as_ref().map(|at| first_of(&resolve(at)?, redis::Server::bind));
    let fronts = Fronts {
        redis: by_key.transpose()?,
        nbd: nbd.map(|server| server.with(limits)),
        channel: channel.map(|server| server.with(limits)),
        linger: args.linger.map_or(LINGER, Duration::from_nanos),
        stop,
    };
    let control = args.control.as_deref().map(ControlSocket::bind).transpose()?;
    let server = (fronts, Figures::bind(args)?, control);
    match &args.drive {
        DriveSpec::File(spec) => {
            let mut open = spec.open(false)?;
            open.config.faults = faults;
            let fit = args.check_kept(open.config.spec.store);
            let fit = fit.and_then(|()| needs_blocks(&open.config));
            let fit = fit.and_then(|()| can_be_asked(args, &open.config));
            let mut open = open.if_fit(fit)?;
            if spec.copy {
                served(args, server, Restored::copied_in_part(open)?, out)
            } else {
                open.count_time_off();
                served(args, server, Restored::opened_in_part(open)?, out)
            }
        }
        DriveSpec::Memory(spec) => {
            let (mut config, seed) = (DriveConfig { faults, ..spec.resolve()? }, args.seed);
            config.set_on_a_clock();
            can_be_asked(args, &config)?;
            memory::tell(&config);
            let drive = stack::build(&config, seed)?;
            served(args, server, Restored { config, seed, drive, recovery: None }, out)
        }
        _ => Err(Error::Usage("only mem: drives and drive files are served: take one".into())),
    }
}

/// Whether there is something to be asked for at a control socket, where one is wanted.
fn can_be_asked(args: &ServeArgs, config: &DriveConfig) -> Result<(), Error> {
    if args.control.is_none() || config.rules.is_some() {
        return Ok(());
    }
    let profile = &config.profile;
    let text = if !config.spec.is_shared() {
        "has neither rules nor several targets: leave --control out, or take target=rules, targets= \
         or units="
    } else if config.spec.cache == Cache::Protected {
        "keeps writes of targets that go in its protected cache: leave --control out, or take \
         cache=volatile"
    } else if profile.cache.is_on() {
        "keeps data of targets that go in its read cache: leave --control out, or read_cache"
    } else if profile.has_units() {
        "maps units of several blocks above its targets: leave --control out, or take map_unit=4k"
    } else {
        return Ok(());
    };
    Err(Error::Usage(format!("{} {text}", config.name)))
}

/// What clients may take. As many descriptors as the system allows are asked
/// for: each client needs one or two.
pub(crate) fn limits(args: &ServeArgs) -> Limits {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let most = Rlimit { current: limit.maximum, ..limit };
    // Refused, fewer clients find room, who are told.
    let _ = rustix::process::setrlimit(Resource::Nofile, most);
    let memory = args.client_memory.unwrap_or(Limits::default().memory);
    Limits { memory, warn: |text| say(text), ..Limits::default() }
}

/// Who serves, and where figures are to be had and the owner asks.
type Listening = (Fronts, Option<Figures>, Option<ControlSocket>);

/// Serves a drive.
fn served(
    args: &ServeArgs,
    server: Listening,
    drive: Restored,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let ready = drive.ready();
    if let Some(recovery) = drive.recovery {
        if recovery.took_long() {
            say(format!("recovered {recovery}"));
        }
        if let Some((why, _)) = drive.drive.fault() {
            say(format!("{why}; the drive can only be read until it is opened again"));
        }
        // Not ready before a drive of this kind would be.
        std::thread::sleep(Duration::from_nanos(ready.0).saturating_sub(recovery.wall));
    }
    tell_damage(&drive.drive, args.control.as_deref());
    let (config, recovery) = (&drive.config, drive.recovery);
    Serving { args, server, config, ready, recovery, out }.serve(drive.drive)
}

/// Tells which targets of a drive are damaged, and are not served.
fn tell_damage(drive: &Boxed, control: Option<&Path>) {
    for Damaged { name, why, .. } in damaged(drive) {
        let socket = control.map_or("SOCKET".into(), |path| path.display().to_string());
        let first = if control.is_some() { "" } else { "serve the drive with --control, and " };
        say(format!(
            "target {name} is damaged: {why}; it is not served, and the others are; what it holds \
             is left as it is: to give its place to others, {first}take `ssdkit target remove \
             {socket} {name} --destroy`"
        ));
    }
}

/// Targets of a drive that are damaged.
fn damaged(drive: &Boxed) -> &[Damaged] {
    drive.shared().map_or(&[], Shared::damaged)
}

struct Serving<'a> {
    args: &'a ServeArgs,
    server: Listening,
    config: &'a DriveConfig,
    ready: Time,
    recovery: Option<Recovery>,
    out: &'a mut dyn Write,
}

impl Serving<'_> {
    fn serve(self, mut drive: Boxed) -> Result<(), Error> {
        let Serving { args, server: (fronts, figures, control), config, ready, recovery, out } =
            self;
        let (name, geometry) = (&config.name, &config.geometry);
        let failed = |e: &dyn std::fmt::Display| Error::Failed(e.to_string());
        let served = match fronts.served(&drive, args.target.as_deref()) {
            Ok(served) => served,
            Err(why) => {
                // It was only read, and is put away so.
                if drive.outlives() {
                    drive.end(ready)?.put_away()?;
                }
                return Err(why);
            }
        };
        let installer = drive.rules();
        let text = drive.lower(0).device().medium().text().map_err(|e| failed(&e))?;
        // Behind the last address may be what is nobody's, or keys; a remote drive may be larger.
        let addresses = drive.shape().bytes;
        let bytes = config.size.max(addresses);
        let tell = |one: &Damaged| json!({ "name": one.name, "why": one.why.to_string() });
        let damaged: Vec<_> = damaged(&drive).iter().map(tell).collect();
        // Time begins anew where recovery ended.
        let clock = Clock::start();
        drive.set_on_a_clock(true);
        drive.begin_faults();
        let before = Activity::of(&drive, ready);
        let (lent, owner) = match &figures {
            Some(_) => Lent::watched(drive, ready, needs_stories(config).is_ok()),
            None => Lent::new(drive, ready),
        };
        let shared = Arc::new(SharedDrive::new(lent).hurried_by(Lent::hurry));
        let at = fronts.addresses(args).map_err(|e| Error::system("serve", &e))?;
        let url = figures.as_ref().map(|figures| figures.url.clone());
        let mut announce = || -> io::Result<()> {
            if args.json {
                let mut json = json!({
                    "serving": at[0].1,
                    "drive": name,
                    "size_bytes": bytes,
                    "address_bytes": addresses,
                });
                if let Some(recovery) = recovery {
                    json["recovery"] = recovery.to_json();
                }
                if !damaged.is_empty() {
                    json["damaged"] = damaged.clone().into();
                }
                for (front, address) in &at[1..] {
                    json[front] = address.as_str().into();
                }
                if let Some(keys) = &served.keys {
                    json["keys"] = keys.name.as_str().into();
                }
                if let Some(path) = &args.control {
                    json["control"] = path.display().to_string().into();
                }
                if let Some(url) = &url {
                    json["metrics"] = url.as_str().into();
                }
                writeln!(out, "{json}")?;
            } else {
                let mut size = units::capacity(bytes);
                if addresses < bytes {
                    size += &format!(", addresses up to {}", units::capacity(addresses));
                }
                writeln!(out, "{}", served.text(name, &size, &at))?;
                if let Some(path) = &args.control {
                    writeln!(out, "control at {}", path.display())?;
                }
                if let Some(url) = &url {
                    writeln!(out, "metrics at {url}")?;
                }
                writeln!(out, "Ctrl-C stops it")?;
            }
            out.flush()
        };
        let (running, ended) = channel();
        let front = at[0].0;
        let served = std::thread::scope(|scope| {
            let tender = std::thread::Builder::new().name("tender".into());
            tender.spawn_scoped(scope, || tend(&shared, ended)).map_err(|e| no_thread(&e))?;
            let facts = Facts { drive: name.clone(), front, bytes };
            let figures = figures.map(|it| it.serve(scope, AtLock(&shared), facts));
            let keys = served.keys.as_ref().map(|keys| keys.name.as_str());
            let tenants = || Tenants::new(&shared, (served.exports.as_ref(), keys), text);
            let control = control.map(|socket| match installer {
                Some(installer) => socket.serve(scope, Rulebook::new(installer)),
                None => socket.serve(scope, tenants()),
            });
            let _control = control.transpose()?;
            // Until the server has ended.
            let _figures = figures.transpose()?;
            announce()?;
            let report = fronts.run(&served, &shared, (args, config));
            drop(running);
            Ok::<_, Error>(report)
        });
        // A drive that was not served is put away as it was.
        let (report, unserved) = match served {
            Ok(report) => (report?, None),
            Err(e) => (Reports::default(), Some(e)),
        };
        // Nobody else has it any more, but where a thread of it died.
        let shared = Arc::into_inner(shared).ok_or(DriveLost).and_then(SharedDrive::into_port);
        drop(shared.map_err(|e| failed(&e))?);
        let drive = owner.take_back()?;
        let (counters, injected) = (drive.counters(), drive.injected());
        let parity = drive.parity();
        let at = ready + clock.now().0;
        let state = Activity::of(&drive, at);
        let outlives = drive.outlives();
        let ended = match outlives {
            true => drive.end(at).and_then(Ended::put_away).map_err(|e| e.of_drive(name)),
            false => Ok(()),
        };
        if let Some(e) = unserved {
            return ended.and(Err(e));
        }
        let ended = ended.and_then(|()| report.unflushed().map_or(Ok(()), Err));
        if args.json {
            let mut json = json!({
                "connections": report.connections(),
                "refused": report.refused(),
                "faults": report.faults(),
                "evicted": report.evicted(),
                "user_blocks": counters.user,
                "gc_blocks": counters.gc,
                "padding_blocks": counters.padding,
                "metadata_blocks": counters.metadata,
                "erases": counters.erases,
            });
            if let Some(parity) = parity {
                let c = &counters;
                let all = WriteAmplification::from_blocks(c.user, c.gc, c.padding, c.metadata);
                let all = all.map(|wa| wa.total);
                json["parity"] = Redundancy::new(parity, all).to_json();
            }
            if args.redis.is_some() {
                json["commands"] = report.redis.commands.into();
                json["flushes"] = report.redis.flushes.into();
            }
            state.add_to(&before, geometry, &mut json);
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
                "stopped after {} ({} refused, {} faulty); the drive is {}",
                units::exactly(report.connections(), "connection"),
                report.refused(),
                report.faults(),
                match &ended {
                    Err(_) => "not flushed",
                    Ok(()) if outlives => "shut down",
                    Ok(()) => "flushed",
                },
            )?;
            for (label, text) in state.lines(&before) {
                writeln!(out, "{label:<12}{text}")?;
            }
            for one in &injected {
                writeln!(out, "fault {}: {}", one.rule, units::exactly(one.times, "time"))?;
            }
        }
        ended
    }
}

/// Looks after a drive that nobody uses, until the other end is dropped: its
/// data grow old. Sleeps for a [`BEAT`], or until what that began goes on.
fn tend(shared: &SharedDrive<Lent>, ended: Receiver<()>) {
    // A drive that is lost is told of by those who use it.
    while let Ok(next) = shared.tend(|drive, now| drive.tend(now)) {
        let wait = next.map_or(BEAT, |next| next.clamp(SHORTEST, BEAT));
        if ended.recv_timeout(wait) == Err(RecvTimeoutError::Disconnected) {
            return;
        }
    }
}

/// What stops the server when a signal comes; one that insists ends the process, [`LATER`]
/// than the first: before that it is the same, passed on by whoever runs this. To be there
/// before a client may come.
pub(crate) fn watched() -> Result<StopHandle, Error> {
    let handle = StopHandle::new().map_err(|e| Error::system("serve", &e))?;
    let stop = handle.clone();
    let failed = |e: std::io::Error| Error::system("wait for signals", &e);
    let mut signals = Signals::new(asking()).map_err(failed)?;
    let wait = move || {
        let mut first = None;
        for signal in signals.forever() {
            let begin = *first.get_or_insert_with(Instant::now);
            if insists(signal) && begin.elapsed() >= LATER {
                std::process::exit(128 + signal);
            }
            stop.stop();
        }
    };
    let spawned = std::thread::Builder::new().name("signals".into()).spawn(wait);
    spawned.map_err(failed)?;
    Ok(handle)
}
