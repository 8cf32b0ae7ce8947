//! The tally of a run: what was measured, before anybody reports it.
//!
//! Guarantees: counts only requests that began after it did, and of these only
//! those that did what they were asked: one that failed is counted as that, and
//! its time is in no figure. Recording allocates nothing but the row of a series, once a second of drive time.
//! Nothing here fails.

use flash::Energy;
use measure::{Dies, Direction, Finished, Gauges, Histogram, KINDS, Row, Series, Within};
use port::story::Wanted;
use port::{BlockOp, Time};
use targets::WriteCounters;

use crate::bursts::Ended;
use crate::cpu::Mark;
use crate::own::Own;
use crate::tails::Tails;
use measure::causes::Causes;
use measure::slowest::Slowest;

/// No story.
const NONE: Wanted = Wanted { from: u64::MAX, since: Time(u64::MAX) };
/// Less than this at the end is no row of its own.
const MOMENT_NS: u64 = 100_000_000;

/// What happened in a run.
pub struct Tally {
    /// When counting began; later than all time while it has not.
    pub start: Time,
    /// When the last request was seen.
    pub end: Time,
    /// When counting began on the wall, where a ramp was before it.
    pub after_ramp: Option<Mark>,
    /// Latencies by kind but those of the series' open row.
    latency: [Histogram; KINDS],
    flushes: Histogram,
    /// Bytes of all that is counted, by kind.
    bytes: [u64; 4],
    series: Option<Series>,
    /// Lateness of what was seen, in real time.
    pub late: Histogram,
    /// The drive's counters when counting began, and at the end.
    pub before: WriteCounters,
    /// As `before`.
    pub after: WriteCounters,
    /// What the drive had taken when counting began, and at the end, where that
    /// is known.
    pub energy: (Energy, Energy),
    /// The slowest requests, where they are kept.
    pub slowest: Option<Slowest>,
    /// Where the time of all of them went, where that is kept; then the slowest
    /// are, too.
    pub causes: Option<Causes>,
    /// The same of the slowest of each row, where that is kept; then the slowest of all
    /// are, too.
    pub tails: Option<Tails>,
    /// How busy dies were, where that is told.
    pub dies: Option<Dies>,
    /// What all of it took outside the drive; of loads at the same time, the first has it.
    pub own: Own,
    /// Its bursts, where it has any.
    pub bursts: Ended,
    /// The series, when it is over.
    over: Finished,
    /// Bytes of writes, counted or not.
    pub written: u64,
    /// Requests that failed, counted or not.
    pub failed: u64,
    /// What was wrong with the first.
    pub first_failed: Option<String>,
    /// Requests that gave wrong data, counted or not.
    pub wrong: u64,
    /// What was wrong with the first of these.
    pub first_wrong: Option<String>,
    /// Whether somebody stopped the run before its end.
    pub interrupted: bool,
    /// Whether it ended before its time since drive time stood still.
    pub stood: bool,
    /// Requests that were still inside when it was stopped, and were not waited for.
    pub left: u64,
    /// Why the drive was lost before the end, if it was.
    pub lost: Option<String>,
}

#[inline]
fn place(op: BlockOp) -> usize {
    match op {
        BlockOp::Read => 0,
        BlockOp::Write => 1,
        BlockOp::Trim | BlockOp::WriteZeroes => 2,
        BlockOp::Flush => 3,
    }
}

/// Requests that began at the same time and ended, how many of each kind.
pub struct Run {
    /// When they began.
    pub start: Time,
    counts: [u64; 4],
}

impl Run {
    /// None yet.
    #[inline]
    pub fn new(start: Time) -> Run {
        Run { start, counts: [0; 4] }
    }

    /// One more.
    #[inline]
    pub fn add(&mut self, op: BlockOp) {
        self.counts[place(op)] += 1;
    }
}

impl Default for Tally {
    fn default() -> Tally {
        Tally::new()
    }
}

impl Tally {
    /// A tally that has not begun.
    pub fn new() -> Tally {
        Tally {
            start: Time(u64::MAX),
            end: Time::ZERO,
            after_ramp: None,
            latency: Default::default(),
            flushes: Histogram::new(),
            bytes: [0; 4],
            series: None,
            late: Histogram::new(),
            before: WriteCounters::default(),
            after: WriteCounters::default(),
            energy: Default::default(),
            slowest: None,
            causes: None,
            tails: None,
            dies: None,
            own: Own::default(),
            bursts: Ended::default(),
            over: Finished::default(),
            written: 0,
            failed: 0,
            first_failed: None,
            wrong: 0,
            first_wrong: None,
            interrupted: false,
            stood: false,
            left: 0,
            lost: None,
        }
    }

    /// Begins to count.
    pub fn begin(&mut self, now: Time, counters: WriteCounters, gauges: Gauges) {
        (self.start, self.end, self.before) = (now, now, counters);
        self.series = Some(Series::new(now.0, gauges));
    }

    /// Whether it counts.
    #[inline]
    pub fn counts(&self) -> bool {
        self.series.is_some()
    }

    /// Requests were seen to be done at `now`, before they are recorded.
    #[inline]
    pub fn go_on(&mut self, now: Time, gauges: impl FnOnce() -> Gauges) {
        if let Some(series) = &mut self.series {
            series.go_on(now.0, gauges, &mut self.latency);
        }
    }

    /// Counts a request of so many bytes that was seen to be done at `now`, the time that it
    /// went on to last. Flushes do not count among the others.
    #[inline]
    pub fn record(&mut self, op: BlockOp, len: u64, now: Time, latency: u64) {
        self.record_many((place(op), 1), len, now, latency);
    }

    /// Counts so many of one kind, one at least, which have so many bytes together.
    #[inline]
    fn record_many(&mut self, (place, n): (usize, u64), bytes: u64, now: Time, latency: u64) {
        self.bytes[place] += bytes;
        self.end = now;
        match &mut self.series {
            Some(series) if place < KINDS => series.record_many(place, latency, n),
            _ => self.record_apart((place, n), latency),
        }
    }

    /// Counts requests of one size that began at the same time and were seen to be done at
    /// `now`, and forgets them; `gauges` are asked where a row ends before.
    #[inline]
    pub fn record_run(
        &mut self,
        run: &mut Run,
        (now, len): (Time, u64),
        gauges: impl FnOnce() -> Gauges,
    ) {
        if run.counts == [0; 4] {
            return;
        }
        self.go_on(now, gauges);
        let latency = now.since(run.start);
        self.written += run.counts[place(BlockOp::Write)] * len;
        for (place, n) in run.counts.iter_mut().enumerate().filter(|(_, n)| **n > 0) {
            self.record_many((place, *n), *n * len, now, latency);
            *n = 0;
        }
    }

    /// Of which requests it wants the story until it has noted another, where it keeps
    /// some.
    pub fn wanted(&self) -> Option<Wanted> {
        let slowest = self.slowest.as_ref()?;
        let all = if self.causes.is_some() { Wanted::ALL } else { NONE };
        let of_row = self.tails.as_ref().map_or(NONE, Tails::wanted);
        let from = slowest.from().min(of_row.from).min(all.from);
        Some(Wanted { from, since: of_row.since.min(all.since) })
    }

    /// What is in no row.
    #[inline(never)]
    fn record_apart(&mut self, (place, n): (usize, u64), latency: u64) {
        self.latency.get_mut(place).unwrap_or(&mut self.flushes).record_many(latency, n);
    }

    /// Whether anything was counted but flushes.
    pub fn has_some(&self) -> bool {
        self.bytes[..KINDS].iter().any(|&bytes| bytes > 0)
    }

    /// Ends the count.
    pub fn finish(&mut self, counters: WriteCounters, gauges: Gauges) {
        self.after = counters;
        if let Some(series) = self.series.take() {
            self.over = series.finish(self.end.0, gauges, &mut self.latency);
        }
    }

    /// The rows of the series, which is over. What came in a last moment, while
    /// the last requests ended, is no row of its own.
    pub fn rows(&self) -> Vec<Row> {
        let mut rows = self.over.clone().rows(MOMENT_NS);
        if let Some(tails) = &self.tails {
            tails.clone().tell(&mut rows, self.over.width());
        }
        rows
    }

    /// Within what the percentiles of those in rows lie.
    pub fn within(&self) -> Option<Within> {
        self.over.within()
    }

    /// The requests of one kind, of a run that took so long.
    pub fn direction(&self, op: BlockOp, seconds: f64) -> Direction {
        let kind = Some(place(op)).filter(|&kind| kind < KINDS);
        let within = kind.and_then(|kind| self.over.within_of(kind));
        Direction::new(self.latency(op), self.bytes(op), seconds, within)
    }

    /// The tallies of cores that ran at the same time, as one: from the first
    /// that began to the last that ended.
    pub fn merge(tallies: Vec<Tally>) -> Tally {
        let mut tallies = tallies.into_iter();
        let mut whole = tallies.next().unwrap_or_default();
        for one in tallies {
            whole.join(&one);
            for (mine, theirs) in whole.latency.iter_mut().zip(&one.latency) {
                mine.merge(theirs);
            }
            whole.flushes.merge(&one.flushes);
            for (mine, theirs) in whole.bytes.iter_mut().zip(one.bytes) {
                *mine += theirs;
            }
            whole.late.merge(&one.late);
            whole.written += one.written;
            whole.interrupted |= one.interrupted;
            whole.stood |= one.stood;
            whole.left += one.left;
            whole.add_errors(&one);
            whole.over.merge(one.over);
            whole.dies = whole.dies.take().or(one.dies);
            if let (Some(all), Some(more)) = (&mut whole.causes, &one.causes) {
                all.join(more);
            }
            whole.own.add(one.own);
            let began = [whole.after_ramp, one.after_ramp].into_iter().flatten();
            whole.after_ramp = began.min_by_key(|mark| mark.wall);
        }
        whole
    }

    /// Takes the time of another core in. One to which nothing happened has none.
    fn join(&mut self, one: &Tally) {
        let is_empty = |tally: &Tally| tally.end <= tally.start;
        if is_empty(one) {
            return;
        }
        let first = is_empty(self);
        if first || one.end > self.end {
            (self.end, self.after) = (one.end, one.after);
        }
        if first || one.start < self.start {
            (self.start, self.before) = (one.start, one.before);
        }
    }

    /// Takes note of a request that was seen to have failed at `now`; `counted`
    /// if it began after counting did.
    #[cold]
    pub fn failed(&mut self, now: Time, counted: bool, what: impl FnOnce() -> String) {
        self.failed += 1;
        self.first_failed.get_or_insert_with(what);
        if counted {
            self.end = now;
        }
    }

    /// Takes note of a request that gave wrong data.
    #[cold]
    pub fn gave_wrong(&mut self, what: impl FnOnce() -> String) {
        self.wrong += 1;
        self.first_wrong.get_or_insert_with(what);
    }

    /// Requests that failed or gave wrong data.
    pub fn errors(&self) -> u64 {
        self.failed + self.wrong
    }

    /// What went wrong, in words, if anything did.
    pub fn problem(&self) -> Option<String> {
        let told = |n: u64, what: &str, first: &Option<String>| {
            let first = first.as_deref().unwrap_or("not told");
            (n > 0).then(|| format!("{n} requests {what}, first: {first}"))
        };
        let wrong = told(self.wrong, "gave wrong data", &self.first_wrong);
        let failed = told(self.failed, "failed", &self.first_failed);
        let all = [wrong, failed, self.lost.clone()];
        all.into_iter().flatten().reduce(|before, next| format!("{before}; {next}"))
    }

    /// Adds what went wrong in a run beside this one, or after it.
    pub fn add_errors(&mut self, other: &Tally) {
        self.failed += other.failed;
        self.wrong += other.wrong;
        self.first_failed = self.first_failed.take().or_else(|| other.first_failed.clone());
        self.first_wrong = self.first_wrong.take().or_else(|| other.first_wrong.clone());
        self.lost = self.lost.take().or_else(|| other.lost.clone());
    }

    /// Adds what reading back found. Of what was not read nobody knows that it is right.
    pub fn add_read_back(&mut self, back: &Tally) {
        self.add_errors(back);
        if back.interrupted {
            let why = "not all that was written was read back, as that was stopped: give it more \
                       time, or a smaller range";
            self.lost.get_or_insert_with(|| why.into());
        }
    }

    /// Seconds from the beginning to the last request.
    pub fn seconds(&self) -> f64 {
        self.end.since(self.start) as f64 / 1e9
    }

    /// Latencies of one kind of request, in ns; of a run that is over.
    pub fn latency(&self, op: BlockOp) -> &Histogram {
        self.latency.get(place(op)).unwrap_or(&self.flushes)
    }

    /// Bytes of the requests of one kind of which it has the latencies.
    pub fn bytes(&self, op: BlockOp) -> u64 {
        self.bytes[place(op)]
    }

    /// Latencies of reads, writes and trims together; of a run that is over.
    pub fn all(&self) -> Histogram {
        let mut all = self.latency[0].clone();
        all.merge(&self.latency[1]);
        all.merge(&self.latency[2]);
        all
    }
}

#[cfg(test)]
mod tests {
    use measure::Programmed;
    use measure::series::ROW_NS;

    use super::*;

    #[test]
    fn a_reading_back_that_was_stopped_is_no_success() {
        let (mut all, mut back) = (Tally::new(), Tally::new());
        all.add_read_back(&back);
        assert_eq!(all.problem(), None);
        back.interrupted = true;
        all.add_read_back(&back);
        assert!(all.problem().unwrap().contains("not all that was written was read back"));
        assert!(!all.interrupted, "the run itself was not");
    }

    fn seen(t: &mut Tally, op: BlockOp, now: Time, latency: u64) {
        t.go_on(now, Gauges::default);
        t.record(op, 4096, now, latency);
    }

    fn tally(ends: &[u64]) -> Tally {
        let mut t = Tally::new();
        t.begin(Time(5), WriteCounters::default(), Gauges::default());
        for &end in ends {
            seen(&mut t, BlockOp::Read, Time(5 + end), 9);
        }
        t.finish(WriteCounters::default(), Gauges::default());
        t
    }

    #[test]
    fn a_last_moment_is_no_row() {
        let t = tally(&[1, ROW_NS + 1]);
        assert_eq!(
            t.rows().iter().map(|r| (r.ios, r.seconds)).collect::<Vec<_>>(),
            [(2, 1.000000001)]
        );
        let t = tally(&[1, ROW_NS + MOMENT_NS]);
        assert_eq!(t.rows().iter().map(|r| r.ios).collect::<Vec<_>>(), [1, 1]);
        assert_eq!(t.seconds(), 1.1);
        assert_eq!(tally(&[1, 1000]).rows().len(), 1);
    }

    #[test]
    fn flushes_are_apart() {
        let mut t = tally(&[]);
        seen(&mut t, BlockOp::Flush, Time(20), 7);
        seen(&mut t, BlockOp::Trim, Time(20), 7);
        assert_eq!((t.all().count(), t.latency(BlockOp::Flush).count()), (1, 1));
    }

    #[test]
    fn tallies_of_cores_add_up() {
        let (a, b) = (tally(&[7, ROW_NS / 2]), tally(&[3, 5, 2 * ROW_NS]));
        let whole = Tally::merge(vec![a, b]);
        assert_eq!((whole.all().count(), whole.seconds()), (5, 2.0));
        let rows: Vec<_> = whole.rows().iter().map(|row| (row.ios, row.p50)).collect();
        assert_eq!(rows, [(4, Some(9)), (1, Some(9))]);
        assert_eq!(Tally::merge(Vec::new()).all().count(), 0);
        assert_eq!(Tally::merge(vec![tally(&[1])]).rows()[0].p50, Some(9));
    }

    #[test]
    fn the_first_core_s_counters_are_those_before() {
        let core = |start: u64, user: u64| {
            let mut t = Tally::new();
            let told = |user, gc| Gauges {
                programmed: Programmed { user, gc, ..Programmed::default() },
                ..Gauges::default()
            };
            t.begin(Time(start), WriteCounters { user, ..WriteCounters::default() }, told(user, 0));
            seen(&mut t, BlockOp::Write, Time(ROW_NS - start), 9);
            t.finish(WriteCounters { user: 100, ..WriteCounters::default() }, told(100, 80));
            t
        };
        let whole = Tally::merge(vec![core(7, 40), core(5, 20), core(9, 50)]);
        assert_eq!((whole.start, whole.before.user, whole.after.user), (Time(5), 20, 100));
        assert_eq!(whole.rows()[0].write_amplification, Some(2.0));
    }

    #[test]
    fn a_core_to_which_nothing_happened_took_no_time() {
        let idle = |at: u64| {
            let mut t = Tally::new();
            t.begin(Time(at), WriteCounters::default(), Gauges::default());
            t.finish(WriteCounters::default(), Gauges::default());
            t
        };
        for order in [[1, 0, 99], [99, 1, 0], [0, 99, 1]] {
            let all = order.map(|at| if at == 0 { tally(&[3, 20]) } else { idle(at) });
            let whole = Tally::merge(all.into());
            assert_eq!((whole.start, whole.end), (Time(5), Time(25)));
            assert_eq!(whole.rows().iter().map(|row| row.seconds).sum::<f64>(), 20e-9);
        }
        assert_eq!(Tally::merge(vec![idle(5), idle(3)]).seconds(), 0.0);
    }

    #[test]
    fn what_failed_is_in_no_figure() {
        let mut t = Tally::new();
        t.begin(Time(5), WriteCounters::default(), Gauges::default());
        seen(&mut t, BlockOp::Read, Time(15), 10);
        t.failed(Time(16), true, || "a".into());
        t.failed(Time(17), false, || "b".into());
        t.finish(WriteCounters::default(), Gauges::default());
        assert_eq!((t.all().count(), t.all().max(), t.seconds()), (1, Some(10), 11e-9));
        assert_eq!(t.problem().unwrap(), "2 requests failed, first: a");
        t.gave_wrong(|| "c".into());
        let both = "1 requests gave wrong data, first: c; 2 requests failed, first: a";
        assert_eq!((t.problem().as_deref(), t.errors()), (Some(both), 3));
        assert_eq!(t.rows().iter().map(|row| row.ios).sum::<u64>(), 1);
        let whole = Tally::merge(vec![tally(&[1]), t]);
        assert_eq!((whole.errors(), whole.failed, whole.problem().as_deref()), (3, 2, Some(both)));
    }

    #[test]
    fn one_that_never_began_took_no_time() {
        assert_eq!(Tally::new().seconds(), 0.0);
    }
}
