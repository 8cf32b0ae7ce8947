//! A port that takes note of what the one below it did not do: it gives each command a number
//! of its own, and so knows what each completion is of.

use device::{OpenChannel, VectorCmd, VectorDone, VectorOp};
use flash::Ppa;
use port::{Port, Ring, Slots, Status, Time};

use crate::power::Flash;

/// Commands that may be on their way through.
pub(crate) const DEPTH: usize = 256;

/// Marks a command that has its number below already.
const NUMBERED: u64 = 1 << 63;

/// A command inside: its own number, what it is about, and how many blocks members had not
/// given before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    cookie: u64,
    pub op: VectorOp,
    pub ppa: Ppa,
    pub before: usize,
}

impl Default for Sent {
    fn default() -> Sent {
        Sent { cookie: 0, op: VectorOp::Flush, ppa: Ppa(0), before: 0 }
    }
}

/// Takes note of a command that was not done.
type Note = fn(&Flash, &Sent, &VectorDone);

/// See the head of this file.
pub struct Noted<P> {
    below: P,
    flash: Flash,
    note: Note,
    sent: Slots<Sent>,
    down: Ring<VectorCmd>,
}

impl<P> Noted<P> {
    pub(crate) fn new(below: P, flash: &Flash, note: Note) -> Noted<P> {
        let (sent, down) = (Slots::new(DEPTH), Ring::new(DEPTH));
        Noted { below, flash: flash.clone(), note, sent, down }
    }

    /// The port below.
    pub fn below(&self) -> &P {
        &self.below
    }

    /// The same, to be changed.
    pub fn below_mut(&mut self) -> &mut P {
        &mut self.below
    }
}

impl<P: Port<Cmd = VectorCmd, Done = VectorDone>> Port for Noted<P> {
    type Cmd = VectorCmd;
    type Done = VectorDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<VectorCmd>) {
        while self.sent.room() > 0
            && self.down.room() > 0
            && let Some(mut cmd) = cmds.pop()
        {
            let before = self.flash.unread_members();
            let sent = Sent { cookie: cmd.cookie, op: cmd.op, ppa: cmd.ppa, before };
            cmd.cookie = NUMBERED | u64::from(self.sent.take(sent));
            self.down.put(|| cmd);
        }
        self.below.submit(now, &mut self.down);
    }

    fn next_event(&self) -> Option<Time> {
        self.below.next_event()
    }

    fn advance(&mut self, to: Time, done: &mut Ring<VectorDone>) {
        let before = done.len();
        self.below.advance(to, done);
        if self.flash.shared_power().is_gone() {
            // What ends in the moment of the cut reaches nobody.
            while done.pop().is_some() {}
            return;
        }
        // What had no place has one now.
        if !self.down.is_empty() {
            self.below.submit(to, &mut self.down);
        }
        for i in before..done.len() {
            let one = done.get_mut(i).expect("it is in the ring");
            let number = (one.cookie & !NUMBERED) as u32;
            let sent = self.sent[number];
            self.sent.give(number);
            one.cookie = sent.cookie;
            if !one.status.is_ok() && one.status != Status::HIGH_ECC {
                (self.note)(&self.flash, &sent, one);
            }
        }
    }
}

impl<P: OpenChannel> OpenChannel for Noted<P> {
    device::as_below!(this => this.below, most DEPTH);
}
