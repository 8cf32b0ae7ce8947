//! A checkpoint of this process by copy on write: a child that stands still (thesis chapter 4,
//! section 4.2 of the paper).
//!
//! Guarantees: the child runs nothing but its wait, and is gone when the checkpoint is. The way
//! back copies all memory from the child; a system in which the child goes on in this process's
//! place needs less. May fail: the system has no room for another process.
#![allow(unsafe_code)]

use std::io;

use super::KeepError;
use super::memory::Memory;

/// A child that holds what this process was, once one was taken.
#[derive(Default)]
pub struct Fork {
    child: Option<libc::pid_t>,
}

impl Fork {
    /// Takes one in place of the last.
    pub fn take(&mut self) -> Result<(), KeepError> {
        self.give_up();
        // SAFETY: the child calls nothing but system calls, so no lock that another thread held
        // is asked for there, and it never returns.
        match unsafe { libc::fork() } {
            -1 => return Err(KeepError::system("fork", io::Error::last_os_error())),
            // SAFETY: as above. It ends with its parent, whatever becomes of that.
            0 => unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                loop {
                    libc::pause();
                }
            },
            child => self.child = Some(child),
        }
        Ok(())
    }

    /// What was done since stays: the child goes.
    pub fn give_up(&mut self) {
        let Some(child) = self.child.take() else { return };
        // SAFETY: it is this process's own child, which is waited for here alone.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
    }

    /// Copies memory back from the child, which stays.
    pub fn roll_back(&self, memory: &mut Memory) -> Result<(), KeepError> {
        let Some(child) = self.child else { return Err(KeepError::None) };
        let addresses = memory.addresses();
        let bytes = memory.bytes_mut();
        let mut at = 0;
        while at < addresses.len() {
            let iov_len = addresses.len() - at;
            let local = libc::iovec { iov_base: bytes[at..].as_mut_ptr().cast(), iov_len };
            let remote = libc::iovec { iov_base: (addresses.start + at) as *mut _, iov_len };
            // SAFETY: it writes to these bytes only, and the child has the same mapped.
            match unsafe { libc::process_vm_readv(child, &local, 1, &remote, 1, 0) } {
                read if read > 0 => at += read as usize,
                _ => return Err(KeepError::system("read the child", io::Error::last_os_error())),
            }
        }
        Ok(())
    }
}

impl Drop for Fork {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// Of the processor, by children that have ended and were waited for, ns.
pub fn processor_of_children() -> u64 {
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
    // SAFETY: zeros are a value of it, and the call writes all of it.
    let about = unsafe {
        let mut about = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut about);
        about
    };
    ns(about.ru_utime) + ns(about.ru_stime)
}
