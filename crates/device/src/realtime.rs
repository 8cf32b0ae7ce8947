//! The driver of real time: a port seen through the processor's clock.
//!
//! The port's own time is what its events say; this driver only decides when
//! to look. A look that comes late handles each event that is due at that
//! event's own time, so lateness delays what the host sees and nothing else.
//! Arrivals are stamped with the later of the clock and the drive's time.

use std::time::{Duration, Instant};

use port::{Port, Ring, Time};

/// The processor's clock, in drive time: zero when it was made.
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

/// A port driven by the processor's clock, on the thread that polls it.
pub struct RealTime<P> {
    port: P,
    clock: Clock,
    /// The drive's time: the latest that the port was given.
    drive: Time,
}

impl<P: Port> RealTime<P> {
    /// Drives `port`, whose time begins now.
    pub fn new(port: P) -> RealTime<P> {
        RealTime { port, clock: Clock::start(), drive: Time::ZERO }
    }

    /// The clock, for latencies as the host sees them.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The port.
    pub fn port(&self) -> &P {
        &self.port
    }

    /// The port again, without its clock.
    pub fn into_port(self) -> P {
        self.port
    }

    /// Submits a prefix of `cmds`; what stays was refused. Gives the arrival
    /// time that the drive saw.
    #[inline]
    pub fn submit(&mut self, now: Time, cmds: &mut Ring<P::Cmd>) -> Time {
        self.drive = self.drive.max(now);
        self.port.submit(self.drive, cmds);
        self.drive
    }

    /// Handles every event that is due at `now`, each at its own time, until
    /// `done` is full.
    #[inline]
    pub fn poll(&mut self, now: Time, done: &mut Ring<P::Done>) {
        while let Some(at) = self.port.next_event() {
            if at > now || done.room() == 0 {
                return;
            }
            self.drive = self.drive.max(at);
            self.port.advance(at, done);
        }
    }

    /// How long nothing will happen without a command: `None` for ever, zero
    /// when something is due.
    pub fn idle_for(&self) -> Option<Duration> {
        let at = self.port.next_event()?;
        Some(Duration::from_nanos(at.since(self.clock.now())))
    }
}
