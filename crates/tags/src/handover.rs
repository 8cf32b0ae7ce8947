//! Something that one thread at a time may be in, and what the others leave
//! there for whoever is.
//!
//! Guarantees: one thread is inside at a time; who finds it taken does not wait,
//! but leaves what it has and goes on; what is left is found once, by one that is
//! inside after it was left, and what one thread left in its order. Nobody is told
//! that something was left: who left it, or anybody else, looks again.

use std::sync::TryLockError;

use crate::inbox::{Inbox, InboxError, Sender, inbox};
use crate::sync::{Mutex, MutexGuard, lock};

/// A `T` for one at a time, and the items that were left for it.
pub struct Handover<T, I> {
    inside: Mutex<(T, Inbox<I>)>,
    left: Sender<I>,
}

/// The right to be inside: the value, and what was left.
pub type Inside<'a, T, I> = MutexGuard<'a, (T, Inbox<I>)>;

impl<T, I> Handover<T, I> {
    /// `value`, with room for `capacity` items that are left at once.
    ///
    /// # Errors
    /// As [`inbox`].
    pub fn new(value: T, capacity: usize) -> Result<Handover<T, I>, InboxError> {
        let (items, left) = inbox(capacity)?;
        Ok(Handover { inside: Mutex::new((value, items)), left })
    }

    /// Goes in, unless somebody is inside.
    #[inline]
    pub fn try_enter(&self) -> Option<Inside<'_, T, I>> {
        match self.inside.try_lock() {
            Ok(inside) => Some(inside),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Goes in, and waits for that.
    pub fn enter(&self) -> Inside<'_, T, I> {
        lock!(self.inside)
    }

    /// Leaves an item.
    ///
    /// # Errors
    /// Gives it back when there is no room.
    #[inline]
    pub fn leave(&self, item: I) -> Result<(), I> {
        self.left.push(item)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn who_finds_it_taken_leaves_what_it_has() {
        let door = Handover::new(7, 2).unwrap();
        let mut inside = door.try_enter().unwrap();
        assert!(door.try_enter().is_none());
        assert_eq!((door.leave(1), door.leave(2), door.leave(3)), (Ok(()), Ok(()), Err(3)));
        let (value, left) = &mut *inside;
        assert_eq!((*value, left.pop()), (7, Some(1)));
        drop(inside);
        let mut inside = door.enter();
        assert_eq!((inside.1.pop(), inside.1.pop()), (Some(2), None));
    }
}
