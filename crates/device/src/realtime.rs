//! The driver of real time: a port seen through the processor's clock.
//!
//! The port's own time is what its events say; this driver only decides when
//! to look. A look that comes late handles each event that is due at that
//! event's own time, so lateness delays what the host sees and nothing else.
//! Arrivals are stamped with the later of the clock and the drive's time.

use std::cell::Cell;
use std::io;
use std::num::NonZeroU64;
use std::time::Duration;

use port::{Port, Ring, Time};
use quanta::Instant;
use rustix::thread::{CpuSet, sched_setaffinity, set_current_timer_slack};
use rustix::time::{ClockId, clock_gettime};

/// The processor's clock, in drive time: zero when it was made. It reads the
/// time stamp counter where that is steady, which costs a third of asking the
/// system, and the system's monotonic clock elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock that stands at zero now.
    pub fn start() -> Clock {
        Clock { start: Instant::now() }
    }

    /// The time now.
    #[inline]
    pub fn now(&self) -> Time {
        Time(self.start.elapsed().as_nanos() as u64)
    }
}

/// The processor time that this thread has used so far, user and system, in
/// ns. A system call: not for each request.
pub fn thread_cpu() -> u64 {
    cpu(ClockId::ThreadCPUTime)
}

/// The processor time that all threads of this process have used so far, in
/// ns. A system call.
pub fn process_cpu() -> u64 {
    cpu(ClockId::ProcessCPUTime)
}

fn cpu(clock: ClockId) -> u64 {
    let used = clock_gettime(clock);
    used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64
}

/// Lets this thread run on `core` only. Fails when the system has no such core
/// or does not give it to this process.
pub fn pin(core: usize) -> io::Result<()> {
    if core >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}

/// Makes this thread's short sleeps end as soon as they can: the system may
/// end a sleep later than asked, by default 50 us, so that timers share an
/// interrupt. Cheap after the first call on a thread.
pub fn fine_timers() {
    thread_local!(static DONE: Cell<bool> = const { Cell::new(false) });
    if !DONE.replace(true) {
        // Refused, sleeps are only longer.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
    }
}

/// Waits shorter than this are spun: a sleep and a wake would cost as much.
const SPIN: Duration = Duration::from_micros(60);
/// How much earlier than the next event a sleep ends, to make up for the time
/// that waking takes: about this much in a virtual machine with idle cores.
/// What is left is spun.
const WAKE: Duration = Duration::from_micros(40);

/// How long to sleep for what happens in `left`; `None` where that is so soon that it is
/// spun.
pub fn sleep_for(left: Duration) -> Option<Duration> {
    (left >= SPIN).then(|| left - WAKE)
}

/// Completions that may wait inside because a command came before the poll.
const EARLY: usize = 1024;

/// A port driven by the processor's clock, on the thread that polls it.
pub struct RealTime<P: Port> {
    port: P,
    clock: Clock,
    /// The drive's time: the latest that the port was given.
    drive: Time,
    /// Completed before a command arrived, not yet polled.
    early: Ring<P::Done>,
}

impl<P: Port> RealTime<P> {
    /// Drives `port`, whose time begins now.
    pub fn new(port: P) -> RealTime<P> {
        RealTime { port, clock: Clock::start(), drive: Time::ZERO, early: Ring::new(EARLY) }
    }

    /// The clock, for latencies as the host sees them.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The port.
    pub fn port(&self) -> &P {
        &self.port
    }

    /// The drive's time: the clock's, or what the port has come to if that is later.
    pub fn now(&self) -> Time {
        self.drive.max(self.clock.now())
    }

    /// The port again, without its clock.
    pub fn into_port(self) -> P {
        self.port
    }

    /// Submits a prefix of `cmds`; what stays was refused. Gives the arrival
    /// time that the drive saw.
    ///
    /// Events that are due before the arrival are handled first, so a command
    /// never comes before what happened before it. While they cannot be, as
    /// the medium has not moved the bytes or nobody polls, nothing is taken.
    #[inline]
    pub fn submit(&mut self, now: Time, cmds: &mut Ring<P::Cmd>) -> Time {
        let arrival = self.drive.max(now);
        if cmds.is_empty() {
            return arrival;
        }
        if self.catch_up_early(arrival) {
            self.drive = arrival;
            self.port.submit(arrival, cmds);
        }
        arrival
    }

    /// Handles every event that is due at `now`, each at its own time, until
    /// `done` is full.
    #[inline]
    pub fn poll(&mut self, now: Time, done: &mut Ring<P::Done>) {
        if !self.early.is_empty() {
            self.early.pour(done);
        }
        self.port.catch_up(&mut self.drive, now, done);
    }

    /// Lets `f` do something to the port itself, after what is due at `now`.
    /// False, and nothing was done, where that cannot be handled yet.
    pub fn tend(&mut self, now: Time, f: impl FnOnce(&mut P, Time)) -> bool {
        let at = self.drive.max(now);
        let caught_up = self.catch_up_early(at);
        if caught_up {
            self.drive = at;
            f(&mut self.port, at);
        }
        caught_up
    }

    /// Handles what is due at `to` before something else comes. False when
    /// something is left.
    #[inline]
    fn catch_up_early(&mut self, to: Time) -> bool {
        self.port.catch_up(&mut self.drive, to, &mut self.early)
    }

    /// When something happens next, in the drive's time; `None` when nothing
    /// will without a command.
    #[inline]
    pub fn next_event(&self) -> Option<Time> {
        if self.early.is_empty() { self.port.next_event() } else { Some(self.drive) }
    }

    /// How long nothing will happen without a command: `None` for ever, zero
    /// when something is due.
    pub fn idle_for(&self) -> Option<Duration> {
        if !self.early.is_empty() {
            return Some(Duration::ZERO);
        }
        let at = self.port.next_event()?;
        Some(Duration::from_nanos(at.since(self.clock.now())))
    }
}
