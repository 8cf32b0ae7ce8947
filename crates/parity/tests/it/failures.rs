//! What fails below: programs, and what is told of them and becomes of their superblock;
//! reads and flushes.

use std::rc::Rc;

use crate::common::{Broken, Fused, cached, durable, power_cut, timing};
use device::{Content, Device, OpenChannel, VectorCmd, VectorDone, VectorOp};
use faults::{FaultPort, FaultRule, Operation, ScriptedMedium, Trigger};
use flash::{Cause, Chunk, ChunkState, Dimensions, Geometry, Ppa};
use parity::Parity;
use port::{Buffer, Port, Ring, Status, Time};

type Drive = Parity<Device<ScriptedMedium>>;

const WIDTH: u32 = 4;

fn geometry() -> Geometry {
    let (planes, page_bytes) = (2, 8192);
    let dim =
        Dimensions { groups: 4, chunks: 6, pages: 6, planes, page_bytes, ..Dimensions::LEAST };
    Geometry::new(dim).unwrap()
}

fn new(broken: &Broken) -> Drive {
    let medium = durable(&geometry(), 8, broken);
    Parity::new(Device::new(&geometry(), &timing(), medium).unwrap(), WIDTH).unwrap()
}

/// The same after power went and came.
fn restarted(drive: Drive) -> Drive {
    let mut medium = drive.into_below().cut();
    let chunks = power_cut(&mut medium, 1);
    let device = Device::restore(&geometry(), &timing(), medium, &chunks).unwrap();
    Parity::new(device, WIDTH).unwrap()
}

/// Does all at once, and gives how each ended, in their order.
fn run<D: OpenChannel>(
    drive: &mut Parity<D>,
    now: &mut Time,
    cmds: Vec<VectorCmd>,
) -> Vec<VectorDone> {
    let count = cmds.len().max(1);
    let (mut queue, mut done) = (Ring::new(count), Ring::new(count));
    for (cookie, cmd) in (0..).zip(cmds) {
        queue.push(VectorCmd { cookie, ..cmd }).unwrap();
    }
    let (mut all, mut left) = (Vec::new(), queue.len());
    while left > 0 {
        drive.submit(*now, &mut queue);
        *now = drive.next_event().expect("the drive hangs").max(*now);
        drive.advance(*now, &mut done);
        while let Some(one) = done.pop() {
            all.push(one);
            left -= 1;
        }
    }
    all.sort_by_key(|one| one.cookie);
    all
}

fn cmd(op: VectorOp, ppa: Ppa, count: u32) -> VectorCmd {
    let has_data = matches!(op, VectorOp::Read | VectorOp::Write);
    let bytes = if has_data { count as usize * 8 } else { 0 };
    let buffer = Buffer::zeroed(bytes).unwrap();
    VectorCmd::new(0, op, Content::Data, (ppa, count as u8), buffer)
}

/// Writes a superblock to its end, or until a program fails; so many rows at once. Gives of
/// each block whether its write completed.
fn fill(drive: &mut Drive, now: &mut Time, sb: usize, at_once: u32) -> Vec<bool> {
    let upper = *drive.geometry();
    let (row, start, mut wrote) = (upper.row_blocks(), upper.chunk_start(sb).0, Vec::new());
    while wrote.len() < upper.chunk_blocks() as usize {
        let from = wrote.len() as u32;
        let rows = at_once.min((upper.chunk_blocks() - from) / row);
        let at = |n: u32| Ppa(start + u64::from(from + n * row));
        let cmds = (0..rows).map(|n| cmd(VectorOp::Write, at(n), row)).collect();
        let done = run(drive, now, cmds);
        let each = done.iter().map(|done| done.status.is_ok());
        wrote.extend(each.flat_map(|is_ok| (0..row).map(move |_| is_ok)));
        if wrote.contains(&false) {
            break;
        }
    }
    wrote
}

/// Superblocks with a failed program, and those with more than a descriptor has room for.
fn see_failures(drive: &mut Drive, now: &mut Time, wrote: &[(usize, Vec<bool>)]) -> (u32, u32) {
    let upper = *drive.geometry();
    let (mut some, mut many) = (0, 0);
    for (sb, wrote) in wrote {
        let (start, of) = (upper.chunk_start(*sb).0, drive.chunk(*sb));
        let (mut told, mut by_descriptor) = (0, 0);
        for (block, &wrote) in (0..of.wp).zip(wrote) {
            let ppa = Ppa(start + u64::from(block));
            let has_nothing = drive.failed_of(ppa, 1) == 1;
            let read = run(drive, now, vec![cmd(VectorOp::Read, ppa, 1)]).remove(0);
            let has_failed = read.status == Status::UNRECOVERED_READ;
            // After a restart one is missing whose write waited for one that failed.
            let is_zeros = read.buffer.bytes().iter().all(|&byte| byte == 0);
            let is_missing = read.status.is_ok() && is_zeros;
            assert!(has_failed || !has_nothing || is_missing, "superblock {sb}, block {block}");
            assert!(has_nothing || !has_failed, "superblock {sb}, block {block}");
            assert!(!(has_nothing && wrote), "superblock {sb}, block {block} was written");
            let in_run = of.failed_of(block, 1) == 1;
            assert!(has_failed || !in_run, "superblock {sb}, block {block}: {of:?}");
            (told, by_descriptor) =
                (told + u32::from(has_failed), by_descriptor + u32::from(in_run));
        }
        assert_eq!(of.has_failed(), told > 0, "superblock {sb}");
        (some, many) = (some + u32::from(told > 0), many + u32::from(told > by_descriptor));
    }
    (some, many)
}

/// However many there are, and also after a restart.
#[test]
fn each_failed_program_is_told_and_no_other_block() {
    let broken = Broken::default();
    broken.programs.set(250_000);
    let (mut some, mut many) = (0, 0);
    for at_once in [1, 3, 6, 9, 12, 15] {
        let (mut drive, mut now) = (new(&broken), Time::ZERO);
        let upper = *drive.geometry();
        let chunks = upper.pus_channels_first().flat_map(|pu| {
            let of_unit = 0..upper.chunks();
            of_unit.map(move |n| upper.chunk_of(pu, n))
        });
        let wrote: Vec<(usize, Vec<bool>)> =
            chunks.map(|sb| (sb, fill(&mut drive, &mut now, sb, at_once))).collect();
        let found = see_failures(&mut drive, &mut now, &wrote);
        let mut drive = restarted(drive);
        assert_eq!(see_failures(&mut drive, &mut now, &wrote), found);
        (some, many) = (some + found.0, many + found.1);
    }
    assert!(some > 10 && many > 1, "{some}, {many}");
}

/// The members of a superblock, in the order of units.
fn members(drive: &Drive, sb: usize) -> Vec<Chunk> {
    let (lower, number) = (geometry(), sb as u32 % drive.geometry().chunks());
    let units = lower.pus_channels_first();
    units.map(|pu| drive.below().chunk(lower.chunk_of(pu, number))).collect()
}

/// It takes nothing, now and after a restart.
fn assert_offline(drive: Drive, now: &mut Time, sb: usize) -> Drive {
    let mut drive = drive;
    for _ in 0..2 {
        let ppa = drive.geometry().chunk_start(sb);
        assert_eq!(drive.chunk(sb).state, ChunkState::Offline);
        assert_eq!(drive.degraded(), 1);
        let row = drive.geometry().row_blocks();
        for (op, count) in [(VectorOp::Write, row), (VectorOp::Reset, 1), (VectorOp::Retire, 1)] {
            let done = run(&mut drive, now, vec![cmd(op, ppa, count)]).remove(0);
            assert_eq!(done.status, Status::OFFLINE_CHUNK, "{op:?}");
        }
        drive = restarted(drive);
    }
    drive
}

/// What failed is used no more, and nothing else is lost: the superblock is offline.
#[test]
fn what_is_retired_stays_out_of_use() {
    for (failing, rows) in [(1_000_000, 1), (100_000, 3), (0, 1), (0, 0)] {
        let broken = Broken::default();
        let (mut drive, mut now) = (new(&broken), Time::ZERO);
        let ppa = drive.geometry().chunk_start(2);
        broken.programs.set(failing);
        if rows > 0 {
            let wrote = fill(&mut drive, &mut now, 2, rows);
            assert_eq!(wrote.contains(&false), failing > 0);
        }
        broken.programs.set(0);
        let spoilt: Vec<bool> = members(&drive, 2).iter().map(Chunk::has_failed).collect();
        let done = run(&mut drive, &mut now, vec![cmd(VectorOp::Retire, ppa, 1)]).remove(0);
        assert_eq!((done.status, done.failed), (Status::SUCCESS, 0));
        let after = members(&drive, 2);
        let retired: Vec<bool> =
            after.iter().map(|chunk| chunk.why_offline() == Some(Cause::Retired)).collect();
        match failing {
            0 => assert_eq!(retired.iter().filter(|&&is_one| is_one).count(), 1),
            _ => assert_eq!(retired, spoilt),
        }
        let rest = after.iter().filter(|chunk| chunk.why_offline().is_none());
        assert!(rest.clone().all(|chunk| chunk.state == ChunkState::Free), "{after:?}");
        assert_offline(drive, &mut now, 2);
    }
}

/// Power goes in a retirement: the superblock is as it was, or is offline when it is to be
/// written next.
#[test]
fn a_cut_takes_no_retirement_back() {
    let (mut free, mut offline) = (0, 0);
    for events in 0..40 {
        let broken = Broken::default();
        let (mut drive, mut now) = (new(&broken), Time::ZERO);
        let upper = *drive.geometry();
        let (ppa, row) = (upper.chunk_start(2), upper.row_blocks());
        // The second row fails.
        run(&mut drive, &mut now, vec![cmd(VectorOp::Write, ppa, row)]);
        broken.programs.set(1_000_000);
        let next = Ppa(ppa.0 + u64::from(row));
        run(&mut drive, &mut now, vec![cmd(VectorOp::Write, next, row)]);
        broken.programs.set(0);
        let fuse = Fused::new(drive.into_below(), events);
        let device = fuse.drive.clone();
        let mut drive = Parity::new(fuse, WIDTH).unwrap();
        let mut queue = Ring::new(1);
        queue.put(|| cmd(VectorOp::Retire, ppa, 1));
        drive.submit(now, &mut queue);
        let mut done = Ring::new(1);
        while let Some(at) = drive.next_event()
            && done.is_empty()
        {
            now = now.max(at);
            drive.advance(now, &mut done);
        }
        drop(drive);
        let device = Rc::into_inner(device).unwrap().into_inner();
        let mut drive = restarted(Parity::new(device, WIDTH).unwrap());
        match drive.chunk(2).state {
            ChunkState::Closed => assert!(drive.chunk(2).has_failed()),
            ChunkState::Free => {
                free += 1;
                let done = run(&mut drive, &mut now, vec![cmd(VectorOp::Write, ppa, row)]);
                assert!(!done[0].status.is_ok());
                assert_offline(drive, &mut now, 2);
            }
            ChunkState::Offline => {
                offline += 1;
                assert_offline(drive, &mut now, 2);
            }
            ChunkState::Open => panic!("a program of it failed"),
        }
    }
    assert!(free > 0 && offline > 0, "{free}, {offline}");
}

/// A drive with these faults on its way.
fn faulty<D: OpenChannel>(device: D, rule: FaultRule) -> Parity<FaultPort<D>> {
    Parity::new(FaultPort::new(device, &[rule], 1).unwrap(), WIDTH).unwrap()
}

fn rule(operation: Operation, status: Option<Status>, count: Option<u64>) -> FaultRule {
    let trigger = Trigger { count, ..Trigger::default() };
    FaultRule { operation, trigger, status, permanent: false, place: None }
}

/// Data that came at the limit of what can be corrected are as good as others: a stripe is
/// gone on with.
#[test]
fn a_read_at_the_limit_is_no_failure() {
    let (mut drive, mut now) = (new(&Broken::default()), Time::ZERO);
    let (ppa, row) = (drive.geometry().chunk_start(2), drive.geometry().row_blocks());
    run(&mut drive, &mut now, vec![cmd(VectorOp::Write, ppa, row)]);
    let limit = rule(Operation::Read, Some(Status::HIGH_ECC), None);
    let mut drive = faulty(restarted(drive).into_below(), limit);
    let next = Ppa(ppa.0 + u64::from(row));
    let done = run(&mut drive, &mut now, vec![cmd(VectorOp::Write, next, row)]).remove(0);
    assert_eq!(done.status, Status::SUCCESS);
    assert!(drive.counters().read > 0);
}

/// A read that fails and then does not costs nothing; one that goes on failing closes the
/// superblock.
#[test]
fn a_read_that_fails_for_a_moment_closes_nothing() {
    for (failing, ends) in [(2, Status::SUCCESS), (3, Status::CHUNK_EARLY_CLOSE)] {
        let (mut drive, mut now) = (new(&Broken::default()), Time::ZERO);
        let (ppa, row) = (drive.geometry().chunk_start(2), drive.geometry().row_blocks());
        run(&mut drive, &mut now, vec![cmd(VectorOp::Write, ppa, row)]);
        let fails = rule(Operation::Read, None, Some(failing * u64::from(row)));
        let mut drive = faulty(restarted(drive).into_below(), fails);
        let next = Ppa(ppa.0 + u64::from(row));
        let done = run(&mut drive, &mut now, vec![cmd(VectorOp::Write, next, row)]).remove(0);
        assert_eq!(done.status, ends, "{failing}");
    }
}

/// A cut took a row from under its parity; putting it back fails. It is rebuilt, before and
/// after that, and is no failed block.
#[test]
fn a_row_that_cannot_be_put_back_is_rebuilt_as_before() {
    let mut seen = 0;
    for seed in 0..2000 {
        let broken = Broken::default();
        let medium = cached(&geometry(), 8, &broken);
        let device = Device::new(&geometry(), &timing(), medium).unwrap();
        let (mut drive, mut now) = (Parity::new(device, WIDTH).unwrap(), Time::ZERO);
        let (ppa, row) = (drive.geometry().chunk_start(2), drive.geometry().row_blocks());
        let rows = WIDTH - 1;
        let written: Vec<_> = (0..rows)
            .map(|i| {
                let mut write = cmd(VectorOp::Write, Ppa(ppa.0 + u64::from(i * row)), row);
                write.buffer.bytes_mut().fill(1 + i as u8);
                write
            })
            .collect();
        run(&mut drive, &mut now, written);
        let mut medium = drive.into_below().cut();
        let chunks = power_cut(&mut medium, seed);
        let device = Device::restore(&geometry(), &timing(), medium, &chunks).unwrap();
        let mut drive = Parity::new(device, WIDTH).unwrap();
        let read = |drive: &mut Drive, now: &mut Time| {
            let reads =
                (0..rows).map(|i| cmd(VectorOp::Read, Ppa(ppa.0 + u64::from(i * row)), row));
            let is_whole = |(i, done): (u8, VectorDone)| {
                let data = &done.buffer.bytes()[..8 * row as usize];
                done.status.is_ok() && data.iter().all(|&byte| byte == i)
            };
            (1..).zip(run(drive, now, reads.collect())).all(is_whole)
        };
        // A cut may take all of it, or so much that nothing is rebuilt.
        if !read(&mut drive, &mut now) || drive.counters().rebuilt == 0 {
            continue;
        }
        seen += 1;
        broken.programs.set(1_000_000);
        let next = Ppa(ppa.0 + u64::from(rows * row));
        let done = run(&mut drive, &mut now, vec![cmd(VectorOp::Write, next, row)]).remove(0);
        assert!(!done.status.is_ok());
        assert!(members(&drive, 2).iter().any(Chunk::has_failed), "seed {seed}");
        broken.programs.set(0);
        assert!(read(&mut drive, &mut now), "seed {seed}");
        let failed = |i: u32| drive.failed_of(Ppa(ppa.0 + u64::from(i * row)), row);
        assert!((0..rows).all(|i| failed(i) == 0), "seed {seed}");
        assert!(!drive.chunk(2).has_failed());
        let mut drive = restarted(drive);
        assert!(read(&mut drive, &mut now), "seed {seed}");
    }
    assert!(seen > 5, "{seen}");
}

/// A flush that fails costs the writes that waited for it, and not the superblock: it is free,
/// as it says, and takes the next.
#[test]
fn what_could_not_be_made_ready_is_tried_again() {
    let medium = cached(&geometry(), 8, &Broken::default());
    let device = Device::new(&geometry(), &timing(), medium).unwrap();
    let mut drive = faulty(device, rule(Operation::Flush, None, Some(1)));
    let (ppa, row) = (drive.geometry().chunk_start(2), drive.geometry().row_blocks());
    let mut now = Time::ZERO;
    let mut ends =
        |op, count| run(&mut drive, &mut now, vec![cmd(op, ppa, count)]).remove(0).status;
    assert_eq!(ends(VectorOp::Write, row), Status::SUCCESS);
    assert_eq!(ends(VectorOp::Reset, 1), Status::SUCCESS);
    assert_eq!(ends(VectorOp::Write, row), Status::CHUNK_EARLY_CLOSE);
    assert_eq!(ends(VectorOp::Write, row), Status::SUCCESS);
    assert_eq!(ends(VectorOp::Reset, 1), Status::SUCCESS);
    assert_eq!(drive.chunk(2).state, ChunkState::Free);
}
