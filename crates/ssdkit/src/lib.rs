//! ssdkit: a solid-state drive in software, the host stack above it, and the
//! tools to measure it.
//!
//! This crate is the front door: drives by name ([`drive`]) and the command
//! line ([`cli`]).

pub mod cli;
pub mod drive;
pub mod error;
pub mod profiles;

pub use drive::{DriveConfig, DriveSpec, MemorySpec};
pub use error::Error;
