//! A device that does everything a driver may do, and, if asked, what it may
//! not: it takes any time, completes in any order, refuses, loses, completes
//! twice, late, or tags it was never given, and goes away. What is written is
//! kept, and lands when its request completes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use blkmq::driver::tag_of;
use blkmq::{Abort, Driver, HardwareQueue, Topology};
use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Shape, Status, Time};
use workload::Rng;

/// What a device does wrong, each once in so many requests; 0 is never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub lose: u64,
    pub double: u64,
    pub invent: u64,
    /// A lost request completes after all when it is asked for.
    pub late: u64,
    /// The device is gone after so many.
    pub gone_after: u64,
    /// It cannot be reset.
    pub no_reset: bool,
}

/// A block, in bytes.
pub const BLOCK: u64 = 4096;
/// Blocks that the device keeps.
const BLOCKS: usize = 1024;
/// Where in a block the words lie that are kept of it.
const WORDS: [usize; 4] = [0, 8, 4080, 4088];

/// What is kept of a block: its first and its last words.
pub type Kept = [u64; 4];

/// What all queues of a device write to and read from.
#[derive(Debug)]
pub struct Ram(Box<[[AtomicU64; 4]]>);

impl Ram {
    fn new() -> Arc<Ram> {
        Arc::new(Ram((0..BLOCKS).map(|_| Default::default()).collect()))
    }

    /// Carries a request out. Requests without a buffer move nothing.
    fn carry_out(&self, op: BlockOp, offset: u64, len: u64, buffer: &mut Buffer) {
        for (i, at) in (offset..offset + len).step_by(BLOCK as usize).enumerate() {
            let block = &self.0[(at / BLOCK) as usize % BLOCKS];
            let bytes = i * BLOCK as usize..(i + 1) * BLOCK as usize;
            match op {
                BlockOp::Trim | BlockOp::WriteZeroes => {
                    block.iter().for_each(|word| word.store(0, Ordering::Relaxed));
                }
                BlockOp::Write if buffer.len() >= bytes.end => {
                    let kept = kept(&buffer.bytes()[bytes]);
                    block.iter().zip(kept).for_each(|(word, n)| word.store(n, Ordering::Relaxed));
                }
                BlockOp::Read if buffer.len() >= bytes.end => {
                    let words = block.each_ref().map(|word| word.load(Ordering::Relaxed));
                    fill(&mut buffer.bytes_mut()[bytes], words);
                }
                _ => {}
            }
        }
    }
}

/// What is kept of a block with these bytes.
pub fn kept(bytes: &[u8]) -> Kept {
    WORDS.map(|at| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes")))
}

/// Writes what is kept of a block into its bytes.
pub fn fill(bytes: &mut [u8], words: Kept) {
    for (at, word) in WORDS.into_iter().zip(words) {
        bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
}

#[derive(Clone, Debug)]
pub struct Chaos {
    pub queues: [usize; 3],
    pub depth: usize,
    pub shares_tags: bool,
    pub faults: Faults,
    pub longest: u64,
    pub seed: u64,
}

impl Driver for Chaos {
    type Queue = ChaosQueue;

    fn shape(&self) -> Shape {
        Shape { bytes: 1 << 30, kept: 4096, max_bytes: 1 << 17, depth: self.depth }
    }

    fn queues(&self) -> [usize; 3] {
        self.queues
    }

    fn shares_tags(&self) -> bool {
        self.shares_tags
    }

    fn open(self) -> Vec<ChaosQueue> {
        let (count, ram) = (self.queues.iter().sum(), Ram::new());
        (0..count).map(|n: usize| ChaosQueue::new(&self, n as u64, ram.clone())).collect()
    }
}

/// A request inside.
struct Inside {
    at: Time,
    offset: u64,
    len: u64,
    /// It completes twice.
    twice: bool,
    done: BlockDone,
}

impl Inside {
    fn extra(at: Time, id: u64) -> Inside {
        let (op, status, buffer) = (BlockOp::Read, Status::SUCCESS, Buffer::empty());
        let done = BlockDone { id, op, status, at: Time::ZERO, buffer };
        Inside { at, offset: 0, len: 0, twice: false, done }
    }
}

pub struct ChaosQueue {
    depth: usize,
    faults: Faults,
    longest: u64,
    rng: Rng,
    ram: Arc<Ram>,
    inside: Vec<Inside>,
    lost: Vec<Inside>,
    taken: u64,
    /// The most that were inside at once.
    pub most: usize,
}

impl ChaosQueue {
    fn new(chaos: &Chaos, number: u64, ram: Arc<Ram>) -> ChaosQueue {
        ChaosQueue {
            depth: chaos.depth,
            faults: chaos.faults,
            longest: chaos.longest,
            rng: Rng::new(chaos.seed, number),
            ram,
            inside: Vec::new(),
            lost: Vec::new(),
            taken: 0,
            most: 0,
        }
    }

    fn happens(&mut self, every: u64) -> bool {
        every > 0 && self.rng.below(every) == 0
    }
}

impl Port for ChaosQueue {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        while let Some(front) = cmds.front() {
            assert!(tag_of(front.id) < self.depth * 64, "a tag is small");
            // Now and then it has no room, for no reason.
            if self.is_gone() || (self.rng.below(8) == 0 && !self.inside.is_empty()) {
                return;
            }
            let Some(BlockReq { id, op, offset, len, buffer, .. }) = cmds.pop() else { return };
            assert!(!self.inside.iter().any(|one| one.done.id == id), "a tag is given once");
            self.taken += 1;
            let at = now + self.rng.below(self.longest + 1);
            let done = BlockDone { id, op, status: Status::SUCCESS, at, buffer };
            let twice = self.happens(self.faults.double);
            let one = Inside { at, offset, len, twice, done };
            if self.happens(self.faults.lose) {
                self.lost.push(one);
            } else {
                if self.happens(self.faults.invent) {
                    let tag = self.rng.bits();
                    self.inside.push(Inside::extra(at, tag));
                }
                self.inside.push(one);
            }
            self.most = self.most.max(self.inside.len() + self.lost.len());
        }
    }

    fn next_event(&self) -> Option<Time> {
        if self.is_gone() { None } else { self.inside.iter().map(|one| one.at).min() }
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        if self.is_gone() {
            return;
        }
        let mut at = 0;
        while at < self.inside.len() && done.room() > 0 {
            if self.inside[at].at <= to {
                let mut one = self.inside.swap_remove(at);
                if one.twice {
                    self.inside.push(Inside::extra(one.at + 1, one.done.id));
                }
                let Inside { offset, len, .. } = one;
                self.ram.carry_out(one.done.op, offset, len, &mut one.done.buffer);
                assert!(done.push(one.done).is_ok(), "there was room");
            } else {
                at += 1;
            }
        }
    }
}

impl HardwareQueue for ChaosQueue {
    fn depth(&self) -> usize {
        self.depth
    }

    fn is_gone(&self) -> bool {
        self.faults.gone_after > 0 && self.taken >= self.faults.gone_after
    }

    fn abort(&mut self, id: u64) -> Abort {
        if let Some(at) = self.lost.iter().position(|one| one.done.id == id) {
            if !self.is_gone() && self.happens(self.faults.late) {
                // It lands after all, and says so.
                let mut one = self.lost.remove(at);
                one.at += 5 * self.longest;
                self.inside.push(one);
                return Abort::Lost;
            }
            if !self.is_gone() && self.rng.below(2) == 0 {
                return Abort::Lost;
            }
            return Abort::Given(self.lost.remove(at).done.buffer);
        }
        match self.inside.iter().position(|one| one.done.id == id) {
            Some(at) if self.is_gone() => Abort::Given(self.inside.remove(at).done.buffer),
            _ => Abort::Lost,
        }
    }

    fn reset(&mut self) -> bool {
        if !self.faults.no_reset {
            self.inside.clear();
            self.lost.clear();
        }
        !self.faults.no_reset
    }
}

/// Cores in sockets.
pub fn topology(cores: usize, sockets: usize) -> Topology {
    Topology::new(cores, sockets).expect("a good topology")
}
