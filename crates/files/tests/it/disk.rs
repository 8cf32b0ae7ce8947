//! A disk that may be cut between any two of its requests.

use std::cell::RefCell;

use files::{Disk, DiskError, Memory, Recorder};

/// Remembers what it was before some of its requests.
#[derive(Clone)]
pub struct Cuttable {
    pub disk: Recorder,
    /// What it was then, until somebody takes it.
    pub moments: RefCell<Vec<Recorder>>,
    /// Every so many requests, or never if 0.
    pub every: u64,
    requests: u64,
}

impl Cuttable {
    pub fn new(disk: Memory, every: u64) -> Cuttable {
        Cuttable { disk: Recorder::new(disk), moments: RefCell::default(), every, requests: 0 }
    }

    fn look(&mut self) {
        self.requests += 1;
        if self.every > 0 && self.requests.is_multiple_of(self.every) {
            self.moments.get_mut().push(self.disk.clone());
        }
    }
}

impl Disk for Cuttable {
    fn blocks(&self) -> u64 {
        self.disk.blocks()
    }

    fn read(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), DiskError> {
        self.disk.read(at, bytes)
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.look();
        self.disk.write(at, bytes)
    }

    fn flush(&mut self) -> Result<(), DiskError> {
        self.look();
        self.disk.flush()
    }

    fn trim(&mut self, at: u64, blocks: u64) -> Result<(), DiskError> {
        self.look();
        self.disk.trim(at, blocks)
    }
}
