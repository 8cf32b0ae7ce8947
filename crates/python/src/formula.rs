//! `ssdkit.formula`: what theory says of write amplification.

use measure::formula;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The write amplification of uniform random overwrites; see `ssdkit.formula`.
#[pyfunction]
#[pyo3(name = "formula", signature = (victim, spare, pages))]
pub fn of_victim(victim: &str, spare: f64, pages: u32) -> PyResult<f64> {
    let found = match victim {
        "greedy" => formula::greedy(spare, pages),
        "fifo" => formula::fifo(spare),
        "random" => formula::random(spare),
        victim => {
            let text = format!("no formula for victim={victim}: there are greedy, fifo, random");
            return Err(PyValueError::new_err(text));
        }
    };
    found.ok_or_else(|| {
        PyValueError::new_err("a spare is above 0 and below 1, and a chunk has pages")
    })
}
