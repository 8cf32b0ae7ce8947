//! Physics: write amplification against the formulas.
//!
//! Uniform random overwrites of the whole logical space, no trim, measured
//! once the drive has been overwritten long enough to be steady. One parallel
//! unit with many chunks, so that the two open ones weigh little; a medium
//! that keeps tags only; no time passes in the drive.
//!
//! T, the physical space of the formulas, is the chunks that hold data.
//!
//! A hundred million blocks are programmed, so this is for release builds
//! only: `cargo test --release -p ssdkit-targets --test it amplification`.

#![cfg(not(debug_assertions))]

use device::Device;
use faults::ScriptedMedium;
use flash::{Dimensions, Geometry, Timing};
use measure::formula;
use port::{BlockOp, BlockReq, Buffer, Port, Ring, Time};
use targets::{Pblk, PblkConfig, Victim, WriteCounters, with_reserve};

/// How far a drive may be from its formula.
const TOLERANCE: f64 = 0.02;

/// Requests written before they are completed.
const BATCH: u64 = 64;

struct Load {
    drive: Pblk<Device<ScriptedMedium>>,
    queue: Ring<BlockReq>,
    done: Ring<port::BlockDone>,
    blocks: u64,
    rng: u64,
}

impl Load {
    /// A drive of `chunks` chunks of `pages` blocks for data, of which `spare`
    /// is not addressed, filled once in order.
    fn new(victim: Victim, chunks: u32, pages: u32, spare: f64) -> Load {
        let dim = Dimensions { chunks, pages, ..Dimensions::LEAST };
        let geometry = Geometry::new(with_reserve(dim)).unwrap();
        let medium = ScriptedMedium::ram(&geometry, 0, ());
        let device = Device::new(&geometry, &Timing::default(), medium).unwrap();
        let blocks = (f64::from(chunks * pages) * (1.0 - spare)).round() as u64;
        let config = PblkConfig { victim, ..PblkConfig::new(blocks * 4096, chunks, 11) };
        let drive = Pblk::new(device, config).unwrap();
        let mut load = Load { drive, queue: Ring::new(64), done: Ring::new(1024), blocks, rng: 3 };
        let mut next = 0;
        while next < blocks {
            let end = blocks.min(next + BATCH);
            load.write((next..end).collect());
            next = end;
        }
        load
    }

    fn write(&mut self, blocks: Vec<u64>) {
        for block in blocks {
            let req = BlockReq::new(0, BlockOp::Write, block * 4096, 4096, Buffer::empty());
            self.queue.push(req).unwrap();
        }
        loop {
            self.drive.submit(Time::ZERO, &mut self.queue);
            if self.queue.is_empty() && self.drive.next_event().is_none() {
                return;
            }
            self.drive.advance(Time::ZERO, &mut self.done);
            self.done.drain().for_each(drop);
        }
    }

    /// Overwrites `count` blocks drawn at random, nine of ten of the first `hot` of all,
    /// and gives the write amplification meanwhile.
    fn overwrite(&mut self, count: u64, hot: f64) -> f64 {
        let before = self.drive.counters();
        let hot = (self.blocks as f64 * hot) as u64;
        for _ in 0..count.div_ceil(BATCH) {
            let mut below = |n: u64| {
                self.rng =
                    self.rng.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                ((u128::from(self.rng) * u128::from(n)) >> 64) as u64
            };
            let draw = |_| match hot {
                0 => below(self.blocks),
                _ if below(10) < 9 => below(hot),
                _ => hot + below(self.blocks - hot),
            };
            let batch = (0..BATCH).map(draw).collect();
            self.write(batch);
        }
        let after = self.drive.counters();
        let written = |c: WriteCounters| c.user + c.gc + c.padding;
        (written(after) - written(before)) as f64 / (after.user - before.user) as f64
    }
}

/// Write amplification when steady.
fn steady(victim: Victim, chunks: u32, pages: u32, spare: f64) -> f64 {
    let mut load = Load::new(victim, chunks, pages, spare);
    let space = u64::from(chunks * pages);
    load.overwrite(3 * space, 0.0);
    if victim != Victim::Random {
        return load.overwrite(space, 0.0);
    }
    // Random victims differ much: it takes many for a mean.
    load.overwrite((40_000.0 * f64::from(pages) * spare) as u64, 0.0)
}

fn chunks_of(pages: u32) -> u32 {
    if pages == 64 { 2048 } else { 1024 }
}

fn check_all(victim: Victim, expected: impl Fn(f64, u32) -> f64) {
    let mut wrong = Vec::new();
    for pages in [64, 256] {
        for spare in [0.07, 0.12, 0.20, 0.28, 0.50] {
            let found = steady(victim, chunks_of(pages), pages, spare);
            let expected = expected(spare, pages);
            let off = found / expected - 1.0;
            let percent = off * 100.0;
            println!("{victim:?} {pages} {spare}: {found:.4} for {expected:.4}, {percent:+.2} %");
            if off.abs() > TOLERANCE {
                wrong.push((pages, spare, found, expected));
            }
        }
    }
    assert!(wrong.is_empty(), "{victim:?}: pages, spare, found, formula: {wrong:?}");
}

#[test]
fn random_victims_follow_the_formula() {
    check_all(Victim::Random, |spare, _| formula::random(spare).unwrap());
}

#[test]
fn fifo_victims_follow_the_formula() {
    check_all(Victim::Fifo, |spare, _| formula::fifo(spare).unwrap());
}

#[test]
fn greedy_victims_follow_the_formula() {
    check_all(Victim::Greedy, |spare, pages| formula::greedy(spare, pages).unwrap());
}

#[test]
fn more_choices_are_better() {
    let at = |victim| steady(victim, 512, 64, 0.2);
    let mut last = at(Victim::Random);
    for d in [2, 4, 16] {
        let found = at(Victim::DChoices(d));
        assert!(found < last, "{d} choices: {found}, fewer: {last}");
        last = found;
    }
    let greedy = at(Victim::Greedy);
    assert!(greedy < last * 1.01, "greedy {greedy}, 16 choices {last}");
}

/// Of data that are all alike age says nothing, and costs little. Of hot and cold data it
/// says most: a chunk of cold ones is worth its move before it is as empty as greedy wants.
#[test]
fn cost_benefit_is_for_data_of_different_rates() {
    let policies = [Victim::Greedy, Victim::CostBenefit, Victim::Fifo];
    let [greedy, cost_benefit, fifo] = policies.map(|victim| steady(victim, 512, 64, 0.2));
    println!("alike: greedy {greedy:.3}, cost-benefit {cost_benefit:.3}, fifo {fifo:.3}");
    assert!(greedy <= cost_benefit && cost_benefit < fifo);
    let [greedy, cost_benefit, fifo] = policies.map(|victim| {
        let mut load = Load::new(victim, 512, 64, 0.2);
        load.overwrite(10 * 512 * 64, 0.1);
        load.overwrite(4 * 512 * 64, 0.1)
    });
    println!("hot and cold: greedy {greedy:.3}, cost-benefit {cost_benefit:.3}, fifo {fifo:.3}");
    assert!(cost_benefit < 0.9 * greedy && cost_benefit < fifo);
}
