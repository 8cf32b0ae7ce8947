//! A lent drive that is looked after when nobody uses it, on the thread that
//! drives it.

use port::{BlockDone, BlockReq, Port, Ring, Time};

use crate::lent::Lent;
use crate::serve::BEAT;
use crate::stack::Drive;

/// A drive whose data do not grow old unseen.
pub struct Tended<D: Drive> {
    drive: Lent<D>,
    /// When it is looked after next.
    due: Time,
}

impl<D: Drive> Tended<D> {
    /// Looks after `drive` from now on.
    pub fn new(drive: Lent<D>) -> Tended<D> {
        Tended { drive, due: beat(Time::ZERO) }
    }
}

fn beat(now: Time) -> Time {
    now + BEAT.as_nanos() as u64
}

impl<D: Drive> Port for Tended<D> {
    type Cmd = BlockReq;
    type Done = BlockDone;

    #[inline]
    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        self.drive.submit(now, cmds);
    }

    #[inline]
    fn next_event(&self) -> Option<Time> {
        Some(self.drive.next_event().map_or(self.due, |at| at.min(self.due)))
    }

    #[inline]
    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        if self.drive.next_event().is_some_and(|at| at <= to) {
            self.drive.advance(to, done);
        }
        if to >= self.due {
            self.due = beat(to);
            self.drive.tend(to);
        }
    }
}
