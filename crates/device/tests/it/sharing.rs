//! Reads that share a sensing, to the nanosecond.

use crate::common::{Rig, cmd, geometry, written};
use device::VectorOp;
use flash::{MultiPlane, Ppa, RamMedium, SlcCache, SlcSize, Timing};
use port::random::Random;
use proptest::prelude::*;

use VectorOp::{Read, Reset, Write};

type Drive = Rig<device::Device<RamMedium>>;

/// A block takes 100 ns on the channel, a lone read of one 1105.
fn shared() -> Timing {
    Timing {
        read: vec![1000],
        program: vec![2000],
        erase: 3000,
        command: 5,
        channel_rate: 40_960_000_000,
        shared_reads: true,
        ..Timing::default()
    }
}

fn joined(multi_plane_reads: MultiPlane) -> Timing {
    Timing { shared_reads: false, multi_plane_reads, ..shared() }
}

/// Reads that come at once, of one block each: when they end.
fn ends(rig: &mut Drive, all: &[Ppa]) -> Vec<u64> {
    for (cookie, &at) in all.iter().enumerate() {
        rig.submit(0, cmd(cookie as u64, Read, at, 1));
    }
    rig.drain();
    (0..all.len() as u64).map(|cookie| rig.at(cookie)).collect()
}

/// Array reads, those that needed none, and those that began with another's.
fn reads(rig: &Drive) -> (u64, u64, u64) {
    let counters = rig.port.counters();
    (counters.reads, counters.shared, counters.joined)
}

#[test]
fn reads_of_a_page_take_one_sensing() {
    // Two blocks a page.
    let g = geometry(1, 1, 1);
    for registers in [false, true] {
        let mut rig = written(&g, &Timing { cache_registers: registers, ..shared() });
        let all = [0, 1, 0, 2].map(|block| g.ppa(0, 0, 0, block));
        let ends = ends(&mut rig, &all);
        // With a second register the next page is sensed while data go out, whose command
        // goes before them.
        let (first, last) = if registers { (1110, 1010 + 1100) } else { (1105, 1315 + 1105) };
        assert_eq!(ends, [first, first + 105, first + 210, last]);
        assert_eq!(reads(&rig), (2, 2, 0));
    }
    let mut rig = written(&g, &Timing { shared_reads: false, ..shared() });
    assert_eq!(ends(&mut rig, &[0, 1].map(|block| g.ppa(0, 0, 0, block))), [1105, 2210]);
    assert_eq!(reads(&rig), (2, 0, 0));
}

#[test]
fn reads_that_come_while_the_page_is_there_share_it() {
    let g = geometry(1, 1, 1);
    let mut rig = written(&g, &shared());
    let times = [(0, 0), (500, 1), (1050, 0), (1320, 1)];
    for (cookie, &(at, block)) in times.iter().enumerate() {
        rig.submit(at, cmd(cookie as u64, Read, g.ppa(0, 0, 0, block), 1));
    }
    rig.drain();
    assert_eq!([0, 1, 2, 3].map(|read| rig.at(read)), [1105, 1210, 1315, 1320 + 1105]);
    assert_eq!(reads(&rig), (2, 2, 0));
}

#[test]
fn sixteen_share_a_sensing_at_most() {
    let g = geometry(1, 1, 1);
    let mut rig = written(&g, &shared());
    let ends = ends(&mut rig, &[Ppa(0); 40]);
    let first = 1105 + 15 * 105;
    assert_eq!([ends[15], ends[31], ends[39]], [first, 2 * first, 2 * first + 1105 + 7 * 105]);
    assert_eq!(reads(&rig), (3, 37, 0));
}

/// Those that share are among the reads that go before a program.
#[test]
fn what_waits_has_its_turn() {
    let g = geometry(1, 1, 1);
    let mut rig = written(&g, &Timing { read_burst: 4, ..shared() });
    rig.submit(0, cmd(0, Read, Ppa(0), 1));
    rig.submit(1, cmd(100, Write, g.ppa(0, 0, 3, 0), 2));
    (1..10).for_each(|read| rig.submit(1, cmd(read, Read, Ppa(0), 1)));
    rig.drain();
    let before = 1105 + 4 * 105;
    let program = before + 205 + 2000;
    assert_eq!([rig.at(4), rig.at(100)], [before, program]);
    assert_eq!([rig.at(5), rig.at(9)], [program + 1105, program + 1105 + 4 * 105]);
    // First come, first served: those behind the program wait for it.
    let mut rig = written(&g, &Timing { reads_first: false, ..shared() });
    rig.submit(0, cmd(0, Read, Ppa(0), 1));
    rig.submit(1, cmd(1, Read, Ppa(0), 1));
    rig.submit(1, cmd(2, Write, g.ppa(0, 0, 3, 0), 2));
    rig.submit(1, cmd(3, Read, Ppa(0), 1));
    rig.submit(600, cmd(4, Read, Ppa(0), 1));
    rig.drain();
    let program = 1210 + 205 + 2000;
    assert_eq!([1, 2, 3, 4].map(|c| rig.at(c)), [1210, program, program + 1105, program + 1210]);
}

#[test]
fn planes_are_sensed_together_as_the_rule_says() {
    let g = geometry(1, 1, 2);
    // By plane and page, each of another chunk.
    let at = |chunk, plane: u32, page: u32| g.ppa(0, 0, chunk, 4 * page + 2 * plane);
    let all = [at(0, 0, 0), at(1, 1, 1), at(2, 1, 2), at(1, 1, 0)];
    let next = |end: u64| end + 1105;
    let of = |rule, read: &[u64]| {
        let mut rig = written(&g, &Timing { read: read.to_vec(), ..joined(rule) });
        let ends = ends(&mut rig, &all);
        (ends, reads(&rig).2)
    };
    assert_eq!(of(MultiPlane::None, &[1000]), (vec![1105, 2210, 3315, 4420], 0));
    // The same page of another block.
    let rest = [next(1210), next(next(1210))];
    assert_eq!(of(MultiPlane::SamePage, &[1000]), (vec![1105, rest[0], rest[1], 1210], 1));
    // Any page of the type; two of one plane never.
    assert_eq!(
        of(MultiPlane::SameType, &[1000]),
        (vec![1105, 1210, next(1210), next(next(1210))], 1)
    );
    assert_eq!(
        of(MultiPlane::SameType, &[1000, 400]),
        (vec![1105, 1210 + 505, 1210, 1715 + 1105], 1)
    );
    // Planes that read by themselves need no other, and there is none where there is one.
    let timing = Timing { plane_reads: true, ..joined(MultiPlane::SameType) };
    let mut rig = written(&g, &timing);
    assert_eq!(ends(&mut rig, &all[..2]), [1105, 1205]);
    assert_eq!(reads(&rig), (2, 0, 0));
}

#[test]
fn a_multi_plane_read_is_shared_on_each_plane() {
    let g = geometry(1, 1, 2);
    let timing = Timing { shared_reads: true, ..joined(MultiPlane::SamePage) };
    let mut rig = written(&g, &timing);
    let all = [g.ppa(0, 0, 0, 0), g.ppa(0, 0, 1, 2), g.ppa(0, 0, 1, 3), g.ppa(0, 0, 0, 2)];
    let ends = ends(&mut rig, &all);
    // The last one's plane has another block's page.
    assert_eq!(ends, [1105, 1210, 1315, 1315 + 1105]);
    assert_eq!(reads(&rig), (3, 1, 1));
}

/// A read of a quarter senses no more than that; one of a page all of it.
#[test]
fn parts_of_a_page_are_shared_as_they_were_sensed() {
    let dim = flash::Dimensions { page_bytes: 16384, ..geometry(1, 1, 1).dimensions() };
    let g = flash::Geometry::new(dim).unwrap();
    let timing = Timing { read_partial: vec![400], ..shared() };
    let mut rig = written(&g, &timing);
    // One quarter twice, then the next.
    assert_eq!(ends(&mut rig, &[Ppa(0), Ppa(0), Ppa(1)]), [505, 610, 610 + 505]);
    assert_eq!(reads(&rig), (2, 1, 0));
    let mut rig = written(&g, &timing);
    rig.submit(0, cmd(0, Read, Ppa(0), 4));
    rig.submit(0, cmd(1, Read, Ppa(3), 1));
    rig.drain();
    assert_eq!([rig.at(0), rig.at(1)], [1405, 1510]);
}

/// What is in the SLC cache is not sensed with what is not.
#[test]
fn pages_in_the_cache_are_sensed_apart() {
    let slc = SlcCache {
        size: SlcSize::Bytes(4 * 16384),
        read: 300,
        program: 200,
        idle: 1_000_000,
        ..SlcCache::default()
    };
    let g = geometry(1, 1, 2);
    let timing = Timing { slc, ..joined(MultiPlane::SameType) };
    let mut rig = written(&g, &timing);
    rig.submit(0, cmd(100, Write, g.ppa(0, 0, 3, 0), 4));
    rig.run_to(port::Time(10_000));
    assert_eq!(rig.at(100), 405 + 200, "into the cache");
    rig.submit(20_000, cmd(0, Read, g.ppa(0, 0, 3, 0), 1));
    rig.submit(20_000, cmd(1, Read, g.ppa(0, 0, 0, 2), 1));
    rig.submit(20_000, cmd(2, Read, g.ppa(0, 0, 3, 2), 1));
    rig.run_to(port::Time(30_000));
    assert_eq!([0, 2, 1].map(|c| rig.at(c)), [20_405, 20_510, 20_510 + 1105]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Where nothing can be shared all is as without it, to the nanosecond.
    #[test]
    fn nothing_else_changes(
        seed in any::<u64>(), suspend in any::<bool>(), reads_first in any::<bool>(),
        suspend_transfer in any::<bool>(), planes in 1u32..3,
    ) {
        let g = geometry(1, 2, planes);
        let off = Timing {
            shared_reads: false, suspend, reads_first, suspend_transfer, suspend_time: 20,
            resume_time: 10, read_burst: 3, ..shared()
        };
        // Each page is read once, all of one plane.
        let on = Timing { shared_reads: true, multi_plane_reads: MultiPlane::SameType, ..off.clone() };
        let runs = [&off, &on].map(|timing| {
            let (mut rig, mut rng, mut now) = (written(&g, timing), Random::new(seed, 0), 0);
            for pu in 0..2 {
                for page in 0..6 {
                    now += rng.below(900);
                    rig.submit(now, cmd(u64::from(10 * page + pu), Read, g.ppa(0, pu, 0, 2 * planes * page), 1));
                    if rng.below(3) == 0 {
                        let (row, count) = (2 * planes * page, 2 * planes);
                        let write = g.ppa(0, 1 - pu, 3, row);
                        if rig.port.chunks()[g.chunk_index(write)].wp == row {
                            rig.submit(now, cmd(u64::from(100 + 10 * page + pu), Write, write, count as u8));
                        }
                    }
                    if page == 3 && rng.below(2) == 0 {
                        rig.submit(now, cmd(u64::from(200 + pu), Reset, g.ppa(0, pu, 1, 0), 1));
                    }
                }
            }
            rig.drain();
            let ends: Vec<_> = rig.all.iter().map(|done| (done.cookie, done.at)).collect();
            (ends, rig.port.state_hash())
        });
        prop_assert_eq!(&runs[0], &runs[1]);
    }
}
