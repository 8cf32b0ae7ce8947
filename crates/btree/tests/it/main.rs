//! The tests of this crate as its users see it: one program, since each that is
//! linked costs as much as all of them.

mod batched;
mod common;
mod crowded;
mod drives;
mod emptied;
mod full;
mod hour;
mod in_place;
mod keyed;
mod log;
mod lost;
mod redo;
mod unmade;
