//! Whether somebody sleeps, or is about to, and wants to be woken.
//!
//! The sleeper arms it, looks once more whether there is work, and sleeps; who
//! brings work brings it first and then asks. Guarantees: either the sleeper
//! sees the work or the other sees it armed, whatever the work is made of; of
//! several that see it armed one takes it. It may lie in memory that a stranger
//! writes, who can only keep a sleeper asleep or awake. Nothing here fails or waits.

use crate::sync::{AtomicU32, Ordering, fence, planted};

/// Set by who sleeps, taken by who wakes it: 0 when nobody sleeps.
#[derive(Debug)]
#[repr(transparent)]
pub struct Armed(AtomicU32);

impl Default for Armed {
    fn default() -> Armed {
        Armed::new()
    }
}

impl Armed {
    /// Nobody sleeps.
    pub fn new() -> Armed {
        Armed(AtomicU32::new(0))
    }

    /// Says that this thread is about to sleep. Look for work after it.
    #[inline]
    pub fn arm(&self) {
        self.0.store(1, Ordering::SeqCst);
        if !planted(crate::Mistake::NoFence) {
            fence(Ordering::SeqCst);
        }
    }

    /// Says that this thread does not sleep after all.
    #[inline]
    pub fn disarm(&self) {
        self.0.store(0, Ordering::SeqCst);
    }

    /// Whether somebody sleeps or is about to. Call it after bringing work.
    #[inline]
    pub fn is_armed(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::SeqCst) != 0
    }

    /// Whether this thread is the one that has to wake the sleeper. Call it
    /// after bringing work.
    #[inline]
    pub fn take(&self) -> bool {
        self.is_armed() && self.0.swap(0, Ordering::SeqCst) != 0
    }
}
