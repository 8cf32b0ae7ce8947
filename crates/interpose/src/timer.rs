//! When the supervisor is to wake up. A timeout of `poll` would be set and taken back with each
//! call of the program, and in a virtual machine each of the two may go to the hypervisor: some
//! 15 us, where all else of a call takes 3. So one timer is set, and stays set.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::{Errno, read};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// Its file can be read when the time has come, or earlier: then there was an earlier time that
/// nobody waits for any more.
pub(crate) struct Timer {
    file: OwnedFd,
    /// When it rings, if it does.
    rings: Option<Instant>,
}

impl Timer {
    pub fn new() -> Result<Self, Errno> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self { file: timerfd_create(TimerfdClockId::Monotonic, flags)?, rings: None })
    }

    pub fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// Sees that it rings by that time, which is to come in so long.
    pub fn wake_by(&mut self, at: Instant, left: Duration) -> Result<(), Errno> {
        if self.rings.is_some_and(|rings| rings <= at) {
            return Ok(());
        }
        // Zero would be never.
        let left = left.max(Duration::from_nanos(1));
        let value =
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let once = Itimerspec { it_interval: Timespec::default(), it_value: value };
        timerfd_settime(&self.file, TimerfdTimerFlags::empty(), &once)?;
        self.rings = Some(at);
        Ok(())
    }

    /// It has rung: it does not any more.
    pub fn rang(&mut self) {
        self.rings = None;
        // Where it was set anew meanwhile there is nothing to read.
        let _ = read(&self.file, &mut [0; 8]);
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    fn has_rung(timer: &Timer, within: Option<&Timespec>) -> bool {
        poll(&mut [PollFd::new(timer.file(), PollFlags::IN)], within).unwrap() > 0
    }

    /// A later time leaves it as it is: that is what it is for.
    #[test]
    fn it_rings_by_the_earliest_time_once() {
        let mut timer = Timer::new().unwrap();
        let (now, zero) = (Instant::now(), Timespec::default());
        let (soon, hour) = (Duration::from_nanos(1), Duration::from_secs(3600));
        timer.wake_by(now + hour, hour).unwrap();
        assert!(!has_rung(&timer, Some(&zero)));
        timer.wake_by(now + soon, soon).unwrap();
        timer.wake_by(now + hour, hour).unwrap();
        assert!(has_rung(&timer, None));
        timer.rang();
        assert!(!has_rung(&timer, Some(&zero)));
        // A time that has come is not never.
        timer.wake_by(now, Duration::ZERO).unwrap();
        assert!(has_rung(&timer, None));
    }
}
