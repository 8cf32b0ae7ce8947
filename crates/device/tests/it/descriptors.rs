//! Whatever a drive does, what it tells of its chunks can be written and read
//! back: at each event, in the middle of erases, after failures of all kinds,
//! and a chunk that was retired stays offline.

use crate::common;
use std::cell::RefCell;
use std::rc::Rc;

use crate::common::{Rig, cmd, geometry};
use device::{Device, OpenChannel, VectorOp};
use faults::{Below, Script, ScriptedMedium};
use flash::{Chunk, ChunkState, Geometry, Ppa, Reliability, Timing};
use port::Status;
use port::random::mix;
use proptest::prelude::*;

/// Keeps what it is told, as a file would.
struct Told(Rc<RefCell<Vec<[u8; flash::CHUNK_BYTES]>>>);

impl Script for Told {
    fn describe(&mut self, _below: Below, chunk_index: usize, chunk: &Chunk) {
        self.0.borrow_mut()[chunk_index] = chunk.to_bytes();
    }
}

fn timing() -> Timing {
    Timing {
        read: vec![100],
        program: vec![900],
        erase: 3000,
        suspend: true,
        suspend_time: 10,
        resume_time: 10,
        suspend_limit: 3,
        endurance: 12,
        ..Timing::default()
    }
}

fn model() -> Reliability {
    Reliability {
        errors: true,
        rber_base: 5e-3,
        read_disturb: 2e-5,
        read_retries: 1,
        retry_gain: 0.8,
        correctable: 50,
        program_failure: 0.5,
        erase_failure: 0.15,
        failure_power: 0.3,
        factory_bad: 0.1,
        wear_notice: 20,
        ..Reliability::default()
    }
}

/// Checks all descriptors, and that what was retired is so.
fn check(device: &Device<ScriptedMedium>, geometry: &Geometry, retired: &[bool]) {
    for (index, chunk) in device.chunks().iter().enumerate() {
        let read = Chunk::from_bytes(&chunk.to_bytes()).expect("it can be read back");
        let is_erasing = chunk.programmed == 0;
        let failed = if is_erasing { read.failed } else { chunk.failed };
        assert_eq!(read, Chunk { failed, ..*chunk });
        assert!(read.wp <= geometry.chunk_blocks());
        if retired[index] {
            assert_eq!(chunk.state, ChunkState::Offline);
            assert!(chunk.wear > 0, "not as from the factory");
        }
    }
}

/// Ends all that is under way, an event at a time.
fn step(
    rig: &mut Rig<Device<ScriptedMedium>>,
    geometry: &Geometry,
    retired: &[bool],
    to: Option<u64>,
) {
    use port::Port;
    while let Some(at) = rig.port.next_event().filter(|at| to.is_none_or(|to| at.0 <= to)) {
        rig.run_to(at);
        check(&rig.port, geometry, retired);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn descriptors_come_back_whatever_happens(seed in any::<u64>(), cliff in any::<bool>()) {
        let g = geometry(2, 1, 1);
        let bytes = vec![Chunk::default().to_bytes(); g.chunk_slots()];
        let model = Reliability { endurance_cliff: cliff, ..model() };
        let bytes = Rc::new(RefCell::new(bytes));
        let medium = ScriptedMedium::ram(&g, 8, Told(bytes.clone()));
        let device = Device::with(&g, &timing(), &model, seed, medium).unwrap();
        let mut rig = Rig::new(device, 64);
        let mut retired = vec![false; g.chunk_slots()];
        let (mut random, mut now) = (seed, 0);
        let mut below = |n: u64| { random = mix(random.wrapping_add(0x9e37_79b9)); random % n };
        for cookie in 0..600 {
            let pu = g.pus_channels_first().nth(below(2) as usize).unwrap();
            let chunk = g.chunk_of(pu, below(4) as u32);
            let (start, of) = (g.chunk_start(chunk), rig.port.chunks()[chunk]);
            let is_idle = of.wp == of.programmed;
            let (op, block, count) = match below(24) {
                0..11 => (VectorOp::Write, of.wp, 2 + 2 * below(4)),
                11..18 => (VectorOp::Read, below(12) as u32, 1 + below(6)),
                18..23 => (VectorOp::Reset, 0, 1),
                _ if is_idle && below(4) == 0 => (VectorOp::Retire, 0, 1),
                _ => (VectorOp::Read, 0, 1),
            };
            let mut cmd = cmd(cookie, op, Ppa(start.0 + u64::from(block)), count as u8);
            cmd.buffer = port::Buffer::zeroed(cmd.buffer_bytes(8)).unwrap();
            now += below(1500);
            step(&mut rig, &g, &retired, Some(now));
            // What is under way may have changed it meanwhile.
            let of = rig.port.chunks()[chunk];
            rig.submit(now, cmd);
            let gone = rig.port.chunks()[chunk].state == ChunkState::Offline;
            // Refused while a write or a reset of it is on its way.
            retired[chunk] |=
                op == VectorOp::Retire && of.state != ChunkState::Offline && gone;
            check(&rig.port, &g, &retired);
        }
        step(&mut rig, &g, &retired, None);
        // All is at rest: the medium knows it, and gives the same drive back.
        let chunks = rig.port.chunks().to_vec();
        for (index, chunk) in chunks.iter().enumerate() {
            let told = Chunk::from_bytes(&bytes.borrow()[index]).unwrap();
            let chunk = Chunk::from_bytes(&chunk.to_bytes()).unwrap();
            prop_assert_eq!(Chunk { reads: 0, ..told }, Chunk { reads: 0, ..chunk });
        }
        let health = rig.port.health();
        let again = Device::restore_with(&g, &timing(), &model, seed, rig.port.cut(), &chunks).unwrap();
        for (before, after) in chunks.iter().zip(again.chunks()) {
            let mut expected = *before;
            if expected.programmed == 0 {
                expected.erased();
            }
            prop_assert_eq!(expected, *after);
        }
        let after = again.health();
        prop_assert_eq!(
            (health.grown_bad, health.factory_bad, health.retired),
            (after.grown_bad, after.factory_bad, after.retired)
        );
        prop_assert_eq!(after.retired, retired.iter().filter(|&&retired| retired).count() as u64);
    }
}

#[test]
fn a_chunk_is_not_retired_while_its_reset_is_on_its_way() {
    let g = geometry(1, 1, 1);
    let mut rig = Rig::new(common::drive(&g, &timing(), 0), 8);
    let (busy, other) = (g.chunk_start(0), g.chunk_start(1));
    rig.submit(0, cmd(0, VectorOp::Write, busy, 2));
    rig.drain();
    let now = rig.now.0;
    rig.submit(now, cmd(1, VectorOp::Reset, busy, 1));
    rig.submit(now, cmd(2, VectorOp::Retire, busy, 1));
    rig.submit(now, common::list_cmd(3, VectorOp::Retire, &[other, busy], &[]));
    rig.drain();
    let status = |cookie| {
        let done = rig.all.iter().find(|done| done.cookie == cookie).unwrap();
        (done.status, done.failed)
    };
    assert_eq!(status(1), (Status::SUCCESS, 0));
    assert_eq!(status(2), (Status::INVALID_RESET, 1));
    assert_eq!(status(3), (Status::INVALID_RESET, 0b10), "all or none");
    assert_eq!(rig.port.chunk(0), Chunk { wear: 1, ..Chunk::default() });
    assert_eq!(rig.port.chunk(1), Chunk::default());
    // When the erase has ended it is free like any other.
    rig.submit(rig.now.0, cmd(4, VectorOp::Retire, busy, 1));
    rig.drain();
    assert_eq!(rig.all.last().unwrap().status, Status::SUCCESS);
    assert_eq!(rig.port.chunk(0).why_offline(), Some(flash::Cause::Retired));
    let health = rig.port.health();
    assert_eq!((health.retired, health.grown_bad, health.factory_bad), (1, 0, 0));
}
