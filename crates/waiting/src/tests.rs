//! Strategies in virtual time: the same to the bit in every run.

use super::sim::{BAD, Core, GOOD, Sim};
use super::*;

/// What a run came to.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    /// Requests a second.
    iops: f64,
    /// Share of the time that the core was used.
    cpu: f64,
}

/// Bursts of `burst` requests, `pause` ns apart; the i-th request of all takes
/// `takes(i, random)`.
struct Bench<'a> {
    burst: u64,
    pause: u64,
    takes: &'a dyn Fn(u64, u64) -> u64,
}

impl<'a> Bench<'a> {
    fn lone(takes: &'a dyn Fn(u64, u64) -> u64) -> Bench<'a> {
        Bench { burst: 1, pause: 0, takes }
    }

    /// Requests `first` to `first + count`.
    fn part(&self, sim: &mut Sim, waiter: &mut Waiter, first: u64, count: u64) -> Outcome {
        let (start, used) = (sim.time(), sim.cpu_used());
        let mut next = first;
        while next < first + count {
            for tag in 0..self.burst {
                let random = sim.next_random();
                sim.submit(waiter, tag, (self.takes)(next + tag, random));
            }
            let mut left = self.burst as usize;
            while left > 0 {
                assert!(waiter.wait(sim, None));
                left -= sim.reap(waiter);
            }
            next += self.burst;
            let until = Time(sim.time() + self.pause);
            assert!(self.pause == 0 || !waiter.wait(sim, Some(until)) && sim.time() >= until.0);
        }
        let took = (sim.time() - start) as f64;
        Outcome { iops: count as f64 * 1e9 / took, cpu: (sim.cpu_used() - used) as f64 / took }
    }

    fn run(&self, core: Core, strategy: Strategy, count: u64) -> Outcome {
        let (mut sim, mut waiter) = (Sim::new(core), Waiter::new(strategy, 64));
        self.part(&mut sim, &mut waiter, 0, count)
    }

    /// IOPS beside polling, and the rest.
    fn beside_poll(&self, core: Core, strategy: Strategy, count: u64) -> Outcome {
        let poll = self.run(core, Strategy::Poll, count);
        let run = self.run(core, strategy, count);
        Outcome { iops: run.iops / poll.iops, ..run }
    }
}

/// Always the same.
fn steady(ns: u64) -> impl Fn(u64, u64) -> u64 {
    move |_, random| ns + random * ns / 100_000
}

#[test]
fn keeps_up_with_polling_and_sleeps_where_that_pays() {
    // Device time, core, IOPS at least, processor at most.
    let cases = [
        (5_000, GOOD, 0.99, 1.0),
        (10_000, GOOD, 0.99, 1.0),
        (20_000, GOOD, 0.985, 0.5),
        (80_000, GOOD, 0.99, 0.12),
        (20_000, BAD, 0.99, 1.0),
        (80_000, BAD, 0.99, 0.5),
        (400_000, BAD, 0.99, 0.15),
    ];
    for (ns, core, iops, cpu) in cases {
        let takes = steady(ns);
        let run = Bench::lone(&takes).beside_poll(core, Strategy::Adaptive, 1_500);
        assert!(run.iops >= iops && run.cpu <= cpu, "{ns} {core:?}: {run:?}");
    }
}

#[test]
fn beats_the_others() {
    for (ns, core) in [(20_000, GOOD), (80_000, GOOD), (80_000, BAD), (400_000, BAD)] {
        let takes = steady(ns);
        let bench = Bench::lone(&takes);
        let [_, interrupt, hybrid, adaptive] =
            Strategy::ALL.map(|strategy| bench.beside_poll(core, strategy, 500));
        assert!(adaptive.iops > interrupt.iops, "{ns} {core:?}: {adaptive:?} {interrupt:?}");
        assert!(
            adaptive.iops > hybrid.iops - 0.006 && adaptive.cpu <= hybrid.cpu,
            "{ns} {core:?}: {adaptive:?} {hybrid:?}"
        );
    }
}

#[test]
fn a_long_request_costs_nothing_and_is_woken_for() {
    let takes = steady(20_000_000);
    let run = Bench::lone(&takes).beside_poll(BAD, Strategy::Adaptive, 48);
    assert!(run.iops >= 0.99 && run.cpu < 0.04, "{run:?}");
}

#[test]
fn learns_in_a_few_requests() {
    let takes = steady(80_000);
    let (mut sim, mut waiter) = (Sim::new(GOOD), Waiter::new(Strategy::Adaptive, 1));
    let bench = Bench::lone(&takes);
    bench.part(&mut sim, &mut waiter, 0, 16);
    let run = bench.part(&mut sim, &mut waiter, 16, 16);
    assert!(run.cpu < 0.25, "{run:?}");
}

#[test]
fn a_device_that_becomes_faster_is_followed_at_once() {
    let takes = |i, _| if i < 1000 { 80_000 } else { 20_000 };
    let bench = Bench::lone(&takes);
    let (mut sim, mut waiter) = (Sim::new(GOOD), Waiter::new(Strategy::Adaptive, 1));
    bench.part(&mut sim, &mut waiter, 0, 1000);
    let start = sim.time();
    bench.part(&mut sim, &mut waiter, 1000, 10);
    // One request is waited for as long as before, or two.
    assert!(sim.time() - start < 10 * 20_500 + 2 * 66_000, "{}", sim.time() - start);
    let run = bench.part(&mut sim, &mut waiter, 1010, 2000);
    assert!(run.iops > 0.98e9 / 20_300.0 && run.cpu < 0.7, "{run:?}");
}

#[test]
fn a_device_that_becomes_slower_is_slept_for_soon() {
    let takes = |i, _| if i < 1000 { 20_000 } else { 200_000 };
    let bench = Bench::lone(&takes);
    let (mut sim, mut waiter) = (Sim::new(GOOD), Waiter::new(Strategy::Adaptive, 1));
    bench.part(&mut sim, &mut waiter, 0, 1020);
    let soon = bench.part(&mut sim, &mut waiter, 1020, 20);
    assert!(soon.cpu < 0.35 && soon.iops > 0.98e9 / 200_300.0, "{soon:?}");
    bench.part(&mut sim, &mut waiter, 1040, 100);
    let run = bench.part(&mut sim, &mut waiter, 1140, 1000);
    assert!(run.cpu < 0.08 && run.iops > 0.99e9 / 200_300.0, "{run:?}");
}

#[test]
fn a_core_that_wakes_up_later_or_sooner_is_followed() {
    let takes = steady(80_000);
    let bench = Bench::lone(&takes);
    let (mut sim, mut waiter) = (Sim::new(GOOD), Waiter::new(Strategy::Adaptive, 1));
    bench.part(&mut sim, &mut waiter, 0, 1000);
    sim.core = BAD;
    bench.part(&mut sim, &mut waiter, 1000, 200);
    let bad = bench.part(&mut sim, &mut waiter, 1200, 2000);
    assert!(bad.iops > 0.985e9 / 80_700.0 && bad.cpu < 0.6, "{bad:?}");
    sim.core = GOOD;
    bench.part(&mut sim, &mut waiter, 3200, 4000);
    let good = bench.part(&mut sim, &mut waiter, 7200, 2000);
    assert!(good.cpu < 0.2, "{good:?}");
}

#[test]
fn two_heaps_of_times_are_both_met() {
    let takes = |_, random| if random < 500 { 20_000 } else { 300_000 + random * 5 };
    let run = Bench::lone(&takes).beside_poll(BAD, Strategy::Adaptive, 1_500);
    assert!(run.iops > 0.985 && run.cpu < 0.5, "{run:?}");
}

#[test]
fn spread_out_times_are_met_as_well() {
    let takes = |_, random: u64| 50_000 + random * random / 2;
    let run = Bench::lone(&takes).beside_poll(GOOD, Strategy::Adaptive, 1_500);
    assert!(run.iops > 0.985 && run.cpu < 0.9, "{run:?}");
}

#[test]
fn a_burst_is_not_slept_through() {
    // Sixteen at a time, all at once or one after the other.
    let together = |_, _| 80_000u64;
    let in_turn = |i: u64, _: u64| 80_000 + i % 16 * 30_000;
    for (takes, cpu) in [(&together as &dyn Fn(u64, u64) -> u64, 0.2), (&in_turn, 0.5)] {
        let bench = Bench { burst: 16, pause: 200_000, takes };
        let run = bench.beside_poll(GOOD, Strategy::Adaptive, 3_200);
        assert!(run.iops > 0.985 && run.cpu < cpu, "{run:?}");
    }
}

#[test]
fn without_times_from_the_device_nothing_drifts() {
    let (mut sim, mut waiter) = (Sim::new(GOOD), Waiter::new(Strategy::Adaptive, 1));
    let start = sim.time();
    for _ in 0..2000 {
        sim.submit(&mut waiter, 0, 80_000);
        assert!(waiter.wait(&mut sim, None));
        sim.reap_untold(&mut waiter);
    }
    let each = (sim.time() - start) / 2000;
    assert!(each < 82_000 && sim.cpu_used() * 3 < sim.time(), "{each}");
}
