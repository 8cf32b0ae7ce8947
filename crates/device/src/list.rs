//! First-in, first-out lists of a table's entries, through a link in each.

use std::ops::IndexMut;

/// No entry.
pub(crate) const NONE: u32 = u32::MAX;

/// A table that is never longer or shorter, indexed by number.
pub(crate) struct Table<T>(Vec<T>);

impl<T: Default> Table<T> {
    pub fn new(len: usize) -> Table<T> {
        Table((0..len).map(|_| T::default()).collect())
    }
}

impl<T> std::ops::Index<u32> for Table<T> {
    type Output = T;
    #[inline]
    fn index(&self, id: u32) -> &T {
        &self.0[id as usize]
    }
}

impl<T> std::ops::IndexMut<u32> for Table<T> {
    #[inline]
    fn index_mut(&mut self, id: u32) -> &mut T {
        &mut self.0[id as usize]
    }
}

/// An entry that can stand in a [`List`].
pub(crate) trait Linked {
    fn next(&mut self) -> &mut u32;
}

/// A first-in, first-out list of entries of a table.
#[derive(Clone, Copy)]
pub(crate) struct List {
    head: u32,
    tail: u32,
}

impl Default for List {
    fn default() -> List {
        List::EMPTY
    }
}

impl List {
    /// One without an entry.
    pub const EMPTY: List = List { head: NONE, tail: NONE };

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head == NONE
    }

    #[inline]
    pub fn push<T: Linked>(&mut self, id: u32, table: &mut impl IndexMut<u32, Output = T>) {
        *table[id].next() = NONE;
        if self.head == NONE {
            self.head = id;
        } else {
            *table[self.tail].next() = id;
        }
        self.tail = id;
    }

    /// Puts `id` before all others.
    pub fn push_front<T: Linked>(&mut self, id: u32, table: &mut impl IndexMut<u32, Output = T>) {
        *table[id].next() = self.head;
        if self.head == NONE {
            self.tail = id;
        }
        self.head = id;
    }

    /// The first one.
    #[inline]
    pub fn first(&self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }

    /// The one after `id`.
    pub fn after<T: Linked>(
        &self,
        id: u32,
        table: &mut impl IndexMut<u32, Output = T>,
    ) -> Option<u32> {
        (id != self.tail).then(|| *table[id].next())
    }

    /// Takes out the one after `before`, or the first after [`NONE`]. There is one.
    pub fn take_after<T: Linked>(
        &mut self,
        before: u32,
        table: &mut impl IndexMut<u32, Output = T>,
    ) {
        if before == NONE {
            self.pop(table);
            return;
        }
        let id = *table[before].next();
        *table[before].next() = *table[id].next();
        if id == self.tail {
            self.tail = before;
        }
    }

    #[inline]
    pub fn pop<T: Linked>(&mut self, table: &mut impl IndexMut<u32, Output = T>) -> Option<u32> {
        Some(self.pop_entry(table)?.0)
    }

    /// The same, with the entry.
    #[inline(always)]
    pub fn pop_entry<'a, T: Linked>(
        &mut self,
        table: &'a mut impl IndexMut<u32, Output = T>,
    ) -> Option<(u32, &'a mut T)> {
        if self.head == NONE {
            return None;
        }
        let id = self.head;
        let entry = &mut table[id];
        self.head = *entry.next();
        Some((id, entry))
    }
}

#[cfg(test)]
mod tests {
    use port::Slots;

    use super::*;

    #[derive(Default)]
    struct Entry {
        next: u32,
    }

    impl Linked for Entry {
        fn next(&mut self) -> &mut u32 {
            &mut self.next
        }
    }

    #[test]
    fn lists_keep_order() {
        let mut slots: Slots<Entry> = Slots::new(4);
        let ids: Vec<u32> = (0..4).map(|_| slots.take(Entry::default())).collect();
        let mut list = List::default();
        list.push(ids[0], &mut slots);
        list.push(ids[1], &mut slots);
        list.push_front(ids[2], &mut slots);
        let order: Vec<u32> = std::iter::from_fn(|| list.pop(&mut slots)).collect();
        assert_eq!(order, [ids[2], ids[0], ids[1]]);
        list.push_front(ids[3], &mut slots);
        list.push(ids[0], &mut slots);
        let order: Vec<u32> = std::iter::from_fn(|| list.pop(&mut slots)).collect();
        assert_eq!(order, [ids[3], ids[0]]);
        // From the middle, the end and the front.
        ids.iter().for_each(|&id| list.push(id, &mut slots));
        assert_eq!(list.after(ids[0], &mut slots), Some(ids[1]));
        list.take_after(ids[0], &mut slots);
        list.take_after(ids[2], &mut slots);
        list.take_after(NONE, &mut slots);
        assert_eq!((list.first(), list.after(ids[2], &mut slots)), (Some(ids[2]), None));
        list.push(ids[1], &mut slots);
        let order: Vec<u32> = std::iter::from_fn(|| list.pop(&mut slots)).collect();
        assert_eq!(order, [ids[2], ids[1]]);
        assert!(list.is_empty());
    }
}
