//! What is of one process: a drive is used by the one that opened it.
//!
//! A process that was forked has a copy of its parent's memory, but none of its other threads,
//! and shares its files, with their locks: two that write by copies of one drive's tables
//! destroy what is in its file.
//!
//! Guarantees: in another process than its own nothing of what is [`Owned`] can be reached, and
//! letting go of it there does nothing. A call in whose midst Python's code forks ends in the
//! child, before the drive goes on ([`leave`]). Fails with what to do instead.

use std::mem;
use std::panic::{self, AssertUnwindSafe};
use std::process;

use pyo3::PyResult;

use crate::error::raised;

/// A process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u32);

impl Process {
    /// The one that calls.
    pub fn this() -> Process {
        Process(process::id())
    }

    /// Whether it is the one that calls.
    pub fn is_this(self) -> bool {
        self == Process::this()
    }

    /// Why what is of this process is refused to the one that calls.
    pub fn refusal(self, what: &str) -> ::drive::Error {
        ::drive::Error::Failed(format!(
            "the {what} is used by process {}, which opened it, and this one was forked from that: \
             open a {what} of its own here, or start processes that inherit none \
             (multiprocessing's \"spawn\")",
            self.0
        ))
    }
}

/// What the process that made it has alone.
pub struct Owned<T> {
    /// Always there, until it is dropped.
    held: Option<T>,
    what: &'static str,
    process: Process,
}

impl<T> Owned<T> {
    /// This process has it from now on; in errors it is called `what`.
    pub fn new(what: &'static str, held: T) -> Owned<T> {
        Owned { held: Some(held), what, process: Process::this() }
    }

    /// Whose it is.
    pub fn process(&self) -> Process {
        self.process
    }

    /// It, for its own process.
    pub fn get(&self) -> PyResult<&T> {
        match self.process.is_this() {
            true => Ok(self.held.as_ref().expect("taken only when dropped")),
            false => Err(raised(&self.process.refusal(self.what))),
        }
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if !self.process.is_this() {
            // Its threads are not here to be ended, and its files are the other's.
            mem::forget(self.held.take());
        }
    }
}

/// Says that a call ends here, as this process was forked in its midst.
struct Left;

/// Ends the call that [`unless_left`] runs. For code in its midst, when that process is
/// another by now than the one that began it.
pub fn leave() -> ! {
    panic::resume_unwind(Box::new(Left))
}

/// Runs something; none where it was left. What it worked on is torn then, in this process.
pub fn unless_left<T>(run: impl FnOnce() -> T) -> Option<T> {
    match panic::catch_unwind(AssertUnwindSafe(run)) {
        Ok(came) => Some(came),
        Err(why) if why.is::<Left>() => None,
        Err(panic) => panic::resume_unwind(panic),
    }
}
