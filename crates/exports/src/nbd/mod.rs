//! The network block device: a server for a live drive, and a client.
//!
//! ```text
//!  socket → connection ─ session (pure: bytes → what they mean)
//!              │        └ protocol (pure: one message ↔ its bytes)
//!              ├ requests (what is in flight, and its buffers)
//!              ├ budget (memory and places of all connections)
//!              ├ exports (what is exported now, and who uses it)
//!              └ SharedDrive
//! ```
//!
//! Fixed newstyle negotiation with simple replies; reads, writes, flushes,
//! trims, zero writes, FUA, and several connections to one drive. No TLS, no
//! structured replies, no extended headers: such options are answered as
//! unsupported, and clients go on without them.

mod budget;
pub mod client;
mod connection;
mod exports;
mod input;
mod patience;
mod port;
pub mod protocol;
mod requests;
pub mod server;
pub mod session;

pub use self::exports::Exports;
pub use crate::listen::{ListenAddr, ListenError, StopHandle};
pub use client::{Client, ClientError, Waiter};
pub use port::Remote;
pub use server::{Report, ServeError, Server};
pub use session::{Export, NotServable};
