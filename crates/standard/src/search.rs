//! Rounds until the drive is steady.
//!
//! The rule is that of `measure::Steady`, for each value that is tracked: over the last
//! rounds, five unless the test is quick, the highest is at most 20 % of the mean above
//! the lowest, and the least-squares line rises or falls by at most 10 % of the mean (SNIA's
//! Performance Test Specification); of a drive that tells its write amplification, that
//! has settled, too. After five windows of rounds the search is given up.

use measure::{Round, Steady, Verdict, Window};
use serde_json::{Value, json};

use crate::curve::Curve;
use crate::session::{Halt, NOT_COLLECTED, Session};
use crate::table::Unit;

/// A value that must settle.
#[derive(Clone, Debug)]
pub struct Track {
    /// What it is.
    pub what: String,
    /// What it is of.
    pub unit: Unit,
    /// What each round gave.
    pub values: Vec<f64>,
    steady: Steady,
}

impl Track {
    /// The arithmetic of the last rounds; none before there are enough.
    pub fn window(&self) -> Option<Window> {
        self.steady.window()
    }

    /// The value of each round, in a line: of many the last.
    fn values_text(&self) -> String {
        const SHOWN: usize = 8;
        let skipped = self.values.len().saturating_sub(SHOWN);
        let shown: Vec<String> =
            self.values[skipped..].iter().map(|&value| self.unit.text(value)).collect();
        format!("{}{}", if skipped > 0 { "… " } else { "" }, shown.join(", "))
    }
}

/// A search for the steady state.
#[derive(Clone, Debug)]
pub struct Search {
    /// What it is of, where a test has several.
    pub of: String,
    /// What had to settle.
    pub tracks: Vec<Track>,
    /// Rounds.
    pub rounds: usize,
    /// Rounds that had to agree.
    pub window: usize,
    /// Whether all did.
    pub reached: bool,
    /// What a round was, in words.
    pub each: String,
}

impl Search {
    /// One that has seen no round.
    pub fn new(window: usize, each: String, tracked: &[(&str, Unit)]) -> Search {
        let track = |&(what, unit): &(&str, Unit)| Track {
            what: what.into(),
            unit,
            values: Vec::new(),
            steady: Steady::new(window),
        };
        let tracks = tracked.iter().map(track).collect();
        Search { of: String::new(), tracks, rounds: 0, window, reached: false, each }
    }

    /// Takes what a round gave: a value for each track, its write amplification, and how
    /// often it wrote the drive. Gives whether to go on.
    pub fn push(&mut self, values: &[f64], amplification: Option<f64>, overwrites: f64) -> bool {
        assert_eq!(values.len(), self.tracks.len(), "a value for each");
        self.rounds += 1;
        let mut verdicts = Vec::new();
        for (track, &value) in self.tracks.iter_mut().zip(values) {
            track.values.push(value);
            let round = Round { value, write_amplification: amplification, overwrites };
            verdicts.push(track.steady.push(round));
        }
        self.reached = verdicts.iter().all(|&verdict| verdict == Verdict::Reached);
        !self.reached && !self.is_at_its_end()
    }

    /// Whether it has seen all rounds that it may.
    pub fn is_at_its_end(&self) -> bool {
        self.rounds >= self.window * measure::steady::PATIENCE
    }

    /// The first round of the last window, counted from 0.
    pub fn first(&self) -> usize {
        self.rounds.saturating_sub(self.window)
    }

    /// What it is of, where that is said, and what follows it then.
    fn prefix(&self, then: &str) -> String {
        if self.of.is_empty() { String::new() } else { format!("{}{then}", self.of) }
    }

    /// What is told of it, by line.
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let most = self.window * measure::steady::PATIENCE;
        let mut lines = vec![(
            "rounds",
            format!(
                "{}{} of at most {most}, each {}; figures are of rounds {} to {}",
                self.prefix(": "),
                self.rounds,
                self.each,
                self.first() + 1,
                self.rounds
            ),
        )];
        for track in &self.tracks {
            lines.push(("tracked", format!("{}: {}", track.what, track.values_text())));
            let Some(Window { range, rise, drift, .. }) = track.window() else { continue };
            let drift = drift.map_or(String::new(), |drift| {
                format!(", write amplification {:.2} % an overwrite (at most 0.50)", 100.0 * drift)
            });
            lines.push((
                "",
                format!(
                    "range {:.1} % (at most 20), rise {:.1} % (at most 10){drift}",
                    100.0 * range,
                    100.0 * rise
                ),
            ));
        }
        lines
    }

    /// A curve of each track.
    pub fn curves(&self) -> Vec<Curve> {
        let curve = |track: &Track| {
            let points = track.values.iter().enumerate();
            let points = points.map(|(n, &value)| ((n + 1) as f64, value)).collect();
            Curve::new(
                &(self.prefix(" ") + &track.what),
                ("round", Unit::Count),
                track.unit,
                points,
            )
        };
        self.tracks.iter().map(curve).collect()
    }

    /// As JSON.
    pub fn to_json(&self) -> Value {
        let track = |track: &Track| {
            let window = track.window();
            json!({
                "what": track.what,
                "unit": track.unit.name(),
                "values": track.values,
                "mean": window.map(|w| w.mean),
                "range": window.map(|w| w.range),
                "rise": window.map(|w| w.rise),
                "drift": window.and_then(|w| w.drift),
            })
        };
        json!({
            "of": self.of,
            "count": self.rounds,
            "window": self.window,
            "reached": self.reached,
            "each": self.each,
            "tracked": self.tracks.iter().map(track).collect::<Vec<_>>(),
        })
    }
}

impl Session<'_, '_> {
    /// Runs `round` until what it gives for each of `tracked` is steady, or that is given
    /// up. `each` says what a round is. Where its writes make the drive move data, as random
    /// ones do (`moves`), it is not steady before it has: rounds are flat until then, too.
    pub fn until_steady(
        &mut self,
        each: String,
        tracked: &[(&str, Unit)],
        moves: bool,
        mut round: impl FnMut(&mut Session, usize) -> Result<Vec<f64>, Halt>,
    ) -> Result<Search, Halt> {
        let mut search = Search::new(self.window(), each, tracked);
        loop {
            self.phase(&format!("until steady, round {}", search.rounds + 1));
            let before = self.wrote();
            let values = round(self, search.rounds)?;
            let (amplification, overwrites) = self.wrote().since(&before, self.bytes());
            search.push(&values, amplification, overwrites);
            let too_early = moves && !self.has_collected();
            search.reached &= !too_early;
            if search.reached || search.is_at_its_end() {
                if too_early {
                    self.note(NOT_COLLECTED);
                }
                return Ok(search);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(window: usize, values: &[[f64; 2]]) -> (Search, bool) {
        let tracked = [("reads", Unit::Iops), ("writes", Unit::Iops)];
        let mut search = Search::new(window, "a run".into(), &tracked);
        let mut goes_on = true;
        for values in values {
            assert!(goes_on, "{search:?}");
            goes_on = search.push(values, None, 0.0);
        }
        (search, goes_on)
    }

    /// By hand: of 100, 96, 108, 104, 112 the mean is 104, the range 16 / 104 and the line
    /// rises by 12.8 / 104, which is too much; the round after drops the 100.
    #[test]
    fn the_window_s_arithmetic_by_hand() {
        let rounds = [100.0, 96.0, 108.0, 104.0, 112.0].map(|value| [value, 50.0]);
        let (search, goes_on) = search(5, &rounds);
        assert!(goes_on && !search.reached);
        let window = search.tracks[0].window().unwrap();
        assert_eq!(window.mean, 104.0);
        assert!((window.range - 16.0 / 104.0).abs() < 1e-12);
        assert!((window.rise - 12.8 / 104.0).abs() < 1e-12);
        let lines = search.lines();
        assert_eq!(lines[0].1, "5 of at most 25, each a run; figures are of rounds 1 to 5");
        assert!(lines[2].1.starts_with("range 15.4 % (at most 20), rise 12.3 % (at most 10)"));
    }

    #[test]
    fn all_that_is_tracked_must_settle() {
        let (one, goes_on) = search(3, &[[5.0, 9.0], [5.0, 5.0], [5.0, 1.0]]);
        assert!(goes_on && !one.reached);
        let (both, goes_on) = search(3, &[[5.0, 9.0], [5.0, 5.0], [5.0, 5.0], [5.0, 5.0]]);
        assert!(!goes_on && both.reached && both.first() == 1);
    }

    #[test]
    fn a_drive_that_never_settles_is_given_up() {
        let wild: Vec<[f64; 2]> = (0..15).map(|n| [[1.0, 3.0][n % 2], 5.0]).collect();
        let (given_up, goes_on) = search(3, &wild);
        assert!(!goes_on && !given_up.reached && given_up.rounds == 15);
    }
}
