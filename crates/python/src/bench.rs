//! `ssdkit.bench`, `explain` and `replay`: benches, whose results are objects.

use ::bench::{BenchArgs, ExplainArgs, Explained, ReplayArgs, measure_and_draw};
use drive::Error;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::arguments::parsed;
use crate::error::raised;
use crate::observer::{watched, with_report};
use crate::outcome::Outcome;

/// Runs a workload on a drive and gives its report.
#[pyfunction]
#[pyo3(signature = (drive, options, pictures=false, progress=None))]
pub fn bench<'py>(
    py: Python<'py>,
    drive: &str,
    options: &Bound<'py, PyDict>,
    pictures: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let args: BenchArgs = parsed("bench", &[drive], Some(options))?;
    measured(py, || Ok(BenchArgs { pictures, ..args }), progress)
}

/// Replays a trace on a drive and gives its report, and why where that is asked for.
#[pyfunction]
#[pyo3(signature = (trace, drive, options, pictures=false, progress=None))]
pub fn replay<'py>(
    py: Python<'py>,
    trace: &str,
    drive: &str,
    options: &Bound<'py, PyDict>,
    pictures: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let args: ReplayArgs = parsed("replay", &[trace, drive], Some(options))?;
    // The trace is opened where the run may be stopped: standard input may say nothing.
    let bench = || Ok::<_, Error>(BenchArgs { pictures, ..args.bench()? });
    match args.explain {
        true => explained(py, bench, &args.what_if, progress),
        false => measured(py, bench, progress),
    }
}

/// Runs a bench of which each request tells where its time went.
#[pyfunction]
#[pyo3(signature = (drive, options, pictures=false, progress=None))]
pub fn explain<'py>(
    py: Python<'py>,
    drive: &str,
    options: &Bound<'py, PyDict>,
    pictures: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let args: ExplainArgs = parsed("explain", &[drive], Some(options))?;
    let bench = || Ok(BenchArgs { pictures, ..args.bench });
    explained(py, bench, &args.what_if, progress)
}

/// Measures, and raises with the report what went wrong.
fn measured<'py>(
    py: Python<'py>,
    args: impl FnOnce() -> Result<BenchArgs, Error> + Send,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let run = || measure_and_draw(&BenchArgs { json: true, ..args()? });
    let ((outcome, written), stopped) = watched(py, progress, run)?;
    let problem = outcome.problem.clone().map(Error::Failed).or(written.err());
    let report = Outcome::new(outcome).report(py)?;
    match stopped.or_else(|| problem.map(|e| raised(&e))) {
        Some(error) => Err(with_report(py, error, &report)),
        None => Ok(report),
    }
}

/// Explains, and raises with what there is what went wrong.
fn explained<'py>(
    py: Python<'py>,
    bench: impl FnOnce() -> Result<BenchArgs, Error> + Send,
    asked: &[String],
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let run = || Explained::of(&BenchArgs { json: true, ..bench()? }, asked);
    let (told, stopped) = watched(py, progress, run)?;
    let text = (told.to_text(), told.compared());
    let failed = told.outcome.problem.clone().map(Error::Failed).or_else(|| told.problem());
    let problem = failed.or(told.failed);
    let report = Outcome::new(told.outcome).report(py)?;
    let others = PyList::empty(py);
    // They are the first of those that were asked for: after one that failed there is none.
    for (set, other) in asked.iter().zip(told.others) {
        others.append((set, Outcome::new(other).report(py)?))?;
    }
    let kind = py.import("ssdkit.explanation")?.getattr("Explanation")?;
    let explanation = kind.call1((report, others, text.0, text.1))?;
    match stopped.or_else(|| problem.map(|e| raised(&e))) {
        Some(error) => Err(with_report(py, error, &explanation)),
        None => Ok(explanation),
    }
}
