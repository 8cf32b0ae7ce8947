//! The key-value target against its model: random work, cuts, failures, full and worn
//! drives, damage.

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use device::Device;
use faults::{
    Access, CachedMedium, CheckedMedium, FaultRule, FaultyMedium, MediumFault, MediumRule,
    Operation, ScriptedMedium, Span, Trigger,
};
use flash::{Dimensions, Geometry, RamMedium, Timing};
use port::{KvOp, PutIf, Status};
use targets::kv::{Kv, KvConfig, KvError};

use crate::kv_world::{LONG, World, cuts, small};

/// Puts, gets, deletes, listings without a cut.
#[test]
fn values_come_back_as_they_were_put() {
    let mut world = small(1);
    let mut run = world.power_on(LONG).unwrap();
    run.work(&mut world, 3000);
    run.drain(&mut world);
    world.check(&mut run);
    world.power_off(run);
    println!("{:?}", world.seen);
    assert!(world.seen["gets"] > 200 && world.seen["writes"] > 800);
}

/// A cache that loses and reorders, and a checksum of each block: a torn block is an
/// error.
fn cached(geometry: &Geometry) -> ScriptedMedium {
    let ram = RamMedium::new(geometry, 8).unwrap();
    let cached = CachedMedium::new(geometry, ram).unwrap();
    ScriptedMedium::new(CheckedMedium::new(geometry, cached).unwrap(), ())
}

fn dims(number: u64) -> Dimensions {
    let all = [
        (2, 2, 12, 8, 2, 4096, 1),
        (1, 1, 40, 8, 2, 4096, 1),
        (4, 2, 8, 8, 1, 8192, 1),
        (3, 1, 14, 8, 1, 16384, 1),
        (2, 2, 12, 24, 1, 4096, 3),
        (1, 3, 16, 16, 1, 4096, 1),
        (2, 1, 20, 6, 6, 8192, 1),
    ];
    let (groups, pus, chunks, pages, planes, page_bytes, pages_at_once) =
        all[number as usize % all.len()];
    Dimensions { groups, pus, chunks, pages, planes, page_bytes, pages_at_once }
}

/// A world of a seed.
fn world(seed: u64) -> World {
    let kept = [8, 8, 4096, 8, 0][seed as usize / 7 % 5];
    let mut world = World::new(dims(seed), seed, move |geometry| {
        if seed % 4 == 3 { cached(geometry) } else { ScriptedMedium::ram(geometry, kept, ()) }
    });
    world.config.seed = seed;
    world.config.checkpoint_rows = [4, 20, 50, 1 << 30][seed as usize / 2 % 4];
    world.names = [3, 20, 90][seed as usize % 3];
    world.most = [100_000, 20_000, 400_000][seed as usize / 3 % 3];
    if seed.is_multiple_of(5) {
        world.timing = Timing::default();
    }
    world
}

/// What the lives of these seeds came to.
fn live(seeds: Range<u64>, rounds: u64, set: impl Fn(&mut World)) -> BTreeMap<&'static str, u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("SOAK_SEED").unwrap_or(seeds.start);
    let count = number("SOAK_SEEDS").unwrap_or(seeds.end - seeds.start);
    let mut seen = BTreeMap::new();
    for seed in first..first + count {
        let mut world = world(seed);
        set(&mut world);
        if let Err(e) = catch_unwind(AssertUnwindSafe(|| cuts(&mut world, rounds))) {
            println!("seed {seed}");
            resume_unwind(e);
        }
        world.seen.into_iter().for_each(|(what, count)| *seen.entry(what).or_default() += count);
    }
    println!("{seen:?}");
    seen
}

#[test]
fn what_was_durable_is_there_after_cuts() {
    let seen = live(0..120, 12, |_| {});
    assert!(seen["cuts"] > 1000 && seen["cut recoveries"] > 100, "{seen:?}");
    assert!(seen["collections"] > 100 && seen["from checkpoints"] > 100, "{seen:?}");
}

/// Programs that fail though they are done, resets that fail.
#[test]
fn it_lives_with_programs_that_fail() {
    let seen = live(1000..1060, 10, |world| {
        let rule = |operation, probability| {
            let trigger = Trigger { probability, ..Trigger::default() };
            FaultRule { operation, trigger, status: None, permanent: false, place: None }
        };
        world.rules = vec![rule(Operation::Write, 0.0005)];
    });
    assert!(seen["retired"] > 20, "{seen:?}");
}

/// Small values alone on a drive that is nearly full of them.
#[test]
fn collection_keeps_up() {
    let seen = live(2000..2020, 6, |world| {
        world.names = 2000;
        world.config.keys = 3000;
        world.config.spare = 0.05;
        (world.most, world.pace) = (900, 100);
    });
    assert!(seen["collections"] > 100, "{seen:?}");
}

/// Large values alone, more than there is room for.
#[test]
fn large_values_are_collected_too() {
    let seen = live(3000..3020, 6, |world| {
        (world.names, world.most) = (60, 120_000);
        world.large_only = true;
    });
    assert!(seen["rows of values moved"] > 100 && seen["refused"] > 100, "{seen:?}");
}

/// A drive takes no more than there is room for, says so, and goes on when room is made.
#[test]
fn a_full_drive_refuses_puts_and_takes_deletes() {
    for (len, names) in [(100, 40_000), (3000, 3000), (70_000, 80), (300_000, 30)] {
        let mut world = small(len);
        world.config.keys = 12_000;
        let mut run = world.power_on(LONG).unwrap();
        let mut put = 0u64;
        for number in 0..names {
            let key = world.name(number);
            run.put(&mut world, &key, len, PutIf::Any, false);
            run.drain(&mut world);
            put = number;
            if world.seen.get("refused").is_some_and(|&refused| refused > 0) {
                break;
            }
        }
        let (live, limit) = run.target.stored();
        assert!(live * 10 > limit * 7 && put > 3, "{put} of {len}: {live} of {limit}");
        for number in 0..put / 2 {
            let key = world.name(number * 2);
            run.delete(&mut world, &key, number.is_multiple_of(5));
            run.drain(&mut world);
        }
        let refused = world.seen["refused"];
        for number in 0..put / 3 {
            let key = world.name(names + number);
            run.put(&mut world, &key, len, PutIf::Any, false);
            run.drain(&mut world);
        }
        assert_eq!(world.seen["refused"], refused, "{len}");
        run.flush(&mut world);
        run.drain(&mut world);
        world.power_off(run);
        let mut run = world.power_on(LONG).unwrap();
        world.check(&mut run);
        world.power_off(run);
    }
}

/// There are as many keys as were asked for; those that were deleted give their places
/// back with checkpoints.
#[test]
fn a_full_index_refuses_new_keys() {
    let mut world = small(5);
    world.config.keys = 20;
    let mut run = world.power_on(LONG).unwrap();
    for number in 0..21 {
        let key = world.name(number);
        run.put(&mut world, &key, 10, PutIf::Any, false);
        run.drain(&mut world);
    }
    assert_eq!((world.seen["refused"], run.target.entries()), (1, 20));
    let key = world.name(3);
    run.put(&mut world, &key, 50, PutIf::Any, true);
    run.delete(&mut world, &key, true);
    run.drain(&mut world);
    let new = world.name(30);
    run.put(&mut world, &new, 10, PutIf::Any, false);
    run.drain(&mut world);
    assert_eq!((world.seen["refused"], run.target.entries()), (1, 20), "it waits for its place");
    world.check(&mut run);
    world.power_off(run);
}

/// Keys come and go, short values and long ones, and never are there more at once than fit.
#[test]
fn what_is_deleted_makes_room_for_others() {
    for (len, all_at_once) in [(10, false), (10, true), (40_000, false), (40_000, true)] {
        let mut world = small(6);
        world.config.keys = 20;
        let mut run = world.power_on(LONG).unwrap();
        for number in 0..400u64 {
            // Of twenty keys the oldest goes, or all of them.
            let gone = match all_at_once {
                true if number.is_multiple_of(20) => number.saturating_sub(20)..number,
                true => 0..0,
                false => number.saturating_sub(20)..(number + 1).saturating_sub(20),
            };
            for old in gone {
                let key = world.name(old);
                run.delete(&mut world, &key, false);
                run.drain(&mut world);
            }
            let key = world.name(number);
            run.put(&mut world, &key, len, PutIf::Any, false);
            run.drain(&mut world);
        }
        assert_eq!(world.seen.get("refused"), None, "{len}, {all_at_once}");
        world.check(&mut run);
        world.power_off(run);
    }
}

/// A drive wears out: puts are refused in the end, and what is there can be read.
#[test]
fn a_worn_drive_can_be_read() {
    for large_only in [false, true] {
        let mut world = small(6);
        world.timing.endurance = 12;
        (world.names, world.most) = (30, 20_000);
        world.large_only = large_only;
        let mut run = world.power_on(LONG).unwrap();
        for _ in 0..200 {
            run.work(&mut world, 200);
            run.drain(&mut world);
        }
        assert!(world.seen["refused"] > 1000, "{:?}", world.seen);
        world.check(&mut run);
        world.power_off(run);
        let mut run = world.power_on(LONG).unwrap();
        world.check(&mut run);
    }
}

/// When a flush of the drive has failed no later one says that anything is durable.
#[test]
fn no_flush_succeeds_after_one_that_failed() {
    let mut world = World::new(dims(0), 11, cached);
    let trigger = Trigger { count: Some(1), ..Trigger::default() };
    let operation = Operation::Flush;
    world.rules =
        vec![FaultRule { operation, trigger, status: None, permanent: false, place: None }];
    let mut run = world.power_on(LONG).unwrap();
    for number in 0..6 {
        let key = world.name(number);
        run.put(&mut world, &key, 100, PutIf::Any, number.is_multiple_of(2));
    }
    run.drain(&mut world);
    assert!(run.target.is_read_only());
    assert_eq!(world.seen.get("flushes"), None);
    for _ in 0..2 {
        assert_eq!(run.ask(&mut world, KvOp::Flush, &[], 0).status, Status::WRITE_FAULT);
    }
    let key = world.name(0);
    assert!(run.ask(&mut world, KvOp::Get, &key, 4096).status.is_ok());
    assert_eq!(run.ask(&mut world, KvOp::Delete, &key, 0).status, Status::READ_ONLY);
}

/// The longest value can be put where there are more units than a record has runs for.
#[test]
fn the_longest_value_goes_over_many_units() {
    for groups in [6, 8, 16] {
        let dim = Dimensions { groups, pus: 16, chunks: 4, planes: 1, ..dims(0) };
        let mut world = World::new(dim, 12, |geometry| ScriptedMedium::ram(geometry, 8, ()));
        let mut run = world.power_on(LONG).unwrap();
        let most = run.target.shape().max_value;
        for number in 0..2 {
            let key = world.name(number);
            run.put(&mut world, &key, 5000, PutIf::Any, false);
            run.put(&mut world, &key, most, PutIf::Any, true);
            run.drain(&mut world);
        }
        assert_eq!(world.seen["writes"], 4, "{groups}");
        world.check(&mut run);
        world.power_off(run);
        let mut run = world.power_on(LONG).unwrap();
        world.check(&mut run);
    }
}

/// What counts on flash is found again exactly; without deletes nothing else does.
#[test]
fn a_start_counts_what_was_counted() {
    for rows in [4, 1 << 30] {
        let mut world = small(7);
        world.config.checkpoint_rows = rows;
        let mut run = world.power_on(LONG).unwrap();
        for number in 0..1500u64 {
            let key = world.name(number % 37);
            let len = world.random.below(if number.is_multiple_of(4) { 60_000 } else { 900 });
            run.put(&mut world, &key, len, PutIf::Any, false);
            if number.is_multiple_of(8) {
                run.drain(&mut world);
            }
            while !run.has_room(&world) {
                run.step(&mut world);
            }
        }
        run.drain(&mut world);
        run.flush(&mut world);
        run.drain(&mut world);
        let before = (run.target.entries(), run.target.stored());
        world.power_off(run);
        let mut run = world.power_on(LONG).unwrap();
        let found = (run.target.entries(), run.target.stored());
        let (_, (checkpoints, _)) = before;
        assert_eq!(found.0, before.0);
        assert!(checkpoints.abs_diff(found.1.0) <= 32, "{before:?}, {found:?}");
        world.check(&mut run);
        world.power_off(run);
    }
}

/// The same requests give the same drive.
#[test]
fn runs_repeat() {
    let run = || {
        let mut world = small(9);
        let mut run = world.power_on(LONG).unwrap();
        run.work(&mut world, 2000);
        run.drain(&mut world);
        (run.now, run.target.counters(), run.target.stored())
    };
    assert_eq!(run(), run());
}

/// A damaged record is its key's error; a row that recovery needs, the start's.
#[test]
fn damage_is_an_error() {
    let faulty = |geometry: &Geometry| {
        let ram = RamMedium::new(geometry, 8).unwrap();
        ScriptedMedium::new(FaultyMedium::new(geometry, ram, &[], 1).unwrap(), ())
    };
    for checkpoint in [true, false] {
        let mut world = World::new(dims(0), 3, faulty);
        world.config.checkpoint_rows = 1 << 20;
        let mut run = world.power_on(LONG).unwrap();
        let keys: Vec<Vec<u8>> = (0..40).map(|number| world.name(number + 1)).collect();
        for key in &keys {
            run.put(&mut world, key, 5000, PutIf::Any, true);
            run.drain(&mut world);
        }
        if checkpoint {
            run.target.request_checkpoint();
            run.flush(&mut world);
            run.drain(&mut world);
        }
        world.power_off(run);
        // The first chunk that was written has the first row.
        let unit = world.geometry.pus_channels_first().next().unwrap();
        let first = (0..world.geometry.chunks())
            .map(|number| world.geometry.chunk_of(unit, number))
            .find(|&chunk| world.chunks[chunk].programmed > 0)
            .unwrap();
        let first = world.geometry.chunk_start(first).0;
        let trigger = Trigger { span: Some(Span::Ppa(first..first + 1)), ..Trigger::default() };
        let fault = MediumFault::Fail { on: Access::Read, permanent: false };
        let rules = [MediumRule { fault, trigger }];
        type Faulty = FaultyMedium<RamMedium>;
        let below = world.medium().below_as::<ScriptedMedium>();
        below.below_as::<Faulty>().set_rules(&rules, 5).unwrap();
        match world.try_power_on(LONG) {
            Ok(Some(mut run)) => {
                assert!(checkpoint);
                let mut ask = |op, key: &[u8]| run.ask(&mut world, op, key, 8192).status;
                assert_eq!(ask(KvOp::Get, &keys[0]), Status::KEY_UNRECOVERED);
                assert_eq!(ask(KvOp::List, &[]), Status::KEY_UNRECOVERED);
                assert!(keys[1..].iter().all(|key| ask(KvOp::Get, key).is_ok()));
                run.put(&mut world, &keys[0], 10, PutIf::Any, true);
                run.drain(&mut world);
                world.check(&mut run);
            }
            Err(KvError::Damaged { ppa, .. }) => assert!(!checkpoint && ppa.0 == first),
            other => panic!("{:?}", other.map(|_| ())),
        }
    }
}

/// A large value whose record cannot be read in one start is there in the next, whatever
/// is put and deleted between.
#[test]
fn a_value_outlives_a_start_that_cannot_read_its_record() {
    let faulty = |geometry: &Geometry| {
        let ram = RamMedium::new(geometry, 4096).unwrap();
        ScriptedMedium::new(FaultyMedium::new(geometry, ram, &[], 1).unwrap(), ())
    };
    let mut world = World::new(dims(0), 13, faulty);
    world.config.checkpoint_rows = 1 << 20;
    let mut run = world.power_on(LONG).unwrap();
    let key = world.name(1);
    run.put(&mut world, &key, 60_000, PutIf::Any, true);
    run.drain(&mut world);
    // Rows behind it, whose tags say what its chunk is for.
    for number in 10..50 {
        let small = world.name(number);
        run.put(&mut world, &small, 10, PutIf::Any, true);
        run.drain(&mut world);
    }
    run.target.request_checkpoint();
    run.flush(&mut world);
    run.drain(&mut world);
    world.power_off(run);
    let unit = world.geometry.pus_channels_first().next().unwrap();
    // Its record is the first of a chunk: that whose damage is its key's.
    let rules = |first: u64| {
        let trigger = Trigger { span: Some(Span::Ppa(first..first + 1)), ..Trigger::default() };
        let fault = MediumFault::Fail { on: Access::Read, permanent: false };
        vec![MediumRule { fault, trigger }]
    };
    let set = |world: &mut World, rules: &[MediumRule]| {
        let below = world.medium().below_as::<ScriptedMedium>();
        below.below_as::<FaultyMedium<RamMedium>>().set_rules(rules, 5).unwrap();
    };
    let mut tried = 0;
    for number in 0..world.geometry.chunks() {
        let chunk = world.geometry.chunk_of(unit, number);
        if world.chunks[chunk].programmed == 0 {
            continue;
        }
        let first = world.geometry.chunk_start(chunk).0;
        set(&mut world, &rules(first));
        let Ok(Some(mut run)) = world.try_power_on(LONG) else {
            continue;
        };
        let done = run.ask(&mut world, KvOp::Exists, &key, 0);
        if done.status == Status::KEY_UNRECOVERED {
            tried += 1;
            for number in 0..400 {
                let other = world.name(2 + number % 5);
                run.put(&mut world, &other, 60_000, PutIf::Any, false);
                run.drain(&mut world);
            }
            let status = run.ask(&mut world, KvOp::Get, &key, 60_000).status;
            assert_eq!(status, Status::KEY_UNRECOVERED);
        }
        world.power_off(run);
        if tried > 0 {
            break;
        }
    }
    assert_eq!(tried, 1, "its record was not found");
    set(&mut world, &[]);
    let mut run = world.power_on(LONG).unwrap();
    world.check(&mut run);
    let done = run.ask(&mut world, KvOp::Get, &key, 60_000);
    assert!(done.status.is_ok() && done.len == 60_000);
}

/// What cannot be served is refused by name.
#[test]
fn set_ups_are_checked() {
    let geometry = Geometry::new(dims(0)).unwrap();
    let config = KvConfig::for_geometry(&geometry);
    let open = |timing: &Timing, config: KvConfig| {
        let medium = RamMedium::new(&geometry, 8).unwrap();
        Kv::new(Device::new(&geometry, timing, medium).unwrap(), config).err()
    };
    let timing = Timing::default();
    assert!(open(&timing, config).is_none());
    assert!(matches!(
        open(&Timing { unreadable: 8, ..timing.clone() }, config),
        Some(KvError::Unreadable(8))
    ));
    assert!(matches!(
        open(&Timing { open_chunks: 100, ..timing.clone() }, config),
        Some(KvError::OpenChunks)
    ));
    for wrong in [
        KvConfig { keys: 0, ..config },
        KvConfig { depth: 0, ..config },
        KvConfig { spare: 0.95, ..config },
        KvConfig { checkpoint_rows: 1, ..config },
    ] {
        assert!(matches!(open(&timing, wrong), Some(KvError::Range { .. })), "{wrong:?}");
    }
    let many = KvConfig { keys: 1 << 20, ..config };
    assert!(matches!(open(&timing, many), Some(KvError::TooSmall { .. })));
    // Another seed finds no keys; it is an error.
    let mut world = small(4);
    let mut run = world.power_on(LONG).unwrap();
    run.put(&mut world, b"a", 5, PutIf::Any, true);
    run.drain(&mut world);
    world.power_off(run);
    world.config.seed = 77;
    assert!(matches!(world.try_power_on(LONG), Err(KvError::Seed { found: 0, given: 77 })));
}

/// Each promise that is broken is found.
#[cfg(feature = "mutations")]
#[test]
fn what_is_broken_is_found() {
    use targets::kv::mutation::{Mutation, set};
    // Listings are asked for among writes, and how much room there must be, by the simulator's
    // lives alone.
    let others = [Mutation::SkipMoved, Mutation::KeepRows];
    for mutation in Mutation::ALL.into_iter().filter(|one| !others.contains(one)) {
        // These show once in thousands of lives.
        let from = match mutation {
            Mutation::Unsettled => 13_800,
            Mutation::ForgetDeleted => 7_950,
            _ => 0,
        };
        let breaks = |seed: &u64| {
            set(Some(mutation));
            let mut world = world(*seed);
            let broken = catch_unwind(AssertUnwindSafe(|| cuts(&mut world, 12))).is_err();
            set(None);
            broken
        };
        let seed =
            (from..from + 400).find(breaks).unwrap_or_else(|| panic!("{mutation:?} is not found"));
        println!("{mutation:?}: seed {seed}");
        cuts(&mut world(seed), 12);
    }
}
