//! The slowest requests in a report: each with where its time went.

use std::fmt::Write;

use measure::slowest::Slow;
use measure::units;
use port::{BlockOp, Time};
use serde_json::{Value, json};

/// Where the parts of a request begin in the text.
const INDENT: usize = 56;

/// The slowest requests of a run.
#[derive(Clone, Debug)]
pub struct SlowestReport {
    /// When counting began.
    began: Time,
    all: Vec<Slow>,
}

impl SlowestReport {
    /// Of a run that began to count at that time.
    pub fn new(began: Time, all: Vec<Slow>) -> SlowestReport {
        SlowestReport { began, all }
    }

    /// As JSON.
    pub fn to_json(&self) -> Value {
        let one = |slow: &Slow| {
            let mut json = one(slow);
            json["start_ns"] = slow.story.start().since(self.began).into();
            json
        };
        self.all.iter().map(one).collect()
    }
    /// As a table at most so wide, but for what is wider alone.
    pub fn to_text(&self, columns: usize) -> String {
        let begun = |slow: &Slow| slow.story.start().since(self.began);
        let all = self.all.iter().map(|slow| (slow, begun(slow)));
        table(all, "begun", columns)
    }
}

/// Requests as a table at most so wide, but for what is wider alone, each with a time
/// that is called so.
pub(crate) fn table<'a>(
    all: impl Iterator<Item = (&'a Slow, u64)>,
    when: &str,
    columns: usize,
) -> String {
    let mut text = format!(
        "{:<12}{:>8} {when:>9}  {:<7}{:>15}   where its time went\n",
        "slowest", "latency", "op", "address"
    );
    for (number, (slow, begun)) in all.enumerate() {
        let [latency, begun] = [slow.story.ns(), begun].map(|ns| units::time_ns(ns as f64));
        let (op, address) = (word(slow.op), slow.offset);
        let _ =
            write!(text, "{:>10}  {latency:>8} {begun:>9}  {op:<7}{address:>15}   ", number + 1);
        let mut parts: Vec<_> = slow.story.parts().collect();
        parts.sort_by_key(|part| std::cmp::Reverse(part.2));
        let mut at = INDENT;
        for (i, (name, behind, ns)) in parts.into_iter().enumerate() {
            let behind = behind.map_or(String::new(), |behind| format!(" behind {behind}"));
            let part = format!("{name} {}{behind}", units::time_ns(ns as f64));
            if i > 0 && at + 2 + part.len() > columns {
                let _ = write!(text, ",\n{:INDENT$}{part}", "");
                at = INDENT + part.len();
            } else {
                let comma = if i > 0 { ", " } else { "" };
                let _ = write!(text, "{comma}{part}");
                at += comma.len() + part.len();
            }
        }
        text.push('\n');
    }
    text
}

/// A request as JSON, but for when it was.
pub(crate) fn one(slow: &Slow) -> Value {
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
