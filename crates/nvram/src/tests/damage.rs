//! Damage in the store: an error, or nothing that matters.

use std::cell::Cell;
use std::rc::Rc;

use port::{BlockOp, Time};
use proptest::prelude::*;
use xxhash_rust::xxh3::xxh3_64;

use super::fickle::{Ailing, Fickle, Slow};
use super::model::{Host, Known, ram_of};
use crate::{JournalError, NvRam, Protected, Started};

/// A drive that was cut, with a journal of some entries.
fn cut() -> (Fickle, NvRam, Known) {
    let mut host = Host::new(Fickle::new(9), ram_of(64 << 10), 9);
    for i in 0..20 {
        assert!(host.one(BlockOp::Write, i % 17, 1 + i % 5, false).status.is_ok());
        assert!(host.one(BlockOp::Trim, i, 2, false).status.is_ok());
    }
    host.cut()
}

fn start(below: Fickle, store: NvRam) -> Result<Started, JournalError> {
    Protected::start(below, Fickle::shape(), store, Time::ZERO).map(|(_, started)| started)
}

#[test]
fn each_byte_that_is_flipped_is_told_or_does_not_matter() {
    let (_, store, _) = cut();
    let used = crate::peek(&mut store.clone()).unwrap().used as usize;
    let mut told = 0;
    for at in (0..160).chain(4096..4096 + used + 200) {
        let mut damaged = store.clone();
        damaged.all()[at] ^= 0x10;
        // A fresh drive each: what is written is all from the journal.
        let below = Fickle::new(1);
        match start(below.clone(), damaged) {
            Err(_) => told += 1,
            Ok(started) => {
                assert_eq!(started.entries, 40, "byte {at}");
                let right = Fickle::new(1);
                start(right.clone(), store.clone()).unwrap();
                assert!(below.contents() == right.contents(), "byte {at}");
            }
        }
    }
    // All but padding behind data and zeros behind the state.
    assert!(told > used / 2 && told < used + 200, "{told} of {used}");
}

#[test]
fn after_a_crash_of_the_host_only_what_was_synced_must_be_whole() {
    let (below, mut store, known) = cut();
    let used = crate::peek(&mut store).unwrap().used;
    store.all()[4096 + used as usize / 2] ^= 1;
    let error = start(Fickle::new(1), store.clone()).unwrap_err();
    assert!(error.to_string().contains("when the host was started anew"), "{error}");
    // Nothing was ever synced.
    for life in [Some([7; 16]), None] {
        let mut store = store.clone();
        store.set_life(life);
        let started = start(Fickle::new(1), store).unwrap();
        assert!(started.gone >= used / 2 && started.gone < used / 2 + 300, "{started:?}");
        assert!(started.entries > 0 && started.entries < 40);
    }
    // It was.
    let mut host = Host::again(below, cut().1, known);
    assert!(host.one(BlockOp::Write, 0, 8, true).status.is_ok());
    // What is synced is told with the next entry.
    assert!(host.one(BlockOp::Write, 9, 8, true).status.is_ok());
    let (below, mut store, _) = host.cut();
    store.set_life(Some([7; 16]));
    start(below.clone(), store.clone()).unwrap();
    let first = find(&mut store);
    store.all()[first + 20] ^= 1;
    let error = start(below, store).unwrap_err();
    assert!(error.to_string().ends_with("restore the drive from a copy"), "{error}");
}

/// What a sync that failed was to make durable may be gone, and what was synced before may not:
/// whether the journal is told first, or the drive by a flush of the journal's own.
#[test]
fn after_a_sync_that_failed_only_what_was_synced_must_be_whole() {
    for is_below_told in [false, true] {
        let ails = Rc::new(Cell::new(Ailing::No));
        let store = Slow { ram: ram_of(64 << 10), polls: 0, ails: Rc::clone(&ails) };
        let mut host = Host::new(Fickle::new(9), store, 9);
        for lba in [0, 8] {
            assert!(host.one(BlockOp::Write, lba, 8, false).status.is_ok());
            assert!(host.one(BlockOp::Flush, 0, 0, false).status.is_ok());
        }
        for lba in [16, 24] {
            assert!(host.one(BlockOp::Write, lba, 8, false).status.is_ok());
        }
        let of_one = host.port.fill().used / 4;
        ails.set(Ailing::Sync);
        if is_below_told {
            host.below.set_flushes(false);
            while host.port.counters().flushes == 0 {
                assert!(host.one(BlockOp::Write, 32, 8, false).status.is_ok());
            }
            host.settle();
            host.below.set_flushes(true);
        }
        assert!(!host.one(BlockOp::Flush, 0, 0, false).status.is_ok());
        let (used, entries) = (host.port.fill().used, host.port.counters().entries);
        let (below, Slow { mut ram, .. }, _) = host.cut();
        let first = find(&mut ram);
        // The last one, of which no sync told.
        let mut lost = ram.clone();
        lost.all()[first + used as usize - 100] ^= 1;
        let started = start(below.clone(), lost).unwrap();
        assert_eq!((started.entries, started.gone), (entries - 1, of_one));
        ram.all()[first + 20] ^= 1;
        let error = start(below, ram).unwrap_err();
        assert!(error.to_string().ends_with("restore the drive from a copy"), "{error}");
    }
}

/// Where the first entry lies.
fn find(store: &mut NvRam) -> usize {
    let bytes = store.all();
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    4096 + (number(32) % number(24)) as usize
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_bytes_make_it_panic(
        changes in prop::collection::vec((0usize..4096 + 4096, any::<u8>()), 0..20),
        right_state: bool,
        right_entry: bool,
    ) {
        let (_, mut store, _) = cut();
        let entry = find(&mut store);
        let bytes = store.all();
        for (at, byte) in changes {
            if at >= 16 || !right_state {
                bytes[at] = byte;
            }
        }
        // With the right checksums: what is behind them is looked at, too.
        if right_state {
            let sum = xxh3_64(&bytes[24..128]);
            bytes[16..24].copy_from_slice(&sum.to_le_bytes());
        }
        if right_entry {
            let sum = xxh3_64(&bytes[entry + 8..entry + 64]);
            bytes[entry..entry + 8].copy_from_slice(&sum.to_le_bytes());
        }
        let _ = start(Fickle::new(1), store);
    }
}
