//! What parity cost, and what it gave back, as reports tell it.

use std::fmt;

use measure::units;
use parity::ParityCounters;
use serde_json::{Value, json};

/// What was done for the sake of parity in a run.
#[derive(Clone, Copy, Debug)]
pub struct Redundancy {
    counters: ParityCounters,
    /// Write amplification, parity included; none where the host wrote nothing.
    amplification: Option<f64>,
}

impl Redundancy {
    /// Of what was counted in a run, whose write amplification without parity
    /// was `amplification`.
    pub fn new(counters: ParityCounters, amplification: Option<f64>) -> Redundancy {
        let ParityCounters { written, parity, padded, .. } = counters;
        let more = (written + parity + padded) as f64 / written.max(1) as f64;
        let amplification = amplification.filter(|_| written > 0).map(|wa| wa * more);
        Redundancy { counters, amplification }
    }

    /// Write amplification, parity included.
    pub fn amplification(&self) -> Option<f64> {
        self.amplification
    }

    /// As JSON.
    pub fn to_json(&self) -> Value {
        let c = &self.counters;
        json!({
            "written_blocks": c.written,
            "parity_blocks": c.parity,
            "padded_blocks": c.padded,
            "rebuilt_blocks": c.rebuilt,
            "lost_blocks": c.lost,
            "read_blocks": c.read,
            "write_amplification": self.amplification,
        })
    }
}

impl fmt::Display for Redundancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let c = &self.counters;
        let count = |n: u64| units::count(n as f64);
        write!(
            f,
            "{} blocks rebuilt, {} lost; {} of parity for {} written",
            count(c.rebuilt),
            count(c.lost),
            count(c.parity),
            count(c.written),
        )?;
        match self.amplification {
            Some(wa) => write!(f, ", write amplification {wa:.2} with them"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amplification_has_parity_in_it() {
        let counters =
            ParityCounters { written: 700, parity: 100, rebuilt: 3, ..ParityCounters::default() };
        let some = Redundancy::new(counters, Some(1.4));
        let wa = some.to_json()["write_amplification"].as_f64().unwrap();
        assert!((wa - 1.6).abs() < 1e-9, "{wa}");
        assert!(some.to_string().contains("write amplification 1.60"), "{some}");
        assert!(some.to_string().starts_with("3 blocks rebuilt, 0 lost"), "{some}");
        let none = Redundancy::new(ParityCounters::default(), Some(1.0));
        assert!(none.to_json()["write_amplification"].is_null());
    }
}
