//! Programs with planted bugs are found out, those without are not; states are the same each
//! time; trees go to a real folder and come back.

mod collect;
mod folder;
mod program;
mod states;
mod toys;
