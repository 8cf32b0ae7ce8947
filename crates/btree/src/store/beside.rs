//! The blocks beside a store's pages, behind them on a block drive: the tree
//! keeps its redo log there ([`crate::redo`]).
//!
//! Guarantees: a write of them is durable when it completes, block by block;
//! each block is sealed as a page would be whose number is behind all pages.
//! At most one write is under way.

use port::Buffer;

use super::blocks::buffer;
use super::{StoreError, seal};
use crate::page::PAGE_BYTES;

/// Blocks of a drive that are no pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beside {
    /// The first, as the drive counts.
    pub first: u64,
    /// How many there are.
    pub blocks: u64,
}

/// Least blocks of a redo log, and most.
pub const LEAST_REDO: u64 = 16;
const MOST_REDO: u64 = 1 << 18;

impl Beside {
    /// The last `blocks` of a drive of so many.
    pub(super) fn of(total: u64, blocks: u64) -> Result<Beside, StoreError> {
        let fits = blocks == 0 || (LEAST_REDO..=MOST_REDO.min(total / 2)).contains(&blocks);
        if !fits {
            let range = "0, or 16 to half of the drive, and at most 1 GiB";
            return Err(StoreError::Shape { what: "blocks of the redo log", value: blocks, range });
        }
        Ok(Beside { first: total - blocks, blocks })
    }

    /// How many blocks a redo log of a drive of `blocks` best has: a sixteenth,
    /// between 1 and 64 MiB.
    pub fn best(blocks: u64) -> u64 {
        (blocks / 16).clamp(256, 16384)
    }
}

/// The buffer for a write of them, in parts where the last block is followed by
/// the first.
pub(super) struct Writing {
    /// Both parts and what is behind them, those that are here.
    parts: [Option<Buffer>; 3],
    id: u32,
    left: u8,
}

impl Writing {
    /// For writes of `most` blocks.
    pub(super) fn new(most: usize) -> Result<Writing, StoreError> {
        let whole = if most == 0 { Buffer::empty() } else { buffer(most * PAGE_BYTES)? };
        Ok(Writing { parts: [Some(whole), None, None], id: 0, left: 0 })
    }

    /// Whether none is under way.
    pub(super) fn is_free(&self) -> bool {
        self.left == 0
    }

    /// Begins the write `id` of `count` blocks from number `at` on of `blocks`, which
    /// are sealed from `seal_from` on. Calls `write` with each part: its
    /// number, its first block and its buffer.
    pub(super) fn begin(
        &mut self,
        (id, seal_from): (u32, u64),
        (at, count, blocks): (u64, usize, u64),
        copy: &mut dyn FnMut(usize, &mut [u8]),
        mut write: impl FnMut(u8, u64, Buffer),
    ) {
        let mut buffer = self.parts[0].take().expect("no other is under way");
        for (i, body) in buffer.bytes_mut().chunks_exact_mut(PAGE_BYTES).take(count).enumerate() {
            copy(i, body);
            seal(seal_from + (at + i as u64) % blocks, body);
        }
        let first = count.min((blocks - at) as usize);
        let front = buffer.split_to(first * PAGE_BYTES);
        (self.id, self.left) = (id, 1);
        write(0, at, front);
        if first < count {
            let behind = buffer.split_to((count - first) * PAGE_BYTES);
            self.left = 2;
            write(1, 0, behind);
        }
        self.parts[2] = Some(buffer);
    }

    /// A part is back. Gives the write's number when all are.
    pub(super) fn end(&mut self, part: u8, buffer: Buffer) -> Option<u32> {
        self.parts[usize::from(part)] = Some(buffer);
        self.left -= 1;
        if self.left > 0 {
            return None;
        }
        let mut whole = self.parts[0].take().expect("the first part is back");
        for rest in self.parts.iter_mut().filter_map(Option::take).filter(|rest| !rest.is_empty()) {
            let joined = whole.join(rest);
            assert!(joined.is_ok(), "they adjoin");
        }
        self.parts[0] = Some(whole);
        Some(self.id)
    }
}
