//! A thread that does one job at a time for whoever has it, as a sync takes long.

use std::io;
use std::sync::mpsc::{self, Receiver, SyncSender, TryRecvError};
use std::thread::JoinHandle;

/// The thread. It does not outlive this.
pub struct Service<J, D> {
    jobs: Option<SyncSender<J>>,
    done: Receiver<D>,
    thread: Option<JoinHandle<()>>,
}

impl<J: Send + 'static, D: Send + 'static> Service<J, D> {
    /// Starts the thread that does `work`.
    pub fn start(name: &str, work: impl Fn(J) -> D + Send + 'static) -> io::Result<Service<J, D>> {
        let (jobs, todo) = mpsc::sync_channel(1);
        let (finished, done) = mpsc::sync_channel(1);
        let run = move || {
            for job in todo {
                if finished.send(work(job)).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name(name.into()).spawn(run)?;
        Ok(Service { jobs: Some(jobs), done, thread: Some(thread) })
    }

    /// Gives it a job; it has none. Without a thread nobody answers, which
    /// [`Service::poll`] says.
    pub fn begin(&self, job: J) {
        let _ = self.jobs.as_ref().expect("taken only when dropped").try_send(job);
    }

    /// What came of the job, if it has ended.
    pub fn poll(&self) -> Option<io::Result<D>> {
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
    /// again at once.
    fn drop(&mut self) {
        self.jobs.take();
        // It holds one answer at most, for which there is room.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
