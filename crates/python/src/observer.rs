//! Python in the terminal's place: Ctrl-C stops a run, and a callable sees how far it is.

use std::sync::{Arc, Mutex, PoisonError};

use drive::Error;
use load::watch::{Observer, observed};
use pyo3::prelude::*;

use crate::error::raised;

/// Asks the interpreter now and then.
struct Interpreter {
    /// Called with what is done and how much of it, 0 to 1.
    progress: Option<Py<PyAny>>,
    /// Whether signals come to this thread.
    is_main: bool,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    phase: String,
    /// What stopped the run.
    error: Option<PyErr>,
}

impl Interpreter {
    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Interpreter {
    fn phase(&self, name: &str) {
        self.seen().phase = name.into();
    }

    fn look(&self, part: f64) -> bool {
        // Who can be neither told nor stopped does not wait for the lock.
        if !self.is_main && self.progress.is_none() {
            return true;
        }
        let phase = self.seen().phase.clone();
        let asked = Python::try_attach(|py| {
            py.check_signals()?;
            self.progress.as_ref().map_or(Ok(()), |call| call.call1(py, (phase, part)).map(drop))
        });
        // An interpreter that ends takes nobody in, and has no use for what is measured.
        let Some(asked) = asked else { return false };
        let goes_on = asked.is_ok();
        if let Err(error) = asked {
            self.seen().error.get_or_insert(error);
        }
        goes_on
    }
}

/// Runs with the interpreter's lock released, until it ends, a signal's handler raises
/// or `progress` does. Gives what came of it, and what was raised meanwhile. Fails with
/// what was raised where nothing came of it.
pub fn watched<T: Send>(
    py: Python<'_>,
    progress: Option<Py<PyAny>>,
    run: impl FnOnce() -> Result<T, Error> + Send,
) -> PyResult<(T, Option<PyErr>)> {
    let threading = py.import("threading")?;
    let (main, this) =
        (threading.call_method0("main_thread")?, threading.call_method0("current_thread")?);
    let interpreter =
        Arc::new(Interpreter { progress, is_main: main.is(&this), seen: Mutex::default() });
    let ran = py.detach(|| observed(interpreter.clone(), run));
    let error = interpreter.seen().error.take();
    match (ran, error) {
        (Ok(ran), error) => Ok((ran, error)),
        (Err(_), Some(error)) => Err(error),
        (Err(e), None) => Err(raised(&e)),
    }
}

/// Raises an error that carries what was measured, as `report`.
pub fn with_report(py: Python<'_>, error: PyErr, report: &Bound<'_, PyAny>) -> PyErr {
    // One that takes no attributes is raised as it is.
    let _ = error.value(py).setattr("report", report);
    error
}
