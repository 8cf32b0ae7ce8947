//! Where the time of the slowest requests went, over drive time.
//!
//! Of each row of a series ([`measure::Series`]) so many of its slowest requests are kept.
//!
//! Guarantees: memory is bounded for any length of run; where rows are joined, the slowest
//! of both are kept, so that they are those of all requests in it. Recording a request
//! that is not among them costs a comparison. Nothing here fails.

use measure::series::{MAX_ROWS, ROW_NS};
use measure::{Row, Tail, TailPart};
use port::story::Wanted;
use port::{StorySum, Time};

use measure::slowest::{Slow, Slowest};

/// Requests that are kept of each row.
const KEPT: usize = 16;

/// The slowest requests of each row.
#[derive(Clone, Debug)]
pub struct Tails {
    start: Time,
    width: u64,
    rows: Vec<Slowest>,
}

impl Tails {
    /// Of a series that begins at `start`.
    pub fn new(start: Time) -> Tails {
        Tails { start, width: ROW_NS, rows: Vec::new() }
    }

    /// A request completed at `now`, after `ns`, and so many had before it.
    #[inline]
    pub fn note(&mut self, now: Time, ns: u64, number: u64, slow: impl FnOnce() -> Slow) {
        // One that is seen late is of the last row.
        let place = (now.since(self.start) / self.width) as usize;
        let place = if place < self.rows.len() { self.rows.len() - 1 } else { place };
        if place >= self.rows.len() {
            return self.note_first(now, ns, number, slow);
        }
        self.rows[place].note_of(ns, number, slow);
    }

    /// Which requests it keeps until it keeps another: of the row that is filled those
    /// that are slow, and all that end behind it.
    pub fn wanted(&self) -> Wanted {
        let Some(row) = self.rows.last() else { return Wanted::ALL };
        let end = self.width.saturating_mul(self.rows.len() as u64).saturating_add(self.start.0);
        Wanted { from: row.from(), since: Time(end) }
    }

    /// The first of a row.
    #[cold]
    fn note_first(&mut self, now: Time, ns: u64, number: u64, slow: impl FnOnce() -> Slow) {
        let mut place = now.since(self.start) / self.width;
        while place >= MAX_ROWS as u64 {
            self.halve();
            place = now.since(self.start) / self.width;
        }
        let place = place as usize;
        if place >= self.rows.len() {
            self.rows.resize_with(place + 1, || Slowest::new(KEPT));
        }
        self.rows[place].note_of(ns, number, slow);
    }

    /// Joins each two neighbours.
    fn halve(&mut self) {
        let joined = |two: &[Slowest]| {
            let mut first = two[0].clone();
            two[1..].iter().for_each(|next| first.join(next));
            first
        };
        self.rows = self.rows.chunks(2).map(joined).collect();
        self.width = self.width.saturating_mul(2);
    }

    /// Tells of each row of the series, most of which are so many ns long, where the time
    /// of its slowest went.
    pub fn tell(mut self, rows: &mut [Row], width: u64) {
        // The series went on after the last request.
        while self.width < width {
            self.halve();
        }
        let last = rows.len().saturating_sub(1);
        for (number, row) in rows.iter_mut().enumerate() {
            let mut kept = self.rows.get(number).cloned();
            // The series may have a short last row in the one before.
            if let Some(kept) = kept.as_mut().filter(|_| number == last) {
                self.rows.iter().skip(number + 1).for_each(|next| kept.join(next));
            }
            row.tail = kept.as_ref().and_then(tail);
        }
    }
}

/// Where the time of these went; none where there are none.
fn tail(slowest: &Slowest) -> Option<Tail> {
    let all = slowest.all();
    let from_ns = all.last()?.story.ns();
    let mut sum = StorySum::default();
    all.iter().for_each(|slow| sum.note(&slow.story));
    // Sixteen of 36 years each are more.
    let number = |ns: u128| u64::try_from(ns).unwrap_or(u64::MAX);
    let part = |(part, behind, ns)| TailPart { part, behind, ns: number(ns) };
    let parts = sum.parts().map(part).collect();
    Some(Tail { requests: all.len() as u64, from_ns, ns: number(sum.ns()), parts })
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::{Gauges, Series};
    use port::{BlockOp, Part, Story, random};

    /// Beside a series of the same requests, of any length: each row has the slowest of
    /// all that are in it, and their parts sum to their time.
    #[test]
    fn a_row_has_the_slowest_of_all_its_requests() {
        for (seconds, each) in [(3, 50), (MAX_ROWS as u64 + 41, 3), (4 * MAX_ROWS as u64, 2)] {
            let start = Time(77);
            let (mut tails, mut random) = (Tails::new(start), random::Random::new(1, 1));
            let mut series = Series::new(start.0, Gauges::default());
            let (mut all, mut whole) = (Vec::new(), Default::default());
            for n in 0..seconds * each {
                let at = start + n * ROW_NS / each;
                let (array, link) = (random.bits() % 90, 1 + random.bits() % 9);
                let mut story = Story::at(Time(5));
                story.add(Part::Array, array);
                story.add(Part::Link, link);
                series.go_on(at.0, Gauges::default, &mut whole);
                series.record(0, array + link);
                let slow = || Slow::new(BlockOp::Read, n, 4096, story);
                tails.note(at, array + link, n, slow);
                all.push((n as f64 / each as f64, array + link, array));
            }
            // The last is a short row, which is in the one before.
            let end = start + (seconds - 1) * ROW_NS + ROW_NS / 2;
            let end = Time(end.0.max(start.0 + (seconds * each - 1) * ROW_NS / each));
            let finished = series.finish(end.0, Gauges::default(), &mut whole);
            let width = finished.width();
            let mut rows = finished.rows(ROW_NS);
            tails.tell(&mut rows, width);
            for row in &rows {
                let end = row.second + row.seconds;
                let is_last = end == rows.last().map_or(0.0, |row| row.second + row.seconds);
                let of = all.iter().filter(|one| one.0 >= row.second && (one.0 < end || is_last));
                let mut of: Vec<_> = of.collect();
                assert_eq!(of.len() as u64, row.ios);
                of.sort_by_key(|one| std::cmp::Reverse(one.1));
                of.truncate(KEPT);
                let tail = row.tail.as_ref().unwrap();
                assert_eq!(tail.requests, of.len() as u64);
                assert_eq!(tail.ns, of.iter().map(|one| one.1).sum::<u64>());
                assert_eq!(tail.from_ns, of.last().unwrap().1);
                assert_eq!(tail.ns, tail.parts.iter().map(|part| part.ns).sum::<u64>());
            }
        }
    }

    /// A series whose rows are joined after the last request, too.
    #[test]
    fn rows_that_are_joined_at_the_end_have_the_slowest_of_both() {
        let (mut series, mut whole) = (Series::new(0, Gauges::default()), Default::default());
        let mut tails = Tails::new(Time(0));
        for second in 0..MAX_ROWS as u64 - 1 {
            let mut story = Story::at(Time(second * ROW_NS));
            story.add(Part::Array, 1 + second);
            series.go_on(second * ROW_NS, Gauges::default, &mut whole);
            series.record(0, 1 + second);
            let slow = || Slow::new(BlockOp::Read, second, 512, story);
            tails.note(Time(second * ROW_NS), 1 + second, second, slow);
        }
        let finished = series.finish(MAX_ROWS as u64 * ROW_NS, Gauges::default(), &mut whole);
        let width = finished.width();
        let mut rows = finished.rows(0);
        tails.tell(&mut rows, width);
        assert_eq!((width, rows.len()), (2 * ROW_NS, MAX_ROWS / 2));
        for (n, row) in rows.iter().enumerate() {
            let (tail, second) = (row.tail.as_ref().unwrap(), 2 * n as u64);
            assert_eq!((tail.requests, tail.from_ns), (row.ios, 1 + second), "{n}");
        }
    }

    #[test]
    fn a_row_without_requests_has_no_tail() {
        let mut tails = Tails::new(Time(0));
        let (mut series, mut whole) = (Series::new(0, Gauges::default()), Default::default());
        for at in [0, 2 * ROW_NS] {
            let mut story = Story::at(Time(at));
            story.add(Part::Array, 5);
            series.go_on(at, Gauges::default, &mut whole);
            series.record(0, 5);
            tails.note(Time(at), 5, 0, || Slow::new(BlockOp::Read, 0, 512, story));
        }
        let mut rows = series.finish(3 * ROW_NS, Gauges::default(), &mut whole).rows(0);
        tails.tell(&mut rows, ROW_NS);
        let kept = rows.iter().map(|row| row.tail.as_ref().map_or(0, |tail| tail.requests));
        assert_eq!(kept.collect::<Vec<_>>(), [1, 0, 1]);
    }
}
