//! A core's context on the processor's clock, as a driver.
//!
//! Reads the clock once a look. While it polls it never sleeps; otherwise it
//! waits as its strategy says, a tenth of a second at most, so that what takes
//! too long is given up in time; and where a queue that it shares was full, until
//! that has room again. Nothing here fails.

use std::sync::Arc;
use std::time::Duration;

use blkmq::{Context, HardwareQueue};
use device::realtime::{Clock, fine_timers, thread_cpu};
use port::{BlockDone, BlockReq, Port, Ring, Time};
use targets::WriteCounters;
use waiting::{Source, Strategy, Waiter};

use crate::driver::{Driver, TURNS};
use drive::error::Error;
use drive::lent::Figures;

/// The longest wait, in ns.
const LONGEST_WAIT: u64 = 100_000_000;
/// How often somebody is asked whether to go on, in turns that may sleep.
const SLEEPY_TURNS: u32 = 16;

/// How a core waits, and what it knows of the drive.
#[derive(Clone, Debug)]
pub struct Ways {
    /// Whether completions are told with the time at which the drive completed
    /// them.
    pub tells_when: bool,
    /// How completions are waited for.
    pub strategy: Strategy,
    /// The longest that requests are held back by a plug, in ns.
    pub plug: Option<u64>,
    /// Whether others complete requests meanwhile (a drive on a thread of its own,
    /// a device of the system, cores that share queues): then what is taken may
    /// have completed after the clock was looked at.
    pub meanwhile: bool,
    /// What the drive's shards tell of themselves.
    pub figures: Vec<Arc<Figures>>,
}

/// A context on the clock.
pub struct Clocked<'a, Q: HardwareQueue> {
    context: &'a mut Context<Q>,
    clock: Clock,
    now: Time,
    ways: Ways,
    /// `None` while polling.
    waiter: Option<Waiter>,
    /// Requests at the front of the queue that the waiter knows of.
    known: usize,
}

impl<'a, Q: HardwareQueue> Clocked<'a, Q> {
    /// `context` on `clock`, under a load of at most `slots` requests.
    pub fn new(
        context: &'a mut Context<Q>,
        clock: Clock,
        slots: usize,
        ways: Ways,
    ) -> Clocked<'a, Q> {
        let sleeps = ways.strategy != Strategy::Poll;
        let waiter = sleeps.then(|| Waiter::new(ways.strategy, slots));
        Clocked { context, clock, now: clock.now(), ways, waiter, known: 0 }
    }

    /// Submits, and tells the waiter of each request once.
    fn submit(&mut self, queue: &mut Ring<BlockReq>) {
        if let Some(waiter) = &mut self.waiter {
            for req in (self.known..queue.len()).filter_map(|i| queue.get(i)) {
                waiter.submitted(req.id, req.op, req.len, self.now);
            }
        }
        self.context.submit(self.now, queue);
        self.known = queue.len();
    }

    /// Waits for completions, until `arrival` at most.
    fn wait(&mut self, arrival: Option<Time>, done: &mut Ring<BlockDone>) {
        let Some(waiter) = &mut self.waiter else { return };
        let start = self.clock.now();
        let unplugged = self.ways.plug.filter(|_| self.context.outside() > 0);
        let until = [arrival, unplugged.map(|ns| start + ns)].into_iter().flatten().min();
        let over = start + LONGEST_WAIT;
        let (clock, now) = (self.clock, start);
        let mut looking = Looking { context: self.context, clock, now, over, done };
        waiter.wait(&mut looking, until);
        self.now = looking.now;
        for i in 0..done.len() {
            if let Some(one) = done.get(i) {
                let at = if self.ways.tells_when { one.at } else { self.now };
                waiter.completed(one.id, at, self.now);
            }
        }
    }
}

impl<Q: HardwareQueue> Driver for Clocked<'_, Q> {
    fn is_real(&self) -> bool {
        self.ways.tells_when
    }

    #[inline]
    fn now(&self) -> Time {
        self.now
    }

    #[inline]
    fn turn(
        &mut self,
        arrival: Option<Time>,
        queue: &mut Ring<BlockReq>,
        done: &mut Ring<BlockDone>,
    ) -> Result<Time, Error> {
        if !queue.is_empty() {
            self.submit(queue);
        }
        if self.waiter.is_some() {
            self.wait(arrival, done);
        } else {
            self.now = self.clock.now();
            self.context.advance(self.now, done);
            if self.ways.meanwhile && !done.is_empty() {
                self.now = self.clock.now();
            }
        }
        Ok(self.now)
    }

    #[inline]
    fn hint(&self, req: &BlockReq) {
        self.context.hint(req);
    }

    fn takes_hints(&self) -> bool {
        self.context.takes_hints()
    }

    fn may_leave(&self) -> bool {
        true
    }

    fn patience(&self) -> u32 {
        if self.waiter.is_some() { SLEEPY_TURNS } else { TURNS }
    }

    fn counters(&self) -> WriteCounters {
        self.ways.figures.iter().map(|f| f.counters()).sum()
    }

    fn free_chunks(&self) -> u64 {
        self.ways.figures.iter().map(|f| f.free_chunks()).sum()
    }
}

/// What a waiter looks at: completions are taken as soon as they are seen.
struct Looking<'a, Q: HardwareQueue> {
    context: &'a mut Context<Q>,
    clock: Clock,
    now: Time,
    /// When to stop waiting in any case.
    over: Time,
    done: &'a mut Ring<BlockDone>,
}

impl<Q: HardwareQueue> Source for Looking<'_, Q> {
    #[inline]
    fn now(&mut self) -> Time {
        self.clock.now()
    }

    #[inline]
    fn look(&mut self) -> bool {
        self.now = self.clock.now();
        self.context.advance(self.now, self.done);
        if !self.done.is_empty() {
            // What is waited for is done by others, perhaps just now.
            self.now = self.clock.now();
        }
        !self.done.is_empty() || self.context.has_room_again() || self.now >= self.over
    }

    fn sleep(&mut self, until: Option<Time>) {
        fine_timers();
        let until = until.map_or(self.over, |until| until.min(self.over));
        self.context.wait(Some(Duration::from_nanos(until.since(self.clock.now()))));
    }

    fn nap(&mut self, until: Time) {
        fine_timers();
        let until = until.min(self.over);
        std::thread::sleep(Duration::from_nanos(until.since(self.clock.now())));
    }

    fn cpu(&mut self) -> u64 {
        thread_cpu()
    }
}

#[cfg(test)]
mod tests;
