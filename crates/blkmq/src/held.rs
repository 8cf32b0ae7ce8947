//! What one core has for itself, or several share under a lock.
//!
//! Which of the two is decided once, when the layer is built. What is held
//! alone costs one predictable branch: no lock, no locked operation, no line
//! that another core writes. Nothing here fails: a lock whose holder panicked
//! is taken all the same, since what it guards is checked by its own
//! assertions.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A `T` held alone or shared.
pub(crate) enum Held<T> {
    /// No other core has it.
    Alone(Box<T>),
    /// Others have it too.
    Shared(Arc<Mutex<T>>),
}

impl<T> Held<T> {
    /// One handle to `value` for each of `holders`.
    pub fn among(value: T, holders: usize) -> Vec<Held<T>> {
        if holders == 1 {
            return vec![Held::Alone(Box::new(value))];
        }
        let shared = Arc::new(Mutex::new(value));
        (0..holders).map(|_| Held::Shared(shared.clone())).collect()
    }

    /// Whether nobody else has it.
    #[inline]
    pub fn is_alone(&self) -> bool {
        matches!(self, Held::Alone(_))
    }

    /// It, for as long as the guard lives.
    #[inline]
    pub fn lock(&mut self) -> Guard<'_, T> {
        match self {
            Held::Alone(value) => Guard::Alone(value),
            Held::Shared(shared) => {
                Guard::Shared(shared.lock().unwrap_or_else(PoisonError::into_inner))
            }
        }
    }

    /// It, without the right to change it.
    pub fn peek(&self) -> Peek<'_, T> {
        match self {
            Held::Alone(value) => Peek::Alone(value),
            Held::Shared(shared) => {
                Peek::Shared(shared.lock().unwrap_or_else(PoisonError::into_inner))
            }
        }
    }
}

/// The right to change what is held.
pub(crate) enum Guard<'a, T> {
    Alone(&'a mut T),
    Shared(MutexGuard<'a, T>),
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        match self {
            Guard::Alone(value) => value,
            Guard::Shared(guard) => guard,
        }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        match self {
            Guard::Alone(value) => value,
            Guard::Shared(guard) => guard,
        }
    }
}

/// The right to look at what is held.
pub(crate) enum Peek<'a, T> {
    Alone(&'a T),
    Shared(MutexGuard<'a, T>),
}

impl<T> Deref for Peek<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        match self {
            Peek::Alone(value) => value,
            Peek::Shared(guard) => guard,
        }
    }
}
