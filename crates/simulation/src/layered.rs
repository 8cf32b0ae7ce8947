//! The block layer above a drive, in virtual time: the requests of one host go
//! through the contexts of several cores, staging queues, schedulers, merging
//! and dispatch queues, and what the layer answers is what the contract is held
//! against.
//!
//! All dispatch queues lead to one drive. What is inside the layer when power
//! goes was never answered.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use blkmq::config::TIMEOUT;
use blkmq::scheduler::{DeadlineOptions, FairOptions};
use blkmq::{Abort, Config, Context, Driver, HardwareQueue, Merge, Monitor, Plug};
use blkmq::{SchedulerKind, Spread, Topology, build};
use port::{BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Shape, Slots};
use port::{Status, Time};
use workload::Rng;

use crate::machine::{CHECK_BLOCKS, MOST_AT_ONCE};
use crate::stack::Stack;

/// Stream of the random numbers of these lives.
const STREAM: u64 = 20;

/// Looks at the layer after which it is said to hang: nothing came of them.
const PATIENCE: u32 = 100_000;

/// Failed commands that are remembered.
const FAILED: usize = 2 * MOST_AT_ONCE;

/// A break of the contract by the block layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerBreak {
    /// It answers flushes and does not send them.
    DropFlush,
    /// It answers writes when it sends them.
    AnswerEarly,
    /// It makes one of two writes that do not touch: the second goes where the
    /// first ends.
    MergeApart,
}

impl LayerBreak {
    /// All of them.
    pub const ALL: [LayerBreak; 3] =
        [LayerBreak::DropFlush, LayerBreak::AnswerEarly, LayerBreak::MergeApart];
}

/// A block layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Layers {
    /// Its configuration.
    pub config: Config,
    /// Dispatch queues, by kind.
    pub queues: [usize; 3],
    /// Requests inside each of them.
    pub depth: usize,
    /// They share their tags.
    pub shares_tags: bool,
    /// Every other core polls.
    pub polls: bool,
}

impl Layers {
    /// Whether the life of a seed has one: an eighth have.
    pub fn chosen(seed: u64) -> bool {
        Rng::new(seed, STREAM).below(8) == 0
    }

    /// That of a seed's life.
    pub fn of(seed: u64) -> Layers {
        let mut rng = Rng::new(seed, STREAM + 1);
        let rng = &mut rng;
        let cores = 1 + rng.below(4) as usize;
        let topology = Topology::new(cores, 1 + rng.below(cores as u64) as usize);
        let topology = topology.expect("no more sockets than cores");
        let mut some = || 1 + rng.below(cores as u64) as usize;
        let queues = [some(), some(), some()];
        let reads = rng.below(3) == 0;
        let polls = rng.below(3) == 0;
        let plug = Plug {
            requests: 1 + rng.below(8) as usize,
            bytes: BLOCK_BYTES << rng.below(4),
            ns: rng.one_of(&[1_000, 30_000, 500_000]),
        };
        let config = Config {
            staging: rng.one_of(&[Spread::One, Spread::PerSocket, Spread::PerCore]),
            staging_depth: rng.one_of(&[1, 2, 8, 32]),
            scheduler: scheduler(rng, cores),
            merge: rng.one_of(&[Merge::Off, Merge::Simple, Merge::Full, Merge::Full]),
            merge_idle: rng.below(2) == 0,
            plug: (rng.below(2) == 0).then_some(plug),
            // A drive of ours loses nothing: what is late is waited for.
            timeout: rng.one_of(&[TIMEOUT, 2_000_000]),
            ..Config::new(topology)
        };
        Layers {
            config,
            queues: [
                queues[0],
                if reads { queues[1] } else { 0 },
                if polls { queues[2] } else { 0 },
            ],
            depth: rng.one_of(&[1, 2, 8, 32]),
            shares_tags: rng.below(2) == 0,
            polls,
        }
    }

    /// Whether it makes one request of several.
    pub fn merges(&self) -> bool {
        self.config.merge != Merge::Off
    }
}

fn scheduler(rng: &mut Rng, cores: usize) -> SchedulerKind {
    match rng.below(3) {
        0 => SchedulerKind::None,
        1 => SchedulerKind::Deadline(DeadlineOptions {
            read_expire: rng.one_of(&[10_000, 500_000_000]),
            write_expire: rng.one_of(&[100_000, 5_000_000_000]),
            writes_starved: rng.below(4) as u32,
            fifo_batch: 1 + rng.below(16) as u32,
        }),
        _ => {
            let weights = (0..cores).map(|_| 1 + rng.below(5) as u32).collect();
            SchedulerKind::Fair(FairOptions { weights })
        }
    }
}

/// A command on its way to the drive.
#[derive(Clone, Copy, Debug)]
struct Sent {
    queue: usize,
    id: u64,
    op: BlockOp,
    offset: u64,
    len: u64,
    /// It was answered when it was sent.
    answered: bool,
}

impl Default for Sent {
    fn default() -> Sent {
        Sent { queue: 0, id: 0, op: BlockOp::Flush, offset: 0, len: 0, answered: false }
    }
}

/// The drive below all dispatch queues.
struct Below {
    stack: Stack,
    sent: Slots<Sent>,
    down: Ring<BlockReq>,
    done: Ring<BlockDone>,
    /// By queue, what it has not taken.
    back: Vec<VecDeque<BlockDone>>,
    now: Time,
    /// Commands that failed last.
    failed: VecDeque<Sent>,
    broken: Option<LayerBreak>,
    rng: Rng,
}

impl Below {
    fn submit(&mut self, now: Time, queue: usize, reqs: &mut Ring<BlockReq>) {
        self.now = self.now.max(now);
        if self.broken == Some(LayerBreak::MergeApart) {
            self.merge_apart(reqs);
        }
        while self.sent.room() > 0
            && self.down.room() > 0
            && let Some(mut req) = reqs.pop()
        {
            let BlockReq { id, op, offset, len, .. } = req;
            let answered = self.answers(queue, &mut req);
            if answered && op == BlockOp::Flush {
                continue;
            }
            let sent = Sent { queue, id, op, offset, len, answered };
            req.id = self.sent.take(sent).into();
            self.down.put(|| req);
        }
        self.stack.submit(now, &mut self.down);
    }

    /// Answers what a broken layer does not wait for.
    fn answers(&mut self, queue: usize, req: &mut BlockReq) -> bool {
        let (id, op, at, status) = (req.id, req.op, self.now, Status::SUCCESS);
        let buffer = match (self.broken, op) {
            (Some(LayerBreak::DropFlush), BlockOp::Flush) => Buffer::empty(),
            (Some(LayerBreak::AnswerEarly), BlockOp::Write) => {
                let mut copy = Buffer::zeroed(req.buffer.len()).expect("memory for a request");
                copy.bytes_mut().copy_from_slice(req.buffer.bytes());
                std::mem::replace(&mut req.buffer, copy)
            }
            _ => return false,
        };
        self.back[queue].push_back(BlockDone { id, op, status, at, buffer });
        true
    }

    /// Now and then sends a write where the one before it ends.
    fn merge_apart(&mut self, reqs: &mut Ring<BlockReq>) {
        let mut end = None;
        for i in 0..reqs.len() {
            let req = reqs.get_mut(i).expect("it is in the ring");
            let fits = |at: &u64| at + req.len <= self.stack.shape().bytes && *at != req.offset;
            if req.op != BlockOp::Write {
                end = None;
                continue;
            }
            if let Some(at) = end.filter(fits)
                && self.rng.below(8) == 0
            {
                req.offset = at;
            }
            end = Some(req.offset + req.len);
        }
    }

    fn advance(&mut self, to: Time, queue: usize, done: &mut Ring<BlockDone>) {
        self.now = self.now.max(to);
        self.stack.advance(to, &mut self.done);
        while let Some(mut one) = self.done.pop() {
            let number = one.id as u32;
            let sent = self.sent[number];
            self.sent.give(number);
            if !one.status.is_ok() && one.status != Status::HIGH_ECC {
                self.failed.truncate(FAILED - 1);
                self.failed.push_front(sent);
            }
            if !sent.answered {
                one.id = sent.id;
                self.back[sent.queue].push_back(one);
            }
        }
        // What was refused has room after a completion.
        if !self.down.is_empty() {
            self.stack.submit(to, &mut self.down);
        }
        while done.room() > 0
            && let Some(one) = self.back[queue].pop_front()
        {
            done.put(|| one);
        }
    }

    fn next_event(&self, queue: usize) -> Option<Time> {
        if self.back[queue].is_empty() { self.stack.next_event() } else { Some(self.now) }
    }
}

/// A dispatch queue's way to the drive.
struct Queue {
    below: Rc<RefCell<Below>>,
    number: usize,
    depth: usize,
}

impl Port for Queue {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, reqs: &mut Ring<BlockReq>) {
        self.below.borrow_mut().submit(now, self.number, reqs);
    }

    fn next_event(&self) -> Option<Time> {
        self.below.borrow().next_event(self.number)
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        self.below.borrow_mut().advance(to, self.number, done);
    }
}

impl HardwareQueue for Queue {
    fn depth(&self) -> usize {
        self.depth
    }

    /// The drive loses nothing, as long as something is to happen in it.
    fn abort(&mut self, _id: u64) -> Abort {
        if self.next_event().is_some() { Abort::Working } else { Abort::Lost }
    }
}

/// What opens the dispatch queues.
struct Opens<'a> {
    below: Rc<RefCell<Below>>,
    layers: &'a Layers,
    shape: Shape,
}

impl Driver for Opens<'_> {
    type Queue = Queue;

    fn shape(&self) -> Shape {
        self.shape
    }

    fn queues(&self) -> [usize; 3] {
        self.layers.queues
    }

    fn shares_tags(&self) -> bool {
        self.layers.shares_tags
    }

    fn depth(&self) -> usize {
        self.layers.depth
    }

    fn open(self) -> Vec<Queue> {
        let depth = self.layers.depth;
        let queue = |number| Queue { below: self.below.clone(), number, depth };
        (0..self.layers.queues.iter().sum()).map(queue).collect()
    }
}

/// A drive below a block layer.
pub struct Layered {
    contexts: Vec<Context<Queue>>,
    monitor: Monitor,
    below: Rc<RefCell<Below>>,
    /// By core, what its context had no room for.
    waiting: Vec<Ring<BlockReq>>,
    /// The core whose turn it is to send.
    core: usize,
    rng: Rng,
    /// Looks of which nothing came.
    looks: u32,
}

impl Layered {
    /// A block layer over a drive that has just started.
    pub fn new(stack: Stack, layers: &Layers, broken: Option<LayerBreak>, seed: u64) -> Layered {
        let queues: usize = layers.queues.iter().sum();
        let places = queues * layers.depth;
        // The longest request is a check's.
        let shape =
            Shape { max_bytes: CHECK_BLOCKS * BLOCK_BYTES, depth: layers.depth, ..stack.shape() };
        let below = Rc::new(RefCell::new(Below {
            stack,
            sent: Slots::new(2 * places),
            down: Ring::new(2 * places),
            done: Ring::new(places),
            back: (0..queues).map(|_| VecDeque::new()).collect(),
            now: Time::ZERO,
            failed: VecDeque::new(),
            broken,
            rng: Rng::new(seed, STREAM + 3),
        }));
        let opens = Opens { below: below.clone(), layers, shape };
        let (mut contexts, monitor) = build(&layers.config, opens).expect("a layer that can be");
        let polling = contexts.iter_mut().skip(1).step_by(2);
        polling.for_each(|context| context.set_polled(layers.polls));
        let waiting = contexts.iter().map(|_| Ring::new(MOST_AT_ONCE)).collect();
        let rng = Rng::new(seed, STREAM + 2);
        Layered { contexts, monitor, below, waiting, core: 0, rng, looks: 0 }
    }

    /// Asks the drive below.
    pub fn ask<R>(&self, what: impl FnOnce(&Stack) -> R) -> R {
        what(&self.below.borrow().stack)
    }

    /// Whether nothing is inside.
    pub fn is_idle(&self) -> bool {
        let below = self.below.borrow();
        below.sent.live() == 0 && below.stack.is_idle()
    }

    /// The drive again; it is idle.
    pub fn into_below(self) -> Stack {
        drop(self.contexts);
        let below = Rc::into_inner(self.below).expect("the queues are gone");
        below.into_inner().stack
    }

    /// Requests that were merged with another.
    pub fn merged(&self) -> u64 {
        self.monitor.staging().iter().map(|staging| staging.merged).sum()
    }

    /// These bytes, and those of all commands of this kind that failed lately and
    /// have some of them: what was merged fails together.
    pub fn failed_with(&self, op: BlockOp, (start, end): (u64, u64)) -> (u64, u64) {
        let below = self.below.borrow();
        let has =
            |sent: &&Sent| sent.op == op && sent.offset < end && start < sent.offset + sent.len;
        below.failed.iter().filter(has).fold((start, end), |(start, end), sent| {
            (start.min(sent.offset), end.max(sent.offset + sent.len))
        })
    }

    /// As [`Port::submit`].
    pub fn submit(&mut self, now: Time, reqs: &mut Ring<BlockReq>) {
        self.looks = 0;
        while !reqs.is_empty() {
            if self.rng.below(3) == 0 {
                self.core = self.rng.below(self.contexts.len() as u64) as usize;
            }
            let waiting = &mut self.waiting[self.core];
            if waiting.room() == 0 {
                break;
            }
            waiting.put(|| reqs.pop().expect("there is one"));
            // Some come one by one, some together.
            if self.rng.below(2) == 0 {
                self.contexts[self.core].submit(now, waiting);
            }
        }
        self.send(now);
    }

    fn send(&mut self, now: Time) {
        for (context, waiting) in self.contexts.iter_mut().zip(&mut self.waiting) {
            if !waiting.is_empty() {
                context.submit(now, waiting);
            }
        }
    }

    /// As [`Port::next_event`]; none, too, of a layer that is asked again and
    /// again and comes to nothing.
    pub fn next_event(&self) -> Option<Time> {
        let next = self.contexts.iter().filter_map(|context| context.next_event()).min();
        next.filter(|_| self.looks < PATIENCE)
    }

    /// As [`Port::advance`].
    pub fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        let (before, time) = (done.len(), self.below.borrow().now);
        for context in &mut self.contexts {
            context.advance(to, done);
        }
        self.send(to);
        let moved = done.len() > before || self.below.borrow().now > time;
        self.looks = if moved { 0 } else { self.looks + 1 };
    }
}
