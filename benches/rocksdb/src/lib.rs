//! RocksDB on an emulated drive, beside ssdkit's key-value store.
//!
//! Files: [`disk`] a block drive that threads share, [`files`] files on it,
//! [`db`] RocksDB on those, [`ycsb`] one run of the benchmark.

pub mod db;
pub mod disk;
pub mod files;
pub mod ycsb;
