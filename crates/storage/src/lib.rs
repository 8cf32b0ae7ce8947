//! Real storage below the block layer: a block device or a file, through io_uring, or
//! by the kernel's other calls ([`Engine`]).
//!
//! ```text
//!  Storage ──open──▶ one StorageQueue for each dispatch queue
//!    │                 │
//!    │ the file or     │ a ring of the kernel, or another engine's gate; for a polled
//!    │ device, locked  │ queue a second one, for what cannot be polled
//! ```
//!
//! Guarantees, for every queue:
//! - A request completes once, whole or with an error: short reads and writes
//!   are continued.
//! - A buffer that the kernel may still read or write is never given back or
//!   freed, whatever is aborted or dropped.
//! - Nothing on the way of a request allocates or locks. Four requests, or a batch of
//!   any size through the page cache, cost one system call to submit, and at most one
//!   to see their completions; libaio takes one for each look. With an engine that has
//!   one request at a time each costs one, in which the thread waits.
//!
//! What may fail is [`OpenError`] before the first request and the
//! completion's status after it:
//!
//! | the system says | the request's status |
//! |---|---|
//! | `EIO` and what it does not know better | unrecovered read, or write fault |
//! | the file ends before the range does | unrecovered read |
//! | `ENOSPC`, `EDQUOT`, `EFBIG` | capacity exceeded |
//! | `EROFS`, `EBADF`, `EPERM`, `EACCES` | read only |
//! | `EINVAL` | invalid field |
//! | `ENODEV`, `ENXIO`, or the device has no bytes any more | aborted, and the queue is gone |

mod aio;
mod ask;
mod backing;
mod calls;
mod error;
mod gate;
mod holes;
mod options;
mod pool;
mod queue;
mod request;
mod ring;
mod storage;

pub use error::OpenError;
pub use holes::holes;
pub use options::{Engine, MOST_BYTES, MOST_DEPTH, Poll, StorageOptions};
pub use pool::{Pool, Region};
pub use queue::StorageQueue;
pub use storage::Storage;
