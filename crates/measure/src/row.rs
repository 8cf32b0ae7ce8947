//! A row of a series: what happened in some time.
//!
//! What a drive does not tell is unknown, not zero. Nothing here fails.

use serde::Serialize;

/// One row of the series.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// When the row starts, in seconds of drive time since the start.
    pub second: f64,
    /// How long it is, in seconds. The last row may be shorter, or longer by
    /// what was too short to be one.
    pub seconds: f64,
    /// I/Os completed.
    pub ios: u64,
    /// I/Os per second.
    pub iops: f64,
    /// Median latency in nanoseconds; `None` without I/Os.
    pub p50: Option<u64>,
    /// 99.9th percentile of latency in nanoseconds, however few the I/Os.
    pub p999: Option<u64>,
    /// Blocks programmed for each block written in this row; `None` when
    /// nothing was written.
    pub write_amplification: Option<f64>,
    /// Blocks programmed in this row, by reason; `None` of a drive that does not tell.
    pub programmed: Option<Programmed>,
    /// Free chunks at the end of the row; `None`, as below, of a drive that
    /// does not tell.
    pub free_chunks: Option<u64>,
    /// Collections in this row.
    pub collections: Option<u64>,
    /// Erases in this row.
    pub erases: Option<u64>,
    /// Where the time of its slowest requests went; `None` where that is not kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tail: Option<Tail>,
}

/// Where the time of the slowest requests of a row went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tail {
    /// How many these are.
    pub requests: u64,
    /// What the fastest of them took, in ns.
    pub from_ns: u64,
    /// What they took together.
    pub ns: u64,
    /// Where it went; the parts sum to it.
    pub parts: Vec<TailPart>,
}

/// A part of the time of some requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TailPart {
    /// What it went to.
    pub part: &'static str,
    /// Behind what they waited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind: Option<&'static str>,
    /// How long, in ns.
    pub ns: u64,
}

impl Row {
    /// The same row of a drive that tells nothing of its inside.
    #[must_use]
    pub fn of_an_unknown_drive(self) -> Row {
        let (write_amplification, programmed) = (None, None);
        let (free_chunks, collections, erases) = (None, None, None);
        Row { write_amplification, programmed, free_chunks, collections, erases, ..self }
    }
}

/// Blocks programmed into flash, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Programmed {
    /// What the host wrote.
    pub user: u64,
    /// Moved by garbage collection.
    pub gc: u64,
    /// Filling up of write units.
    pub padding: u64,
    /// The target's own maps, logs and checkpoints.
    pub metadata: u64,
    /// Parity, and what was padded for it; `None` of a drive without, and where that is
    /// not told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parity: Option<u64>,
    /// Folded out of an SLC cache, as `parity`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folds: Option<u64>,
}

impl Programmed {
    /// All that write amplification is of: parity and folds are beside it.
    pub(crate) fn of_target(&self) -> u64 {
        self.user + self.gc + self.padding + self.metadata
    }

    /// All of it, parity and folds too.
    pub fn all(&self) -> u64 {
        self.of_target() + self.parity.unwrap_or(0) + self.folds.unwrap_or(0)
    }

    /// All of it for each block that the host wrote; `None` where it wrote none.
    pub fn amplification(&self) -> Option<f64> {
        (self.user > 0).then(|| self.all() as f64 / self.user as f64)
    }

    /// What was programmed since it was `before`.
    #[must_use]
    pub fn since(&self, before: &Programmed) -> Programmed {
        let beside = |now: Option<u64>, then: Option<u64>| {
            now.map(|now| now.saturating_sub(then.unwrap_or_default()))
        };
        Programmed {
            user: self.user.saturating_sub(before.user),
            gc: self.gc.saturating_sub(before.gc),
            padding: self.padding.saturating_sub(before.padding),
            metadata: self.metadata.saturating_sub(before.metadata),
            parity: beside(self.parity, before.parity),
            folds: beside(self.folds, before.folds),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amplification_has_parity_and_folds_in_it() {
        let plain = Programmed { user: 100, gc: 40, padding: 5, metadata: 5, ..Default::default() };
        assert_eq!(plain.amplification(), Some(1.5));
        let all = Programmed { parity: Some(50), folds: Some(100), ..plain };
        assert_eq!(all.amplification(), Some(3.0));
        assert_eq!(all.since(&plain).amplification(), None, "nothing was written");
        assert_eq!(all.since(&Programmed::default()), all);
    }
}
