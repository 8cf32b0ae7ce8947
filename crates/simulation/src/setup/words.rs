//! A set-up in words.

use super::Setup;

impl Setup {
    /// In a line, for a report.
    pub fn in_words(&self) -> String {
        let dim = self.geometry.dimensions();
        format!(
            "{} x {} units{} of {} chunks of {} rows of {} blocks, {} logical, {} streams, {:?}, \
             idle {}, {} kept{}, link {:?}{}{}{}{}{}{}{}{}{}{}{}{}, {:?}, {}",
            dim.groups,
            dim.pus,
            if self.parity > 0 { format!(", parity {},", self.parity) } else { String::new() },
            dim.chunks,
            dim.pages,
            self.geometry.row_blocks(),
            self.blocks(),
            self.streams,
            self.victim,
            self.idle_collection,
            self.kept,
            if self.parts { " and parts" } else { "" },
            self.link_at,
            if self.queues.is_on() { format!(", {:?}", self.queues) } else { String::new() },
            if self.buffer_rate > 0 {
                format!(", buffer {}", self.buffer_rate)
            } else {
                String::new()
            },
            if self.timing.is_instant() { ", no time" } else { "" },
            match self.timing.unreadable {
                0 => String::new(),
                blocks => format!(", {blocks} unreadable"),
            },
            match (self.timing.open_chunks, self.timing.open_chunks_pu) {
                _ if !self.timing.limits_open() => String::new(),
                (u32::MAX, of_pu) => format!(", {of_pu} open of a unit"),
                (all, u32::MAX) => format!(", {all} open"),
                (all, of_pu) => format!(", {all} open, {of_pu} of a unit"),
            },
            if self.timing.slc.is_on() { ", an SLC cache" } else { "" },
            if self.protected { ", a protected cache" } else { "" },
            if self.unit > 1 { format!(", units of {}", self.unit) } else { String::new() },
            if self.read_cache.is_on() {
                format!(", {:?}", self.read_cache)
            } else {
                String::new()
            },
            if self.map_pages > 0 { ", a part of its map in memory" } else { "" },
            self.layers.as_ref().map_or(String::new(), |layers| format!(", {layers:?}")),
            self.shares.as_ref().map_or(String::new(), |shares| format!(", {shares:?}")),
            self.work,
            self.troubles.in_words(),
        )
    }
}
