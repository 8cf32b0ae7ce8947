//! Fronts that show a live drive to other programs.
//!
//! [`SharedDrive`] is one drive, driven by the processor's clock, that many
//! threads use. [`nbd`] serves it as a network block device, and has a client
//! that is fast enough to measure with. [`channels`] serves it in memory that its
//! clients share. [`redis`] serves a key-value store to clients of Redis.
//!
//! Linux only: waiting is `ppoll` with nanoseconds, waking is an eventfd.

pub mod channels;
pub mod drive;
mod grow;
pub mod limits;
pub mod listen;
pub mod nbd;
pub mod redis;

pub use drive::{DriveLost, SEATS, SharedDrive};
pub use limits::Limits;
