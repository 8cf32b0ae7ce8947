//! The tests of this crate as its users see it: one program, since each that is
//! linked costs as much as all of them.

mod channels;
mod nbd;
mod redis;
mod soak;
