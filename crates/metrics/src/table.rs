//! All metrics that are served: their names, kinds and meanings.
//!
//! `docs/commands/serve.md` has the same table; a test holds the two together.

/// What a metric's values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows; since when it counts `docs/commands/serve.md` says.
    Counter,
    /// It is as it is.
    Gauge,
    /// How many took at most so long.
    Histogram,
}

impl Kind {
    /// As the text format calls it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// A metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name; units are base units.
    pub name: &'static str,
    /// What its values are.
    pub kind: Kind,
    /// Its labels, with commas between them.
    pub labels: &'static str,
    /// What it means.
    pub help: &'static str,
}

const fn metric(
    name: &'static str,
    kind: Kind,
    labels: &'static str,
    help: &'static str,
) -> Metric {
    Metric { name, kind, labels, help }
}

use Kind::{Counter, Gauge, Histogram};

/// All of them, in the order in which they are served.
pub const METRICS: [Metric; 38] = [
    metric("ssdkit_drive_info", Gauge, "drive, front, version", "1; what is served, and how"),
    metric("ssdkit_drive_bytes", Gauge, "", "Logical capacity"),
    metric("ssdkit_uptime_seconds", Gauge, "", "How long it is served"),
    metric("ssdkit_connections", Gauge, "", "Clients that are connected (NBD)"),
    metric(
        "ssdkit_read_only",
        Gauge,
        "reason",
        "1 where it takes no more writes, or the store on it does not, with the reason",
    ),
    metric("ssdkit_tells_stories", Gauge, "", "1 where request_seconds and time_seconds are told"),
    metric("ssdkit_requests_inside", Gauge, "", "Requests that have come and not completed"),
    metric("ssdkit_requests_total", Counter, "op", "Requests that completed"),
    metric("ssdkit_request_failures_total", Counter, "op", "Those of them that failed"),
    metric(
        "ssdkit_request_bytes_total",
        Counter,
        "op",
        "Bytes of reads and writes that did not fail",
    ),
    metric(
        "ssdkit_request_seconds",
        Histogram,
        "op, le",
        "What those took that did not fail, in drive time",
    ),
    metric("ssdkit_time_seconds_total", Counter, "op, cause, behind", "Where their time went"),
    metric(
        "ssdkit_blocks_written_total",
        Counter,
        "why",
        "Blocks of 4 KiB programmed, and why; parity and folds where the drive has them",
    ),
    metric("ssdkit_blocks_absorbed_total", Counter, "", "Written over while still in the buffer"),
    metric("ssdkit_blocks_lost_total", Counter, "", "Blocks that could not be read any more"),
    metric("ssdkit_collections_total", Counter, "", "Chunks collected"),
    metric("ssdkit_blocks_moved_total", Counter, "", "Blocks read by collection"),
    metric("ssdkit_erases_total", Counter, "", "Chunks erased"),
    metric("ssdkit_chunks_retired_total", Counter, "", "Chunks given up, as programs failed"),
    metric("ssdkit_chunks_refreshed_total", Counter, "", "Chunks put down to be written anew"),
    metric("ssdkit_chunks_leveled_total", Counter, "", "Little worn chunks put down to be moved"),
    metric("ssdkit_free_chunks", Gauge, "", "Chunks that the target has for what comes next"),
    metric("ssdkit_chunks", Gauge, "state", "Chunks: free, open, closed, offline"),
    metric("ssdkit_chunk_erases", Gauge, "of", "Erases of a chunk: least, mean, most"),
    metric("ssdkit_die_busy_seconds_total", Counter, "die", "How long a die's array worked"),
    metric("ssdkit_flash_operations_total", Counter, "op", "Array operations; programs suspended"),
    metric("ssdkit_flash_errors_total", Counter, "kind", "What the flash got wrong"),
    metric("ssdkit_read_cache_total", Counter, "result", "Read cache: hits and misses"),
    metric("ssdkit_map_cache_total", Counter, "result", "Map cache: hits and misses"),
    metric("ssdkit_slc_rows", Gauge, "of", "SLC cache: rows that it has room for, and holds"),
    metric("ssdkit_slc_programs_total", Counter, "to", "Programs that it took, or that passed it"),
    metric("ssdkit_slc_folded_rows_total", Counter, "", "Rows folded out of it"),
    metric("ssdkit_energy_joules_total", Counter, "part", "Energy, where it is counted"),
    metric("ssdkit_temperature_celsius", Gauge, "", "Temperature, where it is modelled"),
    metric("ssdkit_throttled_seconds_total", Counter, "", "How long it was too warm, and slow"),
    metric("ssdkit_asleep_seconds_total", Counter, "", "How long it slept"),
    metric("ssdkit_wakes_total", Counter, "", "How often it was woken"),
    metric("ssdkit_scrape_seconds", Gauge, "", "What making this page took, on the wall"),
];

/// A metric by its name.
///
/// # Panics
/// When there is none.
pub fn by_name(name: &str) -> &'static Metric {
    let found = METRICS.iter().find(|metric| metric.name == name);
    found.unwrap_or_else(|| panic!("{name} stands in the table"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Names are Prometheus' kind of names, and the page has each, and no other.
    #[test]
    fn the_table_of_the_page_is_this_one() {
        let page = include_str!("../../../docs/commands/serve.md");
        let row = |m: &Metric| {
            format!("| `{}` | {} | {} | {} |", m.name, m.kind.name(), m.labels, m.help)
        };
        let rows: Vec<String> = METRICS.iter().map(row).collect();
        let there: Vec<&str> = page.lines().filter(|line| line.starts_with("| `ssdkit_")).collect();
        assert_eq!(there, rows, "the page is to have:\n{}", rows.join("\n"));
        for metric in &METRICS {
            let is_word = |c: char| c.is_ascii_lowercase() || c == '_';
            assert!(metric.name.chars().all(is_word), "{}", metric.name);
            assert_eq!(metric.kind == Counter, metric.name.ends_with("_total"), "{}", metric.name);
        }
        assert_eq!(METRICS.iter().map(|m| m.name).collect::<HashSet<_>>().len(), METRICS.len());
    }
}
