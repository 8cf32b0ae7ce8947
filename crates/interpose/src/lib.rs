//! The supervisor of an unmodified program: it tells what the program does to the files of chosen
//! folders, call by call, in the order in which it happens, and can delay calls or make them fail.
//! It needs neither root nor a mount; static programs, threads and children are held as well.
//!
//! The kernel's user notification of seccomp hands calls over. The program's view of its files is
//! an ordinary folder: what changes a file in it the supervisor does itself, on the program's own
//! open file where there is one, and so in the order in which it tells. All else the kernel does.
//!
//! What is not seen: changes by processes that are not the program's; a file by a path that does
//! not lead through a mapped folder, and that was not there when the program started; times, owners
//! and extended attributes; devices, pipes and sockets; output by `vmsplice` and `tee`. io_uring,
//! AIO, and cloning of blocks are refused, so that programs fall back to calls that are seen; so
//! are `userfaultfd`, whose memory nobody could look into without its owner, `chroot`, mounts, moves over the border of a folder and, where this process may not look
//! into all, programs that hide. Calls on mapped files are made with this process' rights and
//! limits.
//!
//! When this process is killed, a shell kills the program's processes (`guard`).
#![deny(unsafe_op_in_unsafe_fn)]

/// The numbers of system calls, as many on a line as there is room for.
macro_rules! system {
    ($($call:ident)*) => { [$(libc::$call),*] };
}

mod calls;
mod error;
mod events;
mod filter;
mod guard;
mod harmless;
mod held;
mod launch;
mod mapping;
mod memory;
mod notify;
mod path;
mod process;
mod recorder;
mod relay;
mod supervisor;
mod timer;
mod tree;
mod walk;
mod watcher;

pub use error::RunError;
pub use held::Held;
pub use launch::Program;
pub use recorder::{Event, Recorder};
pub use rustix::io::Errno;
pub use supervisor::{BlockedSignals, Ended, block_signals, run};
pub use tree::Tree;
pub use walk::{Descent, Look, Met, Walk};
pub use watcher::{Answer, Course, Room, Transfer, Wants, Watcher, Way};
