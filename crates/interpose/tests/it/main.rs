//! Programs that others wrote, and random calls: what is told of them, applied to a model, is what
//! they left in the folder.

mod border;
mod copies;
mod costs;
mod effects;
mod hostile;
mod masks;
mod memory;
mod rights;

mod model;
mod programs;
mod random;
mod run;
