//! What readers found.

use device::{Device, OpenChannel, VectorCmd, VectorDone, VectorOp};
use flash::{ChunkState, Geometry, Medium, Moved, Ppa, RamMedium, Timing};
use ftl::{Over, Start, Target};
use port::{BlockOp, Port, Ring, Status, Time};

use super::control::{request, run};
use super::sets::block_drive;
use super::{checked, small};
use crate::{Ruled, RuledConfig, RuledError};

fn config(bytes: u64, set: &str) -> RuledConfig {
    RuledConfig {
        bytes,
        rules: checked(&format!("set a {set}")),
        control: None,
        remotes: Vec::new(),
    }
}

/// A drive of which operations fail from some time on.
struct Fails<D> {
    below: D,
    op: VectorOp,
    is_on: bool,
    /// Erases that it was asked for meanwhile.
    erases: u32,
}

impl<D: OpenChannel> Port for Fails<D> {
    type Cmd = VectorCmd;
    type Done = VectorDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<VectorCmd>) {
        let resets = (0..cmds.len()).filter(|&n| cmds.get(n).unwrap().op == VectorOp::Reset);
        self.erases += if self.is_on { resets.count() as u32 } else { 0 };
        self.below.submit(now, cmds);
    }

    fn next_event(&self) -> Option<Time> {
        self.below.next_event()
    }

    fn advance(&mut self, to: Time, done: &mut Ring<VectorDone>) {
        let before = done.len();
        self.below.advance(to, done);
        // What came is told to have failed: rows by their cookies' kind, which is the second.
        let mut all = Ring::new(done.len().max(1));
        for n in 0..done.len() {
            let mut one = done.pop().unwrap();
            let kind = one.cookie >> ftl::cookie::NUMBER_BITS;
            let fails = match self.op {
                VectorOp::Write => kind == 1,
                _ => kind == 2,
            };
            if n >= before && self.is_on && fails {
                one.status = Status::WRITE_FAULT;
            }
            all.put(|| one);
        }
        all.pour(done);
    }
}

impl<D: OpenChannel> OpenChannel for Fails<D> {
    fn geometry(&self) -> &Geometry {
        self.below.geometry()
    }
    fn timing(&self) -> &Timing {
        self.below.timing()
    }
    fn kept(&self) -> u32 {
        self.below.kept()
    }
    fn chunk(&self, chunk_index: usize) -> flash::Chunk {
        self.below.chunk(chunk_index)
    }
    fn depth(&self) -> usize {
        self.below.depth()
    }
    fn is_cached(&self) -> bool {
        self.below.is_cached()
    }
}

/// Where a program fails, or a read of what is to be moved, nothing is erased any more, writes
/// and flushes fail, and reads go on.
#[test]
fn nothing_is_erased_when_something_failed() {
    for op in [VectorOp::Write, VectorOp::Read] {
        let (device, small) = small("ref");
        let blocks = small.bytes / 4096;
        let below = Fails { below: device, op, is_on: false, erases: 0 };
        let rules = block_drive(blocks, 8, true);
        let config = RuledConfig { bytes: small.bytes, rules, control: None, remotes: Vec::new() };
        let mut drive = Ruled::new(below, &config).unwrap();
        let mut now = Time::ZERO;
        let mut go = |drive: &mut Ruled<_>, op, lba| {
            let (mut reqs, mut done) = (Ring::new(1), Ring::new(1));
            reqs.put(|| request(0, op, lba, 1));
            drive.submit(now, &mut reqs);
            while done.is_empty() {
                now = now.max(drive.next_event().expect("it ends"));
                drive.advance(now, &mut done);
            }
            done.pop().unwrap().status
        };
        let mut random = port::random::Random::new(1, 1);
        for n in 0..2 * blocks {
            let lba = if n < blocks { n } else { random.below(blocks) };
            assert!(go(&mut drive, BlockOp::Write, lba).is_ok());
        }
        // In the midst of collection.
        while drive.space.collected == 0 {
            go(&mut drive, BlockOp::Write, random.below(blocks));
        }
        drive.below_mut().is_on = true;
        let erases = drive.below().erases;
        let mut writes = 0;
        while go(&mut drive, BlockOp::Write, random.below(blocks)).is_ok() {
            writes += 1;
            assert!(writes < 100_000);
        }
        assert!(drive.is_read_only());
        let after = drive.below().erases;
        for lba in 0..200 {
            assert!(go(&mut drive, BlockOp::Read, lba).is_ok());
            assert!(!go(&mut drive, BlockOp::Write, lba).is_ok());
            assert!(!go(&mut drive, BlockOp::Trim, lba).is_ok());
        }
        assert!(!go(&mut drive, BlockOp::Flush, 0).is_ok());
        assert_eq!(drive.below().erases, after, "{op:?}, {erases} before");
    }
}

/// A medium of which one program fails.
struct FailsOnce {
    below: RamMedium,
    programs: u32,
}

impl Medium for FailsOnce {
    fn kept(&self) -> u32 {
        self.below.kept()
    }
    fn program(&mut self, at: Ppa, count: u32, data: &[u8], tags: &[u8]) -> Moved {
        self.programs += 1;
        if self.programs == 200 {
            return Moved::Failed;
        }
        self.below.program(at, count, data, tags)
    }
    fn read(&mut self, at: Ppa, count: u32, data: &mut [u8], tags: &mut [u8]) -> Moved {
        self.below.read(at, count, data, tags)
    }
    fn reset(&mut self, chunk: Ppa) -> Moved {
        self.below.reset(chunk)
    }
    fn barrier(&mut self) -> Moved {
        self.below.barrier()
    }
}

/// A program that fails makes a drive read-only until its next start: then it takes writes, and
/// what was flushed is there.
#[test]
fn it_starts_after_a_program_failed() {
    let (sound, small) = small("null");
    let (geometry, timing) = (*sound.geometry(), sound.timing().clone());
    let below = RamMedium::new(&geometry, sound.kept()).unwrap();
    let device = Device::new(&geometry, &timing, FailsOnce { below, programs: 0 }).unwrap();
    let blocks = small.bytes / 4096;
    let rules = block_drive(blocks, 8, true);
    let config = RuledConfig { bytes: small.bytes, rules, control: None, remotes: Vec::new() };
    let mut drive = Ruled::new(device, &config).unwrap();
    let write = |drive: &mut Ruled<_>, lba| {
        let done = run(drive, vec![request(0, BlockOp::Write, lba, 1)]);
        done[0].status.is_ok()
    };
    assert!((0..50).all(|lba| write(&mut drive, lba)));
    assert!(run(&mut drive, vec![request(0, BlockOp::Flush, 0, 0)])[0].status.is_ok());
    let led: Vec<_> = (0..50).map(|lba| drive.leads(blocks + lba)).collect();
    let taken = (50..blocks).take_while(|&lba| write(&mut drive, lba)).count() as u64;
    assert!(drive.is_read_only() && taken < blocks - 50);
    let below = Box::new(drive).into_below();
    let failed = ftl::all_chunks(&geometry).filter(|&chunk| below.chunk(chunk).has_failed());
    let failed: Vec<_> = failed.collect();
    assert_eq!(failed.len(), 1);
    let (mut drive, _) = Ruled::recover(below, &config, Time::ZERO).unwrap();
    assert_eq!((0..50).map(|lba| drive.leads(blocks + lba)).collect::<Vec<_>>(), led);
    assert!((0..2 * blocks).all(|n| write(&mut drive, n % blocks)));
    assert!(run(&mut drive, vec![request(0, BlockOp::Flush, 0, 0)])[0].status.is_ok());
    // The chunk was collected by then, and is used no more.
    assert_eq!((drive.below().chunk(failed[0]).state, drive.counters().retired), (OFFLINE, 1));
    let below = Box::new(drive).into_below();
    let (mut drive, _) = Ruled::recover(below, &config, Time::ZERO).unwrap();
    assert!((0..2 * blocks).all(|n| write(&mut drive, n % blocks)));
    assert_eq!(drive.below().chunk(failed[0]).state, OFFLINE);
}

const OFFLINE: ChunkState = ChunkState::Offline;

/// Whose a block is follows from the set that decides it, also where another has fewer
/// applications, or other numbers, or blocks of two.
#[test]
fn applications_may_change() {
    let (device, small) = small("null");
    let rest = "rule all priority 0 when op != idle then pass";
    let two = "application 0 lba 0..10 units 0..8 application 1 lba 10..20 units 0..8";
    let mut drive = Ruled::new(device, &config(small.bytes, &format!("{two} {rest}"))).unwrap();
    let write =
        |drive: &mut Ruled<_>, lba| run(drive, vec![request(0, BlockOp::Write, lba, 1)])[0].status;
    assert!(write(&mut drive, 15).is_ok());
    let install = |drive: &mut Ruled<_>, set: &str| {
        drive.install(&checked(&format!("set b {set} {rest}"))).unwrap();
    };
    install(&mut drive, "application 0 lba 0..10 units 0..8");
    assert!(!write(&mut drive, 15).is_ok() && !write(&mut drive, 15).is_ok());
    assert!(write(&mut drive, 5).is_ok());
    install(&mut drive, "application 1 lba 0..10 units 0..8 application 0 lba 10..20 units 0..8");
    assert!(write(&mut drive, 5).is_ok() && write(&mut drive, 15).is_ok());
    // The set is changed while nobody asks.
    install(&mut drive, "application 0 lba 0..10 units 0..8");
    let mut done = Ring::new(1);
    while let Some(at) = drive.next_event() {
        drive.advance(at, &mut done);
    }
    assert_eq!(drive.rules().number(), 3);
}

/// Of blocks of two applications the first has them, whoever asked before.
#[test]
fn the_first_application_has_a_block() {
    let (device, small) = small("null");
    let set = "application 0 lba 0..10 units 0..8 application 1 lba 5..20 units 0..8
        rule no priority 1 when application == 1 and op == write and lba < 10 then refuse
        rule all priority 0 when op != idle then pass";
    let mut drive = Ruled::new(device, &config(small.bytes, set)).unwrap();
    for lba in [15, 7, 3, 7, 15, 6] {
        assert!(run(&mut drive, vec![request(0, BlockOp::Write, lba, 1)])[0].status.is_ok());
    }
}

/// What other maps wrote, or a drive of another size, is not taken for something else.
#[test]
fn a_start_with_other_maps_is_refused() {
    let set = |a: u64, b: u64| {
        format!(
            "application 0 lba 0..150 units 0..8
             map a[{a}] of address in 0..8 map n[7] of 0..9 map b[{b}] of address in 0..8
             rule a priority 0 when op == write and lba < {a} then place into a[lba]
             rule b priority 0 when op == write and lba >= {a} and lba < {} then place into b[lba - {a}]
             rule rest priority 0 when op == flush then pass",
            a + b
        )
    };
    let written = || {
        let (device, small) = small("null");
        let mut drive = Ruled::new(device, &config(small.bytes, &set(100, 50))).unwrap();
        let all: Vec<_> = (0..150).map(|n| request(n, BlockOp::Write, n, 1)).collect();
        assert!(run(&mut drive, all).iter().all(|done| done.status.is_ok()));
        assert!(run(&mut drive, vec![request(0, BlockOp::Flush, 0, 0)])[0].status.is_ok());
        (drive, small.bytes)
    };
    for (less, a, b) in [(0, 50, 100), (4096, 100, 50)] {
        let (drive, bytes) = written();
        let other = config(bytes - less, &set(a, b));
        let again = Ruled::recover(Box::new(drive).into_below(), &other, Time::ZERO);
        assert!(matches!(again, Err(RuledError::Written)));
    }
    let (drive, bytes) = written();
    let (first, same) = (drive.blocks.firsts[0], config(bytes, &set(100, 50)));
    let led: Vec<_> = (0..150).map(|n| drive.leads(first + n)).collect();
    let (again, _) = Ruled::recover(Box::new(drive).into_below(), &same, Time::ZERO).unwrap();
    assert_eq!((0..150).map(|n| again.leads(first + n)).collect::<Vec<_>>(), led);
}

/// What a rule gave up while nobody asked stays given up when the drive was shut down.
#[test]
fn what_idle_time_gave_up_stays_given_up() {
    let (device, small) = small("ref");
    let set = "application 0 lba 0..9 units 0..8 map m[9] of address in 0..8
        rule gone priority 0 when op == idle do m[3] = none
        rule write priority 0 when op == write then place into m[lba]
        rule flush priority 0 when op == flush then pass";
    let config = config(small.bytes, set);
    let mut drive = Ruled::new(device, &config).unwrap();
    let all = (0..9).map(|n| request(n, BlockOp::Write, n, 1)).collect();
    assert!(run(&mut drive, all).iter().all(|done| done.status.is_ok()));
    let (mut now, mut done) = (Time::ZERO, Ring::new(1));
    while let Some(at) = drive.next_event() {
        (now, ()) = (at, drive.advance(at, &mut done));
    }
    drive.close(now);
    while !drive.is_closed() {
        now = drive.next_event().unwrap();
        drive.advance(now, &mut done);
    }
    let first = drive.blocks.firsts[0];
    let (again, _) = Ruled::recover(Box::new(drive).into_below(), &config, now).unwrap();
    assert!((0..9).all(|n| again.leads(first + n).is_some() == (n != 3)));
}

/// A unit that is full fails writes and takes trims, each of which is a block itself, and
/// every request ends.
#[test]
fn a_full_unit_takes_trims() {
    let (device, small) = small("ref");
    let set = "application 0 lba 0..5000 units 0..8 map m[5000] of address in 0..8
        rule write priority 0 when op == write then place unit 0 into m[lba]
        rule trim priority 0 when op == trim do m[lba] = none then drop
        rule flush priority 0 when op == flush then pass";
    let mut drive = Ruled::new(device, &config(small.bytes, set)).unwrap();
    let mut now = 0;
    let mut go = |op, lba| {
        let done = super::limits::times_from(&mut drive, now, [request(0, op, lba, 1)].into_iter());
        now = done[0].at.0;
        done[0].status
    };
    let full = (0..5000).find(|&lba| !go(BlockOp::Write, lba).is_ok()).expect("it is full");
    let mut lbas: Vec<u64> = (0..full).collect();
    let mut random = port::random::Random::new(1, 1);
    (1..lbas.len()).for_each(|n| lbas.swap(n, random.below(n as u64 + 1) as usize));
    // One trim leaves nothing to win.
    assert!(go(BlockOp::Trim, lbas[0]).is_ok());
    go(BlockOp::Write, full);
    for &lba in &lbas[1..lbas.len() / 2] {
        assert!(go(BlockOp::Trim, lba).is_ok());
    }
    assert!(go(BlockOp::Flush, 0).is_ok());
    for &lba in &lbas[1..lbas.len() / 4] {
        let status = go(BlockOp::Write, lba);
        assert!(status.is_ok() || status == Status::CAPACITY_EXCEEDED, "{status}");
    }
}

/// Reads that one map serves take a short way, which gives and counts the same.
#[test]
fn plain_reads_are_counted() {
    let (device, small) = small("null");
    let with = |condition: &str| {
        format!(
            "application 0 lba 0..90 units 0..8 application 1 lba 90..99 units 0..8
             map m[99] of address in 0..8
             rule write priority 1 when op == write then place into m[lba]
             rule read priority 1 when op == read {condition} then serve m[lba]
             rule flush priority 1 when op == flush then pass"
        )
    };
    let mut drive = Ruled::new(device, &config(small.bytes, &with(""))).unwrap();
    let all = (0..9).map(|n| request(n, BlockOp::Write, 8 * n, 8)).collect();
    assert!(run(&mut drive, all).iter().all(|done| done.status.is_ok()));
    assert!(run(&mut drive, vec![request(0, BlockOp::Flush, 0, 0)])[0].status.is_ok());
    let read =
        |drive: &mut Ruled<_>, lba| run(drive, vec![request(0, BlockOp::Read, lba, 8)])[0].status;
    assert!((0..12).all(|n| read(&mut drive, 7 * n).is_ok()));
    // Of two applications, and of one and nobody.
    assert!(read(&mut drive, 87).is_ok() && !read(&mut drive, 95).is_ok());
    let hits = |drive: &Ruled<_>| drive.rules().rules().hits().of(1);
    assert_eq!(hits(&drive), 12 * 8 + 8 + 4);
    // The same when each block is decided.
    drive.install(&checked(&format!("set b {}", with("and free < 101")))).unwrap();
    assert!((0..12).all(|n| read(&mut drive, 7 * n).is_ok()));
    assert!(read(&mut drive, 87).is_ok() && !read(&mut drive, 95).is_ok());
    assert_eq!(hits(&drive), 2 * (12 * 8 + 8 + 4));
}
