//! ssdkit: a solid-state drive in software, the host stack above it, and the
//! tools to measure it.
//!
//! This crate is the front door: drives by name ([`drive`]), the stacks that
//! they stand for ([`stack`]), loads and the runner that drives them
//! ([`load`], [`runner`]), and the command line ([`cli`], [`mod@bench`],
//! [`serve`], [`trace`]). Drives in files are made by [`create`], looked at by
//! [`info`], copied by [`snapshot`] and found again by [`restore`]. A
//! drive may have parity, and things go wrong in it as rules say ([`lower`],
//! [`whole`], [`fault_rules`]). Drives below the
//! block layer ([`blocks`]) run in virtual time on one thread ([`cores`]) or on
//! the clock with a thread for each core ([`clocked`], [`real`]).

pub mod backing;
mod batched;
mod below;
pub mod bench;
pub mod blocks;
pub mod cli;
pub mod clocked;
pub mod cores;
pub mod cpu;
pub mod create;
pub mod drive;
pub mod driver;
pub mod energy;
pub mod error;
pub mod fault_rules;
pub mod info;
pub mod job;
pub mod lent;
pub mod load;
pub mod lower;
pub mod manual;
pub mod memory;
pub mod nbd;
mod physics;
pub mod profiles;
pub mod real;
pub mod redis;
pub mod redundancy;
pub mod restore;
pub mod runner;
pub mod say;
pub mod serve;
pub mod slc;
pub mod snapshot;
pub mod stack;
pub mod study;
pub mod tally;
pub mod trace;
pub mod verify;
pub mod watch;
pub mod whole;
pub mod ycsb;

pub use drive::{DriveConfig, DriveSpec, MemorySpec};
pub use error::Error;
