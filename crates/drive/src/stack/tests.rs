//! Stacks of any layers: they go together, and show the same outside.

use super::*;
use crate::fault_rules::FaultArgs;
use crate::spec::DriveSpec;
use crate::whole::{Ended, Observed, PartOf};
use port::{BlockDone, BlockOp, BlockReq, Buffer};

fn build(name: &str) -> Boxed {
    let Ok(DriveSpec::Memory(spec)) = name.parse() else { panic!("{name}") };
    super::build(&spec.resolve().unwrap(), 1).unwrap()
}

/// Sizes in bytes are those of the whole drive, whatever its shards.
#[test]
fn shards_share_the_caches_of_the_drive() {
    for slc in ["slc_cache=64m", "slc_cache=100m,slc_dynamic=true,slc_static=64m"] {
        let sizes = [1, 2, 4].map(|shards| {
            let name = format!("mem:tlc,size=1G,store=none,map_cache=1m,{slc},shards={shards}");
            let Ok(DriveSpec::Memory(spec)) = name.parse() else { panic!("{name}") };
            let config = spec.resolve().unwrap();
            let parts = (0..shards).map(|n| config.shard(n));
            let (pages, own) = parts
                .map(|part| {
                    let slc = part.profile.timing.slc;
                    let own = slc.blocks_per_pu(&part.geometry, 16).1;
                    (target(&part, 1).map_pages, own * u64::from(part.geometry.total_pus()))
                })
                .fold((0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
            (super::build(&config, 1).unwrap().slc().most_rows, own, pages)
        });
        assert_eq!(sizes, [sizes[0]; 3], "{slc}");
        assert!(sizes[0].0 > 0 && sizes[0].2 == 256, "{sizes:?}");
    }
}

#[test]
fn all_kinds_show_the_same_outside() {
    let of = |rest: &str| {
        let drive = build(&format!("mem:znand,size=64M,store=checksum{rest}"));
        (drive.shape().bytes, drive.shape().kept, drive.free_chunks())
    };
    let (bytes, kept, free) = of("");
    assert_eq!((bytes, kept), (64 << 20, 8));
    assert!(free > 0);
    assert_eq!(of(",side=host"), of(""));
    assert_eq!(of(",cache=protected"), of(""));
    assert_eq!(of(",link_latency=0ns,link_rate=none,controller=0ns"), of(""));
}

/// One request at `now`; gives what came of it, and when.
fn act(drive: &mut Boxed, now: Time, op: BlockOp, offset: u64, byte: u8) -> (BlockDone, Time) {
    let (mut cmds, mut done) = (Ring::new(1), Ring::new(1));
    let len = if op == BlockOp::Flush { 0 } else { PIECE };
    let mut buffer = Buffer::zeroed(len as usize).unwrap();
    buffer.bytes_mut().fill(byte);
    cmds.put(|| BlockReq { id: 0, op, fua: false, placement: 0, queue: 0, offset, len, buffer });
    drive.submit(now, &mut cmds);
    loop {
        let at = drive.next_event().expect("it is inside");
        drive.advance(at, &mut done);
        if let Some(done) = done.pop() {
            return (done, at);
        }
    }
}

const PIECE: u64 = 16 << 10;

/// A drive with these rules is written, ended and found again, and all is
/// there. Gives how often each rule struck.
fn lives(name: &str, rules: &[&str]) -> Vec<u64> {
    let Ok(DriveSpec::Memory(spec)) = name.parse() else { panic!("{name}") };
    let mut config = spec.resolve().unwrap_or_else(|e| panic!("{name}: {e}"));
    let rules = rules.iter().map(|rule| rule.to_string()).collect();
    config.faults = FaultArgs { rules, file: None }.read(1).unwrap();
    let mut drive = super::build(&config, 1).unwrap_or_else(|e| panic!("{name}: {e}"));
    drive.begin_faults();
    let (mut now, pieces) = (Time::ZERO, 40);
    for i in 0..pieces {
        now = act(&mut drive, now, BlockOp::Write, i * PIECE, i as u8 + 1).1;
    }
    now = act(&mut drive, now, BlockOp::Flush, 0, 0).1;
    now = act(&mut drive, now, BlockOp::Read, 0, 0).1;
    let struck = drive.injected().iter().map(|one| one.times).collect();
    let Ended { shards, .. } = drive.end(now).unwrap();
    let journal = empty_journal(&config).unwrap();
    let (mut drive, mut now, _) = recover(&config, 1, shards, 0, journal).unwrap();
    for i in 0..pieces {
        let (done, at) = act(&mut drive, now, BlockOp::Read, i * PIECE, 0);
        assert!(done.status.is_ok(), "{name}: {:?}", done.status);
        assert!(done.buffer.bytes().iter().all(|&b| b == i as u8 + 1), "{name}: piece {i}");
        now = at;
    }
    struck
}

#[test]
fn any_layers_go_together() {
    for side in ["host", "device", "device,buffer_rate=500MB/s", "device,map_unit=32k"] {
        for cache in ["volatile", "protected"] {
            for parity in ["", ",parity=4"] {
                for rules in [
                    &[][..],
                    &["above:read,delay=1ms", "below:write,delay=1us", "medium:slow,probability=1"],
                ] {
                    let name = format!(
                        "mem:tlc,size=16M,groups=2,pus=2,pages=16,side={side},cache={cache}{parity}"
                    );
                    let struck = lives(&name, rules);
                    assert!(struck.iter().all(|&times| times > 0), "{name}: {struck:?}");
                }
            }
        }
    }
}

#[test]
fn targets_go_together_with_what_is_around_them() {
    for more in [
        "",
        ",side=host",
        ",cache=protected,placement=stripe",
        ",queues=2,queue_depth=8,cores=2,core_read=1us,read_cache=1m,buffer_rate=1GB/s",
        ",placement=stripe,open_chunks=400,open_chunks_pu=100",
    ] {
        for rules in [
            &[][..],
            &["above:read,delay=1ms", "below:write,delay=1us", "medium:slow,probability=1"],
        ] {
            let name = format!("mem:tlc,size=16M,groups=2,pus=4,pages=16,targets=4{more}");
            let struck = lives(&name, rules);
            assert!(struck.iter().all(|&times| times > 0), "{name}: {struck:?}");
        }
    }
}

#[test]
fn targets_may_have_parts_of_any_size() {
    let name = "mem:tlc,size=16M,groups=2,pus=4,pages=16,units=1/5/2";
    assert!(lives(name, &[]).is_empty());
    let drive = build(name);
    let parts: Vec<_> = (0..3).map(|n| drive.part(n).unwrap()).collect();
    let parts: Vec<_> = parts.iter().map(|part| (part.first, part.bytes)).collect();
    assert_eq!(parts, [(0, 2 << 20), (2 << 20, 10 << 20), (12 << 20, 4 << 20)]);
}

/// A target has its part of the addresses, and counts what was written there.
#[test]
fn each_target_has_its_part() {
    let mut drive = build("mem:tlc,size=16M,groups=2,pus=4,pages=16,targets=4");
    let mut now = Time::ZERO;
    for target in 0..4 {
        let PartOf { first, bytes, .. } = drive.part(target).unwrap();
        assert_eq!((first, bytes), (target as u64 * (4 << 20), 4 << 20));
        for i in 0..=target as u64 {
            now = act(&mut drive, now, BlockOp::Write, first + i * PIECE, 1).1;
        }
    }
    let written: Vec<_> = (0..4).map(|n| drive.target(n).counters().user).collect();
    assert_eq!(written, [4, 8, 12, 16]);
    assert_eq!(drive.counters().user, 40);
    act(&mut drive, now, BlockOp::Flush, 0, 0);
    let chunks = drive.lower(0).device().geometry().chunk_slots();
    let valid: u64 = (0..chunks).map(|n| u64::from(drive.valid_blocks(0, n))).sum();
    assert_eq!(valid, 40);
}

#[test]
fn shards_go_together_with_what_is_above_them() {
    let queues = ",queues=2,queue_depth=8,cores=2,core_read=1us,read_cache=1m,buffer_rate=1GB/s";
    for more in ["", ",cache=protected", ",parity=4", ",cache=protected,parity=4", queues] {
        for rules in [&[][..], &["above:read,delay=1ms"]] {
            let name = "mem:tlc,size=16M,groups=4,pus=4,pages=16,side=device,shards=2";
            let struck = lives(&format!("{name}{more}"), rules);
            assert!(struck.iter().all(|&times| times > 0), "{more}: {struck:?}");
        }
    }
    for (name, rules, why) in [
        ("ref", &["below:read,delay=1ms"][..], "faults below its target"),
        ("tlc,side=host", &[], "a link below its target"),
    ] {
        let name = format!("mem:{name},size=64M,shards=2");
        let Ok(DriveSpec::Memory(spec)) = name.parse() else { panic!("{name}") };
        let mut config = spec.resolve().unwrap();
        let rules = rules.iter().map(|rule: &&str| rule.to_string()).collect();
        config.faults = FaultArgs { rules, file: None }.read(1).unwrap();
        let Err(e) = super::build(&config, 1) else { panic!("{name} is refused") };
        assert!(e.to_string().contains(why), "{e}");
    }
}

/// Lets what is due until `until` happen in a drive.
fn pass(drive: &mut Boxed, until: Time, all: &mut Vec<(u64, Time)>) {
    let mut done = Ring::new(3);
    while let Some(at) = drive.next_event().filter(|&at| at <= until) {
        drive.advance(at, &mut done);
        all.extend(done.drain().map(|done| (done.id, done.at)));
    }
}

/// Writes and reads inside stripes, at times that are given.
fn arrivals(bytes: u64) -> impl Iterator<Item = (Time, BlockReq)> {
    let mut random = random::Random::new(1, 2);
    (0..12_000).map(move |id| {
        let op = if !random.bits().is_multiple_of(3) { BlockOp::Write } else { BlockOp::Read };
        let (offset, buffer) = (random.bits() % (bytes / 4096) * 4096, Buffer::empty());
        (
            Time(id * 100_000),
            BlockReq {
                id,
                op,
                fua: id % 50 == 0,
                placement: 0,
                queue: 0,
                offset,
                len: 4096,
                buffer,
            },
        )
    })
}

#[test]
fn who_polls_a_shard_changes_nothing() {
    let name = "mem:ref,size=8M,groups=3,pus=2,pages=16,store=none,shards=3";
    let Ok(DriveSpec::Memory(spec)) = name.parse() else { panic!("{name}") };
    let config = spec.resolve().unwrap();
    let (end, mut cmds) = (Time(u64::MAX), Ring::new(1));
    // All by one.
    let (mut whole, mut times) = (super::build(&config, 7).unwrap(), Vec::new());
    for (at, req) in arrivals(config.size) {
        pass(&mut whole, at, &mut times);
        cmds.put(|| req);
        whole.submit(at, &mut cmds);
        assert!(cmds.is_empty());
    }
    pass(&mut whole, end, &mut times);
    // Each by one of its own, one after the other.
    let mut apart = Vec::new();
    for n in 0..3 {
        let seed = 7u64.wrapping_add(random::STEP.wrapping_mul(n));
        let mut shard = super::build(&config.shard(n as u32), seed).unwrap();
        for (at, mut req) in arrivals(config.size) {
            let stripe = req.offset >> 16;
            if stripe % 3 == n {
                req.offset = stripe / 3 * (64 << 10) + req.offset % (64 << 10);
                pass(&mut shard, at, &mut apart);
                cmds.put(|| req);
                shard.submit(at, &mut cmds);
                assert!(cmds.is_empty());
            }
        }
        pass(&mut shard, end, &mut apart);
        let target = whole.target(n as usize);
        assert_eq!(target.state_hash(), shard.target(0).state_hash());
        assert_eq!(target.counters(), shard.counters());
        assert!(shard.counters().gc > 0, "it has collected");
    }
    times.sort_unstable();
    apart.sort_unstable();
    assert_eq!(times.len(), 12_000);
    assert_eq!(times, apart);
}
