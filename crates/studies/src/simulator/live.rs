//! The simulated drive live, below a file system of the kernel (thesis, chapter 5: it "must
//! run as a real live SSD"), and what that path costs beside the way in one process. Fails
//! as the kernel's path does.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use port::BLOCK_BYTES;

use super::super::blocking::{Amount, Call, Calls, Sync};
use super::super::kernel_path::{Device, FileSystem};
use super::super::kernel_runs::{Measured, by_turns, case, open};
use super::super::ull::live::{Asked, Job, Stage, Way};
use super::super::{Lab, Reference, Row, Runs};
use drive::error::Error;

const LIVE: &str = "thesis ch. 5, live: a file system of the kernel on the simulated drive";

/// Simulated NAND, few dies and small blocks: full, it collects at once.
const NAND: &str = "ref,groups=4,pus=2,pages=32";
/// Of the drive.
const SIZE: &str = "64M";
/// Bytes that are read and written of the device.
const BYTES: u64 = 48 << 20;
/// Writes to the device: twice what is spare.
const WRITES: u64 = 8192;
/// Requests outstanding, as of figure 2.
const DEPTH: u32 = 32;

/// What one run gave.
#[derive(Clone, Copy, Debug, Default)]
struct Ran {
    /// A synchronous write of 4 KiB to a file, in us.
    write: f64,
    /// Blocks that came back other than they were written.
    wrong: f64,
    /// Blocks that collection moved meanwhile.
    moved: f64,
    /// A read of the device alone, in us.
    read: f64,
    /// Writes a second to the device, [`DEPTH`] outstanding.
    rate: f64,
}

/// How much is done.
#[derive(Clone, Copy, Debug)]
struct Scale {
    blocks: u64,
    time: Duration,
    seed: u64,
}

/// All rows. `in_process` is the null device behind a queue pair, in IOPS.
pub fn rows(lab: &mut Lab, in_process: &Runs) -> Result<Vec<Row>, Error> {
    let (blocks, time) = lab.options.pick((1500, 300), (200, 60));
    let (time, seed) = (Duration::from_millis(time), lab.options.seed);
    let scale = Scale { blocks, time, seed };
    let drives = [NAND, "null"].map(|keys| format!("mem:{keys},size={SIZE}"));
    let what = ["ext4, synchronous writes, read back", "the path alone"];
    let cases = [0, 1].map(|i| case(what[i], &drives[i]));
    let names = drives.each_ref().map(|drive| &drive[..]);
    let ran = by_turns(lab, &names, &cases, |i, device| run(i == 0, scale, device))?;
    let job = Job { drive: NAND, way: Way::Bypass, asked: Asked::random_reads(BLOCK_BYTES) };
    let bypass = match Stage::new(lab)? {
        Some(stage) => stage.all(lab, &[job])?[0].runs(|ran| ran.mean),
        None => Runs::new(vec![]).voided("it takes two cores"),
    };
    Ok(told(&ran, bypass, in_process))
}

fn run(has_files: bool, scale: Scale, device: &Device) -> Result<Ran, Error> {
    let direct = open(device.path(), true)?;
    let calls = |call, threads| {
        let amount = Amount::Time(scale.time);
        Calls { call, threads, amount, seed: scale.seed }
    };
    let read = calls(Call::Read, 1).run(&direct, BYTES)?.mean;
    let before = device.figures().counters().gc;
    let amount = Amount::Calls(WRITES / u64::from(DEPTH));
    let writes = Calls { amount, ..calls(Call::Write(Sync::Never), DEPTH) };
    let rate = writes.run(&direct, BYTES)?.rate;
    drop(direct);
    let (write, wrong) = if has_files { on_ext4(scale, device)? } else { (0.0, 0.0) };
    let moved = (device.figures().counters().gc - before) as f64;
    Ok(Ran { write, wrong, moved, read, rate })
}

/// What a synchronous write takes in us, and blocks that came back other than written.
fn on_ext4(scale: Scale, device: &Device) -> Result<(f64, f64), Error> {
    let kind = FileSystem::Ext4;
    let (path, each) = {
        let mounted = device.mount(kind)?;
        let path = mounted.dir().join("file");
        let file = File::create(&path).map_err(|e| Error::system("make a file", &e))?;
        let began = Instant::now();
        for block in order(scale.blocks) {
            let written = file.write_all_at(&content(block, scale.seed), block * BLOCK_BYTES);
            let synced = written.and_then(|()| file.sync_data());
            synced.map_err(|e| Error::system("write a file", &e))?;
        }
        (path, began.elapsed().as_secs_f64() * 1e6 / scale.blocks as f64)
    };
    // Mounted anew, all of it comes from the drive.
    let _mounted = device.mount_again(kind)?;
    Ok((each, differing(&path, scale)?))
}

fn differing(path: &Path, scale: Scale) -> Result<f64, Error> {
    let file = open(path, false)?;
    let mut wrong = 0.0;
    for block in 0..scale.blocks {
        let mut found = [0; BLOCK_BYTES as usize];
        file.read_exact_at(&mut found, block * BLOCK_BYTES)
            .map_err(|e| Error::system("read a file", &e))?;
        wrong += f64::from(u8::from(found != content(block, scale.seed)));
    }
    Ok(wrong)
}

/// All blocks, each once, not in sequence.
fn order(blocks: u64) -> impl Iterator<Item = u64> {
    let (even, odd) = ((0..blocks).step_by(2), (1..blocks).step_by(2));
    odd.chain(even)
}

/// What stands in a block, and in no other.
fn content(block: u64, seed: u64) -> [u8; BLOCK_BYTES as usize] {
    let mut all = [0; BLOCK_BYTES as usize];
    for (at, word) in all.chunks_exact_mut(8).enumerate() {
        let mixed = (block + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed ^ at as u64;
        word.copy_from_slice(&mixed.to_le_bytes());
    }
    all
}

const NO_FIGURE: &str = "the chapter has no such figure: what a path costs is this machine's";

fn told(of: &Measured<Ran>, bypass: Runs, in_process: &Runs) -> Vec<Row> {
    let nand = |get: fn(&Ran) -> f64| of.figure(0, get);
    let path = |get: fn(&Ran) -> f64| of.figure(1, get);
    let shown =
        |what: &str, unit, runs| Row::shown(LIVE, what, unit, Reference::Silent, runs, NO_FIGURE);
    let live = "it \"must run as a real live SSD\"; \"exposes itself as a block device\"";
    let collects = "\"garbage collection might be triggered based on the state of the device, and \
                    therefore interfere with incoming user I/O\"";
    let switch = "a context switch between host and guest for each I/O \"limits VSSIM to thousands \
                  of IOPS\"";
    let read = nand(|ran| ran.read);
    let moved = of.count(0, |ran| ran.moved);
    vec![
        Row::within(
            LIVE,
            "ext4: blocks that came back other than written",
            "blocks",
            live,
            of.count(0, |ran| ran.wrong),
            0.0..=0.0,
        ),
        Row::sign(LIVE, "blocks moved meanwhile", "blocks", collects, moved, true),
        shown("ext4: a synchronous write of 4 KiB", "us", nand(|ran| ran.write)),
        shown("a read of the device, 1 outstanding", "us", read.clone()),
        shown("the same, a drive without time: the path alone", "us", path(|ran| ran.read)),
        shown("a read in one process, polled", "us", bypass.clone()),
        Row::order(LIVE, "us", switch, [("a read: kernel's path", read), ("one process", bypass)]),
        shown("writes, 32 threads, the path alone", "IOPS", path(|ran| ran.rate)),
        Row::order(
            LIVE,
            "IOPS",
            switch,
            [
                ("null device: one process", in_process.clone()),
                ("kernel's path", path(|ran| ran.rate)),
            ],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_is_another_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let scale = Scale { blocks: 5, time: Duration::ZERO, seed: 7 };
        let file = File::create(&path).unwrap();
        let mut all: Vec<u64> = order(5).collect();
        for &block in &all {
            file.write_all_at(&content(block, 7), block * BLOCK_BYTES).unwrap();
        }
        all.sort_unstable();
        assert_eq!((all, differing(&path, scale).unwrap()), (vec![0, 1, 2, 3, 4], 0.0));
        file.write_all_at(&content(3, 7), 2 * BLOCK_BYTES).unwrap();
        file.write_all_at(&[9], 4 * BLOCK_BYTES + 4000).unwrap();
        assert_eq!(differing(&path, scale).unwrap(), 2.0);
    }
}
