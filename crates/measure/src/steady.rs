//! Whether a drive has settled: the steady-state rule, after the Performance
//! Test Specification of SNIA.
//!
//! Guarantees: steady means that over the last rounds, [`WINDOW`] unless fewer
//! or more are asked for, the highest value is at most 20 % of the mean above
//! the lowest, and the least-squares line through them rises or falls by at
//! most 10 % of the mean across the window. Where rounds tell their write amplification, the line through that
//! must also rise or fall by less than 0.5 % of its mean for each overwrite of
//! the drive: IOPS may look settled long before collection is. It is the line
//! that counts and not the last two rounds, since collection comes in waves,
//! and a round catches more or less of one. After [`PATIENCE`] windows the search
//! is given up, and a report must say so. Values that are not numbers are never
//! steady.

/// The least drive time of a round, unless another is asked for, in ns.
pub const ROUND_NS: u64 = 60_000_000_000;
/// Rounds that are looked at, unless others are asked for.
pub const WINDOW: usize = 5;
/// The fewest rounds that can be asked for: two lie on any line.
pub const LEAST_WINDOW: usize = 3;
/// Windows after which the search is given up.
pub const PATIENCE: usize = 5;
/// How far the values may lie apart, in parts of their mean.
const RANGE_LIMIT: f64 = 0.20;
/// How much the line may rise or fall across the window, in parts of the mean.
const RISE_LIMIT: f64 = 0.10;
/// How much the line through the write amplification may rise or fall in one
/// overwrite of the drive, in parts of its mean.
const DRIFT_LIMIT: f64 = 0.005;

/// What one round of the workload gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round {
    /// What must settle: usually I/Os per second.
    pub value: f64,
    /// Write amplification over this round; `None` when nothing was written.
    pub write_amplification: Option<f64>,
    /// How often the round wrote the drive's logical capacity.
    pub overwrites: f64,
}

/// What to do after a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Run another round.
    Continue,
    /// The drive is steady.
    Reached,
    /// It was not steady in [`PATIENCE`] windows.
    GaveUp,
}

/// The arithmetic of the last rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// The mean value.
    pub mean: f64,
    /// Highest less lowest, in parts of the mean.
    pub range: f64,
    /// How much the least-squares line rises across the window, in parts of
    /// the mean; below zero when it falls.
    pub rise: f64,
    /// How much the least-squares line through the write amplification rises or
    /// falls for each overwrite of the drive, in parts of its mean; `None` when
    /// the rounds do not tell.
    pub drift: Option<f64>,
}

/// The search for the steady state.
#[derive(Clone, Debug)]
pub struct Steady {
    rounds: Vec<Round>,
    window: usize,
}

impl Default for Steady {
    fn default() -> Steady {
        Steady::new(WINDOW)
    }
}

impl Steady {
    /// A search that has seen no round, and looks at the last `window`: at
    /// least [`LEAST_WINDOW`].
    pub fn new(window: usize) -> Steady {
        let window = window.max(LEAST_WINDOW);
        Steady { rounds: Vec::with_capacity(window * PATIENCE), window }
    }

    /// Takes the next round and judges. Rounds after the search was given up
    /// are not taken.
    pub fn push(&mut self, round: Round) -> Verdict {
        if self.rounds.len() < self.window * PATIENCE {
            self.rounds.push(round);
        }
        self.verdict()
    }

    /// How many rounds were taken.
    pub fn rounds(&self) -> usize {
        self.rounds.len()
    }

    /// The last round.
    pub fn last(&self) -> Option<&Round> {
        self.rounds.last()
    }

    /// What the rounds so far say.
    pub fn verdict(&self) -> Verdict {
        match self.window() {
            Some(w) if w.is_steady() => Verdict::Reached,
            _ if self.rounds.len() >= self.window * PATIENCE => Verdict::GaveUp,
            _ => Verdict::Continue,
        }
    }

    /// The arithmetic of the last rounds; `None` before there are enough.
    pub fn window(&self) -> Option<Window> {
        let last = &self.rounds[self.rounds.len().checked_sub(self.window)?..];
        let values: Vec<f64> = last.iter().map(|r| r.value).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        Some(Window {
            mean,
            range: (high - low) / mean,
            rise: slope(&values) * (values.len() - 1) as f64 / mean,
            drift: drift(last),
        })
    }
}

impl Window {
    /// Whether the rule holds.
    fn is_steady(&self) -> bool {
        // Written so that a value that is not a number fails.
        self.mean > 0.0
            && self.range <= RANGE_LIMIT
            && self.rise.abs() <= RISE_LIMIT
            && self.drift.is_none_or(|d| d < DRIFT_LIMIT)
    }
}

/// The slope of the least-squares line through values one round apart.
fn slope(values: &[f64]) -> f64 {
    let middle = (values.len() - 1) as f64 / 2.0;
    let distance = |i: usize| i as f64 - middle;
    let along: f64 = values.iter().enumerate().map(|(i, v)| distance(i) * v).sum();
    let spread: f64 = (0..values.len()).map(|i| distance(i) * distance(i)).sum();
    along / spread
}

/// How much the line through the write amplification of the rounds rises or
/// falls for each overwrite of the drive, in parts of its mean.
fn drift(rounds: &[Round]) -> Option<f64> {
    let values: Option<Vec<f64>> = rounds.iter().map(|r| r.write_amplification).collect();
    let (values, n) = (values?, rounds.len() as f64);
    let mean = values.iter().sum::<f64>() / n;
    let overwrites = rounds.iter().map(|r| r.overwrites).sum::<f64>() / n;
    (overwrites > 0.0).then(|| (slope(&values) / mean).abs() / overwrites)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(values: &[f64]) -> (Steady, Verdict) {
        let mut steady = Steady::default();
        let round = |&value: &f64| Round { value, write_amplification: None, overwrites: 0.0 };
        let verdict = values.iter().map(round).fold(Verdict::Continue, |_, r| steady.push(r));
        (steady, verdict)
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-12
    }

    #[test]
    fn needs_five_rounds() {
        assert_eq!(run(&[100.0; 4]).1, Verdict::Continue);
        assert_eq!(run(&[100.0; 5]).1, Verdict::Reached);
    }

    #[test]
    fn fewer_rounds_can_be_asked_for() {
        let verdicts = |window: usize, rounds: usize| {
            let mut steady = Steady::new(window);
            let round = Round { value: 9.0, write_amplification: None, overwrites: 0.0 };
            (0..rounds).map(|_| steady.push(round)).last().unwrap()
        };
        assert_eq!((verdicts(3, 2), verdicts(3, 3)), (Verdict::Continue, Verdict::Reached));
        assert_eq!((verdicts(8, 7), verdicts(8, 8)), (Verdict::Continue, Verdict::Reached));
        // Two lie on any line.
        assert_eq!((verdicts(1, 2), verdicts(1, 3)), (Verdict::Continue, Verdict::Reached));
        let mut wild = Steady::new(3);
        let round = |i: usize| Round {
            value: [1.0, 9.0][i % 2],
            write_amplification: None,
            overwrites: 0.0,
        };
        let all: Vec<Verdict> = (0..20).map(|i| wild.push(round(i))).collect();
        assert_eq!((all[13], all[14], wild.rounds()), (Verdict::Continue, Verdict::GaveUp, 15));
    }

    #[test]
    fn the_arithmetic_by_hand() {
        // Mean 104; 112 - 96 = 16; slope (-2*100 - 96 + 104 + 2*112)/10 = 3.2.
        let (steady, verdict) = run(&[100.0, 96.0, 108.0, 104.0, 112.0]);
        let w = steady.window().unwrap();
        assert!(near(w.mean, 104.0));
        assert!(near(w.range, 16.0 / 104.0));
        assert!(near(w.rise, 3.2 * 4.0 / 104.0));
        // 12.3 % of rise is too much.
        assert_eq!(verdict, Verdict::Continue);
    }

    #[test]
    fn limits_are_included() {
        // Mean 100, slope 0.
        assert_eq!(run(&[100.0, 90.0, 110.0, 110.0, 90.0]).1, Verdict::Reached, "range 20 %");
        assert_eq!(run(&[100.0, 110.0, 80.0, 110.0, 100.0]).1, Verdict::Continue, "range 30 %");
        // Slope 2.5, rise exactly 10 % of 100.
        assert_eq!(run(&[95.0, 97.5, 100.0, 102.5, 105.0]).1, Verdict::Reached);
        assert_eq!(run(&[94.0, 97.5, 100.0, 102.5, 106.0]).1, Verdict::Continue);
        assert_eq!(run(&[106.0, 102.5, 100.0, 97.5, 94.0]).1, Verdict::Continue, "falling counts");
    }

    #[test]
    fn only_the_last_five_count() {
        let (steady, verdict) = run(&[900.0, 500.0, 100.0, 100.0, 100.0, 100.0, 100.0]);
        assert_eq!((steady.rounds(), verdict), (7, Verdict::Reached));
    }

    #[test]
    fn gives_up_after_the_limit() {
        let wild: Vec<f64> = (0..24).map(|i| if i % 2 == 0 { 50.0 } else { 150.0 }).collect();
        assert_eq!(run(&wild).1, Verdict::Continue);
        let wild: Vec<f64> = (0..30).map(|i| if i % 2 == 0 { 50.0 } else { 150.0 }).collect();
        let (steady, verdict) = run(&wild);
        assert_eq!((steady.rounds(), verdict), (25, Verdict::GaveUp));
    }

    #[test]
    fn no_number_is_steady_only_if_it_is_one() {
        assert_eq!(run(&[f64::NAN; 5]).1, Verdict::Continue);
        assert_eq!(run(&[f64::INFINITY; 5]).1, Verdict::Continue);
        assert_eq!(run(&[0.0; 5]).1, Verdict::Continue);
    }

    fn with_write_amplification(values: [f64; WINDOW], overwrites: f64) -> Verdict {
        let mut steady = Steady::default();
        let round = |wa| Round { value: 9.0, write_amplification: Some(wa), overwrites };
        values.map(|wa| steady.push(round(wa)))[WINDOW - 1]
    }

    #[test]
    fn write_amplification_must_settle_too() {
        // 0.4 % a round: in one overwrite, or in half a one.
        let rises = [1.984, 1.992, 2.0, 2.008, 2.016];
        assert_eq!(with_write_amplification(rises, 1.0), Verdict::Reached);
        assert_eq!(with_write_amplification(rises, 0.5), Verdict::Continue);
        let falls = [2.024, 2.012, 2.0, 1.988, 1.976];
        assert_eq!(with_write_amplification(falls, 1.0), Verdict::Continue);
        assert_eq!(with_write_amplification(falls, 2.0), Verdict::Reached);
        // Rounds that wrote nothing say nothing.
        assert_eq!(with_write_amplification(falls, 0.0), Verdict::Reached);
    }

    /// A drive of few chunks collects in waves: its rounds went up and down by
    /// 2.5 % for ever, and were never steady as long as two of them counted.
    #[test]
    fn waves_of_collection_are_steady() {
        let waves = [1.983, 2.033, 1.983, 2.031, 1.987];
        assert_eq!(with_write_amplification(waves, 4.0), Verdict::Reached);
    }
}
