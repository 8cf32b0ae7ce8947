//! Lives of a drive that several targets share: one or two of blocks and one that keeps values
//! by key, each with chunks of its own.
//!
//! Blocks and keys are asked side by side. The target of keys goes now and then with all that
//! it has, and another comes in its place; power goes at any moment of that, too. What blocks
//! may be is known as in the lives of one target, what keys may be as in those of keys alone.
//! Operations of the flash fail and are late, and what fails is an excuse for the target that
//! it struck, and for no other.

use media::mutation::Mutation;
use workload::Rng;

use crate::life::{Outcome, live_with};
use crate::machine::Machine;
use crate::plan::Plan;
use crate::setup::Setup;
use crate::species::Species;
use world::World;

mod living;
mod shares;
mod tenants;
mod world;

pub use shares::{Home, Shares};
pub use tenants::Tenants;

/// Stream of the random numbers of these drives.
const STREAM: u64 = 571;

/// One life in so many is of such a drive.
pub(crate) const ONE_IN: u64 = 8;

/// A drive that targets share, and what its keys are asked.
pub struct Drive {
    /// Its flash, its targets and its faults, and what its blocks are asked.
    pub setup: Setup,
    /// Requests by key at once, keys that are used, and bytes of most values, at most.
    pub depth: usize,
    /// See above.
    pub names: u64,
    /// See above.
    pub most: u64,
}

impl Drive {
    /// That of a plan.
    pub fn of(plan: &Plan) -> Drive {
        let mut setup = plan.setup();
        let mut rng = Rng::new(plan.seed, STREAM);
        let rng = &mut rng;
        setup.leave_out_harm();
        setup.timing.slc = Default::default();
        // Requests by key would go past these.
        (setup.protected, setup.parity, setup.layers) = (false, 0, None);
        (setup.queues, setup.buffer_rate, setup.buffer_rows) = (Default::default(), 0, 0);
        setup.streams = 1;
        let (geometry, shares) = Shares::draw(rng, setup.data_chunks, plan.seed);
        (setup.geometry, setup.bytes) = (geometry, shares.bytes());
        setup.shares = Some(shares);
        setup.species = Species::of::<Tenants>();
        let depth = [1, 4, 16, 30][rng.below(4) as usize];
        let names = [3, 20, 80][rng.below(3) as usize];
        let most = [200, 3000, 60_000][rng.below(3) as usize];
        Drive { setup, depth, names, most }
    }

    /// In a line, for a report.
    pub fn in_words(&self) -> String {
        format!("shared: {} keys, {}", self.names, self.setup.in_words())
    }
}

/// Ways to break what targets promise together.
pub fn breaks() -> impl Iterator<Item = Mutation> {
    Mutation::ALL.into_iter()
}

/// Lives the life of a plan.
pub fn live(plan: &Plan) -> Outcome {
    let Drive { setup, depth, names, most } = Drive::of(plan);
    let machine = Machine::new(setup, plan.broken, plan.traced);
    live_with(plan, World::new(machine, names, most, depth))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::breaks::Break;
    use crate::counts::Counts;
    use crate::plan::Over;

    fn plan(seed: u64) -> Plan {
        Plan { seed, cycles: 10, broken: None, traced: None, over: Some(Over::Shared) }
    }

    #[test]
    fn lives_keep_the_contract_and_meet_what_they_should() {
        let mut counts = Counts::default();
        for seed in 0..80 {
            let outcome = live(&plan(seed));
            let words = || Drive::of(&plan(seed)).in_words();
            assert_eq!(outcome.violation, None, "seed {seed}: {}", words());
            counts += outcome.counts;
        }
        assert_eq!((counts.cycles, counts.shared.lives), (800, 80));
        assert!(counts.cuts > 800 && counts.cut_recoveries > 60, "{counts:?}");
        assert!(counts.cycles_collecting > 80 && counts.cached_cuts > 100, "{counts:?}");
        assert!(counts.tenants_left > 100 && counts.tenants_came > 60, "{counts:?}");
        assert!(counts.struck.reads > 10 && counts.struck.programs > 5, "{counts:?}");
        assert!(counts.clean_closes > 20, "{counts:?}");
    }

    /// What is lost with a target's own block is its own, and with one of which there is
    /// another nothing is.
    #[test]
    fn what_one_target_lost_excuses_no_other() {
        let mut seen = 0;
        for seed in 0..40 {
            let setup = Drive::of(&plan(seed)).setup;
            let shares = setup.shares.clone().unwrap();
            for n in 0..shares.blocks.len() {
                let own = shares.blocks_of(n);
                let lost = |id| setup.species.lost_with(&setup, own.start, id);
                assert_eq!(lost(1 << 62), own.start..own.end.min(own.start + 1024));
                assert!(lost(1 << 62 | 3 << 56).is_empty());
                seen += u32::from(own.start > 0);
            }
        }
        assert!(seen > 5, "{seen}");
    }

    #[test]
    fn a_seed_is_one_life() {
        let (a, b) = (live(&plan(3)), live(&plan(3)));
        assert_eq!((a.hash, a.counts), (b.hash, b.counts));
        assert_ne!(a.hash, live(&plan(4)).hash);
    }

    /// Beside blocks a broken promise of keys is found as it is alone.
    #[test]
    fn flushes_of_keys_that_do_not_wait_are_found() {
        let broken = Some(Break::Keyed(targets::kv::mutation::Mutation::FlushEarly));
        let finds = |seed: u64| live(&Plan { broken, ..plan(seed) }).violation.is_some();
        assert!((0..100).any(finds));
    }
}
