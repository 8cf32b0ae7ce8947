//! Drives in this process as drivers of the block layer.
//!
//! [`inline`] has one on the thread that polls it, [`hosted`] on a thread of its
//! own. Both take any port of block requests, and lose nothing that it does not
//! lose.

pub mod hosted;
pub mod inline;
