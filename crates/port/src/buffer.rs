//! Buffers: owned, disjoint ranges of registered memory.
//!
//! Guarantees: no two live buffers overlap, unless one was lent and both can
//! only be read, so a buffer is as good as `Box<[u8]>`; it can be cut in pieces
//! that move separately, also to another thread, and put together again without
//! a copy. The memory goes back to the system when the last piece is dropped.
//! Nothing here fails except getting the memory.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::lazy::{OutOfMemory, Zeroed, room_for, too_much};

mod lender;
mod scratch;

pub use lender::Lender;
pub use scratch::Scratch;

/// Memory that buffers are cut from, never touched except through them.
#[derive(Debug)]
struct Region {
    _memory: Zeroed,
}

/// An owned range of registered memory.
pub struct Buffer {
    ptr: NonNull<u8>,
    len: u32,
    /// Another buffer shares the bytes: they may be read, not changed.
    shared: bool,
    /// `None` for a buffer that was always empty.
    region: Option<Arc<Region>>,
}

// SAFETY: a buffer is the only way to its range, as `Box<[u8]>` is to its own.
unsafe impl Send for Buffer {}
// SAFETY: shared access gives only `&[u8]`.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// A buffer of no bytes. Costs nothing.
    #[inline]
    pub const fn empty() -> Buffer {
        Buffer { ptr: NonNull::dangling(), len: 0, shared: false, region: None }
    }

    /// A buffer of `len` zeros in memory of its own.
    ///
    /// # Panics
    /// When `len` is 4 GiB or more.
    pub fn zeroed(len: usize) -> Result<Buffer, OutOfMemory> {
        if len == 0 {
            return Ok(Buffer::empty());
        }
        Ok(Buffer::carve(1, len)?.remove(0))
    }

    /// `count` buffers of `each` zeros, side by side in one region. A pool for
    /// the data path, which allocates nothing.
    ///
    /// # Panics
    /// When `each` is 4 GiB or more.
    pub fn carve(count: usize, each: usize) -> Result<Vec<Buffer>, OutOfMemory> {
        let len = u32::try_from(each).expect("a buffer is less than 4 GiB");
        let all = count.checked_mul(each).ok_or_else(|| too_much("buffers"))?;
        let mut buffers = room_for(count, "buffers")?;
        if each == 0 {
            buffers.extend((0..count).map(|_| Buffer::empty()));
            return Ok(buffers);
        }
        let memory = Zeroed::new(all as u64, "buffers")?;
        let start = memory.start();
        // SAFETY of sharing: the region's memory is reached only through the
        // disjoint buffers made here, so it may be dropped on any thread.
        let region = Arc::new(Region { _memory: memory });
        let one = |i: usize| Buffer {
            // SAFETY: `i * each` is inside the memory.
            ptr: unsafe { start.add(i * each) },
            len,
            shared: false,
            region: Some(region.clone()),
        };
        buffers.extend((0..count).map(one));
        Ok(buffers)
    }

    /// Bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// True when it has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the range is there, initialised and this buffer's alone.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len as usize) }
    }

    /// The bytes, to be changed.
    ///
    /// # Panics
    /// When the bytes are lent ([`Lender::lend`]).
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        assert!(!self.shared, "lent bytes are not changed");
        // SAFETY: as in `bytes`; the range is not shared, and `&mut self`
        // makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len as usize) }
    }

    /// Cuts the first `n` bytes off and gives them.
    ///
    /// # Panics
    /// When the buffer is shorter than `n`.
    #[inline]
    pub fn split_to(&mut self, n: usize) -> Buffer {
        assert!(n <= self.len as usize, "a piece is not longer than its buffer");
        let front = Buffer {
            ptr: self.ptr,
            len: n as u32,
            shared: self.shared,
            region: self.region.clone(),
        };
        // SAFETY: `n` is at most the length.
        self.ptr = unsafe { self.ptr.add(n) };
        self.len -= n as u32;
        front
    }

    /// Whether `next` begins where this one ends, so that [`Buffer::join`]
    /// can make one of the two: memory carved together, both lent or neither,
    /// and less than 4 GiB in all. A buffer of no bytes adjoins every other.
    #[inline]
    pub fn adjoins(&self, next: &Buffer) -> bool {
        if self.is_empty() || next.is_empty() {
            return true;
        }
        let same = match (&self.region, &next.region) {
            (Some(mine), Some(other)) => Arc::ptr_eq(mine, other),
            _ => false,
        };
        let end = self.ptr.as_ptr() as usize + self.len();
        same && self.shared == next.shared
            && end == next.ptr.as_ptr() as usize
            && self.len.checked_add(next.len).is_some()
    }

    /// Puts `next` behind this one: the opposite of [`Buffer::split_to`]. No
    /// byte is copied. Gives `next` back when the two do not adjoin.
    #[inline]
    pub fn join(&mut self, next: Buffer) -> Result<(), Buffer> {
        if !self.adjoins(&next) {
            return Err(next);
        }
        if self.is_empty() {
            *self = next;
        } else {
            // `next` was the only way to its range, or one of the two ways
            // where both buffers are lent; from now on this one is.
            self.len += next.len;
        }
        Ok(())
    }
}

impl Default for Buffer {
    fn default() -> Buffer {
        Buffer::empty()
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} bytes)", self.len)
    }
}

/// A buffer that is being handed out front to back and collected again in any
/// order.
#[derive(Debug, Default)]
pub struct Pieces {
    /// The end of the buffer that was not handed out yet. It holds the memory,
    /// unless all was handed out in one piece of which nothing is back.
    rest: Buffer,
    start: usize,
    len: u32,
    back: u32,
}

impl Pieces {
    /// Starts handing out `buffer`.
    #[inline]
    pub fn new(buffer: Buffer) -> Pieces {
        Pieces { start: buffer.ptr.as_ptr() as usize, len: buffer.len, back: 0, rest: buffer }
    }

    /// What was not handed out yet.
    #[inline]
    pub fn rest(&self) -> &Buffer {
        &self.rest
    }

    /// The next `n` bytes. When they are all that the buffer has, no counter
    /// is touched.
    ///
    /// # Panics
    /// When fewer than `n` are left.
    #[inline]
    pub fn take(&mut self, n: usize) -> Buffer {
        if n == self.len as usize && n == self.rest.len() {
            return std::mem::take(&mut self.rest);
        }
        self.rest.split_to(n)
    }

    /// Whether something is a piece of this buffer. An empty one is of any.
    #[inline]
    pub fn has(&self, piece: &Buffer) -> bool {
        let at = piece.ptr.as_ptr() as usize;
        let end = self.start + self.len as usize;
        piece.is_empty() || (at >= self.start && at + piece.len() <= end)
    }

    /// Takes a piece back.
    ///
    /// # Panics
    /// When it is not a piece of this buffer ([`Pieces::has`]).
    #[inline]
    pub fn give(&mut self, piece: Buffer) {
        let at = piece.ptr.as_ptr() as usize;
        if piece.len == self.len && at == self.start {
            self.back = self.len;
            self.rest = piece;
            return;
        }
        assert!(self.has(&piece), "a piece comes back to its own buffer");
        self.back += piece.len;
        if self.rest.region.is_none() && !piece.is_empty() {
            // All was handed out in one piece, and comes back in parts: the rest
            // is again the end, of no bytes, of the memory of the first part.
            let behind = self.start + self.len as usize - at;
            // SAFETY: `piece` lies in the buffer, which ends `behind` bytes after
            // its start.
            let end = unsafe { piece.ptr.add(behind) };
            self.rest = Buffer { ptr: end, len: 0, ..piece };
        }
    }

    /// The whole buffer again.
    ///
    /// # Panics
    /// When a piece is still out.
    #[inline]
    pub fn whole(mut self) -> Buffer {
        if self.rest.len == self.len {
            return self.rest;
        }
        assert!(self.back + self.rest.len == self.len, "all pieces are back");
        let behind = (self.len - self.rest.len) as usize;
        // SAFETY: pieces are disjoint and lie in the buffer that was split;
        // all of its bytes are back, so nobody else holds any of them. `rest`
        // is the end of the buffer, `behind` bytes after its start, in memory
        // that it has held since the first piece came back.
        self.rest.ptr = unsafe { self.rest.ptr.sub(behind) };
        self.rest.len = self.len;
        self.rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn carved_buffers_do_not_touch() {
        let mut all = Buffer::carve(3, 16).unwrap();
        for (i, b) in all.iter_mut().enumerate() {
            b.bytes_mut().fill(i as u8 + 1);
        }
        let kept = all.remove(1);
        drop(all);
        assert_eq!(kept.bytes(), [2; 16]);
    }

    #[test]
    fn only_neighbours_are_joined() {
        let mut all = Buffer::carve(3, 4).unwrap();
        let (mut c, mut b, mut a) = (all.remove(2), all.remove(1), all.remove(0));
        for (piece, byte) in [(&mut a, 1), (&mut b, 2), (&mut c, 3)] {
            piece.bytes_mut().fill(byte);
        }
        let c = a.join(c).unwrap_err();
        let mut a = b.join(a).unwrap_err();
        let foreign = Buffer::zeroed(4).unwrap();
        assert!(!a.adjoins(&foreign) && !foreign.adjoins(&a));
        assert!(a.adjoins(&b) && !b.adjoins(&a) && b.adjoins(&c));
        a.join(b).unwrap();
        a.join(Buffer::empty()).unwrap();
        a.join(c).unwrap();
        assert_eq!(a.bytes(), [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]);
        let mut none = Buffer::empty();
        none.join(a).unwrap();
        assert_eq!((none.split_to(5).len(), none.bytes()), (5, &[2, 2, 2, 3, 3, 3, 3][..]));
    }

    #[test]
    fn a_whole_that_was_cut_up_comes_back_in_any_order() {
        for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0]] {
            let mut buffer = Buffer::zeroed(8).unwrap();
            buffer.bytes_mut().copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
            let start = buffer.bytes().as_ptr();
            let mut pieces = Pieces::new(buffer);
            let mut all = pieces.take(8);
            let mut cut = [3, 0, 5].map(|n| Some(all.split_to(n)));
            pieces.give(all);
            for i in order {
                pieces.give(cut[i].take().unwrap());
            }
            let whole = pieces.whole();
            assert_eq!(whole.bytes().as_ptr(), start);
            assert_eq!(whole.bytes(), [1, 2, 3, 4, 5, 6, 7, 8]);
        }
    }

    #[test]
    #[should_panic(expected = "its own buffer")]
    fn memory_that_comes_back_in_parts_is_held_from_the_first_on() {
        let mut pieces = Pieces::new(Buffer::zeroed(1 << 20).unwrap());
        let mut all = pieces.take(1 << 20);
        pieces.give(all.split_to(1 << 19));
        drop(all);
        // Were the memory given back, the system would give it again.
        let mut other = Buffer::zeroed(1 << 20).unwrap();
        other.split_to(1 << 19);
        pieces.give(other);
    }

    #[test]
    fn more_than_can_be_is_an_error() {
        for (count, each) in [(1 << 33, 1 << 31), (usize::MAX, 0)] {
            assert!(Buffer::carve(count, each).is_err(), "{count} of {each}");
        }
    }

    #[test]
    #[should_panic(expected = "all pieces are back")]
    fn a_missing_piece_is_noticed() {
        let mut pieces = Pieces::new(Buffer::zeroed(8).unwrap());
        let _kept = pieces.take(4);
        pieces.whole();
    }

    #[test]
    #[should_panic(expected = "its own buffer")]
    fn a_foreign_piece_is_noticed() {
        let mut pieces = Pieces::new(Buffer::zeroed(8).unwrap());
        let _kept = pieces.take(4);
        pieces.give(Buffer::zeroed(4).unwrap());
    }

    proptest! {
        #[test]
        fn pieces_come_back_in_any_order(cuts in prop::collection::vec(0usize..9, 1..8), seed in any::<u64>()) {
            let total: usize = cuts.iter().sum();
            let mut buffer = Buffer::zeroed(total).unwrap();
            for (i, b) in buffer.bytes_mut().iter_mut().enumerate() {
                *b = i as u8;
            }
            let mut pieces = Pieces::new(buffer);
            let mut out: Vec<Buffer> = cuts.iter().map(|&n| pieces.take(n)).collect();
            let mut s = seed;
            while !out.is_empty() {
                s = s.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let mut piece = out.swap_remove((s >> 33) as usize % out.len());
                for b in piece.bytes_mut() {
                    *b ^= 0xff;
                }
                pieces.give(piece);
            }
            let whole = pieces.whole();
            prop_assert_eq!(whole.len(), total);
            for (i, &b) in whole.bytes().iter().enumerate() {
                prop_assert_eq!(b, !(i as u8));
            }
        }
    }
}
