//! Engines that ask the kernel one thing at a time, by a system call that the thread waits
//! for: `pread` and `pwrite`, or `preadv2` and `pwritev2`, which can poll the device.
//!
//! Guarantees: the answer is there when [`Calls::ask`] returns. Nothing here fails: what the
//! kernel refuses is an answer.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::AsFd;
use std::sync::Arc;

use port::Ring;
use rustix::fs::{fallocate, fdatasync};
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2, pwrite, pwritev2};

use crate::ask::Ask;
use crate::backing::Backing;

/// The kernel's answers: key, and bytes or an error's number below zero.
pub(crate) type Answers = Ring<(u32, i32)>;

/// An answer as rings of the kernel give it.
fn answer(result: Result<usize, Errno>) -> i32 {
    match result {
        // A request is at most 16 MiB.
        Ok(bytes) => i32::try_from(bytes).unwrap_or(i32::MAX),
        Err(e) => -e.raw_os_error(),
    }
}

/// Such an engine's way to the file.
pub(crate) struct Calls {
    backing: Arc<Backing>,
    /// By the calls that take flags, and these flags.
    flags: Option<ReadWriteFlags>,
    pub answers: Answers,
}

impl Calls {
    /// By `pread` and `pwrite`; or by the calls with flags, which may poll.
    pub fn new(backing: Arc<Backing>, depth: usize, flags: Option<ReadWriteFlags>) -> Calls {
        Calls { backing, flags, answers: Ring::new(depth) }
    }

    /// Asks, and waits for the answer.
    ///
    /// # Safety
    /// The memory that is named is valid, and nobody else's, during the call.
    pub unsafe fn ask(&mut self, key: u32, ask: &Ask) {
        // SAFETY: the caller promises it.
        let result = unsafe { call(&self.backing, ask, self.flags) };
        self.answers.put(|| (key, result));
    }
}

/// Does one thing by a system call.
///
/// # Safety
/// The memory that is named is valid, and nobody else's, during the call.
pub(crate) unsafe fn call(backing: &Backing, ask: &Ask, flags: Option<ReadWriteFlags>) -> i32 {
    let fd = backing.fd().as_fd();
    answer(match *ask {
        Ask::Read { to, len, at } => {
            // SAFETY: the caller promises it.
            let to = unsafe { std::slice::from_raw_parts_mut(to, len) };
            match flags {
                None => pread(fd, to, at),
                Some(flags) => preadv2(fd, &mut [IoSliceMut::new(to)], at, flags),
            }
        }
        Ask::Write { from, len, at, durable } => {
            // SAFETY: as above.
            let from = unsafe { std::slice::from_raw_parts(from, len) };
            let sync = if durable { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
            match flags {
                None if !durable => pwrite(fd, from, at),
                _ => pwritev2(fd, &[IoSlice::new(from)], at, flags.unwrap_or(sync) | sync),
            }
        }
        Ask::Sync => fdatasync(fd).map(|()| 0),
        Ask::Fallocate { mode, at, len } => fallocate(fd, mode, at, len).map(|()| 0),
    })
}
