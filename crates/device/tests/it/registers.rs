//! Dies with cache registers, and planes that read by themselves: what that makes
//! of many operations at one die, to the nanosecond.

use crate::common::{Rig, cmd, drive, geometry, written};
use device::VectorOp;
use flash::{SlcCache, SlcSize, Timing};
use proptest::prelude::*;

use VectorOp::{Read, Reset, Write};

/// A block takes 100 ns on the channel.
fn cached() -> Timing {
    Timing {
        read: vec![50],
        program: vec![1000],
        erase: 3000,
        command: 5,
        channel_rate: 40_960_000_000,
        cache_registers: true,
        ..Timing::default()
    }
}

fn planes() -> Timing {
    Timing { cache_registers: false, plane_reads: true, ..cached() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// While one read's data go out the next is sensed; while one row is programmed
    /// the next one's data come in.
    #[test]
    fn many_at_one_die_cost_the_longer_of_array_and_channel(
        read in 1u64..400, program in 1u64..800, command in 0u64..20, n in 1u64..9, first in any::<bool>(),
    ) {
        let timing = Timing {
            read: vec![read], program: vec![program], command, reads_first: first, ..cached()
        };
        let g = geometry(1, 1, 1);
        let mut rig = written(&g, &timing);
        for i in 0..n {
            rig.submit(0, cmd(i, Read, g.ppa(0, 0, 0, i as u32), 1));
        }
        rig.drain();
        let transfer = timing.transfer(1);
        let all = command + read + (n - 1) * (command + read.max(transfer)) + transfer;
        prop_assert_eq!(rig.at(n - 1), all);

        let n = n.min(6);
        for i in 0..n {
            rig.submit(all, cmd(100 + i, Write, g.ppa(0, 0, 3, 2 * i as u32), 2));
        }
        rig.drain();
        let load = command + timing.transfer(2);
        prop_assert_eq!(rig.at(100 + n - 1) - all, load + (n - 1) * program.max(load) + program);
    }

    /// One alone is as it was.
    #[test]
    fn a_lone_operation_costs_the_sum_of_its_parts(
        cache_registers in any::<bool>(), plane_reads in any::<bool>(), command in 0u64..9,
    ) {
        let timing = Timing { cache_registers, plane_reads, command, ..cached() };
        let g = geometry(1, 2, 3);
        let mut rig = Rig::new(drive(&g, &timing, 0), 4);
        let at = g.ppa(0, 1, 0, 0);
        prop_assert_eq!(rig.one(cmd(1, Write, at, 6)), command + 600 + 1000);
        prop_assert_eq!(rig.one(cmd(2, Read, at, 6)), command + 50 + 600);
        prop_assert_eq!(rig.one(cmd(3, Read, at, 1)), command + 50 + 100);
        prop_assert_eq!(rig.one(cmd(4, Reset, at, 1)), command + 3000);
    }
}

#[test]
fn pages_of_different_planes_are_sensed_at_the_same_time() {
    let g = geometry(1, 1, 4);
    // Two blocks a page: of pages in four rows, each on another plane.
    let at = |plane: u32| g.ppa(0, 0, 0, 8 * plane + 2 * plane);
    let mut rig = written(&g, &Timing { read: vec![1000], ..planes() });
    for plane in 0..4 {
        rig.submit(0, cmd(plane.into(), Read, at(plane), 2));
    }
    rig.drain();
    for plane in 0..4 {
        assert_eq!(rig.at(plane), 5 + 1000 + 200 * (plane + 1), "they share the channel");
    }
    // The same plane is not.
    let mut rig = written(&g, &Timing { read: vec![1000], ..planes() });
    for (number, plane) in [0, 0, 1].into_iter().enumerate() {
        rig.submit(0, cmd(number as u64, Read, at(plane), 1));
    }
    rig.drain();
    // Its command goes before the data of the other plane.
    assert_eq!((rig.at(0), rig.at(2), rig.at(1)), (1105, 1210, 1105 + 1105));
}

#[test]
fn nothing_goes_before_a_read_of_several_planes() {
    let g = geometry(1, 1, 2);
    let mut rig = written(&g, &planes());
    rig.submit(0, cmd(0, Read, g.ppa(0, 0, 0, 0), 1));
    rig.submit(0, cmd(1, Read, g.ppa(0, 0, 0, 0), 4));
    rig.submit(0, cmd(2, Read, g.ppa(0, 0, 0, 2), 1));
    rig.drain();
    // The second waits until the register of its first plane is free.
    assert_eq!((rig.at(0), rig.at(1), rig.at(2)), (155, 155 + 455, 155 + 455 + 155));
}

#[test]
fn programs_and_erases_take_all_planes() {
    let g = geometry(1, 1, 2);
    for (op, long) in [(Write, 405 + 1000), (Reset, 5 + 3000)] {
        let mut rig = written(&g, &planes());
        let chunk = if op == Write { 3 } else { 1 };
        let count = if op == Write { 4 } else { 1 };
        rig.submit(0, cmd(0, op, g.ppa(0, 0, chunk, 0), count));
        rig.submit(0, cmd(1, Read, g.ppa(0, 0, 0, 0), 1));
        rig.submit(0, cmd(2, Read, g.ppa(0, 0, 0, 2), 1));
        rig.drain();
        assert_eq!((rig.at(0), rig.at(1), rig.at(2)), (long, long + 155, long + 255));
    }
}

#[test]
fn both_make_a_pipeline_of_each_plane() {
    let g = geometry(1, 1, 2);
    let timing = Timing { cache_registers: true, command: 0, read: vec![1000], ..planes() };
    let mut rig = written(&g, &timing);
    for i in 0..8 {
        rig.submit(0, cmd(i, Read, g.ppa(0, 0, 0, 2 * i as u32), 1));
    }
    rig.drain();
    for i in 0..8 {
        assert_eq!(rig.at(i), (i / 2 + 1) * 1000 + (i % 2 + 1) * 100);
    }
}

#[test]
fn what_is_suspended_goes_on_before_what_has_its_data() {
    let suspend = Timing { suspend: true, suspend_time: 20, resume_time: 10, ..cached() };
    let g = geometry(1, 1, 1);
    let mut rig = written(&g, &suspend);
    rig.submit(0, cmd(1, Write, g.ppa(0, 0, 3, 0), 2));
    rig.submit(0, cmd(2, Write, g.ppa(0, 0, 3, 2), 2));
    // In the array until 1205; the second has its data at 410.
    rig.submit(505, cmd(3, Read, g.ppa(0, 0, 0, 0), 1));
    rig.drain();
    let read = 505 + 20 + 5 + 50 + 100;
    assert_eq!(rig.at(3), read);
    // It goes on as soon as a register is free: that of the read.
    assert_eq!((rig.at(1), rig.at(2)), (read + 10 + 700, read + 10 + 700 + 1000));
    assert_eq!(rig.port.counters().suspends, 1);
}

/// How often an operation may be suspended says nothing of reads that go before one that
/// waits.
#[test]
fn reads_go_before_what_waits_also_where_nothing_may_be_suspended() {
    let g = geometry(1, 1, 1);
    let ends = [0, 8, u32::MAX].map(|suspend_limit| {
        let mut rig = written(&g, &Timing { suspend_limit, ..cached() });
        rig.submit(0, cmd(1, Read, g.ppa(0, 0, 0, 0), 1));
        rig.submit(0, cmd(2, Write, g.ppa(0, 0, 3, 0), 2));
        rig.submit(0, cmd(3, Read, g.ppa(0, 0, 0, 1), 1));
        rig.drain();
        [rig.at(1), rig.at(3), rig.at(2)]
    });
    // The second read has its command at 60, and is sensed while the first one's data go out.
    assert_eq!(ends, [[160, 260, 260 + 205 + 1000]; 3]);
}

#[test]
fn reads_keep_nothing_waiting_for_ever() {
    let timing = Timing { read_burst: 4, plane_reads: true, ..cached() };
    let g = geometry(1, 1, 2);
    let mut rig = written(&g, &timing);
    for i in 0..100 {
        rig.submit(0, cmd(i, Read, g.ppa(0, 0, 0, i as u32 % 24), 1));
    }
    rig.submit(1, cmd(100, Write, g.ppa(0, 0, 3, 0), 4));
    rig.submit(1, cmd(101, Reset, g.ppa(0, 0, 1, 0), 1));
    rig.drain();
    let before = |cookie| (0..100).filter(|&read| rig.at(read) < rig.at(cookie)).count();
    // Those that were inside, and four more for each.
    assert!(before(100) <= 8 && before(101) <= 16, "{} {}", before(100), before(101));
    assert!(before(100) >= 4 && before(101) > before(100));
}

/// Commands of reads go before data, each before the next.
#[test]
fn commands_keep_their_order() {
    let g = geometry(1, 4, 1);
    let mut rig = written(&g, &cached());
    for die in 0..4 {
        rig.submit(0, cmd(die.into(), Read, g.ppa(0, die, 0, 0), 1));
        rig.submit(0, cmd(10 + u64::from(die), Read, g.ppa(0, die, 0, 1), 1));
    }
    rig.drain();
    // At 55 the array of the first die is free, and has the next command at once; the
    // other three have theirs after its data.
    assert_eq!([0, 1, 2, 3].map(|die| rig.at(die)), [160, 275, 375, 475]);
    assert_eq!([10, 11, 12, 13].map(|die| rig.at(die)), [575, 675, 775, 875]);
}

/// A die with nothing to do folds; what comes meanwhile begins after that.
#[test]
fn folding_takes_the_whole_die() {
    let slc = SlcCache {
        size: SlcSize::Bytes(4 * 16384),
        read: 20,
        program: 200,
        idle: 500,
        ..SlcCache::default()
    };
    let g = geometry(1, 1, 1);
    let mut rig = Rig::new(drive(&g, &Timing { slc, plane_reads: true, ..cached() }, 0), 4);
    rig.submit(0, cmd(1, Write, g.ppa(0, 0, 0, 0), 2));
    rig.submit(0, cmd(2, Write, g.ppa(0, 0, 0, 2), 2));
    rig.run_to(port::Time(700));
    assert_eq!((rig.at(1), rig.at(2)), (405, 610));
    // It folds from 1110 to 2130.
    rig.submit(1200, cmd(3, Read, g.ppa(0, 0, 0, 0), 1));
    rig.submit(1200, cmd(4, Write, g.ppa(0, 0, 0, 4), 2));
    rig.drain();
    assert_eq!(rig.at(3), 2130 + 5 + 50 + 100, "from the slow cells");
    assert_eq!(rig.at(4), 2285 + 205 + 200, "no data come in while a read is inside");
    assert_eq!(rig.port.slc_health().folded, 3);
}

/// What a read suspended may be over before the read's data are out: then the die is not
/// idle. Found by the simulator (seed 700224).
#[test]
fn folding_goes_on_when_the_data_of_reads_are_out() {
    let slc = SlcCache {
        size: SlcSize::Bytes(4 * 16384),
        read: 20,
        program: 200,
        idle: 500,
        ..SlcCache::default()
    };
    let timing = Timing { slc, suspend: true, suspend_time: 20, resume_time: 10, ..cached() };
    let g = geometry(1, 1, 1);
    let mut rig = Rig::new(drive(&g, &timing, 0), 4);
    rig.submit(0, cmd(1, Write, g.ppa(0, 0, 0, 0), 2));
    rig.submit(0, cmd(2, Write, g.ppa(0, 0, 0, 2), 2));
    // It folds from 1110 to 2130, and is suspended 40 ns before the end. The rest is over
    // at 2185, and the read's data go out until 2235.
    rig.submit(2090, cmd(3, Read, g.ppa(0, 0, 0, 0), 1));
    rig.run_to(port::Time(2200));
    assert_eq!(rig.port.slc_health().folded, 1);
    rig.drain();
    assert_eq!(rig.at(3), 2090 + 20 + 5 + 20 + 100);
    // Then it is idle for as long as before, and folds the other row.
    assert_eq!((rig.now.0, rig.port.slc_health().folded), (2235 + 500 + 1020, 2));
}
