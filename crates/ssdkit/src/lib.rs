//! ssdkit: a solid-state drive in software, the host stack above it, and the
//! tools to measure it.
//!
//! This crate is the front door: the command line ([`cli`]) and the commands that
//! are no crate of their own. The others are [`mod@bench`], [`fronts`] (serve), [`metrics`] (top),
//! [`ycsb`], [`studies`], [`standard`] (test), [`fio`], [`mod@run`] and [`twin`], over drives by name ([`drive`]) and what runs loads
//! on them ([`load`]).

pub mod cli;
pub mod compare;
pub mod crash;
pub mod create;
pub mod info;
pub mod job;
pub mod manual;
pub mod profiles;
pub mod rules;
pub mod snapshot;
pub mod sweep;
pub mod target;
pub mod trace;

pub use drive::Error;
pub use {drive, fio, fronts, load, metrics, run, speculation, standard, studies, twin, ycsb};
// By `use` it would be the attribute of that name, too.
pub extern crate bench;
