//! Targets of blocks and of keys on one drive: random work on both, targets of keys that come
//! and go, power cuts anywhere, and a check of all that was promised.

use std::collections::VecDeque;

use device::{Device, OpenChannel};
use ftl::OneOf;
use media::{Claim, Partition, Placement, Shared};
use port::random::Random;
use port::{BlockOp, BlockReq, Buffer, KvOp, KvReq, Port, PutIf, Ring, Status, Time};
use targets::{Kv, KvConfig, KvTenant, Pblk};
use thiserror::Error;

use crate::world::{BLOCK, Flash, claim, config, flash, request, timing};

type Part = Partition<Flash>;
type Either = OneOf<Pblk<Part>, KvTenant<Part>>;

#[derive(Debug, Error)]
#[error("{0}")]
struct Wrong(String);

fn wrong(e: impl std::fmt::Display) -> Wrong {
    Wrong(e.to_string())
}

/// Blocks that are written, keys that are put, and rows of a large value.
const CELLS: usize = 24;
const LARGE: usize = 100_000;

/// Requests of each kind at once, at most.
const AT_ONCE: usize = 6;

/// What a block or a key was given, in order; nothing is a delete.
#[derive(Clone, Debug)]
struct Cell {
    given: Vec<Option<u8>>,
    /// So many of them have completed, and so many are durable.
    done: usize,
    safe: usize,
    is_busy: bool,
}

impl Cell {
    /// It has this, and nothing else can come back.
    fn of(value: Option<u8>) -> Cell {
        Cell { given: vec![value], done: 1, safe: 1, is_busy: false }
    }

    fn give(&mut self, value: Option<u8>) {
        self.given.push(value);
        self.is_busy = true;
    }

    fn ended(&mut self, is_durable: bool) {
        (self.done, self.is_busy) = (self.given.len(), false);
        if is_durable {
            self.safe = self.done;
        }
    }

    /// Whether it may be so after a cut.
    fn may_be(&self, value: Option<u8>) -> bool {
        self.given[self.safe - 1..].contains(&value)
    }
}

/// A request that is inside: of which cell, and whether it makes it durable; or a flush, with
/// what had completed when it came.
#[derive(Debug)]
enum Asked {
    Change(usize, bool),
    Flush(Vec<usize>),
}

/// What one kind of target was asked.
#[derive(Debug)]
struct Side {
    cells: Vec<Cell>,
    inside: VecDeque<(u64, Asked)>,
}

impl Side {
    fn new(empty: Option<u8>) -> Side {
        Side { cells: vec![Cell::of(empty); CELLS], inside: VecDeque::new() }
    }

    fn ended(&mut self, id: u64, status: Status) {
        assert!(status.is_ok() || status == Status::KEY_NOT_FOUND, "{id}: {status:?}");
        let at = self.inside.iter().position(|(its, _)| *its == id).expect("it was asked");
        match self.inside.remove(at).unwrap().1 {
            // One that found nothing made nothing durable.
            Asked::Change(cell, asks) => self.cells[cell].ended(asks && status.is_ok()),
            Asked::Flush(done) => {
                for (cell, done) in self.cells.iter_mut().zip(done) {
                    cell.safe = cell.safe.max(done);
                }
            }
        }
    }

    fn flush(&mut self, id: u64) {
        let done = self.cells.iter().map(|cell| cell.done).collect();
        self.inside.push_back((id, Asked::Flush(done)));
    }

    /// A cell that nobody changes just now.
    fn idle(&self, random: &mut Random) -> Option<usize> {
        let cell = random.below(CELLS as u64) as usize;
        (!self.cells[cell].is_busy).then_some(cell)
    }
}

/// A drive of both kinds, and what each was asked.
struct World {
    drive: Shared<Flash, Either>,
    placement: Placement,
    now: Time,
    next: u64,
    blocks: Side,
    keys: Side,
    /// The number of the target of keys, unless there is none.
    keyed: Option<usize>,
    counts: Counts,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    cuts: u64,
    changes: u64,
    deletes: u64,
    flushes: u64,
    comings: u64,
    moved: u64,
}

fn claim_of(drive: &Shared<Flash, Either>, placement: Placement, n: u32) -> Claim {
    let place = placement.place(drive.media().device().geometry(), 2, n).unwrap();
    // Where it begins is as if both had blocks.
    Claim { first: Some(u64::from(n) << 30), ..claim(place, 128) }
}

fn keys_of(part: &Part) -> KvConfig {
    KvConfig {
        keys: 64,
        spare: 0.3,
        checkpoint_rows: 4,
        seed: 5,
        ..KvConfig::for_geometry(part.geometry())
    }
}

fn pblk(part: Part) -> Result<Either, Wrong> {
    let config = config(part.geometry());
    Pblk::new(part, config).map(OneOf::First).map_err(wrong)
}

fn kv(part: Part) -> Result<Either, Wrong> {
    let config = keys_of(&part);
    Kv::new(part, config).map(|kv| OneOf::Second(KvTenant::new(kv))).map_err(wrong)
}

fn key_of(cell: usize) -> Buffer {
    let mut key = Buffer::zeroed(4).unwrap();
    key.bytes_mut().copy_from_slice(&(cell as u32).to_le_bytes());
    key
}

fn value_len(cell: usize) -> usize {
    if cell.is_multiple_of(6) { LARGE } else { 100 + 90 * cell }
}

impl World {
    fn new(seed: u64) -> World {
        let placement = if seed.is_multiple_of(2) { Placement::Isolate } else { Placement::Stripe };
        let a_unit = if placement == Placement::Stripe { 2 } else { 1 };
        let mut drive = Shared::new(flash(2, 2, a_unit, &timing()));
        drive.create(&claim_of(&drive, placement, 0), pblk).unwrap();
        let keyed = drive.create(&claim_of(&drive, placement, 1), kv).unwrap();
        assert_eq!(drive.shape().bytes, drive.shape_of(0).bytes, "it ends where blocks do");
        World {
            drive,
            placement,
            now: Time::ZERO,
            next: 0,
            blocks: Side::new(Some(0)),
            keys: Side::new(None),
            keyed: Some(keyed),
            counts: Counts::default(),
        }
    }

    fn ask_blocks(&mut self, random: &mut Random) {
        let mut cmds = Ring::new(1);
        let id = self.next;
        if random.below(12) == 0 {
            self.blocks.flush(id);
            cmds.put(|| request(id, BlockOp::Flush, 0, 0, 0));
        } else if let Some(cell) = self.blocks.idle(random) {
            let (value, fua) = (random.bits() as u8, random.below(6) == 0);
            self.blocks.cells[cell].give(Some(value));
            self.blocks.inside.push_back((id, Asked::Change(cell, fua)));
            let req = request(id, BlockOp::Write, cell as u64 * BLOCK, BLOCK, value);
            cmds.put(|| BlockReq { fua, ..req });
        }
        self.next += 1;
        self.drive.submit(self.now, &mut cmds);
        assert!(cmds.is_empty(), "it has room");
    }

    fn ask_keys(&mut self, keyed: usize, random: &mut Random) {
        let mut reqs = Ring::new(1);
        let (id, empty) = (self.next, Buffer::empty);
        if random.below(12) == 0 {
            self.keys.flush(id);
            let (key, value) = (empty(), empty());
            reqs.put(|| KvReq { id, op: KvOp::Flush, durable: false, key, len: 0, value });
            self.counts.flushes += 1;
        } else if let Some(cell) = self.keys.idle(random) {
            let durable = random.below(6) == 0;
            let value = (random.below(4) > 0).then(|| random.bits() as u8);
            self.keys.cells[cell].give(value);
            self.keys.inside.push_back((id, Asked::Change(cell, durable)));
            let mut bytes = Buffer::zeroed(value.map_or(0, |_| value_len(cell))).unwrap();
            bytes.bytes_mut().fill(value.unwrap_or(0));
            let op = if value.is_some() { KvOp::Put(PutIf::Any) } else { KvOp::Delete };
            let len = bytes.len() as u64;
            reqs.put(|| KvReq { id, op, durable, key: key_of(cell), len, value: bytes });
            self.counts.deletes += u64::from(value.is_none());
            self.counts.changes += 1;
        }
        self.next += 1;
        self.drive.submit_keys(keyed, self.now, &mut reqs).unwrap();
        assert!(reqs.is_empty(), "it has room");
    }

    /// Takes all that completed.
    fn take(&mut self, done: &mut Ring<port::BlockDone>) {
        for done in done.drain() {
            self.blocks.ended(done.id, done.status);
        }
        let Some(keyed) = self.keyed else { return };
        let mut keys = Ring::new(8);
        while self.drive.take_keys(keyed, &mut keys).is_ok() && !keys.is_empty() {
            for done in keys.drain() {
                self.keys.ended(done.id, done.status);
            }
        }
    }

    /// The next event; false where there is none.
    fn step(&mut self) -> bool {
        let Some(at) = self.drive.next_event() else { return false };
        let mut done = Ring::new(8);
        self.now = self.now.max(at);
        self.drive.advance(at, &mut done);
        self.take(&mut done);
        true
    }

    /// The target of keys goes with all that it has; or another comes.
    fn come_or_go(&mut self) {
        // What it was asked ends first.
        while !self.keys.inside.is_empty() && self.step() {}
        if let Some(keyed) = self.keyed.take() {
            self.drive.remove(keyed, self.now).unwrap();
            self.keys = Side::new(None);
        } else if self.keyed.is_none() {
            // Its chunks are erased first.
            let claim = claim_of(&self.drive, self.placement, 1);
            self.keyed = self.drive.create(&claim, kv).ok();
            self.counts.comings += u64::from(self.keyed.is_some());
        }
    }

    /// Random work until a random moment.
    fn work(&mut self, random: &mut Random) {
        for _ in 0..300 + random.below(1200) {
            match random.below(400) {
                0 => self.come_or_go(),
                1..120 if self.blocks.inside.len() < AT_ONCE => self.ask_blocks(random),
                120..240 => match self.keyed {
                    Some(keyed) if self.keys.inside.len() < AT_ONCE => self.ask_keys(keyed, random),
                    Some(_) => {}
                    None => self.come_or_go(),
                },
                _ => {
                    self.step();
                }
            }
        }
    }

    /// The power goes, and all are found again.
    fn cut(self) -> World {
        let World { drive, placement, blocks, keys, keyed, mut counts, next, .. } = self;
        let moved: u64 =
            drive.numbers().iter().map(|&n| ftl::Target::counters(drive.target(n)).gc).sum();
        let device = drive.into_device();
        let (geometry, timing) = (*device.geometry(), device.timing().clone());
        let chunks = device.chunks().to_vec();
        let device = Device::restore(&geometry, &timing, device.cut(), &chunks).unwrap();
        let mut drive = Shared::new(device);
        let find = |part: Part, now| {
            let config = config(part.geometry());
            let (target, now) = Pblk::recover(part, config, now).map_err(wrong)?;
            Ok::<_, Wrong>((Either::First(target), now))
        };
        let found = drive.found(&claim_of(&drive, placement, 0), Time::ZERO, find).unwrap();
        assert!(found.lost.is_none(), "{:?}", found.lost);
        let mut now = found.ready;
        let keyed = keyed.map(|_| {
            let find = |part: Part, now| {
                let config = keys_of(&part);
                let (kv, now) = Kv::recover(part, config, now).map_err(wrong)?;
                Ok::<_, Wrong>((Either::Second(KvTenant::new(kv)), now))
            };
            let found = drive.found(&claim_of(&drive, placement, 1), now, find).unwrap();
            assert!(found.lost.is_none(), "{:?}", found.lost);
            now = found.ready;
            found.number
        });
        drive.media_mut().clear(now);
        (counts.cuts, counts.moved) = (counts.cuts + 1, counts.moved + moved);
        let inside = VecDeque::new();
        let (blocks, keys) = (Side { inside, ..blocks }, Side { inside: VecDeque::new(), ..keys });
        World { drive, placement, now, next, blocks, keys, keyed, counts }
    }

    /// What is there is what may be, and is that from now on.
    fn check(&mut self) {
        for cell in 0..CELLS {
            let (mut cmds, mut done) = (Ring::new(1), Ring::new(1));
            cmds.put(|| request(0, BlockOp::Read, cell as u64 * BLOCK, BLOCK, 0));
            self.drive.submit(self.now, &mut cmds);
            let read = loop {
                let at = self.drive.next_event().expect("it is inside");
                self.now = self.now.max(at);
                self.drive.advance(at, &mut done);
                if let Some(done) = done.pop() {
                    break done;
                }
            };
            let byte = read.buffer.bytes()[0];
            assert!(read.status.is_ok() && read.buffer.bytes().iter().all(|&b| b == byte));
            let was = &self.blocks.cells[cell];
            assert!(was.may_be(Some(byte)), "block {cell} is {byte}: {was:?}");
            self.blocks.cells[cell] = Cell::of(Some(byte));
        }
        let Some(keyed) = self.keyed else { return };
        for cell in 0..CELLS {
            let found = self.value(keyed, cell);
            let was = &self.keys.cells[cell];
            assert!(was.may_be(found), "key {cell} is {found:?}: {was:?}");
            self.keys.cells[cell] = Cell::of(found);
        }
    }

    fn value(&mut self, keyed: usize, cell: usize) -> Option<u8> {
        let (mut reqs, mut done, mut none) = (Ring::new(1), Ring::new(1), Ring::new(1));
        let value = Buffer::zeroed(LARGE).unwrap();
        reqs.put(|| KvReq {
            id: 0,
            op: KvOp::Get,
            durable: false,
            key: key_of(cell),
            len: 0,
            value,
        });
        self.drive.submit_keys(keyed, self.now, &mut reqs).unwrap();
        let read = loop {
            let at = self.drive.next_event().expect("it is inside");
            self.now = self.now.max(at);
            self.drive.advance(at, &mut none);
            self.drive.take_keys(keyed, &mut done).unwrap();
            if let Some(done) = done.pop() {
                break done;
            }
        };
        if read.status == Status::KEY_NOT_FOUND {
            return None;
        }
        assert!(read.status.is_ok(), "{:?}", read.status);
        let bytes = &read.value.bytes()[..value_len(cell)];
        assert!(read.len as usize == bytes.len() && bytes.iter().all(|&b| b == bytes[0]));
        Some(bytes[0])
    }
}

/// A drive that is cut so often.
fn life(seed: u64, cuts: u64) -> Counts {
    let mut random = Random::new(seed, 9);
    let mut world = World::new(seed);
    for _ in 0..cuts {
        world.work(&mut random);
        world = world.cut();
        world.check();
    }
    while world.step() {}
    assert!(world.keys.inside.is_empty() && world.blocks.inside.is_empty());
    world.counts
}

#[test]
fn blocks_and_keys_keep_what_they_promise() {
    let seeds = std::env::var("SOAK_SEEDS").map_or(40, |seeds| seeds.parse().unwrap());
    let first = std::env::var("SOAK_SEED").map_or(0, |seed| seed.parse().unwrap());
    let all: Vec<Counts> = (first..first + seeds).map(|seed| life(seed, 12)).collect();
    let sum = |of: fn(&Counts) -> u64| all.iter().map(of).sum::<u64>();
    eprintln!(
        "{} cuts, {} puts and deletes, {} of the latter, {} flushes, {} targets came, {} blocks moved",
        sum(|c| c.cuts),
        sum(|c| c.changes),
        sum(|c| c.deletes),
        sum(|c| c.flushes),
        sum(|c| c.comings),
        sum(|c| c.moved),
    );
    assert!(sum(|c| c.changes) > 10_000 && sum(|c| c.deletes) > 1000);
    assert!(sum(|c| c.comings) > 20 && sum(|c| c.moved) > 100);
}

/// What completed by key and nobody took delays no blocks, ends a turn, and holds its target.
#[test]
fn completions_by_key_that_nobody_takes_hold_up_no_blocks() {
    let mut world = World::new(0);
    let mut random = Random::new(1, 2);
    let keyed = world.keyed.unwrap();
    for _ in 0..4 {
        world.ask_keys(keyed, &mut random);
    }
    let (mut cmds, mut done) = (Ring::new(1), Ring::new(1));
    let turn = world.drive.turn(world.now, None, &mut cmds, &mut done);
    let port::Turn::Completed(at) = turn else { panic!("{turn:?}") };
    assert!(done.is_empty() && world.drive.next_event().is_none_or(|next| next > at));
    for block in 0..64 {
        let req = request(block, BlockOp::Write, block * BLOCK, BLOCK, 1);
        let (done, now) = crate::world::act(&mut world.drive, world.now.max(at), req);
        assert!(done.status.is_ok());
        world.now = now;
    }
    world.drive.remove(keyed, world.now).unwrap();
    let mut none = Ring::new(1);
    while let Some(at) = world.drive.next_event() {
        world.now = world.now.max(at);
        world.drive.advance(at, &mut none);
    }
    assert!(!world.drive.is_gone(keyed), "its completions are not taken");
    let told = world.drive.submit_keys(keyed, world.now, &mut Ring::new(1)).unwrap_err();
    assert!(told.to_string().contains("serves no keys"), "{told}");
    world.take(&mut none);
    while let Some(at) = world.drive.next_event() {
        world.drive.advance(at, &mut none);
    }
    assert!(world.drive.is_gone(keyed));
    assert!(world.drive.take_keys(keyed, &mut Ring::new(1)).is_err());
}
