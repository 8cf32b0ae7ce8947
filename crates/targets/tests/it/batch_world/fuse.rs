//! A drive that stops, and of which writes of the log fail.

use std::cell::Cell;
use std::rc::Rc;

use device::{Content, OpenChannel, VectorCmd, VectorDone, VectorOp};
use faults::Fuse;
use flash::Tag;
use port::{Port, Ring, Status, Time};

use super::BLOCK;

/// A drive that stops for ever after a number of events.
pub struct LogFuse<D> {
    pub(super) below: Fuse<D>,
    /// So many of the next writes of log rows fail, though they are done.
    pub(super) fail_log: Rc<Cell<u32>>,
    pub(super) failing: Vec<u64>,
}

impl<D> LogFuse<D> {
    fn choose(&mut self, cmds: &Ring<VectorCmd>) {
        for cmd in (0..cmds.len()).filter_map(|i| cmds.get(i)) {
            let log = cmd.op == VectorOp::Write && cmd.content == Content::Whole && {
                let tag = Tag::load(&cmd.buffer.bytes()[cmd.count as usize * BLOCK..]);
                tag.id >> 56 == 6
            };
            if log && self.fail_log.get() > 0 && !self.failing.contains(&cmd.cookie) {
                self.failing.push(cmd.cookie);
                self.fail_log.set(self.fail_log.get() - 1);
            }
        }
    }
}

impl<D: OpenChannel> Port for LogFuse<D> {
    type Cmd = VectorCmd;
    type Done = VectorDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<VectorCmd>) {
        if self.below.left.get() > 0 {
            self.choose(cmds);
            self.below.submit(now, cmds);
        }
    }

    fn next_event(&self) -> Option<Time> {
        self.below.next_event()
    }

    fn advance(&mut self, to: Time, done: &mut Ring<VectorDone>) {
        self.below.advance(to, done);
        for at in 0..done.len() {
            let one = done.get_mut(at).unwrap();
            if let Some(at) = self.failing.iter().position(|&cookie| cookie == one.cookie) {
                self.failing.swap_remove(at);
                (one.status, one.failed) = (Status::WRITE_FAULT, flash::BlockBits::MAX);
            }
        }
    }
}

impl<D: OpenChannel> OpenChannel for LogFuse<D> {
    device::as_below!(this => this.below);
}
