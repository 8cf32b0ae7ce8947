//! Random reads of 4 KiB from a file or device through the driver alone.
//!
//! `randread PATH [DEPTH] [SECONDS] [plain] [buffered] [poll] [spin]`: prints
//! reads a second and processor time for each. `plain` registers no memory,
//! `buffered` goes through the page cache, `poll` asks the device instead of
//! waiting for its interrupts, `spin` waits without sleeping.

use std::error::Error;
use std::time::{Duration, Instant};

use blkmq::{Driver, HardwareQueue};
use port::{BlockOp, BlockReq, Ring, Time};
use rustix::time::{ClockId, clock_gettime};
use storage::{Poll, Pool, Storage, StorageOptions};

const BLOCK: u64 = 4096;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let has = |word: &str| args.iter().any(|a| a == word);
    let path =
        args.first().ok_or("usage: randread PATH [DEPTH] [SECONDS] [plain] [buffered] ...")?;
    let numbers: Vec<u64> = args[1..].iter().filter_map(|a| a.parse().ok()).collect();
    let depth = numbers.first().map_or(32, |&n| n as usize);
    let time = Duration::from_secs(numbers.get(1).copied().unwrap_or(5));

    let pool = Pool::new(depth, BLOCK as usize)?;
    let options = StorageOptions {
        depth,
        direct: !has("buffered"),
        read_only: true,
        poll_queues: usize::from(has("poll")),
        poll: Poll::Iopoll,
        regions: if has("plain") { Vec::new() } else { pool.regions() },
        ..StorageOptions::default()
    };
    let storage = Storage::open(path, options)?;
    let blocks = storage.shape().bytes / BLOCK;
    let queue = storage.open().pop().expect("there is a queue");
    let cpu = || Duration::try_from(clock_gettime(ClockId::ProcessCPUTime));
    let (before, start) = (cpu()?, Instant::now());
    let count = read(queue, pool, blocks, depth, time, has("spin"));
    let (cpu, elapsed) = (cpu()? - before, start.elapsed());
    println!(
        "{:.0} reads/s, {:.2} us of processor time each, {:.0} % of a core",
        count as f64 / elapsed.as_secs_f64(),
        cpu.as_secs_f64() * 1e6 / count as f64,
        100.0 * cpu.as_secs_f64() / elapsed.as_secs_f64()
    );
    Ok(())
}

/// Keeps `depth` reads inside for so long; how many completed.
fn read(
    mut queue: impl HardwareQueue,
    mut pool: Pool,
    blocks: u64,
    depth: usize,
    time: Duration,
    spin: bool,
) -> u64 {
    let (mut cmds, mut done) = (Ring::new(depth), Ring::new(depth));
    let mut random = 88172645463325252u64;
    let (mut count, mut inside, start) = (0, 0, Instant::now());
    loop {
        let now = start.elapsed();
        while now < time
            && let Some(buffer) = pool.take()
        {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let offset = random % blocks * BLOCK;
            cmds.put(|| BlockReq::new(0, BlockOp::Read, offset, BLOCK, buffer));
            inside += 1;
        }
        if inside == 0 {
            return count;
        }
        let now = Time(now.as_nanos() as u64);
        queue.submit(now, &mut cmds);
        if !spin {
            queue.wait(None);
        }
        queue.advance(now, &mut done);
        for one in done.drain() {
            assert!(one.status.is_ok(), "a read failed: {}", one.status);
            pool.give(one.buffer);
            (count, inside) = (count + 1, inside - 1);
        }
    }
}
