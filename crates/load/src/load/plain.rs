//! Requests of loads of which little is asked, many at a time.
//!
//! Guarantees: what is asked and counted is what [`Load::issue`] and [`Load::complete`] ask
//! and count. What is the same of all requests of a turn is looked at once: who asks, when,
//! for how much room. Requests that began and ended together took as long, and are counted
//! together.

use port::{BlockDone, BlockOp, Buffer, Status, Time};
use workload::Access;

use super::{Load, Slot, Submitter, request};
use crate::driver::Driver;
use crate::tally::{Run, Tally};

impl Load {
    /// Whether requests are of one size and without bytes, no flush is between them, and
    /// each follows another.
    pub fn is_plain(&self) -> bool {
        let follows = self.arrivals.is_none() && self.recorded.is_none();
        let is_even = self.varied.is_none() && !self.flushes;
        follows && is_even && self.kept == 0 && !self.in_bytes
    }

    /// [`Load::issue`] of a load that [is plain](Load::is_plain) and counts, where nobody
    /// verifies. `lone` is the slot that [`Load::complete_plain`] gave.
    #[inline(always)]
    pub fn issue_plain(
        &mut self,
        now: Time,
        left: &mut u64,
        lone: Option<u32>,
        driver: &dyn Driver,
    ) {
        let Load { idle, slots, submitters, queue, hot_end, queue_number, batch, .. } = self;
        let way = |access: &Access| (u8::from(access.offset < *hot_end), *queue_number);
        let put = |slot: u32, entry: &mut Slot, access: Access| {
            (entry.start, entry.access, entry.counted) = (now, access, true);
            request(slot, &access, way(&access), Buffer::empty())
        };
        if let Some(slot) = lone {
            if *batch <= 1 && *left > 0 && idle.is_empty() {
                // As most are that drives complete one by one.
                *left -= 1;
                let entry = &mut slots[slot as usize];
                let access = submitters[entry.submitter as usize].draw(driver);
                queue.put(|| put(slot, entry, access));
                return;
            }
            idle.push(slot);
        }
        if idle.len() < *batch {
            return;
        }
        let n = (idle.len() as u64).min(*left);
        *left -= n;
        let rest = idle.len() - n as usize;
        let next = &idle[rest..];
        if let [Submitter { generator, ahead: None }] = &mut submitters[..]
            && let Some(mut uniform) = generator.to_uniform()
        {
            queue.put_stacked(next, |&slot| put(slot, &mut slots[slot as usize], uniform.next()));
            generator.go_on(uniform);
        } else {
            queue.put_stacked(next, |&slot| {
                let entry = &mut slots[slot as usize];
                let access = submitters[entry.submitter as usize].draw(driver);
                put(slot, entry, access)
            });
        }
        idle.truncate(rest);
    }

    /// [`Load::complete`] of such a load, where nobody asks more of a request than how long
    /// it took. Where just one has ended it gives its slot, which is not idle yet.
    #[inline(always)]
    pub fn complete_plain(
        &mut self,
        now: Time,
        tally: &mut Tally,
        driver: &dyn Driver,
    ) -> Option<u32> {
        let Load { done, slots, idle, bs, .. } = self;
        if done.len() == 1
            && let Some(BlockDone { id, op, status, .. }) = done.pop()
        {
            let slot = &slots[id as usize];
            if status.is_ok() && slot.counted {
                tally.go_on(now, || driver.gauges());
                tally.written += if op == BlockOp::Write { *bs } else { 0 };
                tally.record(op, *bs, now, now.since(slot.start));
            } else {
                uncounted(tally, slot, (now, op, status));
            }
            return Some(id as u32);
        }
        let start_of = |done: &BlockDone| slots[done.id as usize].start;
        let mut run = Run::new(done.get(0).map(start_of)?);
        done.take_all(|BlockDone { id, op, status, .. }| {
            let slot = &slots[id as usize];
            if status.is_ok() && slot.counted {
                if slot.start != run.start {
                    tally.record_run(&mut run, (now, *bs), || driver.gauges());
                    run.start = slot.start;
                }
                run.add(op);
            } else {
                uncounted(tally, slot, (now, op, status));
            }
            idle.push(id as u32);
        });
        tally.record_run(&mut run, (now, *bs), || driver.gauges());
        None
    }
}

impl Load {
    /// Whether more is asked of what has just ended, at `now`, than how long it took: its
    /// story is wanted, or some wait in front of the drive, which says that it was full.
    /// Else, where the slowest are kept, it is counted among those that they were slower
    /// than. Where the time of [all](Load::tell_all) is told, no more is asked.
    #[inline(always)]
    pub fn asks_more(&mut self, now: Time, tally: &mut Tally) -> bool {
        let Some(slowest) = tally.slowest.as_mut().filter(|_| tally.causes.is_none()) else {
            return false;
        };
        let Load { queue, done, slots, wanted, .. } = self;
        // What began first took longest.
        let start = match done.len() {
            1 => done.front().map_or(now, |of| slots[of.id as usize].start),
            all => {
                let start = |n| done.get(n).map_or(now, |of| slots[of.id as usize].start);
                (0..all).map(start).min().unwrap_or(now)
            }
        };
        let asks = !queue.is_empty() || (wanted.has(now.since(start), now) && !done.is_empty());
        if !asks {
            slowest.pass_over(done.len() as u64);
        }
        asks
    }
}

/// Takes note of a request that failed, or began before the tally counted.
#[cold]
pub(super) fn uncounted(
    tally: &mut Tally,
    slot: &Slot,
    (now, op, status): (Time, BlockOp, Status),
) {
    if !status.is_ok() {
        tally.failed(now, slot.counted, || slot.failed(op, status));
    } else if op == BlockOp::Write {
        tally.written += slot.access.len;
    }
}
