//! A whole block drive: a target, what is below it, and what is before it.
//!
//! ```text
//! DelayPort, FaultPort    requests are late, or fail on purpose
//! Link                    of a drive with its translation layer inside
//! Protected               a cache that is protected against power loss
//! target                  and below it what [`Lower`] tells
//! ```
//!
//! Each is a [`Drive`] over any other. Rules strike from [`Drive::begin_faults`]
//! on, so that a drive is recovered and preconditioned without, and no longer
//! when it is ended. Fails where a drive cannot be ended well.

use device::{Link, SlcHealth};
use flash::{Chunk, Energy};
use ftl::{Over, Target, WriteCounters};
use nvram::{JournalError, Protected};
use parity::ParityCounters;
use port::{BlockDone, BlockReq, Port, Ring, Shape, Time};
use targets::Pblk;

use crate::backing::{Backing, Store};
use crate::error::Error;
use crate::fault_rules::{Injected, Layer, Rules};
use crate::lower::{Lower, Struck, set_rules, struck, two_ports};
use crate::patience::Patience;

/// Completions that are taken at a time while a drive is ended.
const DONE: usize = 64;

/// A drive that was ended.
pub struct Ended {
    /// What it left.
    pub medium: Backing,
    /// Its chunks, by `Geometry::chunk_index`.
    pub chunks: Vec<Chunk>,
    /// When.
    pub at: Time,
}

/// Something that takes block requests, and may tell what it does.
pub trait Observed: Port<Cmd = BlockReq, Done = BlockDone> {
    /// What its target wrote and collected; zeros where nobody tells.
    fn counters(&self) -> WriteCounters {
        WriteCounters::default()
    }

    /// Free chunks of all parallel units; zero where nobody tells.
    fn free_chunks(&self) -> u64 {
        0
    }

    /// The energy that its device has taken until `now`, where that is counted.
    fn energy(&self, _now: Time) -> Energy {
        Energy::default()
    }
}

/// The translation layer of a drive, whatever it is and whatever is below it.
pub trait Guest: Target {
    /// What is below it.
    fn lower(&self) -> &dyn Lower;
    /// What is below it.
    fn lower_mut(&mut self) -> &mut dyn Lower;
}

impl<T: Over<Below: Lower>> Guest for T {
    fn lower(&self) -> &dyn Lower {
        self.below()
    }

    fn lower_mut(&mut self) -> &mut dyn Lower {
        self.below_mut()
    }
}

/// A whole block drive, whatever it is made of.
pub trait Drive: Port<Cmd = BlockReq, Done = BlockDone> + Send + 'static {
    /// Its target.
    fn target(&self) -> &dyn Guest;
    /// Its target.
    fn target_mut(&mut self) -> &mut dyn Guest;
    /// Shuts it down: what is in its buffer and all it knows goes to the
    /// medium. No request may be inside. `now` is not before anything that
    /// happened in it. Fails when its medium does, or it does not come to
    /// rest; what was flushed is then on the medium as after a power cut.
    fn end(self: Box<Self>, now: Time) -> Result<Ended, Error>;

    /// Its outside.
    fn shape(&self) -> Shape {
        self.target().shape()
    }

    /// A hash of target and device: equal where two runs were equal. Reads
    /// the whole map.
    fn state_hash(&self) -> u64 {
        let device = self.target().lower().device().state_hash();
        self.target().state_hash() ^ device.rotate_left(32)
    }

    /// Whether its time is a clock's, so that it passes while the drive waits
    /// for a disk ([`device::Device::set_on_a_clock`]).
    fn set_on_a_clock(&mut self, on_a_clock: bool) {
        self.target_mut().lower_mut().device_mut().set_on_a_clock(on_a_clock);
    }

    /// Looks after what nobody reads: data that have grown old are written
    /// anew. For a drive on a clock, now and then.
    fn tend(&mut self, now: Time) {
        let target = self.target_mut();
        target.lower_mut().device_mut().patrol(now);
        target.heed_notices(now);
    }

    /// The SLC cache of its device; zeros where it has none.
    fn slc(&self) -> SlcHealth {
        self.target().lower().device().slc_health()
    }

    /// Why its medium can be written no more, if that is so, and whether that
    /// is for want of room.
    fn fault(&self) -> Option<(Error, bool)> {
        self.target().lower().device().medium().fault()
    }

    /// Whether its bytes are there after the process has ended.
    fn outlives(&self) -> bool {
        self.target().lower().device().medium().outlives()
    }

    /// What was done for the sake of parity, where it has that.
    fn parity(&self) -> Option<ParityCounters> {
        self.target().lower().parity()
    }

    /// From now on the fault rules that it was made with strike.
    fn begin_faults(&mut self) {}

    /// How often each of them struck.
    fn injected(&self) -> Vec<Injected> {
        Vec::new()
    }
}

impl<D: Drive + ?Sized> Observed for D {
    fn counters(&self) -> WriteCounters {
        self.target().counters()
    }

    fn free_chunks(&self) -> u64 {
        self.target().free_chunks()
    }

    fn energy(&self, now: Time) -> Energy {
        self.target().lower().device().energy(now)
    }
}

/// A drive of any kind.
pub type Boxed = Box<dyn Drive>;

impl Drive for Boxed {
    fn target(&self) -> &dyn Guest {
        (**self).target()
    }

    fn target_mut(&mut self) -> &mut dyn Guest {
        (**self).target_mut()
    }

    fn end(self: Box<Self>, now: Time) -> Result<Ended, Error> {
        (*self).end(now)
    }

    fn fault(&self) -> Option<(Error, bool)> {
        (**self).fault()
    }

    fn begin_faults(&mut self) {
        (**self).begin_faults();
    }

    fn injected(&self) -> Vec<Injected> {
        (**self).injected()
    }
}

impl<D: Lower> Drive for Pblk<D> {
    fn target(&self) -> &dyn Guest {
        self
    }

    fn target_mut(&mut self) -> &mut dyn Guest {
        self
    }

    fn end(self: Box<Self>, now: Time) -> Result<Ended, Error> {
        end(self, now)
    }
}

impl<D: Drive> Drive for Link<D> {
    fn target(&self) -> &dyn Guest {
        self.below().target()
    }

    fn target_mut(&mut self) -> &mut dyn Guest {
        self.below_mut().target_mut()
    }

    fn end(self: Box<Self>, now: Time) -> Result<Ended, Error> {
        Box::new(self.into_below()).end(now)
    }

    fn fault(&self) -> Option<(Error, bool)> {
        self.below().fault()
    }
}

impl Drive for Protected<Boxed, Store> {
    fn target(&self) -> &dyn Guest {
        self.below().target()
    }

    fn target_mut(&mut self) -> &mut dyn Guest {
        self.below_mut().target_mut()
    }

    fn end(mut self: Box<Self>, now: Time) -> Result<Ended, Error> {
        let mut done = Ring::new(DONE);
        let mut patience = Patience::default();
        let mut at = now;
        while !self.is_idle() {
            let Some(event) = self.next_event() else { break };
            at = at.max(event);
            self.advance(event, &mut done);
            done.drain().for_each(drop);
            patience.look(event);
        }
        let (below, journal) = self.into_below();
        let ended = below.end(at)?;
        // All is in flash: nothing is to be written again.
        if let Some(mut journal) = journal {
            journal.clear().map_err(|e| Error::Failed(e.to_string()))?;
        }
        Ok(ended)
    }

    fn fault(&self) -> Option<(Error, bool)> {
        let stopped = |e: &JournalError| (Error::Failed(e.to_string()), e.is_full());
        let frozen = |status| {
            let text = format!("the drive did not take what its protected cache holds: {status}");
            (Error::Failed(text), false)
        };
        let of_cache = || self.error().map(stopped).or_else(|| self.frozen().map(frozen));
        self.below().fault().or_else(of_cache)
    }
}

/// A drive in which things go wrong on purpose.
pub struct Faulted {
    port: Struck<Boxed>,
    rules: Rules,
}

impl Faulted {
    /// Puts the upper ports before a drive that has the lower ones.
    pub fn new(drive: Boxed, rules: Rules) -> Faulted {
        Faulted { port: two_ports(drive), rules }
    }

    fn below(&self) -> &Boxed {
        self.port.below().below()
    }

    fn below_mut(&mut self) -> &mut Boxed {
        self.port.below_mut().below_mut()
    }

    /// From now on these rules strike.
    fn set_rules(&mut self, rules: &Rules) {
        set_rules(&mut self.port, Layer::Above, rules);
        self.target_mut().lower_mut().set_rules(rules);
    }
}

impl Port for Faulted {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        self.port.submit(now, cmds);
    }

    fn next_event(&self) -> Option<Time> {
        self.port.next_event()
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        self.port.advance(to, done);
    }

    fn hint(&self, cmd: &BlockReq) {
        self.port.hint(cmd);
    }
}

impl Drive for Faulted {
    fn target(&self) -> &dyn Guest {
        self.below().target()
    }

    fn target_mut(&mut self) -> &mut dyn Guest {
        self.below_mut().target_mut()
    }

    fn end(mut self: Box<Self>, now: Time) -> Result<Ended, Error> {
        self.set_rules(&Rules::default());
        self.port.into_below().into_below().end(now)
    }

    fn fault(&self) -> Option<(Error, bool)> {
        self.below().fault()
    }

    fn begin_faults(&mut self) {
        let rules = self.rules.clone();
        self.set_rules(&rules);
    }

    fn injected(&self) -> Vec<Injected> {
        let lower = self.target().lower();
        self.rules.injected(|layer, is_delay| match layer {
            Layer::Above => struck(&self.port, is_delay),
            Layer::Below => lower.struck(is_delay),
            Layer::Medium => lower.device().medium().struck(),
        })
    }
}

/// Shuts down a target, and what is below it.
fn end<T: Over<Below: Lower>>(mut target: Box<T>, now: Time) -> Result<Ended, Error> {
    target.below_mut().device_mut().set_on_a_clock(false);
    let mut done = Ring::new(DONE);
    let mut patience = Patience::default();
    let mut at = now;
    let mut rest = |target: &mut T, until: Option<Time>| {
        // Also what comes after the end: erases that nothing waits for.
        while let Some(event) = target.next_event().filter(|&e| until.is_none_or(|u| e <= u)) {
            at = at.max(event);
            target.advance(event, &mut done);
            done.drain().for_each(drop);
            patience.look(event);
        }
    };
    rest(&mut target, Some(now));
    target.close(now);
    rest(&mut target, None);
    let closed = target.is_closed();
    let device = Box::new(target.into_below()).into_device();
    let chunks = device.chunks().to_vec();
    let medium = device.cut().into_lowest();
    match medium.fault() {
        Some((fault, _)) => Err(fault),
        None if closed => Ok(Ended { medium, chunks, at }),
        None => Err(Error::Failed(
            "the drive could not be shut down, as too much of it is worn out or failed; \
             what was flushed is there"
                .into(),
        )),
    }
}
