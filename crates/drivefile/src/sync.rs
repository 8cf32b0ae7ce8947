//! Syncs, one at a time, on a thread of their own; or on that of who asks for one and has
//! nothing else to do.
//!
//! A sync ends a *generation*: everything that was written in it and before is
//! made durable, then the space of the chunks that were erased in the one before
//! is given back. The state that tells of it is made durable by the same sync: it is
//! written first, as a *claim*, which holds if all that it tells of is found when
//! the file is opened. A claim is written when the sync before it has ended, and
//! over the state before that one's: so of the two that there are, the older one
//! holds in any case. Behind the sync the state is written as one that is known to
//! hold. That is durable with the next sync, for which nobody waits.
//!
//! Until then a claim that is found damaged counts as one of a sync that never
//! ended, and the generation before holds. So what was erased keeps its space for
//! one sync more: what it had may still be what the drive has.

use std::io;
use std::sync::Arc;

use crate::header::State;
use crate::layout::Layout;
use crate::service::{Service, Wakes};
use crate::states::States;
use crate::{FileError, FileIo};

/// A sync to be made.
pub struct Job {
    /// What the state will say, when it is known to hold.
    pub state: State,
    /// The pages of states, and bytes of the claim in them that is written before; 0
    /// where no place holds that, and then the state is made durable by itself behind it.
    pub states: States,
    pub claim: usize,
    /// The chunks erased in the generation before, by their number in the file:
    /// when this one is durable, nothing that they had is needed.
    pub give_back: Vec<u32>,
}

/// What became of a sync. Behind one that failed there is none.
pub type Outcome = Result<Done, FileError>;

/// A sync that ended.
pub struct Done {
    /// The generation that it ended.
    pub generation: u64,
    /// The job's list, empty, and the pages of states.
    pub spare: Vec<u32>,
    pub states: States,
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
    Deferred { polls: u32, left: u32, job: Option<(Job, Result<(), FileError>)> },
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
                let begun = claim_and_sync(&*storage, &job);
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

    /// Who is told when a sync has ended, where it is made on a thread.
    #[inline]
    pub fn wakes(&self) -> Option<&Arc<Wakes>> {
        match &self.worker {
            Worker::Thread(service) => Some(service.wakes()),
            _ => None,
        }
    }

    /// Begins a sync. None may be under way.
    pub fn begin(&mut self, job: Job) {
        assert!(!self.busy, "one sync at a time");
        self.busy = true;
        match &mut self.worker {
            Worker::Inline(outcome) => {
                let begun = claim_and_sync(&*self.storage, &job);
                *outcome = Some(finish(&*self.storage, &self.layout, job, begun));
            }
            Worker::Thread(service) => service.begin(job),
            #[cfg(any(test, feature = "disk"))]
            Worker::Deferred { polls, left, job: held } => {
                let begun = claim_and_sync(&*self.storage, &job);
                *held = Some((job, begun));
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
            && let Worker::Thread(service) = &mut self.worker
        {
            self.busy = false;
            return Some(or_gone(service.wait()));
        }
        self.poll()
    }
}

/// The thread's outcome, or that there is no thread.
fn or_gone(outcome: io::Result<Outcome>) -> Outcome {
    outcome.unwrap_or_else(|e| Err(FileError::system("syncing", &e)))
}

/// Claims the generation, and makes all of it durable, with the claim.
fn claim_and_sync(storage: &dyn FileIo, job: &Job) -> Result<(), FileError> {
    if job.claim > 0 {
        job.states.write_claim(storage, job.state.synced, job.claim).map_err(failed)?;
    }
    storage.sync().map_err(|e| FileError::system("syncing", &e))
}

/// What follows the sync itself.
fn finish(
    storage: &dyn FileIo,
    layout: &Layout,
    job: Job,
    begun: Result<(), FileError>,
) -> Outcome {
    begun?;
    storage.note_synced();
    let Job { state, mut states, claim, give_back: mut spare } = job;
    let written = match claim {
        0 => states.write_unclaimed(storage, &state),
        _ => states.write_state(storage, &state),
    };
    written.map_err(failed)?;
    give_back(storage, layout, &spare);
    spare.clear();
    Ok(Done { generation: state.synced, spare, states })
}

/// Gives the space of chunks back, by their number in the file. No state that may
/// still hold knows what they had.
pub fn give_back(storage: &dyn FileIo, layout: &Layout, chunks: &[u32]) {
    let ranges = chunks.iter().flat_map(|&number| layout.ranges(number as usize));
    for (offset, len) in ranges.filter(|&(_, len)| len > 0) {
        // Where it cannot be, the chunk only keeps its space.
        let _ = storage.punch(offset, len);
    }
}

fn failed(e: io::Error) -> FileError {
    FileError::system("writing its state", &e)
}

/// Writes a state that begins a session to all places, durably.
pub fn write_first_state(storage: &dyn FileIo, state: &State) -> Result<(), FileError> {
    States::of(state).write_durable(storage).map_err(failed)
}

/// Writes the state that ends a session to all places, durably. What it tells of is.
pub fn write_last_state(storage: &dyn FileIo, state: &State) -> Result<(), FileError> {
    States::of(state).write(storage).map_err(failed)?;
    storage.sync().map_err(|e| FileError::system("syncing", &e))?;
    storage.note_synced();
    Ok(())
}
