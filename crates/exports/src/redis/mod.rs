//! A server that speaks the protocol of Redis (RESP2) over the key-value store.
//!
//! ```text
//!  sockets → server ┬─ resp (pure: bytes ↔ commands and replies)
//!      or    local  ├─ replies (which may be seen: what they tell of is durable)
//!                   └ database ┬ locks (which commands may run at once)
//!                              ├ work (what each command does)
//!                              └ btree::Tree (records: value)
//! ```
//!
//! Strings, hashes and sorted sets as far as clients of a key-value store and
//! YCSB need them. No expiry, transactions, publishing, scripts, replication or
//! passwords.

mod answers;
mod client;
mod command;
mod database;
mod glob;
mod job;
mod local;
mod locks;
mod mail;
pub mod mutation;
mod replies;
pub mod resp;
mod room;
mod rope;
mod server;
mod serving;
mod value;
mod work;

pub use database::OpenError;
pub use local::{Closed, Local};
pub use server::{Failure, Opened, Options, Report, ServeError, Server, Sync};
