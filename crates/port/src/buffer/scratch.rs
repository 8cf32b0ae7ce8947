//! A buffer that serves one command after the other.
//!
//! Guarantees: one command has it at a time. Allocates nothing and cannot fail;
//! a wrong buffer that is given back panics.

use std::sync::Arc;

use super::{Buffer, Region};

/// A buffer that one command at a time uses, as much of its front as it needs.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Empty while it is out.
    whole: Buffer,
    /// Keeps the memory, so that nothing else can be at `start` meanwhile.
    region: Option<Arc<Region>>,
    start: usize,
    len: u32,
    /// Bytes that are out.
    out: Option<u32>,
}

impl Scratch {
    /// Takes `whole`, to be used.
    pub fn new(whole: Buffer) -> Scratch {
        assert!(!whole.shared, "lent bytes are not used");
        let (start, len) = (whole.ptr.as_ptr() as usize, whole.len);
        Scratch { region: whole.region.clone(), whole, start, len, out: None }
    }

    /// The first `n` bytes. Touches no counter that threads share.
    ///
    /// # Panics
    /// When it is out, or shorter than `n`.
    #[inline]
    pub fn take(&mut self, n: usize) -> Buffer {
        assert!(self.out.is_none() && n <= self.len as usize, "a front that is there");
        self.out = Some(n as u32);
        let mut front = std::mem::take(&mut self.whole);
        front.len = n as u32;
        front
    }

    /// Takes them back.
    ///
    /// # Panics
    /// When `front` is not what was taken.
    #[inline]
    pub fn give(&mut self, mut front: Buffer) {
        let region = |of: &Option<Arc<Region>>| of.as_ref().map(Arc::as_ptr);
        let same = front.ptr.as_ptr() as usize == self.start
            && self.out == Some(front.len)
            && region(&front.region) == region(&self.region);
        assert!(same && !front.shared, "what was taken comes back");
        self.out = None;
        // Nobody else has any of the bytes behind it: they were only reached
        // through the buffer of which it is all that was given away.
        front.len = self.len;
        // What is there is empty: nothing has to be dropped.
        std::mem::forget(std::mem::replace(&mut self.whole, front));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_front_of_a_scratch_comes_and_goes() {
        let mut all = Buffer::carve(2, 8).unwrap();
        let neighbour = all.remove(1);
        let mut scratch = Scratch::new(all.remove(0));
        for n in [3, 8, 0, 5] {
            let mut front = scratch.take(n);
            assert_eq!(front.len(), n);
            front.bytes_mut().fill(n as u8);
            scratch.give(front);
        }
        assert_eq!(scratch.take(8).bytes(), [5, 5, 5, 5, 5, 8, 8, 8]);
        assert_eq!(neighbour.bytes(), [0; 8]);
    }

    #[test]
    #[should_panic(expected = "a front that is there")]
    fn a_scratch_is_used_once_at_a_time() {
        let mut scratch = Scratch::new(Buffer::zeroed(8).unwrap());
        let _front = scratch.take(3);
        scratch.take(3);
    }

    #[test]
    #[should_panic(expected = "what was taken comes back")]
    fn a_part_of_a_front_is_not_taken_for_it() {
        let mut scratch = Scratch::new(Buffer::zeroed(8).unwrap());
        let mut front = scratch.take(6);
        scratch.give(front.split_to(3));
    }
}
