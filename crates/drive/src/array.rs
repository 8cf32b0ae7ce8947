//! What the arrays of a drive did with fewer operations than it was asked for, as reports
//! tell it: reads that shared a sensing, and rows that were copied inside their dies.

use std::fmt;

use measure::units;
use serde_json::{Value, json};

use crate::whole::{Drive, devices};

/// Array reads, and what was done beside them, since the drive was made or opened, or in
/// a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArrayReport {
    /// Array reads, repetitions not among them.
    reads: u64,
    /// Reads that needed none, as another's gave their page.
    shared: u64,
    /// Of `reads`, those that began with another's, on another plane.
    joined: u64,
    /// Rows copied inside their dies.
    copybacks: u64,
}

impl ArrayReport {
    /// What those of a drive did so far.
    pub fn of(drive: &dyn Drive) -> ArrayReport {
        let mut all = ArrayReport::default();
        for counters in devices(drive).map(|device| device.counters()) {
            all.reads += counters.reads;
            all.shared += counters.shared;
            all.joined += counters.joined;
            all.copybacks += counters.copybacks;
        }
        all
    }

    /// What they did since it was `earlier`; none where nothing was shared or copied.
    pub fn since(&self, earlier: &ArrayReport) -> Option<ArrayReport> {
        let since = ArrayReport {
            reads: self.reads.saturating_sub(earlier.reads),
            shared: self.shared.saturating_sub(earlier.shared),
            joined: self.joined.saturating_sub(earlier.joined),
            copybacks: self.copybacks.saturating_sub(earlier.copybacks),
        };
        (since.shared + since.joined + since.copybacks > 0).then_some(since)
    }

    /// As JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "reads": self.reads,
            "shared_reads": self.shared,
            "joined_reads": self.joined,
            "copybacks": self.copybacks,
        })
    }
}

impl fmt::Display for ArrayReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} array reads", units::count(self.reads as f64))?;
        for (what, n) in [
            ("began with another's", self.joined),
            ("more shared one", self.shared),
            ("rows copied inside", self.copybacks),
        ] {
            if n > 0 {
                write!(f, ", {} {what}", units::count(n as f64))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_of_the_run_and_none_where_nothing_was_shared() {
        let before = ArrayReport { reads: 10, shared: 4, joined: 0, copybacks: 2 };
        let after = ArrayReport { reads: 30, shared: 9, joined: 3, copybacks: 2 };
        let report = after.since(&before).unwrap();
        assert_eq!(
            report.to_json(),
            json!({ "reads": 20, "shared_reads": 5, "joined_reads": 3, "copybacks": 0 })
        );
        let text = "20 array reads, 3 began with another's, 5 more shared one";
        assert_eq!(report.to_string(), text);
        assert_eq!(ArrayReport { reads: 40, ..after }.since(&after), None);
    }
}
