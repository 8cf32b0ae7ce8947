//! Patience with a drive whose next event does not move on, since it waits for
//! a disk. Nothing fails.

use std::time::Duration;

use port::Time;

/// Events at one moment after which a drive may be waiting for a disk.
const SAME_EVENTS: u32 = 64;

/// And after which it is waiting for one.
const WAITING: u32 = 64 * SAME_EVENTS;

/// How long to sleep then.
const NAP: Duration = Duration::from_micros(50);

/// Gives the processor to others when a drive's next event does not move on:
/// in virtual time one that waits for a disk is asked again and again.
#[derive(Clone, Copy, Debug, Default)]
pub struct Patience {
    event: Time,
    same: u32,
}

impl Patience {
    /// Takes note of an event that completed nothing.
    #[inline]
    pub fn look(&mut self, event: Time) {
        if event != self.event {
            (self.event, self.same) = (event, 0);
            return;
        }
        self.same += 1;
        if self.same >= WAITING {
            std::thread::sleep(NAP);
        } else if self.same.is_multiple_of(SAME_EVENTS) {
            std::thread::yield_now();
        }
    }
}
