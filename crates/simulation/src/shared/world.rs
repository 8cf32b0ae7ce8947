//! A drive that targets share, its power, and who asks blocks and keys there.

use media::{CreateError, MediaError};
use port::{KvDone, KvReq, Ring, Time};

use crate::keyed::host::{Excuse, Host, MOST_AT_ONCE, Site};
use crate::life::Living;
use crate::machine::{Machine, Violation, wrong};
use crate::rig::Rig;
use crate::setup::Setup;

/// How far the target of keys is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Serves,
    /// It is asked nothing more.
    Leaves,
    /// It is gone, or will be at the next start.
    Gone,
}

/// See the head of this file.
pub struct World {
    /// The drive, and what its blocks were promised.
    pub(super) machine: Machine,
    /// What its keys were.
    pub(super) keys: Host,
    pub(super) stage: Stage,
    done: Ring<KvDone>,
}

impl World {
    /// A new drive, without power, and so many keys with values of mostly so many bytes, of
    /// which so many requests are under way.
    pub(super) fn new(machine: Machine, names: u64, most: u64, depth: usize) -> World {
        let Setup { shares, geometry, .. } = &machine.setup;
        let shares = shares.as_ref().expect("targets share it");
        let keys = Host::new(names, most, depth, shares.room(geometry), shares.config.seed);
        World { machine, keys, stage: Stage::Serves, done: Ring::new(MOST_AT_ONCE) }
    }

    pub(super) fn set_up(&mut self, has_keys: bool) {
        self.machine.setup.shares.as_mut().expect("targets share it").has_keys = has_keys;
    }

    /// The drive is there, or another in its place, after so many were replaced.
    pub(super) fn found(&mut self, replaced: u64) {
        if self.machine.rig.counts.replaced > replaced {
            self.keys.model.replace();
        }
        let shape = self.machine.tenants().and_then(|tenants| tenants.shape_of_keys());
        if let Some(shape) = shape {
            self.keys.started(shape);
        }
    }

    /// Power is gone.
    pub(super) fn cut(&mut self) {
        while self.done.pop().is_some() {}
        self.keys.cut();
        if self.stage == Stage::Leaves {
            self.gone();
        }
    }

    fn gone(&mut self) {
        self.stage = Stage::Gone;
        self.keys.model.replace();
        self.machine.rig.counts.tenants_left += 1;
    }

    /// Sends what there is to be sent by key.
    pub(super) fn submit(&mut self) {
        let now = self.machine.now();
        if let Some(tenants) = self.machine.tenants() {
            tenants.submit_keys(now, &mut self.keys.queue);
        }
    }

    /// Takes what completed by key. False where that is nothing.
    pub(super) fn take(&mut self) -> Result<bool, Violation> {
        let Some(tenants) = self.machine.tenants() else { return Ok(false) };
        tenants.take_keys(&mut self.done);
        let (any, is_gone) = (!self.done.is_empty(), tenants.are_keys_gone());
        self.machine.take_strikes();
        let (excuse, now) = (excuse(&self.machine), self.machine.now());
        while let Some(done) = self.done.pop() {
            self.keys.completed(done, excuse, &mut self.machine.rig, now)?;
        }
        if self.stage == Stage::Leaves && is_gone {
            if self.keys.under_way() > 0 {
                let words = format!("it left with requests inside: {}", self.keys.in_words());
                return Err(wrong(None, words));
            }
            self.gone();
        }
        self.submit();
        Ok(any)
    }

    pub(super) fn hangs(&self) -> Violation {
        wrong(None, format!("requests by key hang: {}", self.keys.in_words()))
    }

    /// The target of keys goes with all that it has, or another comes.
    pub(super) fn come_or_go(&mut self) -> Result<(), Violation> {
        match self.stage {
            Stage::Serves => {
                // What the drive is says so first.
                self.set_up(false);
                self.stage = Stage::Leaves;
                let now = self.machine.now();
                let tenants = self.machine.tenants().expect("there is power");
                let left = tenants.remove_keys(now);
                left.map_err(|why| wrong(None, format!("it does not leave: {why}")))
            }
            Stage::Leaves => Ok(()),
            Stage::Gone => self.come(),
        }
    }

    fn come(&mut self) -> Result<(), Violation> {
        let may_be_spoilt = self.machine.rig.flash.struck().erases > 0;
        let tenants = self.machine.tenants().expect("there is power");
        match tenants.create_keys() {
            Ok(()) => {
                let shape = tenants.shape_of_keys().expect("it came");
                self.set_up(true);
                self.stage = Stage::Serves;
                self.keys.started(shape);
                self.machine.rig.counts.tenants_came += 1;
                Ok(())
            }
            Err(CreateError::Media(MediaError::Erasing { .. })) => Ok(()),
            Err(CreateError::Media(MediaError::Written { .. })) if may_be_spoilt => Ok(()),
            Err(why) => Err(wrong(None, format!("no target comes: {why}"))),
        }
    }

    /// With nothing under way: what a target of keys left is another's to have, and what its
    /// keys had is room for others.
    pub(super) fn check_room(&mut self) -> Result<(), Violation> {
        if self.stage != Stage::Serves {
            while self.machine.step()? {
                self.take()?;
            }
            self.take()?;
            self.come_or_go()?;
        }
        match self.stage {
            Stage::Serves => self.keys.check_room(&mut self.machine),
            _ if self.machine.rig.flash.struck().erases > 0 => Ok(()),
            stage => Err(wrong(None, format!("at rest no target comes: {stage:?}"))),
        }
    }

    /// Nobody gets what the target of keys has.
    pub(super) fn claim_its_place(&mut self) -> Result<(), Violation> {
        let tenants = self.machine.tenants().expect("there is power");
        match tenants.create_keys() {
            Err(CreateError::Media(MediaError::Taken { .. })) => Ok(()),
            Err(why) => Err(wrong(None, format!("a second target of keys: {why}"))),
            Ok(()) => Err(wrong(None, "a target was given chunks of another")),
        }
    }
}

/// Whether faults struck what the target of keys has.
fn excuse(machine: &Machine) -> Excuse {
    let Setup { shares, geometry, .. } = &machine.setup;
    let shares = shares.as_ref().expect("targets share it");
    let flash = &machine.rig.flash;
    let hurt = |pu| flash.hurt(pu, shares.keys.chunks.clone()) > 0;
    let unwritten =
        !machine.setup.troubles.is_none() && shares.pus_of_keys(geometry).into_iter().any(hurt);
    let (before_power, before_work) = machine.keys_unread;
    Excuse { unread: flash.struck().keys, before_power, before_work, unwritten }
}

impl Site for Machine {
    fn rig(&mut self) -> &mut Rig {
        &mut self.rig
    }

    fn now(&self) -> Time {
        Machine::now(self)
    }

    fn excuse(&self) -> Excuse {
        excuse(self)
    }

    fn act(&mut self, req: KvReq) -> Result<KvDone, Violation> {
        let (mut reqs, mut done) = (Ring::new(1), Ring::new(1));
        reqs.put(|| req);
        loop {
            let now = Machine::now(self);
            let Some(tenants) = self.tenants() else { return Err(wrong(None, "power went")) };
            tenants.submit_keys(now, &mut reqs);
            tenants.take_keys(&mut done);
            self.take_strikes();
            if let Some(done) = done.pop() {
                self.rig.flash.power().progress();
                return Ok(done);
            }
            if !self.step()? {
                return Err(wrong(None, "a check's request by key hangs"));
            }
        }
    }
}
