//! Why a program could not be run under supervision.

use std::io;
use std::path::PathBuf;

/// What went wrong, and what to do. Nothing of the program has run then, but with
/// [`Self::Supervision`].
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The kernel has no user notification of seccomp, or not as we need it.
    #[error(
        "this kernel cannot hand a program's system calls to a supervisor: {0}; needed are Linux 5.19 or later and a system that allows seccomp filters with SECCOMP_FILTER_FLAG_NEW_LISTENER (containers may forbid them)"
    )]
    NoNotification(io::Error),
    /// Another supervisor has the calls of this process, and so those of what it starts.
    #[error(
        "another supervisor has the system calls of this process already, and one program has one supervisor: it was started inside ssdkit run or crash, or in a sandbox that watches; start it outside"
    )]
    Supervised,
    /// The supervisor may not look into the program.
    #[error(
        "the supervisor may not reach the program's memory and descriptors: {0}; allow ptrace of own children (kernel.yama.ptrace_scope at most 1, CAP_SYS_PTRACE in a container)"
    )]
    NoAccess(io::Error),
    /// The supervisor may not have a mask of new files' bits of its own.
    #[error(
        "this kernel cannot hand a program's system calls to a supervisor as it should: unshare(CLONE_FS) is refused: {0}; a container may forbid it"
    )]
    NoMask(io::Error),
    /// There is no such program, or it cannot be executed.
    #[error("{}: {source}", path.display())]
    NoProgram {
        /// As it was given.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A folder that is to be mapped cannot be read.
    #[error("the folder {}: {source}", path.display())]
    Folder {
        /// Which.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Two folders would be the same, or one in the other.
    #[error("the folders to map overlap, or have the same name: {}; map each once", .0.display())]
    Overlap(PathBuf),
    /// An argument or a variable holds a zero byte.
    #[error("an argument of the program or a variable of its environment holds a zero byte")]
    ZeroByte,
    /// Something that should not fail did; the program was killed.
    #[error("{doing}: {source}; the program was killed")]
    Supervision {
        /// What was done.
        doing: &'static str,
        /// What the system says.
        source: io::Error,
    },
}

impl RunError {
    pub(crate) fn doing(doing: &'static str) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |errno| Self::Supervision { doing, source: errno.into() }
    }

    /// Whether another command line is needed, and nothing failed.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::NoProgram { .. } | Self::Overlap(_) | Self::ZeroByte)
    }

    /// Whether the machine cannot do it, whatever is run.
    pub fn is_unable(&self) -> bool {
        matches!(
            self,
            Self::NoNotification(_) | Self::Supervised | Self::NoAccess(_) | Self::NoMask(_)
        )
    }
}
