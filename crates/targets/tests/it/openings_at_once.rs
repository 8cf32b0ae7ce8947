//! Many requests at once on drives that limit their open chunks: the user in all its
//! streams, collection, own blocks and roots begin chunks together; chunks are left as
//! they age and as programs fail, and power goes.
//!
//! The open chunks are counted from the drive's descriptors after each of its commands
//! and events, beside what drive and target count.

use std::collections::BTreeMap;

use crate::openings::limited;
use device::{Device, OpenChannel, VectorCmd, VectorDone};
use faults::{Below, Script, ScriptedMedium};
use flash::{
    ChunkState, Dimensions, Geometry, Moved, Ppa, SlcCache, SlcSize, TAG_BYTES, Tag, Timing,
};
use port::random::Random;
use port::{BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Status, Time};
use proptest::prelude::*;
use targets::{Pblk, PblkConfig, Victim, with_reserve};

const DATA_CHUNKS: u32 = 6;

/// The logical block number of a pad.
const END: u64 = u64::MAX - 1;

/// Rows that fail, so many in a million, and pads that were seen.
struct Failing {
    rate: u64,
    rng: Random,
    pads: u64,
}

impl Script for Failing {
    fn program(&mut self, below: Below, at: Ppa, n: u32, data: &[u8], tags: &[u8]) -> Moved {
        self.pads += u64::from(Tag::load(&tags[..TAG_BYTES]).id == END);
        if self.rng.below(1_000_000) < self.rate {
            return Moved::Failed;
        }
        below.program(at, n, data, tags)
    }
}

/// A drive that is watched: no more chunks of it are open than may be, and no write is
/// refused for that.
struct Watch {
    device: Device<ScriptedMedium>,
    refused: u64,
    done: Ring<VectorDone>,
    /// No write comes to this chunk, nor an erase.
    denied: Option<usize>,
}

impl Watch {
    /// At a start no more are open, either: each is counted until all that goes to it has
    /// ended, so that a cut that undoes its end finds room for it.
    fn new(device: Device<ScriptedMedium>) -> Watch {
        let watch = Watch { device, refused: 0, done: Ring::new(2048), denied: None };
        watch.look();
        watch
    }

    /// Open chunks, in all and of the unit with the most.
    fn count(&self) -> (u32, u32) {
        let bits = self.device.geometry().chunk_bits();
        let mut of_pu = BTreeMap::new();
        for (i, chunk) in self.device.chunks().iter().enumerate() {
            if chunk.state == ChunkState::Open {
                *of_pu.entry(i >> bits).or_insert(0) += 1;
            }
        }
        (of_pu.values().sum(), of_pu.into_values().max().unwrap_or(0))
    }

    fn look(&self) {
        let (now, timing) = (self.count(), self.device.timing());
        let most = (timing.open_chunks, timing.open_chunks_pu);
        assert!(now.0 <= most.0 && now.1 <= most.1, "{now:?} of {most:?}");
    }
}

impl Port for Watch {
    type Cmd = VectorCmd;
    type Done = VectorDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<VectorCmd>) {
        let mut one = Ring::new(1);
        while let Some(cmd) = cmds.pop() {
            let chunk = self.device.geometry().chunk_index(cmd.ppa);
            if self.denied == Some(chunk) && cmd.op != device::VectorOp::Read {
                let VectorCmd { cookie, list, buffer, .. } = cmd;
                let (status, failed) = (Status::WRITE_FAULT, 0);
                let done = VectorDone { cookie, status, failed, at: now, list, buffer };
                assert!(self.done.push(done).is_ok());
                continue;
            }
            assert!(one.push(cmd).is_ok());
            self.device.submit(now, &mut one);
            assert!(one.is_empty(), "there is room for what these drives have inside");
            self.look();
        }
    }

    fn next_event(&self) -> Option<Time> {
        self.done.front().map(|done| done.at).or(self.device.next_event())
    }

    fn advance(&mut self, to: Time, done: &mut Ring<VectorDone>) {
        self.device.advance(to, &mut self.done);
        self.look();
        while let Some(one) = self.done.pop() {
            self.refused += u64::from(one.status == Status::TOO_MANY_OPEN_CHUNKS);
            done.put(|| one);
        }
    }
}

impl OpenChannel for Watch {
    device::as_below!(this => this.device);
}

/// What a drive is like.
#[derive(Clone, Debug)]
struct Setup {
    groups: u32,
    pus: u32,
    pages: u32,
    streams: u32,
    timing: Timing,
    fill: u64,
    victim: Victim,
    /// Programs that fail, in a million.
    failing: u64,
    seed: u64,
}

impl Setup {
    fn geometry(&self) -> Geometry {
        let dim = Dimensions {
            groups: self.groups,
            pus: self.pus,
            chunks: DATA_CHUNKS,
            pages: self.pages,
            page_bytes: 16384,
            ..Dimensions::LEAST
        };
        let dim = with_reserve(dim);
        Geometry::new(Dimensions { chunks: dim.chunks + self.streams - 1, ..dim }).unwrap()
    }

    fn config(&self) -> PblkConfig {
        let g = self.geometry();
        let space = u64::from(DATA_CHUNKS * g.chunk_blocks() * g.total_pus());
        PblkConfig {
            streams: self.streams,
            victim: self.victim,
            ..PblkConfig::new(space * self.fill / 100 * BLOCK_BYTES, DATA_CHUNKS, 7)
        }
    }

    fn medium(&self) -> ScriptedMedium {
        let script = Failing { rate: self.failing, rng: Random::new(self.seed, 2), pads: 0 };
        ScriptedMedium::ram(&self.geometry(), 8, script)
    }
}

/// What was asked of one block.
#[derive(Clone, Debug, Default)]
struct Block {
    /// The request that is inside for it: its number if it writes.
    inside: Option<u64>,
    /// Writes that it may have after a cut, oldest first; the last is what it has.
    writes: Vec<u64>,
}

/// A drive at work, and what is known of it.
struct Life {
    setup: Setup,
    drive: Pblk<Watch>,
    now: Time,
    queue: Ring<BlockReq>,
    done: Ring<BlockDone>,
    rng: Random,
    blocks: Vec<Block>,
    number: u64,
    inside: usize,
    /// By number: the newest write of each block when the flush began.
    flushes: BTreeMap<u64, Vec<u64>>,
    read_only: bool,
}

const FLUSH: u64 = 1 << 32;

impl Life {
    fn new(setup: Setup) -> Life {
        let device = Device::new(&setup.geometry(), &setup.timing, setup.medium()).unwrap();
        let drive = Pblk::new(Watch::new(device), setup.config()).unwrap();
        let blocks = (setup.config().bytes / BLOCK_BYTES) as usize;
        Life {
            drive,
            now: Time::ZERO,
            queue: Ring::new(64),
            done: Ring::new(1024),
            rng: Random::new(setup.seed, 1),
            blocks: vec![Block { inside: None, writes: vec![0] }; blocks],
            number: 0,
            inside: 0,
            flushes: BTreeMap::new(),
            read_only: false,
            setup,
        }
    }

    fn submit(&mut self, id: u64, op: BlockOp, block: usize, fua: bool) {
        let moves = matches!(op, BlockOp::Read | BlockOp::Write);
        let mut buffer = Buffer::zeroed(if moves { 8 } else { 0 }).unwrap();
        if op == BlockOp::Write {
            buffer.bytes_mut().copy_from_slice(&self.number.to_le_bytes());
        }
        let len = if op == BlockOp::Flush { 0 } else { BLOCK_BYTES };
        let placement = self.rng.below(self.setup.streams.into()) as u8;
        let offset = block as u64 * len;
        let req = BlockReq { id, op, fua, placement, queue: 0, offset, len, buffer };
        assert!(self.queue.push(req).is_ok());
        self.inside += 1;
        self.drive.submit(self.now, &mut self.queue);
    }

    /// One more request, or a chunk that is to be refreshed.
    fn ask(&mut self) {
        if self.rng.below(20) == 0 {
            self.refresh_some();
        }
        let total = self.blocks.len() as u64;
        // A half of what is written goes to an eighth.
        let hot = self.rng.below(2) == 0;
        let at = self.rng.below(if hot { total.div_ceil(8) } else { total }) as usize;
        match self.rng.below(60) {
            0 => {
                self.number += 1;
                let newest = self.blocks.iter().map(|b| b.writes[b.writes.len() - 1]).collect();
                self.flushes.insert(self.number, newest);
                self.submit(FLUSH + self.number, BlockOp::Flush, 0, false);
            }
            _ if self.blocks[at].inside.is_some() => {}
            1..4 => {
                self.blocks[at].inside = Some(0);
                self.submit(at as u64, BlockOp::Read, at, false);
            }
            n => {
                self.number += 1;
                self.blocks[at].inside = Some(self.number);
                self.submit(at as u64, BlockOp::Write, at, n == 4);
            }
        }
    }

    /// The drive wants a chunk refreshed, mostly one that is open, which is left then.
    fn refresh_some(&mut self) {
        let chunks = self.watch().device.chunks();
        let is_open = |&chunk: &usize| chunks[chunk].state == ChunkState::Open;
        let open: Vec<usize> = (0..chunks.len()).filter(is_open).collect();
        let any = chunks.len() as u64;
        let chunk = match self.rng.below(4) {
            1.. if !open.is_empty() => open[self.rng.below(open.len() as u64) as usize],
            _ => self.rng.below(any) as usize,
        };
        let start = self.setup.geometry().chunk_start(chunk);
        self.drive.refresh_chunk(self.now, start);
    }

    /// The next event. False where there is none.
    fn step(&mut self) -> bool {
        let Some(at) = self.drive.next_event() else { return false };
        self.now = self.now.max(at);
        self.drive.advance(self.now, &mut self.done);
        while let Some(done) = self.done.pop() {
            self.inside -= 1;
            self.ended(done);
        }
        self.drive.submit(self.now, &mut self.queue);
        true
    }

    fn ended(&mut self, done: BlockDone) {
        let refused = matches!(done.status, Status::READ_ONLY | Status::WRITE_FAULT);
        assert!(done.status.is_ok() || refused && self.setup.failing > 0, "{:?}", done.status);
        self.read_only |= refused;
        if done.op == BlockOp::Flush {
            let newest = self.flushes.remove(&(done.id - FLUSH)).expect("it began");
            let covers = done.status.is_ok();
            for (block, newest) in self.blocks.iter_mut().zip(newest).filter(|_| covers) {
                block.writes.retain(|&write| write >= newest);
            }
            return;
        }
        let block = &mut self.blocks[done.id as usize];
        let number = block.inside.take().expect("it began");
        if done.op == BlockOp::Read {
            let found = u64::from_le_bytes(done.buffer.bytes().try_into().unwrap());
            let is_newest = block.writes.last() == Some(&found);
            assert!(is_newest || self.read_only, "{found} of {block:?}");
            return;
        }
        block.writes.push(number);
    }

    fn is_over(&self) -> bool {
        self.read_only
    }

    /// So many requests, up to `depth` at once.
    fn work(&mut self, count: u64, depth: usize) {
        for _ in 0..count {
            self.ask();
            while self.inside >= depth {
                assert!(self.step(), "the drive hangs");
            }
            if self.is_over() {
                return;
            }
        }
    }

    fn settle(&mut self) {
        while self.inside > 0 {
            assert!(self.step(), "the drive hangs");
        }
    }

    /// Reads all; of a drive whose power went, what a cut may leave.
    fn read_all(&mut self, after_cut: bool) {
        for at in 0..self.blocks.len() {
            let id = at as u64;
            let buffer = Buffer::zeroed(8).unwrap();
            let offset = id * BLOCK_BYTES;
            let op = BlockOp::Read;
            let (fua, placement, queue, len) = (false, 0, 0, BLOCK_BYTES);
            let req = BlockReq { id, op, fua, placement, queue, offset, len, buffer };
            assert!(self.queue.push(req).is_ok());
            self.drive.submit(self.now, &mut self.queue);
            let done = loop {
                match self.done.pop() {
                    Some(done) => break done,
                    None => {
                        self.now = self.now.max(self.drive.next_event().expect("a read ends"));
                        self.drive.advance(self.now, &mut self.done);
                    }
                }
            };
            assert_eq!(done.status, Status::SUCCESS);
            let found = u64::from_le_bytes(done.buffer.bytes().try_into().unwrap());
            let block = &mut self.blocks[at];
            let may_be = match after_cut || self.read_only {
                true => block.writes.contains(&found),
                false => block.writes.last() == Some(&found),
            };
            assert!(may_be, "block {at}: {found} of {block:?}");
            block.writes = vec![found];
        }
    }

    /// Power goes and comes back.
    fn cut(mut self) -> Life {
        for block in &mut self.blocks {
            let open = block.inside.take().filter(|&number| number > 0);
            block.writes.extend(open);
        }
        let device = self.drive.into_device().device;
        let (chunks, mut medium) = (device.chunks().to_vec(), device.cut());
        // A start that cannot pad is refused, which is not what is looked at here.
        medium.script::<Failing>().rate = 0;
        let (geometry, timing) = (self.setup.geometry(), &self.setup.timing);
        let device = Device::restore(&geometry, timing, medium, &chunks).unwrap();
        let config = self.setup.config();
        let (mut drive, now) = Pblk::recover(Watch::new(device), config, Time::ZERO).unwrap();
        drive.device_mut().device.medium_mut().script::<Failing>().rate = self.setup.failing;
        let (queue, done) = (Ring::new(64), Ring::new(1024));
        let (inside, flushes) = (0, BTreeMap::new());
        Life { drive, now, queue, done, inside, flushes, ..self }
    }

    fn watch(&self) -> &Watch {
        self.drive.device()
    }
}

fn timing(copyback: u32, slc: bool, erase: u64) -> Timing {
    let slc = match slc {
        true => SlcCache { size: SlcSize::Share(20_000), ..SlcCache::default() },
        false => SlcCache::default(),
    };
    let (read, program) = (vec![1_000], vec![5_000, 8_000]);
    Timing { read, program, erase, copyback, slc, ..Timing::default() }
}

fn setups() -> impl Strategy<Value = Setup> {
    let shape = (1u32..4, 1u32..4, 2u32..9, 1u32..5);
    let flags = (0u32..3, any::<bool>(), prop_oneof![Just(3_000u64), Just(300_000)]);
    let more = (0u32..2, 0u32..2, 0u32..3);
    let victims = prop_oneof![Just(Victim::Greedy), Just(Victim::Fifo), Just(Victim::Random)];
    let unreadable = prop_oneof![2 => Just(0u32), 1 => 1u32..12];
    let failing = prop_oneof![2 => Just(0u64), 1 => 100u64..20_000];
    (shape, flags, more, victims, unreadable, failing, 30u64..80, any::<u64>()).prop_map(
        |(shape, flags, more, victim, unreadable, failing, fill, seed)| {
            let setup = Setup {
                groups: shape.0,
                pus: shape.1,
                pages: shape.2,
                streams: shape.3,
                timing: timing(flags.0, flags.1, flags.2),
                fill,
                victim,
                failing,
                seed,
            };
            let g = setup.geometry();
            let unreadable = unreadable.min(g.chunk_blocks() - 1);
            let timing = Timing { unreadable, ..setup.timing.clone() };
            let mut timing = limited(timing, &g, setup.streams, (more.0, more.1));
            match more.2 {
                0 => timing.open_chunks = u32::MAX,
                1 => timing.open_chunks_pu = u32::MAX,
                _ => {}
            }
            Setup { timing, ..setup }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn never_more_are_open_than_may_be(
        setup in setups(), depth in 1usize..60, cuts in prop::collection::vec(1u64..1500, 0..5)
    ) {
        let mut life = Life::new(setup);
        for requests in cuts {
            life.work(requests, depth);
            prop_assert_eq!(life.watch().refused, 0);
            life = life.cut();
            life.read_all(true);
        }
        life.work(1500, depth);
        life.settle();
        life.read_all(false);
        prop_assert_eq!(life.watch().refused, 0);
    }
}

/// A drive of one unit with room for what it goes on with and no more.
fn tight(seed: u64, failing: u64) -> Life {
    let setup = Setup {
        groups: 1,
        pus: 1,
        pages: 6,
        streams: 1,
        timing: timing(0, false, 3_000),
        fill: 60,
        victim: Victim::Greedy,
        failing,
        seed,
    };
    let timing = limited(setup.timing.clone(), &setup.geometry(), 1, (0, 0));
    Life::new(Setup { timing, ..setup })
}

impl Life {
    /// A chunk for data that is open and has room for more than a row.
    fn open_data(&self) -> Option<usize> {
        let g = self.setup.geometry();
        let chunks = self.watch().device.chunks();
        (g.chunk_of(0, 3)..g.chunk_of(0, g.chunks() - 1)).find(|&chunk| {
            let of = chunks[chunk];
            let is_data = of.state == ChunkState::Open && of.programmed == of.wp;
            is_data && of.wp + 2 * g.row_blocks() <= g.chunk_blocks()
        })
    }

    fn pads(&mut self) -> u64 {
        self.drive.device_mut().device.medium_mut().script::<Failing>().pads
    }
}

/// A chunk that was left since it has aged is written no more, and stands in the way of
/// the next: it is padded to its end.
#[test]
fn chunks_that_no_write_reaches_are_padded_shut() {
    let (mut left, mut pads) = (0, 0);
    for seed in 0..8 {
        let mut life = tight(seed, 0);
        for _ in 0..20 {
            life.work(150, 8);
            life.settle();
            let Some(chunk) = life.open_data() else { continue };
            let (before, wear) = (life.pads(), life.watch().device.chunk(chunk).wear);
            let start = life.setup.geometry().chunk_start(chunk);
            left += u64::from(life.drive.refresh_chunk(life.now, start));
            life.work(150, 8);
            life.settle();
            let of = life.watch().device.chunk(chunk);
            let is_padded = life.pads() > before;
            assert!(!is_padded || of.state != ChunkState::Open || of.wear > wear);
            pads += life.pads() - before;
        }
        assert_eq!(life.watch().refused, 0);
        life.read_all(false);
    }
    assert!(left > 20 && pads > 10, "{left} chunks left, {pads} rows of padding");
}

/// Nothing that is sent to a chunk comes there any more, so that it stays open and
/// takes the room of one that the drive needs. It asks all the same, gives up chunk by
/// chunk what is refused, and ends read-only with all that it had.
#[test]
fn an_open_chunk_that_cannot_be_closed_does_not_hang_the_drive() {
    let mut ends = 0;
    for seed in 0..16 {
        let mut life = tight(seed, 1);
        life.work(600, 8);
        life.settle();
        let Some(chunk) = life.open_data() else { continue };
        life.drive.device_mut().denied = Some(chunk);
        for _ in 0..20 {
            life.work(300, 8);
        }
        life.settle();
        assert_eq!(life.watch().device.chunk(chunk).state, ChunkState::Open);
        assert!(life.watch().refused > 0 && life.read_only, "{seed}");
        life.read_all(false);
        ends += 1;
    }
    assert!(ends > 4, "{ends}");
}

/// A start looks for roots where none was ever written to its end, since the first ones'
/// programs failed: nothing is lost.
#[test]
fn a_first_root_that_failed_is_no_root_that_is_lost() {
    let mut failed = 0;
    for seed in 0..400 {
        let mut life = tight(seed, 100_000);
        let first = |life: &Life| life.watch().device.chunk(life.setup.geometry().chunk_of(0, 0));
        while first(&life).wp == 0 && !life.read_only {
            life.work(5, 8);
        }
        failed += u64::from(first(&life).failed_of(0, 1) != 0);
        life.cut().read_all(true);
    }
    assert!(failed > 2, "{failed}");
}
