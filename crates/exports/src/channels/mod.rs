//! Application channels: a drive whose queues its clients have in their own memory.
//!
//! [`Server`] hands channels over and gives each a thread; the memory that is shared
//! and the client are in the crate `channels`. Nothing that lies in that memory is
//! trusted: each entry is read once and checked, data are copied, and where they lie
//! is looked up in what the server knows itself.

mod connection;
mod server;
mod slots;

pub use server::{Report, Served, Server};
