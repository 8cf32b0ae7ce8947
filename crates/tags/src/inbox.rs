//! The completion inbox: how a thread that found another core's completion
//! hands it to the core that submitted the request.
//!
//! Guarantees: bounded; every item comes out once, and the items of one
//! sender in their order; no lock and no wait on either side. A full inbox
//! gives the item back. A core that has at most `capacity` requests out never
//! finds its inbox full, because each request completes once, and a place is
//! free again before the core can submit the next request.
//!
//! Polling an empty inbox is one load, of a line that nobody writes until
//! something comes.
//!
//! A ring with a stamp in each slot (Vyukov's bounded queue) with its reader
//! reduced to one. crossbeam's `ArrayQueue` is the same ring for many readers;
//! it does not fit here because its reader, on finding a slot that a sender
//! has claimed and not filled yet, spins until that sender runs again, and
//! because finding it empty costs a fence and a load of the senders' line.

use std::mem::MaybeUninit;
use std::sync::Arc;

use crossbeam_utils::CachePadded;
use thiserror::Error;

use crate::sync::{AtomicUsize, Mistake, Ordering, UnsafeCell, planted};

/// The most items that an inbox can be made for.
pub const MAX_CAPACITY: usize = 1 << 20;

/// An inbox cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum InboxError {
    /// None has this capacity.
    #[error("an inbox cannot hold {0} items; choose a capacity from 1 to {MAX_CAPACITY}")]
    Capacity(usize),
    /// So many bytes of memory could not be had.
    #[error("cannot get {0} bytes of memory for an inbox; choose a smaller capacity")]
    Memory(u64),
}

/// A place of the ring.
struct Slot<T> {
    /// Positions count up for ever and a slot serves every `slots.len()`th:
    /// `p` when it is free for position `p`, `p + 1` when it holds that item.
    /// The ring has at least two slots, so the two cannot be taken for each
    /// other.
    stamp: AtomicUsize,
    item: UnsafeCell<MaybeUninit<T>>,
}

struct Ring<T> {
    /// The next position to send to. Only senders touch it.
    tail: CachePadded<AtomicUsize>,
    /// A power of two of them, at least two.
    slots: Box<[Slot<T>]>,
}

// SAFETY: items move through the ring from thread to thread, and a slot is
// touched only by the one thread that its stamp names: the sender that won
// the position, then the reader.
unsafe impl<T: Send> Send for Ring<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Ring<T> {}

/// The reading end: one thread's, polled.
pub struct Inbox<T> {
    ring: Arc<Ring<T>>,
    /// The next position to read.
    head: usize,
}

/// The sending end. Clone one for each thread that sends.
pub struct Sender<T> {
    ring: Arc<Ring<T>>,
}

/// An inbox for at least `capacity` items (the next power of two, at least
/// two), and its first sender.
///
/// ```
/// let (mut inbox, sender) = tags::inbox(4)?;
/// sender.push("done").unwrap();
/// assert_eq!(inbox.pop(), Some("done"));
/// assert_eq!(inbox.pop(), None);
/// # Ok::<(), tags::InboxError>(())
/// ```
///
/// # Errors
/// When `capacity` is not from 1 to [`MAX_CAPACITY`], and where memory ends.
pub fn inbox<T>(capacity: usize) -> Result<(Inbox<T>, Sender<T>), InboxError> {
    if !(1..=MAX_CAPACITY).contains(&capacity) {
        return Err(InboxError::Capacity(capacity));
    }
    let slot =
        |i| Slot { stamp: AtomicUsize::new(i), item: UnsafeCell::new(MaybeUninit::uninit()) };
    let mut slots = Vec::new();
    let none = |_| InboxError::Memory(inbox_bytes::<T>(capacity));
    slots.try_reserve_exact(places(capacity)).map_err(none)?;
    slots.extend((0..places(capacity)).map(slot));
    let slots = slots.into_boxed_slice();
    let ring = Arc::new(Ring { tail: CachePadded::new(AtomicUsize::new(0)), slots });
    Ok((Inbox { ring: ring.clone(), head: 0 }, Sender { ring }))
}

/// Places of an inbox.
fn places(capacity: usize) -> usize {
    capacity.next_power_of_two().max(2)
}

/// Bytes of memory that an inbox for `capacity` items takes.
pub fn inbox_bytes<T>(capacity: usize) -> u64 {
    (places(capacity) as u64).saturating_mul(size_of::<Slot<T>>() as u64)
}

impl<T> Ring<T> {
    #[inline]
    fn slot(&self, position: usize) -> &Slot<T> {
        &self.slots[position & (self.slots.len() - 1)]
    }
}

impl<T> Sender<T> {
    /// Sends `item`.
    ///
    /// # Errors
    /// Gives `item` back when the inbox is full.
    #[inline]
    pub fn push(&self, item: T) -> Result<(), T> {
        let ring = &*self.ring;
        let mut at = ring.tail.load(Ordering::Relaxed);
        loop {
            let slot = ring.slot(at);
            // Acquire: the reader is done with what was here.
            let stamp = slot.stamp.load(Ordering::Acquire);
            if stamp == at {
                let next = at.wrapping_add(1);
                let won =
                    ring.tail.compare_exchange_weak(at, next, Ordering::Relaxed, Ordering::Relaxed);
                if let Err(now) = won {
                    at = now;
                    continue;
                }
                if planted(Mistake::StampFirst) {
                    slot.stamp.store(next, Ordering::Release);
                }
                slot.item.with_mut(|place| {
                    // SAFETY: the slot is free for position `at`, and only
                    // this sender won that position.
                    unsafe { (*place).write(item) };
                });
                slot.stamp.store(next, Ordering::Release);
                return Ok(());
            }
            if (stamp.wrapping_sub(at) as isize) < 0 {
                // The slot still holds the item of a lap before.
                return Err(item);
            }
            // Another sender was faster.
            at = ring.tail.load(Ordering::Relaxed);
        }
    }
}

impl<T> Inbox<T> {
    /// The next item, or `None` when there is none, or when the sender of the
    /// next one has not finished sending.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        let at = self.head;
        let slot = self.ring.slot(at);
        // Acquire: the item is written.
        if slot.stamp.load(Ordering::Acquire) != at.wrapping_add(1) {
            return None;
        }
        let item = slot.item.with_mut(|place| {
            // SAFETY: the stamp says that the slot holds the item of position
            // `at`, and this is the only reader.
            unsafe { (*place).assume_init_read() }
        });
        slot.stamp.store(at.wrapping_add(self.capacity()), Ordering::Release);
        self.head = at.wrapping_add(1);
        Some(item)
    }

    /// Whether [`Inbox::pop`] would give `None` now.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ring.slot(self.head).stamp.load(Ordering::Acquire) != self.head.wrapping_add(1)
    }

    /// How many items it holds when full: what was asked for, rounded up.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.ring.slots.len()
    }

    /// Another sender for this inbox.
    pub fn sender(&self) -> Sender<T> {
        Sender { ring: self.ring.clone() }
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        Sender { ring: self.ring.clone() }
    }
}

impl<T> Drop for Ring<T> {
    /// Drops what was sent and never read.
    fn drop(&mut self) {
        let mask = self.slots.len() - 1;
        for (i, slot) in self.slots.iter().enumerate() {
            // Full is `p + 1`, free is `p`, for a `p` that falls on this slot.
            if slot.stamp.load(Ordering::Acquire) & mask == (i + 1) & mask {
                slot.item.with_mut(|place| {
                    // SAFETY: the slot is full, and nobody else is left.
                    unsafe { (*place).assume_init_drop() };
                });
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bounds_of_capacity() {
        assert_eq!(inbox::<u8>(0).err(), Some(InboxError::Capacity(0)));
        let many = MAX_CAPACITY + 1;
        assert_eq!(inbox::<u8>(many).err(), Some(InboxError::Capacity(many)));
        let none = inbox::<[u8; 1 << 28]>(MAX_CAPACITY).err();
        assert!(matches!(none, Some(InboxError::Memory(bytes)) if bytes > 1 << 48), "{none:?}");
        assert_eq!(inbox::<u8>(1).unwrap().0.capacity(), 2);
        assert_eq!(inbox::<u8>(100).unwrap().0.capacity(), 128);
    }

    #[test]
    fn positions_wrap() {
        // The counters are set near their end, as after 2^64 items.
        let (mut inbox, _) = inbox::<u32>(4).unwrap();
        let start = usize::MAX - 5;
        inbox.head = start;
        inbox.ring.tail.store(start, Ordering::Relaxed);
        for i in 0..4 {
            let position = start.wrapping_add(i);
            inbox.ring.slot(position).stamp.store(position, Ordering::Relaxed);
        }
        let sender = inbox.sender();
        for i in 0..40 {
            for j in 0..4 {
                sender.push(i + j).unwrap();
            }
            assert_eq!(sender.push(99), Err(99));
            for j in 0..4 {
                assert_eq!(inbox.pop(), Some(i + j));
            }
            assert_eq!(inbox.pop(), None);
        }
    }

    #[test]
    fn what_was_not_read_is_dropped() {
        let item = Arc::new(());
        let (mut inbox, sender) = inbox(4).unwrap();
        for _ in 0..3 {
            sender.push(item.clone()).unwrap();
        }
        drop(inbox.pop());
        drop(inbox);
        sender.push(item.clone()).unwrap();
        assert_eq!(Arc::strong_count(&item), 4);
        drop(sender);
        assert_eq!(Arc::strong_count(&item), 1);
    }

    proptest! {
        #[test]
        fn is_a_queue(capacity in 1usize..9, ops in prop::collection::vec(any::<bool>(), 1..200)) {
            let (mut inbox, sender) = inbox(capacity).unwrap();
            let mut model = VecDeque::new();
            for (i, push) in ops.into_iter().enumerate() {
                if push {
                    let full = model.len() == inbox.capacity();
                    prop_assert_eq!(sender.push(i), if full { Err(i) } else { Ok(()) });
                    if !full {
                        model.push_back(i);
                    }
                } else {
                    prop_assert_eq!(inbox.is_empty(), model.is_empty());
                    prop_assert_eq!(inbox.pop(), model.pop_front());
                }
            }
        }
    }
}
