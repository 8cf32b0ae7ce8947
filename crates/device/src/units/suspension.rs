//! What reads go before, and what they interrupt.

use port::Time;

use super::{OpKind, State, Units};
use crate::list::NONE;

/// Counts one more, where `limit` allows that; all ones is no limit.
#[inline]
pub(super) fn one_more(count: &mut u32, limit: u32) -> bool {
    let may = *count < limit || limit == u32::MAX;
    *count = count.saturating_add(u32::from(may));
    may
}

impl Units {
    /// Whether one more read may go before what else waits, so that no stream
    /// of reads can starve it. Before a paused operation it counts as a
    /// suspension of that.
    #[inline]
    pub(super) fn may_pass(&mut self, pu: u32) -> bool {
        let unit = &mut self.units[pu];
        if unit.paused == NONE && unit.others.is_empty() {
            return true;
        }
        if !one_more(&mut unit.passed, self.timing.read_burst) {
            return false;
        }
        unit.paused == NONE
            || one_more(&mut self.ops[unit.paused].suspended, self.timing.suspend_limit)
    }

    /// Suspends the program or erase of a unit (of a register of the die at `home`) for
    /// a read, where that is allowed and
    /// sooner than waiting for the end.
    #[inline(never)]
    pub(super) fn try_suspend(&mut self, now: Time, home: u32, pu: u32) {
        let active = self.units[pu].active;
        let left = self.units[pu].array_end.since(now);
        let unit = &mut self.units[home];
        let op = &mut self.ops[active];
        if op.kind == OpKind::Read
            || left <= self.timing.suspend_time
            || op.suspended >= self.timing.suspend_limit
            || !one_more(&mut unit.passed, self.timing.read_burst)
        {
            return;
        }
        op.suspended = op.suspended.saturating_add(1);
        self.suspends += 1;
        if let Some(tales) = &mut self.tales {
            let at = (pu >> self.register_bits, 0);
            tales.suspended(now, at, active, self.timing.suspend_time);
        }
        (unit.paused, unit.paused_left) = (active, left);
        self.works_less(pu, left, self.timing.suspend_time);
        let unit = &mut self.units[pu];
        (unit.active, unit.state) = (NONE, State::Suspending);
        self.timeline.clear(pu);
        self.timeline.set(pu, true, now + self.timing.suspend_time);
    }
}
