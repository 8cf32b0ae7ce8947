//! The device thread: it takes commands from the queues, drives the port, gives
//! completions and interrupts, and rests when there is nothing to do.
//!
//! Guarantees: what [`super`] says of the thread. However it ends, the queues are
//! closed and every host that waits is woken. Nothing here fails.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use port::{Completed, Numbered, Port, Ring, Time};

use super::{Coalesce, HostedOptions, Shared};
use crate::queue::{Doorbell, DriveEnd};
use crate::realtime::{Clock, RealTime, fine_timers};

/// The drive's side of one queue.
pub(super) struct Line<C, D> {
    pub(super) end: DriveEnd<C, D>,
    pub(super) bell: Arc<Doorbell>,
    /// When the first completion came that the host was not woken for.
    pub(super) first: Option<Time>,
}

impl<C, D> Line<C, D> {
    fn complete(&mut self, now: Time, done: D) {
        if self.end.waiting() == 0 || self.first.is_none() {
            self.first = Some(now);
        }
        self.end.complete(done);
    }

    /// Interrupts where that is due. Gives when it will be, if the host waits.
    fn interrupt(&mut self, now: Time, rule: Coalesce, shared: &Shared) -> Option<Time> {
        let first = self.first?;
        if self.end.waiting() == 0 {
            // The host has polled them without waiting.
            self.first = None;
            return None;
        }
        if !self.bell.is_armed() {
            return None;
        }
        let due = Time(first.0.saturating_add(rule.time));
        if now < due && self.end.waiting() < rule.count {
            return Some(due);
        }
        self.first = None;
        if self.bell.ring() {
            shared.interrupts.fetch_add(1, Ordering::Relaxed);
        }
        None
    }
}

/// Closes the queues when the thread ends, however it ends.
struct Closing {
    shared: Arc<Shared>,
    hosts: Vec<Arc<Doorbell>>,
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.shared.closed.store(true, Ordering::SeqCst);
        for host in &self.hosts {
            host.ring();
        }
    }
}

/// The device thread's state.
pub(super) struct Server<P: Port> {
    pub(super) real: RealTime<P>,
    pub(super) clock: Clock,
    pub(super) lines: Vec<Line<P::Cmd, P::Done>>,
    pub(super) shared: Arc<Shared>,
    pub(super) options: HostedOptions,
    /// The queue and number of each command inside, by its number inside.
    pub(super) slots: Vec<(u32, u64)>,
    pub(super) free: Vec<u32>,
    /// Taken from the queues, not yet by the port.
    pub(super) cmds: Ring<P::Cmd>,
    pub(super) done: Ring<P::Done>,
}

/// A wake-up error that is thought possible; a longer one was an accident.
const WORST_WAKE: u64 = 200_000;

impl<P: Port> Server<P>
where
    P::Cmd: Numbered,
    P::Done: Completed,
{
    /// Serves until the drive is to stop, and gives the port back.
    pub(super) fn run(mut self) -> P {
        let hosts = self.lines.iter().map(|l| l.bell.clone()).collect();
        let _closing = Closing { shared: self.shared.clone(), hosts };
        // A coarser timer only makes the thread spin longer.
        fine_timers();
        let mut wake_error = self.measure_wake_error();
        let mut busy_until = Time::ZERO;
        while !self.shared.leaving.load(Ordering::SeqCst) {
            let taken = self.take();
            // After that: a command that came while this thread had no processor
            // must not go in before it was sent.
            let now = self.clock.now();
            let worked = self.work(now) || taken;
            let due = self.interrupts(now);
            if worked {
                busy_until = Time(now.0.saturating_add(self.options.linger));
            } else if self.shared.stopping.load(Ordering::SeqCst) && self.is_empty() {
                return self.real.into_port();
            } else if now >= busy_until {
                self.rest(now, due, &mut wake_error);
            } else {
                std::hint::spin_loop();
            }
        }
        self.real.into_port()
    }

    /// Takes commands. False when there were none.
    fn take(&mut self) -> bool {
        let mut taken = 0;
        for (number, line) in self.lines.iter_mut().enumerate() {
            let room = self.cmds.room();
            taken += line.end.take(room, |mut cmd| {
                let slot = self.free.pop().expect("there are slots for all queues");
                self.slots[slot as usize] = (number as u32, cmd.number());
                cmd.renumber(u64::from(slot));
                let pushed = self.cmds.push(cmd);
                assert!(pushed.is_ok(), "the room was counted");
            });
        }
        taken > 0
    }

    /// Drives the port, gives completions. False when there was nothing to do.
    fn work(&mut self, now: Time) -> bool {
        let before = self.cmds.len();
        self.real.submit(now, &mut self.cmds);
        let mut moved = before - self.cmds.len();
        self.real.poll(now, &mut self.done);
        while let Some(mut done) = self.done.pop() {
            let slot = done.number() as usize;
            let (queue, number) = self.slots[slot];
            self.free.push(slot as u32);
            done.renumber(number);
            self.lines[queue as usize].complete(now, done);
            moved += 1;
        }
        moved > 0
    }

    /// Sends the interrupts that are due; gives when the next one is.
    fn interrupts(&mut self, now: Time) -> Option<Time> {
        let (rule, shared) = (self.options.coalesce, &*self.shared);
        self.lines.iter_mut().filter_map(|line| line.interrupt(now, rule, shared)).min()
    }

    /// Whether nothing is inside and nothing waits.
    fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len() && !self.has_commands()
    }

    fn has_commands(&self) -> bool {
        self.lines.iter().any(|line| line.end.has_commands())
    }

    /// Spins once, or sleeps until shortly before the next event or until the
    /// doorbell rings. `due` is the next interrupt.
    fn rest(&self, now: Time, due: Option<Time>, wake_error: &mut u64) {
        let idle = self.real.idle_for().map(|d| d.as_nanos() as u64);
        let interrupt = due.map(|at| at.since(now));
        let left = [idle, interrupt].into_iter().flatten().min();
        // Commands that the drive did not take yet go in at the next turn.
        if left.is_some_and(|ns| ns <= *wake_error) || !self.cmds.is_empty() {
            std::hint::spin_loop();
            return;
        }
        self.shared.bell.arm();
        let stopping = self.shared.stopping.load(Ordering::SeqCst);
        let leaving = self.shared.leaving.load(Ordering::SeqCst);
        // Who brings news of the medium rings as well, after it.
        let has_news = self.real.idle_for() == Some(Duration::ZERO);
        if leaving || has_news || self.has_commands() || (stopping && self.is_empty()) {
            self.shared.bell.disarm();
            return;
        }
        self.shared.sleeps.fetch_add(1, Ordering::Relaxed);
        let asked = left.map(|ns| ns - *wake_error);
        let start = self.clock.now();
        let rang = self.shared.bell.sleep(asked.map(Duration::from_nanos));
        if let (Some(asked), false) = (asked, rang) {
            let late = (self.clock.now() - start).saturating_sub(asked);
            self.learn(wake_error, late);
        }
    }

    /// Takes a measured lateness into account: quickly up, slowly down.
    fn learn(&self, wake_error: &mut u64, late: u64) {
        let late = late.min(WORST_WAKE);
        *wake_error = if late > *wake_error {
            (*wake_error + late) / 2
        } else {
            (*wake_error * 15 + late) / 16
        };
        self.shared.wake_error.store(*wake_error, Ordering::Relaxed);
    }

    /// How late a short sleep ends: the median of a few.
    fn measure_wake_error(&self) -> u64 {
        const SLEEP: u64 = 20_000;
        let mut late = [0; 9];
        for one in &mut late {
            let start = self.clock.now();
            self.shared.bell.sleep(Some(Duration::from_nanos(SLEEP)));
            *one = (self.clock.now() - start).saturating_sub(SLEEP);
        }
        late.sort_unstable();
        let median = late[late.len() / 2].min(WORST_WAKE);
        self.shared.wake_error.store(median, Ordering::Relaxed);
        median
    }
}
