//! Tests of requests in flight and their buffers.

use super::*;
use crate::limits::Limits;
use crate::nbd::budget::Budget;
use port::Time;
use proptest::prelude::*;

/// A member of a budget of so many bytes.
fn member(memory: u64) -> Membership<'static> {
    let limits = Limits { memory, clients: 2, ..Limits::default() };
    let budget = Box::leak(Box::new(Budget::new(limits, 0)));
    let (sock, _) = std::os::unix::net::UnixStream::pair().unwrap();
    budget.join(sock.into()).map_err(drop).unwrap()
}

const PLENTY: u64 = 1 << 30;

fn requests(max_bytes: u64, kept: u32) -> Requests {
    Requests::new(Shape { bytes: 1 << 40, kept, max_bytes, depth: 8 }).unwrap()
}

fn io(op: BlockOp, len: u32) -> Io {
    Io { cookie: 5, op, fua: false, offset: 8192, len }
}

fn complete(r: &mut Requests, cmd: BlockReq, status: Status) -> Option<u16> {
    let BlockReq { id, op, buffer, .. } = cmd;
    r.complete(BlockDone { id: id & 0xffff_ffff, op, status, at: Time::ZERO, buffer })
}

/// Completes all of `cmds`, and of what waits, with `status`; gives the
/// requests that ended.
fn finish(r: &mut Requests, cmds: &mut Ring<BlockReq>, status: Status) -> Vec<u16> {
    let mut ended = Vec::new();
    while let Some(cmd) = cmds.pop() {
        ended.extend(complete(r, cmd, status));
        r.issue_waiting(1, 0, cmds);
    }
    ended
}

/// What waits behind a long request of another connection waits for its
/// share only; and each has one.
#[test]
fn the_drive_has_a_share_of_long_requests_at_once() {
    for users in [1, 4, 16, 1000] {
        let share = (DATA / users as u64).max(LARGE as u64);
        let mut r = requests(1 << 20, 4096);
        let mut cmds = Ring::new(r.limit());
        r.issue_waiting(users, 0, &mut cmds);
        let mut member = member(PLENTY);
        let mut slots: Vec<u16> =
            (0..15).map(|_| r.admit(io(BlockOp::Write, 2 << 20), &mut member).unwrap()).collect();
        slots.push(r.admit(io(BlockOp::Flush, 0), &mut member).unwrap());
        slots.iter().for_each(|&slot| r.issue(slot, 0, &mut cmds));
        let (mut ended, mut most) = (Vec::new(), 0);
        while let Some(cmd) = cmds.pop() {
            let rest = (0..cmds.len()).map(|i| cmds.get(i).unwrap().len).sum::<u64>();
            most = most.max(cmd.len + rest);
            ended.extend(complete(&mut r, cmd, Status::SUCCESS));
            r.issue_waiting(users, 0, &mut cmds);
        }
        assert_eq!((most, ended), (share, slots));
    }
}

/// Who had the drive alone and rests does not come back with all of that: others
/// may have come.
#[test]
fn after_a_rest_it_begins_with_little() {
    let mut r = requests(64 << 10, 4096);
    let (mut cmds, mut member) = (Ring::new(r.limit()), member(PLENTY));
    for _ in 0..3 {
        let slot = r.admit(io(BlockOp::Read, 2 << 20), &mut member).unwrap();
        r.issue(slot, 0, &mut cmds);
        assert_eq!(r.inside, LEAST_DATA);
        while !cmds.is_empty() {
            finish(&mut r, &mut cmds, Status::SUCCESS);
            r.issue_waiting(1, 0, &mut cmds);
        }
        r.retire(slot);
    }
}

#[test]
fn the_longest_request_is_cut_for_the_drive() {
    for max_bytes in [4096, 8192, 64 << 10, 100 << 12, 1 << 20, 64 << 20] {
        let mut r = requests(max_bytes, 4096);
        let mut cmds = Ring::new(r.limit());
        let slot = r.admit(io(BlockOp::Read, MAX_REQUEST), &mut member(PLENTY)).unwrap();
        r.issue(slot, 3, &mut cmds);
        let (mut next, mut ended) = (8192, Vec::new());
        while let Some(c) = cmds.pop() {
            assert_eq!(c.offset, next);
            assert!(c.len <= max_bytes && c.buffer.len() as u64 == c.len && c.id >> 32 == 3);
            next += c.len;
            ended.extend(complete(&mut r, c, Status::SUCCESS));
            r.issue_waiting(1, 3, &mut cmds);
        }
        assert_eq!(next, 8192 + u64::from(MAX_REQUEST));
        assert_eq!(ended, [slot]);
        assert_eq!(r.data(slot).map(<[u8]>::len).sum::<usize>(), MAX_REQUEST as usize);
        r.retire(slot);
    }
}

#[test]
fn one_bad_piece_makes_a_bad_request() {
    let mut r = requests(4096, 4096);
    let mut cmds = Ring::new(r.limit());
    let slot = r.admit(io(BlockOp::Read, 3 * 4096), &mut member(PLENTY)).unwrap();
    r.issue(slot, 0, &mut cmds);
    let mut last = Ring::new(2);
    let first = cmds.pop().unwrap();
    cmds.pour(&mut last);
    cmds.push(first).unwrap();
    assert!(finish(&mut r, &mut cmds, Status::UNRECOVERED_READ).is_empty());
    assert_eq!(finish(&mut r, &mut last, Status::SUCCESS), [slot]);
    assert_eq!(r.reply(slot).error, protocol::EIO);
    assert_eq!(r.reply_bytes(slot), 0);
}

#[test]
fn each_status_has_its_error() {
    let e = error_of;
    assert_eq!(e(BlockOp::Read, Status::HIGH_ECC), protocol::OK);
    assert_eq!(e(BlockOp::Read, Status::LBA_OUT_OF_RANGE), protocol::EINVAL);
    assert_eq!(e(BlockOp::Write, Status::LBA_OUT_OF_RANGE), protocol::ENOSPC);
    assert_eq!(e(BlockOp::Write, Status::CAPACITY_EXCEEDED), protocol::ENOSPC);
    assert_eq!(e(BlockOp::Write, Status::DISK_FULL), protocol::ENOSPC);
    assert_eq!(e(BlockOp::Write, Status::READ_ONLY), protocol::EPERM);
    assert_eq!(e(BlockOp::Read, Status::ACCESS_DENIED), protocol::EPERM);
    assert_eq!(e(BlockOp::Trim, Status::INVALID_OPCODE), protocol::ENOTSUP);
    assert_eq!(e(BlockOp::Read, Status::UNRECOVERED_READ), protocol::EIO);
}

#[test]
fn a_drive_without_data_needs_no_buffers() {
    let mut r = requests(1 << 20, 0);
    assert!(!r.has_data());
    let mut cmds = Ring::new(r.limit());
    let slot = r.admit(io(BlockOp::Write, MAX_REQUEST), &mut member(PLENTY)).unwrap();
    r.issue(slot, 0, &mut cmds);
    assert_eq!(cmds.len(), 1);
    r.issue_waiting(1, 0, &mut cmds);
    assert_eq!(cmds.len() as u64, DATA >> 20);
    assert!(cmds.front().unwrap().buffer.is_empty());
}

#[test]
fn long_trims_go_piece_by_piece() {
    let mut r = requests(1 << 20, 4096);
    let mut cmds = Ring::new(r.limit());
    let mut member = member(0);
    let long = Io { offset: 4096, ..io(BlockOp::Trim, 40 << 20) };
    let mut slots: Vec<u16> = (0..3).map(|_| r.admit(long, &mut member).unwrap()).collect();
    let short = r.admit(io(BlockOp::WriteZeroes, 8192), &mut member).unwrap();
    slots.push(short);
    slots.iter().for_each(|&slot| r.issue(slot, 0, &mut cmds));
    let (mut ended, mut sizes) = (Vec::new(), Vec::new());
    while !cmds.is_empty() {
        assert!((0..cmds.len()).map(|i| cmds.get(i).unwrap().len).sum::<u64>() <= ZEROED);
        sizes.extend((0..cmds.len()).map(|i| cmds.get(i).unwrap().len));
        ended.extend(finish(&mut r, &mut cmds, Status::SUCCESS));
        r.issue_waiting(1, 0, &mut cmds);
        r.issue_zeroing(0, &mut cmds);
    }
    assert_eq!(sizes.iter().sum::<u64>(), (3 * (40 << 20)) + 8192);
    let first = LEAST_ZEROED - 4096;
    assert_eq!(sizes[..4], [first, ZEROED - LEAST_ZEROED, ZEROED, (8 << 20) + 4096]);
    assert_eq!(ended, slots);
}

#[test]
fn what_was_not_given_to_the_drive_is_given_up() {
    let mut r = requests(1 << 20, 4096);
    let mut cmds = Ring::new(r.limit());
    let mut member = member(0);
    let long = Io { offset: 0, ..io(BlockOp::Trim, 40 << 20) };
    let slots: Vec<u16> = (0..3).map(|_| r.admit(long, &mut member).unwrap()).collect();
    slots.iter().for_each(|&slot| r.issue(slot, 0, &mut cmds));
    assert_eq!(cmds.len(), 1);
    let mut ended = Vec::new();
    r.give_up(|slot| ended.push(slot));
    assert_eq!(ended, slots[1..]);
    assert!(!r.is_zeroing());
    ended.extend(finish(&mut r, &mut cmds, Status::SUCCESS));
    assert!(cmds.is_empty());
    assert_eq!(ended.len(), 3);
    for slot in ended {
        assert_eq!(r.reply(slot).error, protocol::ESHUTDOWN);
        r.retire(slot);
    }
    assert_eq!(r.free_slots.len(), SLOTS);
}

#[test]
fn what_there_is_no_memory_for_waits() {
    let mut r = requests(1 << 20, 4096);
    let mut member = member(0);
    let large = io(BlockOp::Read, MAX_REQUEST);
    let slot = r.admit(large, &mut member).unwrap();
    assert!(r.fits(&io(BlockOp::Read, 512 << 10)) && r.wants(&io(BlockOp::Read, 512 << 10)) > 0);
    assert!(r.admit(io(BlockOp::Read, 4 << 20), &mut member).is_none());
    assert!(r.admit(io(BlockOp::Read, 4096), &mut member).is_some(), "of its own");
    r.retire(slot);
    assert!(r.admit(large, &mut member).is_some());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn nothing_is_lost_and_all_room_comes_back(
        lens in prop::collection::vec((any::<bool>(), 1u32..1200), 1..30),
        pages in 1u64..200,
    ) {
        let mut r = requests(pages * 4096, 4096);
        let mut cmds = Ring::new(r.limit());
        let free = |r: &Requests| {
            let buffers: Vec<usize> = r.classes.iter().map(|c| c.free.len()).collect();
            (r.free_slots.len(), r.free_pieces.len(), buffers)
        };
        let mut member = member(64 << 20);
        let before = free(&r);
        let mut admitted = Vec::new();
        for (write, sectors) in lens {
            let op = if write { BlockOp::Write } else { BlockOp::Read };
            let Some(slot) = r.admit(io(op, sectors * 512), &mut member) else { continue };
            let mut at = 0;
            loop {
                let part = r.fill(slot, at);
                if part.is_empty() {
                    break;
                }
                part.fill(slot as u8);
                at += part.len() as u32;
            }
            prop_assert_eq!(at, sectors * 512);
            r.issue(slot, 0, &mut cmds);
            admitted.push(slot);
        }
        let mut ended = finish(&mut r, &mut cmds, Status::SUCCESS);
        ended.sort();
        admitted.sort();
        prop_assert_eq!(&ended, &admitted);
        for slot in ended {
            let same = |d: &[u8]| d == vec![slot as u8; d.len()];
            prop_assert!(r.data(slot).all(same));
            r.retire(slot);
        }
        r.give_back(&mut member);
        prop_assert_eq!(free(&r), before);
        prop_assert_eq!(member.extra(), 0);
    }
}
