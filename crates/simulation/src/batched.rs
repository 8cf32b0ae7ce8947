//! Lives of the batched target: batches, reads and flushes on a small drive,
//! cut at any event and recovered.

use flash::{Dimensions, Geometry};
use targets::BatchConfig;
use targets::batch::mutation::Mutation;
use workload::Rng;

use crate::breaks::Break;
use crate::life::{Counts, Outcome, Plan};
use crate::machine::Violation;
use crate::nature::Kind;
use crate::setup::Setup;
use world::World;

mod model;
mod world;

/// Stream of the random numbers of these drives.
const STREAM: u64 = 15;

/// Batches, reads and flushes of a cycle before power may go.
const CYCLE_REQUESTS: u64 = 120;

/// How often a drive is started that refuses to: then it never will.
const STARTS: u32 = 16;

/// Cycles that a drive lives on that takes no writes.
const READ_ONLY_CYCLES: u32 = 2;

/// Requests after which power goes though the drive did nothing for them.
const QUIET_REQUESTS: u32 = 500;

/// What these lives do not find: a chunk that is needed again between its erase
/// and the next row of the log, and a page of MAP that is made anew in the start
/// behind one that dropped batches. The target's own tests do.
const NOT_YET: [Mutation; 2] = [Mutation::EraseEarly, Mutation::BelieveTags];

/// A break of the contract with this target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchBreak {
    /// A batch is answered when it is sent.
    AckEarly,
    /// One batch in 32 is sent without its last page.
    Tear,
    /// One batch in 32 is answered and dropped.
    Drop,
    /// The target itself breaks a promise.
    Inside(Mutation),
}

impl BatchBreak {
    /// All of them that these lives find.
    pub fn all() -> impl Iterator<Item = BatchBreak> {
        let inside = Mutation::ALL.into_iter().filter(|one| !NOT_YET.contains(one));
        let outside = [BatchBreak::AckEarly, BatchBreak::Tear, BatchBreak::Drop];
        outside.into_iter().chain(inside.map(BatchBreak::Inside))
    }
}

/// A drive for the batched target.
pub struct Drive {
    /// Its flash and its faults.
    pub setup: Setup,
    /// The target's configuration.
    pub config: BatchConfig,
    /// Requests at once.
    pub depth: u64,
    /// Most pages of most batches.
    pub pages: u64,
}

impl Drive {
    /// That of a plan.
    pub fn of(plan: &Plan) -> Drive {
        let mut setup = plan.setup();
        let mut rng = Rng::new(plan.seed, STREAM);
        let rng = &mut rng;
        // What wears out or damages, and what can never be read, is not here yet.
        (setup.troubles.wear, setup.timing.endurance) = (None, u32::MAX);
        setup.troubles.damage.clear();
        setup.troubles.operations.retain(|rule| rule.trigger.span.is_none());
        setup.troubles.fatal = false;
        (setup.protected, setup.parity) = (false, 0);
        let dimensions = Dimensions {
            groups: 1 + rng.below(2) as u32,
            pus: 1 + rng.below(2) as u32,
            chunks: 24 + rng.below(8) as u32,
            pages: 4 + rng.below(10) as u32,
            planes: 1 + rng.below(2) as u32,
            page_bytes: if rng.below(2) == 0 { 4096 } else { 8192 },
        };
        // So many more chunks and rows, so that there is room for anything.
        let of = |more: u32| {
            let Dimensions { chunks, pages, .. } = dimensions;
            let (chunks, pages) = (chunks + 4 * more, pages + more / 4);
            let larger = Geometry::new(Dimensions { chunks, pages, ..dimensions });
            larger.expect("the ranges are those of a geometry")
        };
        let (batches, log_rows) = (1 + rng.below(6) as usize, 4 + rng.below(12));
        let max_pages = if rng.below(3) == 0 { 40 } else { 12 };
        let links = 1 + rng.below(3) as u32;
        let config = |geometry: &Geometry| BatchConfig {
            max_pages,
            batches,
            depth: 32,
            log_rows,
            checkpoint_every: 0,
            forward_links: links,
            ..BatchConfig::for_geometry(geometry, 0.1)
        };
        let mut more = 0;
        while config(&of(more)).capacity(&of(more)) < 64 {
            more += 1;
        }
        setup.geometry = of(more);
        let mut config = config(&setup.geometry);
        let fill = 50 + rng.below(51);
        config.pages = (config.capacity(&setup.geometry) * fill / 100).max(1);
        let depth = [1, 4, 16, 31][rng.below(4) as usize];
        Drive { setup, config, depth, pages: [1, 4, 12][rng.below(3) as usize] }
    }

    /// In a line, for a report.
    pub fn in_words(&self) -> String {
        let dim = self.setup.geometry.dimensions();
        format!("batched: {dim:?}, {:?}, {}", self.config, self.setup.troubles.in_words())
    }
}

/// Lives the life of a plan.
pub fn live(plan: &Plan) -> Outcome {
    let broken = match plan.broken {
        Some(Break::Batch(broken)) => Some(broken),
        _ => None,
    };
    targets::batch::mutation::set(match broken {
        Some(BatchBreak::Inside(mutation)) => Some(mutation),
        _ => None,
    });
    let world = World::new(Drive::of(plan), broken, plan.traced);
    let mut life = Life { world, rng: Rng::new(plan.seed, 2), read_only: 0 };
    let violation = life.all(plan.cycles).err();
    targets::batch::mutation::set(None);
    let setup = life.world.drive.setup.clone();
    let (hash, mut counts, trace) = life.world.end();
    counts.add_kinds(&setup);
    counts.lives = 1;
    counts.batched = Kind::of(true, counts.cycles);
    Outcome { counts, hash, violation, trace }
}

struct Life {
    world: World,
    rng: Rng,
    /// Cycles at whose end the drive took no writes, one after the other.
    read_only: u32,
}

impl Life {
    fn chance(&mut self, one_in: u64) -> bool {
        self.rng.below(one_in) == 0
    }

    fn counts(&mut self) -> &mut Counts {
        &mut self.world.counts
    }

    fn events(&mut self) -> u64 {
        let most = [4, 24, 120, 600][self.rng.below(4) as usize];
        self.rng.below(most)
    }

    fn all(&mut self, cycles: u64) -> Result<(), Violation> {
        self.start()?;
        for _ in 0..cycles {
            let before = self.world.collections();
            self.work(CYCLE_REQUESTS)?;
            let collected = self.world.collections() > before;
            self.read_only = if self.world.is_told_of_end() { self.read_only + 1 } else { 0 };
            self.world.power_down();
            self.counts().cycles_collecting += u64::from(collected);
            self.recover()?;
            self.counts().cycles += 1;
            while self.chance(12) {
                let requests = self.rng.below(24);
                self.work(requests)?;
                self.world.power_down();
                self.recover()?;
            }
        }
        // The quiet end.
        self.world.flash.fail_sync(None);
        for _ in 0..CYCLE_REQUESTS / 2 {
            self.one_more()?;
        }
        self.world.drain()?;
        self.world.check(true)
    }

    /// Power comes, perhaps goes in recovery, and all is checked.
    fn recover(&mut self) -> Result<(), Violation> {
        while self.chance(3) {
            let events = self.events();
            if self.world.power_up(events)? {
                self.world.power_down();
            }
        }
        self.start()?;
        self.world.check(false)?;
        if self.read_only > READ_ONLY_CYCLES {
            self.read_only = 0;
            self.world.replace();
            self.counts().replaced += 1;
            self.start()?;
        }
        Ok(())
    }

    fn start(&mut self) -> Result<(), Violation> {
        for _ in 0..STARTS {
            if self.world.power_up(u64::MAX)? {
                return Ok(());
            }
            if self.world.is_hopeless() {
                self.world.replace();
                self.counts().replaced += 1;
            }
        }
        Err(Violation { block: None, words: format!("{STARTS} starts were refused") })
    }

    /// Work until power goes: at some event after `requests`.
    fn work(&mut self, requests: u64) -> Result<(), Violation> {
        if self.world.drive.setup.troubles.on_disk && self.chance(12) {
            let syncs = self.rng.below(60);
            self.world.flash.fail_sync(Some(syncs));
        }
        for _ in 0..requests {
            if self.world.is_off() {
                return Ok(());
            }
            self.one_more()?;
        }
        if self.chance(8) && !self.world.drain()? {
            return Ok(());
        }
        let events = self.events();
        self.world.flash.power().lasts(events);
        for _ in 0..QUIET_REQUESTS {
            if self.world.is_off() {
                break;
            }
            self.one_more()?;
        }
        Ok(())
    }

    /// One more request, and perhaps some events.
    fn one_more(&mut self) -> Result<(), Violation> {
        while self.world.under_way() >= self.world.drive.depth {
            if !self.world.step()? {
                return Ok(());
            }
        }
        let pages = self.world.drive.config.pages;
        match self.rng.below(100) {
            0..50 => {
                let (most, usual) =
                    (u64::from(self.world.drive.config.max_pages), self.world.drive.pages);
                let most = if self.chance(8) { most } else { usual };
                let count = 1 + self.rng.below(most);
                let lpids: Vec<u64> = (0..count).map(|_| self.page(pages)).collect();
                let given_up = if self.chance(4) { 1 + self.rng.below(3) } else { 0 };
                let given_up = given_up.min(u64::from(self.world.drive.config.max_pages) - count);
                let others: Vec<u64> = (0..given_up).map(|_| self.page(pages)).collect();
                self.world.write(&lpids, &others)?;
            }
            50..94 => {
                let lpid = self.page(pages);
                self.world.read(lpid)?;
            }
            _ => self.world.flush()?,
        }
        for _ in 0..self.rng.below(4) {
            if self.world.is_off() || self.world.under_way() == 0 {
                break;
            }
            self.world.step()?;
        }
        Ok(())
    }

    fn page(&mut self, pages: u64) -> u64 {
        let of = if self.chance(2) { pages.div_ceil(8) } else { pages };
        self.rng.below(of)
    }
}
