//! How a side looks for what the other brings before it sleeps.

use std::time::{Duration, Instant};

use rustix::thread::sched_yield;

/// Looks between two at the clock: some microseconds.
const LOOKS: u32 = 64;

/// The longest look, whatever was asked for: who sleeps sees that the other is gone.
pub const MOST: Duration = Duration::from_secs(1);

/// Looks for something for about so long, at most [`MOST`]; not at all where that is no time. Gives
/// whether it came. After some looks, which mostly find it, the clock is read, and others
/// may have the processor: the other side may have been woken on this core, and would
/// wait until this one sleeps.
#[inline]
pub fn linger(time: Duration, came: impl Fn() -> bool) -> bool {
    let (mut start, time) = (None, time.min(MOST));
    loop {
        if time.is_zero() {
            return false;
        }
        for _ in 0..LOOKS {
            if came() {
                return true;
            }
            std::hint::spin_loop();
        }
        if start.get_or_insert_with(Instant::now).elapsed() >= time {
            return false;
        }
        sched_yield();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn it_looks_until_it_came_or_time_is_over() {
        let looks = Cell::new(0);
        let nth = |n| {
            looks.set(looks.get() + 1);
            looks.get() == n
        };
        assert!(linger(Duration::from_secs(60), || nth(1000)));
        assert!(!linger(Duration::ZERO, || panic!("it does not look")));
        assert!(!linger(Duration::from_nanos(1), || nth(0)));
    }
}
