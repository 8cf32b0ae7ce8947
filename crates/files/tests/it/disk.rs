//! A disk that may be cut between any two of its requests, and one whose flushes take long.

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

/// A disk whose flushes that were begun are over when somebody has looked so often. Nobody may
/// write meanwhile.
#[derive(Clone)]
pub struct Late<D> {
    pub disk: D,
    /// Looks that find it under way.
    pub looks: u64,
    left: Option<u64>,
}

impl<D> Late<D> {
    pub fn new(disk: D, looks: u64) -> Late<D> {
        Late { disk, looks, left: None }
    }
}

impl<D: Disk> Disk for Late<D> {
    fn blocks(&self) -> u64 {
        self.disk.blocks()
    }

    fn read(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), DiskError> {
        self.disk.read(at, bytes)
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), DiskError> {
        assert_eq!(self.left, None, "a flush is under way");
        self.disk.write(at, bytes)
    }

    fn flush(&mut self) -> Result<(), DiskError> {
        assert_eq!(self.left, None, "a flush is under way");
        self.disk.flush()
    }

    fn trim(&mut self, at: u64, blocks: u64) -> Result<(), DiskError> {
        assert_eq!(self.left, None, "a flush is under way");
        self.disk.trim(at, blocks)
    }

    fn begin_flush(&mut self) -> Result<(), DiskError> {
        assert_eq!(self.left, None, "a flush is under way");
        self.left = Some(self.looks);
        Ok(())
    }

    fn flushed(&mut self, wait: bool) -> Result<bool, DiskError> {
        match self.left {
            Some(left @ 1..) if !wait => {
                self.left = Some(left - 1);
                Ok(false)
            }
            Some(_) => {
                self.left = None;
                self.disk.flush().map(|()| true)
            }
            None => Ok(true),
        }
    }
}
