//! Time: what each operation costs, alone and beside others, to the
//! nanosecond. A rate of 40.96 MB/s makes one block take 100 us on a channel.

use crate::common;
use crate::common::{cmd, drive, geometry, list_cmd, one_shot, written};
use device::{Link, LinkTiming, VectorOp};
use flash::{Dimensions, Geometry, Ppa, Timing};
use port::{Port, Ring, Status, Time};
use proptest::prelude::*;

use VectorOp::{Read, Reset, Write};

const US: u64 = 1000;
/// One block takes 100 us.
const RATE: u64 = 40_960_000;
const X: u64 = 100 * US;

fn base() -> Timing {
    Timing {
        read: vec![50 * US],
        program: vec![900 * US],
        erase: 3000 * US,
        channel_rate: RATE,
        ..Timing::default()
    }
}

fn timings() -> impl Strategy<Value = Timing> {
    let times = (0u64..100_000, 0u64..1_000_000, 0u64..5_000_000, 0u64..1000);
    let channel = (prop_oneof![Just(0), 1_000_000u64..2_000_000_000], 1u32..3, any::<bool>());
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (times, channel, flags).prop_map(|((read, program, erase, command), channel, flags)| Timing {
        read: vec![read],
        program: vec![program],
        erase,
        command,
        channel_rate: channel.0,
        channel_split: channel.1,
        tags_on_channel: channel.2,
        reads_first: flags.0,
        suspend: flags.1,
        suspend_transfer: flags.2,
        suspend_time: 7,
        resume_time: 9,
        ..Timing::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_lone_operation_costs_the_sum_of_its_parts(
        t in timings(), planes in 1u32..9, page in 0u32..2, at_once in 1u32..5, pick in any::<u32>(),
    ) {
        let dim = Dimensions {
            groups: 2,
            pus: 2,
            chunks: 4,
            pages: 5 * at_once,
            planes,
            page_bytes: 4096 << page,
            pages_at_once: at_once,
        };
        let g = Geometry::new(dim).unwrap();
        let mut rig = common::Rig::new(drive(&g, &t, 0), 8);
        rig.run_to(Time(123));
        let some = (1 + pick % planes) * g.page_blocks();
        let blocks = if at_once == 1 { some } else { g.row_blocks() };
        let at = g.ppa(1, 1, 3, 0);
        let wrote = rig.one(cmd(1, Write, at, blocks as u8));
        prop_assert_eq!(wrote, t.command + t.transfer(blocks) + t.program[0]);
        let n = 1 + pick % blocks;
        let read = rig.one(cmd(2, Read, at, n as u8));
        // Wide page by wide page.
        let page = g.wide_page_blocks();
        let parts = (0..n).step_by(page as usize).map(|from| page.min(n - from));
        let sum: u64 = parts.map(|n| t.command + t.read[0] + t.transfer(n)).sum();
        prop_assert_eq!(read, sum);
        let reset = rig.one(cmd(3, Reset, at, 1));
        prop_assert_eq!(reset, t.command + t.erase);
        prop_assert_eq!(rig.port.counters().suspends, 0);
    }

    #[test]
    fn a_suspension_costs_exactly_its_times(
        left in 1u64..1000, suspend_time in 0u64..40, resume_time in 0u64..40, erase in any::<bool>(),
    ) {
        let t = Timing {
            read: vec![50], program: vec![1000], erase: 1000,
            suspend: true, suspend_time, resume_time, ..Timing::default()
        };
        let g = geometry(1, 1, 1);
        let mut rig = written(&g, &t);
        let long = if erase { cmd(1, Reset, g.ppa(0, 0, 0, 0), 1) } else { cmd(1, Write, g.ppa(0, 0, 3, 0), 2) };
        rig.submit(0, long);
        let arrival = 1000 - left;
        rig.submit(arrival, cmd(2, Read, g.ppa(0, 0, 1, 0), 1));
        rig.drain();
        if left > suspend_time {
            let read_end = arrival + suspend_time + 50;
            prop_assert_eq!(rig.at(2), read_end);
            prop_assert_eq!(rig.at(1), read_end + resume_time + left);
        } else {
            prop_assert_eq!((rig.at(1), rig.at(2)), (1000, 1050), "the end is as near");
        }
        prop_assert_eq!(rig.port.counters().suspends, u64::from(left > suspend_time));
    }
}

#[test]
fn page_types_have_their_own_times() {
    let t = Timing { read: vec![10, 20, 30], program: vec![100, 200], ..Timing::default() };
    let g = geometry(1, 1, 1);
    let mut rig = common::Rig::new(drive(&g, &t, 0), 8);
    for row in 0..6u32 {
        let at = g.ppa(0, 0, 0, 2 * row);
        assert_eq!(rig.one(cmd(1, Write, at, 2)), [100, 200][row as usize % 2]);
        assert_eq!(rig.one(cmd(2, Read, at, 1)), [10, 20, 30][row as usize % 3]);
    }
}

/// A page of 16 KiB is four blocks: a block of it is a quarter.
#[test]
fn a_quarter_of_a_page_is_sensed_sooner_where_chips_can() {
    let dim = Dimensions { chunks: 2, pages: 6, planes: 2, page_bytes: 16384, ..Dimensions::LEAST };
    let t = Timing { read: vec![100, 200], read_partial: vec![60, 70], ..Timing::default() };
    let mut rig = common::Rig::new(drive(&Geometry::new(dim).unwrap(), &t, 0), 8);
    rig.one(cmd(1, Write, Ppa(0), 48));
    let mut read = |block, count| rig.one(cmd(2, Read, Ppa(block), count));
    assert_eq!([read(0, 1), read(5, 1), read(8, 1), read(15, 1)], [60, 60, 70, 70]);
    assert_eq!([read(0, 2), read(3, 2), read(0, 8), read(8, 4)], [100, 100, 100, 200]);
    // A page of 8 KiB has no such quarter.
    let mut rig = common::Rig::new(drive(&geometry(1, 1, 1), &t, 0), 8);
    rig.one(cmd(1, Write, Ppa(0), 2));
    assert_eq!(rig.one(cmd(2, Read, Ppa(0), 1)), 100);
}

#[test]
fn a_row_on_all_planes_is_one_array_access() {
    let g = geometry(1, 1, 4);
    let mut rig = common::Rig::new(drive(&g, &base(), 0), 8);
    let at = g.ppa(0, 0, 0, 0);
    assert_eq!(rig.one(cmd(1, Write, at, 8)), 8 * X + 900 * US);
    assert_eq!(rig.one(cmd(2, Read, at, 8)), 50 * US + 8 * X);
    let planes = [0u64, 2, 5].map(|i| Ppa(at.0 + i));
    let three = rig.one(list_cmd(3, Read, &planes, &[]));
    assert_eq!(three, 3 * (50 * US + X), "not neighbours: three accesses");
    assert_eq!(rig.port.counters().programs, 1);
}

/// The first row of each chunk takes the opening and a tPROG, any other a tPROG; after
/// an erase a chunk is opened again. Units open theirs beside each other.
#[test]
fn a_chunk_is_opened_by_its_first_row() {
    let g = one_shot(1, 2, 2, 3);
    let (opening, program) = (1800 * US, 1000 * US);
    let t = Timing { program: vec![program], opening, ..base() };
    let mut rig = common::Rig::new(drive(&g, &t, 0), 8);
    for chunk in 0..2 {
        for row in 0..2 {
            let takes = 12 * X + program + if row == 0 { opening } else { 0 };
            assert_eq!(rig.one(cmd(1, Write, g.ppa(0, 0, chunk, 12 * row), 12)), takes);
        }
    }
    rig.one(cmd(2, Reset, g.ppa(0, 0, 0, 0), 1));
    assert_eq!(rig.one(cmd(3, Write, g.ppa(0, 0, 0, 0), 12)), 12 * X + opening + program);
    let start = rig.now.0;
    for pu in 0..2 {
        rig.submit(start, cmd(10 + u64::from(pu), Write, g.ppa(0, pu, 2, 0), 12));
    }
    rig.drain();
    assert_eq!(rig.at(11) - start, 2 * 12 * X + opening + program);
}

/// A row that is written page by page is opened by the first page alone.
#[test]
fn a_chunk_is_opened_once_by_a_row_in_parts() {
    let g = geometry(1, 1, 4);
    let (opening, program) = (1800 * US, 1000 * US);
    let t = Timing { program: vec![program], opening, ..base() };
    let mut rig = common::Rig::new(drive(&g, &t, 0), 8);
    for part in 0..8 {
        let takes = 2 * X + program + if part == 0 { opening } else { 0 };
        assert_eq!(rig.one(cmd(1, Write, g.ppa(0, 0, 0, 2 * part), 2)), takes, "part {part}");
    }
}

/// Three pages on two planes: a program takes all of a word line in one tPROG, a
/// read senses one page of it, on both planes where it asks for both.
#[test]
fn a_one_shot_program_takes_all_pages_of_a_word_line() {
    let g = one_shot(1, 1, 2, 3);
    let t = Timing { read: vec![50 * US, 70 * US, 110 * US], ..base() };
    let t = Timing { program: vec![1500 * US, 1700 * US], ..t };
    let mut rig = common::Rig::new(drive(&g, &t, 0), 8);
    for row in 0..2 {
        let at = g.ppa(0, 0, 0, 12 * row);
        let program = t.program[row as usize];
        assert_eq!(rig.one(cmd(1, Write, at, 12)), 12 * X + program, "row {row}");
        // A block of each page, then a page on both planes, then all of the row.
        for (page, tr) in [50 * US, 70 * US, 110 * US].into_iter().enumerate() {
            let first = at.0 + 4 * page as u64;
            for block in first..first + 4 {
                assert_eq!(rig.one(cmd(2, Read, Ppa(block), 1)), tr + X);
            }
            assert_eq!(rig.one(cmd(3, Read, Ppa(first), 4)), tr + 4 * X);
        }
        assert_eq!(rig.one(cmd(4, Read, at, 12)), (50 + 70 + 110) * US + 12 * X);
        let over = rig.one(cmd(5, Read, Ppa(at.0 + 3), 2));
        assert_eq!(over, (50 + 70) * US + 2 * X, "the end of a page and the next one");
    }
    let counters = rig.port.counters();
    assert_eq!((counters.programs, counters.blocks_programmed), (2, 24));
    assert_eq!(counters.reads, 2 * (12 + 3 + 3 + 2));
    // Less than a row is no program.
    rig.submit(rig.now.0, cmd(6, Write, g.ppa(0, 0, 1, 0), 4));
    rig.drain();
    let done = rig.all.iter().find(|done| done.cookie == 6).unwrap();
    assert_eq!(done.status, Status::INVALID_FIELD);
}

/// A die takes a row in each transfer and tPROG; a second one beside it takes as
/// many, as long as its transfers find the channel free.
#[test]
fn rows_in_sequence_come_at_the_rate_of_their_parts() {
    for (at_once, program) in [(1, 900 * US), (3, 1500 * US)] {
        let g = one_shot(1, 2, 1, at_once);
        let t = Timing { program: vec![program], ..base() };
        let mut rig = common::Rig::new(drive(&g, &t, 0), 16);
        let (row, rows) = (g.row_blocks(), g.chunk_blocks() / g.row_blocks());
        for number in 0..2 * rows {
            let at = g.ppa(0, number % 2, 0, number / 2 * row);
            rig.submit(0, cmd(number.into(), Write, at, row as u8));
        }
        rig.drain();
        let (transfer, rows) = (u64::from(row) * X, u64::from(rows));
        assert_eq!(rig.at(2 * rows - 2), rows * (transfer + program));
        assert_eq!(rig.at(2 * rows - 1), transfer + rows * (transfer + program));
    }
}

#[test]
fn c5_dies_of_one_channel_overlap_in_the_array_and_take_turns_on_the_channel() {
    let g = geometry(1, 2, 1);
    let mut rig = written(&g, &base());
    rig.submit(0, cmd(1, Read, g.ppa(0, 0, 0, 0), 1));
    rig.submit(0, cmd(2, Read, g.ppa(0, 1, 0, 0), 1));
    rig.drain();
    assert_eq!((rig.at(1), rig.at(2)), (50 * US + X, 50 * US + 2 * X));
}

#[test]
fn c5_dies_of_two_channels_do_not_meet() {
    let g = geometry(2, 1, 1);
    let mut rig = written(&g, &base());
    rig.submit(0, cmd(1, Read, g.ppa(0, 0, 0, 0), 1));
    rig.submit(0, cmd(2, Read, g.ppa(1, 0, 0, 0), 1));
    rig.drain();
    assert_eq!((rig.at(1), rig.at(2)), (50 * US + X, 50 * US + X));
}

#[test]
fn c6_a_die_does_one_operation_at_a_time() {
    let g = geometry(1, 1, 1);
    let mut rig = written(&g, &base());
    for i in 0..5 {
        rig.submit(0, cmd(i, Read, g.ppa(0, 0, 0, i as u32), 1));
    }
    rig.drain();
    for i in 0..5 {
        assert_eq!(rig.at(i), (i + 1) * (50 * US + X), "its register is held while data go out");
    }
}

#[test]
fn commands_take_turns_on_the_channel() {
    let t = Timing { command: 10 * US, ..base() };
    let g = geometry(1, 2, 1);
    let mut rig = written(&g, &t);
    rig.submit(0, cmd(1, Read, g.ppa(0, 0, 0, 0), 1));
    rig.submit(0, cmd(2, Read, g.ppa(0, 1, 0, 0), 1));
    rig.drain();
    // Commands 0 to 10 and 10 to 20; arrays until 60 and 70; out 60 to 160,
    // then 160 to 260.
    assert_eq!((rig.at(1), rig.at(2)), (160 * US, 260 * US));
}

/// The thesis, chapter 2, figure 1: four chips on one channel.
#[test]
fn four_chips_on_a_channel_reads_are_bound_by_the_channel() {
    let g = geometry(1, 4, 1);
    let mut rig = written(&g, &base());
    for i in 0..16u32 {
        rig.submit(0, cmd(i.into(), Read, g.ppa(0, i % 4, 0, i / 4), 1));
    }
    rig.drain();
    for i in 0..16 {
        assert_eq!(rig.at(i), 50 * US + (i + 1) * X, "the channel never rests");
    }
}

/// The same figure: writes wait for their chips.
#[test]
fn four_chips_on_a_channel_writes_are_bound_by_the_chips() {
    let g = geometry(1, 4, 1);
    let mut rig = common::Rig::new(drive(&g, &base(), 0), 8);
    for i in 0..12u32 {
        rig.submit(0, cmd(i.into(), Write, g.ppa(0, i % 4, 0, 2 * (i / 4)), 2));
    }
    rig.drain();
    let (transfer, program) = (2 * X, 900 * US);
    for i in 0..12 {
        let (chip, round) = (i % 4, i / 4);
        let expected = chip * transfer + (round + 1) * (transfer + program);
        assert_eq!(rig.at(i), expected, "chip {chip} works without rest, write {round}");
    }
}

#[test]
fn reads_go_first_at_the_die_where_asked() {
    let g = geometry(1, 1, 1);
    for (reads_first, read, write) in [(true, 1250, 2350), (false, 2350, 2200)] {
        let mut rig = written(&g, &Timing { reads_first, ..base() });
        rig.submit(0, cmd(1, Write, g.ppa(0, 0, 3, 0), 2));
        rig.submit(0, cmd(2, Write, g.ppa(0, 0, 3, 2), 2));
        rig.submit(0, cmd(3, Read, g.ppa(0, 0, 0, 0), 1));
        rig.drain();
        assert_eq!(rig.at(1), 1100 * US);
        assert_eq!((rig.at(3), rig.at(2)), (read * US, write * US));
    }
}

#[test]
fn reads_go_first_on_the_channel_where_asked() {
    // Die 0 sends in until 200, die 1 waits to send in, die 2 has data at 50.
    let g = geometry(1, 3, 1);
    for (reads_first, read, write) in [(true, 300, 500 + 900), (false, 500, 400 + 900)] {
        let mut rig = written(&g, &Timing { reads_first, ..base() });
        rig.submit(0, cmd(1, Write, g.ppa(0, 0, 3, 0), 2));
        rig.submit(0, cmd(2, Write, g.ppa(0, 1, 3, 0), 2));
        rig.submit(0, cmd(3, Read, g.ppa(0, 2, 0, 0), 1));
        rig.drain();
        assert_eq!(rig.at(1), 1100 * US);
        assert_eq!((rig.at(3), rig.at(2)), (read * US, write * US));
    }
}

#[test]
fn a_reads_transfer_interrupts_a_writes_where_asked() {
    let g = geometry(1, 2, 1);
    for (suspend_transfer, read, write) in [(true, 150, 1200), (false, 300, 1100)] {
        let mut rig = written(&g, &Timing { suspend_transfer, ..base() });
        rig.submit(0, cmd(1, Write, g.ppa(0, 0, 3, 0), 2));
        rig.submit(0, cmd(2, Read, g.ppa(0, 1, 0, 0), 1));
        rig.drain();
        // The write's data: 50 us on the channel, 100 off it, 150 on it.
        assert_eq!((rig.at(2), rig.at(1)), (read * US, write * US));
    }
}

#[test]
fn an_interrupted_transfer_goes_on_before_others() {
    let g = geometry(1, 3, 1);
    let mut rig = written(&g, &Timing { suspend_transfer: true, ..base() });
    rig.submit(0, cmd(1, Write, g.ppa(0, 0, 3, 0), 2));
    rig.submit(0, cmd(2, Write, g.ppa(0, 1, 3, 0), 2));
    rig.submit(0, cmd(3, Read, g.ppa(0, 2, 0, 0), 1));
    rig.drain();
    // The first write's data: 0 to 50 and 150 to 300; the second's: to 500.
    assert_eq!([3, 1, 2].map(|i| rig.at(i)), [150 * US, 1200 * US, 1400 * US]);
}

fn suspending(limit: u32) -> Timing {
    Timing {
        read: vec![50],
        program: vec![1000],
        erase: 3000,
        suspend: true,
        suspend_time: 20,
        resume_time: 10,
        suspend_limit: limit,
        ..Timing::default()
    }
}

#[test]
fn suspensions_end_at_their_limit() {
    let g = geometry(1, 1, 1);
    let mut rig = written(&g, &suspending(2));
    rig.submit(0, cmd(1, Reset, g.ppa(0, 0, 0, 0), 1));
    for i in 0..3 {
        rig.submit(100 + 500 * i, cmd(2 + i, Read, g.ppa(0, 0, 1, 0), 1));
    }
    rig.drain();
    // 100 done; to 170 the first read; 10 + 420 go; to 670 the second, with
    // 2480 to go; 10 to resume.
    assert_eq!((rig.at(2), rig.at(3)), (170, 670));
    assert_eq!(rig.at(1), 670 + 10 + 3000 - 100 - 420);
    assert_eq!(rig.at(4), rig.at(1) + 50);
    assert_eq!(rig.port.counters().suspends, 2);
}

#[test]
fn a_stream_of_reads_starves_nothing_that_has_begun() {
    let g = geometry(1, 1, 1);
    let mut rig = written(&g, &suspending(3));
    rig.submit(0, cmd(0, Write, g.ppa(0, 0, 3, 0), 2));
    for i in 1..=40 {
        rig.submit(10, cmd(i, Read, g.ppa(0, 0, 1, 0), 1));
    }
    rig.drain();
    for i in 1..=3 {
        assert_eq!(rig.at(i), 30 + 50 * i);
    }
    assert_eq!(rig.at(0), 30 + 150 + 10 + 990, "three reads pass, then it goes on");
    assert_eq!(rig.at(4), rig.at(0) + 50);
    assert_eq!(rig.port.counters().suspends, 1);
}

#[test]
fn without_a_limit_all_waiting_reads_pass() {
    let g = geometry(1, 1, 1);
    let mut rig = written(&g, &suspending(u32::MAX));
    rig.submit(0, cmd(0, Write, g.ppa(0, 0, 3, 0), 2));
    for i in 1..=40 {
        rig.submit(10, cmd(i, Read, g.ppa(0, 0, 1, 0), 1));
    }
    rig.drain();
    assert_eq!((rig.at(40), rig.at(0)), (30 + 40 * 50, 30 + 40 * 50 + 10 + 990));
}

#[test]
fn where_reads_do_not_go_first_they_suspend_nothing() {
    let g = geometry(1, 1, 1);
    let mut rig = written(&g, &Timing { reads_first: false, ..suspending(3) });
    rig.submit(0, cmd(1, Write, g.ppa(0, 0, 3, 0), 2));
    rig.submit(10, cmd(2, Read, g.ppa(0, 0, 1, 0), 1));
    rig.drain();
    assert_eq!((rig.at(1), rig.at(2)), (1000, 1050));
    assert_eq!(rig.port.counters().suspends, 0);
}

#[test]
fn a_link_adds_exactly_its_parts() {
    let link =
        LinkTiming { controller: 3, latency: 11, rate: 4_096_000_000, ..LinkTiming::default() };
    let t = Timing { read: vec![50], program: vec![1000], erase: 3000, ..Timing::default() };
    let g = geometry(1, 1, 1);
    let mut rig = common::Rig::new(Link::new(link, drive(&g, &t, 0)), 8);
    let at = g.ppa(0, 0, 0, 0);
    assert_eq!(rig.one(cmd(1, Write, at, 2)), 2000 + 11 + 3 + 1000 + 11);
    assert_eq!(rig.one(cmd(2, Read, at, 1)), 11 + 3 + 50 + 1000 + 11);
    assert_eq!(rig.one(cmd(3, Reset, at, 1)), 11 + 3 + 3000 + 11);
}

#[test]
fn a_link_limits_bandwidth_and_keeps_order() {
    let link =
        LinkTiming { controller: 0, latency: 5, rate: 4_096_000_000, ..LinkTiming::default() };
    let g = geometry(2, 2, 1);
    let rig = written(&g, &Timing::default());
    let mut rig = common::Rig::new(Link::new(link, rig.port), 8);
    for i in 0..20 {
        rig.submit(0, cmd(i, Read, g.ppa(i as u32 % 2, 0, 0, 0), 1));
    }
    rig.drain();
    let order: Vec<u64> = rig.all.iter().map(|d| d.cookie).collect();
    assert_eq!(order, (0..20).collect::<Vec<_>>());
    for i in 0..20 {
        assert_eq!(rig.at(i), 5 + (i + 1) * 1000 + 5, "20 blocks share the way up");
    }
}

/// 4.096 GB/s: a block takes 1000 ns on it, an entry of 64 bytes 16, one of 16
/// bytes 4.
fn busy() -> LinkTiming {
    LinkTiming {
        latency: 5,
        controller: 100,
        rate: 4_096_000_000,
        entries: true,
        cores: 1,
        core_read: 2_000,
        core_write: 3_000,
        core_block: 10,
    }
}

#[test]
fn a_busy_controller_adds_exactly_its_parts() {
    let t = Timing { read: vec![50], program: vec![1000], erase: 3000, ..Timing::default() };
    let g = geometry(1, 1, 1);
    let mut rig = common::Rig::new(Link::new(busy(), drive(&g, &t, 0)), 8);
    let at = g.ppa(0, 0, 0, 0);
    let around = 16 + 5 + 100 + 4 + 5;
    assert_eq!(rig.one(cmd(1, Write, at, 2)), around + 3_020 + 2_000 + 1000);
    assert_eq!(rig.one(cmd(2, Read, at, 1)), around + 2_010 + 50 + 1000);
    assert_eq!(rig.one(cmd(3, Reset, at, 1)), around + 3_000 + 3_000);
}

#[test]
fn cores_bound_the_commands_a_second() {
    let g = geometry(2, 2, 1);
    for (cores, rounds) in [(1, 20), (2, 10), (0, 1)] {
        let link = LinkTiming { cores, rate: 0, entries: false, ..busy() };
        let rig = written(&g, &Timing::default());
        let mut rig = common::Rig::new(Link::new(link, rig.port), 8);
        for i in 0..20 {
            rig.submit(0, cmd(i, Read, g.ppa(i as u32 % 2, 0, 0, 0), 1));
        }
        rig.drain();
        assert_eq!(rig.at(19), 5 + rounds * 2_010 + 100 + 5, "{cores} cores");
    }
}

/// Data keep nothing waiting that carries none: a read goes by the data of writes,
/// a write's completion by those of reads.
#[test]
fn nothing_waits_behind_data_of_others() {
    let link = LinkTiming { latency: 5, rate: 4_096_000_000, ..LinkTiming::default() };
    let g = geometry(1, 2, 1);
    let rig = written(&g, &Timing::default());
    let mut rig = common::Rig::new(Link::new(link, rig.port), 64);
    for i in 0..6 {
        rig.submit(0, cmd(i, Write, g.ppa(0, 0, 3, i as u32 * 2), 2));
    }
    rig.submit(0, cmd(6, Read, g.ppa(0, 1, 0, 0), 2));
    for i in 7..13 {
        rig.submit(0, cmd(i, Read, g.ppa(0, 1, 0, 0), 2));
    }
    rig.drain();
    assert_eq!(rig.at(6), 5 + 2_000 + 5, "12 blocks on the way down do not keep it");
    for i in 0..6 {
        assert_eq!(rig.at(i), 5 + (i + 1) * 2_000 + 5, "nor do 14 on the way up keep these");
    }
}

/// Entries are bytes, too: what they take, data do not have.
#[test]
fn entries_take_their_share_of_the_wire() {
    let link = LinkTiming { latency: 5, rate: 4_096_000_000, entries: true, ..busy() };
    let link = LinkTiming { cores: 0, core_read: 0, core_write: 0, core_block: 0, ..link };
    let g = geometry(1, 1, 1);
    let mut rig = common::Rig::new(Link::new(link, drive(&g, &Timing::default(), 0)), 64);
    for i in 0..6 {
        rig.submit(0, cmd(i, Write, g.ppa(0, 0, 3, i as u32 * 2), 2));
    }
    rig.drain();
    // The first entry goes before all data, the others between those of the first.
    assert_eq!(rig.at(5), 16 + 5 + 100 + 6 * 2_000 + 5 * 16 + 4 + 5);
}

#[test]
fn a_link_over_an_instant_drive_keeps_the_rule_of_events() {
    let g = geometry(1, 1, 1);
    let mut link = Link::new(LinkTiming::default(), drive(&g, &Timing::default(), 0));
    let (mut cmds, mut done) = (Ring::new(4), Ring::new(4));
    cmds.push(cmd(1, Write, g.ppa(0, 0, 0, 0), 2)).unwrap();
    cmds.push(cmd(2, Read, g.ppa(0, 0, 0, 9), 1)).unwrap();
    link.submit(Time(7), &mut cmds);
    assert_eq!(link.next_event(), Some(Time(7)));
    link.advance(Time(7), &mut done);
    assert_eq!(link.next_event(), None, "nothing is left for another call");
    let mut ends: Vec<_> = done.drain().map(|d| (d.cookie, d.status, d.at)).collect();
    ends.sort_by_key(|end| end.0);
    assert_eq!(ends, [(1, Status::SUCCESS, Time(7)), (2, Status::UNWRITTEN, Time(7))]);
}

/// Tags alone take the array's time and little of the channel's; what a medium
/// keeps whole comes back whole.
#[test]
fn tags_alone_and_whole_blocks() {
    use device::{Content, VectorCmd};
    use flash::TAG_BYTES;
    use port::Buffer;

    let dim = Dimensions { chunks: 2, pages: 4, page_bytes: 16384, ..Dimensions::LEAST };
    let geometry = Geometry::new(dim).unwrap();
    let timing = Timing { read: vec![50_000], channel_rate: 400_000_000, ..Timing::default() };
    let mut drive = drive(&geometry, &timing, 0);
    let (mut cmds, mut done) = (Ring::new(1), Ring::new(1));
    let mut ask = |op, content, bytes: &[u8], at: u64| {
        let mut buffer = Buffer::zeroed(bytes.len()).unwrap();
        buffer.bytes_mut().copy_from_slice(bytes);
        cmds.push(VectorCmd { buffer, content, ..cmd(1, op, Ppa(0), 4) }).unwrap();
        drive.submit(Time(at), &mut cmds);
        while done.is_empty() {
            let next = drive.next_event().expect("it completes");
            drive.advance(next, &mut done);
        }
        let done = done.pop().unwrap();
        assert_eq!(done.status, Status::SUCCESS);
        (done.at.0 - at, done.buffer.bytes().to_vec())
    };
    let block = 4096 + TAG_BYTES;
    let bytes: Vec<u8> = (0..4 * block).map(|i| i as u8).collect();
    ask(Write, Content::Whole, &bytes, 0);
    assert_eq!(ask(VectorOp::Flush, Content::Data, &[], 1_000_000), (0, vec![]));
    let (time, tags) = ask(Read, Content::Tags, &[0; 4 * TAG_BYTES], 2_000_000);
    assert_eq!((time, &tags[..]), (50_160, &bytes[4 * 4096..]));
    let (time, whole) = ask(Read, Content::Whole, &vec![0; 4 * block], 3_000_000);
    assert_eq!((time, whole), (50_000 + 40_960, bytes));
}
