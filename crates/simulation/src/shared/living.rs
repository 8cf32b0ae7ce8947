//! How such a drive lives: requests for blocks and by key, targets that come and go, cuts, and
//! sometimes an end in good order.

use port::BlockOp;
use workload::Rng;

use super::world::{Stage, World};
use crate::keyed::host::Site;
use crate::life::Living;
use crate::machine::{Ask, Machine, Violation};
use crate::rig::Rig;
use crate::setup::Setup;

impl Living for World {
    const EVENTS: &'static [u64] = &[4, 24, 120, 600];
    const CYCLE: u64 = 200;
    const QUIET: u32 = 1000;
    const STARTS: u32 = <Machine as Living>::STARTS;

    fn rig(&mut self) -> &mut Rig {
        &mut self.machine.rig
    }

    fn setup(&self) -> &Setup {
        &self.machine.setup
    }

    fn under_way(&self) -> usize {
        self.machine.under_way() + self.keys.under_way()
    }

    fn depth(&self) -> usize {
        let by_key = if self.stage == Stage::Serves { self.keys.depth } else { 0 };
        self.machine.depth() + by_key
    }

    fn collections(&self) -> u64 {
        self.machine.collections()
    }

    fn power_up(&mut self, events: u64) -> Result<bool, Violation> {
        let replaced = self.machine.rig.counts.replaced;
        let is_there = self.machine.power_up(events)?;
        if is_there {
            self.found(replaced);
        }
        Ok(is_there)
    }

    fn power_down(&mut self) {
        self.machine.power_down();
        self.cut();
    }

    fn replace(&mut self) {
        let replaced = self.machine.rig.counts.replaced;
        self.machine.replace();
        self.cut();
        self.found(replaced);
    }

    fn is_hopeless(&self) -> bool {
        self.machine.is_hopeless()
    }

    fn start(&mut self) -> Result<bool, Violation> {
        let replaced = self.machine.rig.counts.replaced;
        let is_there = self.machine.start()?;
        self.found(replaced);
        Ok(is_there)
    }

    fn restart(&mut self) -> Result<bool, Violation> {
        let replaced = self.machine.rig.counts.replaced;
        let is_there = self.machine.restart()?;
        self.found(replaced);
        Ok(is_there)
    }

    fn ask(&mut self, rng: &mut Rng) -> Result<(), Violation> {
        let often = if self.stage == Stage::Serves { 400 } else { 20 };
        if rng.one_in(often) {
            self.come_or_go()?;
        } else if self.stage == Stage::Serves && rng.one_in(200) {
            self.claim_its_place()?;
        }
        let by_key = self.stage == Stage::Serves && self.keys.under_way() < self.keys.depth;
        let has_room = self.machine.under_way() < self.machine.depth();
        if by_key && (!has_room || rng.one_in(2)) {
            let (excuse, now) = (self.machine.excuse(), self.machine.now());
            self.keys.ask(rng, excuse, &mut self.machine.rig, now);
            self.submit();
        } else if has_room {
            self.machine.ask(rng)?;
        }
        self.take()?;
        Ok(())
    }

    fn step(&mut self) -> Result<bool, Violation> {
        let moved = self.machine.step()?;
        // What ends in the moment of the cut never reaches the host.
        if self.machine.rig.is_off() {
            return Ok(false);
        }
        let took = self.take()?;
        if !moved && !took && self.keys.under_way() > 0 {
            return Err(self.hangs());
        }
        Ok(moved || took)
    }

    /// Sometimes all rests, sometimes the drive is shut down, in a quarter of the cases with
    /// power for some events only.
    fn stop(&mut self, rng: &mut Rng) -> Result<bool, Violation> {
        if rng.one_in(8) && self.drain()? && rng.one_in(2) {
            self.machine.send(Ask { op: BlockOp::Flush, fua: false, sector: 0, count: 0 })?;
            if self.stage == Stage::Serves {
                self.keys.flush(&mut self.machine.rig);
                self.submit();
            }
            self.drain()?;
        }
        if !rng.one_in(10) {
            return Ok(false);
        }
        // One that takes no more writes has nothing to be shut down.
        if self.drain()? && !self.machine.rig.told_of_end {
            if rng.one_in(4) {
                let most = rng.one_of(Self::EVENTS);
                self.machine.rig.flash.power().lasts(rng.below(most));
            }
            if self.machine.close()? && self.stage == Stage::Serves {
                self.keys.model.closed();
            }
        }
        Ok(true)
    }

    fn check(&mut self, at_rest: bool) -> Result<(), Violation> {
        self.machine.check(at_rest)?;
        if self.stage == Stage::Serves {
            self.keys.check(at_rest, &mut self.machine)?;
        }
        if at_rest { self.check_room() } else { Ok(()) }
    }

    fn end(&mut self) -> u64 {
        self.machine.end()
    }
}
