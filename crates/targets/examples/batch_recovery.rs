//! How long a batched target takes to recover, against the log since its last
//! checkpoint, on a drive of 2 TB.
//!
//! `cargo run --release -p ssdkit-targets --example batch_recovery -- 1 10 60`
//!
//! The drive has the paper's sizes: rows of 32 KiB, chunks of 8 MiB, 2^29 logical
//! pages, so a MAP of 4 GiB, paged in 512 MiB; tPROG and tR are those of the
//! profile `tlc`. The medium keeps a checksum of each page. First a page is
//! written in each of `PAGES` pages of MAP, all over it, and a checkpoint made.
//! Then batches of 256 pages at random in these, 16 at once, without another
//! checkpoint, for so many seconds of drive time. Then power goes. The drive must
//! fit in memory: about 4 GB for 60 s.
//!
//! Memory is what Linux says: that of the drive alone before the start, the most
//! during it, and what the target holds when it serves. Elsewhere it is 0.

use std::time::Instant;

use device::Device;
use flash::{Dimensions, Geometry, Profile, RamMedium, Timing};
use port::{BLOCK_BYTES, BatchOp, BatchReq, Buffer, Desc, Port, Ring, Time};
use targets::{Batch, BatchConfig};

/// Pages of MAP that are written to.
const PAGES: u64 = 48 << 10;

const BATCH: usize = 256;

type Drive = Batch<Device<RamMedium>>;

struct Work {
    drive: Drive,
    now: Time,
    buffers: Vec<Buffer>,
    done: Ring<port::BatchDone>,
    queue: Ring<BatchReq>,
    random: u64,
}

impl Work {
    fn below(&mut self, n: u64) -> u64 {
        self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(1);
        (self.random >> 33) % n
    }

    /// Submits batches until `next` has no more pages, and waits for all.
    fn write(&mut self, mut next: impl FnMut(&mut Work) -> Option<u64>) {
        let mut lpids = Vec::with_capacity(BATCH);
        let (mut more, mut inside) = (true, 0);
        while more || inside > 0 {
            while more && !self.buffers.is_empty() {
                lpids.clear();
                while lpids.len() < BATCH {
                    match next(self) {
                        Some(lpid) => lpids.push(lpid),
                        None => break,
                    }
                }
                more = lpids.len() == BATCH;
                if lpids.is_empty() {
                    break;
                }
                let mut rest = self.buffers.pop().expect("it was looked at");
                let mut buffer = rest.split_to(BLOCK_BYTES as usize + 8 * lpids.len());
                drop(rest);
                Desc::write(&lpids, &[], buffer.bytes_mut());
                let req = BatchReq { id: 0, op: BatchOp::WriteBatch, lpid: 0, buffer };
                self.queue.push(req).expect("one for each buffer");
                inside += 1;
            }
            self.drive.submit(self.now, &mut self.queue);
            self.now = self.now.max(self.drive.next_event().expect("batches end"));
            self.drive.advance(self.now, &mut self.done);
            while let Some(done) = self.done.pop() {
                assert!(done.status.is_ok(), "{}", done.status);
                inside -= 1;
                let whole = BLOCK_BYTES as usize + 8 * BATCH;
                let fits = done.buffer.len() == whole;
                let fresh = || Buffer::zeroed(whole).expect("memory");
                self.buffers.push(if fits { done.buffer } else { fresh() });
            }
        }
    }
}

fn main() {
    let seconds: Vec<u64> =
        std::env::args().skip(1).map(|arg| arg.parse().expect("seconds of log")).collect();
    println!(
        "log, s | rows of log | entries | MB/s | pages of MAP read | recovery, ms | wall, ms | \
         MB of drive | MB more at most | MB more then"
    );
    for seconds in if seconds.is_empty() { vec![1, 10, 60] } else { seconds } {
        recover(seconds);
    }
}

fn geometry() -> (Geometry, Timing) {
    let profile = Profile::builtin("tlc").expect("it is built in");
    let dim = Dimensions {
        groups: 16,
        pus: 4,
        chunks: 4700,
        pages: 256,
        planes: 2,
        page_bytes: 16384,
        pages_at_once: 1,
    };
    (Geometry::new(dim).expect("numbers in range"), profile.timing)
}

fn recover(seconds: u64) {
    let (geometry, timing) = geometry();
    let medium = RamMedium::new(&geometry, 8).expect("memory");
    let device = Device::new(&geometry, &timing, medium).expect("memory");
    let config = BatchConfig {
        pages: 1 << 29,
        log_rows: 1 << 17,
        checkpoint_every: 0,
        ..BatchConfig::for_geometry(&geometry, 0.1)
    };
    let drive = Batch::open(device, config, Time::ZERO).expect("an empty drive");
    let whole = BLOCK_BYTES as usize + 8 * BATCH;
    let buffers = Buffer::carve(config.batches, whole).expect("memory");
    let now = drive.now();
    let (done, queue) = (Ring::new(64), Ring::new(64));
    let mut work = Work { drive, now, buffers, done, queue, random: seconds };
    let stride = config.pages / PAGES;
    let mut page = 0;
    work.write(|_| {
        page += 1;
        (page <= PAGES).then(|| (page - 1) * stride)
    });
    work.drive.request_checkpoint();
    while work.drive.is_checkpointing() {
        work.write(|_| None);
        let Some(at) = work.drive.next_event() else {
            work.drive.submit(work.now, &mut work.queue);
            continue;
        };
        work.now = work.now.max(at);
        work.drive.advance(work.now, &mut work.done);
    }
    let (start, before) = (work.now, work.drive.counters().user);
    work.write(|work| {
        let lpid = work.below(PAGES) * stride + work.below(512);
        (work.now.since(start) < seconds * 1_000_000_000).then_some(lpid)
    });
    let bytes = (work.drive.counters().user - before) * BLOCK_BYTES;
    let device = work.drive.into_below();
    let chunks = device.chunks().to_vec();
    let medium = device.cut();
    let device = Device::restore(&geometry, &timing, medium, &chunks).expect("memory");
    // From here on the most is counted anew.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    let before = megabytes("VmRSS:");
    let wall = Instant::now();
    let drive = Batch::open(device, config, Time::ZERO).expect("a drive that was cut");
    let found = drive.recovery();
    println!(
        "{seconds} | {} | {} | {} | {} | {:.1} | {} | {before} | {} | {}",
        found.rows,
        found.entries,
        bytes / seconds / 1_000_000,
        found.map_pages,
        found.time as f64 / 1e6,
        wall.elapsed().as_millis(),
        megabytes("VmHWM:").saturating_sub(before),
        megabytes("VmRSS:").saturating_sub(before),
    );
}

/// A line of what Linux says of this process's memory, in MB.
fn megabytes(line: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let found = status.lines().find_map(|text| text.strip_prefix(line));
    let number = found.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
    number.unwrap_or(0) * 1024 / 1_000_000
}
