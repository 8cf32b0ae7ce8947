//! A live view of a drive that is served.
//!
//! [`Page`] writes what a drive tells as text that Prometheus reads, [`Endpoint`] gives
//! it over HTTP, and [`Scrape`] reads it. What there is to know stands in [`table::METRICS`].

mod address;
mod endpoint;
mod page;
mod scrape;
pub mod table;
mod text;

pub use address::Address;
pub use endpoint::{Endpoint, Stopper};
pub use page::{Facts, Gone, Page, Reach, SLICE};
pub use scrape::{Scrape, ScrapeError};
