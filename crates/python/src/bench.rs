//! `ssdkit.bench`.

use ::bench::BenchArgs;
use load::watch::Watch;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arguments::parsed;
use crate::error::raised;
use crate::value::python;

/// Runs a workload on a drive and gives its report, as `ssdkit bench --json` does.
#[pyfunction]
#[pyo3(signature = (drive, **options))]
pub fn bench<'py>(
    py: Python<'py>,
    drive: &str,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let mut args: BenchArgs = parsed("bench", &[drive], options)?;
    args.json = true;
    let outcome = py.detach(|| {
        args.drive = args.drive.found()?;
        args.check()?;
        ::bench::measure(&args, &mut Watch::quiet())
    });
    python(py, &outcome.map_err(|e| raised(&e))?.to_json())
}
