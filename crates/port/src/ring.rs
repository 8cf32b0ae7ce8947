//! A bounded first-in, first-out queue.
//!
//! Its memory is taken once, when it is made. A full ring refuses; it never
//! grows.

/// A first-in, first-out queue of at most `capacity` items.
#[derive(Debug)]
pub struct Ring<T> {
    /// A power of two of them; those that hold an item follow each other from
    /// `head` on, round the end.
    items: Box<[Option<T>]>,
    head: usize,
    len: usize,
    capacity: usize,
}

impl<T> Ring<T> {
    /// An empty ring of at most `capacity` items.
    ///
    /// # Panics
    /// When `capacity` is zero.
    pub fn new(capacity: usize) -> Ring<T> {
        assert!(capacity > 0, "a ring holds at least one item");
        let items = (0..capacity.next_power_of_two()).map(|_| None).collect();
        Ring { items, head: 0, len: 0, capacity }
    }

    /// How many items it can hold.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// How many items it holds.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when it holds nothing.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many more items fit.
    #[inline]
    pub fn room(&self) -> usize {
        self.capacity - self.len
    }

    /// Where item `i` is kept.
    #[inline]
    fn at(&self, i: usize) -> usize {
        (self.head + i) & (self.items.len() - 1)
    }

    /// Puts `item` at the end, or gives it back when the ring is full.
    #[inline]
    pub fn push(&mut self, item: T) -> Result<(), T> {
        if self.len == self.capacity {
            return Err(item);
        }
        let at = self.at(self.len);
        // What is replaced is `None`: nothing to drop.
        std::mem::forget(self.items[at].replace(item));
        self.len += 1;
        Ok(())
    }

    /// Takes the oldest item.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        let item = self.items[self.head].take();
        if item.is_some() {
            self.head = self.at(1);
            self.len -= 1;
        }
        item
    }

    /// Looks at the oldest item.
    #[inline]
    pub fn front(&self) -> Option<&T> {
        self.items[self.head].as_ref()
    }

    /// Looks at item `i`, the oldest being 0.
    #[inline]
    pub fn get(&self, i: usize) -> Option<&T> {
        if i < self.len { self.items[self.at(i)].as_ref() } else { None }
    }

    /// Moves items to the end of `to` until this ring is empty or that one
    /// is full. Gives how many were moved. Between rings of one capacity, into
    /// an empty one, no item is touched.
    #[inline]
    pub fn pour(&mut self, to: &mut Ring<T>) -> usize {
        if self.len == 0 {
            return 0;
        }
        if to.len == 0 && to.capacity == self.capacity {
            std::mem::swap(self, to);
            return to.len;
        }
        let n = self.len.min(to.room());
        for _ in 0..n {
            let item = self.pop().expect("it was counted");
            assert!(to.push(item).is_ok(), "its room was counted");
        }
        n
    }

    /// Takes all items, oldest first.
    pub fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        std::iter::from_fn(|| self.pop())
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
        let mut c = Ring::new(4);
        assert_eq!(a.pour(&mut c), 2);
        assert_eq!((a.len(), c.drain().collect::<Vec<_>>()), (0, vec![2, 3]));
    }
}
