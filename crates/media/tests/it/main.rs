//! The media manager as its users see it.

mod comings;
mod model;
mod pace;
mod world;
