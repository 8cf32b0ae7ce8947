//! Lives of the Redis server: clients that send one command behind the other, over a tree on
//! each of its stores, whose power goes at any event and whose writes and flushes fail.
//!
//! What clients see is noted. After a cut all of it must be explained by what is found: each
//! write that was answered, and each that a reply told of, is there or was overwritten by one
//! that may have come later. So no reply is seen before all is durable that it tells of.

use exports::redis::mutation::Mutation;
use workload::Rng;

use crate::life::{Outcome, live_with};
use crate::plan::Plan;
use crate::tree::Host;
use world::World;

mod check;
mod living;
mod model;
mod reply;
mod world;

/// Stream of the random numbers of these lives.
const STREAM: u64 = 530;

/// One life in so many is of the server.
pub(crate) const ONE_IN: u64 = 8;

/// What clients do.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    plan: Plan,
    /// How many there are.
    pub clients: usize,
    /// Commands that one sends before it sees a reply.
    pub pipeline: usize,
    /// Keys and counters that are used.
    pub keys: u64,
    /// See above.
    pub counters: u64,
    /// No key is ever taken away.
    pub only_grows: bool,
}

impl Served {
    /// Those of a plan.
    pub fn of(plan: &Plan) -> Served {
        let mut rng = Rng::new(plan.seed, STREAM);
        let rng = &mut rng;
        Served {
            plan: *plan,
            clients: 1 + rng.below(5) as usize,
            pipeline: [1, 3, 8][rng.below(3) as usize],
            keys: [2, 6, 16][rng.below(3) as usize],
            counters: 1 + rng.below(2),
            only_grows: rng.one_in(3),
        }
    }

    /// The drive, store and tree: those of a tree's life. What fails in the flash is other
    /// lives' matter.
    pub fn host(&self) -> Host {
        let mut host = Host::of(&self.plan);
        host.without_failures();
        host
    }

    /// In a line, for a report.
    pub fn in_words(&self) -> String {
        let Served { clients, pipeline, keys, counters, only_grows, .. } = self;
        format!(
            "served: {clients} clients, {pipeline} commands at once, {keys} keys, {counters} \
             counters, only grows: {only_grows}; {}",
            self.host().in_words()
        )
    }
}

/// Lives the life of a plan.
pub fn live(plan: &Plan) -> Outcome {
    live_with(plan, World::new(Served::of(plan), plan.traced))
}

/// Ways to break the server's promises.
pub fn breaks() -> impl Iterator<Item = Mutation> {
    Mutation::ALL.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::Counts;
    use crate::plan::Over;

    fn plan(seed: u64) -> Plan {
        Plan { seed, cycles: 16, broken: None, traced: None, over: Some(Over::Served) }
    }

    #[test]
    fn lives_keep_the_contract_and_meet_what_they_should() {
        let mut counts = Counts::default();
        for seed in 0..40 {
            let outcome = live(&plan(seed));
            assert_eq!(outcome.violation, None, "seed {seed}: {}", plan(seed).in_words());
            counts += outcome.counts;
        }
        assert_eq!(counts.served.lives, 40);
        assert!(counts.cuts > 600 && counts.failed_stores > 60, "{counts:?}");
        assert!(counts.replies > 5000 && counts.errors > 20, "{counts:?}");
    }

    #[test]
    fn a_seed_is_one_life() {
        let (a, b) = (live(&plan(3)), live(&plan(3)));
        assert_eq!((a.hash, a.counts), (b.hash, b.counts));
        assert_ne!(a.hash, live(&plan(4)).hash);
    }
}
