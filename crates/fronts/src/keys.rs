//! The keys of a target of a drive that is served otherwise, too, over Redis.
//!
//! The drive is behind a lock, and whoever uses its blocks drives it. The thread that has the
//! store and all connections asks it by key there, and drives it as long as something of its
//! own is inside.
//!
//! Guarantees: what the target does; those who use blocks wait for the lock as for each
//! other. Fails where there is no such target, or no memory for values on their way; when
//! the drive is lost all connections end.

use std::sync::{Arc, OnceLock};

use btree::{Clocked, Keyed, KeyedConfig, Records};
use device::Link;
use device::realtime::Clock;
use drive::error::Error;
use drive::lent::Lent;
use drive::lower;
use drive::spec::DriveConfig;
use drive::whole::{Boxed, Drive};
use exports::redis::{Opened, Options, Report, Server};
use exports::{SharedDrive, listen::StopHandle};
use port::{KvDone, KvOp, KvReq, KvShape, Port, Ring, Status, Time};

use crate::args::ServeArgs;
use crate::redis::{MEMORY, OPERATIONS, when};
use crate::serve::limits;

/// The shortest wait for the drive, and the one where its medium has not moved yet, in ns.
const SOON: u64 = 1_000;
const AGAIN: u64 = 100_000;

const LOST: &str = "the drive panicked before";

fn none() -> Error {
    let text = "none of the drive's targets keeps values by key: leave --redis out, or take one \
                that does, as with target=pblk/kv";
    Error::Usage(text.into())
}

/// The target that was named whose keys are to be served, or the only one that a drive has.
pub(crate) fn choose<'a>(config: &'a DriveConfig, name: Option<&str>) -> Result<&'a str, Error> {
    let parts = config.parts.iter().filter(|part| part.keys > 0);
    let names: Vec<&str> = parts.map(|part| part.name.as_str()).collect();
    let found = match name {
        Some(name) => names.iter().find(|its| **its == name),
        None => names.first().filter(|_| names.len() == 1),
    };
    if names.is_empty() {
        return Err(none());
    }
    found.copied().ok_or_else(|| {
        let what = match name {
            Some(name) => format!("{name} is no target that keeps values by key"),
            None => "say whose keys --redis serves".into(),
        };
        Error::Usage(format!("{what}: take --target with one of {}", names.join(", ")))
    })
}

/// A target whose keys are served.
#[derive(Clone, Debug)]
pub(crate) struct KeyedTarget {
    /// What it is called.
    pub name: String,
    number: usize,
    shape: KvShape,
    /// Keys that are there.
    keys: u64,
}

impl KeyedTarget {
    /// The one that was named, or the only one that a drive has.
    pub fn find(drive: &Boxed, name: Option<&str>) -> Result<KeyedTarget, Error> {
        let shared = drive.shared().ok_or_else(none)?;
        let name = choose(shared.config(), name)?;
        if let Some(why) = shared.damage_of(name) {
            return Err(Error::Failed(format!("target {name} is damaged: {why}")));
        }
        let found = shared.number(name).and_then(|number| Some((number, shared.keyed(number)?)));
        let (number, target) = found.ok_or_else(none)?;
        Ok(KeyedTarget { name: name.into(), number, shape: *target.shape(), keys: target.keys() })
    }

    /// Serves its keys until stopped.
    pub fn serve(
        &self,
        server: Server,
        drive: Arc<SharedDrive<Lent>>,
        (args, config): (&ServeArgs, &DriveConfig),
        stop: &StopHandle,
    ) -> Result<Report, Error> {
        let failed = |e: &dyn std::fmt::Display| Error::Failed(e.to_string());
        let host = Arc::new(OnceLock::new());
        let port = AtLock::new(drive, self.number, host.clone());
        let link = Link::new(lower::link_above(config), port);
        let (drive, _back) =
            Clocked::new(link).map_err(|e| Error::system("get a bell for the drive", &e))?;
        let sleeper = drive.sleeper().clone();
        let clock = *host.get_or_init(|| sleeper.clock());
        let memory = args.memory.unwrap_or(MEMORY);
        let of = KeyedConfig { operations: OPERATIONS, memory, keys: self.keys };
        let keyed = Keyed::new(Box::new(drive), self.shape, of, clock.now());
        let records = Records::Drive(Box::new(keyed.map_err(|e| failed(&e))?));
        let options = Options { sync: when(args), limits: limits(args) };
        let opened = Opened::new(records, options.limits.clients).map_err(|e| failed(&e))?;
        let ran = server.run(opened, &sleeper, options, stop);
        // The store lets go of the drive here.
        ran.map(|(report, _)| report).map_err(|e| failed(&e))
    }
}

/// A target of a drive behind a lock, to be asked by key.
struct AtLock {
    drive: Arc<SharedDrive<Lent>>,
    target: usize,
    /// The clock of who asks, when that is known.
    host: Arc<OnceLock<Clock>>,
    /// Requests inside.
    inside: usize,
    /// When to look at the drive again, by that clock.
    next: Option<Time>,
}

impl AtLock {
    fn new(drive: Arc<SharedDrive<Lent>>, target: usize, host: Arc<OnceLock<Clock>>) -> AtLock {
        AtLock { drive, target, host, inside: 0, next: None }
    }

    /// Does something at the drive, after all that is due there, and notes when to look again.
    /// Nothing is done where the drive waits for its medium.
    fn at_drive(&mut self, now: Time, work: impl FnOnce(&mut Lent, Time)) {
        let looked = self.drive.change(|lent, at| {
            work(lent, at);
            lent.next_event().map(|next| next.since(at).max(SOON))
        });
        // Whoever drives it has told why; this thread's end tells its clients.
        let wait = looked.expect(LOST).unwrap_or(Some(AGAIN));
        let now = self.host.get().map_or(now, Clock::now);
        self.next = wait.map(|wait| now + wait);
    }
}

/// Where puts and deletes fail as the disk is full, that is what is said.
fn explain(lent: &mut Lent, done: &mut Ring<KvDone>, first: usize) {
    let faults = [Status::WRITE_FAULT, Status::READ_ONLY];
    for at in first..done.len() {
        let failed = done.get_mut(at).filter(|one| {
            faults.contains(&one.status) && !matches!(one.op, KvOp::Get | KvOp::Exists)
        });
        let Some(failed) = failed else { continue };
        let Some(is_full) = lent.tell_fault() else { return };
        if is_full {
            failed.status = Status::CAPACITY_EXCEEDED;
        }
    }
}

impl Port for AtLock {
    type Cmd = KvReq;
    type Done = KvDone;

    fn submit(&mut self, now: Time, reqs: &mut Ring<KvReq>) {
        let (before, target) = (reqs.len(), self.target);
        self.at_drive(now, |lent, at| {
            let (shared, at) = lent.shared(at).expect("it has several targets");
            shared.submit_keys(target, at, reqs).expect("one whose keys are served stays");
        });
        self.inside += before - reqs.len();
    }

    fn next_event(&self) -> Option<Time> {
        self.next
    }

    fn advance(&mut self, to: Time, done: &mut Ring<KvDone>) {
        let (first, target) = (done.len(), self.target);
        self.at_drive(to, |lent, at| {
            let (shared, _) = lent.shared(at).expect("it has several targets");
            shared.take_keys(target, done).expect("one whose keys are served stays");
            explain(lent, done, first);
        });
        self.inside -= done.len() - first;
        for at in first..done.len() {
            if let Some(one) = done.get_mut(at) {
                one.at = to;
            }
        }
        if self.inside == 0 {
            self.next = None;
        }
    }
}
