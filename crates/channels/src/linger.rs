//! How a side looks for what the other brings before it sleeps.

use std::time::{Duration, Instant};

/// Looks between two at the clock.
const LOOKS: u32 = 64;

/// Looks for something for about so long; not at all where that is no time. Gives
/// whether it came. The clock is read after some looks: mostly they find it.
#[inline]
pub fn linger(time: Duration, came: impl Fn() -> bool) -> bool {
    let mut start = None;
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
