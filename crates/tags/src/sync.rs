//! The shared-memory tools that the crate uses: the standard library's, or
//! loom's when the crate is built with `--cfg loom` to be model-checked.

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};

#[cfg(loom)]
pub(crate) use loom::{
    cell::UnsafeCell,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    },
};

/// A cell with loom's interface over the standard library's.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(crate) fn new(value: T) -> UnsafeCell<T> {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// Stands between a `SeqCst` read-modify-write and the `SeqCst` load after it.
/// The two are in one total order already, so nothing is to be done. Loom
/// takes `SeqCst` accesses for `AcqRel` ones and knows the total order of
/// fences only; there it is a fence.
#[inline(always)]
pub(crate) fn order() {
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}

/// Mistakes that a test of the interleavings plants, to show that it finds
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// Who is about to sleep says so with nothing that orders it before its
    /// last look.
    NoFence,
    /// Who joins the line for tags does not look for one again.
    NoSecondLook,
    /// Who sends says so before the item is there.
    StampFirst,
    /// Who shuts a gate takes a word about an earlier time for one about this.
    OldWord,
}

/// Whether this mistake is to be made: never, outside such a test.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) fn planted(_: Mistake) -> bool {
    false
}

#[cfg(loom)]
mod plant {
    use super::Mistake;
    use std::cell::Cell;

    // Loom runs all threads of a case on the test's own.
    std::thread_local!(static PLANTED: Cell<Option<Mistake>> = const { Cell::new(None) });

    /// Makes this mistake from now on, on the thread of this test.
    pub fn plant(mistake: Option<Mistake>) {
        PLANTED.set(mistake);
    }

    pub(crate) fn planted(mistake: Mistake) -> bool {
        PLANTED.get() == Some(mistake)
    }
}

#[cfg(loom)]
pub use plant::plant;
#[cfg(loom)]
pub(crate) use plant::planted;

/// Locks. What the crate does under a lock cannot panic half-way, so a
/// poisoned lock guards sound data.
macro_rules! lock {
    ($mutex:expr) => {
        $mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    };
}
pub(crate) use lock;
