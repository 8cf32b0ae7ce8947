//! Drives of which some targets are pblk and some are made of rules.

use flash::{Geometry, Medium, Moved, Ppa, TAG_BYTES};
use port::{BlockOp, Buffer, Status};

use super::*;
use crate::fault_rules::FaultArgs;
use crate::spec::{DriveSpec, NewTarget, TargetKind};
use crate::stack::{build, check, empty_journal, needs_stories, recover, recover_in_part};
use crate::whole::{Boxed, Left};

pub(crate) const PIECE: u64 = 16 << 10;

pub(crate) fn config(name: &str) -> DriveConfig {
    let Ok(DriveSpec::Memory(spec)) = name.parse() else { panic!("{name}") };
    spec.resolve().unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn refused(name: &str) -> String {
    match name.parse() {
        Ok(DriveSpec::Memory(spec)) => spec.resolve().map(drop).unwrap_err().to_string(),
        Ok(_) => panic!("{name}"),
        Err(e) => format!("{e}"),
    }
}

fn request(id: u64, op: BlockOp, (offset, len): (u64, u64), byte: u8) -> BlockReq {
    let has_data = matches!(op, BlockOp::Read | BlockOp::Write);
    let mut buffer = Buffer::zeroed(if has_data { len as usize } else { 0 }).unwrap();
    buffer.bytes_mut().fill(byte);
    let (fua, placement, queue) = (false, 0, 0);
    BlockReq { id, op, fua, placement, queue, offset, len, buffer }
}

pub(crate) fn act(
    drive: &mut Boxed,
    now: &mut Time,
    op: BlockOp,
    at: (u64, u64),
    byte: u8,
) -> BlockDone {
    let (mut cmds, mut done) = (Ring::new(1), Ring::new(1));
    cmds.put(|| request(0, op, at, byte));
    drive.submit(*now, &mut cmds);
    loop {
        let at = drive.next_event().expect("it is inside");
        *now = at.max(*now);
        drive.advance(at, &mut done);
        if let Some(done) = done.pop() {
            return done;
        }
    }
}

/// Each target is written over and over, the drive is ended and found again, and all is there.
fn lives(name: &str, rules: &[&str]) {
    lives_as(name, config(name), rules, |_, _| ());
}

/// The same of any drive, which is looked at before it ends.
pub(crate) fn lives_as(
    name: &str,
    mut config: DriveConfig,
    rules: &[&str],
    look: impl FnOnce(&Boxed, &DriveConfig),
) {
    let rules = rules.iter().map(|rule| rule.to_string()).collect();
    config.faults = FaultArgs { rules, file: None }.read(1).unwrap();
    let mut drive = build(&config, 1).unwrap_or_else(|e| panic!("{name}: {e}"));
    drive.begin_faults();
    let (pieces, mut now) = (config.size / PIECE, Time::ZERO);
    let mut written = vec![0; pieces as usize];
    let mut random = random::Random::new(1, 2);
    let has_collected =
        |drive: &Boxed| (0..drive.targets()).all(|n| drive.target(n).counters().gc > 0);
    let mut n = 0;
    while n < 3 * pieces || !has_collected(&drive) {
        assert!(n < 40 * pieces, "{name}: they collect");
        let (piece, byte) = if n < pieces { (n, 1) } else { (random.bits() % pieces, n as u8) };
        let done = act(&mut drive, &mut now, BlockOp::Write, (piece * PIECE, PIECE), byte);
        assert!(done.status.is_ok(), "{name}: write {n}: {:?}", done.status);
        written[piece as usize] = byte;
        n += 1;
    }
    act(&mut drive, &mut now, BlockOp::Read, (0, PIECE), 0);
    assert!(drive.injected().iter().all(|one| one.times > 0), "{name}");
    look(&drive, &config);
    let Ended { shards, .. } = drive.end(now).unwrap();
    let journal = empty_journal(&config).unwrap();
    let (mut drive, mut now, _) = recover(&config, 1, shards, 0, journal).unwrap();
    for (piece, &byte) in (0..).zip(&written) {
        let done = act(&mut drive, &mut now, BlockOp::Read, (piece * PIECE, PIECE), 0);
        assert!(done.status.is_ok(), "{name}: {:?}", done.status);
        assert!(done.buffer.bytes().iter().all(|&b| b == byte), "{name}: piece {piece}");
    }
}

pub(crate) const SMALL: &str = "mem:tlc,size=16M,groups=2,pus=4,pages=16";

#[test]
fn kinds_go_together_with_what_is_around_them() {
    let below = &["above:read,delay=1ms", "below:write,delay=1us"][..];
    for kinds in [
        "targets=2,target=pblk/rules",
        "units=4/2/2,target=rules/pblk/rules,rules=latency:2+learn:longevity",
        "targets=2,target=rules,placement=stripe",
    ] {
        for more in ["", ",side=host", ",cache=protected", ",buffer_rate=1GB/s,read_cache=1m"] {
            lives(&format!("{SMALL},{kinds}{more}"), &[]);
            lives(&format!("{SMALL},{kinds}{more}"), below);
        }
    }
}

/// Each has its set, for its blocks and its units; what the drive is reads back from its name.
#[test]
fn each_target_has_a_set_of_its_own() {
    let name = "mem:tlc,size=1G,target=rules/pblk/rules/rules,rules=latency:2+throughput,\
                units=8/8/4/12";
    let config = config(name);
    let DriveSpec::Memory(spec) = name.parse().unwrap() else { panic!("{name}") };
    assert_eq!(spec.to_string().parse::<DriveSpec>().unwrap(), DriveSpec::Memory(spec));
    assert_eq!(config.kinds_text(), "rules/pblk/rules/rules");
    let sets = (0..4).map(|n| {
        let one = config.target(n);
        let units = |set: &rules::syntax::Set| {
            let units = set.applications.iter().filter_map(|a| a.units);
            units.map(|units| units.count()).sum::<u64>()
        };
        let set = one.rules.as_ref().map(|rules| rules.set());
        set.map(|set| (set.name.text.clone(), set.applications.len(), units(set)))
    });
    let sets: Vec<_> = sets.collect();
    let set = |name: &str, applications, units| Some((name.to_string(), applications, units));
    assert_eq!(
        sets,
        [set("latency", 2, 8), None, set("throughput", 1, 4), set("throughput", 1, 12)]
    );
    check(&config, 1).unwrap();
    let told = needs_stories(&config).unwrap_err().to_string();
    assert!(told.contains("its targets share a device"), "{told}");
}

#[test]
fn what_cannot_be_is_refused() {
    for (more, says) in [
        ("targets=3,target=pblk/rules", "target= tells what 2 targets are"),
        ("units=4/4,target=kv/kv", "one of them at least has blocks"),
        ("units=4,target=kv", "one of them at least has blocks"),
        ("target=pblk/kv,map_unit=16k", "4k with target=kv"),
        ("target=kv/rules,streams=2", "`streams` cannot be"),
        ("target=pblk/rules,keys=7", "only with target=kv"),
        ("target=pblk/kv,shards=2", "shards is for a drive of one target"),
        ("target=pblk/kv,parity=4", "parity is for a drive of one target"),
        ("target=pblk/batch", "target=batch is for a drive of one target"),
        ("target=pblk/", "pblk or rules for all"),
        ("target=pblk/pblk,rules=latency", "only with target=rules"),
        ("target=rules/rules,rules=latency+minimal+minimal", "with a + between"),
        ("target=pblk/rules,rules=latency+minimal", "with a + between"),
        ("target=pblk/rules,map_unit=16k", "4k with target=rules"),
        ("target=rules/rules,streams=2", "`streams` cannot be"),
        ("target=pblk/rules,shards=2", "shards is for a drive of one target"),
        ("target=rules,targets=2,rules=./a.rules,remote=mem:tlc", "remote is for a drive of one"),
        ("target=pblk/rules,rules=latency:5", "more than the drive has units (4)"),
    ] {
        let told = refused(&format!("{SMALL},{more}"));
        assert!(told.contains(says), "{more}: {told}");
    }
    let limited = config(&format!("{SMALL},target=pblk/rules,open_chunks=400,open_chunks_pu=100"));
    let told = check(&limited, 1).map(drop).unwrap_err().to_string();
    assert!(told.contains("target1"), "{told}");
}

/// A target of rules comes while another is used, has what others had, and goes.
#[test]
fn a_target_of_rules_comes_and_goes() {
    let whole = config(&format!("{SMALL},units=4"));
    let mut drive = build(&whole, 1).unwrap();
    let mut now = Time::ZERO;
    let told = whole.with_target(None, Some(4), NewTarget::Rules("latency:9")).unwrap_err();
    assert!(told.contains("more than the drive has units (4)"), "{told}");
    assert!(told.starts_with("--rules latency:9: "), "nobody wrote a drive's name: {told}");
    let told = whole.with_target(None, Some(4), NewTarget::Rules("set a\nrule")).unwrap_err();
    assert!(told.contains("its rule set:2:5"), "{told}");
    let (next, n) =
        whole.with_target(Some("mine"), Some(4), NewTarget::Rules("latency:2")).unwrap();
    assert_eq!(next.parts[n as usize].kind(), TargetKind::Rules);
    let shared = drive.shared_mut().unwrap();
    let number = shared.create(next.clone(), n).unwrap();
    shared.set_serving(number, true).unwrap();
    assert!(shared.rules_of(number).is_some() && shared.rules_of(0).is_none());
    let first = next.first_byte(n);
    // Longer than a target of rules takes at once: it is cut.
    let long = (first, 1 << 20);
    assert!(act(&mut drive, &mut now, BlockOp::Write, long, 7).status.is_ok());
    assert!(act(&mut drive, &mut now, BlockOp::Write, (0, 1 << 20), 3).status.is_ok());
    let read = act(&mut drive, &mut now, BlockOp::Read, long, 0);
    assert!(read.status.is_ok() && read.buffer.bytes().iter().all(|&byte| byte == 7));
    let shared = drive.shared_mut().unwrap();
    shared.remove(next.without_target("mine").unwrap(), number, now).unwrap();
    let mut done = Ring::new(1);
    while drive.shared().unwrap().leaving(number) != (true, 0) {
        now = drive.next_event().expect("it is being erased");
        drive.advance(now, &mut done);
    }
    let read = act(&mut drive, &mut now, BlockOp::Read, long, 0);
    assert_eq!(read.status, Status::LBA_OUT_OF_RANGE);
    let read = act(&mut drive, &mut now, BlockOp::Read, (0, 1 << 20), 0);
    assert!(read.buffer.bytes().iter().all(|&byte| byte == 3), "the other is as it was");
}

/// Garbage on all that these units hold.
pub(crate) fn damage(left: &mut Left, geometry: &Geometry, units: std::ops::Range<u32>) {
    let (pus, garbage) = (geometry.dimensions().pus, [0xa5; 4096]);
    for (unit, chunk) in units.flat_map(|unit| (0..geometry.chunks()).map(move |n| (unit, n))) {
        let start = geometry.ppa(unit / pus, unit % pus, chunk, 0);
        for block in 0..u64::from(left.chunks[geometry.chunk_index(start)].programmed) {
            let at = Ppa(start.0 + block);
            let moved = left.medium.program(at, 1, &garbage, &garbage[..TAG_BYTES]);
            assert_eq!(moved, Moved::Done);
        }
    }
}

/// What a drive of two targets left, each written a block, and one of them damaged since.
fn half_lost(config: &DriveConfig, lost: u32) -> Vec<Left> {
    let mut drive = build(config, 1).unwrap();
    let mut now = Time::ZERO;
    for n in 0..2 {
        let at = (config.first_byte(n) + PIECE, PIECE);
        assert!(act(&mut drive, &mut now, BlockOp::Write, at, n as u8 + 1).status.is_ok());
    }
    let Ended { mut shards, .. } = drive.end(now).unwrap();
    damage(&mut shards[0], &config.geometry, lost * 4..lost * 4 + 4);
    shards
}

/// Of a drive of which a target is damaged the others are served, over any number of starts,
/// and it can be removed; another has its place then. Who wants all or nothing is refused.
#[test]
fn what_is_damaged_of_a_target_is_no_others() {
    for (lost, kinds) in [(0, "pblk/rules"), (1, "pblk/rules"), (0, "rules/pblk")] {
        let config = config(&format!("{SMALL},units=4/4,target={kinds}"));
        let refused = recover(&config, 1, half_lost(&config, lost), 0, None);
        let refused = refused.map(drop).unwrap_err().to_string();
        let mut shards = half_lost(&config, lost);
        let (name, place) = (format!("target{lost}"), |n| (config.first_byte(n) + PIECE, PIECE));
        for _ in 0..2 {
            let (mut drive, mut now, _) = recover_in_part(&config, 1, shards, 0, None).unwrap();
            let damaged = drive.shared().unwrap().damaged();
            let told: Vec<_> = damaged.iter().map(|one| (&one.name, one.why.to_string())).collect();
            assert_eq!(told, [(&name, refused.clone())]);
            assert!(refused.contains(&name), "{refused}");
            let shared = drive.shared().unwrap();
            assert!(shared.rules_of(shared.number(&name).unwrap()).is_none());
            let read = act(&mut drive, &mut now, BlockOp::Read, place(lost), 0);
            assert_eq!(read.status, Status::LBA_OUT_OF_RANGE, "{kinds}");
            let read = act(&mut drive, &mut now, BlockOp::Read, place(1 - lost), 0);
            let is_its = |&byte: &u8| byte == 2 - lost as u8;
            assert!(read.status.is_ok() && read.buffer.bytes().iter().all(is_its), "{kinds}");
            let chunks = ftl::all_chunks(&config.geometry);
            assert!(chunks.map(|chunk| drive.valid_blocks(0, chunk)).sum::<u32>() > 0);
            drive.hurry(now);
            shards = drive.end(now).unwrap().shards;
        }
        let (mut drive, mut now, _) = recover_in_part(&config, 1, shards, 0, None).unwrap();
        let shared = drive.shared_mut().unwrap();
        let number = shared.number(&name).unwrap();
        shared.remove(config.without_target(&name).unwrap(), number, now).unwrap();
        assert!(shared.damaged().is_empty() && shared.number(&name).is_none());
        let mut done = Ring::new(1);
        while drive.shared().unwrap().leaving(number) != (true, 0) {
            now = drive.next_event().expect("it is being erased");
            drive.advance(now, &mut done);
        }
        let shared = drive.shared_mut().unwrap();
        let (next, n) = shared.config().with_target(Some("new"), Some(4), NewTarget::Pblk).unwrap();
        let number = shared.create(next, n).unwrap();
        shared.set_serving(number, true).unwrap();
        let read = act(&mut drive, &mut now, BlockOp::Read, place(lost), 7);
        assert!(read.status.is_ok() && read.buffer.bytes().iter().all(|&byte| byte == 0));
    }
}

/// Where nothing of it is found the drive is not.
#[test]
fn a_drive_of_which_all_targets_are_damaged_is_refused() {
    let config = config(&format!("{SMALL},units=4/4"));
    let mut shards = half_lost(&config, 0);
    damage(&mut shards[0], &config.geometry, 0..8);
    assert!(recover_in_part(&config, 1, shards, 0, None).is_err());
}

/// A drive that is hurried holds nothing back by the rules of a target, nor by rules of faults.
#[test]
fn a_drive_that_is_to_end_waits_for_no_rule() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("late.rules");
    let set = "set late application 0 lba 0..1K units 0..4
        rule late priority 1 when op == write then delay 10s
        rule all priority 0 when op != idle then pass";
    std::fs::write(&path, set).unwrap();
    let name = format!("{SMALL},units=4/4,target=pblk/rules,rules={}", path.display());
    let mut config = config(&name);
    let rules = vec!["above:read,delay=1h".into(), "below:read,delay=1h".into()];
    config.faults = FaultArgs { rules, file: None }.read(1).unwrap();
    let mut drive = build(&config, 1).unwrap();
    let (mut cmds, mut done, mut now) = (Ring::new(4), Ring::new(4), Time::ZERO);
    let first = config.first_byte(1);
    act(&mut drive, &mut now, BlockOp::Write, (0, PIECE), 3);
    act(&mut drive, &mut now, BlockOp::Flush, (0, PIECE), 0);
    drive.begin_faults();
    cmds.put(|| request(1, BlockOp::Read, (0, PIECE), 0));
    cmds.put(|| request(2, BlockOp::Write, (first, PIECE), 4));
    drive.submit(now, &mut cmds);
    let end = now + 1_000_000_000;
    let mut until = |drive: &mut Boxed, end: Time| {
        while let Some(at) = drive.next_event().filter(|&at| at <= end) {
            drive.advance(at, &mut done);
        }
        let mut ids: Vec<u64> = done.drain().map(|done| done.id).collect();
        ids.sort_unstable();
        ids
    };
    assert!(until(&mut drive, end).is_empty(), "both wait");
    drive.hurry(end);
    assert_eq!(until(&mut drive, end + 10_000_000), [1, 2]);
    drive.end(end + 10_000_000).unwrap();
}

/// The latencies of one that reads a target at random, one by one, while nobody does anything
/// else, or another target is written at random as fast as it goes.
fn latencies(name: &str, (reader, writer): (usize, usize), writes: bool) -> (Vec<u64>, u64) {
    let mut drive = build(&config(name), 1).unwrap();
    let part = |drive: &Boxed, n| {
        let part = drive.part(n).unwrap();
        (part.first, part.bytes / 4096)
    };
    let (read, written) = (part(&drive, reader), part(&drive, writer));
    let (mut cmds, mut done, mut now) = (Ring::new(64), Ring::new(64), Time::ZERO);
    for (first, blocks) in [read, written] {
        for block in (0..blocks).step_by(4) {
            act(&mut drive, &mut now, BlockOp::Write, (first + block * 4096, PIECE), 1);
        }
    }
    act(&mut drive, &mut now, BlockOp::Flush, (0, 0), 0);
    let before = drive.target(writer).counters().gc;
    let mut random = [random::Random::new(3, 1), random::Random::new(3, 2)];
    let (mut began, mut all, mut is_reading, mut inside) = (now, Vec::new(), false, 0);
    while all.len() < 20_000 {
        if !is_reading {
            let at = (read.0 + random[0].below(read.1) * 4096, 4096);
            cmds.put(|| request(1, BlockOp::Read, at, 0));
            (is_reading, began) = (true, now);
        }
        while writes && inside < 16 {
            let at = (written.0 + random[1].below(written.1) * 4096, 4096);
            cmds.put(|| request(2, BlockOp::Write, at, 2));
            inside += 1;
        }
        drive.submit(now, &mut cmds);
        assert!(cmds.is_empty());
        now = now.max(drive.next_event().expect("something is inside"));
        drive.advance(now, &mut done);
        while let Some(one) = done.pop() {
            assert!(one.status.is_ok(), "{}", one.status);
            match one.id {
                1 => {
                    is_reading = false;
                    all.push(one.at.since(began));
                }
                _ => inside -= 1,
            }
        }
    }
    all.sort_unstable();
    (all, drive.target(writer).counters().gc - before)
}

/// Who reads a target on units of its own, with channels of its own, is as late as alone, at
/// every percentile, while another is written and collects, whichever kinds they are. No link
/// stands between, which all share. On shared units he is not: the test can fail.
#[test]
fn a_tenant_beside_one_that_collects_is_as_fast_as_alone() {
    for (reader, writer) in [(0, 1), (1, 0)] {
        let link = "link_latency=0ns,link_rate=none,controller=0ns";
        let name = format!("{SMALL},{link},target=pblk/rules");
        let (alone, _) = latencies(&name, (reader, writer), false);
        let (beside, collected) = latencies(&name, (reader, writer), true);
        assert!(collected > 500, "{reader}: {collected}");
        let late = alone.iter().zip(&beside).filter(|(alone, beside)| alone != beside);
        assert_eq!(late.count(), 0, "{reader}");
        let (beside, _) = latencies(&format!("{name},placement=stripe"), (reader, writer), true);
        assert!(beside[19_800] > alone[19_800], "{reader}");
    }
}
