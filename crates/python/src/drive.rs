//! A drive whose requests are Python's, in virtual time.
//!
//! Guarantees: the interpreter's lock is released while drive time goes on; one call at a
//! time, another is refused; what completed before a call failed is given by the next one.
//! A drive in a file is as after a power cut unless it is closed. A drive is used by the
//! process that made it alone. Fails as the drive's making does, and as [`load::host`] tells.

use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use ::drive::cut::cut;
use ::drive::fault_rules::FaultArgs;
use ::drive::restore::Restored;
use ::drive::spec::DriveSpec;
use ::drive::stack::{self, needs_blocks, needs_stories};
use ::drive::whole::{Boxed, Observed, devices};
use ::drive::{DriveConfig, Error as Failure};
use device::OpenChannel;
use load::host::{Completions, Data, Host, Request, Until};
use port::Time;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use targets::Victim;

use crate::arguments::parsed;
use crate::columns::{Columns, LATEST, given};
use crate::error::{Error, UsageError, raised};
use crate::place::{Place, meant};
use crate::policy::{PYTHON, Policy};
use crate::process::{self, Owned, Process};
use crate::value::python;

/// Between two looks whether Python has something to say, at least.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Requests at once where nobody says how many, at most.
const DEPTH: usize = 1024;

/// What a drive is, so that it can be made again.
struct Made {
    config: DriveConfig,
    seed: u64,
    /// The file that it is in.
    file: Option<Place>,
    policy: Option<Arc<Policy>>,
    stories: bool,
}

/// A drive, and who asks it.
struct Running {
    host: Host,
    made: Made,
    /// What has completed and was not given, as a call failed.
    held: Option<Completions>,
    process: Process,
}

/// Requests of Python's, and what they write.
struct Asked {
    requests: Vec<Request>,
    data: Option<Data>,
    keep: bool,
}

/// The native half of `ssdkit.Drive`.
#[pyclass(frozen, module = "ssdkit._core", name = "Drive")]
pub struct PyDrive {
    running: Owned<Mutex<Option<Running>>>,
    name: String,
}

#[pymethods]
impl PyDrive {
    #[new]
    #[pyo3(signature = (name, seed, qd, stories, victim, faults))]
    fn new(
        py: Python<'_>,
        name: &str,
        seed: u64,
        qd: Option<usize>,
        stories: bool,
        victim: Option<Py<PyAny>>,
        faults: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyDrive> {
        let faults: FaultArgs = parsed("drive", &[], faults)?;
        let policy = victim.map(Policy::new);
        let process = Process::this();
        let make = || {
            let spec = meant(name)?;
            let restored = opened(&spec, seed, &faults, policy.as_ref())?;
            let ready = restored.ready();
            let Restored { config, seed, drive, .. } = restored;
            if stories {
                needs_stories(&config)?;
            }
            let file = match spec {
                DriveSpec::File(spec) if !spec.copy => Some(Place::of(spec)?),
                _ => None,
            };
            let made = Made { config, seed, file, policy: policy.clone(), stories };
            Running::begin(drive, ready, qd, made)
        };
        let Some(made) = py.detach(|| process::unless_left(make)) else {
            return Err(left(process, policy.as_ref()));
        };
        let running = made.map_err(|e| raised(&e))?;
        let name = running.made.config.name.clone();
        Ok(PyDrive { running: Owned::new("drive", Mutex::new(Some(running))), name })
    }

    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// Its outside: bytes, bytes of the longest request, requests at once, bytes kept of a
    /// block.
    #[getter]
    fn shape(&self) -> PyResult<(u64, u64, usize, u32)> {
        let shape = *self.running()?.host().shape();
        Ok((shape.bytes, shape.max_bytes, shape.depth, shape.kept))
    }

    #[getter]
    fn now(&self) -> PyResult<u64> {
        Ok(self.running()?.host().now().0)
    }

    /// Requests that were given and have not completed, and those of them inside.
    #[getter]
    fn out(&self) -> PyResult<(usize, usize)> {
        let running = self.running()?;
        Ok((running.host().out(), running.host().inside()))
    }

    #[getter]
    fn qd(&self) -> PyResult<usize> {
        Ok(self.running()?.host().depth())
    }

    fn set_qd(&self, qd: usize) -> PyResult<()> {
        self.running()?.get().host.set_depth(qd).map_err(|e| raised(&e))
    }

    /// All of its numbers, as `ssdkit bench --json` has them.
    fn config<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        python(py, &self.running()?.get().made.config.effective())
    }

    fn submit(
        &self,
        py: Python<'_>,
        rows: usize,
        columns: &Bound<'_, PyDict>,
        data: Option<numpy::PyReadonlyArray1<'_, u8>>,
        keep: bool,
    ) -> PyResult<u64> {
        let mut running = self.running()?;
        let asked = Asked::new(rows, columns, data.as_ref(), keep)?;
        running.get().submit(py, asked)
    }

    /// Takes requests, and goes on until nothing is asked, with `qd` of them inside at once
    /// where that is told: the first one's number, and what completed.
    fn run<'py>(
        &self,
        py: Python<'py>,
        rows: usize,
        columns: &Bound<'_, PyDict>,
        data: Option<numpy::PyReadonlyArray1<'_, u8>>,
        keep: bool,
        qd: Option<usize>,
    ) -> PyResult<(u64, Bound<'py, PyDict>)> {
        let mut running = self.running()?;
        let asked = Asked::new(rows, columns, data.as_ref(), keep)?;
        let (first, all) = running.get().run(py, asked, qd)?;
        Ok((first, given(py, all)?))
    }

    /// Goes on: until nothing is asked; or until a time; or until so many have completed.
    #[pyo3(signature = (to, completions))]
    fn advance<'py>(
        &self,
        py: Python<'py>,
        to: Option<u64>,
        completions: Option<usize>,
    ) -> PyResult<Bound<'py, PyDict>> {
        if let Some(late) = to.filter(|&to| to > LATEST) {
            let text = format!("to={late}: drive time ends at {LATEST} ns");
            return Err(UsageError::new_err(text));
        }
        let until = match (to, completions) {
            (Some(to), _) => Until::Time(Time(to)),
            (None, Some(count)) => Until::Completions(count),
            (None, None) => Until::Idle,
        };
        let mut running = self.running()?;
        let all = running.get().advance(py, until)?;
        given(py, all)
    }

    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let running = self.running()?;
        let drive = running.host().drive();
        let c = drive.counters();
        let dict = PyDict::new(py);
        for (name, value) in [
            ("user", c.user),
            ("gc", c.gc),
            ("padding", c.padding),
            ("metadata", c.metadata),
            ("parity", drive.parity_blocks().unwrap_or(0)),
            ("folds", drive.folded_blocks().unwrap_or(0)),
            ("absorbed", c.absorbed),
            ("collections", c.collections),
            ("moved", c.moved),
            ("erases", c.erases),
            ("retired", c.retired),
            ("lost", c.lost),
            ("refreshed", c.refreshed),
            ("leveled", c.leveled),
            ("free_chunks", drive.free_chunks()),
        ] {
            dict.set_item(name, value)?;
        }
        Ok(dict)
    }

    /// Erases of each chunk that is no factory's bad one: of all devices.
    fn wear<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, numpy::PyArray1<u32>>> {
        let running = self.running()?;
        let mut wear = Vec::new();
        for device in devices(running.host().drive()) {
            let g = device.geometry();
            for pu in g.pus_channels_first() {
                let all = (0..g.chunks()).map(|n| &device.chunks()[g.chunk_of(pu, n)]);
                let factory = Some(flash::Cause::Factory);
                wear.extend(all.filter(|c| c.why_offline() != factory).map(|c| c.wear));
            }
        }
        Ok(numpy::PyArray1::from_vec(py, wear))
    }

    fn state_hash(&self, py: Python<'_>) -> PyResult<u64> {
        let mut running = self.running()?;
        let host = &mut running.get().host;
        Ok(py.detach(move || host.drive().state_hash()))
    }

    /// The power is cut and comes back: what was asked and had not completed.
    fn cut<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let mut running = self.running()?;
        let policy = running.get().made.policy.clone();
        let running = &mut *running.0;
        let lost = py.detach(move || process::unless_left(|| cut_power(running)));
        match lost {
            Some(lost) => given(py, lost.map_err(|e| raised(&e))?),
            None => Err(left(self.running.process(), policy.as_ref())),
        }
    }

    /// Puts it away. False where that was done before.
    fn close(&self, py: Python<'_>) -> PyResult<bool> {
        let mut running = self.locked()?;
        let Some(Running { host, .. }) = running.take() else { return Ok(false) };
        let ended = py.detach(|| {
            let (drive, now, _) = host.give_up();
            if drive.outlives() { drive.end(now)?.put_away() } else { Ok(()) }
        });
        ended.map(|()| true).map_err(|e| raised(&e))
    }

    #[getter]
    fn closed(&self) -> PyResult<bool> {
        Ok(self.locked()?.is_none())
    }

    /// Whether this process has it from another, and cannot use it.
    #[getter]
    fn inherited(&self) -> bool {
        !self.running.process().is_this()
    }
}

impl Asked {
    fn new(
        rows: usize,
        columns: &Bound<'_, PyDict>,
        data: Option<&numpy::PyReadonlyArray1<'_, u8>>,
        keep: bool,
    ) -> PyResult<Asked> {
        let requests = Columns::new(rows, columns)?.requests()?;
        let bytes = data.map(|data| data.as_slice()).transpose()?;
        // Copied while no other thread of Python can change it.
        Ok(Asked { requests, data: bytes.map(Arc::from), keep })
    }
}

/// A drive that is in use by this call.
struct Used<'a>(MutexGuard<'a, Option<Running>>);

impl Used<'_> {
    fn get(&mut self) -> &mut Running {
        self.0.as_mut().expect("it was there")
    }

    fn host(&self) -> &Host {
        &self.0.as_ref().expect("it was there").host
    }
}

impl PyDrive {
    fn locked(&self) -> PyResult<MutexGuard<'_, Option<Running>>> {
        match self.running.get()?.try_lock() {
            Ok(running) => Ok(running),
            Err(TryLockError::WouldBlock) => Err(Error::new_err(
                "the drive is running: one call at a time, and none from its own policy",
            )),
            Err(TryLockError::Poisoned(_)) => {
                Err(Error::new_err("the drive failed before, and is gone: make another"))
            }
        }
    }

    fn running(&self) -> PyResult<Used<'_>> {
        let running = self.locked()?;
        match &*running {
            Some(_) => Ok(Used(running)),
            None => Err(UsageError::new_err("the drive is closed: make another")),
        }
    }
}

impl Running {
    fn begin(
        mut drive: Boxed,
        ready: Time,
        qd: Option<usize>,
        made: Made,
    ) -> Result<Running, Failure> {
        drive.begin_faults();
        let depth = qd.unwrap_or(drive.shape().depth.min(DEPTH));
        let mut host = Host::new(drive, ready, depth, made.stories)?;
        if let Some(policy) = &made.policy {
            host.set_stop(policy.stop());
        }
        Ok(Running { host, made, held: None, process: Process::this() })
    }

    fn submit(&mut self, py: Python<'_>, asked: Asked) -> PyResult<u64> {
        let (host, Asked { requests, data, keep }) = (&mut self.host, asked);
        let taken = py.detach(|| host.submit(requests.iter().copied(), data, keep));
        taken.map_err(|e| raised(&e))
    }

    fn run(
        &mut self,
        py: Python<'_>,
        asked: Asked,
        qd: Option<usize>,
    ) -> PyResult<(u64, Completions)> {
        let depth = self.host.depth();
        self.host.set_depth(qd.unwrap_or(depth)).map_err(|e| raised(&e))?;
        let first = self.submit(py, asked);
        let ran = first.and_then(|first| Ok((first, self.advance(py, Until::Idle)?)));
        self.host.set_depth(depth).map_err(|e| raised(&e))?;
        ran
    }

    fn advance(&mut self, py: Python<'_>, until: Until) -> PyResult<Completions> {
        let (mut looked, mut signal, process) = (Instant::now(), None, self.process);
        let mut look = || {
            if looked.elapsed() >= LOOK_EVERY {
                // An interpreter that ends takes nobody in.
                match Python::try_attach(|py| py.check_signals()) {
                    Some(checked) => signal = checked.err(),
                    None => return false,
                }
                looked = Instant::now();
                // What was called may have forked.
                return signal.is_none() && process.is_this();
            }
            signal.is_none()
        };
        let host = &mut self.host;
        let advanced = py.detach(|| process::unless_left(|| host.advance(until, &mut look)));
        // One that came since is raised here, and not when what completed is given away.
        let signal = signal.or_else(|| py.check_signals().err());
        let Some(advanced) = advanced.filter(|_| process.is_this()) else {
            return Err(signal.unwrap_or_else(|| left(process, self.made.policy.as_ref())));
        };
        let raises = signal.or_else(|| self.made.policy.as_ref()?.raised());
        let all = match (advanced, raises.as_ref()) {
            (Ok(all), _) => all,
            (Err(_), Some(_)) => return Err(raises.expect("it is there")),
            (Err(e), None) => return Err(raised(&e)),
        };
        let all = match self.held.take() {
            Some(held) => held.and(all),
            None => all,
        };
        match raises {
            None => Ok(all),
            Some(error) => {
                self.held = Some(all);
                Err(error)
            }
        }
    }
}

/// What is raised where this process was forked in the midst of a call, and left it: what its
/// policy raised, or that the drive is another's.
fn left(process: Process, policy: Option<&Arc<Policy>>) -> PyErr {
    let refused = || raised(&process.refusal("drive"));
    policy.and_then(|policy| policy.raised()).unwrap_or_else(refused)
}

/// Cuts the power of a drive that is there, and recovers it. Where that fails it is gone.
fn cut_power(running: &mut Option<Running>) -> Result<Completions, Failure> {
    let Running { host, made, held, .. } = running.take().expect("it was there");
    let (qd, (drive, _, lost)) = (host.depth(), host.give_up());
    let all = match held {
        Some(held) => held.and(lost),
        None => lost,
    };
    let (drive, ready) = match &made.file {
        Some(place) => {
            drop(drive);
            let mut open = place.open()?;
            open.config.name = made.config.name.clone();
            open.config.faults = made.config.faults.clone();
            open.config.spec.victim = made.config.spec.victim;
            let restored = Policy::make(made.policy.as_ref(), || Restored::opened(open))?;
            let ready = restored.ready();
            (restored.drive, ready)
        }
        None => {
            let again = || cut(&made.config, made.seed, drive);
            let (drive, ready, _) = Policy::make(made.policy.as_ref(), again)?;
            (drive, ready)
        }
    };
    *running = Some(Running::begin(drive, ready, Some(qd), made)?);
    Ok(all)
}

/// The drive of a name: new, or in a file.
fn opened(
    spec: &DriveSpec,
    seed: u64,
    faults: &FaultArgs,
    policy: Option<&Arc<Policy>>,
) -> Result<Restored, Failure> {
    let rules = faults.read(seed)?;
    let victim = |default| if policy.is_some() { Victim::Custom(PYTHON) } else { default };
    match spec {
        DriveSpec::Memory(spec) => {
            let mut spec = spec.clone();
            spec.victim = victim(spec.victim);
            let config = DriveConfig { faults: rules, ..spec.resolve()? };
            let drive = Policy::make(policy, || stack::build(&config, seed))?;
            Ok(Restored { config, seed, drive, recovery: None })
        }
        DriveSpec::File(spec) => {
            let mut open = spec.open(false)?;
            open.config.faults = rules;
            open.config.spec.victim = victim(open.config.spec.victim);
            let fit = needs_blocks(&open.config);
            let open = open.if_fit(fit)?;
            let restore =
                || if spec.copy { Restored::copied(open) } else { Restored::opened(open) };
            Policy::make(policy, restore)
        }
        other => Err(Failure::Usage(format!(
            "{other}: requests of one's own are for drives in this process, whose time is \
             virtual: take a mem: drive or a drive file"
        ))),
    }
}
