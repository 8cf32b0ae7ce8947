//! What the flash of a drive got wrong, and what was done about it, as reports tell it.

use std::fmt;

use device::ErrorCounters;
use measure::units;
use serde_json::{Value, json};

use crate::whole::{Drive, Observed, devices};

/// What went wrong since the drive was made or opened, or in a run: nothing where errors
/// are not modelled and the medium fails nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlashErrors {
    errors: ErrorCounters,
    /// How often the patrol told that a chunk's data have grown old.
    patrolled: u64,
    /// Chunks that were put down to be written anew.
    refreshed: u64,
}

impl FlashErrors {
    /// What went wrong in a drive so far.
    pub fn of(drive: &dyn Drive) -> FlashErrors {
        FlashErrors {
            errors: devices(drive).map(|device| device.errors()).sum(),
            patrolled: devices(drive).map(|device| device.patrolled()).sum(),
            refreshed: drive.counters().refreshed,
        }
    }

    /// What went wrong since it was `earlier`; none where nothing did.
    pub fn since(&self, earlier: &FlashErrors) -> Option<FlashErrors> {
        let since = FlashErrors {
            errors: self.errors.since(&earlier.errors),
            patrolled: self.patrolled.saturating_sub(earlier.patrolled),
            refreshed: self.refreshed.saturating_sub(earlier.refreshed),
        };
        (since != FlashErrors::default()).then_some(since)
    }

    /// Blocks that could not be read, after all repetitions.
    pub fn failed_blocks(&self) -> u64 {
        self.errors.failed_blocks
    }

    /// As JSON.
    pub fn to_json(&self) -> Value {
        let e = &self.errors;
        json!({
            "corrected_reads": e.corrected_reads,
            "retried_reads": e.retried_reads,
            "retries": e.retries,
            "failed_reads": e.failed_reads,
            "failed_blocks": e.failed_blocks,
            "failed_programs": e.failed_programs,
            "early_closes": e.early_closes,
            "failed_erases": e.failed_erases,
            "patrolled_chunks": self.patrolled,
            "refreshed_chunks": self.refreshed,
        })
    }
}

impl fmt::Display for FlashErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let e = &self.errors;
        let count = |n: u64| units::count(n as f64);
        let mut text = format!("{} reads corrected", count(e.corrected_reads));
        if e.retries > 0 {
            text += &format!(", {} repeated, {} times", count(e.retried_reads), count(e.retries));
        }
        for (what, n) in [
            ("reads", e.failed_reads),
            ("programs", e.failed_programs),
            ("erases", e.failed_erases),
        ] {
            if n > 0 {
                text += &format!(", {} {what} failed", count(n));
            }
        }
        text += &format!("; {} refreshed", units::counted(self.refreshed, "chunk"));
        if self.patrolled > 0 {
            text += &format!(", patrol told {}", units::exactly(self.patrolled, "time"));
        }
        f.write_str(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_of_the_run_and_none_where_nothing_went_wrong() {
        let errors =
            |retries| ErrorCounters { corrected_reads: 7, retries, ..ErrorCounters::default() };
        let before = FlashErrors { errors: errors(3), patrolled: 1, refreshed: 2 };
        let after = FlashErrors { errors: errors(9), patrolled: 1, refreshed: 3 };
        let report = after.since(&before).unwrap();
        let json = report.to_json();
        assert_eq!((&json["retries"], &json["corrected_reads"]), (&6.into(), &0.into()));
        assert_eq!((&json["refreshed_chunks"], &json["patrolled_chunks"]), (&1.into(), &0.into()));
        let text = "0 reads corrected, 0 repeated, 6 times; 1 chunk refreshed";
        assert_eq!(report.to_string(), text);
        assert_eq!(after.since(&after), None);
    }
}
