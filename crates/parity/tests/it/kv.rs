//! The key-value target over parity: it knows nothing of it.

use crate::common::{Broken, durable, power_cut, timing};
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

fn put(drive: &Drive, id: u64) -> KvReq {
    let len = 2000 + id;
    let mut value = Buffer::zeroed(drive.shape().stored(8, len)).unwrap();
    value.bytes_mut().fill(id as u8);
    KvReq { id, op: KvOp::Put(PutIf::Any), durable: true, key: key(id), len, value }
}

/// A program that fails costs no key but those whose puts failed: not one beside it in its
/// superblock, after a cut.
#[test]
fn a_failed_program_costs_no_other_key() {
    let (planes, page_bytes) = (2, 8192);
    let dim =
        Dimensions { groups: 4, chunks: 40, pages: 6, planes, page_bytes, ..Dimensions::LEAST };
    let geometry = Geometry::new(dim).unwrap();
    let broken = Broken::default();
    broken.programs.set(200_000);
    let medium = durable(&geometry, 8, &broken);
    let device = Device::new(&geometry, &timing(), medium).unwrap();
    let mut drive = Kv::new(Parity::new(device, 4).unwrap(), config()).unwrap();
    let mut now = Time::ZERO;
    let puts = (0..KEYS).map(|id| put(&drive, id)).collect();
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
    let get = |id| {
        let value = Buffer::zeroed(room).unwrap();
        KvReq { id, op: KvOp::Get, durable: false, key: key(id), len: 0, value }
    };
    for done in run(&mut drive, &mut now, (0..KEYS).map(get).collect()) {
        assert_eq!((done.status, done.len), (Status::SUCCESS, 2000 + done.id), "get {}", done.id);
        assert!(done.value.bytes()[..8].iter().all(|&byte| byte == done.id as u8));
    }
}
