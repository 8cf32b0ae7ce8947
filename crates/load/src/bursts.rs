//! Requests in bursts: after so many of a closed loop there is a pause, which begins
//! when the last of them has ended. What each burst took is kept.
//!
//! Guarantees: nothing is inside in a pause; all that is kept is bounded. Nothing here
//! fails.

use port::Time;

use crate::runner::Until;

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

/// Most that all pauses of a run take together, in ns: 100 years. Drive time is
/// counted in 64 bits of them.
const MOST_PAUSED: u64 = 100 * 8766 * 3600 * 1_000_000_000;

impl Pauses {
    /// Whether those of a run that ends so take no longer together than 100 years.
    pub fn are_over_in_time(&self, until: Until) -> bool {
        let of = |ios: u64| ios.div_ceil(self.each.max(1)).saturating_mul(self.ns);
        let all = match until {
            Until::Ios(ios) => of(ios),
            Until::Time(time) | Until::Both(time, _) => time.saturating_add(self.ns),
            Until::Either(ios, time) => of(ios).min(time.saturating_add(self.ns)),
        };
        all <= MOST_PAUSED
    }
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

impl Burst {
    /// Whether it had fewer requests a second than another.
    fn is_slower(&self, other: &Burst) -> bool {
        let ns = |burst: &Burst| u128::from(burst.end.since(burst.start).max(1));
        u128::from(self.requests) * ns(other) < u128::from(other.requests) * ns(self)
    }
}

/// The bursts of a run that have ended, of those that began when it counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// The first [`MOST_KEPT`], be they whole or not.
    pub first: Vec<Burst>,
    /// How many were whole, which had all of their requests.
    pub whole: u64,
    /// Of these the one with the fewest requests a second, the first of equal ones.
    pub slowest: Option<Burst>,
    /// The last of these.
    pub last: Option<Burst>,
    /// The one in which the run ended.
    pub cut: Option<Burst>,
}

impl Ended {
    /// How many there were, whole or not.
    pub fn count(&self) -> u64 {
        self.whole + u64::from(self.cut.is_some())
    }

    fn add(&mut self, burst: Burst, is_whole: bool) {
        if self.first.len() < MOST_KEPT {
            self.first.push(burst);
        }
        if !is_whole {
            self.cut = Some(burst);
            return;
        }
        self.whole += 1;
        self.last = Some(burst);
        if self.slowest.is_none_or(|slowest| burst.is_slower(&slowest)) {
            self.slowest = Some(burst);
        }
    }
}

/// The bursts of a run.
pub struct Bursts {
    pauses: Pauses,
    /// When counting began.
    counting: Option<Time>,
    /// The one under way: when it began, and how many are still to come of it.
    start: Time,
    left: u64,
    /// When the next one begins; `None` while one is under way.
    next: Option<Time>,
    /// Those that have ended.
    pub ended: Ended,
}

impl Bursts {
    /// The first begins at `now`. None counts yet.
    pub fn new(pauses: Pauses, now: Time) -> Bursts {
        let ended = Ended { first: Vec::with_capacity(MOST_KEPT), ..Ended::default() };
        Bursts { pauses, counting: None, start: now, left: pauses.each, next: None, ended }
    }

    /// Those count that begin from `now` on.
    pub fn count(&mut self, now: Time) {
        self.counting = Some(now);
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
        if self.counting.is_some_and(|counting| self.start >= counting) {
            let requests = self.pauses.each - self.left;
            self.ended.add(Burst { start: self.start, end: now, requests }, self.left == 0);
        }
        self.next = Some(Time(now.0.saturating_add(self.pauses.ns)));
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
        bursts.count(Time(5));
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
        let [first, second] = bursts.ended.first[..] else { panic!("two") };
        assert_eq!(first, Burst { start: Time(5), end: Time(30), requests: 3 });
        assert_eq!(second, Burst { start: Time(130), end: Time(140), requests: 2 });
        let Ended { whole, slowest, last, cut, .. } = bursts.ended;
        assert_eq!((whole, slowest, last, cut), (1, Some(first), Some(first), Some(second)));
    }

    /// Makes a burst of 2 that takes so long, and gives when the next one begins.
    fn burst(bursts: &mut Bursts, at: Time, ns: u64) -> Time {
        assert_eq!(bursts.allow(at, true, 10), 2);
        bursts.issued(2);
        bursts.allow(at + ns, true, 10);
        bursts.next().unwrap()
    }

    /// What is told does not end with what is kept.
    #[test]
    fn all_are_counted_and_the_slowest_and_last_are_of_all() {
        let mut bursts = Bursts::new(Pauses { each: 2, ns: 10 }, Time(0));
        bursts.count(Time(0));
        let (mut at, many) = (Time(0), MOST_KEPT as u64 + 5);
        for n in 0..many {
            at = burst(&mut bursts, at, if n == many - 2 { 9 } else { 4 });
        }
        bursts.finish(at);
        let Ended { first, whole, slowest, last, cut } = bursts.ended;
        assert_eq!((first.len(), whole, cut), (MOST_KEPT, many, None));
        let took = |burst: Option<Burst>| burst.map(|burst| burst.end - burst.start);
        assert_eq!((took(slowest), took(last)), (Some(9), Some(4)));
        assert_eq!(last.unwrap().end + 10, at);
    }

    #[test]
    fn one_that_began_before_counting_is_left_out() {
        let mut bursts = Bursts::new(Pauses { each: 2, ns: 10 }, Time(0));
        let second = burst(&mut bursts, Time(0), 4);
        assert_eq!((second, bursts.ended.count()), (Time(14), 0));
        assert_eq!(bursts.allow(second, true, 10), 2);
        bursts.issued(1);
        bursts.count(second + 1);
        bursts.issued(1);
        bursts.allow(second + 4, true, 10);
        burst(&mut bursts, Time(28), 5);
        assert_eq!(bursts.ended.first, [Burst { start: Time(28), end: Time(33), requests: 2 }]);
    }

    #[test]
    fn a_pause_of_any_length_ends_at_a_time() {
        let mut bursts = Bursts::new(Pauses { each: 2, ns: u64::MAX }, Time(5));
        assert_eq!(burst(&mut bursts, Time(5), 4), Time(u64::MAX));
    }
}
