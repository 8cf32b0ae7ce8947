//! Waiting for bytes: a short look around before a sleep.
//!
//! A sleep and a wake across processor cores cost tens of microseconds in a
//! virtual machine, several times the round trip of a request. So where the
//! last wait was short, the next begins with looking again and again, giving
//! the processor to others in between (on one core that is the fastest way to
//! let the peer run). A peer that is slow or silent is slept for at once, so
//! that idling costs nothing.

use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::thread::sched_yield;

/// How long to look before sleeping.
const LOOK: Duration = Duration::from_micros(50);
/// A wait that took less is followed by a look.
const SHORT: Duration = Duration::from_micros(100);

/// Knows whether the last wait was short.
#[derive(Clone, Copy, Debug, Default)]
pub struct Patience {
    short: bool,
}

impl Patience {
    /// Calls `receive` until it gives something: first without waiting, if
    /// that is promising, then waiting.
    #[inline]
    pub fn receive(
        &mut self,
        mut receive: impl FnMut(RecvFlags) -> Result<Option<usize>, Errno>,
    ) -> Result<Option<usize>, Errno> {
        let start = Instant::now();
        let mut looks = self.short;
        while looks {
            let got = receive(RecvFlags::DONTWAIT)?;
            if got.is_some() {
                return Ok(got);
            }
            sched_yield();
            looks = start.elapsed() < LOOK;
        }
        let got = receive(RecvFlags::empty());
        self.short = start.elapsed() < SHORT;
        got
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_long_wait_it_sleeps_at_once() {
        let mut p = Patience { short: true };
        let mut looks = 0;
        let got = p.receive(|flags| {
            if flags == RecvFlags::DONTWAIT {
                looks += 1;
                return Ok(None);
            }
            std::thread::sleep(SHORT);
            Ok(Some(1))
        });
        assert_eq!(got, Ok(Some(1)));
        assert!(looks > 0);
        let got = p.receive(|flags| Ok((flags == RecvFlags::empty()).then_some(2)));
        assert_eq!(got, Ok(Some(2)));
    }

    #[test]
    fn errors_and_ends_are_passed_on() {
        let mut p = Patience { short: true };
        assert_eq!(p.receive(|_| Err(Errno::CONNRESET)), Err(Errno::CONNRESET));
        assert_eq!(p.receive(|_| Ok(Some(0))), Ok(Some(0)));
    }
}
