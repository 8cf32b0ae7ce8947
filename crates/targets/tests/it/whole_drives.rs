//! Physics of whole drives: write amplification with all parallel units of a
//! profile, in its own times, against the formulas.
//!
//! Uniform random overwrites at saturation, steady, no trim; a medium that keeps
//! tags only. T of the formulas is what held data, live or stale, in the mean of
//! the run: so the *spare in effect*, which must be the one that was asked for,
//! too.
//!
//! For release builds only: `cargo test --release -p ssdkit-targets --test it
//! whole_drives -- --nocapture`; with `--ignored` the larger drives, too.

#![cfg(not(debug_assertions))]

use device::Device;
use faults::ScriptedMedium;
use flash::{Dimensions, Geometry, Profile};
use measure::formula;
use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Time};
use targets::{Pblk, PblkConfig, Victim, WriteCounters, with_reserve};

/// How far a drive may be from its formula.
const TOLERANCE: f64 = 0.02;

/// How far the spare in effect may be from the one that was asked for.
const SPARE_TOLERANCE: f64 = 0.1;

/// Chunks for data of a unit below which no small spare can be kept: `ssdkit`
/// refuses such a drive.
const LEAST_CHUNKS: u32 = 6;

/// Spares that are asked for.
const SPARES: [f64; 4] = [0.07, 0.12, 0.20, 0.28];

/// Of these, the drives that are refused, whatever the victims: profile, GiB and
/// spare. What is not measured is to be named.
const REFUSED: [(&str, u64, f64); 1] = [("tlc", 1, 0.07)];

/// Requests outstanding.
const DEPTH: u64 = 512;

const GIB: u64 = 1 << 30;

struct Load {
    drive: Pblk<Device<ScriptedMedium>>,
    pus: u32,
    pages: u32,
    queue: Ring<BlockReq>,
    done: Ring<BlockDone>,
    blocks: u64,
    out: u64,
    rng: u64,
    now: Time,
}

impl Load {
    /// A drive that is empty; none where its chunks are too few.
    fn new(profile: &str, bytes: u64, spare: f64, victim: Victim) -> Option<Load> {
        let profile = Profile::builtin(profile).unwrap();
        let blocks = bytes / 4096;
        let one = Geometry::new(Dimensions { chunks: 1, ..profile.dimensions }).unwrap();
        let of_unit = (blocks as f64 / (1.0 - spare) / f64::from(one.total_pus())).ceil() as u32;
        if of_unit < LEAST_CHUNKS * one.chunk_blocks() {
            return None;
        }
        let data_chunks = of_unit.div_ceil(one.chunk_blocks());
        let idle = data_chunks * one.chunk_blocks() - of_unit;
        let data = Dimensions { chunks: data_chunks, ..profile.dimensions };
        let geometry = Geometry::new(with_reserve(data)).unwrap();
        let medium = ScriptedMedium::ram(&geometry, 0, ());
        let device = Device::new(&geometry, &profile.timing, medium).unwrap();
        let config = PblkConfig { idle, victim, ..PblkConfig::new(bytes, data_chunks, 5) };
        let drive = Pblk::new(device, config).unwrap();
        let (queue, done) = (Ring::new(16), Ring::new(1024));
        let (pus, pages) = (geometry.total_pus(), geometry.chunk_blocks());
        Some(Load { drive, pus, pages, queue, done, blocks, out: 0, rng: 17, now: Time::ZERO })
    }

    fn random(&mut self) -> u64 {
        self.rng = self.rng.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((u128::from(self.rng) * u128::from(self.blocks)) >> 64) as u64
    }

    fn write(&mut self, block: u64) {
        let req = BlockReq::new(0, BlockOp::Write, block * 4096, 4096, Buffer::empty());
        self.queue.push(req).unwrap();
        self.out += 1;
        self.drive.submit(self.now, &mut self.queue);
        while self.out >= DEPTH || !self.queue.is_empty() {
            self.now = self.drive.next_event().expect("something is under way");
            self.drive.advance(self.now, &mut self.done);
            self.out -= self.done.len() as u64;
            self.done.drain().for_each(drop);
            self.drive.submit(self.now, &mut self.queue);
        }
    }

    /// Overwrites `count` blocks at random. Gives the write amplification
    /// meanwhile, and the spare in effect.
    fn overwrite(&mut self, count: u64) -> (f64, f64) {
        let before = self.drive.counters();
        for _ in 0..count {
            let block = self.random();
            self.write(block);
        }
        let after = self.drive.counters();
        let written = |c: WriteCounters| c.user + c.gc + c.padding;
        let found = (written(after) - written(before)) as f64 / (after.user - before.user) as f64;
        let held = after.held_since(&before, self.pus).expect("it was collected");
        (found, 1.0 - self.blocks as f64 / held)
    }
}

/// What came of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Right,
    Off,
    Refused,
}

/// Says what came out.
fn measure(profile: &str, gib: u64, spare: f64, victim: Victim) -> Outcome {
    let Some(mut load) = Load::new(profile, gib * GIB, spare, victim) else {
        println!("{profile} {gib} GiB {victim:?} {spare}: refused");
        return Outcome::Refused;
    };
    (0..load.blocks).for_each(|block| load.write(block));
    load.overwrite(2 * load.blocks);
    // Random victims differ much: it takes many for a mean.
    let times = if victim == Victim::Random { 12 } else { 1 };
    let (found, in_effect) = load.overwrite(times * load.blocks);
    let expected = match victim {
        Victim::Fifo => formula::fifo(in_effect),
        Victim::Random => {
            let held = load.blocks as f64 / (1.0 - in_effect);
            let of_chunk = f64::from(load.pus) * f64::from(load.pages);
            formula::random_few(in_effect, held / of_chunk)
        }
        _ => formula::greedy(in_effect, load.pages),
    };
    let expected = expected.unwrap();
    let off = found / expected - 1.0;
    let percent = off * 100.0;
    println!(
        "{profile} {gib} GiB {victim:?} {spare}: in effect {in_effect:.4}, {found:.4} for \
         {expected:.4}, {percent:+.2} %"
    );
    let is_right = off.abs() <= TOLERANCE && (in_effect / spare - 1.0).abs() <= SPARE_TOLERANCE;
    if is_right { Outcome::Right } else { Outcome::Off }
}

fn check(gib: u64) {
    let (mut off, mut refused) = (Vec::new(), Vec::new());
    for profile in ["ref", "tlc"] {
        for victim in [Victim::Fifo, Victim::Greedy] {
            for spare in SPARES {
                match measure(profile, gib, spare, victim) {
                    Outcome::Right => {}
                    Outcome::Off => off.push((profile, spare, victim)),
                    Outcome::Refused if refused.contains(&(profile, gib, spare)) => {}
                    Outcome::Refused => refused.push((profile, gib, spare)),
                }
            }
        }
    }
    println!("refused, profile, GiB and spare asked for: {refused:?}");
    assert_eq!(off, [], "drives that are off");
    let named: Vec<_> = REFUSED.into_iter().filter(|refused| refused.1 == gib).collect();
    assert_eq!(refused, named, "drives that are refused: no more and no others than are named");
}

#[test]
fn small_drives_of_many_units_follow_the_formulas() {
    check(1);
}

/// As few as 6 chunks a unit.
#[test]
fn random_victims_of_few_chunks_follow_their_formula() {
    let drives = [("tlc", 0.12), ("tlc", 0.2), ("ref", 0.28)];
    let measured = drives.map(|(profile, spare)| measure(profile, 1, spare, Victim::Random));
    assert_eq!(measured, [Outcome::Right; 3]);
}

#[test]
#[ignore = "takes minutes"]
fn drives_of_4_gib_follow_the_formulas() {
    check(4);
}

#[test]
#[ignore = "takes many minutes"]
fn drives_of_16_gib_follow_the_formulas() {
    check(16);
}
