//! pblk on an open-channel drive, under a protected cache, in virtual time:
//! power goes at any event, also while it starts.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::task::Poll;

use device::Device;
use faults::Fuse;
use flash::{Dimensions, Geometry, RamMedium, Timing};
use nvram::{NonVolatile, NvRam, Protected, format};
use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Time};
use targets::{Pblk, PblkConfig, with_reserve};
use workload::Rng;

const BLOCK: usize = 4096;
const DATA_CHUNKS: u32 = 6;
/// Logical blocks: half of those that the data chunks have.
const BLOCKS: usize = 384;
const JOURNAL: usize = (5 << 20) + 4096;
const MOST_BLOCKS: u64 = 8;
const SEEDS: u64 = 12;
const ROUNDS: u32 = 8;

/// A journal's memory that is there whatever becomes of the stack above it.
#[derive(Clone)]
struct Shared(Rc<RefCell<NvRam>>);

impl NonVolatile for Shared {
    fn bytes(&self) -> u64 {
        self.0.borrow().bytes()
    }

    fn read(&mut self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.0.borrow_mut().read(at, bytes)
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.borrow_mut().write(at, bytes)
    }

    fn sync(&mut self) -> Poll<io::Result<()>> {
        self.0.borrow_mut().sync()
    }

    fn life(&self) -> Option<nvram::Life> {
        self.0.borrow().life()
    }
}

type Drive = Protected<Pblk<Fuse<Device<RamMedium>>>, Shared>;

fn geometry() -> Geometry {
    let dim = Dimensions {
        groups: 2,
        chunks: DATA_CHUNKS,
        pages: 16,
        page_bytes: 16384,
        ..Dimensions::LEAST
    };
    Geometry::new(with_reserve(dim)).unwrap()
}

fn timing() -> Timing {
    Timing {
        read: vec![3_000],
        program: vec![100_000],
        erase: 1_000_000,
        command: 100,
        channel_rate: 800_000_000,
        ..Timing::default()
    }
}

/// A block that may be in flight has what it had, or what it is given.
#[derive(Clone, Copy)]
struct Block {
    has: u64,
    may: Option<u64>,
}

struct Model {
    rng: Rng,
    blocks: Vec<Block>,
    version: u64,
    /// Writes and trims that ended.
    ended: u64,
}

impl Model {
    /// Reads all and compares; then that is what the blocks have.
    fn verify(&mut self, drive: &mut Drive, mut now: Time) -> Time {
        for lba in 0..BLOCKS {
            let buffer = Buffer::zeroed(BLOCK).unwrap();
            let (id, op, offset, len) = (0, BlockOp::Read, (lba * BLOCK) as u64, BLOCK as u64);
            let (mut cmds, mut done) = (Ring::new(1), Ring::<BlockDone>::new(1));
            cmds.put(|| BlockReq::new(id, op, offset, len, buffer));
            let done = loop {
                drive.submit(now, &mut cmds);
                now = now.max(drive.next_event().expect("it is inside"));
                drive.advance(now, &mut done);
                if let Some(done) = done.pop() {
                    break done;
                }
            };
            assert!(done.status.is_ok());
            let bytes = done.buffer.bytes();
            let word = |i: usize| u64::from_le_bytes(bytes[8 * i..8 * i + 8].try_into().unwrap());
            assert!((1..BLOCK / 8).all(|i| word(i) == word(0)), "block {lba} is torn");
            let Block { has, may } = self.blocks[lba];
            assert!(word(0) == has || may == Some(word(0)), "block {lba}: {} not {has}", word(0));
            self.blocks[lba] = Block { has: word(0), may: None };
        }
        now
    }

    /// Works until the drive stops.
    fn work(&mut self, drive: &mut Drive, mut now: Time, left: &Cell<u64>) {
        let (mut cmds, mut done) = (Ring::new(8), Ring::<BlockDone>::new(8));
        // By number, the blocks and what they get.
        let mut flights: [Option<(usize, usize, u64)>; 8] = [None; 8];
        loop {
            for (slot, flight) in flights.iter_mut().enumerate() {
                let first = self.rng.below((BLOCKS as u64) - MOST_BLOCKS) as usize;
                let count = 1 + self.rng.below(MOST_BLOCKS) as usize;
                let kind = self.rng.below(20);
                let range = first..first + count;
                let taken = self.blocks[range.clone()].iter().any(|block| block.may.is_some());
                if flight.is_some() || taken || cmds.room() == 0 {
                    continue;
                }
                let (id, fua) = (slot as u64, kind.is_multiple_of(4));
                let (offset, len) = ((first * BLOCK) as u64, (count * BLOCK) as u64);
                self.version += 1;
                let (op, value) = match kind {
                    0 => (BlockOp::Trim, 0),
                    _ => (BlockOp::Write, self.version),
                };
                let mut buffer = Buffer::empty();
                if op == BlockOp::Write {
                    buffer = Buffer::zeroed(count * BLOCK).unwrap();
                    let words = buffer.bytes_mut().chunks_exact_mut(8);
                    words.for_each(|word| word.copy_from_slice(&value.to_le_bytes()));
                }
                self.blocks[range].iter_mut().for_each(|block| block.may = Some(value));
                *flight = Some((first, count, value));
                cmds.put(|| BlockReq { fua, ..BlockReq::new(id, op, offset, len, buffer) });
            }
            drive.submit(now, &mut cmds);
            let Some(event) = drive.next_event() else { return };
            now = now.max(event);
            drive.advance(event, &mut done);
            while let Some(one) = done.pop() {
                let (first, count, value) = flights[one.id as usize].take().unwrap();
                assert!(one.status.is_ok());
                self.ended += 1;
                for block in &mut self.blocks[first..first + count] {
                    *block = Block { has: value, may: None };
                }
            }
            if left.get() == 0 {
                return;
            }
        }
    }
}

/// What outlives a cut.
struct Left {
    device: Device<RamMedium>,
    store: Shared,
}

/// How a life of the drive went.
enum Life {
    /// Power went while pblk looked at the medium.
    CutInRecovery,
    /// Power went while the journal was written again.
    CutInReplay,
    /// It started, and worked until power went. Entries that were written
    /// again, and flushes below.
    Worked(u64, u64),
}

/// One life: power goes after `at_start` events, or, where there is no such
/// number, at some event of the work after the start.
fn live(seed: u64, model: &mut Model, left: Left, at_start: Option<u64>) -> (Left, Life) {
    let (geometry, timing) = (geometry(), timing());
    let config = PblkConfig::new((BLOCKS * BLOCK) as u64, DATA_CHUNKS, seed);
    let Left { device, store } = left;
    let fuse = Fuse::new(device, at_start.unwrap_or(u64::MAX));
    let (device, events) = (fuse.drive.clone(), fuse.left.clone());
    let life = match Pblk::recover(fuse, config, Time::ZERO) {
        Err(error) => {
            assert_eq!(events.get(), 0, "seed {seed}: {error}");
            Life::CutInRecovery
        }
        Ok((pblk, now)) => {
            let shape = pblk.shape();
            match Protected::start(pblk, shape, store.clone(), now) {
                Err(error) => {
                    assert_eq!(events.get(), 0, "seed {seed}: {error}");
                    Life::CutInReplay
                }
                Ok((mut drive, started)) => {
                    assert_eq!((drive.frozen(), started.gone), (None, 0));
                    let mut now = started.ready;
                    if at_start.is_none() {
                        now = model.verify(&mut drive, now);
                        events.set(1 + model.rng.below(3000));
                    }
                    model.work(&mut drive, now, &events);
                    Life::Worked(started.entries, drive.counters().flushes)
                }
            }
        }
    };
    let cut = Rc::into_inner(device).expect("the stack is gone").into_inner();
    let chunks = cut.chunks().to_vec();
    let device = Device::restore(&geometry, &timing, cut.cut(), &chunks).unwrap();
    (Left { device, store }, life)
}

/// What drives did that were cut again and again.
#[derive(Debug, Default)]
struct Did {
    /// Writes and trims that completed.
    ended: u64,
    /// Entries that were written again at a start.
    again: u64,
    /// Flushes below.
    flushes: u64,
    /// Starts that were cut, in pblk and in the replay.
    in_recovery: u64,
    in_replay: u64,
}

impl Did {
    fn look(&mut self, life: &Life) {
        match life {
            Life::CutInRecovery => self.in_recovery += 1,
            Life::CutInReplay => self.in_replay += 1,
            Life::Worked(again, flushes) => {
                self.again += again;
                self.flushes += flushes;
            }
        }
    }
}

/// A drive that is cut again and again.
fn cuts(seed: u64, rounds: u32, did: &mut Did) {
    let medium = RamMedium::new(&geometry(), BLOCK as u32).unwrap();
    let device = Device::new(&geometry(), &timing(), medium).unwrap();
    let mut store = NvRam::new(JOURNAL);
    format(&mut store).unwrap();
    let mut left = Left { device, store: Shared(Rc::new(RefCell::new(store))) };
    let block = Block { has: 0, may: None };
    let (rng, blocks) = (Rng::new(seed, 1), vec![block; BLOCKS]);
    let mut model = Model { rng, blocks, version: 0, ended: 0 };
    for _ in 0..rounds {
        let mut life;
        // Some starts are cut, one after the other.
        while model.rng.below(3) > 0 {
            let most = [60, 1500][model.rng.below(2) as usize];
            let events = model.rng.below(most);
            (left, life) = live(seed, &mut model, left, Some(events));
            did.look(&life);
        }
        (left, life) = live(seed, &mut model, left, None);
        did.look(&life);
    }
    did.ended += model.ended;
}

#[test]
fn what_completed_survives_cuts() {
    let mut did = Did::default();
    (0..SEEDS).for_each(|seed| cuts(seed, ROUNDS, &mut did));
    println!("{did:?}");
    assert!(did.ended > 2000 && did.again > 500 && did.flushes > 0, "{did:?}");
    assert!(did.in_recovery > 9 && did.in_replay > 9, "{did:?}");
}
