//! How a journal gets space again: what is in it is flushed below, and what failed
//! below is answered when its entry is gone.

use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Status};

use super::{OWN, Protected};
use crate::NonVolatile;

/// A request that failed below, whose entry is still in the journal.
pub(super) struct Failed {
    /// Its entry.
    pub(super) at: u64,
    pub(super) offset: u64,
    pub(super) len: u64,
    /// Its answer, which waits for the entry to go.
    pub(super) answer: Option<BlockDone>,
}

/// How far the making of space is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reclaim {
    /// Nothing under way.
    Idle,
    /// Up to this position, once all before it has completed.
    Drain(u64),
    /// The port below flushes.
    Flush(u64),
    /// The store syncs what was written up to this.
    Free(u64),
}

impl<P, N> Protected<P, N>
where
    P: Port<Cmd = BlockReq, Done = BlockDone>,
    N: NonVolatile,
{
    pub(super) fn begin_reclaim(&mut self) {
        // What is under way now is in one count, what comes in the other.
        self.half = !self.half;
        self.reclaim = Reclaim::Drain(self.journal.end());
    }

    /// Goes on with making space. Says whether anything happened.
    pub(super) fn reclaim(&mut self) -> bool {
        match self.reclaim {
            Reclaim::Drain(to) if self.under_way[usize::from(!self.half)] == 0 => {
                self.down.put(|| BlockReq::new(OWN, BlockOp::Flush, 0, 0, Buffer::empty()));
                self.counters.flushes += 1;
                self.reclaim = Reclaim::Flush(to);
                true
            }
            Reclaim::Free(need) => match self.sync_to(need) {
                Ok(true) => {
                    self.journal.reuse();
                    self.reclaim = Reclaim::Idle;
                    if !self.failed.is_empty() {
                        self.let_go();
                    }
                    true
                }
                Ok(false) => false,
                Err(e) => {
                    self.fail(e);
                    true
                }
            },
            _ => false,
        }
    }

    /// A flush of our own ended.
    pub(super) fn flushed(&mut self, status: Status) {
        let Reclaim::Flush(to) = self.reclaim else { return };
        self.fault = status;
        self.reclaim = Reclaim::Idle;
        if self.broken.is_some() {
            return;
        }
        if status.is_ok() {
            match self.journal.free_to(to) {
                Ok(()) => self.reclaim = Reclaim::Free(self.journal.written()),
                Err(e) => self.fail(e),
            }
            return;
        }
        // Where the store is on the disk that failed, what it has not synced may be gone, and
        // nobody else asks it: every flush is answered with this status from now on.
        self.doubt = Some(self.journal.written());
        self.answer_failed();
        let room = |req: &BlockReq| self.journal.has_room(req.buffer.len());
        if !self.failed.is_empty() || !self.held.front().is_none_or(room) {
            self.refuse_held(status);
        }
    }

    /// Goes on with the sync behind a flush below that failed. Says whether it ended.
    #[cold]
    pub(super) fn look_at_doubt(&mut self) -> bool {
        let Some(need) = self.doubt else { return false };
        match self.sync_to(need) {
            Ok(false) => return false,
            Ok(true) => self.doubt = None,
            Err(e) => self.fail(e),
        }
        true
    }

    /// Ends the changes that wait.
    #[cold]
    pub(super) fn refuse_held(&mut self, status: Status) {
        while let Some(req) = self.held.pop() {
            self.answer(req, status);
        }
    }

    /// A request failed below: its answer waits until its entry is out of the
    /// journal.
    #[cold]
    pub(super) fn failed_below(&mut self, failed: Failed) {
        self.failed.push(failed);
        if self.broken.is_some() {
            self.answer_failed();
        } else if self.reclaim == Reclaim::Idle {
            self.begin_reclaim();
        }
    }

    /// Answers what failed and waits. The entries stay.
    #[cold]
    pub(super) fn answer_failed(&mut self) {
        let now = self.now;
        for Failed { offset, len, answer, .. } in &mut self.failed {
            if let Some(done) = answer.take() {
                self.busy.leave(*offset, *len);
                self.ready.put(|| BlockDone { at: done.at.max(now), ..done });
            }
        }
    }

    /// The journal was freed up to its head: answers what failed before that.
    #[cold]
    pub(super) fn let_go(&mut self) {
        let (head, _) = self.journal.ends();
        let failed = std::mem::take(&mut self.failed);
        let (gone, kept): (Vec<_>, Vec<_>) = failed.into_iter().partition(|one| one.at < head);
        self.failed = gone;
        self.answer_failed();
        self.failed = kept;
        if self.failed_waiting() > 0 {
            self.begin_reclaim();
        }
    }
}
