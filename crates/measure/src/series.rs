//! What happened when: a row for each second of drive time.
//!
//! Guarantees: memory is bounded for any length of run. At [`MAX_ROWS`] rows
//! each two neighbours become one and rows are twice as long from then on.
//! Percentiles of joined rows come from their joined histograms, never from
//! averages; so do those of cores that ran at the same time, whose
//! rows are laid over each other from where each began. Every I/O is in the row in
//! whose seconds it completed; a run that takes no time has no rows. Recording
//! costs no more than a histogram of its kind; memory is taken only at the end of a
//! row (8 bytes for each distinct latency bucket). Nothing here fails.

use std::array;
use std::ops::Range;

use crate::histogram::{Histogram, Packed};
use crate::row::{Programmed, Row};
use crate::within::Within;

/// The most rows that are kept.
pub const MAX_ROWS: usize = 2048;
/// How long a row is at first.
pub const ROW_NS: u64 = 1_000_000_000;
/// Kinds of requests that are told apart until a row is closed: reads, writes, and trims.
pub const KINDS: usize = 3;

/// What a drive's own counters say. All but `free_chunks` only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Blocks programmed into flash.
    pub programmed: Programmed,
    /// Chunks that are free now.
    pub free_chunks: u64,
    /// Collections so far.
    pub collections: u64,
    /// Erases so far.
    pub erases: u64,
}

/// A closed row: what it counted, and the counters at its end.
#[derive(Clone, Debug)]
struct Closed {
    ns: u64,
    ios: u64,
    /// By kind of request.
    latency: [Packed; KINDS],
    end: Gauges,
}

/// The latencies of two rows, by kind.
fn both(one: &[Packed; KINDS], other: &[Packed; KINDS]) -> [Packed; KINDS] {
    array::from_fn(|kind| one[kind].merge(&other[kind]))
}

impl Closed {
    /// This row and the one after it.
    fn join(&self, next: &Closed) -> Closed {
        Closed {
            ns: self.ns + next.ns,
            ios: self.ios + next.ios,
            latency: both(&self.latency, &next.latency),
            end: next.end,
        }
    }

    /// This row and one of another core at the same time, beside the same drive.
    fn beside(&self, other: &Closed) -> Closed {
        Closed {
            ns: self.ns.max(other.ns),
            ios: self.ios + other.ios,
            latency: both(&self.latency, &other.latency),
            end: if other.ns > self.ns { other.end } else { self.end },
        }
    }

    fn row(&self, start_ns: u64, before: &Gauges) -> Row {
        let seconds = self.ns as f64 / 1e9;
        let since = |now: u64, then: u64| now.saturating_sub(then);
        let programmed = self.end.programmed.since(&before.programmed);
        let (user, all) = (programmed.user, programmed.of_target());
        let latency = self.latency.iter().fold(Packed::default(), |all, kind| all.merge(kind));
        Row {
            second: start_ns as f64 / 1e9,
            seconds,
            ios: self.ios,
            iops: if self.ns > 0 { self.ios as f64 / seconds } else { 0.0 },
            p50: latency.percentile(50.0),
            p999: latency.percentile(99.9),
            write_amplification: (user > 0).then(|| all as f64 / user as f64),
            programmed: Some(programmed),
            free_chunks: Some(self.end.free_chunks),
            collections: Some(since(self.end.collections, before.collections)),
            erases: Some(since(self.end.erases, before.erases)),
            tail: None,
        }
    }
}

/// A series in the making.
#[derive(Clone, Debug)]
pub struct Series {
    closed: Vec<Closed>,
    /// The row that is filled now, by kind of request.
    open: [Histogram; KINDS],
    open_start: u64,
    width: u64,
    start: u64,
    start_gauges: Gauges,
}

impl Series {
    /// A series that starts at `start_ns` of drive time, when the drive's
    /// counters were `gauges`.
    pub fn new(start_ns: u64, gauges: Gauges) -> Series {
        Series {
            closed: Vec::with_capacity(MAX_ROWS),
            open: Default::default(),
            open_start: start_ns,
            width: ROW_NS,
            start: start_ns,
            start_gauges: gauges,
        }
    }

    /// Goes on to `at_ns`: what is recorded from here on completed then, or is counted in
    /// the open row where that began later. Rows that end at or before it are closed, and
    /// only then `gauges` is asked. What they have by kind goes to `whole`, too.
    #[inline]
    pub fn go_on(
        &mut self,
        at_ns: u64,
        gauges: impl FnOnce() -> Gauges,
        whole: &mut [Histogram; KINDS],
    ) {
        if at_ns.saturating_sub(self.open_start) >= self.width {
            self.catch_up(at_ns, gauges(), whole);
        }
    }

    /// Counts an I/O of a kind, numbered from 0, that took `latency_ns`.
    #[inline]
    pub fn record(&mut self, kind: usize, latency_ns: u64) {
        self.record_many(kind, latency_ns, 1);
    }

    /// Counts so many of them, one at least, of which each took as long.
    #[inline]
    pub fn record_many(&mut self, kind: usize, latency_ns: u64, n: u64) {
        self.open[kind].record_many(latency_ns, n);
    }

    /// Closes the series at `at_ns`.
    pub fn finish(
        mut self,
        at_ns: u64,
        gauges: Gauges,
        whole: &mut [Histogram; KINDS],
    ) -> Finished {
        self.catch_up(at_ns, gauges, whole);
        let rest = at_ns.saturating_sub(self.open_start);
        if rest > 0 {
            self.close(rest, gauges, whole);
        } else if let (moment @ 1.., latency) = self.gather(whole)
            && let Some(last) = self.closed.last_mut()
        {
            // Completed at the very end: the last moment of the last row.
            last.ios += moment;
            last.latency = both(&last.latency, &latency);
            last.end = gauges;
        }
        let Series { closed, width, start, start_gauges, .. } = self;
        Finished { closed, width, start, start_gauges }
    }

    /// Closes all rows that end at or before `at_ns`. What the drive counted
    /// in rows without I/Os goes to the first of them.
    #[cold]
    fn catch_up(&mut self, at_ns: u64, gauges: Gauges, whole: &mut [Histogram; KINDS]) {
        while at_ns.saturating_sub(self.open_start) >= self.width {
            self.close(self.width, gauges, whole);
            if self.closed.len() == MAX_ROWS {
                halve(&mut self.closed);
                self.width *= 2;
            }
        }
    }

    fn close(&mut self, ns: u64, end: Gauges, whole: &mut [Histogram; KINDS]) {
        let (ios, latency) = self.gather(whole);
        self.closed.push(Closed { ns, ios, latency, end });
        self.open_start += ns;
    }

    /// Takes what was counted since the last row: how much it is, and how long it took.
    fn gather(&mut self, whole: &mut [Histogram; KINDS]) -> (u64, [Packed; KINDS]) {
        let ios = self.open.iter().map(Histogram::count).sum();
        let latency = array::from_fn(|kind| {
            let open = &mut self.open[kind];
            if open.count() == 0 {
                return Packed::default();
            }
            let packed = open.pack();
            whole[kind].merge(open);
            open.clear();
            packed
        });
        (ios, latency)
    }
}

/// Joins each two neighbours; a last one without a neighbour stays.
fn halve(closed: &mut Vec<Closed>) {
    let pairs = closed.len().div_ceil(2);
    for i in 0..pairs {
        closed[i] = match closed.get(2 * i + 1) {
            Some(next) => closed[2 * i].join(next),
            None => closed[2 * i].clone(),
        };
    }
    closed.truncate(pairs);
}

/// A series that is over.
#[derive(Clone, Debug, Default)]
pub struct Finished {
    closed: Vec<Closed>,
    width: u64,
    start: u64,
    start_gauges: Gauges,
}

impl Finished {
    /// Adds what another core did at the same time. One that began later is laid at
    /// the beginning, and longer by that, so that it ends when it did.
    pub fn merge(&mut self, mut other: Finished) {
        if other.closed.is_empty() {
            return;
        }
        if self.closed.is_empty() {
            *self = other;
            return;
        }
        let width = self.width.max(other.width);
        let start = self.start.min(other.start);
        if other.start < self.start {
            self.start_gauges = other.start_gauges;
        }
        for one in [&mut *self, &mut other] {
            while one.width < width {
                halve(&mut one.closed);
                one.width *= 2;
            }
            one.lengthen(one.start - start);
            one.start = start;
        }
        for (mine, theirs) in self.closed.iter_mut().zip(&other.closed) {
            *mine = mine.beside(theirs);
        }
        let longer = self.closed.len().min(other.closed.len());
        self.closed.extend(other.closed.drain(longer..));
    }

    /// Goes on for `ns` in which nothing happened. No row but the last of all that
    /// are kept is longer than the others.
    fn lengthen(&mut self, ns: u64) {
        let Some(last) = self.closed.last_mut() else { return };
        last.ns += ns;
        while self.closed.len() < MAX_ROWS {
            let Some(last) = self.closed.last_mut().filter(|last| last.ns > self.width) else {
                return;
            };
            let (rest, end) = (last.ns - self.width, last.end);
            last.ns = self.width;
            self.closed.push(Closed { ns: rest, ios: 0, latency: Default::default(), end });
        }
    }

    /// How long a row is, but the last, in ns.
    pub fn width(&self) -> u64 {
        self.width
    }

    /// Within what the percentiles of all rows lie. A last row that is shorter than the
    /// others counts for as much as it has.
    pub fn within(&self) -> Option<Within> {
        self.within_kinds(0..KINDS)
    }

    /// The same of one kind of request.
    pub fn within_of(&self, kind: usize) -> Option<Within> {
        self.within_kinds(kind..kind + 1)
    }

    fn within_kinds(&self, kinds: Range<usize>) -> Option<Within> {
        let rows = self.closed.iter().map(|row| &row.latency[kinds.clone()]);
        Within::of(&rows.collect::<Vec<_>>())
    }

    /// The rows, oldest first. A last one shorter than `shortest_ns` is in the
    /// one before, if there is one: a rate over so little says nothing.
    pub fn rows(mut self, shortest_ns: u64) -> Vec<Row> {
        if let [.., before, last] = &mut self.closed[..]
            && last.ns < shortest_ns
        {
            *before = before.join(last);
            self.closed.pop();
        }
        let mut start = 0;
        let mut before = self.start_gauges;
        let row = |c: &Closed| {
            let row = c.row(start, &before);
            start += c.ns;
            before = c.end;
            row
        };
        self.closed.iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::RefCell;

    const S: u64 = ROW_NS;

    thread_local! {
        /// What rows are brought together in; made once, as it is large.
        static WHOLE: RefCell<[Histogram; KINDS]> = RefCell::default();
    }

    /// Counts a read that completed at `at`.
    fn count(s: &mut Series, at: u64, ns: u64, gauges: impl FnOnce() -> Gauges) {
        WHOLE.with_borrow_mut(|whole| s.go_on(at, gauges, whole));
        s.record(0, ns);
    }

    fn over(s: Series, at: u64, gauges: Gauges) -> Finished {
        WHOLE.with_borrow_mut(|whole| s.finish(at, gauges, whole))
    }

    #[test]
    fn kinds_are_told_apart_and_together() {
        let mut whole: [Histogram; KINDS] = Default::default();
        let mut s = Series::new(0, Gauges::default());
        for at in [1, S + 1] {
            s.go_on(at, Gauges::default, &mut whole);
            (0..KINDS).for_each(|kind| (0..=kind).for_each(|_| s.record(kind, 10 + kind as u64)));
        }
        let rows = s.finish(2 * S, Gauges::default(), &mut whole).rows(0);
        assert_eq!(
            rows.iter().map(|row| (row.ios, row.p50)).collect::<Vec<_>>(),
            [(6, Some(11)); 2]
        );
        let of = |h: &Histogram| (h.count(), h.min(), h.max());
        assert_eq!(of(&whole[0]), (2, Some(10), Some(10)));
        assert_eq!(of(&whole[1]), (4, Some(11), Some(11)));
        assert_eq!(of(&whole[2]), (6, Some(12), Some(12)));
    }

    #[test]
    fn each_kind_has_what_its_own_percentiles_are_within() {
        let mut s = Series::new(0, Gauges::default());
        for row in 0..6 {
            count(&mut s, row * S, 10_000, Gauges::default);
            (0..99).for_each(|_| s.record(0, 10_000));
            (0..100).for_each(|_| s.record(1, 100_000));
        }
        let over = over(s, 6 * S, Gauges::default());
        let p90 = |within: Option<Within>| within.unwrap().p90;
        let has = |within, ns| {
            let [low, high] = p90(within).unwrap();
            assert!(low <= ns && ns <= high && high - low < ns / 10, "{ns}: {low} to {high}");
        };
        has(over.within_of(0), 10_000);
        has(over.within_of(1), 100_000);
        assert_eq!(p90(over.within_of(2)), None);
        assert_eq!(p90(over.within()), p90(over.within_of(1)));
    }

    fn gauges(user: u64, programmed: u64) -> Gauges {
        let programmed = Programmed { user, gc: programmed - user, ..Programmed::default() };
        Gauges { programmed, ..Gauges::default() }
    }

    #[test]
    fn a_row_for_each_second() {
        let mut s = Series::new(5 * S, gauges(100, 200));
        let unasked = || panic!("no row has ended");
        count(&mut s, 5 * S, 10, unasked);
        count(&mut s, 5 * S + 1, 20, unasked);
        count(&mut s, 6 * S, 30, || Gauges { erases: 4, free_chunks: 9, ..gauges(110, 230) });
        let end = Gauges { erases: 5, free_chunks: 8, ..gauges(110, 230) };
        let rows = over(s, 6 * S + S / 2, end).rows(0);
        let first = Row {
            second: 0.0,
            seconds: 1.0,
            ios: 2,
            iops: 2.0,
            p50: Some(10),
            p999: Some(20),
            write_amplification: Some(3.0),
            programmed: Some(Programmed { user: 10, gc: 20, ..Programmed::default() }),
            free_chunks: Some(9),
            collections: Some(0),
            erases: Some(4),
            tail: None,
        };
        let second = Row {
            second: 1.0,
            seconds: 0.5,
            ios: 1,
            iops: 2.0,
            p50: Some(30),
            p999: Some(30),
            write_amplification: None,
            programmed: Some(Programmed::default()),
            free_chunks: Some(8),
            collections: Some(0),
            erases: Some(1),
            tail: None,
        };
        assert_eq!(rows, [first, second]);
    }

    #[test]
    fn idle_seconds_are_rows_too() {
        let mut s = Series::new(0, Gauges::default());
        count(&mut s, 0, 1, Gauges::default);
        count(&mut s, 3 * S, 1, Gauges::default);
        let ios: Vec<u64> =
            over(s, 4 * S, Gauges::default()).rows(0).iter().map(|r| r.ios).collect();
        assert_eq!(ios, [1, 0, 0, 1]);
    }

    #[test]
    fn an_io_at_the_very_end_is_counted() {
        let mut s = Series::new(0, Gauges::default());
        count(&mut s, 1, 1, Gauges::default);
        count(&mut s, S, 7, Gauges::default);
        let rows = over(s, S, Gauges::default()).rows(0);
        assert_eq!((rows.len(), rows[0].ios, rows[0].p999), (1, 2, Some(7)));
    }

    #[test]
    fn a_short_end_is_in_the_row_before_with_its_time() {
        let ended = |at: u64, shortest: u64| {
            let mut s = Series::new(0, gauges(0, 0));
            (0..at / 10).for_each(|n| count(&mut s, 10 * n, 5, || gauges(n, n)));
            let rows = over(s, at, gauges(at, at)).rows(shortest);
            rows.iter().map(|row| (row.second, row.seconds, row.ios, row.iops)).collect::<Vec<_>>()
        };
        let at = S + S / 20;
        let (long, rate) = (S / 10 + S / 200, 1e8);
        assert_eq!(ended(at, S / 10), [(0.0, 1.05, long, rate)]);
        assert_eq!(ended(at, 0), [(0.0, 1.0, S / 10, rate), (1.0, 0.05, S / 200, rate)]);
        assert_eq!(ended(S / 20, S / 10), [(0.0, 0.05, S / 200, rate)]);
    }

    #[test]
    fn cores_at_the_same_time_are_one_series() {
        let core = |latency: u64, end: u64| {
            let mut s = Series::new(0, gauges(0, 0));
            for at in (0..end).step_by(S as usize / 4) {
                count(&mut s, at, latency, || gauges(at, at));
            }
            over(s, end, gauges(end, end))
        };
        let mut both = Finished::default();
        both.merge(core(10, S + S / 2));
        both.merge(core(20, S + S / 20));
        both.merge(core(30, 2 * S + S / 20));
        let rows = both.clone().rows(S / 10);
        let shown: Vec<_> = rows.iter().map(|r| (r.seconds, r.ios, r.p50, r.p999)).collect();
        assert_eq!(shown, [(1.0, 12, Some(20), Some(30)), (1.05, 8, Some(30), Some(30))]);
        // One that was stopped before it counted.
        both.merge(Finished::default());
        assert_eq!(both.clone().rows(S / 10).len(), rows.len());
        // One that began later.
        let mut late = Series::new(S / 4, gauges(0, 0));
        count(&mut late, 2 * S, 50, || gauges(1, 1));
        let mut all = both.clone();
        all.merge(over(late, 2 * S + S / 2, gauges(1, 1)));
        let rows = all.rows(0);
        assert_eq!(rows.iter().map(|r| r.seconds).sum::<f64>(), 2.5, "{rows:?}");
        // One that went on for so long that its rows are twice as long.
        both.merge(core(40, MAX_ROWS as u64 * S));
        let rows = both.rows(0);
        assert_eq!((rows[0].seconds, rows[0].ios, rows.len()), (2.0, 27, MAX_ROWS / 2));
        assert_eq!((rows[1].seconds, rows[1].ios), (2.0, 9));
    }

    #[test]
    fn cores_that_began_and_ended_apart_take_the_time_from_first_to_last() {
        let core = |start: u64, end: u64| {
            let mut s = Series::new(start, gauges(0, 0));
            count(&mut s, end - 1, 5, || gauges(1, 1));
            over(s, end, gauges(1, 1))
        };
        let hundredth = S / 100;
        for (end, last) in [(300, 300), (205, 215), (20, 215)] {
            let (early, late) = (core(0, end * hundredth), core(25 * hundredth, 215 * hundredth));
            for (mut one, other) in [(early.clone(), late.clone()), (late, early)] {
                one.merge(other);
                let rows = one.rows(0);
                let ns = rows.iter().map(|row| (row.seconds * 1e9).round() as u64).sum::<u64>();
                assert_eq!(ns, last * hundredth, "{rows:?}");
                assert_eq!(rows.iter().map(|row| row.ios).sum::<u64>(), 2);
            }
        }
        // Later by more rows than are kept.
        let mut far = core(0, S);
        far.merge(core(3 * MAX_ROWS as u64 * S, (3 * MAX_ROWS as u64 + 1) * S));
        let rows = far.rows(0);
        assert_eq!(rows.len(), MAX_ROWS);
        assert_eq!(rows.iter().map(|row| row.seconds).sum::<f64>(), 3.0 * MAX_ROWS as f64 + 1.0);
    }

    #[test]
    fn a_late_report_counts_in_the_open_row() {
        let mut s = Series::new(10 * S, Gauges::default());
        count(&mut s, 3, 1, Gauges::default);
        assert_eq!(over(s, 11 * S, Gauges::default()).rows(0)[0].ios, 1);
    }

    #[test]
    fn memory_is_bounded_for_any_length() {
        let mut s = Series::new(0, Gauges::default());
        count(&mut s, 0, 1, Gauges::default);
        count(&mut s, u64::MAX - 1, 1, Gauges::default);
        let rows = over(s, u64::MAX, Gauges::default()).rows(0);
        assert!(rows.len() <= MAX_ROWS && rows.len() >= MAX_ROWS / 2 - 1);
        assert_eq!(rows.iter().map(|r| r.ios).sum::<u64>(), 2);
    }

    /// By reason, joined or not; what is beside write amplification is not in it.
    #[test]
    fn blocks_are_told_by_reason() {
        let at = |t: u64| Gauges {
            programmed: Programmed {
                user: 10 * t,
                gc: 5 * t,
                padding: 2 * t,
                metadata: t,
                parity: Some(3 * t),
                folds: None,
            },
            ..Gauges::default()
        };
        for seconds in [3, MAX_ROWS as u64 + 6] {
            let mut s = Series::new(0, at(0));
            (0..seconds).for_each(|t| count(&mut s, t * S, 1, || at(t)));
            let rows = over(s, seconds * S, at(seconds)).rows(0);
            for row in rows {
                let t = row.seconds as u64;
                assert_eq!(row.programmed, Some(at(t).programmed));
                assert_eq!(row.write_amplification, Some(1.8));
                assert_eq!(row.of_an_unknown_drive().programmed, None);
            }
        }
    }

    #[test]
    fn joined_rows_keep_counts_and_percentiles() {
        let mut s = Series::new(0, Gauges::default());
        let seconds = MAX_ROWS as u64 + 3;
        for t in 0..seconds {
            for _ in 0..3 {
                count(&mut s, t * S, 100 + t % 2, || gauges(t * 10, t * 20));
            }
        }
        let rows = over(s, seconds * S, gauges(seconds * 10, seconds * 20)).rows(0);
        assert_eq!(rows.len(), MAX_ROWS / 2 + 2);
        assert!(rows[..MAX_ROWS / 2].iter().all(|r| r.seconds == 2.0 && r.ios == 6));
        assert!(rows.iter().all(|r| r.write_amplification == Some(2.0)));
        assert_eq!((rows[0].p50, rows[0].p999), (Some(100), Some(101)));
        assert_eq!(rows.last().unwrap().seconds, 1.0);
    }

    proptest! {
        #[test]
        fn nothing_is_lost(gaps in prop::collection::vec(0u64..3 * S, 0..50)) {
            let mut s = Series::new(0, Gauges::default());
            let mut at = 0;
            for gap in &gaps {
                at += gap;
                count(&mut s, at, *gap, || Gauges { erases: at, ..Gauges::default() });
            }
            at += 1;
            let rows = over(s, at, Gauges { erases: at, ..Gauges::default() }).rows(0);
            prop_assert_eq!(rows.iter().map(|r| r.ios).sum::<u64>(), gaps.len() as u64);
            prop_assert_eq!(rows.iter().filter_map(|r| r.erases).sum::<u64>(), at);
            let ends = rows.windows(2).all(|w| (w[0].second + w[0].seconds - w[1].second).abs() < 1e-6);
            prop_assert!(ends);
        }
    }
}
