//! Drives of which some targets have blocks and some keep values by key.

use port::{BlockDone, BlockOp, Buffer, KvOp, Port, PutIf, Status};

use super::*;
use crate::shared::tests::{PIECE, SMALL, act as act_on, config};
use crate::spec::{NewTarget, TargetKind};
use crate::stack::{build, check, needs_blocks, recover, recover_in_part};
use crate::whole::{Boxed, Drive};

fn buffer(len: usize, byte: u8) -> Buffer {
    let mut buffer = Buffer::zeroed(len).unwrap();
    buffer.bytes_mut().fill(byte);
    buffer
}

/// One request for blocks.
fn act(drive: &mut Boxed, now: &mut Time, op: BlockOp, at: u64, byte: u8) -> BlockDone {
    let len = if op == BlockOp::Flush { 0 } else { PIECE };
    act_on(drive, now, op, (at, len), byte)
}

/// One request by key, of the first target that has keys.
fn ask(drive: &mut Boxed, now: &mut Time, op: KvOp, key: &[u8], value: Buffer) -> KvDone {
    let shared = drive.shared_mut().unwrap();
    let number = (0..64).find(|&n| shared.keyed(n).is_some()).expect("one has keys");
    let (mut reqs, mut done, mut none) = (Ring::new(1), Ring::new(1), Ring::new(1));
    let mut name = Buffer::zeroed(key.len()).unwrap();
    name.bytes_mut().copy_from_slice(key);
    let len = if matches!(op, KvOp::Put(_)) { value.len() as u64 } else { 0 };
    reqs.put(|| KvReq { id: 7, op, durable: true, key: name, len, value });
    shared.submit_keys(number, *now, &mut reqs).unwrap();
    loop {
        let at = drive.next_event().expect("it is inside");
        *now = at.max(*now);
        drive.advance(at, &mut none);
        drive.shared_mut().unwrap().take_keys(number, &mut done).unwrap();
        if let Some(done) = done.pop() {
            return done;
        }
    }
}

fn put(drive: &mut Boxed, now: &mut Time, key: u64, byte: u8) -> Status {
    let value = buffer(if key.is_multiple_of(5) { 300_000 } else { 37 * key as usize }, byte);
    ask(drive, now, KvOp::Put(PutIf::Any), &key.to_le_bytes(), value).status
}

/// That a key has its value, all of it.
fn has(drive: &mut Boxed, now: &mut Time, key: u64, byte: u8) -> bool {
    let room = buffer(300_000, !byte);
    let done = ask(drive, now, KvOp::Get, &key.to_le_bytes(), room);
    let len = if key.is_multiple_of(5) { 300_000 } else { 37 * key };
    let bytes = &done.value.bytes()[..len as usize];
    done.status.is_ok() && done.len == len && bytes.iter().all(|&it| it == byte)
}

/// The first bytes of each target of blocks.
fn firsts(config: &DriveConfig) -> Vec<u64> {
    let with_blocks = (0..config.targets())
        .filter(|n| config.parts[*n as usize].kind() != TargetKind::Kv)
        .map(|n| config.first_byte(n));
    with_blocks.collect()
}

/// Blocks and values are written beside each other, over and over, the drive is cut, found
/// again, ended, and found again: all is there.
#[test]
fn blocks_and_values_are_found_again() {
    for kinds in [
        "units=6/2,target=pblk/kv",
        "units=2/2/4,target=kv/rules/pblk,keys=1000",
        "targets=2,target=pblk/kv,placement=stripe",
    ] {
        for more in ["", ",side=host", ",read_cache=1m", ",write_buffer=2m,map_cache=1m"] {
            let config = config(&format!("{SMALL},{kinds}{more}"));
            let mut drive = build(&config, 1).unwrap_or_else(|e| panic!("{kinds}{more}: {e}"));
            let mut now = Time::ZERO;
            for round in 1..4 {
                for n in 0..12 {
                    for first in firsts(&config) {
                        let done =
                            act(&mut drive, &mut now, BlockOp::Write, first + n * PIECE, round);
                        assert!(done.status.is_ok(), "{kinds}{more}: {:?}", done.status);
                    }
                    let status = put(&mut drive, &mut now, n, round);
                    assert!(status.is_ok(), "{kinds}{more}: {status:?}");
                }
            }
            for first in firsts(&config) {
                assert!(act(&mut drive, &mut now, BlockOp::Flush, first, 0).status.is_ok());
            }
            let check = |drive: &mut Boxed, now: &mut Time| {
                for n in 0..12 {
                    for first in firsts(&config) {
                        let done = act(drive, now, BlockOp::Read, first + n * PIECE, 0);
                        assert!(done.buffer.bytes().iter().all(|&b| b == 3), "{kinds}{more}");
                    }
                    assert!(has(drive, now, n, 3), "{kinds}{more}: {n}");
                }
            };
            let shards = drive.cut().shards;
            let (mut drive, mut now, _) = recover(&config, 1, shards, 0, None).unwrap();
            check(&mut drive, &mut now);
            let shards = drive.end(now).unwrap().shards;
            let (mut drive, mut now, _) = recover(&config, 1, shards, 0, None).unwrap();
            let found = |n| drive.shared().unwrap().keyed(n).map(|keys| *keys.recovery());
            let found = (0..3).find_map(found).unwrap();
            assert_eq!((found.rows, found.checkpoint > 0), (0, true), "it ended well");
            check(&mut drive, &mut now);
        }
    }
}

/// Its addresses are nobody's, and it says what it is.
#[test]
fn a_target_of_keys_has_no_addresses() {
    let config = config("mem:tlc,size=1G,units=8/8/16,target=pblk/kv/rules,keys=5000");
    assert_eq!((config.kinds_text().as_str(), config.has_keyed_parts()), ("pblk/kv/rules", true));
    let keys = |n: usize| (config.parts[n].keys, config.target(n as u32).keys());
    assert_eq!((keys(0).0, keys(1)), (0, (5000, 5000)));
    check(&config, 1).unwrap();
    needs_blocks(&config).unwrap();
    let mut drive = build(&config, 1).unwrap();
    assert_eq!(drive.shape().bytes, 1 << 30);
    let parts: Vec<_> = (0..3).map(|n| drive.part(n).unwrap().bytes >> 20).collect();
    assert_eq!(parts, [256, 0, 512]);
    let mut now = Time::ZERO;
    let read = act(&mut drive, &mut now, BlockOp::Read, config.first_byte(1), 0);
    assert_eq!(read.status, Status::LBA_OUT_OF_RANGE);
    let shared = drive.shared_mut().unwrap();
    let (_, room) = shared.keyed(1).unwrap().stored();
    assert!(room + 4096 >= 256 << 20, "its values have the room of its size: {room}");
    assert!(shared.keyed(0).is_none() && shared.rules_of(1).is_none());
    let refused = shared.submit_keys(0, now, &mut Ring::new(1)).unwrap_err().to_string();
    assert!(refused.contains("serves no keys"), "{refused}");
}

#[test]
fn what_its_requests_would_go_past_is_refused() {
    let queues = "cores=1,core_read=1us,core_write=1us,queues=2,queue_depth=8";
    for (more, says) in [
        ("cache=protected", "protected cache"),
        ("buffer_rate=1GB/s", "buffer with a rate"),
        (queues, "submission queues"),
    ] {
        let config = config(&format!("{SMALL},units=4/4,target=pblk/kv,{more}"));
        let told = check(&config, 1).map(drop).unwrap_err();
        assert!(told.to_string().contains(says), "{more}: {told}");
        assert_eq!(told.exit_code(), 2);
    }
    let limited = config(&format!("{SMALL},target=pblk/kv,open_chunks=400,open_chunks_pu=100"));
    let told = check(&limited, 1).map(drop).unwrap_err().to_string();
    assert!(told.contains("target1"), "{told}");
}

/// One comes while blocks are used, has what others had, and goes.
#[test]
fn a_target_of_keys_comes_and_goes() {
    let whole = config(&format!("{SMALL},units=4"));
    let mut drive = build(&whole, 1).unwrap();
    let mut now = Time::ZERO;
    let asked = |keys| whole.with_target(Some("keys"), Some(4), NewTarget::Kv(keys));
    let told = asked(1 << 30).unwrap_err();
    assert!(told.contains("fewer keys"), "{told}");
    assert!(asked(u64::MAX).unwrap_err().contains("take 1 to"));
    let (next, n) = asked(0).unwrap();
    assert_eq!(next.parts[n as usize].keys, next.target(n).size / 4096);
    assert!(next.without_target("target0").unwrap_err().contains("only target with blocks"));
    for _ in 0..2 {
        let shared = drive.shared_mut().unwrap();
        let number = shared.create(next.clone(), n).unwrap();
        let told = shared.submit_keys(number, now, &mut Ring::new(1));
        assert!(told.is_err(), "it does not serve yet");
        shared.set_serving(number, true).unwrap();
        for key in 0..12 {
            assert!(!has(&mut drive, &mut now, key, 1), "nothing is left of the one before");
            assert!(put(&mut drive, &mut now, key, 1).is_ok());
            assert!(act(&mut drive, &mut now, BlockOp::Write, key * PIECE, 3).status.is_ok());
        }
        let shared = drive.shared_mut().unwrap();
        shared.remove(next.without_target("keys").unwrap(), number, now).unwrap();
        let mut done = Ring::new(1);
        while drive.shared().unwrap().leaving(number) != (true, 0) {
            now = drive.next_event().expect("it is being erased");
            drive.advance(now, &mut done);
        }
        assert!(drive.shared().unwrap().keyed(number).is_none());
    }
    let read = act(&mut drive, &mut now, BlockOp::Read, 0, 0);
    assert!(read.buffer.bytes().iter().all(|&byte| byte == 3), "the other is as it was");
}

/// It is found again whoever goes before it, and is the same for who comes there.
#[test]
fn keys_stay_where_others_come_and_go() {
    let whole = config(&format!("{SMALL},units=2/2/2,target=pblk/pblk/kv"));
    let mut drive = build(&whole, 1).unwrap();
    let mut now = Time::ZERO;
    assert!(put(&mut drive, &mut now, 7, 1).is_ok());
    let mut next = whole;
    for (name, new) in [("target0", "more"), ("target1", "last")] {
        let (more, n) = next.with_target(Some(new), Some(2), NewTarget::Pblk).unwrap();
        let shared = drive.shared_mut().unwrap();
        let made = shared.create(more.clone(), n).unwrap();
        shared.set_serving(made, true).unwrap();
        next = more.without_target(name).unwrap();
        let number = shared.number(name).unwrap();
        shared.remove(next.clone(), number, now).unwrap();
        let shards = drive.end(now).unwrap().shards;
        (drive, now, _) = recover(&next, 1, shards, 0, None).unwrap();
        assert!(has(&mut drive, &mut now, 7, 1), "without {name}");
    }
}

/// Keys that cannot be found again lock no blocks out; without blocks there is no drive.
#[test]
fn a_damaged_target_of_keys_locks_nobody_out() {
    let config = config(&format!("{SMALL},units=4/4,target=pblk/kv"));
    let left = || {
        let mut drive = build(&config, 1).unwrap();
        let mut now = Time::ZERO;
        act(&mut drive, &mut now, BlockOp::Write, 0, 9);
        act(&mut drive, &mut now, BlockOp::Flush, 0, 0);
        for key in 0..20 {
            assert!(put(&mut drive, &mut now, key, 1).is_ok());
        }
        drive.end(now).unwrap().shards
    };
    // Blocks are the same with any seed.
    let (mut drive, mut now, _) = recover_in_part(&config, 2, left(), 0, None).unwrap();
    let shared = drive.shared().unwrap();
    let why = shared.damage_of("target1").unwrap().to_string();
    assert!(why.contains("another seed") && shared.keyed(1).is_none(), "{why}");
    let read = act(&mut drive, &mut now, BlockOp::Read, 0, 0);
    assert!(read.buffer.bytes().iter().all(|&byte| byte == 9));
    let shards = drive.end(now).unwrap().shards;
    let (mut drive, mut now, _) = recover(&config, 1, shards, 0, None).unwrap();
    assert!(has(&mut drive, &mut now, 7, 1), "what it holds was left as it is");
    let mut shards = left();
    crate::shared::tests::damage(&mut shards[0], &config.geometry, 0..4);
    assert!(recover_in_part(&config, 1, shards, 0, None).is_err());
}
