//! `ssdkit._core.check`: whether a run can be, without running it.

use ::bench::{BenchArgs, ReplayArgs};
use drive::spec::DriveSpec;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arguments::parsed;
use crate::error::raised;

/// Raises what `bench` would of these options; where a trace is given, what `replay` would
/// before it looks at that. Of a drive in memory also what its name cannot be. No drive is made. Gives the drive's
/// name, written as its like are.
#[pyfunction]
#[pyo3(signature = (drive, trace = None, **options))]
pub fn check(
    py: Python<'_>,
    drive: &str,
    trace: Option<&str>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<String> {
    let drive = match trace {
        None => {
            let args: BenchArgs = parsed("bench", &[drive], options)?;
            args.check().map_err(|e| raised(&e))?;
            args.drive
        }
        Some(trace) => parsed::<ReplayArgs>("replay", &[trace, drive], options)?.drive,
    };
    let resolved = py.detach(|| match &drive {
        DriveSpec::Memory(spec) => spec.resolve().map(drop),
        _ => Ok(()),
    });
    resolved.map_err(|e| raised(&e.into()))?;
    Ok(drive.to_string())
}
