//! The open-channel drive and the drivers of its time.
//!
//! [`Device`] is a [`port::Port`] of vector commands: it checks them, schedules
//! channels and dies, and moves the bytes through its medium. [`Link`] puts a
//! host interface in front of any port, [`Queued`] several submission queues in
//! front of that; [`Coarse`] maps units of several blocks; through [`Buffered`] data cross
//! the memory of a controller's buffer.
//! [`realtime`] looks at a port through the processor's clock,
//! [`hosted`] does so on a thread of its own and serves queue pairs ([`queue`]).
//! [`notices`] are what a drive tells unasked.

mod arbiter;
mod below;
pub mod buffer;
pub mod cache;
pub mod coarse;
pub mod command;
mod controller;
mod device;
mod history;
pub mod hosted;
mod lending;
pub mod link;
mod list;
pub mod mutation;
pub mod notices;
mod opened;
pub mod power;
pub mod queue;
pub mod queues;
pub mod realtime;
mod slc;
mod sleep;
mod tales;
mod thermal;
mod timeline;
mod told;
mod units;
mod way;

pub use buffer::{BufferMemory, Buffered};
pub use cache::{CacheCounters, Cached};
pub use coarse::Coarse;
pub use command::{
    Addresses, Content, MAX_ADDRESSES, OpenChannel, VectorCmd, VectorDone, VectorOp,
};
pub use device::{ChunkCount, Counters, Device, ErrorCounters, Health, MAX_DEPTH, Wear};
pub use flash::LinkTiming;
pub use link::{Carries, Link, Payload};
pub use notices::{Notice, NoticeMask, NoticeState};
pub use power::{Heats, PowerHealth, Powered};
pub use queues::Queued;
pub use slc::SlcHealth;
pub use sleep::{Slept, SleptIn};
