//! The way through a port that changes what passes: commands down, completions
//! up, each under a number of its own.

use port::{Numbered, Port, Ring, Slots, Time};

use crate::command::{Command, Completion};

/// Commands that may be inside a port of this crate at once, unless it is made
/// for fewer.
pub const DEPTH: usize = 1024;

/// The port below, and what is kept of each command inside it.
pub(crate) struct Passage<P: Port, T> {
    pub(crate) below: P,
    /// On its way down: taken from above, not yet by the port below.
    down: Ring<P::Cmd>,
    came: Ring<P::Done>,
    /// The caller's number of a command, and a note on it, by the number that
    /// it has below.
    slots: Slots<(u64, T)>,
    /// The latest time seen.
    now: Time,
    /// Commands that may be inside at once.
    depth: usize,
}

impl<P, T> Passage<P, T>
where
    P: Port,
    P::Cmd: Command<Done = P::Done>,
    P::Done: Completion,
    T: Copy + Default,
{
    pub fn new(below: P, depth: usize) -> Passage<P, T> {
        let depth = depth.clamp(1, DEPTH);
        Passage {
            below,
            down: Ring::new(depth),
            came: Ring::new(depth),
            slots: Slots::new(depth),
            now: Time::ZERO,
            depth,
        }
    }

    /// How many commands are inside.
    pub fn live(&self) -> usize {
        self.slots.live()
    }

    /// Sends what is waiting down, and says whether all of it was taken: then
    /// more may be sent. So what is refused below is refused here.
    pub fn clear(&mut self, now: Time) -> bool {
        self.now = self.now.max(now);
        if !self.down.is_empty() {
            self.below.submit(self.now, &mut self.down);
        }
        self.down.is_empty()
    }

    /// Puts a command on its way. The caller saw fewer than
    /// [`Passage::depth`] inside, and calls [`Passage::clear`] after the last.
    pub fn send(&mut self, mut cmd: P::Cmd, note: T) {
        let slot = self.slots.take((cmd.number(), note));
        cmd.renumber(u64::from(slot));
        self.down.put(|| cmd);
    }

    /// Lets all that is due at `to` happen below, and gives each completion
    /// with its note.
    pub fn work(&mut self, to: Time, mut each: impl FnMut(P::Done, T)) {
        self.now = self.now.max(to);
        loop {
            if let Some(at) = self.below.next_event().filter(|&at| at <= to) {
                self.below.advance(at.min(to), &mut self.came);
            }
            let (waiting, moved) = (self.down.len(), !self.came.is_empty());
            while let Some(mut done) = self.came.pop() {
                let slot = done.number() as u32;
                let (number, note) = self.slots[slot];
                self.slots.give(slot);
                done.renumber(number);
                each(done, note);
            }
            if waiting > 0 {
                self.below.submit(self.now, &mut self.down);
            }
            let moved = moved || self.down.len() < waiting;
            if !moved || self.below.next_event().is_none_or(|at| at > to) {
                return;
            }
        }
    }

    pub fn next_event(&self) -> Option<Time> {
        self.below.next_event()
    }
}

impl<P: Port, T> Passage<P, T> {
    /// Commands that may be inside at once.
    pub fn depth(&self) -> usize {
        self.depth
    }

    pub fn below(&self) -> &P {
        &self.below
    }

    pub fn below_mut(&mut self) -> &mut P {
        &mut self.below
    }

    pub fn into_below(self) -> P {
        self.below
    }
}

/// A port with a passage to the port below: that one, and the vector port that
/// is a [`device::OpenChannel`] because the port below is one. What is done at
/// once would pass by, so it is declined.
macro_rules! over_another_port {
    ($port:ident) => {
        impl<P: Port> $port<P> {
            /// The port below.
            pub fn below(&self) -> &P {
                self.passage.below()
            }

            /// The port below, to be changed while nothing is inside.
            pub fn below_mut(&mut self) -> &mut P {
                self.passage.below_mut()
            }

            /// The port below without this one; what is inside is lost.
            pub fn into_below(self) -> P {
                self.passage.into_below()
            }
        }

        impl<P: device::OpenChannel> device::OpenChannel for $port<P> {
            device::as_below!(this => this.passage.below, most this.passage.depth());
        }
    };
}
pub(crate) use over_another_port;
