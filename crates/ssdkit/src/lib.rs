//! ssdkit: a solid-state drive in software, the host stack above it, and the
//! tools to measure it.
//!
//! This crate is the front door: drives by name ([`drive`]), the stacks that
//! they stand for ([`stack`]), loads and the runner that drives them
//! ([`load`], [`runner`]), and the command line ([`cli`], [`bench`],
//! [`serve`]).

pub mod bench;
pub mod cli;
pub mod cpu;
pub mod drive;
pub mod driver;
pub mod error;
pub mod job;
pub mod load;
pub mod nbd;
pub mod profiles;
pub mod runner;
pub mod serve;
pub mod stack;
pub mod study;
pub mod tally;
pub mod verify;
pub mod watch;

pub use drive::{DriveConfig, DriveSpec, MemorySpec};
pub use error::Error;
