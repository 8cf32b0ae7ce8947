//! Requests in bursts: after so many of a closed loop there is a pause, which begins
//! when the last of them has ended. What each burst took is kept.
//!
//! Guarantees: nothing is inside in a pause; all that is kept is bounded. Nothing here
//! fails.

use port::Time;

/// Bursts that are kept, at most: the first ones.
pub const MOST_KEPT: usize = 1000;

/// How a load pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pauses {
    /// Requests of a burst.
    pub each: u64,
    /// The time between two, in ns.
    pub ns: u64,
}

/// What a burst took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// When its first request began.
    pub start: Time,
    /// When its last one ended.
    pub end: Time,
    /// Requests.
    pub requests: u64,
}

/// The bursts of a run.
pub struct Bursts {
    pauses: Pauses,
    /// The one under way: when it began, and how many are still to come of it.
    start: Time,
    left: u64,
    /// When the next one begins; `None` while one is under way.
    next: Option<Time>,
    /// Those that have ended.
    pub ended: Vec<Burst>,
}

impl Bursts {
    /// The first begins at `now`.
    pub fn new(pauses: Pauses, now: Time) -> Bursts {
        let ended = Vec::with_capacity(MOST_KEPT);
        Bursts { pauses, start: now, left: pauses.each, next: None, ended }
    }

    /// Those that ended are forgotten: from here on they count.
    pub fn count(&mut self) {
        self.ended.clear();
    }

    /// How many may be issued now, of `left` of the run. `is_idle` when nothing is inside.
    pub fn allow(&mut self, now: Time, is_idle: bool, left: u64) -> u64 {
        if self.left == 0 && is_idle && self.next.is_none() {
            self.end(now);
        }
        if self.next.is_some_and(|at| now >= at) {
            (self.next, self.start, self.left) = (None, now, self.pauses.each);
        }
        self.left.min(left)
    }

    /// So many were issued.
    pub fn issued(&mut self, requests: u64) {
        self.left -= requests;
    }

    /// The burst under way is over, and a pause begins.
    fn end(&mut self, now: Time) {
        if self.ended.len() < MOST_KEPT {
            let requests = self.pauses.each - self.left;
            self.ended.push(Burst { start: self.start, end: now, requests });
        }
        self.next = Some(now + self.pauses.ns);
    }

    /// The run is over, and so is the burst under way, if any of it was issued.
    pub fn finish(&mut self, now: Time) {
        if self.next.is_none() && self.left < self.pauses.each {
            self.end(now);
        }
    }

    /// When something is to be issued again, in a pause.
    pub fn next(&self) -> Option<Time> {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_begins_when_the_last_of_a_burst_has_ended() {
        let mut bursts = Bursts::new(Pauses { each: 3, ns: 100 }, Time(5));
        assert_eq!(bursts.allow(Time(5), true, 10), 3);
        bursts.issued(2);
        assert_eq!(bursts.allow(Time(10), false, 10), 1);
        bursts.issued(1);
        assert_eq!(bursts.allow(Time(20), false, 10), 0, "one is inside");
        assert_eq!((bursts.allow(Time(30), true, 10), bursts.next()), (0, Some(Time(130))));
        assert_eq!(bursts.allow(Time(129), true, 10), 0);
        assert_eq!((bursts.allow(Time(130), true, 2), bursts.next()), (2, None));
        bursts.issued(2);
        bursts.finish(Time(140));
        bursts.finish(Time(150));
        let [first, second] = bursts.ended[..] else { panic!("two") };
        assert_eq!(first, Burst { start: Time(5), end: Time(30), requests: 3 });
        assert_eq!(second, Burst { start: Time(130), end: Time(140), requests: 2 });
    }
}
