//! The media manager as its users see it.

mod comings;
mod direct;
mod keyed;
mod leaving;
mod lives;
mod model;
mod pace;
mod world;
