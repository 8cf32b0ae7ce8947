//! How completions come to the cores that submitted their requests.
//!
//! Guarantees: each is given to its submitter once; one of merged requests to
//! the submitter of each part. Nothing here fails.

use port::{BlockDone, Ring, Time};
use tags::Inbox;

use super::{Context, Found, Lane};
use crate::config::Steering;
use crate::dispatch::Past;
use crate::driver::HardwareQueue;
use crate::staging::Parts;

impl<Q: HardwareQueue> Context<Q> {
    /// Brings all that a lane gave to its submitters.
    pub(super) fn deliver_seen(&mut self, now: Time, number: usize, done: &mut Ring<BlockDone>) {
        while let (Some(one), Some(past)) = (self.seen.pop(), self.pasts.pop()) {
            self.trace(now, number, &past, &one);
            self.deliver(now, number, past, one, done);
        }
    }

    /// Brings a completion to its submitter; one of merged requests to each of
    /// them, by way of the core that has them.
    fn deliver(
        &mut self,
        now: Time,
        number: usize,
        past: Past,
        one: BlockDone,
        done: &mut Ring<BlockDone>,
    ) {
        if past.parts.is_none() {
            self.finish(now, number, past, one, done);
        } else if self.lanes[number].knows(past.staging) {
            self.split(now, number, past, one, done);
        } else {
            // Its staging queue is that core's alone, and so are all the parts.
            self.hand_over(past.from, number, one, past, false);
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
        let split = lane.in_staging(past.staging, |staging| {
            staging.split(past.parts, status, at, buffer, &mut |from, submitted, part| {
                parts.put(|| (from, submitted, part));
            });
        });
        assert!(split.is_some(), "merged requests come to who has their staging queue");
        while let Some((from, submitted, part)) = self.parts.pop() {
            let past = Past { from, submitted, parts: Parts::NONE, ..past };
            self.finish(now, number, past, part, done);
        }
    }

    /// Records a request's latency where it is to be finished, and hands it to
    /// its submitter.
    fn finish(
        &mut self,
        now: Time,
        number: usize,
        past: Past,
        one: BlockDone,
        done: &mut Ring<BlockDone>,
    ) {
        let finisher = match self.steering {
            Steering::Submitter => past.from,
            Steering::Finder | Steering::One(_) => self.core,
            Steering::Split(a, b) => (if past.tag.is_multiple_of(2) { a } else { b }) as u32,
        };
        if finisher != self.core {
            self.hand_over(finisher, number, one, past, false);
            return;
        }
        self.record_and_give(now, number, past, one, done);
    }

    fn record_and_give(
        &mut self,
        now: Time,
        number: usize,
        past: Past,
        one: BlockDone,
        done: &mut Ring<BlockDone>,
    ) {
        self.lanes[number].account.latency.record(now.since(past.submitted));
        self.give(number, past, one, done);
    }

    /// Gives a finished request to its submitter.
    fn give(&mut self, number: usize, past: Past, one: BlockDone, done: &mut Ring<BlockDone>) {
        if past.from != self.core {
            self.hand_over(past.from, number, one, past, true);
        } else if self.ready.is_empty() && done.room() > 0 {
            self.outside -= 1;
            done.put(|| one);
        } else {
            self.ready.put(|| one);
        }
    }

    fn hand_over(&self, core: u32, lane: usize, done: BlockDone, past: Past, recorded: bool) {
        let (queue, seen) = (self.lanes[lane].number, self.last);
        self.peers.send(core, Found { done, past, queue, seen, recorded });
    }

    /// Takes what other cores found.
    #[cold]
    pub(super) fn take_inbox(&mut self, now: Time, done: &mut Ring<BlockDone>) {
        while let Some(found) = self.inbox.as_mut().and_then(Inbox::pop) {
            self.take_found(now, found, done);
        }
    }

    fn take_found(&mut self, now: Time, found: Found, done: &mut Ring<BlockDone>) {
        let Found { done: one, past, queue, seen, recorded } = found;
        let now = now.max(seen);
        // Who shares no dispatch queue with the finder shares a staging queue;
        // it counts under the lane that it would have used.
        let mine = self.lanes.iter().position(|lane| lane.number == queue);
        let number = mine.unwrap_or_else(|| self.routes.lane_of(one.op));
        if recorded {
            self.give(number, past, one, done);
        } else if !past.parts.is_none() {
            self.split(now, number, past, one, done);
        } else {
            // This core is the one that finishes it, whoever found it.
            self.record_and_give(now, number, past, one, done);
        }
    }

    /// Passes on what was handed to cores that went.
    #[cold]
    pub(super) fn take_left_behind(&mut self, now: Time, done: &mut Ring<BlockDone>) {
        while let Some(found) = self.peers.left_behind() {
            let past = found.past;
            let staging = |lane: &Lane<Q>| lane.knows(past.staging);
            if past.parts.is_none() && past.from == self.core {
                self.take_found(now, found, done);
            } else if past.parts.is_none() {
                // Its submitter, if that one went too, never asks for it.
                if self.peers.is_here(past.from) {
                    self.peers.send(past.from, found);
                }
            } else if let Some(number) = self.lanes.iter().position(staging) {
                self.split(now, number, past, found.done, done);
            }
            // Else its staging queue went with the core that went, and so did
            // all whose requests these were.
        }
    }
}
