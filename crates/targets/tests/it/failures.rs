//! Programs, reads and erases that fail, at random.
//!
//! A medium that fails rows when they are programmed, blocks for good when they
//! are read, and chunks when they are erased. Whatever fails, nothing hangs,
//! no block reads as anything but what was written, and what does not fail to
//! be read is there, also when the drive has come to its end.

use crate::openings::limited;
use std::collections::HashSet;

use device::{Device, OpenChannel};
use faults::{Below, Script, ScriptedMedium};
use flash::{Chunk, ChunkState, Dimensions, Geometry, Moved, Ppa, TAG_BYTES, Tag, Timing};
use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Status, Time};
use proptest::prelude::*;
use targets::{Pblk, PblkConfig, Victim, WriteCounters, with_reserve};

const BLOCK: u64 = 4096;

/// The logical block number of what pads a chunk to its end.
const END: u64 = u64::MAX - 1;

/// How often each fails, in a million.
#[derive(Clone, Copy, Debug, Default)]
struct Rates {
    /// A row that is programmed.
    program: u64,
    /// A block that was programmed can never be read.
    read: u64,
    /// A chunk that is erased.
    erase: u64,
}

struct Faulty {
    geometry: Geometry,
    rates: Rates,
    random: u64,
    /// Blocks that cannot be read.
    bad: HashSet<u64>,
    /// Chunks of which a program failed, to see that none is begun again.
    torn: HashSet<usize>,
    /// The same before the last restart, to see that nothing is written there but
    /// padding to its end.
    retired: HashSet<usize>,
}

impl Faulty {
    fn happens(&mut self, rate: u64) -> bool {
        self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(99);
        (self.random >> 33) % 1_000_000 < rate
    }
}

impl Script for Faulty {
    fn program(&mut self, below: Below, at: Ppa, count: u32, data: &[u8], tags: &[u8]) -> Moved {
        let chunk = self.geometry.chunk_index(at);
        assert!(
            !self.torn.contains(&chunk) || self.geometry.block(at) > 0,
            "a chunk that failed is never begun again"
        );
        let is_pad = Tag::load(&tags[..TAG_BYTES]).id == END;
        assert!(is_pad || !self.retired.contains(&chunk), "nor written after a restart");
        if self.happens(self.rates.program) {
            self.torn.insert(chunk);
            return Moved::Failed;
        }
        for block in at.0..at.0 + u64::from(count) {
            if self.happens(self.rates.read) {
                self.bad.insert(block);
            }
        }
        below.program(at, count, data, tags)
    }

    fn read(
        &mut self,
        below: Below,
        at: Ppa,
        count: u32,
        data: &mut [u8],
        tags: &mut [u8],
    ) -> Moved {
        let mut blocks = at.0..at.0 + u64::from(count);
        if !self.bad.is_empty() && blocks.any(|block| self.bad.contains(&block)) {
            data.fill(0xee);
            tags.fill(0xee);
            return Moved::Failed;
        }
        below.read(at, count, data, tags)
    }

    fn reset(&mut self, below: Below, chunk: Ppa) -> Moved {
        let index = self.geometry.chunk_index(chunk);
        self.bad.retain(|&block| self.geometry.chunk_index(Ppa(block)) != index);
        if self.happens(self.rates.erase) { Moved::Failed } else { below.reset(chunk) }
    }
}

/// Chunks of each parallel unit that hold data.
const DATA_CHUNKS: u32 = 8;

fn geometry(groups: u32, pus: u32, planes: u32) -> Geometry {
    let chunks = DATA_CHUNKS;
    let dim =
        Dimensions { groups, pus, chunks, pages: 6, planes, page_bytes: 8192, pages_at_once: 1 };
    Geometry::new(with_reserve(dim)).unwrap()
}

/// A drive on which the last `unreadable` blocks of an open chunk cannot be read yet.
fn timing(instant: bool, unreadable: u32) -> Timing {
    if instant {
        return Timing { unreadable, ..Timing::default() };
    }
    Timing {
        unreadable,
        read: vec![50_000, 70_000],
        program: vec![600_000],
        erase: 3_000_000,
        command: 100,
        channel_rate: 400_000_000,
        ..Timing::default()
    }
}

/// The same, with room for so many open chunks more than are needed.
fn limited_timing(
    geometry: &Geometry,
    (instant, unreadable): (bool, u32),
    open: Option<(u32, u32)>,
) -> Timing {
    let timing = timing(instant, unreadable);
    match open {
        Some(more) => limited(timing, geometry, 1, more),
        None => timing,
    }
}

type Drive = Pblk<Device<ScriptedMedium>>;

fn config(geometry: &Geometry, victim: Victim, fill: u64) -> PblkConfig {
    let data_chunks = DATA_CHUNKS;
    let blocks = u64::from(data_chunks * geometry.chunk_blocks() * geometry.total_pus());
    PblkConfig { victim, ..PblkConfig::new(blocks * fill / 100 * BLOCK, data_chunks, 7) }
}

fn medium(geometry: &Geometry, rates: Rates, seed: u64) -> ScriptedMedium {
    let (bad, torn, retired) = (HashSet::new(), HashSet::new(), HashSet::new());
    let script = Faulty { geometry: *geometry, rates, random: seed, bad, torn, retired };
    ScriptedMedium::ram(geometry, 8, script)
}

/// Work on a drive, a block at a time and no two requests for one block.
struct Run {
    drive: Drive,
    now: Time,
    queue: Ring<BlockReq>,
    done: Ring<BlockDone>,
    random: u64,
    /// By block: the values that it may have.
    allowed: Vec<Vec<u64>>,
    /// By block: whether a request for it is under way, and the new value.
    open: Vec<Option<u64>>,
    under_way: usize,
    /// Blocks may be lost.
    may_lose: bool,
    /// All writes and trims are durable when they complete.
    durable: bool,
    /// Events until power goes, if it does.
    left: Option<u64>,
    unread: u64,
    refused: u64,
    read: u64,
}

impl Run {
    fn new(drive: Drive, seed: u64, may_lose: bool) -> Run {
        let blocks = (drive.shape().bytes / BLOCK) as usize;
        Run {
            drive,
            now: Time::ZERO,
            queue: Ring::new(256),
            done: Ring::new(1024),
            random: seed,
            allowed: vec![vec![0]; blocks],
            open: vec![None; blocks],
            under_way: 0,
            may_lose,
            durable: false,
            left: None,
            unread: 0,
            refused: 0,
            read: 0,
        }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(1);
        (self.random >> 33) % n
    }

    fn begin(&mut self, op: BlockOp, block: usize, value: u64) {
        if op != BlockOp::Flush {
            if self.open[block].is_some() {
                return;
            }
            self.open[block] = Some(value);
        }
        let mut buffer = match op {
            BlockOp::Read | BlockOp::Write => Buffer::zeroed(8).unwrap(),
            _ => Buffer::empty(),
        };
        if op == BlockOp::Write {
            buffer.bytes_mut().copy_from_slice(&value.to_le_bytes());
        }
        let (offset, len) =
            if op == BlockOp::Flush { (0, 0) } else { (block as u64 * BLOCK, BLOCK) };
        let changes = matches!(op, BlockOp::Write | BlockOp::Trim);
        let fua = changes && (self.durable || op == BlockOp::Write && value.is_multiple_of(31));
        self.queue
            .push(BlockReq { fua, ..BlockReq::new(block as u64, op, offset, len, buffer) })
            .unwrap();
        self.under_way += 1;
        self.drive.submit(self.now, &mut self.queue);
    }

    fn step(&mut self) {
        if let Some(left) = &mut self.left {
            if *left == 0 {
                return;
            }
            *left -= 1;
        }
        let at = self.drive.next_event().expect("nothing hangs");
        self.now = self.now.max(at);
        self.drive.advance(self.now, &mut self.done);
        while let Some(done) = self.done.pop() {
            self.end(done);
        }
        self.drive.submit(self.now, &mut self.queue);
    }

    fn end(&mut self, done: BlockDone) {
        self.under_way -= 1;
        let block = done.id as usize;
        if done.op == BlockOp::Flush {
            assert!([Status::SUCCESS, Status::WRITE_FAULT].contains(&done.status));
            return;
        }
        let value = self.open[block].take().expect("it was begun");
        match (done.op, done.status) {
            (BlockOp::Read, Status::SUCCESS) => {
                let found = u64::from_le_bytes(done.buffer.bytes().try_into().unwrap());
                let allowed = &self.allowed[block];
                assert!(allowed.contains(&found), "block {block}: {found} of {allowed:?}");
                self.read += 1;
            }
            (BlockOp::Read, Status::UNRECOVERED_READ) if self.may_lose => self.unread += 1,
            (BlockOp::Write | BlockOp::Trim, Status::SUCCESS) => self.allowed[block] = vec![value],
            (BlockOp::Write | BlockOp::Trim, Status::READ_ONLY | Status::WRITE_FAULT) => {
                self.allowed[block].push(value);
                self.refused += 1;
            }
            (op, status) => panic!("{op:?} of {block}: {status}"),
        }
    }

    /// `count` requests, up to `depth` at once; ends early when the drive has
    /// refused some writes.
    fn work(&mut self, count: u64, depth: usize) {
        for i in 0..count {
            let block = self.below(self.open.len() as u64) as usize;
            let op = match self.below(20) {
                0 => BlockOp::Trim,
                1 | 2 => BlockOp::Read,
                3 if self.below(4) == 0 => BlockOp::Flush,
                _ => BlockOp::Write,
            };
            let value = if op == BlockOp::Trim { 0 } else { i + 1 };
            self.begin(op, block, value);
            while self.under_way >= depth && !self.is_cut() {
                self.step();
            }
            if self.is_cut() {
                return;
            }
            if self.refused > 20 {
                break;
            }
        }
        self.settle();
    }

    /// Whether power is gone.
    fn is_cut(&self) -> bool {
        self.left == Some(0)
    }

    /// Power went and comes back: what was under way may have happened.
    fn restart(self, geometry: &Geometry, timing: &Timing, rates: Rates) -> Run {
        let (config, seed) = (self.drive.config(), self.random);
        let device = self.drive.into_device();
        let chunks = device.chunks().to_vec();
        let mut medium = device.cut();
        let script = medium.script::<Faulty>();
        script.retired.clone_from(&script.torn);
        script.rates = rates;
        let device = Device::restore(geometry, timing, medium, &chunks).unwrap();
        let (drive, now) = Pblk::recover(device, config, Time::ZERO).unwrap();
        let mut run = Run {
            now,
            durable: true,
            allowed: self.allowed,
            ..Run::new(drive, seed, self.may_lose)
        };
        for (allowed, open) in run.allowed.iter_mut().zip(self.open) {
            allowed.extend(open);
        }
        run
    }

    /// All that is under way ends, or power goes.
    fn settle(&mut self) {
        while self.under_way > 0 && !self.is_cut() {
            self.step();
        }
    }

    fn read_all(&mut self) {
        for block in 0..self.open.len() {
            self.begin(BlockOp::Read, block, 0);
            self.settle();
        }
    }
}

fn victims() -> impl Strategy<Value = Victim> {
    prop_oneof![
        3 => Just(Victim::Greedy),
        1 => Just(Victim::Fifo),
        1 => Just(Victim::Random),
        1 => Just(Victim::DChoices(3))
    ]
}

fn live(
    shape: (u32, u32, u32),
    (instant, unreadable, open): (bool, u32, Option<(u32, u32)>),
    victim: Victim,
    rates: Rates,
    (fill, seed, depth, count): (u64, u64, usize, u64),
) -> (Run, WriteCounters) {
    let geometry = geometry(shape.0, shape.1, shape.2);
    let timing = limited_timing(&geometry, (instant, unreadable), open);
    let device = Device::new(&geometry, &timing, medium(&geometry, rates, seed)).unwrap();
    let drive = Pblk::new(device, config(&geometry, victim, fill)).unwrap();
    let mut run = Run::new(drive, seed, rates.read > 0);
    run.work(count, depth);
    run.read_all();
    let counters = run.drive.counters();
    (run, counters)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn whatever_fails_nothing_hangs_and_nothing_is_wrong(
        shape in (1u32..3, 1u32..3, 0u32..2),
        instant in any::<bool>(),
        victim in victims(),
        program in prop_oneof![Just(0u64), 1u64..3_000, 1_000u64..100_000, 400_000u64..900_000],
        read in prop_oneof![Just(0u64), 1u64..10_000],
        erase in prop_oneof![Just(0u64), 1u64..20_000],
        fill in 30u64..86,
        seed in any::<u64>(),
        depth in 1usize..120,
        unreadable in prop_oneof![2 => Just(0u32), 1 => Just(8), 1 => 1u32..12],
        open in prop::option::of((0u32..3, 0u32..2)),
    ) {
        let rates = Rates { program, read, erase };
        let shape = (shape.0, shape.1, 1 << shape.2);
        let drive = (instant, unreadable, open);
        let (run, counters) = live(shape, drive, victim, rates, (fill, seed, depth, 12_000));
        prop_assert!(run.read > 0 || run.refused > 0);
        prop_assert!(read > 0 || counters.lost == 0);
        prop_assert!(program > 0 || counters.retired == 0);
    }
}

/// Each way in which things fail is met, on drives with and without time.
#[test]
fn all_ways_are_met() {
    let mut ends = 0;
    for instant in [true, false] {
        let rates = Rates { program: 1_000, read: 2_000, erase: 1_000 };
        let (mut run, mut retired, mut lost, mut ended) = (0, 0, 0, 0);
        for seed in 0..12 {
            let work = (50, seed, 64, 20_000);
            let (end, c) = live((2, 2, 1), (instant, 0, None), Victim::Greedy, rates, work);
            run += end.unread;
            retired += c.retired;
            lost += c.lost;
            ended += u64::from(end.refused > 0);
        }
        println!(
            "instant {instant}: {run} reads failed, {retired} chunks retired, {lost} blocks lost, \
             {ended} of 12 drives ended"
        );
        assert!(run > 5 && retired > 50 && lost > 10);
        ends += ended;
    }
    assert!(ends > 0, "some drive came to its end");
}

/// What is programmed is counted, also what is programmed in vain.
#[test]
fn a_row_that_failed_counts_each_time() {
    for instant in [true, false] {
        let rates = Rates { program: 1_000, ..Rates::default() };
        let work = (30, 3, 64, 8_000);
        let (mut run, before) = live((2, 2, 1), (instant, 0, None), Victim::Greedy, rates, work);
        run.begin(BlockOp::Flush, 0, 0);
        run.settle();
        while run.drive.next_event().is_some() {
            run.step();
        }
        let c = run.drive.counters();
        assert!(c.retired > 0, "{before:?}");
        let programmed = run.drive.device().counters().blocks_programmed;
        assert_eq!(c.user + c.gc + c.padding + c.metadata, programmed, "{c:?}");
    }
}

/// A lost block reads as an error until it is written or trimmed, and its
/// chunk is used again.
#[test]
fn a_lost_block_is_an_error_until_it_is_written() {
    for instant in [true, false] {
        let rates = Rates { read: 3_000, ..Rates::default() };
        let (mut run, c) =
            live((1, 2, 1), (instant, 0, None), Victim::Greedy, rates, (70, 5, 16, 40_000));
        assert!(c.lost > 10 && c.erases > 100 && run.refused == 0, "{c:?}");
        let blocks = run.open.len();
        let unread = std::mem::take(&mut run.unread);
        assert!(unread > 0);
        for block in 0..blocks {
            let (op, value) = [(BlockOp::Write, 9_000_000), (BlockOp::Trim, 0)][block % 2];
            run.begin(op, block, value);
            run.settle();
        }
        for block in (1..blocks).step_by(2) {
            run.begin(BlockOp::Read, block, 0);
            run.settle();
        }
        assert_eq!(run.unread, 0, "what was trimmed reads as zeros");
    }
}

/// Chunks that are offline from the factory are left out; with too many of
/// them the drive is read-only from the start.
#[test]
fn factory_bad_chunks_are_left_out() {
    for (every, is_read_only) in [(20, false), (2, true)] {
        let geometry = geometry(2, 2, 1);
        let mut chunks = vec![Chunk::default(); geometry.chunk_slots()];
        let mut bad = 0;
        for (i, pu) in geometry.pus_channels_first().enumerate() {
            for number in (i as u32..geometry.chunks()).step_by(every) {
                chunks[geometry.chunk_of(pu, number)].state = ChunkState::Offline;
                bad += 1;
            }
        }
        let medium = medium(&geometry, Rates::default(), 1);
        let device = Device::restore(&geometry, &timing(false, 0), medium, &chunks).unwrap();
        let drive = Pblk::new(device, config(&geometry, Victim::Greedy, 70)).unwrap();
        // The first three of each unit are kept for roots.
        let is_bad =
            |pu, number| chunks[geometry.chunk_of(pu, number)].state == ChunkState::Offline;
        let roots =
            geometry.pus_channels_first().flat_map(|pu| (0..3).map(move |number| (pu, number)));
        let roots = roots.filter(|&(pu, number)| !is_bad(pu, number)).count() as u64;
        let all = u64::from(geometry.total_pus() * geometry.chunks());
        assert_eq!(drive.free_chunks(), all - bad - roots);
        let mut run = Run::new(drive, 3, false);
        run.work(10_000, 32);
        assert_eq!(run.refused > 0, is_read_only);
        run.read_all();
    }
}

/// A chunk that the drive wants refreshed is moved, once.
#[test]
fn a_chunk_is_refreshed() {
    let (mut run, before) =
        live((2, 2, 1), (false, 0, None), Victim::Greedy, Rates::default(), (80, 9, 8, 3000));
    let geometry = geometry(2, 2, 1);
    let mut taken = 0;
    for pu in geometry.pus_channels_first() {
        for number in 0..geometry.chunks() {
            let start = geometry.chunk_start(geometry.chunk_of(pu, number));
            taken += u64::from(run.drive.refresh_chunk(run.now, start));
            // Twice is once: it is waiting, or being collected.
            let again = run.drive.refresh_chunk(run.now, start);
            assert!(!again);
        }
    }
    assert!(!run.drive.refresh_chunk(run.now, Ppa(u64::MAX)));
    assert!(taken > 20, "{taken}");
    run.work(3000, 8);
    while run.drive.next_event().is_some() {
        run.step();
    }
    let after = run.drive.counters();
    assert_eq!(after.refreshed - before.refreshed, taken);
    assert!(after.collections - before.collections >= taken, "{before:?} {after:?}");
    run.read_all();
}

/// The chunks of a drive that are not for roots, of which a program failed.
fn failed_data(
    device: &Device<ScriptedMedium>,
    geometry: &Geometry,
    torn: &HashSet<usize>,
) -> Vec<usize> {
    let is_root = |chunk: usize| {
        let pu = geometry.pu_index(geometry.chunk_start(chunk));
        chunk - geometry.chunk_of(pu, 0) < 3
    };
    let torn = torn.iter().copied().filter(|&chunk| !is_root(chunk));
    torn.filter(|&chunk| device.chunk(chunk).state != ChunkState::Offline).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    /// A chunk of which a program failed is never written after a restart,
    /// wherever power goes: before it is emptied, between, or after; and at
    /// rest it is offline and counted.
    #[test]
    fn what_is_retired_stays_retired(
        instant in any::<bool>(),
        victim in victims(),
        program in 300u64..6_000,
        fill in 30u64..70,
        seed in any::<u64>(),
        cuts in prop::collection::vec(1u64..3_000, 1..6),
        ends_clean in any::<bool>(),
        unreadable in prop_oneof![2 => Just(0u32), 1 => Just(8), 1 => 1u32..12],
        open in prop::option::of((0u32..3, 0u32..2)),
    ) {
        let geometry = geometry(2, 2, 1);
        let timing = limited_timing(&geometry, (instant, unreadable), open);
        let rates = Rates { program, ..Rates::default() };
        let device = Device::new(&geometry, &timing, medium(&geometry, rates, seed)).unwrap();
        let drive = Pblk::new(device, config(&geometry, victim, fill)).unwrap();
        let mut run = Run { durable: true, ..Run::new(drive, seed, false) };
        for events in cuts {
            run.left = Some(events);
            run.work(3_000, 16);
            run = run.restart(&geometry, &timing, rates);
            run.read_all();
        }
        // With nothing failing any more all that failed is emptied.
        run = run.restart(&geometry, &timing, Rates::default());
        run.work(2_000, 16);
        while run.drive.next_event().is_some() {
            run.step();
        }
        if run.refused > 0 {
            return Ok(());
        }
        if ends_clean {
            run.drive.close(run.now);
            while !run.drive.is_closed() {
                run.step();
            }
            run = run.restart(&geometry, &timing, Rates::default());
            run.read_all();
        }
        let health = run.drive.device().health();
        let device = run.drive.into_device();
        let chunks = device.chunks().to_vec();
        let mut medium = device.cut();
        let offline = |chunk: &&Chunk| chunk.state == ChunkState::Offline;
        prop_assert_eq!(health.grown_bad + health.retired, chunks.iter().filter(offline).count() as u64);
        prop_assert_eq!(health.factory_bad, 0);
        let torn = medium.script::<Faulty>().torn.clone();
        let device = Device::restore(&geometry, &timing, medium, &chunks).unwrap();
        let left = failed_data(&device, &geometry, &torn);
        prop_assert!(left.is_empty(), "{left:?} of {torn:?}");
    }
}

/// A dead channel: what collection wants of many units by turns cannot be read.
/// Whose it was is looked for once for all of their victims, not once a block.
#[test]
fn blocks_lost_by_turns_are_looked_for_together() {
    for instant in [false, true] {
        let geometry = geometry(4, 2, 1);
        let rates = Rates { read: 600_000, ..Rates::default() };
        let device =
            Device::new(&geometry, &timing(instant, 0), medium(&geometry, rates, 5)).unwrap();
        let drive = Pblk::new(device, config(&geometry, Victim::Fifo, 70)).unwrap();
        let mut run = Run::new(drive, 5, true);
        run.work(20_000, 64);
        let (lost, searches) = (run.drive.counters().lost, run.drive.searches());
        assert!(lost > 1000, "{lost}");
        assert!(searches <= run.drive.counters().collections, "{searches}");
        assert!(searches * 4 < lost, "{searches} passes for {lost} blocks");
    }
}
