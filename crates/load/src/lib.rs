//! Loads, and the running of them on drives.
//!
//! A [`load::Load`] makes requests, a [`driver::Driver`] moves them into a drive
//! and owns its time, a [`runner::Runner`] runs one on the other and gives a
//! [`tally::Tally`]. Drives below the block layer ([`blocks`]) run in virtual time
//! on one thread ([`cores`]) or on the clock with a thread for each core
//! ([`clocked`], [`real`]), of a drive of shards each with its own ([`pollers`]); a
//! drive behind a server is a driver, too ([`served`], [`channel`]). [`tails`] has the requests
//! that took longest in each row of a series; [`bursts`] pauses between requests,
//! [`verify`] knows what was written, [`own`] times what is not the drive's, [`watch`]
//! who watches. A [`host`] asks what somebody else decides.

pub mod blocks;
pub mod bursts;
pub mod channel;
pub mod clocked;
pub mod cores;
pub mod cpu;
pub mod driver;
pub mod host;
pub mod load;
pub mod own;
pub mod pollers;
pub mod real;
pub mod runner;
pub mod served;
pub mod signals;
pub mod tails;
pub mod tally;
pub mod threads;
pub mod verify;
pub mod watch;
