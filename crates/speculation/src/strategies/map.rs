//! Which strategy wins where: measured in a grid of devices and of computing, beside what the
//! terms predict; and where the winner changes.

use std::fmt::Write;
use std::io;

use measure::units;
use serde_json::{Value, json};

use super::program::{Cost, DEPTH, Program, Strategy};
use super::terms::{ROUNDS, Terms, least};

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

    fn name(self) -> &'static str {
        match self {
            By::Time => "time",
            By::Processor => "processor",
        }
    }
}

/// A device, and what is computed between its I/Os.
pub struct Cell {
    /// What the device takes, ns.
    pub device: u64,
    instructions: u64,
    /// By strategy, measured and predicted.
    costs: Vec<(Strategy, Cost, Cost)>,
}

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
    /// Where it was found.
    pub measured: f64,
    /// Where the parts say.
    pub predicted: f64,
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
/// How long a run takes at least, ns.
const RUN: f64 = 3e6;
/// A cost that is so much lower wins; within, they are even.
const EVEN: f64 = 0.02;

impl Map {
    /// Measures all cells.
    pub fn measure(is_read: bool, quick: bool, terms: &Terms) -> io::Result<Map> {
        let strategies: &[Strategy] = if is_read { &Strategy::READS } else { &Strategy::WRITES };
        let devices: Vec<u64> = DEVICES.into_iter().step_by(if quick { 4 } else { 1 }).collect();
        let compute: Vec<u64> = COMPUTE.into_iter().step_by(if quick { 2 } else { 1 }).collect();
        let mut cells = Vec::new();
        for &device in &devices {
            for &instructions in &compute {
                let measure = |&strategy: &Strategy| {
                    let predicted = terms.predict(strategy, device as f64, instructions);
                    let rounds = if quick { 1 } else { 3 };
                    let cost =
                        measured(is_read, strategy, device, instructions, &predicted, rounds)?;
                    Ok((strategy, cost, predicted))
                };
                let costs = strategies.iter().map(measure).collect::<io::Result<_>>()?;
                cells.push(Cell { device, instructions, costs });
            }
        }
        Ok(Map { strategies, cells, break_evens: break_evens(is_read, terms)? })
    }

    /// As maps, a letter for each cell.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for by in [By::Time, By::Processor] {
            let _ = writeln!(text, "\n{} (?: another was predicted)", by.says());
            let _ = write!(text, "  {:>9} |", "device");
            let compute: Vec<u64> = self.columns();
            compute.iter().for_each(|n| _ = write!(text, " {:>7}", units::count(*n as f64)));
            text += "  instructions\n";
            for row in self.rows() {
                let _ = write!(text, "  {:>9} |", units::time_ns(row[0].device as f64));
                for cell in row {
                    let letters: String =
                        cell.winners(by, true).iter().map(|winner| winner.letter()).collect();
                    let mark = if cell.agrees(by) { "" } else { "?" };
                    let _ = write!(text, " {:>7}", format!("{letters}{mark}"));
                }
                text.push('\n');
            }
            let _ =
                writeln!(text, "  as predicted: {} of {} cells", self.agreed(by), self.cells.len());
        }
        text += &self.gains();
        let names = self.strategies.iter().map(|s| format!("{} {}", s.letter(), s.name()));
        let _ = writeln!(text, "\n{}", names.collect::<Vec<_>>().join(", "));
        text += "\nWhere the winner changes\n";
        for even in &self.break_evens {
            let show = |value: f64| match even.unit {
                "ns" => units::time_ns(value),
                _ => units::count(value),
            };
            let at = if even.unit == "ns" { "a device of" } else { "instructions:" };
            let _ = writeln!(
                text,
                "  {} to {} by {}: {at} {}, predicted {} ({:+.0} %)",
                even.below.name(),
                even.above.name(),
                even.by.name(),
                show(even.measured),
                show(even.predicted),
                100.0 * (even.predicted / even.measured - 1.0),
            );
        }
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
                    let of = cell.costs.iter().filter(|of| match goes_on {
                        true => of.0 == Strategy::Free,
                        false => !of.0.goes_on(),
                    });
                    of.map(|of| of.1.wall).fold(f64::INFINITY, f64::min)
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
        self.cells.iter().filter(|cell| cell.agrees(by)).count()
    }

    /// Cells and break-evens by name.
    pub fn to_json(&self) -> Value {
        let cost = |cost: &Cost| json!({ "time_ns": cost.wall, "processor_ns": cost.processor });
        let cells = self.cells.iter().map(|cell| {
            let costs = cell.costs.iter().map(|(strategy, measured, predicted)| {
                json!({
                    "strategy": strategy.name(),
                    "measured": cost(measured),
                    "predicted": cost(predicted),
                })
            });
            json!({
                "device_ns": cell.device,
                "instructions": cell.instructions,
                "strategies": costs.collect::<Vec<_>>(),
            })
        });
        let evens = self.break_evens.iter().map(|even| {
            json!({
                "below": even.below.name(),
                "above": even.above.name(),
                "by": even.by.name(),
                "unit": even.unit,
                "measured": even.measured,
                "predicted": even.predicted,
            })
        });
        json!({
            "cells": cells.collect::<Vec<_>>(),
            "break_evens": evens.collect::<Vec<_>>(),
            "as_predicted": {
                "time": self.agreed(By::Time),
                "processor": self.agreed(By::Processor),
                "of": self.cells.len(),
            },
        })
    }
}

impl Cell {
    /// Whether a measured winner is a predicted one.
    fn agrees(&self, by: By) -> bool {
        let predicted = self.winners(by, false);
        self.winners(by, true).iter().any(|winner| predicted.contains(winner))
    }

    /// The ones that cost the least, of those that keep no data for later and need nothing of
    /// the program; those that are even with the best among them.
    pub fn winners(&self, by: By, is_measured: bool) -> Vec<Strategy> {
        let cost = |(_, measured, predicted): &(Strategy, Cost, Cost)| {
            by.of(if is_measured { measured } else { predicted })
        };
        let own = || self.costs.iter().filter(|of| !of.0.goes_on());
        let least = own().map(cost).fold(f64::INFINITY, f64::min);
        own().filter(|of| cost(of) <= least * (1.0 + EVEN)).map(|of| of.0).collect()
    }
}

/// What a strategy costs, the least of several runs, each as long as it takes to be measured.
fn measured(
    is_read: bool,
    strategy: Strategy,
    device: u64,
    instructions: u64,
    predicted: &Cost,
    rounds: usize,
) -> io::Result<Cost> {
    let mut program = Program::new(device, is_read);
    let least = if strategy.goes_on() { DEPTH as f64 } else { 2.0 };
    let count = (RUN / predicted.wall).clamp(least, 2000.0) as u32;
    let mut least = Cost { wall: f64::INFINITY, processor: f64::INFINITY };
    for _ in 0..rounds {
        let cost = program.run(strategy, instructions, count)?;
        least.wall = least.wall.min(cost.wall);
        least.processor = least.processor.min(cost.processor);
    }
    Ok(least)
}

/// Where the winner changes: from polling to sleeping, and of writes from polling to a checkpoint.
pub fn break_evens(is_read: bool, terms: &Terms) -> io::Result<Vec<BreakEven>> {
    let mut all = vec![sleeping(is_read, terms)?];
    if !is_read {
        all.push(speculating(terms)?);
    }
    Ok(all)
}

/// The device from which on sleeping takes less of the processor than polling.
fn sleeping(is_read: bool, terms: &Terms) -> io::Result<BreakEven> {
    let (below, above, by) = (Strategy::Block, Strategy::Yield, By::Processor);
    let measured = halve(terms.switch, |device| {
        let mut program = Program::new(device as u64, is_read);
        let slept = least(2 * ROUNDS, || Ok(program.run(above, 0, 100)?.processor))?;
        let polled = least(ROUNDS, || Ok(program.run(below, 0, 100)?.processor))?;
        Ok(slept < polled)
    })?;
    Ok(BreakEven { below, above, by, unit: "ns", measured, predicted: terms.switch })
}

/// The computing from which on a checkpoint takes less time than polling, on a device that takes
/// longer than that. What is not overlapped of the checkpoint is what must be won.
fn speculating(terms: &Terms) -> io::Result<BreakEven> {
    let (below, above, by) = (Strategy::Block, Strategy::Checkpoint, By::Time);
    let device = 4.0 * terms.checkpoint;
    let predicted = (terms.checkpoint - terms.take) / terms.instruction;
    let mut program = Program::new(device as u64, false);
    let measured = halve(predicted, |instructions| {
        let held = least(ROUNDS, || Ok(program.run(above, instructions as u64, 3)?.wall))?;
        let polled = least(3, || Ok(program.run(below, instructions as u64, 3)?.wall))?;
        Ok(held < polled)
    })?;
    Ok(BreakEven { below, above, by, unit: "instructions", measured, predicted })
}

/// Where something begins to be so, by halving in proportion around where it should: the middle
/// of three, as others on the machine may lead one astray.
fn halve(around: f64, mut is_so: impl FnMut(f64) -> io::Result<bool>) -> io::Result<f64> {
    let mut found = [0.0; 3];
    for found in &mut found {
        let (mut low, mut high) = (around / 8.0, around * 8.0);
        for _ in 0..7 {
            let middle = (low * high).sqrt();
            match is_so(middle)? {
                true => high = middle,
                false => low = middle,
            }
        }
        *found = (low * high).sqrt();
    }
    found.sort_by(f64::total_cmp);
    Ok(found[1])
}
