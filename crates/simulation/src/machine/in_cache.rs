//! What a protected cache may still have: a bound from the outside.
//!
//! Its journal is a ring: what was answered is out of it when as many bytes came
//! after it as it has. A request that was never answered, or failed, may be in
//! it from the time on at which it was sent.

use std::collections::VecDeque;

use super::MOST_AT_ONCE;
use crate::setup::Setup;
use crate::stack::protected_bytes;

/// Bytes of an entry's head; all of it is a multiple of that.
const ENTRY: u64 = 64;

/// Bytes of the journal that hold no entries.
const STATE: u64 = 4096;

/// Blocks that a request changed, and what had been answered by then.
#[derive(Clone, Copy, Debug)]
struct Written {
    block: u64,
    blocks: u64,
    /// Of its entry.
    bytes: u64,
    at: u64,
}

fn entry(data: u64) -> u64 {
    (ENTRY + data).next_multiple_of(ENTRY)
}

/// What the cache may have.
pub(super) struct InCache {
    /// None where there is no cache.
    bytes: Option<u64>,
    /// Bytes of entries that were answered.
    answered: u64,
    under_way: [Option<Written>; MOST_AT_ONCE],
    /// Oldest first.
    written: VecDeque<Written>,
}

impl InCache {
    /// That of a setup, empty.
    pub fn of(setup: &Setup) -> InCache {
        // Requests are answered in another order than they came.
        let longest = entry(setup.work.blocks * u64::from(setup.kept));
        let bytes = protected_bytes(setup.kept) as u64 - STATE + MOST_AT_ONCE as u64 * longest;
        InCache {
            bytes: setup.protected.then_some(bytes),
            answered: 0,
            under_way: [None; MOST_AT_ONCE],
            written: VecDeque::new(),
        }
    }

    /// A request is sent that changes these blocks and has so many bytes of
    /// data.
    pub fn sent(&mut self, slot: usize, (block, blocks): (u64, u64), data: u64) {
        if self.bytes.is_some() {
            self.under_way[slot] = Some(Written { block, blocks, bytes: entry(data), at: 0 });
        }
    }

    /// It was done: it is in the journal, or was.
    pub fn done(&mut self, slot: usize) {
        let (Some(bytes), Some(written)) = (self.bytes, self.under_way[slot]) else { return };
        self.failed(slot);
        self.answered += written.bytes;
        while self.written.front().is_some_and(|old| old.at + bytes < self.answered) {
            self.written.pop_front();
        }
    }

    /// It failed, and may be in the journal all the same.
    pub fn failed(&mut self, slot: usize) {
        if let Some(written) = self.under_way[slot].take() {
            self.written.push_back(Written { at: self.answered, ..written });
        }
    }

    /// Power went.
    pub fn cut(&mut self) {
        (0..MOST_AT_ONCE).for_each(|slot| self.failed(slot));
    }

    /// Nothing is in the cache.
    pub fn clear(&mut self) {
        self.under_way = [None; MOST_AT_ONCE];
        self.written.clear();
    }

    /// Whether it may have a part of a block, or all.
    pub fn may_have(&self, block: u64) -> bool {
        let holds = |w: &Written| (w.block..w.block + w.blocks).contains(&block);
        self.under_way.iter().flatten().any(holds) || self.written.iter().any(holds)
    }
}
