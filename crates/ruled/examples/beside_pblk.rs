//! A drive of rules beside pblk, on flash that takes no time and keeps nothing: the loops
//! alone, for counting instructions.
//!
//!     beside_pblk pblk|ruled fill|read|write|mixed REQUESTS [RULES]
//!
//! Random requests of 4 KiB in virtual time, 64 outstanding, of a drive of 1 GiB with 20 % spare:
//! `fill` finds it empty, the others written in full. RULES is a file as
//! `examples/rules/minimal.rules`, which is what is taken without. Prints what was written, and
//! ns a request.

use std::process::exit;
use std::time::Instant;

use device::Device;
use flash::{Dimensions, Geometry, Profile, RamMedium};
use ftl::{Start, Target};
use port::random::Random;
use port::{BLOCK_BYTES, BlockOp, BlockReq, Buffer, Ring, Time};
use ruled::{Ruled, RuledConfig};
use rules::{Budget, check, parse};
use targets::{Pblk, PblkConfig, Victim, with_reserve};

/// Requests outstanding.
const DEPTH: usize = 64;
/// Logical blocks: 1 GiB.
const BLOCKS: u64 = 1 << 18;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let usage = || -> ! {
        eprintln!("usage: beside_pblk pblk|ruled fill|read|write|mixed REQUESTS [RULES]");
        exit(2)
    };
    let [target, kind, requests, rest @ ..] = &args[..] else { usage() };
    let Ok(requests) = requests.parse::<u64>() else { usage() };
    let percent = match kind.as_str() {
        "fill" | "write" => 0,
        "read" => 100,
        "mixed" => 50,
        _ => usage(),
    };
    let (device, config) = drive();
    let fills = kind != "fill";
    match target.as_str() {
        "pblk" => run(Pblk::new(device, config).expect("it fits"), fills, percent, requests),
        "ruled" => {
            let text = include_str!("../../../examples/rules/minimal.rules").to_string();
            let text =
                rest.first().map_or(text, |path| std::fs::read_to_string(path).expect("a file"));
            let rules = check(parse(&text).expect("rules"), &Budget::default()).expect("right");
            let config =
                RuledConfig { bytes: config.bytes, rules, control: None, remotes: Vec::new() };
            run(Ruled::new(device, &config).expect("it fits"), fills, percent, requests);
        }
        _ => usage(),
    }
}

fn drive() -> (Device<RamMedium>, PblkConfig) {
    let profile = Profile::builtin("null").expect("it is built in");
    let data = Dimensions { groups: 8, pus: 1, chunks: 80, ..profile.dimensions };
    let geometry = Geometry::new(with_reserve(data)).expect("it is one");
    let medium = RamMedium::new(&geometry, 0).expect("memory");
    let device = Device::new(&geometry, &profile.timing, medium).expect("memory");
    let config = PblkConfig {
        bytes: BLOCKS * BLOCK_BYTES,
        data_chunks: 80,
        idle: 0,
        streams: 1,
        map_pages: 0,
        write_buffer: 0,
        idle_collection: 0,
        victim: Victim::Greedy,
        seed: 1,
    };
    (device, config)
}

fn run(mut target: impl Target, fills: bool, percent: u64, requests: u64) {
    let mut random = Random::new(1, 1);
    if fills {
        go(&mut target, BLOCKS, |n| (BlockOp::Write, n));
        go(&mut target, BLOCKS, |_| (BlockOp::Write, random.below(BLOCKS)));
    }
    let (before, start) = (target.counters(), Instant::now());
    go(&mut target, requests, |_| {
        let op = if random.below(100) < percent { BlockOp::Read } else { BlockOp::Write };
        (op, random.below(BLOCKS))
    });
    let ns = start.elapsed().as_nanos() as f64 / requests.max(1) as f64;
    let (all, was) = (target.counters(), before);
    let (user, gc, padding) = (all.user - was.user, all.gc - was.gc, all.padding - was.padding);
    println!("{ns:.0} ns a request; {user} written, {gc} moved, {padding} padded");
}

/// Runs requests, so many outstanding.
fn go(target: &mut impl Target, count: u64, mut next: impl FnMut(u64) -> (BlockOp, u64)) {
    let (mut reqs, mut done) = (Ring::new(DEPTH), Ring::new(DEPTH));
    let (mut sent, mut ended, mut now) = (0, 0, Time::ZERO);
    while ended < count {
        while sent < count && sent - ended < DEPTH as u64 {
            let (op, lba) = next(sent);
            reqs.put(|| BlockReq {
                id: sent,
                op,
                fua: false,
                placement: 0,
                queue: 0,
                offset: lba * BLOCK_BYTES,
                len: BLOCK_BYTES,
                buffer: Buffer::empty(),
            });
            sent += 1;
        }
        if let port::Turn::Completed(at) | port::Turn::Stays(at) =
            target.turn(now, None, &mut reqs, &mut done)
        {
            now = at;
        }
        while let Some(done) = done.pop() {
            assert!(done.status.is_ok(), "{:?}", done.status);
            ended += 1;
        }
    }
}
