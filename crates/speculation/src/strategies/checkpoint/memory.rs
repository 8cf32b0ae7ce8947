//! Memory that checkpoints are taken of: whole pages of this process, apart from its heap.
//!
//! Guarantees: each page is there from the start, and stays. May fail: the system has no room.
#![allow(unsafe_code)]

use std::io;
use std::ops::Range;
use std::ptr::NonNull;

use super::KeepError;

/// So many bytes in pages of their own.
pub struct Memory {
    at: NonNull<u8>,
    bytes: usize,
    page: usize,
}

// SAFETY: it owns its pages, and lends them as references do.
unsafe impl Send for Memory {}

impl Memory {
    /// Memory of so many bytes and at least one page, rounded up to pages, each in use.
    pub fn new(bytes: u64) -> Result<Memory, KeepError> {
        // SAFETY: it asks only.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let bytes = (bytes.max(1) as usize).next_multiple_of(page);
        let (read, private) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
        // SAFETY: new pages, where the kernel has room for them.
        let at = unsafe {
            let any = std::ptr::null_mut();
            libc::mmap(any, bytes, read, private | libc::MAP_ANONYMOUS, -1, 0)
        };
        if at == libc::MAP_FAILED {
            return Err(KeepError::system("get memory", io::Error::last_os_error()));
        }
        let at = NonNull::new(at.cast()).expect("the kernel maps nothing at zero");
        let mut memory = Memory { at, bytes, page };
        memory.bytes_mut().iter_mut().step_by(page).for_each(|byte| *byte = 1);
        Ok(memory)
    }

    /// All of it.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the pages are this one's, readable, and zero or written.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.bytes) }
    }

    /// All of it, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nobody else has a reference.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.bytes) }
    }

    /// Bytes of a page.
    pub fn page(&self) -> usize {
        self.page
    }

    /// Where it is.
    pub fn addresses(&self) -> Range<usize> {
        let start = self.at.as_ptr() as usize;
        start..start + self.bytes
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the pages are this one's, and no reference outlives it.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}
