//! A life: random work on a random drive, cut again and again.

use std::ops::Range;

use port::{BLOCK_BYTES, BlockOp, SECTOR_BYTES};
use serde::Serialize;
use thiserror::Error;
use workload::Rng;

use crate::batched;
use crate::breaks::Break;
use crate::machine::{Ask, MOST_AT_ONCE, Machine, Violation};
use crate::nature::Kind;
use crate::power::Flash;
use crate::setup::Setup;
use crate::species::{Species, Subject};
use crate::tree;
use crate::trouble::Struck;

/// Requests of a cycle before power may go.
pub const CYCLE_REQUESTS: u64 = 200;

/// How often a drive is started that refuses to: then it never will.
const STARTS: u32 = 64;

/// Requests after which power goes though the drive did nothing for them: one
/// that was read-only from the beginning answers all at once.
const QUIET_REQUESTS: u32 = 1000;

/// Cycles that a read-only drive lives on.
const READ_ONLY_CYCLES: u32 = 2;

/// Sectors of a block.
const SECTORS: u64 = BLOCK_BYTES / SECTOR_BYTES;

/// What is simulated.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The seed: the drive, the work, and the cuts.
    pub seed: u64,
    /// Cycles of work, cut, recovery and check.
    pub cycles: u64,
    /// What is broken, to see whether it is found.
    pub broken: Option<Break>,
    /// A block whose history is kept.
    pub traced: Option<u64>,
    /// What it is about, whatever the seed says.
    pub over: Option<Over>,
}

impl Plan {
    /// What it is about: what can show what is broken, or what the seed says.
    pub fn stack(&self) -> Over {
        let chosen = |one_in: u64| Rng::new(self.seed, STREAM).below(one_in) == 0;
        let trees = Rng::new(self.seed, STREAM + 1).below(tree::ONE_IN) == 0;
        match (self.broken, self.over) {
            (Some(Break::Batch(_)), _) => Over::Batches,
            (Some(Break::Layer(_)), _) => Over::Layers,
            (Some(Break::Tree(_)), _) => Over::Trees,
            (Some(_), _) => Over::Blocks,
            (None, Some(over)) => over,
            (None, None) if BATCHED_ONE_IN.is_some_and(chosen) => Over::Batches,
            (None, None) if trees => Over::Trees,
            (None, None) => Over::Blocks,
        }
    }

    /// In a line, for a report.
    pub fn in_words(&self) -> String {
        match self.stack() {
            Over::Blocks | Over::Layers => self.setup().in_words(),
            Over::Batches => batched::Drive::of(self).in_words(),
            Over::Trees => tree::Host::of(self).in_words(),
        }
    }

    /// Its drive and work.
    pub fn setup(&self) -> Setup {
        // What is broken is found where nothing else goes wrong, and also where
        // other things do.
        let sound = self.broken.is_some() && self.seed.is_multiple_of(2);
        let mut setup = if sound { Setup::sound(self.seed) } else { Setup::of(self.seed) };
        if self.stack() == Over::Layers {
            setup.take_layers(self.seed);
        }
        setup
    }
}

/// What a life is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The block target, in some lives below the block layer.
    Blocks,
    /// The block target below the block layer.
    Layers,
    /// The batched target.
    Batches,
    /// The key-value tree.
    Trees,
}

/// One life in so many is of the batched target.
pub const BATCHED_ONE_IN: Option<u64> = Some(8);

/// Stream of the random number that says what a life is about.
const STREAM: u64 = 17;

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Drives.
    pub lives: u64,
    /// Cycles of at least [`CYCLE_REQUESTS`] requests, a cut, recovery and a
    /// check.
    pub cycles: u64,
    /// Cycles that met collection.
    pub cycles_collecting: u64,
    /// Cuts at work: those of the cycles, and some soon after recovery.
    pub cuts: u64,
    /// Cuts in recovery.
    pub cut_recoveries: u64,
    /// Cuts at work of drives with a cache.
    pub cached_cuts: u64,
    /// Drives that were shut down in good order, and not cut.
    pub clean_closes: u64,
    /// Recoveries that were refused, since something needed could not be read
    /// or written.
    pub refusals: u64,
    /// Drives that were replaced: read-only for long, or never to start again.
    pub replaced: u64,
    /// Lives that ended early, as no drive was to be had: all had too many bad
    /// chunks.
    pub over: u64,
    /// Drives that were read-only when power went.
    pub ends_of_life: u64,
    /// Lives with flash that errs and wears out.
    pub wearing: Kind,
    /// Lives with an SLC cache.
    pub slc: Kind,
    /// Lives with a protected cache.
    pub protected: Kind,
    /// Starts that found the drive unable to take what the protected cache had.
    pub frozen: u64,
    /// Blocks that these did not give in a check.
    pub withheld: u64,
    /// Lives with media that damage what they store.
    pub damaged: Kind,
    /// Lives of the batched target, and the batches that were sent there.
    pub batched: Kind,
    /// See above.
    pub batches: u64,
    /// Lives below the block layer, and requests that it merged with another.
    pub layered: Kind,
    /// See above.
    pub merged: u64,
    /// Lives of the tree.
    pub trees: Kind,
    /// Lives in a drive file.
    pub on_disk: Kind,
    /// How often the host of a drive file was killed, crashed, and was told
    /// that its disk lost something.
    pub disk_kills: u64,
    /// See above.
    pub disk_crashes: u64,
    /// See above.
    pub disk_errors: u64,
    /// Chunks that were bad when their drive or its life ended, and those of
    /// them that were so from the factory.
    pub bad_chunks: u64,
    /// See above.
    pub factory_bad: u64,
    /// Requests that failed where a fault allows it.
    pub errors: u64,
    /// Blocks that could not be read in a check where a fault allows it.
    pub lost: u64,
    /// Faults.
    #[serde(flatten)]
    pub struck: Struck,
    /// Requests sent.
    pub requests: u64,
    /// Reads among them.
    pub reads: u64,
    /// Flushes among them.
    pub flushes: u64,
    /// Trims and write zeroes among them.
    pub trims: u64,
    /// Requests with FUA among them.
    pub fua: u64,
    /// Chunks collected.
    pub collections: u64,
    /// Chunks erased.
    pub erases: u64,
}

impl Counts {
    /// One more request.
    pub(crate) fn note(&mut self, op: BlockOp, fua: bool) {
        self.requests += 1;
        self.fua += u64::from(fua);
        match op {
            BlockOp::Read => self.reads += 1,
            BlockOp::Flush => self.flushes += 1,
            BlockOp::Trim | BlockOp::WriteZeroes => self.trims += 1,
            BlockOp::Write => {}
        }
    }

    /// Adds what was done to a drive's flash, and to the disk that it is on.
    pub(crate) fn add_flash(&mut self, flash: &Flash) {
        let [kills, crashes, lost] = flash.disk_counts();
        self.disk_kills += kills;
        self.disk_crashes += crashes;
        self.disk_errors += lost;
        self.struck.add(&flash.struck());
        let (bad, factory_bad) = flash.bad_chunks();
        self.bad_chunks += bad;
        self.factory_bad += factory_bad;
    }

    /// Adds another's.
    pub fn add(&mut self, other: &Counts) {
        self.lives += other.lives;
        self.cycles += other.cycles;
        self.cycles_collecting += other.cycles_collecting;
        self.cuts += other.cuts;
        self.cut_recoveries += other.cut_recoveries;
        self.cached_cuts += other.cached_cuts;
        self.clean_closes += other.clean_closes;
        self.refusals += other.refusals;
        self.replaced += other.replaced;
        self.over += other.over;
        self.ends_of_life += other.ends_of_life;
        self.wearing.add(&other.wearing);
        self.slc.add(&other.slc);
        self.protected.add(&other.protected);
        self.damaged.add(&other.damaged);
        self.batched.add(&other.batched);
        self.batches += other.batches;
        self.layered.add(&other.layered);
        self.merged += other.merged;
        self.trees.add(&other.trees);
        self.on_disk.add(&other.on_disk);
        self.disk_kills += other.disk_kills;
        self.disk_crashes += other.disk_crashes;
        self.disk_errors += other.disk_errors;
        self.frozen += other.frozen;
        self.withheld += other.withheld;
        self.bad_chunks += other.bad_chunks;
        self.factory_bad += other.factory_bad;
        self.errors += other.errors;
        self.lost += other.lost;
        self.struck.add(&other.struck);
        self.requests += other.requests;
        self.reads += other.reads;
        self.flushes += other.flushes;
        self.trims += other.trims;
        self.fua += other.fua;
        self.collections += other.collections;
        self.erases += other.erases;
    }
}

impl Counts {
    /// Which kinds of lives the one with this set-up is among.
    pub(crate) fn add_kinds(&mut self, setup: &Setup) {
        let of = |is_one: bool| Kind::of(is_one, self.cycles);
        self.wearing = of(setup.troubles.wear.is_some());
        self.slc = of(setup.timing.slc.is_on());
        self.protected = of(setup.protected);
        self.damaged = of(!setup.troubles.damage.is_empty());
        self.on_disk = of(setup.troubles.on_disk);
        self.layered = of(setup.layers.is_some());
    }
}

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
        Over::Trees => tree::live(plan),
    }
}

/// A life that broke the contract.
#[derive(Clone, Debug, Error)]
#[error("seed {seed}: {violation}; {setup}")]
pub struct Found {
    /// Its seed.
    pub seed: u64,
    /// What was found.
    pub violation: Violation,
    /// Its drive and work, in words.
    pub setup: String,
}

/// Lives of the block target `T`, one of each seed, until one breaks the contract.
/// Each has so many cycles of work, cut, recovery and check; `broken` is what is
/// broken on purpose, of what is outside any target. `suit` makes a drive and its
/// work such as the target takes. Gives what was done.
pub fn lives<T: Subject>(
    seeds: Range<u64>,
    cycles: u64,
    broken: Option<Break>,
    suit: impl Fn(&mut Setup),
) -> Result<Counts, Found> {
    let mut counts = Counts::default();
    for seed in seeds {
        let over = Some(Over::Blocks);
        let plan = Plan { seed, cycles, broken, traced: None, over };
        let mut setup = plan.setup();
        setup.species = Species::of::<T>();
        suit(&mut setup);
        let words = setup.in_words();
        let outcome = live_with_blocks(&plan, setup);
        if let Some(violation) = outcome.violation {
            return Err(Found { seed, violation, setup: words });
        }
        counts.add(&outcome.counts);
    }
    Ok(counts)
}

fn live_with_blocks(plan: &Plan, setup: Setup) -> Outcome {
    targets::pblk::mutation::set(match plan.broken {
        Some(Break::Inside(mutation)) => Some(mutation),
        _ => None,
    });
    let machine = Machine::new(setup, plan.broken, plan.traced);
    let mut life = Life { machine, rng: Rng::new(plan.seed, 2), read_only: 0, over: false };
    let violation = life.all(plan.cycles).err();
    let Life { mut machine, over, .. } = life;
    machine.count_flash();
    let (setup, mut counts) = (&machine.setup, machine.counts);
    (counts.lives, counts.over) = (1, u64::from(over));
    counts.add_kinds(setup);
    let hash = machine.hash() ^ machine.state_hash().rotate_left(17);
    Outcome { counts, hash, violation, trace: machine.trace().to_vec() }
}

struct Life {
    machine: Machine,
    rng: Rng,
    /// Cycles at whose end the drive was read-only, one after the other.
    read_only: u32,
    /// No drive was to be had: all were bad from the factory.
    over: bool,
}

impl Life {
    fn chance(&mut self, one_in: u64) -> bool {
        self.rng.below(one_in) == 0
    }

    /// A number of events: often few, sometimes many.
    fn events(&mut self) -> u64 {
        let most = [4, 24, 120][self.rng.below(3) as usize];
        self.rng.below(most)
    }

    fn all(&mut self, cycles: u64) -> Result<(), Violation> {
        self.first_start()?;
        for _ in 0..cycles {
            if self.over {
                return Ok(());
            }
            let requests = CYCLE_REQUESTS + self.rng.below(8);
            let before = self.machine.counts.collections;
            self.work(requests)?;
            self.look_for_end();
            self.machine.power_down();
            let collected = self.machine.counts.collections > before;
            self.machine.counts.cycles_collecting += u64::from(collected);
            self.recover()?;
            self.machine.counts.cycles += 1;
            // Now and then power goes again before much was done.
            while !self.over && self.chance(12) {
                let requests = self.rng.below(24);
                self.work(requests)?;
                self.machine.power_down();
                self.recover()?;
            }
        }
        if self.over { Ok(()) } else { self.rest() }
    }

    /// The quiet end of a life.
    fn rest(&mut self) -> Result<(), Violation> {
        self.machine.flash.fail_sync(None);
        for _ in 0..CYCLE_REQUESTS / 2 {
            self.one_more()?;
        }
        self.machine.drain()?;
        self.machine.check_now()
    }

    /// A drive that stays read-only is replaced after a while.
    fn look_for_end(&mut self) {
        self.read_only = if self.machine.is_told_of_end() { self.read_only + 1 } else { 0 };
    }

    /// Power comes, perhaps goes in recovery, and all is checked.
    fn recover(&mut self) -> Result<(), Violation> {
        while self.chance(3) {
            let events = self.events();
            if self.machine.power_up(events)? {
                // It was quick enough; then power goes now.
                self.machine.power_down();
            }
        }
        for _ in 0..STARTS {
            if self.machine.power_up(u64::MAX)? {
                self.machine.check_all()?;
                if self.read_only > READ_ONLY_CYCLES {
                    self.replace()?;
                }
                return Ok(());
            }
            if self.machine.setup.troubles.fatal || self.machine.is_hopeless() {
                return self.replace();
            }
        }
        Err(Violation { block: None, words: format!("{STARTS} starts were refused") })
    }

    /// A new drive, with power.
    fn replace(&mut self) -> Result<(), Violation> {
        self.machine.replace();
        self.machine.counts.replaced += 1;
        self.read_only = 0;
        self.first_start()
    }

    /// The first start of a drive. One with too many bad chunks is sent back; where
    /// all have, the life is over.
    fn first_start(&mut self) -> Result<(), Violation> {
        for _ in 0..STARTS {
            let started = self.machine.power_up(u64::MAX)?;
            // One that has reason to take no writes is not tried.
            if started && !self.machine.may_end() {
                return Ok(());
            }
            self.machine.replace();
            self.machine.counts.replaced += 1;
        }
        self.over = true;
        Ok(())
    }

    /// Work until power goes: at some event after `requests`.
    fn work(&mut self, requests: u64) -> Result<(), Violation> {
        if self.machine.setup.troubles.on_disk && self.chance(12) {
            let syncs = self.rng.below(60);
            self.machine.flash.fail_sync(Some(syncs));
        }
        for _ in 0..requests {
            if self.machine.is_off() {
                // The disk failed, and the host stopped.
                return Ok(());
            }
            self.one_more()?;
        }
        if self.chance(8) {
            // A host that stops, and sometimes flushes before.
            let rests = self.machine.drain()?;
            if self.chance(2) && rests {
                self.one(BlockOp::Flush)?;
                self.machine.drain()?;
            }
        }
        if self.chance(10) {
            return self.shut_down();
        }
        let events = self.events();
        self.machine.flash.power().lasts(events);
        for _ in 0..QUIET_REQUESTS {
            if self.machine.is_off() {
                break;
            }
            self.one_more()?;
        }
        Ok(())
    }

    /// An orderly end, in a quarter of the cases with power for some events
    /// only.
    fn shut_down(&mut self) -> Result<(), Violation> {
        if !self.machine.drain()? {
            return Ok(());
        }
        if self.chance(4) {
            let events = self.events();
            self.machine.flash.power().lasts(events);
        }
        self.machine.close()?;
        Ok(())
    }

    /// One more request, when fewer than the work's depth are under way, and
    /// perhaps some time.
    fn one_more(&mut self) -> Result<(), Violation> {
        let depth = self.machine.setup.work.depth.min(MOST_AT_ONCE);
        while self.machine.under_way() >= depth {
            if !self.machine.step()? {
                return Ok(());
            }
        }
        let op = self.op();
        self.one(op)?;
        let pause = self.machine.setup.work.pause;
        for _ in 0..self.rng.below(pause + 1) {
            if self.machine.is_off() || self.machine.under_way() == 0 {
                break;
            }
            self.machine.step()?;
        }
        if pause > 0 && self.chance(4) {
            let ns = self.rng.below(50_000);
            self.machine.pass(ns);
        }
        Ok(())
    }

    fn op(&mut self) -> BlockOp {
        let work = self.machine.setup.work;
        let mut at = self.rng.below(1000);
        for (share, op) in [
            (work.reads, BlockOp::Read),
            (work.flushes, BlockOp::Flush),
            (work.trims, BlockOp::Trim),
            (work.zeroes, BlockOp::WriteZeroes),
        ] {
            if at < share {
                return op;
            }
            at -= share;
        }
        BlockOp::Write
    }

    /// One request of a kind.
    fn one(&mut self, op: BlockOp) -> Result<(), Violation> {
        if op == BlockOp::Flush {
            return self.machine.send(Ask { op, fua: false, sector: 0, count: 0 });
        }
        let work = self.machine.setup.work;
        let blocks = self.machine.setup.blocks();
        let hot = self.rng.below(1000) < work.skew;
        let first = self.rng.below(if hot { blocks.div_ceil(10) } else { blocks });
        let count = (1 + self.rng.below(work.blocks)).min(blocks - first);
        let (mut sector, mut count) = (first * SECTORS, count * SECTORS);
        // Parts of trims that are made one may be a whole block together.
        let whole = op == BlockOp::Trim && self.machine.setup.merges();
        if self.machine.setup.parts && !whole && self.chance(2) {
            let skip = self.rng.below(SECTORS);
            sector += skip;
            count -= skip + self.rng.below(count - skip);
        }
        let fua = op != BlockOp::Read && self.rng.below(1000) < work.fua;
        self.machine.send(Ask { op, fua, sector, count })
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
            counts.add(&outcome.counts);
        }
        assert_eq!((counts.lives, counts.cycles), (120, 960));
        assert!(counts.requests >= 960 * CYCLE_REQUESTS && counts.cuts > counts.cycles);
        assert!(counts.cycles_collecting * 2 > counts.cycles, "{counts:?}");
        assert!(counts.clean_closes > 30, "{counts:?}");
        assert!(counts.layered.lives > 5 && counts.merged > 20, "{counts:?}");
        assert!(counts.trees.lives > 5, "{counts:?}");
        assert!(counts.cut_recoveries > 100 && counts.trims > 1000 && counts.fua > 1000);
    }

    #[test]
    fn a_seed_is_one_life() {
        let (a, b) = (live(&plan(3)), live(&plan(3)));
        assert_eq!((a.hash, a.counts), (b.hash, b.counts));
        assert_ne!(a.hash, live(&plan(4)).hash);
    }
}
