//! A cache that is protected against power loss.
//!
//! Drives of servers have capacitors: what they acknowledged outlives a cut,
//! so a flush has nothing to wait for. [`Protected`] is that, as a port over
//! any port of block requests: every write, trim and write zeroes is copied to
//! a [`Journal`] before the port below gets it, and the journal lies in a
//! store that outlives the cut ([`NonVolatile`]). At start what is in the
//! journal is written again, in its order, before anything else is served.
//!
//! Guarantees: each write, trim and write zeroes that completed reads back
//! after any cut, flushed or not; what was in flight is old or new, block by
//! block; a journal that was damaged is an error, never wrong data. The start
//! may itself be cut, any number of times.
//!
//! Where the store has a host below it, which may crash and lose what was not
//! synced, or whose disk may refuse it, that holds for what ended before a flush, and
//! for FUA.

mod busy;
mod entry;
mod error;
mod journal;
pub mod mutation;
mod protected;
mod start;
mod state;
mod store;

pub use error::{JournalError, advice, is_of_the_disk};
pub use journal::{AREA_START, Fill, Journal, LEAST_BYTES, doubt, format, peek};
pub use protected::{Counters, Protected};
pub use start::Started;
pub use store::{Life, NonVolatile, NvRam};

#[cfg(test)]
mod tests;
