//! A bounded table whose entries are taken and given back.

/// A table of at most `capacity` entries. An entry's number stays its own
/// until it is given back.
#[derive(Debug)]
pub struct Slots<T> {
    entries: Vec<T>,
    /// The first `room` are free.
    free: Box<[u32]>,
    room: usize,
}

impl<T: Default> Slots<T> {
    /// A table with all entries free.
    pub fn new(capacity: usize) -> Slots<T> {
        let entries = (0..capacity).map(|_| T::default()).collect();
        Slots { entries, free: (0..capacity as u32).rev().collect(), room: capacity }
    }
}

impl<T> Slots<T> {
    /// Bytes of memory that a table of `capacity` entries takes.
    pub fn bytes(capacity: usize) -> u64 {
        (capacity as u64).saturating_mul((size_of::<T>() + size_of::<u32>()) as u64)
    }

    /// How many entries there are.
    pub fn capacity(&self) -> usize {
        self.entries.len()
    }

    /// How many entries are free.
    #[inline]
    pub fn room(&self) -> usize {
        self.room
    }

    /// How many entries are taken.
    #[inline]
    pub fn live(&self) -> usize {
        self.entries.len() - self.room
    }

    /// Takes an entry for `value`.
    ///
    /// # Panics
    /// When none is free; the caller looks at [`Slots::room`] first.
    #[inline]
    pub fn take(&mut self, value: T) -> u32 {
        let id = self.take_as_is();
        self.entries[id as usize] = value;
        id
    }

    /// Takes an entry as whoever had it last left it.
    ///
    /// # Panics
    /// When none is free.
    #[inline]
    pub fn take_as_is(&mut self) -> u32 {
        self.room = self.room.checked_sub(1).expect("the caller saw a free entry");
        self.free[self.room]
    }

    /// Gives an entry back. What it holds stays until it is taken again.
    ///
    /// # Panics
    /// When no entry is taken.
    #[inline]
    pub fn give(&mut self, id: u32) {
        // Past the end when an entry is given back twice too often.
        self.free[self.room] = id;
        self.room += 1;
    }
}

impl<T> std::ops::Index<u32> for Slots<T> {
    type Output = T;
    #[inline]
    fn index(&self, id: u32) -> &T {
        &self.entries[id as usize]
    }
}

impl<T> std::ops::IndexMut<u32> for Slots<T> {
    #[inline]
    fn index_mut(&mut self, id: u32) -> &mut T {
        &mut self.entries[id as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_taken_and_given_back() {
        let mut slots: Slots<u8> = Slots::new(2);
        let (a, b) = (slots.take(1), slots.take(2));
        assert_eq!((slots.room(), slots.live(), slots[a], slots[b]), (0, 2, 1, 2));
        slots.give(a);
        assert_eq!(slots.take(3), a);
        assert_eq!(slots[a], 3);
    }
}
