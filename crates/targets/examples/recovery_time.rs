//! How long a full drive takes from power on to its first I/O.
//!
//!     recovery_time size=1024 [profile=tlc] [spare=0.2] [rows=0] [clean]
//!
//! Makes a drive of `size` GiB that keeps a digest of each block, writes all of
//! it, then overwrites blocks at random until `rows` rows were written since
//! the last checkpoint (0: until just before the next one begins, when
//! checkpoints have found their pace). Then power goes, or the drive is shut
//! down (`clean`). Prints the time on the wall and in the drive from the start
//! of recovery to the end of one read, and to where all of the map is loaded.

use std::process::exit;
use std::time::Instant;

use device::Device;
use flash::{Chunk, Dimensions, Geometry, Profile, RamMedium, Timing};
use port::{BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Status, Time};
use targets::{Pblk, PblkConfig, with_reserve};

type Drive = Pblk<Device<RamMedium>>;

struct Args {
    size: u64,
    profile: String,
    spare: f64,
    rows: u64,
    clean: bool,
}

fn args() -> Args {
    let mut args = Args { size: 0, profile: "tlc".into(), spare: 0.2, rows: 0, clean: false };
    for arg in std::env::args().skip(1) {
        let good = match arg.split_once('=') {
            Some(("size", n)) => n.parse().map(|n| args.size = n).is_ok(),
            Some(("profile", name)) => {
                args.profile = name.into();
                Profile::builtin(name).is_some()
            }
            Some(("spare", part)) => part.parse().map(|part| args.spare = part).is_ok(),
            Some(("rows", n)) => n.parse().map(|n| args.rows = n).is_ok(),
            None if arg == "clean" => {
                args.clean = true;
                true
            }
            _ => false,
        };
        if !good {
            eprintln!("{arg}: size=GIB, profile=NAME, spare=PART, rows=N or clean");
            exit(2);
        }
    }
    if args.size == 0 {
        eprintln!("size=GIB is needed");
        exit(2);
    }
    args
}

/// A drive and its time.
struct Bench {
    drive: Drive,
    now: Time,
    queue: Ring<BlockReq>,
    done: Ring<BlockDone>,
    free: Vec<Buffer>,
}

impl Bench {
    fn new(drive: Drive, now: Time, depth: usize, bytes: usize) -> Bench {
        let free = Buffer::carve(depth, bytes).expect("there is memory");
        Bench { drive, now, queue: Ring::new(depth), done: Ring::new(depth), free }
    }

    fn turn(&mut self) {
        self.drive.submit(self.now, &mut self.queue);
        self.now = self.now.max(self.drive.next_event().expect("it goes on"));
        self.drive.advance(self.now, &mut self.done);
        while let Some(done) = self.done.pop() {
            assert_eq!(done.status, Status::SUCCESS);
            self.free.push(done.buffer);
        }
    }

    fn ask(&mut self, op: BlockOp, offset: u64, len: u64) {
        while self.free.is_empty() {
            self.turn();
        }
        let buffer = self.free.pop().expect("one is free");
        let req = BlockReq::new(0, op, offset, len, buffer);
        self.queue.push(req).expect("as many as buffers");
    }

    fn settle(&mut self, depth: usize) {
        while self.free.len() < depth {
            self.turn();
        }
    }
}

fn main() {
    let Args { size, profile, spare, rows, clean } = args();
    let profile = Profile::builtin(&profile).expect("it was looked up");
    let one = Geometry::new(Dimensions { chunks: 1, ..profile.dimensions }).expect("it is checked");
    let blocks = size << 30 >> 12;
    let chunks = (blocks as f64 / (1.0 - spare) / one.blocks() as f64).ceil() as u32;
    let dim = with_reserve(Dimensions { chunks, ..profile.dimensions });
    let geometry = Geometry::new(dim).expect("it fits");
    let config = PblkConfig::new(blocks * BLOCK_BYTES, chunks, 1);
    let medium = RamMedium::new(&geometry, 8).expect("there is memory");
    // No time passes while it is filled.
    let device = Device::new(&geometry, &Timing::default(), medium).expect("there is memory");
    let fill = Bench::new(Pblk::new(device, config).expect("it works"), Time::ZERO, 8, 256 * 8);
    let (medium, chunks) = filled(fill, blocks);
    let (drive, now) = start(&geometry, &profile.timing, medium, &chunks, config);
    let mut bench = Bench::new(drive, now, 128, 8);
    overwrite(&mut bench, blocks, rows);
    println!(
        "{size} GiB, map {} MiB; {} rows since the checkpoint; {:?}",
        bench.drive.memory().map >> 20,
        bench.drive.since_checkpoint(),
        bench.drive.counters()
    );
    if clean {
        bench.settle(128);
        shut_down(&mut bench);
    }
    let (medium, chunks) = cut(bench.drive);
    let began = Instant::now();
    let (drive, now) = start(&geometry, &profile.timing, medium, &chunks, config);
    let recovered = began.elapsed();
    let mut bench = Bench::new(drive, now, 1, 8);
    bench.ask(BlockOp::Read, blocks / 3 * BLOCK_BYTES, BLOCK_BYTES);
    bench.settle(1);
    println!(
        "recovered: drive {:.1} ms, wall {:.1} ms; first read: drive {:.1} ms, wall {:.1} ms",
        now.0 as f64 / 1e6,
        recovered.as_secs_f64() * 1e3,
        bench.now.0 as f64 / 1e6,
        began.elapsed().as_secs_f64() * 1e3
    );
    while bench.drive.is_loading() {
        bench.turn();
    }
    println!(
        "map loaded: drive {:.1} ms, wall {:.1} ms",
        bench.now.0 as f64 / 1e6,
        began.elapsed().as_secs_f64() * 1e3
    );
}

fn start(
    geometry: &Geometry,
    timing: &Timing,
    medium: RamMedium,
    chunks: &[Chunk],
    config: PblkConfig,
) -> (Drive, Time) {
    let device = Device::restore(geometry, timing, medium, chunks).expect("there is memory");
    Pblk::recover(device, config, Time::ZERO).expect("it recovers")
}

fn cut(drive: Drive) -> (RamMedium, Vec<Chunk>) {
    let device = drive.into_device();
    let chunks = device.chunks().to_vec();
    (device.cut(), chunks)
}

/// All blocks written once, in order.
fn filled(mut bench: Bench, blocks: u64) -> (RamMedium, Vec<Chunk>) {
    let mut lba = 0;
    while lba < blocks {
        let count = (blocks - lba).min(256);
        while bench.free.is_empty() {
            bench.turn();
        }
        let last = bench.free.last_mut().expect("one is free");
        if count < 256 {
            *last = Buffer::zeroed(count as usize * 8).expect("there is memory");
        }
        bench.ask(BlockOp::Write, lba * BLOCK_BYTES, count * BLOCK_BYTES);
        lba += count;
    }
    bench.settle(8);
    shut_down(&mut bench);
    cut(bench.drive)
}

fn shut_down(bench: &mut Bench) {
    bench.drive.close(bench.now);
    while !bench.drive.is_closed() {
        bench.turn();
    }
}

/// Random overwrites, until as many rows lie behind the last checkpoint.
fn overwrite(bench: &mut Bench, blocks: u64, rows: u64) {
    let mut random = 1u64;
    let (mut before, mut checkpoints) = (0, 0);
    loop {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        bench.ask(BlockOp::Write, (random >> 20) % blocks * BLOCK_BYTES, BLOCK_BYTES);
        let (since, due) = (bench.drive.since_checkpoint(), bench.drive.checkpoint_rows());
        let enough = if rows > 0 {
            since >= rows
        } else {
            // The longest interval, nearly at its end; of a small drive, some
            // interval.
            since + 64 >= due && (due >= 4096 * 32 || checkpoints > 16)
        };
        checkpoints += u32::from(since < before);
        before = since;
        if enough {
            return;
        }
    }
}
