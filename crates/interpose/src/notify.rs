//! The descriptor by which the kernel hands over calls and takes the answers.

use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use crate::relay::Relay;

/// A call of the program, which waits for its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    /// By which it is answered.
    pub id: u64,
    /// The thread that made it.
    pub thread: u32,
    pub number: i64,
    pub args: [u64; 6],
}

impl Call {
    /// An argument that is a descriptor, flags, or another `int`.
    pub fn int(&self, n: usize) -> i32 {
        self.args[n] as i32
    }
}

/// What the program gets.
#[derive(Debug)]
pub(crate) enum Reply {
    /// The kernel carries the call out.
    Continue,
    /// What the call returns.
    Value(i64),
    Error(Errno),
    /// A new descriptor of the program.
    Descriptor {
        file: OwnedFd,
        close_on_exec: bool,
    },
    /// What a copy comes to, when it was made.
    Relay(Box<Relay>),
}

pub(crate) struct Listener {
    file: OwnedFd,
}

impl Listener {
    pub fn new(file: OwnedFd) -> Self {
        // Who answers wakes who waits on the same processor. From Linux 6.6 on; without it is slower.
        // SAFETY: it takes a number and changes nothing in memory.
        unsafe { libc::ioctl(file.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS, 1u64) };
        Self { file }
    }

    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The next call, when the descriptor says that there is one; none where its thread has died.
    pub fn receive(&self) -> Result<Option<Call>, Errno> {
        // SAFETY: it is numbers only, and the kernel wants zeros.
        let mut notice: libc::seccomp_notif = unsafe { zeroed() };
        match self.control(libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut notice) {
            Ok(()) => Ok(Some(Call {
                id: notice.id,
                thread: notice.pid,
                number: i64::from(notice.data.nr),
                args: notice.data.args,
            })),
            Err(Errno::NOENT | Errno::INTR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Whether the thread still waits, so that its number and memory are its own.
    pub fn is_waiting(&self, call: &Call) -> bool {
        let mut id = call.id;
        self.control(libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &raw mut id).is_ok()
    }

    /// Who died meanwhile needs no answer. A copy was made before.
    pub fn reply(&self, id: u64, reply: &Reply) {
        let (val, error, flags) = match reply {
            Reply::Continue => (0, 0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
            Reply::Value(value) => (*value, 0, 0),
            Reply::Error(errno) => (0, -errno.raw_os_error(), 0),
            Reply::Relay(relay) => (relay.done as i64, 0, 0),
            Reply::Descriptor { file, close_on_exec } => {
                return self.hand_over(id, file, *close_on_exec);
            }
        };
        let mut answer = libc::seccomp_notif_resp { id, val, error, flags };
        let _ = self.control(libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer);
    }

    fn hand_over(&self, id: u64, file: &OwnedFd, close_on_exec: bool) {
        let mut answer = libc::seccomp_notif_addfd {
            id,
            flags: libc::SECCOMP_ADDFD_FLAG_SEND as u32,
            srcfd: file.as_raw_fd() as u32,
            newfd: 0,
            newfd_flags: if close_on_exec { libc::O_CLOEXEC as u32 } else { 0 },
        };
        if let Err(errno) = self.control(libc::SECCOMP_IOCTL_NOTIF_ADDFD, &raw mut answer) {
            // It has no room for another descriptor, most likely.
            self.reply(id, &Reply::Error(errno));
        }
    }

    fn control<T>(&self, request: libc::Ioctl, argument: *mut T) -> Result<(), Errno> {
        debug_assert!(size_of::<T>() <= 256);
        // SAFETY: each request has its struct, which lives as long as the call.
        match unsafe { libc::ioctl(self.file.as_raw_fd(), request, argument) } {
            n if n >= 0 => Ok(()),
            _ => Err(last_error()),
        }
    }
}

/// What the C library says of the call before.
pub(crate) fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
