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
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Wakes {
    /// From now on `wake` is called, on another thread, when there is something new.
    /// The first one stays.
    pub fn set(&self, wake: impl Fn() + Send + Sync + 'static) {
        let _ = self.wake.set(Box::new(wake));
    }

    /// Whether there is something new; none where nobody would be told.
    #[inline]
    pub(crate) fn has_news(&self) -> Option<bool> {
        self.wake.get().map(|_| self.has_news.load(Ordering::SeqCst))
    }

    fn tell(&self) {
        self.has_news.store(true, Ordering::SeqCst);
        if let Some(wake) = self.wake.get() {
            wake();
        }
    }
}

/// The thread. It does not outlive this.
pub struct Service<J, D> {
    jobs: Option<SyncSender<J>>,
    done: Receiver<D>,
    thread: Option<JoinHandle<()>>,
    /// The process that has the thread.
    process: u32,
    wakes: Arc<Wakes>,
}

impl<J: Send + 'static, D: Send + 'static> Service<J, D> {
    /// Starts the thread that does `work`.
    pub fn start(name: &str, work: impl Fn(J) -> D + Send + 'static) -> io::Result<Service<J, D>> {
        let (jobs, todo) = mpsc::sync_channel(1);
        let (finished, done) = mpsc::sync_channel(1);
        let wakes = Arc::new(Wakes::default());
        let told = Arc::clone(&wakes);
        let run = move || {
            for job in todo {
                if finished.send(work(job)).is_err() {
                    return;
                }
                told.tell();
            }
        };
        let thread = std::thread::Builder::new().name(name.into()).spawn(run)?;
        let (jobs, thread, process) = (Some(jobs), Some(thread), process::id());
        Ok(Service { jobs, done, thread, process, wakes })
    }

    /// Who is told when a job is done.
    pub fn wakes(&self) -> &Arc<Wakes> {
        &self.wakes
    }

    /// Gives it a job; it has none. Without a thread nobody answers, which
    /// [`Service::poll`] says.
    pub fn begin(&self, job: J) {
        let _ = self.jobs.as_ref().expect("taken only when dropped").try_send(job);
    }

    /// What came of the job, if it has ended.
    pub fn poll(&self) -> Option<io::Result<D>> {
        // First: what comes behind it is looked at again.
        self.wakes.has_news.store(false, Ordering::SeqCst);
        match self.done.try_recv() {
            Ok(done) => Some(Ok(done)),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(gone())),
        }
    }

    /// Waits for what comes of the job.
    pub fn wait(&self) -> io::Result<D> {
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
