//! How a tree lives: puts, deletes, batches, gets, scans and flushes, and cuts.

use btree::Tree;
use port::Time;
use workload::Rng;

use super::may_fail;
use super::world::{Heard, Open, PATIENCE, World};
use crate::life::Living;
use crate::machine::{Violation, wrong};
use crate::rig::Rig;
use crate::setup::Setup;
use crate::trouble::Struck;

impl Living for World {
    const EVENTS: &'static [u64] = &[4, 24, 120, 600];
    const CYCLE: u64 = 120;
    const QUIET: u32 = 400;

    fn rig(&mut self) -> &mut Rig {
        &mut self.site.rig
    }

    fn setup(&self) -> &Setup {
        &self.site.host.setup
    }

    fn under_way(&self) -> usize {
        self.open.len()
    }

    fn depth(&self) -> usize {
        self.site.host.depth
    }

    fn cycle(&self, _: &mut Rng) -> u64 {
        self.site.host.cycle
    }

    fn collections(&self) -> u64 {
        self.site.collections()
    }

    fn power_up(&mut self, events: u64) -> Result<bool, Violation> {
        assert!(self.tree.is_none(), "power comes after it went");
        if events == u64::MAX {
            self.site.rig.flash.heal_disk();
        }
        self.before = self.site.rig.flash.struck();
        let (seed, troubles) = self.site.rig.power_up(&self.site.host.setup, events);
        self.looks = 0;
        let started = self.start_tree(&troubles, seed);
        self.site.rig.flash.take_strikes();
        let now = self.site.clock.get();
        match started {
            _ if self.site.rig.flash.power().is_wasted() => Err(wrong(None, "the start hangs")),
            _ if self.site.rig.is_off() => {
                self.site.forget();
                Ok(self.site.rig.cut_in_start(now, events))
            }
            Ok(tree) => {
                self.tree = Some(tree);
                self.site.made();
                Ok(self.site.rig.started(now, || "power comes; the tree is there".into()))
            }
            Err(words)
                if may_fail(&self.site.host.setup) && self.site.may_refuse(self.before)? =>
            {
                self.site.forget();
                Ok(self.site.rig.refused(now, words))
            }
            Err(words) => Err(wrong(None, format!("recovery failed: {words}"))),
        }
    }

    fn power_down(&mut self) {
        self.tree = None;
        self.site.power_down();
        for open in std::mem::take(&mut self.open).into_values() {
            if let Open::Write(writes) = open {
                self.cut.push(writes);
            }
        }
        self.heard = Heard::default();
    }

    fn replace(&mut self) {
        self.power_down();
        self.site.replace();
        self.model.replace();
        self.cut.clear();
        (self.before, self.whole) = (Struck::default(), 0);
    }

    fn is_hopeless(&self) -> bool {
        self.site.rig.is_hopeless()
    }

    fn ask(&mut self, rng: &mut Rng) -> Result<(), Violation> {
        if rng.below(1000) < self.site.host.flushes {
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
        if self.site.host.pause == 0 || !rng.one_in(16) {
            return Ok(());
        }
        let until = Time(self.site.clock.get().0 + rng.below(self.site.host.pause));
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
        let Some(at) = tree.next_event().filter(|_| !self.site.rig.flash.power().is_gone()) else {
            let stuck = !self.site.rig.is_off() && self.under_way() > 0;
            let hangs = self.site.rig.flash.power().is_wasted() || stuck;
            return if hangs { Err(self.hangs()) } else { Ok(false) };
        };
        let before = self.site.clock.get();
        tree.poll(at, &mut self.heard);
        self.heard()?;
        self.looks = if self.site.clock.get() > before { 0 } else { self.looks + 1 };
        if self.looks > PATIENCE { Err(self.hangs()) } else { Ok(!self.site.rig.is_off()) }
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
        let keys = self.site.host.keys;
        let of = if rng.one_in(2) { keys.div_ceil(8) } else { keys };
        rng.below(of)
    }
}
