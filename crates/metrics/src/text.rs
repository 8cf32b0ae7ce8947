//! Prometheus' text format, version 0.0.4, as it is written.
//!
//! Guarantees: each metric has its HELP and TYPE before its samples, and only those of
//! [`crate::table`] can be written; values of labels are escaped. Nothing here fails.

use std::fmt::Write;

use crate::table::by_name;

/// A page that is being written.
#[derive(Default)]
pub(crate) struct Text(String);

impl Text {
    /// What was written.
    pub fn into_string(self) -> String {
        self.0
    }

    /// A metric's samples come now.
    ///
    /// # Panics
    /// When it is none of the table.
    pub fn metric(&mut self, name: &'static str) -> Samples<'_> {
        let metric = by_name(name);
        let _ = writeln!(self.0, "# HELP {name} {}", metric.help);
        let _ = writeln!(self.0, "# TYPE {name} {}", metric.kind.name());
        Samples { text: &mut self.0, name }
    }

    /// A metric with one sample.
    pub fn one(&mut self, name: &'static str, value: impl Into<Value>) {
        self.metric(name).add(&[], value);
    }
}

/// A number: exact where it is whole.
pub(crate) enum Value {
    /// Whole.
    Whole(u64),
    /// Any.
    Real(f64),
}

impl From<u64> for Value {
    fn from(n: u64) -> Value {
        Value::Whole(n)
    }
}

impl From<f64> for Value {
    fn from(n: f64) -> Value {
        Value::Real(n)
    }
}

/// ns, in seconds.
pub(crate) fn seconds(ns: u128) -> Value {
    Value::Real(ns as f64 / 1e9)
}

/// The samples of a metric.
pub(crate) struct Samples<'a> {
    text: &'a mut String,
    name: &'static str,
}

impl Samples<'_> {
    /// One more, with these labels.
    pub fn add(&mut self, labels: &[(&str, &str)], value: impl Into<Value>) {
        self.add_to("", labels, value);
    }

    /// The same of a part of a histogram: `_bucket`, `_sum` or `_count`.
    pub fn add_to(&mut self, part: &str, labels: &[(&str, &str)], value: impl Into<Value>) {
        self.text.push_str(self.name);
        self.text.push_str(part);
        for (n, (name, value)) in labels.iter().enumerate() {
            self.text.push(if n == 0 { '{' } else { ',' });
            self.text.push_str(name);
            self.text.push_str("=\"");
            for c in value.chars() {
                match c {
                    '\\' => self.text.push_str("\\\\"),
                    '"' => self.text.push_str("\\\""),
                    '\n' => self.text.push_str("\\n"),
                    c => self.text.push(c),
                }
            }
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = match value.into() {
            Value::Whole(n) => writeln!(self.text, " {n}"),
            Value::Real(n) => writeln!(self.text, " {n}"),
        };
    }
}
