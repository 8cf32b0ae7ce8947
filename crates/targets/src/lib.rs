//! Targets: what turns an open-channel drive into something to use.

pub mod batch;
pub mod kv;
pub mod pblk;

pub use batch::{Batch, BatchConfig, BatchCounters, BatchError};
pub use kv::{Kv, KvConfig, KvError, KvTenant};
pub use pblk::{
    MAX_STREAMS, Pblk, PblkConfig, Victim, WriteCounters, held_blocks, own_blocks, reserve_chunks,
    with_reserve,
};
