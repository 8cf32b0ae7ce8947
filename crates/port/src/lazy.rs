//! Large arrays of zeros that cost memory only where they are touched.
//!
//! Map, validity and media arrays are indexed by packed addresses, so they
//! have holes. A hole is never touched and never costs anything but address
//! space. Small arrays come from the heap: the system's work for a mapping is
//! more than they are worth.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;

use bytemuck::{AnyBitPattern, NoUninit};
use memmap2::{Advice, MmapMut, MmapOptions};
use thiserror::Error;

/// Address space for an array could not be had.
#[derive(Debug, Error)]
#[error(
    "cannot get {bytes} bytes of memory for {what}: {source}; choose a smaller drive or store=checksum"
)]
pub struct OutOfMemory {
    /// What the array is for.
    pub what: &'static str,
    /// How many bytes were asked for.
    pub bytes: u64,
    /// What the system said.
    pub source: std::io::Error,
}

/// More bytes than there can be.
pub(crate) fn too_much(what: &'static str) -> OutOfMemory {
    let source = std::io::Error::from(std::io::ErrorKind::OutOfMemory);
    OutOfMemory { what, bytes: u64::MAX, source }
}

/// An empty list with room for `len`; `what` names it in the error.
pub fn room_for<T>(len: usize, what: &'static str) -> Result<Vec<T>, OutOfMemory> {
    let mut list = Vec::new();
    let bytes = (len as u64).saturating_mul(size_of::<T>() as u64);
    list.try_reserve_exact(len).map_err(|_| OutOfMemory { bytes, ..too_much(what) })?;
    Ok(list)
}

/// What is left of memory, in bytes, for all that is taken little by little and cannot
/// fail, when a drive is made or written.
pub const SPARE: u64 = 10 << 20;

/// Asks the system for so much memory and gives it back: for many tables that
/// are taken one by one. `what` names them in the error.
pub fn ask_for(bytes: u64, what: &'static str) -> Result<(), OutOfMemory> {
    room_for::<u8>(usize::try_from(bytes).unwrap_or(usize::MAX), what).map(drop)
}

/// A table of `len` times `value`, for what a user's configuration sizes;
/// `what` names it in the error.
pub fn table<T: Clone>(value: T, len: usize, what: &'static str) -> Result<Box<[T]>, OutOfMemory> {
    let mut list = room_for(len, what)?;
    list.resize(len, value);
    Ok(list.into())
}

/// Bytes up to which memory comes from the heap.
const HEAP_BYTES: usize = 512 << 10;

/// Bytes from which memory begins at a page, as a mapping does: direct I/O
/// asks for it.
const PAGED_BYTES: usize = 512;

/// A page, in bytes.
const PAGE: usize = 4096;

/// Zeroed memory that its owner alone reaches.
#[derive(Debug)]
pub(crate) struct Zeroed {
    start: NonNull<u8>,
    held: Held,
}

/// Where memory is from.
#[derive(Debug)]
enum Held {
    Map(MmapMut),
    Heap(Layout),
}

// SAFETY: the memory is this value's alone, as a `Box<[u8]>`'s is.
unsafe impl Send for Zeroed {}
// SAFETY: shared access gives only the address.
unsafe impl Sync for Zeroed {}

impl Zeroed {
    /// `bytes` of zeros; `what` names them in the error. A mapping reserves no
    /// memory, and asks for huge pages where it is large enough to use them.
    pub fn new(bytes: u64, what: &'static str) -> Result<Zeroed, OutOfMemory> {
        const HUGE_PAGE: usize = 2 << 20;
        let fail = |source| OutOfMemory { what, bytes, source };
        let none = || fail(std::io::Error::from(std::io::ErrorKind::OutOfMemory));
        let len = usize::try_from(bytes.max(1)).map_err(|_| none())?;
        if len <= HEAP_BYTES {
            let align = if len >= PAGED_BYTES { PAGE } else { 64 };
            let layout = Layout::from_size_align(len, align).map_err(|_| none())?;
            // SAFETY: the layout has at least one byte.
            let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(none)?;
            return Ok(Zeroed { start, held: Held::Heap(layout) });
        }
        let mut map = MmapOptions::new().len(len).no_reserve_swap().map_anon().map_err(fail)?;
        if len >= HUGE_PAGE {
            // Advice only: where it is refused, the array works with small pages.
            let _ = map.advise(Advice::HugePage);
        }
        let start = NonNull::new(map.as_mut_ptr()).expect("a mapping is not null");
        Ok(Zeroed { start, held: Held::Map(map) })
    }

    /// Its first byte, aligned to 64 bytes, or to a page from 512 bytes on.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Takes memory now for `len` bytes from `offset` on.
    #[cfg(target_os = "linux")]
    fn populate(&self, offset: usize, len: usize) {
        if let Held::Map(map) = &self.held {
            let _ = map.advise_range(Advice::PopulateWrite, offset, len);
        }
    }
}

impl Drop for Zeroed {
    fn drop(&mut self) {
        if let Held::Heap(layout) = self.held {
            // SAFETY: it was allocated so, and is given back once.
            unsafe { dealloc(self.start.as_ptr(), layout) };
        }
    }
}

/// A fixed array of zeros, mapped when touched.
pub struct Lazy<T> {
    /// Into `memory`.
    ptr: *mut T,
    len: usize,
    memory: Zeroed,
}

// SAFETY: `ptr` points into `memory`, which this value owns alone.
unsafe impl<T: Send> Send for Lazy<T> {}
// SAFETY: shared access gives only `&[T]`.
unsafe impl<T: Sync> Sync for Lazy<T> {}

impl<T: AnyBitPattern + NoUninit> Lazy<T> {
    /// An array of `len` zeros; `what` names it in the error.
    pub fn zeroed(len: usize, what: &'static str) -> Result<Lazy<T>, OutOfMemory> {
        let bytes = len.checked_mul(size_of::<T>()).ok_or_else(|| too_much(what))?;
        let memory = Zeroed::new(bytes as u64, what)?;
        assert!(align_of::<T>() <= 64, "what all memory here is aligned to");
        Ok(Lazy { ptr: memory.start().as_ptr().cast(), len, memory })
    }

    /// Takes memory for elements `range` now, so that no later write to them
    /// waits for it. Where the system cannot, nothing happens: then the first
    /// writes wait.
    ///
    /// # Panics
    /// When the range is not in the array.
    pub fn populate(&self, range: Range<usize>) {
        assert!(range.start <= range.end && range.end <= self.len, "a range of the array");
        let size = size_of::<T>();
        let (offset, len) = (range.start * size, range.len() * size);
        #[cfg(target_os = "linux")]
        self.memory.populate(offset, len);
        #[cfg(not(target_os = "linux"))]
        let _ = (offset, len, &self.memory);
    }

    /// Fetches element `i` into the cache; nothing when `i` is past the end.
    #[inline]
    pub fn prefetch(&self, i: usize) {
        if i < self.len {
            // SAFETY: `i` is inside the memory.
            prefetch(unsafe { self.ptr.add(i) }.cast());
        }
    }
}

impl<T> Deref for Lazy<T> {
    type Target = [T];
    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: the memory holds `len` elements, zeroed, and any bits are
        // a valid `T`.
        unsafe { std::slice::from_raw_parts(self.ptr, self.len) }
    }
}

impl<T> DerefMut for Lazy<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.ptr, self.len) }
    }
}

/// Asks the processor to fetch the cache line at `ptr`. Never faults.
#[inline]
pub fn prefetch(ptr: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch of any address is allowed.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(ptr.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = ptr;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_as_zeros_and_keeps_what_is_written() {
        let mut a: Lazy<u32> = Lazy::zeroed(3000, "a test").unwrap();
        assert!(a.iter().all(|&x| x == 0));
        a.populate(100..2500);
        a[2999] = 7;
        a.prefetch(2999);
        a.prefetch(3000);
        assert_eq!(a[2999], 7);
    }

    #[test]
    fn small_and_large_begin_as_zeros_and_aligned() {
        for len in [1, 511, 512, 4096, HEAP_BYTES, HEAP_BYTES + 1] {
            // Twice: memory of the heap may have been used before.
            for _ in 0..2 {
                let mut a: Lazy<u8> = Lazy::zeroed(len, "a test").unwrap();
                assert!(a.iter().all(|&x| x == 0));
                let align = if len < PAGED_BYTES { 64 } else { PAGE };
                assert_eq!(a.as_ptr() as usize % align, 0);
                a.populate(0..len);
                a.fill(7);
            }
        }
    }

    #[test]
    fn too_much_is_an_error() {
        for len in [1 << 55, (1 << 61) + 1, usize::MAX] {
            let err = Lazy::<u64>::zeroed(len, "a test").err().unwrap();
            assert!(err.to_string().contains("a test"), "{err}");
            let err = table(7u64, len, "a test").err().unwrap();
            assert!(err.to_string().contains("a test"), "{err}");
        }
        assert_eq!(*table(7u64, 3, "a test").unwrap(), [7, 7, 7]);
    }
}
