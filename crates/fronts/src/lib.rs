//! `ssdkit serve`: drives served over NBD and by application channels, and key-value
//! stores on them served to Redis' clients, until somebody stops it.
//!
//! [`ServeArgs`] is what can be asked; [`run`] serves. The protocols themselves
//! are in `exports`.

mod args;
mod blocks;
mod control;
mod desk;
mod figures;
mod keys;
mod redis;
mod rulebook;
mod serve;
mod tenants;

pub use args::ServeArgs;
pub use control::ask;
pub use serve::run;
