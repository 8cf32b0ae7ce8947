//! Keyword arguments as the command line's options.
//!
//! `read_percent=70` is `--read-percent=70`; `True` is the option alone, `False`
//! and `None` leave it out, a list or tuple gives it once for each. So Python has
//! the same options as the command line, the same checks, and the same words when
//! one is wrong.

use clap::{Args, Command};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

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
        // A copy: reading a value may run Python, which may change the dict.
        for (key, value) in options.copy()? {
            let key = key.extract::<String>()?.replace('_', "-");
            match is_list(&value) {
                true => value.try_iter()?.try_for_each(|each| add(&mut line, &key, &each?))?,
                false => add(&mut line, &key, &value)?,
            }
        }
    }
    line.push("--".into());
    line.extend(operands.iter().map(ToString::to_string));
    let command = T::augment_args(Command::new(name));
    let matches = command.try_get_matches_from(line).map_err(|e| refused(&e))?;
    T::from_arg_matches(&matches).map_err(|e| refused(&e))
}

fn is_list(value: &Bound<'_, PyAny>) -> bool {
    value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>()
}

/// Adds one option.
fn add(line: &mut Vec<String>, key: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    if value.is_none() {
    } else if value.is_instance_of::<PyBool>() {
        if value.is_truthy()? {
            line.push(format!("--{key}"));
        }
    } else if value.is_instance_of::<PyString>()
        || value.is_instance_of::<PyInt>()
        || value.is_instance_of::<PyFloat>()
    {
        line.push(format!("--{key}={}", text(value)?));
    } else if let Some(value) = plain(value)? {
        line.push(format!("--{key}={}", text(&value)?));
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

/// As Python's `str`; what is no Unicode raises, and so does a path of bytes.
fn text(value: &Bound<'_, PyAny>) -> PyResult<String> {
    if value.is_instance_of::<PyBytes>() {
        return Err(PyTypeError::new_err("a path is a text, and not bytes"));
    }
    value.str()?.extract()
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
