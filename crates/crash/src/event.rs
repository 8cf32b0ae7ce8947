//! What a program did, one thing after the other.

use files::Operation;

/// One thing that a program did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// To its files.
    Operation(Operation),
    /// It told somebody: from then on it can be held to that.
    Output {
        /// Whom: standard output is 1, standard error 2; others as who recorded it says.
        stream: u32,
        /// What.
        data: Vec<u8>,
    },
    /// Somebody marked the moment.
    Mark(String),
}
