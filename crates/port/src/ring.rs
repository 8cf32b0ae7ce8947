//! A bounded first-in, first-out queue.
//!
//! Its memory is taken once, when it is made, in whole cache lines: rings of
//! different cores share none. A full ring refuses; it never grows.

use crate::lazy::{OutOfMemory, too_much};
use crate::places::Places;

/// A first-in, first-out queue of at most `capacity` items.
///
/// Items are written and read in place: a copy that goes through the stack
/// stalls the processor, and there are six of them in a request's life.
pub struct Ring<T> {
    /// A power of two of them. The `len` from `head` on, round the end, hold
    /// items; the others hold nothing.
    items: Places<T>,
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
        let items = Places::new(capacity.next_power_of_two());
        Ring { items, head: 0, len: 0, capacity }
    }

    /// The same, for what a user's configuration sizes; `what` names it in the
    /// error.
    pub fn try_new(capacity: usize, what: &'static str) -> Result<Ring<T>, OutOfMemory> {
        assert!(capacity > 0, "a ring holds at least one item");
        let refused = || OutOfMemory { bytes: Self::bytes(capacity), ..too_much(what) };
        let items = Places::try_new(capacity.next_power_of_two()).ok_or_else(refused)?;
        Ok(Ring { items, head: 0, len: 0, capacity })
    }

    /// Bytes of memory that a ring of at most `capacity` items takes.
    pub fn bytes(capacity: usize) -> u64 {
        Places::<T>::bytes(capacity.next_power_of_two() as u64)
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

    /// Where item `i` is kept: always inside `items`.
    #[inline]
    fn at(&self, i: usize) -> usize {
        (self.head + i) & (self.items.len() - 1)
    }

    /// Puts `item` at the end, or gives it back when the ring is full.
    #[inline(always)]
    pub fn push(&mut self, item: T) -> Result<(), T> {
        if self.len == self.capacity {
            return Err(item);
        }
        let at = self.at(self.len);
        // SAFETY: `at` is masked to the length of `items`.
        unsafe { self.items.get_unchecked_mut(at) }.write(item);
        self.len += 1;
        Ok(())
    }

    /// Puts what `make` gives at the end. It is made in its place: the room is
    /// looked at first, so nothing can go wrong once it is made.
    ///
    /// # Panics
    /// When the ring is full; the caller looked at [`Ring::room`].
    #[inline(always)]
    pub fn put(&mut self, make: impl FnOnce() -> T) {
        assert!(self.len < self.capacity, "the caller saw room");
        let at = self.at(self.len);
        // SAFETY: `at` is masked to the length of `items`.
        unsafe { self.items.get_unchecked_mut(at) }.write(make());
        self.len += 1;
    }

    /// Puts what `make` gives of each of `from` at the end, the last of them first, as those
    /// of a stack are taken. The room is looked at once.
    ///
    /// # Panics
    /// When it has no room for all of them; the caller looked at [`Ring::room`].
    #[inline(always)]
    pub fn put_stacked<U>(&mut self, from: &[U], mut make: impl FnMut(&U) -> T) {
        assert!(from.len() <= self.room(), "the caller saw room");
        let (first, mask) = (self.head + self.len, self.items.len() - 1);
        for (i, one) in from.iter().rev().enumerate() {
            // SAFETY: it is masked to the length of `items`. As there was room it is outside
            // the items, which it joins below; what was made is not dropped where `make`
            // panics.
            unsafe { self.items.get_unchecked_mut((first + i) & mask) }.write(make(one));
        }
        self.len += from.len();
    }

    /// Takes the oldest item.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<T> {
        if self.len == 0 {
            return None;
        }
        let at = self.head;
        self.head = self.at(1);
        self.len -= 1;
        // SAFETY: `at` was the head of at least one item, so it is inside and
        // holds an item; it is outside the items from now on.
        Some(unsafe { self.items.get_unchecked(at).assume_init_read() })
    }

    /// Looks at the oldest item.
    #[inline]
    pub fn front(&self) -> Option<&T> {
        self.get(0)
    }

    /// Looks at item `i`, the oldest being 0.
    #[inline]
    pub fn get(&self, i: usize) -> Option<&T> {
        if i >= self.len {
            return None;
        }
        // SAFETY: items 0 to `len - 1` are there, and `at` is masked.
        Some(unsafe { self.items.get_unchecked(self.at(i)).assume_init_ref() })
    }

    /// Looks at item `i`, the oldest being 0, to change it in its place.
    #[inline]
    pub fn get_mut(&mut self, i: usize) -> Option<&mut T> {
        if i >= self.len {
            return None;
        }
        let at = self.at(i);
        // SAFETY: items 0 to `len - 1` are there, and `at` is masked.
        Some(unsafe { self.items.get_unchecked_mut(at).assume_init_mut() })
    }

    /// Exchanges items `i` and `j`, the oldest being 0.
    ///
    /// # Panics
    /// Where there is no such item.
    pub fn swap(&mut self, i: usize, j: usize) {
        assert!(i < self.len && j < self.len, "there are such items");
        let (a, b) = (self.at(i), self.at(j));
        self.items.swap(a, b);
    }

    /// Takes item `i` out, the oldest being 0; those behind it move up. Costs
    /// a move for each of them: not for the usual case.
    #[cold]
    pub fn remove(&mut self, i: usize) -> Option<T> {
        if i >= self.len {
            return None;
        }
        for behind in i..self.len - 1 {
            self.swap(behind, behind + 1);
        }
        self.len -= 1;
        let at = self.at(self.len);
        // SAFETY: item `i` was swapped to the end, which is outside the items
        // from now on.
        Some(unsafe { self.items[at].assume_init_read() })
    }

    /// Moves items to the end of `to` until this ring is empty or that one
    /// is full. Gives how many were moved. Between rings of one capacity, into
    /// an empty one, no item is touched.
    #[inline(always)]
    pub fn pour(&mut self, to: &mut Ring<T>) -> usize {
        if self.len == 0 {
            return 0;
        }
        if to.len == 0 && to.capacity == self.capacity {
            // Of this one, which is empty then, any head will do.
            std::mem::swap(&mut self.items, &mut to.items);
            to.head = self.head;
            to.len = std::mem::take(&mut self.len);
            return to.len;
        }
        self.pour_one_by_one(to)
    }

    /// Moves the oldest item to the end of `to`, and shows it there: one that is
    /// changed first and moved then stalls the processor.
    ///
    /// # Panics
    /// When this ring is empty, or that one is full.
    #[inline(always)]
    pub fn pop_to<'a>(&mut self, to: &'a mut Ring<T>) -> &'a mut T {
        to.put(|| self.pop().expect("the caller saw an item"));
        to.get_mut(to.len - 1).expect("it was put there")
    }

    fn pour_one_by_one(&mut self, to: &mut Ring<T>) -> usize {
        let n = self.len.min(to.room());
        for i in 0..n {
            let (from, at) = (self.at(i), to.at(to.len + i));
            // SAFETY: both are masked to the length of their items. The first `n` are there and
            // outside the items below; behind those of `to` there is room for as many, which
            // join it below. Nothing here panics.
            unsafe {
                let item = self.items.get_unchecked(from).assume_init_read();
                to.items.get_unchecked_mut(at).write(item);
            }
        }
        // An empty one begins again at its beginning, which is still in the cache.
        self.head = if n == self.len { 0 } else { self.at(n) };
        (self.len, to.len) = (self.len - n, to.len + n);
        n
    }

    /// Gives all items, oldest first, to `take`. What it leaves where it panics is not
    /// dropped.
    #[inline(always)]
    pub fn take_all(&mut self, mut take: impl FnMut(T)) {
        let (first, mask) = (self.head, self.items.len() - 1);
        let len = std::mem::take(&mut self.len);
        for i in first..first + len {
            // SAFETY: it is masked to the length of `items`, and holds an item that is
            // outside the items from now on.
            take(unsafe { self.items.get_unchecked(i & mask).assume_init_read() });
        }
        self.head = 0;
    }

    /// Takes all items, oldest first.
    pub fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        std::iter::from_fn(|| self.pop())
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        self.drain().for_each(drop);
    }
}

impl<T> std::fmt::Debug for Ring<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ring({} of {})", self.len, self.capacity)
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
    fn a_stack_is_put_at_the_end_from_its_top() {
        for before in 0..5 {
            let mut r = Ring::new(3);
            (0..before).for_each(|_| assert_eq!((r.push(9), r.pop()), (Ok(()), Some(9))));
            r.push(1).unwrap();
            r.put_stacked(&[30, 20], |i| i / 10);
            r.put_stacked(&[], |i: &i32| *i);
            assert_eq!((r.room(), r.drain().collect::<Vec<_>>()), (0, vec![1, 2, 3]));
        }
    }

    #[test]
    #[should_panic(expected = "saw room")]
    fn no_more_is_put_than_fits() {
        Ring::new(2).put_stacked(&[1, 2, 3], |i| *i);
    }

    #[test]
    fn all_are_taken_in_order_and_each_once() {
        let item = std::rc::Rc::new(());
        for before in 0..5 {
            let mut r = Ring::new(3);
            (0..before).for_each(|_| drop((r.push((9, item.clone())), r.pop())));
            (0..3).for_each(|i| r.push((i, item.clone())).unwrap());
            let mut seen = Vec::new();
            r.take_all(|(i, _)| seen.push(i));
            assert_eq!((seen, r.len(), std::rc::Rc::strong_count(&item)), (vec![0, 1, 2], 0, 1));
            r.push((7, item.clone())).unwrap();
            assert_eq!(r.pop().map(|(i, _)| i), Some(7));
        }
    }

    #[test]
    fn memory_that_there_is_not_is_an_error() {
        let refused = Ring::<[u64; 16]>::try_new(1 << 50, "a test").unwrap_err();
        assert_eq!(refused.bytes, Ring::<[u64; 16]>::bytes(1 << 50));
        let mut r = Ring::try_new(3, "a test").unwrap();
        assert_eq!((r.push(7), r.room(), r.pop()), (Ok(()), 2, Some(7)));
        assert_eq!((Ring::<u64>::bytes(3), Ring::<u64>::bytes(9)), (64, 128));
    }

    #[test]
    fn items_are_changed_and_removed_in_their_place() {
        let mut r = Ring::new(3);
        for i in 0..5 {
            if r.room() == 0 {
                r.pop();
            }
            r.push(i).unwrap();
        }
        *r.get_mut(1).unwrap() += 10;
        assert_eq!(r.get_mut(3), None);
        assert_eq!(r.remove(3), None);
        assert_eq!(r.remove(0), Some(2));
        r.push(7).unwrap();
        assert_eq!(r.remove(1), Some(4));
        assert_eq!(r.drain().collect::<Vec<_>>(), [13, 7]);
    }

    #[test]
    fn one_is_moved_and_changed_there() {
        let (mut a, mut b) = (Ring::new(2), Ring::new(2));
        a.put(|| 1);
        a.put(|| 2);
        *a.pop_to(&mut b) += 10;
        *a.pop_to(&mut b) += 20;
        assert_eq!((a.len(), b.drain().collect::<Vec<_>>()), (0, vec![11, 22]));
    }

    #[test]
    fn drops_what_it_holds_once() {
        let counted = std::rc::Rc::new(());
        let mut r = Ring::new(3);
        for _ in 0..3 {
            r.push(counted.clone()).unwrap();
        }
        drop(r.pop());
        r.push(counted.clone()).unwrap();
        assert_eq!(std::rc::Rc::strong_count(&counted), 4);
        drop(r);
        assert_eq!(std::rc::Rc::strong_count(&counted), 1);
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

    #[test]
    fn pours_in_order_wherever_both_begin() {
        for (turned, other, held, there) in
            (0..400).map(|i| (i % 5, i / 5 % 5, i / 25 % 5, i / 125 % 4))
        {
            let (mut a, mut b) = (Ring::new(4), Ring::new(3));
            for _ in 0..turned {
                let _ = (a.push(9), a.pop());
            }
            for _ in 0..other {
                let _ = (b.push(9), b.pop());
            }
            (0..there).for_each(|i| b.push(10 + i).unwrap());
            (0..held).for_each(|i| a.push(20 + i).unwrap());
            let n = a.pour(&mut b);
            assert_eq!(n, (3 - there as usize).min(held as usize));
            assert_eq!(a.room(), 4 - (held as usize - n));
            (a.len()..4).for_each(|i| a.push(30 + i as i32).unwrap());
            let first = (0..there).map(|i| 10 + i).chain((0..held).map(|i| 20 + i));
            let all = b.drain().chain(a.drain()).take_while(|&i| i < 30);
            assert!(all.eq(first), "{turned} {other} {held} {there}");
        }
    }
}
