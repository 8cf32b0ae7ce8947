//! Where the winner changes: found, beside where the parts say that it does.
//!
//! Both are measured in each round, one after the other, so that what the machine is like at the
//! moment is in both; what is told is the middle of the rounds, and how far they lie apart.

use std::time::{Duration, Instant};

use measure::units;
use serde_json::{Value, json};

use super::checkpoint::{KeepError, Keeper};
use super::map::By;
use super::program::{Program, Strategy};
use super::samples::{Samples, zero};
use super::terms::{Terms, there_and_back};

/// Where two strategies cost the same.
pub struct BreakEven {
    /// The one that wins below.
    pub below: Strategy,
    /// The one that wins above.
    pub above: Strategy,
    /// By what.
    pub by: By,
    /// What is looked for: the device's time in ns, or instructions.
    pub unit: &'static str,
    /// Where it was found, by round.
    pub measured: Samples,
    /// Where the parts said, by round.
    pub predicted: Samples,
    /// Of each round, the one by the other.
    pub ratios: Samples,
}

/// What is said of a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Within [`NEAR`] of what was found.
    Near,
    /// Farther.
    Off,
    /// Rounds lie too far apart to say.
    Undecided,
}

impl Verdict {
    /// In words.
    pub fn says(self) -> &'static str {
        match self {
            Verdict::Near => "within 20 %",
            Verdict::Off => "off by more than 20 %",
            Verdict::Undecided => "undecided within noise",
        }
    }
}

/// As far from what was found a prediction may be.
pub const NEAR: f64 = 0.2;
/// Rounds of each.
const ROUNDS: usize = 11;
/// Rounds of which something must be found to say anything.
const FEWEST: usize = 3;
/// Runs at each place, of which the middle one counts.
const RUNS: usize = 3;
/// Rounds end after so long, on a machine where all takes longer.
const LONGEST: Duration = Duration::from_secs(20);
/// Rounds before, which find out where to look.
const FIRST: usize = 1;
/// Where is looked, by where it may be.
const FACTORS: [f64; 5] = [0.6, 0.8, 1.0, 1.3, 1.6];
/// How long a run takes at least, ns, where it is of no more iterations than that.
const RUN: f64 = 1e6;
/// What cannot be overlapped of a checkpoint must take so long that a program could make up for it, ns.
const LEAST: f64 = 1_000.0;

impl BreakEven {
    /// Of all rounds: the middle one's prediction by what was found, less noise of the median.
    pub fn verdict(&self) -> Verdict {
        let (ratio, noise) = (self.ratios.median(), self.noise());
        let distance = (ratio - 1.0).abs();
        match self.ratios.count() >= FEWEST && (distance - NEAR).abs() > noise {
            true if distance < NEAR => Verdict::Near,
            true => Verdict::Off,
            // Also where nothing was found.
            false => Verdict::Undecided,
        }
    }

    /// How far from each other rounds are: as much as a median of them may be wrong by.
    pub fn noise(&self) -> f64 {
        self.ratios.noise()
    }

    /// As a line.
    pub fn to_text(&self) -> String {
        let show = |value: f64| match self.unit {
            "ns" => units::time_ns(value),
            _ => units::count(value),
        };
        let at = if self.unit == "ns" { "a device of" } else { "instructions:" };
        let (from, to) = (self.below.name(), self.above.name());
        let by = self.by.name();
        if self.ratios.count() < FEWEST {
            return format!("  {from} to {to} by {by}: not found, {}\n", self.verdict().says());
        }
        format!(
            "  {from} to {to} by {by}: {at} {}, predicted {} ({:+.0} %, noise {:.0} %: {})\n",
            show(self.measured.median()),
            show(self.predicted.median()),
            100.0 * (self.ratios.median() - 1.0),
            100.0 * self.noise(),
            self.verdict().says(),
        )
    }

    /// By names.
    pub fn to_json(&self) -> Value {
        json!({
            "below": self.below.name(),
            "above": self.above.name(),
            "by": self.by.name(),
            "unit": self.unit,
            "measured": self.measured.median(),
            "predicted": self.predicted.median(),
            "ratio": self.ratios.median(),
            "noise": self.noise(),
            "rounds": self.ratios.count(),
            "verdict": self.verdict().says(),
        })
    }
}

/// What is measured with.
struct Bench<'a> {
    keeper: &'a mut Keeper,
    is_read: bool,
    terms: &'a Terms,
    /// Instructions behind an I/O where a device is looked for.
    instructions: u64,
}

/// One that is looked for.
struct Sought {
    below: Strategy,
    above: Strategy,
    by: By,
    unit: &'static str,
    around: f64,
    /// Where the parts say that it is, by what they said last.
    says: fn(&mut Bench, f64) -> Result<f64, KeepError>,
    /// By how much the one above is cheaper there.
    gain: fn(&mut Bench, f64) -> Result<f64, KeepError>,
}

/// Where the winner changes with these parts: from polling to sleeping, and of writes from polling to a checkpoint.
pub fn break_evens(
    is_read: bool,
    terms: &Terms,
    keeper: &mut Keeper,
) -> Result<Vec<BreakEven>, KeepError> {
    let all = [
        // The device from which on sleeping takes less of the processor.
        Sought {
            below: Strategy::Block,
            above: Strategy::Yield,
            by: By::Processor,
            unit: "ns",
            around: terms.switch,
            says: |bench, last| Ok(bench.slept(last)? - bench.terms.io),
            gain: |bench, device| {
                let polled = Program::new(device as u64, bench.is_read).run(
                    Strategy::Block,
                    0,
                    100,
                    bench.keeper,
                )?;
                Ok(polled.processor - bench.slept(device)?)
            },
        },
        // The device from which on a checkpoint takes less time, where as much is computed as it takes.
        Sought {
            below: Strategy::Block,
            above: Strategy::Checkpoint,
            by: By::Time,
            unit: "ns",
            around: terms.checkpoint,
            says: |bench, _| {
                Ok(there_and_back(bench.is_read, bench.instructions, bench.keeper)?.wall)
            },
            gain: |bench, device| bench.won(device, bench.instructions),
        },
        // The computing from which on it does, on a device that takes longer than it: what is not
        // overlapped must be won.
        Sought {
            below: Strategy::Block,
            above: Strategy::Checkpoint,
            by: By::Time,
            unit: "instructions",
            around: terms.end / terms.instruction,
            says: |bench, _| {
                let terms = Terms::of_checkpoint(bench.instructions, bench.keeper)?;
                Ok(terms.1 / bench.terms.instruction)
            },
            gain: |bench, instructions| {
                bench.won(4.0 * bench.terms.checkpoint, instructions as u64)
            },
        },
    ];
    let instructions = terms.behind();
    let mut bench = Bench { keeper, is_read, terms, instructions };
    let is_sought = |sought: &Sought| match (sought.above, sought.unit) {
        (Strategy::Checkpoint, "instructions") => !is_read && terms.end >= LEAST,
        (Strategy::Checkpoint, _) => !is_read,
        _ => true,
    };
    all.into_iter().filter(is_sought).map(|sought| sought.find(&mut bench)).collect()
}

/// The same of a program that writes, with its parts measured before.
pub fn of_writes(keeper: &mut Keeper) -> Result<Vec<BreakEven>, KeepError> {
    let mut terms = vec![Terms::once(false, None, keeper)?];
    for n in 0..3 {
        terms.push(Terms::once(false, Some(&terms[n]), keeper)?);
    }
    break_evens(false, &Terms::median(&terms[1..]), keeper)
}

impl Bench<'_> {
    /// What an I/O takes of the processor that is slept for.
    fn slept(&mut self, device: f64) -> Result<f64, KeepError> {
        let mut program = Program::new(device as u64, self.is_read);
        Ok(program.run(Strategy::Yield, 0, 100, self.keeper)?.processor)
    }

    /// By how much an iteration is shorter behind a checkpoint.
    fn won(&mut self, device: f64, instructions: u64) -> Result<f64, KeepError> {
        let mut program = Program::new(device as u64, false);
        let each = device + self.terms.checkpoint + self.terms.instruction * instructions as f64;
        let count = (RUN / each).clamp(5.0, 100.0) as u32;
        let polled = program.run(Strategy::Block, instructions, count, self.keeper)?;
        let held = program.run(Strategy::Checkpoint, instructions, count, self.keeper)?;
        Ok(polled.wall - held.wall)
    }
}

impl Sought {
    fn find(self, bench: &mut Bench) -> Result<BreakEven, KeepError> {
        let (mut around, mut says) = (self.around, self.around);
        let (mut measured, mut predicted, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        let began = Instant::now();
        for round in 0..FIRST + ROUNDS {
            if began.elapsed() > LONGEST {
                break;
            }
            says = (self.says)(bench, says)?;
            let mut points = [(0.0, 0.0); FACTORS.len()];
            for (point, factor) in points.iter_mut().zip(FACTORS) {
                let at = around * factor;
                let runs: Result<Vec<f64>, _> = (0..RUNS).map(|_| (self.gain)(bench, at)).collect();
                *point = (at, Samples::new(runs?).median());
            }
            let Some(found) = zero(&points) else { continue };
            if round < FIRST {
                around = found.clamp(around / 4.0, around * 4.0);
                continue;
            }
            measured.push(found);
            predicted.push(says);
            ratios.push(says / found);
        }
        let [measured, predicted, ratios] = [measured, predicted, ratios].map(Samples::new);
        let Sought { below, above, by, unit, .. } = self;
        Ok(BreakEven { below, above, by, unit, measured, predicted, ratios })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ratios: &[f64]) -> BreakEven {
        BreakEven {
            below: Strategy::Block,
            above: Strategy::Yield,
            by: By::Processor,
            unit: "ns",
            measured: Samples::new(ratios.iter().map(|_| 10_000.0)),
            predicted: Samples::new(ratios.iter().map(|ratio| 10_000.0 * ratio)),
            ratios: Samples::new(ratios.iter().copied()),
        }
    }

    #[test]
    fn what_lies_nearer_to_the_edge_than_rounds_to_each_other_is_undecided() {
        assert_eq!(of(&[0.95, 1.0, 1.05]).verdict(), Verdict::Near);
        assert_eq!(of(&[1.45, 1.5, 1.55]).verdict(), Verdict::Off);
        assert_eq!(of(&[0.45, 0.5, 0.55]).verdict(), Verdict::Off);
        assert_eq!(of(&[1.05, 1.15, 1.3]).verdict(), Verdict::Undecided);
        assert_eq!(of(&[0.5, 1.0, 1.6]).verdict(), Verdict::Undecided);
        let none = of(&[]);
        assert_eq!(none.verdict(), Verdict::Undecided);
        assert!(none.to_text().contains("not found"), "{}", none.to_text());
        let text = of(&[0.95, 1.0, 1.05]).to_text();
        assert!(text.contains("a device of 10.0 us, predicted 10.0 us (+0 %"), "{text}");
    }
}
