//! A checkpoint of this process by copy on write: a child that stands still, to which one would
//! go back if the I/O failed (thesis chapter 4, section 4.2 of the paper).
//!
//! Guarantees: the child runs nothing but its wait, and is gone when the checkpoint is. May fail:
//! the system has no room for another process.
#![allow(unsafe_code)]

use std::io;

/// A child that holds what this process was.
pub struct Checkpoint {
    child: libc::pid_t,
}

impl Checkpoint {
    /// Takes one.
    pub fn take() -> io::Result<Checkpoint> {
        // SAFETY: the child calls nothing but system calls, so no lock that another thread held
        // is asked for there, and it never returns.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            // SAFETY: as above. It ends with its parent, whatever becomes of that.
            0 => unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                loop {
                    libc::pause();
                }
            },
            child => Ok(Checkpoint { child }),
        }
    }
}

impl Drop for Checkpoint {
    /// What was done since stays: the child goes.
    fn drop(&mut self) {
        // SAFETY: it is this process's own child, which is waited for here alone.
        unsafe {
            libc::kill(self.child, libc::SIGKILL);
            libc::waitpid(self.child, std::ptr::null_mut(), 0);
        }
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
