//! Large arrays of zeros that cost memory only where they are touched.
//!
//! Map, validity and media arrays are indexed by packed addresses, so they
//! have holes. A hole is never touched and never costs anything but address
//! space.

use std::ops::{Deref, DerefMut, Range};

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

/// Maps `bytes` of zeros, without reserving memory for them. Asks for huge
/// pages where the array is large enough to use them.
pub(crate) fn map_zeroed(bytes: u64, what: &'static str) -> Result<MmapMut, OutOfMemory> {
    const HUGE_PAGE: usize = 2 << 20;
    let fail = |source| OutOfMemory { what, bytes, source };
    let len = usize::try_from(bytes.max(1))
        .map_err(|_| fail(std::io::Error::from(std::io::ErrorKind::OutOfMemory)))?;
    let map = MmapOptions::new().len(len).no_reserve_swap().map_anon().map_err(fail)?;
    if len >= HUGE_PAGE {
        // Advice only: where it is refused, the array works with small pages.
        let _ = map.advise(Advice::HugePage);
    }
    Ok(map)
}

/// A fixed array of zeros, mapped when touched.
pub struct Lazy<T> {
    /// Into `map`.
    ptr: *mut T,
    len: usize,
    map: MmapMut,
}

// SAFETY: `ptr` points into `map`, which this value owns alone.
unsafe impl<T: Send> Send for Lazy<T> {}
// SAFETY: shared access gives only `&[T]`.
unsafe impl<T: Sync> Sync for Lazy<T> {}

impl<T: AnyBitPattern + NoUninit> Lazy<T> {
    /// An array of `len` zeros; `what` names it in the error.
    pub fn zeroed(len: usize, what: &'static str) -> Result<Lazy<T>, OutOfMemory> {
        let mut map = map_zeroed((len * size_of::<T>()) as u64, what)?;
        // A mapping is aligned to a page, so to any `T` here.
        assert!(align_of::<T>() <= 4096);
        Ok(Lazy { ptr: map.as_mut_ptr().cast(), len, map })
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
        let _ = self.map.advise_range(Advice::PopulateWrite, offset, len);
        #[cfg(not(target_os = "linux"))]
        let _ = (offset, len, &self.map);
    }

    /// Fetches element `i` into the cache; nothing when `i` is past the end.
    #[inline]
    pub fn prefetch(&self, i: usize) {
        if i < self.len {
            // SAFETY: `i` is inside the mapping.
            prefetch(unsafe { self.ptr.add(i) }.cast());
        }
    }
}

impl<T> Deref for Lazy<T> {
    type Target = [T];
    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: the mapping holds `len` elements, zeroed, and any bits are
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
    fn too_much_is_an_error() {
        let err = Lazy::<u64>::zeroed(1 << 55, "a test").err().unwrap();
        assert!(err.to_string().contains("a test"));
    }
}
