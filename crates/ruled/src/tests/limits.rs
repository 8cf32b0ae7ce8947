//! What waits: delays, limits, weights; and what moves.

use port::{BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Time};

use super::control::{request, run};
use super::{checked, small};
use crate::{Ruled, RuledConfig};

type Drive = Ruled<device::Device<drive::backing::Backing>>;

fn drive(profile: &str, set: &str) -> Drive {
    let (device, config) = small(profile);
    let rules = checked(&format!("set a {set}"));
    ftl::Start::new(
        device,
        &RuledConfig { bytes: config.bytes, rules, control: None, remotes: Vec::new() },
    )
    .unwrap()
}

fn times(drive: &mut Drive, all: Vec<BlockReq>) -> Vec<u64> {
    let done = run(drive, all);
    assert!(done.iter().all(|done| done.status.is_ok()), "{done:?}");
    done.iter().map(|done| done.at.0).collect()
}

const TWO: &str = "application 1 lba 0..100 units 0..8 application 2 lba 100..200 units 0..8";

/// A delay and a rate hold back whom they name, and no other.
#[test]
fn delays_and_rates_hold_back() {
    let rules = "limit slow rate 1000 burst 2
         rule late priority 2 when application == 1 and op == write then delay 5us
         rule pace priority 2 when application == 1 and op == read then limit slow
         rule all priority 1 when op != idle then pass";
    let mut drive = drive("null", &format!("{TWO} {rules}"));
    let write = |id, lba| request(id, BlockOp::Write, lba, 1);
    let done = run(&mut drive, vec![write(0, 3), write(1, 150), write(2, 4)]);
    let ended: Vec<(u64, u64)> = done.iter().map(|done| (done.id, done.at.0)).collect();
    assert_eq!(ended, [(1, 0), (0, 5000), (2, 5000)]);
    let read = |id, lba| request(id, BlockOp::Read, lba, 1);
    let start = 5000;
    let done = times_from(&mut drive, start, (0..4).map(|n| read(n, n)).chain([read(9, 101)]));
    let of = |id| done.iter().find(|done| done.id == id).unwrap().at.0 - start;
    assert_eq!([0, 1, 2, 3, 9].map(of), [0, 0, 1_000_000, 2_000_000, 0]);
}

/// Of a drive that is to end nothing waits for a time: what waits goes on at once, in its order,
/// and what comes waits no more; afterwards rules delay as before.
#[test]
fn who_is_hurried_waits_for_no_time() {
    let rules = "limit slow rate 1 burst 1 limit one depth 1
         rule late priority 3 when application == 1 and op != idle then delay 10s
         rule pace priority 2 when application == 2 and op == read then limit slow
         rule one priority 2 when op == write then limit one
         rule all priority 1 when op != idle then pass";
    let mut drive = drive("null", &format!("{TWO} {rules}"));
    let all = (0..20).map(|n| request(n, BlockOp::Write, n, 3));
    let all = all.chain((20..40).map(|n| request(n, BlockOp::Read, 100 + n, 2)));
    let all: Vec<BlockReq> = all.chain([request(40, BlockOp::Flush, 0, 0)]).collect();
    let count = all.len();
    let (mut reqs, mut done) = (Ring::new(count), Ring::new(count));
    all.into_iter().for_each(|req| reqs.put(|| req));
    drive.submit(Time::ZERO, &mut reqs);
    let start = 1_000_000;
    let mut left = count;
    let mut advance = |drive: &mut Drive, until: u64| {
        while let Some(at) = drive.next_event().filter(|at| at.0 <= until) {
            drive.advance(at, &mut done);
            while let Some(done) = done.pop() {
                assert!(done.status.is_ok(), "{done:?}");
                left -= 1;
            }
        }
        left
    };
    assert_eq!(advance(&mut drive, start), count, "each has a block at least that waits");
    ftl::Target::set_hurried(&mut drive, true, Time(start));
    assert_eq!(advance(&mut drive, start), 0);
    let last = request(0, BlockOp::Write, 7, 3);
    assert_eq!(times_from(&mut drive, start, [last].into_iter())[0].at.0, start);
    ftl::Target::set_hurried(&mut drive, false, Time(start));
    let late = request(0, BlockOp::Write, 7, 1);
    let late = times_from(&mut drive, start, [late].into_iter());
    assert_eq!(late[0].at.0, start + 10_000_000_000);
}

/// Runs requests that all come at a time.
pub(super) fn times_from(
    drive: &mut Drive,
    start: u64,
    all: impl Iterator<Item = BlockReq>,
) -> Vec<BlockDone> {
    let all: Vec<BlockReq> = all.collect();
    let (count, mut ended) = (all.len(), Vec::new());
    let (mut reqs, mut done) = (Ring::new(count), Ring::new(count));
    all.into_iter().for_each(|req| reqs.put(|| req));
    drive.submit(Time(start), &mut reqs);
    while ended.len() < count {
        let now = drive.next_event().unwrap();
        drive.advance(now, &mut done);
        ended.extend(std::iter::from_fn(|| done.pop()));
    }
    ended
}

/// As many as a depth says are under way, whatever their number of blocks; others go on.
#[test]
fn a_depth_is_kept() {
    let rules = "limit one depth 1 limit two depth 2
         rule one priority 2 when application == 1 and op == read then limit one
         rule two priority 2 when application == 2 and op == read then limit two
         rule all priority 1 when op != idle then pass";
    let mut drive = drive("ref", &format!("{TWO} {rules}"));
    let last = *times(&mut drive, (0..200).map(|n| request(n, BlockOp::Write, n, 1)).collect())
        .last()
        .unwrap();
    let done = times_from(&mut drive, last, [request(0, BlockOp::Flush, 0, 0)].into_iter());
    let start = done[0].at.0 + 1_000_000_000;
    // Each is of another unit, so that alone all would end at once.
    let reads = |first| (0..4u64).map(move |n| request(first + n, BlockOp::Read, first + n, 1));
    let done = times_from(&mut drive, start, reads(0).chain(reads(104)));
    let mut of = [[0; 4]; 2];
    done.iter().for_each(|d| of[(d.id / 100) as usize][(d.id % 4) as usize] = d.at.0 - start);
    let once = of[0][0];
    let turns = |all: [u64; 4]| all.map(|at| (at + once / 2) / once);
    assert_eq!((turns(of[0]), turns(of[1])), ([1, 2, 3, 4], [1, 1, 2, 2]));
}

/// When all is done that was begun, and nothing waits.
fn rested(drive: &mut Drive) -> Time {
    let (mut now, mut done) = (Time::ZERO, Ring::new(1));
    while let Some(at) = drive.next_event() {
        (now, ()) = (at, drive.advance(at, &mut done));
        done.pop();
    }
    now
}

/// What tenants that always have something to do get done, and the latencies of the first's.
struct Shares {
    done: [u64; 2],
    latencies: Vec<u64>,
}

/// Two tenants, each with so many requests outstanding, random in its half of the blocks.
fn shares(drive: &mut Drive, half: u64, ops: [BlockOp; 2], depths: [u64; 2], count: u64) -> Shares {
    let mut random = port::random::Random::new(1, 1);
    let (mut reqs, mut done) = (Ring::new(256), Ring::new(256));
    let mut sent = vec![0u64; 256];
    let mut free: Vec<u64> = (0..depths[0]).chain(128..128 + depths[1]).collect();
    let mut shares = Shares { done: [0; 2], latencies: Vec::new() };
    let mut now = rested(drive);
    while shares.done.iter().sum::<u64>() < count {
        for id in free.drain(..) {
            let tenant = (id >= 128) as usize;
            let lba = random.below(half) + half * tenant as u64;
            sent[id as usize] = now.0;
            let (offset, buffer) = (lba * BLOCK_BYTES, Buffer::empty());
            let (op, len, queue) = (ops[tenant], BLOCK_BYTES, 0);
            let req = BlockReq { id, op, fua: false, placement: 0, queue, offset, len, buffer };
            reqs.put(|| req);
        }
        drive.submit(now, &mut reqs);
        now = drive.next_event().unwrap();
        drive.advance(now, &mut done);
        while let Some(done) = done.pop() {
            assert!(done.status.is_ok(), "{done:?}");
            free.push(done.id);
            shares.done[(done.id >= 128) as usize] += 1;
            if done.id < 128 {
                shares.latencies.push(done.at.0 - sent[done.id as usize]);
            }
        }
    }
    shares
}

/// Those that wait for the same units get of them by their weights; without, the same.
#[test]
fn units_are_shared_by_weight() {
    let weighed = |first, second| {
        format!(
            "limit a share {first} limit b share {second}
             rule weigh1 priority 2 when application == 1 then limit a
             rule weigh2 priority 2 when application == 2 then limit b"
        )
    };
    // Of one unit, where each tenant always has something that waits.
    let units = |half, units| {
        let end = 2 * half;
        format!(
            "application 1 lba 0..{half} units 0..{units}
             application 2 lba {half}..{end} units 0..{units}"
        )
    };
    for (op, half, weights, expected) in [
        (BlockOp::Write, 4000, weighed(3, 1), 3.0),
        (BlockOp::Write, 4000, String::new(), 1.0),
        (BlockOp::Read, 400, weighed(4, 1), 4.0),
    ] {
        let is_read = op == BlockOp::Read;
        let units = units(half, if is_read { 1 } else { 8 });
        let rules = format!("{weights} rule all priority 1 when op != idle then pass");
        let mut drive = drive("ref", &format!("{units} {rules}"));
        if is_read {
            shares(&mut drive, half, [BlockOp::Write; 2], [64, 64], 4000);
        }
        // A flood of the second one's takes nothing from the first.
        let done = shares(&mut drive, half, [op; 2], [100, 120], 20_000).done;
        let ratio = done[0] as f64 / done[1] as f64;
        assert!((ratio / expected - 1.0).abs() < 0.1, "{op:?} {expected}: {done:?}");
    }
}

fn p999(mut latencies: Vec<u64>) -> u64 {
    latencies.sort_unstable();
    latencies[latencies.len() * 999 / 1000]
}

/// One tenant's reads beside another's writes take what they take alone, to 5 % at 99.9 %,
/// where each has units, and channels, of its own; where they share units they take longer.
#[test]
fn units_of_their_own_isolate_tenants() {
    let set = |first: &str, second: &str| {
        format!(
            "application 1 lba 0..3900 units {first} application 2 lba 3900..7800 units {second}
             rule write priority 1 when op == write then place
             rule all priority 0 when op != idle then pass"
        )
    };
    // Units are numbered over the channels first: 4 channels of 2.
    let measured = |set: &str, writers: u64| {
        let mut drive = drive("ref", set);
        shares(&mut drive, 3900, [BlockOp::Write; 2], [32, 32], 30_000);
        let ops = [BlockOp::Read, BlockOp::Write];
        p999(shares(&mut drive, 3900, ops, [8, writers], 60_000).latencies)
    };
    let isolated = set("0..2", "2..4");
    let (alone, beside) = (measured(&isolated, 0), measured(&isolated, 32));
    let shared = measured(&set("0..8", "0..8"), 32);
    println!("alone {alone} ns, beside {beside} ns, on the same units {shared} ns");
    assert!(beside as f64 <= 1.05 * alone as f64, "{alone} {beside}");
    assert!(shared > 2 * alone, "{alone} {shared}");
}

/// A block that is read moves, with its entry, once; what moved is read again.
#[test]
fn blocks_move() {
    let mut drive = drive(
        "ref",
        "application 0 lba 0..64 units 0..8
         map m[64] of address in 0..8
         rule move priority 2 when op == read and lba < 2 then migrate m[lba] to 7
         rule write priority 1 when op == write then place unit 1 into m[lba]
         rule read priority 1 when op == read then serve m[lba]
         rule rest priority 0 when op != idle then pass",
    );
    times(&mut drive, vec![request(0, BlockOp::Write, 0, 3)]);
    let unit =
        |drive: &Drive, lba: u64| drive.unit_of(drive.leads(drive.blocks.firsts[0] + lba).unwrap());
    let now = times_from(&mut drive, 0, [request(0, BlockOp::Read, 0, 3)].into_iter())[0].at.0;
    // What is not programmed yet moves later.
    assert_eq!(unit(&drive, 0), 1);
    let now = times_from(&mut drive, now, [request(0, BlockOp::Flush, 0, 0)].into_iter())[0].at.0;
    let mut done = Ring::new(1);
    while let Some(at) = drive.next_event().filter(|at| at.0 < now + 900_000) {
        drive.advance(at, &mut done);
    }
    let units: Vec<usize> = (0..3).map(|lba| unit(&drive, lba)).collect();
    assert_eq!(units, [7, 7, 1]);
    let start = now + 900_000;
    times_from(&mut drive, start, [request(0, BlockOp::Read, 0, 3)].into_iter());
    assert_eq!((drive.counters.gc, unit(&drive, 0)), (2, 7));
    assert_eq!(drive.counters.moved, 2);
}
