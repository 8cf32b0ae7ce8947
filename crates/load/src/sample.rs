//! Of which requests of a long run stories are asked for, where all of its time is to be
//! explained.
//!
//! Of the first [`ALL`] each is told of. Later on it is those that are slower than most
//! were so far, and all that end in spans of drive time, of which one in [`ONE_IN`] is
//! chosen by lot. What a request waited for has no part in that, so each that is told of in
//! a span stands for as many as have the same chance.
//!
//! Guarantees: what is asked for is the same in each run, and only what it was said before
//! that it would be: the bound for slow ones never falls, and a span is in the future when
//! it is chosen. Nothing here fails.

use port::Time;
use port::random::Random;
use port::story::Wanted;

/// So many requests are all told of.
pub const ALL: u64 = 1 << 14;
/// One in so many spans is chosen.
pub const ONE_IN: u64 = 16;
/// Those are slow that are slower than so many percent.
pub const SLOW: f64 = 98.0;
/// About so many requests end in a span.
const SPAN: u64 = 64;

/// Which they are.
#[derive(Clone, Debug)]
pub struct Sample {
    random: Random,
    /// Slow ones take so long at least.
    from: u64,
    /// The span that is chosen.
    since: Time,
    until: Time,
    /// After so many requests it is asked again how long slow ones take.
    look_at: u64,
}

impl Default for Sample {
    fn default() -> Sample {
        Sample::new()
    }
}

impl Sample {
    /// All requests, at first.
    pub fn new() -> Sample {
        let (since, until) = (Time::ZERO, Time(u64::MAX));
        Sample { random: Random::new(1, 1), from: 0, since, until, look_at: ALL }
    }

    /// Whether it asks no longer of all.
    pub fn chooses(&self) -> bool {
        self.look_at > ALL
    }

    /// Of which it asks.
    pub fn wanted(&self) -> Wanted {
        Wanted { from: self.from, since: self.since }
    }

    /// For how many requests one stands that took so long and ended then; `None` where it
    /// is not told of.
    #[inline]
    pub fn weight(&self, ns: u64, end: Time) -> Option<u64> {
        if ns >= self.from {
            return Some(1);
        }
        (self.since <= end && end < self.until).then_some(ONE_IN)
    }

    /// So many requests have ended from `start` until now. `slow` tells how long those of
    /// them take that are slow.
    #[inline]
    pub fn go_on(&mut self, (start, now): (Time, Time), ended: u64, slow: impl FnOnce() -> u64) {
        if ended >= self.look_at {
            self.from = self.from.max(slow());
            if self.look_at == ALL {
                self.until = now;
            }
            self.look_at = ended.saturating_mul(2);
        }
        if now >= self.until {
            self.choose(now, now.since(start) / (ended / SPAN).max(1));
        }
    }

    /// The next span begins, which is so long.
    fn choose(&mut self, now: Time, length: u64) {
        let length = length.max(1);
        // In the mean as many are left out as are to be.
        let left_out = self.random.between(0, length.saturating_mul(2 * (ONE_IN - 1)));
        self.since = Time(self.until.0.saturating_add(left_out)).max(now);
        self.until = Time(self.since.0.saturating_add(length));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All of the first and all slow ones are told of, and those that are told of stand for
    /// about as many as there are.
    #[test]
    fn those_that_are_told_of_stand_for_all() {
        let (mut sample, mut random) = (Sample::new(), Random::new(2, 1));
        let (start, count) = (Time(1000), 1u64 << 20);
        let (mut now, mut told, mut all) = (start, 0u64, 0u64);
        for n in 0..count {
            now += random.below(2000);
            let ns = if random.below(50) == 0 { 90_000 } else { 500 };
            let asked = sample.wanted();
            let weight = sample.weight(ns, now);
            assert!(weight.is_none() || asked.has(ns, now), "what was not asked for");
            assert!(weight.is_some() || n >= ALL);
            assert!(weight == Some(1) || (ns < 90_000 && n >= ALL));
            told += u64::from(weight.is_some());
            all += weight.unwrap_or(0);
            sample.go_on((start, now), n + 1, || 80_000);
        }
        assert!(told < count / 8, "{told}");
        assert!(all.abs_diff(count) < count / 10, "{all}");
    }

    /// Where drive time stands still all are told of, or none is asked for in vain.
    #[test]
    fn time_that_stands_still_ends_no_span() {
        let mut sample = Sample::new();
        for n in 0..4 * ALL {
            assert!(n > ALL || sample.weight(0, Time::ZERO) == Some(1));
            sample.go_on((Time::ZERO, Time::ZERO), n, || 7);
        }
        assert_eq!(sample.weight(7, Time::ZERO), Some(1));
    }
}
