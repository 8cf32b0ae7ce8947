//! Errors as Python's exceptions, with the texts of the command line.

use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyMemoryError};
use pyo3::prelude::*;

create_exception!(ssdkit, Error, PyException, "What ssdkit could not do, and what to do about it.");
create_exception!(ssdkit, UsageError, Error, "It was asked for something that cannot be.");
create_exception!(ssdkit, DriveError, UsageError, "No such drive can be.");

/// The exception for an error of a command: [`UsageError`] where that would end with
/// exit code 2.
pub fn raised(error: &drive::Error) -> PyErr {
    let text = error.to_string();
    match error {
        drive::Error::Memory(_) => PyMemoryError::new_err(text),
        drive::Error::Drive(_) | drive::Error::Target(_) if error.exit_code() == 2 => {
            DriveError::new_err(text)
        }
        _ if error.exit_code() == 2 => UsageError::new_err(text),
        _ => Error::new_err(text),
    }
}
