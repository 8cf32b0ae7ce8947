//! What the tests share: ports that watch the rules of ports, virtual time, a
//! simple block drive, and vector commands.

use std::collections::VecDeque;

use device::{Content, OpenChannel, VectorCmd, VectorOp};
use faults::{Command, Completion, Rule};
use flash::{Dimensions, Geometry, Ppa};
use port::random::{STEP, mix};
use port::{BlockDone, BlockOp, BlockReq, Buffer, Completed, Port, Ring, Status, Time};

/// Numbers from a seed.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0) % n.max(1)
    }
}

/// A small geometry: 4 blocks a row, 24 a chunk, 16 chunks.
pub fn geometry() -> Geometry {
    let dim = Dimensions {
        groups: 2,
        pus: 2,
        chunks: 4,
        pages: 6,
        planes: 2,
        page_bytes: 8192,
        pages_at_once: 1,
    };
    Geometry::new(dim).unwrap()
}

/// A rule from its text.
pub fn rule(text: &str) -> Rule {
    text.parse().unwrap_or_else(|e| panic!("{e}"))
}

/// The operation faults and the delays among rules.
pub fn fault_rules(texts: &[&str]) -> Vec<faults::FaultRule> {
    let fault = |text: &&str| match rule(text) {
        Rule::Fault(rule) => rule,
        other => panic!("{other} is no operation fault"),
    };
    texts.iter().map(fault).collect()
}

pub fn delay_rules(texts: &[&str]) -> Vec<faults::DelayRule> {
    let delay = |text: &&str| match rule(text) {
        Rule::Delay(rule) => rule,
        other => panic!("{other} is no delay"),
    };
    texts.iter().map(delay).collect()
}

pub fn medium_rules(texts: &[&str]) -> Vec<faults::MediumRule> {
    let medium = |text: &&str| match rule(text) {
        Rule::Medium(rule) => rule,
        other => panic!("{other} is no medium fault"),
    };
    texts.iter().map(medium).collect()
}

/// Passes everything, and sees to it that both sides keep the rules of ports.
pub struct Watched<P: Port> {
    below: P,
    now: Time,
    inside: u64,
    /// Completions come in the order of their times.
    last: Time,
}

impl<P: Port> Watched<P> {
    pub fn new(below: P) -> Watched<P> {
        Watched { below, now: Time::ZERO, inside: 0, last: Time::ZERO }
    }

    pub fn below(&self) -> &P {
        &self.below
    }

    pub fn into_below(self) -> P {
        self.below
    }
}

impl<P: Port> Port for Watched<P>
where
    P::Done: Completion,
{
    type Cmd = P::Cmd;
    type Done = P::Done;

    fn submit(&mut self, now: Time, cmds: &mut Ring<P::Cmd>) {
        assert!(now >= self.now, "time goes back from {} to {now}", self.now);
        self.now = now;
        let before = cmds.len();
        self.below.submit(now, cmds);
        self.inside += (before - cmds.len()) as u64;
    }

    fn next_event(&self) -> Option<Time> {
        self.below.next_event()
    }

    fn advance(&mut self, to: Time, done: &mut Ring<P::Done>) {
        let event = self.below.next_event();
        assert!(event.is_none_or(|at| to <= at), "advanced to {to}, past {event:?}");
        assert!(to >= self.now || event.is_some_and(|at| at < self.now), "time goes back");
        self.now = self.now.max(to);
        let before = done.len();
        self.below.advance(to, done);
        for i in before..done.len() {
            let at = done.get(i).unwrap().at();
            assert!(at <= to, "a completion of {at} comes at {to}");
            assert!(at >= self.last, "a completion of {at} comes after one of {}", self.last);
            self.last = at;
            self.inside = self.inside.checked_sub(1).expect("no more completions than commands");
        }
        if done.room() > 0 {
            let next = self.below.next_event();
            assert!(next.is_none_or(|at| at > to), "after {to} comes {next:?}");
        }
        assert!(self.inside == 0 || self.below.next_event().is_some(), "something is stuck");
    }
}

impl<P: OpenChannel> OpenChannel for Watched<P> {
    device::as_below!(this => this.below);
}

/// Virtual time over a port. Takes few completions at once, so that some stay.
pub struct Rig<P: Port> {
    pub port: P,
    pub now: Time,
    done: Ring<P::Done>,
    waiting: Ring<P::Cmd>,
    pub all: Vec<P::Done>,
}

impl<P: Port> Rig<P> {
    pub fn new(port: P, window: usize) -> Rig<P> {
        let (done, waiting) = (Ring::new(window), Ring::new(1 << 14));
        Rig { port, now: Time::ZERO, done, waiting, all: Vec::new() }
    }

    /// Handles all events up to `to`.
    pub fn run_to(&mut self, to: Time) {
        let mut turns = 0;
        while let Some(at) = self.port.next_event().filter(|&at| at <= to) {
            self.now = self.now.max(at);
            self.port.advance(at, &mut self.done);
            self.all.extend(self.done.drain());
            self.port.submit(self.now, &mut self.waiting);
            turns += 1;
            assert!(turns < 1_000_000, "the port hangs at {at}");
        }
        self.now = self.now.max(to);
    }

    /// Handles everything.
    pub fn drain(&mut self) {
        while let Some(at) = self.port.next_event() {
            self.run_to(at.max(self.now));
        }
        assert!(self.waiting.is_empty(), "a command is refused for ever");
    }

    /// Submits at `at`, after what is due by then.
    pub fn submit(&mut self, at: u64, cmd: P::Cmd) {
        self.run_to(Time(at));
        assert!(self.waiting.push(cmd).is_ok());
        self.port.submit(self.now, &mut self.waiting);
    }
}

/// A block drive that does each request after a time of its own, and keeps
/// which were done. At most `depth` are inside.
pub struct Plain {
    inside: VecDeque<(Time, BlockReq)>,
    depth: usize,
    /// Requests that were done, by operation and offset, in order.
    pub did: Vec<(BlockOp, u64)>,
}

impl Plain {
    pub fn new(depth: usize) -> Plain {
        Plain { inside: VecDeque::new(), depth, did: Vec::new() }
    }

    /// How long a request takes.
    pub fn takes(offset: u64) -> u64 {
        mix(offset) % 4 * 1000
    }
}

impl Port for Plain {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        while self.inside.len() < self.depth
            && let Some(req) = cmds.pop()
        {
            let at = now + Plain::takes(req.offset);
            let place = self.inside.partition_point(|(due, _)| *due <= at);
            self.inside.insert(place, (at, req));
        }
    }

    fn next_event(&self) -> Option<Time> {
        self.inside.front().map(|(at, _)| *at)
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        while done.room() > 0
            && let Some(&(at, _)) = self.inside.front()
            && at <= to
        {
            let (_, req) = self.inside.pop_front().unwrap();
            self.did.push((req.op, req.offset));
            done.put(|| req.refuse(Status::SUCCESS, at));
        }
    }
}

/// A block request with a buffer that tells whose it is.
pub fn request(id: u64, op: BlockOp, offset: u64, len: u64) -> BlockReq {
    let mut buffer = Buffer::zeroed(8).unwrap();
    buffer.bytes_mut().copy_from_slice(&id.to_le_bytes());
    BlockReq::new(id, op, offset, len, buffer)
}

/// A vector command without a list, with a buffer of the right size.
pub fn vector(cookie: u64, op: VectorOp, ppa: Ppa, count: u8, kept: u32) -> VectorCmd {
    let mut cmd = VectorCmd::new(cookie, op, Content::Tagged, (ppa, count), Buffer::empty());
    cmd.buffer = Buffer::zeroed(cmd.buffer_bytes(kept)).unwrap();
    cmd
}
