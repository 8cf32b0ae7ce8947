//! The slowest requests in a report: each with where its time went.

use std::fmt::Write;

use load::slowest::Slow;
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
        self.all.iter().map(|slow| self.one(slow)).collect()
    }

    fn one(&self, slow: &Slow) -> Value {
        let part = |(name, behind, ns): (&str, Option<&str>, u64)| match behind {
            Some(behind) => json!({ "part": name, "behind": behind, "ns": ns }),
            None => json!({ "part": name, "ns": ns }),
        };
        json!({
            "latency_ns": slow.story.ns(),
            "start_ns": slow.story.start().since(self.began),
            "op": word(slow.op),
            "offset": slow.offset,
            "bytes": slow.len,
            "parts": slow.story.parts().map(part).collect::<Value>(),
        })
    }

    /// As a table at most so wide, but for what is wider alone.
    pub fn to_text(&self, columns: usize) -> String {
        let mut text = format!(
            "{:<12}{:>8} {:>9}  {:<7}{:>15}   where its time went\n",
            "slowest", "latency", "begun", "op", "address"
        );
        for (number, slow) in self.all.iter().enumerate() {
            let begun = slow.story.start().since(self.began);
            let [latency, begun] = [slow.story.ns(), begun].map(|ns| units::time_ns(ns as f64));
            let (op, address) = (word(slow.op), slow.offset);
            let _ = write!(
                text,
                "{:>10}  {latency:>8} {begun:>9}  {op:<7}{address:>15}   ",
                number + 1
            );
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
