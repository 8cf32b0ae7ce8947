//! Columns of requests from Python, and of completions to it.
//!
//! Guarantees: what comes is read once, and what goes is memory that is given away, without
//! a copy. Fails with what is wrong, and in which row.

use load::host::{Completions, Request};
use numpy::{Element, PyArray1, PyArrayMethods, PyReadonlyArray1};
use port::lazy::room_for;
use port::{BlockOp, Status, Time};
use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::{UsageError, raised};

/// Operations by their numbers in Python.
const OPS: [BlockOp; 5] =
    [BlockOp::Read, BlockOp::Write, BlockOp::Flush, BlockOp::Trim, BlockOp::WriteZeroes];

/// The last ns of drive time that may be named: 292 years, so that no sum goes over the end.
pub const LATEST: u64 = i64::MAX as u64;

/// One value for all rows, or one of each.
enum Column<'py, T: Element> {
    One(T),
    Each(PyReadonlyArray1<'py, T>),
}

/// What a dict has by that name.
fn column<'py, T>(columns: &Bound<'py, PyDict>, name: &str) -> PyResult<Column<'py, T>>
where
    T: Element + FromPyObjectOwned<'py>,
{
    let missing = || PyKeyError::new_err(name.to_string());
    let value = columns.get_item(name)?.ok_or_else(missing)?;
    if let Ok(array) = value.cast::<PyArray1<T>>() {
        return Ok(Column::Each(array.try_readonly()?));
    }
    value.extract().map(Column::One).map_err(Into::into)
}

/// The same, by row.
#[derive(Clone, Copy)]
enum Values<'a, T> {
    One(T),
    Each(&'a [T]),
}

impl<T: Copy> Values<'_, T> {
    #[inline(always)]
    fn at(&self, row: usize) -> T {
        match self {
            Values::One(value) => *value,
            Values::Each(values) => values[row],
        }
    }
}

impl<T: Element + Copy> Column<'_, T> {
    fn values(&self, rows: usize, what: &str) -> PyResult<Values<'_, T>> {
        let values = match self {
            Column::One(value) => return Ok(Values::One(*value)),
            Column::Each(array) => array.as_slice()?,
        };
        if values.len() != rows {
            let text = format!("{what} has {} values, and there are {rows} requests", values.len());
            return Err(UsageError::new_err(text));
        }
        Ok(Values::Each(values))
    }
}

/// Requests as they come: rows, and of each its parts.
pub struct Columns<'py> {
    rows: usize,
    op: Column<'py, u8>,
    offset: Column<'py, u64>,
    length: Column<'py, u64>,
    /// Truth values as bytes: those of Python's arrays may be any, and a `bool` may not.
    fua: Column<'py, u8>,
    placement: Column<'py, u8>,
    at: Option<Column<'py, u64>>,
}

impl<'py> Columns<'py> {
    /// From a dict of them.
    pub fn new(rows: usize, columns: &Bound<'py, PyDict>) -> PyResult<Columns<'py>> {
        let has_times = columns.get_item("at")?.is_some_and(|at| !at.is_none());
        Ok(Columns {
            rows,
            op: column(columns, "op")?,
            offset: column(columns, "offset")?,
            length: column(columns, "length")?,
            fua: column(columns, "fua")?,
            placement: column(columns, "placement")?,
            at: if has_times { Some(column(columns, "at")?) } else { None },
        })
    }

    /// As requests. Each value is read once: another thread may change it at any time.
    pub fn requests(&self) -> PyResult<Vec<Request>> {
        let rows = self.rows;
        let at = self.at.as_ref().map(|at| at.values(rows, "at")).transpose()?;
        let op = self.op.values(rows, "op")?;
        let offset = self.offset.values(rows, "offset")?;
        let length = self.length.values(rows, "length")?;
        let fua = self.fua.values(rows, "fua")?;
        let placement = self.placement.values(rows, "placement")?;
        let request = |row| {
            let number = op.at(row);
            let op = *OPS.get(usize::from(number)).ok_or_else(|| {
                let most = OPS.len() - 1;
                let text = format!("request {row}: {number} is no operation: 0 to {most}");
                UsageError::new_err(text)
            })?;
            let at = at.map(|at| at.at(row));
            if let Some(late) = at.filter(|&at| at > LATEST) {
                let text = format!("request {row}: at {late} ns: drive time ends at {LATEST}");
                return Err(UsageError::new_err(text));
            }
            Ok(Request {
                op,
                fua: fua.at(row) != 0,
                placement: placement.at(row),
                offset: offset.at(row),
                len: if op == BlockOp::Flush { 0 } else { length.at(row) },
                at: at.map(Time),
            })
        };
        let mut all = room_for(rows, "requests").map_err(|e| raised(&e.into()))?;
        for row in 0..rows {
            all.push(request(row)?);
        }
        Ok(all)
    }
}

/// Completions as a dict of arrays, which own their memory.
pub fn given<'py>(py: Python<'py>, all: Completions) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let bounds = (!all.data.is_empty()).then(|| all.bounds());
    if let Some(stories) = &all.stories {
        let parts = PyDict::new(py);
        for (name, ns) in parts_of(stories) {
            parts.set_item(name, PyArray1::from_vec(py, ns))?;
        }
        dict.set_item("stories", parts)?;
    }
    dict.set_item("id", PyArray1::from_vec(py, all.ids))?;
    dict.set_item("code", PyArray1::from_vec(py, all.statuses))?;
    dict.set_item("submitted", PyArray1::from_vec(py, all.submitted))?;
    dict.set_item("completed", PyArray1::from_vec(py, all.completed))?;
    if let Some(bounds) = bounds {
        dict.set_item("data", PyArray1::from_vec(py, all.data))?;
        dict.set_item("bounds", PyArray1::from_vec(py, bounds))?;
    }
    Ok(dict)
}

/// The parts that any story has, by name; of each story what went to it, in ns.
fn parts_of(stories: &[port::Story]) -> Vec<(String, Vec<u64>)> {
    type Name = (&'static str, Option<&'static str>);
    let mut all: Vec<(Name, Vec<u64>)> = Vec::new();
    for (row, story) in stories.iter().enumerate() {
        for (part, behind, ns) in story.parts() {
            let at = all.iter().position(|(name, _)| *name == (part, behind));
            let at = at.unwrap_or_else(|| {
                all.push(((part, behind), vec![0; stories.len()]));
                all.len() - 1
            });
            all[at].1[row] += ns;
        }
    }
    let name = |(part, behind): Name| match behind {
        Some(behind) => format!("{part}: {behind}"),
        None => part.to_string(),
    };
    all.into_iter().map(|(of, ns)| (name(of), ns)).collect()
}

/// What a status says, in words.
#[pyfunction]
pub fn status_name(code: u16) -> String {
    let text = Status(code).to_string();
    text.split(" (").next().unwrap_or(&text).to_string()
}
