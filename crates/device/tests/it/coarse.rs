//! A coarse map against a drive of one version number a block.

use device::Coarse;
use port::{BLOCK_BYTES, BlockDone, BlockOp, Buffer, Port, Ring, Shape, Status, Time};
use proptest::prelude::*;

use crate::cache::{BLOCKS, SHAPE, Slow, request};

/// Four blocks; the drive's last unit has three.
const UNIT: u64 = 4 * BLOCK_BYTES;
const LAST: u64 = BLOCKS - 1;
const CUT: Shape = Shape { bytes: LAST * BLOCK_BYTES, ..SHAPE };

fn coarse(spread: u64) -> Coarse<Slow> {
    Coarse::new(UNIT, Slow::new(spread), CUT).unwrap()
}

/// These writes, of a first block and a number of them, at once; gives when each ended.
fn writes(drive: &mut Coarse<Slow>, all: &[(u64, u64)]) -> Vec<u64> {
    let (mut cmds, mut done) = (Ring::new(all.len()), Ring::new(all.len()));
    for (id, &(block, blocks)) in (0..).zip(all) {
        cmds.push(request(id, BlockOp::Write, block, blocks, id + 1)).unwrap();
    }
    drive.submit(Time(0), &mut cmds);
    let mut ended = vec![0; all.len()];
    while let Some(at) = drive.next_event() {
        drive.advance(at, &mut done);
        while let Some(BlockDone { id, at, status, .. }) = done.pop() {
            assert!(status.is_ok());
            ended[id as usize] = at.0;
        }
    }
    ended
}

/// A request takes 100 ns below.
#[test]
fn a_part_of_a_unit_takes_its_read_more() {
    for (all, takes) in [
        (&[(4, 4)][..], &[100][..]),
        (&[(5, 1)], &[200]),
        // The last unit is shorter: all of it is a whole one.
        (&[(252, 3)], &[100]),
        // In parts at both ends: read and write, write, read and write, however long.
        (&[(6, 8)], &[500]),
        (&[(6, 100)], &[500]),
        (&[(6, 6)], &[300]),
        (&[(4, 9)], &[300]),
        (&[(201, 54)], &[300]),
        (&[(4, 1), (8, 1)], &[200, 200]),
        (&[(4, 1), (5, 1), (4, 4), (9, 1)], &[200, 400, 500, 600]),
    ] {
        assert_eq!(writes(&mut coarse(0), all), takes, "{all:?}");
    }
}

#[test]
fn what_is_not_written_stays() {
    let mut drive = coarse(0);
    writes(&mut drive, &[(4, 8)]);
    writes(&mut drive, &[(100, 1), (6, 4), (11, 1)]);
    assert_eq!(drive.below().blocks[3..13], [0, 1, 1, 2, 2, 2, 2, 1, 3, 0][..]);
}

/// One write alone; gives how it ended.
fn write(drive: &mut Coarse<Slow>, block: u64, blocks: u64) -> Status {
    let (mut cmds, mut done) = (Ring::new(1), Ring::new(1));
    cmds.push(request(0, BlockOp::Write, block, blocks, 9)).unwrap();
    drive.submit(Time(0), &mut cmds);
    while let Some(at) = drive.next_event() {
        drive.advance(at, &mut done);
    }
    let done: BlockDone = done.pop().unwrap();
    assert_eq!(done.buffer.len(), blocks as usize * 8, "its own buffer comes back whole");
    done.status
}

#[test]
fn a_unit_that_cannot_be_read_fails_writes_of_parts_until_it_is_written_whole() {
    for (status, ends) in [
        (Status::UNRECOVERED_READ, Status::UNRECOVERED_READ),
        (Status::ABORTED, Status::ABORTED),
        (Status::HIGH_ECC, Status::SUCCESS),
    ] {
        let mut drive = coarse(0);
        drive.below_mut().bad_read = Some((13, status));
        assert_eq!(write(&mut drive, 12, 1), ends);
        // Its head and its whole units are written before its tail cannot be read.
        assert_eq!(write(&mut drive, 2, 11), ends);
        assert_eq!(drive.below().blocks[2..12], [9; 10]);
        assert_eq!(write(&mut drive, 16, 1), Status::SUCCESS, "the next unit");
        assert_eq!(write(&mut drive, 12, 4), Status::SUCCESS, "all of it");
        assert_eq!(write(&mut drive, 14, 1), Status::SUCCESS, "it can be read again");
    }
}

#[test]
fn reads_pass_writes_that_wait() {
    let (mut drive, mut cmds, mut done) = (coarse(0), Ring::new(3), Ring::new(3));
    for id in 0..2 {
        cmds.push(request(id, BlockOp::Write, 5, 1, 1)).unwrap();
    }
    cmds.push(request(2, BlockOp::Read, 5, 1, 0)).unwrap();
    drive.submit(Time(0), &mut cmds);
    drive.advance(Time(100), &mut done);
    assert_eq!(done.pop().map(|done| (done.id, done.at)), Some((2, Time(100))));
}

#[test]
fn what_fails_below_fails() {
    let mut drive = coarse(0);
    drive.below_mut().fails = true;
    let (mut cmds, mut done) = (Ring::new(2), Ring::new(2));
    cmds.push(request(7, BlockOp::Write, 5, 6, 1)).unwrap();
    let mut wrong = request(8, BlockOp::Write, LAST, 1, 1);
    wrong.buffer = Buffer::empty();
    cmds.push(wrong).unwrap();
    drive.submit(Time(0), &mut cmds);
    while let Some(at) = drive.next_event() {
        drive.advance(at, &mut done);
    }
    let mut ended: Vec<_> = done.drain().map(|done| (done.id, done.status.is_ok())).collect();
    ended.sort_unstable();
    assert_eq!(ended, [(7, false), (8, false)]);
}

#[derive(Clone, Copy, Debug)]
struct Op {
    op: BlockOp,
    block: u64,
    blocks: u64,
    wait: u64,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        4 => Just(BlockOp::Write),
        1 => Just(BlockOp::Trim),
        1 => Just(BlockOp::Read),
    ];
    let one = (op, 0..20u64, 1..12u64, 0..150u64);
    let one = one.prop_map(|(op, block, blocks, wait)| Op { op, block, blocks, wait });
    proptest::collection::vec(one, 1..80)
}

/// What changed a block: when it came, when it ended, and to which version.
type Change = (u64, u64, u64);

proptest! {
    /// Of each block the last change counts, or one of those that went on with it, whatever
    /// happens meanwhile to the rest of its unit.
    #[test]
    fn no_change_is_lost_to_another_of_its_unit(all in ops(), spread in 0..300u64) {
        let mut drive = coarse(spread);
        let (mut cmds, mut done) = (Ring::new(1), Ring::new(80));
        let mut ended = vec![0; all.len()];
        let mut came = Vec::new();
        let mut now = 0;
        let mut pass = |drive: &mut Coarse<Slow>, until: u64, ended: &mut Vec<u64>| {
            while let Some(at) = drive.next_event().filter(|at| at.0 <= until) {
                drive.advance(at, &mut done);
                done.drain().for_each(|done: BlockDone| ended[done.id as usize] = done.at.0);
            }
        };
        for (id, op) in (0..).zip(&all) {
            cmds.push(request(id, op.op, op.block, op.blocks, id + 1)).unwrap();
            while !cmds.is_empty() {
                drive.submit(Time(now), &mut cmds);
                if !cmds.is_empty() {
                    now = drive.next_event().expect("it is full").0;
                    pass(&mut drive, now, &mut ended);
                }
            }
            came.push(now);
            pass(&mut drive, now + op.wait, &mut ended);
            now += op.wait;
        }
        pass(&mut drive, u64::MAX, &mut ended);
        prop_assert!(ended.iter().all(|&at| at > 0));
        for block in 0..40 {
            let covers = |op: &&Op| (op.block..op.block + op.blocks).contains(&block);
            let changes: Vec<Change> = (0..)
                .zip(&all)
                .filter(|(_, op)| op.op != BlockOp::Read && covers(op))
                .map(|(id, op)| {
                    let version = if op.op == BlockOp::Write { id as u64 + 1 } else { 0 };
                    (came[id], ended[id], version)
                })
                .collect();
            let is_last = |one: &&Change| changes.iter().all(|other| other.0 <= one.1);
            let may: Vec<u64> = changes.iter().filter(is_last).map(|one| one.2).collect();
            let is = drive.below().blocks[block as usize];
            prop_assert!(may.contains(&is) || (changes.is_empty() && is == 0), "{block}: {is}, {may:?}");
        }
    }
}
