//! Tests of chunk states.

use super::*;

#[test]
fn a_life() {
    let mut c = Chunk::default();
    assert_eq!(c.reset(9), Err(Status::INVALID_RESET));
    assert_eq!(c.write(0, 2, 2, 4), Ok(()));
    assert_eq!(c.state, ChunkState::Open);
    assert_eq!(c.read(0, 1, 0), Err(Status::UNWRITTEN), "on its way, not there");
    assert_eq!(c.reset(9), Err(Status::INVALID_RESET), "a write is on its way");
    c.program(2);
    assert_eq!(c.read(0, 2, 0), Ok(()));
    assert_eq!(c.read(1, 1, 1), Err(Status::UNWRITTEN), "in the unreadable window");
    assert_eq!(c.write(2, 2, 2, 4), Ok(()));
    c.program(2);
    assert_eq!(c.state, ChunkState::Closed);
    assert_eq!(c.read(3, 1, 1), Ok(()), "a closed chunk has no window");
    assert_eq!(c.write(0, 2, 2, 4), Err(Status::OUT_OF_ORDER_WRITE));
    assert_eq!(c.reset(1), Ok(()));
    assert_eq!((c.state, c.wear), (ChunkState::Free, 1));
    assert_eq!(c.read(0, 1, 0), Err(Status::UNWRITTEN));
}

#[test]
fn writes_go_in_order_and_in_units() {
    let mut c = Chunk::default();
    assert_eq!(c.write(2, 2, 2, 4), Err(Status::OUT_OF_ORDER_WRITE));
    assert_eq!(c.write(0, 1, 2, 4), Err(Status::INVALID_FIELD));
    assert_eq!(c.write(0, 6, 2, 4), Err(Status::INVALID_FIELD));
    assert_eq!(c.write(0, 0, 2, 4), Err(Status::INVALID_FIELD));
}

/// A chunk of 12 blocks with `taken` on their way.
fn taken(taken: u32) -> Chunk {
    let mut c = Chunk::default();
    c.write(0, taken, 2, 12).unwrap();
    c
}

#[test]
fn failed_programs_cannot_be_read() {
    let mut c = taken(12);
    c.program(2);
    assert!(c.fail(2, 4), "the first is remembered");
    c.program(2);
    assert!(c.fail(8, 2));
    assert_eq!((c.state, c.wp, c.programmed), (ChunkState::Closed, 12, 10));
    assert_eq!(c.failed_of(0, 12), 0b0011_0011_1100);
    assert_eq!(c.failed_of(3, 6), 0b10_0111);
    assert_eq!(c.failed_of(6, 2), 0);
    assert_eq!(taken(2).failed_of(0, 64), 0);
    c.program(2);
    c.reset(9).unwrap();
    assert_eq!(c.failed_of(2, 1), 1, "a read that waits must not see old data");
    c.erased();
    assert_eq!(c, Chunk { wear: 1, ..Chunk::default() });
}

#[test]
fn one_failure_too_many_closes_it_early() {
    let mut c = taken(10);
    assert!(c.fail(0, 2) && c.fail(2, 2));
    c.program(2);
    assert!(!c.fail(6, 2), "the third");
    assert!(!c.fail(8, 2), "what was behind it");
    assert_eq!((c.state, c.wp, c.programmed), (ChunkState::Closed, 6, 6));
    assert!(c.is_closed_early(12));
    assert_eq!(c.read(4, 2, 0), Ok(()), "readable up to its write pointer");
    assert_eq!(c.read(6, 1, 0), Err(Status::UNWRITTEN));
    assert_eq!(c.write(6, 2, 2, 12), Err(Status::OUT_OF_ORDER_WRITE));
    assert_eq!(c.reset(9), Ok(()));
}

#[test]
fn it_is_small_and_knows_its_age() {
    assert!(size_of::<Chunk>() <= CHUNK_BYTES);
    let mut c = Chunk::default();
    assert!(!c.has_history());
    c.begin(10_000_000_000);
    assert!(c.has_history());
    let age = c.age(15_000_000_000);
    assert!((5_000_000_000..5_000_000_000 + (1 << SINCE_BITS)).contains(&age));
    assert_eq!(c.age(0), 0, "a clock that began again");
    c.begin(u64::MAX);
    assert_eq!(c.since, u32::MAX);
}

use proptest::prelude::*;

proptest! {
    #[test]
    fn bytes_come_back(words in any::<[u32; 5]>(), runs in any::<[(u32, u32); 2]>(), small in any::<[u8; 4]>()) {
        let (wp, programmed) = (words[0].max(words[1]), words[0].min(words[1]));
        let run = |(block, count): (u32, u32)| {
            let count = 1 + count % 64;
            if programmed < count { return FailedRun::default() }
            FailedRun::new(block % (programmed - count + 1).min(1 << 25), count)
        };
        let states = [ChunkState::Free, ChunkState::Closed, ChunkState::Open, ChunkState::Offline];
        let state = states[usize::from(small[0] % 4)];
        let cause = Cause::from_number(small[3] % 4).unwrap();
        let c = Chunk {
            state,
            cause: if state == ChunkState::Offline { cause } else { Cause::Untold },
            level: ErrorLevel::ALL[usize::from(small[1] % 5)],
            worn: small[2] % 2 == 1,
            wp, programmed, wear: words[2], reads: words[3], since: words[4],
            failed: runs.map(run),
        };
        prop_assert_eq!(Chunk::from_bytes(&c.to_bytes()), Ok(c));
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in any::<[u8; 32]>(), tidy in any::<bool>()) {
        let mut bytes = bytes;
        if tidy {
            let small = [1 << (bytes[0] % 4), bytes[1] % 5, bytes[2] % 2, bytes[3] % 4];
            bytes[..4].copy_from_slice(&small);
            bytes[7] = 0xff;
            bytes[24..].fill(0);
        }
        if let Ok(c) = Chunk::from_bytes(&bytes) {
            prop_assert_eq!(c.to_bytes(), bytes);
            prop_assert!(c.programmed <= c.wp);
        }
    }
}

/// What becomes of a chunk, as a drive may have it.
#[derive(Clone, Copy, Debug)]
enum Step {
    Write(u32),
    Program,
    Fail,
    Reset,
    Erase,
    EraseFails,
    Read(u32),
    Retire,
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1u32..4).prop_map(Step::Write),
        6 => Just(Step::Program),
        3 => Just(Step::Fail),
        2 => Just(Step::Reset),
        3 => Just(Step::Erase),
        1 => Just(Step::EraseFails),
        1 => any::<u32>().prop_map(Step::Read),
        1 => Just(Step::Retire),
    ]
}

proptest! {
    #[test]
    fn all_that_a_chunk_can_be_comes_back(all in prop::collection::vec(steps(), 0..80)) {
        let (size, mut c, mut erasing) = (12, Chunk::default(), false);
        for step in all {
            let next = c.wp - c.programmed;
            match step {
                Step::Write(rows) => { let _ = c.write(c.wp, 2 * rows, 2, size); },
                Step::Program if next > 0 && !erasing => c.program(2),
                Step::Fail if next > 0 && !erasing && c.state != ChunkState::Offline => {
                    c.fail(c.programmed, 2);
                }
                Step::Reset if !erasing => erasing = c.reset(9).is_ok(),
                Step::Erase if erasing => { c.erased(); erasing = false; }
                Step::EraseFails if erasing => { c.give_up(); erasing = false; }
                Step::Read(n) => c.reads = c.reads.saturating_add(n),
                Step::Retire if !erasing => erasing = c.retire().is_ok(),
                _ => {}
            }
            let back = Chunk::from_bytes(&c.to_bytes());
            // What an erase on its way takes is left out.
            let failed = if erasing { Default::default() } else { c.failed };
            prop_assert_eq!(back, Ok(Chunk { failed, ..c }));
        }
    }
}

#[test]
fn a_retired_chunk_is_out_of_use_for_good() {
    let mut c = taken(4);
    assert_eq!(c.retire(), Err(Status::INVALID_RESET), "a write is on its way");
    c.program(2);
    assert!(c.fail(2, 2));
    assert_eq!(c.retire(), Ok(()));
    assert_eq!((c.state, c.wp, c.programmed, c.wear), (ChunkState::Offline, 0, 0, 1));
    assert_eq!(c.failed_of(2, 2), 3, "a read that waits must not see them");
    assert_eq!(c.retire(), Err(Status::OFFLINE_CHUNK));
    assert_eq!(c.reset(9), Err(Status::OFFLINE_CHUNK));
    let mut free = Chunk::default();
    assert_eq!((free.retire(), free.wear), (Ok(()), 1));
}

#[test]
fn it_is_told_why_a_chunk_is_offline() {
    let mut bad = Chunk::default();
    assert_eq!(bad.why_offline(), None);
    bad.leave_factory_bad();
    let mut retired = Chunk::default();
    retired.retire().unwrap();
    // Its last erase failed, too: it is still the target that gave it up.
    retired.give_up();
    let mut grown = Chunk { wear: 3, ..Chunk::default() };
    grown.give_up();
    let mut worn_out = taken(2);
    worn_out.program(2);
    assert_eq!(worn_out.reset(0), Err(Status::OFFLINE_CHUNK));
    for (chunk, cause) in [
        (bad, Cause::Factory),
        (retired, Cause::Retired),
        (grown, Cause::Grown),
        (worn_out, Cause::Grown),
    ] {
        let back = Chunk::from_bytes(&chunk.to_bytes()).unwrap();
        assert_eq!(back.why_offline(), Some(cause));
    }
    // Bytes from before it was told.
    for (wear, cause) in [(0, Cause::Factory), (1, Cause::Grown)] {
        let state = ChunkState::Offline;
        let old = Chunk { state, wear, ..Chunk::default() };
        assert_eq!(old.why_offline(), Some(cause));
    }
    let mut free = Chunk::default().to_bytes();
    free[3] = Cause::Grown as u8;
    assert_eq!(Chunk::from_bytes(&free).unwrap_err().field, "cause");
}

#[test]
fn it_wears_out() {
    let mut c = Chunk::default();
    for _ in 0..2 {
        c.write(0, 4, 4, 4).unwrap();
        c.program(4);
        c.reset(2).unwrap();
    }
    c.write(0, 4, 4, 4).unwrap();
    c.program(4);
    assert_eq!(c.reset(2), Err(Status::OFFLINE_CHUNK));
    assert_eq!(c.write(0, 4, 4, 4), Err(Status::OFFLINE_CHUNK));
    assert_eq!(c.read(0, 1, 0), Err(Status::OFFLINE_CHUNK));
}

/// Of an open chunk all but the last blocks that are programmed, in logical blocks; of
/// one that is full, or was closed early, all; of one that is gone, none.
#[test]
fn what_can_be_read_of_a_chunk() {
    let mut c = Chunk::default();
    assert_eq!(c.readable(3), 0);
    for programmed in (4..16).step_by(4) {
        c.write(programmed - 4, 4, 4, 16).unwrap();
        assert_eq!(c.readable(3), programmed.saturating_sub(4 + 3), "not what is on its way");
        c.program(4);
        assert_eq!(c.readable(3), programmed - 3);
        assert_eq!((c.readable(0), c.readable(16)), (programmed, 0));
        assert_eq!(c.read(programmed - 4, 1, 3), Ok(()));
        assert_eq!(c.read(programmed - 4, 2, 3), Err(Status::UNWRITTEN));
    }
    let early = Chunk { state: ChunkState::Closed, wp: 12, ..c };
    assert_eq!(early.readable(3), 12);
    c.write(12, 4, 4, 16).unwrap();
    assert_eq!(c.readable(3), 12, "it is closed, and the rest on its way");
    c.program(4);
    assert_eq!(c.readable(3), 16);
    c.retire().unwrap();
    assert_eq!(c.readable(3), 0);
}
