//! Syncs, one at a time, on a thread of their own.
//!
//! A sync ends a *generation*: everything that was written in it and before is
//! made durable, then the state says so, then the space of the chunks that
//! were erased in it is given back. A later step never happens without the
//! earlier ones.

use std::io;
use std::sync::Arc;

use crate::header::State;
use crate::layout::{Layout, STATE_OFFSETS};
use crate::service::Service;
use crate::{FileError, FileIo};

/// A sync to be made.
pub struct Job {
    /// What the state will say.
    pub state: State,
    /// The chunks erased, by their number in the file.
    pub erased: Vec<u32>,
}

/// A sync that ended.
pub struct Outcome {
    /// The generation that it ended.
    pub generation: u64,
    /// The job's list, empty.
    pub spare: Vec<u32>,
    /// How.
    pub result: Result<(), FileError>,
}

/// Makes syncs.
pub struct Syncer {
    storage: Arc<dyn FileIo>,
    layout: Layout,
    worker: Worker,
    busy: bool,
}

/// Who makes them.
enum Worker {
    /// The caller, when it asks.
    Inline(Option<Outcome>),
    /// A thread.
    Thread(Service<Job, Outcome>),
    /// A test: it begins at once and ends when it was polled so often.
    #[cfg(any(test, feature = "disk"))]
    Deferred { polls: u32, left: u32, job: Option<(Job, io::Result<()>)> },
}

impl Syncer {
    /// A thread for syncs, or none: then each is made in the call that begins
    /// it.
    pub fn new(
        storage: Arc<dyn FileIo>,
        layout: Layout,
        threaded: bool,
    ) -> Result<Syncer, FileError> {
        let worker = if threaded {
            let storage = Arc::clone(&storage);
            let work = move |job| {
                let begun = storage.sync();
                finish(&*storage, &layout, job, begun)
            };
            let started = Service::start("drivefile-sync", work);
            Worker::Thread(started.map_err(|e| FileError::system("starting its thread", &e))?)
        } else {
            Worker::Inline(None)
        };
        Ok(Syncer { storage, layout, worker, busy: false })
    }

    /// From now on syncs end at the `polls`th poll.
    #[cfg(any(test, feature = "disk"))]
    pub fn defer(&mut self, polls: u32) {
        self.worker = Worker::Deferred { polls, left: 0, job: None };
    }

    /// Whether a sync is under way.
    #[inline]
    pub fn is_busy(&self) -> bool {
        self.busy
    }

    /// Begins a sync. None may be under way.
    pub fn begin(&mut self, job: Job) {
        assert!(!self.busy, "one sync at a time");
        self.busy = true;
        match &mut self.worker {
            Worker::Inline(outcome) => {
                let begun = self.storage.sync();
                *outcome = Some(finish(&*self.storage, &self.layout, job, begun));
            }
            Worker::Thread(service) => service.begin(job),
            #[cfg(any(test, feature = "disk"))]
            Worker::Deferred { polls, left, job: held } => {
                *held = Some((job, self.storage.sync()));
                *left = *polls;
            }
        }
    }

    /// The sync that ended, once.
    pub fn poll(&mut self) -> Option<Outcome> {
        let outcome = match &mut self.worker {
            Worker::Inline(outcome) => outcome.take(),
            Worker::Thread(service) => service.poll().map(or_gone),
            #[cfg(any(test, feature = "disk"))]
            Worker::Deferred { left, job, .. } => {
                *left = left.saturating_sub(1);
                let due = if *left == 0 { job.take() } else { None };
                due.map(|(job, begun)| finish(&*self.storage, &self.layout, job, begun))
            }
        };
        self.busy &= outcome.is_none();
        outcome
    }

    /// Waits for the sync that is under way.
    pub fn wait(&mut self) -> Option<Outcome> {
        if self.busy
            && let Worker::Thread(service) = &self.worker
        {
            self.busy = false;
            return Some(or_gone(service.wait()));
        }
        self.poll()
    }
}

/// The thread's outcome, or that there is no thread.
fn or_gone(outcome: io::Result<Outcome>) -> Outcome {
    outcome.unwrap_or_else(|e| {
        let result = Err(FileError::system("syncing", &e));
        Outcome { generation: 0, spare: Vec::new(), result }
    })
}

/// What follows the sync itself.
fn finish(storage: &dyn FileIo, layout: &Layout, mut job: Job, begun: io::Result<()>) -> Outcome {
    let synced = begun.map_err(|e| FileError::system("syncing", &e));
    let result = synced.and_then(|()| write_state(storage, &job.state));
    if result.is_ok() {
        for &number in &job.erased {
            for (offset, len) in layout.ranges(number as usize) {
                if len > 0 {
                    // Where it cannot be, the chunk only keeps its space.
                    let _ = storage.punch(offset, len);
                }
            }
        }
    }
    job.erased.clear();
    Outcome { generation: job.state.synced, spare: job.erased, result }
}

/// Writes the state. The first copy is durable when this returns; the second
/// is when the next sync has ended, and is as old as that if the first tears.
pub fn write_state(storage: &dyn FileIo, state: &State) -> Result<(), FileError> {
    let bytes = state.encode();
    let failed = |e: io::Error| FileError::system("writing its state", &e);
    storage.write_durable(STATE_OFFSETS[0], &bytes).map_err(failed)?;
    storage.write(STATE_OFFSETS[1], &bytes).map_err(failed)
}

/// Writes the state that begins a session, and makes both copies durable: an
/// older session's would have all blocks of this one thrown away.
pub fn write_first_state(storage: &dyn FileIo, state: &State) -> Result<(), FileError> {
    write_state(storage, state)?;
    let second = storage.write_durable(STATE_OFFSETS[1], &state.encode());
    second.map_err(|e| FileError::system("writing its state", &e))
}
