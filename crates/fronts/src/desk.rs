//! Where a drive that others use is asked how it is: at its lock, or at the desk of the
//! thread that has it.
//!
//! Guarantees: nobody who uses the drive waits for an answer of the desk, which costs
//! the thread one look a turn; a look that panics ends neither, and the drive's lock is
//! not poisoned. Fails where the drive is gone, or its thread has not answered all that a
//! page asks within [`PATIENCE`].

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use btree::Sleeper;
use device::ChunkCount;
use drive::lent::Lent;
use drive::live::{Glimpse, Place, Seen};
use drive::told::Explained;
use exports::SharedDrive;
use exports::redis::Failure;
use metrics::{NoPage, Reach, SLICE};
use port::{Port, Ring, Time};

/// How long a drive's thread may take for all of a page.
const PATIENCE: Duration = Duration::from_secs(1);
/// How soon it is woken again: it may have been about to sleep.
const NAP: Duration = Duration::from_micros(100);

/// What a look at a drive finds. It changes nothing of the drive, so that a panic leaves
/// it as it was; the panic was told of.
fn unless_it_panics<R>(look: impl FnOnce() -> R) -> Result<R, NoPage> {
    catch_unwind(AssertUnwindSafe(look)).map_err(|_| NoPage::Gone)
}

/// A drive behind a lock.
pub(crate) struct AtLock<'a>(pub &'a SharedDrive<Lent>);

impl Reach for AtLock<'_> {
    fn glimpse(&mut self) -> Result<Glimpse, NoPage> {
        let look = self.0.look(|drive, now| unless_it_panics(|| drive.glimpse(now)));
        look.map_err(|_| NoPage::Gone)?
    }

    fn explained(&mut self) -> Result<Option<Explained>, NoPage> {
        let look = self.0.look(|drive, now| unless_it_panics(|| drive.explained(now)));
        look.map_err(|_| NoPage::Gone)?
    }

    fn chunks(
        &mut self,
        from: Place,
        mut count: ChunkCount,
    ) -> Result<(ChunkCount, Option<Place>), NoPage> {
        let look = self
            .0
            .look(|drive, _| unless_it_panics(|| drive.count_chunks(from, SLICE, &mut count)));
        let next = look.map_err(|_| NoPage::Gone)??;
        Ok((count, next))
    }

    fn connections(&mut self) -> Option<u64> {
        self.0.seated().ok()
    }
}

type Question<P> = Box<dyn FnOnce(&P, Time) + Send>;

/// Where questions lie for the thread that has the drive.
pub(crate) struct Desk<P> {
    /// One lies there.
    asked: AtomicBool,
    question: Mutex<Option<Question<P>>>,
    /// Nobody answers any more.
    closed: AtomicBool,
}

impl<P> Desk<P> {
    pub fn new() -> Arc<Desk<P>> {
        let (asked, closed) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Desk { asked, question: Mutex::new(None), closed })
    }

    #[cold]
    fn answer(&self, drive: &P, now: Time) {
        self.asked.store(false, Ordering::Release);
        let question = self.question.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(question) = question {
            // Who asked hears that nobody will answer.
            let _ = unless_it_panics(|| question(drive, now));
        }
    }
}

/// Who answers at a desk; closes it when it leaves.
struct Clerk<P>(Arc<Desk<P>>);

impl<P> Drop for Clerk<P> {
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::Release);
    }
}

/// A drive whose thread answers at a desk, where there is one.
pub(crate) struct Staffed<P> {
    drive: P,
    clerk: Option<Clerk<P>>,
}

impl<P> Staffed<P> {
    /// It answers at `desk` from now on.
    pub fn new(drive: P, desk: Option<Arc<Desk<P>>>) -> Staffed<P> {
        Staffed { drive, clerk: desk.map(Clerk) }
    }

    /// The drive again.
    pub fn into_drive(self) -> P {
        self.drive
    }
}

impl<P: Port> Port for Staffed<P> {
    type Cmd = P::Cmd;
    type Done = P::Done;

    #[inline]
    fn submit(&mut self, now: Time, cmds: &mut Ring<P::Cmd>) {
        self.drive.submit(now, cmds);
    }

    #[inline]
    fn next_event(&self) -> Option<Time> {
        self.drive.next_event()
    }

    #[inline]
    fn advance(&mut self, to: Time, done: &mut Ring<P::Done>) {
        self.drive.advance(to, done);
    }

    #[inline]
    fn catch_up(&mut self, last: &mut Time, to: Time, done: &mut Ring<P::Done>) -> bool {
        if let Some(Clerk(desk)) = &self.clerk
            && desk.asked.load(Ordering::Acquire)
        {
            desk.answer(&self.drive, to.max(*last));
        }
        self.drive.catch_up(last, to, done)
    }
}

/// A drive on another thread, which answers at its desk.
pub(crate) struct AtDesk<P> {
    /// Where.
    desk: Arc<Desk<P>>,
    /// That thread.
    sleeper: Arc<Sleeper>,
    /// Until when the page that is being made may ask.
    until: Instant,
}

/// A way to any drive on another thread.
pub(crate) type AnyDesk = Box<dyn Reach + Send>;

/// The drive of a store, which takes no more writes either when the store does not.
pub(crate) struct OfStore {
    pub desk: AnyDesk,
    pub failure: Failure,
}

impl Reach for OfStore {
    fn glimpse(&mut self) -> Result<Glimpse, NoPage> {
        let mut seen = self.desk.glimpse()?;
        let failed = self.failure.get().map(ToString::to_string);
        seen.read_only = seen.read_only.or(failed);
        Ok(seen)
    }

    fn explained(&mut self) -> Result<Option<Explained>, NoPage> {
        self.desk.explained()
    }

    fn chunks(
        &mut self,
        from: Place,
        count: ChunkCount,
    ) -> Result<(ChunkCount, Option<Place>), NoPage> {
        self.desk.chunks(from, count)
    }

    fn connections(&mut self) -> Option<u64> {
        self.desk.connections()
    }
}

impl<P> AtDesk<P> {
    /// A drive that answers at `desk`, and whose thread is `sleeper`.
    pub fn new(desk: Arc<Desk<P>>, sleeper: Arc<Sleeper>) -> AtDesk<P> {
        AtDesk { desk, sleeper, until: Instant::now() }
    }

    fn ask<R: Send + 'static>(
        &self,
        f: impl FnOnce(&P, Time) -> R + Send + 'static,
    ) -> Result<R, NoPage> {
        let (say, hear) = sync_channel(1);
        let question: Question<P> = Box::new(move |drive, now| {
            // Nobody may wait any more.
            let _ = say.send(f(drive, now));
        });
        *self.desk.question.lock().unwrap_or_else(PoisonError::into_inner) = Some(question);
        self.desk.asked.store(true, Ordering::Release);
        while !self.desk.closed.load(Ordering::Acquire) {
            if Instant::now() >= self.until {
                return Err(NoPage::Late);
            }
            self.sleeper.bell().ring();
            match hear.recv_timeout(NAP) {
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(NoPage::Gone),
            }
        }
        Err(NoPage::Gone)
    }
}

impl<P: Seen + 'static> Reach for AtDesk<P> {
    fn glimpse(&mut self) -> Result<Glimpse, NoPage> {
        self.until = Instant::now() + PATIENCE;
        self.ask(|drive, now| drive.glimpse(now))
    }

    fn explained(&mut self) -> Result<Option<Explained>, NoPage> {
        self.until = Instant::now() + PATIENCE;
        self.ask(|drive, now| drive.explained(now))
    }

    fn chunks(
        &mut self,
        from: Place,
        mut count: ChunkCount,
    ) -> Result<(ChunkCount, Option<Place>), NoPage> {
        self.ask(move |drive, _| {
            let next = drive.count_chunks(from, SLICE, &mut count);
            (count, next)
        })
    }

    fn connections(&mut self) -> Option<u64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The thread of a drive goes on after a question that panics, and who asked is told.
    #[test]
    fn a_question_that_panics_is_not_answered() {
        let desk = Desk::<()>::new();
        let (say, hear) = sync_channel::<()>(1);
        let question: Question<()> = Box::new(move |_, _| {
            let _say = say;
            panic!("a fault of a look");
        });
        *desk.question.lock().unwrap() = Some(question);
        desk.answer(&(), Time::ZERO);
        assert!(hear.recv().is_err());
    }
}
