//! Application channels: a client has the queues of a served drive in its own
//! memory, and its requests reach the drive with no system call (Bjørling,
//! "Operating System Support for High-Performance Solid State Drives", chapter 7,
//! section 2).
//!
//! A channel is a sealed memory file with a queue of requests, a queue of
//! completions and buffers ([`wire`], [`memory`]), handed over on a Unix socket
//! ([`handshake`]). The socket stays: who sleeps is woken by a byte on it, and who
//! goes, or dies, closes it. [`client`] is the client's side; the server's is in
//! `exports`.
//!
//! Linux only.

pub mod client;
pub mod handshake;
pub mod linger;
pub mod memory;
pub mod wire;

pub use client::{Client, ClientError, Options};
pub use memory::Region;
pub use wire::{Completion, End, Layout, Request, Welcome};
