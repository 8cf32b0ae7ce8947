//! Wear leveling: how far the most worn chunk is from the mean.
//!
//! 90 % of the writes go to 10 % of the addresses, from the first write to the
//! end of the drive's life. For release builds only: millions of blocks are
//! programmed.

#![cfg(not(debug_assertions))]

use device::Device;
use faults::ScriptedMedium;
use flash::{ChunkState, Dimensions, Geometry, Timing};
use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Status, Time};
use targets::{Pblk, PblkConfig, Victim, WriteCounters, with_reserve};

/// Requests written before they are completed.
const BATCH: u64 = 64;

/// Maximum less mean, as a part of the rated endurance.
const AIM: f64 = 0.05;

struct Life {
    drive: Pblk<Device<ScriptedMedium>>,
    geometry: Geometry,
    queue: Ring<BlockReq>,
    done: Ring<BlockDone>,
    blocks: u64,
    rng: u64,
    now: Time,
    refused: u64,
}

impl Life {
    fn new(victim: Victim, timing: &Timing, (groups, pus, data_chunks): (u32, u32, u32)) -> Life {
        let chunks = data_chunks;
        let dim =
            Dimensions { groups, pus, chunks, pages: 32, page_bytes: 8192, ..Dimensions::LEAST };
        let geometry = Geometry::new(with_reserve(dim)).unwrap();
        let medium = ScriptedMedium::ram(&geometry, 0, ());
        let device = Device::new(&geometry, timing, medium).unwrap();
        let space = u64::from(data_chunks * geometry.chunk_blocks() * geometry.total_pus());
        let blocks = space * 4 / 5;
        let config = PblkConfig { victim, ..PblkConfig::new(blocks * 4096, data_chunks, 11) };
        let drive = Pblk::new(device, config).unwrap();
        let (queue, done) = (Ring::new(64), Ring::new(1024));
        Life { drive, geometry, queue, done, blocks, rng: 3, now: Time::ZERO, refused: 0 }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.rng = self.rng.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((u128::from(self.rng) * u128::from(n)) >> 64) as u64
    }

    /// A block: in 9 of 10 cases one of the first tenth.
    fn draw(&mut self) -> u64 {
        let hot = self.blocks / 10;
        if self.below(10) > 0 { self.below(hot) } else { hot + self.below(self.blocks - hot) }
    }

    fn write(&mut self, block: u64) {
        let req = BlockReq::new(0, BlockOp::Write, block * 4096, 4096, Buffer::empty());
        self.queue.push(req).unwrap();
    }

    fn run(&mut self) {
        loop {
            self.drive.submit(self.now, &mut self.queue);
            if self.queue.is_empty() && self.drive.next_event().is_none() {
                return;
            }
            if let Some(at) = self.drive.next_event() {
                self.now = self.now.max(at);
            }
            self.drive.advance(self.now, &mut self.done);
            while let Some(done) = self.done.pop() {
                self.refused += u64::from(done.status == Status::READ_ONLY);
            }
        }
    }

    /// Erases of all chunks but the first of each unit, which are kept for
    /// roots and hardly ever erased: mean and most. Of one that is worn
    /// out, as many as it stood.
    fn wear(&self, endurance: u32) -> (f64, u32) {
        let (mut sum, mut most, mut count) = (0u64, 0, 0u64);
        for pu in self.geometry.pus_channels_first() {
            for number in 3..self.geometry.chunks() {
                let chunk = self.drive.device().chunks()[self.geometry.chunk_of(pu, number)];
                let offline = chunk.state == ChunkState::Offline;
                let wear = if offline { endurance } else { chunk.wear };
                sum += u64::from(wear);
                most = most.max(wear);
                count += 1;
            }
        }
        (sum as f64 / count as f64, most)
    }

    /// A whole life. Gives the largest distance of the most worn chunk from the
    /// mean, as a part of the endurance, and what was written.
    fn live(&mut self, endurance: u32) -> (f64, WriteCounters) {
        (0..self.blocks).step_by(BATCH as usize).for_each(|first| {
            (first..self.blocks.min(first + BATCH)).for_each(|block| self.write(block));
            self.run();
        });
        let mut worst = 0.0f64;
        while self.refused == 0 {
            for _ in 0..self.blocks / 4 / BATCH {
                for _ in 0..BATCH {
                    let block = self.draw();
                    self.write(block);
                }
                self.run();
            }
            let (mean, most) = self.wear(endurance);
            worst = worst.max((f64::from(most) - mean) / f64::from(endurance));
        }
        (worst, self.drive.counters())
    }
}

fn check(victim: Victim, timing: &Timing, shape: (u32, u32, u32)) {
    let mut life = Life::new(victim, timing, shape);
    let (worst, c) = life.live(timing.endurance);
    let (mean, most) = life.wear(timing.endurance);
    let amplification = (c.user + c.gc + c.padding) as f64 / c.user as f64;
    let moved = c.leveled * u64::from(life.geometry.chunk_blocks());
    let said = format!(
        "{victim:?}, {shape:?}, endurance {}: most - mean at most {:.2} % of it; at the end {most} \
         and {mean:.1}; write amplification {amplification:.3}, of which leveling at most {:.3}; \
         {} chunks leveled of {} collected",
        timing.endurance,
        worst * 100.0,
        moved as f64 / c.user as f64,
        c.leveled,
        c.collections,
    );
    println!("{said}");
    assert!(worst <= AIM, "{said}");
}

#[test]
fn wear_is_level_to_the_end_of_life() {
    let at_once = |endurance| Timing { endurance, ..Timing::default() };
    check(Victim::Greedy, &at_once(200), (2, 2, 24));
    check(Victim::Greedy, &at_once(500), (2, 2, 24));
    check(Victim::Fifo, &at_once(300), (2, 2, 24));
    check(Victim::DChoices(4), &at_once(300), (1, 1, 60));
    let timed = Timing {
        read: vec![50_000],
        program: vec![300_000, 600_000, 1_200_000],
        erase: 3_000_000,
        channel_rate: 400_000_000,
        ..at_once(300)
    };
    check(Victim::Greedy, &timed, (4, 2, 16));
}
