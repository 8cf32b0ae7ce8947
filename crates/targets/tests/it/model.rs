//! pblk against a plain model: a map from address to content.
//!
//! Random requests of all kinds, overlapping in time, whole blocks and parts.
//! A read must give, for each sector, a value that the rules allow: the newest
//! write that had completed before the read was submitted, or any write that
//! overlapped it.

use crate::openings::limited;
use device::Device;
use faults::{ScriptedMedium, Slow};
use flash::{Dimensions, Geometry, Timing};
use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Status, Time};
use proptest::prelude::*;
use targets::{Pblk, PblkConfig, Victim, with_reserve};

type Drive = Pblk<Device<ScriptedMedium>>;

const BLOCK: u64 = 4096;

/// Chunks of each parallel unit that hold data.
const DATA_CHUNKS: u32 = 8;

fn dimensions(groups: u32, pus: u32, planes: u32, page_bytes: u32) -> Dimensions {
    with_reserve(Dimensions {
        groups,
        pus,
        chunks: DATA_CHUNKS,
        pages: 4,
        planes,
        page_bytes,
        pages_at_once: 1,
    })
}

fn timing(instant: bool, suspend: bool) -> Timing {
    if instant {
        return Timing::default();
    }
    Timing {
        read: vec![50_000, 70_000],
        program: vec![600_000],
        erase: 3_000_000,
        command: 100,
        channel_rate: 400_000_000,
        suspend,
        suspend_time: 5_000,
        resume_time: 5_000,
        suspend_limit: 4,
        ..Timing::default()
    }
}

fn drive(dim: Dimensions, timing: &Timing, kept: u32, victim: Victim, slow: u64) -> Drive {
    let geometry = Geometry::new(dim).unwrap();
    let script = Slow::new(slow, slow);
    let medium = ScriptedMedium::ram(&geometry, kept, script);
    let device = Device::new(&geometry, timing, medium).unwrap();
    let data_chunks = DATA_CHUNKS;
    let blocks = u64::from(data_chunks * geometry.chunk_blocks() * geometry.total_pus());
    let bytes = blocks * 3 / 4 * BLOCK;
    Pblk::new(device, PblkConfig { victim, ..PblkConfig::new(bytes, data_chunks, 7) }).unwrap()
}

/// One write of a sector: its value and when it began and ended, counted in
/// submissions and completions.
#[derive(Clone, Copy)]
struct Write {
    value: u64,
    begin: u64,
    end: u64,
}

struct Model {
    clock: u64,
    sectors: Vec<Vec<Write>>,
}

impl Model {
    fn new(sectors: usize) -> Model {
        let zero = Write { value: 0, begin: 0, end: 0 };
        Model { clock: 1, sectors: vec![vec![zero]; sectors] }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn begin(&mut self, first: usize, count: usize, value: u64) -> u64 {
        let begin = self.tick();
        let write = Write { value, begin, end: u64::MAX };
        self.sectors[first..first + count].iter_mut().for_each(|s| s.push(write));
        begin
    }

    fn end(&mut self, first: usize, count: usize, begin: u64) {
        let end = self.tick();
        for sector in &mut self.sectors[first..first + count] {
            let write = sector.iter_mut().find(|w| w.begin == begin).expect("it began");
            write.end = end;
        }
    }

    /// Whether a read that was submitted at `from` and has just completed may
    /// have seen `value`: some write of it had begun, and no other write lies
    /// wholly between that write's end and the read.
    fn allows(&self, sector: usize, value: u64, from: u64) -> bool {
        let writes = &self.sectors[sector];
        writes
            .iter()
            .filter(|w| w.value == value)
            .any(|w| !writes.iter().any(|other| other.begin > w.end && other.end < from))
    }
}

#[derive(Clone, Debug)]
struct Step {
    op: BlockOp,
    at: u64,
    len: u64,
    fua: bool,
    pause: u64,
}

fn step() -> impl Strategy<Value = Step> {
    let op = prop_oneof![
        6 => Just(BlockOp::Write),
        4 => Just(BlockOp::Read),
        1 => Just(BlockOp::Trim),
        1 => Just(BlockOp::WriteZeroes),
        1 => Just(BlockOp::Flush),
    ];
    let len = prop_oneof![4 => Just(8u64), 2 => 1u64..20, 1 => 1u64..80];
    let pause = prop_oneof![4 => Just(0u64), 1 => 0u64..100_000, 1 => 0u64..20_000_000];
    (op, any::<u64>(), len, prop::bool::weighted(0.05), pause)
        .prop_map(|(op, at, len, fua, pause)| Step { op, at, len, fua, pause })
}

struct Run {
    drive: Drive,
    now: Time,
    model: Model,
    done: Ring<BlockDone>,
    queue: Ring<BlockReq>,
    /// By id: operation, first sector, count, and when it was submitted.
    open: Vec<Option<(BlockOp, usize, usize, u64)>>,
    reads_seen: u64,
    /// Requests without a pause are submitted before what has completed is
    /// taken.
    rush: bool,
    /// Whether writes may be refused because the drive is worn out, and how
    /// many were.
    refusable: bool,
    refused: u64,
}

impl Run {
    fn new(drive: Drive) -> Run {
        let sectors = (drive.shape().bytes / 512) as usize;
        Run {
            drive,
            now: Time::ZERO,
            model: Model::new(sectors),
            done: Ring::new(2048),
            queue: Ring::new(2048),
            open: Vec::new(),
            reads_seen: 0,
            rush: false,
            refusable: false,
            refused: 0,
        }
    }

    fn run_to(&mut self, to: Time) {
        while let Some(at) = self.drive.next_event() {
            if at > to {
                break;
            }
            assert!(at >= self.now || at == self.now, "time does not go back");
            self.now = self.now.max(at);
            self.drive.advance(at, &mut self.done);
            self.reap();
            self.drive.submit(self.now, &mut self.queue);
        }
        self.now = self.now.max(to);
    }

    fn reap(&mut self) {
        while let Some(done) = self.done.pop() {
            let (op, first, count, begin) =
                self.open[done.id as usize].take().expect("completes once");
            if self.refusable && done.status == Status::READ_ONLY {
                // It may have been written or not: it stays in flight.
                self.refused += 1;
                continue;
            }
            assert_eq!(done.status, Status::SUCCESS);
            assert_eq!(done.op, op);
            match op {
                BlockOp::Read => self.check(first, begin, done.buffer.bytes()),
                BlockOp::Flush => {}
                _ => self.model.end(first, count, begin),
            }
        }
    }

    fn check(&mut self, first: usize, begin: u64, bytes: &[u8]) {
        for (i, sector) in bytes.chunks(512).enumerate() {
            let value = u64::from_le_bytes(sector[..8].try_into().unwrap());
            for word in sector.chunks(8) {
                assert_eq!(u64::from_le_bytes(word.try_into().unwrap()), value, "torn");
            }
            assert!(self.model.allows(first + i, value, begin), "sector {} has {value}", first + i);
            self.reads_seen += 1;
        }
    }

    fn submit(&mut self, step: &Step) {
        if step.pause > 0 || !self.rush {
            self.run_to(self.now + step.pause);
        }
        let total = self.model.sectors.len() as u64;
        let mut first = step.at % total;
        if step.len == 8 {
            first -= first % 8;
        }
        let count = step.len.min(total - first);
        let id = self.open.len() as u64;
        let value = match step.op {
            BlockOp::Write => id + 1,
            _ => 0,
        };
        let data = matches!(step.op, BlockOp::Read | BlockOp::Write);
        let mut buffer =
            if data { Buffer::zeroed(count as usize * 512).unwrap() } else { Buffer::empty() };
        if step.op == BlockOp::Write {
            buffer.bytes_mut().chunks_mut(8).for_each(|w| w.copy_from_slice(&value.to_le_bytes()));
        }
        let flush = step.op == BlockOp::Flush;
        let (offset, len) = if flush { (0, 0) } else { (first * 512, count * 512) };
        // A trim of part of a block may leave that part; only whole blocks
        // are zeros for sure. Trims are made whole here.
        let trim = step.op == BlockOp::Trim;
        let (offset, len) = if trim {
            (offset / BLOCK * BLOCK, len.next_multiple_of(BLOCK))
        } else {
            (offset, len)
        };
        let len = len.min(self.drive.shape().bytes - offset);
        let (first, count) = ((offset / 512) as usize, (len / 512) as usize);
        let begin = if flush || step.op == BlockOp::Read {
            self.model.tick()
        } else {
            self.model.begin(first, count, value)
        };
        self.open.push(Some((step.op, first, count, begin)));
        let req = BlockReq { fua: step.fua, ..BlockReq::new(id, step.op, offset, len, buffer) };
        self.queue.push(req).unwrap();
        self.drive.submit(self.now, &mut self.queue);
    }

    fn settle(&mut self) {
        while self.open.iter().any(Option::is_some) {
            let at = self.drive.next_event().expect("something is still to happen");
            self.run_to(at);
        }
        assert!(self.queue.is_empty());
    }

    fn read_all(&mut self) {
        for first in (0..self.model.sectors.len()).step_by(8) {
            let buffer = Buffer::zeroed(4096).unwrap();
            let id = self.open.len() as u64;
            let begin = self.model.tick();
            self.open.push(Some((BlockOp::Read, first, 8, begin)));
            let req = BlockReq::new(id, BlockOp::Read, first as u64 * 512, 4096, buffer);
            self.queue.push(req).unwrap();
            self.drive.submit(self.now, &mut self.queue);
            self.settle();
        }
    }
}

fn victims() -> impl Strategy<Value = Victim> {
    prop_oneof![
        Just(Victim::Greedy),
        Just(Victim::Fifo),
        Just(Victim::Random),
        Just(Victim::DChoices(3)),
        Just(Victim::CostBenefit)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn reads_see_what_they_may(
        steps in prop::collection::vec(step(), 1..1200),
        shape in (1u32..3, 1u32..3, 1u32..4, 0u32..2),
        at_once in prop_oneof![2 => Just(1u32), 1 => 2u32..5],
        victim in victims(),
        instant in prop::bool::weighted(0.4),
        slow in prop_oneof![Just(0u64), 1u64..4],
        suspend in any::<bool>(),
        rush in any::<bool>(),
        unreadable in prop_oneof![2 => Just(0u32), 1 => Just(8u32), 1 => 1u32..96],
        open in prop::option::of((0u32..3, 0u32..2)),
    ) {
        let dim = dimensions(shape.0, shape.1, shape.2, 4096 << shape.3);
        let (chunks, pages) = (DATA_CHUNKS, 4 * at_once);
        let dim = with_reserve(Dimensions { chunks, pages, pages_at_once: at_once, ..dim });
        let unreadable = unreadable.min(dim.chunk_blocks() as u32 - 1);
        let mut timing = Timing { unreadable, ..timing(instant, suspend) };
        if let Some(more) = open {
            timing = limited(timing, &Geometry::new(dim).unwrap(), 1, more);
        }
        let mut run = Run::new(drive(dim, &timing, 4096, victim, slow));
        run.rush = rush;
        for step in &steps {
            run.submit(step);
        }
        run.settle();
        run.read_all();
        prop_assert!(run.reads_seen > 0);
    }
}

/// Overwrites a full drive many times: collection must keep up, the counts
/// must add up, and every block must be there at the end.
fn overwrite(
    victim: Victim,
    times: u64,
    (instant, slow, unreadable): (bool, u64, u32),
) -> targets::WriteCounters {
    let timing = Timing { unreadable, ..timing(instant, true) };
    let mut run = Run::new(drive(dimensions(2, 2, 2, 4096), &timing, 4096, victim, slow));
    let blocks = run.drive.shape().bytes / BLOCK;
    let mut x = 1u64;
    for i in 0..blocks * times {
        x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let block = if i < blocks { i } else { (x >> 33) % blocks };
        let step = Step { op: BlockOp::Write, at: block * 8, len: 8, fua: false, pause: 0 };
        run.submit(&step);
        while run.open.iter().rev().take(64).filter(|o| o.is_some()).count() > 32 {
            let at = run.drive.next_event().expect("no stall");
            run.run_to(at);
        }
    }
    run.settle();
    run.read_all();
    run.drive.counters()
}

#[test]
fn collection_keeps_up_with_every_policy() {
    for victim in
        [Victim::Greedy, Victim::Fifo, Victim::Random, Victim::DChoices(4), Victim::CostBenefit]
    {
        for drive in [(false, 0, 0), (true, 0, 0), (true, 2, 0), (false, 0, 5), (true, 2, 7)] {
            let c = overwrite(victim, 12, drive);
            assert!(c.collections > 50, "{victim:?}: {c:?}");
            assert!(c.gc > 0 && c.erases > 50, "{victim:?}: {c:?}");
            assert!(c.erases <= c.collections);
        }
    }
}

/// Writes until the drive is worn out: it turns read-only, no write stays
/// behind, and all data can still be read.
#[test]
fn a_worn_out_drive_is_read_only() {
    let worn = Timing { endurance: 6, ..timing(false, false) };
    let at_once = Timing { endurance: 6, ..timing(true, false) };
    for (victim, worn) in
        [(Victim::Greedy, &worn), (Victim::Random, &worn), (Victim::Greedy, &at_once)]
    {
        let mut run = Run::new(drive(dimensions(2, 2, 1, 4096), worn, 4096, victim, 0));
        let blocks = run.drive.shape().bytes / BLOCK;
        let mut refused = 0;
        let mut x = 1u64;
        for i in 0..blocks * 40 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let block = (x >> 33) % blocks;
            let step =
                Step { op: BlockOp::Write, at: block * 8, len: 8, fua: i % 97 == 0, pause: 0 };
            run.refusable = true;
            run.submit(&step);
            run.settle();
            refused = run.refused;
            if refused > 20 {
                break;
            }
        }
        assert!(refused > 20, "{victim:?}: the drive did not wear out");
        run.read_all();
    }
}

/// Parts of blocks that wait behind a write for which the buffer has no room:
/// more of them than may be read at a time, and reads of parts among them.
#[test]
fn many_parts_wait_behind_one_write() {
    for instant in [false, true] {
        let timing = timing(instant, false);
        let slow = if instant { 3 } else { 0 };
        let mut run =
            Run::new(drive(dimensions(2, 2, 1, 4096), &timing, 4096, Victim::Greedy, slow));
        run.rush = true;
        let blocks = run.drive.shape().bytes / BLOCK;
        let step = |op, at, len| Step { op, at, len, fua: false, pause: 0 };
        for block in 0..blocks {
            run.submit(&step(BlockOp::Write, block * 8, 8));
        }
        run.settle();
        // More whole blocks than the buffer takes, then parts.
        let whole = 40;
        for block in 0..whole {
            run.submit(&step(BlockOp::Write, block * 8, 8));
        }
        for i in 0..900 {
            let op = if i % 7 == 3 { BlockOp::Read } else { BlockOp::Write };
            let sector = (whole + i % (blocks - whole - 1)) * 8 + i % 8;
            run.submit(&step(op, sector, 1 + i % 9));
        }
        run.settle();
        run.read_all();
    }
}
