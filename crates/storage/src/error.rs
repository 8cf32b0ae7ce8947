//! Why storage cannot be opened: what, where, and what to do.

use std::io;
use std::path::PathBuf;

use blkmq::ConfigError;
use port::units::size_binary;
use rustix::io::Errno;
use thiserror::Error;

/// Storage that cannot be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// An option is outside its range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Polling was asked for together with the page cache.
    #[error(
        "poll_queues needs direct: the page cache cannot be polled; set direct, or no poll_queues"
    )]
    PollNeedsDirect,
    /// The engine cannot do what was asked for with it.
    #[error("{engine} {what}")]
    Engine {
        /// Its name.
        engine: &'static str,
        /// What it cannot, and what to take.
        what: &'static str,
    },
    /// There is nothing of this name.
    #[error("{path}: no such file or device; create the file with the size of the drive first")]
    Missing {
        /// What was to be opened.
        path: PathBuf,
    },
    /// It is neither a file nor a block device.
    #[error("{path} is {kind}: a drive is a regular file or a block device")]
    NotADrive {
        /// What was to be opened.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// Somebody else has it.
    #[error("{path} is in use: {by}; unmount or close it there, or open it with read_only")]
    InUse {
        /// What was to be opened.
        path: PathBuf,
        /// Who has it.
        by: &'static str,
    },
    /// It cannot be opened for writing.
    #[error(
        "{path} cannot be written: {source}; open it with read_only, or change its permissions"
    )]
    NoWrite {
        /// What was to be opened.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file system knows no direct access.
    #[error("{path}: its file system has no direct access (O_DIRECT); open it with direct=false")]
    NoDirect {
        /// What was to be opened.
        path: PathBuf,
    },
    /// The device cannot be polled.
    #[error("{path} cannot be polled: {why}; use poll=auto, or no poll_queues")]
    NoPoll {
        /// What was to be opened.
        path: PathBuf,
        /// What is missing.
        why: &'static str,
    },
    /// It is smaller than a logical block.
    #[error(
        "{path} has {}: a drive has at least one block of 4 KiB; make it larger",
        size_binary(*bytes)
    )]
    TooSmall {
        /// What was to be opened.
        path: PathBuf,
        /// Its length.
        bytes: u64,
    },
    /// The system refused for another reason.
    #[error("{path}: {doing}: {source}")]
    System {
        /// What was to be opened.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The kernel gives no ring.
    #[error("io_uring: {doing}: {source}; {}; or take engine=libaio, psync or pvsync2", for_a_ring(.source))]
    NoRing {
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The kernel gives no context for asynchronous requests.
    #[error(
        "libaio: setting up a context for {depth} requests: {source}; raise fs.aio-max-nr, \
         take a smaller depth, or engine=psync"
    )]
    NoContext {
        /// Requests inside at once.
        depth: usize,
        /// What the system said.
        source: io::Error,
    },
    /// Memory could not be registered.
    #[error(
        "registering {} of buffers: {source}; \
         raise the limit of locked memory (ulimit -l), or register fewer regions",
        size_binary(*bytes as u64)
    )]
    Register {
        /// How many bytes, for one queue.
        bytes: usize,
        /// What the system said.
        source: io::Error,
    },
    /// The memory that is needed to open it could not be had.
    #[error(transparent)]
    Memory(#[from] port::OutOfMemory),
}

/// What to do where the kernel gives no ring for this reason.
fn for_a_ring(source: &io::Error) -> &'static str {
    match Errno::from_io_error(source) {
        Some(Errno::MFILE) => "raise the limit of open files (ulimit -n)",
        Some(Errno::NFILE) => "all programs have too many files open: raise fs.file-max",
        Some(Errno::NOMEM) => {
            "raise the limit of locked memory (ulimit -l), or take fewer queues or a smaller depth"
        }
        _ => {
            "it needs Linux 5.11 or later, kernel.io_uring_disabled=0, and no seccomp filter \
             against it"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do_for_a_ring_is_by_what_it_lacks() {
        for (lacks, says) in [
            (Errno::MFILE, "ulimit -n"),
            (Errno::NFILE, "fs.file-max"),
            (Errno::NOMEM, "ulimit -l"),
            (Errno::NOSYS, "Linux 5.11"),
            (Errno::PERM, "io_uring_disabled"),
        ] {
            let e = OpenError::NoRing { doing: "setting up a ring", source: lacks.into() };
            let text = e.to_string();
            assert!(text.contains(says) && text.contains("engine=libaio"), "{text}");
            assert_eq!(
                text.contains("seccomp"),
                says.contains('5') || says.contains("_"),
                "{text}"
            );
        }
    }
}
