//! What a power cut may leave of the files of a program, while it ran: one state after the other,
//! each named by numbers.
//!
//! [`Explorer`] gives the states, [`Tree`] writes one to a real folder.
#![forbid(unsafe_code)]

mod background;
mod choice;
mod error;
mod event;
mod explorer;
mod hash;
mod tree;

pub use choice::Variant;
pub use error::CrashError;
pub use event::Event;
pub use explorer::{Explorer, More, Options, State};
pub use hash::hash;
pub use tree::Tree;
