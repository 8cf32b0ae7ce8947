//! A live view of a drive that is served.
//!
//! [`Page`] writes what a drive tells as text that Prometheus reads, [`Endpoint`] gives
//! it over HTTP, and [`top`] shows it on a terminal: it knows no more of the drive than
//! the text says ([`Scrape`]). [`Look`] is what there is to explain of its requests. What there is to know stands in [`table::METRICS`].

mod address;
mod client;
mod endpoint;
mod explained;
mod page;
mod scrape;
pub mod table;
mod text;
mod top;

pub use address::Address;
pub use endpoint::{Endpoint, Paper, Stopper};
pub use explained::Look;
pub use page::{Facts, NoPage, Page, Reach, SLICE};
pub use scrape::{Scrape, ScrapeError};
pub use top::{TopArgs, escaped, top};
