//! A thread that does one job at a time for whoever has it, as a sync takes long.

use std::io;
use std::mem;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TryRecvError};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

/// Who is told when a job is done.
#[derive(Default)]
pub struct Wakes {
    has_news: AtomicBool,
    told: OnceLock<Told>,
}

/// How it is told, and whether it has nothing else to do than to wait for that.
struct Told {
    wake: Box<dyn Fn() + Send + Sync>,
    is_idle: Box<dyn Fn() -> bool + Send + Sync>,
}

impl Wakes {
    /// From now on `wake` is called, on another thread, when there is something new; unless
    /// `is_idle` said when the job came that who gives it has nothing else to do: then it is
    /// done at once, by that. The first ones stay.
    pub fn set(
        &self,
        wake: impl Fn() + Send + Sync + 'static,
        is_idle: impl Fn() -> bool + Send + Sync + 'static,
    ) {
        let _ = self.told.set(Told { wake: Box::new(wake), is_idle: Box::new(is_idle) });
    }

    /// Whether there is something new; none where nobody would be told.
    #[inline]
    pub(crate) fn has_news(&self) -> Option<bool> {
        self.told.get().map(|_| self.has_news.load(Ordering::SeqCst))
    }

    fn is_idle(&self) -> bool {
        self.told.get().is_some_and(|told| (told.is_idle)())
    }

    fn tell(&self) {
        self.has_news.store(true, Ordering::SeqCst);
        if let Some(told) = self.told.get() {
            (told.wake)();
        }
    }
}

/// The thread. It does not outlive this.
pub struct Service<J, D> {
    work: Arc<dyn Fn(J) -> D + Send + Sync>,
    /// What was done without it.
    here: Option<D>,
    jobs: Option<SyncSender<J>>,
    done: Receiver<D>,
    thread: Option<JoinHandle<()>>,
    /// The process that has the thread.
    process: u32,
    wakes: Arc<Wakes>,
}

impl<J: Send + 'static, D: Send + 'static> Service<J, D> {
    /// Starts the thread that does `work`.
    pub fn start(
        name: &str,
        work: impl Fn(J) -> D + Send + Sync + 'static,
    ) -> io::Result<Service<J, D>> {
        let work: Arc<dyn Fn(J) -> D + Send + Sync> = Arc::new(work);
        let (jobs, todo) = mpsc::sync_channel(1);
        let (finished, done) = mpsc::sync_channel(1);
        let wakes = Arc::new(Wakes::default());
        let (told, does) = (Arc::clone(&wakes), Arc::clone(&work));
        let run = move || {
            for job in todo {
                if finished.send(does(job)).is_err() {
                    return;
                }
                told.tell();
            }
        };
        let thread = std::thread::Builder::new().name(name.into()).spawn(run)?;
        let (jobs, thread, process) = (Some(jobs), Some(thread), process::id());
        Ok(Service { work, here: None, jobs, done, thread, process, wakes })
    }

    /// Who is told when a job is done.
    pub fn wakes(&self) -> &Arc<Wakes> {
        &self.wakes
    }

    /// Gives it a job; it has none. Where whoever gives it has nothing else to do it is done
    /// now. Without a thread nobody answers, which [`Service::poll`] says.
    pub fn begin(&mut self, job: J) {
        if self.wakes.is_idle() {
            self.here = Some((self.work)(job));
            return;
        }
        let _ = self.jobs.as_ref().expect("taken only when dropped").try_send(job);
    }

    /// What came of the job, if it has ended.
    pub fn poll(&mut self) -> Option<io::Result<D>> {
        if let Some(done) = self.here.take() {
            return Some(Ok(done));
        }
        // First: what comes behind it is looked at again.
        self.wakes.has_news.store(false, Ordering::SeqCst);
        match self.done.try_recv() {
            Ok(done) => Some(Ok(done)),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(gone())),
        }
    }

    /// Waits for what comes of the job.
    pub fn wait(&mut self) -> io::Result<D> {
        if let Some(done) = self.here.take() {
            return Ok(done);
        }
        self.done.recv().map_err(|_| gone())
    }
}

/// The thread has ended, which it does only by a panic.
fn gone() -> io::Error {
    io::Error::other("the sync thread has ended")
}

impl<J, D> Drop for Service<J, D> {
    /// Waits for the thread, which has the file open, so that it can be opened
    /// again at once. A process that was forked has no thread to wait for.
    fn drop(&mut self) {
        self.jobs.take();
        let thread = self.thread.take();
        if self.process != process::id() {
            return mem::forget(thread);
        }
        // It holds one answer at most, for which there is room.
        let _ = thread.map(JoinHandle::join);
    }
}
