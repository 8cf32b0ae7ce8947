//! Stripes that are being written, and the superblocks that they are of.
//!
//! The exclusive or of a stripe is gathered as its rows are sent. When all of
//! them are programmed, and not before, it is programmed as the parity row: so
//! where there is a parity row it is of what is there, whenever the power goes.
//!
//! Both tables are bounded. Where all open slots are taken the one that has
//! not been used for longest is given up, if nothing is on its way to it; its
//! last stripe is read again when it goes on.

use device::Content;
use flash::TAG_BYTES;
use port::{BLOCK_BYTES, Buffer, OutOfMemory, Scratch, Slots};

use crate::superblock::Stored;

/// A superblock that is being written.
#[derive(Default)]
pub(crate) struct Open {
    pub sb: usize,
    /// Its stripes without parity, oldest first.
    pub stripes: std::collections::VecDeque<u32>,
    /// When it was last written, by a count of writes.
    pub used: u64,
    pub taken: bool,
}

/// A stripe without parity.
#[derive(Default)]
pub(crate) struct Stripe {
    pub sb: usize,
    /// Which of the superblock.
    pub number: u32,
    /// Blocks of data that are not programmed.
    pub left: u32,
    /// The command that wrote its last row, and completes with its parity.
    pub owner: Option<u32>,
    /// Its parity row is on its way.
    pub sent: bool,
    /// Whether it is stored whole.
    pub whole: bool,
    /// The exclusive or so far: data, then tags.
    pub sum: Buffer,
    /// What `sum` is cut from.
    memory: Scratch,
}

impl Stripe {
    /// Bytes of data that a block has in the sum.
    pub fn each(&self, kept: usize) -> usize {
        if self.whole { BLOCK_BYTES as usize } else { kept }
    }

    /// How its parity is stored.
    pub fn content(&self) -> Content {
        if self.whole { Content::Whole } else { Content::Tagged }
    }

    /// Adds blocks from `in_row` on: their data and tags; no tags are zeros.
    pub fn add(&mut self, kept: usize, row: usize, in_row: usize, data: &[u8], tags: &[u8]) {
        let each = self.each(kept);
        let sum = self.sum.bytes_mut();
        xor(&mut sum[in_row * each..][..data.len()], data);
        xor(&mut sum[row * each + in_row * TAG_BYTES..][..tags.len()], tags);
    }
}

/// Adds `from` to `to`, without carry.
pub(crate) fn xor(to: &mut [u8], from: &[u8]) {
    debug_assert_eq!(to.len(), from.len());
    to.iter_mut().zip(from).for_each(|(to, from)| *to ^= from);
}

/// The tables.
pub(crate) struct Stripes {
    pub opens: Slots<Open>,
    pub table: Slots<Stripe>,
    open_count: u32,
    writes: u64,
    row: usize,
    kept: usize,
}

/// How many superblocks may be open over so many units, and their stripes.
fn counts(units: u32) -> (u32, usize) {
    let open = 4 * units + 16;
    (open, 2 * open as usize + device::MAX_ADDRESSES)
}

impl Stripes {
    /// Bytes of memory that they take.
    pub fn tables(units: u32, row: u32) -> u64 {
        let (open, stripes) = counts(units);
        let row = u64::from(row) * (BLOCK_BYTES + TAG_BYTES as u64);
        let lists = u64::from(open) * (stripes * size_of::<u32>() + size_of::<Open>()) as u64;
        stripes as u64 * (row + size_of::<Stripe>() as u64) + lists
    }

    pub fn new(units: u32, row: u32, kept: u32) -> Result<Stripes, OutOfMemory> {
        let (open_count, stripes) = counts(units);
        let row = row as usize;
        let mut table: Slots<Stripe> = Slots::new(stripes);
        let memory = Buffer::carve(stripes, row * (BLOCK_BYTES as usize + TAG_BYTES))?;
        for (id, buffer) in (0..).zip(memory) {
            table[id].memory = Scratch::new(buffer);
        }
        let mut opens: Slots<Open> = Slots::new(open_count as usize);
        for id in 0..open_count {
            opens[id].stripes.reserve(stripes);
        }
        Ok(Stripes { opens, table, open_count, writes: 0, row, kept: kept as usize })
    }

    /// Opens a superblock. The caller saw room.
    pub fn open(&mut self, sb: usize) -> u32 {
        let id = self.opens.take_as_is();
        self.writes += 1;
        let open = &mut self.opens[id];
        (open.sb, open.used, open.taken) = (sb, self.writes, true);
        open.stripes.clear();
        id
    }

    /// Forgets the oldest stripe of an open superblock, and gives its owner.
    /// One whose parity is on its way is left to its completion, and has none
    /// to give. `None` when there is no stripe any more: the slot is free.
    pub fn close_one(&mut self, id: u32) -> Option<Option<u32>> {
        let Some(stripe) = self.opens[id].stripes.pop_front() else {
            self.opens[id].taken = false;
            self.opens.give(id);
            return None;
        };
        if self.table[stripe].sent {
            return Some(None);
        }
        let owner = self.table[stripe].owner.take();
        self.give(stripe);
        Some(owner)
    }

    /// Notes that an open superblock is written.
    pub fn touch(&mut self, id: u32) {
        self.writes += 1;
        self.opens[id].used = self.writes;
    }

    /// The open superblock that has not been written for longest, of those
    /// that `may` be closed.
    pub fn oldest(&self, may: impl Fn(usize) -> bool) -> Option<u32> {
        let open = (0..self.open_count).filter(|&id| self.opens[id].taken);
        open.filter(|&id| may(self.opens[id].sb)).min_by_key(|&id| self.opens[id].used)
    }

    /// Begins a stripe, its sum zero. The caller saw room.
    pub fn begin(&mut self, sb: usize, number: u32, left: u32, stored: Stored) -> u32 {
        let id = self.table.take_as_is();
        let stripe = &mut self.table[id];
        (stripe.sb, stripe.number, stripe.left) = (sb, number, left);
        (stripe.owner, stripe.sent) = (None, false);
        stripe.whole = stored == Stored::Whole && self.kept < BLOCK_BYTES as usize;
        let bytes = self.row * (stripe.each(self.kept) + TAG_BYTES);
        stripe.sum = stripe.memory.take(bytes);
        stripe.sum.bytes_mut().fill(0);
        id
    }

    /// Gives a stripe back.
    pub fn give(&mut self, id: u32) {
        let stripe = &mut self.table[id];
        stripe.memory.give(std::mem::take(&mut stripe.sum));
        self.table.give(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_gives_back_what_is_missing() {
        let mut stripes = Stripes::new(1, 2, 8).unwrap();
        let id = stripes.begin(0, 0, 4, Stored::Kept);
        let (a, b, tag) = ([1; 8], [2; 8], [7; 16]);
        stripes.table[id].add(8, 2, 1, &a, &tag);
        stripes.table[id].add(8, 2, 1, &b, &[]);
        let sum = stripes.table[id].sum.bytes();
        assert_eq!((&sum[..8], &sum[8..16]), (&[0; 8][..], &[3; 8][..]));
        assert_eq!((&sum[16..32], &sum[32..]), (&[0; 16][..], &[7; 16][..]));
        stripes.give(id);
        let id = stripes.begin(0, 0, 4, Stored::Whole);
        let stripe = &stripes.table[id];
        assert_eq!(stripe.sum.bytes(), vec![0; 2 * (4096 + 16)]);
        assert_eq!(stripe.content(), Content::Whole);
    }

    #[test]
    fn the_oldest_is_given_up() {
        let mut stripes = Stripes::new(1, 2, 8).unwrap();
        let (a, b) = (stripes.open(10), stripes.open(11));
        stripes.touch(a);
        assert_eq!(stripes.oldest(|_| true), Some(b));
        assert_eq!(stripes.oldest(|sb| sb == 10), Some(a));
        let stripe = stripes.begin(11, 0, 4, Stored::Kept);
        stripes.table[stripe].owner = Some(5);
        stripes.opens[b].stripes.push_back(stripe);
        assert_eq!(stripes.close_one(b), Some(Some(5)));
        assert_eq!(stripes.close_one(b), None);
        assert_eq!(stripes.table.live(), 0);
        assert_eq!(stripes.oldest(|_| true), Some(a));
    }
}
