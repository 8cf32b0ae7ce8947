//! Keyword arguments as the command line's options.
//!
//! `read_percent=70` is `--read-percent=70`; `True` is the option alone, `False`
//! and `None` leave it out, a list or tuple gives it once for each. So Python has
//! the same options as the command line, the same checks, and the same words when
//! one is wrong.

use clap::{Args, Command};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::error::UsageError;

/// The options `T` of a command that is called `name`, from Python's keywords.
///
/// Raises `TypeError` for a value that is no option's, `UsageError` for one that the
/// command line refuses.
pub fn parsed<T: Args>(
    name: &'static str,
    operands: &[&str],
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<T> {
    let mut line = vec![name.to_string()];
    if let Some(options) = options {
        for (key, value) in options {
            add(&mut line, &key.extract::<String>()?.replace('_', "-"), &value)?;
        }
    }
    line.push("--".into());
    line.extend(operands.iter().map(ToString::to_string));
    let command = T::augment_args(Command::new(name));
    let matches = command.try_get_matches_from(line).map_err(|e| refused(&e))?;
    T::from_arg_matches(&matches).map_err(|e| refused(&e))
}

/// Adds one option, or each of a list.
fn add(line: &mut Vec<String>, key: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    if value.is_none() {
    } else if value.is_instance_of::<PyBool>() {
        if value.is_truthy()? {
            line.push(format!("--{key}"));
        }
    } else if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        for each in value.try_iter()? {
            add(line, key, &each?)?;
        }
    } else if value.is_instance_of::<PyString>()
        || value.is_instance_of::<PyInt>()
        || value.is_instance_of::<PyFloat>()
    {
        line.push(format!("--{key}={value}"));
    } else if let Some(value) = plain(value)? {
        line.push(format!("--{key}={value}"));
    } else {
        let kind = value.get_type().name()?;
        return Err(PyTypeError::new_err(format!(
            "{}: a {kind} is no value of an option: give a number, a text, a bool, or a list of them",
            key.replace('-', "_")
        )));
    }
    Ok(())
}

/// A whole number or a path of another type, such as NumPy's or `pathlib`'s.
fn plain<'py>(value: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let found =
        ["__index__", "__fspath__"].into_iter().find(|name| value.hasattr(*name).unwrap_or(false));
    found.map(|name| value.call_method0(name)).transpose()
}

/// What the command line says, without its hints for a terminal.
fn refused(error: &clap::Error) -> PyErr {
    let text = error.render().to_string();
    let said = text.strip_prefix("error: ").unwrap_or(&text);
    let ends = ["\n\n  tip:", "\n\nUsage:", "\n\nFor more information"];
    let end = ends.iter().filter_map(|end| said.find(end)).min();
    let said = &said[..end.unwrap_or(said.len())];
    UsageError::new_err(said.trim().to_string())
}
