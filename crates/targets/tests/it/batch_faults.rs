//! A batched target that takes no writes any more: each request that was taken
//! ends, and all that was acknowledged can be read.

use crate::batch_world::{Run, Setup, World, batch_buffer, cached, ram};
use faults::{FaultRule, Operation, Span, Trigger};
use port::{BatchOp, Status};
use targets::batch::BatchError;

const LONG: u64 = u64::MAX / 2;

/// Until nothing is inside; what hangs is a failure.
fn end(world: &mut World, run: &mut Run) {
    run.drain(world);
    let refused = run.ask(BatchOp::WriteBatch, 0, batch_buffer(&[1], &[9], 8));
    assert_eq!(refused.status, Status::READ_ONLY);
}

/// All pages that `lpids` names read as some state that is allowed.
fn reads(world: &mut World, run: &mut Run, lpids: impl IntoIterator<Item = u64>) {
    for lpid in lpids {
        let value = run.value(world, lpid);
        let floor = world.model.floor();
        world.model.read(lpid, value, floor);
    }
}

/// Slots of the cache are ahead of flash, and can never be written: in some of
/// these cases all of them.
#[test]
fn reads_end_where_the_cache_is_full_of_changes() {
    let mut full = 0;
    for steps in 0..12 {
        let (mut world, mut run) = with_a_small_cache();
        let pages = world.setup.config.pages / 512;
        let first =
            |pages: std::ops::Range<u64>| pages.map(|page| page * 512).collect::<Vec<u64>>();
        // 90 pages of MAP are changed; 96 are wanted by three batches.
        for from in [0, 30, 60] {
            run.write(&mut world, &first(from..from + 30));
            run.drain(&mut world);
        }
        for (from, to) in [(90, 130), (130, 170), (170, 186)] {
            assert!(run.write(&mut world, &first(from..to)));
        }
        let rows = run.target.log_rows();
        while run.target.log_rows() < rows + 1 + steps / 6 {
            assert!(run.step(&mut world));
        }
        for _ in 0..steps % 6 {
            run.step(&mut world);
        }
        world.fail_log.set(8);
        run.write(&mut world, &first(0..4));
        end(&mut world, &mut run);
        assert!(matches!(run.target.fault(), Some(BatchError::LogExhausted { .. })));
        let loads = run.target.counters().map_loads;
        reads(&mut world, &mut run, first(186..pages));
        full += u64::from(run.target.counters().map_loads == loads);
        reads(&mut world, &mut run, first(0..pages));
        reads(&mut world, &mut run, [511, pages * 512 - 1, 100 * 512 + 7]);
    }
    assert!(full > 0, "there always was a slot");
}

/// A drive whose cache holds all but a few of the pages of MAP, none changed.
fn with_a_small_cache() -> (World, Run) {
    let mut setup = Setup::large();
    (setup.config.log_rows, setup.config.cache_bytes) = (200, 186 * 4096);
    let mut world = World::new(setup.filled(100), ram);
    let mut run = world.power_on(LONG).unwrap();
    let pages = world.setup.config.pages / 512;
    assert!(pages > 186, "{pages}");
    for from in (0..pages).step_by(40) {
        let lpids: Vec<u64> = (from..pages.min(from + 40)).map(|page| page * 512).collect();
        run.write(&mut world, &lpids);
        run.drain(&mut world);
    }
    run.target.request_checkpoint();
    loop {
        run.write(&mut world, &[1]);
        run.drain(&mut world);
        if !run.target.is_checkpointing() {
            return (world, run);
        }
    }
}

/// The log's row is on its way when the checkpoint's places are all gone.
#[test]
fn batches_in_a_row_end_when_no_record_can_be_written() {
    for events in 0..12 {
        let mut world = World::new(Setup::small(7).filled(60), ram);
        let run = world.power_on(LONG).unwrap();
        world.power_off(run);
        let geometry = world.geometry;
        let units: Vec<usize> = geometry.pus_channels_first().collect();
        let rule = |(unit, number)| {
            let start = geometry.chunk_start(geometry.chunk_of(unit, number)).0;
            let span = Some(Span::Ppa(start..start + u64::from(geometry.chunk_blocks())));
            let trigger = Trigger { span, ..Trigger::default() };
            let operation = Operation::Write;
            FaultRule { operation, trigger, status: None, permanent: false, place: None }
        };
        let slots = [(units[0], 0), (units[0], 1), (units[3], 0), (units[3], 1)];
        world.setup.rules = slots.into_iter().map(rule).collect();
        let mut run = world.power_on(LONG).unwrap();
        run.write(&mut world, &(0..40).collect::<Vec<u64>>());
        run.drain(&mut world);
        run.target.request_checkpoint();
        for i in 0..40 {
            let lpids: Vec<u64> = (i..i + 9 + events).collect();
            run.write(&mut world, &lpids);
            for _ in 0..=events {
                run.step(&mut world);
            }
        }
        end(&mut world, &mut run);
        assert_eq!(run.target.fault(), Some(&BatchError::SlotsExhausted));
        let pages = world.setup.config.pages;
        reads(&mut world, &mut run, 0..pages);
        world.power_off(run);
        world.setup.rules.clear();
        let mut run = world.power_on(LONG).unwrap();
        world.check(&mut run);
        world.power_off(run);
    }
}

/// What a failed flush was to make durable is never acknowledged.
#[test]
fn batches_end_when_the_drive_cannot_flush() {
    flushes_fail(|_| {});
}

/// What was acknowledged is there after a cut, too.
#[test]
fn what_was_acknowledged_before_a_failed_flush_is_there() {
    flushes_fail(|world| {
        world.setup.rules.clear();
        let mut run = world.power_on(LONG).unwrap();
        world.check(&mut run);
        world.power_off(run);
    });
}

fn flushes_fail(then: impl Fn(&mut World)) {
    let mut failed = 0;
    for from in 2..40 {
        let mut setup = Setup::small(from).filled(60);
        let trigger = Trigger { from, count: Some(1), ..Trigger::default() };
        let operation = Operation::Flush;
        let rule = FaultRule { operation, trigger, status: None, permanent: false, place: None };
        setup.rules = vec![rule];
        let mut world = World::new(setup, cached);
        let mut run = match world.try_power_on(LONG) {
            Ok(run) => run.unwrap(),
            Err(BatchError::Flush(_)) => continue,
            Err(e) => panic!("{e}"),
        };
        for i in 0..30 {
            run.write(&mut world, &[i, i + 1, i + 2]);
            for _ in 0..i % 4 {
                run.step(&mut world);
            }
        }
        if run.target.fault().is_none() {
            run.drain(&mut world);
        }
        if run.target.fault().is_none() {
            continue;
        }
        end(&mut world, &mut run);
        failed += 1;
        let pages = world.setup.config.pages;
        reads(&mut world, &mut run, 0..pages);
        world.power_off(run);
        then(&mut world);
    }
    assert!(failed > 10, "{failed}");
}
