//! An ordered key-value store: a B-tree of 4 KiB pages over a page store that
//! can be exchanged.
//!
//! [`Tree`] has `get`, `put`, `delete`, `scan`, `batch` and `flush`. Operations
//! go in with a number of the caller's, their results come out through a
//! [`Sink`], at once where the pages are in memory, from [`Tree::poll`] where
//! they must be read: hundreds of operations wait at once on one thread. There
//! is no thread, clock or randomness inside, so a tree lives in virtual time
//! as well as in real time.
//!
//! Three stores keep the pages ([`PageStore`]):
//! - [`BatchStore`] over the batched interface, where the drive maps, collects
//!   and recovers;
//! - [`LogStore`], which does so on the host, over the block interface;
//! - [`InPlaceStore`], which writes pages where they are, over the block
//!   interface, with a journal.
//!
//! [`Keyed`] is no tree: it gives a drive that keeps values by key itself the same
//! operations, without an order of keys and batches. [`Records`] is one or the other.

mod cache;
mod error;
mod keyed;
mod op;
mod page;
mod records;
mod redo;
pub mod store;
mod tree;

pub use cache::{CacheCounters, FRAME_BYTES};
pub use error::Error;
pub use keyed::{Keyed, KeyedConfig, KeyedDrive};
pub use op::{Outcome, Sink, Write};
pub use page::{MAX_KEY, MAX_VALUE, OVERFLOW_BYTES, PAGE_BYTES};
pub use records::Records;
pub use redo::RedoCounters;
pub use store::{
    AnyStore, Awaited, BatchStore, Beside, Clocked, InPlaceConfig, InPlaceStore, Inline, PageStore,
    Remote, Sleeper,
};
pub use store::{LogConfig, LogCounters, LogStore, Store, StoreDone, StoreError, StoreKind};
pub use tree::{Broken, Census, Tree, TreeConfig, TreeCounters};
