//! Lives of a block target of any crate: for its own tests.
//!
//! A life that breaks the contract is lived again with its block's history kept,
//! and [`BrokenLife`] is what a reader needs next: the drive, that history, and how to
//! live it alone. A panic is the test's, with the seed said beside it.

use std::fmt;
use std::ops::Range;

use crate::breaks::Break;
use crate::counts::Counts;
use crate::life::{Outcome, live_with_blocks};
use crate::machine::Violation;
use crate::plan::{Over, Plan};
use crate::setup::Setup;
use crate::species::{Species, Subject};

/// Lines of a block's history that are kept.
const HISTORY: usize = 60;

/// A life that broke the contract.
#[derive(Clone)]
pub struct BrokenLife {
    /// Its seed.
    pub seed: u64,
    /// What was found.
    pub violation: Violation,
    /// Its drive and work, in words.
    pub setup: String,
    /// The last of what happened to the block that it is about.
    pub history: Vec<String>,
}

impl std::error::Error for BrokenLife {}

impl fmt::Display for BrokenLife {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {}", self.seed, self.violation)?;
        writeln!(f, "  drive: {}", self.setup)?;
        self.history.iter().try_for_each(|line| writeln!(f, "  {line}"))?;
        let next = self.seed + 1;
        write!(f, "again: the same call with {}..{next} for its seeds", self.seed)
    }
}

/// As it is displayed: tests unwrap it.
impl fmt::Debug for BrokenLife {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a break was not shown.
#[derive(thiserror::Error)]
pub enum NotShown {
    /// No life showed it.
    #[error("{0:?} was not found")]
    Missed(Break),
    /// The life that was to show it breaks the contract with nothing broken.
    #[error("with nothing broken on purpose, {0}")]
    Without(BrokenLife),
}

impl fmt::Debug for NotShown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Lives of the block target `T`, one of each seed, until one breaks the contract.
/// Each has so many cycles of work, cut, recovery and check. `suit` makes a drive
/// and its work such as the target takes. Gives what was done.
pub fn lives<T: Subject>(
    seeds: Range<u64>,
    cycles: u64,
    suit: impl Fn(&mut Setup),
) -> Result<Counts, BrokenLife> {
    let mut counts = Counts::default();
    for seed in seeds {
        let life = Life::of::<T>(seed, cycles, None, &suit);
        counts += life.live(None)?;
    }
    Ok(counts)
}

/// Lives of `T` in which something outside of it is broken on purpose, until one
/// shows that. The same life with nothing broken must keep the contract: else it is
/// the target that is found.
pub fn shows<T: Subject>(
    broken: Break,
    seeds: Range<u64>,
    cycles: u64,
    suit: impl Fn(&mut Setup),
) -> Result<BrokenLife, NotShown> {
    for seed in seeds {
        let life = Life::of::<T>(seed, cycles, Some(broken), &suit);
        if let Err(found) = life.live(Some(broken)) {
            life.live(None).map_err(NotShown::Without)?;
            return Ok(found);
        }
    }
    Err(NotShown::Missed(broken))
}

/// A life to be lived, perhaps more than once.
struct Life {
    plan: Plan,
    setup: Setup,
}

impl Life {
    fn of<T: Subject>(
        seed: u64,
        cycles: u64,
        broken: Option<Break>,
        suit: &impl Fn(&mut Setup),
    ) -> Life {
        let plan = Plan { seed, cycles, broken, traced: None, over: Some(Over::Blocks) };
        let mut setup = plan.setup();
        setup.species = Species::of::<T>();
        suit(&mut setup);
        Life { plan, setup }
    }

    /// Lives it with this broken.
    fn live(&self, broken: Option<Break>) -> Result<Counts, BrokenLife> {
        let of = |traced| -> Outcome {
            let _told = OfSeed(self.plan.seed);
            live_with_blocks(&Plan { broken, traced, ..self.plan }, self.setup.clone())
        };
        let outcome = of(None);
        let Some(violation) = outcome.violation else { return Ok(outcome.counts) };
        let mut history = violation.block.map_or(Vec::new(), |block| of(Some(block)).trace);
        history.drain(..history.len().saturating_sub(HISTORY));
        Err(BrokenLife { seed: self.plan.seed, violation, setup: self.setup.in_words(), history })
    }
}

/// Says whose life it was if that panics.
struct OfSeed(u64);

impl Drop for OfSeed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the life of seed {} panicked", self.0);
        }
    }
}
