mod order;

use super::*;
use crate::scheduler::{DeadlineOptions, FairOptions};

const SECTOR: u64 = 512;
const SHAPE: Shape = Shape { bytes: 1 << 20, kept: 4096, max_bytes: 8 * SECTOR, depth: 4 };

fn options(depth: usize, merge: Merge) -> StagingOptions {
    let scheduler = SchedulerKind::None;
    StagingOptions {
        depth,
        scheduler,
        merge,
        merge_idle: true,
        plug: None,
        cores: 4,
        ways: Vec::new(),
        shared: false,
        shape: SHAPE,
    }
}

fn staging(options: &StagingOptions) -> Staging {
    Staging::new(options).unwrap()
}

/// A request of so many sectors from this one on, with a buffer of its own.
fn req(id: u64, op: BlockOp, sector: u64, sectors: u64) -> BlockReq {
    let (offset, len) = (sector * SECTOR, sectors * SECTOR);
    let data = matches!(op, BlockOp::Read | BlockOp::Write);
    let buffer = Buffer::zeroed(if data { len as usize } else { 0 }).unwrap();
    BlockReq::new(id, op, offset, len, buffer)
}

fn write(id: u64, sector: u64, sectors: u64) -> BlockReq {
    let mut req = req(id, BlockOp::Write, sector, sectors);
    req.buffer.bytes_mut().fill(id as u8);
    req
}

/// Takes all that goes out, as (first sector, sectors), and completes it.
fn drain(s: &mut Staging, now: Time) -> Vec<(u64, u64)> {
    let mut seen = Vec::new();
    while let Some(out) = s.next(now, 0) {
        seen.push((out.req.offset / SECTOR, out.req.len / SECTOR));
        if !out.parts.is_none() {
            s.split(out.parts, Status::SUCCESS, now, out.req.buffer, &mut |_, _, _| {});
        }
    }
    seen
}

#[test]
fn options_outside_their_range_are_refused() {
    let good = options(8, Merge::Full);
    let plug = |requests, bytes| Some(Plug { requests, bytes, ns: 1 });
    let fair = |weights| SchedulerKind::Fair(FairOptions { weights });
    let deadline = DeadlineOptions { fifo_batch: 0, ..DeadlineOptions::default() };
    for bad in [
        StagingOptions { depth: 0, ..good.clone() },
        StagingOptions { depth: MOST_STAGED + 1, ..good.clone() },
        StagingOptions { plug: plug(0, 1), ..good.clone() },
        StagingOptions { plug: plug(1, 0), ..good.clone() },
        StagingOptions { scheduler: SchedulerKind::Deadline(deadline), ..good.clone() },
        StagingOptions { scheduler: fair(vec![1, 0]), ..good.clone() },
        StagingOptions { scheduler: fair(vec![1001]), ..good.clone() },
        StagingOptions { scheduler: fair(vec![1; 5]), ..good.clone() },
        StagingOptions { scheduler: fair(vec![]), cores: 0, ..good.clone() },
    ] {
        assert!(matches!(Staging::new(&bad), Err(ConfigError::Range { .. })), "{bad:?}");
    }
    assert!(Staging::new(&good).is_ok());
}

#[test]
fn neighbours_are_merged_on_both_sides_and_others_are_not() {
    let mut s = staging(&options(16, Merge::Full));
    s.insert(Time(0), 0, true, write(1, 10, 1));
    s.insert(Time(1), 1, true, write(2, 11, 1));
    s.insert(Time(2), 2, true, write(3, 9, 1));
    s.insert(Time(3), 0, true, write(4, 13, 1));
    s.insert(Time(4), 0, true, req(5, BlockOp::Read, 12, 1));
    s.insert(Time(5), 0, true, BlockReq { fua: true, ..write(6, 12, 1) });
    assert_eq!((s.len(), s.counters().merged), (4, 2));
    let out = s.next(Time(6), 0).unwrap();
    assert_eq!((out.req.offset, out.req.len), (9 * SECTOR, 3 * SECTOR));
    assert_eq!((out.from, out.submitted), (0, Time(0)));
    let bytes: Vec<u8> = out.req.buffer.bytes().iter().step_by(512).copied().collect();
    assert_eq!(bytes, [3, 1, 2]);
    let mut seen = Vec::new();
    s.split(out.parts, Status::WRITE_FAULT, Time(9), out.req.buffer, &mut |from, at, done| {
        assert_eq!((done.status, done.at, done.buffer.len()), (Status::WRITE_FAULT, Time(9), 512));
        seen.push((from, at.0, done.id, done.buffer.bytes()[0]));
    });
    assert_eq!(seen, [(2, 2, 3, 3), (0, 0, 1, 1), (1, 1, 2, 2)]);
}

#[test]
fn placements_stay_and_are_not_made_one_with_others() {
    let mut s = staging(&options(16, Merge::Full));
    for (id, placement) in [(0, 3), (1, 3), (2, 0)] {
        s.insert(Time(0), 0, true, BlockReq { placement, ..write(id, id, 1) });
    }
    let mut next = || s.next(Time(1), 0).map(|out| (out.req.placement, out.req.len));
    assert_eq!([next(), next()], [Some((3, 2 * SECTOR)), Some((0, SECTOR))]);
}

#[test]
fn queues_stay_and_are_not_made_one_with_others() {
    let mut s = staging(&options(16, Merge::Full));
    for (id, queue) in [(0, 3), (1, 3), (2, 0)] {
        s.insert(Time(0), 0, true, BlockReq { queue, ..write(id, id, 1) });
    }
    let mut next = || s.next(Time(1), 0).map(|out| (out.req.queue, out.req.len));
    assert_eq!([next(), next()], [Some((3, 2 * SECTOR)), Some((0, SECTOR))]);
}

#[test]
fn only_a_busy_device_makes_merges_unless_asked() {
    let mut s = staging(&StagingOptions { merge_idle: false, ..options(8, Merge::Simple) });
    s.insert(Time(0), 0, false, write(1, 0, 1));
    s.insert(Time(0), 0, false, write(2, 1, 1));
    s.insert(Time(0), 0, true, write(3, 2, 1));
    assert_eq!(drain(&mut s, Time(0)), [(0, 1), (1, 2)]);
}

#[test]
fn simple_looks_at_the_newest_and_full_at_eight() {
    let distant = |merge| {
        let mut s = staging(&options(32, merge));
        s.insert(Time(0), 0, true, write(1, 0, 1));
        for i in 0..7 {
            s.insert(Time(0), 0, true, write(2, 100 + 2 * i, 1));
        }
        s.insert(Time(0), 0, true, write(3, 1, 1));
        let seven = s.counters().merged;
        s.insert(Time(0), 0, true, write(2, 200, 1));
        s.insert(Time(0), 0, true, write(3, 2, 1));
        (seven, s.counters().merged - seven)
    };
    assert_eq!(distant(Merge::Off), (0, 0));
    assert_eq!(distant(Merge::Simple), (0, 0));
    // The second time there are eight in between.
    assert_eq!(distant(Merge::Full), (1, 0));
}

#[test]
fn deadline_finds_neighbours_by_address_however_old() {
    let scheduler = SchedulerKind::Deadline(DeadlineOptions::default());
    let mut s = staging(&StagingOptions { scheduler, ..options(64, Merge::Full) });
    for sector in (0..80).step_by(4) {
        s.insert(Time(0), 0, true, write(1, sector, 1));
    }
    s.insert(Time(0), 0, true, write(2, 1, 1));
    s.insert(Time(0), 0, true, write(2, 7, 1));
    s.insert(Time(0), 0, true, write(2, 3, 1));
    assert_eq!(s.counters().merged, 3);
    assert_eq!(drain(&mut s, Time(0))[..4], [(0, 2), (3, 2), (7, 2), (12, 1)]);
}

#[test]
fn by_address_no_request_passes_one_that_starts_inside_it() {
    let scheduler = SchedulerKind::Deadline(DeadlineOptions::default());
    let mut s = staging(&StagingOptions { scheduler, ..options(64, Merge::Full) });
    s.insert(Time(0), 0, true, write(1, 0, 1));
    s.insert(Time(0), 0, true, write(2, 2, 1));
    (0..8).for_each(|i| s.insert(Time(0), 0, true, write(3, 100 + 2 * i, 1)));
    s.insert(Time(0), 0, true, write(4, 1, 2));
    assert_eq!(s.counters().merged, 0);
}

#[test]
fn deadline_sorts_by_where_a_merged_request_starts() {
    let scheduler = SchedulerKind::Deadline(DeadlineOptions::default());
    let mut s = staging(&StagingOptions { scheduler, ..options(64, Merge::Full) });
    s.insert(Time(0), 0, true, req(1, BlockOp::Read, 10, 1));
    s.insert(Time(0), 0, true, req(2, BlockOp::Read, 12, 1));
    s.insert(Time(0), 0, true, req(3, BlockOp::Read, 6, 6));
    assert_eq!(drain(&mut s, Time(0)), [(6, 7), (10, 1)]);
}

#[test]
fn fair_does_not_mix_cores() {
    let scheduler = SchedulerKind::Fair(FairOptions::default());
    let mut s = staging(&StagingOptions { scheduler, ..options(64, Merge::Full) });
    s.insert(Time(0), 0, true, write(1, 0, 1));
    s.insert(Time(0), 1, true, write(2, 1, 1));
    s.insert(Time(0), 0, true, write(3, 1, 1));
    assert_eq!((s.len(), s.counters().merged), (3, 0), "the second is in between");
    s.insert(Time(0), 1, true, write(4, 2, 1));
    assert_eq!((s.len(), s.counters().merged), (3, 1));
}

#[test]
fn nothing_joins_what_has_gone_out() {
    for pair in [false, true] {
        let mut s = staging(&options(16, Merge::Full));
        s.insert(Time(0), 0, true, req(1, BlockOp::Trim, 0, 1));
        if pair {
            s.insert(Time(0), 0, true, req(1, BlockOp::Trim, 1, 1));
        }
        s.insert(Time(0), 0, true, req(2, BlockOp::Trim, 10, 1));
        let gone = s.next(Time(0), 0).unwrap().req.len / SECTOR;
        s.insert(Time(0), 0, true, req(3, BlockOp::Trim, gone, 1));
        assert_eq!(drain(&mut s, Time(0)), [(10, 1), (gone, 1)]);
    }
}

#[test]
fn a_merge_does_not_pass_what_it_overlaps_nor_a_flush() {
    let mut s = staging(&options(16, Merge::Full));
    s.insert(Time(0), 0, true, write(1, 0, 1));
    s.insert(Time(0), 0, true, write(2, 1, 2));
    s.insert(Time(0), 0, true, write(3, 1, 1));
    assert_eq!(drain(&mut s, Time(0)), [(0, 3), (1, 1)], "the second joined, the third did not");
    s.insert(Time(0), 0, true, write(1, 0, 1));
    s.insert(Time(0), 0, true, req(2, BlockOp::Read, 1, 1));
    s.insert(Time(0), 0, true, write(3, 1, 1));
    assert_eq!(s.len(), 3, "a read in between");
    drain(&mut s, Time(0));
    s.insert(Time(0), 0, true, write(1, 0, 1));
    s.insert(Time(0), 0, true, req(2, BlockOp::Flush, 0, 0));
    s.insert(Time(0), 0, true, req(2, BlockOp::Flush, 0, 0));
    s.insert(Time(0), 0, true, write(3, 1, 1));
    assert_eq!(s.len(), 4, "a flush in between");
}

#[test]
fn what_the_device_would_refuse_is_not_merged() {
    let mut s = staging(&options(16, Merge::Full));
    let short = BlockReq { buffer: Buffer::empty(), ..write(1, 0, 1) };
    s.insert(Time(0), 0, true, short);
    s.insert(Time(0), 0, true, write(2, 1, 1));
    let far = BlockReq { offset: u64::MAX - 511, ..write(3, 2, 1) };
    s.insert(Time(0), 0, true, far);
    let odd = BlockReq { len: 100, ..write(4, 2, 1) };
    s.insert(Time(0), 0, true, odd);
    assert_eq!((s.len(), s.counters().merged), (4, 0));
}

#[test]
fn a_merged_request_is_no_longer_than_the_device_takes() {
    let mut s = staging(&options(16, Merge::Full));
    for sector in 0..20 {
        s.insert(Time(0), 0, true, write(sector, sector, 1));
    }
    assert_eq!(drain(&mut s, Time(0)), [(0, 8), (8, 8), (16, 4)]);
}

#[test]
fn adjacent_buffers_are_joined_without_a_bounce() {
    let mut s = staging(&options(16, Merge::Full));
    let mut memory = Buffer::zeroed(3 * 512).unwrap();
    let start = memory.bytes().as_ptr();
    for sector in 0..3 {
        let buffer = memory.split_to(512);
        let read = BlockReq { buffer, ..req(sector, BlockOp::Read, sector, 0) };
        s.insert(Time(0), 0, true, BlockReq { len: SECTOR, ..read });
    }
    let free = s.merger.free_bounces();
    let mut out = s.next(Time(0), 0).unwrap();
    assert_eq!((out.req.buffer.bytes().as_ptr(), out.req.buffer.len()), (start, 3 * 512));
    assert_eq!(s.merger.free_bounces(), free);
    for (i, byte) in out.req.buffer.bytes_mut().iter_mut().enumerate() {
        *byte = (i / 512) as u8 + 1;
    }
    s.split(out.parts, Status::SUCCESS, Time(1), out.req.buffer, &mut |_, _, done| {
        assert_eq!(done.buffer.bytes(), [done.id as u8 + 1; 512]);
    });
}

#[test]
fn without_memory_requests_go_one_by_one() {
    let mut s = staging(&options(256, Merge::Full));
    let bounces = s.merger.free_bounces();
    let pair = |s: &mut Staging, at: u64| {
        s.insert(Time(0), 0, true, write(1, 10 * at, 1));
        s.insert(Time(0), 0, true, write(2, 10 * at + 1, 1));
    };
    (0..bounces as u64 + 3).for_each(|at| pair(&mut s, at));
    assert_eq!((s.counters().merged, s.merger.free_bounces()), (bounces as u64, 0));
    drain(&mut s, Time(0));
    assert_eq!(s.merger.free_bounces(), bounces);
    // Trims need no memory, but parts.
    let parts = s.merger.free_parts() as u64;
    for id in 0..parts + 10 {
        // None is longer than eight sectors together.
        s.insert(Time(0), 0, true, req(id, BlockOp::Trim, id + id / 8, 1));
    }
    assert_eq!((s.merger.free_parts(), s.merger.free_bounces()), (0, bounces));
    let left = drain(&mut s, Time(0)).iter().map(|(_, sectors)| sectors).sum::<u64>();
    assert_eq!((left, s.merger.free_parts() as u64), (parts + 10, parts));
}

#[test]
fn a_lost_buffer_is_no_success_and_costs_its_bounce() {
    let mut s = staging(&options(16, Merge::Full));
    let bounces = s.merger.free_bounces();
    for (status, seen) in
        [(Status::SUCCESS, Status::INTERNAL), (Status::ABORTED_BY_HOST, Status::ABORTED_BY_HOST)]
    {
        s.insert(Time(0), 0, true, req(1, BlockOp::Read, 0, 1));
        s.insert(Time(0), 0, true, req(2, BlockOp::Read, 1, 1));
        let out = s.next(Time(0), 0).unwrap();
        let mut count = 0;
        s.split(out.parts, status, Time(0), Buffer::empty(), &mut |_, _, done| {
            assert_eq!((done.status, done.buffer.len()), (seen, 512));
            count += 1;
        });
        assert_eq!(count, 2);
    }
    assert_eq!(s.merger.free_bounces(), bounces - 2);
    assert_eq!(s.merger.free_parts(), 4 * (16 + SHAPE.depth));
}

#[test]
#[should_panic(expected = "taken apart once")]
fn a_merged_request_is_not_taken_apart_twice() {
    let mut s = staging(&options(16, Merge::Full));
    s.insert(Time(0), 0, true, write(1, 0, 1));
    s.insert(Time(0), 0, true, write(2, 1, 1));
    let out = s.next(Time(0), 0).unwrap();
    s.split(out.parts, Status::SUCCESS, Time(0), out.req.buffer, &mut |_, _, _| {});
    s.split(out.parts, Status::SUCCESS, Time(0), Buffer::empty(), &mut |_, _, _| {});
}

#[test]
fn a_plug_opens_by_number_length_time_or_hand() {
    let plug = Some(Plug { requests: 3, bytes: 4 * SECTOR, ns: 100 });
    let mut s = staging(&StagingOptions { plug, ..options(8, Merge::Off) });
    assert_eq!(s.next_event(), None);
    s.insert(Time(10), 0, true, write(1, 0, 1));
    s.insert(Time(50), 0, true, write(2, 5, 3));
    assert!(s.next(Time(109), 0).is_none());
    assert_eq!(s.next_event(), Some(Time(110)));
    assert_eq!(drain(&mut s, Time(110)).len(), 2);
    s.unplug();
    for id in 0..3 {
        assert!(s.next(Time(200), 0).is_none(), "plugged again");
        s.insert(Time(200), 0, true, write(id, 10 * id, 1));
    }
    assert!(s.next(Time(200), 0).is_some());
    assert_eq!(s.next_event(), None);
    s.insert(Time(201), 0, true, write(9, 90, 1));
    assert_eq!(drain(&mut s, Time(201)).len(), 3, "open until it is empty");
    s.insert(Time(300), 0, true, write(1, 0, 4));
    assert_eq!(drain(&mut s, Time(300)).len(), 1);
    s.insert(Time(400), 0, true, write(1, 0, 1));
    s.unplug();
    assert_eq!(drain(&mut s, Time(400)).len(), 1);
}

#[test]
fn a_full_queue_opens_its_plug() {
    let mut s = staging(&StagingOptions { plug: Some(Plug::default()), ..options(2, Merge::Off) });
    s.insert(Time(0), 0, true, write(1, 0, 1));
    assert!(s.next(Time(0), 0).is_none());
    s.insert(Time(0), 0, true, write(2, 9, 1));
    assert_eq!(drain(&mut s, Time(0)).len(), 2);
}

#[test]
fn a_merged_request_counts_once_and_as_long_as_it_is() {
    let plug = Some(Plug { requests: 2, bytes: 4 * SECTOR, ns: 100 });
    let mut s = staging(&StagingOptions { plug, ..options(8, Merge::Full) });
    for sector in 0..3 {
        s.insert(Time(0), 0, false, write(1, sector, 1));
        assert!(s.next(Time(0), 0).is_none());
    }
    s.insert(Time(0), 0, false, write(1, 3, 1));
    assert_eq!(drain(&mut s, Time(0)), [(0, 4)]);
}
