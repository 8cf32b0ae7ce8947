//! A load whose requests were recorded: those of a trace.
//!
//! Guarantees: in an open loop each starts at its time and latency counts from there, in a
//! closed one as soon as there is room; the drive is told of them as early as of those
//! of a pattern; nothing is allocated for a request, but in place of a buffer that did not
//! come back. At the end of the trace nothing more is asked. May fail as making any load
//! does; what is wrong with the trace is told by [`Fitted::problem`].

use std::mem;

use port::story::Wanted;
use port::units::size_binary;
use port::{BlockOp, Buffer, Ring, Shape, Time};
use replay::{Due, Fitted};
use workload::{Access, Arrivals};

use super::{AHEAD, Load, MOST_BUFFERS, MOST_SLOTS, MOST_SWAPPED, Slot, request};
use crate::driver::Driver;
use drive::error::Error;

/// A trace on its way to a drive.
pub(super) struct Recorded {
    trace: Fitted,
    /// The next requests, of which the drive was told; the first is at `next`.
    ahead: [Option<Due>; AHEAD],
    next: usize,
    /// Requests but flushes that were asked for, and when the last was due.
    issued: (u64, u64),
    /// The number of the request in the trace that was asked for last.
    number: u64,
}

impl Recorded {
    /// When the next request is due.
    fn due(&self) -> Option<u64> {
        self.ahead[self.next].map(|due| due.at)
    }

    /// Takes the next request, and tells the drive of one later.
    #[inline]
    fn take(&mut self, driver: &dyn Driver) -> Option<Due> {
        let later = self.trace.next();
        if let Some(later) = &later {
            driver.hint(&request(0, &later.access, (0, 0), Buffer::empty()));
        }
        let due = mem::replace(&mut self.ahead[self.next], later);
        self.next = (self.next + 1) % AHEAD;
        due
    }

    /// Passes places that were empty, as a part of the trace had no request for them, and
    /// reads on for these. Bounded: there may be none afterwards, though more will come.
    #[cold]
    fn go_on(&mut self, driver: &dyn Driver) {
        for _ in 0..AHEAD {
            if self.due().is_some() {
                break;
            }
            self.take(driver);
        }
    }
}

/// What became of a trace.
pub struct Played {
    /// The trace.
    pub trace: Fitted,
    /// Requests to the drive but flushes, and when the last was due, in ns.
    pub issued: (u64, u64),
    /// When the one was due that would have followed, 2^64 - 1 where it was not found yet;
    /// `None` at the end of the trace.
    pub next: Option<u64>,
    /// Requests of the trace that were taken, without those that were only read.
    pub taken: u64,
}

impl Load {
    /// The load of a trace that was fitted to a drive of this shape: at its own times, or
    /// with `depth` requests out.
    pub fn recorded(shape: &Shape, mut trace: Fitted, depth: Option<u32>) -> Result<Load, Error> {
        let slots = depth.map_or(shape.depth as u64, u64::from);
        let longest = trace.fit().most;
        let each = shape.stored(longest);
        if slots > MOST_SLOTS || slots * each as u64 > MOST_BUFFERS {
            return Err(Error::Usage(format!(
                "{slots} requests of up to {} are too many at once: at most {MOST_SLOTS}, with \
                 4 GiB of buffers; lower --qd, or depth= in the drive's name",
                size_binary(longest)
            )));
        }
        let slots = slots as usize;
        let none = Access { op: BlockOp::Flush, offset: 0, len: 0, fua: false };
        let slot =
            |buffer| Slot { submitter: 0, start: Time::ZERO, access: none, counted: false, buffer };
        let ahead = std::array::from_fn(|_| trace.next());
        let recorded = Recorded { trace, ahead, next: 0, issued: (0, 0), number: 0 };
        Ok(Load {
            submitters: Vec::new(),
            slots: Buffer::carve(slots, each)?.into_iter().map(slot).collect(),
            idle: (0..slots as u32).rev().collect(),
            arrivals: depth.is_none().then(Arrivals::told),
            origin: Time::ZERO,
            turn: 0,
            bs: longest,
            varied: Some(*shape),
            flushes: true,
            in_bytes: false,
            in_time: false,
            hot_end: 0,
            queue_number: 0,
            kept: each,
            // Never so many are idle: `issue` looks here first.
            batch: usize::MAX,
            is_all_inside: depth.is_some(),
            wanted: Wanted::ALL,
            story: Box::default(),
            recorded: Some(Box::new(recorded)),
            queue: Ring::new(slots),
            done: Ring::new(shape.depth.min(MOST_SWAPPED).max(slots)),
        })
    }

    /// Puts requests of the trace in the queue that are due at `now`, at most `left`, which
    /// is nothing when the trace has ended. Where none was found yet it is to be called again
    /// ([`Load::is_reading`]).
    pub(super) fn issue_recorded(
        &mut self,
        now: Time,
        left: &mut u64,
        counted: bool,
        driver: &dyn Driver,
    ) {
        let Some(recorded) = &mut self.recorded else { return };
        while *left > 0 {
            if recorded.due().is_none() {
                recorded.go_on(driver);
            }
            let Some(at) = recorded.due() else {
                if recorded.trace.is_over() {
                    *left = 0;
                }
                break;
            };
            if let Some(arrivals) = &mut self.arrivals {
                // The last one is followed by none.
                arrivals.tell(at);
            }
            let Some(&slot) = self.idle.last() else { break };
            let start = if self.arrivals.is_some() { self.origin + at } else { now };
            if start > now {
                break;
            }
            let Some(Due { access, number, .. }) = recorded.take(driver) else { break };
            let is_flush = access.op == BlockOp::Flush;
            recorded.issued = (recorded.issued.0 + u64::from(!is_flush), at);
            recorded.number = number;
            self.idle.pop();
            *left -= u64::from(!is_flush);
            let entry = &mut self.slots[slot as usize];
            (entry.start, entry.access, entry.counted) = (start, access, counted);
            let moves = matches!(access.op, BlockOp::Read | BlockOp::Write);
            let kept = self.varied.filter(|_| moves).map_or(0, |shape| shape.stored(access.len));
            let buffer = if kept > 0 { entry.buffer.split_to(kept) } else { Buffer::empty() };
            self.queue.put(|| request(slot, &access, (0, 0), buffer));
        }
    }

    /// The trace that it followed, and what came of it; `None` of a load that follows a
    /// pattern.
    pub fn into_played(self) -> Option<Played> {
        let recorded = *self.recorded?;
        let Recorded { trace, ahead, next, issued, number } = recorded;
        let later = (0..AHEAD).find_map(|i| ahead[(next + i) % AHEAD]);
        let taken = match later {
            // Pieces of one request have its number.
            Some(later) => number.max(later.number - 1),
            None => trace.done().taken,
        };
        let unknown = (!trace.is_over()).then_some(u64::MAX);
        Some(Played { next: later.map(|due| due.at).or(unknown), trace, issued, taken })
    }

    /// Whether more requests of the trace may come, and the next is not known yet: until it
    /// is, no time may pass.
    #[inline]
    pub(crate) fn is_reading(&self) -> bool {
        self.recorded.as_ref().is_some_and(|recorded| {
            recorded.due().is_none() && !self.idle.is_empty() && !recorded.trace.is_over()
        })
    }

    /// How much of the trace was read, 0 to 1, where that is known.
    pub(crate) fn progress(&self) -> Option<f64> {
        self.recorded.as_ref().and_then(|recorded| recorded.trace.reader().progress().part())
    }

    /// When the first request is due, once arrivals begin.
    pub(super) fn begin_recorded(&mut self) {
        let due = self.recorded.as_ref().and_then(|recorded| recorded.due());
        if let (Some(arrivals), Some(due)) = (&mut self.arrivals, due) {
            arrivals.tell(due);
        }
    }
}
