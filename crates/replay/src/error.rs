//! Why a trace cannot be read, or a line of it.

use std::io;

use thiserror::Error;
use trace::TraceError as OwnError;

use crate::format::Format;

/// The most of a broken line that is shown, in bytes.
const SHOWN: usize = 80;

/// What is wrong with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Flaw {
    /// It ends too soon.
    #[error("it has no {0}")]
    Missing(&'static str),
    /// A field is no whole number, or one of 2^64 or more.
    #[error("its {0} is no number that can be")]
    Number(&'static str),
    /// A time that is none, or beyond 2^64 ns.
    #[error("its time is none, or beyond 584 years")]
    Time,
    /// The operation is none that this format has.
    #[error("its operation is none of this format's")]
    Operation,
    /// An address that no drive has.
    #[error("it ends beyond 2^63 bytes")]
    Address,
    /// More fields than the format has.
    #[error("it has more fields than the format")]
    Extra,
    /// The line is too long to be one.
    #[error("it is longer than 64 KiB")]
    TooLong,
    /// The first line does not say what it must.
    #[error("the first line of such a file is `fio version 2 iolog` or `fio version 3 iolog`")]
    Version,
    /// A volume's name is too long, or there are too many volumes.
    #[error("its volume has a name of more than 256 bytes, or is the 65537th")]
    Volume,
}

/// Why a trace cannot be read, or not to its end.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The system refused, or what is compressed is damaged.
    #[error("cannot read it: {0}")]
    Io(#[from] io::Error),
    /// Nothing is in it.
    #[error("it is empty, or so many remarks are before its requests that --format must name it")]
    Empty,
    /// A line is broken.
    #[error("line {number} is broken: {flaw}: `{text}`; --broken skip leaves such lines out")]
    Line {
        /// Its number, from 1 on.
        number: u64,
        /// What is wrong with it.
        flaw: Flaw,
        /// Its beginning.
        text: String,
    },
    /// More lines are broken than may be left out.
    #[error(
        "more than {most} lines are broken, line {number} the last: {flaw}: `{text}`; is this \
         the right --format? --broken skip:N leaves more out"
    )]
    TooMany {
        /// How many may be left out.
        most: u64,
        /// The number of the line that is one too many, from 1 on.
        number: u64,
        /// What is wrong with it.
        flaw: Flaw,
        /// Its beginning.
        text: String,
    },
    /// The first lines are of no format.
    #[error(
        "its first lines are of no known format: name it with --format, one of {}: `{text}`",
        Format::names(Format::ALL)
    )]
    Unknown {
        /// The beginning of the first line.
        text: String,
    },
    /// The first lines may be of several formats.
    #[error(
        "its first lines may be of several formats: name it with --format, one of {}",
        Format::names(candidates)
    )]
    Ambiguous {
        /// Which.
        candidates: Vec<Format>,
    },
    /// It has lines, but no request.
    #[error("it has no request{0}")]
    NoRequest(
        /// Of what, and what is there instead.
        String,
    ),
    /// An option that this format has no use for.
    #[error("{option} is for {of}, and this is of format {format}: leave it out")]
    Option {
        /// Which.
        option: &'static str,
        /// Where it says something.
        of: &'static str,
        /// What this is.
        format: &'static str,
    },
    /// A record of a trace of ours that cannot be.
    #[error("record {number} ends beyond 2^63 bytes: the file is damaged")]
    Record {
        /// Its number, from 1 on.
        number: u64,
    },
    /// A trace of ours that is damaged.
    #[error(transparent)]
    Own(#[from] OwnError),
}

/// The beginning of a line, harmless to a terminal.
pub(crate) fn shown(line: &[u8]) -> String {
    let part = &line[..line.len().min(SHOWN)];
    let text = String::from_utf8_lossy(part);
    let harmless = |c: char| if c.is_control() { '?' } else { c };
    let mut text: String = text.chars().map(harmless).collect();
    if line.len() > SHOWN {
        text.push_str("...");
    }
    text
}
