//! Write units: rows being gathered, on their way to flash.
//!
//! A unit holds one row of logical blocks, data first, then tags, just as the
//! write command carries it. A logical block in a unit is a *slot*. Slots of
//! one logical block form a chain from new to old that ends in flash: the map
//! names the newest, each slot names what it replaces. The older copy stays
//! valid until the newer one is programmed, so that a power cut never leaves
//! neither.

use std::collections::VecDeque;

use flash::{Ppa, TAG_BYTES, Tag};
use port::{Buffer, Lender, OutOfMemory};

use super::config::MAX_STREAMS;
use super::map::Place;

/// The logical block number of padding.
pub(super) const PAD: u64 = u64::MAX;

/// A logical block in a unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub lba: u64,
    /// What this copy replaces; for collection, where it was read.
    pub old: Place,
    /// Whether it will be the durable copy once programmed.
    pub live: bool,
}

/// A row being gathered or programmed.
#[derive(Debug, Default)]
pub(super) struct Unit {
    pub buffer: Lender,
    /// Slots in use.
    pub filled: u32,
    /// Its number among the user's, given when it takes no more blocks; 0 before
    /// that, and of collection.
    pub seq: u64,
    /// The stream of the user's that it is of.
    pub stream: u8,
    /// Where it is being programmed.
    pub ppa: Ppa,
    /// It is on its way.
    pub sent: bool,
    /// It was on its way when the checkpoint under way began.
    pub before: bool,
    /// It went where the stripe had room, as the user's do.
    pub striped: bool,
    /// Slots of padding.
    pub padding: u32,
    /// A copy of its row failed: it is to be written.
    pub failed: bool,
}

/// All units: the user's, shared, then two for each parallel unit's
/// collection, then those of rows that are programmed and cannot be read yet.
pub(super) struct Units {
    units: Vec<Unit>,
    slots: Vec<Slot>,
    /// Slots a unit, and the bits of their numbers.
    row: u32,
    row_bits: u32,
    kept: usize,
    user_units: u32,
    /// The user unit being gathered, by stream.
    pub filling: [Option<u32>; MAX_STREAMS],
    /// User units that are free.
    free: Vec<u32>,
    /// User units that have a number and are not yet programmed, oldest first:
    /// whether each is programmed. The first has sequence number `first_seq`.
    outstanding: VecDeque<bool>,
    first_seq: u64,
    next_seq: u64,
}

impl Units {
    /// Of rows of `row` blocks, `held` of them for rows that cannot be read yet.
    pub fn new(user: u32, pus: u32, row: u32, kept: u32, held: u32) -> Result<Units, OutOfMemory> {
        let (total, row_bits) = (user + 2 * pus + held, row.next_power_of_two().trailing_zeros());
        let bytes = row as usize * (kept as usize + TAG_BYTES);
        let units = Buffer::carve(total as usize, bytes)?
            .into_iter()
            .map(|buffer| Unit { buffer: Lender::new(buffer), ..Unit::default() })
            .collect();
        let slot = Slot { lba: PAD, old: Place::UNMAPPED, live: false };
        Ok(Units {
            units,
            slots: vec![slot; (total << row_bits) as usize],
            row,
            row_bits,
            kept: kept as usize,
            user_units: user,
            filling: [None; MAX_STREAMS],
            free: (0..user).rev().collect(),
            outstanding: VecDeque::with_capacity(user as usize + 1),
            first_seq: 1,
            next_seq: 1,
        })
    }

    /// Whether a unit belongs to the user stream.
    #[inline]
    pub fn is_user(&self, unit: u32) -> bool {
        unit < self.user_units
    }

    /// All of them.
    pub fn count(&self) -> u32 {
        self.units.len() as u32
    }

    /// Units of the user stream.
    pub fn of_user(&self) -> u32 {
        self.user_units
    }

    /// One of the two collection units of the parallel unit with rank `rank`.
    #[inline]
    pub fn collection(&self, rank: u32, which: u32) -> u32 {
        self.user_units + 2 * rank + which
    }

    /// The rank of the parallel unit whose collection a unit belongs to.
    #[inline]
    pub fn rank_of(&self, unit: u32) -> usize {
        ((unit - self.user_units) / 2) as usize
    }

    /// Whether a user unit can be begun.
    #[inline]
    pub fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Begins a unit of a stream of the user's.
    #[inline]
    pub fn begin(&mut self, stream: usize) -> Option<u32> {
        let unit = self.free.pop()?;
        let begun = &mut self.units[unit as usize];
        (begun.filled, begun.seq, begun.stream) = (0, 0, stream as u8);
        Some(unit)
    }

    /// A user unit takes no more blocks: it has the next number, and so have its
    /// tags. From here on it is sent in its turn.
    #[inline]
    pub fn number(&mut self, unit: u32) {
        let tags = self.row as usize * self.kept;
        let numbered = &mut self.units[unit as usize];
        numbered.seq = self.next_seq;
        for tag in numbered.buffer.bytes_mut()[tags..].chunks_exact_mut(TAG_BYTES) {
            Tag::store_seq(self.next_seq, tag);
        }
        self.outstanding.push_back(false);
        self.next_seq += 1;
    }

    /// Whether a unit of the user takes more blocks: those that it has can still be
    /// overwritten where they are.
    #[inline]
    pub fn is_gathering(&self, unit: u32) -> bool {
        self.units[unit as usize].seq == 0
    }

    /// Blocks of users in units that take more.
    pub fn gathered(&self) -> u64 {
        self.filling.iter().flatten().map(|&unit| u64::from(self.units[unit as usize].filled)).sum()
    }

    /// A user unit is programmed.
    #[inline]
    pub fn end(&mut self, unit: u32) {
        let at = (self.units[unit as usize].seq - self.first_seq) as usize;
        self.outstanding[at] = true;
        while self.outstanding.front() == Some(&true) {
            self.outstanding.pop_front();
            self.first_seq += 1;
        }
        self.free.push(unit);
    }

    /// Every user unit with a number up to this one is programmed.
    #[inline]
    pub fn durable_seq(&self) -> u64 {
        self.first_seq - 1
    }

    /// The last number that a user unit was given.
    #[inline]
    pub fn last_seq(&self) -> u64 {
        self.next_seq - 1
    }

    /// Numbers go on after `seq`, as found on the drive.
    pub fn continue_after(&mut self, seq: u64) {
        assert!(self.outstanding.is_empty());
        (self.first_seq, self.next_seq) = (seq + 1, seq + 1);
    }

    #[inline]
    pub fn is_full(&self, unit: u32) -> bool {
        self.units[unit as usize].filled == self.row
    }

    /// Adds a slot to a unit. `fill` writes the kept bytes.
    #[inline]
    pub fn add(&mut self, unit: u32, slot: Slot, tag: Tag, fill: impl FnOnce(&mut [u8])) -> u32 {
        let (kept, row) = (self.kept, self.row as usize);
        let u = &mut self.units[unit as usize];
        let at = u.filled as usize;
        assert!(at < row, "the caller saw room");
        u.filled += 1;
        let bytes = u.buffer.bytes_mut();
        fill(&mut bytes[at * kept..(at + 1) * kept]);
        tag.store(&mut bytes[row * kept + at * TAG_BYTES..]);
        let number = self.slot_number(unit, at as u32);
        self.slots[number as usize] = slot;
        number
    }

    /// Fills the rest of a unit with padding. Gives how many slots that took.
    pub fn pad(&mut self, unit: u32) -> u32 {
        let slot = Slot { lba: PAD, old: Place::UNMAPPED, live: false };
        let u = &mut self.units[unit as usize];
        let missing = self.row - u.filled;
        u.padding = missing;
        for _ in 0..missing {
            self.add(unit, slot, Tag { id: PAD, seq: 0 }, |bytes| bytes.fill(0));
        }
        missing
    }

    /// Marks the units that are on their way: a checkpoint begins. Gives how
    /// many they are.
    pub fn mark_sent(&mut self) -> u32 {
        let sent = self.units.iter_mut().filter(|unit| unit.sent);
        sent.map(|unit| unit.before = true).count() as u32
    }

    /// Whether every user unit is programmed, and none is on its way.
    pub fn is_at_rest(&self) -> bool {
        self.outstanding.is_empty() && self.units.iter().all(|unit| !unit.sent)
    }

    /// Makes a slot of a unit that was not sent padding: its copy does not
    /// count any more, and recovery must not find it. Nor could it tell the
    /// newer of two copies with one sequence number.
    pub fn void(&mut self, slot: u32) {
        let (kept, row) = (self.kept, self.row as usize);
        let (unit, at) = self.split(slot);
        let unit = &mut self.units[unit];
        let start = row * kept + at * TAG_BYTES;
        Tag { id: PAD, seq: unit.seq }.store(&mut unit.buffer.bytes_mut()[start..]);
    }

    #[inline]
    pub fn unit(&self, unit: u32) -> &Unit {
        &self.units[unit as usize]
    }

    #[inline]
    pub fn unit_mut(&mut self, unit: u32) -> &mut Unit {
        &mut self.units[unit as usize]
    }

    #[inline]
    pub fn unit_of(&self, slot: u32) -> u32 {
        slot >> self.row_bits
    }

    /// The unit that a slot is in, and its place there.
    #[inline]
    fn split(&self, slot: u32) -> (usize, usize) {
        ((slot >> self.row_bits) as usize, (slot & ((1 << self.row_bits) - 1)) as usize)
    }

    /// The number of slot `i` of a unit.
    #[inline]
    pub fn slot_number(&self, unit: u32, i: u32) -> u32 {
        (unit << self.row_bits) + i
    }

    #[inline]
    pub fn slot(&self, slot: u32) -> &Slot {
        &self.slots[slot as usize]
    }

    #[inline]
    pub fn slot_mut(&mut self, slot: u32) -> &mut Slot {
        &mut self.slots[slot as usize]
    }

    /// The kept bytes of a slot.
    #[inline]
    pub fn data(&self, slot: u32) -> &[u8] {
        let (unit, at) = self.split(slot);
        &self.units[unit].buffer.bytes()[at * self.kept..(at + 1) * self.kept]
    }

    /// The kept bytes of a slot of a unit that is still being gathered.
    #[inline]
    pub fn data_mut(&mut self, slot: u32) -> &mut [u8] {
        let (unit, at) = self.split(slot);
        &mut self.units[unit].buffer.bytes_mut()[at * self.kept..(at + 1) * self.kept]
    }

    /// The tag of a slot.
    pub fn tag(&self, slot: u32) -> Tag {
        let (unit, at) = self.split(slot);
        let start = self.row as usize * self.kept + at * TAG_BYTES;
        Tag::load(&self.units[unit].buffer.bytes()[start..])
    }

    /// One more unit for rows that cannot be read yet.
    pub fn add_held(&mut self) -> Result<u32, OutOfMemory> {
        let bytes = self.row as usize * (self.kept + TAG_BYTES);
        let slots = 1 << self.row_bits;
        // Adding to these must not fail any more when there is the buffer.
        let refused = |what, bytes: usize| {
            let (bytes, source) = (bytes as u64, std::io::ErrorKind::OutOfMemory.into());
            OutOfMemory { what, bytes, source }
        };
        let is_room = self.units.try_reserve(1);
        is_room.map_err(|_| refused("units", self.units.len() * size_of::<Unit>()))?;
        let is_room = self.slots.try_reserve(slots);
        is_room.map_err(|_| refused("slots of units", self.slots.len() * size_of::<Slot>()))?;
        let buffer = Lender::new(Buffer::zeroed(bytes)?);
        self.units.push(Unit { buffer, ..Unit::default() });
        let slot = Slot { lba: PAD, old: Place::UNMAPPED, live: false };
        self.slots.resize(self.units.len() << self.row_bits, slot);
        Ok(self.units.len() as u32 - 1)
    }

    /// A unit takes the bytes of another, which gets its own: it is programmed at
    /// `ppa`, and takes no more blocks.
    pub fn hold(&mut self, held: u32, unit: u32, ppa: Ppa) {
        let units = self.units.get_disjoint_mut([held as usize, unit as usize]);
        let [held, unit] = units.expect("two units");
        std::mem::swap(&mut held.buffer, &mut unit.buffer);
        // Any number but 0 is that of a unit that takes no more.
        (held.ppa, held.seq) = (ppa, u64::MAX);
    }

    /// Copies the kept bytes of one slot to another, in another unit.
    pub fn copy(&mut self, from: u32, to: u32) {
        let ((from_unit, from), (to_unit, to)) = (self.split(from), self.split(to));
        let units = self.units.get_disjoint_mut([from_unit, to_unit]);
        let [a, b] = units.expect("two units");
        let range = |at: usize| at * self.kept..(at + 1) * self.kept;
        b.buffer.bytes_mut()[range(to)].copy_from_slice(&a.buffer.bytes()[range(from)]);
    }
}
