//! Targets: what turns an open-channel drive into something to use.

pub mod pblk;

pub use pblk::{Pblk, PblkConfig, Victim, WriteCounters, own_blocks, reserve_chunks, with_reserve};
