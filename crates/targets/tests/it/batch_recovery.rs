//! Batches and power cuts: random work, a cut at a random event, recovery, and
//! again; and a cut at every event of short scripts. After each recovery MAP and
//! GBITV are what a full TAG scan says, and all pages are as one state of the
//! model has them.

use crate::batch_world;
use crate::batch_world::{Random, Setup, World, cached, ram};
use faults::PowerCut;
use flash::{Dimensions, Geometry, RamMedium, Timing};
use proptest::prelude::*;

const LONG: u64 = u64::MAX / 2;

/// Random work with cuts at random events, some of them in recovery.
fn cuts(world: &mut World, rounds: u64) {
    for _ in 0..rounds {
        let run = loop {
            let events = if world.random.below(3) == 0 { 1 + world.random.below(60) } else { LONG };
            match world.power_on(events) {
                Some(run) => break run,
                None => world.note("cut recoveries", 1),
            }
        };
        // What recovery leaves of the events goes on.
        let mut run = run;
        if run.fuse.get() < LONG / 2 {
            world.power_off(run);
            continue;
        }
        world.check(&mut run);
        let events = 1 + world.random.below(1500);
        run.fuse.set(events);
        let batches = 1 + world.random.below(40);
        world.work(&mut run, batches);
        if run.is_on() {
            run.drain(world);
        }
        let counters = run.target.counters();
        world.note("collections", counters.collections);
        world.note("checkpoints", counters.checkpoints);
        world.note("erases", counters.erases);
        world.note("loads", counters.map_loads);
        world.power_off(run);
        world.note("cuts", 1);
    }
    let mut run = world.power_on(LONG).unwrap();
    world.check(&mut run);
    world.power_off(run);
}

/// Drives of several shapes.
fn setups() -> impl Strategy<Value = Setup> {
    let dim = prop_oneof![
        Just((2, 2, 32, 8, 2, 4096, 1)),
        Just((2, 2, 40, 12, 1, 4096, 1)),
        Just((4, 2, 20, 8, 2, 8192, 1)),
        Just((1, 1, 90, 8, 2, 4096, 1)),
        Just((3, 1, 40, 8, 1, 16384, 1)),
        Just((2, 2, 32, 8, 3, 4096, 1)),
        Just((2, 1, 40, 8, 6, 8192, 1)),
        Just((2, 2, 32, 24, 1, 4096, 3)),
        Just((2, 1, 40, 32, 3, 4096, 4)),
    ];
    (dim, 30u64..=100, any::<u64>(), 1u32..5, any::<bool>(), 1u32..60).prop_map(
        |(dim, fill, seed, links, instant, most)| {
            let (groups, pus, chunks, pages, planes, page_bytes, pages_at_once) = dim;
            let dim = Dimensions { groups, pus, chunks, pages, planes, page_bytes, pages_at_once };
            let mut setup = Setup::of(dim, seed);
            setup.config.forward_links = links;
            setup.config.max_pages = most;
            setup.config.log_rows = 4 + seed % 20;
            if instant {
                setup.timing = Timing::default();
            }
            setup.filled(fill)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn cuts_leave_a_prefix_of_whole_batches(setup in setups(), small in any::<bool>()) {
        let kept = if small { 8 } else { 4096 };
        let mut world = World::new(setup, |geometry| RamMedium::new(geometry, kept).unwrap());
        cuts(&mut world, 8);
    }

    #[test]
    fn so_they_do_over_a_cache_that_loses_and_reorders(setup in setups()) {
        let mut world = World::new(setup, cached);
        cuts(&mut world, 8);
    }
}

#[test]
fn the_work_meets_what_it_is_to_meet() {
    let mut world = World::new(Setup::small(11), ram);
    cuts(&mut world, 60);
    for what in
        ["cuts", "cut recoveries", "collections", "checkpoints", "erases", "dropped", "verified"]
    {
        assert!(world.seen.get(what).is_some_and(|&n| n > 0), "{what}: {:?}", world.seen);
    }
}

/// A small cache: pages of MAP come and go.
#[test]
fn pages_of_the_map_come_and_go() {
    let mut setup = Setup::large().filled(100);
    setup.config.max_pages = 4;
    // 199 pages of MAP; the least cache that is taken holds 148.
    setup.config.cache_bytes = 150 * 4096;
    let mut world = World::new(setup, ram);
    cuts(&mut world, 6);
    assert!(world.seen["loads"] > 40, "{:?}", world.seen);
}

/// Batches whose records have several parts, in one row of the log or in several.
#[test]
fn long_batches_are_whole_too() {
    for (planes, seed) in [(1, 1), (2, 2), (4, 3)] {
        let dim = Dimensions { groups: 4, chunks: 72, pages: 64, planes, ..Dimensions::LEAST };
        let mut setup = Setup::of(dim, seed);
        (setup.config.max_pages, setup.config.log_rows) = (511, 40);
        let mut world = World::new(setup.clone().filled(90), ram);
        cuts(&mut world, 16);
        assert!(world.seen["dropped"] > 0, "{:?}", world.seen);
    }
}

/// A script of a few batches on a drive so small that it checkpoints.
fn script(world: &mut World, run: &mut batch_world::Run) {
    let pages = world.setup.config.pages;
    for i in 0..6 {
        let lpids: Vec<u64> = (0..1 + i * 3).map(|n| (n * 7 + i) % pages).collect();
        run.write(world, &lpids);
        if i % 2 == 1 {
            run.read(world, i);
            run.drain(world);
        }
    }
    run.drain(world);
}

fn every_event<M: PowerCut>(setup: Setup, medium: fn(&Geometry) -> M) -> u64 {
    for events in 1.. {
        let mut world = World::new(setup.clone(), medium);
        world.random = Random(events);
        if let Some(mut run) = world.power_on(events) {
            script(&mut world, &mut run);
            let over = run.is_on();
            world.power_off(run);
            if over {
                return events;
            }
        }
        let mut run = world.power_on(LONG).unwrap();
        world.check(&mut run);
        // It serves, and stands the next cut.
        world.work(&mut run, 3);
        run.drain(&mut world);
        world.power_off(run);
        let mut run = world.power_on(LONG).unwrap();
        world.check(&mut run);
        world.power_off(run);
    }
    unreachable!("the script ends")
}

fn tiny() -> Setup {
    let dim = Dimensions { groups: 2, chunks: 30, pages: 6, planes: 2, ..Dimensions::LEAST };
    let mut setup = Setup::of(dim, 3);
    setup.config.log_rows = 4;
    setup.config.max_pages = 20;
    setup.filled(60)
}

#[test]
fn a_cut_at_every_event_of_a_script() {
    let events = every_event(tiny(), ram);
    assert!(events > 50, "{events}");
}

#[test]
fn a_cut_at_every_event_over_a_cache() {
    let events = every_event(tiny(), cached);
    assert!(events > 50, "{events}");
}

/// Over a cache a page that cannot be read may be one that a cut tore. What a start
/// has found is there all the same when the next one cannot read it.
#[test]
fn what_a_start_has_found_stays_where_it_cannot_be_read_later() {
    let mut met = 0;
    for seed in 0..12 {
        let mut world = World::new(Setup::small(seed).filled(60), cached);
        let mut run = world.power_on(LONG).unwrap();
        while world.model.acked < 20 {
            world.work(&mut run, 5);
        }
        world.power_off(run);
        let mut run = world.power_on(LONG).unwrap();
        world.check(&mut run);
        met += run.target.recovery().verified;
        world.power_off(run);
        // So it looks for none of their pages.
        let run = world.power_on(LONG).unwrap();
        assert_eq!((run.target.recovery().verified, run.target.recovery().dropped), (0, 0));
        world.power_off(run);
    }
    assert!(met > 0, "no batch was without a done note");
}

/// However often power goes in a start, and soon after one: there is room for the
/// next.
#[test]
fn starts_that_are_cut_leave_room() {
    for seed in 0..6 {
        let mut setup = Setup::small(seed);
        (setup.config.forward_links, setup.config.log_rows) = (1 + seed as u32 % 3, 8);
        let mut world = World::new(setup.clone().filled(90), cached);
        let mut run = world.power_on(LONG).unwrap();
        world.work(&mut run, 300);
        world.power_off(run);
        for _ in 0..150 {
            let events = 1 + world.random.below(80);
            if let Some(mut run) = world.power_on(events) {
                world.work(&mut run, 2);
                assert_eq!((run.target.fault(), run.failed.len()), (None, 0));
                world.power_off(run);
            }
        }
        let mut run = world.power_on(LONG).unwrap();
        world.check(&mut run);
        world.work(&mut run, 100);
        run.drain(&mut world);
        assert_eq!((run.target.fault(), run.failed.len()), (None, 0));
        world.power_off(run);
    }
}

/// Many batches, with cuts. Each seed is a drive of its own, about 900 batches
/// long, so that the seeds can be spread: `SOAK_SEED` is the first (1), and
/// `SOAK_SEEDS` how many there are (1100, a million batches). Every fourth drive
/// has a cache that loses and reorders. Run by hand: `--ignored soak`.
#[test]
#[ignore = "takes long"]
fn soak() {
    let number = |name, or| std::env::var(name).map_or(or, |n| n.parse::<u64>().unwrap());
    let (first, count) = (number("SOAK_SEED", 1), number("SOAK_SEEDS", 1100));
    let (mut batches, mut cut) = (0, 0);
    for seed in first..first + count {
        let mut random = Random(seed);
        let mut setup = Setup::small(seed).filled(50 + random.below(51));
        setup.config.log_rows = 4 + random.below(20);
        setup.config.max_pages = 1 + random.below(60) as u32;
        let setup = setup.filled(50 + random.below(51));
        let (more, seen) = match seed % 4 {
            0 => long_life(setup, cached),
            _ => long_life(setup, ram),
        };
        (batches, cut) = (batches + more, cut + seen);
        println!("seeds {first} to {seed}: {batches} batches, {cut} cuts");
    }
}

/// Batches acknowledged, and cuts.
fn long_life<M: PowerCut>(setup: Setup, medium: impl Fn(&Geometry) -> M) -> (u64, u64) {
    let mut world = World::new(setup, medium);
    cuts(&mut world, 400);
    (world.batches, world.seen["recoveries"])
}

/// A start that drops batches of a drive that had no checkpoint yet, cut after
/// each of its events: no checkpoint takes for done what was dropped, before
/// the log says that it was.
#[test]
fn no_checkpoint_passes_the_row_that_drops() {
    let (groups, pus, chunks, pages, planes, page_bytes) = (4, 1, 60, 8, 2, 4096);
    let mut setup = Setup::of(
        Dimensions { groups, pus, chunks, pages, planes, page_bytes, pages_at_once: 1 },
        3,
    );
    setup.timing.program = vec![900_000, 600_000];
    let config = &mut setup.config;
    (config.log_rows, config.max_pages, config.batches, config.forward_links) = (4, 400, 20, 1);
    let (mut events, mut is_cut, mut dropped) = (0, true, 0);
    while is_cut {
        events += 1;
        let mut world = World::new(setup.clone().filled(90), ram);
        let mut run = world.power_on(LONG).unwrap();
        run.write(&mut world, &(0..390).collect::<Vec<_>>());
        let (mut next, mut rows) = (0, 0);
        while run.target.counters().log_rows < 9 && world.model.acked == 0 {
            if next < 18 && run.target.counters().log_rows > rows {
                rows = run.target.counters().log_rows;
                next += u64::from(run.write(&mut world, &[400 + next]));
            }
            assert!(run.step(&mut world));
        }
        world.power_off(run);
        is_cut = world.power_on(events).map(|run| world.power_off(run)).is_none();
        let mut run = world.power_on(LONG).unwrap();
        dropped += run.target.recovery().dropped;
        world.check(&mut run);
    }
    assert!(events > 100 && dropped > 0, "{events} events, {dropped} batches dropped");
}
