//! The tests of this crate as its users see it: one program, since each that is
//! linked costs as much as all of them.

mod bench;
mod beside;
mod binary;
mod blocks;
mod channels;
mod clocks;
mod common;
mod compare;
mod crash;
mod edge;
mod examples;
mod faults;
mod figures;
mod files;
mod keys;
mod kill;
mod kinds;
mod layers;
mod lines;
mod memory;
mod metrics;
mod parity;
mod published;
mod real_files;
mod ruled;
mod run;
mod seeds;
mod serve;
mod servers;
mod standard;
mod tenants;
mod troubles;
mod ycsb;
