//! Victim policies that are Python's.
//!
//! A policy is asked for a unit's next victims, with all chunks of it that may be taken, and
//! gives one or several, in order. Until these are used up it is not asked again for that
//! unit. Guarantees: what it gives is among the candidates; when it has failed it is asked
//! no more, the run stops, and what it raised comes out of the call that ran it. A process
//! that it forks, and that returns from it, leaves that call.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use flash::Geometry;
use ftl::victim::{Custom, VictimPolicy};
use numpy::PyArray1;
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyBool;

use crate::error::UsageError;
use crate::process::{self, Process};

/// The policy, for a drive that is made while [`Policy::make`] runs.
pub const PYTHON: Custom = Custom { name: "python", policy: made };

/// Of what it gave so many characters are told.
const MOST_SAID: usize = 60;

thread_local! {
    /// Whose policy it is that a drive is made with on this thread.
    static MAKING: RefCell<Option<Arc<Policy>>> = const { RefCell::new(None) };
}

/// A function of Python's, and what became of it.
pub struct Policy {
    call: Py<PyAny>,
    raised: Mutex<Option<PyErr>>,
    /// Set when it has failed.
    stop: Arc<AtomicBool>,
    process: Process,
}

impl Policy {
    /// A policy that is this function.
    pub fn new(call: Py<PyAny>) -> Arc<Policy> {
        let (raised, stop, process) = (Mutex::default(), Arc::default(), Process::this());
        Arc::new(Policy { call, raised, stop, process })
    }

    /// What is set when it has failed.
    pub fn stop(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }

    /// What it raised, once; then it may be asked again.
    pub fn raised(&self) -> Option<PyErr> {
        let raised = self.raised.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        self.stop.store(false, Ordering::Relaxed);
        Some(raised)
    }

    /// Makes a drive; one with the policy [`PYTHON`] asks `policy`.
    pub fn make<T>(policy: Option<&Arc<Policy>>, make: impl FnOnce() -> T) -> T {
        let before = MAKING.replace(policy.cloned());
        let made = make();
        MAKING.set(before);
        made
    }

    /// What its function is called; of another object what its class is.
    fn name(&self, py: Python<'_>) -> String {
        let call = self.call.bind(py);
        let name =
            call.getattr("__qualname__").or_else(|_| call.get_type().getattr("__qualname__"));
        name.and_then(|name| name.extract::<String>()).unwrap_or_else(|_| "without a name".into())
    }

    fn fail(&self, error: PyErr) {
        self.raised.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn made(geometry: &Geometry, _seed: u64) -> Box<dyn VictimPolicy> {
    let policy =
        MAKING.with_borrow(|making| making.clone()).expect("a drive is made with its policy");
    Box::new(Asking {
        policy,
        chunk_bits: geometry.chunk_bits(),
        closed: 0,
        units: vec![BTreeMap::new(); geometry.pu_slots()],
        orders: vec![VecDeque::new(); geometry.pu_slots()],
        wear: vec![0; geometry.chunk_slots()],
    })
}

/// What a target asks.
struct Asking {
    policy: Arc<Policy>,
    chunk_bits: u32,
    /// Chunks closed so far.
    closed: u64,
    /// By unit and chunk: how many were closed before it.
    units: Vec<BTreeMap<usize, u64>>,
    /// By unit: what was chosen and is not taken yet. Some may have left.
    orders: Vec<VecDeque<usize>>,
    /// By chunk, its erases.
    wear: Vec<u32>,
}

impl VictimPolicy for Asking {
    fn worn(&mut self, chunk: usize, wear: u32) {
        self.wear[chunk] = wear;
    }

    fn closed(&mut self, chunk: usize) {
        self.units[chunk >> self.chunk_bits].insert(chunk, self.closed);
        self.closed += 1;
    }

    fn left(&mut self, chunk: usize) {
        let unit = chunk >> self.chunk_bits;
        self.units[unit].remove(&chunk);
        self.orders[unit].retain(|&chosen| chosen != chunk);
    }

    fn choose(&mut self, unit: usize, valid: &dyn Fn(usize) -> u32) -> Option<usize> {
        if self.orders[unit].is_empty() && !self.policy.stop.load(Ordering::Relaxed) {
            // An interpreter that ends is not asked: the drive decides.
            match Python::try_attach(|py| self.ask(py, unit, valid)) {
                Some(Ok(order)) => self.orders[unit] = order,
                Some(Err(error)) => self.policy.fail(error),
                None => {}
            }
            // It forked, and this is the child: the drive is not its own.
            if !self.policy.process.is_this() {
                process::leave();
            }
        }
        let chunk = self.orders[unit].pop_front()?;
        self.units[unit].remove(&chunk);
        Some(chunk)
    }
}

impl Asking {
    fn ask(
        &self,
        py: Python<'_>,
        unit: usize,
        valid: &dyn Fn(usize) -> u32,
    ) -> PyResult<VecDeque<usize>> {
        let chunks = &self.units[unit];
        let column = |of: &mut dyn FnMut(usize, u64) -> u64| {
            let values = chunks.iter().map(|(&chunk, &since)| of(chunk, since) as i64);
            PyArray1::from_vec(py, values.collect())
        };
        let chunk = column(&mut |chunk, _| chunk as u64);
        let valid = column(&mut |chunk, _| valid(chunk).into());
        let age = column(&mut |_, since| self.closed - since);
        let wear = column(&mut |chunk, _| self.wear[chunk].into());
        let given = self.policy.call.call1(py, (unit, chunk, valid, age, wear))?;
        self.order(given.bind(py), unit)
    }

    /// What was given: a chunk, several, or none where the one with the fewest valid
    /// blocks is to be taken. Of what never ends only so much is read as can be right.
    fn order(&self, given: &Bound<'_, PyAny>, unit: usize) -> PyResult<VecDeque<usize>> {
        let py = given.py();
        if given.is_none() {
            return Ok(VecDeque::new());
        }
        if let Some(chunk) = number(given)? {
            return self.taken(given, chunk, unit, &HashSet::new()).map(|chunk| [chunk].into());
        }
        let several = given.try_iter().map_err(|e| match e.is_instance_of::<PyTypeError>(py) {
            true => self.no_chunk(given, unit),
            false => e,
        })?;
        let (mut order, mut seen) = (VecDeque::new(), HashSet::new());
        for one in several {
            let one = one?;
            let chunk = number(&one)?.ok_or_else(|| self.no_chunk(&one, unit))?;
            let chunk = self.taken(&one, chunk, unit, &seen)?;
            seen.insert(chunk);
            order.push_back(chunk);
        }
        Ok(order)
    }

    /// A number as the chunk that it is of those that may be taken.
    fn taken(
        &self,
        one: &Bound<'_, PyAny>,
        chunk: usize,
        unit: usize,
        seen: &HashSet<usize>,
    ) -> PyResult<usize> {
        if !self.units[unit].contains_key(&chunk) {
            let what = format!("of unit {unit}, which is none of those that it may take");
            return Err(UsageError::new_err(self.wrong(one, &what)));
        }
        if seen.contains(&chunk) {
            return Err(UsageError::new_err(self.wrong(one, &format!("of unit {unit} twice"))));
        }
        Ok(chunk)
    }

    /// What is told of a value that is no number of a chunk.
    fn no_chunk(&self, one: &Bound<'_, PyAny>, unit: usize) -> PyErr {
        let kind = one.get_type().name().map_or_else(|_| "?".into(), |name| name.to_string());
        PyTypeError::new_err(self.wrong(one, &format!("of unit {unit}, which is a {kind}")))
    }

    /// Which policy gave what, and what it is to give.
    fn wrong(&self, one: &Bound<'_, PyAny>, what: &str) -> String {
        let said = one.repr().map_or_else(|_| "something".into(), |text| text.to_string());
        let said: String = said.chars().take(MOST_SAID).collect();
        format!(
            "the victim policy {} chose {said} {what}: it is to give the number of one of the \
             chunks that it was given, or several of these, each once, or None",
            self.policy.name(one.py())
        )
    }
}

/// A whole number; the largest, which is no chunk's, for one that is none in its size. None
/// of what is no number. Fails with what Python's own code raises.
fn number(one: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
    if one.is_instance_of::<PyBool>() {
        return Ok(None);
    }
    match one.extract::<usize>() {
        Ok(chunk) => Ok(Some(chunk)),
        Err(e) if e.is_instance_of::<PyOverflowError>(one.py()) => Ok(Some(usize::MAX)),
        Err(e) if e.is_instance_of::<PyTypeError>(one.py()) => Ok(None),
        Err(e) => Err(e),
    }
}
