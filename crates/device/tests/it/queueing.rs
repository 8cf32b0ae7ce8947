//! Waiting in closed loops, against what theory knows of them: reads at random over
//! dies against a model of a few lines that shares nothing with the drive, and
//! between the bounds of closed networks; a core, and the memory of a buffer, with a
//! delay against their exact solution. The waiting for these with arrivals at random,
//! M/D/1, is in `controller.rs` and `buffer.rs`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::common::{cmd, geometry, written};
use device::{BufferMemory, Buffered, Link, LinkTiming, VectorCmd, VectorDone, VectorOp};
use flash::{Geometry, Timing};
use port::random::Random;
use port::{Port, Ring, Time};

/// Reads that a loop completes.
const READS: u64 = 60_000;
/// What one takes of its die, ns.
const SENSE: u64 = 50_000;

/// `depth` reads in a closed loop, each of a die at random. Mean latency, in ns.
fn closed_loop<P>(mut port: P, g: &Geometry, depth: u64, reads: u64) -> f64
where
    P: Port<Cmd = VectorCmd, Done = VectorDone>,
{
    let (mut rng, mut queue, mut done) = (Random::new(1, 0), Ring::new(64), Ring::new(64));
    let pus: Vec<usize> = g.pus_channels_first().collect();
    let mut read = || {
        let pu = pus[rng.below(pus.len() as u64) as usize];
        cmd(0, VectorOp::Read, g.chunk_start(g.chunk_of(pu, 0)), 1)
    };
    (0..depth).for_each(|_| queue.push(read()).unwrap());
    port.submit(Time::ZERO, &mut queue);
    let (mut now, mut ended) = (Time::ZERO, 0);
    while ended < reads {
        now = port.next_event().expect("a loop goes on");
        port.advance(now, &mut done);
        for completion in done.drain() {
            assert!(completion.status.is_ok());
            ended += 1;
            queue.push(read()).unwrap();
        }
        port.submit(now, &mut queue);
        assert!(queue.is_empty());
    }
    // Little: so many were inside all the time.
    now.0 as f64 * depth as f64 / ended as f64
}

/// The same by itself: who comes to a die is done one service after all before.
fn modelled(dies: u64, depth: u64) -> f64 {
    let (mut rng, mut free) = (Random::new(2, 0), vec![0; dies as usize]);
    let mut ends: BinaryHeap<Reverse<u64>> = (0..depth).map(|_| Reverse(0)).collect();
    let mut now = 0;
    for _ in 0..READS + depth {
        now = ends.pop().unwrap().0;
        let die = &mut free[rng.below(dies) as usize];
        *die = now.max(*die) + SENSE;
        ends.push(Reverse(*die));
    }
    now as f64 * depth as f64 / READS as f64
}

#[test]
fn reads_at_random_wait_as_a_closed_network_of_dies() {
    let t = Timing { read: vec![SENSE], ..Timing::default() };
    for (groups, pus) in [(1, 1), (2, 2), (4, 4), (8, 4)] {
        let (g, dies) = (geometry(groups, pus, 1), u64::from(groups * pus));
        for depth in [1, 4, 16, 64] {
            let mean = closed_loop(written(&g, &t).port, &g, depth, READS);
            let model = modelled(dies, depth);
            assert!((mean / model - 1.0).abs() < 0.02, "{dies}, {depth}: {mean} for {model}");
            // No die is ever faster than its service; and services that do not vary
            // are no later than those of the exponential kind, whose mean value
            // analysis of n dies alike is exact: a service for each n of those ahead.
            let (sense, ahead) = (SENSE as f64, (depth - 1) as f64);
            let least = sense * (depth as f64 / dies as f64).max(1.0);
            let most = sense * (1.0 + ahead / dies as f64);
            let bounds = 0.999 * least..=1.02 * most;
            assert!(bounds.contains(&mean), "{dies}, {depth}: {mean} not in {bounds:?}");
        }
    }
}

/// One core that takes w, and z beside it, of a loop of m: max(w + z, m w), exactly.
#[test]
fn a_core_and_a_delay_are_as_the_bounds_say() {
    let g = geometry(1, 1, 1);
    let (work, beside) = (2_000, 10_000);
    let link =
        LinkTiming { cores: 1, core_read: work, latency: beside / 2, ..LinkTiming::default() };
    for depth in [1, 3, 6, 7, 20, 64] {
        let port = Link::new(link, written(&g, &Timing::default()).port);
        let mean = closed_loop(port, &g, depth, 20_000);
        let exact = (work + beside).max(depth * work) as f64;
        assert!((mean / exact - 1.0).abs() < 0.005, "{depth}: {mean} for {exact}");
    }
}

/// The same of a memory that moves a block in w: once in each read's way.
#[test]
fn a_buffer_and_a_delay_are_as_the_bounds_say() {
    let g = geometry(1, 1, 1);
    let (moves, beside) = (2_000, 10_000);
    let link = LinkTiming { latency: beside / 2, ..LinkTiming::default() };
    for depth in [1, 3, 6, 7, 20, 64] {
        let memory = BufferMemory::new(4096 * 1_000_000_000 / moves);
        let flash = Buffered::new(memory, written(&g, &Timing::default()).port);
        let mean = closed_loop(Link::new(link, flash), &g, depth, 20_000);
        let exact = (moves + beside).max(depth * moves) as f64;
        assert!((mean / exact - 1.0).abs() < 0.005, "{depth}: {mean} for {exact}");
    }
}
