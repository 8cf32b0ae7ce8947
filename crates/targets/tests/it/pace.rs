//! Collection does not stall the user: throughput in short windows.
//!
//! Profile `tlc`, 90 % of the data chunks' blocks addressed, uniform random
//! writes of 4 KiB over the whole space, steady. Everything in virtual time,
//! so the figures are the same on any machine. For release builds only.

#![cfg(not(debug_assertions))]

use device::Device;
use faults::ScriptedMedium;
use flash::{Geometry, Profile};
use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Time};
use targets::{Pblk, PblkConfig, Victim, WriteCounters, with_reserve};

/// Requests outstanding at saturation.
const DEPTH: usize = 128;

const SECOND: u64 = 1_000_000_000;

struct Load {
    drive: Pblk<Device<ScriptedMedium>>,
    queue: Ring<BlockReq>,
    done: Ring<BlockDone>,
    blocks: u64,
    rng: u64,
    now: Time,
}

impl Load {
    fn new(victim: Victim, data_chunks: u32) -> Load {
        let profile = Profile::builtin("tlc").unwrap();
        let mut dim = profile.dimensions;
        dim.chunks = data_chunks;
        let geometry = Geometry::new(with_reserve(dim)).unwrap();
        let medium = ScriptedMedium::ram(&geometry, 0, ());
        let device = Device::new(&geometry, &profile.timing, medium).unwrap();
        let space = u64::from(geometry.total_pus() * data_chunks * geometry.chunk_blocks());
        let blocks = space * 9 / 10;
        let config = PblkConfig { victim, ..PblkConfig::new(blocks * 4096, data_chunks, 5) };
        let drive = Pblk::new(device, config).unwrap();
        let (queue, done) = (Ring::new(1 << 20), Ring::new(1024));
        Load { drive, queue, done, blocks, rng: 17, now: Time::ZERO }
    }

    fn random(&mut self) -> u64 {
        self.rng = self.rng.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.rng
    }

    fn write(&mut self, block: u64) {
        let req = BlockReq::new(0, BlockOp::Write, block * 4096, 4096, Buffer::empty());
        self.queue.push(req).unwrap();
    }

    fn write_anywhere(&mut self) {
        let block = ((u128::from(self.random()) * u128::from(self.blocks)) >> 64) as u64;
        self.write(block);
    }

    /// Lets the drive go on to its next event. Gives how many requests that
    /// completed.
    fn step(&mut self) -> u64 {
        self.now = self.drive.next_event().expect("something is under way");
        self.drive.advance(self.now, &mut self.done);
        let done = self.done.len() as u64;
        self.done.drain().for_each(drop);
        done
    }

    /// Writes the whole space in order, then `times` its size at random, and
    /// gives the write amplification of the last time.
    fn age(&mut self, times: u64) -> f64 {
        let mut before = WriteCounters::default();
        for i in 0..self.blocks * (1 + times) {
            if i < self.blocks {
                self.write(i)
            } else {
                self.write_anywhere()
            }
            if i == self.blocks * times {
                before = self.drive.counters();
            }
            loop {
                self.drive.submit(self.now, &mut self.queue);
                if self.queue.is_empty() {
                    break;
                }
                self.step();
            }
        }
        let after = self.drive.counters();
        let all = |c: WriteCounters| c.user + c.gc + c.padding;
        (all(after) - all(before)) as f64 / (after.user - before.user) as f64
    }

    /// Keeps [`DEPTH`] requests outstanding for `windows` times `window` ns:
    /// completions in each.
    fn closed(&mut self, window: u64, windows: usize) -> Vec<u64> {
        let mut counts = vec![0; windows];
        let start = self.now;
        let mut out = 0;
        loop {
            while out < DEPTH {
                self.write_anywhere();
                out += 1;
            }
            self.drive.submit(self.now, &mut self.queue);
            let done = self.step();
            out -= done as usize;
            let at = (self.now.since(start) / window) as usize;
            match counts.get_mut(at) {
                Some(count) => *count += done,
                None => return counts,
            }
        }
    }

    /// Offers `rate` requests a second, exponentially spaced, for `windows`
    /// times `window` ns: offered and completed in each.
    fn open(&mut self, rate: f64, window: u64, windows: usize) -> Vec<(u64, u64)> {
        let mut counts = vec![(0, 0); windows];
        let start = self.now;
        let end = start + window * windows as u64;
        let mut next = start;
        while next < end || self.drive.next_event().is_some_and(|at| at < end) {
            let arrives = self.drive.next_event().is_none_or(|at| next <= at);
            if arrives {
                self.now = next;
                counts[(next.since(start) / window) as usize].0 += 1;
                self.write_anywhere();
                let unit = (self.random() >> 11) as f64 / (1u64 << 53) as f64;
                next = next + (-(1.0 - unit).ln() / rate * SECOND as f64) as u64;
            } else {
                let done = self.step();
                let at = (self.now.since(start) / window) as usize;
                counts[at.min(windows - 1)].1 += done;
            }
            self.drive.submit(self.now, &mut self.queue);
        }
        counts
    }
}

/// Steady throughput, the worst second at saturation, and the worst 100 ms
/// when 70 % of it is offered, both as parts of what they should be.
fn measure(victim: Victim, chunks: u32) -> (f64, f64) {
    let mut load = Load::new(victim, chunks);
    let amplification = load.age(4);
    let seconds = load.closed(SECOND, 30);
    let mean = seconds.iter().sum::<u64>() as f64 / seconds.len() as f64;
    let worst_second = *seconds.iter().min().unwrap() as f64 / mean;
    let windows = load.open(0.7 * mean, SECOND / 10, 400);
    let worst_window =
        windows.iter().map(|&(offered, done)| done as f64 / offered as f64).fold(1.0, f64::min);
    println!(
        "{victim:?}, {chunks} chunks: write amplification {amplification:.3}, {mean:.0} a second; \
         worst second {:.1} % of the mean; worst 100 ms at 70 % load {:.1} % of the offered",
        worst_second * 100.0,
        worst_window * 100.0,
    );
    (worst_second, worst_window)
}

#[test]
fn collection_does_not_stall_the_user() {
    let cases = [(Victim::Greedy, 12), (Victim::Greedy, 24), (Victim::Fifo, 16)];
    for (victim, chunks) in cases {
        let (second, window) = measure(victim, chunks);
        assert!(second >= 0.9, "{victim:?}, {chunks} chunks: {second} of the mean in a second");
        assert!(window >= 0.9, "{victim:?}, {chunks} chunks: {window} of the offered in 100 ms");
    }
}
