//! I/O speculation (Wei, Bjørling, Bonnet and Swanson, "I/O Speculation for the Microsecond Era",
//! USENIX ATC 2014): how far a program could go on while its I/O is under way.
//!
//! [`potential`] runs a program and counts that; [`tool`] is what counts, a tool for valgrind;
//! [`counts`] is what it says, [`names`] what system calls are called. [`strategies`] measures how
//! a program may wait for its I/O, and which way wins where.
#![deny(unsafe_code)]

pub mod counts;
pub mod names;
pub mod potential;
pub mod strategies;
pub mod tool;

use std::io::Write;

use clap::{Args, Subcommand};
use drive::error::Error;

pub use potential::PotentialArgs;
pub use strategies::StrategiesArgs;

/// `ssdkit speculate`.
#[derive(Args, Clone, Debug)]
pub struct SpeculateArgs {
    #[command(subcommand)]
    command: Speculate,
}

#[derive(Clone, Debug, Subcommand)]
enum Speculate {
    /// Run a program and count how far it could go on while its I/O is under way.
    #[command(after_help = potential::EXAMPLES)]
    Potential(PotentialArgs),
    /// Measure the ways in which a program may wait for its I/O, and which wins where.
    #[command(after_help = strategies::EXAMPLES)]
    Strategies(StrategiesArgs),
}

/// Does what is asked, and tells `out`.
pub fn run(args: &SpeculateArgs, out: &mut dyn Write) -> Result<(), Error> {
    match &args.command {
        Speculate::Potential(args) => potential::run(args, out),
        Speculate::Strategies(args) => strategies::run(args, out),
    }
}
