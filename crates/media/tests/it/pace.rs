//! How fast chunks are handed out bounds how fast a target writes.

use media::{Placement, Shared};
use port::{BlockOp, Time};

use crate::world::{BLOCK, act, claim, flash, pblk, request, timing};

/// How long so many writes take a target that gets a chunk in so many ns, and its erases.
fn time_of(chunk_time: u64) -> (Time, u64) {
    let device = flash(2, 2, 1, &timing());
    let geometry = *device::OpenChannel::geometry(&device);
    let mut drive: crate::world::Drive = Shared::new(device);
    let place = Placement::Isolate.place(&geometry, 1, 0).unwrap();
    let claim = media::Claim { chunk_time, ..claim(place, 64) };
    drive.create(&claim, pblk).unwrap();
    let blocks = drive.shape().bytes / BLOCK;
    let mut random = port::random::Random::new(1, 2);
    let mut now = Time::ZERO;
    for _ in 0..2000 {
        let offset = random.bits() % blocks * BLOCK;
        (_, now) = act(&mut drive, now, request(0, BlockOp::Write, offset, BLOCK, 1));
    }
    (now, drive.media().device().chunks().iter().map(|chunk| u64::from(chunk.wear)).sum())
}

#[test]
fn a_target_writes_no_faster_than_it_gets_chunks() {
    let (free, erases) = time_of(0);
    assert!(erases > 50, "it has collected: {erases}");
    let chunk_time = 20_000_000;
    let (paced, erases) = time_of(chunk_time);
    assert!(paced.0 > 2 * free.0, "{paced:?} and {free:?}");
    // All but those of the burst waited for their time.
    let least = (erases - 4) * chunk_time;
    assert!(paced.0 > least, "{erases} chunks in {paced:?}");
}
