//! Requests one by one: each with where its time went.

use std::fmt::Write;

use port::BlockOp;
use serde_json::{Value, json};

use super::{WIDE, Why};
use crate::slowest::Slow;
use crate::units;

/// Where the parts of a request begin in the text; in one narrower than [`WIDE`] below it.
const INDENT: usize = 56;
const BELOW: usize = 12;

impl Why<'_> {
    /// Requests as a table at most so wide, but for what is wider alone, each with a time
    /// that is called so, and of several loads with the number of its own.
    pub fn requests<'s>(
        &self,
        all: impl Iterator<Item = (&'s Slow, u64, Option<usize>)>,
        when: &str,
        columns: usize,
    ) -> String {
        let is_narrow = columns < WIDE;
        let indent = if is_narrow { BELOW } else { INDENT };
        let mut text = format!(
            "{:<12}{:>8} {when:>9}  {:<9}{:>13}   where its time went\n",
            "slowest", "latency", "op", "address"
        );
        for (number, (slow, begun, load)) in all.enumerate() {
            let [latency, begun] = [slow.story.ns(), begun].map(|ns| units::time_ns(ns as f64));
            let load = load.map_or(String::new(), |load| format!(" {load}"));
            let (op, address) = (word(slow.op).to_string() + &load, slow.offset);
            let _ = write!(
                text,
                "{:>10}  {latency:>8} {begun:>9}  {op:<9}{address:>13}   ",
                number + 1
            );
            let mut parts: Vec<_> = slow.story.parts().collect();
            parts.sort_by_key(|part| std::cmp::Reverse(part.2));
            if is_narrow {
                let _ = write!(text, "\n{:indent$}", "");
            }
            let mut at = indent;
            for (i, (name, behind, ns)) in parts.into_iter().enumerate() {
                let behind = behind.map(|behind| format!(" behind {}", self.before(behind)));
                let behind = behind.unwrap_or_default();
                let part = format!("{name} {}{behind}", units::time_ns(ns as f64));
                let width = part.chars().count();
                if i > 0 && at + 2 + width > columns {
                    let _ = write!(text, ",\n{:indent$}{part}", "");
                    at = indent + width;
                } else {
                    let comma = if i > 0 { ", " } else { "" };
                    let _ = write!(text, "{comma}{part}");
                    at += comma.len() + width;
                }
            }
            text.push('\n');
        }
        text
    }
}

/// A request as JSON, but for when it was.
pub fn request_json(slow: &Slow) -> Value {
    let part = |(name, behind, ns): (&str, Option<&str>, u64)| match behind {
        Some(behind) => json!({ "part": name, "behind": behind, "ns": ns }),
        None => json!({ "part": name, "ns": ns }),
    };
    json!({
        "latency_ns": slow.story.ns(),
        "op": word(slow.op),
        "offset": slow.offset,
        "bytes": slow.len,
        "parts": slow.story.parts().map(part).collect::<Value>(),
    })
}

fn word(op: BlockOp) -> &'static str {
    match op {
        BlockOp::Read => "read",
        BlockOp::Write => "write",
        BlockOp::Trim => "trim",
        BlockOp::WriteZeroes => "zeroes",
        BlockOp::Flush => "flush",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use port::{Part, Story, Time};

    /// Beside the request where there is room, else below it; no line is longer than asked.
    #[test]
    fn parts_are_where_there_is_room() {
        let mut story = Story::at(Time(7));
        for (n, part) in
            [Part::RoomRows, Part::Array, Part::Link, Part::Map].into_iter().enumerate()
        {
            story.add(part, 5_000_000 - n as u64);
        }
        let slow = Slow::new(BlockOp::Read, 1 << 40, 4096, story);
        let table =
            |columns| Why::default().requests([(&slow, 9, Some(3))].into_iter(), "begun", columns);
        let first = "         1   20.0 ms      9 ns  read 3   1099511627776   ";
        let parts = "room 5.00 ms behind rows on their way, array 5.00 ms, link 5.00 ms";
        let wide = table(130);
        assert!(wide.contains(&format!("{first}{parts},\n")), "{wide}");
        let narrow = table(80);
        assert!(narrow.contains(&format!("{first}\n            {parts},\n")), "{narrow}");
        for (columns, text) in [(130, wide), (80, narrow)] {
            assert!(text.lines().all(|line| line.chars().count() <= columns), "{text}");
        }
    }

    /// A name has as many columns as letters, whatever bytes these are.
    #[test]
    fn lines_are_as_long_as_they_look() {
        let mut story = Story::at(Time(7));
        story.add_named("die", Some("read of user"), 5_000_000).unwrap();
        story.add(Part::Array, 4_000_000);
        story.add(Part::Link, 3_000_000);
        let slow = Slow::new(BlockOp::Read, 0, 4096, story);
        let why = Why { reader: Some("é".repeat(12)), ..Why::default() };
        let table = why.requests([(&slow, 9, None)].into_iter(), "begun", 130);
        let parts = "behind read of éééééééééééé, array 4.00 ms, link 3.00 ms\n";
        assert!(table.ends_with(parts), "{table}");
    }
}
