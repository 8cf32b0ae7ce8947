//! Giving requests up.
//!
//! One that takes too long is asked for. Its tag stays with it, and its
//! submitter is not told, until the driver gives it up or completes it; when
//! it does neither within another timeout, the queue is reset. Where that
//! cannot be, none of the device's queues is given anything more. So what was
//! given up never lands on what was written after its submitter was told.
//!
//! Each step goes through the requests once, however many are given up.

use std::sync::atomic::Ordering;

use port::{BlockDone, Buffer, Status, Time};

use super::{Dispatch, NEVER, Past};
use crate::driver::{Abort, HardwareQueue, tag_of};
use crate::error::Fault;

impl<Q: HardwareQueue> Dispatch<Q> {
    /// Gives up what takes too long; everything when `all` is asked for or the
    /// device is gone. `left` is given each request that left: those that the
    /// driver let go, and those that never reached it. Others stay until they
    /// complete, or the queue is reset because they do not.
    #[cold]
    pub fn give_up(&mut self, now: Time, all: bool, mut left: impl FnMut(&Past, BlockDone)) {
        if self.queue.is_gone() && !self.gone {
            self.gone = true;
            self.fault(Fault::Gone { queue: self.number });
        }
        let all = all || self.queue.is_gone();
        self.next_scan = NEVER;
        if self.tags.live() == 0 {
            self.tags.rest();
        }
        if all || self.is_over() {
            self.drop_unsent(now, &mut left);
        } else if !self.out.is_empty() {
            self.drop_late_unsent(now, &mut left);
        }
        let mut stays = false;
        for tag in 0..self.slots.len() as u32 {
            if !self.slots[tag as usize].is_live() {
                continue;
            }
            if !all {
                self.notice_wait(now, tag);
            }
            if all {
                let (past, done) = self.recall(now, tag, Status::ABORTED);
                left(&past, done);
            } else if self.slots[tag as usize].due(self.timeout) > now {
                self.scan_at(self.slots[tag as usize].due(self.timeout));
            } else {
                match self.late(now, tag) {
                    Late::Left(past, done) => left(&past, done),
                    Late::Asked => self.scan_at(self.slots[tag as usize].until),
                    Late::Stays => stays = true,
                }
            }
        }
        if stays {
            self.reset(now, &mut left);
        }
        self.tags.flush();
    }

    fn scan_at(&mut self, at: Time) {
        self.next_scan = self.next_scan.min(at);
    }

    /// A request that waited for the driver to have room has the time from then on.
    fn notice_wait(&mut self, now: Time, tag: u32) {
        let slot = &mut self.slots[tag as usize];
        if slot.asked != slot.generation
            && slot.due(self.timeout) <= now
            && let Some(since) = self.queue.since(slot.name(self.entrance | tag), now)
        {
            slot.dispatched = since;
        }
    }

    /// Gives up what has not reached the driver, and now never does.
    fn drop_unsent(&mut self, now: Time, left: &mut impl FnMut(&Past, BlockDone)) {
        while let Some(req) = self.out.pop() {
            let (past, done) = self.finish(now, tag_of(req.id) as u32, Status::ABORTED);
            left(&past, BlockDone { buffer: req.buffer, ..done });
        }
    }

    /// The same of what takes too long; the others keep their order.
    fn drop_late_unsent(&mut self, now: Time, left: &mut impl FnMut(&Past, BlockDone)) {
        for _ in 0..self.out.len() {
            let Some(req) = self.out.pop() else { return };
            let tag = tag_of(req.id) as u32;
            if self.slots[tag as usize].due(self.timeout) > now {
                self.out.put(|| req);
                continue;
            }
            self.is_late(tag);
            let (past, done) = self.finish(now, tag, Status::ABORTED_BY_HOST);
            left(&past, BlockDone { buffer: req.buffer, ..done });
        }
    }

    /// Reports that a request takes too long, once. Whether that is new.
    fn is_late(&mut self, tag: u32) -> bool {
        let slot = &mut self.slots[tag as usize];
        let since = slot.dispatched;
        if slot.asked == slot.generation {
            return false;
        }
        slot.asked = slot.generation;
        self.timed_out += 1;
        self.fault(Fault::TimedOut { queue: self.number, tag: tag.into(), since });
        true
    }

    /// Asks the driver for a request back that takes too long.
    fn late(&mut self, now: Time, tag: u32) -> Late {
        if !self.is_late(tag) && !self.slots[tag as usize].works {
            return Late::Stays;
        }
        let answer = self.queue.abort(self.slots[tag as usize].name(self.entrance | tag));
        if let Abort::Given(buffer) = answer {
            let (past, done) = self.finish(now, tag, Status::ABORTED_BY_HOST);
            return Late::Left(past, BlockDone { buffer, ..done });
        }
        let slot = &mut self.slots[tag as usize];
        slot.works = matches!(answer, Abort::Working);
        // What is worked on is asked for again when it has taken twice as long:
        // seldom, however many there are and however slow the drive is.
        slot.until = now + if slot.works { now - slot.dispatched } else { self.timeout };
        Late::Asked
    }

    /// Resets the driver's queue. Where it cannot be, the device is at an end:
    /// what it holds may land at any time, so nothing newer may come after.
    fn reset(&mut self, now: Time, left: &mut impl FnMut(&Past, BlockDone)) {
        let done = self.queue.reset();
        let (queue, status) = (self.number, Status::ABORTED_BY_HOST);
        self.fault(if done { Fault::Reset { queue } } else { Fault::Stuck { queue } });
        let status = if done { status } else { Status::ABORTED };
        if !done {
            self.over.store(true, Ordering::Relaxed);
            self.drop_unsent(now, left);
        }
        self.next_scan = NEVER;
        for i in 0..self.out.len() {
            let Some(tag) = self.out.get(i).map(|req| tag_of(req.id)) else { break };
            self.slots[tag].unsent = true;
            self.scan_at(self.slots[tag].due(self.timeout));
        }
        for tag in 0..self.slots.len() as u32 {
            let slot = &mut self.slots[tag as usize];
            if !slot.is_live() || std::mem::take(&mut slot.unsent) {
                continue;
            }
            let (past, done) = self.recall(now, tag, status);
            left(&past, done);
        }
    }

    /// Takes a request back that was sent to a driver which has no say in it
    /// any more.
    fn recall(&mut self, now: Time, tag: u32, status: Status) -> (Past, BlockDone) {
        let name = self.slots[tag as usize].name(self.entrance | tag);
        let buffer = match self.queue.abort(name) {
            Abort::Given(buffer) => buffer,
            Abort::Working | Abort::Lost => Buffer::empty(),
        };
        let (past, done) = self.finish(now, tag, status);
        (past, BlockDone { buffer, ..done })
    }

    /// Lets a request go that did not complete, without its buffer, and frees
    /// its tag.
    fn finish(&mut self, now: Time, tag: u32, status: Status) -> (Past, BlockDone) {
        let slot = &mut self.slots[tag as usize];
        let (id, op, past) = (slot.id, slot.op, slot.past(tag));
        slot.lost = slot.generation;
        slot.generation = slot.generation.wrapping_add(1);
        self.tags.give_later(tag);
        (past, BlockDone { id, op, status, at: now, buffer: Buffer::empty() })
    }
}

/// What became of a request that takes too long.
enum Late {
    Left(Past, BlockDone),
    /// It may still come back, and is waited for.
    Asked,
    /// It did not come back when it was asked for.
    Stays,
}
