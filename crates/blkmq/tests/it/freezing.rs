//! A layer that is frozen: nothing goes in, and all that is inside ends.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::common::{Faults, topology};
use crate::layer::{config, device};
use blkmq::driver::timed::{Timed, TimedOptions};
use blkmq::{Config, Context, HardwareQueue, Merge, Monitor, SchedulerKind, Spread, build};
use port::{BlockOp, BlockReq, Buffer, Port, Ring, Time};
use proptest::prelude::*;
use workload::Rng;

fn read(id: u64, block: u64) -> BlockReq {
    BlockReq::new(id, BlockOp::Read, block * 4096, 4096, Buffer::empty())
}

/// Offers a read to each core. Gives how many were taken.
fn offer<Q: HardwareQueue>(contexts: &mut [Context<Q>], now: Time, rng: &mut Rng) -> usize {
    let mut reqs = Ring::new(1);
    let mut taken = 0;
    for context in contexts {
        reqs.put(|| read(1, rng.below(64)));
        context.submit(now, &mut reqs);
        taken += 1 - reqs.len();
        reqs.drain().for_each(drop);
    }
    taken
}

/// Goes on to the next event. Gives how many completed.
fn step<Q: HardwareQueue>(contexts: &mut [Context<Q>], now: &mut Time) -> usize {
    let next = contexts.iter().filter_map(Port::next_event).min();
    *now = next.map_or(*now, |at| at.max(*now));
    let mut done = Ring::new(4);
    let mut completed = 0;
    for context in contexts {
        context.advance(*now, &mut done);
        completed += done.drain().count();
    }
    completed
}

fn is_empty(monitor: &Monitor) -> bool {
    let idle = monitor.dispatch().iter().all(|queue| queue.in_flight == 0);
    idle && monitor.staging().iter().all(|queue| queue.queued == 0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn nothing_goes_in_until_it_thaws_and_all_that_is_inside_ends(
        config in config(), device in device(Faults::default()),
    ) {
        let (mut rng, mut now) = (Rng::new(device.seed, 3), Time::ZERO);
        let (mut contexts, monitor) = build(&config, device).unwrap();
        let (mut taken, mut completed) = (0, 0);
        for round in 0..8 {
            for _ in 0..rng.below(12) {
                taken += offer(&mut contexts, now, &mut rng);
                completed += step(&mut contexts, &mut now);
            }
            let frozen = contexts[round % contexts.len()].freezer().freeze();
            let also = contexts[0].freezer().freeze();
            prop_assert!(!frozen.is_drained(), "no core has looked");
            let mut steps = 0;
            while !frozen.is_drained() {
                prop_assert_eq!(offer(&mut contexts, now, &mut rng), 0);
                completed += step(&mut contexts, &mut now);
                steps += 1;
                prop_assert!(steps < 10_000, "it does not end");
            }
            drop(frozen);
            prop_assert_eq!(offer(&mut contexts, now, &mut rng), 0);
            prop_assert!(is_empty(&monitor) && also.is_drained());
            prop_assert_eq!(taken, completed);
            prop_assert!(!contexts.iter().any(Context::has_room_again));
            drop(also);
            prop_assert!(contexts.iter().all(Context::has_room_again));
        }
        prop_assert!(offer(&mut contexts, now, &mut rng) > 0);
    }
}

/// Threads that go on all the time, one of which leaves; and one that freezes
/// them, again and again.
fn with_threads(staging: Spread, queues: usize, merge: Merge) {
    let options = TimedOptions { submit_queues: queues, hw_queue_depth: 4, ..Default::default() };
    let config = Config { staging, staging_depth: 8, merge, ..Config::new(topology(3, 1)) };
    let (contexts, monitor) = build(&config, Timed::new(options).unwrap()).unwrap();
    let freezer = contexts[0].freezer();
    let (stop, rounds) = (&AtomicBool::new(false), &AtomicU64::new(0));
    thread::scope(|scope| {
        for (core, mut context) in contexts.into_iter().enumerate() {
            scope.spawn(move || {
                let (mut reqs, mut done, mut now) = (Ring::new(4), Ring::new(16), Time::ZERO);
                while !stop.load(Ordering::Relaxed) {
                    if core == 2 && rounds.load(Ordering::Relaxed) == 20 {
                        return;
                    }
                    while reqs.room() > 0 {
                        reqs.put(|| read(core as u64, now.0 % 64));
                    }
                    now += 1000;
                    context.submit(now, &mut reqs);
                    if core == 0 && now.0 % 64_000 == 0 {
                        context.set_scheduler(&SchedulerKind::None).unwrap();
                    }
                    context.advance(now, &mut done);
                    assert!(done.drain().all(|one| one.id == core as u64), "its own");
                    thread::yield_now();
                }
            });
        }
        for round in 1..=40 {
            let frozen = freezer.freeze();
            while !frozen.is_drained() {
                thread::yield_now();
            }
            let dispatched = |monitor: &Monitor| -> u64 {
                monitor.dispatch().iter().map(|queue| queue.dispatched).sum()
            };
            let before = dispatched(&monitor);
            for _ in 0..20 {
                thread::yield_now();
                assert!(frozen.is_drained());
                assert_eq!(dispatched(&monitor), before, "nothing goes in");
            }
            // What a core that went had outside is nobody's account.
            assert!(round > 20 || is_empty(&monitor));
            rounds.store(round, Ordering::Relaxed);
            drop(frozen);
            while dispatched(&monitor) == before {
                thread::yield_now();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn threads_drain_whatever_they_share() {
    for (staging, queues) in
        [(Spread::PerCore, 3), (Spread::PerCore, 1), (Spread::One, 3), (Spread::One, 1)]
    {
        with_threads(staging, queues, Merge::Off);
    }
    with_threads(Spread::One, 1, Merge::Full);
}
