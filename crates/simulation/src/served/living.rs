//! How a server lives: commands of its clients, and cuts.

use super::world::{PATIENCE, World};
use crate::life::Living;
use crate::machine::{Violation, wrong};
use crate::rig::Rig;
use crate::setup::Setup;
use workload::Rng;

impl Living for World {
    const EVENTS: &'static [u64] = &[2, 8, 24, 80];
    const CYCLE: u64 = 24;
    const QUIET: u32 = 200;

    fn rig(&mut self) -> &mut Rig {
        &mut self.site.rig
    }

    fn setup(&self) -> &Setup {
        &self.site.host.setup
    }

    fn under_way(&self) -> usize {
        self.unseen()
    }

    fn depth(&self) -> usize {
        self.served.clients * self.served.pipeline
    }

    fn cycle(&self, rng: &mut Rng) -> u64 {
        rng.below(2 * Self::CYCLE)
    }

    fn collections(&self) -> u64 {
        self.site.collections()
    }

    fn power_up(&mut self, events: u64) -> Result<bool, Violation> {
        assert!(self.local.is_none(), "power comes after it went");
        if events == u64::MAX {
            self.site.rig.flash.heal_disk();
        }
        let (seed, troubles) = self.site.rig.power_up(&self.site.host.setup, events);
        self.looks = 0;
        let started = self.start(&troubles, seed);
        self.site.rig.flash.take_strikes();
        let now = self.site.clock.get();
        match started {
            _ if self.site.rig.flash.power().is_wasted() => Err(wrong(None, "the start hangs")),
            _ if self.site.rig.is_off() => {
                self.site.forget();
                Ok(self.site.rig.cut_in_start(now, events))
            }
            Ok(local) => {
                self.local = Some(local);
                self.site.made();
                Ok(self.site.rig.started(now, || "power comes; the server is there".into()))
            }
            Err(words) => Err(wrong(None, format!("recovery failed: {words}"))),
        }
    }

    fn power_down(&mut self) {
        self.local = None;
        self.site.rig.counts.failed_stores += u64::from(self.has_failed());
        self.left.set(u64::MAX);
        self.site.power_down();
        self.clients.clear();
    }

    fn replace(&mut self) {
        self.power_down();
        self.site.replace();
        self.model.replace();
    }

    fn is_hopeless(&self) -> bool {
        self.site.rig.is_hopeless()
    }

    fn ask(&mut self, rng: &mut Rng) -> Result<(), Violation> {
        self.ask_some(rng)
    }

    fn step(&mut self) -> Result<bool, Violation> {
        let goes_on = self.poll_once()?;
        self.polled()?;
        Ok(goes_on && !self.site.rig.is_off())
    }

    fn check(&mut self, at_rest: bool) -> Result<(), Violation> {
        self.check_all(at_rest)?;
        self.site.rig.hash = self.site.rig.hash.wrapping_add(self.site.clock.get().0);
        Ok(())
    }
}

impl World {
    /// Lets the next thing happen. False when nothing will.
    pub(super) fn poll_once(&mut self) -> Result<bool, Violation> {
        let is_off = self.site.rig.is_off();
        let Some(local) = &mut self.local else { return Ok(false) };
        let Some(at) = local.next_event().filter(|_| !is_off) else {
            let stuck = !is_off && self.unseen() > 0;
            let hangs = self.site.rig.flash.power().is_wasted() || stuck;
            return if hangs { Err(self.hangs()) } else { Ok(false) };
        };
        let before = self.site.clock.get();
        local.poll(at);
        self.looks = if self.site.clock.get() > before { 0 } else { self.looks + 1 };
        if self.looks > PATIENCE { Err(self.hangs()) } else { Ok(true) }
    }
}
