//! The page of a test.

use report::{Grid, Plot, Sheet};
use serde_json::json;

use crate::curve::Curve;
use crate::outcome::{Outcome, Verdict};
use crate::table::{Table, Unit};

/// The page of what a test gave.
pub fn page(outcome: &Outcome) -> String {
    let found = &outcome.found;
    let drive = outcome.drive.1["name"].as_str().unwrap_or("a drive");
    let sheet = Sheet {
        title: format!("{} of {drive}", outcome.test),
        verdict: outcome.headline(),
        is_doubtful: !matches!(outcome.verdict, Verdict::Steady(_) | Verdict::Done),
        lines: outcome.lines(),
        grids: found.tables.iter().map(grid).collect(),
        plots: plots(&found.curves),
        all: json!({ "drive": outcome.drive.0, "settings": outcome.settings }),
    };
    sheet.page()
}

fn grid(table: &Table) -> Grid {
    let head = std::iter::once(table.name.clone()).chain(table.columns.iter().cloned());
    let row = |(name, values): &(String, Vec<Option<f64>>)| {
        let cells = values.iter().map(|&value| table.cell(value));
        std::iter::once(name.clone()).chain(cells).collect()
    };
    Grid { head: head.collect(), rows: table.rows.iter().map(row).collect() }
}

/// Curves of the same units are in one picture.
fn plots(curves: &[Curve]) -> Vec<Plot> {
    let alike = |a: &Curve, b: &Curve| (a.along, a.unit) == (b.along, b.unit);
    let plot = |curves: &[Curve]| {
        let Curve { along, unit, .. } = &curves[0];
        let names: Vec<&str> = curves.iter().map(|curve| curve.name.as_str()).collect();
        Plot {
            caption: format!("{}, by {}", names.join(", "), along.0),
            along: (along.0, text(along.1)),
            height: (unit.name(), text(*unit)),
            is_log: *unit == Unit::Ns,
            lines: curves.iter().map(|curve| (curve.name.clone(), curve.points.clone())).collect(),
        }
    };
    curves.chunk_by(alike).map(plot).collect()
}

/// How numbers of a unit are written beside an axis.
fn text(unit: Unit) -> fn(f64) -> String {
    match unit {
        Unit::Iops => |value| Unit::Iops.text(value),
        Unit::BytesPerSecond => |value| Unit::BytesPerSecond.text(value),
        Unit::Ns => |value| Unit::Ns.text(value),
        Unit::Fills | Unit::Ratio | Unit::Percent => |value| format!("{:.1}", value),
        Unit::Count => |value| format!("{:.0}", value),
        Unit::Bytes => |value| Unit::Bytes.text(value),
    }
}
