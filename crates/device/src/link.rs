//! The link between host and drive: controller overhead, latency, bandwidth.
//!
//! A port over any port. A command goes down: its data, if it carries any,
//! takes its turn on the wire, then latency and controller pass. The
//! completion comes up: its data takes its turn on the way up, then latency
//! passes. The two ways are independent, and each keeps order. A lone read
//! takes latency + controller + the drive + its bytes at the rate + latency.

use flash::{Chunk, Geometry, LinkTiming, Ppa, TAG_BYTES, Timing};
use port::{BLOCK_BYTES, BatchOp, BatchReq, Desc};
use port::{BlockOp, BlockReq, Completed, Numbered, Port, Ring, Time};

use crate::command::{Content, OpenChannel, VectorCmd, VectorOp};
use crate::notices::Notice;

/// How many bytes a command and its completion carry over the link. Model bytes:
/// the length in blocks, whatever the medium keeps of them.
pub trait Payload {
    /// Bytes on the wire, down.
    fn wire_bytes(&self) -> u64;
    /// Bytes on the wire for its completion, up.
    fn answer_bytes(&self) -> u64;
}

impl Payload for BlockReq {
    fn wire_bytes(&self) -> u64 {
        if self.op == BlockOp::Write { self.len } else { 0 }
    }

    fn answer_bytes(&self) -> u64 {
        if self.op == BlockOp::Read { self.len } else { 0 }
    }
}

impl Payload for BatchReq {
    /// A batch is its DESC and its pages; a bad one is what its buffer has.
    fn wire_bytes(&self) -> u64 {
        match self.op {
            BatchOp::WriteBatch => match Desc::parse(self.buffer.bytes()) {
                Some(desc) => (1 + desc.written() as u64) * BLOCK_BYTES,
                None => self.buffer.len() as u64,
            },
            BatchOp::Read | BatchOp::Flush => 0,
        }
    }

    fn answer_bytes(&self) -> u64 {
        if self.op == BatchOp::Read { BLOCK_BYTES } else { 0 }
    }
}

/// Bytes of the blocks that a vector command moves; tags ride along, unless
/// they are all.
fn data_bytes(cmd: &VectorCmd) -> u64 {
    let each = if cmd.content == Content::Tags { TAG_BYTES as u64 } else { BLOCK_BYTES };
    u64::from(cmd.count) * each
}

impl Payload for VectorCmd {
    fn wire_bytes(&self) -> u64 {
        if self.op == VectorOp::Write { data_bytes(self) } else { 0 }
    }

    fn answer_bytes(&self) -> u64 {
        if self.op == VectorOp::Read { data_bytes(self) } else { 0 }
    }
}

/// Commands that may be on the link or behind it.
const LINK_DEPTH: usize = 1024;

/// A link in front of `P`.
pub struct Link<P: Port> {
    timing: LinkTiming,
    below: P,
    /// On the way down, with arrival times that only grow.
    down: Ring<(Time, P::Cmd)>,
    down_free: Time,
    /// Arrived, not yet taken below.
    arrived: Ring<P::Cmd>,
    /// Completed below, on the way up.
    up: Ring<(Time, P::Done)>,
    up_free: Time,
    below_done: Ring<P::Done>,
    /// Each command's own number and its bytes up, by the number it has below.
    numbers: Vec<(u64, u64)>,
    free: Vec<u32>,
}

impl<P: Port> Link<P>
where
    P::Cmd: Payload + Numbered,
    P::Done: Completed,
{
    /// Puts a link in front of `below`.
    pub fn new(timing: LinkTiming, below: P) -> Link<P> {
        Link {
            timing,
            below,
            down: Ring::new(LINK_DEPTH),
            down_free: Time::ZERO,
            arrived: Ring::new(LINK_DEPTH),
            up: Ring::new(LINK_DEPTH),
            up_free: Time::ZERO,
            below_done: Ring::new(LINK_DEPTH),
            numbers: vec![(0, 0); LINK_DEPTH],
            free: (0..LINK_DEPTH as u32).rev().collect(),
        }
    }

    /// What the link leads to.
    pub fn below(&self) -> &P {
        &self.below
    }

    /// What the link leads to, to be changed while nothing is on its way.
    pub fn below_mut(&mut self) -> &mut P {
        &mut self.below
    }

    /// Takes the link away; what is on its way is lost.
    pub fn into_below(self) -> P {
        self.below
    }

    /// Lets the port below do all that it can at `to`, also with what is
    /// refused or done at once.
    fn work_below(&mut self, to: Time) {
        loop {
            // First what is due, so that completions make room for arrivals.
            if self.below.next_event().is_some_and(|at| at <= to) {
                self.below.advance(to, &mut self.below_done);
            }
            let waiting = self.arrived.len();
            if waiting > 0 {
                self.below.submit(to, &mut self.arrived);
            }
            let moved = self.arrived.len() < waiting || !self.below_done.is_empty();
            while let Some(completion) = self.below_done.pop() {
                self.send_up(to, completion);
            }
            if !moved || self.below.next_event().is_none_or(|at| at > to) {
                return;
            }
        }
    }

    fn send_up(&mut self, at: Time, mut done: P::Done) {
        let slot = done.number();
        let (number, bytes) = self.numbers[slot as usize];
        self.free.push(slot as u32);
        self.up_free = self.up_free.max(at) + self.timing.wire(bytes);
        let arrival = self.up_free + self.timing.latency;
        done.renumber(number);
        done.set_at(arrival);
        let sent = self.up.push((arrival, done));
        assert!(sent.is_ok(), "a link holds all that it let in");
    }
}

impl<P: Port> Port for Link<P>
where
    P::Cmd: Payload + Numbered,
    P::Done: Completed,
{
    type Cmd = P::Cmd;
    type Done = P::Done;

    fn submit(&mut self, now: Time, cmds: &mut Ring<P::Cmd>) {
        // A slot stays taken until its completion is on the way up; completions
        // on the way up take ring space, so both bound what is let in.
        while self.free.len() > self.up.len() {
            let Some(mut cmd) = cmds.pop() else { return };
            let slot = self.free.pop().expect("a slot is free");
            self.numbers[slot as usize] = (cmd.number(), cmd.answer_bytes());
            cmd.renumber(u64::from(slot));
            self.down_free = self.down_free.max(now) + self.timing.wire(cmd.wire_bytes());
            let arrival = self.down_free + self.timing.latency + self.timing.controller;
            let sent = self.down.push((arrival, cmd));
            assert!(sent.is_ok(), "a link holds all that it let in");
        }
    }

    fn next_event(&self) -> Option<Time> {
        let down = self.down.front().map(|d| d.0);
        let up = self.up.front().map(|u| u.0);
        [down, up, self.below.next_event()].into_iter().flatten().min()
    }

    fn advance(&mut self, to: Time, done: &mut Ring<P::Done>) {
        while self.down.front().is_some_and(|d| d.0 <= to) {
            let (_, cmd) = self.down.pop().expect("it was looked at");
            let kept = self.arrived.push(cmd);
            assert!(kept.is_ok(), "a link holds all that it let in");
        }
        self.work_below(to);
        while done.room() > 0 && self.up.front().is_some_and(|u| u.0 <= to) {
            let (_, completion) = self.up.pop().expect("it was looked at");
            let _ = done.push(completion);
        }
    }

    fn hint(&self, cmd: &P::Cmd) {
        self.below.hint(cmd);
    }
}

impl<P: OpenChannel> OpenChannel for Link<P> {
    fn geometry(&self) -> &Geometry {
        self.below.geometry()
    }

    fn timing(&self) -> &Timing {
        self.below.timing()
    }

    fn kept(&self) -> u32 {
        self.below.kept()
    }

    fn chunk(&self, chunk_index: usize) -> Chunk {
        self.below.chunk(chunk_index)
    }

    fn depth(&self) -> usize {
        self.below.depth().min(LINK_DEPTH)
    }

    fn is_cached(&self) -> bool {
        self.below.is_cached()
    }

    fn take_notice(&mut self) -> Option<Notice> {
        self.below.take_notice()
    }

    fn hint_block(&self, ppa: Ppa) {
        self.below.hint_block(ppa);
    }

    fn rows_at_once(&self) -> u32 {
        self.below.rows_at_once()
    }
}
