//! How requests that do not go past the staging queues get in and go on.
//!
//! Guarantees: a core's requests are staged in the order in which they came,
//! those for different lanes apart; what finds no room stays with its submitter.
//! Nothing here fails.

use port::{BlockReq, Ring, Time};

use super::Context;
use crate::config::Merge;
use crate::driver::HardwareQueue;

impl<Q: HardwareQueue> Context<Q> {
    /// Stages what did not go past the staging queues, and lets them go on.
    #[inline(never)]
    pub(super) fn submit_staged(&mut self, now: Time, reqs: &mut Ring<BlockReq>) {
        while let Some(front) = reqs.front() {
            let lane = self.routes.lane_of(front.op);
            if !self.stage(now, lane, reqs) {
                break;
            }
        }
        let refused = reqs.front().map(|front| self.routes.lane_of(front.op));
        if refused.is_some() || self.refused.is_some() {
            self.say_refused(refused);
        }
        (0..self.lanes.len()).for_each(|lane| self.go(now, lane));
    }

    /// Says which lane's staging queue has no room for what was offered: those
    /// that share it then leave this core its part.
    #[cold]
    fn say_refused(&mut self, lane: Option<usize>) {
        self.refused = lane;
        let short = lane.filter(|_| self.outside + self.cuts.outside() < self.limit);
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            lane.staging.lock().say_refused(self.core, short == Some(number));
        }
    }

    /// Stages requests until one is for another lane or there is no room; one that
    /// is cut is the last. False when there was none for the first.
    fn stage(&mut self, now: Time, number: usize, reqs: &mut Ring<BlockReq>) -> bool {
        let routes = self.routes;
        let mut room = self.limit.saturating_sub(self.outside + self.cuts.outside());
        let lane = &mut self.lanes[number];
        // Whether the device is busy matters to merging only.
        let busy = self.merge != Merge::Off && !lane.queue.lock().has_room();
        let mut staging = lane.staging.lock();
        let before = self.outside;
        while let Some(front) = reqs.front() {
            let full = staging.room_for(self.core) == 0 || room == 0;
            if full || routes.lane_of(front.op) != number {
                break;
            }
            if self.cuts.is_long(front) {
                drop(staging);
                self.cut(now, number, reqs);
                break;
            }
            let Some(req) = reqs.pop() else { break };
            staging.insert(now, self.core, busy, req);
            self.outside += 1;
            room -= 1;
        }
        self.outside > before
    }

    /// Stages what there is room for of the pieces that a lane waits for. Whether
    /// there were some.
    fn stage_pieces(&mut self, now: Time, number: usize) -> bool {
        let lane = &mut self.lanes[number];
        let busy = self.merge != Merge::Off && !lane.queue.lock().has_room();
        let mut staging = lane.staging.lock();
        let before = self.cuts.outside();
        while self.outside + self.cuts.outside() < self.limit
            && staging.room_for(self.core) > 0
            && let Some((from, piece)) = self.cuts.next(self.core)
        {
            staging.insert(now, from, busy, piece);
        }
        self.cuts.outside() > before
    }

    /// Begins to cut the first of `reqs`, if there is room for another that is cut.
    #[cold]
    fn cut(&mut self, now: Time, number: usize, reqs: &mut Ring<BlockReq>) {
        if self.cuts.has_room()
            && let Some(req) = reqs.pop()
        {
            self.cuts.begin(number, req);
            self.outside += 1;
            self.solo = false;
            self.stage_pieces(now, number);
        }
    }

    /// Lets go on what is staged, and what is to be cut for a lane.
    pub(super) fn go(&mut self, now: Time, number: usize) {
        self.run(now, number);
        while self.cuts.lane() == Some(number) && self.stage_pieces(now, number) {
            self.run(now, number);
        }
    }

    /// Moves staged requests to the dispatch queue while there are tags, and
    /// what is there to the driver.
    fn run(&mut self, now: Time, number: usize) {
        let lane = &mut self.lanes[number];
        let mut staging = lane.staging.lock();
        let mut queue = lane.queue.lock();
        queue.stand_in_line();
        let mut moved = 0;
        while staging.waiting(lane.way) > 0 && queue.has_room() {
            let Some(tag) = queue.take_tag() else { break };
            let Some(outgoing) = staging.next(now, lane.way) else {
                queue.return_tag(tag);
                break;
            };
            queue.enter(now, tag, outgoing);
            moved += 1;
        }
        let counters = staging.counters();
        lane.staged.publish(&counters, staging.len());
        if staging.waiting(lane.way) == 0 {
            queue.want_none();
        }
        drop(staging);
        queue.send(now);
        lane.account.dispatched.add(moved);
    }
}
