//! How a batched drive lives: batches, reads and flushes, and cuts.

use port::{Port, Time};
use targets::Batch;
use workload::Rng;

use super::world::{MOST_AT_ONCE, Open, World, changes_nothing};
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
        self.before = self.rig.flash.struck();
        let setup = &self.drive.setup;
        let (seed, troubles) = self.rig.power_up(setup, events);
        (self.now, self.open) = (Time::ZERO, [None; MOST_AT_ONCE]);
        self.free.clear();
        self.free.extend((0..MOST_AT_ONCE).rev());
        self.model.power_up();
        let (flash, fresh) = (&self.rig.flash, self.rig.starts == 1);
        let powered = flash.drive(&setup.timing, fresh, seed).expect("memory for a drive");
        let below = Drive::new(powered, flash, &troubles, seed);
        let below = below.expect("the rules are for vector commands");
        let opened = Batch::open(below, self.drive.config, Time::ZERO);
        self.take_strikes();
        match opened {
            _ if self.rig.flash.power().is_wasted() => Err(wrong(None, "the start hangs")),
            _ if self.rig.is_off() => Ok(self.rig.cut_in_start(self.now, events)),
            Ok(target) => {
                self.unused.extend(target.recovery().unused.iter().cloned());
                self.now = target.now();
                let target = self.target.insert(target);
                Ok(self.rig.started(self.now, || format!("power comes: {:?}", target.recovery())))
            }
            Err(error) if self.may_refuse(&error) => Ok(self.rig.refused(self.now, error)),
            Err(error) => Err(wrong(None, format!("recovery failed: {error}"))),
        }
    }

    fn power_down(&mut self) {
        self.rig.flash.power().off();
        self.note(&[], || "power goes".into());
        if let Some(target) = self.target.take() {
            let (counters, delays) = (target.counters(), target.below().delays());
            let (collected, erased) = (counters.collections, counters.erases);
            self.rig.count_cut(&self.drive.setup, collected, erased, delays);
        }
        while self.queue.pop().is_some() {}
        // Answers that nobody sees any more: a batch that was refused is not there,
        // though those behind it may be.
        while let Some(done) = self.done.pop() {
            if let Some(Open::Batch(batch)) = self.open[done.id as usize]
                && changes_nothing(done.status)
            {
                self.model.drop_batch(batch);
            }
        }
    }

    fn replace(&mut self) {
        self.power_down();
        self.rig.renew(&self.drive.setup);
        self.model.replace();
        self.unused.clear();
    }

    fn is_hopeless(&self) -> bool {
        self.rig.is_hopeless() && self.hurt() > 0
    }

    fn ask(&mut self, rng: &mut Rng) -> Result<(), Violation> {
        let config = &self.drive.config;
        let (all, max_pages) = (config.pages, u64::from(config.max_pages));
        let page = |rng: &mut Rng| {
            let of = if rng.one_in(2) { all.div_ceil(8) } else { all };
            rng.below(of)
        };
        match rng.below(100) {
            0..50 => {
                let most = if rng.one_in(8) { max_pages } else { self.drive.pages };
                let count = 1 + rng.below(most);
                let lpids: Vec<u64> = (0..count).map(|_| page(rng)).collect();
                let given_up = if rng.one_in(4) { 1 + rng.below(3) } else { 0 };
                let given_up = given_up.min(max_pages - count);
                let others: Vec<u64> = (0..given_up).map(|_| page(rng)).collect();
                self.write(&lpids, &others)
            }
            50..94 => self.read(page(rng)),
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
        self.take_strikes();
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
        self.check_pages(at_rest)
    }
}
