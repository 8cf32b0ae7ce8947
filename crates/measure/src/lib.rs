//! Measuring a drive honestly.
//!
//! - [`Histogram`]: latencies, to 1 %, at a few nanoseconds each.
//! - [`live`]: counters and histograms that others read while they are counted.
//! - [`Series`]: what happened in each second of drive time.
//! - [`slowest`]: the requests that took longest; [`causes`]: where the time of all went.
//! - [`why`]: both of them as text, and as JSON.
//! - [`Dies`]: how busy each die was, over drive time.
//! - [`Steady`]: whether the drive has settled.
//! - [`mod@file`]: what is read of a file, and whether one may be written over.
//! - [`Within`]: within what the percentiles of a run lie.
//! - [`formula`]: the write amplification that a correct drive must show.
//! - [`options`]: values of a command's options.
//! - [`units`]: sizes, times and rates, read and printed.
//! - [`Report`]: all of it, as JSON or for a terminal.
//!
//! Nothing here reads a clock: all times are given by the caller. Only [`mod@file`]
//! touches the system.

pub mod causes;
pub mod dies;
pub mod file;
pub mod formula;
pub mod histogram;
pub mod live;
pub mod options;
pub mod report;
pub mod row;
pub mod series;
pub mod slowest;
pub mod steady;
pub mod units;
pub mod why;
pub mod within;

pub use dies::Dies;
pub use histogram::{Distribution, Histogram, Summary};
pub use live::{Counter, LiveHistogram};
pub use report::{Cpu, Direction, Gc, Report, SteadyState, WriteAmplification};
pub use row::{Programmed, Row, Tail, TailPart};
pub use series::{Finished, Gauges, KINDS, Series};
pub use steady::{Round, Steady, Verdict, Window};
pub use within::Within;
