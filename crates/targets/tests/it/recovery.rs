//! Power cuts: random work, a cut at a random event, recovery, and again.
//!
//! After each recovery every sector must have a value that the contract
//! allows: that of a write which no durable write followed. Then that value is
//! the only one allowed until it is written again. The work overwrites a small
//! drive several times, so that cuts fall into collection, and some cuts fall
//! into recovery itself.

mod cases;

use crate::openings::limited;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

use device::{Content, Device, Link, LinkTiming, OpenChannel, VectorCmd, VectorOp};
use faults::{Fuse, ScriptedMedium};
use flash::{Chunk, ChunkState, Dimensions, Geometry, TAG_BYTES, Tag, Timing};
use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Status, Time};
use proptest::prelude::*;
use targets::pblk::PblkError;
use targets::{Pblk, PblkConfig, Victim, with_reserve};

const BLOCK: u64 = 4096;
const SECTORS: usize = 8;

/// Chunks of each parallel unit that hold data.
const DATA_CHUNKS: u32 = 6;

type Shared = Rc<RefCell<Device<ScriptedMedium>>>;

/// One write or trim of a sector, begun and ended as counted by the model.
#[derive(Clone, Copy, Debug)]
struct Write {
    value: u64,
    begin: u64,
    end: u64,
    durable: bool,
}

impl Write {
    fn settled(value: u64) -> Write {
        Write { value, begin: 0, end: 0, durable: true }
    }
}

struct Model {
    clock: u64,
    sectors: Vec<Vec<Write>>,
    /// All values that each sector ever had.
    past: Vec<Vec<u64>>,
}

impl Model {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn begin(&mut self, sector: usize, write: Write) {
        self.sectors[sector].push(write);
        self.past[sector].push(write.value);
    }

    fn each(&mut self, first: usize, count: usize, begin: u64, f: impl Fn(&mut Write)) {
        for sector in &mut self.sectors[first..first + count] {
            f(sector.iter_mut().find(|w| w.begin == begin).expect("it began"));
        }
    }

    /// All writes that had ended at `when` are durable now.
    fn flushed(&mut self, when: u64) {
        let writes = self.sectors.iter_mut().flatten();
        writes.filter(|w| w.end < when).for_each(|w| w.durable = true);
    }

    /// Whether a sector may have this value after a cut.
    fn allows_after_cut(&self, sector: usize, value: u64) -> bool {
        let writes = &self.sectors[sector];
        let stands = |w: &Write| !writes.iter().any(|d| d.durable && d.begin > w.end);
        writes.iter().any(|w| w.value == value && stands(w))
    }

    /// Whether a sector may have this value when all writes have ended.
    fn allows(&self, sector: usize, value: u64) -> bool {
        let writes = &self.sectors[sector];
        let stands = |w: &Write| !writes.iter().any(|d| d.begin > w.end);
        writes.iter().any(|w| w.value == value && stands(w))
    }
}

/// How a case is set up.
#[derive(Clone, Copy, Debug)]
struct Setup {
    dim: Dimensions,
    kept: u32,
    /// Of all physical blocks that hold data, in percent.
    fill: u64,
    victim: Victim,
    /// Parts of blocks are written, too.
    partial: bool,
    /// Trims, in percent of the operations.
    trims: u64,
    link: bool,
    instant: bool,
    /// How long nothing is inside before it collects; 0 for never.
    idle: u64,
    /// Blocks at the end of an open chunk that cannot be read yet.
    unreadable: u32,
    /// Room for so many open chunks more than are needed; `None` without limits.
    open: Option<(u32, u32)>,
    seed: u64,
}

impl Setup {
    fn timing(&self) -> Timing {
        match self.open {
            Some(more) => {
                let geometry = Geometry::new(with_reserve(self.dim)).unwrap();
                limited(self.free_timing(), &geometry, 1, more)
            }
            None => self.free_timing(),
        }
    }

    /// Without limits.
    fn free_timing(&self) -> Timing {
        let unreadable = self.unreadable;
        if self.instant {
            return Timing { unreadable, ..Timing::default() };
        }
        Timing {
            unreadable,
            read: vec![50_000],
            program: vec![600_000, 900_000],
            erase: 3_000_000,
            command: 100,
            channel_rate: 400_000_000,
            suspend: self.seed.is_multiple_of(2),
            suspend_time: 5_000,
            resume_time: 5_000,
            suspend_limit: 4,
            ..Timing::default()
        }
    }
}

type Drive = Pblk<Box<dyn OpenChannel>>;

/// What survives a cut, and what is known of it.
struct Bench {
    setup: Setup,
    geometry: Geometry,
    medium: Option<ScriptedMedium>,
    chunks: Vec<Chunk>,
    model: Model,
    rng: u64,
    ids: u64,
    seen: Seen,
}

/// What the cases met, to be sure that they test anything.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    cuts: u64,
    cut_recoveries: u64,
    collections: u64,
}

/// A request at work: operation, FUA, first sector, count, when it began.
type Request = (BlockOp, bool, usize, usize, u64);

/// A drive at work.
struct Run {
    drive: Drive,
    device: Shared,
    fuse: Rc<Cell<u64>>,
    now: Time,
    queue: Ring<BlockReq>,
    done: Ring<BlockDone>,
    /// By the number of the request.
    open: Vec<Option<Request>>,
}

const AT_ONCE: usize = 24;

impl Bench {
    fn new(setup: Setup) -> Bench {
        let geometry = Geometry::new(with_reserve(setup.dim)).unwrap();
        let medium = ScriptedMedium::ram(&geometry, setup.kept, ());
        let device = Device::new(&geometry, &setup.timing(), medium).unwrap();
        let chunks = device.chunks().to_vec();
        let mut bench = Bench {
            setup,
            geometry,
            medium: Some(device.cut()),
            chunks,
            model: Model { clock: 1, sectors: Vec::new(), past: Vec::new() },
            rng: setup.seed,
            ids: 0,
            seen: Seen::default(),
        };
        let sectors = (bench.config().bytes / BLOCK) as usize * SECTORS;
        bench.model.sectors = vec![vec![Write::settled(0)]; sectors];
        bench.model.past = vec![vec![0]; sectors];
        bench
    }

    fn config(&self) -> PblkConfig {
        let data_chunks = DATA_CHUNKS;
        let blocks = data_chunks * self.geometry.chunk_blocks() * self.geometry.total_pus();
        let bytes = u64::from(blocks) * self.setup.fill / 100 * BLOCK;
        PblkConfig {
            idle_collection: self.setup.idle,
            victim: self.setup.victim,
            ..PblkConfig::new(bytes, data_chunks, 7)
        }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.rng = self.rng.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.rng >> 33) % n
    }

    /// Power comes, and goes again in recovery after `events` of the drive.
    fn recover(&mut self, events: u64) -> Option<Run> {
        let medium = self.medium.take().expect("power is off");
        let timing = self.setup.timing();
        let device = Device::restore(&self.geometry, &timing, medium, &self.chunks).unwrap();
        let below = Fuse::new(device, events);
        let (device, fuse) = (below.drive.clone(), below.left.clone());
        let link = match self.setup.link {
            true => LinkTiming {
                controller: 3_000,
                latency: 2_000,
                rate: 1_000_000_000,
                ..LinkTiming::default()
            },
            false => LinkTiming::default(),
        };
        let below: Box<dyn OpenChannel> = Box::new(Link::new(link, below));
        match Pblk::recover(below, self.config(), Time::ZERO) {
            Ok((drive, now)) => {
                let (queue, done) = (Ring::new(64), Ring::new(64));
                let open = vec![None; AT_ONCE];
                Some(Run { drive, device, fuse, now, queue, done, open })
            }
            Err(PblkError::Recovery(Status::ABORTED)) => {
                assert_eq!(fuse.get(), 0, "only a cut stops recovery");
                self.seen.cut_recoveries += 1;
                self.take(device);
                None
            }
            Err(e) => panic!("{e}"),
        }
    }

    /// Power goes.
    fn cut(&mut self, run: Run) {
        self.seen.cuts += 1;
        self.seen.collections += run.drive.counters().collections;
        drop(run.drive);
        self.take(run.device);
    }

    fn take(&mut self, device: Shared) {
        let device = Rc::into_inner(device).expect("the drive is gone").into_inner();
        self.chunks = device.chunks().to_vec();
        self.medium = Some(device.cut());
    }

    /// Lets the next thing happen. False when the power is gone.
    fn step(&mut self, run: &mut Run) -> bool {
        let Some(at) = run.drive.next_event() else {
            assert_eq!(run.fuse.get(), 0, "the drive hangs: {:?}", run.drive.counters());
            return false;
        };
        run.now = run.now.max(at);
        run.drive.advance(run.now, &mut run.done);
        // What ends in the moment of the cut never reached the host.
        if run.fuse.get() == 0 {
            return false;
        }
        while let Some(done) = run.done.pop() {
            assert_eq!(done.status, Status::SUCCESS);
            let slot = &mut run.open[done.id as usize];
            let (op, fua, first, count, begin) = slot.take().expect("completes once");
            let end = self.model.tick();
            match op {
                BlockOp::Flush => self.model.flushed(begin),
                BlockOp::Read => {}
                _ => self.model.each(first, count, begin, |w| {
                    w.end = end;
                    w.durable |= fua;
                }),
            }
        }
        run.drive.submit(run.now, &mut run.queue);
        true
    }

    /// One more request, when there is room for one. False when the power is
    /// gone.
    fn work(&mut self, run: &mut Run) -> bool {
        let Some(slot) = run.open.iter().position(Option::is_none) else { return self.step(run) };
        let total = self.model.sectors.len() as u64;
        let op = match self.below(100) {
            n if n < self.setup.trims => BlockOp::Trim,
            n if n < self.setup.trims * 3 / 2 => BlockOp::WriteZeroes,
            90..94 => BlockOp::Flush,
            94.. => BlockOp::Read,
            _ => BlockOp::Write,
        };
        let mut len = 1 + self.below(8) * self.below(5);
        let mut first = self.below(total);
        if !self.setup.partial || op == BlockOp::Trim || self.below(2) == 0 {
            first -= first % SECTORS as u64;
            len = len.next_multiple_of(SECTORS as u64);
        }
        let len = len.min(total - first);
        let (first, count) = (first as usize, len as usize);
        let fua = op == BlockOp::Write && self.below(20) == 0;
        self.ids += 1;
        let data = matches!(op, BlockOp::Read | BlockOp::Write);
        let mut buffer = Buffer::empty();
        if data {
            buffer = Buffer::zeroed(run.drive.shape().stored(len * 512)).unwrap();
        }
        let begin = self.model.tick();
        if op == BlockOp::Write {
            self.fill(first, &mut buffer);
        }
        if !matches!(op, BlockOp::Read | BlockOp::Flush) {
            let trim = op != BlockOp::Write;
            for sector in first..first + count {
                let value = if trim { 0 } else { self.value(sector) };
                let write = Write { value, begin, end: u64::MAX, durable: false };
                self.model.begin(sector, write);
            }
        }
        run.open[slot] = Some((op, fua, first, count, begin));
        let (offset, len) =
            if op == BlockOp::Flush { (0, 0) } else { (first as u64 * 512, len * 512) };
        run.queue
            .push(BlockReq { fua, ..BlockReq::new(slot as u64, op, offset, len, buffer) })
            .unwrap();
        run.drive.submit(run.now, &mut run.queue);
        // The drive wants some chunk refreshed: also what is not full is left then.
        if self.below(40) == 0 {
            let chunk = self.below(self.geometry.chunk_slots() as u64) as usize;
            run.drive.refresh_chunk(run.now, self.geometry.chunk_start(chunk));
        }
        // Nobody asks for long now and then.
        if self.setup.idle > 0 && self.below(20) == 0 {
            while run.drive.next_event().is_some() {
                if !self.step(run) {
                    return false;
                }
            }
        }
        // Some time passes now and then.
        (0..self.below(6)).all(|_| run.drive.next_event().is_none() || self.step(run))
    }

    fn value(&self, sector: usize) -> u64 {
        (self.ids << 24) | sector as u64
    }

    /// Where only digests are kept, a block has the value of its first sector.
    fn fill(&self, first: usize, buffer: &mut Buffer) {
        let each = self.setup.kept as usize / SECTORS;
        let (each, step) = if each < 8 { (8, SECTORS) } else { (each, 1) };
        for (i, sector) in buffer.bytes_mut().chunks_mut(each).enumerate() {
            let value = self.value(first + i * step);
            sector.chunks_mut(8).for_each(|word| word.copy_from_slice(&value.to_le_bytes()));
        }
    }

    /// Reads all, and calls `check` with each sector and its value.
    fn read_all(&mut self, run: &mut Run, check: impl Fn(&Model, usize, u64)) {
        let whole = !self.setup.partial;
        for block in 0..self.model.sectors.len() / SECTORS {
            let buffer = Buffer::zeroed(self.setup.kept as usize).unwrap();
            let offset = block as u64 * BLOCK;
            let req = BlockReq::new(0, BlockOp::Read, offset, BLOCK, buffer);
            run.queue.push(req).unwrap();
            run.drive.submit(run.now, &mut run.queue);
            let done = loop {
                if let Some(done) = run.done.pop() {
                    break done;
                }
                let at = run.drive.next_event().expect("a read ends");
                run.now = run.now.max(at);
                run.drive.advance(run.now, &mut run.done);
            };
            assert_eq!(done.status, Status::SUCCESS);
            let word = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().unwrap());
            let mut values = done.buffer.bytes().chunks(512).map(|sector| {
                assert!(sector.chunks(8).all(|w| w == &sector[..8]), "a torn sector");
                word(sector)
            });
            let mut ids = Vec::new();
            for i in 0..SECTORS {
                let sector = block * SECTORS + i;
                let value = match self.setup.kept {
                    4096 => values.next().unwrap(),
                    8 if word(done.buffer.bytes()) == 0 => 0,
                    8 => word(done.buffer.bytes()) + i as u64,
                    _ => return,
                };
                check(&self.model, sector, value);
                ids.push(value >> 24);
                self.model.sectors[sector] = vec![Write::settled(value)];
            }
            assert!(!whole || ids.iter().all(|&id| id == ids[0]), "block {block} is torn: {ids:?}");
        }
    }

    /// Recovers, now and then cut short.
    fn power_up(&mut self) -> Run {
        while self.below(3) == 0 {
            let events = self.below(60);
            if let Some(run) = self.recover(events) {
                // It was quick enough; then the power goes now.
                run.fuse.set(0);
                self.cut(run);
            }
        }
        let mut run = self.recover(u64::MAX).expect("no cut");
        self.read_all(&mut run, |model, sector, value| {
            let writes = &model.sectors[sector];
            assert!(model.allows_after_cut(sector, value), "sector {sector}: {value}, {writes:?}");
        });
        run
    }

    /// A life with some cuts, and a quiet end.
    fn live(&mut self, cuts: u64, events: u64) {
        for _ in 0..cuts {
            let mut run = self.power_up();
            run.fuse.set(1 + self.below(events));
            while self.work(&mut run) {}
            self.cut(run);
        }
        let mut run = self.power_up();
        for _ in 0..100 {
            assert!(self.work(&mut run));
        }
        while run.open.iter().any(Option::is_some) {
            assert!(self.step(&mut run));
        }
        self.read_all(&mut run, |model, sector, value| {
            let writes = &model.sectors[sector];
            assert!(model.allows(sector, value), "sector {sector}: {value}, {writes:?}");
        });
        self.seen.collections += run.drive.counters().collections;
        // No program fails here, nor is any refused.
        let device = run.device.borrow();
        assert!(device.chunks().iter().all(|chunk| chunk.state != ChunkState::Offline));
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

fn setups() -> impl Strategy<Value = Setup> {
    let at_once = prop_oneof![2 => Just(1u32), 1 => 2u32..5];
    let shape = (1u32..3, 1u32..3, 3u32..6, 1u32..4, 0u32..2, at_once);
    let modes = (any::<bool>(), prop::bool::weighted(0.2), prop::bool::weighted(0.2));
    let kept = prop_oneof![4 => Just(4096u32), 1 => Just(8)];
    (
        shape,
        victims(),
        modes,
        kept,
        60u64..92,
        prop_oneof![2 => Just(0u64), 1 => 1u64..20],
        any::<u64>(),
    )
        .prop_map(|(shape, victim, (partial, link, instant), kept, fill, trims, seed)| {
            let dim = Dimensions {
                groups: shape.0,
                pus: shape.1,
                chunks: DATA_CHUNKS,
                pages: shape.2 * shape.5,
                planes: shape.3,
                page_bytes: 4096 << shape.4,
                pages_at_once: shape.5,
            };
            let partial = partial && kept == 4096;
            let (idle, unreadable, open) = (0, 0, None);
            Setup {
                dim,
                kept,
                fill,
                victim,
                partial,
                trims,
                link,
                instant,
                idle,
                unreadable,
                open,
                seed,
            }
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]
    #[test]
    fn what_was_flushed_survives_any_cut(setup in setups(), cuts in 1u64..5) {
        let mut bench = Bench::new(setup);
        bench.live(cuts, 1500);
    }

    /// The same where it collects whenever nobody asks, or after a while.
    #[test]
    fn what_was_flushed_survives_a_cut_of_idle_collection(
        setup in setups(), idle in prop_oneof![Just(1u64), 1u64..5_000_000], cuts in 1u64..5
    ) {
        let mut bench = Bench::new(Setup { idle, ..setup });
        bench.live(cuts, 1500);
    }

    /// The same where the end of an open chunk cannot be read yet.
    #[test]
    fn what_cannot_be_read_yet_survives_any_cut(
        setup in setups(), blocks in prop_oneof![Just(8u32), 1u32..100], cuts in 1u64..5
    ) {
        let unreadable = blocks.min(setup.dim.chunk_blocks() as u32 - 1);
        let mut bench = Bench::new(Setup { unreadable, ..setup });
        bench.live(cuts, 1500);
    }

    /// The same with room for just so many open chunks as are needed, or a few more.
    #[test]
    fn limits_of_open_chunks_survive_any_cut(
        setup in setups(), blocks in prop_oneof![2 => Just(0u32), 1 => 1u32..100],
        more in (0u32..3, 0u32..3), cuts in 1u64..5
    ) {
        let unreadable = blocks.min(setup.dim.chunk_blocks() as u32 - 1);
        let mut bench = Bench::new(Setup { unreadable, open: Some(more), ..setup });
        bench.live(cuts, 1500);
    }
}
