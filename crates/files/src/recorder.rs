//! A disk that remembers what a power cut may take: every write since the last flush.

use std::sync::Arc;

use crate::disk::{BLOCK, Disk, DiskError, Page};
use crate::memory::Memory;

/// Sectors of 512 bytes in a block: what a disk writes whole.
pub const SECTORS: usize = 8;

/// What becomes of a write in a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is not there.
    Lost,
    /// It is there.
    Kept,
    /// Those sectors of it are there whose bits are set.
    Torn(u8),
}

/// A disk in memory, and beside it what of it would outlive a cut.
#[derive(Clone, Debug)]
pub struct Recorder {
    durable: Memory,
    current: Memory,
    unflushed: Vec<(u64, Option<Page>)>,
}

impl Recorder {
    /// A disk of which all is durable.
    pub fn new(durable: Memory) -> Recorder {
        Recorder { current: durable.clone(), durable, unflushed: Vec::new() }
    }

    /// The blocks written since the last flush, in order. One may be there several times.
    pub fn unflushed(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.unflushed.iter().map(|write| write.0)
    }

    /// What a cut leaves, if `fate` is what becomes of the write with that number. Of several
    /// writes to a block the last one counts that got through.
    pub fn cut(&self, mut fate: impl FnMut(usize) -> Fate) -> Memory {
        let mut left = self.durable.clone();
        for (n, (at, page)) in self.unflushed.iter().enumerate() {
            match fate(n) {
                Fate::Lost => {}
                Fate::Kept => left.set(*at, page.clone()),
                Fate::Torn(sectors) => {
                    let mix = mixed(left.page(*at), page.as_ref(), sectors);
                    left.set(*at, Some(mix));
                }
            }
        }
        left
    }
}

/// The new sectors whose bits are set, and the old others.
fn mixed(old: Option<&Page>, new: Option<&Page>, sectors: u8) -> Page {
    let mut mix = old.map_or([0; BLOCK], |page| **page);
    let size = BLOCK / SECTORS;
    for at in (0..SECTORS).filter(|n| sectors >> n & 1 == 1).map(|n| n * size) {
        match new {
            Some(page) => mix[at..at + size].copy_from_slice(&page[at..at + size]),
            None => mix[at..at + size].fill(0),
        }
    }
    Arc::new(mix)
}

impl Disk for Recorder {
    fn blocks(&self) -> u64 {
        self.current.blocks()
    }

    fn read(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), DiskError> {
        self.current.read(at, bytes)
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.current.write(at, bytes)?;
        let blocks = at..at + (bytes.len() / BLOCK) as u64;
        self.unflushed.extend(blocks.map(|at| (at, self.current.page(at).cloned())));
        Ok(())
    }

    fn flush(&mut self) -> Result<(), DiskError> {
        self.durable = self.current.clone();
        self.unflushed.clear();
        Ok(())
    }

    fn trim(&mut self, at: u64, blocks: u64) -> Result<(), DiskError> {
        self.current.trim(at, blocks)?;
        self.unflushed.extend((at..at + blocks).map(|at| (at, None)));
        Ok(())
    }
}
