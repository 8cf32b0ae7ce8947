//! Fairness between two cores that share a device of 8 servers of 20 us behind
//! 8 tags, in virtual time, over the whole layer.

use blkmq::driver::timed::{Timed, TimedOptions, TimedQueue};
use blkmq::scheduler::FairOptions;
use blkmq::{Config, Context, SchedulerKind, Spread, Topology, build};

use measure::Histogram;
use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Time};

const SERVICE: u64 = 20_000;

fn layer(scheduler: SchedulerKind) -> Vec<Context<TimedQueue>> {
    staged(Spread::One, scheduler)
}

fn staged(staging: Spread, scheduler: SchedulerKind) -> Vec<Context<TimedQueue>> {
    let options = TimedOptions {
        hw_queue_depth: 8,
        servers: Some(8),
        completion_nsec: SERVICE,
        ..TimedOptions::default()
    };
    let config = Config { staging, scheduler, ..Config::new(Topology::new(2, 1).unwrap()) };
    build(&config, Timed::new(options).unwrap()).unwrap().0
}

/// Keeps `depths` requests out at each core for `ns`; what each saw.
fn run(contexts: &mut [Context<TimedQueue>], depths: [u64; 2], ns: u64) -> [Histogram; 2] {
    let mut seen = [Histogram::new(), Histogram::new()];
    let mut reqs = Ring::new(256);
    let mut done: Ring<BlockDone> = Ring::new(256);
    let mut ask = |context: &mut Context<TimedQueue>, now: Time| {
        let req = BlockReq::new(now.0, BlockOp::Read, 0, 4096, Buffer::empty());
        reqs.push(req).unwrap();
        context.submit(now, &mut reqs);
        assert!(reqs.is_empty(), "it is staged");
    };
    // They do not begin at once, or the servers would march in step for ever.
    for turn in 0..depths[0].max(depths[1]) {
        for core in 0..2 {
            if turn < depths[core] {
                ask(&mut contexts[core], Time(turn * 300));
            }
        }
    }
    let mut now = Time(depths[0].max(depths[1]) * 300);
    while now.0 < ns {
        let next = contexts.iter().filter_map(Port::next_event).min().unwrap();
        now = now.max(next);
        for core in 0..2 {
            contexts[core].advance(now, &mut done);
            while let Some(one) = done.pop() {
                seen[core].record(now.since(Time(one.id)));
                ask(&mut contexts[core], now);
            }
        }
    }
    seen
}

fn fair(weights: &[u32]) -> SchedulerKind {
    SchedulerKind::Fair(FairOptions { weights: weights.into() })
}

#[test]
fn a_small_submitter_waits_little_beside_a_large_one() {
    let p99 = |seen: &Histogram| seen.percentile(99.0).unwrap() as f64;
    let alone = p99(&run(&mut layer(fair(&[])), [0, 1], 100_000_000)[1]);
    let beside = |scheduler| p99(&run(&mut layer(scheduler), [128, 1], 100_000_000)[1]);
    let (fair, none) = (beside(fair(&[])), beside(SchedulerKind::None));
    println!("p99 of the small one: alone {alone} ns, fair {fair} ns, none {none} ns");
    assert!(fair <= 2.0 * alone, "fair: {fair} ns, alone {alone} ns");
    assert!(none > 5.0 * alone, "without it there would be nothing to show: {none} ns");
}

#[test]
fn shares_are_by_weight() {
    for (weights, ratio) in [([1, 4], 4.0), ([1, 1], 1.0), ([3, 2], 2.0 / 3.0)] {
        let [a, b] = run(&mut layer(fair(&weights)), [128, 128], 400_000_000);
        let got = b.count() as f64 / a.count() as f64;
        println!("weights {weights:?}: {got:.4}");
        assert!((got / ratio - 1.0).abs() < 0.05, "{weights:?}: {got}, not {ratio}");
        // Nothing is left idle for it: 8 servers of 20 us.
        let total = (a.count() + b.count()) as f64;
        assert!(total > 0.99 * 8.0 * 400_000_000.0 / SERVICE as f64, "{total}");
    }
}

#[test]
fn staging_queues_share_the_tags_of_their_dispatch_queue() {
    let layer = || staged(Spread::PerCore, SchedulerKind::None);
    let [a, b] = run(&mut layer(), [128, 128], 100_000_000);
    let ratio = b.count() as f64 / a.count() as f64;
    assert!((ratio - 1.0).abs() < 0.05, "one has {ratio} times what the other has");
    let [large, small] = run(&mut layer(), [128, 1], 100_000_000);
    let p99 = small.percentile(99.0).unwrap();
    println!("separate staging queues: {ratio:.4}; p99 of the small one {p99} ns");
    assert!(p99 <= 2 * SERVICE, "{p99} ns");
    // What the small one does not want is the other's.
    let total = (large.count() + small.count()) as f64;
    assert!(total > 0.99 * 8.0 * 100_000_000.0 / SERVICE as f64, "{total}");
}
