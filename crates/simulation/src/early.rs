//! A drive that says too early that a program is done: one of the breaks.

use std::collections::VecDeque;

use device::{VectorCmd, VectorDone, VectorOp};
use port::{Ring, Status, Time};

/// Programs that are said to be done when they are sent; their true
/// completions are dropped.
#[derive(Default)]
pub(crate) struct EarlyDone {
    done: VecDeque<VectorDone>,
}

/// Marks the true completion of a program that was said to be done.
const SAID: u64 = 1 << 63;

impl EarlyDone {
    /// When the first that was said is to be told.
    pub fn next(&self) -> Option<Time> {
        self.done.front().map(|done| done.at)
    }

    /// Says that all programs of `cmds` are done.
    pub fn say(&mut self, now: Time, cmds: &mut Ring<VectorCmd>) {
        for i in 0..cmds.len() {
            let Some(cmd) = cmds.get_mut(i) else { break };
            if cmd.op != VectorOp::Write || cmd.cookie & SAID != 0 {
                continue;
            }
            let mut copy = port::Buffer::zeroed(cmd.buffer.len()).expect("a row of memory");
            copy.bytes_mut().copy_from_slice(cmd.buffer.bytes());
            let buffer = std::mem::replace(&mut cmd.buffer, copy);
            let (cookie, status) = (cmd.cookie, Status::SUCCESS);
            self.done.push_back(VectorDone {
                cookie,
                status,
                failed: 0,
                at: now,
                list: None,
                buffer,
            });
            cmd.cookie |= SAID;
        }
    }

    /// Puts what was said in the place of what is true.
    pub fn instead(&mut self, done: &mut Ring<VectorDone>) {
        for _ in 0..done.len() {
            let one = done.pop().expect("it was counted");
            if one.cookie & SAID == 0 {
                done.push(one).expect("there was room");
            }
        }
        while done.room() > 0 {
            let Some(one) = self.done.pop_front() else { break };
            done.push(one).expect("there is room");
        }
    }
}
