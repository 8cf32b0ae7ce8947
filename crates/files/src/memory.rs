//! A disk in memory. A clone shares all blocks with its original until one of them is written.

use std::sync::Arc;

use crate::disk::{BLOCK, Disk, DiskError, Page, Request, within};

/// Blocks whose pages are shared together.
const GROUP: usize = 128;

type Group = [Option<Page>; GROUP];

/// A disk in memory. Blocks that were never written are zeros, and take no room. A flush does
/// nothing: what is written is there.
#[derive(Clone, Debug)]
pub struct Memory {
    blocks: u64,
    groups: Vec<Option<Arc<Group>>>,
}

impl Memory {
    /// A disk of zeros.
    pub fn new(blocks: u64) -> Memory {
        Memory { blocks, groups: vec![None; (blocks as usize).div_ceil(GROUP)] }
    }

    /// The block, if it is not zeros. It exists.
    pub fn page(&self, at: u64) -> Option<&Page> {
        self.groups[at as usize / GROUP].as_ref()?[at as usize % GROUP].as_ref()
    }

    /// Sets a block that exists, to zeros if there is no page.
    pub fn set(&mut self, at: u64, page: Option<Page>) {
        let group = &mut self.groups[at as usize / GROUP];
        if page.is_none() && group.is_none() {
            return;
        }
        let group = group.get_or_insert_with(|| Arc::new([const { None }; GROUP]));
        Arc::make_mut(group)[at as usize % GROUP] = page;
    }
}

impl Disk for Memory {
    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn read(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), DiskError> {
        within(self.blocks, Request::Read, at, bytes.len())?;
        for (n, block) in bytes.chunks_exact_mut(BLOCK).enumerate() {
            match self.page(at + n as u64) {
                Some(page) => block.copy_from_slice(&page[..]),
                None => block.fill(0),
            }
        }
        Ok(())
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), DiskError> {
        within(self.blocks, Request::Write, at, bytes.len())?;
        for (n, block) in bytes.chunks_exact(BLOCK).enumerate() {
            let block: &[u8; BLOCK] = block.try_into().expect("a block");
            self.set(at + n as u64, Some(Arc::new(*block)));
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), DiskError> {
        Ok(())
    }

    fn trim(&mut self, at: u64, blocks: u64) -> Result<(), DiskError> {
        within(self.blocks, Request::Trim, at, (blocks as usize).saturating_mul(BLOCK))?;
        for block in at..at + blocks {
            self.set(block, None);
        }
        Ok(())
    }
}
