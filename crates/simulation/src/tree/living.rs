//! How a tree lives: puts, deletes, batches, gets, scans and flushes, and cuts.

use std::rc::Rc;

use btree::Tree;
use port::Time;
use workload::Rng;

use super::may_fail;
use super::world::{Below, Heard, Open, PATIENCE, World};
use crate::life::Living;
use crate::machine::{self, Violation, wrong};
use crate::rig::Rig;
use crate::setup::Setup;

impl Living for World {
    const EVENTS: &'static [u64] = &[4, 24, 120, 600];
    const CYCLE: u64 = 120;
    const QUIET: u32 = 400;

    fn rig(&mut self) -> &mut Rig {
        &mut self.rig
    }

    fn setup(&self) -> &Setup {
        &self.host.setup
    }

    fn under_way(&self) -> usize {
        self.open.len()
    }

    fn depth(&self) -> usize {
        self.host.depth
    }

    fn cycle(&self, _: &mut Rng) -> u64 {
        self.host.cycle
    }

    fn collections(&self) -> u64 {
        match &self.below {
            Some(Below::Blocks(stack)) => stack.borrow().counters().collections,
            Some(Below::Batch(target)) => target.borrow().counters().collections,
            None => 0,
        }
    }

    fn power_up(&mut self, events: u64) -> Result<bool, Violation> {
        assert!(self.tree.is_none(), "power comes after it went");
        if events == u64::MAX {
            self.rig.flash.fail_sync(None);
        }
        let (seed, troubles) = self.rig.power_up(&self.host.setup, events);
        (self.clock, self.looks) = (Rc::default(), 0);
        let started = self.start_tree(&troubles, seed);
        self.rig.flash.take_strikes();
        let now = self.clock.get();
        match started {
            _ if self.rig.flash.power().is_wasted() => Err(wrong(None, "the start hangs")),
            _ if self.rig.is_off() => {
                self.below = None;
                Ok(self.rig.cut_in_start(now, events))
            }
            Ok(tree) => {
                (self.tree, self.made) = (Some(tree), true);
                Ok(self.rig.started(now, || "power comes; the tree is there".into()))
            }
            Err(words) if may_fail(&self.host.setup) && self.is_struck() => {
                self.below = None;
                Ok(self.rig.refused(now, words))
            }
            Err(words) => Err(wrong(None, format!("recovery failed: {words}"))),
        }
    }

    fn power_down(&mut self) {
        self.rig.flash.power().off();
        self.note(None, || "power goes".into());
        self.tree = None;
        let did = match self.below.take() {
            Some(Below::Blocks(stack)) => {
                let stack = stack.borrow();
                self.rig.counts.merged += stack.merged();
                let counters = stack.counters();
                Some((counters.collections, counters.erases, stack.delays()))
            }
            Some(Below::Batch(target)) => {
                let (target, counters) = (target.borrow(), target.borrow().counters());
                Some((counters.collections, counters.erases, target.below().delays()))
            }
            None => None,
        };
        if let Some((collected, erased, delays)) = did {
            self.rig.count_cut(&self.host.setup, collected, erased, delays);
        }
        for open in std::mem::take(&mut self.open).into_values() {
            if let Open::Write(writes) = open {
                self.cut.push(writes);
            }
        }
        self.heard = Heard::default();
    }

    fn replace(&mut self) {
        self.power_down();
        let seed = self.rig.renew(&self.host.setup);
        self.battery = machine::battery(&self.host.setup, &self.rig.flash, seed);
        self.model.replace();
        self.cut.clear();
        (self.used, self.made) = (false, false);
    }

    fn is_hopeless(&self) -> bool {
        self.rig.is_hopeless()
    }

    fn ask(&mut self, rng: &mut Rng) -> Result<(), Violation> {
        if rng.below(1000) < self.host.flushes {
            return self.flush();
        }
        match rng.below(20) {
            0..8 => self.write_some(1, 4, rng),
            8..11 => self.write_some(1, 1, rng),
            11..14 => {
                let most = 2 + rng.below(5);
                self.write_some(most, 3, rng)
            }
            14..18 => self.get(self.key(rng)),
            _ => {
                let (key, count) = (self.key(rng), rng.below(60));
                self.scan(key, count)
            }
        }
    }

    fn pause(&mut self, rng: &mut Rng) -> Result<(), Violation> {
        if self.host.pause == 0 || !rng.one_in(16) {
            return Ok(());
        }
        let until = Time(self.clock.get().0 + rng.below(self.host.pause));
        while self.tree.as_ref().and_then(Tree::next_event).is_some_and(|at| at <= until) {
            if !self.step()? {
                return Ok(());
            }
        }
        if let Some(tree) = &mut self.tree {
            tree.poll(until, &mut self.heard);
        }
        self.heard()
    }

    fn step(&mut self) -> Result<bool, Violation> {
        let Some(tree) = &mut self.tree else { return Ok(false) };
        let Some(at) = tree.next_event().filter(|_| !self.rig.flash.power().is_gone()) else {
            let stuck = !self.rig.is_off() && self.under_way() > 0;
            let hangs = self.rig.flash.power().is_wasted() || stuck;
            return if hangs { Err(self.hangs()) } else { Ok(false) };
        };
        let before = self.clock.get();
        tree.poll(at, &mut self.heard);
        self.heard()?;
        self.looks = if self.clock.get() > before { 0 } else { self.looks + 1 };
        if self.looks > PATIENCE { Err(self.hangs()) } else { Ok(!self.rig.is_off()) }
    }

    fn check(&mut self, at_rest: bool) -> Result<(), Violation> {
        self.check_keys(at_rest)
    }
}

impl World {
    /// A put or delete of one key, or a batch of some: one in `deletes` deletes.
    fn write_some(&mut self, keys: u64, deletes: u64, rng: &mut Rng) -> Result<(), Violation> {
        let count = 1 + rng.below(keys);
        let one = |_| (self.key(rng), deletes > 1 && !rng.one_in(deletes));
        let writes: Vec<(u64, bool)> = (0..count).map(one).collect();
        self.write(&writes)
    }

    fn key(&self, rng: &mut Rng) -> u64 {
        let keys = self.host.keys;
        let of = if rng.one_in(2) { keys.div_ceil(8) } else { keys };
        rng.below(of)
    }
}
