//! What can go wrong with a trace.

use std::io;

use thiserror::Error;

use crate::format::{MOST_CONFIG, VERSION};

/// Why a trace cannot be written or read. Positions are bytes from the start
/// of the file.
#[derive(Debug, Error)]
pub enum TraceError {
    /// The system refused.
    #[error("cannot {doing} the trace: {source}")]
    Io {
        /// What was to be done.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Another file is at its path.
    #[error("a file is there that is no request trace: choose another path, or remove it")]
    Exists,
    /// What is at its path is no file.
    #[error("it is no file: choose another path")]
    NotAFile,
    /// The text that describes the run is too long.
    #[error("a trace's configuration text has {bytes} bytes: at most {MOST_CONFIG} are allowed")]
    ConfigTooLong {
        /// How long it is.
        bytes: usize,
    },
    /// It was started twice.
    #[error("the tracer is running already: stop it first")]
    Running,
    /// It was stopped without having been started.
    #[error("the tracer is not running")]
    NotRunning,
    /// Some other file.
    #[error("this is not a request trace: it does not start with the right 8 bytes")]
    NotATrace,
    /// A later version of the format.
    #[error(
        "the trace has version {found}, but this program reads version {VERSION} only: \
         use the program that wrote it"
    )]
    Version {
        /// Its version.
        found: u32,
    },
    /// The file ends before its end mark.
    #[error(
        "the trace stops at byte {at}, without its end mark: its writer was interrupted, or the \
         file was cut; the {records} records before are good"
    )]
    Truncated {
        /// Where it ends.
        at: u64,
        /// Records that were read.
        records: u64,
    },
    /// Something in it cannot be.
    #[error(
        "the trace is damaged: the {what} at byte {at} is wrong; the {records} records before \
         are good"
    )]
    Damaged {
        /// What is wrong.
        what: &'static str,
        /// Where the part of the file starts that has it.
        at: u64,
        /// Records that were read.
        records: u64,
    },
    /// Records are missing, or there are too many.
    #[error(
        "the trace says it has {said} records, but {read} were read: blocks are missing or doubled"
    )]
    Count {
        /// What its end mark says.
        said: u64,
        /// Records that were read.
        read: u64,
    },
}

impl TraceError {
    /// For [`io::Result::map_err`].
    pub(crate) fn io(doing: &'static str) -> impl FnOnce(io::Error) -> TraceError {
        move |source| TraceError::Io { doing, source }
    }
}
