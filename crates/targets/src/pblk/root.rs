//! The root: what a checkpoint ends with, and where recovery begins.
//!
//! A root says from which numbers on rows and records are newer than the
//! checkpoint, and where the pages of the directory are. It is written to two
//! *mirrors*, chunks at the beginning of the first two parallel units, one root
//! behind the other; when a chunk is full the mirror goes on with another, whose
//! roots are older. So there is always a whole one.
//!
//! A root is a number of rows. Its blocks' tags have its number, and their own
//! numbers in it. The layout is in `docs/formats.md`.

use ftl::bytes::{is_sealed, put_word, seal, word};
use port::BLOCK_BYTES;

use super::WriteCounters;

/// `ssdkit R`, little-endian.
const MAGIC: u64 = u64::from_le_bytes(*b"ssdkit R");

/// The format.
const VERSION: u64 = 2;

/// Where in the header the checksum is, of all behind it.
const SUM_AT: usize = 16;

/// Bytes before the directory.
const HEADER_BYTES: usize = 256;

/// Where in the header the counters begin.
const COUNTERS_AT: usize = 96;

/// Where in the header `settled` is: at its end, since the counters may grow.
const SETTLED_AT: usize = HEADER_BYTES - 8;

/// What a root says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Root {
    /// Its number, from 1.
    pub number: u64,
    /// Logical blocks of the target.
    pub blocks: u64,
    /// Bytes of a map entry, 4 or 8.
    pub entry: u64,
    /// Chunks of the table.
    pub chunks: u64,
    /// User rows up to this number took no more blocks before the checkpoint.
    pub seq: u64,
    /// Records up to this number are in the pages.
    pub record: u64,
    /// Records up to this number, those behind `record` too, are in the pages
    /// of the map, but not in the copies that were sent since.
    pub settled: u64,
    /// Pages of the log from this number on may have newer records.
    pub log_page: u64,
    /// The target was at rest and nothing came after.
    pub clean: bool,
    /// What was written since the target was made.
    pub counters: WriteCounters,
    /// Where the pages of the directory are.
    pub directory: Vec<u64>,
}

/// Why bytes are no root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoRoot {
    /// Damaged, or something else.
    Damaged,
    /// Of another version of this software.
    Version(u64),
}

impl Root {
    /// Bytes of a root with so many directory pages.
    pub fn bytes(directory: usize) -> usize {
        HEADER_BYTES + 8 * directory
    }

    /// Rows of a root.
    pub fn rows(directory: usize, row_blocks: u32) -> u32 {
        let row = u64::from(row_blocks) * BLOCK_BYTES;
        (Root::bytes(directory) as u64).div_ceil(row) as u32
    }

    /// Writes it to `to`, which is as long as its rows.
    pub fn store(&self, to: &mut [u8]) {
        to.fill(0);
        let words = [
            MAGIC,
            VERSION,
            0,
            Root::bytes(self.directory.len()) as u64,
            self.number,
            self.blocks,
            self.entry,
            self.chunks,
            self.seq,
            self.record,
            self.log_page,
            u64::from(self.clean),
        ];
        let counters = self.counters.words();
        assert!(COUNTERS_AT + 8 * counters.len() <= SETTLED_AT, "counters fit in the header");
        for (i, &word) in words.iter().chain(&counters).enumerate() {
            put_word(to, 8 * i, word);
        }
        put_word(to, SETTLED_AT, self.settled);
        for (i, &word) in self.directory.iter().enumerate() {
            put_word(to, HEADER_BYTES + 8 * i, word);
        }
        let len = Root::bytes(self.directory.len());
        seal(&mut to[..len], SUM_AT);
    }

    /// Reads it.
    pub fn load(from: &[u8]) -> Result<Root, NoRoot> {
        if from.len() < HEADER_BYTES || word(from, 0) != MAGIC {
            return Err(NoRoot::Damaged);
        }
        if word(from, 8) != VERSION {
            return Err(NoRoot::Version(word(from, 8)));
        }
        let len = word(from, 24);
        if len < HEADER_BYTES as u64 || len > from.len() as u64 || !len.is_multiple_of(8) {
            return Err(NoRoot::Damaged);
        }
        let from = &from[..len as usize];
        if !is_sealed(from, SUM_AT) {
            return Err(NoRoot::Damaged);
        }
        let at = |i: usize| word(from, 8 * i);
        let counters = std::array::from_fn(|i| word(from, COUNTERS_AT + 8 * i));
        Ok(Root {
            number: at(4),
            blocks: at(5),
            entry: at(6),
            chunks: at(7),
            seq: at(8),
            record: at(9),
            // Zero in a root that was written without it.
            settled: word(from, SETTLED_AT).max(at(9)),
            log_page: at(10),
            clean: at(11) == 1,
            counters: WriteCounters::from_words(counters),
            directory: from[HEADER_BYTES..].chunks_exact(8).map(|bytes| word(bytes, 0)).collect(),
        })
    }
}

/// One of the places where roots are.
#[derive(Clone, Debug, Default)]
pub(super) struct Mirror {
    /// Chunks that may hold roots, by index.
    pub chunks: Vec<usize>,
    /// The one that is written, of `chunks`, and its next block.
    pub current: usize,
    pub next: u32,
    /// Its last whole root: the number, and the chunk that holds it.
    pub last: Option<(u64, usize)>,
    /// That chunk may be erased for the root under way: the other mirror has a root
    /// as new, which is durable, and keeps it.
    pub may_lose_last: bool,
    /// Rows of the root under way that are programmed.
    pub done: u32,
    /// Rows of padding that follow it.
    pub pads: u32,
    /// A root is under way.
    pub busy: bool,
}

impl Mirror {
    /// Whether it can hold roots.
    pub fn is_usable(&self) -> bool {
        !self.chunks.is_empty()
    }

    /// The chunk that is written.
    pub fn chunk(&self) -> usize {
        self.chunks[self.current]
    }

    /// The number of its last whole root; 0 where it has none.
    pub fn last_number(&self) -> u64 {
        self.last.map_or(0, |(number, _)| number)
    }

    /// Goes on to another chunk, not to that with the last root. False where there
    /// is none.
    pub fn leave_chunk(&mut self) -> bool {
        let count = self.chunks.len();
        let last = self.last.map(|(_, chunk)| chunk);
        let others = (1..=count).map(|i| (self.current + i) % count);
        let other = { others }.find(|&other| Some(self.chunks[other]) != last);
        if let Some(other) = other {
            (self.current, self.next) = (other, 0);
        }
        other.is_some()
    }

    /// A program of the chunk that is written failed: it is used no more. The one
    /// that takes its place may be that with the last root: it is left as if it
    /// were full. `size` is a chunk's blocks.
    pub fn drop_current(&mut self, size: u32) {
        self.next = size;
        self.chunks.remove(self.current);
        // The one before the next in turn.
        self.current = self.current.checked_sub(1).unwrap_or(self.chunks.len().saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn roots_read_back(
            w in any::<[u64; 8]>(),
            clean: bool,
            directory in prop::collection::vec(any::<u64>(), 0..300),
            flip in any::<usize>(),
        ) {
            let root = Root {
                number: w[0], blocks: w[1], entry: w[2], chunks: w[3], seq: w[4], record: w[5],
                settled: w[5].max(w[7]), log_page: w[6], clean, counters: WriteCounters { user: w[0], ..WriteCounters::default() }, directory,
            };
            let rows = Root::rows(root.directory.len(), 2) as usize;
            let mut bytes = vec![1; rows * 8192];
            root.store(&mut bytes);
            prop_assert_eq!(Root::load(&bytes), Ok(root.clone()));
            let flip = flip % (Root::bytes(root.directory.len()) * 8);
            bytes[flip / 8] ^= 1 << (flip % 8);
            prop_assert!(Root::load(&bytes).is_err());
        }

        #[test]
        fn other_bytes_are_no_root(bytes in prop::collection::vec(any::<u8>(), 0..1000)) {
            prop_assert_eq!(Root::load(&bytes), Err(NoRoot::Damaged));
        }
    }
}
