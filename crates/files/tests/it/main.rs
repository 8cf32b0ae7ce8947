//! The file system against a plain model, with power cuts, planted faults and damaged disks.

mod cuts;
mod disk;
mod fuzz;
mod journal;
mod model;
mod plain;
mod prefix;
mod steps;
mod unawaited;
