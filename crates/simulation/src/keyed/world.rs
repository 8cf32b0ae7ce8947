//! A key-value target over a drive, its power, and a host that remembers.

use flash::Geometry;
use port::{KvDone, KvReq, Port, Ring, Time};
use targets::Kv;

use super::Drive;
use super::host::{Excuse, Host, MOST_AT_ONCE, Site};
use crate::drive::Drive as Below;
use crate::machine::{Violation, wrong};
use crate::rig::Rig;

/// A drive, its power, and its host.
pub struct World {
    /// Which drive.
    pub drive: Drive,
    pub(super) host: Host,
    pub(super) powered: Powered,
}

/// A drive, and its power.
pub(super) struct Powered {
    /// The flash and its power, and what was done and seen.
    pub rig: Rig,
    pub target: Option<Kv<Below>>,
    pub now: Time,
    pub done: Ring<KvDone>,
    /// Blocks that could not be read before power came, and before the start had ended.
    pub before_power: u64,
    pub before_work: u64,
    /// What the target sees of the flash, where some of that may fail.
    failing: Option<Geometry>,
}

impl World {
    /// A new drive, without power. `traced` is a key whose history is kept.
    pub(super) fn new(drive: Drive, traced: Option<u64>) -> World {
        let powered = Powered {
            rig: Rig::new(&drive.setup, None, traced),
            target: None,
            now: Time::ZERO,
            done: Ring::new(MOST_AT_ONCE),
            before_power: 0,
            before_work: 0,
            failing: (!drive.setup.troubles.is_none()).then(|| drive.setup.seen()),
        };
        let host = Host::new(drive.names, drive.most, drive.depth, drive.room, drive.config.seed);
        World { drive, host, powered }
    }

    pub(super) fn submit(&mut self) {
        if let Some(target) = &mut self.powered.target
            && !self.host.queue.is_empty()
        {
            target.submit(self.powered.now, &mut self.host.queue);
        }
    }

    pub(super) fn hangs(&self) -> Violation {
        let counters = self.powered.target.as_ref().map(Kv::counters);
        let under_way = self.host.in_words();
        wrong(None, format!("the drive hangs: {counters:?}; under way are {under_way}"))
    }

    pub(super) fn completed(&mut self, done: KvDone) -> Result<(), Violation> {
        let excuse = self.powered.excuse();
        let Powered { rig, now, .. } = &mut self.powered;
        self.host.completed(done, excuse, rig, *now)
    }
}

impl Site for Powered {
    fn rig(&mut self) -> &mut Rig {
        &mut self.rig
    }

    fn now(&self) -> Time {
        self.now
    }

    /// Chunks of which programs failed are lost.
    fn excuse(&self) -> Excuse {
        let Powered { before_power, before_work, ref rig, .. } = *self;
        let hurt = |seen: &Geometry| {
            let mut all = seen.pus_channels_first();
            all.any(|pu| rig.flash.hurt(pu, 0..seen.chunks()) > 0)
        };
        let unwritten = self.failing.as_ref().is_some_and(hurt);
        Excuse { unread: rig.flash.struck().reads, before_power, before_work, unwritten }
    }

    fn act(&mut self, req: KvReq) -> Result<KvDone, Violation> {
        let mut queue = Ring::new(1);
        queue.put(|| req);
        loop {
            let target = self.target.as_mut().expect("there is power");
            target.submit(self.now, &mut queue);
            if let Some(done) = self.done.pop() {
                self.rig.flash.power().progress();
                return Ok(done);
            }
            let at = target.next_event().ok_or_else(|| wrong(None, "a check's request hangs"))?;
            self.now = self.now.max(at);
            target.advance(self.now, &mut self.done);
            if self.rig.is_off() {
                return Err(wrong(None, "the drive hangs in a check"));
            }
        }
    }
}
