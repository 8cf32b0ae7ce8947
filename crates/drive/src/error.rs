//! What a command can end with.
//!
//! Exit codes: 0 for success, 1 for a command that failed, 2 for a command
//! that was asked for something impossible.

use std::io;

use blkmq::ConfigError;
use port::OutOfMemory;
use targets::pblk::PblkError;
use thiserror::Error;

use crate::spec::DriveError;

/// Why a command did not do what it was asked.
#[derive(Debug, Error)]
pub enum Error {
    /// The command line asks for something that cannot be.
    #[error("{0}")]
    Usage(String),
    /// The drive cannot be.
    #[error(transparent)]
    Drive(#[from] DriveError),
    /// The target cannot work on this drive.
    #[error("the drive cannot be made: {0}")]
    Target(#[from] PblkError),
    /// What the drive was cannot be found again.
    #[error("{name}: {source}")]
    Recovery {
        /// Which drive.
        name: String,
        /// Why.
        source: PblkError,
    },
    /// No memory.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
    /// The command was right and failed.
    #[error("{0}")]
    Failed(String),
    /// The output cannot be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
}

impl From<ConfigError> for Error {
    fn from(e: ConfigError) -> Error {
        match e {
            ConfigError::Memory { .. } => Error::Failed(e.to_string()),
            e => Error::Usage(e.to_string()),
        }
    }
}

impl Error {
    /// The system refused what is not the output.
    pub fn system(doing: &str, source: &io::Error) -> Error {
        Error::Failed(format!("cannot {doing}: {source}"))
    }

    /// The process's exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Target(PblkError::Memory(_) | PblkError::Recovery(_)) => 1,
            Error::Usage(_) | Error::Drive(_) | Error::Target(_) => 2,
            Error::Failed(_) | Error::Output(_) | Error::Memory(_) | Error::Recovery { .. } => 1,
        }
    }

    /// Whether the reader of our output went away: no reason to complain.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Error::Output(e) if e.kind() == io::ErrorKind::BrokenPipe)
    }
}
