//! Curves: points in order, of which each has a unit on either axis.

use serde_json::{Value, json};

use crate::table::Unit;

/// A curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// What it shows.
    pub name: String,
    /// What lies along it, and what that is of.
    pub along: (&'static str, Unit),
    /// What its height is of.
    pub unit: Unit,
    /// Its points.
    pub points: Vec<(f64, f64)>,
}

impl Curve {
    /// A curve of these points.
    pub fn new(
        name: &str,
        along: (&'static str, Unit),
        unit: Unit,
        points: Vec<(f64, f64)>,
    ) -> Curve {
        Curve { name: name.into(), along, unit, points }
    }

    /// As JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "along": self.along.0,
            "along_unit": self.along.1.name(),
            "unit": self.unit.name(),
            "points": self.points,
        })
    }
}
