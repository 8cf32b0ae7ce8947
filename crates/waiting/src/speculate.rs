//! Not to wait: the `speculate` strategy (thesis, chapter 4; USENIX ATC 2014, section 4.4,
//! checkpoint-free).
//!
//! A write returns at once, with a [`Token`]. Who wrote goes on, and what others could see of
//! that, its *outputs*, is tied to tokens and held back until they are durable. A write that
//! fails makes errors of the outputs that depended on it, in their places, before anything of
//! them was seen; so nothing need be rolled back but what its owner remembers.
//!
//! - [`Tokens`]: which writes are durable. Writes are gathered in groups, and one flush makes
//!   a group durable.
//! - [`Outputs`]: what is held back, of one stream, in its order.
//! - [`Written`]: which token it depends on who has read something.
//! - [`Disk`]: all of it over a block drive.
//!
//! The guarantee: no output is given out before all writes are durable that were issued before
//! it was tied and that its token covers; and each output is given out once, whole or as an
//! error. There is no clock or I/O in the first three, all is bounded, and once made they take
//! no memory.

mod disk;
mod outputs;
mod tokens;
mod written;

pub use disk::{Disk, DiskError};
pub use outputs::{Full, Lost, Outputs};
pub use tokens::{Fate, Token, Tokens};
pub use written::Written;

#[cfg(test)]
mod tests;
