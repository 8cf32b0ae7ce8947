//! What the formulas of write amplification say of a run.
//!
//! The *spare in effect* is (T - U) / T with T the physical blocks that held data,
//! live or stale, in the mean of the run: open chunks count as far as they were
//! written, and what was free does not. A formula applies to uniform random
//! overwrites of the whole drive, a block each, without trims; it speaks of the
//! steady state.

use measure::formula;
use port::BLOCK_BYTES;
use serde_json::{Value, json};
use targets::{Victim, WriteCounters};
use workload::{Order, Pattern};

use drive::spec::DriveConfig;

/// The spare in effect, and the write amplification that belongs to it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Physics {
    spare: Option<f64>,
    formula: Option<f64>,
}

impl Physics {
    /// Of a run between two states of the drive's counters, which began when the
    /// drive was `steady`, as far as anybody knows.
    pub fn of(
        config: &DriveConfig,
        pattern: &Pattern,
        (before, after): (&WriteCounters, &WriteCounters),
        steady: bool,
    ) -> Physics {
        let held = after.held_since(before, config.above.total_pus());
        let spare = held.map(|held| 1.0 - config.logical_blocks() as f64 / held);
        // Of a drive that does not hold all of its blocks yet it says nothing.
        let spare = spare.filter(|&spare| spare > 0.0);
        let of_unit = held.unwrap_or(0.0) / f64::from(config.above.total_pus());
        let chunks = of_unit / f64::from(config.above.chunk_blocks());
        let formula = spare.filter(|_| steady && applies(config, pattern)).and_then(|spare| {
            match config.spec.victim {
                // Each unit draws of its own.
                Victim::Random => formula::random_few(spare, chunks),
                Victim::Fifo => formula::fifo(spare),
                Victim::Greedy => formula::greedy(spare, config.above.chunk_blocks()),
                Victim::DChoices(_) | Victim::CostBenefit | Victim::Custom(_) => None,
            }
        });
        Physics { spare, formula }
    }

    /// Adds them to the drive's configuration.
    pub fn tell(&self, mut drive: Value) -> Value {
        if let Some(spare) = self.spare {
            drive["spare_in_effect"] = json!(spare);
        }
        if let Some(formula) = self.formula {
            drive["write_amplification_formula"] = json!(formula);
        }
        drive
    }

    /// The same for the line that tells of the drive.
    pub fn tell_short(&self, mut drive: Value) -> Value {
        let rounded = |x: f64| (x * 1e4).round() / 1e4;
        if let Some(spare) = self.spare {
            drive["spare_in_effect"] = json!(rounded(spare));
        }
        if let Some(formula) = self.formula {
            drive["wa_formula"] = json!(rounded(formula));
        }
        drive
    }
}

fn applies(config: &DriveConfig, pattern: &Pattern) -> bool {
    // What a map cache writes of its pages is in no formula.
    config.profile.map_cache == 0
        && pattern.order == Order::Uniform
        && pattern.bs == BLOCK_BYTES
        && pattern.varied.is_none()
        && (pattern.offset, pattern.length) == (0, config.size)
        && pattern.trim_percent == 0
        && pattern.read_percent < 100
}

#[cfg(test)]
mod tests {
    use super::*;
    use drive::spec::DriveSpec;

    #[test]
    fn the_spare_in_effect_leads_to_the_formula() {
        let DriveSpec::Memory(spec) = "mem:ref,size=1G,spare=0.2,victim=fifo".parse().unwrap()
        else {
            panic!("it is in memory");
        };
        let config = spec.resolve().unwrap();
        let mut pattern = Pattern {
            offset: 0,
            length: config.size,
            bs: 4096,
            varied: None,
            read_percent: 0,
            trim_percent: 0,
            order: Order::Uniform,
            fua_every: 0,
            flush_every: 0,
        };
        let before = WriteCounters { held: 7, held_rows: 1, ..WriteCounters::default() };
        let of_unit = config.data_blocks() / 64;
        let after = WriteCounters { held: 7 + 2 * of_unit, held_rows: 3, ..before };
        let told = Physics::of(&config, &pattern, (&before, &after), true);
        assert!((told.spare.unwrap() - 0.2).abs() < 1e-4, "{told:?}");
        assert!((told.formula.unwrap() / formula::fifo(0.2).unwrap() - 1.0).abs() < 1e-3);
        let unsteady = Physics::of(&config, &pattern, (&before, &after), false);
        assert_eq!(unsteady, Physics { formula: None, ..told });
        pattern.bs = 8192;
        let told = Physics::of(&config, &pattern, (&before, &after), true);
        assert_eq!(told.formula, None);
        // With a map cache its pages are programmed, too.
        let mut cached = config.clone();
        cached.profile.map_cache = 65536;
        let whole = Pattern { bs: 4096, ..pattern };
        let formula = |of: &DriveConfig| Physics::of(of, &whole, (&before, &after), true).formula;
        assert!(formula(&config).is_some() && formula(&cached).is_none());
        // Nothing was collected.
        assert_eq!(Physics::of(&config, &pattern, (&before, &before), true), Physics::default());
    }
}
