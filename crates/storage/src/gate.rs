//! A queue's way to the kernel, by one of the engines.
//!
//! Guarantees: what was asked is answered once. Which thread may use it the engine says.
//! Fails as [`Refused`] says.

use std::time::Duration;

use crate::aio::Aio;
use crate::ask::Ask;
use crate::calls::Calls;
use crate::request::Plan;
use crate::ring::{CANCEL, Refused, Uring};

/// A way to the kernel.
pub(crate) enum Gate {
    Uring(Uring),
    Aio(Aio),
    Calls(Calls),
}

impl Gate {
    /// Asks; false where there is no room. Of rings it goes to the kernel at the next
    /// [`Gate::enter`].
    ///
    /// # Safety
    /// The memory that is named stays valid, and nobody else's, until the answer.
    #[inline]
    pub unsafe fn ask(&mut self, key: u32, ask: &Ask, plan: &Plan) -> bool {
        match self {
            // SAFETY: the caller promises it.
            Gate::Uring(ring) => return unsafe { ring.ask(key, ask, plan) },
            // SAFETY: as above.
            Gate::Aio(aio) => unsafe { aio.ask(key, ask) },
            // SAFETY: as above.
            Gate::Calls(calls) => unsafe { calls.ask(key, ask) },
        }
        true
    }

    /// Whether something happens only if the kernel is entered now; some are inside, or
    /// none.
    #[inline]
    pub fn wants_enter(&mut self, inside: bool) -> bool {
        match self {
            Gate::Uring(ring) => ring.wants_enter(inside),
            Gate::Aio(aio) => aio.wants_enter(),
            Gate::Calls(_) => false,
        }
    }

    /// Hands over what was asked, and takes what has completed.
    #[inline]
    pub fn enter(&mut self) -> Result<(), Refused> {
        match self {
            Gate::Uring(ring) => ring.enter(),
            Gate::Aio(aio) => aio.enter(),
            Gate::Calls(_) => Ok(()),
        }
    }

    /// The same, and sleeps until there is an answer or `timeout` has passed.
    pub fn sleep(&mut self, timeout: Option<Duration>) -> Result<(), Refused> {
        match self {
            Gate::Uring(ring) => ring.sleep(timeout),
            Gate::Aio(aio) => aio.sleep(timeout),
            Gate::Calls(_) => Ok(()),
        }
    }

    /// Whether an answer is there.
    #[inline]
    pub fn has_answer(&mut self) -> bool {
        match self {
            Gate::Uring(ring) => ring.has_completion(),
            Gate::Aio(aio) => !aio.answers.is_empty(),
            Gate::Calls(calls) => !calls.answers.is_empty(),
        }
    }

    /// Gives the answers that are there: key, and bytes or an error's number below zero.
    #[inline]
    pub fn answers(&mut self, mut take: impl FnMut(u32, i32)) {
        match self {
            Gate::Uring(ring) => {
                let asked = ring.completions().filter(|done| done.user_data() != CANCEL);
                asked.for_each(|done| take(done.user_data() as u32, done.result()));
            }
            Gate::Aio(aio) => aio.answers.take_all(|(key, result)| take(key, result)),
            Gate::Calls(calls) => calls.answers.take_all(|(key, result)| take(key, result)),
        }
    }

    /// Asks the kernel to let one go, or all; it may answer them in any case. What engines
    /// without a ring have is waited for.
    pub fn cancel(&mut self, key: Option<u32>) -> Result<(), Refused> {
        match self {
            Gate::Uring(ring) => ring.cancel(key),
            Gate::Aio(_) | Gate::Calls(_) => Ok(()),
        }
    }

    /// Lets go of the file now, rather than when the kernel has taken a ring apart.
    pub fn release(&mut self) {
        if let Gate::Uring(ring) = self {
            ring.release();
        }
    }

    /// Leaves to the kernel what it has.
    pub fn leave(self) {
        if let Gate::Aio(aio) = self {
            aio.leave();
        }
    }
}
