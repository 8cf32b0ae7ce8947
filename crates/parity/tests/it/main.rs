//! The tests of this crate as its users see it: one program, since each that is
//! linked costs as much as all of them.

mod common;
mod failures;
mod kv;
mod model;
mod pblk;
