//! The tests of this crate as its users see it: one program, since each that is
//! linked costs as much as all of them.

mod any;
mod bad_input;
mod common;
mod cutting;
mod fairness;
mod fenced;
mod freezing;
mod giving_up;
mod layer;
mod memory;
mod sharing;
mod stress;
mod switching;
mod waiting;
mod watched;
