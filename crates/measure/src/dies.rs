//! How busy each die was, over drive time.
//!
//! Guarantees: memory is bounded for any length of run. At [`MOST_SPANS`] spans of time
//! each two neighbours become one, and spans are twice as long from then on. What is told
//! of a span is what its die did in it, of no other. Looking costs one comparison where
//! nothing is due. Nothing here fails.

use serde::Serialize;

/// The most spans that are kept.
pub const MOST_SPANS: usize = 64;
/// How long a span is at first.
const FIRST_NS: u64 = 1_000_000;

/// How long each die had worked at some time, in ns.
#[derive(Clone, Debug)]
struct Look {
    at: u64,
    worked: Vec<u64>,
}

/// What dies did, in the making.
#[derive(Clone, Debug)]
pub struct Dies {
    start: u64,
    width: u64,
    next: u64,
    /// The first is of the start.
    looks: Vec<Look>,
}

/// How busy dies were.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Busy {
    /// The end of each span, in seconds since the start.
    pub ends: Vec<f64>,
    /// Of each die a line: in each span, the part of it in which its array worked, in
    /// percent.
    pub busy: Vec<String>,
}

impl Dies {
    /// From `start_ns` on, when each die had worked so long.
    pub fn new(start_ns: u64, worked: Vec<u64>) -> Dies {
        let mut looks = Vec::with_capacity(MOST_SPANS + 1);
        looks.push(Look { at: start_ns, worked });
        Dies { start: start_ns, width: FIRST_NS, next: start_ns.saturating_add(FIRST_NS), looks }
    }

    /// Whether it is time to look.
    #[inline]
    pub fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.next
    }

    /// Each die has worked so long.
    pub fn look(&mut self, now_ns: u64, worked: Vec<u64>) {
        if self.looks.last().is_some_and(|last| last.at >= now_ns) {
            return;
        }
        self.looks.push(Look { at: now_ns, worked });
        if self.looks.len() > MOST_SPANS {
            let mut number = 0;
            self.looks.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.width = self.width.saturating_mul(2);
        }
        let spans = now_ns.saturating_sub(self.start) / self.width + 1;
        self.next = self.start.saturating_add(spans.saturating_mul(self.width));
    }

    /// The end: each die has worked so long. What is too short to be a span is in the
    /// one before.
    pub fn finish(&mut self, now_ns: u64, worked: Vec<u64>) {
        let last = self.looks.last().map_or(self.start, |last| last.at);
        if self.looks.len() > 1 && now_ns.saturating_sub(last) < self.width / 2 {
            self.looks.pop();
        }
        self.look(now_ns, worked);
    }

    /// How busy they were.
    pub fn busy(&self) -> Busy {
        let ends = self.looks.iter().skip(1);
        let ends = ends.map(|look| (look.at - self.start) as f64 / 1e9).collect();
        let dies = self.looks.first().map_or(0, |first| first.worked.len());
        let percent = |die: usize, two: &[Look]| {
            let of = |look: &Look| look.worked.get(die).copied().unwrap_or_default();
            let worked = of(&two[1]).saturating_sub(of(&two[0]));
            (100.0 * worked as f64 / (two[1].at - two[0].at) as f64).round().to_string()
        };
        let line =
            |die| -> Vec<String> { self.looks.windows(2).map(|two| percent(die, two)).collect() };
        Busy { ends, busy: (0..dies).map(|die| line(die).join(" ")).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_share_is_of_its_span() {
        let mut dies = Dies::new(5 * MS, vec![7, 100]);
        assert!(!dies.is_due(6 * MS - 1) && dies.is_due(6 * MS));
        dies.look(6 * MS, vec![7 + MS / 4, 100]);
        // Nothing was due for long.
        assert!(!dies.is_due(7 * MS - 1));
        dies.look(10 * MS, vec![7 + MS / 4 + 2 * MS, 100 + 4 * MS]);
        dies.finish(10 * MS + MS / 4, vec![7 + 5 * MS / 2, 100 + 4 * MS]);
        let busy = dies.busy();
        assert_eq!(busy.ends, [0.001, 0.00525]);
        assert_eq!(busy.busy, ["25 53", "0 94"]);
    }

    proptest! {
        /// However long it takes: spans are few, follow each other to the end, and have
        /// all that was worked.
        #[test]
        fn spans_are_bounded_and_nothing_is_lost(
            gaps in prop::collection::vec(1u64..30 * MS, 1..500),
            long in 0u64..u64::MAX / 4,
        ) {
            let (mut dies, mut at) = (Dies::new(3, vec![0]), 3);
            for gap in gaps.into_iter().chain([long]) {
                at += gap;
                if dies.is_due(at) {
                    dies.look(at, vec![(at - 3) / 2]);
                }
            }
            dies.finish(at, vec![(at - 3) / 2]);
            let busy = dies.busy();
            prop_assert!(busy.ends.len() <= MOST_SPANS && busy.ends.is_sorted());
            prop_assert_eq!(*busy.ends.last().unwrap(), (at - 3) as f64 / 1e9);
            prop_assert_eq!(busy.busy[0].split(' ').count(), busy.ends.len());
            prop_assert!(busy.busy[0].split(' ').all(|share| share == "50"), "{}", busy.busy[0]);
        }
    }
}
