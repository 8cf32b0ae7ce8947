//! The tests of this crate as its users see it: one program, since each that is
//! linked costs as much as all of them.

mod at_once;
mod buffer;
mod cache;
mod coarse;
mod common;
mod copyback;
mod descriptors;
mod fairness;
mod hosted;
mod late_bytes;
mod model;
mod opened;
mod physics;
mod queueing;
mod queues;
mod registers;
mod reliability;
mod sharing;
mod slc;
mod stories;
