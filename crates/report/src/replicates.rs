//! The same run of several seeds.
//!
//! What another seed would give is known best from other seeds: each is a run of its own, so
//! the mean of a figure over them is within what Student's distribution makes of its standard
//! error (Law, *Simulation Modeling and Analysis*, 9.4.1), whatever its rows do.

use std::fmt::Write;

use measure::within::student;
use serde_json::{Value, json};

use crate::Run;
use crate::comparison::{Comparison, Figure};

/// Runs that differ in their seed alone.
#[derive(Clone, Debug)]
pub struct Replicates {
    seeds: Vec<u64>,
    comparison: Comparison,
}

/// What a figure is over all seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Spread {
    median: f64,
    least: f64,
    most: f64,
    mean: f64,
    /// How far the mean may be off, with 95 %; `None` of too few.
    within: Option<f64>,
}

impl Spread {
    /// Of such values, where there are any.
    fn of(mut values: Vec<f64>) -> Option<Spread> {
        values.sort_by(f64::total_cmp);
        let (&least, &most) = values.first().zip(values.last())?;
        let (half, n) = (values.len() / 2, values.len() as f64);
        let median = match values.len() % 2 {
            0 => values[half - 1].midpoint(values[half]),
            _ => values[half],
        };
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let within = student(values.len()).map(|t| t * (squares / (n - 1.0) / n).sqrt());
        Some(Spread { median, least, most, mean, within })
    }

    fn of_figure(figure: &Figure) -> Option<Spread> {
        Spread::of(figure.values().collect())
    }
}

impl Replicates {
    /// Runs of these seeds.
    ///
    /// # Panics
    /// Without a run, or with another number of seeds.
    pub fn new(seeds: Vec<u64>, runs: &[Run]) -> Replicates {
        assert_eq!(seeds.len(), runs.len(), "each run has its seed");
        Replicates { seeds, comparison: Comparison::new(runs) }
    }

    /// For a terminal, where so many were to be run.
    pub fn to_text(&self, asked: usize) -> String {
        let (first, last) = (self.seeds.first().copied(), self.seeds.last().copied());
        let (n, first, last) = (self.seeds.len(), first.unwrap_or(0), last.unwrap_or(0));
        let of = if n < asked { format!(" of {asked}") } else { String::new() };
        let mut out = format!("{n}{of} runs, of the seeds {first} to {last}\n");
        for doubt in self.doubts() {
            let _ = writeln!(out, "    - {doubt}");
        }
        let names = self.comparison.figures.iter().map(|figure| figure.name.chars().count());
        let wide = names.max().unwrap_or(0).max(21) + 1;
        let _ = write!(out, "\n{:<wide$}", "");
        for column in ["median", "least", "most", "mean", "± 95 %"] {
            let _ = write!(out, "{column:>13}");
        }
        out.push('\n');
        for figure in &self.comparison.figures {
            let Some(of) = Spread::of_figure(figure) else { continue };
            let _ = write!(out, "{:<wide$}", figure.name);
            for value in [of.median, of.least, of.most, of.mean] {
                let _ = write!(out, "{:>13}", figure.in_words(value));
            }
            let within = of.within.map_or_else(|| "-".into(), |within| figure.in_words(within));
            let _ = writeln!(out, "{within:>13}");
        }
        out
    }

    /// What is to be known before the figures are believed: of all, or of which.
    fn doubts(&self) -> Vec<String> {
        let all = &self.comparison.doubts;
        let mut told: Vec<&str> = Vec::new();
        for (stem, _) in all.iter().flatten().map(|doubt| numbered(doubt)) {
            if !told.contains(&stem) {
                told.push(stem);
            }
        }
        let one = |stem: &str| {
            let of = |doubts: &Vec<String>| {
                let mut same = doubts.iter().map(|doubt| numbered(doubt));
                same.find(|doubt| doubt.0 == stem).map(|doubt| doubt.1)
            };
            let seeds = self.seeds.iter().zip(all);
            let (seeds, mut numbers): (Vec<String>, Vec<Option<u64>>) =
                seeds.filter_map(|(seed, doubts)| Some((seed.to_string(), of(doubts)?))).unzip();
            numbers.sort_unstable();
            let number =
                match (numbers.first().copied().flatten(), numbers.last().copied().flatten()) {
                    (Some(least), Some(most)) if least < most => format!("{least} to {most}"),
                    (_, Some(most)) => most.to_string(),
                    _ => String::new(),
                };
            match seeds.len() == all.len() {
                true => format!("{stem}{number}"),
                false => format!("seed {}: {stem}{number}", seeds.join(", ")),
            }
        };
        told.into_iter().map(one).collect()
    }

    /// As one JSON object, without the runs.
    pub fn to_json(&self) -> Value {
        let figure = |figure: &Figure| {
            let of = Spread::of_figure(figure)?;
            Some(json!({
                "name": figure.name,
                "unit": figure.unit_name(),
                "median": of.median,
                "least": of.least,
                "most": of.most,
                "mean": of.mean,
                "within": of.within,
                "values": figure.cells.iter().map(|cell| cell.value).collect::<Vec<_>>(),
            }))
        };
        json!({
            "seeds": self.seeds,
            "doubts": self.doubts(),
            "figures": self.comparison.figures.iter().filter_map(figure).collect::<Vec<_>>(),
        })
    }
}

/// A doubt without the number that it ends with, which is each seed's own, and that.
fn numbered(doubt: &str) -> (&str, Option<u64>) {
    let stem = doubt.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = doubt[stem.len()..].parse().ok();
    (if number.is_some() { stem } else { doubt }, number)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mean 10, deviation 1.5811; of 5 its standard error is 0.7071, times 2.776.
    #[test]
    fn a_worked_example() {
        let of = Spread::of(vec![12.0, 8.0, 10.0, 9.0, 11.0]).unwrap();
        assert_eq!((of.median, of.least, of.most, of.mean), (10.0, 8.0, 12.0, 10.0));
        assert!((of.within.unwrap() - 1.9629).abs() < 1e-4, "{of:?}");
        let of = Spread::of(vec![4.0, 1.0, 2.0, 3.0]).unwrap();
        assert_eq!((of.median, of.within), (2.5, None), "too few");
        assert_eq!(Spread::of(Vec::new()), None);
    }

    #[test]
    fn a_doubt_of_many_seeds_is_one_line() {
        let doubts = |of: &[&str]| of.iter().map(|&it| it.to_owned()).collect();
        let comparison = Comparison {
            doubts: vec![
                doubts(&["a ramp", "too few: 56"]),
                doubts(&["too few: 41"]),
                doubts(&["odd"]),
            ],
            names: Vec::new(),
            figures: Vec::new(),
            settings: Vec::new(),
        };
        let all = Replicates { seeds: vec![7, 8, 9], comparison }.doubts();
        assert_eq!(all, ["seed 7: a ramp", "seed 7, 8: too few: 41 to 56", "seed 9: odd"]);
        assert_eq!(numbered("in 99.9 %"), ("in 99.9 %", None));
    }
}
