//! The other commands: what each prints as JSON, as Python's values.

use std::io::Write;

use clap::Args;
use drive::Error;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use report::{Comparison, Run, page};
use ssdkit::{cli, create, info, profiles, snapshot};

use crate::arguments::parsed;
use crate::error::{UsageError, raised};
use crate::observer::{watched, with_report};
use crate::value::python;

/// What a call gives a command.
struct Call<'a, 'py> {
    py: Python<'py>,
    name: &'static str,
    operands: Vec<String>,
    options: &'a Bound<'py, PyDict>,
    progress: Option<Py<PyAny>>,
}

impl<'py> Call<'_, 'py> {
    /// Runs a command, and gives what it printed: a value of JSON, or a text.
    fn run<T: Args + Sync>(
        self,
        run: fn(&T, &mut dyn Write) -> Result<(), Error>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py;
        let operands: Vec<&str> = self.operands.iter().map(String::as_str).collect();
        let args: T = parsed(self.name, &operands, Some(self.options))?;
        let ran = || {
            let mut out = Vec::new();
            match run(&args, &mut out) {
                Err(e) if out.is_empty() => Err(e),
                ran => Ok((out, ran.err())),
            }
        };
        let ((out, failed), stopped) = watched(py, self.progress, ran)?;
        let said = match serde_json::from_slice(&out) {
            Ok(json) => python(py, &json)?,
            Err(_) => String::from_utf8_lossy(&out).into_pyobject(py)?.into_any(),
        };
        match stopped.or_else(|| failed.map(|e| raised(&e))) {
            Some(error) => Err(with_report(py, error, &said)),
            None => Ok(said),
        }
    }
}

/// Runs the command of this name.
#[pyfunction]
#[pyo3(signature = (name, operands, options, progress=None))]
pub fn command<'py>(
    py: Python<'py>,
    name: &str,
    operands: Vec<String>,
    options: &Bound<'py, PyDict>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let call = |name| Call { py, name, operands, options, progress };
    match name {
        "create" => call("create").run::<cli::CreateArgs>(create::run),
        "info" => call("info").run::<cli::InfoArgs>(info::run),
        "profiles" => call("profiles").run::<cli::ProfilesArgs>(profiles::run),
        "snapshot" => call("snapshot").run::<cli::SnapshotArgs>(snapshot::run),
        "study" => call("study").run::<studies::StudyArgs>(studies::run),
        "test" => call("test").run::<standard::TestArgs>(standard::run),
        "twin" => call("twin").run::<twin::TwinArgs>(twin::run),
        name => Err(PyValueError::new_err(format!("no command {name}"))),
    }
}

/// Reports side by side, each a name and its JSON text: what differs, as a value and as
/// text, and a page with pictures.
#[pyfunction]
pub fn compare<'py>(
    py: Python<'py>,
    reports: Vec<(String, String)>,
) -> PyResult<(Bound<'py, PyAny>, String, String)> {
    let made = py.detach(|| {
        let runs = reports.iter().map(|(name, text)| Run::from_text(name, text));
        let runs = runs.collect::<Result<Vec<_>, _>>().map_err(|e| e.to_string())?;
        let comparison = Comparison::new(&runs);
        Ok((comparison.to_json(), comparison.to_text(), page(&runs)))
    });
    let (json, text, page) = made.map_err(UsageError::new_err::<String>)?;
    Ok((python(py, &json)?, text, page))
}
