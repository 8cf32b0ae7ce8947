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
        let (axis, what) = abscissa(along.0);
        Plot {
            caption: caption(curves, what),
            along: (axis, text(along.1)),
            height: (ordinate(*unit), text(*unit)),
            is_log: *unit == Unit::Ns,
            lines: curves.iter().map(|curve| (curve.name.clone(), curve.points.clone())).collect(),
        }
    };
    curves.chunk_by(alike).map(plot).collect()
}

/// What a picture shows, as a sentence.
fn caption(curves: &[Curve], what: &str) -> String {
    let names: Vec<&str> = curves.iter().map(|curve| curve.name.as_str()).collect();
    match names.as_slice() {
        [one] => format!("How {one} changes with {what}."),
        [first @ .., last] => {
            format!("How {} and {last} change with {what}.", first.join(", "))
        }
        [] => String::new(),
    }
}

/// What stands at the axis of what lies along a curve, and what that is in a sentence.
fn abscissa(along: &'static str) -> (&'static str, &'static str) {
    match along {
        "written" => ("written, in drive fills", "what was written, in drive fills"),
        "of the most" => {
            ("arrivals, of the most", "the rate of arrivals, as a part of the most that it does")
        }
        "round" => (along, "the round"),
        "burst" => (along, "the number of the burst"),
        "request" => (along, "the size of the request"),
        "shift" => (along, "the shift of all addresses"),
        "within" => ("part of the drive", "the size of the part of the drive"),
        "partitions" => (along, "the number of partitions"),
        "step, in requests" => (along, "the step, in requests"),
        "at once" => ("requests at once", "the number of requests at once"),
        "of the first for one of the second" => (
            "of the first for one of the second",
            "how many of the first go with one of the second",
        ),
        "after each" => ("pause after each", "the pause after each request"),
        "requests a burst" => (along, "the requests of a burst"),
        other => (other, other),
    }
}

/// What stands at the other axis, whose numbers have their units.
fn ordinate(unit: Unit) -> &'static str {
    match unit {
        Unit::Ns => "response time",
        Unit::BytesPerSecond => "throughput",
        Unit::Bytes => "size",
        other => other.name(),
    }
}

/// How numbers of a unit are written beside an axis.
fn text(unit: Unit) -> fn(f64) -> String {
    match unit {
        Unit::Iops => |value| Unit::Iops.text(value),
        Unit::BytesPerSecond => |value| Unit::BytesPerSecond.text(value),
        Unit::Ns => |value| Unit::Ns.text(value),
        Unit::Fills | Unit::Ratio | Unit::Count => |value| format!("{}", rounded(value)),
        Unit::Percent => |value| format!("{} %", rounded(value)),
        Unit::Bytes => |value| Unit::Bytes.text(value),
    }
}

/// With digits enough that neighbours on an axis differ.
fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_have_sentences_and_axes_with_units() {
        let curve = |name, along, unit| Curve::new(name, along, unit, vec![(1.0, 2.0), (2.0, 3.0)]);
        let most = ("of the most", Unit::Percent);
        let written = ("written", Unit::Fills);
        let plots = plots(&[
            curve("p50", most, Unit::Ns),
            curve("p99", most, Unit::Ns),
            curve("p99.9", most, Unit::Ns),
            curve("IOPS", written, Unit::Iops),
            curve("p99", written, Unit::Ns),
        ]);
        let told = |plot: &Plot| (plot.caption.clone(), plot.along.0, plot.height.0);
        let all: Vec<_> = plots.iter().map(told).collect();
        let arrivals = "the rate of arrivals, as a part of the most that it does";
        let fills = "what was written, in drive fills";
        let [along, fill] = ["arrivals, of the most", "written, in drive fills"];
        let expected = [
            (format!("How p50, p99 and p99.9 change with {arrivals}."), along, "response time"),
            (format!("How IOPS changes with {fills}."), fill, "IOPS"),
            (format!("How p99 changes with {fills}."), fill, "response time"),
        ];
        assert_eq!(all, expected);
        assert_eq!((plots[0].along.1)(80.0), "80 %");
        // Marks lie where the axis has room, which may be between two rounds.
        assert_eq!([1.0, 1.5, 2.0].map(text(Unit::Count)), ["1", "1.5", "2"]);
    }
}
