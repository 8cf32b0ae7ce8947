//! How the SLC cache is, and what it did, as reports tell it.

use std::fmt;

use device::SlcHealth;
use flash::Geometry;
use measure::units;
use port::BLOCK_BYTES;
use serde_json::{Value, json};

/// The cache at the end of a run, and what it did in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlcReport {
    /// Counts of the run; `cached` and what the cache is, at its end.
    health: SlcHealth,
    /// Bytes of a row.
    row: u64,
    /// Erases of each block since the drive was made or opened.
    wear: f64,
}

impl SlcReport {
    /// Of a cache that was `before` when the run began and is `after` at its
    /// end. None where the drive has none.
    pub fn new(geometry: &Geometry, before: &SlcHealth, after: &SlcHealth) -> Option<SlcReport> {
        let SlcHealth { rows, cached, blocks, .. } = *after;
        let health = SlcHealth { rows, cached, blocks, ..after.since(before) };
        let row = u64::from(geometry.row_blocks()) * BLOCK_BYTES;
        let wear = after.erases as f64 / after.blocks.max(1) as f64;
        (after.blocks > 0).then_some(SlcReport { health, row, wear })
    }

    /// What the cache is, before it has done anything.
    pub fn size_json(&self) -> Value {
        let SlcHealth { rows, blocks, .. } = self.health;
        json!({ "bytes": rows * self.row, "rows": rows, "blocks": blocks })
    }

    /// The same in words.
    pub fn size_text(&self) -> String {
        let SlcHealth { rows, blocks, .. } = self.health;
        format!("{} in {blocks} blocks of its own", units::capacity(rows * self.row))
    }

    /// As JSON.
    pub fn to_json(&self) -> Value {
        let h = &self.health;
        let mut json = self.size_json();
        json["cached_rows"] = h.cached.into();
        json["written_rows"] = h.written.into();
        json["folded_rows"] = h.folded.into();
        json["dropped_rows"] = h.dropped.into();
        json["direct_rows"] = h.direct.into();
        json["erases"] = h.erases.into();
        json["erases_per_block"] = self.wear.into();
        json
    }
}

impl fmt::Display for SlcReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let h = &self.health;
        let count = |n: u64| units::count(n as f64);
        write!(
            f,
            "{:.1} % of {} rows in use; {} programs taken, {} past it; {} rows folded, {} dropped; \
             {} blocks, {:.2} erases each",
            100.0 * h.cached as f64 / h.rows.max(1) as f64,
            count(h.rows),
            count(h.written),
            count(h.direct),
            count(h.folded),
            count(h.dropped),
            count(h.blocks),
            self.wear,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flash::Dimensions;

    #[test]
    fn counts_are_those_of_the_run_and_wear_is_of_the_drive() {
        let dim = Dimensions {
            groups: 1,
            pus: 1,
            chunks: 9,
            pages: 8,
            planes: 2,
            page_bytes: 8192,
            pages_at_once: 1,
        };
        let geometry = Geometry::new(dim).unwrap();
        let before =
            SlcHealth { rows: 40, blocks: 10, written: 100, erases: 5, ..Default::default() };
        let after = SlcHealth { written: 130, folded: 20, cached: 10, erases: 15, ..before };
        let report = SlcReport::new(&geometry, &before, &after).unwrap();
        let json = report.to_json();
        assert_eq!((&json["written_rows"], &json["folded_rows"]), (&30.into(), &20.into()));
        assert_eq!((&json["cached_rows"], &json["bytes"]), (&10.into(), &(40 * 16384).into()));
        assert_eq!((&json["erases"], &json["erases_per_block"]), (&10.into(), &1.5.into()));
        assert!(report.to_string().starts_with("25.0 % of 40"), "{report}");
        let none = SlcHealth::default();
        assert_eq!(SlcReport::new(&geometry, &none, &none), None);
    }
}
