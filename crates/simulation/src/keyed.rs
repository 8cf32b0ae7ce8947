//! Lives of the key-value target: puts, gets, deletes, listings and flushes on a small
//! drive, cut at any event and recovered.
//!
//! Everything that is read is held against the model. No operation of the flash fails
//! here, but reads and programs of some drives with parity; so no request may fail but for
//! want of room. What the target does with other faults its own tests look at.

use flash::{Dimensions, Geometry};
use targets::kv::mutation::Mutation;
use targets::kv::{KvConfig, KvError, reserve_chunks};
use workload::Rng;

use crate::life::{Outcome, live_with};
use crate::plan::Plan;
use crate::setup::Setup;
use room::Room;
use world::World;

pub(crate) mod host;
mod listing;
mod living;
mod model;
pub(crate) mod room;
mod world;

/// Stream of the random numbers of these drives.
const STREAM: u64 = 503;

/// Stream of the random numbers that say which of them have parity.
const PARITY: u64 = 504;

/// Stream of the random numbers that say of which of these reads fail, chosen so that the
/// lives of `tests/it/found.rs` are what they were.
const MEMBERS: u64 = 511;

/// One life in so many is of this target.
pub(crate) const ONE_IN: u64 = 8;

/// What these lives do not find, or once in thousands: a row of a large value that a cut
/// took while its record is there, and was so twice; a delete that is forgotten with the
/// first checkpoint. The target's own tests do.
const NOT_YET: [Mutation; 3] = [Mutation::ForgetRow, Mutation::Unsettled, Mutation::ForgetDeleted];

/// Ways to break the target's promises that these lives find.
pub fn breaks() -> impl Iterator<Item = Mutation> {
    Mutation::ALL.into_iter().filter(|one| !NOT_YET.contains(one))
}

/// A drive for the key-value target.
pub struct Drive {
    /// Its flash.
    pub setup: Setup,
    /// The target's configuration.
    pub config: KvConfig,
    /// Requests at once.
    pub depth: usize,
    /// Keys that are used.
    pub names: u64,
    /// Bytes of most values, at most.
    pub most: u64,
    /// What there is for values.
    room: Room,
}

impl Drive {
    /// That of a plan.
    pub fn of(plan: &Plan) -> Drive {
        let mut setup = plan.setup();
        let mut rng = Rng::new(plan.seed, STREAM);
        let rng = &mut rng;
        setup.leave_out_harm();
        setup.troubles.operations.clear();
        (setup.protected, setup.parity) = (false, 0);
        let pages_at_once = rng.one_of(&[1, 1, 2, 3]);
        let (keys, spare) = (100 + rng.below(100), [0.1, 0.3, 0.5][rng.below(3) as usize]);
        let mut small = Dimensions {
            groups: 1 + rng.below(2) as u32,
            pus: 1 + rng.below(3) as u32,
            chunks: 8 + rng.below(6) as u32,
            pages: (4 + rng.below(10) as u32) * pages_at_once,
            planes: rng.one_of(&[1, 2, 2, 3]),
            page_bytes: if rng.below(2) == 0 { 4096 } else { 8192 },
            pages_at_once,
        };
        let geometry = |dim| Geometry::new(dim).expect("the ranges are those of a geometry");
        // What is broken is to be told from what fails.
        let parity = if plan.broken.is_none() { take_parity(&mut setup, plan.seed) } else { 0 };
        let more = match parity {
            0 => reserve_chunks(&geometry(small), keys),
            width => {
                let pus = small.groups * small.pus;
                small = Dimensions { groups: width, pus, ..small };
                let seen = parity::geometry(&geometry(small), width);
                reserve_chunks(&seen.expect("the width divides the units"), keys)
            }
        };
        setup.geometry = geometry(Dimensions { chunks: small.chunks + more, ..small });
        let seen = match parity {
            0 => setup.geometry,
            width => parity::geometry(&setup.geometry, width).expect("the width divides the units"),
        };
        let depth = [1, 4, 16, 30][rng.below(4) as usize];
        let config = KvConfig {
            keys,
            spare,
            depth: 32,
            checkpoint_rows: [4, 20, 60, 1 << 30][rng.below(4) as usize],
            seed: plan.seed,
        };
        let names = [3, 20, 80][rng.below(3) as usize];
        let most = [200, 3000, 60_000][rng.below(3) as usize];
        let room = Room::of(&seen, &config);
        Drive { setup, config, depth, names, most, room }
    }

    /// In a line, for a report.
    pub fn in_words(&self) -> String {
        let (dim, troubles) = (self.setup.geometry.dimensions(), self.setup.troubles.in_words());
        let (config, parity) = (self.config, self.setup.parity);
        format!("keyed: {dim:?}, {config:?}, {} keys, parity {parity}, {troubles}", self.names)
    }
}

/// Some drives have parity; in half of these programs of the medium fail, which the drive
/// remembers, and in half reads, of one member in most cases. Gives the width, 0 for none.
fn take_parity(setup: &mut Setup, seed: u64) -> u32 {
    let mut rng = Rng::new(seed, PARITY);
    if !rng.one_in(4) {
        return 0;
    }
    setup.parity = 3 + rng.below(2) as u32;
    if rng.below(2) == 0 {
        setup.troubles.fail_programs(rng.one_of(&[2e-3, 2e-4]));
    }
    let mut rng = Rng::new(seed, MEMBERS);
    if !setup.troubles.cached && rng.below(2) == 0 {
        setup.troubles.fail_reads(rng.one_of(&[3e-2, 1e-2, 1e-3]), rng.below(3) == 0);
    }
    setup.parity
}

/// Whether the target may not start so, where of what it has something could not be read.
pub(crate) fn may_refuse(error: &KvError, unread: bool) -> bool {
    unread && matches!(error, KvError::Damaged { .. } | KvError::Checkpoint)
}

/// Lives the life of a plan.
pub fn live(plan: &Plan) -> Outcome {
    live_with(plan, World::new(Drive::of(plan), plan.traced))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::Counts;
    use crate::plan::Over;

    fn plan(seed: u64) -> Plan {
        Plan { seed, cycles: 10, broken: None, traced: None, over: Some(Over::Keys) }
    }

    #[test]
    fn lives_keep_the_contract_and_meet_what_they_should() {
        let mut counts = Counts::default();
        for seed in 0..60 {
            let outcome = live(&plan(seed));
            assert_eq!(
                outcome.violation,
                None,
                "seed {seed}: {}",
                Drive::of(&plan(seed)).in_words()
            );
            counts += outcome.counts;
        }
        assert_eq!(counts.cycles, 600);
        assert!(counts.cuts > 600 && counts.cut_recoveries > 50, "{counts:?}");
        assert!(counts.cycles_collecting > 60 && counts.cached_cuts > 100, "{counts:?}");
    }

    #[test]
    fn a_start_is_refused_for_what_could_not_be_read_and_for_nothing_else() {
        assert!(may_refuse(&KvError::Checkpoint, true));
        assert!(!may_refuse(&KvError::Checkpoint, false));
        assert!(!may_refuse(&KvError::Seed { found: 0, given: 1 }, true));
        assert!(!may_refuse(&KvError::NotEmpty, true));
    }

    #[test]
    fn a_seed_is_one_life() {
        let (a, b) = (live(&plan(3)), live(&plan(3)));
        assert_eq!((a.hash, a.counts), (b.hash, b.counts));
        assert_ne!(a.hash, live(&plan(4)).hash);
    }
}
