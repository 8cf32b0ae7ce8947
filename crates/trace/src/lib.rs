//! Request tracing: where each request's time went.
//!
//! One record a request, written when it ended: when it was submitted,
//! dispatched, completed by the device and seen by its submitter; from which
//! core, by which queues, with which tag.
//!
//! ```text
//!  each core                        control
//!  Tap ──Life──▶ bounded ring ──▶ collector thread ──blocks──▶ file
//!   │ is it on? (one load a batch)    ▲ start, stop
//!   └ full: counted as dropped        Tracer
//!
//!  file ──▶ Reader ──Life──▶ Summary, slowest, timeline
//! ```
//!
//! Guarantees: a context that is not traced pays one look a batch; one that is
//! allocates nothing, never waits and makes no system call.
//! Nothing is lost silently: what the rings could not hold is counted, and the
//! count is in the file. A file that was cut or damaged is read up to there,
//! and the reader says what is wrong.
//!
//! The format is drawn in `docs/formats.md`.

mod error;
mod format;
mod live;
mod reader;
mod record;
mod summary;
mod timeline;

pub use blkmq::{Life, NO_TAG, Watch};
pub use error::TraceError;
pub use format::{About, Totals, Writer};
pub use live::{Tap, Tracer};
pub use reader::Reader;
pub use summary::{QueueSummary, Stage, slowest, summarize};
pub use timeline::{Window, moment, timeline};

#[cfg(test)]
mod tests;
