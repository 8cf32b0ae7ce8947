//! Memory for items in whole cache lines.
//!
//! Guarantees: no line of it holds anything else. So what one core writes there
//! is on no line of another core's, whoever was given the memory beside it.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Places for items, of which none holds anything at first. What is put there
/// is not dropped with them.
pub(crate) struct Places<T> {
    first: NonNull<MaybeUninit<T>>,
    len: usize,
    owns: PhantomData<T>,
}

// SAFETY: it owns its memory as a box does.
unsafe impl<T: Send> Send for Places<T> {}
// SAFETY: what is shared gives shared access to the items alone.
unsafe impl<T: Sync> Sync for Places<T> {}

impl<T> Places<T> {
    /// So many places.
    pub fn new(len: usize) -> Places<T> {
        let layout = Self::layout(len).expect("as much as can be addressed");
        Self::of(len, layout).unwrap_or_else(|| handle_alloc_error(layout))
    }

    /// The same; `None` where there is no memory for them.
    pub fn try_new(len: usize) -> Option<Places<T>> {
        Self::of(len, Self::layout(len)?)
    }

    fn of(len: usize, layout: Layout) -> Option<Places<T>> {
        // SAFETY: the layout is a line at least.
        let first = NonNull::new(unsafe { alloc(layout) })?;
        Some(Places { first: first.cast(), len, owns: PhantomData })
    }

    /// Bytes of so many places.
    pub fn bytes(len: u64) -> u64 {
        let bytes = len.saturating_mul(size_of::<T>() as u64).max(1);
        bytes.checked_next_multiple_of(LINE as u64).unwrap_or(u64::MAX)
    }

    fn layout(len: usize) -> Option<Layout> {
        let bytes = usize::try_from(Self::bytes(len as u64)).ok()?;
        Layout::from_size_align(bytes, LINE.max(align_of::<T>())).ok()
    }
}

impl<T> Drop for Places<T> {
    fn drop(&mut self) {
        let layout = Self::layout(self.len).expect("it was had");
        // SAFETY: it was taken with this layout.
        unsafe { dealloc(self.first.as_ptr().cast(), layout) };
    }
}

impl<T> Deref for Places<T> {
    type Target = [MaybeUninit<T>];

    #[inline(always)]
    fn deref(&self) -> &[MaybeUninit<T>] {
        // SAFETY: the memory is ours and has room for `len`, and a place may
        // hold anything.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for Places<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [MaybeUninit<T>] {
        // SAFETY: as above, and nobody else has it.
        unsafe { std::slice::from_raw_parts_mut(self.first.as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_share_no_line() {
        let all: Vec<Places<[u8; 40]>> = (1..100).map(|len| Places::new(len % 7 + 1)).collect();
        let line = |at: usize| at / LINE;
        let mut lines: Vec<_> = all
            .iter()
            .map(|places| places.as_ptr_range())
            .map(|range| (line(range.start as usize), line(range.end as usize - 1)))
            .collect();
        lines.sort_unstable();
        assert!(lines.windows(2).all(|two| two[0].1 < two[1].0), "{lines:?}");
    }

    #[test]
    fn any_size_can_be_had_but_too_much() {
        assert_eq!((Places::<()>::bytes(5), Places::<u64>::bytes(9)), (64, 128));
        assert_eq!((Places::<()>::new(5).len(), Places::<[u64; 40]>::new(3).len()), (5, 3));
        assert!(Places::<u64>::try_new(usize::MAX).is_none());
        assert!(Places::<u64>::try_new(1 << 58).is_none());
    }
}
