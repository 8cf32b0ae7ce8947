//! A device that does everything a driver may do, and, if asked, what it may
//! not: it takes any time, completes in any order, refuses, loses, completes
//! twice, late, or tags it was never given, and goes away.

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
        let count: usize = self.queues.iter().sum();
        (0..count).map(|n| ChaosQueue::new(&self, n as u64)).collect()
    }
}

pub struct ChaosQueue {
    depth: usize,
    faults: Faults,
    longest: u64,
    rng: Rng,
    inside: Vec<(Time, BlockDone)>,
    lost: Vec<BlockDone>,
    taken: u64,
    /// The most that were inside at once.
    pub most: usize,
}

impl ChaosQueue {
    fn new(chaos: &Chaos, number: u64) -> ChaosQueue {
        ChaosQueue {
            depth: chaos.depth,
            faults: chaos.faults,
            longest: chaos.longest,
            rng: Rng::new(chaos.seed, number),
            inside: Vec::new(),
            lost: Vec::new(),
            taken: 0,
            most: 0,
        }
    }

    fn happens(&mut self, every: u64) -> bool {
        every > 0 && self.rng.below(every) == 0
    }

    fn extra(id: u64) -> BlockDone {
        let (op, status, buffer) = (BlockOp::Read, Status::SUCCESS, Buffer::empty());
        BlockDone { id, op, status, at: Time::ZERO, buffer }
    }
}

impl Port for ChaosQueue {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        while let Some(front) = cmds.front() {
            assert!((front.id as u32) < self.depth as u32 * 64, "a tag is small");
            // Now and then it has no room, for no reason.
            if self.is_gone() || (self.rng.below(8) == 0 && !self.inside.is_empty()) {
                return;
            }
            let Some(BlockReq { id, op, buffer, .. }) = cmds.pop() else { return };
            assert!(!self.inside.iter().any(|(_, done)| done.id == id), "a tag is given once");
            self.taken += 1;
            let at = now + self.rng.below(self.longest + 1);
            let done = BlockDone { id, op, status: Status::SUCCESS, at, buffer };
            if self.happens(self.faults.lose) {
                self.lost.push(done);
            } else {
                if self.happens(self.faults.double) {
                    self.inside.push((at + 1, Self::extra(id)));
                }
                if self.happens(self.faults.invent) {
                    let tag = self.rng.bits();
                    self.inside.push((at, Self::extra(tag)));
                }
                self.inside.push((at, done));
            }
            self.most = self.most.max(self.inside.len() + self.lost.len());
        }
    }

    fn next_event(&self) -> Option<Time> {
        if self.is_gone() { None } else { self.inside.iter().map(|&(at, _)| at).min() }
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        if self.is_gone() {
            return;
        }
        let mut at = 0;
        while at < self.inside.len() && done.room() > 0 {
            if self.inside[at].0 <= to {
                let (_, one) = self.inside.swap_remove(at);
                assert!(done.push(one).is_ok(), "there was room");
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
        if let Some(at) = self.lost.iter().position(|done| done.id == id) {
            let done = self.lost.remove(at);
            if self.happens(self.faults.late) {
                self.inside.push((done.at + 5 * self.longest, done));
                return Abort::Lost;
            }
            return Abort::Given(done.buffer);
        }
        match self.inside.iter().position(|(_, done)| done.id == id) {
            Some(at) if self.is_gone() => Abort::Given(self.inside.remove(at).1.buffer),
            _ => Abort::Lost,
        }
    }
}

/// Cores in sockets.
pub fn topology(cores: usize, sockets: usize) -> Topology {
    Topology::new(cores, sockets).expect("a good topology")
}
