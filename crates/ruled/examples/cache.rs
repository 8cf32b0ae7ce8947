//! What a cache made of rules brings, in virtual time: how many reads it serves, and how long
//! all take.
//!
//!     cache DRIVE RANGE DEPTH REQUESTS
//!
//! DRIVE is a drive in memory by its name, with a cache made of rules or none. Its first RANGE
//! MiB are written once, as many random reads of 4 KiB there are made as requests are given,
//! DEPTH outstanding, and then as many more, which are told: the part of them that the rule
//! `hit` served, their mean, median and 99th percentile, and requests a second. Seed 1.

use std::process::exit;

use drive::spec::DriveSpec;
use drive::stack::build;
use drive::whole::{Boxed, Drive};
use port::random::Random;
use port::{BLOCK_BYTES, BlockOp, BlockReq, Buffer, Port, Ring, Time, Turn};

/// Blocks of each write.
const WRITE: u64 = 64;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let usage = || -> ! {
        eprintln!("usage: cache DRIVE RANGE DEPTH REQUESTS");
        exit(2)
    };
    let [name, range, depth, requests] = &args[..] else { usage() };
    let number = |text: &String| text.parse::<u64>().ok().filter(|n| *n > 0);
    let (Some(range), Some(depth), Some(requests)) =
        (number(range), number(depth), number(requests))
    else {
        usage()
    };
    let config = match name.parse() {
        Ok(DriveSpec::Memory(spec)) => spec.resolve(),
        Ok(_) => usage(),
        Err(e) => Err(e),
    };
    let drive = config.map_err(Into::into).and_then(|config| build(&config, 1));
    let mut drive = drive.unwrap_or_else(|e| {
        eprintln!("{e}");
        exit(2)
    });
    let (blocks, mut random, mut now) = (range << 8, Random::new(1, 1), Time::ZERO);
    go(&mut drive, &mut now, blocks / WRITE, 16, |n| (BlockOp::Write, n * WRITE, WRITE));
    go(&mut drive, &mut now, 1, 1, |_| (BlockOp::Flush, 0, 0));
    let mut read = |drive: &mut Boxed| {
        let next = |_| (BlockOp::Read, random.below(blocks), 1);
        go(drive, &mut now, requests, depth, next)
    };
    read(&mut drive);
    let before = hits(&drive);
    let mut took = read(&mut drive);
    let hits = (hits(&drive) - before) as f64 * 100.0 / requests as f64;
    took.sort_unstable();
    let mean = took.iter().sum::<u64>() as f64 / requests as f64;
    let at = |percent: u64| took[((took.len() as u64 - 1) * percent / 100) as usize] as f64 / 1e3;
    let rate = depth as f64 * 1e9 / mean;
    println!(
        "{hits:.1} % hits; mean {:.1} us, p50 {:.1} us, p99 {:.1} us; {rate:.0} requests a second",
        mean / 1e3,
        at(50),
        at(99)
    );
}

/// How often the rule `hit` matched.
fn hits(drive: &Boxed) -> u64 {
    let Some(installer) = drive.rules() else { return 0 };
    let rules = installer.rules();
    let hit = rules.set().rules.iter().position(|rule| rule.name.text == "hit");
    hit.map_or(0, |hit| rules.hits().of(hit))
}

/// Makes requests, so many outstanding. How long each took, ns.
fn go(
    drive: &mut Boxed,
    now: &mut Time,
    count: u64,
    depth: u64,
    mut next: impl FnMut(u64) -> (BlockOp, u64, u64),
) -> Vec<u64> {
    let (mut reqs, mut done) = (Ring::new(depth as usize), Ring::new(depth as usize));
    let (mut came, mut took) = (Vec::new(), Vec::new());
    let shape = drive.shape();
    while (took.len() as u64) < count {
        while (came.len() as u64) < count && ((came.len() - took.len()) as u64) < depth {
            let (op, lba, blocks) = next(came.len() as u64);
            let (offset, len) = (lba * BLOCK_BYTES, blocks * BLOCK_BYTES);
            let has_data = matches!(op, BlockOp::Read | BlockOp::Write);
            let bytes = if has_data { shape.stored(len) } else { 0 };
            let buffer = Buffer::zeroed(bytes).expect("memory");
            let (id, fua, placement, queue) = (came.len() as u64, false, 0, 0);
            reqs.put(|| BlockReq { id, op, fua, placement, queue, offset, len, buffer });
            came.push(*now);
        }
        if let Turn::Completed(at) | Turn::Stays(at) = drive.turn(*now, None, &mut reqs, &mut done)
        {
            *now = at;
        }
        while let Some(done) = done.pop() {
            assert!(done.status.is_ok(), "{:?}", done.status);
            took.push(done.at.since(came[done.id as usize]));
        }
    }
    took
}
