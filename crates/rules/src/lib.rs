//! The language of rules that a host installs in a drive (AppNVM, thesis chapter 7).
#![forbid(unsafe_code)]

pub mod bounds;
pub mod check;
mod compile;
pub mod control;
mod decide;
pub mod decision;
pub mod error;
pub mod explain;
mod hits;
mod index;
pub mod interpret;
pub mod live;
pub mod parse;
mod print;
pub mod request;
mod state;
pub mod syntax;
mod token;

pub use check::{Budget, Checked, check};
pub use compile::Compiled;
pub use control::{Answer, Control, Miss};
pub use decision::{Address, Decision, Entry, Verdict};
pub use error::{Problem, What};
pub use hits::Hits;
pub use interpret::Interpreter;
pub use live::{Installer, Live, Numbered};
pub use parse::{parse, parse_bytes};
pub use request::{Op, Request, View};
pub use state::{State, StoreError};
