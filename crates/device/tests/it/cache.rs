//! The read cache against a drive of one version number a block.

use device::{CacheCounters, Cached};
use flash::ReadCache;
use port::random::Random;
use port::{BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Shape, Status, Time};
use proptest::prelude::*;

pub const BLOCKS: u64 = 256;
pub const SHAPE: Shape =
    Shape { bytes: BLOCKS * BLOCK_BYTES, kept: 8, max_bytes: 1 << 20, depth: 16 };

/// Keeps 8 bytes a block. A request takes 100 ns, or up to `spread` more, and does
/// what it does at some time between.
pub struct Slow {
    pub blocks: Vec<u64>,
    /// When it is done, when it completes, whether it was done.
    inside: Vec<(Time, Time, bool, BlockReq)>,
    random: Random,
    spread: u64,
    /// Reads that it was asked for, in blocks.
    read: u64,
    pub fails: bool,
    /// Reads of this block end so, until it is written.
    pub bad_read: Option<(u64, Status)>,
}

impl Slow {
    pub fn new(spread: u64) -> Slow {
        let (blocks, random) = (vec![0; BLOCKS as usize], Random::new(spread, 0));
        Slow { blocks, inside: Vec::new(), random, spread, read: 0, fails: false, bad_read: None }
    }

    fn work(&mut self, i: usize) {
        let (_, _, done, req) = &mut self.inside[i];
        *done = true;
        if req.op == BlockOp::Flush {
            return;
        }
        let (first, n) = ((req.offset / BLOCK_BYTES) as usize, (req.len / BLOCK_BYTES) as usize);
        let blocks = &mut self.blocks[first..first + n];
        match req.op {
            BlockOp::Read => {
                let bytes = req.buffer.bytes_mut().chunks_exact_mut(8);
                bytes.zip(blocks).for_each(|(to, b)| to.copy_from_slice(&b.to_le_bytes()));
                self.read += n as u64;
            }
            BlockOp::Write => {
                let bytes = req.buffer.bytes().chunks_exact(8);
                let one = |b: &[u8]| u64::from_le_bytes(b.try_into().unwrap());
                bytes.zip(blocks).for_each(|(from, b)| *b = one(from));
            }
            _ => blocks.fill(0),
        }
    }
}

impl Port for Slow {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        while self.inside.len() < SHAPE.depth
            && let Some(req) = cmds.pop()
        {
            let at = now + 100 + self.random.below(self.spread + 1);
            self.inside.push((now + self.random.below(at - now + 1), at, false, req));
        }
    }

    fn next_event(&self) -> Option<Time> {
        self.inside.iter().map(|i| if i.2 { i.1 } else { i.0.min(i.1) }).min()
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        for i in 0..self.inside.len() {
            if !self.inside[i].2 && self.inside[i].0 <= to {
                self.work(i);
            }
        }
        while let Some(i) = self.inside.iter().position(|i| i.2 && i.1 <= to) {
            if done.room() == 0 {
                return;
            }
            let (_, _, _, BlockReq { id, op, offset, len, buffer, .. }) =
                self.inside.swap_remove(i);
            let covers = |block: u64| (offset..offset + len).contains(&(block * BLOCK_BYTES));
            let status = match self.bad_read.filter(|&(block, _)| covers(block)) {
                _ if self.fails => Status::WRITE_FAULT,
                Some((_, status)) if op == BlockOp::Read => status,
                Some(_) => {
                    self.bad_read = None;
                    Status::SUCCESS
                }
                None => Status::SUCCESS,
            };
            done.push(BlockDone { id, op, status, at: to, buffer }).unwrap();
        }
    }
}

pub fn request(id: u64, op: BlockOp, block: u64, blocks: u64, version: u64) -> BlockReq {
    let data = matches!(op, BlockOp::Read | BlockOp::Write);
    let mut buffer = Buffer::zeroed(if data { blocks as usize * 8 } else { 0 }).unwrap();
    if op == BlockOp::Write {
        buffer
            .bytes_mut()
            .chunks_exact_mut(8)
            .for_each(|b| b.copy_from_slice(&version.to_le_bytes()));
    }
    BlockReq::new(id, op, block * BLOCK_BYTES, blocks * BLOCK_BYTES, buffer)
}

fn cached(spread: u64, config: ReadCache) -> Cached<Slow> {
    Cached::new(config, Slow::new(spread), SHAPE).unwrap()
}

/// One request alone; gives what it took and what it read.
fn one(drive: &mut Cached<Slow>, now: u64, req: BlockReq) -> (u64, Vec<u64>) {
    let (mut cmds, mut done) = (Ring::new(1), Ring::new(1));
    cmds.push(req).unwrap();
    drive.submit(Time(now), &mut cmds);
    while done.is_empty() {
        let at = drive.next_event().expect("it completes");
        drive.advance(at, &mut done);
    }
    let done: BlockDone = done.pop().unwrap();
    assert!(done.status.is_ok());
    let bytes = done.buffer.bytes().chunks_exact(8);
    (done.at.0 - now, bytes.map(|b| u64::from_le_bytes(b.try_into().unwrap())).collect())
}

/// Lets what is read ahead end.
fn rest(drive: &mut Cached<Slow>) {
    let mut done = Ring::new(1);
    while let Some(at) = drive.next_event() {
        drive.advance(at, &mut done);
    }
}

#[test]
fn what_was_read_is_read_again_at_once() {
    let config = ReadCache { size: 1 << 20, line: 65536, depth: 0 };
    let mut drive = cached(0, config);
    one(&mut drive, 0, request(1, BlockOp::Write, 4, 2, 7));
    assert_eq!(one(&mut drive, 1000, request(2, BlockOp::Read, 4, 2, 0)), (100, vec![7, 7]));
    assert_eq!(one(&mut drive, 2000, request(3, BlockOp::Read, 5, 1, 0)), (0, vec![7]));
    // Its neighbour was not read, and what is written is not kept.
    assert_eq!(one(&mut drive, 3000, request(4, BlockOp::Read, 5, 2, 0)), (100, vec![7, 0]));
    one(&mut drive, 4000, request(5, BlockOp::Write, 5, 1, 8));
    assert_eq!(one(&mut drive, 5000, request(6, BlockOp::Read, 5, 1, 0)), (100, vec![8]));
    one(&mut drive, 6000, request(7, BlockOp::Trim, 0, BLOCKS, 0));
    assert_eq!(one(&mut drive, 7000, request(8, BlockOp::Read, 4, 3, 0)), (100, vec![0, 0, 0]));
    assert_eq!(drive.counters(), CacheCounters { hits: 1, misses: 4, ahead: 0 });
}

#[test]
fn what_follows_is_read_ahead_where_few_reads_are_inside() {
    let config = ReadCache { size: 1 << 20, line: 65536, depth: 1 };
    let mut drive = cached(0, config);
    one(&mut drive, 0, request(1, BlockOp::Write, 0, 16, 9));
    assert_eq!(one(&mut drive, 1000, request(2, BlockOp::Read, 2, 1, 0)), (100, vec![9]));
    rest(&mut drive);
    assert_eq!(drive.counters().ahead, 0, "one that follows no other");
    assert_eq!(one(&mut drive, 1500, request(2, BlockOp::Read, 3, 1, 0)), (100, vec![9]));
    rest(&mut drive);
    assert_eq!(one(&mut drive, 2000, request(3, BlockOp::Read, 4, 12, 0)), (0, vec![9; 12]));
    assert_eq!(drive.counters(), CacheCounters { hits: 1, misses: 2, ahead: 12 });
    assert_eq!(drive.below().read, 14, "nothing is read twice");

    // Of two streams side by side the second has two inside.
    let (mut cmds, mut done) = (Ring::new(2), Ring::new(2));
    for at in 0..2 {
        for (id, block) in [(4, 32), (5, 64)] {
            cmds.push(request(id, BlockOp::Read, block + at, 1, 0)).unwrap();
        }
        drive.submit(Time(3000 + 1000 * at), &mut cmds);
        while done.len() < 2 {
            drive.advance(drive.next_event().unwrap(), &mut done);
        }
        done.drain().for_each(drop);
        rest(&mut drive);
    }
    assert_eq!(drive.counters().ahead, 12 + 14, "the first was alone");
}

#[test]
fn a_read_waits_for_what_is_being_read_ahead() {
    let config = ReadCache { size: 1 << 20, line: 65536, depth: 4 };
    let mut drive = cached(0, config);
    one(&mut drive, 0, request(0, BlockOp::Read, 0, 1, 0));
    let mut cmds = Ring::new(1);
    cmds.push(request(1, BlockOp::Read, 1, 1, 0)).unwrap();
    drive.submit(Time(1000), &mut cmds);
    cmds.push(request(2, BlockOp::Read, 8, 1, 0)).unwrap();
    drive.submit(Time(1040), &mut cmds);
    let mut done = Ring::new(4);
    while done.len() < 2 {
        drive.advance(drive.next_event().unwrap(), &mut done);
    }
    let at: Vec<_> = done.drain().map(|d: BlockDone| (d.id, d.at.0)).collect();
    assert_eq!(at, [(1, 1100), (2, 1100)]);
    assert_eq!(drive.below().read, 16);
}

#[test]
fn reading_ahead_that_fails_is_as_if_it_were_not() {
    let config = ReadCache { size: 1 << 20, line: 65536, depth: 4 };
    let mut drive = cached(0, config);
    let (mut cmds, mut done) = (Ring::new(2), Ring::new(2));
    one(&mut drive, 0, request(0, BlockOp::Read, 0, 1, 0));
    drive.below_mut().fails = true;
    cmds.push(request(1, BlockOp::Read, 1, 1, 0)).unwrap();
    cmds.push(request(2, BlockOp::Read, 8, 1, 0)).unwrap();
    drive.submit(Time(1000), &mut cmds);
    while done.len() < 2 {
        drive.advance(drive.next_event().unwrap(), &mut done);
    }
    let ends: Vec<_> = done.drain().map(|d: BlockDone| (d.id, d.status, d.at.0)).collect();
    assert_eq!(ends, [(1, Status::WRITE_FAULT, 1100), (2, Status::WRITE_FAULT, 1200)]);
    drive.below_mut().fails = false;
    assert_eq!(one(&mut drive, 2000, request(3, BlockOp::Read, 1, 1, 0)).0, 100);
}

proptest! {
    /// No read gives less than what had completed, or been read, when it came, nor more
    /// than what had been asked for when it ended.
    #[test]
    fn a_read_gives_what_was_there(
        seed in any::<u64>(),
        spread in 0u64..400,
        lines in 1u64..12,
        log in 0u32..7,
        depth in 0u32..10,
    ) {
        let line = 4096 << log;
        let mut drive = cached(spread, ReadCache { size: lines * u64::from(line), line, depth });
        let mut random = Random::new(seed, 1);
        let (mut cmds, mut done) = (Ring::new(1), Ring::new(16));
        // Of each block the versions that were asked for, and that completed or were read;
        // of each request what these were when it came.
        let (mut asked, mut there) = (vec![0u64; BLOCKS as usize], vec![0u64; BLOCKS as usize]);
        let mut open: Vec<Option<(BlockOp, u64, Vec<u64>)>> = Vec::new();
        let mut busy = vec![0u32; BLOCKS as usize];
        let (mut now, mut left) = (Time(0), 600);
        while left > 0 || open.iter().any(Option::is_some) {
            let inside = open.iter().flatten().count();
            if left > 0 && inside < 8 && random.chance(0.6) {
                left -= 1;
                let n = if random.chance(0.05) { 1 + random.below(BLOCKS) } else { 1 + random.below(9) };
                let first = random.below(BLOCKS - n + 1);
                let range = first as usize..(first + n) as usize;
                let op = match random.below(10) {
                    0..6 => BlockOp::Read,
                    6..9 => BlockOp::Write,
                    _ => BlockOp::Flush,
                };
                // One write a block at a time, so that versions only grow.
                if op == BlockOp::Write && busy[range.clone()].iter().any(|&b| b > 0) {
                    continue;
                }
                let id = open.len() as u64;
                let req = match op {
                    BlockOp::Flush => request(id, op, 0, 0, 0),
                    _ => request(id, op, first, n, id + 1),
                };
                if op == BlockOp::Write {
                    busy[range.clone()].iter_mut().for_each(|b| *b += 1);
                    asked[range.clone()].fill(id + 1);
                }
                open.push(Some((op, first, there[range].to_vec())));
                cmds.push(req).unwrap();
                drive.submit(now, &mut cmds);
                prop_assert!(cmds.is_empty());
            } else if let Some(at) = drive.next_event() {
                prop_assert!(at >= now);
                now = at;
                drive.advance(now, &mut done);
                for done in done.drain() {
                    prop_assert!(done.status.is_ok());
                    let (op, first, was) = open[done.id as usize].take().unwrap();
                    let first = first as usize;
                    let range = first..first + was.len();
                    if op == BlockOp::Write {
                        there[range.clone()].fill(done.id + 1);
                        busy[range].iter_mut().for_each(|b| *b -= 1);
                    } else if op == BlockOp::Read {
                        for (i, bytes) in done.buffer.bytes().chunks_exact(8).enumerate() {
                            let got = u64::from_le_bytes(bytes.try_into().unwrap());
                            prop_assert!(got >= was[i] && got <= asked[first + i]);
                            there[first + i] = there[first + i].max(got);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_cache_has_no_more_lines_than_its_drive() {
    let all = ReadCache { size: SHAPE.bytes, line: 4096, depth: 0 };
    let more = ReadCache { size: u64::MAX, ..all };
    assert_eq!(Cached::<Slow>::bytes(&more, &SHAPE), Cached::<Slow>::bytes(&all, &SHAPE));
    let mut drive = cached(0, more);
    one(&mut drive, 0, request(1, BlockOp::Write, 0, BLOCKS, 3));
    assert_eq!(one(&mut drive, 1000, request(2, BlockOp::Read, 9, 1, 0)).1, [3]);
}
