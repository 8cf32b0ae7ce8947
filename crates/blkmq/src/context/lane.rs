//! A core's way to a device.

use std::sync::Arc;

use port::Time;

use crate::account::{LaneAccount, StagingAccount};
use crate::dispatch::Dispatch;
use crate::driver::HardwareQueue;
use crate::held::Held;
use crate::staging::Staging;

/// A core's way through one staging queue to one dispatch queue.
pub(crate) struct Lane<Q> {
    pub staging: Held<Staging>,
    pub staged: Arc<StagingAccount>,
    pub queue: Held<Dispatch<Q>>,
    /// The dispatch queue's number.
    pub number: u32,
    pub account: Arc<LaneAccount>,
    /// The staging queue's number.
    pub staging_number: u32,
    /// The staging queue's way to this dispatch queue.
    pub way: usize,
    /// Whether nothing of this lane is shared, reordered or merged.
    pub in_place: bool,
    /// Whether requests may go past the staging queue.
    pub direct: bool,
}

impl<Q: HardwareQueue> Lane<Q> {
    /// When there is something to do here whatever the device does: `now` or
    /// before where nobody would tell.
    pub(super) fn due(&self, now: Time) -> Time {
        let Held::Alone(queue) = &self.queue else { return now };
        if queue.is_waiting() || queue.is_sending() || queue.must_give_up(now) {
            return now;
        }
        let staging = self.staging.peek();
        match staging.next_event() {
            // Without a tag, what is staged waits for an interrupt, whatever
            // holds it back besides.
            _ if staging.waiting(self.way) == 0 || !queue.has_room() => queue.next_scan(),
            Some(opens) => queue.next_scan().min(opens),
            None => now,
        }
    }

    /// Whether nothing is in it, of this core or of another that shares it.
    pub fn is_drained(&self) -> bool {
        self.staging.peek().waiting(self.way) == 0 && self.queue.peek().is_empty()
    }

    /// Whether a lane that is a core's alone has more to do than look.
    #[inline(always)]
    pub(super) fn needs_more(&mut self, now: Time) -> bool {
        let (Held::Alone(queue), Held::Alone(staging)) = (&self.queue, &self.staging) else {
            return true;
        };
        let more = queue.is_sending() || queue.is_waiting() || !staging.is_empty();
        more || queue.must_give_up(now)
    }
}
