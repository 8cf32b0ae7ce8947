//! Patience with a drive whose next event does not move on, since it waits for
//! a disk. Nothing fails.

use std::time::Duration;

use port::{Port, Ring, Time};

/// Events at one moment after which a drive may be waiting for a disk.
const SAME_EVENTS: u32 = 64;

/// And after which it is waiting for one.
const WAITING: u32 = 64 * SAME_EVENTS;

/// How long to sleep then.
const NAP: Duration = Duration::from_micros(50);

/// Completions that are taken at once.
const DONE: usize = 64;

/// Lets what a drive does by itself happen, as long as `goes_on` says so of it and of its
/// next event. Gives the time that it came to, not before `now`: the drive is told of no
/// time before that, as it may have been told of `now`.
pub(crate) fn let_happen<P: Port + ?Sized>(
    drive: &mut P,
    now: Time,
    goes_on: impl Fn(&P, Time) -> bool,
) -> Time {
    let (mut done, mut patience, mut at) = (Ring::new(DONE), Patience::default(), now);
    while let Some(event) = drive.next_event().filter(|&event| goes_on(drive, event)) {
        at = at.max(event);
        drive.advance(at, &mut done);
        done.drain().for_each(drop);
        patience.look(event);
    }
    at
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use port::{BlockDone, BlockReq};

    /// A drive with events that are long due.
    struct Late {
        told: Time,
        events: Vec<Time>,
    }

    impl Port for Late {
        type Cmd = BlockReq;
        type Done = BlockDone;

        fn submit(&mut self, _: Time, _: &mut Ring<BlockReq>) {}

        fn next_event(&self) -> Option<Time> {
            self.events.last().copied()
        }

        fn advance(&mut self, to: Time, _: &mut Ring<BlockDone>) {
            assert!(to >= self.told, "{to:?} behind {:?}", self.told);
            self.told = to;
            self.events.pop();
        }
    }

    #[test]
    fn time_does_not_go_back_for_a_drive_that_is_late() {
        let late = || Late { told: Time(100), events: vec![Time(300), Time(200), Time(50)] };
        assert_eq!(let_happen(&mut late(), Time(100), |_, _| true), Time(300));
        assert_eq!(let_happen(&mut late(), Time(100), |_, event| event < Time(300)), Time(200));
    }
}
