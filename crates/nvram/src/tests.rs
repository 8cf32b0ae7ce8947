//! The cache against a model, with cuts, kills, crashes of the host, failures
//! below, and damage.

mod damage;
mod fickle;
mod model;

use std::cell::Cell;
use std::rc::Rc;

use device::Coarse;
use port::{BLOCK_BYTES, BlockOp, BlockReq, Buffer, Port, Ring, Status, Time};

use crate::{AREA_START, JournalError, LEAST_BYTES, NvRam, Protected, format, peek};
use fickle::{Ailing, Fickle, Hosted, Mortal, Slow, Waiting};
use model::{Host, ram};

#[test]
fn flush_and_fua_take_no_time() {
    let mut host = Host::new(Fickle::new(1), ram(), 1);
    let written = host.one(BlockOp::Write, 0, 4, true);
    assert!(written.status.is_ok());
    let flushed = host.one(BlockOp::Flush, 0, 0, false);
    assert_eq!((flushed.status, flushed.at), (Status::SUCCESS, host.now));
    assert_eq!(host.port.counters().flushes, 0);
    assert!(host.port.fill().used > 0);
}

#[test]
fn what_is_not_right_is_refused_and_not_journaled() {
    let mut host = Host::new(Fickle::new(1), ram(), 1);
    assert_eq!(host.one(BlockOp::Write, 48, 1, false).status, Status::LBA_OUT_OF_RANGE);
    assert_eq!(host.one(BlockOp::Write, 0, 9, false).status, Status::INVALID_FIELD);
    assert_eq!(host.port.fill().used, 0);
}

#[test]
fn the_store_must_be_large_enough_and_a_journal() {
    let shape = Fickle::shape();
    let start = |ram| Protected::start(Fickle::new(1), shape, ram, Time::ZERO).err().unwrap();
    assert!(matches!(start(NvRam::new(4096)), JournalError::Size { .. }));
    assert!(matches!(start(NvRam::new(LEAST_BYTES as usize)), JournalError::State { .. }));
    let mut newer = ram();
    newer.all()[8] = 9;
    assert!(start(newer).to_string().contains("newer ssdkit"));
    let long = port::Shape { max_bytes: 64 << 20, bytes: 1 << 30, ..shape };
    let error = Protected::start(Fickle::new(1), long, ram(), Time::ZERO).err().unwrap();
    assert!(error.to_string().contains("four times"), "{error}");
    assert!(format(&mut NvRam::new(70_000)).is_err());
    assert_eq!(peek(&mut ram()).unwrap().bytes, LEAST_BYTES - AREA_START);
}

#[test]
fn a_drive_that_refuses_stays_readable_and_loses_nothing() {
    let mut host = Host::new(Fickle::new(3), ram(), 3);
    for lba in 0..8 {
        assert!(host.one(BlockOp::Write, lba, 1, false).status.is_ok());
    }
    let (below, mut store, known) = host.cut();
    let used = peek(&mut store).unwrap().used;
    below.set_read_only(true);
    let mut host = Host::again(below, store, known);
    assert_eq!((host.started.entries, host.port.frozen()), (0, Some(Status::READ_ONLY)));
    assert_eq!(host.one(BlockOp::Read, 3, 1, false).status, Status::UNRECOVERED_READ);
    assert!(host.one(BlockOp::Read, 8, 4, false).status.is_ok());
    assert_eq!(host.one(BlockOp::Write, 20, 1, false).status, Status::READ_ONLY);
    assert_eq!(host.one(BlockOp::Flush, 0, 0, false).status, Status::READ_ONLY);
    let (below, mut store, known) = host.cut();
    assert_eq!(peek(&mut store).unwrap().used, used);
    // It takes writes again: all is there.
    below.set_read_only(false);
    let mut host = Host::again(below, store, known);
    assert_eq!((host.started.entries, host.port.frozen()), (8, None));
    host.verify();
}

#[test]
fn a_drive_that_does_not_flush_what_it_took_stays_readable_and_loses_nothing() {
    let mut host = Host::new(Fickle::new(3), ram(), 3);
    for lba in 0..8 {
        assert!(host.one(BlockOp::Write, lba, 1, false).status.is_ok());
    }
    let (below, mut store, known) = host.cut();
    let used = peek(&mut store).unwrap().used;
    below.set_flushes(false);
    let mut host = Host::again(below, store, known);
    assert_eq!(host.port.frozen(), Some(Status::WRITE_FAULT));
    assert!(host.one(BlockOp::Read, 0, 8, false).status.is_ok());
    assert_eq!(host.one(BlockOp::Write, 20, 1, false).status, Status::WRITE_FAULT);
    assert_eq!(host.one(BlockOp::Flush, 0, 0, false).status, Status::WRITE_FAULT);
    let (below, mut store, known) = host.cut();
    assert_eq!(peek(&mut store).unwrap().used, used);
    below.set_flushes(true);
    let mut host = Host::again(below, store, known);
    assert_eq!((host.started.entries, host.port.frozen()), (8, None));
    host.verify();
}

#[test]
fn an_entry_whose_block_cannot_be_read_is_tried_again_or_made_good() {
    // Refusals of block 3, whether a later write covers it, and whether the
    // drive takes writes then.
    for (refusals, later, takes) in
        [(3, false, true), (4, true, true), (4, false, false), (12, true, false)]
    {
        let mut host = Host::new(Fickle::new(4), ram(), 4);
        for (lba, count) in [(1, 1), (3, 1), (7, 2)] {
            assert!(host.one(BlockOp::Write, lba, count, false).status.is_ok());
        }
        if later {
            assert!(host.one(BlockOp::Write, 3, 2, false).status.is_ok());
        }
        let (below, store, known) = host.cut();
        below.set_unread(3, refusals);
        let mut host = Host::again(below, store, known);
        let frozen = (!takes).then_some(Status::UNRECOVERED_READ);
        assert_eq!(host.port.frozen(), frozen, "{refusals} refusals, later: {later}");
        assert_eq!(host.port.withholds(3 * 4096, 512), !takes);
        assert!(!host.port.withholds(4096, 8192) && !host.port.withholds(7 * 4096, 8192));
        assert_eq!(host.one(BlockOp::Write, 20, 1, false).status.is_ok(), takes);
        assert!(host.one(BlockOp::Read, 7, 2, false).status.is_ok());
        let (below, store, known) = host.cut();
        below.set_unread(3, 0);
        let mut host = Host::again(below, store, known);
        assert_eq!(host.port.frozen(), None);
        host.verify();
    }
}

#[test]
fn of_an_entry_only_the_block_that_cannot_be_read_is_held_back() {
    // Blocks of the entry, the one that is written later, and what is withheld.
    for (count, later, withheld) in [(3, None, Some(3)), (3, Some(3), None), (1, Some(3), None)] {
        let mut host = Host::new(Fickle::new(5), ram(), 5);
        assert!(host.one(BlockOp::Write, 3, count, false).status.is_ok());
        if let Some(lba) = later {
            assert!(host.one(BlockOp::Write, lba, 1, false).status.is_ok());
        }
        let (below, store, known) = host.cut();
        // As often as the entry, and its first block, are tried.
        below.set_unread(3, if count > 1 { 8 } else { 4 });
        let host = Host::again(below, store, known);
        assert_eq!(host.port.frozen().is_some(), withheld.is_some(), "{count} {later:?}");
        for lba in 3..3 + count {
            assert_eq!(host.port.withholds(lba * 4096, 4096), withheld == Some(lba), "{lba}");
        }
    }
}

/// Power goes while a write is refused that the drive never takes, or does not permit.
#[test]
fn what_was_refused_when_it_was_sent_is_left_out() {
    for (status, later, frozen) in [
        (Status::INVALID_FIELD, Some(Status::INVALID_FIELD), None),
        (Status::ACCESS_DENIED, Some(Status::ACCESS_DENIED), None),
        // It is permitted now, or was then and is not now.
        (Status::ACCESS_DENIED, None, None),
        (Status::SUCCESS, Some(Status::ACCESS_DENIED), Some(Status::ACCESS_DENIED)),
        (Status::SUCCESS, Some(Status::READ_ONLY), Some(Status::READ_ONLY)),
    ] {
        let mut host = Host::new(Fickle::new(6), ram(), 6);
        let refused = |status: Status| (!status.is_ok()).then_some((7, status));
        host.below.set_refused(refused(status));
        host.ask(BlockOp::Write, 3, 1, false);
        host.ask(BlockOp::Write, 6, 3, false);
        // The second has come back, and the flush behind it has not.
        host.below.stop_after(2);
        while host.pass() {}
        let (below, store, known) = host.cut();
        below.set_refused(later.map(|status| (7, status)));
        let mut host = Host::again(below, store, known);
        assert_eq!(host.port.frozen(), frozen, "{status}, then {later:?}");
        assert_eq!(host.port.withholds(7 * 4096, 4096), frozen.is_some());
        assert_eq!(host.one(BlockOp::Write, 20, 1, false).status.is_ok(), frozen.is_none());
        if frozen.is_none() {
            host.verify();
        }
    }
}

/// What a drive maps as one is held back where it cannot be read, and nothing beside it.
#[test]
fn of_an_entry_only_the_unit_that_cannot_be_read_is_held_back() {
    let coarse = |below| Coarse::new(4 * BLOCK_BYTES, below, Fickle::shape()).unwrap();
    let below = Fickle::new(7);
    let start = |below: &Fickle, store| {
        let port = coarse(below.clone());
        Protected::start(port, Fickle::shape(), store, Time::ZERO).unwrap().0
    };
    let mut port = start(&below, ram());
    let (mut cmds, mut done) = (Ring::new(1), Ring::new(1));
    // Three blocks of the first unit, all of the second, and one of the third.
    let buffer = Buffer::zeroed(8 * 8).unwrap();
    cmds.put(|| BlockReq::new(1, BlockOp::Write, BLOCK_BYTES, 8 * BLOCK_BYTES, buffer));
    port.submit(Time::ZERO, &mut cmds);
    while let Some(at) = port.next_event() {
        port.advance(at, &mut done);
    }
    assert!(done.pop().unwrap().status.is_ok());
    let (_, store) = port.cut();
    below.cut();
    below.set_unreadable(Some(0));
    let port = start(&below, store);
    assert_eq!(port.frozen(), Some(Status::UNRECOVERED_READ));
    for block in 1..9 {
        assert_eq!(port.withholds(block * BLOCK_BYTES, BLOCK_BYTES), block < 4, "{block}");
    }
    let (_, store) = port.cut();
    below.cut();
    below.set_unreadable(None);
    assert_eq!(start(&below, store).frozen(), None);
}

#[test]
fn flushes_tell_of_one_that_failed_below() {
    let mut host = Host::new(Fickle::new(5), ram(), 5);
    let mut refused = false;
    for i in 0..3000 {
        if i == 100 {
            host.below.set_failing(100);
        }
        refused |= !host.one(BlockOp::Write, i % 40, 8, false).status.is_ok();
    }
    assert!(refused);
    assert_eq!(host.one(BlockOp::Flush, 0, 0, false).status, Status::WRITE_FAULT);
    // The flush below that this one begins succeeds.
    host.below.set_failing(0);
    assert_eq!(host.one(BlockOp::Flush, 0, 0, false).status, Status::WRITE_FAULT);
    host.settle();
    assert_eq!(host.one(BlockOp::Flush, 0, 0, false).status, Status::SUCCESS);
    assert!(host.one(BlockOp::Write, 3, 1, false).status.is_ok());
    let (below, store, known) = host.cut();
    Host::again(below, store, known).verify();
}

#[test]
fn a_store_that_fails_stops_writes_and_not_reads() {
    let mut host = Host::new(Fickle::new(1), Mortal { ram: ram(), left: 20_000 }, 1);
    let mut last = 0;
    while host.port.error().is_none() {
        host.one(BlockOp::Write, last % 40, 4, last % 3 == 0);
        last += 1;
    }
    assert!(last > 10);
    assert_eq!(host.one(BlockOp::Write, 3, 1, false).status, Status::WRITE_FAULT);
    assert_eq!(host.one(BlockOp::Flush, 0, 0, false).status, Status::WRITE_FAULT);
    assert!(host.one(BlockOp::Read, 3, 1, false).status.is_ok());
    host.settle();
}

/// Time stands still for a sync, unless it is a clock's.
#[test]
fn on_a_clock_reads_go_on_while_the_store_syncs() {
    for on_a_clock in [false, true] {
        let mut host = Host::new(Fickle::new(1), slow(), 1);
        host.port.set_on_a_clock(on_a_clock);
        assert!(host.one(BlockOp::Write, 3, 1, false).status.is_ok());
        host.ask(BlockOp::Flush, 0, 0, false);
        assert!(host.one(BlockOp::Read, 5, 1, false).status.is_ok());
        assert_eq!(host.port.is_idle(), !on_a_clock);
        host.settle();
    }
}

/// Whichever of the two fails, while the other is under way or not: nothing waits for ever,
/// and nothing is due that leads to nothing.
#[test]
fn a_sync_that_fails_is_not_under_way_for_ever() {
    for what in [Ailing::Sync, Ailing::Write] {
        let ails = Rc::new(Cell::new(Ailing::No));
        let store = Slow { ails: Rc::clone(&ails), ..slow() };
        let mut host = Host::new(Fickle::new(1), store, 1);
        assert!(host.one(BlockOp::Write, 3, 1, false).status.is_ok());
        host.ask(BlockOp::Flush, 0, 0, false);
        host.pass();
        ails.set(what);
        host.ask(BlockOp::Write, 5, 1, false);
        (0..100).for_each(|_| {
            host.pass();
        });
        assert!(host.port.error().is_some() && host.port.is_idle());
        assert_eq!(host.port.next_event(), None);
        assert_eq!(host.one(BlockOp::Flush, 0, 0, false).status, Status::WRITE_FAULT);
        assert!(host.one(BlockOp::Read, 3, 1, false).status.is_ok());
        host.settle();
    }
}

/// A store whose syncs take a while.
fn slow() -> Slow {
    Slow { ram: ram(), polls: 0, ails: Rc::new(Cell::new(Ailing::No)) }
}

/// The flush after a failed one has ended, and the store has not yet synced that the failed
/// write's space is free.
#[test]
fn a_write_that_comes_before_a_failed_one_is_out_of_the_journal_is_not_dropped() {
    let mut host = Host::new(Fickle::new(1), slow(), 1);
    host.below.set_failing(100);
    assert_eq!(host.one(BlockOp::Write, 3, 1, false).status, Status::WRITE_FAULT);
    // The store syncs behind the flush below, which failed, too.
    host.settle();
    host.below.set_failing(0);
    assert_eq!(host.one(BlockOp::Flush, 0, 0, false).status, Status::WRITE_FAULT);
    while host.port.next_event() != Some(host.now) {
        assert!(host.pass(), "the flush below ends");
    }
    host.ask(BlockOp::Write, 5, 1, false);
    host.verify();
    assert_eq!(host.port.counters().entries, 2);
}

#[test]
fn what_completed_is_read_whatever_failed_while_the_store_was_slow() {
    let mut failed = 0;
    for seed in 2000..2200 {
        let mut host = Host::new(Fickle::new(seed), slow(), seed);
        for _ in 0..4 {
            host.below.set_failing(30);
            host.work();
            host.below.set_failing(0);
            host.settle();
            failed += u32::from(!host.one(BlockOp::Flush, 0, 0, false).status.is_ok());
            host.verify();
        }
    }
    assert!(failed > 100, "{failed}");
}

#[test]
fn time_does_not_go_back_for_the_drive_below() {
    let (mut cmds, mut done) = (Ring::new(1), Ring::new(2));
    let shape = Fickle::shape();
    let (mut port, _) = Protected::start(Waiting::default(), shape, ram(), Time::ZERO).unwrap();
    port.set_on_a_clock(true);
    for id in 1..3 {
        let buffer = Buffer::zeroed(8).unwrap();
        cmds.put(|| BlockReq::new(id, BlockOp::Read, 0, BLOCK_BYTES, buffer));
        port.submit(Time(100 * id), &mut cmds);
        port.advance(Time(100 * id + 50), &mut done);
    }
    port.advance(Time(300), &mut done);
    assert_eq!(done.len(), 2);
}

#[test]
fn trims_are_kept_too() {
    let mut host = Host::new(Fickle::new(1), ram(), 1);
    assert!(host.one(BlockOp::Write, 0, 8, false).status.is_ok());
    assert!(host.one(BlockOp::Trim, 0, 48, true).status.is_ok());
    assert!(host.one(BlockOp::WriteZeroes, 1, 3, false).status.is_ok());
    let (below, store, known) = host.cut();
    let mut host = Host::again(below, store, known);
    assert_eq!(host.started.entries, 3);
    host.verify();
}

#[test]
fn a_full_journal_makes_room_and_wraps() {
    let mut host = Host::new(Fickle::new(2), ram(), 2);
    // Entries of one block take 128 bytes.
    for i in 0..3000 {
        host.ask(BlockOp::Write, i * 7 % 48, 1, false);
        while host.is_full() {
            host.pass();
        }
        let fill = host.port.fill();
        assert!(fill.used <= fill.bytes);
    }
    host.settle();
    let counters = host.port.counters();
    assert_eq!(counters.entries, 3000);
    assert!(counters.flushes >= 6 && counters.full > 0, "{counters:?}");
    assert!(host.port.fill().used <= host.port.fill().bytes / 2);
    let (below, store, known) = host.cut();
    Host::again(below, store, known).verify();
}

#[test]
fn writes_that_overlap_end_in_the_journals_order() {
    let mut met = 0;
    for seed in 0..200 {
        let mut host = Host::new(Fickle::new(seed), ram(), seed);
        for _ in 0..12 {
            host.ask(BlockOp::Write, 5, 1, false);
        }
        host.verify();
        met += host.port.counters().met;
        let (below, store, known) = host.cut();
        Host::again(below, store, known).verify();
    }
    assert!(met > 100);
}

#[test]
fn a_write_that_waits_keeps_no_read_waiting() {
    let mut passed = 0;
    for seed in 0..50 {
        let mut host = Host::new(Fickle::new(seed), ram(), seed);
        for lba in [5, 5, 20] {
            host.ask(BlockOp::Write, lba, 1, false);
        }
        assert!(host.one(BlockOp::Read, 30, 1, false).status.is_ok());
        // The second write waits for the first, and the third behind it.
        passed += u32::from(host.port.counters().entries == 1);
        host.verify();
        assert_eq!(host.port.counters().entries, 3);
    }
    assert!(passed > 5, "{passed} reads passed a write that waited");
}

/// Rounds of work, each ended by a cut; some starts are cut, too, and starts
/// after them.
fn cuts(seed: u64, failing: u64) -> u64 {
    let mut host = Host::new(Fickle::new(seed), ram(), seed);
    let mut flushes = 0;
    for _ in 0..6 {
        host.below.set_failing(failing);
        host.work();
        flushes += host.port.counters().flushes;
        let (below, store, mut known) = host.cut();
        below.set_failing(0);
        while known.rng.below(2) == 0 {
            below.stop_after(known.rng.below(60));
            drop(Protected::start(below.clone(), Fickle::shape(), store.clone(), Time::ZERO));
            below.cut();
        }
        host = Host::again(below, store, known);
        host.verify();
    }
    flushes
}

#[test]
fn what_completed_survives_cuts() {
    let flushes: u64 = (0..300).map(|seed| cuts(seed, 0)).sum();
    assert!(flushes > 1000, "hardly a journal was ever half full: {flushes}");
}

#[test]
fn what_completed_survives_cuts_and_failures() {
    (1000..1300).for_each(|seed| {
        cuts(seed, 10);
    });
}

#[test]
fn what_completed_survives_kills_in_a_write() {
    let mut killed = 0;
    for seed in 0..600 {
        let left = 200 + seed * 37 % 30_000;
        let mut host = Host::new(Fickle::new(seed), Mortal { ram: ram(), left }, seed);
        (0..4).for_each(|_| host.work());
        killed += u32::from(host.port.error().is_some());
        let (below, store, known) = host.cut();
        let mut host = Host::again(below, store.ram, known);
        host.verify();
        host.work();
        let (below, store, known) = host.cut();
        Host::again(below, store, known).verify();
    }
    assert!(killed > 100, "{killed}");
}

#[test]
fn what_was_flushed_survives_crashes_of_the_host() {
    let mut gone = 0;
    for seed in 0..400 {
        let mut store = ram();
        store.set_life(Some([1; 16]));
        format(&mut store).unwrap();
        let mut host = Host::new(Fickle::new(seed), Hosted::new(store, seed), seed).on_a_host();
        for life in 2..8 {
            for _ in 0..1 + host.known.rng.below(3) {
                host.work();
            }
            let (below, store, known) = host.cut();
            let store = Hosted::new(store.crash(life), seed + u64::from(life));
            host = Host::again(below, store, known);
            gone += u64::from(host.started.gone > 0);
            host.verify();
        }
    }
    assert!(gone > 100, "few crashes lost anything: {gone}");
}
