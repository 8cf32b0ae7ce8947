//! A key-value store on a drive in this process, in virtual time.
//!
//! Guarantees: those of [`btree`]; a call ends when its operations have, and drive time is
//! then that of the last. The interpreter's lock is released meanwhile. On a drive file the
//! store is found again, or made where the drive was never used; anything else stays. It is
//! used by the process that opened it alone. Fails as stores and drives do.

use std::sync::{Mutex, MutexGuard, TryLockError};

use ::drive::Error as Failure;
use btree::{Outcome, Records, Sink, Store, Write};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::error::{Error, UsageError, raised};
use crate::process::Owned;
use crate::stores::{Kept, open};

/// Operations that a call has under way at once.
pub const OPERATIONS: usize = 256;

type Bytes = Vec<u8>;

/// The native half of `ssdkit.KeyValue`.
#[pyclass(frozen, module = "ssdkit._core", name = "KeyValue")]
pub struct PyKeys {
    kept: Owned<Mutex<Option<Sent>>>,
    name: String,
    store: &'static str,
}

/// A store that a thread hands on to another.
struct Sent(Kept);

// SAFETY: all of it was made by `stores::open`, of drives that can be sent (`Boxed` and its
// kin are), memory of its own, and locks; only the tables through which a store is called
// do not say so. It is behind a lock, and used by one thread at a time.
unsafe impl Send for Sent {}

impl Sent {
    /// As a whole, so that whoever captures it captures what can be sent.
    fn kept(&mut self) -> &mut Kept {
        &mut self.0
    }

    fn into_kept(self) -> Kept {
        self.0
    }
}

/// What operations come to, by their tags.
#[derive(Default)]
struct Heard {
    /// Records that were found: tag, key, value.
    records: Vec<(u64, Bytes, Bytes)>,
    ended: usize,
    missing: Vec<u64>,
    failed: Option<btree::Error>,
}

impl Sink for Heard {
    fn record(&mut self, tag: u64, key: &[u8], value: &[u8]) {
        self.records.push((tag, key.to_vec(), value.to_vec()));
    }

    fn done(&mut self, tag: u64, outcome: Result<Outcome, btree::Error>) {
        self.ended += 1;
        match outcome {
            Ok(Outcome::Missing) => self.missing.push(tag),
            Ok(_) => {}
            Err(e) => _ = self.failed.get_or_insert(e),
        }
    }
}

#[pymethods]
impl PyKeys {
    #[new]
    fn new(
        py: Python<'_>,
        name: &str,
        store: Option<&str>,
        seed: u64,
        memory: u64,
    ) -> PyResult<PyKeys> {
        let opened = py.detach(|| {
            let store = store.map(str::parse::<Store>).transpose().map_err(Failure::Usage)?;
            open(name, store, seed, memory).map(|(kept, name)| (Sent(kept), name))
        });
        let (mut sent, name) = opened.map_err(|e| raised(&e))?;
        let store = sent.kept().store.name();
        Ok(PyKeys { kept: Owned::new("store", Mutex::new(Some(sent))), name, store })
    }

    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    #[getter]
    fn store(&self) -> &str {
        self.store
    }

    /// Whether the store was there before.
    #[getter]
    fn found(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |kept| Ok(kept.found))
    }

    #[getter]
    fn now(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |kept| Ok(kept.now().0))
    }

    /// The value of each of these keys, or `None`.
    fn get<'py>(&self, py: Python<'py>, keys: Vec<Bytes>) -> PyResult<Bound<'py, PyList>> {
        let found = self.with(py, |kept| values(kept, &keys))?;
        PyList::new(py, found.iter().map(|value| value.as_ref().map(|v| PyBytes::new(py, v))))
    }

    /// Gives keys their values, each by itself.
    fn put(&self, py: Python<'_>, records: Vec<(Bytes, Bytes)>) -> PyResult<()> {
        self.with(py, |kept| {
            all(kept, records.len(), |store, tag, heard| {
                let (key, value) = &records[tag as usize];
                store.put(tag, key, value, heard)
            })
            .map(drop)
        })
    }

    /// Takes keys out. Gives of each whether it was there.
    fn delete(&self, py: Python<'_>, keys: Vec<Bytes>) -> PyResult<Vec<bool>> {
        self.with(py, |kept| {
            let heard = all(kept, keys.len(), |store, tag, heard| {
                store.delete(tag, &keys[tag as usize], heard)
            })?;
            let mut was_there = vec![true; keys.len()];
            heard.missing.iter().for_each(|&tag| was_there[tag as usize] = false);
            Ok(was_there)
        })
    }

    /// Does all of these or none: values for keys, or `None` to take one out.
    fn batch(&self, py: Python<'_>, writes: Vec<(Bytes, Option<Bytes>)>) -> PyResult<()> {
        self.with(py, |kept| {
            if !kept.records.is_ordered() {
                return Err(Failure::Usage(
                    "a drive that keeps values by key has no batches that are whole or not \
                     there: put and delete by themselves, or take another store"
                        .into(),
                ));
            }
            let write = |(key, value): &(Bytes, Option<Bytes>)| (key.clone(), value.clone());
            let writes: Vec<_> = writes.iter().map(write).collect();
            let each = |(key, value)| Write { key, value };
            let refs = writes.iter().map(|(key, value)| (key.as_slice(), value.as_deref()));
            let refs: Vec<Write<'_>> = refs.map(each).collect();
            all(kept, 1, |store, tag, heard| store.batch(tag, &refs, heard)).map(drop)
        })
    }

    /// Up to `count` records from `start` on: in the order of the keys, or of a drive that
    /// keeps values by key those behind `start` in its own.
    fn scan<'py>(&self, py: Python<'py>, start: Bytes, count: u64) -> PyResult<Bound<'py, PyList>> {
        let records = self.with(py, |kept| {
            let heard = all(kept, 1, |store, tag, heard| store.scan(tag, &start, count, heard))?;
            let records = heard.records.into_iter().map(|(_, key, value)| (key, value));
            if kept.records.is_ordered() {
                return Ok(records.collect::<Vec<_>>());
            }
            let keys: Vec<Bytes> = records.map(|(key, _)| key).collect();
            let found = values(kept, &keys)?;
            Ok(keys.into_iter().zip(found).filter_map(|(k, v)| Some((k, v?))).collect())
        })?;
        let both =
            records.iter().map(|(key, value)| (PyBytes::new(py, key), PyBytes::new(py, value)));
        PyList::new(py, both)
    }

    /// Makes durable what was done.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, flush)
    }

    /// Flushes, and puts the drive away. False where that was done before.
    fn close(&self, py: Python<'_>) -> PyResult<bool> {
        let mut kept = self.locked()?;
        let Some(mut sent) = kept.take() else { return Ok(false) };
        let closed = py.detach(move || {
            let flushed = flush(sent.kept());
            let ended = sent.into_kept().end();
            flushed.and(ended)
        });
        closed.map(|()| true).map_err(|e| raised(&e))
    }

    #[getter]
    fn closed(&self) -> PyResult<bool> {
        Ok(self.locked()?.is_none())
    }

    /// Whether this process has it from another, and cannot use it.
    #[getter]
    fn inherited(&self) -> bool {
        !self.kept.process().is_this()
    }
}

impl PyKeys {
    fn locked(&self) -> PyResult<MutexGuard<'_, Option<Sent>>> {
        match self.kept.get()?.try_lock() {
            Ok(kept) => Ok(kept),
            Err(TryLockError::WouldBlock) => {
                Err(Error::new_err("the store is at work: one call at a time"))
            }
            Err(TryLockError::Poisoned(_)) => {
                Err(Error::new_err("the store failed before, and is gone: open it again"))
            }
        }
    }

    /// Does something with the store, without the interpreter's lock.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&mut Kept) -> Result<T, Failure> + Send,
    ) -> PyResult<T> {
        let mut kept = self.locked()?;
        let Some(sent) = &mut *kept else {
            return Err(UsageError::new_err("the store is closed: open it again"));
        };
        py.detach(move || act(sent.kept())).map_err(|e| raised(&e))
    }
}

/// Does so many operations, as many at a time as there is room for; none that was not begun
/// when one fails.
fn all(
    kept: &mut Kept,
    count: usize,
    mut ask: impl FnMut(&mut Records<'static>, u64, &mut Heard) -> Result<(), btree::Error>,
) -> Result<Heard, Failure> {
    let (mut heard, mut asked) = (Heard::default(), 0);
    loop {
        if asked < count && heard.failed.is_none() {
            match ask(&mut kept.records, asked as u64, &mut heard) {
                Ok(()) => {
                    asked += 1;
                    continue;
                }
                Err(btree::Error::Busy(_)) if heard.ended < asked => {}
                Err(e) => _ = heard.failed.get_or_insert(e),
            }
        }
        let is_over = asked == count || heard.failed.is_some();
        if is_over && heard.ended == asked {
            break;
        }
        if !kept.records.wait(&mut heard) {
            return Err(Failure::Failed(btree::StoreError::Gone.to_string()));
        }
    }
    match heard.failed {
        None => Ok(heard),
        Some(e @ (btree::Error::KeyTooLong(..) | btree::Error::ValueTooLong(..))) => {
            Err(Failure::Usage(e.to_string()))
        }
        Some(e) => Err(Failure::Failed(e.to_string())),
    }
}

/// The values of these keys.
fn values(kept: &mut Kept, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>, Failure> {
    let heard = all(kept, keys.len(), |store, tag, heard| {
        store.get(tag, &keys[tag as usize], None, heard)
    })?;
    let mut found = vec![None; keys.len()];
    for (tag, _, value) in heard.records {
        found[tag as usize] = Some(value);
    }
    Ok(found)
}

fn flush(kept: &mut Kept) -> Result<(), Failure> {
    all(kept, 1, |store, tag, _| store.flush(tag)).map(drop)
}
