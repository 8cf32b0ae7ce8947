//! The module `ssdkit._core`: what the Python package of the same name stands on.
//!
//! It takes Python's values apart, runs what the command line runs, with the
//! interpreter's lock released, and gives the results as Python's. It decides
//! nothing: options, their texts and their errors are the command line's own. No
//! panic crosses into Python but as its `PanicException`, which is a defect here.

use pyo3::prelude::*;

mod arguments;
mod bench;
mod check;
mod columns;
mod commands;
mod drive;
mod error;
mod formula;
mod keys;
mod life;
mod observer;
mod outcome;
mod place;
mod policy;
mod process;
mod stores;
mod value;

/// The native half of the package ssdkit; not for use by itself.
#[pymodule]
mod _core {
    use super::*;

    #[pymodule_export]
    use super::bench::{bench, explain, replay};
    #[pymodule_export]
    use super::check::check;
    #[pymodule_export]
    use super::columns::status_name;
    #[pymodule_export]
    use super::commands::{command, compare};
    #[pymodule_export]
    use super::drive::PyDrive;
    #[pymodule_export]
    use super::error::{DriveError, Error, UsageError};
    #[pymodule_export]
    use super::formula::of_victim;
    #[pymodule_export]
    use super::keys::PyKeys;
    #[pymodule_export]
    use super::life::life;
    #[pymodule_export]
    use super::outcome::Outcome;
    #[pymodule_export]
    use super::value::in_words;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
