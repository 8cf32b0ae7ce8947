//! The deadline scheduler: by address, but not for ever.
//!
//! After Linux's mq-deadline. Reads are sorted by address apart from writes
//! (with which write-zeroes go). They go out in batches of `fifo_batch` of one
//! direction, each upwards from where that direction's last one ended. Reads
//! go first; after `writes_starved` batches of reads while a write waited
//! there is one of writes. A batch starts at its direction's oldest request
//! when that has expired, or when nothing lies further up.
//!
//! What has no place among addresses here, flushes and trims, goes in the
//! order in which it came, as a write: while any waits, every other batch of
//! writes starts with one.
//!
//! Guarantees: once it has expired, the oldest of its direction goes out after
//! at most two batches if it is a read (and `writes_starved` is not 0: then
//! writes always go first, as Linux has it), and after at most
//! `2 * (writes_starved + 1)` batches if it is a write. Of two that start at
//! one address in one direction, the one staged first goes first. Two that
//! merely overlap have no order.

use std::cmp::Ordering;

use port::lazy::{room_for, table};
use port::{BlockOp, BlockReq, OutOfMemory, Time};

use super::links::{Links, List};
use super::{DeadlineOptions, WHAT};
use crate::error::ConfigError;
use crate::merge::end;
use crate::staging::Table;

const READ: usize = 0;
const WRITE: usize = 1;

/// A direction.
#[derive(Debug)]
struct Way {
    sorted: Sorted,
    /// All in `sorted`, oldest first.
    oldest: List,
    /// A request this old, in ns, has expired.
    expire: u64,
}

/// The scheduler.
#[derive(Debug)]
pub(crate) struct Deadline {
    links: Links,
    /// The reads and the writes.
    ways: [Way; 2],
    unsorted: List,
    /// The last batch of writes began with an unsorted one.
    loose: bool,
    /// The direction of this batch, and how many went out in it.
    way: usize,
    batch: u32,
    fifo_batch: u32,
    /// Batches of reads since a write waited.
    starved: u32,
    writes_starved: u32,
}

impl Deadline {
    /// For at most `depth` requests.
    pub fn new(options: DeadlineOptions, depth: usize) -> Result<Deadline, ConfigError> {
        let DeadlineOptions { read_expire, write_expire, writes_starved, fifo_batch } = options;
        ConfigError::range("fifo_batch", fifo_batch as usize, 1, u32::MAX as usize)?;
        let way = |expire| -> Result<Way, ConfigError> {
            Ok(Way { sorted: Sorted::new(depth)?, oldest: List::EMPTY, expire })
        };
        Ok(Deadline {
            links: Links::new(depth)?,
            ways: [way(read_expire)?, way(write_expire)?],
            unsorted: List::EMPTY,
            loose: false,
            way: READ,
            batch: 0,
            fifo_batch,
            starved: 0,
            writes_starved,
        })
    }

    /// Bytes of memory that it takes.
    pub fn bytes(depth: usize) -> u64 {
        let sorted = (size_of::<u32>() + size_of::<u64>()) as u64 * depth as u64;
        Links::bytes(depth) + 2 * sorted
    }

    /// Puts entry `slot` in.
    pub fn push(&mut self, slot: u32, req: &BlockReq) {
        let Some(way) = way(req.op) else {
            return self.links.push(&mut self.unsorted, slot);
        };
        self.ways[way].sorted.insert(slot, req.offset);
        self.links.push(&mut self.ways[way].oldest, slot);
    }

    /// Takes the entry that goes out next.
    pub fn pop(&mut self, now: Time, table: &Table) -> Option<u32> {
        let going_on = match self.batch < self.fifo_batch {
            true => self.ways[self.way].ahead(),
            false => None,
        };
        let slot = match going_on {
            Some(slot) => slot,
            None => self.start(now, table)?,
        };
        self.batch += 1;
        let req = &table[slot].out.req;
        match way(req.op) {
            Some(way) => {
                let way = &mut self.ways[way];
                way.sorted.leave(slot, end(req));
                self.links.remove(&mut way.oldest, slot);
            }
            None => self.links.remove(&mut self.unsorted, slot),
        }
        Some(slot)
    }

    /// Starts a batch and gives its first entry.
    fn start(&mut self, now: Time, table: &Table) -> Option<u32> {
        let reads = self.ways[READ].oldest.head().is_some();
        let writes = self.ways[WRITE].oldest.head().or(self.unsorted.head()).is_some();
        self.way = match (reads, writes) {
            (false, false) => return None,
            (true, false) => READ,
            (false, true) => WRITE,
            (true, true) if self.starved >= self.writes_starved => WRITE,
            (true, true) => {
                self.starved += 1;
                READ
            }
        };
        self.batch = 0;
        if self.way == READ {
            return self.ways[READ].first(now, table);
        }
        self.starved = 0;
        let sorted = self.ways[WRITE].first(now, table);
        self.loose = self.unsorted.head().is_some() && (!self.loose || sorted.is_none());
        if self.loose { self.unsorted.head() } else { sorted }
    }

    /// The entries of `req`'s direction that start closest before it and that
    /// start where it ends. None when one starts inside it.
    pub fn beside(&self, req: &BlockReq) -> [Option<u32>; 2] {
        let Some(way) = way(req.op) else { return [None; 2] };
        let sorted = &self.ways[way].sorted;
        let at = sorted.below(req.offset);
        match sorted.key(at).map(|key| key.cmp(&end(req))) {
            Some(Ordering::Less) => [None; 2],
            Some(Ordering::Equal) => [sorted.before(at), Some(sorted.slots[at])],
            Some(Ordering::Greater) | None => [sorted.before(at), None],
        }
    }

    /// The address of entry `slot` is now that of `req`.
    pub fn readdress(&mut self, slot: u32, req: &BlockReq) {
        if let Some(way) = way(req.op) {
            let sorted = &mut self.ways[way].sorted;
            sorted.remove(slot);
            sorted.insert(slot, req.offset);
        }
    }
}

/// The direction of an operation that is sorted.
#[inline]
fn way(op: BlockOp) -> Option<usize> {
    match op {
        BlockOp::Read => Some(READ),
        BlockOp::Write | BlockOp::WriteZeroes => Some(WRITE),
        BlockOp::Flush | BlockOp::Trim => None,
    }
}

impl Way {
    /// The next entry upwards.
    #[inline]
    fn ahead(&self) -> Option<u32> {
        self.sorted.slots.get(self.sorted.passed).copied()
    }

    /// The entry with which a batch starts.
    fn first(&self, now: Time, table: &Table) -> Option<u32> {
        let oldest = self.oldest.head()?;
        if now.since(table[oldest].out.submitted) >= self.expire {
            return Some(oldest);
        }
        self.ahead().or(Some(oldest))
    }
}

/// Entries sorted by address, then by when they came.
#[derive(Debug)]
struct Sorted {
    slots: Vec<u32>,
    /// Each entry's address.
    keys: Box<[u64]>,
    /// Where the last that went out ended.
    position: u64,
    /// How many lie below that.
    passed: usize,
}

impl Sorted {
    fn new(depth: usize) -> Result<Sorted, OutOfMemory> {
        let keys = table(0, depth, WHAT)?;
        Ok(Sorted { slots: room_for(depth, WHAT)?, keys, position: 0, passed: 0 })
    }

    fn key(&self, at: usize) -> Option<u64> {
        self.slots.get(at).map(|&slot| self.keys[slot as usize])
    }

    /// How many have an address below `key`.
    fn below(&self, key: u64) -> usize {
        self.slots.partition_point(|&slot| self.keys[slot as usize] < key)
    }

    /// The entry in front of place `at`.
    fn before(&self, at: usize) -> Option<u32> {
        at.checked_sub(1).map(|at| self.slots[at])
    }

    /// Puts an entry behind those at its address. There is room: the vector
    /// is as long as the table.
    fn insert(&mut self, slot: u32, key: u64) {
        let at = self.slots.partition_point(|&other| self.keys[other as usize] <= key);
        self.keys[slot as usize] = key;
        self.slots.insert(at, slot);
        self.passed += usize::from(key < self.position);
    }

    /// Where an entry is. It is the first at its address, but for those that
    /// were merged in front.
    fn find(&self, slot: u32) -> usize {
        let from = self.below(self.keys[slot as usize]);
        let behind = self.slots[from..].iter().position(|&other| other == slot);
        from + behind.expect("what is looked for is there")
    }

    /// Takes an entry out that stays staged.
    fn remove(&mut self, slot: u32) {
        let at = self.find(slot);
        self.slots.remove(at);
        self.passed -= usize::from(at < self.passed);
    }

    /// Takes an entry out that goes out, and ends at `end`.
    fn leave(&mut self, slot: u32, end: u64) {
        let going_on = self.slots.get(self.passed) == Some(&slot);
        let at = if going_on { self.passed } else { self.find(slot) };
        self.slots.remove(at);
        self.position = end;
        // Going on, all that is in front lies below.
        let next = going_on && self.key(at).is_none_or(|key| key >= end);
        self.passed = if next { at } else { self.below(end) };
    }
}

#[cfg(test)]
mod tests;
