//! A medium that takes its time: on a clock only what waits for it is late, off
//! the clock time stands still.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{cmd, geometry};
use device::realtime::RealTime;
use device::{Device, Link, VectorOp};
use faults::{Below, PowerCut, Script, ScriptedMedium};
use flash::{LinkTiming, Moved, Ppa, Timing};
use port::{Port, Ring, Status, Time};
use proptest::prelude::*;

/// Answers "not yet" so many times to each barrier and to each program of
/// chunk 1.
struct Late {
    geometry: flash::Geometry,
    barrier: (u32, u32),
    program: (u32, u32),
}

/// Counts an answer; whether it is "not yet".
fn waits((most, left): &mut (u32, u32)) -> bool {
    if *left == 0 {
        *left = *most;
        return false;
    }
    *left -= 1;
    true
}

impl Script for Late {
    fn program(&mut self, below: Below, at: Ppa, count: u32, data: &[u8], tags: &[u8]) -> Moved {
        if self.geometry.chunk_index(at) == 1 && waits(&mut self.program) {
            return Moved::Pending;
        }
        below.program(at, count, data, tags)
    }

    fn barrier(&mut self, _below: Below) -> Moved {
        if waits(&mut self.barrier) { Moved::Pending } else { Moved::Done }
    }

    fn is_cached(&self, _below: &dyn PowerCut) -> bool {
        true
    }
}

/// A drive with four written blocks in chunk 0, and the time.
fn drive(barrier: u32, program: u32) -> (Device<ScriptedMedium>, Time) {
    let geometry = geometry(1, 2, 1);
    let late = Late { geometry, barrier: (barrier, barrier), program: (program, program) };
    let late = ScriptedMedium::ram(&geometry, 0, late);
    let timing = Timing { program: vec![200_000], read: vec![50_000], ..Timing::default() };
    let mut drive = Device::new(&geometry, &timing, late).unwrap();
    let mut end = Time::ZERO;
    submit(&mut drive, end, 0, VectorOp::Write, Ppa(0), 2);
    submit(&mut drive, end, 1, VectorOp::Write, Ppa(2), 2);
    while let Some(at) = drive.next_event() {
        let mut done = Ring::new(8);
        drive.advance(at, &mut done);
        end = at;
    }
    (drive, end)
}

fn submit(
    drive: &mut Device<ScriptedMedium>,
    now: Time,
    id: u64,
    op: VectorOp,
    ppa: Ppa,
    count: u8,
) {
    let mut cmds = Ring::new(1);
    cmds.put(|| cmd(id, op, ppa, count));
    drive.submit(now, &mut cmds);
    assert!(cmds.is_empty());
}

/// Advances from event to event until `n` completed; gives numbers and times,
/// and how many events there were.
fn run(drive: &mut Device<ScriptedMedium>, n: usize) -> (Vec<(u64, Time)>, u32) {
    let (mut all, mut events) = (Vec::new(), 0);
    let mut done = Ring::new(8);
    while all.len() < n {
        let at = drive.next_event().expect("something is inside");
        drive.advance(at, &mut done);
        for one in done.drain() {
            assert_eq!((one.status, one.at), (Status::SUCCESS, at));
            all.push((one.cookie, one.at));
        }
        events += 1;
    }
    (all, events)
}

#[test]
fn off_the_clock_a_flush_takes_no_time() {
    for barrier in [0, 1, 100] {
        let (mut drive, now) = drive(barrier, 0);
        submit(&mut drive, now, 7, VectorOp::Flush, Ppa(0), 0);
        submit(&mut drive, now, 8, VectorOp::Read, Ppa(1), 1);
        let (all, _) = run(&mut drive, 2);
        assert_eq!(all, [(7, now), (8, now + 50_000)], "{barrier}");
    }
}

#[test]
fn on_a_clock_reads_pass_a_flush_that_waits() {
    let (mut drive, now) = drive(40, 0);
    drive.set_on_a_clock(true);
    submit(&mut drive, now, 7, VectorOp::Flush, Ppa(0), 0);
    for id in 0..4 {
        submit(&mut drive, now, id, VectorOp::Read, Ppa(id), 1);
    }
    let (all, events) = run(&mut drive, 5);
    let ids: Vec<u64> = all.iter().map(|one| one.0).collect();
    assert_eq!(ids, [0, 1, 2, 3, 7]);
    assert_eq!(all[3].1, now + 200_000, "the flush takes nothing of the reads' time");
    // It was asked 40 times more, at two of the reads' ends among them.
    assert_eq!(events, 40 + 4 - 2);
    let took = all[4].1.since(now);
    assert!((40 * 100_000..=41 * 2_000_000).contains(&took), "{took}");
}

#[test]
fn on_a_clock_other_units_pass_a_program_that_waits() {
    let (mut drive, now) = drive(0, 10);
    drive.set_on_a_clock(true);
    // Chunk 1 is on the first unit, the last chunk on the second one.
    let geometry = geometry(1, 2, 1);
    let (late, other) = (geometry.chunk_start(1), geometry.ppa(0, 1, 0, 0));
    submit(&mut drive, now, 1, VectorOp::Write, late, 2);
    submit(&mut drive, now, 2, VectorOp::Write, other, 2);
    submit(&mut drive, now, 3, VectorOp::Read, Ppa(0), 1);
    let (all, _) = run(&mut drive, 3);
    let programmed = now + 200_000 + 10 * 100_000;
    assert_eq!(all, [(2, now + 200_000), (1, programmed), (3, programmed + 50_000)]);
}

/// Has a barrier done when that is said.
struct Told(Arc<AtomicBool>);

impl Script for Told {
    fn barrier(&mut self, _below: Below) -> Moved {
        if self.0.load(Ordering::Relaxed) { Moved::Done } else { Moved::Pending }
    }

    fn is_cached(&self, _below: &dyn PowerCut) -> bool {
        true
    }

    fn has_news(&self, _below: &dyn PowerCut) -> Option<bool> {
        Some(self.0.load(Ordering::Relaxed))
    }
}

/// A medium that says when it is done is looked at then, and hardly ever before; and
/// time does not go back by that.
#[test]
fn on_a_clock_a_flush_ends_when_the_medium_says_so() {
    let (geometry, is_done) = (geometry(1, 2, 1), Arc::new(AtomicBool::new(false)));
    let medium = ScriptedMedium::ram(&geometry, 0, Told(Arc::clone(&is_done)));
    let timing = Timing { program: vec![200_000], read: vec![50_000], ..Timing::default() };
    let mut device = Device::new(&geometry, &timing, medium).unwrap();
    device.set_on_a_clock(true);
    let mut real = RealTime::new(device);
    let (start, mut cmds, mut done) = (real.now(), Ring::new(4), Ring::new(4));
    cmds.put(|| cmd(7, VectorOp::Flush, Ppa(0), 0));
    let start = real.submit(start, &mut cmds);
    real.poll(start + 100_000, &mut done);
    assert!(done.is_empty() && real.next_event() == Some(start + 2_000_000));
    // The latest time that it was given, which is not when the flush came.
    cmds.put(|| cmd(8, VectorOp::Write, Ppa(0), 2));
    real.submit(start + 300_000, &mut cmds);
    is_done.store(true, Ordering::Relaxed);
    assert!(real.next_event().is_some_and(|at| at <= start + 300_000));
    real.poll(start + 300_001, &mut done);
    let ended = done.pop().expect("the flush has ended");
    assert_eq!((ended.cookie, ended.status, ended.at), (7, Status::SUCCESS, start + 300_000));
    assert_eq!(real.next_event(), Some(start + 500_000));
}

/// Behind a link, too.
#[test]
fn on_a_clock_a_flush_behind_a_link_ends_when_the_medium_says_so() {
    let (geometry, is_done) = (geometry(1, 2, 1), Arc::new(AtomicBool::new(false)));
    let medium = ScriptedMedium::ram(&geometry, 0, Told(Arc::clone(&is_done)));
    let mut device = Device::new(&geometry, &Timing::default(), medium).unwrap();
    device.set_on_a_clock(true);
    let timing = LinkTiming { latency: 1_000, ..LinkTiming::default() };
    let mut real = RealTime::new(Link::new(timing, device));
    let (start, mut cmds, mut done) = (real.now(), Ring::new(4), Ring::new(4));
    cmds.put(|| cmd(7, VectorOp::Flush, Ppa(0), 0));
    let start = real.submit(start, &mut cmds);
    real.poll(start + 100_000, &mut done);
    assert!(real.next_event().is_some_and(|at| at > start + 1_000_000));
    is_done.store(true, Ordering::Relaxed);
    assert!(real.next_event().is_some_and(|at| at <= start + 100_000));
    real.poll(start + 100_001, &mut done);
    real.poll(start + 102_000, &mut done);
    let ended = done.pop().expect("the flush has ended");
    assert_eq!((ended.cookie, ended.status), (7, Status::SUCCESS));
}

proptest! {
    /// Completions keep their order in time, flushes theirs, and each command
    /// comes back once, whatever the medium says and whenever commands come.
    #[test]
    fn time_never_goes_back(
        barrier in 0u32..30,
        commands in proptest::collection::vec((0u64..300_000, 0u8..3), 1..40),
    ) {
        let (mut drive, start) = drive(barrier, 0);
        drive.set_on_a_clock(true);
        let (mut now, mut all, mut done) = (start, Vec::new(), Ring::new(64));
        for (id, &(gap, kind)) in commands.iter().enumerate() {
            now += gap;
            while let Some(at) = drive.next_event().filter(|&at| at <= now) {
                drive.advance(at, &mut done);
                all.extend(done.drain().map(|one| (one.cookie, one.at)));
            }
            let op = if kind == 0 { VectorOp::Flush } else { VectorOp::Read };
            submit(&mut drive, now, id as u64, op, Ppa(0), u8::from(kind > 0));
        }
        while let Some(at) = drive.next_event() {
            drive.advance(at, &mut done);
            all.extend(done.drain().map(|one| (one.cookie, one.at)));
        }
        prop_assert!(all.windows(2).all(|w| w[0].1 <= w[1].1), "{all:?}");
        let is_flush = |id: &u64| commands[*id as usize].1 == 0;
        let flushes: Vec<u64> = all.iter().map(|one| one.0).filter(is_flush).collect();
        prop_assert!(flushes.is_sorted(), "{flushes:?}");
        let mut ids: Vec<u64> = all.iter().map(|one| one.0).collect();
        ids.sort_unstable();
        prop_assert_eq!(ids, (0..commands.len() as u64).collect::<Vec<_>>());
    }
}

/// Says no to reads of one block.
struct Unreadable(Ppa);

impl Script for Unreadable {
    fn read(
        &mut self,
        below: Below,
        at: Ppa,
        count: u32,
        data: &mut [u8],
        tags: &mut [u8],
    ) -> Moved {
        if at == self.0 { Moved::Failed } else { below.read(at, count, data, tags) }
    }
}

/// A medium in memory need not be asked for nothing; any other is.
#[test]
fn reads_that_give_nothing_are_asked_for_where_they_may_fail() {
    let geometry = geometry(1, 1, 1);
    let medium = ScriptedMedium::ram(&geometry, 0, Unreadable(Ppa(1)));
    let timing = Timing { program: vec![200_000], read: vec![50_000], ..Timing::default() };
    let mut drive = Device::new(&geometry, &timing, medium).unwrap();
    let mut done = Ring::new(8);
    let mut statuses = Vec::new();
    submit(&mut drive, Time::ZERO, 0, VectorOp::Write, Ppa(0), 2);
    for (id, at, ppa) in [(1, 1_000_000, 0), (2, 2_000_000, 1)] {
        while let Some(event) = drive.next_event() {
            drive.advance(event, &mut done);
        }
        submit(&mut drive, Time(at), id, VectorOp::Read, Ppa(ppa), 1);
    }
    while let Some(event) = drive.next_event() {
        drive.advance(event, &mut done);
    }
    statuses.extend(done.drain().map(|done| done.status));
    assert_eq!(statuses, [Status::SUCCESS, Status::SUCCESS, Status::UNRECOVERED_READ]);
}
