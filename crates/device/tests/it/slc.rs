//! The SLC cache: what it takes, what folding costs, and that no row of it is
//! lost, to the nanosecond and in virtual time. That reads give what was
//! written is in `model.rs`, whose drives have caches too.

use crate::common::{Rig, cmd, drive, geometry, list_cmd, one_shot};
use device::{Device, SlcHealth, VectorOp};
use flash::slc::WHOLE;
use flash::{EnergyCosts, Geometry, Ppa, RamMedium, SlcCache, SlcSize, Timing};
use port::{Port, Status, Time};
use proptest::prelude::*;

use VectorOp::{Copy, Read, Reset, Write};

const US: u64 = 1000;
const IDLE: u64 = 5000 * US;

/// Cells of three bits, so SLC blocks of 6 / 3 = 2 rows. A block takes 100 us
/// on the channel, a row of two 200 us.
fn timing(rows: u64) -> Timing {
    Timing {
        read: vec![50 * US],
        program: vec![600 * US, 900 * US, 1200 * US],
        erase: 3000 * US,
        channel_rate: 40_960_000,
        suspend_time: 7 * US,
        resume_time: 9 * US,
        slc: SlcCache {
            size: SlcSize::Bytes(rows * 8192),
            read: 20 * US,
            program: 200 * US,
            idle: IDLE,
            ..SlcCache::default()
        },
        ..Timing::default()
    }
}

type Drive = Rig<Device<RamMedium>>;

/// A drive of one parallel unit.
fn one_unit(timing: &Timing) -> (Drive, Geometry) {
    let g = geometry(1, 1, 1);
    (Rig::new(drive(&g, timing, 0), 8), g)
}

fn slc(rig: &Drive) -> SlcHealth {
    rig.port.slc_health()
}

fn none() -> SlcHealth {
    SlcHealth::default()
}

/// The same cache, lent by free chunks but for `own` rows; `kept` chunks lend nothing.
fn lent(timing: &Timing, own: u64, kept: u32) -> Timing {
    let mut timing = timing.clone();
    (timing.slc.dynamic, timing.slc.own, timing.slc.kept) =
        (true, SlcSize::Bytes(own * 8192), kept);
    timing
}

/// Writes row `row` of a chunk at `at`.
fn write_row(rig: &mut Drive, g: &Geometry, at: u64, cookie: u64, chunk: u32, row: u32) {
    rig.submit(at, cmd(cookie, Write, g.ppa(0, 0, chunk, 2 * row), 2));
}

/// A row of three pages is three programs in the cache, one after the other, and
/// when it is folded three reads and one program of the slow cells.
#[test]
fn a_one_shot_row_is_several_programs_of_the_cache() {
    let t = timing(6);
    let g = one_shot(1, 1, 1, 3);
    let mut rig = Rig::new(drive(&g, &t, 0), 8);
    rig.submit(0, cmd(1, Write, g.ppa(0, 0, 0, 0), 6));
    rig.run_to(Time(2000 * US));
    assert_eq!(rig.at(1), 600 * US + 3 * 200 * US);
    assert_eq!((slc(&rig).rows, slc(&rig).blocks, slc(&rig).cached), (2, 2, 1));
    // One page of it is one read of the cache.
    rig.submit(2000 * US, cmd(2, Read, g.ppa(0, 0, 0, 2), 2));
    rig.run_to(Time(3000 * US));
    assert_eq!(rig.at(2), (2000 + 20 + 200) * US);
    let fold = 2220 * US + IDLE + (3 * 20 + 600) * US;
    rig.run_to(Time(fold - 1));
    assert_eq!(slc(&rig).folded, 0);
    rig.run_to(Time(fold));
    assert_eq!((slc(&rig).folded, slc(&rig).folded_pages), (1, 3));
}

/// Six rows at once into a cache of four, and what comes of them.
#[test]
fn a_burst_is_fast_until_the_cache_is_full() {
    let (mut rig, g) = one_unit(&timing(4));
    (0..6).for_each(|row| write_row(&mut rig, &g, 0, row, 0, row as u32));
    rig.run_to(Time(4100 * US));
    // Transfer 200 and SLC program 200; then the slow rows 4 and 5.
    let ends: Vec<u64> = (0..6).map(|cookie| rig.at(cookie) / US).collect();
    assert_eq!(ends, [400, 800, 1200, 1600, 1600 + 200 + 900, 2700 + 200 + 1200]);
    let full =
        SlcHealth { rows: 4, most_rows: 4, blocks: 2, cached: 4, written: 4, direct: 2, ..none() };
    assert_eq!(slc(&rig), full);
    // It is full, so it is folded as soon as nothing waits: SLC read, slow
    // program; after each two an erase.
    for (end, folded, erases) in
        [(4720, 1, 0), (5640, 2, 0), (8640, 2, 1), (9860, 3, 1), (10480, 4, 1), (13480, 4, 2)]
    {
        rig.run_to(Time(end * US - 1));
        let before = slc(&rig);
        assert_eq!(before.folded + before.erases, folded + erases - 1, "until {end}");
        rig.run_to(Time(end * US));
        assert_eq!((slc(&rig).folded, slc(&rig).erases), (folded, erases), "at {end}");
    }
    assert_eq!(rig.port.next_event(), None);
    assert_eq!((slc(&rig).cached, slc(&rig).dropped), (0, 0));
    // And is fast again.
    let start = rig.now.0;
    (0..4).for_each(|row| write_row(&mut rig, &g, start, 10 + row, 1, row as u32));
    rig.run_to(Time(start + 1600 * US));
    let ends: Vec<u64> = (10..14).map(|cookie| (rig.at(cookie) - start) / US).collect();
    assert_eq!(ends, [400, 800, 1200, 1600]);
}

#[test]
fn a_unit_folds_when_it_has_been_idle() {
    let (mut rig, g) = one_unit(&timing(4));
    write_row(&mut rig, &g, 0, 0, 0, 0);
    rig.run_to(Time(400 * US));
    assert_eq!(rig.port.next_event(), Some(Time(400 * US + IDLE)));
    // Reads of the cached row are fast, and begin the wait anew.
    rig.submit(3000 * US, cmd(1, Read, g.ppa(0, 0, 0, 0), 1));
    rig.run_to(Time(3120 * US));
    assert_eq!(rig.at(1), (3000 + 20 + 100) * US);
    assert_eq!(rig.port.next_event(), Some(Time(3120 * US + IDLE)));
    // What comes during the fold waits for its end, and finds the slow cells.
    rig.submit(8200 * US, cmd(2, Read, g.ppa(0, 0, 0, 0), 1));
    rig.submit(8300 * US, cmd(3, Write, g.ppa(0, 0, 0, 2), 2));
    rig.run_to(Time(9290 * US));
    let folded = 8120 + 20 + 600;
    assert_eq!(rig.at(2), (folded + 50 + 100) * US);
    assert_eq!(rig.at(3), (folded + 150 + 200 + 200) * US);
    assert_eq!((slc(&rig).folded, slc(&rig).cached), (1, 1));
}

/// From its mark on an area is folded without the wait, and to its end.
#[test]
fn above_the_mark_it_does_not_wait() {
    let mut t = timing(4);
    t.slc.mark = WHOLE / 2;
    let (mut rig, g) = one_unit(&t);
    write_row(&mut rig, &g, 0, 0, 0, 0);
    rig.run_to(Time(400 * US));
    assert_eq!(rig.port.next_event(), Some(Time(400 * US + IDLE)), "one of four");
    write_row(&mut rig, &g, 400 * US, 1, 0, 1);
    rig.run_to(Time(800 * US));
    assert_eq!(rig.port.next_event(), Some(Time((800 + 620) * US)), "two of four");
    rig.drain();
    assert_eq!(rig.now, Time((800 + 620 + 920 + 3000) * US));
}

#[test]
fn a_read_suspends_a_fold() {
    let t = Timing { suspend: true, ..timing(4) };
    let (mut rig, g) = one_unit(&t);
    write_row(&mut rig, &g, 0, 0, 0, 0);
    rig.run_to(Time(400 * US));
    // The fold begins at 5400 and would end at 6020.
    rig.submit(5500 * US, cmd(1, Read, g.ppa(0, 0, 0, 0), 1));
    rig.run_to(Time(5627 * US));
    assert_eq!(rig.at(1), (5500 + 7 + 20 + 100) * US, "it is still in the cache");
    assert_eq!(rig.port.next_event(), Some(Time((5627 + 9 + 520) * US)));
    rig.drain();
    assert_eq!((slc(&rig).folded, rig.port.counters().suspends), (1, 1));
}

#[test]
fn a_reset_drops_what_is_cached() {
    let (mut rig, g) = one_unit(&timing(6));
    (0..3).for_each(|row| write_row(&mut rig, &g, 0, row, 0, row as u32));
    (0..2).for_each(|row| write_row(&mut rig, &g, 0, 3 + row, 1, row as u32));
    rig.run_to(Time(2000 * US));
    // The first fold is from 7000 to 7620.
    rig.submit(7100 * US, cmd(5, Reset, g.ppa(0, 0, 0, 0), 1));
    rig.run_to(Time(10620 * US));
    assert_eq!(rig.at(5), (7620 + 3000) * US);
    let s = slc(&rig);
    assert_eq!((s.folded, s.dropped, s.cached), (1, 2, 2));
    // An erase, and the two rows of chunk 1 with another one between.
    rig.drain();
    assert_eq!(rig.now, Time((10620 + 5000 + 3000 + 620 + 3000 + 920) * US));
    let s = slc(&rig);
    assert_eq!((s.written, s.folded, s.dropped, s.cached, s.erases), (5, 3, 2, 0, 2));
}

/// Three of the four chunks lend a block of two rows each, until they are written.
#[test]
fn what_a_chunk_lends_it_takes_back() {
    let (mut rig, g) = one_unit(&lent(&timing(100), 0, 1));
    assert_eq!((slc(&rig).rows, slc(&rig).most_rows), (6, 100));
    (0..5).for_each(|row| write_row(&mut rig, &g, 0, row, 0, row as u32));
    write_row(&mut rig, &g, 0, 5, 1, 0);
    write_row(&mut rig, &g, 0, 6, 2, 0);
    rig.run_to(Time(2700 * US));
    // Four rows into what two chunks lend, and one past it.
    let ends: Vec<u64> = (0..5).map(|cookie| rig.at(cookie) / US).collect();
    assert_eq!(ends, [400, 800, 1200, 1600, 1600 + 200 + 900]);
    // Before a chunk is written that lends a block, the oldest is folded and erased.
    rig.run_to(Time(13680 * US));
    let first = 2700 + 620 + 920 + 3000 + 200 + 600;
    assert_eq!(rig.at(5), first * US);
    assert_eq!(rig.at(6), (first + 1220 + 620 + 3000 + 200 + 600) * US);
    let s = slc(&rig);
    assert_eq!((s.rows, s.cached, s.folded, s.direct, s.erases), (0, 0, 4, 3, 2));
    // One that is erased lends again.
    let now = rig.now.0;
    rig.submit(now, cmd(7, Reset, g.ppa(0, 0, 0, 0), 1));
    rig.drain();
    assert_eq!(slc(&rig).rows, 2);
}

/// What is left of a block when it is given back is not used.
#[test]
fn a_block_is_given_back_before_it_is_full() {
    let (mut rig, g) = one_unit(&lent(&timing(100), 0, 2));
    write_row(&mut rig, &g, 0, 0, 0, 0);
    write_row(&mut rig, &g, 0, 1, 1, 0);
    rig.drain();
    assert_eq!([0, 1].map(|cookie| rig.at(cookie) / US), [400, 400 + 620 + 3000 + 200 + 600]);
    let s = slc(&rig);
    assert_eq!((s.rows, s.cached, s.folded, s.direct, s.erases), (0, 0, 1, 1, 1));
    // What is its own stays.
    let (mut rig, g) = one_unit(&lent(&timing(100), 2, 2));
    (0..3).for_each(|chunk| write_row(&mut rig, &g, 0, chunk.into(), chunk, 0));
    rig.run_to(Time(1500 * US));
    assert_eq!([0, 1].map(|cookie| rig.at(cookie) / US), [400, 800]);
    assert_eq!((slc(&rig).rows, slc(&rig).cached), (2, 2));
}

/// A drive that is there again lends what its free chunks are worth.
#[test]
fn a_restored_drive_lends_by_its_chunks() {
    let t = lent(&timing(100), 2, 0);
    let (mut rig, g) = one_unit(&t);
    assert_eq!(slc(&rig).rows, 2 + 4 * 2);
    (0..2).for_each(|chunk| write_row(&mut rig, &g, 0, chunk.into(), chunk, 0));
    rig.run_to(Time(2000 * US));
    let chunks = rig.port.chunks().to_vec();
    let device = Device::restore(&g, &t, rig.port.cut(), &chunks).unwrap();
    assert_eq!(device.slc_health().rows, 2 + 2 * 2);
}

/// Rows written again after a reset are rows of their own.
#[test]
fn a_chunk_that_is_written_again_is_cached_again() {
    let (mut rig, g) = one_unit(&timing(6));
    for round in 0..3u64 {
        let now = rig.now.0;
        write_row(&mut rig, &g, now, 10 * round, 0, 0);
        rig.run_to(Time(now + 400 * US));
        let now = rig.now.0;
        rig.submit(now, cmd(10 * round + 1, Read, g.ppa(0, 0, 0, 0), 1));
        rig.run_to(Time(now + 120 * US));
        assert_eq!(rig.at(10 * round + 1), now + 120 * US);
        let now = rig.now.0;
        rig.submit(now, cmd(10 * round + 2, Reset, g.ppa(0, 0, 0, 0), 1));
        rig.run_to(Time(now + 3000 * US));
    }
    let s = slc(&rig);
    assert_eq!((s.written, s.dropped, s.folded, s.cached), (3, 3, 0, 0));
}

#[test]
fn after_a_power_cut_all_counts_as_folded() {
    let t = timing(4);
    let (mut rig, g) = one_unit(&t);
    (0..4).for_each(|row| write_row(&mut rig, &g, 0, row, 0, row as u32));
    rig.run_to(Time(1600 * US));
    let chunks = rig.port.chunks().to_vec();
    let device = Device::restore(&g, &t, rig.port.cut(), &chunks).unwrap();
    let mut rig = Rig::new(device, 8);
    assert_eq!((slc(&rig).cached, rig.port.next_event()), (0, None));
    assert_eq!(rig.one(cmd(1, Read, g.ppa(0, 0, 0, 0), 1)), (50 + 100) * US);
}

#[test]
fn energy_counts_both_programs() {
    let costs = EnergyCosts {
        counted: true,
        read: 1,
        program: 10,
        erase: 100,
        slc_read: 1_000,
        slc_program: 10_000,
        ..EnergyCosts::default()
    };
    let g = geometry(1, 1, 2);
    let mut device = drive(&g, &timing(8), 0);
    device.set_energy(&costs);
    let mut rig = Rig::new(device, 8);
    // A row of two pages, and one of the first plane alone.
    rig.submit(0, cmd(0, Write, g.ppa(0, 0, 0, 0), 4));
    rig.submit(0, cmd(1, Write, g.ppa(0, 0, 0, 4), 2));
    rig.run_to(Time(2000 * US));
    let now = rig.now.0;
    rig.submit(now, cmd(2, Read, g.ppa(0, 0, 0, 0), 4));
    rig.run_to(Time(now + 1000 * US));
    let e = rig.port.energy(rig.now);
    assert_eq!((e.read, e.program, e.erase), (2_000, 30_000, 0));
    rig.drain();
    let e = rig.port.energy(rig.now);
    assert_eq!((e.read, e.program, e.erase), (5_000, 30_030, 200));
    assert_eq!(rig.port.slc_health().folded_pages, 3);
    rig.one(cmd(3, Read, g.ppa(0, 0, 0, 0), 4));
    assert_eq!(rig.port.energy(rig.now).read, 5_002);
}

/// A step of a random run: what, which chunk, which block, how many rows, and
/// how long after the last.
type Act = (u8, u32, u32, u8, u64);

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let wait = prop_oneof![3 => 0u64..100_000, 1 => 0u64..30_000_000];
    prop::collection::vec((0u8..10, 0u32..16, 0u32..12, 1u8..9, wait), 1..150)
}

/// Runs them and checks the books at each event; gives when each command
/// completed and how.
fn run(timing: &Timing, acts: &[Act]) -> (Vec<(u64, Status, u64)>, Drive) {
    let g = geometry(2, 2, 1);
    let mut rig: Drive = Rig::new(drive(&g, timing, 0), 8);
    let mut at = 0;
    let empty = |rig: &Drive, pu: usize| {
        let chunks = (0..g.chunks()).map(|n| rig.port.chunks()[g.chunk_of(pu, n)]);
        chunks.filter(|chunk| chunk.programmed == 0).count() as u64
    };
    let block_rows = slc(&rig).most_rows / slc(&rig).blocks.max(1);
    let (most, own) = timing.slc.blocks_per_pu(&g, block_rows.max(1) as u32);
    let lends = |rig: &Drive| {
        let lent = |pu| empty(rig, pu).saturating_sub(timing.slc.kept.into());
        let dynamic = |pu| if timing.slc.dynamic { lent(pu) } else { 0 };
        g.pus_channels_first().map(|pu| block_rows * (own + dynamic(pu)).min(most)).sum::<u64>()
    };
    let check = |rig: &Drive| {
        let s = slc(rig);
        assert!(s.rows <= lends(rig), "{s:?}");
        assert!(s.cached <= s.rows, "{s:?}");
        assert_eq!(s.written, s.folded + s.dropped + s.cached);
        assert!(rig.port.counters().programs <= s.written + s.direct || s.rows == 0);
    };
    for (i, &(kind, chunk, block, count, wait)) in acts.iter().enumerate() {
        at += wait;
        while let Some(next) = rig.port.next_event().filter(|next| next.0 <= at) {
            rig.run_to(next);
            check(&rig);
        }
        let (pu, number) = (chunk % 4, chunk / 4);
        let place = |block| g.ppa(pu / 2, pu % 2, number, block);
        let wp = rig.port.chunks()[g.chunk_index(place(0))].wp;
        let cookie = i as u64;
        let cmd = match kind {
            // The end of a chunk may be written over: that is refused.
            0..5 => cmd(cookie, Write, place(wp.min(10)), 2 * (count % 4 + 1)),
            5..7 => cmd(cookie, Read, place(block), count.min(12 - block as u8)),
            7 => list_cmd(cookie, Copy, &[place(0), place(1)], &[place(wp.min(10)), place(11)]),
            8 => cmd(cookie, Read, Ppa(place(block & 2).0), 2),
            _ => cmd(cookie, Reset, place(0), 1),
        };
        rig.submit(at, cmd);
        check(&rig);
    }
    rig.drain();
    check(&rig);
    assert_eq!(slc(&rig).rows, lends(&rig), "all that is lent, and no more");
    let mut ends: Vec<_> = rig.all.iter().map(|d| (d.cookie, d.status, d.at.0)).collect();
    assert!(ends.is_sorted_by_key(|end| end.2), "completions come in the order of time");
    ends.sort_unstable_by_key(|end| end.0);
    assert_eq!(ends.len(), acts.len(), "each command completes once");
    (ends, rig)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn each_row_is_folded_or_dropped_once(
        acts in acts(),
        rows in 1u64..40,
        mark in 0u32..=WHOLE,
        idle in prop_oneof![Just(0u64), 0u64..10_000_000],
        suspend in any::<bool>(),
        reads_first in any::<bool>(),
        dynamic in prop::option::of((0u64..10, 0u32..4)),
        cache_registers in any::<bool>(),
    ) {
        let mut t = Timing { suspend, reads_first, cache_registers, ..timing(rows) };
        if let Some((own, kept)) = dynamic {
            t = lent(&t, own, kept);
        }
        (t.slc.mark, t.slc.idle) = (mark, idle);
        let (ends, rig) = run(&t, &acts);
        let s = slc(&rig);
        prop_assert_eq!(s.cached, 0, "all are folded in the end");
        prop_assert_eq!(s.written, s.folded + s.dropped);
        prop_assert_eq!(rig.port.counters().programs, s.written + s.direct);
        // Two rows a block, unless it is given back before.
        prop_assert!(s.erases * 2 <= s.written || (dynamic.is_some() && s.erases <= s.written));
        prop_assert_eq!(s.most_rows, s.blocks * 2);
        let (again, other) = run(&t, &acts);
        prop_assert_eq!(ends, again);
        prop_assert_eq!(rig.port.state_hash(), other.port.state_hash());
    }

    /// One that is as slow as the flash and is not folded might as well not be.
    #[test]
    fn a_cache_without_a_use_changes_nothing(acts in acts(), suspend in any::<bool>()) {
        let none = Timing { suspend, program: vec![600 * US], ..timing(0) };
        let mut slow = none.clone();
        slow.slc = SlcCache {
            size: SlcSize::Bytes(1 << 30),
            read: 50 * US,
            program: 600 * US,
            idle: 1 << 50,
            ..SlcCache::default()
        };
        let (ends, off) = run(&none, &acts);
        let (same, on) = run(&slow, &acts);
        prop_assert_eq!(ends, same);
        prop_assert_eq!(slc(&off), SlcHealth::default());
        prop_assert_eq!(slc(&on).direct, 0);
        prop_assert_eq!(on.port.chunks(), off.port.chunks());
    }
}
