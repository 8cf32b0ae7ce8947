//! How a drive with values by key lives: requests and cuts.

use port::{Port, Time};
use targets::Kv;
use workload::Rng;

use super::host::Site;
use super::may_refuse;
use super::world::{Powered, World};
use crate::drive::Drive;
use crate::life::Living;
use crate::machine::{Violation, wrong};
use crate::rig::Rig;
use crate::setup::Setup;

impl Living for World {
    const EVENTS: &'static [u64] = &[4, 24, 120, 600];
    const CYCLE: u64 = 120;
    const QUIET: u32 = 500;

    fn rig(&mut self) -> &mut Rig {
        &mut self.powered.rig
    }

    fn setup(&self) -> &Setup {
        &self.drive.setup
    }

    fn under_way(&self) -> usize {
        self.host.under_way()
    }

    fn depth(&self) -> usize {
        self.host.depth
    }

    fn collections(&self) -> u64 {
        self.powered.target.as_ref().map_or(0, |target| target.counters().collections)
    }

    fn power_up(&mut self, events: u64) -> Result<bool, Violation> {
        assert!(self.powered.target.is_none(), "power comes after it went");
        let setup = &self.drive.setup;
        let Powered { rig, target, now, before_power, before_work, .. } = &mut self.powered;
        *before_power = rig.flash.struck().reads;
        let (seed, troubles) = rig.power_up(setup, events);
        *now = Time::ZERO;
        let (flash, fresh) = (&rig.flash, rig.starts == 1);
        let powered = flash.drive(&setup.timing, fresh, seed).expect("memory for a drive");
        let below = Drive::new(powered, flash, &troubles, seed);
        let below = below.expect("the rules are for vector commands");
        let below = below.with_parity(setup.parity, flash).expect("a setup's width fits its drive");
        let started = Kv::recover(below, self.drive.config, Time::ZERO);
        *before_work = rig.flash.struck().reads;
        match started {
            _ if rig.flash.power().is_wasted() => Err(wrong(None, "the start hangs")),
            _ if rig.is_off() => Ok(rig.cut_in_start(*now, events)),
            Ok((started, at)) => {
                *now = at;
                let target = target.insert(started);
                self.host.started(*target.shape());
                Ok(rig.started(at, || format!("power comes: {:?}", target.recovery())))
            }
            Err(error) if may_refuse(&error, *before_work > *before_power) => {
                Ok(rig.refused(*now, error))
            }
            Err(error) => Err(wrong(None, format!("recovery failed: {error}"))),
        }
    }

    fn power_down(&mut self) {
        let Powered { rig, target, now, done, .. } = &mut self.powered;
        rig.flash.power().off();
        rig.note(*now, |_| true, || "power goes".into());
        if let Some(target) = target.take() {
            let (counters, delays) = (target.counters(), target.below().delays());
            let (collected, erased) = (counters.collections, counters.erases);
            rig.count_cut(&self.drive.setup, collected, erased, delays);
        }
        self.host.cut();
        // Answers that nobody sees any more.
        while done.pop().is_some() {}
    }

    fn replace(&mut self) {
        self.power_down();
        self.powered.rig.renew(&self.drive.setup);
        self.host.model.replace();
    }

    fn is_hopeless(&self) -> bool {
        false
    }

    fn ask(&mut self, rng: &mut Rng) -> Result<(), Violation> {
        let excuse = self.powered.excuse();
        let Powered { rig, now, .. } = &mut self.powered;
        self.host.ask(rng, excuse, rig, *now);
        self.submit();
        if self.powered.rig.flash.power().is_wasted() { Err(self.hangs()) } else { Ok(()) }
    }

    fn step(&mut self) -> Result<bool, Violation> {
        let Powered { rig, target: Some(target), now, done, .. } = &mut self.powered else {
            return Ok(false);
        };
        if rig.is_off() {
            return if rig.flash.power().is_wasted() { Err(self.hangs()) } else { Ok(false) };
        }
        let Some(at) = target.next_event() else {
            return if self.under_way() > 0 { Err(self.hangs()) } else { Ok(false) };
        };
        *now = at.max(*now);
        target.advance(*now, done);
        // What ends in the moment of the cut never reaches the host.
        if rig.is_off() {
            return if rig.flash.power().is_wasted() { Err(self.hangs()) } else { Ok(false) };
        }
        while let Some(done) = self.powered.done.pop() {
            self.completed(done)?;
        }
        self.submit();
        Ok(true)
    }

    fn check(&mut self, at_rest: bool) -> Result<(), Violation> {
        self.host.check(at_rest, &mut self.powered)?;
        if at_rest { self.host.check_room(&mut self.powered) } else { Ok(()) }
    }
}
