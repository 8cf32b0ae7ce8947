//! A life: random work on a random drive, cut again and again.

use workload::Rng;

use crate::breaks::Break;
use crate::counts::Counts;
use crate::machine::{Machine, Violation, wrong};
use crate::nature::Kind;
use crate::ondisk::DiskTrouble;
use crate::plan::{Over, Plan};
use crate::rig::Rig;
use crate::setup::Setup;
use crate::{batched, keyed, served, shared, tree};

/// Cycles that a drive lives on that takes no writes.
const READ_ONLY_CYCLES: u32 = 2;

/// Stream of the random numbers that say which cuts in recovery may come late.
const LATE: u64 = 600;

/// Stream of the random numbers of what disks fail.
const DISK: u64 = 605;

/// Events of a recovery, at one of which such a cut comes: some of them are behind its
/// first programs.
const LATE_EVENTS: u64 = 600;

/// How a life ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was done.
    pub counts: Counts,
    /// A hash of all that was seen and of the last state.
    pub hash: u64,
    /// What was found.
    pub violation: Option<Violation>,
    /// The traced block's history.
    pub trace: Vec<String>,
}

/// Lives the life of a plan.
pub fn live(plan: &Plan) -> Outcome {
    match plan.stack() {
        Over::Blocks | Over::Layers => live_with_blocks(plan, plan.setup()),
        Over::Batches => batched::live(plan),
        Over::Keys => keyed::live(plan),
        Over::Trees => tree::live(plan),
        Over::Served => served::live(plan),
        Over::Shared => shared::live(plan),
    }
}

/// Lives a life of a block target with this set-up.
pub(crate) fn live_with_blocks(plan: &Plan, setup: Setup) -> Outcome {
    live_with(plan, Machine::new(setup, plan.broken, plan.traced))
}

/// A drive with a host that remembers: what a life is lived with.
pub(crate) trait Living {
    /// Power goes at an event below one of these.
    const EVENTS: &'static [u64];
    /// Requests of a cycle before power may go.
    const CYCLE: u64;
    /// Requests after which power goes though the drive did nothing for them: one
    /// that is read-only from the beginning answers all at once.
    const QUIET: u32;
    /// How often a drive is started that refuses to: then it never will.
    const STARTS: u32 = 16;

    /// Its flash, and what is known of all lives.
    fn rig(&mut self) -> &mut Rig;

    /// Its drive.
    fn setup(&self) -> &Setup;

    /// Requests under way, and how many may be.
    fn under_way(&self) -> usize;
    /// See above.
    fn depth(&self) -> usize;

    /// Requests of the next cycle before power may go.
    fn cycle(&self, _rng: &mut Rng) -> u64 {
        Self::CYCLE
    }

    /// Chunks collected since power came.
    fn collections(&self) -> u64;

    /// Power comes, and goes instead of the event after `events`. False when it
    /// went before the drive was ready, or the drive had reason to refuse.
    fn power_up(&mut self, events: u64) -> Result<bool, Violation>;

    /// Power is gone, or goes now.
    fn power_down(&mut self);

    /// A new drive takes the place of one that is of no more use.
    fn replace(&mut self);

    /// Whether so many starts were refused that nothing can be expected.
    fn is_hopeless(&self) -> bool;

    /// The first start of a drive, and a later one after a cut. What never will
    /// start is replaced. False when the life is over, or there is nothing to
    /// check.
    fn start(&mut self) -> Result<bool, Violation> {
        for _ in 0..Self::STARTS {
            if self.power_up(u64::MAX)? {
                return Ok(true);
            }
            if self.is_hopeless() {
                self.replace();
            }
        }
        Err(refuses(Self::STARTS))
    }

    /// See above.
    fn restart(&mut self) -> Result<bool, Violation> {
        self.start()
    }

    /// Sends one more request. There is room for it.
    fn ask(&mut self, rng: &mut Rng) -> Result<(), Violation>;

    /// Most events between two requests.
    fn events_between(&self) -> u64 {
        3
    }

    /// Lets some time pass now and then.
    fn pause(&mut self, _rng: &mut Rng) -> Result<(), Violation> {
        Ok(())
    }

    /// Lets the next thing happen. False when nothing will, or power is gone.
    fn step(&mut self) -> Result<bool, Violation>;

    /// Until all that was sent has ended. False when power went.
    fn drain(&mut self) -> Result<bool, Violation> {
        while self.under_way() > 0 {
            if !self.step()? {
                return Ok(false);
            }
        }
        Ok(!self.rig().is_off())
    }

    /// The host stops, sometimes. True when its work is at an end.
    fn stop(&mut self, rng: &mut Rng) -> Result<bool, Violation> {
        Ok(rng.one_in(8) && !self.drain()?)
    }

    /// Reads all: after a cut, or at rest, when nothing may be missing.
    fn check(&mut self, at_rest: bool) -> Result<(), Violation>;

    /// A hash of its last state.
    fn end(&mut self) -> u64 {
        self.power_down();
        0
    }
}

/// A drive that does not start, for no reason.
pub(crate) fn refuses(starts: u32) -> Violation {
    wrong(None, format!("{starts} starts were refused"))
}

/// Lives the life of a plan with its drive and host.
pub(crate) fn live_with<L: Living>(plan: &Plan, living: L) -> Outcome {
    let _planted = Break::plant(plan.broken);
    let (rng, late) = (Rng::new(plan.seed, 2), Rng::new(plan.seed, LATE));
    let disk = Rng::new(plan.seed, DISK);
    let mut life = Life { living, rng, late, disk, read_only: 0 };
    let violation = life.all(plan.cycles).err();
    let mut living = life.living;
    let state = living.end();
    let setup = living.setup().clone();
    let rig = living.rig();
    let flash = rig.flash.clone();
    let counts = &mut rig.counts;
    counts.add_flash(&flash);
    (counts.lives, counts.over) = (1, u64::from(rig.over));
    counts.add_kinds(&setup);
    counts.batched = Kind::of(plan.stack() == Over::Batches, counts.cycles);
    counts.keyed = Kind::of(plan.stack() == Over::Keys, counts.cycles);
    counts.trees = Kind::of(plan.stack() == Over::Trees, counts.cycles);
    counts.served = Kind::of(plan.stack() == Over::Served, counts.cycles);
    counts.shared = Kind::of(plan.stack() == Over::Shared, counts.cycles);
    let hash = rig.hash ^ state.rotate_left(17);
    Outcome { counts: rig.counts, hash, violation, trace: rig.trace().to_vec() }
}

struct Life<L> {
    living: L,
    rng: Rng,
    late: Rng,
    disk: Rng,
    /// Cycles at whose end the drive took no writes, one after the other.
    read_only: u32,
}

impl<L: Living> Life<L> {
    fn all(&mut self, cycles: u64) -> Result<(), Violation> {
        self.living.start()?;
        for _ in 0..cycles {
            if self.living.rig().over {
                return Ok(());
            }
            let requests = self.living.cycle(&mut self.rng);
            self.work(requests)?;
            let collected = self.living.collections() > 0;
            let told = self.living.rig().told_of_end;
            self.read_only = if told { self.read_only + 1 } else { 0 };
            self.living.power_down();
            self.living.rig().counts.cycles_collecting += u64::from(collected);
            self.recover()?;
            self.living.rig().counts.cycles += 1;
            // Now and then power goes again before much was done.
            while !self.living.rig().over && self.rng.one_in(12) {
                let requests = self.rng.below(24);
                self.work(requests)?;
                self.living.power_down();
                self.recover()?;
            }
        }
        if self.living.rig().over { Ok(()) } else { self.rest() }
    }

    /// The quiet end of a life.
    fn rest(&mut self) -> Result<(), Violation> {
        self.living.rig().flash.heal_disk();
        for _ in 0..L::CYCLE / 2 {
            self.one_more()?;
        }
        self.living.drain()?;
        self.living.check(true)
    }

    /// A number of events: often few, sometimes many.
    fn events(&mut self) -> u64 {
        let most = self.rng.one_of(L::EVENTS);
        self.rng.below(most)
    }

    /// Power comes, perhaps goes in recovery, and all is checked. A drive that
    /// stays read-only is replaced after a while.
    fn recover(&mut self) -> Result<(), Violation> {
        while self.rng.one_in(3) {
            let soon = self.events();
            let events = if self.late.one_in(3) { self.late.below(LATE_EVENTS) } else { soon };
            if self.living.power_up(events)? {
                // It was quick enough; then power goes now.
                self.living.power_down();
            }
        }
        if !self.living.restart()? {
            self.read_only = 0;
            return Ok(());
        }
        self.living.check(false)?;
        if self.read_only > READ_ONLY_CYCLES {
            self.read_only = 0;
            self.living.replace();
            self.living.start()?;
        }
        Ok(())
    }

    /// Work until power goes: at some event after `requests`.
    fn work(&mut self, requests: u64) -> Result<(), Violation> {
        if self.living.setup().troubles.on_disk && self.rng.one_in(12) {
            let syncs = self.rng.below(60);
            self.living.rig().flash.fail_disk(DiskTrouble::Sync(syncs));
        }
        if self.living.setup().troubles.disk && self.disk.one_in(6) {
            let trouble = DiskTrouble::any(&mut self.disk);
            self.living.rig().flash.fail_disk(trouble);
        }
        for _ in 0..requests {
            if self.living.rig().is_off() {
                // The disk failed, and the host stopped.
                return Ok(());
            }
            self.one_more()?;
        }
        if self.living.stop(&mut self.rng)? {
            return Ok(());
        }
        let events = self.events();
        self.living.rig().flash.power().lasts(events);
        for _ in 0..L::QUIET {
            if self.living.rig().is_off() {
                break;
            }
            self.one_more()?;
        }
        Ok(())
    }

    /// One more request, when fewer than the work's depth are under way, and
    /// perhaps some events and time.
    fn one_more(&mut self) -> Result<(), Violation> {
        while self.living.under_way() >= self.living.depth() {
            if !self.living.step()? {
                return Ok(());
            }
        }
        self.living.ask(&mut self.rng)?;
        for _ in 0..self.rng.below(self.living.events_between() + 1) {
            if self.living.rig().is_off() || self.living.under_way() == 0 {
                break;
            }
            self.living.step()?;
        }
        self.living.pause(&mut self.rng)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(seed: u64) -> Plan {
        Plan { seed, cycles: 8, broken: None, traced: None, over: None }
    }

    #[test]
    fn lives_keep_the_contract_and_meet_what_they_should() {
        let mut counts = Counts::default();
        for seed in 0..120 {
            let outcome = live(&plan(seed));
            assert_eq!(outcome.violation, None, "seed {seed}: {}", plan(seed).in_words());
            counts += outcome.counts;
        }
        assert_eq!((counts.lives, counts.cycles), (120, 960));
        assert!(counts.requests >= 960 * Machine::CYCLE && counts.cuts > counts.cycles);
        assert!(counts.cycles_collecting * 2 > counts.cycles, "{counts:?}");
        assert!(counts.clean_closes > 30, "{counts:?}");
        assert!(counts.layered.lives > 5 && counts.merged > 5, "{counts:?}");
        assert!(counts.coarse.lives > 2, "{counts:?}");
        assert!(counts.read_cached.lives > 3 && counts.cache_hits > 50, "{counts:?}");
        assert!(counts.parity.lives > 3 && counts.struck.members > 10, "{counts:?}");
        assert!(counts.disk.disk_stops > 1, "{counts:?}");
        assert!(counts.trees.lives > 5 && counts.keyed.lives > 5, "{counts:?}");
        assert!(counts.served.lives > 5 && counts.failed_stores > 2, "{counts:?}");
        assert!(counts.shared.lives > 3 && counts.tenants_left > 3, "{counts:?}");
        assert!(counts.cut_recoveries > 100 && counts.trims > 1000 && counts.fua > 1000);
        assert!(counts.cut_writing_recoveries > 10, "{counts:?}");
    }

    #[test]
    fn a_seed_is_one_life() {
        let (a, b) = (live(&plan(3)), live(&plan(3)));
        assert_eq!((a.hash, a.counts), (b.hash, b.counts));
        assert_ne!(a.hash, live(&plan(4)).hash);
    }
}
