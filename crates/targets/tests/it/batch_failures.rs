//! What fails below a batched target: writes of pages and of the log, programs
//! and erases of the medium.

use crate::batch_world::{Setup, World, batch_buffer, ram};
use faults::{Access, FaultRule, FaultyMedium, MediumFault, MediumRule, Operation, Trigger};
use flash::{Cause, ChunkState, Geometry};
use port::{BatchOp, Status};
use proptest::prelude::*;
use targets::batch::BatchError;

const LONG: u64 = u64::MAX / 2;

/// Writes fail until the vector of forward links is exhausted, and not before.
#[test]
fn log_writes_may_fail_as_often_as_there_are_forward_links() {
    for links in 1..=8 {
        for fails in 1..=links + 1 {
            let mut setup = Setup::small(u64::from(links));
            setup.config.forward_links = links;
            let mut world = World::new(setup.filled(50), ram);
            let mut run = world.power_on(LONG).unwrap();
            for i in 0..5 {
                run.write(&mut world, &[i, i + 1, 100 + i]);
            }
            run.drain(&mut world);
            world.fail_log.set(fails);
            run.write(&mut world, &[1, 2, 3]);
            run.drain(&mut world);
            if fails < links {
                assert_eq!((run.failed.len(), run.target.fault()), (0, None));
                run.write(&mut world, &[1, 2]);
                run.drain(&mut world);
                assert_eq!(run.failed, []);
            } else {
                world.fail_log.set(0);
                assert_eq!(run.failed, [Status::WRITE_FAULT]);
                let fault = run.target.fault().cloned();
                assert!(matches!(fault, Some(BatchError::LogExhausted { .. })), "{fault:?}");
                let refused = run.ask(BatchOp::WriteBatch, 0, batch_buffer(&[1], &[9], 8));
                assert_eq!(refused.status, Status::READ_ONLY);
                // What was acknowledged can be read.
                let values: Vec<u64> = (0..5).map(|lpid| run.value(&mut world, lpid)).collect();
                assert!(values.iter().all(|&value| value > 0), "{values:?}");
            }
            world.power_off(run);
            // After a start it takes writes again.
            for _ in 0..2 {
                let mut run = world.power_on(LONG).unwrap();
                world.check(&mut run);
                assert_eq!(run.target.fault(), None);
                run.write(&mut world, &[7, 8]);
                run.drain(&mut world);
                assert_eq!(run.failed, []);
                world.power_off(run);
            }
        }
    }
}

/// Where none of the places for the next row can be written, a start names others,
/// though there are so many rows that a checkpoint is due.
#[test]
fn a_start_that_names_other_places_waits_for_no_checkpoint() {
    for links in 1..=3 {
        let mut setup = Setup::small(u64::from(links));
        (setup.config.forward_links, setup.config.log_rows) = (links, 4);
        let mut world = World::new(setup.filled(50), ram);
        let mut run = world.power_on(LONG).unwrap();
        for i in 0..40 {
            run.write(&mut world, &[i, i + 1]);
            run.drain(&mut world);
        }
        world.fail_log.set(links);
        run.write(&mut world, &[1, 2, 3]);
        run.drain(&mut world);
        assert_eq!(run.failed, [Status::WRITE_FAULT]);
        world.power_off(run);
        let mut run = world.try_power_on(LONG).expect("it starts").unwrap();
        world.check(&mut run);
        run.write(&mut world, &[7, 8]);
        run.drain(&mut world);
        assert_eq!((run.failed.len(), run.target.fault()), (0, None));
        world.power_off(run);
    }
}

fn rule(operation: Operation, probability: f64, count: u64) -> FaultRule {
    let trigger = Trigger { probability, count: Some(count), ..Trigger::default() };
    FaultRule { operation, trigger, status: None, permanent: false, place: None }
}

/// Random work, cuts, and failures.
fn cuts(world: &mut World, rounds: u64) {
    for _ in 0..rounds {
        let mut run = match world.try_power_on(LONG) {
            Ok(Some(run)) => run,
            Ok(None) => unreachable!("the fuse is long"),
            // New drives whose first row of log fails too often.
            Err(BatchError::LogExhausted { .. }) => return,
            Err(e) => panic!("{e}"),
        };
        world.check(&mut run);
        let events = 1 + world.random.below(1500);
        run.fuse.set(events);
        let batches = 1 + world.random.below(40);
        world.work(&mut run, batches);
        if run.is_on() && run.target.fault().is_none() {
            run.drain(world);
        }
        world.note("amended", run.target.counters().amended);
        world.note("failed", run.target.counters().failed_programs);
        world.note("retired", run.target.counters().retired);
        let over = run.target.fault().is_some();
        world.power_off(run);
        if over {
            break;
        }
    }
    let mut run = world.power_on(LONG).unwrap();
    world.check(&mut run);
    world.power_off(run);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn writes_that_fail_go_elsewhere(seed: u64, often in 1u32..40, links in 2u32..6) {
        let mut setup = Setup::small(seed);
        setup.config.forward_links = links;
        let mut setup = setup.filled(60);
        setup.rules = vec![rule(Operation::Write, f64::from(often) / 4000.0, 4)];
        let mut world = World::new(setup, ram);
        cuts(&mut world, 4);
    }

    #[test]
    fn so_do_programs_that_fail_in_the_medium(seed: u64, often in 1u32..20) {
        let setup = Setup::small(seed).filled(60);
        let rule = |on, probability| MediumRule {
            trigger: Trigger { probability, count: Some(6), ..Trigger::default() },
            fault: MediumFault::Fail { on, permanent: false },
        };
        let rules = [rule(Access::Program, f64::from(often) / 1000.0), rule(Access::Reset, 0.05)];
        let mut world = World::new(setup, |geometry: &Geometry| {
            FaultyMedium::new(geometry, ram(geometry), &rules, seed).unwrap()
        });
        cuts(&mut world, 6);
    }
}

#[test]
fn failures_are_met() {
    let mut setup = Setup::small(4).filled(60);
    setup.rules = vec![rule(Operation::Write, 0.02, 5), rule(Operation::Reset, 0.05, 2)];
    let mut world = World::new(setup, ram);
    cuts(&mut world, 20);
    for what in ["amended", "failed", "retired"] {
        assert!(world.seen.get(what).is_some_and(|&n| n > 0), "{what}: {:?}", world.seen);
    }
}

/// The chunks of checkpoint records: the first two of the first unit and of the last.
fn slots(geometry: &Geometry) -> Vec<usize> {
    let mut units = geometry.pus_channels_first();
    let ends = [units.next().unwrap(), units.last().unwrap()];
    ends.iter().flat_map(|&unit| (0..2).map(move |n| geometry.chunk_of(unit, n))).collect()
}

/// A failed program that the drive does not list only closes its chunk early: behind
/// one that was still under way, or where a drive over several others says so. The
/// next start retires it all the same, and puts no checkpoint records there.
#[test]
fn chunks_that_a_failed_program_closed_early_are_not_used_again() {
    let mut met = [0; 2];
    for seed in 0..8 {
        let mut world = World::new(Setup::small(seed).filled(60), ram);
        let mut run = world.power_on(LONG).unwrap();
        world.work(&mut run, 60);
        run.drain(&mut world);
        world.power_off(run);
        let slots = slots(&world.geometry);
        let open = |&index: &usize| world.chunks[index].state == ChunkState::Open;
        let slot = slots.iter().copied().find(open);
        let others = (0..world.chunks.len()).filter(|index| !slots.contains(index));
        // One at a time: the log needs places to go on.
        let other = others.filter(open).nth(seed as usize % 4);
        let closed: Vec<usize> = [slot, other].into_iter().flatten().collect();
        let was = world.chunks.clone();
        closed.iter().for_each(|&index| world.chunks[index].state = ChunkState::Closed);
        let mut run = world.power_on(LONG).unwrap();
        world.check(&mut run);
        for _ in 0..6 {
            world.work(&mut run, 60);
            run.target.request_checkpoint();
        }
        run.drain(&mut world);
        world.check(&mut run);
        world.power_off(run);
        for &index in &closed {
            let (was, now) = (was[index], world.chunks[index]);
            if slots.contains(&index) {
                assert_eq!((now.wear, now.wp), (was.wear, was.wp), "{seed}: {index} is used");
                met[0] += 1;
            } else {
                assert_eq!(now.why_offline(), Some(Cause::Retired), "{seed}: {index}, {now:?}");
                met[1] += 1;
            }
        }
    }
    assert!(met[0] > 2 && met[1] > 2, "{met:?}");
}

/// Chunks fail until there is no room: then batches are refused, nothing hangs,
/// and all that was acknowledged can be read.
#[test]
fn without_room_batches_are_refused() {
    let mut setup = Setup::small(6);
    // One at a time: behind one that is refused there may be room for another.
    (setup.config.forward_links, setup.config.batches) = (8, 1);
    let mut setup = setup.filled(90);
    setup.rules = vec![rule(Operation::Write, 0.004, u64::MAX)];
    let mut world = World::new(setup, ram);
    let mut run = world.power_on(LONG).unwrap();
    let pages = world.setup.config.pages;
    for first in (0..pages).step_by(40).chain((0..1_000_000).map(|n| n * 7 % (pages - 40))) {
        let lpids: Vec<u64> = (first..pages.min(first + 40)).collect();
        while !run.write(&mut world, &lpids) {
            assert!(run.step(&mut world), "it hangs: {}", run.state());
        }
        if !run.failed.is_empty() {
            break;
        }
    }
    run.drain(&mut world);
    let good = [Status::CAPACITY_EXCEEDED, Status::WRITE_FAULT, Status::READ_ONLY];
    assert!(!run.failed.is_empty() && run.failed.iter().all(|status| good.contains(status)));
    for lpid in 0..pages {
        let value = run.value(&mut world, lpid);
        let floor = world.model.floor();
        world.model.read(lpid, value, floor);
    }
}

/// The same, and the host goes on asking: each batch ends.
#[test]
fn without_room_no_batch_hangs() {
    let mut refused = 0;
    for seed in 0..24 {
        let mut setup = Setup::small(seed);
        setup.config.forward_links = 8;
        let mut setup = setup.filled(60 + seed % 4 * 10);
        setup.rules = vec![rule(Operation::Write, 0.02, u64::MAX)];
        let mut world = World::new(setup, ram);
        let Ok(Some(mut run)) = world.try_power_on(LONG) else { continue };
        let pages = world.setup.config.pages;
        for n in 0..3000 {
            let first = n * 7919 % (pages - 40);
            let lpids: Vec<u64> = (first..first + 1 + n % 40).collect();
            while !run.write(&mut world, &lpids) {
                assert!(run.step(&mut world), "it hangs: {}", run.state());
            }
            if run.target.fault().is_some() {
                break;
            }
        }
        run.drain(&mut world);
        refused += run.failed.len();
        world.power_off(run);
    }
    assert!(refused > 100, "{refused}");
}
