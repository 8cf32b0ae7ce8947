//! Block traces that people have: read, summed up, and fitted to a drive.
//!
//! ```text
//!  file, stdin ─▶ Input ─bytes─▶ Reader ─Request─▶ Summary
//!              gzip, zstd     lines, format     └▶ Fitted ─▶ a load on a drive
//! ```
//!
//! Guarantees: a trace of any length is read in bounded memory; bytes of any kind give
//! requests or an error, and nothing panics; what was left out, moved or cut is counted.

mod error;
mod fields;
mod fitted;
mod footprint;
mod format;
mod input;
mod lines;
mod own;
mod reader;
mod sizes;
mod summary;
mod volumes;

pub use error::{Flaw, ReadError};
pub use fitted::{Beyond, Done, Due, Fit, Fitted, Lacks, Speed, volume_size};
pub use footprint::Touched;
pub use format::{Action, Format, TimeUnit};
pub use input::{Input, Progress};
pub use reader::{Broken, Counts, Next, ReadArgs, Reader, Request};
pub use summary::{Kind, OfVolume, Summary};
pub use volumes::MOST_VOLUMES;
