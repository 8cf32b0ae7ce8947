//! A turn is its events, of whole drives: whatever layers hand it down, the requests
//! end when they do event by event, and the drive ends in the same state.

use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Status, Time, Turn, random};

use crate::array::ArrayReport;
use crate::spec::DriveSpec;
use crate::stack;
use crate::whole::{Boxed, Drive};

/// Names of drives with a link above their target, one below it, and none; with
/// registers, SLC cache, caches, sleep, heat, parity, shards, queues, rules, idle collection,
/// reads that share a sensing, and targets of one kind and of two.
const DRIVES: [&str; 22] = [
    "ref,size=8M",
    "tlc,size=8M",
    "tlc,size=8M,side=host",
    "datacenter-tlc,size=32M",
    "client-tlc,size=64M",
    "client-qlc,size=64M",
    "zoned-tlc,size=2G",
    "ull,size=8M",
    "null,size=8M",
    "tlc,size=16M,errors=true,decode=3us",
    "ref,size=16M,slc_cache=1M,slc_idle=200us,idle_collection=1ms",
    "ref,size=32M,parity=4",
    "tlc,size=32M,shards=2,sleep_after=50us/120us,wake_time=30us/70us,sleep_power=2mW/1mW",
    "ref,size=8M,sleep_after=100us,wake_time=30us,energy=true,thermal_resistance=900K/W,\
     thermal_time=5ms,throttle_from=100C,throttle_until=90C,throttle_rate=100MB/s",
    "tlc,size=8M,shared_reads=true,suspend=true",
    "tlc,size=8M,planes=2,shared_reads=true,multi_plane_reads=type,side=host",
    "tlc,size=8M,planes=2,errors=true,decode=3us,shared_reads=true,multi_plane_reads=page,\
     cache_registers=true,suspend=true",
    "tlc,size=8M,planes=2,plane_reads=true,shared_reads=true",
    "tlc,size=8M,queues=3,queue_depth=7,cores=1,core_read=3us,core_write=5us,link_latency=1us",
    "tlc,size=8M,queues=4,queue_depth=16,cores=2,core_read=3us,core_write=5us,arbitration=wrr,\
     arbitration_burst=2,queue_classes=low/urgent/high,class_weights=4/2/1,shards=2",
    "tlc,size=16M,groups=2,pus=4,pages=16,targets=2,idle_collection=1ms",
    "tlc,size=16M,groups=2,pus=4,pages=16,side=host,target=pblk/rules",
];

fn drive(name: &str) -> Boxed {
    let Ok(DriveSpec::Memory(spec)) = format!("mem:{name},store=none").parse() else {
        panic!("{name}")
    };
    stack::build(&spec.resolve().unwrap(), 1).unwrap()
}

/// The same turn, of which no layer knows.
fn turn_by_events(
    drive: &mut Boxed,
    now: Time,
    until: Option<Time>,
    cmds: &mut Ring<BlockReq>,
    done: &mut Ring<BlockDone>,
) -> Turn {
    if !cmds.is_empty() {
        drive.submit(now, cmds);
    }
    port::turn_by_events(drive, until, cmds, done)
}

type Of = fn(&mut Boxed, Time, Option<Time>, &mut Ring<BlockReq>, &mut Ring<BlockDone>) -> Turn;

fn request(id: u64, bytes: u64, queues: u64, random: &mut random::Random) -> BlockReq {
    let op = match random.below(32) {
        0 => BlockOp::Flush,
        1 => BlockOp::Trim,
        n if n < 14 => BlockOp::Read,
        _ => BlockOp::Write,
    };
    let len = if op == BlockOp::Flush { 0 } else { 4096 << random.below(4) };
    let offset = random.below(bytes / 32768) * 32768;
    let fua = op == BlockOp::Write && random.below(16) == 0;
    let queue = random.below(queues) as u8;
    BlockReq { fua, queue, ..BlockReq::new(id, op, offset, len, Buffer::empty()) }
}

/// Requests in bursts, each burst after a rest, some while others are inside. Gives
/// when each ended, and the state at the end.
fn run(name: &str, turn: Of) -> (Vec<(u64, Status, Time, Time)>, u64) {
    let mut drive = drive(name);
    let (mut random, bytes) = (random::Random::new(7, 0), drive.shape().bytes);
    let queues = if name.contains("queues=") { 3 } else { 1 };
    let (mut cmds, mut done) = (Ring::new(64), Ring::new(1024));
    let (mut now, mut sent, mut ends) = (Time::ZERO, 0, Vec::new());
    for _ in 0..60 {
        let rest = [2_000, 300_000, 5_000_000][random.below(3) as usize];
        let (burst, until) = (sent + 1 + random.below(120), now + rest);
        while ends.len() < sent as usize || sent < burst {
            while sent < burst && cmds.room() > 0 && sent - (ends.len() as u64) < 48 {
                cmds.put(|| request(sent, bytes, queues, &mut random));
                sent += 1;
            }
            match turn(&mut drive, now, Some(until.max(now)), &mut cmds, &mut done) {
                Turn::Completed(at) | Turn::Stays(at) => now = at,
                // The next burst begins before this one has ended.
                Turn::Quiet => break,
            }
            ends.extend(done.drain().map(|done| (done.id, done.status, done.at, now)));
        }
        now = now.max(until);
    }
    while turn(&mut drive, now, None, &mut cmds, &mut done) != Turn::Quiet {
        let at = done.front().map_or(now, |done| done.at);
        now = now.max(at);
        ends.extend(done.drain().map(|done| (done.id, done.status, done.at, now)));
    }
    assert_eq!(ends.len() as u64, sent, "{name}: all requests end");
    let of_array = ArrayReport::of(&*drive).since(&ArrayReport::default());
    assert_eq!(of_array.is_some(), name.contains("shared_reads"), "{name}: {of_array:?}");
    (ends, drive.state_hash())
}

#[test]
fn a_turn_is_its_events() {
    for name in DRIVES {
        let (whole, by_events) = (run(name, Boxed::turn), run(name, turn_by_events));
        let first = whole.0.iter().zip(&by_events.0).find(|(a, b)| a != b);
        assert_eq!(first, None, "{name}");
        assert!(whole == by_events, "{name}: it ended in another state");
    }
}
