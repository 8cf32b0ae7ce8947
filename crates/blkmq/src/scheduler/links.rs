//! Lists of entries of a table, by their numbers.
//!
//! An entry is in one list at most. Nothing here fails or allocates after it
//! is made.

use port::OutOfMemory;
use port::lazy::table;

use super::WHAT;

/// No entry.
const NIL: u32 = u32::MAX;

/// For each entry, the ones before and behind it.
#[derive(Debug)]
pub(crate) struct Links {
    around: Box<[(u32, u32)]>,
}

/// A list, oldest first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    head: u32,
    tail: u32,
}

impl List {
    /// A list of nothing.
    pub const EMPTY: List = List { head: NIL, tail: NIL };

    /// The oldest entry.
    #[inline]
    pub fn head(&self) -> Option<u32> {
        (self.head != NIL).then_some(self.head)
    }
}

impl Links {
    /// For a table of `capacity` entries.
    pub fn new(capacity: usize) -> Result<Links, OutOfMemory> {
        Ok(Links { around: table((NIL, NIL), capacity, WHAT)? })
    }

    /// Bytes of memory that they take.
    pub fn bytes(capacity: usize) -> u64 {
        (capacity * size_of::<(u32, u32)>()) as u64
    }

    /// Puts an entry, which is in no list, at the end of `list`.
    #[inline]
    pub fn push(&mut self, list: &mut List, slot: u32) {
        self.around[slot as usize] = (list.tail, NIL);
        match list.tail {
            NIL => list.head = slot,
            tail => self.around[tail as usize].1 = slot,
        }
        list.tail = slot;
    }

    /// Takes an entry out of `list`, which it is in.
    #[inline]
    pub fn remove(&mut self, list: &mut List, slot: u32) {
        let (before, behind) = self.around[slot as usize];
        match before {
            NIL => list.head = behind,
            before => self.around[before as usize].1 = behind,
        }
        match behind {
            NIL => list.tail = before,
            behind => self.around[behind as usize].0 = before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_leave_from_anywhere() {
        let mut links = Links::new(5).unwrap();
        let mut list = List::EMPTY;
        for slot in [3, 0, 4, 1] {
            links.push(&mut list, slot);
        }
        links.remove(&mut list, 4);
        links.remove(&mut list, 1);
        links.push(&mut list, 4);
        let mut seen = Vec::new();
        while let Some(slot) = list.head() {
            seen.push(slot);
            links.remove(&mut list, slot);
        }
        assert_eq!(seen, [3, 0, 4]);
        links.push(&mut list, 2);
        assert_eq!(list.head(), Some(2));
    }
}
