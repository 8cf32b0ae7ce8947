//! `ssdkit._core.life`: a drive's life in bursts, which `ssdkit.fleet` is made of.

use ::bench::BenchArgs;
use ::bench::life::{Course, Window, live};
use load::watch::Watch;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::Value;

use crate::arguments::parsed;
use crate::error::{UsageError, raised};
use crate::value::python;

/// Lives a drive's life and tells of each of its windows. Times are in seconds of drive
/// time.
#[pyfunction]
#[pyo3(signature = (drive, *, windows, bursts, requests, rest, tend, **options))]
#[expect(clippy::too_many_arguments, reason = "they are Python's keywords")]
pub fn life<'py>(
    py: Python<'py>,
    drive: &str,
    windows: u32,
    bursts: u32,
    requests: u64,
    rest: f64,
    tend: f64,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let args: BenchArgs = parsed("life", &[drive], options)?;
    let times = rest.is_finite() && tend.is_finite() && rest >= 0.0 && tend > 0.0;
    if windows == 0 || bursts == 0 || requests == 0 || !times {
        let text = "windows, bursts, requests and tend are above 0, rest is no less";
        return Err(UsageError::new_err(text));
    }
    // What is too long is as long as can be.
    let ns = |seconds: f64| ((seconds * 1e9) as u64).max(1);
    let course = Course { windows, bursts, requests, rest: ns(rest), tend: ns(tend) };
    let lived = py.detach(|| {
        args.check()?;
        live(&args, &course, &mut Watch::quiet())
    });
    let told: Value = lived.map_err(|e| raised(&e))?.iter().map(Window::to_json).collect();
    python(py, &told)
}
