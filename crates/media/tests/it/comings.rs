//! Targets that come and go while others work.

use device::OpenChannel;
use media::{MediaError, Place, Placement};
use port::{BlockOp, Port, Ring, Status, Time};

use crate::world::{BLOCK, act, claim, never, pblk, request, rest, shared, timing};

#[test]
fn a_target_goes_and_another_comes_where_it_was() {
    let mut drive = shared(Placement::Isolate, 2, 2, 2, &timing());
    let (first, bytes) = (drive.first_of(1), drive.shape_of(1).bytes);
    let mut now = Time::ZERO;
    for block in 0..bytes / BLOCK {
        for target in [0, first] {
            let req = request(block, BlockOp::Write, target + block * BLOCK, BLOCK, 7);
            (_, now) = act(&mut drive, now, req);
        }
    }
    let place = Place { units: vec![2, 3], chunks: 0..drive.media().device().geometry().chunks() };
    let Err(e) = drive.create(&claim(place.clone(), 64), never) else { panic!("it is taken") };
    assert!(e.to_string().contains("belongs to target 1"), "{e}");
    // A request of the one that leaves, and one of the other, are inside.
    let (mut cmds, mut done) = (Ring::new(2), Ring::new(8));
    cmds.push(request(1, BlockOp::Read, 0, BLOCK, 0)).unwrap();
    cmds.push(request(2, BlockOp::Read, first, BLOCK, 0)).unwrap();
    drive.submit(now, &mut cmds);
    drive.remove(1, now).unwrap();
    assert!(!drive.is_gone(1), "a request is inside");
    cmds.push(request(3, BlockOp::Read, first, BLOCK, 0)).unwrap();
    drive.submit(now, &mut cmds);
    let mut ended = Vec::new();
    while let Some(at) = drive.next_event() {
        now = now.max(at);
        drive.advance(at, &mut done);
        ended.extend(done.drain().map(|done| (done.id, done.status)));
    }
    ended.sort_unstable_by_key(|(id, _)| *id);
    let (good, none) = (Status::SUCCESS, Status::LBA_OUT_OF_RANGE);
    assert_eq!(ended, [(1, good), (2, good), (3, none)]);
    assert!(drive.is_gone(1));
    assert_eq!(drive.shape().bytes, bytes);
    // All that it had is erased, and another may have it.
    assert_eq!(drive.create(&claim(place, 64), pblk).unwrap(), 1);
    assert_eq!(drive.first_of(1), first);
    let (done, now) = act(&mut drive, now, request(4, BlockOp::Read, first, BLOCK, 9));
    assert!(done.status.is_ok() && done.buffer.bytes().iter().all(|&b| b == 0), "nothing is left");
    let (done, _) = act(&mut drive, now, request(5, BlockOp::Read, 0, BLOCK, 9));
    assert!(done.status.is_ok() && done.buffer.bytes().iter().all(|&b| b == 7));
}

#[test]
fn what_is_being_erased_is_nobodys() {
    let mut drive = shared(Placement::Stripe, 2, 1, 2, &timing());
    let mut now = Time::ZERO;
    let first = drive.first_of(0);
    for block in 0..64 {
        (_, now) =
            act(&mut drive, now, request(0, BlockOp::Write, first + block * BLOCK, BLOCK, 1));
    }
    drive.remove(0, now).unwrap();
    let mut done = Ring::new(8);
    while !drive.is_gone(0) {
        let at = drive.next_event().expect("it leaves");
        now = now.max(at);
        drive.advance(at, &mut done);
    }
    let place =
        Place { units: vec![0, 1], chunks: 0..drive.media().device().geometry().chunks() / 2 };
    let Err(e) = drive.create(&claim(place.clone(), 64), never) else { panic!("it is written") };
    assert!(e.to_string().contains("is being erased"), "{e}");
    rest(&mut drive, now);
    assert_eq!(drive.create(&claim(place, 64), pblk).unwrap(), 0);
}

#[test]
fn what_cannot_be_had_is_refused_and_costs_nothing() {
    let mut drive = shared(Placement::Isolate, 2, 2, 2, &timing());
    let chunks = drive.media().device().geometry().chunks();
    let all = |units: &[u32]| Place { units: units.to_vec(), chunks: 0..chunks };
    let mut refused = |place: Place, depth: usize| {
        let Err(e) = drive.create(&claim(place, depth), never) else { panic!("it is refused") };
        e.to_string()
    };
    assert!(refused(all(&[]), 8).contains("a parallel unit"));
    assert!(refused(all(&[4]), 8).contains("unit 4 is not one of the drive's 4"));
    assert!(refused(all(&[1, 1]), 8).contains("named twice"));
    assert!(refused(Place { units: vec![0], chunks: 0..chunks + 1 }, 8).contains("more than"));
    assert!(refused(all(&[0]), 8).contains("belongs to target 0"));
    drive.remove(0, Time::ZERO).unwrap();
    rest(&mut drive, Time::ZERO);
    assert!(drive.is_gone(0));
    assert!(matches!(drive.remove(0, Time::ZERO), Err(MediaError::NoTarget(0))));
    // A target that cannot be made leaves nothing behind.
    let one = Place { units: vec![0], chunks: 0..2 };
    assert!(drive.create(&claim(one, 8), pblk).is_err(), "too few chunks");
    let depth = drive.media().device().depth();
    let Err(e) = drive.create(&claim(all(&[0, 1]), depth), never) else { panic!("too many") };
    assert!(e.to_string().contains("that others leave"), "{e}");
    assert_eq!(drive.create(&claim(all(&[0, 1]), 64), pblk).unwrap(), 0);
}

/// One that is full does not hold up another.
#[test]
fn a_full_target_holds_up_no_other() {
    let mut drive = shared(Placement::Isolate, 2, 2, 2, &timing());
    let depth = drive.shape_of(0).depth;
    // What is read there is on flash.
    let first = drive.first_of(1);
    let (_, now) = act(&mut drive, Time::ZERO, request(0, BlockOp::Write, first, BLOCK, 7));
    let (_, now) = act(&mut drive, now, request(0, BlockOp::Flush, first, BLOCK, 7));
    let mut cmds = Ring::new(depth + 1);
    for id in 0..depth as u64 {
        cmds.push(request(id, BlockOp::Write, id % 32 * BLOCK, BLOCK, 1)).unwrap();
    }
    cmds.push(request(9999, BlockOp::Read, first, BLOCK, 1)).unwrap();
    drive.submit(now, &mut cmds);
    assert!(cmds.is_empty(), "all of its own wait for it alone");
    let mut done = Ring::new(4096);
    loop {
        let at = drive.next_event().unwrap();
        drive.advance(at, &mut done);
        if let Some(read) = done.drain().find(|done| done.id == 9999) {
            assert!(read.status.is_ok() && read.buffer.bytes().iter().all(|&b| b == 7));
            assert!(read.at.0 < now.0 + 100_000, "a lone read takes no longer: {:?}", read.at);
            return;
        }
    }
}
