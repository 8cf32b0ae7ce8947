//! JSON values as Python's, and figures as text.

use measure::units;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use serde_json::Value;

/// The same value of Python's: objects are dicts in their order, numbers int or float.
pub fn python<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    match value {
        Value::Null => Ok(py.None().into_bound(py)),
        Value::Bool(is) => is.into_bound_py_any(py),
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(n), _) => n.into_bound_py_any(py),
            (None, Some(n)) => n.into_bound_py_any(py),
            (None, None) => number.as_f64().into_bound_py_any(py),
        },
        Value::String(text) => text.into_bound_py_any(py),
        Value::Array(values) => {
            let list = PyList::empty(py);
            values.iter().try_for_each(|value| list.append(python(py, value)?))?;
            Ok(list.into_any())
        }
        Value::Object(values) => {
            let dict = PyDict::new(py);
            values.iter().try_for_each(|(key, value)| dict.set_item(key, python(py, value)?))?;
            Ok(dict.into_any())
        }
    }
}

/// A figure with its unit, as reports have it: `kind` is time (in ns), bytes, count or
/// capacity (in bytes, by powers of two).
#[pyfunction]
pub fn in_words(kind: &str, figure: f64) -> PyResult<String> {
    match kind {
        "time" => Ok(units::time_ns(figure)),
        "bytes" => Ok(units::bytes_decimal(figure)),
        "count" => Ok(units::count(figure)),
        "capacity" => Ok(units::capacity(figure as u64)),
        kind => Err(PyValueError::new_err(format!("no kind {kind}"))),
    }
}
