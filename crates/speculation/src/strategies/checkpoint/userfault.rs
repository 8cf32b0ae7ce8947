//! The kernel's userfaultfd, for memory that is protected against writes, and the call that says
//! which of its pages were written (Linux 5.7; asynchronously, and the call, 6.7).
//!
//! Guarantees: only what a [`Memory`] has is touched, and all ends with the descriptor. No
//! privilege is needed: faults of the kernel itself are left to it. May fail: the kernel has none,
//! or lets nobody have one.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd};

use super::KeepError;
use super::memory::Memory;

/// Of `include/uapi/linux/userfaultfd.h` and `include/uapi/linux/fs.h`.
const API: u64 = 0xaa;
const USER_MODE_ONLY: libc::c_int = 1;
const READ_WRITE: u64 = 3;
const UFFDIO_API: u64 = request(READ_WRITE, API, 0x3f, 24);
const UFFDIO_REGISTER: u64 = request(READ_WRITE, API, 0, 32);
const UFFDIO_UNREGISTER: u64 = request(2, API, 1, 16);
const UFFDIO_WRITEPROTECT: u64 = request(READ_WRITE, API, 6, 24);
const PAGEMAP_SCAN: u64 = request(READ_WRITE, b'f' as u64, 16, 96);
const REGISTER_WP: u64 = 2;
const EVENT_PAGEFAULT: u8 = 0x12;
const PAGE_IS_WRITTEN: u64 = 1 << 1;
const SCAN_WP_MATCHING: u64 = 1;
const SCAN_CHECK_WPASYNC: u64 = 2;

/// A writer waits until somebody takes the protection away.
pub const WAITING: u64 = 1 << 0;
/// The kernel takes it away by itself, and remembers.
pub const ASYNCHRONOUS: u64 = 1 << 15;

/// A request's number, as on x86-64 and AArch64.
const fn request(direction: u64, kind: u64, number: u64, size: u64) -> u64 {
    direction << 30 | size << 16 | kind << 8 | number
}

fn ioctl<T>(fd: &impl AsRawFd, request: u64, argument: &mut T) -> io::Result<usize> {
    // SAFETY: each caller's argument is what the request takes.
    match unsafe { libc::ioctl(fd.as_raw_fd(), request as _, argument as *mut T) } {
        done if done >= 0 => Ok(done as usize),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A userfaultfd.
pub struct Userfault(File);

impl Userfault {
    /// One with these features, for all of a memory. Nothing is protected yet.
    pub fn open(memory: &Memory, features: u64) -> Result<Userfault, KeepError> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY;
        // SAFETY: it makes a descriptor, which is the new file's alone.
        let file = unsafe {
            match libc::syscall(libc::SYS_userfaultfd, flags) {
                fd if fd >= 0 => File::from_raw_fd(fd as _),
                _ => {
                    let e = io::Error::last_os_error();
                    return Err(KeepError::Absent(format!("the kernel gives no userfaultfd: {e}")));
                }
            }
        };
        let absent = |what: &str, e| KeepError::Absent(format!("userfaultfd {what}: {e}"));
        let mut api = [API, features, 0];
        ioctl(&file, UFFDIO_API, &mut api).map_err(|e| absent("lacks the feature", e))?;
        let addresses = memory.addresses();
        let mut register = [addresses.start as u64, addresses.len() as u64, REGISTER_WP, 0];
        ioctl(&file, UFFDIO_REGISTER, &mut register)
            .map_err(|e| absent("protects nothing against writes", e))?;
        Ok(Userfault(file))
    }

    /// Protects a range of addresses, or no more; who waits for that goes on.
    pub fn protect(&self, addresses: Range<usize>, is_on: bool) -> io::Result<()> {
        let len = addresses.len() as u64;
        ioctl(&self.0, UFFDIO_WRITEPROTECT, &mut [addresses.start as u64, len, u64::from(is_on)])
            .map(drop)
    }

    /// Lets the memory go: who waits goes on.
    pub fn end(&self, addresses: Range<usize>) -> io::Result<()> {
        ioctl(&self.0, UFFDIO_UNREGISTER, &mut [addresses.start as u64, addresses.len() as u64])
            .map(drop)
    }

    /// The address of the next write that waits, if one does.
    pub fn next(&mut self) -> io::Result<Option<usize>> {
        // `struct uffd_msg`: the event in its first byte, flags from the 8th, the address from the 16th.
        let mut message = [0u8; 32];
        match self.0.read(&mut message) {
            Ok(32) if message[0] == EVENT_PAGEFAULT => {
                let address = message[16..24].try_into().expect("eight bytes");
                Ok(Some(u64::from_ne_bytes(address) as usize))
            }
            Ok(_) => Err(io::Error::other("a message of userfaultfd that nobody asked for")),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Another handle of it.
    pub fn again(&self) -> io::Result<Userfault> {
        self.0.try_clone().map(Userfault)
    }
}

impl AsRawFd for Userfault {
    fn as_raw_fd(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

/// What `PAGEMAP_SCAN` asks.
#[repr(C)]
#[derive(Default)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    inverted: u64,
    mask: u64,
    any_of: u64,
    returned: u64,
}

/// Pages in a row, as `PAGEMAP_SCAN` tells them.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// Which pages were written since they were protected.
pub struct Written {
    pagemap: File,
    regions: Vec<Region>,
}

impl Written {
    /// Of this process.
    pub fn open() -> Result<Written, KeepError> {
        let pagemap = File::open("/proc/self/pagemap");
        let pagemap = pagemap.map_err(|e| KeepError::Absent(format!("/proc/self/pagemap: {e}")))?;
        Ok(Written { pagemap, regions: vec![Region::default(); 512] })
    }

    /// Adds the bytes of a memory that were written, page by page, and protects these pages again
    /// where that is asked for.
    pub fn find(
        &mut self,
        memory: &Memory,
        protects: bool,
        found: &mut Vec<Range<usize>>,
    ) -> Result<(), KeepError> {
        let (start, end) = (memory.addresses().start as u64, memory.addresses().end as u64);
        let mut at = start;
        while at < end {
            let mut scan = Scan {
                size: size_of::<Scan>() as u64,
                flags: SCAN_CHECK_WPASYNC | if protects { SCAN_WP_MATCHING } else { 0 },
                start: at,
                end,
                vec: self.regions.as_mut_ptr() as u64,
                vec_len: self.regions.len() as u64,
                mask: PAGE_IS_WRITTEN,
                returned: PAGE_IS_WRITTEN,
                ..Scan::default()
            };
            let count = ioctl(&self.pagemap, PAGEMAP_SCAN, &mut scan)
                .map_err(|e| KeepError::Absent(format!("PAGEMAP_SCAN: {e}")))?;
            let at_offset =
                |region: &Region| (region.start - start) as usize..(region.end - start) as usize;
            found.extend(self.regions[..count].iter().map(at_offset));
            at = scan.walk_end;
        }
        Ok(())
    }
}
