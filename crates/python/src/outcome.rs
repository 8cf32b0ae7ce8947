//! What a bench gave, as Python's values: made when they are asked for.

use measure::{Programmed, Row};
use numpy::{IntoPyArray, PyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::Value;

use crate::value::python;

/// Kinds of requests, in the order of [`bench::Outcome::cells`].
const KINDS: [&str; 5] = ["all", "reads", "writes", "trims", "flushes"];

/// What a run gave; `ssdkit.Report` is made of it.
#[pyclass(frozen, module = "ssdkit._core")]
pub struct Outcome {
    outcome: ::bench::Outcome,
}

impl Outcome {
    /// Of a bench.
    pub fn new(outcome: ::bench::Outcome) -> Outcome {
        Outcome { outcome }
    }

    /// As `ssdkit.Report`.
    pub fn report(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        py.import("ssdkit.report")?.getattr("Report")?.call1((self,))
    }

    fn json(&self) -> Value {
        let mut json = self.outcome.to_json();
        if let Some(causes) = &self.outcome.causes {
            json["explained"] = measure::why::causes_json(causes);
        }
        json
    }
}

/// Whole numbers.
type Numbers<'py> = Bound<'py, PyArray1<u64>>;

/// An array that owns what it was given.
fn array<'py, T: numpy::Element>(py: Python<'py>, all: Vec<T>) -> Bound<'py, PyArray1<T>> {
    all.into_pyarray(py)
}

#[pymethods]
impl Outcome {
    /// All of it, as `ssdkit bench --json` prints it.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        python(py, &self.json())
    }

    /// The same as one JSON text.
    fn to_json(&self) -> String {
        self.json().to_string()
    }

    /// As `ssdkit bench` prints it on a terminal of so many columns.
    fn text(&self, columns: usize) -> String {
        self.outcome.to_text(columns)
    }

    /// Latencies in ns, rising, and how often each, of all I/Os, reads, writes, trims or flushes.
    fn histogram<'py>(
        &self,
        py: Python<'py>,
        kind: &str,
    ) -> PyResult<(Numbers<'py>, Numbers<'py>)> {
        let place = KINDS.iter().position(|name| *name == kind);
        let place = place.ok_or_else(|| PyValueError::new_err(format!("no kind {kind}")))?;
        let (ns, n) = self.outcome.cells[place].iter().copied().unzip();
        Ok((array(py, ns), array(py, n)))
    }

    /// The series by column: an array each.
    fn series<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let rows = &self.outcome.report.series;
        let all = PyDict::new(py);
        let add = |name: &str, get: &dyn Fn(&Row) -> Option<f64>| {
            let column = rows.iter().map(|row| get(row).unwrap_or(f64::NAN)).collect();
            all.set_item(name, array(py, column))
        };
        let number = |n: Option<u64>| n.map(|n| n as f64);
        add("second", &|row| Some(row.second))?;
        add("seconds", &|row| Some(row.seconds))?;
        add("iops", &|row| Some(row.iops))?;
        add("p50", &|row| number(row.p50))?;
        add("p999", &|row| number(row.p999))?;
        add("write_amplification", &|row| row.write_amplification)?;
        add("free_chunks", &|row| number(row.free_chunks))?;
        add("collections", &|row| number(row.collections))?;
        add("erases", &|row| number(row.erases))?;
        for (name, get) in PROGRAMMED {
            add(name, &|row| number(row.programmed.as_ref().and_then(get)))?;
        }
        let ios: Vec<u64> = rows.iter().map(|row| row.ios).collect();
        all.set_item("ios", array(py, ios))?;
        Ok(all)
    }
}

/// A count of blocks, where there is one.
type Blocks = fn(&Programmed) -> Option<u64>;

/// Blocks programmed, by reason.
const PROGRAMMED: [(&str, Blocks); 6] = [
    ("programmed_user", |p| Some(p.user)),
    ("programmed_gc", |p| Some(p.gc)),
    ("programmed_padding", |p| Some(p.padding)),
    ("programmed_metadata", |p| Some(p.metadata)),
    ("programmed_parity", |p| p.parity),
    ("programmed_folds", |p| p.folds),
];
