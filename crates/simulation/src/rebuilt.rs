//! Parity over a drive whose reads may fail: what it does not give must have a reason.
//!
//! A block is lost where its member did not give it, and it could not be rebuilt then: its
//! stripe had no parity yet, or of another member that block was not read either, while the
//! command was inside. Only then it is noted, and so an excuse for the target above.

use device::{OpenChannel, VectorCmd, VectorDone, VectorOp};
use flash::{BlockBits, Ppa};
use parity::{Parity, ParityError};
use port::{Port, Ring, Slots, Status, Time};

use crate::drive::{DEPTH, Drive, NUMBERED};
use crate::power::Flash;

/// A command inside: its own number, what it is about, and how many reads of members had
/// failed before.
#[derive(Clone, Copy, Debug)]
struct Sent {
    cookie: u64,
    op: VectorOp,
    ppa: Ppa,
    before: usize,
}

impl Default for Sent {
    fn default() -> Sent {
        Sent { cookie: 0, op: VectorOp::Flush, ppa: Ppa(0), before: 0 }
    }
}

/// See the head of this file.
pub struct Rebuilt {
    below: Parity<Drive>,
    flash: Flash,
    sent: Slots<Sent>,
    down: Ring<VectorCmd>,
}

impl Rebuilt {
    /// Parity of this width over a drive.
    ///
    /// # Errors
    /// As [`Parity::new`].
    pub fn new(drive: Drive, flash: &Flash, width: u32) -> Result<Rebuilt, ParityError> {
        let below = Parity::new(drive, width)?;
        let (sent, down) = (Slots::new(DEPTH), Ring::new(DEPTH));
        Ok(Rebuilt { below, flash: flash.clone(), sent, down })
    }

    /// The drive below.
    pub fn below(&self) -> &Drive {
        self.below.below()
    }

    /// A command ended that did not do what it was to do.
    fn note(&self, sent: Sent, done: &VectorDone) {
        match sent.op {
            VectorOp::Read if done.status == Status::UNRECOVERED_READ => {
                for i in (0..u64::from(BlockBits::BITS)).filter(|i| done.failed >> i & 1 == 1) {
                    self.flash.note_lost(Ppa(sent.ppa.0 + i), sent.before);
                }
            }
            VectorOp::Write => self.flash.note_closed(sent.ppa, sent.before),
            _ => {}
        }
    }
}

impl Port for Rebuilt {
    type Cmd = VectorCmd;
    type Done = VectorDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<VectorCmd>) {
        while self.sent.room() > 0
            && self.down.room() > 0
            && let Some(mut cmd) = cmds.pop()
        {
            assert!(cmd.list.is_none(), "a target here names neighbours");
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
        self.below.submit(to, &mut self.down);
        for i in before..done.len() {
            let one = done.get_mut(i).expect("it is in the ring");
            let number = (one.cookie & !NUMBERED) as u32;
            let sent = self.sent[number];
            self.sent.give(number);
            one.cookie = sent.cookie;
            if !one.status.is_ok() && one.status != Status::HIGH_ECC {
                let one = done.get(i).expect("it is in the ring");
                self.note(sent, one);
            }
        }
    }
}

impl OpenChannel for Rebuilt {
    device::as_below!(this => this.below, most DEPTH);
}
