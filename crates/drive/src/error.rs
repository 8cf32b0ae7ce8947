//! What a command can end with.
//!
//! Exit codes: 0 for success, 1 for a command that failed, 2 for a command
//! that was asked for something impossible.

use std::fmt::Display;
use std::io;

use blkmq::ConfigError;
use port::OutOfMemory;
use targets::pblk::{Most, PblkError};
use thiserror::Error;

use crate::spec::{DriveConfig, DriveError};

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
    /// The file that a drive is in failed, or the disk below it: not the drive's flash.
    #[error("{0}")]
    File(String),
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

    /// The same; where a drive's file failed, with the drive's name.
    pub fn of_drive(self, name: impl Display) -> Error {
        match self {
            Error::File(why) => Error::File(format!("{name}: {why}")),
            other => other,
        }
    }

    /// Whether there was no memory: nothing else is known to be wrong.
    pub(crate) fn is_of_memory(&self) -> bool {
        let (Error::Target(source) | Error::Recovery { source, .. }) = self else {
            return matches!(self, Error::Memory(_));
        };
        matches!(source, PblkError::Memory(_))
    }

    /// The process's exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Target(
                PblkError::Memory(_) | PblkError::Recovery(_) | PblkError::Unread { .. },
            ) => 1,
            Error::Usage(_) | Error::Drive(_) | Error::Target(_) => 2,
            Error::Failed(_) | Error::File(_) | Error::Output(_) | Error::Memory(_) => 1,
            Error::Recovery { .. } => 1,
        }
    }

    /// What the error of a shard says in the numbers of the drive, of which that has a
    /// part.
    pub(crate) fn of_whole_drive(self, config: &DriveConfig) -> Error {
        let shards = config.spec.shards;
        match self {
            Error::Target(PblkError::Buffer { least, most, row, .. }) => {
                let [least, most] = [least, most].map(|bytes| bytes * u64::from(shards));
                let bytes = config.profile.write_buffer;
                Error::Target(PblkError::Buffer { bytes, least, most, row })
            }
            Error::Target(PblkError::OpenChunks { most_of_pu, needed, needed_of_pu, .. }) => {
                let (most, needed) = (Most(config.profile.timing.open_chunks), needed * shards);
                Error::Target(PblkError::OpenChunks { most, most_of_pu, needed, needed_of_pu })
            }
            other => other,
        }
    }

    /// Whether the reader of our output went away: no reason to complain.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Error::Output(e) if e.kind() == io::ErrorKind::BrokenPipe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::DriveSpec;
    use crate::stack;

    /// Errors of what shards have a part of tell the drive's numbers: those that were
    /// given, and bounds that hold.
    #[test]
    fn errors_of_a_shard_tell_of_the_whole_drive() {
        for shards in [1, 2, 4] {
            let drive = format!("mem:tlc,size=256M,groups=4,pus=2,store=none,shards={shards}");
            let refused = |keys: &str| {
                let name = format!("{drive},{keys}");
                let Ok(DriveSpec::Memory(spec)) = name.parse() else { panic!("{name}") };
                stack::build(&spec.resolve().unwrap(), 1).err()
            };
            let Some(Error::Target(PblkError::Buffer { bytes, least, most, .. })) =
                refused("write_buffer=64k")
            else {
                panic!("it is too small")
            };
            assert_eq!((bytes, most), (64 << 10, u64::from(shards) << 30));
            assert!(refused(&format!("write_buffer={least}")).is_none());
            assert!(refused(&format!("write_buffer={}", least - 4096)).is_some());

            let Some(Error::Target(PblkError::OpenChunks { most, needed, .. })) =
                refused("open_chunks=10")
            else {
                panic!("they are too few")
            };
            assert_eq!((most, needed), (Most(10), 8 * 3 + 2 * shards));
            assert!(refused(&format!("open_chunks={needed}")).is_none());
            assert!(refused(&format!("open_chunks={}", needed - 1)).is_some());
        }
    }
}
