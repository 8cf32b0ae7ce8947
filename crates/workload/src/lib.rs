//! What to ask of a drive.
//!
//! - [`Pattern`] and [`Generator`]: which address, which operation.
//! - [`content`]: data that tells, when read back, whose it is.
//! - [`Arrivals`]: when to ask.
//! - [`ycsb`]: the workloads of a benchmark for key-value stores.
//! - [`Tight`]: as much as possible, for what is below to show its cost.
//!
//! Everything is decided by a seed: the same seed gives the same run on every
//! machine. For that the random numbers and the mathematics behind them are
//! this crate's own or in plain Rust, not the system's.

pub mod arrivals;
pub mod content;
pub mod pattern;
pub mod rng;
pub mod sizes;
pub mod tight;
pub mod versions;
pub mod ycsb;
mod zipf;

pub use arrivals::{Arrivals, Rate, RateError};
pub use content::Mismatch;
pub use pattern::{Access, Generator, Order, Pattern, PatternError, Uniform};
pub use rng::Rng;
pub use sizes::{Sizes, SizesError, Split, Varied};
pub use tight::{Tight, TightOptions};
pub use versions::{Allowed, Refused, Versions};
pub use ycsb::Ycsb;
