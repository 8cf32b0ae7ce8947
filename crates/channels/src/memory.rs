//! A channel's memory: a sealed memory file, mapped by both sides.
//!
//! Guarantees: its length never changes, so no access of what was mapped can fail;
//! what lies in it is read and written by atomic words, or copied. Who maps it trusts
//! nothing in it: another process may write any of it at any time. All pages are taken
//! when it is made, which is where memory may be short. This is the one file of the
//! crate with `unsafe` in it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat,
    memfd_create,
};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use tags::{Armed, Word};

/// Bytes of a page.
const PAGE: usize = 4096;

/// What keeps the length as it is.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// Memory that is shared with another process.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: all accesses go through atomic words, or are copies that promise nothing of
// what other threads do at the time.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Makes a memory file of `len` bytes of zeros, and maps it. Fails where the system
    /// has no memory for it, or no descriptor.
    pub fn create(len: usize) -> io::Result<(OwnedFd, Region)> {
        let file = memfd_create("ssdkit-channel", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        fallocate(&file, FallocateFlags::empty(), 0, len as u64)?;
        fcntl_add_seals(&file, SEALS | SealFlags::SEAL)?;
        let region = Region::map(&file, len)?;
        Ok((file, region))
    }

    /// Maps the first `len` bytes of a memory file. Fails where it is none of that
    /// length for good.
    pub fn map(file: &impl AsFd, len: usize) -> io::Result<Region> {
        let wrong = |text: &str| io::Error::new(io::ErrorKind::InvalidData, text.to_string());
        if !fcntl_get_seals(file)?.contains(SEALS) {
            return Err(wrong("the channel's memory is not sealed"));
        }
        if len == 0 || fstat(file)?.st_size < len as i64 {
            return Err(wrong("the channel's memory is shorter than was told"));
        }
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address that the system chooses.
        let start = unsafe { mmap(std::ptr::null_mut(), len, prot, flags, file, 0)? };
        let start = NonNull::new(start.cast()).expect("a mapping is not at zero");
        Ok(Region { start, len })
    }

    /// Where `size` bytes begin.
    ///
    /// # Panics
    /// Where they are not inside, or not aligned for words of 64 bits.
    #[inline(always)]
    fn at(&self, at: usize, size: usize) -> NonNull<u8> {
        assert!(self.has(at, size) && at.is_multiple_of(8), "{size} bytes at {at} of a channel");
        // SAFETY: they are inside.
        unsafe { self.start.add(at) }
    }

    #[inline(always)]
    fn has(&self, at: usize, size: usize) -> bool {
        at.checked_add(size).is_some_and(|end| end <= self.len)
    }

    /// Words of it.
    ///
    /// # Panics
    /// Where they are not inside.
    #[inline(always)]
    pub fn words(&self, at: usize, count: usize) -> &[Word] {
        let start = self.at(at, count * size_of::<Word>()).cast();
        // SAFETY: they are inside, aligned, mapped as long as this lives, and any bits
        // are an atomic word.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), count) }
    }

    /// A word that says who sleeps.
    ///
    /// # Panics
    /// Where it is not inside.
    #[inline(always)]
    pub fn armed(&self, at: usize) -> &Armed {
        // SAFETY: as in `words`; it is one atomic number of 32 bits.
        unsafe { self.at(at, size_of::<Armed>()).cast().as_ref() }
    }

    /// A number of 32 bits.
    ///
    /// # Panics
    /// Where it is not inside.
    pub fn number(&self, at: usize) -> &AtomicU32 {
        // SAFETY: as in `words`.
        unsafe { self.at(at, size_of::<AtomicU32>()).cast().as_ref() }
    }

    /// Copies out what is there. What another process writes meanwhile may come in part.
    ///
    /// # Panics
    /// Where it is not inside.
    #[inline]
    pub fn read(&self, at: usize, to: &mut [u8]) {
        assert!(self.has(at, to.len()), "{} bytes at {at} of a channel", to.len());
        // SAFETY: they are inside, and `to` is elsewhere. Nothing refers to the bytes
        // here; another process may change them, which gives other bytes.
        unsafe {
            std::ptr::copy_nonoverlapping(self.start.as_ptr().add(at), to.as_mut_ptr(), to.len());
        }
    }

    /// Copies bytes in.
    ///
    /// # Panics
    /// Where it is not inside.
    #[inline]
    pub fn write(&self, at: usize, from: &[u8]) {
        assert!(self.has(at, from.len()), "{} bytes at {at} of a channel", from.len());
        // SAFETY: as in `read`.
        unsafe {
            std::ptr::copy_nonoverlapping(from.as_ptr(), self.start.as_ptr().add(at), from.len());
        }
    }

    /// Gives the system back what lies behind `from`, but for the rest of a page; both sides
    /// read zeros there. What the other side writes later is its own memory. Nothing may
    /// borrow it.
    pub fn give_up(&self, from: usize) {
        let from = from.next_multiple_of(PAGE).min(self.len);
        // SAFETY: they are inside and mapped shared; other bytes, which may come at any
        // time. Where the system refuses they stay.
        let _ = unsafe {
            let start = self.start.as_ptr().add(from).cast();
            madvise(start, self.len - from, Advice::LinuxRemove)
        };
    }

    /// Where it begins, for who reads and writes in place, in C above all. Mapped as long
    /// as this lives.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `map`, and nothing borrows it any more. A failure
        // would leave it mapped.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::ftruncate;
    use std::sync::atomic::Ordering;

    #[test]
    fn both_sides_see_the_same_and_nobody_changes_the_length() {
        let (file, one) = Region::create(8192).unwrap();
        let other = Region::map(&file, 8192).unwrap();
        one.write(4095, b"abc");
        let mut seen = [0; 3];
        other.read(4095, &mut seen);
        assert_eq!(&seen, b"abc");
        other.number(256).store(7, Ordering::Relaxed);
        assert_eq!(one.words(256, 1)[0].load(Ordering::Relaxed), 7);
        other.armed(0).arm();
        assert!(one.armed(0).take() && !other.armed(0).take());
        assert!(ftruncate(&file, 0).is_err() && ftruncate(&file, 1 << 20).is_err());
        assert!(Region::map(&file, 8193).is_err());
    }

    #[test]
    fn what_is_given_up_is_given_back_to_the_system() {
        let (file, one) = Region::create(3 << 12).unwrap();
        let other = Region::map(&file, 3 << 12).unwrap();
        (0..3).for_each(|page| one.write(page << 12, b"abc"));
        let pages = || fstat(&file).unwrap().st_blocks / 8;
        assert_eq!(pages(), 3);
        one.give_up(100);
        assert_eq!(pages(), 1);
        let mut seen = [1; 3];
        other.read(4096, &mut seen);
        assert_eq!(seen, [0; 3]);
        other.read(0, &mut seen);
        assert_eq!(&seen, b"abc");
    }

    #[test]
    fn memory_that_may_shrink_is_refused() {
        let file = memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, 4096).unwrap();
        let e = Region::map(&file, 4096).unwrap_err();
        assert!(e.to_string().contains("not sealed"), "{e}");
    }

    #[test]
    #[should_panic(expected = "of a channel")]
    fn nothing_is_read_past_the_end() {
        let (_file, region) = Region::create(4096).unwrap();
        region.read(4095, &mut [0; 2]);
    }
}
