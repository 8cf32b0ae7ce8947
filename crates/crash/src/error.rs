//! Why there is no state, or it could not be written.

use std::path::PathBuf;

use files::FilesError;
use thiserror::Error;

/// Why there is no state, or it could not be written.
#[derive(Debug, Error)]
pub enum CrashError {
    /// The file layer did not do what the program did.
    #[error("event {number} cannot be carried out: {error}")]
    Event {
        /// Which, from 0 on.
        number: usize,
        /// Why.
        error: FilesError,
    },
    /// What the program began with does not fit.
    #[error("what the program began with cannot be carried out: {0}")]
    Initial(FilesError),
    /// What a cut left does not mount.
    #[error("what the cut left cannot be read: {0}")]
    Mount(#[from] FilesError),
    /// There is no such cut.
    #[error("there is no cut after {cut} events: there are {events}")]
    Cut {
        /// After how many events.
        cut: usize,
        /// How many there are.
        events: usize,
    },
    /// The folder could not be read or written.
    #[error("{}: {error}", path.display())]
    Folder {
        /// What of it.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
}

impl CrashError {
    pub(crate) fn folder(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> CrashError {
        let path = path.to_path_buf();
        |error| CrashError::Folder { path, error }
    }
}
