//! A drive that stops.

use std::cell::Cell;
use std::rc::Rc;

use device::{Content, OpenChannel, VectorCmd, VectorDone, VectorOp};
use flash::{Chunk, Geometry, Tag, Timing};
use port::{Port, Ring, Status, Time};

use super::{BLOCK, Shared};

/// A drive that stops for ever after a number of events.
pub struct Fuse {
    pub(super) device: Shared,
    pub(super) geometry: Geometry,
    pub(super) timing: Timing,
    pub(super) left: Rc<Cell<u64>>,
    /// So many of the next writes of log rows fail, though they are done.
    pub(super) fail_log: Rc<Cell<u32>>,
    pub(super) failing: Vec<u64>,
}

impl Fuse {
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

impl Port for Fuse {
    type Cmd = VectorCmd;
    type Done = VectorDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<VectorCmd>) {
        if self.left.get() > 0 {
            self.choose(cmds);
            self.device.borrow_mut().submit(now, cmds);
        }
    }

    fn next_event(&self) -> Option<Time> {
        if self.left.get() > 0 { self.device.borrow().next_event() } else { None }
    }

    fn advance(&mut self, to: Time, done: &mut Ring<VectorDone>) {
        if self.left.get() > 0 {
            if self.device.borrow().next_event().is_some_and(|at| at <= to) {
                self.left.set(self.left.get() - 1);
            }
            self.device.borrow_mut().advance(to, done);
            for _ in 0..done.len() {
                let mut one = done.pop().unwrap();
                if let Some(at) = self.failing.iter().position(|&cookie| cookie == one.cookie) {
                    self.failing.swap_remove(at);
                    (one.status, one.failed) = (Status::WRITE_FAULT, flash::BlockBits::MAX);
                }
                done.push(one).unwrap();
            }
        }
    }
}

impl OpenChannel for Fuse {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn timing(&self) -> &Timing {
        &self.timing
    }

    fn kept(&self) -> u32 {
        self.device.borrow().kept()
    }

    fn chunk(&self, chunk_index: usize) -> Chunk {
        self.device.borrow().chunk(chunk_index)
    }

    fn depth(&self) -> usize {
        self.device.borrow().depth()
    }

    fn is_cached(&self) -> bool {
        self.device.borrow().is_cached()
    }
}
