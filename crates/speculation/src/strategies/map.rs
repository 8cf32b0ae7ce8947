//! Which strategy wins where: measured in a grid of devices and of computing, beside what the
//! terms predict; and where the winner changes.

use std::fmt::Write;

use measure::units;
use serde_json::{Value, json};

use super::checkpoint::{KeepError, Keeper};
use super::even::{BreakEven, break_evens};
use super::program::{Cost, DEPTH, Program, Strategy};
use super::samples::Samples;
use super::terms::Terms;

/// By which a strategy wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The program's own time.
    Time,
    /// What it takes of the processor, which others could have.
    Processor,
}

impl By {
    fn of(self, cost: &Cost) -> f64 {
        match self {
            By::Time => cost.wall,
            By::Processor => cost.processor,
        }
    }

    /// What a map by it says.
    pub fn says(self) -> &'static str {
        match self {
            By::Time => "Who wins by the program's time",
            By::Processor => "Who wins by what the program takes of the processor",
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            By::Time => "time",
            By::Processor => "processor",
        }
    }
}

/// A device, and what is computed between its I/Os.
pub struct Cell {
    /// What the device takes, ns.
    device: u64,
    instructions: u64,
    of: Vec<Measured>,
}

/// What a strategy costs in a cell.
struct Measured {
    strategy: Strategy,
    runs: Vec<Cost>,
    predicted: Cost,
}

impl Measured {
    fn samples(&self, by: By) -> Samples {
        Samples::new(self.runs.iter().map(|cost| by.of(cost)))
    }

    fn cost(&self, by: By, is_measured: bool) -> f64 {
        if is_measured { self.samples(by).median() } else { by.of(&self.predicted) }
    }
}

/// Whether the winner is the predicted one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Agrees {
    Yes,
    /// The predicted one is behind by less than runs lie apart.
    Undecided,
    No,
}

/// The grid, and where the winner changes.
pub struct Map {
    strategies: &'static [Strategy],
    cells: Vec<Cell>,
    /// Where the winner changes.
    pub break_evens: Vec<BreakEven>,
}

/// Devices, ns, and instructions between two I/Os.
const DEVICES: [u64; 9] =
    [1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000];
const COMPUTE: [u64; 6] = [100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000];
/// How long a run takes at least, ns: short, so that many are between two turns of others.
const RUN: f64 = 1e6;
/// A cost that is so much lower wins; within, they are even.
const EVEN: f64 = 0.02;
/// Times that all is measured; of the quick map.
const ROUNDS: (usize, usize) = (7, 5);

impl Map {
    /// Measures the parts and all cells, by turns, and tells the parts of each turn.
    pub fn measure(
        is_read: bool,
        quick: bool,
        keeper: &mut Keeper,
    ) -> Result<(Map, Vec<Terms>), KeepError> {
        let strategies: &[Strategy] = if is_read { &Strategy::READS } else { &Strategy::WRITES };
        let mut cells = Map::empty(strategies, quick);
        // What they are like is found first, as some depend on where one looks.
        let mut before = Terms::once(is_read, None, keeper)?;
        before = Terms::once(is_read, Some(&before), keeper)?;
        let mut terms = Vec::new();
        for _ in 0..if quick { ROUNDS.1 } else { ROUNDS.0 } {
            terms.push(Terms::once(is_read, Some(&before), keeper)?);
            for cell in &mut cells {
                for of in &mut cell.of {
                    let (device, instructions) = (cell.device, cell.instructions);
                    let about = before.predict(of.strategy, device as f64, instructions).wall;
                    let least = if of.strategy.goes_on() { DEPTH as f64 } else { 3.0 };
                    let count = (RUN / about).clamp(least, 2000.0) as u32;
                    let mut program = Program::new(device, is_read);
                    of.runs.push(program.run(of.strategy, instructions, count, keeper)?);
                }
            }
        }
        let median = Terms::median(&terms);
        for cell in &mut cells {
            let (device, instructions) = (cell.device as f64, cell.instructions);
            let predict = |of: &Measured| median.predict(of.strategy, device, instructions);
            cell.of.iter_mut().for_each(|of| of.predicted = predict(of));
        }
        let break_evens = break_evens(is_read, &median, keeper)?;
        Ok((Map { strategies, cells, break_evens }, terms))
    }

    fn empty(strategies: &[Strategy], quick: bool) -> Vec<Cell> {
        let devices = DEVICES.into_iter().step_by(if quick { 4 } else { 1 });
        let of = |&strategy: &Strategy| Measured {
            strategy,
            runs: Vec::new(),
            predicted: Cost::default(),
        };
        let row = |device| {
            let compute = COMPUTE.into_iter().step_by(if quick { 2 } else { 1 });
            compute.map(move |instructions| Cell {
                device,
                instructions,
                of: strategies.iter().map(of).collect(),
            })
        };
        devices.flat_map(row).collect()
    }

    /// As maps, a letter for each cell.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for by in [By::Time, By::Processor] {
            let _ = writeln!(
                text,
                "\n{} (?: another was predicted; ~: so it was, within noise)",
                by.says()
            );
            let _ = write!(text, "  {:>9} |", "device");
            let compute: Vec<u64> = self.columns();
            compute.iter().for_each(|n| _ = write!(text, " {:>7}", units::count(*n as f64)));
            text += "  instructions\n";
            for row in self.rows() {
                let _ = write!(text, "  {:>9} |", units::time_ns(row[0].device as f64));
                for cell in row {
                    let letters: String =
                        cell.winners(by, true).iter().map(|winner| winner.letter()).collect();
                    let mark = match cell.agrees(by) {
                        Agrees::Yes => "",
                        Agrees::Undecided => "~",
                        Agrees::No => "?",
                    };
                    let _ = write!(text, " {:>7}", format!("{letters}{mark}"));
                }
                text.push('\n');
            }
            let (agreed, of) = (self.agreed(by), self.cells.len());
            let undecided = self.undecided(by);
            let _ = writeln!(
                text,
                "  as predicted: {agreed} of {of} cells, {undecided} undecided within noise"
            );
        }
        text += &self.gains();
        let names = self.strategies.iter().map(|s| format!("{} {}", s.letter(), s.name()));
        let _ = writeln!(text, "\n{}", names.collect::<Vec<_>>().join(", "));
        text += "\nWhere the winner changes\n";
        self.break_evens.iter().for_each(|even| text += &even.to_text());
        text
    }

    /// By how much who goes on without a checkpoint is faster than the winner.
    fn gains(&self) -> String {
        if !self.strategies.contains(&Strategy::Free) {
            return String::new();
        }
        let mut text = "\nTimes as fast, checkpoint-free, as the winner by time\n".to_owned();
        for row in self.rows() {
            let _ = write!(text, "  {:>9} |", units::time_ns(row[0].device as f64));
            for cell in row {
                let least = |goes_on: bool| {
                    let of = cell.of.iter().filter(|of| match goes_on {
                        true => of.strategy == Strategy::Free,
                        false => !of.strategy.goes_on(),
                    });
                    of.map(|of| of.cost(By::Time, true)).fold(f64::INFINITY, f64::min)
                };
                let _ = write!(text, " {:>7.1}", least(false) / least(true));
            }
            text.push('\n');
        }
        text
    }

    /// Its cells, by device.
    pub fn rows(&self) -> Vec<&[Cell]> {
        self.cells.chunk_by(|a, b| a.device == b.device).collect()
    }

    /// Those of which one wins in each cell.
    pub fn contenders(&self) -> Vec<Strategy> {
        self.strategies.iter().copied().filter(|strategy| !strategy.goes_on()).collect()
    }

    /// Instructions between two I/Os, of the cells of a row.
    pub fn columns(&self) -> Vec<u64> {
        let first = self.cells.first().map_or(0, |cell| cell.device);
        let row = self.cells.iter().take_while(|cell| cell.device == first);
        row.map(|cell| cell.instructions).collect()
    }

    /// How many there are.
    pub fn cells(&self) -> usize {
        self.cells.len()
    }

    /// Cells of which a measured winner is a predicted one.
    pub fn agreed(&self, by: By) -> usize {
        self.cells.iter().filter(|cell| cell.agrees(by) == Agrees::Yes).count()
    }

    /// Cells of which the predicted winner is behind by less than runs lie apart.
    pub fn undecided(&self, by: By) -> usize {
        self.cells.iter().filter(|cell| cell.agrees(by) == Agrees::Undecided).count()
    }

    /// Cells and break-evens by name.
    pub fn to_json(&self) -> Value {
        let cells = self.cells.iter().map(|cell| {
            let costs = cell.of.iter().map(|of| {
                let [time, processor] = [By::Time, By::Processor].map(|by| of.samples(by));
                json!({
                    "strategy": of.strategy.name(),
                    "measured": {
                        "time_ns": time.median(),
                        "processor_ns": processor.median(),
                        "time_noise_ns": time.noise(),
                        "processor_noise_ns": processor.noise(),
                    },
                    "predicted": {
                        "time_ns": of.predicted.wall,
                        "processor_ns": of.predicted.processor,
                    },
                })
            });
            json!({
                "device_ns": cell.device,
                "instructions": cell.instructions,
                "strategies": costs.collect::<Vec<_>>(),
            })
        });
        json!({
            "cells": cells.collect::<Vec<_>>(),
            "break_evens": self.break_evens.iter().map(BreakEven::to_json).collect::<Vec<_>>(),
            "as_predicted": {
                "time": self.agreed(By::Time),
                "processor": self.agreed(By::Processor),
                "of": self.cells.len(),
                "undecided": {
                    "time": self.undecided(By::Time),
                    "processor": self.undecided(By::Processor),
                },
            },
        })
    }
}

impl Cell {
    /// What it takes, ns.
    pub fn device(&self) -> u64 {
        self.device
    }

    /// Whether a measured winner is a predicted one.
    fn agrees(&self, by: By) -> Agrees {
        let (measured, predicted) = (self.winners(by, true), self.winners(by, false));
        if measured.iter().any(|winner| predicted.contains(winner)) {
            return Agrees::Yes;
        }
        let of = |strategy: &Strategy| {
            let of = self.of.iter().find(|of| of.strategy == *strategy);
            of.map(|of| of.samples(by)).unwrap_or_default()
        };
        let best = of(&measured[0]);
        let is_near = |strategy: &Strategy| {
            let other = of(strategy);
            other.median() - best.median() <= other.noise() + best.noise()
        };
        if predicted.iter().any(is_near) { Agrees::Undecided } else { Agrees::No }
    }

    /// The ones that cost the least, of those that keep no data for later and need nothing of
    /// the program; those that are even with the best among them.
    pub fn winners(&self, by: By, is_measured: bool) -> Vec<Strategy> {
        let own = || self.of.iter().filter(|of| !of.strategy.goes_on());
        let least = own().map(|of| of.cost(by, is_measured)).fold(f64::INFINITY, f64::min);
        let wins = |of: &&Measured| of.cost(by, is_measured) <= least * (1.0 + EVEN);
        own().filter(wins).map(|of| of.strategy).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cell in which polling is predicted, with these runs of polling and of sleeping.
    fn cell(polled: [f64; 3], slept: [f64; 3]) -> Cell {
        let of = |strategy, runs: [f64; 3], predicted| Measured {
            strategy,
            runs: runs.map(|wall| Cost { wall, processor: wall }).to_vec(),
            predicted: Cost { wall: predicted, processor: predicted },
        };
        let of = vec![of(Strategy::Block, polled, 100.0), of(Strategy::Yield, slept, 200.0)];
        Cell { device: 1, instructions: 1, of }
    }

    #[test]
    fn a_winner_by_less_than_the_noise_is_none() {
        let agrees = |polled, slept| cell(polled, slept).agrees(By::Time);
        assert_eq!(agrees([99.0, 100.0, 101.0], [199.0, 200.0, 900.0]), Agrees::Yes);
        assert_eq!(agrees([99.0, 100.0, 101.0], [101.0, 101.0, 101.0]), Agrees::Yes, "even");
        assert_eq!(agrees([90.0, 110.0, 130.0], [80.0, 100.0, 120.0]), Agrees::Undecided);
        assert_eq!(agrees([109.0, 110.0, 111.0], [99.0, 100.0, 101.0]), Agrees::No);
    }
}
