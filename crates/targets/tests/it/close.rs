//! Shutdowns of a drive that is short of space: rows in the buffer wait for
//! what collection wins, so it goes on until they are written.

use device::Device;
use faults::ScriptedMedium;
use flash::{Dimensions, Geometry, Timing};
use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Time};
use targets::{Pblk, PblkConfig, Victim, with_reserve};

const BLOCK: u64 = 4096;
const DATA_CHUNKS: u32 = 5;

type Drive = Pblk<Device<ScriptedMedium>>;

/// One unit whose chunks for data have `pages` rows of 4 blocks, and are full to
/// so many tenths.
fn drive(timing: &Timing, pages: u32, tenths: u64, victim: Victim) -> Drive {
    let dim = Dimensions { chunks: DATA_CHUNKS, pages, page_bytes: 16384, ..Dimensions::LEAST };
    let geometry = Geometry::new(with_reserve(dim)).unwrap();
    let space = u64::from(DATA_CHUNKS * geometry.chunk_blocks() * geometry.total_pus());
    let device = Device::new(&geometry, timing, ScriptedMedium::ram(&geometry, 8, ())).unwrap();
    let bytes = space * tenths / 10 * BLOCK;
    let config = PblkConfig { victim, ..PblkConfig::new(bytes, DATA_CHUNKS, 1) };
    Pblk::new(device, config).unwrap()
}

/// One event. False where there is none.
fn step(drive: &mut Drive, now: &mut Time, done: &mut Ring<BlockDone>) -> bool {
    let Some(at) = drive.next_event() else { return false };
    *now = (*now).max(at);
    drive.advance(*now, done);
    true
}

/// Writes so many blocks at random, and waits until all have completed.
fn write(drive: &mut Drive, now: &mut Time, count: u64, random: &mut u64) {
    let (mut reqs, mut done) = (Ring::new(1), Ring::new(64));
    let mut left = count;
    for id in 0..count {
        *random = random.wrapping_mul(6364136223846793005).wrapping_add(99);
        let offset = (*random >> 33) % (drive.shape().bytes / BLOCK) * BLOCK;
        let (op, buffer) = (BlockOp::Write, Buffer::zeroed(8).unwrap());
        let mut req = Some(BlockReq::new(id, op, offset, BLOCK, buffer));
        while let Some(one) = req.take() {
            reqs.push(one).unwrap();
            drive.submit(*now, &mut reqs);
            req = reqs.pop();
            if req.is_some() {
                assert!(step(drive, now, &mut done), "a write hangs");
            }
        }
        while let Some(one) = done.pop() {
            assert!(one.status.is_ok());
            left -= 1;
        }
    }
    while left > 0 {
        assert!(step(drive, now, &mut done), "a write hangs");
        while done.pop().is_some() {
            left -= 1;
        }
    }
}

#[test]
fn a_drive_short_of_space_is_shut_down() {
    let timed = Timing {
        read: vec![50_000],
        program: vec![600_000],
        erase: 3_000_000,
        ..Timing::default()
    };
    for timing in [timed, Timing::default()] {
        let mut random = 1;
        for round in 0..40 {
            let mut drive = drive(&timing, 2, 9, Victim::Greedy);
            let (mut now, mut done) = (Time::ZERO, Ring::new(64));
            write(&mut drive, &mut now, 300 + round, &mut random);
            drive.close(now);
            while !drive.is_closed() {
                assert!(step(&mut drive, &mut now, &mut done), "round {round}: it hangs");
            }
            // Erases of what only older roots led to.
            while step(&mut drive, &mut now, &mut done) {}
            let config = drive.config();
            assert!(Pblk::peek(drive.into_device(), config).unwrap().clean);
        }
    }
}

/// A start leaves collection behind, and it catches up when the map is loaded.
/// Without time no completion tells that there is room by then.
#[test]
fn a_drive_is_shut_down_soon_after_a_start() {
    let mut random = 7;
    for round in 0..900 {
        let victim = [Victim::Greedy, Victim::Random, Victim::DChoices(1)][round as usize % 3];
        let mut drive = drive(&Timing::default(), 2 + round as u32 / 3 % 5, 5 + round % 5, victim);
        let (mut now, mut done) = (Time::ZERO, Ring::new(64));
        write(&mut drive, &mut now, 200 + round % 100, &mut random);
        for start in 0..4 {
            if start % 2 == round % 2 {
                drive.close(now);
                while !drive.is_closed() {
                    assert!(step(&mut drive, &mut now, &mut done), "round {round}: it hangs");
                }
            }
            let config = drive.config();
            (drive, now) = Pblk::recover(drive.into_device(), config, now).unwrap();
            while drive.is_loading() {
                assert!(step(&mut drive, &mut now, &mut done), "round {round}: it never loads");
            }
            let count = if start == 1 { 60 } else { 1 + round % 3 };
            write(&mut drive, &mut now, count, &mut random);
        }
        drive.close(now);
        while !drive.is_closed() {
            assert!(step(&mut drive, &mut now, &mut done), "round {round}: it hangs");
        }
    }
}
