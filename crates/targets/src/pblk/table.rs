//! The chunk table: what a checkpoint says of each chunk.
//!
//! An entry tells a chunk's life by its wear, what it was for, and from which
//! block on it was written after the checkpoint began. Recovery compares it
//! with what the drive says of the chunk, and so finds what to read.

use port::{BLOCK_BYTES, Lazy, OutOfMemory};

/// Bytes of an entry.
const ENTRY_BYTES: usize = 16;

/// Entries of a page.
pub(super) const PAGE_ENTRIES: usize = BLOCK_BYTES as usize / ENTRY_BYTES;

/// What a chunk was for when a checkpoint began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Use {
    /// Nothing: erased, or given up, or kept for roots.
    #[default]
    None = 0,
    /// Data of the user or of collection.
    Data = 1,
    /// The target's own blocks.
    Own = 2,
}

/// What the table says of a chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    /// Erases, as the drive said.
    pub wear: u32,
    /// What it was for.
    pub used: Use,
    /// Blocks from here on were written after the checkpoint began.
    pub next: u32,
    /// Its age: the number of the last user row that had one when it was
    /// closed, or would be now.
    pub age: u64,
}

impl Entry {
    fn store(self, to: &mut [u8]) {
        to[..4].copy_from_slice(&self.wear.to_le_bytes());
        to[4..8].copy_from_slice(&(self.next << 2 | self.used as u32).to_le_bytes());
        to[8..16].copy_from_slice(&self.age.to_le_bytes());
    }

    /// The entry at the start of `bytes`.
    pub fn load(bytes: &[u8]) -> Entry {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let used = match word(4) & 3 {
            0 => Use::None,
            1 => Use::Data,
            _ => Use::Own,
        };
        Entry { wear: word(0), used, next: word(4) >> 2, age: ftl::bytes::word(bytes, 8) }
    }
}

/// The table as the last checkpoint wrote it, or the next one will.
pub(super) struct Table {
    bytes: Lazy<u8>,
    dirty: Vec<bool>,
}

impl Table {
    /// A table of `chunks` entries of which nothing is known.
    pub fn new(chunks: usize) -> Result<Table, OutOfMemory> {
        let pages = chunks.div_ceil(PAGE_ENTRIES);
        let bytes = Lazy::zeroed(pages * BLOCK_BYTES as usize, "the target's table of chunks")?;
        Ok(Table { bytes, dirty: vec![false; pages] })
    }

    /// Pages of a table of `chunks` entries.
    pub fn pages_of(chunks: usize) -> u64 {
        chunks.div_ceil(PAGE_ENTRIES) as u64
    }

    pub fn get(&self, chunk: usize) -> Entry {
        Entry::load(&self.bytes[chunk * ENTRY_BYTES..])
    }

    /// Changes an entry.
    pub fn set(&mut self, chunk: usize, entry: Entry) {
        let mut bytes = [0; ENTRY_BYTES];
        entry.store(&mut bytes);
        let held = &mut self.bytes[chunk * ENTRY_BYTES..(chunk + 1) * ENTRY_BYTES];
        if held != bytes {
            held.copy_from_slice(&bytes);
            self.dirty[chunk / PAGE_ENTRIES] = true;
        }
    }

    /// Takes the next page from `from` on that changed.
    pub fn take_dirty(&mut self, from: u64) -> Option<u64> {
        let at = (from as usize..self.dirty.len()).find(|&page| self.dirty[page])?;
        self.dirty[at] = false;
        Some(at as u64)
    }

    /// Pages that changed.
    pub fn dirty_pages(&self) -> u64 {
        self.dirty.iter().filter(|&&dirty| dirty).count() as u64
    }

    /// A page is to be written again.
    pub fn touch(&mut self, page: u64) {
        self.dirty[page as usize] = true;
    }

    /// The bytes of a page.
    pub fn page(&self, page: u64) -> &[u8] {
        let block = BLOCK_BYTES as usize;
        &self.bytes[page as usize * block..(page as usize + 1) * block]
    }

    /// Takes a page that was read.
    pub fn load(&mut self, page: u64, bytes: &[u8]) {
        let block = BLOCK_BYTES as usize;
        self.bytes[page as usize * block..(page as usize + 1) * block].copy_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn entries_read_back(wear: u32, next in 0u32..1 << 30, age: u64, used in 0u8..3, at in 0usize..600) {
            let used = [Use::None, Use::Data, Use::Own][used as usize];
            let entry = Entry { wear, used, next, age };
            let mut table = Table::new(600).unwrap();
            table.set(at, entry);
            prop_assert_eq!(table.get(at), entry);
            let page = (at / PAGE_ENTRIES) as u64;
            let dirty = table.take_dirty(0);
            prop_assert_eq!(dirty, (entry != Entry::default()).then_some(page));
            prop_assert_eq!(table.take_dirty(0), None);
            let mut other = Table::new(600).unwrap();
            other.load(page, table.page(page));
            prop_assert_eq!(other.get(at), entry);
        }
    }
}
