//! A bounded first-in, first-out queue.
//!
//! Its memory is taken once, when it is made. A full ring refuses; it never
//! grows.

use std::collections::VecDeque;

/// A first-in, first-out queue of at most `capacity` items.
#[derive(Debug)]
pub struct Ring<T> {
    items: VecDeque<T>,
    capacity: usize,
}

impl<T> Ring<T> {
    /// An empty ring of at most `capacity` items.
    ///
    /// # Panics
    /// When `capacity` is zero.
    pub fn new(capacity: usize) -> Ring<T> {
        assert!(capacity > 0, "a ring holds at least one item");
        Ring { items: VecDeque::with_capacity(capacity), capacity }
    }

    /// How many items it can hold.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// How many items it holds.
    #[inline]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// True when it holds nothing.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// How many more items fit.
    #[inline]
    pub fn room(&self) -> usize {
        self.capacity - self.items.len()
    }

    /// Puts `item` at the end, or gives it back when the ring is full.
    #[inline]
    pub fn push(&mut self, item: T) -> Result<(), T> {
        if self.items.len() == self.capacity {
            return Err(item);
        }
        self.items.push_back(item);
        Ok(())
    }

    /// Takes the oldest item.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        self.items.pop_front()
    }

    /// Looks at the oldest item.
    #[inline]
    pub fn front(&self) -> Option<&T> {
        self.items.front()
    }

    /// Looks at item `i`, the oldest being 0.
    #[inline]
    pub fn get(&self, i: usize) -> Option<&T> {
        self.items.get(i)
    }

    /// Moves items to the end of `to` until this ring is empty or that one
    /// is full. Gives how many were moved.
    #[inline]
    pub fn pour(&mut self, to: &mut Ring<T>) -> usize {
        let n = self.len().min(to.room());
        to.items.extend(self.items.drain(..n));
        n
    }

    /// Takes all items, oldest first.
    pub fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        self.items.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_order_and_refuses_when_full() {
        let mut r = Ring::new(2);
        assert_eq!(r.push(1), Ok(()));
        assert_eq!(r.push(2), Ok(()));
        assert_eq!(r.push(3), Err(3));
        assert_eq!(r.pop(), Some(1));
        assert_eq!(r.push(3), Ok(()));
        assert_eq!(r.drain().collect::<Vec<_>>(), [2, 3]);
        assert_eq!(r.pop(), None);
    }

    #[test]
    fn pours_no_more_than_fits() {
        let (mut a, mut b) = (Ring::new(4), Ring::new(2));
        for i in 0..4 {
            a.push(i).unwrap();
        }
        assert_eq!(a.pour(&mut b), 2);
        assert_eq!((a.len(), b.len()), (2, 2));
        assert_eq!(a.pour(&mut b), 0);
        assert_eq!(a.front(), Some(&2));
    }
}
