//! Figures, and tables of them.
//!
//! Guarantees: what is not known is `null` in JSON and a dash in the text; every number
//! of a text has its unit, there or in the head of its table. Nothing here fails.

use std::fmt::Write;

use measure::units::{bytes_decimal, count, size_binary, time_ns};
use serde_json::{Value, json};

/// What a number is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Requests a second.
    Iops,
    /// Bytes a second, decimal.
    BytesPerSecond,
    /// Nanoseconds.
    Ns,
    /// How often all of the drive was written.
    Fills,
    /// A part of a hundred.
    Percent,
    /// One number beside another.
    Ratio,
    /// A number.
    Count,
    /// Bytes, binary.
    Bytes,
}

impl Unit {
    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Iops => "IOPS",
            Unit::BytesPerSecond => "bytes/s",
            Unit::Ns => "ns",
            Unit::Fills => "drive fills",
            Unit::Percent => "%",
            Unit::Ratio => "ratio",
            Unit::Count => "count",
            Unit::Bytes => "bytes",
        }
    }

    /// A value of it, for a table whose head says what it is.
    pub fn text(self, value: f64) -> String {
        match self {
            Unit::Iops | Unit::Count => count(value),
            Unit::BytesPerSecond => format!("{}/s", bytes_decimal(value)),
            Unit::Ns => time_ns(value),
            Unit::Fills => format!("{value:.2}"),
            Unit::Percent => format!("{value:.1} %"),
            Unit::Ratio => format!("{value:.2}"),
            Unit::Bytes => size_binary(value as u64),
        }
    }

    /// A value of it with all that it needs.
    pub fn whole_text(self, value: f64) -> String {
        match self {
            Unit::Iops => format!("{} IOPS", count(value)),
            Unit::Fills => format!("{value:.2} drive fills"),
            Unit::Ratio => format!("x {value:.2}"),
            _ => self.text(value),
        }
    }
}

/// One number.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// What it is.
    pub name: String,
    /// What it is of.
    pub unit: Unit,
    /// The number; `None` where it is not known.
    pub value: Option<f64>,
}

impl Figure {
    /// A figure of this name.
    pub fn new(name: &str, unit: Unit, value: impl Into<Option<f64>>) -> Figure {
        Figure { name: name.into(), unit, value: value.into() }
    }

    /// As text.
    pub fn text(&self) -> String {
        self.value.map_or("-".into(), |value| self.unit.whole_text(value))
    }

    /// As JSON.
    pub fn to_json(&self) -> Value {
        json!({ "name": self.name, "unit": self.unit.name(), "value": self.value })
    }
}

/// Numbers of one unit, by row and column.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// What they are.
    pub name: String,
    /// What they are of.
    pub unit: Unit,
    /// What each column is.
    pub columns: Vec<String>,
    /// What each row is, and its numbers, one for each column.
    pub rows: Vec<(String, Vec<Option<f64>>)>,
}

impl Table {
    /// A table without rows.
    pub fn new(name: &str, unit: Unit, columns: Vec<String>) -> Table {
        Table { name: name.into(), unit, columns, rows: Vec::new() }
    }

    /// Adds a row, which has a number for each column.
    pub fn push(&mut self, name: &str, values: Vec<Option<f64>>) {
        assert_eq!(values.len(), self.columns.len(), "a number for each column");
        self.rows.push((name.into(), values));
    }

    /// What stands in a cell.
    pub fn cell(&self, value: Option<f64>) -> String {
        value.map_or("-".into(), |value| self.unit.text(value))
    }

    /// As text: a line for the head, and one for each row.
    pub fn to_text(&self) -> String {
        let rows: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|(_, values)| values.iter().map(|&value| self.cell(value)).collect())
            .collect();
        let wide = |text: &str| text.chars().count();
        let first = self.rows.iter().map(|(name, _)| wide(name)).chain([wide(&self.name)]);
        let first = first.max().unwrap_or(0);
        let widths: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .map(|(n, column)| {
                let cells = rows.iter().map(|row| wide(&row[n]));
                cells.chain([wide(column)]).max().unwrap_or(0)
            })
            .collect();
        let mut out = String::new();
        let mut line = |name: &str, cells: &[String]| {
            let _ = write!(out, "{name:<first$}");
            for (cell, &width) in cells.iter().zip(&widths) {
                let _ = write!(out, "  {cell:>width$}");
            }
            out.push('\n');
        };
        line(&self.name, &self.columns);
        for ((name, _), cells) in self.rows.iter().zip(&rows) {
            line(name, cells);
        }
        out
    }

    /// As JSON.
    pub fn to_json(&self) -> Value {
        let row =
            |(name, values): &(String, Vec<Option<f64>>)| json!({ "name": name, "values": values });
        json!({
            "name": self.name,
            "unit": self.unit.name(),
            "columns": self.columns,
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_a_dash_and_null() {
        let mut table = Table::new("IOPS", Unit::Iops, vec!["4 KiB".into(), "512 B".into()]);
        table.push("0/100", vec![Some(83_100.0), None]);
        assert_eq!(table.to_text(), "IOPS    4 KiB  512 B\n0/100  83.1 k      -\n");
        assert_eq!(table.to_json()["rows"][0]["values"], json!([83_100.0, null]));
        let figure = Figure::new("cliff", Unit::Fills, 1.25);
        assert_eq!(figure.text(), "1.25 drive fills");
        assert_eq!(Figure::new("knee", Unit::Percent, None).text(), "-");
    }
}
