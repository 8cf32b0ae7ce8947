//! Reports of benches, to be looked at and compared.
//!
//! - [`Run`]: what one report says, read from its JSON, or from fio's.
//! - [`Comparison`]: runs side by side: how their figures differ, by how much they
//!   waver, and what is set differently.
//! - [`Replicates`]: the same run of several seeds.
//! - [`charts`]: pictures, as SVG.
//! - [`page()`]: all of it as one page that asks nobody for anything.
//! - [`Sheet`]: a page of a verdict with tables and curves of anything.
//! - [`Dossier`]: a page of chapters of claims, each with how it was judged.
//!
//! Guarantees: the same reports give the same bytes; what a report says is text
//! wherever it is shown, never a part of the page; runs of any length give pages of
//! bounded size; a page is written over nothing but a page of ssdkit, whichever command made
//! it, and a picture over nothing but an SVG file. Fails only where JSON is not such a report,
//! and with files as the system does.

pub mod charts;
mod comparison;
mod dossier;
mod file;
mod fio;
mod maps;
mod page;
mod pairs;
mod replicates;
mod run;
mod sheet;
mod waver;

pub use charts::Plot;
pub use comparison::Comparison;
pub use dossier::{Chapter, Claim, Dossier, Mark};
pub use file::OutFile;
pub use maps::{Chunks, Dies, State};
pub use page::page;
pub use replicates::Replicates;
pub use run::{Reading, Run};
pub use sheet::{Grid, Sheet};
