//! How completions come to the cores that submitted their requests.
//!
//! Guarantees: each is given to its submitter once; one of merged requests to
//! the submitter of each part. Nothing here fails.

use port::{BlockDone, Ring, Time};

use super::{Context, Found, core_of, is_solo};
use crate::dispatch::Past;
use crate::driver::HardwareQueue;
use crate::staging::Parts;

impl<Q: HardwareQueue> Context<Q> {
    /// Brings all that a lane gave to its submitters.
    pub(super) fn deliver_seen(&mut self, now: Time, number: usize, done: &mut Ring<BlockDone>) {
        while let (Some(one), Some(past)) = (self.seen.pop(), self.pasts.pop()) {
            self.tell(now, number, &past, &one);
            if past.parts.is_none() {
                self.give(now, number, past, one, done);
            } else {
                self.split(now, number, past, one, done);
            }
        }
    }

    /// Gives each of merged requests its own completion.
    #[cold]
    fn split(
        &mut self,
        now: Time,
        number: usize,
        past: Past,
        one: BlockDone,
        done: &mut Ring<BlockDone>,
    ) {
        let BlockDone { status, at, buffer, .. } = one;
        let (lane, parts) = (&mut self.lanes[number], &mut self.parts);
        lane.staging.lock().split(past.parts, status, at, buffer, &mut |from, submitted, part| {
            parts.put(|| (from, submitted, part));
        });
        while let Some((from, submitted, part)) = self.parts.pop() {
            let past = Past { from, submitted, parts: Parts::NONE, ..past };
            self.give(now, number, past, part, done);
        }
    }

    /// Gives a request to its submitter, where its latency is recorded.
    fn give(
        &mut self,
        now: Time,
        number: usize,
        past: Past,
        one: BlockDone,
        done: &mut Ring<BlockDone>,
    ) {
        let lane = &self.lanes[number];
        let core = core_of(past.from);
        if core != self.core {
            let found = Found { done: one, past, queue: lane.number, seen: self.last };
            self.peers.send(core, found);
            return;
        }
        let one = if past.from == core {
            one
        } else {
            let Some(whole) = self.take_piece(one) else { return };
            whole
        };
        let account = &self.lanes[number].account;
        account.latency.record(now.since(past.submitted));
        if self.ready.is_empty() && done.room() > 0 {
            self.outside -= 1;
            done.put(|| one);
        } else {
            self.ready.put(|| one);
        }
    }

    /// Takes a piece back. Gives the request that it was cut from when it was the
    /// last of it.
    #[cold]
    fn take_piece(&mut self, piece: BlockDone) -> Option<BlockDone> {
        let whole = self.cuts.give(piece)?;
        self.solo = is_solo(&self.lanes) && self.cuts.is_empty();
        Some(whole)
    }

    /// Takes what other cores found.
    #[cold]
    pub(super) fn take_inbox(&mut self, now: Time, done: &mut Ring<BlockDone>) {
        while let Some(Found { done: one, past, queue, seen }) = self.inbox.pop() {
            let mine = self.lanes.iter().position(|lane| lane.number == queue);
            let number = mine.expect("who finds it has the same dispatch queue");
            self.give(now.max(seen), number, past, one, done);
        }
    }
}
