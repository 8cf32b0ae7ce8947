//! A core that goes, and what is left behind by those that went.
//!
//! Guarantees: what a core that goes has outside is its own to lose; nothing of
//! anybody else is. What others' queues still hold of it is looked at by them,
//! until it has ended. Nothing here fails.

use port::{BlockDone, Ring, Time};

use super::{Context, Lane};
use crate::driver::HardwareQueue;

impl<Q: HardwareQueue> Context<Q> {
    /// Looks at what a core that went has left in a queue, as if it were this
    /// core's.
    #[cold]
    #[inline(never)]
    pub(super) fn look_at_left(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        let Some(lane) = self.peers.take_left() else { return };
        let number = self.lanes.len();
        self.lanes.push(lane);
        self.look(to, number, done);
        self.keep_going(to, number);
        if let Some(lane) = self.lanes.pop()
            && !self.leave(lane)
        {
            self.peers.forget();
        }
    }

    /// Leaves a lane to the other cores, if something of one that went is in it.
    /// Whether there is.
    fn leave(&self, lane: Lane<Q>) -> bool {
        let some = lane.queue.peek().has_some_of(|core| self.peers.is_gone(core));
        if some {
            self.peers.leave(lane);
        }
        some
    }
}

impl<Q: HardwareQueue> Drop for Context<Q> {
    /// What this core has outside is given up; what others have is not lost with
    /// it. The last of a dispatch queue asks for what is in it, unless others use
    /// the driver's queue: then what is there stays in their care.
    fn drop(&mut self) {
        self.peers.go(self.core);
        self.ready.drain().for_each(drop);
        for number in 0..self.lanes.len() {
            let lane = &mut self.lanes[number];
            let mut staging = lane.staging.lock();
            let mut queue = lane.queue.lock();
            if staging.drop_user(self.core, lane.way) {
                queue.want_none();
                lane.staged.publish(&staging.counters(), staging.len());
            }
            let is_last = queue.leave() && queue.queue().own().is_some();
            drop((queue, staging));
            if is_last {
                self.give_up(self.last, number, true);
                self.ready.drain().for_each(drop);
            }
        }
        for lane in std::mem::take(&mut self.lanes) {
            self.peers.abandon();
            if !self.leave(lane) {
                self.peers.forget();
            }
        }
        self.peers.gate.leave(self.core());
    }
}
