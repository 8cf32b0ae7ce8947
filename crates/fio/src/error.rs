//! What can be wrong with a job file: where it is, and what to do.

use std::fmt;
use std::rc::Rc;

use drive::error::Error;
use thiserror::Error as ThisError;

/// A line of a job file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At {
    /// The file, as it was named.
    pub file: Rc<str>,
    /// The line, from 1 on.
    pub line: u32,
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// Why a job file cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub enum JobError {
    /// A line that is none.
    #[error("{at}: {what}")]
    Line {
        /// Where.
        at: At,
        /// What is wrong, and what would do.
        what: String,
    },
    /// A key that fio does not have.
    #[error("{at}: fio has no key `{key}`: correct it, or leave it out")]
    Unknown {
        /// Where.
        at: At,
        /// The key.
        key: String,
    },
    /// A key, or a value of one, that would change results and cannot be followed.
    #[error("{at}: `{key}` is not followed here: {instead}")]
    Refused {
        /// Where.
        at: At,
        /// The key, with its value where that is what cannot be.
        key: String,
        /// What does the same here, or that nothing does.
        instead: String,
    },
    /// A value that is none.
    #[error("{at}: {key}={value}: {takes}")]
    Value {
        /// Where.
        at: At,
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// What it takes.
        takes: String,
    },
    /// Something that is not in one line.
    #[error("{file}: {what}")]
    File {
        /// The file.
        file: Rc<str>,
        /// What is wrong, and what would do.
        what: String,
    },
}

impl From<JobError> for Error {
    fn from(e: JobError) -> Error {
        Error::Usage(e.to_string())
    }
}
