//! How fast simulated time passes on this machine: the loops behind the
//! figures, without workload and report.

use std::time::Instant;

use device::Device;
use flash::{Dimensions, Geometry, RamMedium, Timing};
use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Time};
use targets::{Pblk, PblkConfig, RESERVE_CHUNKS, Victim};

fn reference(instant: bool) -> (Dimensions, Timing) {
    let dim = Dimensions {
        groups: 8,
        pus: 8,
        chunks: 256 + RESERVE_CHUNKS,
        pages: 256,
        planes: 2,
        page_bytes: 4096,
    };
    let timing = Timing {
        read: vec![75_000],
        program: vec![750_000],
        erase: 3_800_000,
        channel_rate: 333_000_000,
        ..Timing::default()
    };
    (dim, if instant { Timing::default() } else { timing })
}

struct Rng(u64);
impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * u128::from(n)) >> 64) as u64
    }
}

struct Loop<P> {
    port: P,
    now: Time,
    rng: Rng,
    ahead: Vec<u64>,
    blocks: u64,
    queue: Ring<BlockReq>,
    done: Ring<BlockDone>,
}

impl<P: Port<Cmd = BlockReq, Done = BlockDone>> Loop<P> {
    fn run(
        &mut self,
        op: BlockOp,
        depth: u64,
        ios: u64,
        mut next: impl FnMut(&mut Rng) -> u64,
    ) -> f64 {
        let start = Instant::now();
        let mut issued = 0;
        let mut finished = 0;
        let req = |block: u64| BlockReq {
            id: 0,
            op,
            fua: false,
            offset: block * 4096,
            len: 4096,
            buffer: Buffer::empty(),
        };
        let ahead = 64usize;
        self.ahead.clear();
        for _ in 0..ahead {
            self.ahead.push(next(&mut self.rng));
        }
        while issued < depth.min(ios) {
            self.queue.push(req(next(&mut self.rng))).unwrap();
            issued += 1;
        }
        self.port.submit(self.now, &mut self.queue);
        while finished < ios {
            let at = self.port.next_event().expect("busy");
            self.now = at;
            self.port.advance(at, &mut self.done);
            if self.done.is_empty() && self.queue.is_empty() {
                continue;
            }
            while self.done.pop().is_some() {
                finished += 1;
                if issued < ios {
                    let at = issued as usize % ahead;
                    let block = std::mem::replace(&mut self.ahead[at], next(&mut self.rng));
                    let hint = self.ahead[(at + 8) % ahead];
                    self.port.hint(&req(hint));
                    self.queue.put(|| req(block));
                    issued += 1;
                }
            }
            self.port.submit(at, &mut self.queue);
        }
        ios as f64 / start.elapsed().as_secs_f64()
    }
}

fn main() {
    let arg = |i: usize, d: u64| std::env::args().nth(i).and_then(|a| a.parse().ok()).unwrap_or(d);
    let (overwrites, chunks, reads) = (arg(1, 3), arg(2, 256) as u32, arg(3, 4_000_000));
    let modes: &[bool] = match arg(4, 2) {
        0 => &[false],
        1 => &[true],
        _ => &[false, true],
    };
    for &instant in modes {
        let (mut dim, timing) = reference(instant);
        dim.chunks = chunks + RESERVE_CHUNKS;
        let geometry = Geometry::new(dim).unwrap();
        let device =
            Device::new(&geometry, &timing, RamMedium::new(&geometry, 0).unwrap()).unwrap();
        let data = u64::from(geometry.total_pus())
            * u64::from(chunks)
            * u64::from(geometry.chunk_blocks());
        let bytes = data * 4 / 5 * 4096;
        let config = PblkConfig { bytes, data_chunks: chunks, victim: Victim::Greedy, seed: 1 };
        let port = Pblk::new(device, config).unwrap();
        let blocks = bytes / 4096;
        let mut l = Loop {
            port,
            now: Time::ZERO,
            rng: Rng(88172645463325252),
            ahead: Vec::new(),
            blocks,
            queue: Ring::new(256),
            done: Ring::new(256),
        };
        let mut at = 0;
        let fill = l.run(BlockOp::Write, 64, blocks, |_| {
            at += 1;
            (at - 1) % blocks
        });
        println!("instant={instant} fill            {:.2} M/s", fill / 1e6);
        let n = l.blocks;
        for depth in [1, 32, 64, 128] {
            let r = l.run(BlockOp::Read, depth, reads, |rng| rng.below(n));
            println!("instant={instant} randread qd{depth}  {:.2} M/s", r / 1e6);
        }
        for _ in 0..overwrites {
            let before = l.port.counters();
            let t0 = l.now;
            let r = l.run(BlockOp::Write, 64, blocks, |rng| rng.below(n));
            let c = l.port.counters();
            println!(
                "instant={instant} randwrite {:.2} M/s  wa {:.3}  drive {:.0} IOPS",
                r / 1e6,
                1.0 + (c.gc - before.gc) as f64 / (c.user - before.user) as f64,
                blocks as f64 / ((l.now - t0) as f64 / 1e9),
            );
        }
    }
}
