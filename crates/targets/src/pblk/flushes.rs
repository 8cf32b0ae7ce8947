//! Flushes, and writes that end with one.
//!
//! Guarantees: a flush completes when all that was in the buffer before it is in
//! flash, and what was given up before it is recorded there; where the drive has
//! a cache, after that was flushed, too. Where nothing can be made durable any
//! more it fails.

use device::{Content, OpenChannel, VectorOp};
use flash::Ppa;
use port::{Buffer, Status, Time};

use super::mutation::{Mutation, is};
use super::{Cookie, Pblk};

/// A flush, or a write that ends with one, that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flush {
    /// User rows up to this number must be programmed.
    seq: u64,
    /// Records up to this number must be.
    record: u64,
    request: u32,
}

impl<D: OpenChannel> Pblk<D> {
    /// Completes a request when all that was in the buffer before it is in
    /// flash, and what was given up is recorded there.
    pub(super) fn flush(&mut self, now: Time, slot: u32) {
        if self.told.is_some() {
            self.wait_story(slot, now);
        }
        if self.facts.dead {
            self.host.requests[slot].status =
                self.host.requests[slot].status.and(Status::WRITE_FAULT);
            self.complete(now, slot);
            return;
        }
        self.send_part_units();
        if self.saved.log.last > self.saved.log.durable {
            self.want_log();
        }
        let (mut seq, mut record) = (self.units.last_seq(), self.saved.log.last);
        if is(Mutation::FlushEarly) {
            seq = seq.saturating_sub(1);
        } else if is(Mutation::FlushWithoutLog) {
            record = 0;
        }
        self.host.flushes.push_back(Flush { seq, record, request: slot });
        self.facts.news = true;
    }

    /// A copy that a flush waits for was given up and will not be on flash: in
    /// its place the flush waits for the record that says so.
    pub(super) fn flush_records(&mut self) {
        let last = self.saved.log.last;
        self.host.flushes.iter_mut().skip(self.host.syncing).for_each(|flush| flush.record = last);
        if self.host.flushes.len() > self.host.syncing && last > self.saved.log.durable {
            self.want_log();
        }
    }

    /// Completes all flushes with an error: what they wait for is not to be
    /// had.
    pub(super) fn fail_flushes(&mut self, now: Time) {
        self.host.syncing = 0;
        while let Some(flush) = self.host.flushes.pop_front() {
            let status = &mut self.host.requests[flush.request].status;
            *status = status.and(Status::WRITE_FAULT);
            self.complete(now, flush.request);
        }
    }

    /// Completes the flushes whose rows are all in flash; where the drive has a
    /// cache, after it was flushed too. Where nothing can be made durable any more
    /// they fail.
    #[inline]
    pub(super) fn end_flushes(&mut self, now: Time) {
        if self.host.flushes.is_empty() {
            return;
        }
        if self.facts.dead {
            self.fail_flushes(now);
        } else if self.host.syncing == 0 {
            self.end_ready_flushes(now);
        }
    }

    fn end_ready_flushes(&mut self, now: Time) {
        let (seq, record) = (self.units.durable_seq(), self.saved.log.durable);
        let ready = |flush: &&Flush| flush.seq <= seq && flush.record <= record;
        let count = self.host.flushes.iter().take_while(ready).count();
        if count > 0 && self.device.is_cached() {
            self.host.syncing = count;
            let (cookie, op) = (Cookie::Flush, VectorOp::Flush);
            self.send(|| Self::run(cookie, op, Ppa(0), 0, Content::Data, Buffer::empty()));
            return;
        }
        for _ in 0..count {
            let flush = self.host.flushes.pop_front().expect("they were counted");
            self.complete(now, flush.request);
        }
    }

    /// The drive's flush is over.
    #[cold]
    pub(super) fn flush_done(&mut self, now: Time, status: Status) {
        for _ in 0..std::mem::take(&mut self.host.syncing) {
            let flush = self.host.flushes.pop_front().expect("they were counted");
            let request = &mut self.host.requests[flush.request];
            request.status = request.status.and(status);
            self.complete(now, flush.request);
        }
        self.facts.news = true;
    }
}
