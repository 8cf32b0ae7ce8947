//! How a drive with values by key lives: requests and cuts.

use port::{Port, Time};
use targets::Kv;
use workload::Rng;

use super::world::{LONGEST, MOST_AT_ONCE, SHORTEST, World};
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
        &mut self.rig
    }

    fn setup(&self) -> &Setup {
        &self.drive.setup
    }

    fn under_way(&self) -> usize {
        MOST_AT_ONCE - self.free.len()
    }

    fn depth(&self) -> usize {
        self.drive.depth
    }

    fn collections(&self) -> u64 {
        self.target.as_ref().map_or(0, |target| target.counters().collections)
    }

    fn power_up(&mut self, events: u64) -> Result<bool, Violation> {
        assert!(self.target.is_none(), "power comes after it went");
        self.forget();
        let setup = &self.drive.setup;
        let (seed, troubles) = self.rig.power_up(setup, events);
        self.now = Time::ZERO;
        let (flash, fresh) = (&self.rig.flash, self.rig.starts == 1);
        let powered = flash.drive(&setup.timing, fresh, seed).expect("memory for a drive");
        let below = Drive::new(powered, flash, &troubles, seed);
        let below = below.expect("the rules are for vector commands");
        match Kv::recover(below, self.drive.config, Time::ZERO) {
            _ if self.rig.flash.power().is_wasted() => Err(wrong(None, "the start hangs")),
            _ if self.rig.is_off() => Ok(self.rig.cut_in_start(self.now, events)),
            Ok((target, now)) => {
                self.now = now;
                let target = self.target.insert(target);
                Ok(self.rig.started(now, || format!("power comes: {:?}", target.recovery())))
            }
            Err(error) => Err(wrong(None, format!("recovery failed: {error}"))),
        }
    }

    fn power_down(&mut self) {
        self.rig.flash.power().off();
        self.note(None, || "power goes".into());
        if let Some(target) = self.target.take() {
            let (counters, delays) = (target.counters(), target.below().delays());
            let (collected, erased) = (counters.collections, counters.erases);
            self.rig.count_cut(&self.drive.setup, collected, erased, delays);
        }
        while self.queue.pop().is_some() {}
        // Answers that nobody sees any more.
        while self.done.pop().is_some() {}
    }

    fn replace(&mut self) {
        self.power_down();
        self.rig.renew(&self.drive.setup);
        self.model.replace();
    }

    fn is_hopeless(&self) -> bool {
        false
    }

    fn ask(&mut self, rng: &mut Rng) -> Result<(), Violation> {
        let key = rng.below(self.drive.names);
        let durable = rng.one_in(8);
        match rng.below(100) {
            0..50 => {
                // Now and then one that goes over several rows.
                let most = if rng.one_in(16) { LONGEST } else { self.drive.most };
                self.put(key, SHORTEST + rng.below(most - SHORTEST + 1), durable)
            }
            50..62 => self.delete(key, durable),
            62..92 => self.get(key),
            92..94 => self.list(),
            _ => self.flush(),
        }
    }

    fn step(&mut self) -> Result<bool, Violation> {
        let Some(target) = &mut self.target else { return Ok(false) };
        if self.rig.is_off() {
            return if self.rig.flash.power().is_wasted() { Err(self.hangs()) } else { Ok(false) };
        }
        let Some(at) = target.next_event() else {
            return if self.under_way() > 0 { Err(self.hangs()) } else { Ok(false) };
        };
        self.now = self.now.max(at);
        target.advance(self.now, &mut self.done);
        // What ends in the moment of the cut never reaches the host.
        if self.rig.is_off() {
            return if self.rig.flash.power().is_wasted() { Err(self.hangs()) } else { Ok(false) };
        }
        while let Some(done) = self.done.pop() {
            self.completed(done)?;
        }
        self.submit();
        Ok(true)
    }

    fn check(&mut self, at_rest: bool) -> Result<(), Violation> {
        self.check_keys(at_rest)
    }
}
