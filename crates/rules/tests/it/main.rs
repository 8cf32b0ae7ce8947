//! Rule sets: what they mean, what is refused, how they change.

mod both;
mod files;
mod generate;
mod problems;
mod swaps;
