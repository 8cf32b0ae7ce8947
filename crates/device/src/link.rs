//! The way between host and drive: the link, and the controller at its end.
//!
//! A port over any port. A command goes down: its entry crosses the link, a core
//! of the controller takes it, its data, if it carries any, take their turn on the
//! wire. The completion comes up: its data take their turn on the way up, then
//! its entry follows. A lone command takes entry + latency + core + controller +
//! its data + the drive + entry + latency, a lone read its data on the way up.
//!
//! The two ways are independent. Data keep their order on each; what carries none
//! goes between them, as packets do: no read waits for the data of writes before
//! it, and no write's completion for those of reads. Entries, where they count,
//! take their time from the data that are on the wire meanwhile. Reads may pass
//! other commands, and these keep their order.
//!
//! The controller's cores take commands first come, first served, each one at a
//! time. Where nobody says how many there are, each command has its own.

use flash::link::{COMPLETION_BYTES, SUBMISSION_BYTES};
use flash::{LinkTiming, TAG_BYTES};
use port::story::Wanted;
use port::{BLOCK_BYTES, BatchOp, BatchReq, Desc};
use port::{BlockOp, BlockReq, Completed, KvOp, KvReq, Numbered, Part, Port, Ring, Story, Time};
use port::{Turn, turn_by_events};

use crate::command::{Content, OpenChannel, VectorCmd, VectorOp};
use crate::controller::Cores;
use crate::told::Told;
use crate::way::{NEVER, Way};

/// What a command and its completion carry over the link. Model bytes: the
/// length in blocks, whatever the medium keeps of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Payload {
    /// Whether it changes nothing of the drive: then it may pass others.
    pub is_read: bool,
    /// Bytes on the wire, down.
    pub down: u64,
    /// Bytes on the wire for its completion, up.
    pub up: u64,
}

impl Payload {
    fn read(up: u64) -> Payload {
        Payload { is_read: true, down: 0, up }
    }

    fn write(down: u64) -> Payload {
        Payload { is_read: false, down, up: 0 }
    }

    /// Blocks that it moves.
    fn blocks(self) -> u64 {
        (self.down + self.up).div_ceil(BLOCK_BYTES)
    }
}

/// A command that crosses the link.
pub trait Carries {
    /// What it carries.
    fn payload(&self) -> Payload;
}

impl Carries for BlockReq {
    fn payload(&self) -> Payload {
        match self.op {
            BlockOp::Read => Payload::read(self.len),
            BlockOp::Write => Payload::write(self.len),
            _ => Payload::default(),
        }
    }
}

impl Carries for BatchReq {
    /// A batch is its DESC and its pages; a bad one is what its buffer has.
    fn payload(&self) -> Payload {
        match self.op {
            BatchOp::WriteBatch => Payload::write(match Desc::parse(self.buffer.bytes()) {
                Some(desc) => (1 + desc.written() as u64) * BLOCK_BYTES,
                None => self.buffer.len() as u64,
            }),
            BatchOp::Read => Payload::read(BLOCK_BYTES),
            BatchOp::Flush => Payload::default(),
        }
    }
}

impl Carries for KvReq {
    /// Of a get or listing the completion says how much it brings.
    fn payload(&self) -> Payload {
        match self.op {
            KvOp::Put(_) => Payload::write(self.key.len() as u64 + self.len),
            KvOp::Get | KvOp::List => Payload::read(self.value.len() as u64),
            KvOp::Exists => Payload::read(0),
            KvOp::Delete | KvOp::Flush => Payload::default(),
        }
    }
}

impl Carries for VectorCmd {
    /// Of blocks the tags ride along, unless they are all.
    fn payload(&self) -> Payload {
        let each = if self.content == Content::Tags { TAG_BYTES as u64 } else { BLOCK_BYTES };
        let bytes = u64::from(self.count) * each;
        match self.op {
            VectorOp::Read => Payload::read(bytes),
            VectorOp::Write => Payload::write(bytes),
            _ => Payload::default(),
        }
    }
}

/// Commands that may be on the link or behind it.
pub(crate) const LINK_DEPTH: usize = 1024;

/// A link in front of `P`.
pub struct Link<P: Port> {
    timing: LinkTiming,
    /// The last length, and its time on the wire: most are alike, and a division takes
    /// as long as all else here.
    wire: (u64, u64),
    cores: Cores,
    below: P,
    /// When something happens next below, [`NEVER`] for nothing, where nobody has
    /// changed it since that was asked within a turn.
    below_next: Time,
    is_known: bool,
    down: Way<P::Cmd>,
    /// Arrived, not yet taken below.
    arrived: Ring<P::Cmd>,
    up: Way<P::Done>,
    below_done: Ring<P::Done>,
    /// Each command's own number and its bytes up, by the number it has below.
    numbers: Vec<(u64, u64)>,
    free: Vec<u32>,
    /// Bytes of the data of all commands so far, both ways.
    carried: u64,
    told: Option<Told>,
}

impl<P: Port> Link<P>
where
    P::Cmd: Carries + Numbered,
    P::Done: Completed,
{
    /// Puts a link in front of `below`.
    pub fn new(timing: LinkTiming, below: P) -> Link<P> {
        Link {
            timing,
            wire: (0, 0),
            cores: Cores::new(timing.cores),
            below,
            below_next: NEVER,
            is_known: false,
            down: Way::new(timing.entry(SUBMISSION_BYTES)),
            arrived: Ring::new(LINK_DEPTH),
            up: Way::new(timing.entry(COMPLETION_BYTES)),
            below_done: Ring::new(LINK_DEPTH),
            numbers: vec![(0, 0); LINK_DEPTH],
            free: (0..LINK_DEPTH as u32).rev().collect(),
            carried: 0,
            told: None,
        }
    }

    /// What the link leads to.
    pub fn below(&self) -> &P {
        &self.below
    }

    /// What the link leads to, to be changed while nothing is on its way.
    pub fn below_mut(&mut self) -> &mut P {
        self.is_known = false;
        &mut self.below
    }

    /// Bytes of the data of all commands that it has taken, down and up together.
    pub fn carried(&self) -> u64 {
        self.carried
    }

    /// Takes the link away; what is on its way is lost.
    pub fn into_below(self) -> P {
        self.below
    }

    /// When a command is to be sent that is there when a core is free; `None` where
    /// each has its own.
    pub(crate) fn next_fetch(&self) -> Option<Time> {
        let way = self.timing.latency + self.timing.entry(SUBMISSION_BYTES);
        Some(Time(self.cores.next_free()?.0.saturating_sub(way)))
    }

    /// Lets the port below do all that it can at `to`, also with what is
    /// refused or done at once.
    fn work_below(&mut self, to: Time) {
        loop {
            // First what is due, so that completions make room for arrivals.
            if self.next_below() <= to {
                self.below.advance(to, &mut self.below_done);
            }
            let waiting = self.arrived.len();
            if waiting > 0 {
                self.below.submit(to, &mut self.arrived);
            }
            let moved = self.arrived.len() < waiting || !self.below_done.is_empty();
            self.send_up(to);
            if self.look_below() > to || !moved {
                return;
            }
        }
    }

    /// When something happens next below.
    #[inline(always)]
    fn next_below(&self) -> Time {
        if self.is_known { self.below_next } else { self.ask_below() }
    }

    fn ask_below(&self) -> Time {
        self.below.next_event().unwrap_or(NEVER)
    }

    /// The same, when something was done there.
    #[inline(always)]
    fn look_below(&mut self) -> Time {
        self.below_next = self.ask_below();
        self.is_known = true;
        self.below_next
    }

    /// When the next one arrives, here or below; the end of time where none is on its
    /// way.
    #[inline]
    fn next_arrival(&self) -> Time {
        self.down.next().min(self.up.next())
    }

    /// Wire time of `bytes`.
    #[inline(always)]
    fn wire(&mut self, bytes: u64) -> u64 {
        if self.wire.0 != bytes {
            self.wire = (bytes, self.timing.wire(bytes));
        }
        self.wire.1
    }

    /// Sends up what has completed below at `at`.
    #[inline(always)]
    fn send_up(&mut self, at: Time) {
        while let Some(done) = self.below_done.front() {
            let slot = done.number() as usize;
            let bytes = done.brings().unwrap_or(self.numbers[slot].1);
            let entry = self.up.entry(at);
            let end = match bytes {
                0 => at,
                _ => {
                    let time = self.wire(bytes);
                    self.up.carry(at, time)
                }
            };
            let arrival = end + entry + self.timing.latency;
            if let Some(told) = &mut self.told {
                let controller = (Part::Controller, self.timing.controller);
                told.hear(slot, &self.below, (at, arrival), |story, came, core| {
                    story.before_with(Part::Link, [(Part::Core, core), controller], came);
                    story.pass(Part::Link, arrival);
                });
            }
            self.up.send(arrival, bytes == 0, &mut self.below_done);
        }
    }

    /// Gives the completions that are above at `to`, as many as there is room for.
    #[inline(always)]
    fn give(&mut self, to: Time, all: &mut Ring<P::Done>) {
        while all.room() > 0
            && let Some(at) = self.up.receive_to(to, all)
        {
            // Changed in its place: a completion that is copied then stalls the processor.
            let done = all.get_mut(all.len() - 1).expect("it was put there");
            let slot = done.number();
            if let Some(told) = &mut self.told {
                told.give(slot as usize, at);
            }
            done.renumber(self.numbers[slot as usize].0);
            done.set_at(at);
            self.free.push(slot as u32);
        }
    }
}

impl<P: Port> Port for Link<P>
where
    P::Cmd: Carries + Numbered,
    P::Done: Completed,
{
    type Cmd = P::Cmd;
    type Done = P::Done;

    fn submit(&mut self, now: Time, cmds: &mut Ring<P::Cmd>) {
        // A slot stays taken until its completion is given.
        while !self.free.is_empty() {
            let Some(cmd) = cmds.get_mut(0) else { return };
            let slot = self.free.pop().expect("a slot is free");
            let payload = cmd.payload();
            self.carried += payload.down + payload.up;
            self.numbers[slot as usize] = (cmd.number(), payload.up);
            cmd.renumber(u64::from(slot));
            let fetched = now + self.timing.latency + self.down.entry(now + self.timing.latency);
            let work = self.timing.work(payload.is_read, payload.blocks());
            let worked = self.cores.take(fetched, work);
            let taken = worked + self.timing.controller;
            let arrival = match payload.is_read {
                true => taken,
                false => {
                    let time = self.wire(payload.down);
                    self.down.carry(taken, time)
                }
            };
            if let Some(told) = &mut self.told {
                told.came[slot as usize] = (now, arrival, worked - fetched);
            }
            self.down.send(arrival, payload.is_read, cmds);
        }
    }

    /// On a clock what is below may have got earlier by itself, when its medium is done.
    fn next_event(&self) -> Option<Time> {
        let next = self.next_arrival().min(self.ask_below());
        (next != NEVER).then_some(next)
    }

    fn advance(&mut self, to: Time, done: &mut Ring<P::Done>) {
        self.is_known = false;
        // It has room: a link holds all that it let in.
        while self.down.receive_to(to, &mut self.arrived).is_some() {}
        self.work_below(to);
        self.give(to, done);
    }

    fn turn(
        &mut self,
        now: Time,
        until: Option<Time>,
        cmds: &mut Ring<P::Cmd>,
        done: &mut Ring<P::Done>,
    ) -> Turn {
        if !cmds.is_empty() {
            self.submit(now, cmds);
        }
        let until_or_never = until.unwrap_or(NEVER);
        let mut last = None;
        while cmds.is_empty() && self.arrived.is_empty() {
            let (own, below) = (self.next_arrival(), self.next_below());
            let mut at = own.min(below);
            if at > until_or_never || at == NEVER {
                return Turn::Quiet;
            } else if below < own {
                // Before something arrives here, what is below goes on by itself.
                let alone = until_or_never.min(Time(own.0 - 1));
                let (arrived, done) = (&mut self.arrived, &mut self.below_done);
                let turn = self.below.turn(now, Some(alone), arrived, done);
                let next = self.look_below();
                match turn {
                    Turn::Quiet => continue,
                    Turn::Stays(at) => return Turn::Stays(at),
                    Turn::Completed(then) => at = then,
                }
                self.send_up(at);
                if next <= at {
                    self.work_below(at);
                }
            } else if last == Some(own) {
                return Turn::Stays(own);
            } else if own < below && own < self.down.next() {
                // Completions alone: nothing changes below.
            } else {
                while self.down.receive_to(own, &mut self.arrived).is_some() {}
                self.work_below(own);
                last = Some(own);
            }
            self.give(at, done);
            if !done.is_empty() {
                return Turn::Completed(at);
            }
        }
        turn_by_events(self, until, cmds, done)
    }

    fn hint(&self, cmd: &P::Cmd) {
        self.below.hint(cmd);
    }

    fn set_stories(&mut self, on: bool) {
        self.below_mut().set_stories(on);
        self.told = on.then(Told::new);
    }

    fn tell_only(&mut self, wanted: Wanted) {
        if let Some(told) = &mut self.told {
            told.stories.tell_only(wanted);
        }
    }

    fn tell_story(&self, number: u64, story: &mut Story) -> bool {
        self.told.as_ref().is_some_and(|told| told.stories.tell_of(number, story))
    }
}

impl<P: OpenChannel> OpenChannel for Link<P> {
    crate::as_below!(this => this.below, most LINK_DEPTH);
}
