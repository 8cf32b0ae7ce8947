//! What a twin can fail with: who said it, what it is, and what to do.

use drive::Error;
use flash::profile::KeyError;
use thiserror::Error as ThisError;

/// Measurements or options that cannot be.
#[derive(Debug, ThisError)]
pub enum TwinError {
    /// A file that cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// Which file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// A file that is none of those that are read.
    #[error("{path}: {what}; give fio's --output-format=json, ssdkit bench --json, or CSV")]
    Format {
        /// Which file.
        path: String,
        /// What it is not.
        what: String,
    },
    /// Something in a file that cannot be.
    #[error("{at}: {what}; {remedy}")]
    Point {
        /// File, and line or job.
        at: String,
        /// What is wrong.
        what: String,
        /// What to do.
        remedy: String,
    },
    /// Two measurements of one thing that do not agree.
    #[error(
        "{first} and {second} are the same point, {point}, and their {figure} is {a} and {b}, more \
         than 10 % apart: leave one of them out"
    )]
    Contradiction {
        /// Where the first is.
        first: String,
        /// Where the second is.
        second: String,
        /// What was measured.
        point: String,
        /// Which figure.
        figure: &'static str,
        /// As the first has it.
        a: f64,
        /// As the second has it.
        b: f64,
    },
    /// No measurement is left.
    #[error("no points: give files with measurements")]
    Nothing,
    /// Nothing is as `--where` says.
    #[error("no points are as --where says: {0}")]
    Where(String),
    /// Points of more than one drive.
    #[error("the points are of several drives: choose one of them with --where drive=NAME: {0}")]
    Drives(String),
    /// A parameter that cannot be.
    #[error("--fit {text}: {what}")]
    Parameter {
        /// What was given.
        text: String,
        /// Why it cannot be.
        what: String,
    },
    /// A key of the profile that cannot be.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Options that contradict each other or the points.
    #[error("{0}")]
    Usage(String),
}

impl TwinError {
    /// Of something in a file.
    pub fn point(at: &str, what: impl Into<String>, remedy: impl Into<String>) -> TwinError {
        TwinError::Point { at: at.into(), what: what.into(), remedy: remedy.into() }
    }
}

impl From<TwinError> for Error {
    fn from(e: TwinError) -> Error {
        Error::Usage(e.to_string())
    }
}
