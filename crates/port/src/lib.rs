//! What all layers share.
//!
//! A layer is a [`Port`]: commands go in with the time, completions and the
//! time of the next event come out. A port has no thread, no clock and no
//! randomness of its own; whoever drives it owns time.
//!
//! Bytes travel in [`Buffer`]s: owned, disjoint ranges of registered memory
//! that move with their command and come back in its completion on every
//! path, errors included.

pub mod batch;
pub mod block;
pub mod buffer;
pub mod kv;
pub mod lazy;
mod mutation;
mod numbered;
mod places;
mod port;
pub mod random;
pub mod ring;
pub mod slots;
pub mod status;
pub mod story;
pub mod striped;
mod sums;
pub mod time;
pub mod units;

pub use batch::{BatchDone, BatchOp, BatchReq, BatchShape, Desc, MAX_BATCH_PAGES};
pub use block::{BLOCK_BYTES, BlockDone, BlockOp, BlockReq, SECTOR_BYTES, Shape};
pub use buffer::{Buffer, Lender, Pieces, Scratch};
pub use kv::{KvDone, KvOp, KvReq, KvShape, MAX_KEY_BYTES, MAX_VALUE_BYTES, PutIf};
pub use lazy::{Lazy, OutOfMemory};
pub use numbered::{Completed, Numbered};
pub use port::{Port, Turn, turn_by_events};
pub use ring::Ring;
pub use slots::Slots;
pub use status::Status;
pub use story::{Part, Stories, Story, StorySum, Whose};
pub use striped::Striped;
pub use time::Time;
