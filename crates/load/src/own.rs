//! What of a run's time is the tool's own: drawing and writing requests, reading
//! completions, counting. All that happens between two turns of the driver is.
//!
//! One turn in [`EVERY`] is timed, in the mean, and stands for the others; the distance
//! changes, so that nothing that comes round with the turns is met each time. The clock
//! is read once for nothing before, so that it is in the processor's caches, and what a
//! reading takes is taken off. A turn that takes longer than a processor needs for it was
//! interrupted by others, and is left out. Nothing here fails.

use std::time::{Duration, Instant};

/// Of so many turns, about, one is timed.
const EVERY: u32 = 256;
/// Fewer timed turns say nothing.
pub const LEAST: u64 = 30;
/// Pairs of clock readings of which the quickest says what one takes.
const PAIRS: usize = 64;
/// The longest that a turn takes by itself: whoever else had the processor had it for
/// longer.
const LONGEST: Duration = Duration::from_micros(10);
/// And of each request that may be out in it, with the bytes that it compares.
const LONGEST_OF_EACH: Duration = Duration::from_nanos(200);

/// Times some turns of a run.
#[derive(Debug)]
pub struct Timer {
    /// Turns until one is timed.
    left: u32,
    /// Turns from one that is timed to the next.
    distance: u32,
    began: Option<Instant>,
    reading: Duration,
    longest: Duration,
    total: Duration,
    timed: u64,
    turns: u64,
}

/// What was timed, of one run or of several at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Own {
    /// The time of all turns, as far as the timed ones tell, in ns.
    ns: f64,
    timed: u64,
}

impl Timer {
    /// Of a run in which so many requests may be out, in each of which it looks at so
    /// many bytes.
    pub fn new(slots: usize, bytes: u64) -> Timer {
        let pair = |_| {
            let before = Instant::now();
            before.elapsed()
        };
        let of_each = LONGEST_OF_EACH + Duration::from_nanos(bytes);
        Timer {
            left: EVERY / 2,
            distance: EVERY,
            began: None,
            reading: (0..PAIRS).map(pair).min().unwrap_or_default(),
            longest: LONGEST + of_each * slots as u32,
            total: Duration::ZERO,
            timed: 0,
            turns: 0,
        }
    }

    /// Forgets what was until now: what counts begins. Distances go on, and a turn that
    /// is under way is not timed.
    pub fn restart(&mut self) {
        (self.began, self.total, self.timed, self.turns) = (None, Duration::ZERO, 0, 0);
    }

    /// How many turns go before the next that is timed.
    #[inline]
    pub fn left(&self) -> u32 {
        self.left
    }

    /// The driver had so many turns, of which none but the last was to be timed.
    #[inline]
    pub fn turned(&mut self, turns: u32) {
        self.turns += u64::from(turns);
        match self.left.checked_sub(turns) {
            Some(left) if left > 0 => self.left = left,
            _ => self.begin(),
        }
    }

    /// The driver is to have its next turn.
    #[inline]
    pub fn turns(&mut self) {
        if self.began.is_some() {
            self.end();
        }
    }

    #[cold]
    fn begin(&mut self) {
        // From half of the usual distance to half more, in steps that meet all.
        self.distance = EVERY / 2 + (self.distance + 89) % EVERY;
        self.left = self.distance;
        std::hint::black_box(Instant::now());
        self.began = Some(Instant::now());
    }

    #[cold]
    fn end(&mut self) {
        if let Some(began) = self.began.take() {
            self.count(began.elapsed());
        }
    }

    /// A timed turn took so long, with a reading of the clock.
    fn count(&mut self, took: Duration) {
        if took <= self.longest {
            self.total += took.saturating_sub(self.reading);
            self.timed += 1;
        }
    }

    /// What all turns took, as far as those say that were timed.
    pub fn own(&self) -> Own {
        let each = self.total.as_nanos() as f64 / self.timed.max(1) as f64;
        Own { ns: each * self.turns as f64, timed: self.timed }
    }
}

impl Own {
    /// With another run's, which was at the same time.
    pub fn add(&mut self, other: Own) {
        self.ns += other.ns;
        self.timed += other.timed;
    }

    /// In ns; `None` where too few turns were timed to say.
    pub fn ns(&self) -> Option<f64> {
        (self.timed >= LEAST).then_some(self.ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The turns, of so many, after which one is timed; told `step` at a time.
    fn timed(turns: u32, step: u32) -> Vec<u32> {
        let mut timer = Timer::new(1, 0);
        let (mut passed, mut timed) = (0, Vec::new());
        while passed < turns {
            let now = step.min(timer.left()).min(turns - passed);
            timer.turned(now);
            passed += now;
            if timer.began.take().is_some() {
                timed.push(passed);
            }
        }
        timed
    }

    #[test]
    fn one_in_some_is_timed_at_distances_that_change() {
        let all = timed(EVERY * 1000, 1);
        assert_eq!(all, timed(EVERY * 1000, u32::MAX));
        assert!((1000..=1010).contains(&all.len()), "{}", all.len());
        let mut gaps: Vec<u32> = all.windows(2).map(|two| two[1] - two[0]).collect();
        gaps.sort_unstable();
        gaps.dedup();
        assert_eq!((gaps.len(), gaps[0]), (EVERY as usize, EVERY / 2));
    }

    #[test]
    fn timed_turns_stand_for_all_and_those_of_others_are_left_out() {
        let mut timer = Timer::new(4, 1000);
        timer.reading = Duration::from_nanos(20);
        timer.turns = 10_000;
        (0..LEAST).for_each(|_| timer.count(Duration::from_nanos(120)));
        assert_eq!(timer.own().ns(), Some(1e6));
        // 10 us, and of each of four 200 ns and 1 ns a byte.
        timer.count(Duration::from_nanos(14_801));
        assert_eq!(timer.own().ns(), Some(1e6));
        timer.count(Duration::from_nanos(14_800));
        assert!(timer.own().ns() > Some(1e6));
        timer.count(Duration::ZERO);
    }

    #[test]
    fn what_was_before_it_counts_is_forgotten() {
        let mut timer = Timer::new(4, 1000);
        timer.reading = Duration::ZERO;
        let turns = |timer: &mut Timer| timer.turned(timer.left());
        turns(&mut timer);
        (0..LEAST).for_each(|_| timer.count(Duration::from_micros(9)));
        assert!(timer.began.is_some() && timer.own().ns().is_some());
        timer.restart();
        assert!(timer.began.is_none() && timer.own() == Own::default());
        let turned = timer.left();
        turns(&mut timer);
        (0..LEAST).for_each(|_| timer.count(Duration::from_nanos(100)));
        assert_eq!(timer.own().ns(), Some(100.0 * f64::from(turned)));
    }

    #[test]
    fn few_say_nothing() {
        let mut timer = Timer::new(1, 0);
        (1..LEAST).for_each(|_| timer.count(Duration::from_micros(1)));
        let (mut all, one) = (timer.own(), timer.own());
        assert_eq!((all.ns(), Own::default().ns()), (None, None));
        all.add(one);
        assert!(all.ns().is_some());
    }
}
