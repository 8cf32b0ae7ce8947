//! The key-value target over parity: it knows nothing of it.

use crate::common::{Broken, cached, durable, power_cut, timing};
use device::Device;
use faults::ScriptedMedium;
use flash::{Dimensions, Geometry};
use parity::Parity;
use port::{Buffer, KvDone, KvOp, KvReq, Port, PutIf, Ring, Status, Time};
use targets::kv::{Kv, KvConfig};

type Drive = Kv<Parity<Device<ScriptedMedium>>>;

const KEYS: u64 = 400;

fn config() -> KvConfig {
    KvConfig { keys: 2 * KEYS, spare: 0.1, depth: 64, checkpoint_rows: 1 << 20, seed: 1 }
}

fn key(n: u64) -> Buffer {
    let mut key = Buffer::zeroed(8).unwrap();
    key.bytes_mut().copy_from_slice(&n.to_be_bytes());
    key
}

/// Does all at once, and gives how each ended, in their order.
fn run(drive: &mut Drive, now: &mut Time, reqs: Vec<KvReq>) -> Vec<KvDone> {
    let (mut all, mut left) = (Vec::new(), reqs.len());
    let (mut queue, mut done) = (Ring::new(left.max(1)), Ring::new(64));
    reqs.into_iter().for_each(|req| queue.push(req).unwrap());
    while left > 0 {
        drive.submit(*now, &mut queue);
        *now = drive.next_event().map_or(*now, |at| at.max(*now));
        drive.advance(*now, &mut done);
        while let Some(one) = done.pop() {
            all.push(one);
            left -= 1;
        }
    }
    all.sort_by_key(|one| one.id);
    all
}

fn put(drive: &Drive, id: u64, len: u64, durable: bool) -> KvReq {
    let mut value = Buffer::zeroed(drive.shape().stored(8, len)).unwrap();
    (0..).zip(value.bytes_mut()).for_each(|(at, to)| *to = byte(id, at));
    KvReq { id, op: KvOp::Put(PutIf::Any), durable, key: key(id), len, value }
}

/// What byte `at` of a value is: it tells the value, and its place there.
fn byte(id: u64, at: u64) -> u8 {
    (id ^ (at / 8).wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes()[(at % 8) as usize]
}

/// Whether what a get gave is all of its value, byte by byte.
fn is_whole(drive: &Drive, done: &KvDone) -> bool {
    let stored = drive.shape().stored(8, done.len);
    let bytes = done.value.bytes().get(..stored);
    bytes.is_some_and(|bytes| (0..).zip(bytes).all(|(at, &is)| is == byte(done.id, at)))
}

fn get(room: usize, id: u64) -> KvReq {
    let value = Buffer::zeroed(room).unwrap();
    KvReq { id, op: KvOp::Get, durable: false, key: key(id), len: 0, value }
}

fn geometry() -> Geometry {
    let (planes, page_bytes) = (2, 8192);
    let dim =
        Dimensions { groups: 4, chunks: 40, pages: 6, planes, page_bytes, ..Dimensions::LEAST };
    Geometry::new(dim).unwrap()
}

/// A program that fails costs no key but those whose puts failed: not one beside it in its
/// superblock, after a cut.
#[test]
fn a_failed_program_costs_no_other_key() {
    let geometry = geometry();
    let broken = Broken::default();
    broken.programs.set(200_000);
    let medium = durable(&geometry, 8, &broken);
    let device = Device::new(&geometry, &timing(), medium).unwrap();
    let mut drive = Kv::new(Parity::new(device, 4).unwrap(), config()).unwrap();
    let mut now = Time::ZERO;
    let puts = (0..KEYS).map(|id| put(&drive, id, 2000 + id, true)).collect();
    for done in run(&mut drive, &mut now, puts) {
        assert_eq!(done.status, Status::SUCCESS, "put {}", done.id);
    }
    broken.programs.set(0);
    let mut medium = drive.into_below().into_below().cut();
    let chunks = power_cut(&mut medium, 1);
    assert!(chunks.iter().filter(|chunk| chunk.has_failed()).count() > 1);
    let device = Device::restore(&geometry, &timing(), medium, &chunks).unwrap();
    let below = Parity::new(device, 4).unwrap();
    let (mut drive, mut now) = Kv::recover(below, config(), Time::ZERO).unwrap();
    let room = drive.shape().stored(8, 3000);
    let gets = (0..KEYS).map(|id| get(room, id)).collect();
    for done in run(&mut drive, &mut now, gets) {
        assert_eq!((done.status, done.len), (Status::SUCCESS, 2000 + done.id), "get {}", done.id);
        assert!(is_whole(&drive, &done), "get {}", done.id);
    }
}

/// Over a cache a cut takes any part of what was not flushed, rows of a large value among it
/// whose record is there. Such a value is not there, what was durable is, and the chunks that
/// have holes are written on.
#[test]
fn a_large_value_of_which_a_cut_took_rows_is_not_there() {
    const SAFE: u64 = 20;
    const ALL: u64 = 60;
    let len = |id| if id % 2 == 0 { 60_000 + id } else { 3000 + id };
    let geometry = geometry();
    let (mut dropped, mut found) = (0, 0);
    for seed in 1..60 {
        let device =
            Device::new(&geometry, &timing(), cached(&geometry, 8, &Broken::default())).unwrap();
        let mut drive = Kv::new(Parity::new(device, 4).unwrap(), config()).unwrap();
        let mut now = Time::ZERO;
        for (ids, durable) in [(0..SAFE, true), (SAFE..ALL, false)] {
            let puts = ids.map(|id| put(&drive, id, len(id), durable)).collect();
            let done = run(&mut drive, &mut now, puts);
            assert!(done.iter().all(|one| one.status.is_ok()));
        }
        for cut in 0..3 {
            let mut medium = drive.into_below().into_below().cut();
            let chunks = power_cut(&mut medium, 3 * seed + cut);
            let device = Device::restore(&geometry, &timing(), medium, &chunks).unwrap();
            let below = Parity::new(device, 4).unwrap();
            (drive, now) = Kv::recover(below, config(), Time::ZERO).unwrap();
            dropped += drive.recovery().dropped;
            let gets = (0..ALL).map(|id| get(60_100, id)).collect();
            let done = run(&mut drive, &mut now, gets);
            for one in done.iter().filter(|one| one.status != Status::KEY_NOT_FOUND) {
                let at = format!("seed {seed}, cut {cut}, get {}", one.id);
                assert_eq!((one.status, one.len), (Status::SUCCESS, len(one.id)), "{at}");
                assert!(is_whole(&drive, one), "{at}");
            }
            let is_there = |one: &KvDone| one.status.is_ok();
            assert!(done[..SAFE as usize].iter().all(is_there), "seed {seed}, cut {cut}");
            found += done[SAFE as usize..].iter().filter(|one| is_there(one)).count();
            // What is there is written on; the last cut is of that.
            let ids = ALL - 10 * (cut + 1)..ALL - 10 * cut;
            let puts = ids.map(|id| put(&drive, id, len(id), cut == 0)).collect();
            let puts = run(&mut drive, &mut now, puts);
            assert!(puts.iter().all(|one| one.status.is_ok()));
        }
    }
    assert!(dropped > 20 && found > 100, "{dropped} values lost rows, {found} were there");
}
