use std::cmp::Reverse;
use std::collections::BinaryHeap;

use proptest::prelude::*;

use super::*;
use crate::config::Merge;
use crate::scheduler::SchedulerKind;
use crate::staging::{Staging, StagingOptions};
use port::{Buffer, Shape, Time};

fn staging(scheduler: SchedulerKind, cores: usize) -> Staging {
    let shape = Shape { bytes: 1 << 30, kept: 0, max_bytes: 1 << 20, depth: 8 };
    let (depth, merge, merge_idle, plug) = (512, Merge::Off, false, None);
    Staging::new(&StagingOptions {
        depth,
        scheduler,
        merge,
        merge_idle,
        plug,
        cores,
        ways: Vec::new(),
        shared: false,
        shape,
    })
    .unwrap()
}

fn fair(weights: &[u32]) -> Staging {
    let options = FairOptions { weights: weights.to_vec() };
    staging(SchedulerKind::Fair(options), weights.len())
}

fn read(id: u64, blocks: u64) -> BlockReq {
    BlockReq::new(id, BlockOp::Read, 0, blocks * BLOCK_BYTES, Buffer::empty())
}

#[test]
fn a_request_costs_its_blocks_and_never_nothing() {
    assert_eq!(cost(&read(0, 3)), 3);
    assert_eq!(cost(&BlockReq { len: 4097, ..read(0, 0) }), 2);
    assert_eq!(cost(&BlockReq { len: u64::MAX, ..read(0, 0) }), MOST_COST);
    assert_eq!(cost(&read(0, 0)), 1);
    assert_eq!(cost(&BlockReq { op: BlockOp::Trim, ..read(0, 1000) }), 1);
}

#[test]
fn an_idle_core_has_saved_up_nothing_and_goes_soon() {
    let mut s = fair(&[1, 1]);
    for _ in 0..200 {
        s.insert(Time(0), 0, true, read(0, 1));
    }
    for _ in 0..100 {
        assert_eq!(s.next(Time(0), 0).unwrap().from, 0);
    }
    for _ in 0..100 {
        s.insert(Time(0), 1, true, read(1, 1));
    }
    let turns: Vec<u32> = std::iter::from_fn(|| s.next(Time(0), 0)).map(|out| out.from).collect();
    assert_eq!(turns[..4], [1, 0, 1, 0]);
    let first: u32 = turns[..100].iter().sum();
    assert_eq!(first, 50, "no more than its share");
}

#[test]
fn setting_virtual_time_back_changes_nothing() {
    let order = |start: u64| {
        let options = FairOptions { weights: vec![3, 5, 7] };
        let (mut fair, mut table) = (Fair::new(&options, 4000, 3).unwrap(), Table::new(4000));
        fair.now = start;
        let (mut order, mut back) = (Vec::new(), false);
        for i in 0..4000u64 {
            // By turns, requests pile up and all of them go out.
            if i % 80 < 40 {
                let slot = table.take_as_is();
                table[slot].out.req = read(i, i % 4);
                fair.push(slot, (i * i % 7 % 3) as u32);
            } else {
                let slot = fair.pop(&table).expect("as many as came");
                order.push(table[slot].out.req.id);
            }
            back |= fair.now < start;
        }
        (order, back)
    };
    let (plain, set_back) = (order(0), order(SET_BACK - 100 * UNIT));
    assert_eq!((plain.1, set_back.1), (false, true));
    assert_eq!(plain.0, set_back.0);
}

/// Cores that keep so many requests each outside, over 8 servers of 20 us
/// behind 8 tags, in virtual time. Gives each core's latencies. A core waits
/// for `think` before it sends the next.
fn simulate(mut s: Staging, depths: &[u64], think: &[u64], until: u64) -> Vec<Vec<u64>> {
    const SERVERS: usize = 8;
    const SERVICE: u64 = 20_000;
    let mut latencies = vec![Vec::new(); depths.len()];
    // Who completes, or submits, when.
    let mut completions: BinaryHeap<Reverse<(u64, u32, u64)>> = BinaryHeap::new();
    let mut arrivals: BinaryHeap<Reverse<(u64, u32)>> = BinaryHeap::new();
    for (core, &depth) in depths.iter().enumerate() {
        // Not all at once: servers are out of step.
        arrivals.extend((0..depth).map(|i| Reverse((i * 2_357, core as u32))));
    }
    loop {
        let next =
            [completions.peek().map(|Reverse(c)| c.0), arrivals.peek().map(|Reverse(a)| a.0)];
        let now = next.into_iter().flatten().min().expect("a closed loop never ends");
        if now > until {
            return latencies;
        }
        while completions.peek().is_some_and(|Reverse(c)| c.0 == now)
            && let Some(Reverse((_, core, submitted))) = completions.pop()
        {
            latencies[core as usize].push(now - submitted);
            arrivals.push(Reverse((now + think[core as usize], core)));
        }
        while arrivals.peek().is_some_and(|Reverse(a)| a.0 == now)
            && let Some(Reverse((_, core))) = arrivals.pop()
        {
            s.insert(Time(now), core, completions.len() == SERVERS, read(0, 1));
        }
        while completions.len() < SERVERS
            && let Some(out) = s.next(Time(now), 0)
        {
            completions.push(Reverse((now + SERVICE, out.from, out.submitted.0)));
        }
    }
}

fn p99(latencies: &[u64]) -> u64 {
    let mut sorted = latencies.to_vec();
    sorted.sort_unstable();
    sorted[sorted.len() * 99 / 100]
}

const RUN: u64 = 200_000_000;

#[test]
fn a_small_core_beside_a_large_one_waits_at_most_twice_as_long() {
    for think in [0, 7_000] {
        let alone = simulate(fair(&[1]), &[1], &[think], RUN);
        assert_eq!(p99(&alone[0]), 20_000);
        let both = simulate(fair(&[1, 1]), &[128, 1], &[0, think], RUN);
        assert!(p99(&both[1]) <= 40_000, "{}", p99(&both[1]));
        assert!(both[0].len() + both[1].len() >= 79_900, "the servers are kept busy");
        // What it would be without.
        let none = simulate(staging(SchedulerKind::None, 2), &[128, 1], &[0, think], RUN);
        assert!(p99(&none[1]) > 300_000, "{}", p99(&none[1]));
    }
}

#[test]
fn shares_are_as_the_weights() {
    for (weights, depths) in [([1, 4], [128, 128]), ([4, 1], [128, 128]), ([1, 9], [200, 100])] {
        let got = simulate(fair(&weights), &depths, &[0, 0], RUN);
        let share = got[1].len() as f64 / got[0].len() as f64;
        let expected = f64::from(weights[1]) / f64::from(weights[0]);
        assert!((share / expected - 1.0).abs() < 0.01, "{share} for {expected}");
    }
}

proptest! {
    /// While cores have requests staged all the time, what two of them got,
    /// by weight, never drifts by more than a request of each.
    #[test]
    fn backlogged_cores_get_their_shares(
        weights in prop::collection::vec(1u32..=1000, 2..6),
        sizes in prop::collection::vec(1u64..17, 50..400),
    ) {
        let mut s = fair(&weights);
        let mut size = sizes.iter().copied().cycle();
        for core in 0..weights.len() {
            (0..3).for_each(|_| s.insert(Time(0), core as u32, true, read(0, size.next().unwrap())));
        }
        let mut got = vec![0.0; weights.len()];
        let mut drift = vec![vec![(0.0f64, 0.0f64); weights.len()]; weights.len()];
        for _ in 0..5 * sizes.len() {
            let out = s.next(Time(0), 0).unwrap();
            let core = out.from as usize;
            got[core] += (out.req.len / BLOCK_BYTES) as f64 / f64::from(weights[core]);
            s.insert(Time(0), out.from, true, read(0, size.next().unwrap()));
            for other in 0..weights.len() {
                let (a, b) = (core.min(other), core.max(other));
                let (least, most) = &mut drift[a][b];
                *least = least.min(got[a] - got[b]);
                *most = most.max(got[a] - got[b]);
                let one = 16.0 / f64::from(weights[a]) + 16.0 / f64::from(weights[b]);
                // The weights are rounded off to a thousandth at most.
                let rounding = 1e-3 * (got[a] + got[b]);
                prop_assert!(*most - *least <= one + rounding, "{a} {b}: {drift:?}");
            }
        }
    }

    /// The same requests come out, each core's in order.
    #[test]
    fn each_core_keeps_its_order(steps in prop::collection::vec((any::<bool>(), 0u32..4), 1..300)) {
        let mut s = fair(&[1, 2, 3, 4]);
        let (mut went_in, mut came_out) = (vec![Vec::new(); 4], vec![Vec::new(); 4]);
        for (id, (insert, core)) in steps.into_iter().enumerate() {
            if insert {
                went_in[core as usize].push(id as u64);
                s.insert(Time(0), core, true, read(id as u64, 1 + u64::from(core)));
            } else if let Some(out) = s.next(Time(0), 0) {
                came_out[out.from as usize].push(out.req.id);
            }
        }
        while let Some(out) = s.next(Time(0), 0) {
            came_out[out.from as usize].push(out.req.id);
        }
        prop_assert_eq!(went_in, came_out);
    }
}
