//! Promises of a batched target that are broken on purpose: the worlds of the
//! other tests find each.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::batch_world::{Setup, World};
use faults::{CachedMedium, CheckedMedium, PowerCut};
use flash::{Geometry, RamMedium};
use targets::batch::mutation::{Mutation, set};

/// What no seed finds yet: these worlds are too small, or too short, for it.
const NOT_YET: [Mutation; 3] = [Mutation::EraseEarly, Mutation::StaleCollect, Mutation::ForgetLog];

/// Seeds that are tried before a break counts as not found.
const SEEDS: u64 = 60;

fn ram(geometry: &Geometry) -> RamMedium {
    RamMedium::new(geometry, 8).unwrap()
}

/// Random work on a full drive, and cuts.
fn cuts<M: PowerCut>(mut world: World<M>) {
    for _ in 0..6 {
        let Some(mut run) = world.power_on(u64::MAX / 2) else { unreachable!("a long fuse") };
        world.check(&mut run);
        let events = 1 + world.random.below(3000);
        run.fuse.set(events);
        let batches = 1 + world.random.below(120);
        world.work(&mut run, batches);
        world.power_off(run);
    }
    let mut run = world.power_on(u64::MAX / 2).unwrap();
    world.check(&mut run);
    world.power_off(run);
}

/// Whether a seed's world finds something wrong.
fn finds(seed: u64) -> bool {
    let mut setup = Setup::small(seed);
    // Short, so that checkpoints and collection are many.
    setup.config.log_rows = 6;
    let setup = setup.filled(95);
    let found = catch_unwind(AssertUnwindSafe(|| match seed % 3 {
        0 => cuts(World::new(setup, |geometry: &Geometry| {
            let cached = CachedMedium::new(geometry, ram(geometry)).unwrap();
            CheckedMedium::new(geometry, cached).unwrap()
        })),
        _ => cuts(World::new(setup, ram)),
    }));
    found.is_err()
}

#[test]
fn each_break_is_found() {
    let found = |mutation: Option<Mutation>, seeds: u64| {
        set(mutation);
        (0..seeds).find(|&seed| finds(seed))
    };
    let missed: Vec<Mutation> = Mutation::ALL
        .into_iter()
        .filter(|&mutation| {
            let seed = found(Some(mutation), SEEDS);
            println!("{mutation:?}: {seed:?}");
            seed.is_none()
        })
        .collect();
    let none = found(None, 12);
    assert_eq!((missed, none), (NOT_YET.to_vec(), None));
}
